"""A way to one node. `SshConnection` and `LocalConnection` are the two; nothing above this layer can tell them apart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

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
from sparkctl.model.node import Node, NodeState


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
    """A finished command. ``status`` is None where it was ended by a signal or the server did not say."""

    stdout: bytes
    stderr: bytes
    status: int | None


class RemoteProcess(Protocol):
    """A command that runs as long as we hold it (its stdin stays open); it ends when the connection does."""

    async def readline(self) -> bytes:
        """Return its next line of stdout, b"" when it has ended."""
        ...

    async def write(self, data: bytes) -> None:
        """Write to its stdin and wait until the other side takes more. One that has ended takes nothing, silently:
        `readline` tells of the end."""
        ...

    async def release(self) -> None:
        """Close its stdin and let it end."""
        ...


@dataclass(frozen=True, slots=True)
class ConnectionStatus:
    """What the link is doing now. ``attempt`` and ``next_try`` (seconds from now) only while reconnecting."""

    state: NodeState
    detail: str | None = None
    attempt: int | None = None
    next_try: float | None = None


class NodeConnection(Protocol):
    """One connection that carries everything to and from a node.

    Every call raises `ConnectionLost` when the connection breaks under it, and `NodeUnreachable`, `NodeStarved`, `HostKeyUntrusted` or
    `LoginRefused` when there is none to be had. Nothing is retried inside a call.
    """

    node: Node

    @property
    def status(self) -> ConnectionStatus:
        """The state now, without looking."""
        ...

    def add_status_listener(self, listener: Callable[[ConnectionStatus], None]) -> Callable[[], None]:
        """Call ``listener`` at every change, from the event loop, until what is returned is called."""
        ...

    async def connect(self) -> None:
        """Connect once, within the time limits; a second call on a live link does nothing."""
        ...

    async def reconnect(self, give_up_after: float | None = None) -> None:
        """Try again with jittered, growing pauses until connected.

        Raises the last error after ``give_up_after`` seconds (None: never), and at once for errors that waiting does
        not mend: `HostKeyUntrusted`, `LoginRefused`.
        """
        ...

    async def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 20.0) -> CommandResult:
        """Run a command to its end. ``argv`` arrives word for word whatever the login shell; TimeoutError after
        ``timeout`` seconds."""
        ...

    async def start_process(self, argv: Sequence[str]) -> RemoteProcess:
        """Start a command and keep its stdin open."""
        ...

    async def open_unix(self, path: str) -> tuple[ByteReader, ByteWriter]:
        """Open a unix socket on the node."""
        ...

    async def open_tcp(self, host: str, port: int) -> tuple[ByteReader, ByteWriter]:
        """Open a TCP connection from the node (127.0.0.1 is the node); ConnectionRefusedError where nobody listens."""
        ...

    async def docker_socket(self) -> Path:
        """Return a local socket path, in a directory only we can enter, behind which the node's Docker answers."""
        ...

    async def close(self) -> None:
        """End the connection and remove what it made locally."""
        ...


def node_state_for_error(error: NodeError) -> NodeState:
    """Return the node state that an error stands for."""
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
    """A command said more than anybody wants to hold in memory."""


async def communicate(
    writer: ByteWriter, stdout: ByteReader, stderr: ByteReader, stdin: bytes, name: str
) -> tuple[bytes, bytes]:
    """Feed ``stdin`` and read both outputs to their end. Raises OutputTooLong over 16 MiB."""
    tasks = (
        asyncio.create_task(_read_all(stdout, name)),
        asyncio.create_task(_read_all(stderr, name)),
    )
    feeding = asyncio.create_task(_write_stdin(writer, stdin))
    try:
        out, err = await asyncio.gather(*tasks)  # not a TaskGroup: callers expect ConnectionLost, not a group of it
        return out, err
    finally:
        for task in (*tasks, feeding):
            task.cancel()
        await asyncio.gather(*tasks, feeding, return_exceptions=True)


async def _write_stdin(writer: ByteWriter, data: bytes) -> None:
    """Write ``data`` and the end. A command that does not read all of it is no error of ours."""
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
