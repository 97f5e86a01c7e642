"""The probe through a real SSH server: samples, rate, lost connections, and nothing left behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path

import pytest

from sparkctl.context import CommandContext
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.events import SampleArrived
from sparkctl.model.node import Node, NodeName, NodeState
from sparkctl.monitor.sampler import NodeSampler
from sparkctl.monitor.watch_nodes import watch_load_views
from sparkctl.simulator import SimulatedSparks
from sparkctl.transport.node_session import NodeSession
from tests.support import sim_clients

pytestmark = pytest.mark.simulation("two-stacks", **sim_clients.FAST)


def get_node(sparks: SimulatedSparks, name: str = "spark1") -> Node:
    return Node(
        name=NodeName(name), host="127.0.0.1", user="milo", port=sparks.ports[name], identity=str(sparks.identity_path),
        known_hosts=str(sparks.known_hosts_path), models="~/models",
    )  # fmt: skip


async def test_a_simulated_spark_says_what_a_real_one_would(sparks: SimulatedSparks) -> None:
    async with NodeSession(get_node(sparks)) as session, asyncio.timeout(sim_clients.PATIENCE):
        await session.link.connect()
        sampler = NodeSampler(session, every=0.05)
        events = sampler.stream_samples()
        reads = [event.sample async for event in _take_samples(events, 3)]
        await events.aclose()
    assert sampler.identity is not None
    assert sampler.identity.product == "DGX Spark"
    last = reads[-1]
    assert last.sequence == 3
    assert last.memory is not None
    assert last.memory.total == 127600592 * 1024
    (container,) = sparks.docker["spark1"].containers
    memory = last.get_container_memory(container)
    assert memory is not None
    assert memory > 90 << 30
    assert last.gpus is not None
    assert last.gpus[0].busy is not None
    assert last.gpus[0].busy > 0.8
    assert last.gpus[0].memory_total is None
    assert last.gpu_memory == sum(sparks.nodes["spark1"].memory.gpu.values())
    assert last.disks is not None
    assert [disk.path for disk in last.disks] == ["/var/lib/docker", "~/models"]


async def test_the_rate_is_changed_while_it_runs(sparks: SimulatedSparks) -> None:
    async with NodeSession(get_node(sparks)) as session, asyncio.timeout(sim_clients.PATIENCE):
        await session.link.connect()
        sampler = NodeSampler(session, every=60)
        events = sampler.stream_samples()
        await anext(events)
        await sampler.set_rate(0.05)
        assert [event.sample.sequence async for event in _take_samples(events, 2)] == [2, 3]
        await events.aclose()


async def test_a_lost_connection_comes_back_with_a_new_probe(sparks: SimulatedSparks) -> None:
    states = []
    async with NodeSession(get_node(sparks)) as session, asyncio.timeout(sim_clients.PATIENCE):
        session.report_state_changes(lambda event: states.append(event.state))
        await session.link.connect()
        events = NodeSampler(session, every=0.05).stream_samples()
        async for _ in _take_samples(events, 2):
            pass
        sparks.sshd["spark1"].drop_connections()
        async for event in events:
            if isinstance(event, SampleArrived) and NodeState.UNREACHABLE in states:
                break
        await events.aclose()
    assert states[0] is NodeState.OK
    assert states[-1] is NodeState.OK


async def test_a_wall_clock_that_jumps_moves_nothing_else(sparks: SimulatedSparks, tmp_path: Path) -> None:
    ctx, nodes = CommandContext(history=OperationHistory(tmp_path), operator="milo@desk"), [get_node(sparks)]
    views = []
    async with asyncio.timeout(sim_clients.PATIENCE), aclosing(watch_load_views(ctx, nodes, every=0.1)) as looks:
        for ahead in (0.0, 86_400.0, -86_400.0, 0.0):
            sparks.nodes["spark1"].clock_ahead = ahead
            async for (view,) in looks:
                if view.sample is not None and view.sample.time == pytest.approx(time.time() + ahead, abs=60):
                    views.append(view)
                    if sum(1 for one in views if one.sample and abs(one.sample.time - time.time() - ahead) < 60) >= 3:
                        break
    samples = [view.sample for view in views if view.sample is not None]
    assert [view.state for view in views] == [NodeState.OK] * len(views)
    assert all(view.when == pytest.approx(time.time(), abs=60) for view in views), "our own clock"
    ups = [sample.uptime for sample in samples]
    assert ups == sorted(ups)
    assert max(after - before for before, after in pairwise(ups)) < 5


async def _take_samples(events: AsyncIterator[object], count: int) -> AsyncIterator[SampleArrived]:
    """Yield the next samples without closing the rest."""
    while count:
        event = await anext(events)
        if isinstance(event, SampleArrived):
            count -= 1
            yield event
