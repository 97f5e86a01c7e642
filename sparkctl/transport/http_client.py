"""A small HTTP/1.1 client over a node connection: one request, one connection, one complete response."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import h11

from sparkctl.errors import ForwardingForbidden, ProtocolViolation
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.transport.node_connection import ByteReader, ByteWriter, NodeConnection

MAX_BODY_BYTES = 32 << 20
Headers = Sequence[tuple[str, str]]
_EXIT_CONNECTION_REFUSED, _EXIT_COMMAND_NOT_FOUND = 111, 127
# One line, which every login shell passes on unchanged. 111 is ECONNREFUSED.
_RELAY_SCRIPT = (
    "import socket,sys;c=socket.socket();c.settimeout(float(sys.argv[2]));"
    f"c.connect_ex(('127.0.0.1',int(sys.argv[1]))) and sys.exit({_EXIT_CONNECTION_REFUSED});c.sendall(sys.stdin.buffer.read());"
    "[sys.stdout.buffer.write(d) for d in iter(lambda:c.recv(65536),b'')]"
)


class InvalidHttpResponse(ProtocolViolation):
    """The response is not HTTP, is incomplete, or has more than 32 MiB."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """``headers`` have lower-case names, in order; ``body`` is complete."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def get_header(self, name: str) -> str | None:
        """Return the first header with this name, None if there is none."""
        return next((value for key, value in self.headers if key == name.lower()), None)

    @property
    def is_success(self) -> bool:
        """Tell whether the status is 2xx."""
        return 200 <= self.status < 300


_LOOPBACK = "127.0.0.1"


async def request_tcp(
    link: NodeConnection,
    port: int,
    method: str,
    path: str,
    *,
    body: bytes | None = None,
    headers: Headers = (),
    timeout: float = 10.0,
) -> HttpResponse:
    """Send a request to a TCP server on the node's loopback.

    Raises TimeoutError if the response is not complete after ``timeout`` seconds, ConnectionRefusedError if nobody listens,
    ConnectionLost if the connection to the node breaks, InvalidHttpResponse if the response is not HTTP.
    """
    async with asyncio.timeout(timeout):
        reader, writer = await link.open_tcp(_LOOPBACK, port)

        return await send_request(
            reader, writer, method=method, path=path, host=f"{_LOOPBACK}:{port}", body=body, headers=headers
        )


async def request_in_session(
    link: NodeConnection,
    port: int,
    method: str,
    path: str,
    *,
    body: bytes | None,
    headers: Headers,
    timeout: float,
) -> HttpResponse:
    """Send a request to the node's loopback through a command there, for a node whose sshd forwards no TCP connections.

    Raises as `request_tcp`, and ForwardingForbidden if the node has no python3.
    """

    stream = _CommandStream(link, port, timeout)
    async with asyncio.timeout(timeout):
        return await send_request(
            stream, stream, method=method, path=path, host=f"127.0.0.1:{port}", body=body, headers=headers
        )


class _CommandStream:
    """A connection for one request: `drain` sends what was written, then the response is read."""

    def __init__(self, link: NodeConnection, port: int, timeout: float) -> None:
        self._link, self._port, self._timeout = link, port, timeout
        self._question, self._answer = b"", b""

    def write(self, data: bytes) -> None:
        self._question += data

    def write_eof(self) -> None:
        """Do nothing: the response ends the exchange."""

    async def drain(self) -> None:
        argv = ["python3", "-IS", "-c", _RELAY_SCRIPT, str(self._port), f"{self._timeout:.0f}"]
        done = await self._link.run(argv, stdin=self._question, timeout=self._timeout)
        if done.status == _EXIT_CONNECTION_REFUSED:
            raise ConnectionRefusedError(f"127.0.0.1:{self._port} on {self._link.node.name}: connection refused")
        if done.status == _EXIT_COMMAND_NOT_FOUND:
            node = self._link.node.name
            raise ForwardingForbidden(node, f"sshd on {node} does not forward TCP connections, and has no python3")
        self._answer = done.stdout

    async def read(self, n: int = -1) -> bytes:
        answer, self._answer = self._answer, b""
        return answer

    def close(self) -> None:
        """Do nothing: nothing is open."""


async def request_unix(
    link: NodeConnection,
    socket: str,
    method: str,
    path: str,
    *,
    body: bytes | None = None,
    timeout: float,
    largest: int | None,
) -> HttpResponse:
    """Send a request to a unix socket on the node, ``body`` as JSON; raises as `request_tcp`, and for Docker's socket its own
    errors.

    ``largest``: the largest accepted body in bytes; None: 32 MiB.
    """
    async with asyncio.timeout(timeout):
        reader, writer = await link.open_unix(socket)
        kind = [("Content-Type", "application/json")] if body else ()
        return await send_request(
            reader, writer, method=method, path=path, host="localhost", body=body, headers=kind, largest=largest
        )


_CHUNK_BYTES = 1 << 16
_PARTS_PER_TURN = 64  # pieces
# fragments of a response; beyond that number, their minimum average size in bytes
_MAX_PARTS, _MIN_MEAN_PART_BYTES = 4096, 64


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
    """Send a request, return the complete response of at most ``largest`` bytes (None: 32 MiB), close the stream.

    Raises InvalidHttpResponse, and ConnectionLost if the connection breaks.
    """
    try:
        connection = h11.Connection(our_role=h11.CLIENT)
        writer.write(encode_request(connection, method, path, host, body, headers))
        await writer.drain()
        head = await read_head(connection, reader)
        named = tuple((key.decode("latin-1"), value.decode("latin-1")) for key, value in head.headers)
        content = await read_body(connection, reader, MAX_BODY_BYTES if largest is None else largest)
        return HttpResponse(head.status_code, named, content)
    except (h11.LocalProtocolError, UnicodeEncodeError) as error:
        raise InvalidHttpResponse(f"{host}{path[:80]}: HTTP has no way to ask this: {error}") from error
    except h11.ProtocolError as error:
        raise InvalidHttpResponse(f"{host}{path}: no proper HTTP answer: {error}") from error
    except ConnectionError as error:
        raise InvalidHttpResponse(f"{host}{path}: the connection broke before the answer was there") from error
    finally:
        writer.close()


def encode_request(
    connection: h11.Connection,
    method: str,
    path: str,
    host: str,
    body: bytes | None = None,
    headers: Headers = (),
) -> bytes:
    """Return the bytes of a request after which the server closes. Raises h11.LocalProtocolError and UnicodeEncodeError."""
    length = [("Content-Length", str(len(body)))] if body is not None else []
    named = [("Host", host), ("Connection", "close"), ("Accept", "*/*"), *length, *headers]
    whole = [(name.encode(), value.encode("utf-8")) for name, value in named]
    message = connection.send(h11.Request(method=method, target=path, headers=whole)) or b""
    if body:
        message += connection.send(h11.Data(data=body)) or b""
    return message + (connection.send(h11.EndOfMessage()) or b"")


async def read_head(connection: h11.Connection, reader: ByteReader) -> h11.Response:
    """Return status and headers of the response. Raises h11.ProtocolError, and InvalidHttpResponse if there is none."""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_CHUNK_BYTES))
        elif isinstance(event, h11.Response):
            return event
        elif isinstance(event, h11.ConnectionClosed):
            raise InvalidHttpResponse("the connection was closed without an answer")


async def read_body(connection: h11.Connection, reader: ByteReader, largest: int = MAX_BODY_BYTES) -> bytes:
    """Return the whole body of at most ``largest`` bytes, after `read_head`; raises as that."""
    parts: list[bytes] = []
    size = 0
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_CHUNK_BYTES))
        elif isinstance(event, h11.Data):
            parts.append(bytes(event.data))
            size += len(event.data)
            if len(parts) % _PARTS_PER_TURN == 0:
                await asyncio.sleep(0)  # data that has already arrived would never yield to other tasks
            if len(parts) > _MAX_PARTS and size < _MIN_MEAN_PART_BYTES * len(parts):
                raise InvalidHttpResponse("the answer comes in pieces of a few bytes")
            if size > largest:
                raise InvalidHttpResponse(f"the answer is longer than {largest >> 20} MiB")
        elif isinstance(event, h11.EndOfMessage):
            return b"".join(parts)
        elif isinstance(event, h11.ConnectionClosed):
            raise InvalidHttpResponse("the connection was closed without an answer")
