"""A byte stream over an SSH channel whose backlog is bounded, and which costs little per read.

asyncssh's own stream pauses its channel as well, but each piece that it then takes out of a paused channel opens the
whole window anew, whatever still lies there: a reader that is slower than the network ends up with everything in
memory. Here a paused channel stays paused until the reader has nothing left, and then it is emptied at once; so at most
two windows are ever held.
"""

from __future__ import annotations

import asyncio
from typing import Any

import asyncssh

WINDOW_BYTES = 1 << 20  # bytes that the node may send unasked: over 50 ms of round trip still 20 MB/s
_PAUSE_ABOVE = 1 << 17  # bytes with which the reader is busy for a while


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
        self._wake()

    def eof_received(self) -> bool:
        self._ended = True
        self._wake()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended, self._error = True, exc
        self._wake()
        self._may_write.set()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    async def read(self, n: int = -1) -> bytes:
        """Return everything that is there, b"" at the end. Longer than ``n`` keeps its rest for the next read."""
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
        if self._size >= _PAUSE_ABOVE and not self._paused:
            self._paused = True
            self._channel.pause_reading()

    def _resume_channel(self) -> None:
        self._paused, self._emptying = False, True
        try:
            self._channel.resume_reading()
        finally:
            self._emptying = False
        self._pause_if_full()

    def _wake(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)
