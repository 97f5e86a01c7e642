"""The node page: what a link moves by RDMA is there in any width; no box is half empty; which cores an average is of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from sparkctl.model.events import NodeStateChanged
from sparkctl.model.finding import Severity
from sparkctl.model.kernel_event import KernelEvent, KernelEventKind
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.sample import Cpu, CpuCluster, Gpu, MemoryReading, NodeProcess, Sample
from sparkctl.model.text.units import GIB
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.monitor.sample_series import SampleSeries
from sparkctl.views.node_view import NodeScreenModel, _list_link_forms, render_node
from sparkctl.views.overview.tile_model import NodeTileModel
from sparkctl.views.text.styled_text import TextRow, TextStyle, join_text

CELLS = ["200 Gb/s", "MTU 9000", "↓ 1.2 kB/s ↑ 1.2 kB/s", "RDMA roceP2p1s0f0 ↓ 11.4 GB/s ↑ 0.3 GB/s"]


@pytest.mark.parametrize("idle", [[], ["IDLE while rocep1s0f0 works: half of the link is unused"]])
def test_what_a_link_moves_by_rdma_stays_in_each_form(idle: list[str]) -> None:
    forms = _list_link_forms([*CELLS, *idle])
    assert forms[0].startswith("200 Gb/s  ↓ 1.2 kB/s")
    assert [len(form) for form in forms] == sorted((len(form) for form in forms), reverse=True)
    assert all("↓ 11.4 GB/s ↑ 0.3 GB/s" in form for form in forms)
    assert forms[-1].startswith("RDMA ↓ 11.4 GB/s")
    assert _list_link_forms(CELLS[:3])[-1] == "↓ 1.2 kB/s ↑ 1.2 kB/s", "a link without RDMA has its traffic"


def make_node(count: int, celsius: float = 60.0) -> NodeScreenModel:
    """A Spark with so many processes, read for half a minute."""
    name = NodeName("spark1")
    memory = MemoryReading(
        total=128 * GIB, available=30 * GIB, free=10 * GIB, page_cache=20 * GIB, swap_total=0, swap_free=0
    )
    clusters = CpuCluster(718, (0, 1, 4), 0.02), CpuCluster(1024, (2, 3), 0.97)
    sample = Sample(
        sequence=1, time=1000.0, uptime=5000.0, memory=memory,
        gpus=(Gpu(index=0, name="NVIDIA GB10", busy=0.96, sm_clock=2411, power=61.0, celsius=celsius),),
        cpu=Cpu(busy=0.4, cores=(0.01, 0.02, 0.99, 0.95, None), clusters=clusters, load=(1.0, 1.0, 1.0)),
        processes=tuple(NodeProcess(pid=100 + at, name="python3") for at in range(count)),
    )  # fmt: skip
    series = SampleSeries()
    for second in range(30):
        series.add_sample(replace(sample, uptime=5000.0 + second, sequence=second), 970.0 + second)
    view = NodeTelemetryView(
        name=name, state=NodeState.OK, when=1000.0, sample=sample, instances=(), instances_seen=1000.0, sampled=1000.0
    )
    result = NodeStateChanged(ts=1000.0, node=name, state=NodeState.OK)
    return NodeScreenModel(tile=NodeTileModel(view=view, connection=result, now=1000.0, series=series))


@pytest.mark.parametrize(("columns", "lines"), [(120, 38), (200, 58)])
@pytest.mark.parametrize("count", [0, 2, 40])
def test_no_box_is_half_empty(columns: int, lines: int, count: int) -> None:
    rows = [join_text(row) for row in render_node(make_node(count), columns, lines).rows]
    (top,) = [at for at, row in enumerate(rows) if "─ processes" in row]
    listed = min(count, lines // 2 - 3)
    assert sum(" python3 " in row for row in rows) == listed
    assert lines - top == max(4, listed + 3), "no more than its processes need"
    assert all(part.lstrip().startswith("0 ") for part in rows[top - 2].strip("│").split("││")), (
        "curves go down to the frames"
    )
    assert any("°C heat" in row for row in rows)


def test_averages_of_cores_say_of_which_they_are() -> None:
    (whole,) = [row for row in map(join_text, render_node(make_node(2), 120, 38).rows) if "cores " in row]
    assert "small 0–1, 4   2 %   fast 2–3  97 %" in whole
    (low,) = [row for row in map(join_text, render_node(make_node(2), 80, 22).rows) if "cores " in row]
    assert "small ▁▁·   2 %" in low
    assert "fast ██  97 %" in low


def find_styles(rows: Sequence[TextRow], *marks: str) -> set[TextStyle]:
    return {span.tone for row in rows for span in row if span.text and span.text[0] in marks}


def test_what_is_dangerous_takes_the_colour_of_danger_the_higher_the_more() -> None:
    calm, hot = (render_node(make_node(2, celsius), 120, 38).rows for celsius in (60.0, 95.0))
    assert find_styles(calm, "━") >= {TextStyle.POWER, TextStyle.ATTENTION, TextStyle.BAD}, (
        "a full core goes through all"
    )
    assert TextStyle.HOT_BODY not in {span.tone for row in calm for span in row}
    assert {TextStyle.POWER_WARM_BODY, TextStyle.ATTENTION_BODY} <= {span.tone for row in hot for span in row}


def test_the_kernels_log_is_told_whole_and_when_it_has_nothing() -> None:
    node = make_node(2)

    def render_text(tile: NodeTileModel) -> str:
        rows = [join_text(row)[:59] for row in render_node(replace(node, tile=tile), 120, 38).rows]
        return " ".join(" ".join(row.strip("│").split()) for row in rows)

    assert "kernel nothing logged" in render_text(node.tile)
    assert "kernel not read" in render_text(replace(node.tile, kernel_gaps="not read"))
    meaning = f"the PCIe device 0000:00:00.0 failed for good {'and did not come back ' * 4}(fatal AER error)"
    event = KernelEvent(
        kind=KernelEventKind.PCIE, severity=Severity.PROBLEM, at=990.0, last=990.0, text="AER", meaning=meaning,
        remedy="restart it", source="https://example.com", hours=24.0,
        many=None, count=1, container=None, process=None, pid=None, xid=None, ends_programs=False,
    )  # fmt: skip
    assert meaning in render_text(replace(node.tile, kernel=(event,)))
