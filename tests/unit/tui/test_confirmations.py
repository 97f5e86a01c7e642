"""What is asked of an instance that has ended already: not whether it should be stopped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.commands.actions import ActionContext, find_action
from sparkctl.model.container import ContainerState
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.tui.dialogs.confirmations import build_confirmation
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


def read_confirmation(one: InstanceView, *words: str) -> str:
    now = ActionContext(
        names=(NODE,),
        views=(NodeTelemetryView(name=NODE, state=NodeState.OK, when=0.0, instances=(one,), instances_seen=0.0),),
        node=NODE,
        instance=one.name,
    )
    dialog = build_confirmation(find_action("down"), words, now)
    return "\n".join(join_text(row) for row in dialog.render_rows())


@pytest.mark.parametrize(
    ("one", "how"), [(FAILED, "has failed"), (replace(FAILED, phase=Phase.STOPPED, status="Exited (0)"), "has ended")]
)
@pytest.mark.parametrize("more", [(), ("--kill",)])
def test_an_ended_container_is_offered_for_removal(one: InstanceView, how: str, more: tuple[str, ...]) -> None:
    said = read_confirmation(one, "down", "qwen36", "--node", "spark2", *more)
    assert "Remove qwen36 from spark2?" in said
    assert f"It {how}" in said
    assert "Stop qwen36" not in said


def test_a_running_container_is_offered_a_stop() -> None:
    said = read_confirmation(
        replace(FAILED, state=ContainerState.RUNNING, phase=Phase.LOADING), "down", "qwen36", "--node", "spark2"
    )
    assert "Stop qwen36 on spark2?" in said
