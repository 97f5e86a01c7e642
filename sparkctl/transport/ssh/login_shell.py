"""Runs a command on a node with any login shell of its user.

sshd passes one line to the login shell. Our line is the same for every command except for a number: words and single quotes,
which sh, bash, zsh, csh, tcsh, fish, nushell, elvish, xonsh and a restricted bash parse in the same way. It starts sh, which
reads the command (that number of bytes) from stdin; later stdin belongs to the command. (`sh -s` does not work: dash reads
ahead.) A mark on stdout and stderr shows where the command begins, so that a login shell's greeting is never taken for
output, and a shell that ran something else is detected.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence

import asyncssh

from sparkctl.errors import NodeError, NodeStarved
from sparkctl.model.text.sanitize import sanitize_line

_SCRIPT_HEAD = "#sparkctl\n"
BEGIN_MARK = b"@@ sparkctl runs\n"
# The mark is assembled on the node: a shell that only echoes its input does not print it.
_ANNOUNCE_SCRIPT = 'printf "@@ sparkctl %s\\n" runs; printf "@@ sparkctl %s\\n" runs >&2\n'
_MAX_GREETING_BYTES = 4096  # bytes of a login shell's output
_MAX_REPLY_CHARS = 200
_REPLY_WAIT_SECONDS = 0.2  # seconds to read output that has already arrived
_CHUNK_BYTES = 1 << 16


def build_remote_command(argv: Sequence[str]) -> tuple[str, bytes]:
    """Return the line for a remote exec request and what to write to its stdin first; ``argv`` arrives unchanged.

    Raises ValueError for an empty ``argv``, and for a NUL byte in an argument.
    """
    if not argv:
        raise ValueError("a command needs at least one word")
    if any("\0" in word for word in argv):
        raise ValueError("an argument cannot contain a NUL byte")
    script = f"{_SCRIPT_HEAD}{_ANNOUNCE_SCRIPT}exec {shlex.join(argv)}".encode("utf-8", "surrogateescape")
    read = f"s=$(dd bs={len(script)} count=1 iflag=fullblock 2>/dev/null)"
    # If a startup file of the login shell read a part of it, the rest is not run.
    return f'sh -c \'{read}; case $s in "#sparkctl"*) eval "$s";; esac\'', script


class CommandOutput:
    """One output of a remote command, after the mark. ``greeting``: output before the mark; ``has_begun``: the mark came."""

    def __init__(self, reader: asyncssh.SSHReader[bytes]) -> None:
        self._reader = reader
        self.greeting = b""
        self.has_begun = False

    async def wait_for_mark(self) -> bool:
        """Read up to the mark; return False if the output ends without one."""
        while not self.has_begun:
            try:
                read = await self._reader.readuntil(BEGIN_MARK)
            except asyncio.IncompleteReadError as error:
                self.greeting = (self.greeting + error.partial)[-_MAX_GREETING_BYTES:]
                if self._reader.at_eof():
                    return False
            else:
                self.greeting = (self.greeting + read.removesuffix(BEGIN_MARK))[-_MAX_GREETING_BYTES:]
                self.has_begun = True
        return True

    async def read(self, n: int = -1) -> bytes:
        """Return up to ``n`` bytes of the command's own output, b"" at the end."""
        return await self._reader.read(n) if await self.wait_for_mark() else b""

    async def readline(self) -> bytes:
        """Return the command's next line, b"" at the end."""
        return await self._reader.readline() if await self.wait_for_mark() else b""

    async def read_reply(self) -> str:
        """Return the last line that the login shell itself printed so far, sanitized."""
        try:
            async with asyncio.timeout(_REPLY_WAIT_SECONDS):
                while not self.has_begun and (more := await self._reader.read(_CHUNK_BYTES)):
                    self.greeting = (self.greeting + more)[-_MAX_GREETING_BYTES:]
        except (TimeoutError, OSError, asyncssh.Error):
            pass
        lines = [
            line.strip()
            for line in sanitize_line(self.greeting.decode("utf-8", "replace")).splitlines()
            if line.strip()
        ]
        return lines[-1][:_MAX_REPLY_CHARS] if lines else ""


class CommandNotRun(NodeError):
    """The login shell of the node's user did not run our command."""


class RemoteCommand:
    """A command that was passed to the login shell of ``user`` on ``node``."""

    def __init__(self, process: asyncssh.SSHClientProcess[bytes], node: str, user: str) -> None:
        self.process = process
        self.stdout, self.stderr = CommandOutput(process.stdout), CommandOutput(process.stderr)
        self._node, self._user = node, user

    async def not_run_error(self) -> CommandNotRun:
        """Return the error for a login shell that ended without running it."""
        answer = await self._read_shell_reply()
        return CommandNotRun(
            self._node,
            f"the login shell of {self._user} on {self._node} did not run our command: it answered {answer or 'nothing'}",
            f"sparkctl needs a login that runs commands: on {self._node}, see the shell (getent passwd {self._user}), its "
            "startup files, and ForceCommand in sshd_config",
        )

    async def begin_timeout_error(self, seconds: float) -> NodeStarved:
        """Return the error for a login shell that did not start the command in time."""
        answer = await self._read_shell_reply()
        return NodeStarved(
            self._node,
            f"the login shell of {self._user} on {self._node} did not get to our command within {seconds:.0f} s"
            + (f"; so far it answered {answer}" if answer else ""),
            f"{self._node} is very busy or out of memory, or a startup file of that shell waits for something: "
            "log in there with ssh, and see",
        )

    async def _read_shell_reply(self) -> str:
        words = [await output.read_reply() for output in (self.stdout, self.stderr)]
        return " and ".join(f"`{one}`" for one in words if one)
