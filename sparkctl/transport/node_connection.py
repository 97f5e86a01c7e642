"""The interface of a connection to one node, which `SshConnection` and `LocalConnection` implement; and the argv of the operator's own
``ssh`` and ``docker exec``."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from sparkctl.concurrency import gather_or_cancel, run_in_background
from sparkctl.errors import (
    AgentFailed,
    ConnectionLost,
    HostKeyUntrusted,
    LoginRefused,
    NodeError,
    NodeStarved,
    ProtocolViolation,
    UnreadableAnswer,
)
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import Node, NodeState
from sparkctl.model.text.sanitize import sanitize_line


class ByteWriter(Protocol):
    """The part of asyncio.StreamWriter and asyncssh.SSHWriter that we use."""

    def write(self, data: bytes) -> None: ...
    def write_eof(self) -> None: ...
    async def drain(self) -> None: ...
    def close(self) -> None: ...


class ByteReader(Protocol):
    """The part of asyncio.StreamReader and asyncssh.SSHReader that we use; read returns b"" at the end."""

    async def read(self, n: int = -1) -> bytes: ...


@dataclass(frozen=True, slots=True)
class CommandResult:
    """A finished command. ``status`` is None if a signal ended it or the server did not report it."""

    stdout: bytes
    stderr: bytes
    status: int | None

    @property
    def last_error(self) -> str:
        """The last line of its stderr, printable; empty without any."""
        return sanitize_line(self.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2])


class RemoteProcess(Protocol):
    """A command that runs while its stdin stays open; it ends with the connection."""

    async def readline(self) -> bytes:
        """Return its next line of stdout, b"" when it has ended."""
        ...

    async def write(self, data: bytes) -> None:
        """Write to its stdin and wait until the other side accepts more. After its end, data is dropped silently:
        `readline` shows the end."""
        ...

    async def release(self) -> None:
        """Close its stdin and let it end."""
        ...


@dataclass(frozen=True, slots=True)
class ConnectionStatus:
    """The state of a connection. ``attempt`` and ``next_try`` (seconds from now) are set only while reconnecting."""

    state: NodeState
    detail: str | None = None
    attempt: int | None = None
    next_try: float | None = None


class ConnectionStatusKeeper:
    """The status of a connection, and who is told of its changes; see `NodeConnection`."""

    def __init__(self) -> None:
        self._status = ConnectionStatus(NodeState.UNKNOWN)
        self._listeners: list[Callable[[ConnectionStatus], None]] = []

    @property
    def status(self) -> ConnectionStatus:
        return self._status

    def add_status_listener(self, listener: Callable[[ConnectionStatus], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _publish_status(self, status: ConnectionStatus) -> None:
        self._status = status
        for listener in tuple(self._listeners):
            listener(status)


class NodeConnection(Protocol):
    """One connection that carries everything to and from a node.

    Every call raises `ConnectionLost` if the connection breaks during it, and `NodeUnreachable`, `NodeStarved`,
    `HostKeyUntrusted` or `LoginRefused` if no connection can be made. No call retries anything.
    """

    node: Node

    @property
    def status(self) -> ConnectionStatus:
        """The last known state, without a check."""
        ...

    def add_status_listener(self, listener: Callable[[ConnectionStatus], None]) -> Callable[[], None]:
        """Call ``listener`` at every change, from the event loop; the returned function removes it."""
        ...

    async def connect(self) -> None:
        """Connect once, within the time limits; a second call on a live connection does nothing."""
        ...

    async def reconnect(self, give_up_after: float | None = None) -> None:
        """Try again with jittered, growing pauses until connected.

        Raises the last error after ``give_up_after`` seconds (None: never), and at once for errors that waiting does
        not fix: `HostKeyUntrusted`, `LoginRefused`.
        """
        ...

    async def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 20.0) -> CommandResult:
        """Run a command to its end. ``argv`` arrives unchanged with any login shell; TimeoutError after
        ``timeout`` seconds."""
        ...

    async def start_process(self, argv: Sequence[str]) -> RemoteProcess:
        """Start a command and keep its stdin open."""
        ...

    async def open_unix(self, path: str) -> tuple[ByteReader, ByteWriter]:
        """Open a unix socket on the node."""
        ...

    async def open_tcp(self, host: str, port: int) -> tuple[ByteReader, ByteWriter]:
        """Open a TCP connection from the node (127.0.0.1 is the node); ConnectionRefusedError if nobody listens."""
        ...

    async def docker_socket(self) -> Path:
        """Return the path of a local socket that leads to the node's Docker, in a directory that only we can enter."""
        ...

    async def close(self) -> None:
        """End the connection and remove its local files."""
        ...


def node_state_for_error(error: NodeError) -> NodeState:
    if isinstance(error, NodeStarved):
        return NodeState.STARVED
    if isinstance(error, HostKeyUntrusted):
        return NodeState.UNTRUSTED
    if isinstance(error, AgentFailed | UnreadableAnswer):
        return NodeState.UNKNOWN
    if isinstance(error, LoginRefused):
        return NodeState.REFUSED
    return NodeState.UNREACHABLE


MAX_OUTPUT_BYTES = 16 << 20  # bytes of stdout and of stderr each
_CHUNK_BYTES = 1 << 16


class OutputTooLong(ProtocolViolation):
    """A command wrote more output than is held in memory."""


async def communicate(
    writer: ByteWriter, stdout: ByteReader, stderr: ByteReader, stdin: bytes, name: str
) -> tuple[bytes, bytes]:
    """Feed ``stdin`` and read both outputs to their end. Raises OutputTooLong over 16 MiB."""
    async with run_in_background(_write_stdin(writer, stdin)):
        return await gather_or_cancel(_read_all(stdout, name), _read_all(stderr, name))


async def _write_stdin(writer: ByteWriter, data: bytes) -> None:
    """Write ``data`` and EOF. A command that does not read all of it is no error."""
    try:
        for start in range(0, len(data), _CHUNK_BYTES):
            writer.write(data[start : start + _CHUNK_BYTES])
            await writer.drain()
        writer.write_eof()
    except (ConnectionError, ConnectionLost):
        return


async def _read_all(reader: ByteReader, name: str) -> bytes:
    parts: list[bytes] = []
    size = 0
    while part := await reader.read(_CHUNK_BYTES):
        parts.append(part)
        size += len(part)
        if size > MAX_OUTPUT_BYTES:
            raise OutputTooLong(f"{name} wrote more than {MAX_OUTPUT_BYTES >> 20} MiB")
    return b"".join(parts)


_SHELL_COMMAND = "command -v bash >/dev/null && exec bash; exec sh"  # an image may lack bash


def build_ssh_command(node: Node, environ: Mapping[str, str], words: Sequence[str] = ()) -> list[str]:
    """Return the argv that opens a shell on a node, or runs ``words`` in one as ssh does; it is run without a local shell."""
    if not node.is_local:
        return [*_build_ssh_prefix(node), "--", node.host, *words]
    shell = environ.get("SHELL") or "/bin/sh"
    return [shell, "-c", " ".join(words)] if words else [shell]


def build_container_command(
    node: Node, container: str, command: Sequence[str] = ("sh", "-c", _SHELL_COMMAND), *, is_terminal: bool = True
) -> list[str]:
    """Return the argv that runs a command in a container, without one a shell; over ssh it is quoted for the node's shell."""
    words = ["docker", "exec", "-it" if is_terminal else "-i", "--", container, *command]
    terminal = ["-t"] if is_terminal else []
    return words if node.is_local else [*_build_ssh_prefix(node), *terminal, "--", node.host, shlex.join(words)]


def suggest_install(program: str) -> str:
    """Return what to do where a program of this machine is missing: ssh for a Spark, docker where this machine is the Spark."""
    return "install OpenSSH" if program == "ssh" else f"install it, or put it on PATH: {program}"


def _build_ssh_prefix(node: Node) -> list[str]:
    words = ["ssh"]
    if node.known_hosts:
        words += ["-o", f'UserKnownHostsFile="{_format_ssh_path(node.known_hosts)}"']
    words += ["-i", _format_ssh_path(node.identity)] if node.identity else []
    words += ["-J", node.jump] if node.jump else []
    words += ["-p", str(node.port)] if node.port else []
    words += ["-l", node.user] if node.user else []
    return words


def _format_ssh_path(text: str) -> str:
    return str(Path(text).expanduser()).replace("%", "%%")  # ssh expands tokens after a single %
