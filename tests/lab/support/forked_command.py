"""A process of `sparkctl` that begins with everything imported: a fork of a server that has done nothing else.

Half of what a short verb takes is its imports, and the lab runs hundreds. Such a process is one of its own as any other, with
its own memory, streams, signals and exit code. What it does not show is what a verb forgets to import: other tests do.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
import sys
import termios
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import BinaryIO

import sparkctl

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload([__name__, "tests.lab.support.imported_verbs"])


class ForkedCommand:
    """As much of `subprocess.Popen` as the lab needs.

    ``stdout`` and ``stderr`` are pipes and its stdin is /dev/null; ``terminal``: the descriptor of one that is all three instead,
    and its own, so that what is typed there may be a signal.
    """

    def __init__(self, words: Sequence[str], env: dict[str, str], cwd: Path, terminal: int | None = None) -> None:
        pipes = [_SERVER.Pipe(duplex=False) for _ in range(2)] if terminal is None else []
        ends = [end for _, end in pipes] if terminal is None else [Connection(os.dup(terminal))]
        self._process = _SERVER.Process(target=_run_command, args=(tuple(words), env, str(cwd), ends), daemon=True)
        self._process.start()
        for end in ends:
            end.close()
        if terminal is None:
            self.stdout, self.stderr = (_open_pipe(begin) for begin, _ in pipes)

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return `returncode`."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises TimeoutError."""
        self._process.join(timeout)
        if self.returncode is None:
            raise TimeoutError
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.returncode is None and self._process.pid is not None:
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        """End it without asking."""
        self.send_signal(signal.SIGKILL)


def _open_pipe(begin: Connection) -> BinaryIO:
    opened = os.fdopen(os.dup(begin.fileno()), "rb")
    begin.close()
    return opened


def _run_command(words: tuple[str, ...], env: dict[str, str], cwd: str, given: Sequence[Connection]) -> None:
    """Become what `python -m sparkctl` is."""
    nowhere = os.open(os.devnull, os.O_RDONLY)
    # The server has closed its stdin, so any of these may have a number that another one is to get.
    numbers = [nowhere, *(one.fileno() for one in given)] if len(given) == 2 else [given[0].fileno()] * 3
    ends = [fcntl.fcntl(number, fcntl.F_DUPFD, 3) for number in numbers]
    os.close(nowhere)
    for one in given:
        one.close()
    for number, end in enumerate(ends):
        os.dup2(end, number)
        os.close(end)
    if len(given) == 1:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv = [str(Path(sparkctl.__path__[0], "__main__.py")), *words]
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
    from sparkctl.cli.invocation import run_and_exit

    run_and_exit()
