"""The link to this very machine, and the HTTP client on it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sparkctl.errors import DockerUnavailable
from sparkctl.model.node import Node, NodeName, NodeState
from sparkctl.transport import http_client
from sparkctl.transport.docker.docker_errors import DOCKER_SOCKET
from sparkctl.transport.local_connection import LocalConnection
from sparkctl.transport.node_connection import OutputTooLong
from sparkctl.transport.node_session import open_connection
from sparkctl.transport.socket_relay import SocketRelay
from sparkctl.transport.ssh.ssh_login import interleave_addresses

NODE = Node(name=NodeName("here"), host="local")


@asynccontextmanager
async def serve_parts(*parts: bytes, hang: bool = False) -> AsyncIterator[tuple[int, list[bytes]]]:
    """Serve ``parts`` as the answer to whatever is asked; yields the port and what was asked."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        for part in parts:
            writer.write(part)
            await writer.drain()
        if hang:
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], asked
    finally:
        server.close()


async def test_a_local_node_needs_no_ssh() -> None:
    link = open_connection(NODE)
    seen = []
    link.add_status_listener(lambda status: seen.append(status.state))
    await link.connect()
    await link.connect()
    assert isinstance(link, LocalConnection)
    assert seen == [NodeState.OK]


async def test_commands() -> None:
    link = LocalConnection(NODE)
    done = await link.run(["sh", "-c", 'cat; printf "%s" "$1" >&2; exit 3', "sh", "a 'b"], stdin=b"in")
    assert (done.stdout, done.stderr, done.status) == (b"in", b"a 'b", 3)
    assert (await link.run(["/no/such/program"])).status == 127
    assert (await link.run(["sh", "-c", "kill -9 $$"])).status is None
    with pytest.raises(OutputTooLong):
        await link.run(["head", "-c", "17000000", "/dev/zero"])


async def test_a_command_is_killed_with_its_children(tmp_path: Path) -> None:
    fifo = tmp_path / "alive"
    with pytest.raises(TimeoutError):
        await LocalConnection(NODE).run(["sh", "-c", f"mkfifo {fifo}; sleep 60 >{fifo} & exec cat {fifo}"], timeout=0.3)
    # the last writer is gone: reading ends instead of waiting a minute
    done = await LocalConnection(NODE).run(["sh", "-c", f": >{fifo} & exec cat {fifo}"], timeout=10)
    assert done.status == 0


async def test_a_held_command_ends_when_released() -> None:
    process = await LocalConnection(NODE).start_process(["sh", "-c", "echo begun; cat"])
    assert await process.readline() == b"begun\n"
    await process.release()
    assert await process.readline() == b""


async def test_a_held_command_is_written_to_and_takes_nothing_after_its_end() -> None:
    process = await LocalConnection(NODE).start_process(["sh", "-c", "read a; echo got $a"])
    await process.write(b"word\n")
    assert await process.readline() == b"got word\n"
    assert await process.readline() == b""
    for _ in range(3):
        await process.write(b"x" * 70_000)
    await process.release()


async def test_a_docker_that_is_not_there_is_down(tmp_path: Path) -> None:
    link = LocalConnection(NODE, docker=str(tmp_path / "docker.sock"))
    with pytest.raises(DockerUnavailable, match="here"):
        await link.open_unix(DOCKER_SOCKET)
    assert await link.docker_socket() == tmp_path / "docker.sock"


async def test_a_chunked_answer_and_what_was_asked() -> None:
    parts = (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\n\r\n5\r\nhel", b"lo\r\n0\r\n\r\n")
    async with serve_parts(*parts) as (port, asked):
        answer = await http_client.request_tcp(
            LocalConnection(NODE), port, "POST", "/v1/x?y=1", body=b"{}", headers=[("X-B", "2")]
        )
    assert (answer.status, answer.body, answer.get_header("X-A"), answer.is_success) == (200, b"hello", "1", True)
    head = asked[0].lower()
    assert head.startswith(b"post /v1/x?y=1 http/1.1\r\n")
    assert b"content-length: 2\r\n" in head
    assert b"x-b: 2\r\n" in head


@pytest.mark.parametrize(
    "parts",
    [(b"SSH-2.0-x\r\n",), (), (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal",)],
    ids=["ssh", "none", "half"],
)
async def test_an_incomplete_answer_is_refused(parts: tuple[bytes, ...]) -> None:
    async with serve_parts(*parts) as (port, _):
        with pytest.raises(http_client.InvalidHttpResponse):
            await http_client.request_tcp(LocalConnection(NODE), port, "GET", "/")


async def test_an_answer_that_does_not_end_in_time_or_size(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve_parts(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal", hang=True) as (port, _):
        with pytest.raises(TimeoutError):
            await http_client.request_tcp(LocalConnection(NODE), port, "GET", "/", timeout=0.1)
    monkeypatch.setattr("sparkctl.transport.http_client.MAX_BODY_BYTES", 2)
    async with serve_parts(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhal") as (port, _):
        with pytest.raises(http_client.InvalidHttpResponse, match="longer"):
            await http_client.request_tcp(LocalConnection(NODE), port, "GET", "/")


async def test_a_closed_port_is_refused() -> None:
    async with serve_parts() as (port, _):
        pass
    with pytest.raises(ConnectionRefusedError):
        await http_client.request_tcp(LocalConnection(NODE), port, "GET", "/")


async def test_the_relay_carries_both_ways_and_cleans_up() -> None:
    async with serve_parts(b"answer") as (port, asked):
        relay = await SocketRelay.listen_unix(lambda: LocalConnection(NODE).open_tcp("127.0.0.1", port))
        assert relay.path.parent.stat().st_mode & 0o777 == 0o700
        reader, writer = await asyncio.open_unix_connection(relay.path)
        writer.write(b"question\r\n\r\n")
        assert await reader.read() == b"answer"
        assert asked == [b"question\r\n\r\n"]
        writer.close()
        await relay.close()
    assert not relay.path.parent.exists()


def test_addresses_alternate_and_ipv4_comes_first() -> None:
    four, six = 2, 10
    found = [(six, ("a",)), (six, ("b",)), (four, ("c",)), (four, ("c",))]
    assert interleave_addresses(found) == [(four, ("c",)), (six, ("a",)), (six, ("b",))]


async def test_a_child_that_nobody_reads_is_let_go() -> None:
    process = await LocalConnection(NODE).start_process(["sh", "-c", "trap '' PIPE; exec yes"])
    assert await process.readline() == b"y\n"
    async with asyncio.timeout(10):
        await process.release()


async def test_a_timeout_does_not_wait_for_what_left_the_session_with_our_pipes() -> None:
    async with asyncio.timeout(5):
        with pytest.raises(TimeoutError):
            await LocalConnection(NODE).run(["sh", "-c", "setsid sleep 8 & echo x"], timeout=0.3)


def test_what_a_child_leaves_behind_keeps_nothing_of_a_loop_that_is_over() -> None:
    async def hold() -> None:
        process = await LocalConnection(NODE).start_process(["sh", "-c", "sleep 2 & echo x"])
        assert await process.readline() == b"x\n"
        await asyncio.sleep(0.1)
        await process.release()

    asyncio.run(hold())
    gc.collect()  # an exception in a __del__ fails the test


async def test_a_line_of_many_megabytes_is_read_a_part_after_the_other() -> None:
    process = await LocalConnection(NODE).start_process(
        ["sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo next"]
    )
    parts = []
    while (part := await process.readline()) != b"next\n":
        assert part
        parts.append(part)
    assert b"".join(parts) == b"x" * 3_000_000 + b"\n"
    assert await process.readline() == b""
    await process.release()


async def test_an_answer_in_pieces_of_a_byte_is_refused_and_holds_up_nobody() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    async with serve_parts(head + b"1\r\nx\r\n" * 200_000 + b"0\r\n\r\n") as (port, _):
        with pytest.raises(http_client.InvalidHttpResponse, match="pieces of a few bytes"):
            await http_client.request_tcp(LocalConnection(NODE), port, "GET", "/", timeout=60.0)
    beside.cancel()
    assert turns >= 50, "others had their turn meanwhile"


async def test_an_answer_in_many_small_pieces_is_read() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with serve_parts(head + b"64\r\n%b\r\n" % (b"x" * 100) * 5000 + b"0\r\n\r\n") as (port, _):
        answer = await http_client.request_tcp(LocalConnection(NODE), port, "GET", "/", timeout=60.0)
    assert len(answer.body) == 500_000
