"""The follower against a socket that answers as Docker does, breaks included."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from sparkctl.errors import ContainerNotFound, DockerError, DockerUnavailable
from sparkctl.model.node import Node, NodeName
from sparkctl.model.text.log_line import LogLine
from sparkctl.transport.docker.log_resume import LogFragment, parse_timestamp_ns
from sparkctl.transport.docker.log_stream import ContainerLogStream
from sparkctl.transport.local_connection import LocalConnection
from tests.unit.transport.docker.docker_log_daemon import build_chunks, build_frame, format_stamp

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LOG = [LogFragment(1, format_stamp(i * 200_000_000), b"line %d" % i, True) for i in range(30)]
Answer = Callable[[dict[str, str]], bytes]


def build_stream(pieces: list[LogFragment], final: bool = True) -> bytes:
    frames = []
    for stream_number, mark, text, whole in pieces:
        payload = mark + b" " + text + (b"\n" if whole else b"")
        frames.append(bytes([stream_number, 0, 0, 0]) + len(payload).to_bytes(4, "big") + payload)
    return HEAD + build_chunks(frames, final)


def list_since(query: dict[str, str]) -> list[LogFragment]:
    seconds, _, nanos = query.get("since", "0.0").partition(".")
    asked = int(seconds) * 1_000_000_000 + int(nanos)
    return [piece for piece in LOG if parse_timestamp_ns(piece.stamp) >= asked]


def build_plain_answer(status: str, body: bytes, more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\n{more}Content-Length: {len(body)}\r\n\r\n".encode() + body


@asynccontextmanager
async def serve_docker_log(
    tmp_path: Path, answer: Answer, tty: str = "false"
) -> AsyncIterator[tuple[LocalConnection, list[dict[str, str]]]]:
    """A Docker with one container, whose log requests ``answer`` answers; yields the link and the queries."""
    queries: list[dict[str, str]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        url = urlsplit(head.split(" ", 2)[1])
        if url.path == "/_ping":
            writer.write(build_plain_answer("200 OK", b"OK", "Api-Version: 1.47\r\n"))
        elif re.fullmatch(r"/v1\.47/containers/abc/json", url.path):
            writer.write(
                build_plain_answer(
                    "200 OK", b'{"Id": "abc", "State": {"Status": "running"}, "Config": {"Tty": %s}}' % tty.encode()
                )
            )
        elif re.fullmatch(r"/v1\.47/containers/abc/logs", url.path):
            queries.append({key: values[0] for key, values in parse_qs(url.query).items()})
            writer.write(answer(queries[-1]))
        else:
            writer.write(build_plain_answer("404 Not Found", b'{"message": "No such container: x"}'))
        await writer.drain()
        writer.close()

    path = tmp_path / "docker.sock"
    server = await asyncio.start_unix_server(serve, path)
    try:
        yield LocalConnection(Node(name=NodeName("spark1"), host="local"), str(path)), queries
    finally:
        server.close()


async def collect_texts(source: AsyncIterator[tuple[LogLine, ...]], into: list[str] | None = None) -> list[str]:
    """Add the lines to ``into`` as they come, so that those before an error are there."""
    got = [] if into is None else into
    async for batch in source:
        got += [line.text for line in batch]
    return got


EVERYTHING = [f"line {i}" for i in range(30)]


async def test_a_log_is_read_once(tmp_path: Path) -> None:
    async with serve_docker_log(tmp_path, lambda query: build_stream(list_since(query))) as (link, queries):
        assert await collect_texts(ContainerLogStream(link, "abc", since=1.5, tail=7).read_available()) == EVERYTHING
    assert queries == [
        {"stdout": "1", "stderr": "1", "timestamps": "1", "follow": "0", "since": "1.500000000", "tail": "7"}
    ]


async def test_stamps_that_nobody_needs_are_not_asked_for(tmp_path: Path) -> None:
    texts = [b"same\n", b"same\n", b" a b\n", b"cut"]
    body = HEAD + build_chunks([bytes([1, 0, 0, 0]) + len(text).to_bytes(4, "big") + text for text in texts])
    async with serve_docker_log(tmp_path, lambda _: body) as (link, queries):
        stream = ContainerLogStream(link, "abc", stamped=False)
        lines = [line async for batch in stream.read_available() for line in batch]
    assert [(line.when, line.text, line.number) for line in lines] == [
        ("", "same", 1), ("", "same", 2), ("", " a b", 3), ("", "cut", 4)
    ]  # fmt: skip
    assert [query["timestamps"] for query in queries] == ["0"]


async def test_a_terminals_lines_are_told_apart_by_their_stamps(tmp_path: Path) -> None:
    body = HEAD + build_chunks([format_stamp(at) + b" line\r\n" for at in range(2)])
    async with serve_docker_log(tmp_path, lambda _: body, tty="true") as (link, queries):
        assert await collect_texts(ContainerLogStream(link, "abc", stamped=False).read_available()) == ["line"] * 2
    assert [query["timestamps"] for query in queries] == ["1"]


async def test_a_follow_broken_anywhere_goes_on_there(tmp_path: Path) -> None:
    cuts = iter([40, 0, 300, 301, 700, 1100])

    def answer(query: dict[str, str]) -> bytes:
        whole = build_stream(list_since(query))
        cut = next(cuts, None)
        return whole if cut is None else whole[: len(HEAD) + cut]

    got: list[str] = []
    async with serve_docker_log(tmp_path, answer) as (link, _):
        follower = ContainerLogStream(link, "abc", on_gap=lambda: pytest.fail("no line was rotated away"))
        for _ in range(6):
            with pytest.raises(DockerUnavailable):
                await collect_texts(follower.follow_lines(), got)
        await collect_texts(follower.follow_lines(), got)
        assert got == EVERYTHING
        assert follower.position is not None
        assert follower.position.lines == 30
        assert await collect_texts(ContainerLogStream(link, "abc", position=follower.position).follow_lines()) == []


@pytest.mark.parametrize(("begins_at", "gaps"), [(0, 0), (10, 0), (20, 1)])
async def test_lines_that_were_rotated_away_during_a_break_are_told_once_before_what_follows(
    tmp_path: Path, begins_at: int, gaps: int
) -> None:
    """The connection breaks after line 14; what Docker still has begins at ``begins_at``."""
    answers = iter(
        [
            build_stream(LOG[:15], final=False),
            build_stream(LOG[begins_at:25], final=False),
            build_stream(LOG[begins_at:]),
        ]
    )
    got: list[str] = []
    async with serve_docker_log(
        tmp_path, lambda query: build_stream(LOG[begins_at:]) if query["follow"] == "0" else next(answers)
    ) as (
        link,
        _,
    ):
        follower = ContainerLogStream(link, "abc", on_gap=lambda: got.append("gap"))
        for _ in range(2):
            with pytest.raises(DockerUnavailable):
                await collect_texts(follower.follow_lines(), got)
        await collect_texts(follower.follow_lines(), got)
    assert got.count("gap") == gaps, got
    if gaps:
        assert got.index("gap") == 15, got
    assert [text for text in got if text != "gap"] == EVERYTHING[:15] + EVERYTHING[max(15, begins_at) :]


async def test_the_last_words_that_dockers_follow_loses_are_read(tmp_path: Path) -> None:
    def answer(query: dict[str, str]) -> bytes:
        return build_stream(LOG[:20] if query["follow"] == "1" else list_since(query))

    async with serve_docker_log(tmp_path, answer) as (link, queries):
        assert await collect_texts(ContainerLogStream(link, "abc").follow_lines()) == EVERYTHING
    assert [query["follow"] for query in queries] == ["1", "0"]


async def test_an_end_without_the_end_mark_is_no_end(tmp_path: Path) -> None:
    async with serve_docker_log(tmp_path, lambda query: build_stream(LOG, final=False)) as (link, _):
        with pytest.raises(DockerUnavailable, match="cut the log off"):
            await collect_texts(ContainerLogStream(link, "abc").follow_lines())


async def test_refusals_are_dockers_own(tmp_path: Path) -> None:
    refused = build_plain_answer(
        "501 Not Implemented", b'{"message": "configured logging driver does not support reading"}'
    )
    async with serve_docker_log(tmp_path, lambda query: refused) as (link, _):
        with pytest.raises(DockerError, match="does not support reading"):
            await collect_texts(ContainerLogStream(link, "abc").read_available())
        with pytest.raises(ContainerNotFound):
            await collect_texts(ContainerLogStream(link, "other").read_available())


async def test_an_error_inside_the_stream_is_dockers_own(tmp_path: Path) -> None:
    said = b"Error grabbing logs: unexpected EOF"
    broken = bytes([3, 0, 0, 0]) + len(said).to_bytes(4, "big") + said
    raw = build_stream(LOG[:2], final=False) + build_chunks([broken])
    got: list[str] = []
    async with serve_docker_log(tmp_path, lambda query: raw) as (link, _):
        with pytest.raises(DockerError, match="Error grabbing logs"):
            await collect_texts(ContainerLogStream(link, "abc").read_available(), got)
    assert got == ["line 0", "line 1"]


async def test_an_empty_log_is_no_error(tmp_path: Path) -> None:
    async with serve_docker_log(tmp_path, lambda query: build_plain_answer("200 OK", b"")) as (link, _):
        follower = ContainerLogStream(link, "abc")
        assert await collect_texts(follower.read_available()) == []
        assert follower.position is None


async def test_a_log_of_known_length_is_read_whole(tmp_path: Path) -> None:
    """A daemon that has all of a short log at once says how long it is, in place of chunks."""
    raw = b"".join(build_frame(1, index, b"line %d\n" % index) for index in range(3))
    answer = build_plain_answer("200 OK", raw)
    async with serve_docker_log(tmp_path, lambda query: answer) as (link, _):
        assert await collect_texts(ContainerLogStream(link, "abc").read_available()) == ["line 0", "line 1", "line 2"]
    async with serve_docker_log(tmp_path, lambda query: answer[:-5]) as (link, _):
        with pytest.raises(DockerUnavailable, match="cut the log off"):
            await collect_texts(ContainerLogStream(link, "abc").read_available())


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200 OK\r\nTransfer", b"SSH-2.0-x\r\n\r\n", b"x" * 70_000, b"HTTP/1.1 200 OK\r\n\r\nab"]
)
async def test_what_is_no_answer_of_docker_is_a_log_that_was_cut_off(tmp_path: Path, answer: bytes) -> None:
    async with serve_docker_log(tmp_path, lambda query: answer) as (link, _):
        with pytest.raises(DockerUnavailable, match="cut the log off"):
            await collect_texts(ContainerLogStream(link, "abc").read_available())
