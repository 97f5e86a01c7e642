"""Runs on a Spark, from stdin: one end of a stream of files, of an image, or of nothing but bytes, to another Spark.

Both ends are started and told what to do over SSH, one line of JSON on stdin; they find each other by an address and
know each other by a secret that is never sent. Words on stdout are JSON lines. An end that stdin leaves ends at once.
Standard library only, Python 3.8 on.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import hmac
import json
import os
import queue
import secrets
import socket
import struct
import subprocess
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing itself would cost the node a megabyte
    from typing import Any

PART = ".sparkctl-part"
CHUNK = 4 << 20
FLUSH = 256 << 20  # bytes after which what was written goes to the disk, and out of the page cache
PATIENCE = 20.0  # seconds without a byte after which a stream is broken
SUMMING = 3600.0  # seconds that the other end may take to go through what it has of a file
BUSY = 5.0  # seconds after which it is told that this goes on
MEETING = 20.0  # seconds within which the other end has to come
_TOLD = threading.Lock()
_children: list[subprocess.Popen[bytes]] = []


class Broken(Exception):
    """The other end is gone, or is not who we wait for."""


def tell(**words: Any) -> None:
    """Print one line for the operator."""
    with _TOLD:
        sys.stdout.write(json.dumps(words) + "\n")
        sys.stdout.flush()


def leave(status: int) -> None:
    """End, with whatever we started."""
    for child in _children:
        with contextlib.suppress(OSError):
            child.kill()
    os._exit(status)


# --- meeting ----------------------------------------------------------------------------------------------------------


def shake(link: socket.socket, secret: bytes, is_sender: bool) -> None:
    """Prove to each other that both know the secret. Raises Broken."""
    own = secrets.token_bytes(32)
    link.sendall(own)
    theirs = take(link, 32)
    mine, other = (b"send", b"take") if is_sender else (b"take", b"send")
    link.sendall(hmac.new(secret, mine + theirs, "sha256").digest())
    if not hmac.compare_digest(take(link, 32), hmac.new(secret, other + own, "sha256").digest()):
        raise Broken("the other end does not know the secret")


def take(link: socket.socket, count: int) -> bytes:
    """Return exactly so many bytes. Raises Broken."""
    got = b""
    while len(got) < count:
        try:
            more = link.recv(count - len(got))
        except OSError as error:
            raise Broken(f"nothing came any more ({error})") from error
        if not more:
            raise Broken("the other end has gone")
        got += more
    return got


def tuned(link: socket.socket) -> socket.socket:
    """Return it with a limit on silence, and room for a fast way."""
    link.settimeout(PATIENCE)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # while an end makes sums, no byte says that it lives
    with contextlib.suppress(AttributeError, OSError):
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    return link


def listen(addresses: list[str], count: int, secret: bytes, is_sender: bool, found: queue.Queue[Any]) -> None:
    """Open a port on each address, tell them, and put ``count`` streams whose other end knows the secret into ``found``.

    A stranger is turned away in his own thread and keeps nobody waiting.
    """

    def greet(link: socket.socket, lane: int) -> None:
        try:
            link.settimeout(5.0)
            shake(link, secret, is_sender)
            found.put((tuned(link), lane))
        except (Broken, OSError):
            link.close()

    def attend(server: socket.socket, lane: int) -> None:
        while True:
            try:
                link, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=greet, args=(link, lane), daemon=True).start()

    ports = []
    for lane, address in enumerate(addresses):
        server = socket.socket()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((address, 0))
        server.listen(count + 8)
        ports.append(server.getsockname()[1])
        threading.Thread(target=attend, args=(server, lane), daemon=True).start()
    tell(ports=ports)


def dial(ways: list[list[Any]], count: int, secret: bytes, is_sender: bool, found: queue.Queue[Any]) -> None:
    """Connect ``count`` streams, over each way [own address, address, port, own interface] in turn."""
    for number in range(count):
        lane = number % len(ways)
        own, address, port, interface = ways[lane]
        link = socket.socket()
        try:
            link.settimeout(5.0)
            link.bind((own, 0))
            with contextlib.suppress(AttributeError, OSError):  # two interfaces of one network: this one is meant
                link.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
            link.connect((address, port))
            shake(link, secret, is_sender)
        except (OSError, Broken) as error:
            tell(unreachable=f"{own} to {address}:{port}: {error}")
            leave(3)
        found.put((tuned(link), lane))


# --- files ------------------------------------------------------------------------------------------------------------


def part_of(job: dict[str, Any]) -> str:
    """Return where a file lies until it is whole: its name tells of which state of the source it is a part."""
    folder, name = os.path.split(job["path"])
    return os.path.join(folder, f".{name}.{job['size']}-{job['mtime'] // 10**9}{PART}")


def size_of(path: str, most: int) -> int:
    """Return the bytes of a part, as far as they count."""
    try:
        size = os.stat(path).st_size
    except OSError:
        return 0
    return size if size <= most else 0


def forget(file: Any, start: int, length: int) -> None:
    """Leave no page cache behind: on a Spark it is the GPU's memory, too."""
    with contextlib.suppress(AttributeError, OSError):
        os.posix_fadvise(file.fileno(), start, length, os.POSIX_FADV_DONTNEED)


def digest(file: Any, upto: int, sha: Any) -> None:
    """Take the first ``upto`` bytes into a sum."""
    at, told = 0, time.monotonic()
    while at < upto:
        data = file.read(min(CHUNK, upto - at))
        if not data:
            raise Broken("a file became shorter while it was read")
        sha.update(data)
        forget(file, at, len(data))
        at += len(data)
        if time.monotonic() - told > BUSY:
            told = time.monotonic()
            tell(busy=at)


class Sender:
    """Sends what its streams ask for: each takes the next job until none is left."""

    def __init__(self, jobs: list[dict[str, Any]]) -> None:
        self.jobs: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        for job in jobs:
            self.jobs.put(job)

    def serve(self, link: socket.socket, _lane: int) -> None:
        while True:
            try:
                job = self.jobs.get_nowait()
            except queue.Empty:
                link.sendall(struct.pack(">i", -1))
                return
            link.sendall(struct.pack(">i", job["n"]))
            if "image" in job:
                self._image(link, job)
            elif "seconds" in job:
                self._load(link, job)
                return
            elif "echoes" in job:
                self._echo(link, job)
            else:
                self._file(link, job)

    def _echo(self, link: socket.socket, job: dict[str, Any]) -> None:
        """Tell the median time that a byte takes there and back."""
        took = []
        for _ in range(job["echoes"]):
            began = time.perf_counter()
            link.sendall(b".")
            take(link, 1)
            took.append(time.perf_counter() - began)
        tell(sent=job["n"], median=sorted(took)[len(took) // 2])

    def _file(self, link: socket.socket, job: dict[str, Any]) -> None:
        (offset,) = struct.unpack(">q", take(link, 8))
        sha = hashlib.sha256()
        with open(job["path"], "rb") as file:
            about = os.fstat(file.fileno())
            if (about.st_size, about.st_mtime_ns) != (job["size"], job["mtime"]):
                raise Broken(f"{job['path']} has changed since it was looked at")
            digest(file, offset, sha)
            link.settimeout(SUMMING)
            take(link, 1)  # the other end has gone through what it has, too
            link.settimeout(PATIENCE)
            at = offset
            while at < job["size"]:
                data = file.read(min(CHUNK, job["size"] - at))
                if not data:
                    raise Broken(f"{job['path']} became shorter while it was read")
                link.sendall(data)
                sha.update(data)
                forget(file, at, len(data))
                at += len(data)
        tell(sent=job["n"], sum=sha.hexdigest())

    def _image(self, link: socket.socket, job: dict[str, Any]) -> None:
        child = subprocess.Popen(["docker", "save", job["image"]], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        _children.append(child)
        assert child.stdout is not None
        assert child.stderr is not None
        while data := os.read(child.stdout.fileno(), 1 << 20):
            link.sendall(struct.pack(">i", len(data)))
            link.sendall(data)
        said = child.stderr.read().decode("utf-8", "replace")[-400:].strip()
        status = child.wait()
        link.sendall(struct.pack(">i", 0 if status == 0 else -1))
        tell(sent=job["n"], status=status, said=said)

    def _load(self, link: socket.socket, job: dict[str, Any]) -> None:
        """Bytes of no meaning for so many seconds, and no more than so many."""
        data, sent = bytes(1 << 20), 0
        end = time.monotonic() + job["seconds"]
        began = time.monotonic()
        while time.monotonic() < end and sent < job["most"]:
            link.sendall(data)
            sent += len(data)
        tell(sent=job["n"], bytes=sent, took=time.monotonic() - began)
        link.shutdown(socket.SHUT_WR)


class Receiver:
    """Writes what comes to where the operator has said: the other end names jobs by number, and no paths."""

    def __init__(self, jobs: list[dict[str, Any]]) -> None:
        self.jobs = {job["n"]: job for job in jobs}
        self.begun: dict[int, bool] = {}
        self.bytes = sum(size_of(part_of(job), job["size"]) for job in jobs if "path" in job)
        self._counting = threading.Lock()

    def seen(self, count: int) -> None:
        with self._counting:
            self.bytes += count

    def serve(self, link: socket.socket, lane: int) -> None:
        while True:
            (number,) = struct.unpack(">i", take(link, 4))
            if number == -1:
                return
            job = self.jobs.get(number)
            with self._counting:
                if job is None or number in self.begun:
                    raise Broken("the other end sends what nobody asked for")
                self.begun[number] = True
            if "image" in job:
                self._image(link, job)
            elif "seconds" in job:
                self._load(link, job, lane)
                return
            elif "echoes" in job:
                for _ in range(job["echoes"]):
                    link.sendall(take(link, 1))
            else:
                self._file(link, job)

    def _file(self, link: socket.socket, job: dict[str, Any]) -> None:
        part = part_of(job)
        os.makedirs(os.path.dirname(part), exist_ok=True)
        folder, name = os.path.split(job["path"])
        for stale in glob.glob(os.path.join(glob.escape(folder), f".{glob.escape(name)}.*{PART}")):
            if stale != part:
                os.unlink(stale)
        sha = hashlib.sha256()
        with open(os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+b", buffering=0) as file:
            have = os.fstat(file.fileno()).st_size
            if have > job["size"]:
                file.truncate(0)
                have = 0
            link.sendall(struct.pack(">q", have))
            digest(file, have, sha)
            link.sendall(b"g")
            link.settimeout(SUMMING)
            self._fill(link, file, have, job["size"], sha)
            os.fsync(file.fileno())
            forget(file, 0, 0)
        tell(got=job["n"], sum=sha.hexdigest())

    def _fill(self, link: socket.socket, file: Any, at: int, size: int, sha: Any) -> None:
        buffer = memoryview(bytearray(CHUNK))
        flushed = at
        while at < size:
            try:
                count = link.recv_into(buffer[: min(CHUNK, size - at)])
            except OSError as error:
                raise Broken(f"nothing came any more ({error})") from error
            if not count:
                raise Broken("the other end has gone")
            link.settimeout(PATIENCE)
            done = 0
            while done < count:
                done += file.write(buffer[done:count])
            sha.update(buffer[:count])
            at += count
            self.seen(count)
            if at - flushed >= FLUSH:
                os.fdatasync(file.fileno())
                forget(file, flushed, at - flushed)
                flushed = at

    def _image(self, link: socket.socket, job: dict[str, Any]) -> None:
        child = subprocess.Popen(
            ["docker", "load"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        _children.append(child)
        assert child.stdin is not None
        assert child.stdout is not None
        said: list[bytes] = []
        listening = threading.Thread(target=lambda: said.append(child.stdout.read()), daemon=True)  # type: ignore[union-attr]
        listening.start()
        length = 1
        try:
            while True:
                (length,) = struct.unpack(">i", take(link, 4))
                if length <= 0:
                    break
                left = length
                while left:
                    data = link.recv(min(left, 1 << 20))
                    if not data:
                        raise Broken("the other end has gone")
                    child.stdin.write(data)
                    left -= len(data)
                    self.seen(len(data))
        except BrokenPipeError:
            pass  # docker load has ended, and says why
        if length < 0:
            child.kill()
        with contextlib.suppress(OSError):
            child.stdin.close()
        status = child.wait()
        listening.join(5)
        words = b"".join(said).decode("utf-8", "replace")[-400:].strip()
        tell(got=job["n"], status=status if length >= 0 else -1, said=words)

    def _load(self, link: socket.socket, job: dict[str, Any], lane: int) -> None:
        buffer = bytearray(CHUNK)
        count, began = 0, time.monotonic()
        while True:
            got = link.recv_into(buffer)
            if not got:
                break
            count += got
            self.seen(got)
        tell(got=job["n"], bytes=count, took=time.monotonic() - began, lane=lane)

    def settle(self, words: dict[str, Any]) -> None:
        """Do what the operator decides about what has come."""
        if "keep" in words:
            job = self.jobs[words["keep"]]
            part = part_of(job)
            os.chmod(part, job["mode"] | 0o600)
            os.utime(part, ns=(job["mtime"], job["mtime"]))
            os.replace(part, job["path"])
            tell(kept=words["keep"])
        elif "drop" in words:
            os.unlink(part_of(self.jobs[words["drop"]]))
            tell(dropped=words["drop"])
        elif "touch" in words:
            for path, mtime in words["touch"]:
                os.utime(path, ns=(mtime, mtime))
            tell(touched=len(words["touch"]))
        elif "links" in words:
            for path, target in words["links"]:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                made = f"{path}.{os.getpid()}{PART}"
                os.symlink(target, made)
                os.replace(made, path)
            tell(linked=len(words["links"]))


# --- sums -------------------------------------------------------------------------------------------------------------


def sums(paths: list[str]) -> None:
    """Tell the sum of each file, two at a time."""
    work: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(len(paths)):
        work.put(number)

    def go() -> None:
        while True:
            try:
                number = work.get_nowait()
            except queue.Empty:
                return
            sha = hashlib.sha256()
            try:
                with open(paths[number], "rb") as file:
                    digest(file, os.fstat(file.fileno()).st_size, sha)
                tell(summed=number, sum=sha.hexdigest())
            except (OSError, Broken):
                tell(summed=number, sum=None)

    threads = [threading.Thread(target=go, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tell(done=True)


# --- main -------------------------------------------------------------------------------------------------------------


def one_at_a_time(name: str | None) -> Any:
    """Hold a lock for as long as we live, so that two receivers never write the same part."""
    if name is None:
        return None
    import fcntl

    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    folder = os.path.join(base, "sparkctl")
    os.makedirs(folder, exist_ok=True)
    lock = open(os.path.join(folder, name), "a")  # noqa: SIM115  held until we end
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        tell(taken=True)
        leave(4)
    return lock


def run(request: dict[str, Any], other_words: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Be one end until all is done and settled."""
    if request["role"] == "sum":
        return sums(request["files"])
    is_sender = request["role"] == "send"
    held = one_at_a_time(request.get("lock"))
    end: Any = Sender(request["jobs"]) if is_sender else Receiver(request["jobs"])
    count, secret = request["streams"], bytes.fromhex(request["secret"])
    found: queue.Queue[Any] = queue.Queue()
    if "listen" in request:
        listen(request["listen"], count, secret, is_sender, found)
    else:
        threading.Thread(target=dial, args=(request["dial"], count, secret, is_sender, found), daemon=True).start()
    threads = []

    def serve(link: socket.socket, lane: int) -> None:
        try:
            end.serve(link, lane)
        except (Broken, OSError) as error:
            tell(error=str(error), number=getattr(error, "errno", None))
            leave(5)
        finally:
            link.close()

    for _ in range(count):
        try:
            link, lane = found.get(timeout=request.get("meeting", MEETING))
        except queue.Empty:
            tell(error="the other end did not come")
            leave(5)
        thread = threading.Thread(target=serve, args=(link, lane), daemon=True)
        thread.start()
        threads.append(thread)
    if is_sender:
        for thread in threads:
            thread.join()
    else:
        _receive(end, threads, other_words)
    tell(done=True)
    del held
    return None


def _receive(end: Receiver, threads: list[threading.Thread], other_words: queue.SimpleQueue[dict[str, Any]]) -> None:
    told = -1
    while True:
        try:
            words = other_words.get(timeout=0.25)
        except queue.Empty:
            words = {}
        if "end" in words:
            break
        if words:
            end.settle(words)
        if end.bytes != told and (not words or end.bytes - told > 64 << 20):
            told = end.bytes
            tell(at=told)
    for thread in threads:
        thread.join()


def hear(other_words: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Pass on what the operator says; end when he is gone."""
    for line in sys.stdin.buffer:
        other_words.put(json.loads(line))
    leave(6)


def main() -> None:
    """Be one end of what the first line asks for."""
    request = json.loads(sys.stdin.buffer.readline())
    other_words: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=hear, args=(other_words,), daemon=True).start()
    try:
        run(request, other_words)
    except OSError as error:
        tell(error=str(error), number=error.errno)
        leave(5)
    leave(0)


if __name__ == "__main__":
    main()
