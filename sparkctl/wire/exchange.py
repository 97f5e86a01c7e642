"""One HTTP/1.1 exchange on an open stream, with h11 for everything about the protocol."""

from __future__ import annotations

import h11

from sparkctl.wire.http import LARGEST_BODY, BadAnswer, Headers, Response
from sparkctl.wire.link import ByteReader, ByteWriter

_CHUNK = 1 << 16


async def exchange(
    reader: ByteReader, writer: ByteWriter, method: str, path: str, host: str, body: bytes | None, headers: Headers
) -> Response:
    """Ask, return the whole answer, close the stream. Raises BadAnswer, and LinkLost where the link breaks."""
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
