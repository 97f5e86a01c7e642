"""What happened lately is told once, by whoever told it, and what somebody else did is told, too."""

from __future__ import annotations

from dataclasses import replace

from sparkctl.model.container import ContainerState
from sparkctl.model.events import (
    CachesDropped,
    CommandEnded,
    ContainersListed,
    Event,
    LogArrived,
    NodeStateChanged,
    Outcome,
    PhaseChanged,
)
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.sample import MemoryReading
from sparkctl.model.text.units import GIB
from sparkctl.model.verdict import FailureCause, Verdict
from sparkctl.monitor.event_log import StartRefused, build_log_entry
from sparkctl.monitor.store import Store
from sparkctl.views.event_log_view import describe_log_entry, render_event_log_entry
from sparkctl.views.text.styled_text import TextStyle, join_text

NODE = NodeName("spark1")
ONE = InstanceView(
    name="qwen36",
    node=NODE,
    container="c",
    image="image",
    state=ContainerState.RUNNING,
    status="Up 3 hours",
    ours=True,
    memory=None,
    phase=Phase.READY,
)


def describe_event(event: Event | StartRefused) -> tuple[str, TextStyle] | None:
    entry = build_log_entry(event)
    return None if entry is None else describe_log_entry(entry)


def read_log(store: Store) -> list[tuple[str, TextStyle]]:
    return [describe_log_entry(one) for one in store.event_log.entries]


def test_a_start_tells_how_long_it_took_and_a_node_why_it_is_away() -> None:
    ready = PhaseChanged(ts=10.0, node=NODE, instance="qwen36", phase=Phase.READY, elapsed=239.0)
    assert describe_event(ready) == ("qwen36: ready after 3:59", TextStyle.GOOD)
    away = build_log_entry(NodeStateChanged(ts=10.0, node=NODE, state=NodeState.UNREACHABLE, detail="no answer"))
    assert away is not None
    assert describe_log_entry(away)[0] == "unreachable: no answer"
    assert join_text(render_event_log_entry(away, "19:05:33", 8, explained=())).endswith(
        "spark1     unreachable: no answer"
    )
    assert describe_event(LogArrived(ts=10.0, node=NODE, instance="qwen36", lines=())) is None
    refused = StartRefused(ts=10.0, node=NODE, words=("up", "big", "--node", "spark1"), reason="no such profile")
    assert describe_event(refused) == ("up big refused: no such profile", TextStyle.ATTENTION)


def test_what_docker_lists_is_news_only_where_it_is_other_than_what_was_told() -> None:
    store = Store([NODE])
    store.apply_event(ContainersListed(ts=1.0, node=NODE, instances=(ONE,)))
    assert read_log(store) == [], "so it was before"
    other = replace(ONE, name="other", status="Up 1 second", phase=Phase.LOADING)
    store.apply_event(ContainersListed(ts=4.0, node=NODE, instances=(ONE, other)))
    assert read_log(store) == [("other: loading, Up 1 second", TextStyle.VALUE)]
    store.apply_event(ContainersListed(ts=8.0, node=NODE, instances=(ONE,)))
    assert len(read_log(store)) == 1, "a start that is not listed any more says itself how it ended"
    store.apply_event(ContainersListed(ts=12.0, node=NODE, instances=(replace(ONE, phase=Phase.FAILED),)))
    assert read_log(store)[1:] == [("qwen36: failed", TextStyle.BAD)]
    store.apply_event(ContainersListed(ts=16.0, node=NODE))
    assert read_log(store)[2:] == [("qwen36: gone from Docker's list", TextStyle.ATTENTION)]
    store.apply_event(ContainersListed(ts=20.0, node=NODE))
    assert len(read_log(store)) == 3


def test_a_drop_that_gave_nothing_is_no_line_unless_the_kernel_counted_none() -> None:
    memory = MemoryReading(
        total=122 * GIB, available=30 * GIB, free=9 * GIB, page_cache=20 * GIB, swap_total=0, swap_free=0
    )
    drop = CachesDropped(ts=1.0, node=NODE, before=memory, after=memory, proven=None)
    assert describe_event(drop) is None
    assert describe_event(replace(drop, after=replace(memory, free=12 * GIB))) is not None
    assert describe_event(replace(drop, proven=False)) is not None


def test_the_same_news_with_more_words_takes_the_place_of_the_first() -> None:
    store = Store([NODE])
    store.apply_event(ContainersListed(ts=1.0, node=NODE, instances=()))
    store.apply_event(ContainersListed(ts=2.0, node=NODE, instances=(ONE,)))
    store.apply_event(PhaseChanged(ts=2.4, node=NODE, instance="qwen36", phase=Phase.READY, elapsed=237.0))
    assert [text for text, _ in read_log(store)] == ["qwen36: ready after 3:57"]


def test_a_phase_that_goes_on_is_one_line() -> None:
    store = Store([NODE])
    for at in (1.0, 2.0, 3.0):
        store.apply_event(PhaseChanged(ts=at, node=NODE, instance="qwen36", phase=Phase.LOADING, elapsed=at))
        assert [text for text, _ in read_log(store)] == ["qwen36: loading"]


def test_a_failure_is_one_line_also_where_its_reason_comes_seconds_later() -> None:
    verdict = Verdict(cause=FailureCause.CUDA_OUT_OF_MEMORY, summary="It did not fit", evidence=(), remedy="less")
    end = CommandEnded(
        ts=24.0, outcome=Outcome.FAILED, exit_code=4, seconds=321.0, node=NODE, instance="qwen36", verdict=verdict
    )
    store = Store([NODE])
    store.apply_event(PhaseChanged(ts=11.0, node=NODE, instance="qwen36", phase=Phase.LOADING))
    store.apply_event(PhaseChanged(ts=20.0, node=NODE, instance="qwen36", phase=Phase.FAILED, elapsed=321.0))
    store.apply_event(end)
    assert [text for text, _ in read_log(store)] == ["qwen36: loading", "qwen36: failed: It did not fit"]
    entry = store.event_log.entries[-1]
    explained = join_text(render_event_log_entry(entry, "19:05:33", 8, explained=[(NODE, "qwen36")]))
    assert explained.endswith("qwen36: failed after 5:21")


def test_a_list_that_knows_less_than_the_log_does_not_turn_a_start_back() -> None:
    store = Store([NODE])
    store.apply_event(ContainersListed(ts=1.0, node=NODE, instances=()))
    store.apply_event(PhaseChanged(ts=2.0, node=NODE, instance="qwen36", phase=Phase.LOADING))
    store.apply_event(ContainersListed(ts=3.0, node=NODE, instances=(replace(ONE, phase=Phase.STARTING),)))
    store.apply_event(PhaseChanged(ts=4.0, node=NODE, instance="qwen36", phase=Phase.LOADING))
    assert [text for text, _ in read_log(store)] == ["qwen36: loading"]
