"""Whom a command line would cut off."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.core.serving import cut_off
from sparkctl.core.situation import Situation
from sparkctl.core.store import InstanceView, LoadView
from sparkctl.model.container import ContainerState
from sparkctl.model.metrics import Numbers
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase

ONE, TWO = NodeName("spark1"), NodeName("spark2")


def instance(name: str, node: NodeName, running: float | None) -> InstanceView:
    return InstanceView(
        name=name, node=node, container=name, image="i", state=ContainerState.RUNNING, status="Up", ours=True,
        memory=None, phase=Phase.READY, numbers=Numbers(running=running),
    )  # fmt: skip


def situation() -> Situation:
    foreign = replace(instance("theirs", ONE, 4.0), ours=False)
    silent = replace(instance("silent", ONE, None), numbers=None)
    there = (instance("busy", ONE, 2.0), instance("idle", ONE, 0.0), silent, foreign)
    views = (
        LoadView(ONE, NodeState.OK, 0.0, instances=there),
        LoadView(TWO, NodeState.OK, 0.0, instances=(instance("busy", TWO, 1.0),)),
    )
    return Situation((ONE, TWO), views, ONE, "busy")


@pytest.mark.parametrize(
    ("line", "ends"),
    [
        ("down busy --node spark1", ["busy@spark1"]),
        ("down busy -n spark2", ["busy@spark2"]),
        ("down --node=spark2 busy", ["busy@spark2"]),
        ("down busy", ["busy@spark1", "busy@spark2"]),
        ("down --grace 5s busy -n spark1", ["busy@spark1"]),
        ("down idle --node spark1", []),
        ("down silent --node spark1", []),
        ("down theirs --node spark1", []),
        ("down --all", ["busy@spark1", "busy@spark2"]),
        ("down --all --kill --node spark2", ["busy@spark2"]),
        ("up busy --node spark1", []),
        ("up busy --node spark1 --replace", ["busy@spark1"]),
        ("up ./mine/busy.yaml --replace -n spark2", ["busy@spark2"]),
        ("up --set name=busy other --replace", []),
        ("logs busy", []),
        ("", []),
    ],
)
def test_who_answers_requests_and_would_be_ended(line: str, ends: list[str]) -> None:
    assert [f"{one.name}@{one.node}" for one in cut_off(situation(), line.split())] == ends
