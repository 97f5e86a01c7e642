"""A local socket in front of a remote one, for the one library that insists on a path: the docker SDK."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from sparkctl.errors import SparkctlError
from sparkctl.transport.node_connection import ByteReader, ByteWriter

StreamOpener = Callable[[], Awaitable[tuple[ByteReader, ByteWriter]]]
_CHUNK = 1 << 16


class SocketRelay:
    """Listens on ``path``; each connection becomes one made by ``opener``, and ends when either side does."""

    def __init__(self, directory: Path, opener: StreamOpener) -> None:
        self.path = directory / "docker.sock"
        self._opener = opener
        self._server: asyncio.Server | None = None
        self._running: set[asyncio.Task[None]] = set()

    @classmethod
    async def start(cls, opener: StreamOpener) -> SocketRelay:
        """Make the directory (0700: whoever can open the socket is root on the node) and listen."""
        directory = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="sparkctl-"))
        relay = cls(directory, opener)
        relay._server = await asyncio.start_unix_server(relay._accept, relay.path)
        relay.path.chmod(0o600)
        return relay

    async def close(self) -> None:
        """Stop listening, end every connection, remove the directory."""
        if self._server is not None:
            self._server.close()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await asyncio.to_thread(shutil.rmtree, self.path.parent, ignore_errors=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry bytes both ways. An error ends the connection; whoever asked finds out why by asking the link."""
        try:
            far_reader, far_writer = await self._opener()
        except (SparkctlError, OSError):
            writer.transport.abort()
            return
        up = asyncio.create_task(_copy_stream(reader, far_writer))
        try:
            await _copy_stream(far_reader, writer)
        finally:
            up.cancel()
            await asyncio.gather(up, return_exceptions=True)
            far_writer.close()
            writer.close()


async def _copy_stream(reader: ByteReader, writer: ByteWriter) -> None:
    try:
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except (SparkctlError, OSError):
        return
