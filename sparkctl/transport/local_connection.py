"""The connection to this machine as a node: subprocesses and sockets instead of SSH."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from sparkctl.errors import DockerPermissionDenied, DockerUnavailable
from sparkctl.model.node import Node, NodeState
from sparkctl.transport.docker.docker_errors import DOCKER_SOCKET
from sparkctl.transport.node_connection import (
    ByteReader,
    ByteWriter,
    CommandResult,
    ConnectionStatus,
    ConnectionStatusKeeper,
    RemoteProcess,
    communicate,
)

_EXIT_GRACE_SECONDS = 2.0
_MAX_LINE_BYTES = 1 << 20


class LocalConnection(ConnectionStatusKeeper):
    """`NodeConnection` for ``host: local``. ``docker`` is the path of Docker's socket."""

    def __init__(self, node: Node, docker: str = DOCKER_SOCKET) -> None:
        super().__init__()
        self.node = node
        self._docker = docker

    async def connect(self) -> None:
        """Set the status to ok; no connection is needed."""
        if self._status.state is not NodeState.OK:
            self._publish_status(ConnectionStatus(NodeState.OK))

    async def reconnect(self, give_up_after: float | None = None) -> None:
        """Set the status to ok; a local connection cannot be lost."""
        await self.connect()

    async def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 20.0) -> CommandResult:
        """Run a command to its end; TimeoutError after ``timeout`` seconds, OutputTooLong over 16 MiB."""
        try:
            process = await _start_process(argv)
        except OSError as error:
            return _start_failure(argv, error)
        stdin_pipe, stdout, stderr = process.stdin, process.stdout, process.stderr
        assert stdin_pipe is not None
        assert stdout is not None
        assert stderr is not None
        try:
            async with asyncio.timeout(timeout):
                output = await communicate(stdin_pipe, stdout, stderr, stdin, str(argv[0]))
                status = await process.wait()
        except BaseException:
            await kill_process_group(process)
            raise
        finally:
            stdin_pipe.close()  # a command that read nothing leaves it open, and the transport with it
        return CommandResult(*output, status if status >= 0 else None)

    async def start_process(self, argv: Sequence[str]) -> RemoteProcess:
        return _LocalProcess(await _start_process(argv, quiet=True))

    async def open_unix(self, path: str) -> tuple[ByteReader, ByteWriter]:
        """Open a unix socket. For Docker's: DockerPermissionDenied or DockerUnavailable instead of OSError."""
        wanted = self._docker if path == DOCKER_SOCKET else path
        try:
            return await asyncio.open_unix_connection(wanted)
        except OSError as error:
            if path != DOCKER_SOCKET:
                raise
            raise _docker_socket_error(self.node.name, error) from error

    async def open_tcp(self, host: str, port: int) -> tuple[ByteReader, ByteWriter]:
        """Open a TCP connection; ConnectionRefusedError if nobody listens."""
        return await asyncio.open_connection(host, port)

    async def docker_socket(self) -> Path:
        """Return the path of Docker's own socket."""
        return Path(self._docker)

    async def close(self) -> None:
        """Do nothing: there is no connection."""


class _LocalProcess:
    """A child process whose stdin we keep open."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def readline(self) -> bytes:
        """Return its next line of stdout, b"" when it has ended; a line longer than 1 MiB comes in parts."""
        assert self._process.stdout is not None
        try:
            return await self._process.stdout.readuntil()
        except asyncio.IncompleteReadError as end:
            return end.partial
        except asyncio.LimitOverrunError as long:
            return await self._process.stdout.read(long.consumed)

    async def write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has ended
            self._process.stdin.write(data)
            await self._process.stdin.drain()

    async def release(self) -> None:
        """Close its stdin, give it a moment to end, then kill it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(_EXIT_GRACE_SECONDS):
                await self._process.wait()
        except TimeoutError:
            await kill_process_group(self._process)
        else:
            await _close_pipes(self._process)


async def _start_process(argv: Sequence[str], quiet: bool = False) -> asyncio.subprocess.Process:
    """Start in the home directory and in a process group of its own, like an SSH login; Ctrl-C reaches only us.

    asyncio (Python 3.11) waits forever when it is cancelled between starting a child and connecting its pipes: let it finish first.
    """
    # no TaskGroup: it outlives a cancellation of this call
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL if quiet else asyncio.subprocess.PIPE,
            cwd=Path.home(),
            start_new_session=True,
            limit=_MAX_LINE_BYTES,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await kill_process_group(await starting)
        raise


async def kill_process_group(process: asyncio.subprocess.Process) -> None:
    """Kill a child that leads its own session, with all its child processes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await _close_pipes(process)


async def _close_pipes(process: asyncio.subprocess.Process) -> None:
    """Close our ends of a child's pipes and wait for its end.

    asyncio waits for the end of the pipes as well: that never comes if nobody reads the output, or if a remaining
    grandchild holds them open.
    """
    transport: asyncio.SubprocessTransport = process._transport  # type: ignore[attr-defined]  # Python 3.11 to 3.14 have no public way to it
    for fd in (0, 1, 2):
        pipe = transport.get_pipe_transport(fd)
        if isinstance(pipe, asyncio.WriteTransport) and pipe.get_write_buffer_size():
            pipe.abort()  # nobody reads it any more
        elif pipe is not None and not pipe.is_closing():
            pipe.close()
    await process.wait()
    transport.close()


def _start_failure(argv: Sequence[str], error: OSError) -> CommandResult:
    """Return the result that a remote shell would give: 127 not found, 126 not executable."""
    status = 127 if isinstance(error, FileNotFoundError) else 126
    return CommandResult(b"", f"{argv[0]}: {error.strerror}\n".encode(), status)


def _docker_socket_error(node: str, error: OSError) -> DockerPermissionDenied | DockerUnavailable:
    if isinstance(error, PermissionError):
        return DockerPermissionDenied(
            node,
            f"you may not use Docker on {node}: not in group docker",
            "sudo usermod -aG docker $USER (counts from the next login)",
        )
    if isinstance(error, FileNotFoundError):
        return DockerUnavailable(
            node, f"Docker is not running on {node}, or not installed", "sudo systemctl start docker"
        )
    return DockerUnavailable(node, f"Docker on {node}: {error.strerror}", "sudo systemctl status docker")
