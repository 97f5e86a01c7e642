"""Whatever a node sends, or a recording holds: every view of it can be drawn, and none says more than its bounds."""

from __future__ import annotations

import json
import typing
from dataclasses import replace

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sparkctl.model import events
from sparkctl.model.container import ContainerState
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeName
from sparkctl.model.sample import MemoryReading, build_memory_bar
from sparkctl.monitor.store import Store
from sparkctl.views.prometheus_metrics import render_metrics
from sparkctl.views.top_view import build_top_json, format_memory_bar, format_top
from tests.unit.monitor.test_event_recording import draw_value

KINDS = (events.SampleArrived, events.ContainersListed, events.MeterArrived, events.NodeStateChanged,
         events.PhaseChanged, events.MemorySampled)  # fmt: skip
SIZES = st.integers(-(1 << 62), 1 << 62)

WITH_ODD_RANK = InstanceView(
    name="qwen36", node=NodeName("spark1"), container="c", image="i", state=ContainerState.RUNNING, status="Up", ours=True,
    memory=None, phase=None, rank="head",
)  # fmt: skip


@st.composite
def draw_events(draw: st.DrawFn) -> list[events.Event]:
    """A node that answers, then anything at all."""
    found: list[events.Event] = []
    for kind in draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4)):
        event = typing.cast("events.SampleArrived", draw(draw_value(kind)))
        found.append(replace(event, node=NodeName("spark1")))
    return found


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(draw_events(), st.none() | st.integers(40, 120))
@example([events.ContainersListed(ts=0.0, node=NodeName("spark1"), instances=(WITH_ODD_RANK,))], None)
def test_every_view_of_anything_can_be_drawn(happened: list[events.Event], width: int | None) -> None:
    store = Store()
    for event in happened:
        store.apply_event(event)
        views = store.get_views()
        lines = format_top(views, width, explain=True)
        assert [line for line in lines if not line.isprintable()] == []
        json.dumps(build_top_json(views), allow_nan=False)
        render_metrics(views, 5.0)


@given(SIZES.filter(bool), SIZES, SIZES, st.none() | SIZES, st.none() | SIZES)
def test_the_four_parts_of_any_memory_add_up_to_it(
    total: int, available: int, free: int, gpu: int | None, processes: int | None
) -> None:
    bar = build_memory_bar(
        MemoryReading(total=abs(total), available=available, free=free, page_cache=0, swap_total=0, swap_free=0),
        gpu,
        processes,
    )
    parts = (bar.gpu_processes or 0, bar.other_used, bar.page_cache, bar.free)
    assert sum(parts) == bar.total
    assert min(parts) >= 0
    assert len(format_memory_bar(bar, True)) == len(
        format_memory_bar(
            build_memory_bar(MemoryReading(total=1, available=1, free=1, page_cache=0, swap_total=0, swap_free=0), 0),
            True,
        )
    )
