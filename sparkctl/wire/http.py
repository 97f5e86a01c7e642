"""A small HTTP/1.1 client over a link: one request, one connection, one whole answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from sparkctl.errors import UnusableAnswer
from sparkctl.wire.link import Link

LARGEST_BODY = 32 << 20
Headers = Sequence[tuple[str, str]]


class BadAnswer(UnusableAnswer):
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
        from sparkctl.wire.exchange import exchange  # now, while the channel that was just opened gets ready

        return await exchange(reader, writer, method, path, f"{host}:{port}", body, headers)


async def request_unix(
    link: Link,
    socket: str,
    method: str,
    path: str,
    *,
    body: bytes | None = None,
    headers: Headers = (),
    timeout: float = 10.0,
    largest: int | None = None,
) -> Response:
    """Ask a server behind a unix socket on the node; raises as `request`, and for Docker's socket its own errors.

    ``largest``: bytes of a body that are taken at most; None: 32 MiB.
    """
    async with asyncio.timeout(timeout):
        reader, writer = await link.open_unix(socket)
        from sparkctl.wire.exchange import exchange  # now, while the channel that was just opened gets ready

        return await exchange(reader, writer, method, path, "localhost", body, headers, largest)
