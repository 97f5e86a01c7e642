"""An HTTP/1.1 server for the simulated Docker and the scripted engines, over any pair of byte streams."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from dataclasses import field
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

import h11

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
    """The reading side of a connection; what arrives ahead is kept in ``wire``."""

    def __init__(self, reader: ReadStream) -> None:
        self._reader = reader
        self.wire = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)

    async def _read_more(self) -> bool:
        """Read more; False at the end."""
        data = await self._reader.read(65536)
        if data:
            self.wire.receive_data(data)
        return bool(data)

    async def wait_until_closed(self) -> None:
        """Return when the other side has closed; data that it sends meanwhile is kept."""
        while await self._read_more():
            pass

    async def _read_event(self) -> h11.Event:
        while (event := self.wire.next_event()) is h11.NEED_DATA:
            if not await self._read_more():
                raise EOFError
        if not isinstance(event, h11.Request | h11.Data | h11.EndOfMessage):
            raise EOFError
        return event

    def encode(self, event: h11.Event) -> bytes:
        return self.wire.send(event) or b""

    async def read_request(self) -> SimHttpRequest:
        """Return the next request; EOFError if there is none, h11's error for something that is not HTTP."""
        head, body = await self._read_event(), b""
        assert isinstance(head, h11.Request)
        while isinstance(event := await self._read_event(), h11.Data):
            body += event.data
        target = head.target.decode("latin-1")
        parts = urlsplit(target)
        return SimHttpRequest(
            method=head.method.decode(),
            path=unquote(parts.path),
            query=dict(parse_qsl(parts.query, keep_blank_values=True)),
            headers={name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers},
            body=body,
            target=target,
        )


async def serve_connection(reader: ReadStream, writer: WriteStream, handler: RequestHandler, server: str) -> None:
    """Answer one connection's requests in order, until either side ends it."""
    peer = SimHttpConnection(reader)
    try:
        while True:
            try:
                request = await peer.read_request()
            except ValueError:  # its target is no address
                return
            reply = await _run_handler(peer, handler, request)
            writer.write(peer.encode(_build_head(reply, server)))
            if reply.stream is not None:
                sent, _ = await run_until_first(_send_chunks(peer, writer, reply.stream), peer.wait_until_closed())
                if sent != 0:
                    return
            elif request.method != "HEAD":
                writer.write(peer.encode(h11.Data(reply.body)))
            writer.write(peer.encode(h11.EndOfMessage()))
            await writer.drain()
            if peer.wire.our_state is not h11.DONE:
                return
            peer.wire.start_next_cycle()
    except (EOFError, OSError, h11.RemoteProtocolError):
        return
    finally:
        writer.close()


async def _run_handler(peer: SimHttpConnection, handler: RequestHandler, request: SimHttpRequest) -> SimHttpReply:
    """Return the handler's answer; EOFError if the peer leaves before."""
    _, answer = await run_until_first(handler(request), peer.wait_until_closed())
    if answer is None:
        raise EOFError
    return answer


def _build_head(reply: SimHttpReply, server: str) -> h11.Response:
    headers = [("Server", server), *reply.headers]
    if reply.stream is not None or reply.body:
        headers.append(("Content-Type", reply.type))
    if reply.stream is None and reply.status not in (204, 304):
        headers.append(("Content-Length", str(len(reply.body))))
    return h11.Response(status_code=reply.status, headers=headers, reason=HTTPStatus(reply.status).phrase)


async def _send_chunks(peer: SimHttpConnection, writer: WriteStream, stream: AsyncIterator[bytes]) -> None:
    async with aclosing(stream):  # type: ignore[type-var]
        async for chunk in stream:
            if chunk:
                writer.write(peer.encode(h11.Data(chunk)))
                await writer.drain()
