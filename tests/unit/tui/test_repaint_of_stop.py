"""A stop tells nothing between its beginning and its end but that it goes on."""

from __future__ import annotations

from dataclasses import replace

from sparkctl.model.container import ContainerState
from sparkctl.model.events import ContainersListed, NodeStateChanged, PhaseChanged
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.monitor.store import Store
from sparkctl.views.event_log_view import describe_log_entry

NODE = NodeName("spark1")
READY = InstanceView(
    name="q",
    node=NODE,
    container="c",
    image="image",
    state=ContainerState.RUNNING,
    status="Up 3 minutes",
    ours=True,
    memory=None,
    phase=Phase.READY,
    container_id="a" * 64,
)


def test_a_poll_in_a_stop_makes_no_false_ready() -> None:
    store = Store([NODE])
    store.apply_event(NodeStateChanged(ts=0.0, node=NODE, state=NodeState.OK))
    for event in (
        ContainersListed(ts=1.0, node=NODE, instances=(READY,)),
        PhaseChanged(ts=5.0, node=NODE, instance="q", phase=Phase.STOPPING, elapsed=0.0),
        ContainersListed(ts=6.0, node=NODE, instances=(READY,)),
        ContainersListed(ts=7.0, node=NODE, instances=(replace(READY, phase=Phase.LOADING),)),
        PhaseChanged(ts=10.0, node=NODE, instance="q", phase=Phase.STOPPING, elapsed=5.0),
        ContainersListed(ts=11.0, node=NODE, instances=()),
        PhaseChanged(ts=21.0, node=NODE, instance="q", phase=Phase.STOPPED, elapsed=16.0),
        ContainersListed(ts=22.0, node=NODE, instances=()),
    ):
        store.apply_event(event)
    said = [describe_log_entry(one)[0] for one in store.event_log.entries if one.what == ("phase", "q")]
    assert said == ["q: stopping", "q: stopped"]
