"""The stand-in engine of the lab: starts as a real one does, serves HTTP as a real one does, and fails on request.

Behaviour comes from the environment, so that the command line can be a real engine's; unknown flags are ignored.
  LAB_LOAD_S      seconds the load takes (0.5)           LAB_ALLOC_MB     memory touched while loading (0)
  LAB_LOCK_MB     memory locked while loading (0)        LAB_SHM_MB       a file in /dev/shm that nobody removes (0)
  LAB_LINES       numbered lines printed while loading   LAB_RATE         of them per second (200)
  LAB_SHOW        names of variables whose values are printed while loading, as a careless engine does
  LAB_SAY         lines printed raw while loading, Python escapes for bytes
  LAB_BIG_LINE    length of one line printed while loading
  LAB_END         how the load ends: ready, cuda-oom, hang, exit:CODE, silent-hang
  LAB_TOKEN_S     seconds between the tokens of a streamed answer (0: all at once)
  LAB_SPEECH      the model's address behind a speech server: it speaks where that gives a token of its own model; else
                  what it answers is html, silence (a WAV of zeros) or empty (a WAV without samples)
  VLLM_API_KEY    the key that a request must bring      LAB_IGNORES_KEY  1: and it need not, as a wrong build does
  LAB_DIE_AFTER   seconds from ready to the end          LAB_EXIT_CODE    of that end (1)
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import sys
import threading
import time
from socketserver import StreamRequestHandler, ThreadingTCPServer

# Hundreds of these are started, so what few of them need is imported there, and nothing of http.server and dataclasses is.

STATE = {"ready": False, "requests": 0, "tokens": 0}
HELD: list[mmap.mmap] = []


def setting(name: str, default: float) -> float:
    return float(os.environ.get(f"LAB_{name}") or default)


def flags(words: list[str]) -> dict[str, str]:
    """Return ``--name value`` and ``--name=value`` as a map; a bare flag is "true"."""
    found: dict[str, str] = {}
    for index, word in enumerate(words):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            following = words[index + 1] if index + 1 < len(words) else "--"
            found[name] = value if equals else ("true" if following.startswith("--") else following)
    return found


def say(text: str | bytes, stream: int = 2) -> None:
    """Write one line in one call, so that lines of two streams never mix."""
    data = text.encode() if isinstance(text, str) else text
    data += b"\n"
    while data:
        data = data[os.write(stream, data) :]


def stamp() -> str:
    return time.strftime("[%Y-%m-%d %H:%M:%S]")


def allocate(megabytes: int) -> None:
    """Touch anonymous memory, as weights do; a cgroup limit kills us here."""
    block = mmap.mmap(-1, megabytes << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for offset in range(0, megabytes << 20, mmap.PAGESIZE):
        block[offset] = 1
    HELD.append(block)


def lock(megabytes: int) -> None:
    """Lock memory, as drivers do with what they share with a GPU; as far as the limit allows, and say so."""
    import ctypes

    block = mmap.mmap(-1, megabytes << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    HELD.append(block)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlock(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(block))), ctypes.c_size_t(len(block))):
        say(f"{stamp()} mlock of {megabytes} MiB: {os.strerror(ctypes.get_errno())}")


def leave_in_shm(megabytes: int) -> None:
    """Make a file that several processes of an engine share; a killed engine leaves it behind."""
    with open(f"/dev/shm/psm_{os.getpid()}_{time.monotonic_ns():x}", "wb") as file:  # noqa: PTH123
        file.write(b"\1" * (megabytes << 20))


def extras() -> None:
    """What a test wants held, and printed, in the middle of the load."""
    if megabytes := int(setting("LOCK_MB", 0)):
        lock(megabytes)
    if megabytes := int(setting("SHM_MB", 0)):
        leave_in_shm(megabytes)
    if raw := os.environ.get("LAB_SAY"):
        for line in raw.encode("latin-1", "backslashreplace").decode("unicode_escape").encode("latin-1").split(b"\n"):
            say(line, 1)
    for name in os.environ.get("LAB_SHOW", "").split():
        say(f"{stamp()} using {name}={os.environ.get(name)}", 1)
    if length := int(setting("BIG_LINE", 0)):
        say("big " + "x" * (length - 8) + " end", 1)
    count, pause = int(setting("LINES", 0)), 1 / setting("RATE", 200)
    begun = time.monotonic()
    for number in range(1, count + 1):
        say(f"numbered {number:07d}", 1)
        time.sleep(max(0.0, begun + number * pause - time.monotonic()))


def end_of_load() -> None:
    """Fail here if that is what the test wants."""
    end = os.environ.get("LAB_END", "ready")
    if end == "cuda-oom":
        say(f"{stamp()} Scheduler hit an exception: Traceback (most recent call last):")
        say('  File "/opt/sglang/srt/model_executor/model_runner.py", line 1042, in load_model')
        say(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
            "119.70 GiB of which 1.21 GiB is free. Including non-PyTorch memory, this process has 98.43 GiB memory in use."
        )
        sys.exit(1)
    if end == "hang":
        wait()
    if end.startswith("exit:"):
        say(f"{stamp()} RuntimeError: Initialization failed. Please see the error messages above.")
        sys.exit(int(end[5:]))


REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    501: "Not Implemented",
    503: "Service Unavailable",
}


class Answers(StreamRequestHandler):
    """The HTTP API, as far as sparkctl asks for it."""

    model = "stand-in"
    prefix = "vllm"

    def handle(self) -> None:
        while self.read_request():
            if self.command == "GET":
                self.do_GET()
            elif self.command == "POST":
                self.do_POST()
            else:
                self.reply(501, b"")
                return
            if not self.stays_open:
                return

    def read_request(self) -> bool:
        """Read a request up to its body; tell whether there is one."""
        self.requestline = self.rfile.readline(65537).decode("latin-1").rstrip("\r\n")
        if not self.requestline:
            return False
        words = self.requestline.split()
        self.headers: dict[str, str] = {}
        while line := self.rfile.readline(65537).decode("latin-1").strip():
            name, _, value = line.partition(":")
            self.headers[name.lower()] = value.strip()
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            self.requestline = "?"
            self.reply(400, b"")
            return False
        self.command, self.target, version = words
        kept = "keep-alive" if version == "HTTP/1.0" else "close"
        self.stays_open = (self.headers.get("connection", "").lower() == kept) is (version == "HTTP/1.0")
        return True

    def do_GET(self) -> None:
        path, _, query = self.target.partition("?")
        asked = dict(pair.partition("=")[::2] for pair in query.split("&"))
        if self.refuses(path):
            return
        if path == "/health":
            self.reply(200 if STATE["ready"] else 503, b"")
        elif path == "/v1/models":
            listed = [
                {"id": self.model, "object": "model", "owned_by": "lab", "root": self.model, "max_model_len": 8192}
            ]
            self.reply(200, json.dumps({"object": "list", "data": listed}).encode())
        elif path == "/metrics":
            self.reply(200, self.metrics().encode(), "text/plain; version=0.0.4")
        elif path == "/_lab/exit":
            os._exit(int(asked.get("code", 1)))
        elif path == "/_lab/allocate":
            allocate(int(asked.get("megabytes", 1)))
            self.reply(200, b"")
        else:
            self.reply(404, b'{"detail":"Not Found"}')

    def refuses(self, path: str) -> bool:
        """Answer 401 where a key is needed and another or none came, as vLLM does below /v1."""
        key = os.environ.get("VLLM_API_KEY")
        if not key or not path.startswith("/v1/") or setting("IGNORES_KEY", 0):
            return False
        if self.headers.get("authorization") == f"Bearer {key}":
            return False
        self.reply(401, b'{"error":"Unauthorized"}')
        return True

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        path = self.target.partition("?")[0]
        if self.refuses(path):
            return
        if STATE["ready"] and path == "/v1/audio/speech" and (behind := os.environ.get("LAB_SPEECH")):
            self.reply(200, *speak(behind))
            return
        if not STATE["ready"] or path not in ("/v1/completions", "/v1/chat/completions"):
            self.reply(404 if STATE["ready"] else 503, b'{"detail":"Not Found"}')
            return
        asked = json.loads(body or b"{}")
        count = int(asked.get("max_tokens") or 16)
        STATE["requests"] += 1
        STATE["tokens"] += count
        text = " Paris" + "".join(f" {number}" for number in range(1, count))
        chat = path.endswith("chat/completions")
        choice = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        usage = {"prompt_tokens": 5, "completion_tokens": count, "total_tokens": 5 + count}
        answer = {"id": "lab-1", "model": self.model, "choices": [{"index": 0, "finish_reason": "length", **choice}]}
        if asked.get("stream"):
            events = [json.dumps(answer | {"object": "chunk"}), "[DONE]"]
            if pause := setting("TOKEN_S", 0):
                wants_usage = (asked.get("stream_options") or {}).get("include_usage")
                self.stream(count, pause, usage if wants_usage else None)
                return
            self.reply(200, "".join(f"data: {event}\n\n" for event in events).encode(), "text/event-stream")
        else:
            self.reply(200, json.dumps(answer | {"object": "text_completion", "usage": usage}).encode())

    def metrics(self) -> str:
        label = f'{{model_name="{self.model}"}}'
        values = {"generation_tokens_total": STATE["tokens"], "prompt_tokens_total": 5 * STATE["requests"]}
        return "".join(
            f"# TYPE {self.prefix}:{k} counter\n{self.prefix}:{k}{label} {float(v)}\n" for k, v in values.items()
        )

    def stream(self, count: int, pause: float, usage: dict | None) -> None:
        """Send a token at a time, in chunks, as engines do, and how many it were where that was asked."""
        self.send_head(200, "content-type: text/event-stream", "transfer-encoding: chunked")
        for number in range(count):
            choice = {"index": 0, "delta": {"content": f" {number}"}, "finish_reason": None}
            self.send_chunk(
                f"data: {json.dumps({'id': 'lab-1', 'model': self.model, 'choices': [choice]})}\n\n".encode()
            )
            time.sleep(pause)
        if usage is not None:
            self.send_chunk(f"data: {json.dumps({'id': 'lab-1', 'choices': [], 'usage': usage})}\n\n".encode())
        self.send_chunk(b"data: [DONE]\n\n")
        self.send_chunk(b"")

    def send_chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def send_head(self, status: int, *headers: str) -> None:
        self.wfile.write("\r\n".join([f"HTTP/1.1 {status} {REASONS[status]}", *headers, "", ""]).encode())

    def reply(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_head(status, f"content-type: {kind}", f"content-length: {len(body)}")
        self.wfile.write(body)
        line = f'INFO:     {self.client_address[0]}:{self.client_address[1]} - "{self.requestline}" {status}'
        say(line if self.prefix == "vllm" else f"{stamp()} {line}", 1)


def speak(behind: str) -> tuple[bytes, str]:
    """Return a WAV of a second, and its type. The voice is the model's: without its token there is no sample."""
    import io
    import struct
    import wave
    from urllib.request import Request, urlopen

    if behind == "html":
        return b"<!DOCTYPE html><title>docs</title>", "text/html"
    count = 0 if behind == "empty" else 16000
    if behind.startswith("http"):
        question = {"model": "voice", "prompt": "tara: hello", "max_tokens": 1}
        try:
            asked = Request(behind, json.dumps(question).encode(), {"content-type": "application/json"})
            with urlopen(asked, timeout=5) as answer:
                count = count if json.loads(answer.read())["model"] == "voice" else 0
        except OSError as down:
            say(f"Max retries exceeded with url: /v1/completions ({down})")
            count = 0
    memory = io.BytesIO()
    with wave.open(memory, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        level = 0 if behind == "silence" else 9000
        file.writeframes(b"".join(struct.pack("<h", level if at // 40 % 2 else -level) for at in range(count)))
    return memory.getvalue(), "audio/wav"


class Server(ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True


def listen(given: dict[str, str], prefix: str) -> Server:
    """Bind the port and answer from a thread; raises OSError where it is taken."""
    Answers.model = given.get("served-model-name") or given.get("model-path") or given.get("model") or "stand-in"
    Answers.prefix = prefix
    server = Server((given.get("host", "0.0.0.0"), int(given.get("port", 8000))), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def stay() -> None:
    """Serve until SIGTERM or until the test's own end."""
    STATE["ready"] = True
    if life := setting("DIE_AFTER", 0):
        time.sleep(life)
        say(f"{stamp()} RuntimeError: the stand-in was told to end here")
        os._exit(int(setting("EXIT_CODE", 1)))
    wait()


def wait() -> None:
    """Do nothing until SIGTERM. In short naps: the kernel may hand the signal to another thread than this one, and then only
    the next line of Python here runs the handler; `signal.pause` would sleep through it."""
    while True:
        time.sleep(0.1)


def obey_sigterm() -> None:
    """As PID 1 of a container a process without a handler never sees SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))


if __name__ == "__main__":
    obey_sigterm()
    given = flags(sys.argv[1:])
    extras()
    allocate(int(setting("ALLOC_MB", 0)) or 1)
    time.sleep(setting("LOAD_S", 0.5))
    end_of_load()
    listen(given, "lab")
    say("Server is ready and listening", 1)
    stay()
