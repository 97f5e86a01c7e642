"""Byte streams over SSH channels. Every way in which the connection breaks raises `ConnectionLost`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import asyncssh

from sparkctl.errors import ConnectionLost
from sparkctl.transport.node_connection import ByteReader, ByteWriter
from sparkctl.transport.ssh.login_shell import RemoteCommand

# What asyncssh and the socket under it raise when the connection breaks. Where it breaks because the server sent garbage,
# asyncssh passes its decoding error to every channel: PacketDecodeError, UnicodeDecodeError or KeyError.
CONNECTION_ERRORS = (asyncssh.DisconnectError, ConnectionError, BrokenPipeError, ValueError, LookupError)
_EXIT_GRACE_SECONDS = 2.0  # seconds that a command gets to end by itself

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
        """Send EOF."""
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
        """Close the channel."""
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
