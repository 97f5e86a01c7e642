"""Relays a local socket to a stream on a node: Docker's socket for its client library, an engine's port for a tunnel."""

from __future__ import annotations

import asyncio
import shutil
import socket
import struct
import tempfile
from collections.abc import Awaitable, Callable
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
        self._clients = BackgroundTasks(
            lambda _: None
        )  # an error ends one client; `_relay_client` handles those it knows

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
