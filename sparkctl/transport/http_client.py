"""A small HTTP/1.1 client over a link: one request, one connection, one whole answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from sparkctl.errors import ForwardingForbidden, ProtocolViolation
from sparkctl.transport.node_connection import NodeConnection

MAX_BODY_BYTES = 32 << 20
Headers = Sequence[tuple[str, str]]
_REFUSED, _NO_COMMAND = 111, 127
# One line, which every login shell hands on as it is. 111 is ECONNREFUSED.
_ASK = (
    "import socket,sys;c=socket.socket();c.settimeout(float(sys.argv[2]));"
    f"c.connect_ex(('127.0.0.1',int(sys.argv[1]))) and sys.exit({_REFUSED});c.sendall(sys.stdin.buffer.read());"
    "[sys.stdout.buffer.write(d) for d in iter(lambda:c.recv(65536),b'')]"
)


class InvalidHttpResponse(ProtocolViolation):
    """Whoever answered did not speak HTTP, broke off, or said more than 32 MiB."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """``headers`` have lower-case names, in order; ``body`` is complete."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        """Return the first header of this name, None where it is not there."""
        return next((value for key, value in self.headers if key == name.lower()), None)

    @property
    def is_success(self) -> bool:
        """Tell whether the status is 2xx."""
        return 200 <= self.status < 300


async def request_tcp(
    link: NodeConnection,
    port: int,
    method: str,
    path: str,
    *,
    body: bytes | None = None,
    headers: Headers = (),
    timeout: float = 10.0,
    host: str = "127.0.0.1",
) -> HttpResponse:
    """Ask a TCP server as the node sees it.

    Raises TimeoutError where the whole answer is not there after ``timeout`` seconds, ConnectionRefusedError where
    nobody listens, LinkLost where the connection to the node breaks, BadAnswer for what is no HTTP.
    """
    async with asyncio.timeout(timeout):
        reader, writer = await link.open_tcp(host, port)
        from sparkctl.transport.exchange import send_request  # now, while the channel that was just opened gets ready

        return await send_request(reader, writer, method, path, f"{host}:{port}", body, headers)


async def request_in_session(
    link: NodeConnection,
    port: int,
    method: str,
    path: str,
    *,
    body: bytes | None = None,
    headers: Headers = (),
    timeout: float = 10.0,
) -> HttpResponse:
    """Ask a server on the node's loopback through a command there: for a node whose sshd forwards no TCP connections.

    Raises as `request`, and ForwardingForbidden where the node has no python3 to ask with.
    """
    from sparkctl.transport.exchange import send_request

    stream = _SessionStream(link, port, timeout)
    async with asyncio.timeout(timeout):
        return await send_request(stream, stream, method, path, f"127.0.0.1:{port}", body, headers)


class _SessionStream:
    """A connection of one question: what is written goes to the server when it is drained, then its answer is read."""

    def __init__(self, link: NodeConnection, port: int, timeout: float) -> None:
        self._link, self._port, self._timeout = link, port, timeout
        self._question, self._answer = b"", b""

    def write(self, data: bytes) -> None:
        self._question += data

    def write_eof(self) -> None:
        """The answer ends the exchange."""

    async def drain(self) -> None:
        argv = ["python3", "-IS", "-c", _ASK, str(self._port), f"{self._timeout:.0f}"]
        done = await self._link.run(argv, stdin=self._question, timeout=self._timeout)
        if done.status == _REFUSED:
            raise ConnectionRefusedError(f"127.0.0.1:{self._port} on {self._link.node.name}: connection refused")
        if done.status == _NO_COMMAND:
            node = self._link.node.name
            raise ForwardingForbidden(
                node, f"sshd on {node} forwards no TCP connections, and there is no python3 on it"
            )
        self._answer = done.stdout

    async def read(self, n: int = -1) -> bytes:
        answer, self._answer = self._answer, b""
        return answer

    def close(self) -> None:
        """Nothing is open."""


async def request_unix(
    link: NodeConnection,
    socket: str,
    method: str,
    path: str,
    *,
    body: bytes | None = None,
    headers: Headers = (),
    timeout: float = 10.0,
    largest: int | None = None,
) -> HttpResponse:
    """Ask a server behind a unix socket on the node; raises as `request`, and for Docker's socket its own errors.

    ``largest``: bytes of a body that are taken at most; None: 32 MiB.
    """
    async with asyncio.timeout(timeout):
        reader, writer = await link.open_unix(socket)
        from sparkctl.transport.exchange import send_request  # now, while the channel that was just opened gets ready

        return await send_request(reader, writer, method, path, "localhost", body, headers, largest)
