"""What happened lately is told once, by whoever told it, and what somebody else did is told, too."""

from __future__ import annotations

from dataclasses import replace

from sparkctl.model.container import ContainerState
from sparkctl.model.events import CachesDropped, ContainersListed, LogArrived, NodeStateChanged, PhaseChanged
from sparkctl.model.instance import InstanceView
from sparkctl.model.memory_reading import MemoryReading
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.text.units import GIB
from sparkctl.tui.repaint_scheduler import RepaintScheduler
from sparkctl.views.overview.event_log_view import describe_container_changes, describe_event, render_event_log_entry
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


def test_a_start_tells_how_long_it_took_and_a_node_why_it_is_away() -> None:
    ready = describe_event(PhaseChanged(ts=10.0, node=NODE, instance="qwen36", phase=Phase.READY, elapsed=239.0))
    assert ready is not None
    assert (ready.text, ready.tone) == ("qwen36: ready after 3:59", TextStyle.GOOD)
    away = describe_event(NodeStateChanged(ts=10.0, node=NODE, state=NodeState.UNREACHABLE, detail="no answer"))
    assert away is not None
    assert away.text == "unreachable: no answer"
    assert join_text(render_event_log_entry(away, 8)).endswith("spark1    unreachable: no answer")
    assert describe_event(LogArrived(ts=10.0, node=NODE, instance="qwen36", lines=())) is None


def test_what_docker_lists_is_news_only_where_it_is_other_than_what_was_told() -> None:
    phases: dict[tuple[NodeName, str], Phase] = {}
    assert (
        describe_container_changes(ContainersListed(ts=1.0, node=NODE, instances=(ONE,)), phases, is_first=True) == []
    ), "so it was before"
    other = replace(ONE, name="other", status="Up 1 second")
    both = describe_container_changes(ContainersListed(ts=1.5, node=NODE, instances=(ONE, other)), phases)
    assert [one.text for one in both] == ["other: ready, Up 1 second"]
    del phases[NODE, "other"]
    assert describe_container_changes(ContainersListed(ts=2.0, node=NODE, instances=(ONE,)), phases) == []
    failed = describe_container_changes(
        ContainersListed(ts=3.0, node=NODE, instances=(replace(ONE, phase=Phase.FAILED),)), phases
    )
    assert [(one.text, one.tone) for one in failed] == [("qwen36: failed", TextStyle.BAD)]
    assert [one.text for one in describe_container_changes(ContainersListed(ts=4.0, node=NODE), phases)] == [
        "qwen36: gone from Docker's list"
    ]
    assert describe_container_changes(ContainersListed(ts=5.0, node=NODE), phases) == []


def test_a_drop_that_gave_nothing_is_no_line_unless_the_kernel_counted_none() -> None:
    memory = MemoryReading(
        total=122 * GIB, available=30 * GIB, free=9 * GIB, page_cache=20 * GIB, swap_total=0, swap_free=0
    )
    assert describe_event(CachesDropped(ts=1.0, node=NODE, before=memory, after=memory, proven=None)) is None
    assert (
        describe_event(
            CachesDropped(ts=1.0, node=NODE, before=memory, after=replace(memory, free=12 * GIB), proven=None)
        )
        is not None
    )
    assert describe_event(CachesDropped(ts=1.0, node=NODE, before=memory, after=memory, proven=False)) is not None


async def test_the_same_news_with_more_words_takes_the_place_of_the_first() -> None:
    bridge = RepaintScheduler([NODE], lambda: 0.0, lambda: None)
    try:
        bridge.apply_event(ContainersListed(ts=1.0, node=NODE, instances=()))
        bridge.apply_event(ContainersListed(ts=2.0, node=NODE, instances=(ONE,)))
        bridge.apply_event(PhaseChanged(ts=2.4, node=NODE, instance="qwen36", phase=Phase.READY, elapsed=237.0))
        assert [one.text for one in bridge.event_log] == ["qwen36: ready after 3:57"]
    finally:
        bridge.close()
