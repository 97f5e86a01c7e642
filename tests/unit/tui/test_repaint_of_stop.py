"""A stop tells nothing between its beginning and its end but that it goes on."""

from __future__ import annotations

from dataclasses import replace

from sparkctl.model.container import ContainerState
from sparkctl.model.events import ContainersListed, NodeStateChanged, PhaseChanged
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.tui.controller import RepaintScheduler

NODE = NodeName("spark1")
READY = InstanceView(
    "q", NODE, "c", "image", ContainerState.RUNNING, "Up 3 minutes", True, None, Phase.READY, container_id="a" * 64
)


async def test_a_poll_in_a_stop_makes_no_false_ready() -> None:
    bridge = RepaintScheduler([NODE], lambda: 0.0, lambda: None)
    bridge.apply_event(NodeStateChanged(0.0, NODE, NodeState.OK))
    for event in (
        ContainersListed(1.0, NODE, (READY,)),
        PhaseChanged(5.0, NODE, "q", Phase.STOPPING, elapsed=0.0),
        ContainersListed(6.0, NODE, (READY,)),
        ContainersListed(7.0, NODE, (replace(READY, phase=Phase.LOADING),)),
        PhaseChanged(10.0, NODE, "q", Phase.STOPPING, elapsed=5.0),
        ContainersListed(11.0, NODE, ()),
        PhaseChanged(21.0, NODE, "q", Phase.STOPPED, elapsed=16.0),
        ContainersListed(22.0, NODE, ()),
    ):
        bridge.apply_event(event)
    bridge.close()
    said = [one.text for one in bridge.event_log if one.what == ("phase", "q")]
    assert said == ["q: stopping", "q: stopped"]
