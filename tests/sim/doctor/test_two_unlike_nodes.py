"""`doctor` over real SSH servers: what it makes of two nodes that are not alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sparkctl.commands.doctor_checks import check_nodes
from sparkctl.context import CommandContext
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.events import CommandEnded, FindingReported, Severity
from sparkctl.simulator import SimulatedSparks
from sparkctl.simulator.sim_node import SimNodeOptions
from tests.sim.nodes.test_ssh_sampler import get_node
from tests.support import sim_clients


async def test_two_nodes_that_are_not_alike(tmp_path: Path) -> None:
    odd = SimNodeOptions(driver="580.95.05", earlyoom="/usr/bin/earlyoom -r 3600")
    async with SimulatedSparks("empty", options={"spark2": odd}, **sim_clients.FAST) as sparks:
        nodes = [get_node(sparks, name) for name in ("spark1", "spark2")]
        events = [
            event
            async for event in check_nodes(
                CommandContext(history=OperationHistory(tmp_path), operator="milo@desk"), nodes
            )
        ]
    found = {(one.node, one.check): one for one in events if isinstance(one, FindingReported)}
    assert "driver 580.142, Docker 28.5.2, container toolkit 1.19.0" in found["spark1", "versions"].message
    assert "driver 580.95.05" in found["spark2", "versions"].message
    assert found["spark2", "difference"].message.startswith("driver 580.95.05 here, 580.142 on spark1:")
    assert (found["spark2", "earlyoom"].severity, ("spark1", "earlyoom") in found) == (Severity.WARNING, False)
    assert ("spark1", "difference") not in found
    (ended,) = [event for event in events if isinstance(event, CommandEnded)]
    assert ended.exit_code == 0


async def test_two_sparks_without_a_cable_that_carries(tmp_path: Path) -> None:
    async with SimulatedSparks("empty", **sim_clients.FAST) as sparks:
        nodes = [get_node(sparks, name) for name in ("spark1", "spark2")]
        whole = [
            event
            async for event in check_nodes(
                CommandContext(history=OperationHistory(tmp_path), operator="milo@desk"), nodes
            )
        ]
        sparks.fabric.cut_cable()
        cut = [
            event
            async for event in check_nodes(
                CommandContext(history=OperationHistory(tmp_path), operator="milo@desk"), nodes
            )
        ]
    assert not [one for one in whole if isinstance(one, FindingReported) and one.check == "fabric"]
    result = [one for one in cut if isinstance(one, FindingReported) and one.check == "fabric"]
    assert [(one.node, one.severity, "no cable is connected" in one.message) for one in result] == [
        ("spark1", Severity.NOTE, True), ("spark2", Severity.NOTE, True),
    ]  # fmt: skip


async def test_nodes_of_which_none_answers(tmp_path: Path) -> None:
    async with SimulatedSparks("empty", **sim_clients.FAST) as sparks:
        nodes = [replace(get_node(sparks, name), port=1) for name in ("spark1", "spark2")]
        events = [
            event
            async for event in check_nodes(
                CommandContext(history=OperationHistory(tmp_path), operator="milo@desk"), nodes
            )
        ]
    assert [one.check for one in events if isinstance(one, FindingReported)] == ["connection", "connection"]
    assert isinstance(events[-1], CommandEnded)
    assert events[-1].exit_code == 3
