"""Relays a local socket to a stream on a node: Docker's socket for its client library, an engine's port for a tunnel.

A relay can put headers into the HTTP request of its client, such as the API key that the client must not know.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import struct
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from sparkctl.concurrency import BackgroundTasks, run_in_background
from sparkctl.errors import SparkctlError
from sparkctl.transport.node_connection import ByteReader, ByteWriter

StreamOpener = Callable[[], Awaitable[tuple[ByteReader, ByteWriter]]]
_CHUNK_BYTES = 1 << 16
_LOOPBACK = "127.0.0.1"


class SocketRelay:
    """Each client gets a connection made by ``opener``, which ends when either side does; a cut is a reset to the client."""

    def __init__(self, opener: StreamOpener, directory: Path | None = None) -> None:
        self._opener = opener
        self._directory = directory
        self._server: asyncio.Server | None = None
        # an error ends one client; `_relay_client` handles those it knows
        self._clients = BackgroundTasks(lambda _: None)

    @classmethod
    async def listen_unix(cls, opener: StreamOpener) -> SocketRelay:
        """Listen on a socket in a directory of its own (0700, as the socket gives root access on the node)."""
        relay = cls(opener, Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="sparkctl-")))
        relay._server = await asyncio.start_unix_server(relay._accept_client, relay.path)
        relay.path.chmod(0o600)
        return relay

    @classmethod
    async def listen_tcp(cls, opener: StreamOpener, port: int) -> SocketRelay:
        """Listen on a port of 127.0.0.1, 0: any that is free. Raises OSError."""
        relay = cls(opener)
        relay._server = await asyncio.start_server(relay._accept_client, _LOOPBACK, port)
        return relay

    @property
    def path(self) -> Path:
        """The socket of `listen_unix`."""
        assert self._directory is not None
        return self._directory / "docker.sock"

    @property
    def port(self) -> int:
        """The port of `listen_tcp`."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening, end every connection, remove the directory."""
        if self._server is not None:
            self._server.close()
        await self._clients.aclose(None)
        if self._directory is not None:
            await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)

    def _accept_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.start_task(self._relay_client(reader, writer))

    async def _relay_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay bytes both ways. An error ends the connection; the caller gets the reason from the node connection."""
        try:
            try:
                far_reader, far_writer = await self._opener()
            except (SparkctlError, OSError):
                _reset_connection(writer)
                return
            try:
                async with run_in_background(_copy_to_end(reader, far_writer)):
                    if not await _copy_stream(far_reader, writer):
                        _reset_connection(writer)  # a clean end would look like the whole answer
            finally:
                far_writer.close()
        finally:  # also where it is cancelled while the node is still asked
            writer.close()


def _reset_connection(writer: asyncio.StreamWriter) -> None:
    """End a client's connection so that it sees an error: with this option set, closing sends a reset."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _copy_to_end(reader: ByteReader, writer: ByteWriter) -> None:
    await _copy_stream(reader, writer)


async def _copy_stream(reader: ByteReader, writer: ByteWriter) -> bool:
    """Copy to the end of the stream; False where it was cut off."""
    try:
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except (SparkctlError, OSError):
        return False
    return True


_HEAD_END = b"\r\n\r\n"
_MAX_HEAD_BYTES = 1 << 16


class HeaderWriter:
    """A writer to an HTTP/1.1 server for one request: its head gets these headers, its body passes as it is.

    The request also says that the connection ends with it: a second one on it would pass without the headers.
    """

    def __init__(self, writer: ByteWriter, headers: Sequence[tuple[str, str]]) -> None:
        self._writer = writer
        self._headers = [f"{name}: {value}".encode("latin-1") for name, value in (*headers, ("Connection", "close"))]
        self._replaced = {name.lower().encode() for name, _ in headers} | {b"connection", b"keep-alive"}
        self._head: bytes | None = b""  # None: it is sent

    def write(self, data: bytes) -> None:
        """Pass data on, the head as a whole. Raises ConnectionError for a head of more than 64 KiB."""
        if self._head is None:
            self._writer.write(data)
            return
        self._head += data
        head, end, body = self._head.partition(_HEAD_END)
        if end:
            first, *fields = head.split(b"\r\n")
            kept = [one for one in fields if one.partition(b":")[0].strip().lower() not in self._replaced]
            self._head = None
            self._writer.write(b"\r\n".join((first, *kept, *self._headers)) + _HEAD_END + body)
        elif len(self._head) > _MAX_HEAD_BYTES:
            raise ConnectionError("the head of the request is longer than 64 KiB")

    async def drain(self) -> None:
        """Wait until more can be written."""
        await self._writer.drain()

    def write_eof(self) -> None:
        self._writer.write_eof()

    def close(self) -> None:
        self._writer.close()
