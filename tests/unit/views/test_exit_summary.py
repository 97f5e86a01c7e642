"""Who leaves is told what goes on running, and of a Spark that does not answer what ran there last."""

from __future__ import annotations

import time
from dataclasses import replace

from sparkctl.model.container import ContainerState
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.switch_plan import SwitchStep
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.monitor.switch_progress import SwitchProgress, SwitchStepProgress
from sparkctl.views.event_log_view import (
    describe_running_instances,
    describe_stopped_models,
    describe_unfinished_switch,
)

NODE = NodeName("spark2")
ONE = InstanceView(
    name="qwen36-vllm",
    node=NODE,
    container="c",
    image="image",
    state=ContainerState.RUNNING,
    status="Up 3 hours",
    ours=True,
    memory=None,
    phase=Phase.READY,
)
SEEN = 1_800_000_000.0
VIEW = NodeTelemetryView(name=NODE, state=NodeState.OK, when=SEEN, instances=(ONE,), instances_seen=SEEN)


def test_running_instances_keep_running_after_quit() -> None:
    assert describe_running_instances(VIEW, VIEW.instances, SEEN) == "qwen36-vllm goes on running on spark2"
    two = (ONE, replace(ONE, name="other"), replace(ONE, name="foreign", ours=False))
    assert describe_running_instances(VIEW, two, SEEN) == "qwen36-vllm and other go on running on spark2"
    assert describe_running_instances(VIEW, (), SEEN) is None


def test_of_a_node_that_does_not_answer_it_is_said_what_ran_there_and_when() -> None:
    away = replace(VIEW, state=NodeState.UNREACHABLE)
    when = time.strftime("%H:%M", time.localtime(SEEN))
    assert (
        describe_running_instances(away, (ONE,), SEEN + 60) == f"spark2 did not answer; qwen36-vllm ran there at {when}"
    )
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(SEEN))
    assert (
        describe_running_instances(away, (ONE,), SEEN + 90_000)
        == f"spark2 did not answer; qwen36-vllm ran there at {day}"
    )
    assert describe_running_instances(replace(away, instances_seen=None), (ONE,), SEEN) is None


def make_progress(*steps: SwitchStepProgress) -> SwitchProgress:
    return SwitchProgress(instance="qwen36", began=SEEN, plan=None, steps=steps, old=("minimax-m27",))


def test_of_what_a_switch_stops_its_own_events_say_how_it_stands() -> None:
    checking = SwitchStepProgress(SwitchStep.CHECKING, SEEN, SEEN + 1)
    stopping = SwitchStepProgress(SwitchStep.STOPPING, SEEN + 1)
    assert describe_stopped_models(make_progress(checking)) == ()
    assert describe_stopped_models(make_progress(checking, stopping)) == (
        "minimax-m27 is being stopped; its containers are kept",
    )
    stopped = ("minimax-m27 is stopped; its containers are kept",)
    assert describe_stopped_models(make_progress(checking, replace(stopping, ended=SEEN + 2))) == stopped
    assert (
        describe_stopped_models(make_progress(checking, SwitchStepProgress(SwitchStep.STARTING, SEEN + 2))) == stopped
    )
    assert describe_stopped_models(make_progress(SwitchStepProgress(SwitchStep.RESTORING, SEEN))) == (
        "minimax-m27 is being started again",
    )
    assert describe_stopped_models(make_progress(SwitchStepProgress(SwitchStep.CLEARING, SEEN))) == ()


def test_what_was_told_to_stop_does_not_go_on_running_though_it_was_seen_a_moment_ago() -> None:
    assert describe_running_instances(VIEW, (replace(ONE, phase=Phase.STOPPING),), SEEN) is None


def test_a_switch_without_time_to_say_where_it_was_left_is_told_with_its_two_ways() -> None:
    said = describe_unfinished_switch(make_progress(), "step 4 of 6 (starting)")
    assert said[0] == "the switch to qwen36 was left at step 4 of 6 (starting)"
    assert [line.rpartition(": ")[2] for line in said[1:]] == ["sparkctl resume", "sparkctl abort"]
