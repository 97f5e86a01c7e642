"""The real `sparkctl` in a process of its own: with its own home, and its output kept byte for byte."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab.bed.lab import KEYS, format_known_hosts
from tests.lab.bed.names import ADDRESSES, IMAGE, USER
from tests.lab.support.forked_command import ForkedCommand

PATIENCE = 60.0
ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, slots=True, repr=False)
class Ran:
    """A finished command."""

    code: int
    stdout: bytes
    stderr: bytes

    @property
    def out(self) -> str:
        """Its stdout as text."""
        return self.stdout.decode(errors="replace")

    @property
    def err(self) -> str:
        """Its stderr as text."""
        return self.stderr.decode(errors="replace")

    @property
    def events(self) -> list[dict[str, Any]]:
        """Every line of stdout as JSON; anything else there fails."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def result(self) -> dict[str, Any]:
        """The last event, which has to be the result."""
        last = self.events[-1]
        assert last["event"] == "result", last
        return last

    def __repr__(self) -> str:
        return f"exit {self.code}\n--- stdout\n{self.out[-2500:]}\n--- stderr\n{self.err[-6000:]}"


class StillRunning(AssertionError):
    """A command did not end in time."""


class Running:
    """A command in the background; its output can be waited for."""

    def __init__(self, process: ForkedCommand) -> None:
        self.process = process
        self._streams = {"out": bytearray(), "err": bytearray()}
        self._changed = threading.Condition()
        self._threads = [
            threading.Thread(target=self._read, args=(name, pipe), daemon=True)
            for name, pipe in (("out", process.stdout), ("err", process.stderr))
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, name: str, pipe: Any) -> None:
        while data := pipe.read1(65536):
            with self._changed:
                self._streams[name] += data
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def await_text(self, pattern: str, timeout: float = PATIENCE) -> str:
        """Return the match as soon as ``pattern`` is in stdout or stderr; fail if the command ends or time runs out."""
        wanted = re.compile(pattern.encode(), re.MULTILINE)
        end = time.monotonic() + timeout
        with self._changed:
            while True:
                for stream in self._streams.values():
                    if match := wanted.search(stream):
                        return match[0].decode(errors="replace")
                over = not any(thread.is_alive() for thread in self._threads)
                if over or not self._changed.wait(min(0.5, max(0.0, end - time.monotonic()))):
                    assert not over, f"ended without {pattern!r}\n{self.so_far()}"
                    assert time.monotonic() < end, f"no {pattern!r} in {timeout} s\n{self.so_far()}"

    def so_far(self) -> Ran:
        """Return what it has said up to now."""
        return Ran(self.process.poll() or 0, bytes(self._streams["out"]), bytes(self._streams["err"]))

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def kill(self) -> Ran:
        """End it without asking and return what it had said by then."""
        self.process.kill()
        return self.end()

    def end(self, timeout: float = PATIENCE) -> Ran:
        """Wait for its end."""
        try:
            self.process.wait(timeout)
        except TimeoutError:
            self.process.kill()
            self.process.wait()
            raise StillRunning(f"did not end in {timeout} s\n{self.so_far()}") from None
        for thread in self._threads:
            thread.join(5)
        return Ran(self.process.returncode, bytes(self._streams["out"]), bytes(self._streams["err"]))


class Sparkctl:
    """Runs the command. ``home`` is the operator's; profiles are written as JSON, which YAML takes."""

    def __init__(self, tmp_path: Path, operator: str = "milo") -> None:
        self.home = tmp_path / f"home-{operator}"
        self.state = self.home / "state"
        self.config = self.home / "config/sparkctl/config.yaml"
        self.config.parent.mkdir(parents=True)
        (self.home / ".ssh").mkdir(mode=0o700)
        self.know(format_known_hosts())
        self.configure()
        self.env = {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "HOME": str(self.home),
            "USER": operator,
            "LOGNAME": operator,
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "PYTHONPATH": str(ROOT),  # this very tree, whatever is installed
            "SPARKCTL_CONFIG": str(self.config),
            "XDG_CONFIG_HOME": str(self.home / "config"),
            "XDG_STATE_HOME": str(self.state),
            "XDG_DATA_HOME": str(self.home / "data"),
            "XDG_CACHE_HOME": str(self.home / "cache"),
            **{name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ},  # of a second checkout
        }
        self._running: list[Running] = []

    def know(self, lines: str) -> None:
        """Make these the whole known_hosts file."""
        (self.home / ".ssh/known_hosts").write_text(lines)

    def configure(self, **changes: object) -> None:
        """Write the config: both nodes, each with ``changes``."""
        nodes = [
            {"name": name, "host": address, "user": USER, "identity": str(KEYS / "client"), **changes}
            for name, (address, _) in ADDRESSES.items()
        ]
        self.config.write_text(json.dumps({"nodes": nodes}))

    def profile(self, name: str = "tiny", env: Mapping[str, str] | None = None, **fields: Any) -> str:
        """Write a profile of the stand-in engine and return its name; ``fields`` replace whole top-level fields."""
        content: dict[str, Any] = {
            "schema": 1,
            "name": name,
            "engine": "sglang",
            "image": IMAGE,
            "model": {"path": "/models/tiny", "served_name": "tiny"},
            "port": 8101,
            "container": {"gpus": "none", "network": "host"},
            "start": {"drop_caches": False},
            "env": dict(env or {}),
            **fields,
        }
        path = self.home / f"config/sparkctl/profiles/{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
        return name

    def argv(self, *words: str) -> list[str]:
        """Return the whole command line."""
        return [sys.executable, "-m", "sparkctl", *words]

    def start(self, *words: str, env: Mapping[str, str] | None = None) -> Running:
        """Run in the background."""
        self._running.append(Running(ForkedCommand(words, {**self.env, **(env or {})}, self.home)))
        return self._running[-1]

    def __call__(self, *words: str, timeout: float = PATIENCE, env: Mapping[str, str] | None = None) -> Ran:
        """Run to the end."""
        return self.start(*words, env=env).end(timeout)

    def on_terminal(
        self, *words: str, timeout: float = PATIENCE, answers: Mapping[bytes, bytes] | None = None, columns: int = 100
    ) -> tuple[int, bytes]:
        """Run on a pseudo-terminal of 40 rows; return the exit code and every byte that reached the terminal.

        ``answers`` are typed, each once, as soon as their prompt is there.
        """
        waiting = dict(answers or {})
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        process = ForkedCommand(words, self.env, self.home, theirs)
        os.close(theirs)
        seen, end = bytearray(), time.monotonic() + timeout
        while time.monotonic() < end:
            if select.select([ours], [], [], 0.2)[0]:
                try:
                    seen += os.read(ours, 65536)
                except OSError:  # the other side is closed
                    break
                for prompt in [prompt for prompt in waiting if prompt in seen]:
                    os.write(ours, waiting.pop(prompt))
        os.close(ours)
        if process.poll() is None and time.monotonic() >= end:
            process.kill()
        return process.wait(10), bytes(seen)

    def end_all(self) -> None:
        """End what a failed test left running."""
        for running in self._running:
            if running.process.poll() is None:
                running.process.kill()
                running.process.wait()

    def so_far(self) -> list[Ran]:
        """Return what every command of this operator has said up to now."""
        return [running.so_far() for running in self._running]

    def saved(self) -> list[Path]:
        """Return every file it keeps: state, data and cache."""
        roots = (self.state, self.home / "data", self.home / "cache")
        return [path for root in roots if root.exists() for path in root.rglob("*") if path.is_file()]
