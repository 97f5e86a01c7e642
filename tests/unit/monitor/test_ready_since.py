"""Since when an instance is ready, and that a stop that goes on is not overwritten by a list."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.model.container import ContainerState
from sparkctl.model.events import ContainersListed, NodeStateChanged, PhaseChanged
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.monitor.store import Store

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
LOADING = replace(READY, phase=Phase.LOADING)


@pytest.fixture
def store() -> Store:
    made = Store([NODE])
    made.apply_event(NodeStateChanged(ts=0.0, node=NODE, state=NodeState.OK))
    return made


def test_a_start_that_was_watched_is_ready_since_it_was_said(store: Store) -> None:
    store.apply_event(PhaseChanged(ts=100.0, node=NODE, instance="q", phase=Phase.LOADING, elapsed=30.0))
    store.apply_event(PhaseChanged(ts=300.0, node=NODE, instance="q", phase=Phase.READY, elapsed=230.0))
    assert store.get_record(NODE).ready["q"].since == 300.0
    for ts in (301.0, 310.0):
        store.apply_event(ContainersListed(ts=ts, node=NODE, instances=(READY,)))
    assert store.get_record(NODE).ready["q"].since == 300.0
    store.apply_event(ContainersListed(ts=400.0, node=NODE, instances=(replace(READY, container_id="b" * 64),)))
    assert "q" not in store.get_record(NODE).ready, "another container: nobody saw it getting ready"


def test_a_start_of_somebody_else_is_ready_since_the_list_said_so(store: Store) -> None:
    store.apply_event(ContainersListed(ts=10.0, node=NODE, instances=(LOADING,)))
    assert "q" not in store.get_record(NODE).ready
    store.apply_event(ContainersListed(ts=12.0, node=NODE, instances=(READY,)))
    store.apply_event(ContainersListed(ts=14.0, node=NODE, instances=(READY,)))
    assert store.get_record(NODE).ready["q"].since == 12.0


def test_what_was_ready_when_it_was_first_seen_is_so_since_nobody_knows_when(store: Store) -> None:
    store.apply_event(ContainersListed(ts=10.0, node=NODE, instances=(READY,)))
    assert "q" not in store.get_record(NODE).ready
    store.apply_event(
        PhaseChanged(ts=20.0, node=NODE, instance="q", phase=Phase.READY, elapsed=0.0, detail="Up 3 minutes")
    )
    assert "q" not in store.get_record(NODE).ready, "it was so already when it was asked for"


def get_shown_phase(store: Store) -> Phase | None:
    return store.get_view(NODE).instances[0].phase


def test_a_stop_goes_on_whatever_its_engine_still_answers(store: Store) -> None:
    store.apply_event(ContainersListed(ts=1.0, node=NODE, instances=(READY,)))
    store.apply_event(PhaseChanged(ts=5.0, node=NODE, instance="q", phase=Phase.STOPPING, elapsed=0.0))
    store.apply_event(ContainersListed(ts=6.0, node=NODE, instances=(READY,)))
    assert get_shown_phase(store) is Phase.STOPPING
    store.apply_event(ContainersListed(ts=8.0, node=NODE, instances=()))
    assert get_shown_phase(store) is Phase.STOPPING, "its memory is waited for"
    store.apply_event(PhaseChanged(ts=21.0, node=NODE, instance="q", phase=Phase.STOPPED, elapsed=16.0))
    store.apply_event(ContainersListed(ts=22.0, node=NODE, instances=()))
    assert store.get_view(NODE).instances == ()


def test_a_stop_of_which_nothing_more_is_heard_is_no_longer_believed(store: Store) -> None:
    store.apply_event(PhaseChanged(ts=5.0, node=NODE, instance="q", phase=Phase.STOPPING, elapsed=0.0))
    store.apply_event(ContainersListed(ts=500.0, node=NODE, instances=(READY,)))
    assert get_shown_phase(store) is Phase.READY
    store.apply_event(PhaseChanged(ts=600.0, node=NODE, instance="q", phase=Phase.STOPPING, elapsed=0.0))
    store.apply_event(
        ContainersListed(
            ts=601.0, node=NODE, instances=(replace(READY, state=ContainerState.EXITED, phase=Phase.FAILED),)
        )
    )
    store.apply_event(
        ContainersListed(
            ts=610.0, node=NODE, instances=(replace(READY, state=ContainerState.EXITED, phase=Phase.FAILED),)
        )
    )
    assert get_shown_phase(store) is Phase.FAILED, "it has ended and stayed: its log could not be saved"


def test_a_list_that_tells_nothing_new_is_no_news(store: Store) -> None:
    """The panel paints sooner after news than after figures, and lists come every few seconds."""
    listed = ContainersListed(ts=10.0, node=NODE, instances=(READY,))
    assert store.apply_event(listed)
    assert not store.apply_event(replace(listed, ts=15.0))
    assert store.apply_event(replace(listed, ts=20.0, known=False, detail="Docker does not answer"))
    assert store.apply_event(replace(listed, ts=25.0))
    assert store.apply_event(replace(listed, ts=30.0, instances=(LOADING,)))
    store.apply_event(PhaseChanged(ts=31.0, node=NODE, instance="q", phase=Phase.STOPPING, elapsed=0.0))
    assert store.apply_event(replace(listed, ts=35.0, instances=()))
