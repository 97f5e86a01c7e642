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
    "q", NODE, "c", "image", ContainerState.RUNNING, "Up 3 minutes", True, None, Phase.READY, container_id="a" * 64
)
LOADING = replace(READY, phase=Phase.LOADING)


@pytest.fixture
def store() -> Store:
    made = Store([NODE])
    made.apply_event(NodeStateChanged(0.0, NODE, NodeState.OK))
    return made


def test_a_start_that_was_watched_is_ready_since_it_was_said(store: Store) -> None:
    store.apply_event(PhaseChanged(100.0, NODE, "q", Phase.LOADING, elapsed=30.0))
    store.apply_event(PhaseChanged(300.0, NODE, "q", Phase.READY, elapsed=230.0))
    assert store.get_ready_since(NODE, "q") == 300.0
    for ts in (301.0, 310.0):
        store.apply_event(ContainersListed(ts, NODE, (READY,)))
    assert store.get_ready_since(NODE, "q") == 300.0
    store.apply_event(ContainersListed(400.0, NODE, (replace(READY, container_id="b" * 64),)))
    assert store.get_ready_since(NODE, "q") is None, "another container: nobody saw it getting ready"


def test_a_start_of_somebody_else_is_ready_since_the_list_said_so(store: Store) -> None:
    store.apply_event(ContainersListed(10.0, NODE, (LOADING,)))
    assert store.get_ready_since(NODE, "q") is None
    store.apply_event(ContainersListed(12.0, NODE, (READY,)))
    store.apply_event(ContainersListed(14.0, NODE, (READY,)))
    assert store.get_ready_since(NODE, "q") == 12.0


def test_what_was_ready_when_it_was_first_seen_is_so_since_nobody_knows_when(store: Store) -> None:
    store.apply_event(ContainersListed(10.0, NODE, (READY,)))
    assert store.get_ready_since(NODE, "q") is None
    store.apply_event(PhaseChanged(20.0, NODE, "q", Phase.READY, elapsed=0.0, detail="Up 3 minutes"))
    assert store.get_ready_since(NODE, "q") is None, "it was so already when it was asked for"


def get_shown_phase(store: Store) -> Phase | None:
    return store.get_view(NODE).instances[0].phase


def test_a_stop_goes_on_whatever_its_engine_still_answers(store: Store) -> None:
    store.apply_event(ContainersListed(1.0, NODE, (READY,)))
    store.apply_event(PhaseChanged(5.0, NODE, "q", Phase.STOPPING, elapsed=0.0))
    store.apply_event(ContainersListed(6.0, NODE, (READY,)))
    assert get_shown_phase(store) is Phase.STOPPING
    store.apply_event(ContainersListed(8.0, NODE, ()))
    assert get_shown_phase(store) is Phase.STOPPING, "its memory is waited for"
    store.apply_event(PhaseChanged(21.0, NODE, "q", Phase.STOPPED, elapsed=16.0))
    store.apply_event(ContainersListed(22.0, NODE, ()))
    assert store.get_view(NODE).instances == ()


def test_a_stop_of_which_nothing_more_is_heard_is_no_longer_believed(store: Store) -> None:
    store.apply_event(PhaseChanged(5.0, NODE, "q", Phase.STOPPING, elapsed=0.0))
    store.apply_event(ContainersListed(500.0, NODE, (READY,)))
    assert get_shown_phase(store) is Phase.READY
    store.apply_event(PhaseChanged(600.0, NODE, "q", Phase.STOPPING, elapsed=0.0))
    store.apply_event(ContainersListed(601.0, NODE, (replace(READY, state=ContainerState.EXITED, phase=Phase.FAILED),)))
    store.apply_event(ContainersListed(610.0, NODE, (replace(READY, state=ContainerState.EXITED, phase=Phase.FAILED),)))
    assert get_shown_phase(store) is Phase.FAILED, "it has ended and stayed: its log could not be saved"
