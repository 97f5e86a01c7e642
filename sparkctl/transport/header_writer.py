"""Puts headers into the HTTP request of a relayed client, such as the API key that the client must not know."""

from __future__ import annotations

from collections.abc import Sequence

from sparkctl.transport.node_connection import ByteWriter

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
        """End the request."""
        self._writer.write_eof()

    def close(self) -> None:
        """End the connection."""
        self._writer.close()
