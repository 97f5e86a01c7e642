"""Status on 80 columns and on any other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.model.container import ContainerState
from sparkctl.model.engine_metrics import EngineActivity, EngineMeter
from sparkctl.model.finding import Finding, FindingKind, Severity
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase, Step
from sparkctl.model.reference import ComparableReference, FigureRange, ReferenceRate
from sparkctl.model.sample import MemoryReading
from sparkctl.model.text.units import GIB
from sparkctl.monitor.node_views import NodeStatusView
from sparkctl.views.overview.tile_rows import DrawArea, render_instance_row
from sparkctl.views.status_view import format_age, format_status, format_status_table
from sparkctl.views.text.styled_text import join_text, measure_row, to_ascii

NODE = NodeName("spark1")


def make_memory_reading(swap_used: float = 0.0) -> MemoryReading:
    total, available, free, page_cache, swap_total, swap_free = (
        int(count * GIB) for count in (121.7, 18.9, 1.3, 17.9, 16.0, 16.0 - swap_used)
    )
    return MemoryReading(
        total=total,
        available=available,
        free=free,
        page_cache=page_cache,
        swap_total=swap_total,
        swap_free=swap_free,
    )


def make_instance_view(name: str, *, ours: bool = True, step: Step | None = None) -> InstanceView:
    return InstanceView(
        name=name,
        node=NODE,
        container=name,
        image="lmsysorg/sglang:v0.5.12-cu130-runtime",
        state=ContainerState.RUNNING,
        status="Up 12 minutes",
        ours=ours,
        memory=int(96.6 * GIB),
        phase=(Phase.LOADING if step else Phase.READY) if ours else None,
        step=step,
        endpoint="http://spark-2a60.local:8003" if ours and not step else None,
    )


def make_status_view(*instances: InstanceView, swap_used: float = 0.0) -> NodeStatusView:
    return NodeStatusView(
        name=NODE, state=NodeState.OK, when=0.0, memory=make_memory_reading(swap_used), instances=instances
    )


def test_memory_is_one_line_of_80_columns_and_swap_is_told_when_used() -> None:
    head = "● spark1   102.8 of 121.7 GiB used · 18.9 available · 17.6 cache · 1.3 free"
    assert format_status([make_status_view()], width=80) == [head, "    nothing runs"]
    assert format_status([make_status_view(swap_used=0.2)])[0] == head + " · swap 0.2"
    plain = to_ascii(format_status([make_status_view(swap_used=0.2)])[0])
    assert plain.isascii()
    assert len(plain) == len(head) + len(" · swap 0.2")


@pytest.mark.parametrize("width", [60, 80, 100])
def test_rows_that_are_too_wide_go_on_in_a_second_line(width: int) -> None:
    rows = [
        make_instance_view("qwen36-with-a-long-name"),
        make_instance_view("loads", step=Step("weights", 12, 18)),
        make_instance_view("theirs", ours=False),
    ]
    lines = format_status([make_status_view(*rows, swap_used=0.2)], width=width)
    assert all(len(line) <= width for line in lines)
    text = "\n".join(lines)
    assert "http://spark-2a60.local:8003" in text
    assert "12/18" in text
    whole = format_status([make_status_view(*rows)])
    assert len(whole) == 7, "the node, each instance, and what it was made from"


def test_a_node_that_is_away_folds_its_reason_and_keeps_its_command() -> None:
    away = NodeStatusView(
        name=NODE, state=NodeState.UNREACHABLE, when=0.0, detail="spark1 does not answer at spark-2a60.local:22 within 10 s " * 2,
        hint="is it on? ping spark-2a60.local; then: ssh -v milo@spark-2a60.local -p 22 -o ConnectTimeout=10",
    )  # fmt: skip
    lines = format_status([away], width=80)
    assert all(len(line) <= 80 for line in lines)
    assert lines[-1].strip() == "ssh -v milo@spark-2a60.local -p 22 -o ConnectTimeout=10"


def test_ascii_is_ascii_whatever_is_not_known() -> None:
    unknown = replace(make_status_view(), memory=None)
    nobody = replace(make_instance_view("a"), memory=None)
    strange = replace(make_status_view(), instances=(nobody, replace(nobody, name="日本", ours=False, phase=None)))
    for one in (unknown, strange):
        assert to_ascii("\n".join(format_status([one]))).isascii()
        assert "—" in "\n".join(format_status([one]))


def test_an_instance_of_ours_without_a_phase_is_unknown() -> None:
    row = format_status([make_status_view(replace(make_instance_view("a"), phase=None))])[1]
    assert row.split()[:3] == ["◌", "a", "unknown"]


@pytest.mark.parametrize(
    ("width", "url", "room"),
    [
        (78, ":8003 ", "18.9 left"),
        (80, ":8003 ", "18.9 left"),
        (100, ":8003 ", "18.9 left"),
        (124, "  spark-2a60.local:8003 ", "18.9 available"),
        (None, "  http://spark-2a60.local:8003 ", "18.9 of 121.7 GiB available"),
    ],
)
def test_the_table_has_all_columns_and_no_row_of_it_wraps(width: int | None, url: str, room: str) -> None:
    rows = [
        make_instance_view("qwen3-coder-next-dflash-with-a-very-long-name"),
        make_instance_view("loads", step=Step("weights", 12, 18)),
        make_instance_view("theirs", ours=False),
        replace(make_instance_view("two"), endpoint=None, rank="1/2", nodes=(NODE,)),
    ]
    table = format_status_table([make_status_view(*rows), make_status_view()], width)
    assert len(table) == 1 + 1 + len(rows) + 2, "a row for the head, each node, each instance, and for nothing"
    assert width is None or max(map(measure_row, table)) <= width
    assert join_text(table[0]).split() == ["NODE", "MODEL", "STATE", "MEMORY", "TOK/S", "URL", "AGE"]
    text = "\n".join(map(join_text, table))
    words = (url, room, "loading 12/18", "96.6 GiB", "  —  ", "12 min", "rank 1 of 2", "nothing runs", "spark1")
    assert [word for word in words if word not in text] == []
    assert ("head on" in text) is (width is None)


@pytest.mark.parametrize("width", [40, 60])
def test_where_no_table_fits_the_wide_form_loses_nothing(width: int) -> None:
    table = format_status_table([make_status_view(make_instance_view("qwen36"))], width)
    text = "\n".join(map(join_text, table))
    assert max(map(measure_row, table)) <= width
    words = ("qwen36", "96.6 GiB", "http://spark-2a60.local:8003", "12 minutes", "18.9 available")
    assert [word for word in words if word not in text] == []


def test_a_table_says_below_a_node_what_its_row_cannot_hold() -> None:
    away = NodeStatusView(name=NODE, state=NodeState.UNREACHABLE, when=0.0, detail="no answer", hint="ping it")
    texts = [join_text(row) for row in format_status_table([away], 80)]
    assert texts[1:] == ["◌ spark1         unreachable", "    no answer", "    try: ping it"]
    failed = replace(make_instance_view("a"), phase=Phase.FAILED, detail="killed by the kernel")
    table = [join_text(row) for row in format_status_table([make_status_view(failed)], 80)]
    assert table[-2:] == ["    a: killed by the kernel", "    try: sparkctl diagnose a --node spark1"]
    others = replace(failed, ours=False)
    assert not [row for row in format_status_table([make_status_view(others)], 80) if "diagnose" in join_text(row)]


def test_what_one_look_found_is_counted_below_its_node() -> None:
    found = [
        Finding(kind=FindingKind.DISK, severity=severity, node=NODE, summary="s", remedy=None)
        for severity in (Severity.PROBLEM, Severity.WARNING, Severity.WARNING, Severity.NOTE)
    ]
    line = f"    ✕ 1 problem, ▲ 2 warnings: sparkctl doctor --node {NODE}"
    views = [make_status_view(make_instance_view("a"))]
    assert line in map(join_text, format_status_table(views, 80, {NODE: found}))
    assert line in format_status(views, 80, found={NODE: found})
    assert not any("doctor" in row for row in format_status(views, 80, found={NODE: found[3:]})), "a note is no problem"


@pytest.mark.parametrize(
    ("status", "age"),
    [
        ("Up 5 hours", "5 h"), ("Up About an hour (healthy)", "1 h"), ("Up Less than a second", "< 1 s"), ("Up 2 days", "2 d"),
        ("Exited (1) 3 minutes ago", "3 min"), ("Created", ""), ("Restarting (137) 12 seconds ago", "12 s"), ("Up 2 weeks", "2 wk"),
    ],
)  # fmt: skip
def test_age_is_that_of_docker(status: str, age: str) -> None:
    assert format_age(status) == age


def test_details_name_the_image() -> None:
    text = "\n".join(format_status([make_status_view(make_instance_view("a"))], 80))
    assert "image lmsysorg/sglang:v0.5.12-cu130-runtime" in text


def test_details_name_the_source_s_figure_beside_the_live_one() -> None:
    reference = ComparableReference("https://example.org/post", (ReferenceRate(1, FigureRange(12.7, 12.7)),))
    live = EngineMeter(activity=EngineActivity.DECODING, generation_rate=12.4, running=1)
    one = replace(make_instance_view("a"), numbers=live, reference=reference)
    text = "\n".join(format_status([make_status_view(one)], 200))
    assert text.endswith("· 12.4 tok/s · published 12.7")
    two = replace(one, numbers=replace(live, running=4))
    assert "source" not in "\n".join(format_status([make_status_view(two)], 200))


def test_a_download_has_the_name_of_its_profile_and_says_how_far_it_is() -> None:
    one = replace(
        make_instance_view("sparkctl-pull-ba2dd256abe4", ours=False), phase=Phase.PULLING, profile="qwen36", memory=0,
        detail="8.9 GiB of 25.1 GiB",
    )  # fmt: skip
    row = join_text(render_instance_row(one, DrawArea(68), marked=False, badge=True))
    assert row.startswith("  qwen36")
    assert row.endswith("◐ model 8.9 GiB of 25.1 GiB")
    assert join_text(render_instance_row(replace(one, detail=None), DrawArea(68), marked=False, badge=True)).endswith(
        "getting image and model"
    )
    assert "sparkctl-pull" not in "\n".join(format_status([make_status_view(one)]))
