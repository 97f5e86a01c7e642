"""A session of a node: whose fault it is that a command did not end in time."""

from __future__ import annotations

import asyncio
import time

import pytest

from sparkctl.clock import SystemClock
from sparkctl.errors import LocalStall, NodeStarved
from sparkctl.model.node import Node, NodeName
from sparkctl.transport.node_session import NodeSession
from tests.unit.transport.ssh.ssh_servers import listen_silently

LIMITED = 20.0  # seconds
NODE = Node(name=NodeName("here"), host="local")


class SlowClock(SystemClock):
    """A clock by which this process stood still for half a minute whenever the time is asked."""

    def __init__(self) -> None:
        self._slept = 0.0

    def monotonic(self) -> float:
        self._slept += 30.0
        return time.monotonic() + self._slept


async def test_a_node_that_is_too_slow_is_called_so() -> None:
    async with NodeSession(NODE) as session:
        with pytest.raises(NodeStarved, match="did not finish `sleep` within 0 s"):
            await session.run(["sleep", "30"], timeout=0.2)


async def test_a_process_that_stood_still_does_not_blame_the_node() -> None:
    async with NodeSession(NODE, clock=SlowClock()) as session:
        with pytest.raises(LocalStall, match="sparkctl itself stood still"):
            await session.run(["sleep", "30"], timeout=0.2)


async def test_a_connection_that_was_begun_is_not_begun_again_and_its_failure_is_told_to_who_waits() -> None:
    calls, called = 0, asyncio.Event()

    def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        calls += 1
        called.set()
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        async with NodeSession(Node(name=NodeName("away"), host="127.0.0.1", port=port, user="milo")) as session:
            session.begin_connecting()
            await asyncio.wait_for(called.wait(), LIMITED)
            with pytest.raises(NodeStarved):
                await asyncio.wait_for(session.connect(), LIMITED)
            assert calls == 1
            with pytest.raises(NodeStarved):
                await asyncio.wait_for(session.connect(), LIMITED)  # asked again, it tries again
            assert calls == 2


async def test_a_session_that_is_left_connects_no_more() -> None:
    async with listen_silently() as port:
        async with NodeSession(Node(name=NodeName("silent"), host="127.0.0.1", port=port, user="milo")) as session:
            session.begin_connecting()
            await asyncio.sleep(0.1)
            assert _count_connecting_tasks() == 1
        assert _count_connecting_tasks() == 0


def _count_connecting_tasks() -> int:
    return sum("Connection.connect" in repr(task) for task in asyncio.all_tasks())
