"""The sampler on this very machine: a real probe on a link without SSH, and what becomes of one that falls silent."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from sparkctl.errors import AgentFailed
from sparkctl.model.events import NodeStateChanged, SampleArrived
from sparkctl.model.node import Node, NodeName, NodeState
from sparkctl.monitor.sampler import NodeSampler
from sparkctl.node import bootstrap
from sparkctl.transport.node_connection import node_state_for_error
from sparkctl.transport.node_session import NodeSession

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, which only Linux has")
HERE = Node(name=NodeName("here"), host="local")


def list_agent_processes() -> list[psutil.Process]:
    """The probes that this process has started."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):  # also a child of an earlier test that nobody has waited for
            if "sparkctl.node.agent" in child.cmdline():
                found.append(child)
    return found


async def collect_samples(count: int, events: object) -> list[SampleArrived]:
    found: list[SampleArrived] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            event = await anext(events)  # type: ignore[call-overload]
            if isinstance(event, SampleArrived):
                found.append(event)
    return found


async def test_this_machine_is_a_node_like_any_other() -> None:
    sampler = NodeSampler(NodeSession(HERE), every=0.05)
    events = sampler.stream_samples()
    first, second = await collect_samples(2, events)
    await events.aclose()
    assert (first.sample.sequence, second.sample.sequence) == (1, 2)
    assert second.sample.memory is not None
    assert second.sample.memory.total == psutil.virtual_memory().total
    assert sampler.identity is not None
    assert list_agent_processes() == []


async def test_silence_is_unknown_and_a_new_probe_ends_it() -> None:
    events = NodeSampler(NodeSession(HERE), every=0.1, patience=0.4, stalled=1.0).stream_samples()
    await collect_samples(2, events)
    (stopped,) = list_agent_processes()
    stopped.suspend()
    states = []
    async with asyncio.timeout(60):
        async for event in events:
            if (
                isinstance(event, SampleArrived) and states
            ):  # one that it had sent before it was suspended may come first
                assert event.sample.sequence == 1
                break
            if not isinstance(event, SampleArrived):
                states.append(event)
    await events.aclose()
    assert [event.state for event in states] == [NodeState.UNKNOWN, NodeState.OK]
    assert "no sample for" in (states[0].detail or "")
    assert not stopped.is_running()


async def test_a_short_silence_is_told_and_its_end_too() -> None:
    events = NodeSampler(NodeSession(HERE), every=0.1, patience=0.4, stalled=60).stream_samples()
    await collect_samples(2, events)
    (stopped,) = list_agent_processes()
    stopped.suspend()
    async with asyncio.timeout(60):
        lost = await anext(event async for event in events if isinstance(event, NodeStateChanged))
        stopped.resume()
        found = await anext(event async for event in events if isinstance(event, NodeStateChanged))
    await events.aclose()
    assert (lost.state, found.state) == (NodeState.UNKNOWN, NodeState.OK)


async def test_a_probe_that_is_killed_is_replaced() -> None:
    events = NodeSampler(NodeSession(HERE), every=0.05, pause=0.01).stream_samples()
    await collect_samples(2, events)
    (killed,) = list_agent_processes()
    killed.kill()
    (again,) = await collect_samples(1, events)
    while again.sample.sequence != 1:
        (again,) = await collect_samples(1, events)
    (other,) = list_agent_processes()
    assert other.pid != killed.pid
    await events.aclose()
    assert list_agent_processes() == []


def write_python_wrapper(does: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the probe's Python be a script that runs the real one at its end."""
    script = tmp_path / "python3"
    script.write_text(f'#!/bin/sh\n{does}\nexec {sys.executable} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))


async def test_probes_that_a_node_short_of_memory_kills_are_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = tmp_path / "count"
    write_python_wrapper(f"echo x >> {count}; [ $(wc -l < {count}) -gt 9 ] || kill -9 $$", tmp_path, monkeypatch)
    events = NodeSampler(NodeSession(HERE), every=0.05, pause=0.01).stream_samples()
    states = []
    async with asyncio.timeout(60):
        async for event in events:
            if isinstance(event, SampleArrived):
                break
            states.append(event)
    await events.aclose()
    assert len(states) > 4
    assert [one.state for one in states] == [NodeState.UNKNOWN] * (len(states) - 1) + [NodeState.OK]
    assert "ended 4 times without a sample" in (states[3].detail or "")
    pauses = [one.next_try or 0.0 for one in states[:-1]]
    assert pauses == sorted(set(pauses)), "each longer than the one before"


async def test_a_line_of_something_else_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_python_wrapper("(sleep 0.5; echo '[1]+ Done  rsync'; echo '{\"probe\":') &", tmp_path, monkeypatch)
    sampler = NodeSampler(NodeSession(HERE), every=0.05)
    events, said = sampler.stream_samples(), []
    async with asyncio.timeout(60):
        async for event in events:
            if isinstance(event, NodeStateChanged):
                said.append(event)
            elif sampler.foreign == 2:
                break
    await events.aclose()
    assert [(one.state, one.detail) for one in said] == [
        (NodeState.OK, "1 line on its stdout came from another program")
    ]


async def test_a_defect_of_the_keepalives_is_raised_with_the_next_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "KEEPALIVE_SECONDS", None)
    with pytest.raises(TypeError, match="NoneType"):
        await collect_samples(2, NodeSampler(NodeSession(HERE), every=0.05).stream_samples())
    assert list_agent_processes() == []


@pytest.mark.parametrize("status", [127, 126, 42])
async def test_a_node_without_python_is_told(status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_python_wrapper(f"exit {status}", tmp_path, monkeypatch)
    with pytest.raises(AgentFailed, match="the probe cannot run on here") as failed:
        await collect_samples(1, NodeSampler(NodeSession(HERE), pause=0.01).stream_samples())
    assert node_state_for_error(failed.value) is NodeState.UNKNOWN
