"""An HTTP/1.1 server for the simulated Docker and the scripted engines, over any pair of byte streams."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from dataclasses import field
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from sparkctl.concurrency import run_until_first
from sparkctl.model.lazy_dataclass import dataclass

MAX_HEAD_BYTES = 64 << 10
JSON_CONTENT_TYPE = "application/json"


class ReadStream(Protocol):
    """The stream to read from."""

    async def read(self, n: int = -1) -> bytes: ...


class WriteStream(Protocol):
    """The stream to write to."""

    def write(self, data: bytes) -> None: ...
    async def drain(self) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SimHttpRequest:
    """``path`` is decoded and has no query, ``target`` is both as received; header names are lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    target: str = ""

    def is_flag_set(self, name: str) -> bool:
        """Return whether a query parameter is switched on, as Docker reads booleans."""
        return self.query.get(name, "").lower() not in ("", "0", "no", "false", "none")

    def parse_json_body(self) -> dict[str, object]:
        """Return the body as a JSON object, an empty one if there is none."""
        read = json.loads(self.body) if self.body.strip() else {}
        return read if isinstance(read, dict) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class SimHttpReply:
    """A complete answer, or, with ``stream``, one sent in chunks until the iterator ends."""

    status: int = 200
    body: bytes = b""
    type: str = JSON_CONTENT_TYPE
    headers: tuple[tuple[str, str], ...] = ()
    stream: AsyncIterator[bytes] | None = field(default=None)


RequestHandler = Callable[[SimHttpRequest], Coroutine[Any, Any, SimHttpReply]]


def build_json_reply(value: object, status: int = 200) -> SimHttpReply:
    return SimHttpReply(status=status, body=json.dumps(value, separators=(",", ":")).encode())


class SimHttpConnection:
    """The reading side, with data that was read ahead."""

    def __init__(self, reader: ReadStream) -> None:
        self._reader = reader
        self._buffer = bytearray()

    async def read_more(self) -> bool:
        """Read more; False at the end."""
        data = await self._reader.read(65536)
        self._buffer += data
        return bool(data)

    async def wait_until_closed(self) -> None:
        """Return when the other side has closed; data that it sends meanwhile is kept."""
        while await self.read_more():
            pass

    async def _read_exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            if not await self.read_more():
                raise EOFError
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    async def _read_until(self, end: bytes) -> bytes:
        while (at := self._buffer.find(end)) < 0:
            if len(self._buffer) > MAX_HEAD_BYTES or not await self.read_more():
                raise EOFError
        return (await self._read_exactly(at + len(end)))[:at]

    async def read_request(self) -> SimHttpRequest:
        """Return the next request; EOFError if there is none, or something that is not HTTP."""
        try:
            return await self._read_request()
        except ValueError as error:
            raise EOFError from error

    async def _read_request(self) -> SimHttpRequest:
        first, *lines = (await self._read_until(b"\r\n\r\n")).decode("latin-1").lstrip("\r\n").split("\r\n")
        method, target, _version = first.split(" ", 2)
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        return SimHttpRequest(
            method=method,
            path=unquote(parts.path),
            query=query,
            headers=headers,
            body=await self._read_body(headers),
            target=target,
        )

    async def _read_body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() != "chunked":
            return await self._read_exactly(int(headers.get("content-length", "0")))
        body = b""
        while size := int((await self._read_until(b"\r\n")).split(b";")[0], 16):
            body += (await self._read_exactly(size + 2))[:-2]
        await self._read_until(b"\r\n")
        return body


async def serve_connection(reader: ReadStream, writer: WriteStream, handler: RequestHandler, server: str) -> None:
    """Answer one connection's requests in order, until either side ends it."""
    peer = SimHttpConnection(reader)
    try:
        while True:
            request = await peer.read_request()
            reply = await _run_handler(peer, handler, request)
            keep = request.headers.get("connection", "").lower() != "close"
            writer.write(_encode_head(reply, server, keep))
            if reply.stream is not None:
                keep = await _send_stream(peer, writer, reply.stream) and keep
            elif request.method != "HEAD":
                writer.write(reply.body)
            await writer.drain()
            if not keep:
                return
    except (EOFError, OSError):
        return
    finally:
        writer.close()


async def _run_handler(peer: SimHttpConnection, handler: RequestHandler, request: SimHttpRequest) -> SimHttpReply:
    """Return the handler's answer; EOFError if the peer leaves before."""
    _, answer = await run_until_first(handler(request), peer.wait_until_closed())
    if answer is None:
        raise EOFError
    return answer


def _encode_head(reply: SimHttpReply, server: str, keep: bool) -> bytes:
    lines = [f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}", f"Server: {server}"]
    lines += [f"{name}: {value}" for name, value in reply.headers]
    if reply.stream is not None:
        lines += [f"Content-Type: {reply.type}", "Transfer-Encoding: chunked"]
    elif reply.status not in (204, 304):
        lines += [f"Content-Type: {reply.type}"] if reply.body else []
        lines += [f"Content-Length: {len(reply.body)}"]
    lines += [] if keep else ["Connection: close"]
    return "\r\n".join([*lines, "", ""]).encode()


async def _send_stream(peer: SimHttpConnection, writer: WriteStream, stream: AsyncIterator[bytes]) -> bool:
    """Send chunks until the stream or the peer ends; True if everything was sent."""
    ended, _ = await run_until_first(_send_chunks(writer, stream), peer.wait_until_closed())
    return ended == 0


async def _send_chunks(writer: WriteStream, stream: AsyncIterator[bytes]) -> None:
    async with aclosing(stream):  # type: ignore[type-var]
        async for chunk in stream:
            if chunk:
                writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                await writer.drain()
    writer.write(b"0\r\n\r\n")
