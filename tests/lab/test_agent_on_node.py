"""The probe on a real node: killed, stopped, frozen with everything else, and where half of what it reads is missing."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from sparkctl.model.events import NodeStateChanged, SampleArrived
from sparkctl.model.node import Node, NodeName, NodeState
from sparkctl.model.sample import Sample
from sparkctl.monitor.sampler import NodeSampler
from sparkctl.transport.node_session import NodeSession
from tests.lab.bed import cgroups
from tests.lab.bed.lab import KEYS, format_known_hosts
from tests.lab.bed.names import CGROUP, USER
from tests.lab.bed.node import LabNode
from tests.lab.bed.shell import await_true
from tests.lab.support.sparkctl_process import Sparkctl

PROBE = "python3 -ISu"
GUARD = "sparkctl-guard"
Happened = list[Sample | NodeStateChanged]


def list_agent_pids(node: LabNode) -> list[int]:
    """Host pids of the probes there: no guard that an earlier start left, no process that asks the driver for another.

    The program that reads the kernel's log once has another mark.
    """
    found = dict(filter(None, map(read_parent_and_name, node.pids_with(PROBE, b"sparkctl-probe"))))
    return [pid for pid, (parent, name) in found.items() if parent not in found and name != GUARD]


def read_parent_and_name(pid: int) -> tuple[int, tuple[int, str]] | None:
    """Return a host pid with its parent's and its program's name, or None where it has ended meanwhile."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    name, _, rest = stat.partition("(")[2].rpartition(")")
    return pid, (int(rest.split()[1]), name)


@dataclass(frozen=True, slots=True)
class WatchedSamples:
    """A node's samples and states as they come in."""

    node: LabNode
    happened: Happened

    @property
    def samples(self) -> list[Sample]:
        return [one for one in self.happened if isinstance(one, Sample)]

    @property
    def states(self) -> list[NodeStateChanged]:
        return [one for one in self.happened if isinstance(one, NodeStateChanged)]

    async def until(self, claim: Callable[[], bool], within: float = 30.0) -> None:
        async with asyncio.timeout(within):
            while not claim():
                await asyncio.sleep(0.02)

    async def more(self, count: int, within: float = 30.0) -> None:
        """Wait for so many samples more."""
        wanted = len(self.samples) + count
        await self.until(lambda: len(self.samples) >= wanted, within)


@asynccontextmanager
async def watch_samples(
    node: LabNode, tmp_path: Path, patience: float = 0.8, stalled: float = 30.0
) -> AsyncIterator[WatchedSamples]:
    """Sample a node every 0.1 s and write down what comes."""
    hosts = tmp_path / "known_hosts"
    hosts.write_text(format_known_hosts())
    whom = Node(
        name=NodeName(node.name), host=node.address, user=USER, identity=str(KEYS / "client"), known_hosts=str(hosts),
    )  # fmt: skip
    seen = WatchedSamples(node, [])
    async with NodeSession(whom) as session:
        session.report_state_changes(seen.happened.append)
        sampler = NodeSampler(session, 0.1, patience=patience, stalled=stalled, pause=0.1)

        async def read() -> None:
            async with aclosing(sampler.stream_samples()) as events:
                async for event in events:
                    seen.happened.append(event.sample if isinstance(event, SampleArrived) else event)

        reading = asyncio.create_task(read())
        try:
            await seen.more(3)
            yield seen
            assert not reading.done(), reading
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
    await_true("the probe to be gone", lambda: not list_agent_pids(node), 5.0)


async def test_a_killed_probe_comes_back_by_itself(spark1: LabNode, tmp_path: Path) -> None:
    async with watch_samples(spark1, tmp_path) as seen:
        (first,) = list_agent_pids(spark1)
        os.kill(first, signal.SIGKILL)
        before = len(seen.samples)
        await seen.until(lambda: any(one.sequence == 1 for one in seen.samples[before:]))
        await seen.more(2)
        (second,) = list_agent_pids(spark1)
        assert second != first
        ups = [one.uptime for one in seen.samples]
        assert ups == sorted(set(ups)), "no sample twice, none out of order"
        assert NodeState.UNREACHABLE not in {one.state for one in seen.states}


async def test_a_stopped_probe_is_unknown_and_then_known_again(spark1: LabNode, tmp_path: Path) -> None:
    async with watch_samples(spark1, tmp_path) as seen:
        (pid,) = list_agent_pids(spark1)
        os.kill(pid, signal.SIGSTOP)
        await seen.until(lambda: any(one.state is NodeState.UNKNOWN for one in seen.states))
        assert re.fullmatch(r"no sample for \d+ s", seen.states[-1].detail or "")
        result = len(seen.states)
        silent = len(seen.samples)
        await asyncio.sleep(2.0)
        assert (len(seen.states), len(seen.samples)) == (result, silent), "said once, and no old sample again"
        os.kill(pid, signal.SIGCONT)
        await seen.more(2)
        assert seen.states[-1].state is NodeState.OK
        assert list_agent_pids(spark1) == [pid], "a stop within the patience needs no other probe"


async def test_a_probe_that_stays_stopped_is_given_up(spark1: LabNode, tmp_path: Path) -> None:
    async with watch_samples(spark1, tmp_path, patience=0.4, stalled=1.5) as seen:
        (pid,) = list_agent_pids(spark1)
        os.kill(pid, signal.SIGSTOP)
        before = len(seen.samples)
        await seen.until(lambda: len(seen.samples) > before + 2)
        assert seen.samples[before].sequence == 1
        os.kill(pid, signal.SIGCONT)
        await seen.until(lambda: pid not in list_agent_pids(spark1), 5.0)


@contextmanager
def freeze_node(node: LabNode) -> Iterator[None]:
    """Freeze every process of a node, by whichever version of cgroups is here."""
    legacy = cgroups.ROOT / "freezer" / CGROUP / node.name / "freezer.state"
    switch, on, off = (legacy, "FROZEN", "THAWED")
    if not legacy.exists():
        switch, on, off = cgroups.ROOT / CGROUP / node.name / "cgroup.freeze", "1", "0"
    switch.write_text(on)
    try:
        yield
    finally:
        switch.write_text(off)


@pytest.mark.parametrize("seconds", [3.0, 14.0])
async def test_a_frozen_node_is_unknown_and_comes_back_with_nothing_doubled(
    spark1: LabNode, tmp_path: Path, seconds: float
) -> None:
    async with watch_samples(spark1, tmp_path) as seen:
        with freeze_node(spark1):
            await seen.until(lambda: bool(seen.states) and seen.states[-1].state is NodeState.UNKNOWN)
            silent = len(seen.samples)
            await asyncio.sleep(seconds)
            assert len(seen.samples) == silent
            assert seen.states[-1].state is not NodeState.OK
        await seen.more(3)
        assert seen.states[-1].state is NodeState.OK
        await seen.until(lambda: len(list_agent_pids(spark1)) == 1, 15.0)
        await seen.more(3)
        ups = [one.uptime for one in seen.samples]
        assert ups == sorted(set(ups)), "no sample twice, none out of order"
        assert max(after - before for before, after in pairwise(ups)) > seconds, "the gap is there to be seen"


def test_top_once_says_all_of_two_nodes(sparkctl: Sparkctl) -> None:
    ran = sparkctl("top", "--once", "--json")
    assert ran.code == 0, ran
    (document,) = ran.events
    assert document["schema"] == 1
    assert [node["name"] for node in document["nodes"]] == ["spark1", "spark2"]
    for node in document["nodes"]:
        memory = node["memory"]
        assert memory["gpu_processes"] is None, "without a driver nobody can say"
        parts = ("other_used", "page_cache", "free")
        assert sum(memory[part] for part in parts) == memory["total"]
        assert node["state"] == "ok"
        assert "Shared Library Not Found" in node["gpu_trouble"]
        assert node["cpu"]["busy"] is not None
        assert {link["name"] for link in node["links"]} >= {"enP7s7", "enp1s0f0np0"}


def test_top_plain_prints_again_and_says_when_a_probe_is_stopped(spark1: LabNode, sparkctl: Sparkctl) -> None:
    top = sparkctl.start("top", "--plain", "--node", "spark1")
    top.await_text(r"(?s)spark1.*\n\n.*spark1", 20.0)
    (pid,) = list_agent_pids(spark1)
    os.kill(pid, signal.SIGSTOP)
    try:
        top.await_text(r"no sample for \d+ s", 20.0)
    finally:
        os.kill(pid, signal.SIGCONT)
    top.interrupt()
    ran = top.end()
    assert ran.code in (0, 130), ran
    await_true("the probe to be gone", lambda: not list_agent_pids(spark1), 5.0)


def test_a_node_without_pressure_figures(spark1: LabNode, sparkctl: Sparkctl) -> None:
    if not spark1.sh("ls", "/proc/pressure", check=False):
        pytest.skip("this kernel has no /proc/pressure to take away: every lab test runs without it")
    spark1.sh("mount", "-t", "tmpfs", "none", "/proc/pressure")
    try:
        ran = sparkctl("top", "--once", "--json", "--node", "spark1")
    finally:
        spark1.sh("umount", "/proc/pressure")
    (node,) = ran.events[0]["nodes"]
    assert (ran.code, node["state"], node["detail"]["pressure"]) == (0, "ok", None)
    assert node["memory"]["available"] > 0


def test_a_node_without_python_is_told_what_it_needs(spark1: LabNode, sparkctl: Sparkctl) -> None:
    spark1.sh("mv", "/usr/bin/python3", "/usr/bin/python3.away")
    spark1.sh("mount", "-t", "tmpfs", "none", "/proc/driver")
    spark1.sh("mkdir", "/proc/driver/nvidia")
    spark1.put(
        "/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release\n"
    )
    try:
        ran = sparkctl("top", "--once", "--node", "spark1")
        doctor = sparkctl("doctor", "--node", "spark1")
    finally:
        spark1.sh("umount", "/proc/driver")
        spark1.sh("mv", "/usr/bin/python3.away", "/usr/bin/python3")
    assert ran.code == 3, ran
    said = ran.out + ran.err
    assert "Python 3.8" in said, ran
    assert "python3 -V" in said, ran
    assert "no python3: the live probe cannot run" in doctor.out, doctor
    assert "driver 580.95.05" in doctor.out, doctor
