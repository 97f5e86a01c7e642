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
from sparkctl.monitor.findings.base import NodeSnapshot
from sparkctl.monitor.findings.detectors import detect_across_nodes
from sparkctl.monitor.findings.missing_rank import detect_missing_rank
from tests.unit.core.health.curves import sight

HERE, THERE = NodeName("spark1"), NodeName("spark2")


def part(node: NodeName, ranks: int = 2, phase: Phase = Phase.READY, **other: object) -> InstanceView:
    one = InstanceView(
        name="big", node=node, container="big", image="i", state=ContainerState.RUNNING, status="Up", ours=True,
        memory=None, phase=phase, per_step=DecodeStepSpec(ranks=ranks),
    )  # fmt: skip
    return replace(one, **other)  # type: ignore[arg-type]


def at(node: NodeName, *instances: InstanceView) -> NodeSnapshot:
    return replace(sight(0), node=node, instances=instances)


def test_what_is_left_of_a_model_is_a_problem_where_it_stands() -> None:
    (found,) = detect_missing_rank([at(HERE), at(THERE, part(THERE))])
    assert (found.kind, found.severity, found.node, found.instance) == (
        FindingKind.PARTNER, Severity.PROBLEM, THERE, "big",
    )  # fmt: skip
    assert "of its 2 parts only 1 runs" in found.summary
    assert "sparkctl down big" in (found.remedy or "")
    ended = part(HERE, state=ContainerState.EXITED, phase=Phase.FAILED)
    assert [one.node for one in detect_missing_rank([at(HERE, ended), at(THERE, part(THERE))])] == [THERE]


@pytest.mark.parametrize(
    "sights",
    [
        [at(HERE, part(HERE)), at(THERE, part(THERE))],
        [at(HERE), at(THERE, part(THERE, ranks=1))],
        [at(HERE), at(THERE, part(THERE, phase=Phase.LOADING))],
        [at(HERE), at(THERE, part(THERE, phase=Phase.STOPPING))],
        [at(HERE), at(THERE, part(THERE, ours=False))],
        [at(HERE), at(THERE, part(THERE, ranks=4))],
        [at(THERE, part(THERE))],
        [replace(at(HERE), instances=None), at(THERE, part(THERE))],
    ],
    ids=["whole", "alone by itself", "loading", "stopping", "foreign", "on Sparks we do not know", "one Spark", "not known"],
)  # fmt: skip
def test_nothing_is_gone_that_may_be_there(sights: list[NodeSnapshot]) -> None:
    assert not detect_missing_rank(sights)


def test_a_node_that_does_not_answer_may_have_it() -> None:
    sights = [at(HERE), at(THERE, part(THERE))]
    assert not detect_across_nodes(sights), "not all nodes are among them"
    assert [one.kind for one in detect_across_nodes(sights, are_all=True)] == [FindingKind.PARTNER]
