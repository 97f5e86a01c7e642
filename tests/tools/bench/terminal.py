"""A program in a pseudo terminal that is read as fast as it writes, and the time from a key to what it paints."""

from __future__ import annotations

import fcntl
import os
import pty
import random
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from types import TracebackType

from tests.tools.bench.timed_processes import ROOT

ROWS, COLUMNS = 40, 120


class Terminal:
    """A terminal of ROWS x COLUMNS with one program in it; leaving it types ``quit_keys`` and waits for the end."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], quit_keys: bytes = b"q") -> None:
        self._quit_keys = quit_keys
        self._seen = b""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            argv,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=ROOT,
            env={**env, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
            start_new_session=True,
        )
        os.close(slave)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if kind is None:
                os.write(self._master, self._quit_keys)
                self._drain_to_end()
        finally:
            self.process.kill()
            self.process.wait()
            os.close(self._master)

    def type(self, keys: bytes) -> None:
        """Type keys, and wait for nothing."""
        os.write(self._master, keys)

    def press(self, key: bytes, mark: bytes) -> float:
        """Press a key at some moment and return the ms until its mark is written."""
        self.rest(random.uniform(0.02, 0.08))
        begun = time.perf_counter()
        os.write(self._master, key)
        self.wait_for(mark)
        return 1000 * (time.perf_counter() - begun)

    def wait_for(self, mark: bytes, seconds: float = 60) -> None:
        """Read until the mark was written."""
        pattern, until = re.compile(mark), time.monotonic() + seconds
        while not pattern.search(self._seen):
            if time.monotonic() > until:
                raise RuntimeError(f"no {mark!r} in {seconds:.0f} s: {self._seen[-300:]!r}")
            self._seen = self._seen[-64:] + self._read(0.1)
        self._seen = b""

    def read_largest(self, pattern: bytes, seconds: float) -> int:
        """Read on for so long; return the largest number that the pattern's group finds, 0 without any."""
        until, seen = time.monotonic() + seconds, b""
        while (left := until - time.monotonic()) > 0:
            seen += self._read(left)
        plain = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", seen)
        return max((int(found.replace(b",", b"") or 0) for found in re.findall(pattern, plain)), default=0)

    def rest(self, seconds: float) -> None:
        """Read on for so long, and forget what was read."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._read(left)
        self._seen = b""

    def _read(self, seconds: float) -> bytes:
        ready, _, _ = select.select([self._master], [], [], seconds)
        return os.read(self._master, 1 << 16) if ready else b""

    def _drain_to_end(self) -> None:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            try:
                if not self._read(0.5) and self.process.poll() is not None:
                    return
            except OSError:
                return
