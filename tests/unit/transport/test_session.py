"""A session of a node: whose fault it is that a command did not end in time."""

from __future__ import annotations

import time

import pytest

from sparkctl.clock import SystemClock
from sparkctl.errors import LocalStall, NodeStarved
from sparkctl.model.node import Node, NodeName
from sparkctl.transport.node_session import NodeSession

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
