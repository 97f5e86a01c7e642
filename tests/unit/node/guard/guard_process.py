"""A real guard on this machine, with a /proc made of files, a Docker that is a real HTTP server, and clients."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import socketserver
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from sparkctl.model.guard_state import GuardEvent, GuardProcess, GuardReceipt, GuardRefusal, GuardState
from sparkctl.model.text.units import GIB, MIB
from sparkctl.monitor.guard_client import decode_guard_line, decode_guard_start
from sparkctl.node import bootstrap

FLOOR = 512 * MIB
LOADING, SERVING, THIRD = "1a" * 32, "5e" * 32, "3d" * 32


def wait_until(what: str, claim: Any, within: float = 40.0) -> Any:
    """Return what ``claim()`` returns as soon as it is something."""
    deadline = time.monotonic() + within
    while not (found := claim()):
        assert time.monotonic() < deadline, f"not within {within} s: {what}"
        time.sleep(0.005)
    return found


class FakeProc:
    """A /proc of its own: memory, and the kernel's count of drops."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "proc").mkdir(parents=True, exist_ok=True)
        self.drops = root / "proc/vmstat"
        self.drops.write_text("nr_free_pages 1\ndrop_pagecache 3\n")
        self._fd = os.open(root / "proc/meminfo", os.O_RDWR | os.O_CREAT)
        self.set(60.0)

    def set(self, available: float, free: float | None = None, cache: float = 0.0) -> float:
        """Write a reading (GiB); return the moment. One write of one length: nobody reads half of it."""
        fields = {"MemTotal": 121, "MemFree": available if free is None else free, "MemAvailable": available,
                  "Cached": cache, "SwapFree": 16}  # fmt: skip
        text = "".join(f"{name + ':':16}{int(size * GIB) >> 10:12} kB\n" for name, size in fields.items())
        os.pwrite(self._fd, text.encode(), 0)
        return time.monotonic()

    def close(self) -> None:
        os.close(self._fd)


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    docker: Docker

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A guard that goes in the middle of an answer is no news."""


class Docker:
    """Answers what the guard asks. ``states``: by id, absent is 404. ``hangs``: a kill gets no answer, ``cuts``: so many
    kills get the connection closed instead, ``refuses``: the status of a kill in place of 204, ``lasts``: seconds that
    an end takes; a kill is answered after them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.states: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[float, str]] = []
        self.connections: list[socket.socket] = []
        self.hangs = self.is_mute = False
        self.cuts = 0
        self.lasts = 0.0
        self.refuses: int | None = None
        self._over = threading.Event()
        self._server: _Server | None = None
        self.start()

    def start(self) -> None:
        self.path.unlink(missing_ok=True)
        server = self._server = _Server(str(self.path), _Handler)
        server.docker = self
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """Go away as a daemon that is restarted: no socket, no connections."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
            self.path.unlink(missing_ok=True)
        self.drop_connections()

    def drop_connections(self) -> None:
        for one in self.connections:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self.connections.clear()

    def close(self) -> None:
        self._over.set()
        self.stop()

    def runs(self, *ids: str) -> None:
        self.states.update({one: {"Status": "running", "Running": True, "ExitCode": 0} for one in ids})

    def kills(self) -> list[tuple[float, str]]:
        """Return moment and id of every kill that was asked for."""
        found = ((at, re.fullmatch(r"POST /containers/(\w+)/kill", line)) for at, line in self.asked)
        return [(at, match[1]) for at, match in found if match]

    def questions(self, container: str) -> int:
        return sum(line == f"GET /containers/{container}/json" for _, line in self.asked)

    def answer(self, line: str) -> tuple[int, Any] | None:
        """Return status and body, None for a closed connection."""
        self.asked.append((time.monotonic(), line))
        if self.is_mute:
            self._over.wait()
        if line == "GET /_ping":
            return 200, "OK"
        container = line.split("/")[2]
        if line.startswith("GET"):
            state = self.states.get(container)
            return (
                (404, {"message": "No such container"}) if state is None else (200, {"Id": container, "State": state})
            )
        if self.hangs:
            self._over.wait()
        if self.cuts:
            self.cuts -= 1
            return None
        if self.refuses:
            return self.refuses, {"message": "cannot kill it: \x1b[31mno\x1b[0m"}
        self._over.wait(self.lasts)
        self.states[container] = {"Status": "exited", "Running": False, "ExitCode": 137}
        return 204, ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.docker.connections.append(self.connection)

    def address_string(self) -> str:
        return "guard"

    def log_message(self, *_: Any) -> None:
        """Keep quiet."""

    def do_GET(self) -> None:
        self._reply()

    def do_POST(self) -> None:
        self._reply()

    def _reply(self) -> None:
        found = self.server.docker.answer(f"{self.command} {self.path}")
        if found is None:
            self.close_connection = True
            return
        status, body = found
        text = json.dumps(body).encode() if body != "" else b""
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


class Client:
    """One connection to the guard: answers by asking, events as they came."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(40.0)
        self.socket.connect(path)
        self.events: list[GuardEvent] = []
        self._file = self.socket.makefile("rb")

    def read(self) -> GuardState | GuardReceipt | GuardRefusal | None:
        """Return the next answer."""
        while True:
            line = self._file.readline()
            assert line, "the guard closed the connection"
            said = decode_guard_line(line)
            if not isinstance(said, GuardEvent):
                return said
            self.events.append(said)

    def ask(self, **command: Any) -> GuardState | GuardReceipt | GuardRefusal | None:
        self.socket.sendall(json.dumps(command).encode() + b"\n")
        return self.read()

    def state(self) -> GuardState:
        found = self.ask(do="state")
        assert isinstance(found, GuardState)
        return found

    def watch(self, container: str = LOADING, role: str = "loading", **fields: Any) -> GuardState:
        said = {"instance": "qwen", "profile": "qwen-fp8", "operator": "ann@laptop", "floor": FLOOR, "limit": 600}
        found = self.ask(**{"do": "watch", "container": container, "role": role, **said, **fields})
        assert isinstance(found, GuardState), found
        return found

    def receipt(self, container: str = LOADING) -> GuardReceipt | None:
        found = self.ask(do="receipt", container=container)
        assert found is None or isinstance(found, GuardReceipt)
        return found

    def happened(self) -> list[str]:
        """Return what the guard did so far, by its own list."""
        return [event.what.value for event in self.state().events]

    def close(self) -> None:
        self._file.close()
        self.socket.close()


class GuardedMachine:
    """A machine with a guard on it."""

    def __init__(self, place: Path, python: str = "python3", nvml: bytes = b"", options: Sequence[str] = ()) -> None:
        self.place = place
        self.proc = FakeProc(place / "root")
        self.docker = Docker(place / "docker.sock")
        self.docker.runs(LOADING, SERVING, THIRD)
        self.options = ["--dir", str(place / "g"), "--docker", str(self.docker.path), "--sudo", "false", *options]
        self.python, self.nvml = python, nvml
        self.pids: set[int] = set()
        self.clients: list[Client] = []
        self.said = GuardProcess("")

    def start(self) -> GuardProcess | GuardRefusal:
        """Start a guard as travel says; return what it says when its starter has ended."""
        root = str(self.proc.root)
        start = bootstrap.build_guard_program(root=root, nvml=self.nvml, python=self.python, options=self.options)
        done = subprocess.run(start.argv, input=start.stdin, capture_output=True, timeout=20, check=False)
        assert done.stdout, done.stderr.decode()
        said = decode_guard_start(done.stdout)
        if isinstance(said, GuardProcess):
            assert said.pid is not None
            self.pids.add(said.pid)
            self.said = said
        return said

    def client(self) -> Client:
        client = Client(self.said.socket)
        self.clients.append(client)
        return client

    @property
    def lives(self) -> bool:
        """Tell whether the guard's process is there (one that nobody has waited for is not)."""
        try:
            text = Path(f"/proc/{self.said.pid}/stat").read_text()
        except OSError:
            return False
        return "sparkctl-guard" in text and not text.rpartition(")")[2].startswith(" Z")

    def killed(self, number: int = 1) -> list[tuple[float, str]]:
        """Return the kills once there are so many."""
        wait_until(f"{number} kills", lambda: len(self.docker.kills()) >= number)
        return self.docker.kills()

    def close(self) -> None:
        for client in self.clients:
            client.close()
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it may have just ended
                if b"sparkctl-guard" in Path(f"/proc/{pid}/stat").read_bytes():
                    os.kill(pid, signal.SIGKILL)
        self.docker.close()
        self.proc.close()
        log = self.place / "g/guard.log"
        assert not log.exists() or log.read_text() == ""


@contextlib.contextmanager
def run_guard(place: Path, start: bool = True, **options: Any) -> Iterator[GuardedMachine]:
    """A machine with a guard; nothing of it is left at the end, and the guard's log has nothing to tell."""
    machine = GuardedMachine(place, **options)
    try:
        if start:
            assert isinstance(machine.start(), GuardProcess)
        yield machine
    finally:
        machine.close()
