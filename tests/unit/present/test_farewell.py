"""Who leaves is told what goes on running, and of a Spark that does not answer what ran there last."""

from __future__ import annotations

import time
from dataclasses import replace

from sparkctl.core.store import LoadView
from sparkctl.model.container import ContainerState
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.present.farewell import farewell

NODE = NodeName("spark2")
ONE = InstanceView(
    "qwen36-vllm", NODE, "c", "image", ContainerState.RUNNING, "Up 3 hours", ours=True, memory=None, phase=Phase.READY
)  # fmt: skip
SEEN = 1_800_000_000.0
VIEW = LoadView(NODE, NodeState.OK, SEEN, instances=(ONE,), instances_seen=SEEN)


def test_what_runs_goes_on_running() -> None:
    assert farewell(VIEW, VIEW.instances, SEEN) == "qwen36-vllm goes on running on spark2"
    two = (ONE, replace(ONE, name="other"), replace(ONE, name="foreign", ours=False))
    assert farewell(VIEW, two, SEEN) == "qwen36-vllm and other go on running on spark2"
    assert farewell(VIEW, (), SEEN) is None


def test_of_a_node_that_does_not_answer_it_is_said_what_ran_there_and_when() -> None:
    away = replace(VIEW, state=NodeState.UNREACHABLE)
    when = time.strftime("%H:%M", time.localtime(SEEN))
    assert farewell(away, (ONE,), SEEN + 60) == f"spark2 did not answer; qwen36-vllm ran there at {when}"
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(SEEN))
    assert farewell(away, (ONE,), SEEN + 90_000) == f"spark2 did not answer; qwen36-vllm ran there at {day}"
    assert farewell(replace(away, instances_seen=None), (ONE,), SEEN) is None
