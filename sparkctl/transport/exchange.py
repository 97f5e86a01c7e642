"""One HTTP/1.1 exchange on an open stream, with h11 for everything about the protocol."""

from __future__ import annotations

import asyncio

import h11

from sparkctl.transport.http_client import MAX_BODY_BYTES, Headers, HttpResponse, InvalidHttpResponse
from sparkctl.transport.node_connection import ByteReader, ByteWriter

_CHUNK = 1 << 16
_A_TURN = 64  # pieces
_MOST_PARTS, _LEAST = 4096, 64  # pieces of an answer, and beyond that the bytes that they have to have on average


async def send_request(
    reader: ByteReader,
    writer: ByteWriter,
    method: str,
    path: str,
    host: str,
    body: bytes | None,
    headers: Headers,
    largest: int | None = None,
) -> HttpResponse:
    """Ask, return the whole answer of at most ``largest`` bytes (None: 32 MiB), close the stream.

    Raises BadAnswer, and LinkLost where the link breaks.
    """
    try:
        connection = h11.Connection(our_role=h11.CLIENT)
        writer.write(_encode_request(connection, method, path, host, body, headers))
        await writer.drain()
        return await _read_response(connection, reader, MAX_BODY_BYTES if largest is None else largest)
    except (h11.LocalProtocolError, UnicodeEncodeError) as error:
        raise InvalidHttpResponse(f"{host}{path[:80]}: HTTP has no way to ask this: {error}") from error
    except h11.ProtocolError as error:
        raise InvalidHttpResponse(f"{host}{path}: no proper HTTP answer: {error}") from error
    except ConnectionError as error:
        raise InvalidHttpResponse(f"{host}{path}: the connection broke before the answer was there") from error
    finally:
        writer.close()


def _encode_request(
    connection: h11.Connection, method: str, path: str, host: str, body: bytes | None, headers: Headers
) -> bytes:
    length = [("Content-Length", str(len(body)))] if body is not None else []
    named = [("Host", host), ("Connection", "close"), ("Accept", "*/*"), *length, *headers]
    whole = [(name.encode(), value.encode("utf-8")) for name, value in named]
    message = connection.send(h11.Request(method=method, target=path, headers=whole)) or b""
    if body:
        message += connection.send(h11.Data(data=body)) or b""
    return message + (connection.send(h11.EndOfMessage()) or b"")


async def _read_response(connection: h11.Connection, reader: ByteReader, largest: int) -> HttpResponse:
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
            if len(parts) % _A_TURN == 0:
                await asyncio.sleep(0)  # what has arrived already would never let anybody else run
            if len(parts) > _MOST_PARTS and size < _LEAST * len(parts):
                raise InvalidHttpResponse("the answer comes in pieces of a few bytes")
            if size > largest:
                raise InvalidHttpResponse(f"the answer is longer than {largest >> 20} MiB")
        elif isinstance(event, h11.EndOfMessage) and head is not None:
            named = tuple((key.decode("latin-1"), value.decode("latin-1")) for key, value in head.headers)
            return HttpResponse(head.status_code, named, b"".join(parts))
        elif isinstance(event, h11.ConnectionClosed):
            raise InvalidHttpResponse("the connection was closed without an answer")
