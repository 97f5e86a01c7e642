"""HTTP that never waits: answers in any pieces, what is none, and a server that goes away."""

from __future__ import annotations

import contextlib
import resource
import socket
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkctl.node.guard.guard_sockets import MAX_BODY_BYTES, MAX_HEAD_BYTES, HttpConnection, parse_response

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
GONE = b"HTTP/1.1 204 No Content\r\nServer: Docker\r\n\r\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [(PLAIN, (200, b"hello", True)), (CHUNKED, (200, b"hello", True)),
     (CHUNKED[:-2] + b"Digest: x\r\n\r\n", (200, b"hello", True)), (GONE, (204, b"", True)),
     (b"HTTP/1.1 100 Continue\r\n\r\n" * 500 + GONE, (204, b"", True)),
     (b"HTTP/1.0 404 Not Found\r\nContent-Length: 2\r\n\r\n{}", (404, b"{}", False)),
     (b"HTTP/1.1 500 X\r\nconnection: Close\r\ncontent-length: 0\r\n\r\n", (500, b"", False))],
)  # fmt: skip
def test_an_answer_is_whole_when_its_last_byte_is_there(text: bytes, found: tuple[int, bytes, bool]) -> None:
    assert parse_response(text, ended=False) == found
    assert parse_response(text[:-1], ended=False) is None
    assert parse_response(text[: len(text) // 2], ended=True) == (None, b"", False)


def test_a_body_without_length_ends_with_the_connection() -> None:
    text = b"HTTP/1.1 200 OK\r\n\r\nhel"
    assert parse_response(text, ended=False) is None
    assert parse_response(text, ended=True) == (200, b"hel", False)


@pytest.mark.parametrize(
    "text",
    [b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 OK\r\n\r\n", b"x" * (MAX_HEAD_BYTES + 1), b"\r\n\r\n",
     b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\n",
     b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (MAX_BODY_BYTES + 1)],
)  # fmt: skip
def test_other_bytes_are_no_http_response(text: bytes) -> None:
    assert parse_response(text, ended=False) == (None, b"", False)


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_parsed_or_refused(text: bytes, ended: bool) -> None:
    for start in (b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"):
        found = parse_response(start + text, ended)
        assert found is None or (found[0] is None) == (found == (None, b"", False))


@contextlib.contextmanager
def open_connection_pair(place: Path) -> Iterator[tuple[HttpConnection, socket.socket]]:
    """A connection and the server's end of it."""
    path = str(place / "s")
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(path)
        listener.listen()
        connection = HttpConnection(path)
        assert connection.open()
        taken, _ = listener.accept()
        with contextlib.closing(taken):
            yield connection, taken
        connection.close()


@given(cuts=st.lists(st.integers(1, len(CHUNKED) - 1), max_size=6))
def test_an_answer_in_pieces(cuts: list[int], tmp_path_factory: pytest.TempPathFactory) -> None:
    with open_connection_pair(tmp_path_factory.mktemp("s")) as (connection, other):
        assert connection.send_request("GET", "/x", 1.0)
        assert other.recv(999).startswith(b"GET /x HTTP/1.1\r\nHost: localhost\r\n")
        marks = [0, *sorted(set(cuts)), len(CHUNKED)]
        answers = []
        for begin, end in pairwise(marks):
            assert connection.receive_response() is None, "nothing said, nothing heard"
            other.send(CHUNKED[begin:end])
            answers.append(connection.receive_response())
        assert answers == [None] * (len(marks) - 2) + [(200, b"hello")]
        assert connection.is_idle, "nothing of it is left for the next question to stumble over"


def test_what_nobody_asked_for_and_a_server_that_goes(tmp_path: Path) -> None:
    with open_connection_pair(tmp_path) as (connection, other):
        assert connection.send_request("POST", "/x", 1.0)
        assert b"Content-Length: 0" in other.recv(999)
        other.send(GONE)
        assert (connection.receive_response(), connection.is_idle) == ((204, b""), True)
        other.send(GONE)
        assert (connection.receive_response(), connection.socket) == ((None, b""), None)
    assert not connection.open()
    assert not connection.send_request("GET", "/x", 1.0)
    assert not HttpConnection("/x" * 100).open()


def test_without_a_descriptor_left_there_is_no_connection_and_no_end(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    connection = HttpConnection(str(tmp_path / "socket"))
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1, limits[1]))
        assert not connection.open()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
