"""Whom a request would cut off."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.commands.action_context import ActionContext
from sparkctl.commands.actions import find_action
from sparkctl.commands.stop.stop_impact import (
    StopTarget,
    find_interrupted_instances,
    find_unlisted_nodes,
    preview_stop,
)
from sparkctl.commands.stop.stop_instance import StopInstance
from sparkctl.model.container import ContainerState
from sparkctl.model.decode_step import DecodeStepSpec
from sparkctl.model.engine_metrics import EngineMeter
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import Node, NodeName, NodeState
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
    ("target", "ends"),
    [
        (StopTarget(instance="busy", nodes=(ONE,)), ["busy@spark1"]),
        (StopTarget(instance="busy"), ["busy@spark1", "busy@spark2"]),
        (StopTarget(instance="idle", nodes=(ONE,)), []),
        (StopTarget(instance="silent", nodes=(ONE,)), ["silent@spark1"]),  # not known
        (StopTarget(instance="loading", nodes=(ONE,)), []),
        (StopTarget(instance="big", nodes=(TWO,)), ["big@spark2"]),  # the head answers, and not without it
        (StopTarget(instance="theirs", nodes=(ONE,)), []),
        (StopTarget(instance=None), ["busy@spark1", "silent@spark1", "big@spark1", "busy@spark2", "big@spark2"]),
        (StopTarget(instance=None, nodes=(TWO,)), ["busy@spark2", "big@spark2"]),
        (StopTarget(instance=None, nodes=(TWO,), frees=True), ["busy@spark2", "big@spark2", "big@spark1"]),
        (StopTarget(instance="busy", nodes=(TWO,), replaces=True), ["busy@spark2"]),
    ],
)
def test_who_answers_requests_and_would_be_ended(target: StopTarget, ends: list[str]) -> None:
    assert [f"{one.name}@{one.node}" for one in find_interrupted_instances(make_action_context(), target)] == ends


def test_a_start_in_place_of_what_runs_asks_only_where_somebody_may_be_cut_off() -> None:
    now = make_action_context()
    now = replace(now, views=tuple(replace(view, instances_seen=1.0) for view in now.views))
    asked = preview_stop(now, StopTarget(instance="busy", nodes=(ONE,), replaces=True))
    assert (asked.is_required, asked.wanted) == (True, "busy")
    assert not preview_stop(now, StopTarget(instance="idle", nodes=(ONE,), replaces=True)).is_required
    assert preview_stop(now, StopTarget(instance="idle", nodes=(ONE,))).is_required


def test_a_model_on_two_sparks_is_stopped_on_both_by_its_key() -> None:
    nodes = tuple(Node(name=name, host=name) for name in (ONE, TWO))
    now = replace(make_action_context(), instance="big", node=TWO, config_nodes=nodes)
    for key, more in (("down", ()), ("kill", ("--kill",))):
        build_request = find_action(key).build_request
        assert build_request is not None
        request = build_request(now)
        assert isinstance(request, StopInstance)
        assert request.nodes == nodes
        assert request.format_as_command() == ("down", "big", "--node", "spark1", "--node", "spark2", *more)
        alone = build_request(replace(now, instance="busy")).format_as_command()
        assert alone == ("down", "busy", "--node", "spark2", *more)


def test_where_nobody_has_looked_is_not_known_to_be_empty() -> None:
    now = make_action_context()
    looked = replace(now.views[0], instances_seen=1.0)
    dark = replace(now.views[1], state=NodeState.UNKNOWN, instances=())
    now = replace(now, views=(looked, dark))
    assert find_unlisted_nodes(now, StopTarget(instance="big")) == (TWO,)
    assert find_unlisted_nodes(now, StopTarget(instance="big", nodes=(ONE,))) == ()
    gone = replace(now, views=(looked, replace(dark, state=NodeState.UNREACHABLE)))
    assert find_unlisted_nodes(gone, StopTarget(instance="big")) == (), (
        "nothing can be cut off where nothing can be reached"
    )
