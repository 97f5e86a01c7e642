"""A model on several Sparks of which a part is gone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.model.container import ContainerState
from sparkctl.model.decode_step import DecodeStepSpec
from sparkctl.model.finding import FindingKind, Severity
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase
from sparkctl.monitor.findings import NodeSnapshot
from sparkctl.monitor.findings.node_detectors import detect_across_nodes, detect_missing_rank
from tests.unit.monitor.findings.node_snapshots import make_snapshot

HERE, THERE = NodeName("spark1"), NodeName("spark2")


def make_rank_view(node: NodeName, ranks: int = 2, phase: Phase = Phase.READY, **other: object) -> InstanceView:
    one = InstanceView(
        name="big", node=node, container="big", image="i", state=ContainerState.RUNNING, status="Up", ours=True,
        memory=None, phase=phase, per_step=DecodeStepSpec(ranks=ranks),
    )  # fmt: skip
    return replace(one, **other)  # type: ignore[arg-type]


def make_node_snapshot(node: NodeName, *instances: InstanceView) -> NodeSnapshot:
    return replace(make_snapshot(0), node=node, instances=instances)


def test_a_lone_rank_is_a_problem_on_its_node() -> None:
    (found,) = detect_missing_rank([make_node_snapshot(HERE), make_node_snapshot(THERE, make_rank_view(THERE))])
    assert (found.kind, found.severity, found.node, found.instance) == (
        FindingKind.PARTNER, Severity.PROBLEM, THERE, "big",
    )  # fmt: skip
    assert "runs on only 1 of its 2 Sparks" in found.summary
    assert "sparkctl down big" in (found.remedy or "")
    ended = make_rank_view(HERE, state=ContainerState.EXITED, phase=Phase.FAILED)
    assert [
        one.node
        for one in detect_missing_rank(
            [make_node_snapshot(HERE, ended), make_node_snapshot(THERE, make_rank_view(THERE))]
        )
    ] == [THERE]


@pytest.mark.parametrize(
    "snapshots",
    [
        [make_node_snapshot(HERE, make_rank_view(HERE)), make_node_snapshot(THERE, make_rank_view(THERE))],
        [make_node_snapshot(HERE), make_node_snapshot(THERE, make_rank_view(THERE, ranks=1))],
        [make_node_snapshot(HERE), make_node_snapshot(THERE, make_rank_view(THERE, phase=Phase.LOADING))],
        [make_node_snapshot(HERE), make_node_snapshot(THERE, make_rank_view(THERE, phase=Phase.STOPPING))],
        [make_node_snapshot(HERE), make_node_snapshot(THERE, make_rank_view(THERE, ours=False))],
        [make_node_snapshot(HERE), make_node_snapshot(THERE, make_rank_view(THERE, ranks=4))],
        [make_node_snapshot(THERE, make_rank_view(THERE))],
        [replace(make_node_snapshot(HERE), instances=None), make_node_snapshot(THERE, make_rank_view(THERE))],
    ],
    ids=["whole", "alone by itself", "loading", "stopping", "foreign", "on Sparks we do not know", "one Spark", "not known"],
)  # fmt: skip
def test_a_rank_that_may_run_is_not_missing(snapshots: list[NodeSnapshot]) -> None:
    assert not detect_missing_rank(snapshots)


def test_a_node_that_does_not_answer_may_have_it() -> None:
    snapshots = [make_node_snapshot(HERE), make_node_snapshot(THERE, make_rank_view(THERE))]
    assert not detect_across_nodes(snapshots, are_all=False), "not all nodes are among them"
    assert [one.kind for one in detect_across_nodes(snapshots, are_all=True)] == [FindingKind.PARTNER]
