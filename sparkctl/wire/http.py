"""A small HTTP/1.1 client over a link: one request, one connection, one whole answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import h11

from sparkctl.errors import SparkctlError
from sparkctl.wire.link import ByteReader, ByteWriter, Link

LARGEST_BODY = 32 << 20
_CHUNK = 1 << 16
Headers = Sequence[tuple[str, str]]


class BadAnswer(SparkctlError):
    """Whoever answered did not speak HTTP, broke off, or said more than 32 MiB."""


@dataclass(frozen=True, slots=True)
class Response:
    """``headers`` have lower-case names, in order; ``body`` is complete."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        """Return the first header of this name, None where it is not there."""
        return next((value for key, value in self.headers if key == name.lower()), None)

    @property
    def ok(self) -> bool:
        """Tell whether the status is 2xx."""
        return 200 <= self.status < 300


async def request(
    link: Link,
    port: int,
    method: str,
    path: str,
    *,
    body: bytes | None = None,
    headers: Headers = (),
    timeout: float = 10.0,
    host: str = "127.0.0.1",
) -> Response:
    """Ask a TCP server as the node sees it.

    Raises TimeoutError where the whole answer is not there after ``timeout`` seconds, ConnectionRefusedError where
    nobody listens, LinkLost where the connection to the node breaks, BadAnswer for what is no HTTP.
    """
    async with asyncio.timeout(timeout):
        reader, writer = await link.open_tcp(host, port)
        return await _exchange(reader, writer, method, path, f"{host}:{port}", body, headers)


async def request_unix(
    link: Link,
    socket: str,
    method: str,
    path: str,
    *,
    body: bytes | None = None,
    headers: Headers = (),
    timeout: float = 10.0,
) -> Response:
    """Ask a server behind a unix socket on the node; raises as `request`, and for Docker's socket its own errors."""
    async with asyncio.timeout(timeout):
        reader, writer = await link.open_unix(socket)
        return await _exchange(reader, writer, method, path, "localhost", body, headers)


async def _exchange(
    reader: ByteReader, writer: ByteWriter, method: str, path: str, host: str, body: bytes | None, headers: Headers
) -> Response:
    try:
        connection = h11.Connection(our_role=h11.CLIENT)
        writer.write(_question(connection, method, path, host, body, headers))
        await writer.drain()
        return await _answer(connection, reader)
    except h11.ProtocolError as error:
        raise BadAnswer(f"{host}{path}: no proper HTTP answer: {error}") from error
    except ConnectionError as error:
        raise BadAnswer(f"{host}{path}: the connection broke before the answer was there") from error
    finally:
        writer.close()


def _question(
    connection: h11.Connection, method: str, path: str, host: str, body: bytes | None, headers: Headers
) -> bytes:
    length = [("Content-Length", str(len(body)))] if body is not None else []
    whole = [("Host", host), ("Connection", "close"), ("Accept", "*/*"), *length, *headers]
    message = connection.send(h11.Request(method=method, target=path, headers=whole)) or b""
    if body:
        message += connection.send(h11.Data(data=body)) or b""
    return message + (connection.send(h11.EndOfMessage()) or b"")


async def _answer(connection: h11.Connection, reader: ByteReader) -> Response:
    head: h11.Response | None = None
    parts: list[bytes] = []
    size = 0
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_CHUNK))
        elif isinstance(event, h11.Response):
            head = event
        elif isinstance(event, h11.Data):
            parts.append(bytes(event.data))
            size += len(event.data)
            if size > LARGEST_BODY:
                raise BadAnswer(f"the answer is longer than {LARGEST_BODY >> 20} MiB")
        elif isinstance(event, h11.EndOfMessage) and head is not None:
            named = tuple((key.decode("latin-1"), value.decode("latin-1")) for key, value in head.headers)
            return Response(head.status_code, named, b"".join(parts))
        elif isinstance(event, h11.ConnectionClosed):
            raise BadAnswer("the connection was closed without an answer")
