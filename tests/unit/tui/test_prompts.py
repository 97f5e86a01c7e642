"""What is asked of an instance that has ended already: not whether it should be stopped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.commands.actions import ActionContext, find_action
from sparkctl.commands.stop.stop_instance import StopInstance
from sparkctl.model.container import ContainerState
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import Node, NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.tui.dialogs.base import build_body_rows
from sparkctl.tui.dialogs.prompts import build_confirmation
from sparkctl.views.text.styled_text import join_text

NODE = NodeName("spark2")
FAILED = InstanceView(
    name="qwen36",
    node=NODE,
    container="c",
    image="i",
    state=ContainerState.EXITED,
    status="Exited (1) 2 minutes ago",
    ours=True,
    memory=None,
    phase=Phase.FAILED,
)


def read_confirmation(one: InstanceView, *, grace: float | None = None) -> str:
    now = ActionContext(
        names=(NODE,),
        views=(NodeTelemetryView(name=NODE, state=NodeState.OK, when=0.0, instances=(one,), instances_seen=0.0),),
        node=NODE,
        instance=one.name,
    )
    request = StopInstance(instance="qwen36", nodes=(Node(name=NODE, host="192.0.2.2"),), grace=grace)
    dialog = build_confirmation(request, find_action("down"), now)
    return "\n".join(join_text(row) for row in build_body_rows(dialog._body, 80))


@pytest.mark.parametrize(
    ("one", "how"), [(FAILED, "has failed"), (replace(FAILED, phase=Phase.STOPPED, status="Exited (0)"), "has ended")]
)
@pytest.mark.parametrize("grace", [None, 0.0])
def test_an_ended_container_is_offered_for_removal(one: InstanceView, how: str, grace: float | None) -> None:
    said = read_confirmation(one, grace=grace)
    assert "Remove qwen36 from spark2?" in said
    assert f"It {how}" in said
    assert "Stop qwen36" not in said


def test_a_running_container_is_offered_a_stop() -> None:
    said = read_confirmation(replace(FAILED, state=ContainerState.RUNNING, phase=Phase.LOADING))
    assert "Stop qwen36 on spark2?" in said
