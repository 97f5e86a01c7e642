"""What is wrong with simulated Sparks is found through a real connection, and what is right with them is not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sparkctl.clock import SystemClock
from sparkctl.context import CommandContext
from sparkctl.engines.simulation.engine_launch import EngineFault
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.finding import Finding, FindingKind, Severity
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.node import Node, NodeName
from sparkctl.model.phase import Phase
from sparkctl.monitor.node_status import read_node_statuses
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.monitor.watch_nodes import watch_load_views
from sparkctl.simulator import SimulatedSparks
from sparkctl.simulator.docker_daemon import SimDockerDaemon
from sparkctl.simulator.sim_node import NodeFault, SimNodeOptions
from sparkctl.simulator.simulated_sparks import _plan_shipped_profile, _start_loaded_engine
from tests.support import sim_clients
from tests.support.run_command import parse_result, run_demo

RATE = 20.0  # a node's seconds in one of ours


class Hasty(SystemClock):
    """Everything comes a hundred times as soon."""

    def monotonic(self) -> float:
        return super().monotonic() * 100

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 100)


def list_nodes(sparks: SimulatedSparks) -> list[Node]:
    return [
        Node(
            name=NodeName(name), host="127.0.0.1", user="milo", port=port, identity=str(sparks.identity_path),
            known_hosts=str(sparks.known_hosts_path),
        )
        for name, port in sparks.ports.items()
    ]  # fmt: skip


async def watch_until_views(
    sparks: SimulatedSparks,
    directory: Path,
    claim: Callable[[tuple[NodeTelemetryView, ...]], object],
    within: float = sim_clients.PATIENCE,
) -> tuple[NodeTelemetryView, ...]:
    """The first views of which the claim holds."""
    views = watch_load_views(
        CommandContext(history=OperationHistory(directory), operator="tester", clock=Hasty()),
        list_nodes(sparks),
        every=0.1,
    )
    try:
        async with asyncio.timeout(within):
            async for found in views:
                if claim(found):
                    return found
    finally:
        await views.aclose()
    raise AssertionError("it goes on until it is closed")


def list_finding_kinds(view: NodeTelemetryView) -> set[FindingKind]:
    return {one.kind for one in view.findings}


def set_uptime_rate(sparks: SimulatedSparks) -> None:
    for node in sparks.nodes.values():
        node.options = replace(node.options, uptime_rate=RATE)


async def test_everything_that_is_wrong_in_the_scenario_is_found(tmp_path: Path) -> None:
    one = {FindingKind.STUCK_CLOCK, FindingKind.IDLE_FUNCTION, FindingKind.DISK}
    two = {FindingKind.THERMAL, FindingKind.IDLE_FUNCTION, FindingKind.GID, FindingKind.ORPHAN, FindingKind.KERNEL}
    seen: dict[NodeName, tuple[Finding, ...]] = {}
    async with SimulatedSparks("trouble", **sim_clients.FAST) as sparks:
        ctx = CommandContext(history=OperationHistory(tmp_path), operator="tester")
        await read_node_statuses(ctx, list_nodes(sparks), seen.__setitem__)
        set_uptime_rate(sparks)
        views = await watch_until_views(
            sparks, tmp_path, lambda now: list_finding_kinds(now[0]) >= one and list_finding_kinds(now[1]) >= two
        )
    assert list_finding_kinds(views[0]) == one
    assert list_finding_kinds(views[1]) == two
    in_one_look = [{found.kind for found in seen[view.name]} for view in views]
    assert in_one_look == [one - {FindingKind.STUCK_CLOCK}, two], (
        "what `status` counts; a clock must be low for a while"
    )
    severities = [found.severity for found in views[1].findings]
    assert severities == sorted(severities, key=[Severity.PROBLEM, Severity.WARNING].index)


@pytest.mark.parametrize("scenario", ["empty", "two-stacks", "big-model"])
async def test_sparks_in_good_order_have_no_findings(scenario: str, tmp_path: Path) -> None:
    async with SimulatedSparks(scenario, **sim_clients.FAST) as sparks:
        set_uptime_rate(sparks)
        later = [node.options.uptime_rate * 4.5 for node in sparks.nodes.values()]  # longer than any has to last
        first: list[float] = []

        def long_enough(now: tuple[NodeTelemetryView, ...]) -> bool:
            uptimes = [view.sample.uptime for view in now if view.sample]
            if len(uptimes) == 2 and not first:
                first.extend(uptimes)
            return bool(first) and all(at - began > more for at, began, more in zip(uptimes, first, later, strict=True))

        views = await watch_until_views(sparks, tmp_path, long_enough)
    assert [view.findings for view in views] == [(), ()]


async def test_nodes_without_addresses_and_with_unlike_drivers(tmp_path: Path) -> None:
    bare = SimNodeOptions(troubles=frozenset({NodeFault.NO_ADDRESS}), driver="580.95.05")
    async with SimulatedSparks(options={"spark2": bare}, **sim_clients.FAST) as sparks:
        set_uptime_rate(sparks)
        wanted = {FindingKind.FABRIC_ROUTE, FindingKind.DIFFERENCE}
        views = await watch_until_views(sparks, tmp_path, lambda now: list_finding_kinds(now[1]) >= wanted)
    assert list_finding_kinds(views[0]) == set()
    assert any("580.95.05 here, 580.142 on spark1" in found.summary for found in views[1].findings)


async def idle_vllm(docker: SimDockerDaemon, **labels: str) -> None:
    made = _plan_shipped_profile("qwen36-vllm")
    await _start_loaded_engine(docker, replace(made, labels=(*made.labels, *labels.items())), 3600.0, requests=0)


def count_completions(docker: SimDockerDaemon) -> int:
    """How often the node's one engine was asked for a completion, by its access log."""
    (container,) = docker.containers.values()
    return b"".join(record.data for record in container.journal._records).count(b'"POST /v1/completions')


async def test_an_engine_that_makes_no_token_is_found_and_its_recovery_too(tmp_path: Path) -> None:
    async with SimulatedSparks(nodes=["spark1"], faults={"spark1": EngineFault.NO_TOKEN}, **sim_clients.FAST) as sparks:
        docker = sparks.docker["spark1"]
        await idle_vllm(docker)
        (process,) = docker.running.values()
        hung = False

        def found(now: tuple[NodeTelemetryView, ...]) -> bool:
            nonlocal hung
            if not hung and FindingKind.NOT_GENERATING in list_finding_kinds(now[0]):
                hung = True
                assert count_completions(docker) == 1, "it is asked once, and not again at once"
                (finding,) = now[0].findings
                assert finding.instance == "qwen36-vllm"
                assert "answer POST /v1/completions answered 500" in str(finding.evidence[0])
                process.add_background_load(1, since=60.0)  # a token comes, by whomever
            return hung and not now[0].findings

        views = await watch_until_views(sparks, tmp_path, found)
    assert [one.phase for one in views[0].instances] == [Phase.READY]


async def test_an_engine_is_asked_only_when_it_is_idle_and_only_if_its_profile_lets_us(tmp_path: Path) -> None:
    async with SimulatedSparks(
        faults={"spark1": EngineFault.NO_TOKEN, "spark2": EngineFault.NO_TOKEN}, **sim_clients.FAST
    ) as sparks:
        await idle_vllm(sparks.docker["spark1"], **{ContainerLabel.LIVENESS: "none"})
        await idle_vllm(sparks.docker["spark2"])
        (at_work,) = sparks.docker["spark2"].running.values()
        at_work.add_background_load(2, since=60.0)
        began = Hasty().monotonic()
        await watch_until_views(sparks, tmp_path, lambda now: Hasty().monotonic() - began > 900)
        assert [count_completions(docker) for docker in sparks.docker.values()] == [0, 0]


async def test_restarts_and_a_loop_are_found(tmp_path: Path) -> None:
    async with SimulatedSparks("two-stacks", nodes=["spark1"], **sim_clients.FAST) as sparks:
        (container,) = sparks.docker["spark1"].containers.values()
        container.restarts = 4  # of before
        views = 0

        def told(now: tuple[NodeTelemetryView, ...]) -> bool:
            nonlocal views
            if now[0].instances and now[0].instances[0].restarts == 4:
                assert FindingKind.RESTART_LOOP not in list_finding_kinds(now[0])
                views += 1
                container.restarts = 7
            return FindingKind.RESTART_LOOP in list_finding_kinds(now[0])

        (view,) = await watch_until_views(sparks, tmp_path, told)
    (finding,) = view.findings
    assert views
    assert "RestartCount 7" in " ".join(map(str, finding.evidence))
    assert finding.severity is Severity.PROBLEM


def test_top_shows_what_one_look_can_tell() -> None:
    ran = run_demo("top", "--once", scenario="trouble")
    assert ran.returncode == 0, ran.stderr
    assert "▲ only 14.0 GiB of 3.5 TiB free for /var/lib/docker" in ran.stdout
    assert "try: leave NCCL_IB_GID_INDEX out of env" in ran.stdout
    one, two = json.loads(run_demo("top", "--once", "--json", scenario="trouble").stdout)["nodes"]
    assert [finding["kind"] for finding in one["findings"]] == ["disk"]
    gid, kernel = two["findings"]
    assert (kernel["kind"], kernel["severity"]) == ("kernel", "problem")
    assert "0000:00:00.0 failed for good" in kernel["summary"]
    assert (gid["severity"], gid["node"], gid["instance"], gid["since"]) == ("problem", "spark2", "minimax-m27", None)
    index = {"name": "NCCL_IB_GID_INDEX", "value": "3", "unit": None, "origin": "container vllm-minimax-m27"}
    assert index in gid["evidence"]
    assert gid["remedy"]


def test_doctor_tells_what_one_look_can_judge() -> None:
    ran = run_demo("doctor", "--json", scenario="trouble")
    assert parse_result(ran)["exit_code"] == 5
    findings = [json.loads(line) for line in ran.stdout.splitlines() if '"finding"' in line]
    wrong = {(one["node"], one["check"]) for one in findings if one["severity"] in ("problem", "warning")}
    assert {("spark2", "gid"), ("spark2", "orphan")} <= wrong
    assert all(one["evidence"] for one in findings if one["check"] in ("gid", "orphan"))


async def test_the_link_moves_as_much_whether_half_of_it_lies_idle_or_not(tmp_path: Path) -> None:
    moved = {}
    for scenario in ("big-model", "trouble", "two-stacks"):
        async with SimulatedSparks(scenario, **sim_clients.FAST) as sparks:
            views = await watch_until_views(sparks, tmp_path, lambda now: all(_list_link_rates(view) for view in now))
            moved[scenario] = _list_link_rates(views[0])
    assert sum(moved["big-model"]) == pytest.approx(sum(moved["trouble"]))
    assert 0 < sum(moved["big-model"]) < 2e9
    assert sorted(rate > 0 for rate in moved["big-model"]) == [False, False, True, True]
    assert not any(moved["two-stacks"])


def _list_link_rates(view: NodeTelemetryView) -> list[float]:
    ports = () if view.sample is None else view.sample.rdma or ()
    return [port.send_rate for port in ports if port.send_rate is not None]


async def test_the_figures_of_one_engine_are_read_with_the_look(tmp_path: Path) -> None:
    seen: dict[NodeName, tuple[Finding, ...]] = {}
    async with SimulatedSparks("two-stacks", **sim_clients.FAST) as sparks:
        ctx = CommandContext(history=OperationHistory(tmp_path), operator="tester")
        views = await read_node_statuses(ctx, list_nodes(sparks), seen.__setitem__, "qwen36-vllm")
    found = {one.name: one for view in views for one in view.instances}
    measured, other = found["qwen36-vllm"], found["qwen36-ngram"]
    assert measured.numbers is not None
    assert (measured.numbers.generation_rate or 0) > 0
    assert measured.reference_rate is not None
    assert (other.numbers, other.reference) == (None, None)
    assert set(seen) == {view.name for view in views}
