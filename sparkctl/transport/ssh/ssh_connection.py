"""The connection to a node over SSH: it carries commands, sockets, Docker and HTTP.

It can also put the operator's public key on a node, with the password there, as ssh-copy-id does.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import asyncssh

from sparkctl.errors import (
    ConnectionLost,
    ForwardingForbidden,
    InvalidInput,
    LoginRefused,
    NodeError,
    NodeStarved,
    NodeUnreachable,
    OperationRefused,
)
from sparkctl.model.node import Node, NodeState
from sparkctl.model.questions import NonInteractivePrompter, Prompter
from sparkctl.transport.docker import docker_errors
from sparkctl.transport.node_connection import (
    ByteReader,
    ByteWriter,
    CommandResult,
    ConnectionStatus,
    ConnectionStatusKeeper,
    RemoteProcess,
    communicate,
    node_state_for_error,
)
from sparkctl.transport.socket_relay import SocketRelay
from sparkctl.transport.ssh.login_shell import RemoteCommand, build_remote_command
from sparkctl.transport.ssh.ssh_login import JumpChain, LoginPrompter, LoginTimeouts, connect_through_jumps

# What asyncssh and the socket under it raise when the connection breaks. Where it breaks because the server sent garbage,
# asyncssh passes its decoding error to every channel: PacketDecodeError, UnicodeDecodeError or KeyError.
CONNECTION_ERRORS = (asyncssh.DisconnectError, ConnectionError, BrokenPipeError, ValueError, LookupError)
_EXIT_GRACE_SECONDS = 2.0  # seconds that a command gets to end by itself

T = TypeVar("T")
LostErrorFactory = Callable[[BaseException | None], ConnectionLost]


class ChannelReader:
    """Reads one channel. ``lost`` builds the error, ``dead`` tells whether the connection is gone."""

    def __init__(self, reader: ByteReader, lost: LostErrorFactory, dead: Callable[[], bool]) -> None:
        self._reader = reader
        self._lost = lost
        self._is_lost = dead

    async def read(self, n: int = -1) -> bytes:
        """Return up to ``n`` bytes as soon as there are some, b"" at the channel's end; a lost connection raises ConnectionLost."""
        try:
            data = await self._reader.read(n)
        except CONNECTION_ERRORS as error:
            raise self._lost(error) from error
        if not data and self._is_lost():
            raise self._lost(None)
        return data


class ChannelWriter:
    """Writes one channel. ``close`` closes it in both directions."""

    def __init__(self, writer: ByteWriter, lost: LostErrorFactory) -> None:
        self._writer = writer
        self._lost = lost

    def write(self, data: bytes) -> None:
        """Queue ``data``."""
        try:
            self._writer.write(data)
        except CONNECTION_ERRORS as error:
            raise self._lost(error) from error

    def write_eof(self) -> None:
        try:
            self._writer.write_eof()
        except CONNECTION_ERRORS as error:
            raise self._lost(error) from error

    async def drain(self) -> None:
        """Wait until the other side accepts more."""
        try:
            await self._writer.drain()
        except CONNECTION_ERRORS as error:
            raise self._lost(error) from error

    def close(self) -> None:
        self._writer.close()


class SshProcess:
    """A remote command whose stdin we keep open."""

    def __init__(
        self, command: RemoteCommand, lost: LostErrorFactory, dead: Callable[[], bool], begin_within: float
    ) -> None:
        self._command = command
        self._process = command.process
        self._lost = lost
        self._is_lost = dead
        self._begin_within = begin_within
        self._due = asyncio.get_running_loop().time() + begin_within

    async def readline(self) -> bytes:
        """Return its next line of stdout, b"" when it has ended.

        Raises `CommandNotRun` if the login shell did not run it, `NodeStarved` if it did not start it in time.
        """
        try:
            await self._wait_until_begun()
            line = await self._command.stdout.readline()
        except CONNECTION_ERRORS as error:
            raise self._lost(error) from error
        if not line and self._is_lost():
            raise self._lost(None)
        return line

    async def _wait_until_begun(self) -> None:
        """Wait until the command runs. Its first output may come long after that."""
        if self._command.stdout.has_begun:
            return
        try:
            async with asyncio.timeout_at(self._due):
                has_begun = await self._command.stdout.wait_for_mark()
        except TimeoutError as late:
            raise await self._command.begin_timeout_error(self._begin_within) from late
        if not has_begun and not self._is_lost():
            raise await self._command.not_run_error()

    async def write(self, data: bytes) -> None:
        """Write to its stdin; raises ConnectionLost if the connection broke, not if the command ended."""
        try:
            self._process.stdin.write(data)
            await self._process.stdin.drain()
        except CONNECTION_ERRORS as error:
            if self._is_lost():
                raise self._lost(error) from error

    async def release(self) -> None:
        """Close its stdin, give it a moment to end, then close the channel."""
        try:
            self._process.stdin.write_eof()
            async with asyncio.timeout(_EXIT_GRACE_SECONDS):
                await self._process.wait_closed()
        except (*CONNECTION_ERRORS, TimeoutError):
            pass
        finally:
            self._process.close()


WINDOW_BYTES = 1 << 20  # receive window in bytes: with 50 ms round trip it allows 20 MB/s
_PAUSE_ABOVE_BYTES = 1 << 17  # buffered bytes above which reading pauses


class BoundedSession(asyncssh.SSHUNIXSession[bytes], asyncssh.SSHTCPSession[bytes]):
    """Reader and writer of one socket channel opened with ``encoding=None``; ``error`` is why it was lost."""

    def __init__(self) -> None:
        self._channel: Any = None
        self._parts: list[bytes] = []
        self._size = 0
        self._paused = False
        self._emptying = False
        self._ended = False
        self._error: Exception | None = None
        self._arrived: asyncio.Future[None] | None = None
        self._may_write = asyncio.Event()
        self._may_write.set()

    def connection_made(self, chan: Any) -> None:
        self._channel = chan

    def data_received(self, data: bytes, datatype: int | None) -> None:
        self._parts.append(data)
        self._size += len(data)
        if not self._emptying:
            self._pause_if_full()
        self._wake_reader()

    def eof_received(self) -> bool:
        self._ended = True
        self._wake_reader()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended, self._error = True, exc
        self._wake_reader()
        self._may_write.set()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    async def read(self, n: int = -1) -> bytes:
        """Return all available data, b"" at the end; data beyond ``n`` bytes stays for the next read."""
        if not self._parts and self._paused:
            self._resume_channel()
        while not self._parts:
            if self._error is not None:
                raise self._error
            if self._ended:
                return b""
            self._arrived = asyncio.get_running_loop().create_future()
            await self._arrived
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        if 0 < n < len(data):
            self._parts.append(data[n:])
            data = data[:n]
        self._size -= len(data)
        return data

    def write(self, data: bytes) -> None:
        self._channel.write(data)

    def write_eof(self) -> None:
        self._channel.write_eof()

    async def drain(self) -> None:
        await self._may_write.wait()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        self._channel.close()

    def _pause_if_full(self) -> None:
        if self._size >= _PAUSE_ABOVE_BYTES and not self._paused:
            self._paused = True
            self._channel.pause_reading()

    def _resume_channel(self) -> None:
        self._paused, self._emptying = False, True
        try:
            self._channel.resume_reading()
        finally:
            self._emptying = False
        self._pause_if_full()

    def _wake_reader(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)


MIN_BACKOFF_SECONDS = 0.5
MAX_BACKOFF_SECONDS = 15.0
TRANSIENT_ERRORS = (NodeUnreachable, NodeStarved, ConnectionLost)  # waiting may fix them
_STDIO_SECONDS = 60.0  # after a refusal, until the socket is tried again
_DIAL_STDIO_COMMAND = ("docker", "system", "dial-stdio")


class SshConnection(ConnectionStatusKeeper):
    """`NodeConnection` over asyncssh. Nothing happens before `connect`."""

    def __init__(
        self,
        node: Node,
        prompter: Prompter | None = None,
        limits: LoginTimeouts | None = None,
        *,
        password: str | None = None,
    ) -> None:
        super().__init__()
        self.node = node
        self._questions = LoginPrompter(
            node.name, prompter if prompter is not None else NonInteractivePrompter(), password
        )
        self._limits = limits if limits is not None else LoginTimeouts()
        self._connection: JumpChain | None = None
        self._connecting = asyncio.Lock()
        self._returning: asyncio.Task[None] | None = None
        self._waiting = 0
        self._last_failure: NodeError | None = None
        self._relay: SocketRelay | None = None
        self._relay_lock = asyncio.Lock()  # two first calls at once make one relay
        self._stdio_until = 0.0  # until then `docker system dial-stdio` is used for Docker: sshd forwarded no socket

    async def connect(self) -> None:
        """Connect once, within the time limits; does nothing on a live connection."""
        async with self._connecting:
            if self._connection is not None:
                return
            try:
                self._connection = await connect_through_jumps(self.node, self._questions, self._on_lost, self._limits)
            except NodeError as error:
                self._publish_status(ConnectionStatus(node_state_for_error(error), error.message))
                raise
            self._stdio_until = 0.0
            self._publish_status(ConnectionStatus(NodeState.OK))

    async def reconnect(self, give_up_after: float | None = None) -> None:
        """Try until connected, with jittered pauses of 0.5 s doubling to 15 s, each announced in ``status``.

        All waiting callers share one series of attempts. Raises the last error after ``give_up_after`` seconds, and at once
        `HostKeyUntrusted` and `LoginRefused`.
        """
        # no TaskGroup: the task belongs to all callers that wait for it, and ends with the last of them
        if self._returning is None or self._returning.done() or self._returning.cancelling():
            self._returning = asyncio.ensure_future(self._reconnect_until(self._returning))
        task = self._returning
        self._waiting += 1
        try:
            async with asyncio.timeout(give_up_after):
                await asyncio.shield(task)
        except TimeoutError as error:
            raise self._last_failure or self._make_lost_error(None) from error
        finally:
            self._waiting -= 1
            if not self._waiting:
                task.cancel()  # nobody waits for it any more

    async def _reconnect_until(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})  # all callers gave it up, and it is about to end
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self.connect()
            except TRANSIENT_ERRORS as error:
                self._last_failure = error
                pause = compute_backoff_seconds(attempt, random.random())  # noqa: S311 - spreads load, guards nothing
                self._publish_status(ConnectionStatus(node_state_for_error(error), error.message, attempt, pause))
                await asyncio.sleep(pause)

    async def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 20.0) -> CommandResult:
        """Run a command to its end; TimeoutError after ``timeout`` seconds, OutputTooLong over 16 MiB.

        Raises `CommandNotRun` if the login shell did not run it, `NodeStarved` if it did not start it in time.
        """
        command: RemoteCommand | None = None
        try:
            async with asyncio.timeout(timeout):
                command = await self._start_command(argv)
                stdin_writer = self._wrap_writer(command.process.stdin)
                stdout, stderr = self._wrap_reader(command.stdout), self._wrap_reader(command.stderr)
                output = await communicate(stdin_writer, stdout, stderr, stdin, str(argv[0]))
                await command.process.wait_closed()
        except BaseException as error:
            if command is None:
                raise
            is_late = isinstance(error, TimeoutError) and not command.stdout.has_begun
            late = await command.begin_timeout_error(timeout) if is_late else None
            _kill_process(command.process)
            if late is not None:
                raise late from error
            raise
        if command.process.returncode is None and self._is_disconnected():
            raise self._make_lost_error(None)
        if not command.stdout.has_begun:
            raise await command.not_run_error()
        return CommandResult(*output, command.process.exit_status)

    async def start_process(self, argv: Sequence[str]) -> RemoteProcess:
        return SshProcess(
            await self._start_command(argv), self._make_lost_error, self._is_disconnected, self._limits.begin
        )

    async def open_unix(self, path: str) -> tuple[ByteReader, ByteWriter]:
        """Open a unix socket on the node.

        For Docker's socket the error says why it is not usable: DockerPermissionDenied, DockerUnavailable or ForwardingForbidden.
        Another socket raises ConnectionRefusedError.
        """
        if path == docker_errors.DOCKER_SOCKET and asyncio.get_running_loop().time() < self._stdio_until:
            return await self._open_docker_stdio()
        try:
            opening = self._require_connection().create_unix_connection(
                BoundedSession, path, encoding=None, window=WINDOW_BYTES
            )
            _, flow = await _open_or_close(opening, _close_socket)
        except asyncssh.ChannelOpenError as error:
            self._raise_if_lost(error)
            if path != docker_errors.DOCKER_SOCKET:
                raise ConnectionRefusedError(f"{self.node.name}: {path}: {error.reason}") from error
            await docker_errors.raise_socket_error(self)
            self._stdio_until = asyncio.get_running_loop().time() + _STDIO_SECONDS
            return await self._open_docker_stdio()
        except CONNECTION_ERRORS as error:
            raise self._make_lost_error(error) from error
        return self._wrap_streams(flow)

    async def open_tcp(self, host: str, port: int) -> tuple[ByteReader, ByteWriter]:
        """Open a TCP connection from the node; ConnectionRefusedError if nobody listens."""
        try:
            opening = self._require_connection().create_connection(
                BoundedSession, host, port, encoding=None, window=WINDOW_BYTES
            )
            _, flow = await _open_or_close(opening, _close_socket)
        except asyncssh.ChannelOpenError as error:
            self._raise_if_lost(error)
            if error.code == asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED:
                raise ForwardingForbidden(
                    self.node.name,
                    f"sshd on {self.node.name} does not forward TCP connections to {host}:{port}",
                    f"in /etc/ssh/sshd_config on {self.node.name} set `AllowTcpForwarding yes` and `PermitOpen any` (or add "
                    f"{host}:{port} to it), then: sudo systemctl reload ssh. In ~/.ssh/authorized_keys there `restrict` "
                    "and `no-port-forwarding` forbid it, too",
                ) from error
            raise ConnectionRefusedError(f"{host}:{port} on {self.node.name}: {error.reason}") from error
        except CONNECTION_ERRORS as error:
            raise self._make_lost_error(error) from error
        return self._wrap_streams(flow)

    async def docker_socket(self) -> Path:
        """Return a local socket in a 0700 directory, which is relayed to the node's Docker."""
        async with self._relay_lock:
            if self._relay is None:
                self._relay = await SocketRelay.listen_unix(lambda: self.open_unix(docker_errors.DOCKER_SOCKET))
            return self._relay.path

    async def close(self) -> None:
        """End the connection and remove the local socket."""
        if self._returning is not None:
            self._returning.cancel()
            await asyncio.gather(self._returning, return_exceptions=True)
        relay, self._relay = self._relay, None
        connection, self._connection = self._connection, None
        if relay is not None:
            await relay.close()
        if connection is not None:
            await connection.close()
            self._publish_status(ConnectionStatus(NodeState.UNKNOWN))

    async def _start_command(self, argv: Sequence[str]) -> RemoteCommand:
        line, script = build_remote_command(argv)
        ssh = self._require_connection()
        try:
            process = await _open_or_close(ssh.create_process(line, encoding=None), _kill_process)
        except asyncssh.ChannelOpenError as error:
            self._raise_if_lost(error)
            raise NodeUnreachable(
                self.node.name,
                f"sshd on {self.node.name} opens no further session ({error.reason})",
                "raise MaxSessions in /etc/ssh/sshd_config on the node, or do fewer things at once",
            ) from error
        except CONNECTION_ERRORS as error:
            raise self._make_lost_error(error) from error
        with contextlib.suppress(*CONNECTION_ERRORS):  # reading its output raises the reason
            process.stdin.write(script)
        return RemoteCommand(process, self.node.name, str(ssh.get_extra_info("username")))

    async def _open_docker_stdio(self) -> tuple[ByteReader, ByteWriter]:
        command = await self._start_command(_DIAL_STDIO_COMMAND)
        return self._wrap_reader(command.stdout), ChannelWriter(command.process.stdin, self._make_lost_error)

    def _require_connection(self) -> asyncssh.SSHClientConnection:
        if self._connection is None:
            raise self._make_lost_error(None)
        return self._connection.ssh

    def _is_disconnected(self) -> bool:
        return self._connection is None

    def _raise_if_lost(self, error: Exception) -> None:
        if self._is_disconnected():
            raise self._make_lost_error(error) from error

    def _wrap_streams(self, session: object) -> tuple[ByteReader, ByteWriter]:
        assert isinstance(session, BoundedSession)
        return self._wrap_reader(session), self._wrap_writer(session)

    def _wrap_reader(self, reader: ByteReader) -> ChannelReader:
        return ChannelReader(reader, self._make_lost_error, self._is_disconnected)

    def _wrap_writer(self, writer: ByteWriter) -> ChannelWriter:
        return ChannelWriter(writer, self._make_lost_error)

    def _make_lost_error(self, error: BaseException | None) -> ConnectionLost:
        # the reason of the connection's end, not the channel's error
        known = self._status.detail if self._is_disconnected() else None
        detail = known or (str(error) if error is not None else "not connected")
        return ConnectionLost(self.node.name, f"the connection to {self.node.name} was lost: {detail}")

    def _on_lost(self, error: Exception | None) -> None:
        """Handle the end of a logged-in connection; asyncssh also calls this after our own close."""
        if self._connection is None:
            return
        self._connection.abort_jumps()
        self._connection = None
        self._publish_status(
            ConnectionStatus(NodeState.UNREACHABLE, str(error) if error else "the node ended the connection")
        )


def compute_backoff_seconds(attempt: int, chance: float) -> float:
    """Return the seconds to wait after the ``attempt``-th failure; ``chance`` in 0..1 shortens them by up to half."""
    full = min(MAX_BACKOFF_SECONDS, MIN_BACKOFF_SECONDS * 2.0 ** min(attempt - 1, 10))
    return float(full * (1.0 - 0.5 * chance))


async def _open_or_close(opening: Awaitable[T], close: Callable[[T], None]) -> T:
    """Return the channel that ``opening`` opens. If this is cancelled, ``close`` gets the channel once the node has opened it.

    asyncssh 2.24 leaves a channel open whose opening is cancelled: the node then holds it until the connection ends.
    """
    # no TaskGroup: it outlives a caller that gives up, and ends with the connection
    task = asyncio.ensure_future(opening)

    def close_late(late: asyncio.Task[T]) -> None:
        if not late.cancelled() and late.exception() is None:
            close(late.result())

    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(close_late)
        raise


def _close_socket(opened: tuple[Any, object]) -> None:
    opened[0].close()


def _kill_process(process: asyncssh.SSHClientProcess[bytes]) -> None:
    """Kill a remote command and close its channel; without signal support, its stdin and stdout are closed."""
    try:
        process.kill()
    except (*CONNECTION_ERRORS, OSError):
        pass
    finally:
        process.close()


_MAX_KEY_CHARS = 16_384
_INSTALL_SCRIPT = b"""\
umask 077
mkdir -p ~/.ssh && touch ~/.ssh/authorized_keys || exit 1
f=~/.ssh/authorized_keys
grep -qxF -- "$1" "$f" && exit 0
[ -s "$f" ] && [ -n "$(tail -c 1 "$f")" ] && echo >>"$f"
printf '%s\\n' "$1" >>"$f"
"""


def find_public_key(node: Node) -> Path | None:
    """Return the public key that belongs to the node's key file, or to the first of the usual ones."""
    from sparkctl.transport.ssh.ssh_errors import list_default_keys

    keys = [Path(node.identity).expanduser()] if node.identity else list_default_keys()
    return next((public for key in keys if (public := key.with_name(f"{key.name}.pub")).is_file()), None)


async def install_public_key(node: Node, public: Path, password: str, prompter: Prompter) -> None:
    """Add the key to authorized_keys there, unless it is in it. Raises `NodeError`, and `InvalidInput` for a bad key file."""
    line = _read_public_key(public)
    link = SshConnection(node, prompter, password=password)
    try:
        await link.connect()
        done = await link.run(["sh", "-s", "--", line], stdin=_INSTALL_SCRIPT)
    except LoginRefused as error:
        raise LoginRefused(
            node.name, f"the password did not open {node.name} either: {error.message}", error.hint
        ) from error
    finally:
        await link.close()
    if done.status != 0:
        why = done.last_error or "no reason given"
        raise OperationRefused(f"the key could not be put on {node.name}: {why}", None)


def _read_public_key(public: Path) -> str:
    try:
        line = public.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{public} cannot be read: {error}", None) from error
    if "\n" in line or len(line) > _MAX_KEY_CHARS or len(line.split()) < 2 or "PRIVATE" in line:
        raise InvalidInput(f"{public} is not a public key", "make one: ssh-keygen -t ed25519")
    return line
