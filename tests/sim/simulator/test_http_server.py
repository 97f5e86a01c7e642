"""The simulator's HTTP server: what a client does wrong ends the connection; a fault of the simulator itself is raised."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

import h11
import pytest

from sparkctl.simulator.http_server import RequestHandler, SimHttpReply, SimHttpRequest, serve_connection


class Client:
    """The writing side of a client: what it was sent, and whether its connection is closed."""

    def __init__(self) -> None:
        self.received, self.is_closed = b"", False

    def write(self, data: bytes) -> None:
        self.received += data

    async def drain(self) -> None:
        """Do nothing: all data is accepted."""

    def close(self) -> None:
        self.is_closed = True


async def answer(_request: SimHttpRequest) -> SimHttpReply:
    return SimHttpReply()


async def fail(_request: SimHttpRequest) -> SimHttpReply:
    raise ValueError("a fault of the handler")


async def answer_with_bad_header(_request: SimHttpRequest) -> SimHttpReply:
    return SimHttpReply(headers=(("a b", "c"),))


@pytest.mark.parametrize(
    ("target", "handler", "error"),
    [
        ("http://[", answer, None),
        ("two words", answer, None),
        ("/", fail, ValueError),
        ("/", answer_with_bad_header, h11.LocalProtocolError),
    ],
    ids=["bad-address", "no-http", "handler", "own-header"],
)
async def test_only_what_the_client_does_wrong_is_silent(
    target: str, handler: RequestHandler, error: type[Exception] | None
) -> None:
    reader, client = asyncio.StreamReader(), Client()
    reader.feed_data(f"GET {target} HTTP/1.1\r\nHost: spark1\r\n\r\n".encode())
    with nullcontext() if error is None else pytest.raises(error):
        await serve_connection(reader, client, handler, "uvicorn")
    assert (client.received, client.is_closed) == (b"", True)
