"""Whom a command line would cut off."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.commands.action_context import ActionContext
from sparkctl.commands.actions import find_action
from sparkctl.commands.stop.stop_impact import find_interrupted_instances, find_unlisted_nodes
from sparkctl.model.container import ContainerState
from sparkctl.model.decode_step import DecodeStepSpec
from sparkctl.model.engine_metrics import EngineMeter
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.monitor.node_views import NodeTelemetryView

ONE, TWO = NodeName("spark1"), NodeName("spark2")


def make_instance_view(name: str, node: NodeName, running: float | None) -> InstanceView:
    return InstanceView(
        name=name, node=node, container=name, image="i", state=ContainerState.RUNNING, status="Up", ours=True,
        memory=None, phase=Phase.READY, numbers=EngineMeter(running=running),
    )  # fmt: skip


def make_rank_view(node: NodeName, running: float | None) -> InstanceView:
    """Of a model on two Sparks."""
    one = replace(
        make_instance_view("big", node, running),
        per_step=DecodeStepSpec(weights=None, parameters=1, active_parameters=1, ranks=2),
    )
    return one if running is not None else replace(one, numbers=None)


def make_action_context() -> ActionContext:
    foreign = replace(make_instance_view("theirs", ONE, 4.0), ours=False)
    silent = replace(make_instance_view("silent", ONE, None), numbers=None)
    loading = replace(silent, name="loading", phase=Phase.LOADING)
    there = (
        make_instance_view("busy", ONE, 2.0),
        make_instance_view("idle", ONE, 0.0),
        silent,
        foreign,
        loading,
        make_rank_view(ONE, 1.0),
    )
    views = (
        NodeTelemetryView(name=ONE, state=NodeState.OK, when=0.0, instances=there),
        NodeTelemetryView(
            name=TWO,
            state=NodeState.OK,
            when=0.0,
            instances=(make_instance_view("busy", TWO, 1.0), make_rank_view(TWO, None)),
        ),
    )
    return ActionContext(names=(ONE, TWO), views=views, node=ONE, instance="busy")


@pytest.mark.parametrize(
    ("line", "ends"),
    [
        ("down busy --node spark1", ["busy@spark1"]),
        ("down busy -n spark2", ["busy@spark2"]),
        ("down --node=spark2 busy", ["busy@spark2"]),
        ("down busy", ["busy@spark1", "busy@spark2"]),
        ("down --grace 5s busy -n spark1", ["busy@spark1"]),
        ("down idle --node spark1", []),
        ("down silent --node spark1", ["silent@spark1"]),  # not known
        ("down loading --node spark1", []),
        ("down big --node spark2", ["big@spark2"]),  # the head answers, and not without it
        ("down theirs --node spark1", []),
        ("down --all", ["busy@spark1", "silent@spark1", "big@spark1", "busy@spark2", "big@spark2"]),
        ("down --all --kill --node spark2", ["busy@spark2", "big@spark2"]),
        ("up busy --node spark1", []),
        ("up busy --node spark1 --replace", ["busy@spark1"]),
        ("up ./mine/busy.yaml --replace -n spark2", ["busy@spark2"]),
        ("up --set name=busy other --replace", []),
        ("logs busy", []),
        ("", []),
    ],
)
def test_who_answers_requests_and_would_be_ended(line: str, ends: list[str]) -> None:
    assert [f"{one.name}@{one.node}" for one in find_interrupted_instances(make_action_context(), line.split())] == ends


def test_a_model_on_two_sparks_is_stopped_on_both_by_its_key() -> None:
    now = replace(make_action_context(), instance="big", node=TWO)
    for key, more in (("down", ()), ("kill", ("--kill",))):
        words = find_action(key).words
        assert words is not None
        assert words(now) == ("down", "big", "--node", "spark1", "--node", "spark2", *more)
        assert words(replace(now, instance="busy")) == ("down", "busy", "--node", "spark2", *more)


def test_where_nobody_has_looked_is_not_known_to_be_empty() -> None:
    now = make_action_context()
    looked = replace(now.views[0], instances_seen=1.0)
    dark = replace(now.views[1], state=NodeState.UNKNOWN, instances=())
    now = replace(now, views=(looked, dark))
    assert find_unlisted_nodes(now, ["down", "big"]) == (TWO,)
    assert find_unlisted_nodes(now, ["down", "big", "--node", "spark1"]) == ()
    assert find_unlisted_nodes(now, ["logs", "big"]) == ()
    gone = replace(now, views=(looked, replace(dark, state=NodeState.UNREACHABLE)))
    assert find_unlisted_nodes(gone, ["down", "big"]) == (), "nothing can be cut off where nothing can be reached"
