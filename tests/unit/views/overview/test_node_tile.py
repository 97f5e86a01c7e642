"""One Spark as a tile, as text: what is said of it in every state, and that it is exactly as large as asked."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkctl import engines
from sparkctl.history.model import OperationKind, OperationRecord
from sparkctl.model.container import ContainerState
from sparkctl.model.decode_step import DecodeStepSpec
from sparkctl.model.engine_metrics import (
    DraftAcceptance,
    EngineActivity,
    EngineFact,
    EngineFactName,
    EngineMeter,
    MeterSource,
    StepLoad,
)
from sparkctl.model.events import CommandEnded, NodeStateChanged, Outcome, PhaseChanged
from sparkctl.model.finding import Finding, FindingKind, Severity, find_same
from sparkctl.model.instance import InstanceView
from sparkctl.model.memory_fit import FitOutcome, MemoryFit
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase, PhaseDuration, Step
from sparkctl.model.reference import ComparableReference, FigureRange, ReferenceRate
from sparkctl.model.sample import Cpu, Gpu, GpuProcess, MemoryReading, RdmaLane, Sample
from sparkctl.model.text.units import GIB
from sparkctl.model.verdict import Confidence, Evidence, FailureCause, Verdict
from sparkctl.monitor.event_log import EventLogEntry, RecentLogLine, StartRefused, build_log_entry
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.monitor.sample_series import SampleSeries, SeriesName
from sparkctl.monitor.startup_timeline import advance_timeline
from sparkctl.views.overview.overview_view import (
    NodeTile,
    OverviewScreenModel,
    count_useful_rows,
    render_overview,
)
from sparkctl.views.overview.tile_model import NodeTileModel, StartOffer
from sparkctl.views.overview.tile_rows import (
    DrawArea,
    choose_chart_seconds,
    describe_engine,
    fill_series_gaps,
    format_chart_span,
    read_series,
    render_bandwidth,
    render_engine_facts,
)
from sparkctl.views.text.frame_layout import MIN_TILE_LINES
from sparkctl.views.text.styled_text import TextStyle, join_text, measure_row, to_ascii

NODE = NodeName("spark1")
NOW = 1000.0
MEMORY = MemoryReading(
    total=128 * GIB, available=30 * GIB, free=10 * GIB, page_cache=20 * GIB, swap_total=16 * GIB, swap_free=15 * GIB
)
GPU = Gpu(
    index=0,
    name="NVIDIA GB10",
    busy=0.96,
    sm_clock=2411,
    power=61.0,
    celsius=71.0,
    processes=(GpuProcess(1, 90 * GIB),),
)
SAMPLE = Sample(sequence=1, time=NOW, uptime=5000.0, memory=MEMORY, gpus=(GPU,))
DRAFTED = EngineMeter(
    activity=EngineActivity.DECODING, seconds=10.0, estimator=MeterSource.COUNTERS, generation_rate=12.7, running=2, waiting=0, kv_usage=0.31,
    acceptance=DraftAcceptance(1.75, 0.2, None, MeterSource.COUNTERS),
)  # fmt: skip
READY = InstanceView(
    name="qwen36",
    node=NODE,
    container="sglang-qwen36",
    image="scitrera/dgx-spark-sglang:0.5.12",
    state=ContainerState.RUNNING,
    status="Up 3 hours",
    ours=True,
    memory=96 * GIB,
    phase=Phase.READY,
    engine="sglang",
    container_id="c1",
    port=8003,
    numbers=DRAFTED,
)
FOREIGN = InstanceView(
    name="postgres",
    node=NODE,
    container="postgres",
    image="docker.io/library/postgres:16",
    state=ContainerState.RUNNING,
    status="Up 2 days",
    ours=False,
    memory=2 * GIB,
    phase=None,
)
OK = NodeStateChanged(ts=NOW, node=NODE, state=NodeState.OK)
AWAY = NodeStateChanged(
    ts=NOW - 3,
    node=NODE,
    state=NodeState.UNREACHABLE,
    detail="10.0.0.5:22 does not answer",
    attempt=3,
    next_try=8.0,
    hint="is it on?",
)


def make_log_entry(text: str) -> EventLogEntry:
    entry = build_log_entry(StartRefused(ts=NOW, node=NODE, words=("up",), reason=text))
    assert entry is not None
    return entry


def make_tile(*instances: InstanceView, connection: NodeStateChanged = OK, **more: object) -> NodeTileModel:
    view = NodeTelemetryView(
        name=NODE, state=NodeState.OK, when=NOW, sample=SAMPLE, instances=instances, instances_seen=NOW, sampled=NOW
    )
    return replace(NodeTileModel(view=view, connection=connection, now=NOW), **more)


def render_tile(glance: NodeTileModel, columns: int = 80, count: int = 16, *, ascii_only: bool = False) -> str:
    text = "\n".join(join_text(row) for row in NodeTile(glance).render_rows(columns, count))
    return to_ascii(text) if ascii_only else text


def test_a_ready_spark_is_read_from_state_to_heat() -> None:
    shown = render_tile(make_tile(READY))
    parts = (
        "● ready, up 3 hours",
        "qwen36   SGLang 0.5.12   :8003",
        " 98.0 of 128.0 GiB",
        "GPU 90.0",
        "12.7 tok/s",
        "KV",
        "1.75",
        "71 °C",
    )
    places = [shown.index(part) for part in parts]
    assert places == sorted(places)
    assert "20 % of drafts" in shown


@pytest.mark.parametrize(("columns", "count"), [(100, 12), (100, 7), (80, 9), (60, 6), (49, MIN_TILE_LINES)])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_what_serves_is_seen_however_a_second_start_ended(columns: int, count: int, ascii_only: bool) -> None:
    serving = replace(READY, name="qwen36-vllm", engine="vllm", container_id="c2", port=8000)
    failed = replace(
        READY,
        phase=Phase.FAILED,
        state=ContainerState.EXITED,
        status="Exited (1)",
        numbers=None,
        memory=None,
        port=None,
    )
    verdict = Verdict(
        cause=FailureCause.PORT_IN_USE,
        summary="the port is taken. " * 9,
        evidence=(Evidence("bind " * 30, "log", 4),),
        remedy="stop it " * 20,
    )
    end = CommandEnded(
        ts=NOW, outcome=Outcome.FAILED, exit_code=1, seconds=48.0, node=NODE, instance="qwen36", verdict=verdict
    )
    glance = make_tile(failed, serving, ends={"qwen36": end})
    shown = render_tile(glance, columns, count, ascii_only=ascii_only)
    head, *rest = shown.splitlines()
    assert ("+ ready . x qwen36 failed" if ascii_only else "● ready · ✕ qwen36 failed") in head
    row = next((line for line in rest if "qwen36-vllm" in line), None)
    assert row is not None, shown
    assert "ready" in row


@pytest.mark.parametrize("columns", [54, 58, 76, 120])
def test_what_others_measured_stands_beside_the_throughput(columns: int) -> None:
    post = ComparableReference("https://example.org/post", (ReferenceRate(1, FigureRange(12.7, 12.7), 640),))
    alone = replace(READY, reference=post, numbers=replace(DRAFTED, generation_rate=12.4, running=1.0, waiting=0.0))
    (row,) = [line for line in render_tile(make_tile(alone), columns + 4).splitlines() if "tok/s" in line]
    assert "12.4 tok/s  published 12.7 " in row
    assert "1 run" in row
    assert "KV" in row
    three = replace(alone, numbers=replace(alone.numbers, running=3.0))
    assert "source" not in render_tile(make_tile(three), columns + 4)


def test_page_cache_is_shown_and_not_counted_as_used() -> None:
    shown = render_tile(make_tile(READY))
    assert "cache 20.0" in shown
    assert " 98.0 of 128.0" in shown, "total - free - cache"


def test_idle_is_said_and_unknown_is_a_dash_and_neither_is_a_zero() -> None:
    idle = replace(READY, numbers=EngineMeter(activity=EngineActivity.IDLE, seconds=10.0))
    assert "decode  idle" in render_tile(make_tile(idle))
    unknown = render_tile(make_tile(replace(READY, numbers=None)))
    assert "decode  —" in unknown
    assert "0.0 tok/s" not in unknown


def test_a_start_has_its_step_and_its_time_against_what_is_expected() -> None:
    coming = replace(READY, phase=Phase.LOADING, step=Step("weights", 12, 18), numbers=None)
    start = PhaseChanged(
        ts=NOW - 10, node=NODE, instance="qwen36", phase=Phase.LOADING, step=coming.step, elapsed=240.0, expected=415.0
    )
    shown = render_tile(make_tile(coming, starts={"qwen36": start}))
    assert "◐ loading" in shown
    assert "weights" in shown
    assert "12/18" in shown
    assert "4:10 of about 6:55" in shown
    late = replace(start, elapsed=600.0)
    assert "longer than usual" in render_tile(make_tile(coming, starts={"qwen36": late}))


def test_a_step_without_progress_of_its_own_goes_by_its_time() -> None:
    coming = replace(READY, phase=Phase.LOADING, step=Step("compile"), numbers=None)
    usual = (PhaseDuration(Phase.LOADING, "compile", 40.0), PhaseDuration(Phase.LOADING, "graphs", 60.0))
    start = PhaseChanged(
        ts=NOW - 10,
        node=NODE,
        instance="qwen36",
        phase=Phase.LOADING,
        step=coming.step,
        elapsed=240.0,
        expected=415.0,
        detail=None,
        expected_parts=usual,
    )
    timeline = advance_timeline(None, start)
    assert timeline is not None
    shown = render_tile(make_tile(coming, starts={"qwen36": start}, timelines={"qwen36": timeline}))
    assert "0:10 of about 0:40" in shown
    assert "then CUDA graphs" in shown
    assert "4:10 of about 6:55" in render_tile(make_tile(coming, timelines={"qwen36": timeline})), (
        "also behind a newer list of containers"
    )
    unknown = advance_timeline(None, replace(start, expected_parts=()))
    assert unknown is not None
    assert "0:10" not in render_tile(make_tile(coming, starts={"qwen36": start}, timelines={"qwen36": unknown}))


def test_what_goes_on_is_said_before_what_comes_next_also_where_no_progress_of_it_is_known() -> None:
    coming = replace(READY, phase=Phase.LOADING, step=None, numbers=None)
    begun = advance_timeline(
        None, PhaseChanged(ts=NOW - 20, node=NODE, instance="qwen36", phase=Phase.STARTING, step=None, elapsed=10.0)
    )
    timeline = advance_timeline(
        begun, PhaseChanged(ts=NOW - 10, node=NODE, instance="qwen36", phase=Phase.LOADING, step=None, elapsed=20.0)
    )
    assert timeline is not None
    shown = " ".join(render_tile(make_tile(coming, timelines={"qwen36": timeline})).split())
    assert "started ✓ loading then warming up" in shown
    changed = replace(coming, step=Step("weights", 12, 18))
    assert "✓ then warming up" in " ".join(render_tile(make_tile(changed, timelines={"qwen36": timeline})).split()), (
        "its row says it"
    )
    bare = replace(coming, step=Step("weights"))
    assert "now weights" in " ".join(render_tile(make_tile(bare)).split()), (
        "a label with nothing behind it says nothing"
    )


def test_a_failure_says_why_first_then_the_proof_then_what_to_do() -> None:
    verdict = Verdict(
        cause=FailureCause.CUDA_OUT_OF_MEMORY,
        summary="CUDA ran out of memory.",
        evidence=(Evidence("torch.OutOfMemoryError", "log", 412),),
        remedy="Lower it.",
        confidence=Confidence.LIKELY,
    )
    end = CommandEnded(
        ts=NOW, outcome=Outcome.FAILED, exit_code=1, seconds=48.0, node=NODE, instance="qwen36", verdict=verdict
    )
    shown = render_tile(
        make_tile(replace(READY, phase=Phase.FAILED, state=ContainerState.EXITED), ends={"qwen36": end})
    )
    parts = (
        "✕ failed",
        "Likely: CUDA ran out of memory.",
        "line 412  torch.OutOfMemoryError",
        "Lower it.",
        " of 128.0 GiB",
    )
    places = [shown.index(part) for part in parts]
    assert places == sorted(places)


def test_a_spark_that_is_away_says_what_was_tried_and_when_the_next_try_is() -> None:
    shown = render_tile(make_tile(READY, connection=AWAY))
    assert "◌ unreachable" in shown
    assert "10.0.0.5:22 does not answer" in shown
    assert "try in 5 s   attempt 3 failed" in shown
    assert "is it on?" in shown
    tones = {
        span.tone
        for row in NodeTile(make_tile(READY, connection=AWAY)).render_rows(80, 16)
        for span in row
        if "of 128.0 GiB" in span.text
    }
    assert tones == {TextStyle.STALE}, "what is old fades and is not removed"


def test_a_starved_node_is_not_shown_as_off() -> None:
    assert "◍ starved" in render_tile(
        make_tile(connection=NodeStateChanged(ts=NOW, node=NODE, state=NodeState.STARVED, detail="SSH does not speak"))
    )


def test_docker_that_does_not_answer_is_not_nothing_runs() -> None:
    view = NodeTelemetryView(
        name=NODE,
        state=NodeState.OK,
        when=NOW,
        detail="the socket refuses",
        sample=SAMPLE,
        docker_known=False,
        sampled=NOW,
    )
    shown = render_tile(NodeTileModel(view=view, connection=OK, now=NOW))
    assert "Docker does not answer" in shown
    assert "the socket refuses" in shown
    assert "nothing runs" not in shown


def test_what_others_run_is_there_but_ours_comes_first() -> None:
    shown = render_tile(make_tile(FOREIGN, READY, chosen="postgres"))
    assert shown.index("qwen36") < shown.index("postgres")
    assert "▸ postgres   postgres:16" in shown
    assert "○ foreign   2.0 GiB" in shown


def test_a_spark_where_nothing_runs_names_what_was_started_last() -> None:
    assert "u starts a profile: qwen36, orpheus-tts ..." in render_tile(
        make_tile(recent=("qwen36", "orpheus-tts"), start_key="u")
    )
    assert "starts a profile" not in "\n".join(render_tile(make_tile(recent=("qwen36",)))), (
        "in a recording nothing is started"
    )


def test_a_worker_says_where_it_is_served_and_a_missing_bandwidth_why() -> None:
    worker = replace(READY, port=None, numbers=None)
    assert "a worker of the engine on spark2" in render_tile(
        make_tile(worker, heads={"qwen36": replace(READY, node=NodeName("spark2"), numbers=None)})
    )
    ranked = replace(worker, rank="1/2", run="a1")
    head = replace(READY, node=NodeName("spark2"), rank="0/2", run="a1")
    shown = render_tile(make_tile(ranked, heads={"qwen36": head}))
    assert "rank 1 of 2" in shown
    assert "its head answers, on spark2 · 12.7 tok/s" in shown
    assert "rank 0 of 2 · head" in render_tile(make_tile(head))
    assert ":8003 · rank 0 of 2 " in render_tile(make_tile(head), count=6)
    assert "mem BW  —  set model.weights in the profile" in render_tile(make_tile(READY))


def test_why_there_is_no_bandwidth_beside_many_prompts_is_a_word_in_a_tile_and_a_sentence_on_its_page() -> None:
    assert READY.numbers is not None
    busy = replace(READY.numbers, step_load=StepLoad(prompt_tokens=64.0))
    one = replace(READY, numbers=busy, per_step=DecodeStepSpec(weights=10**10))
    for columns in (60, 80, 120):
        assert re.search("mem BW  —  prompts were read too +[│┃]", render_tile(make_tile(one), columns=columns))
    rows = render_bandwidth(one, make_tile(one), DrawArea(56), most_lines=3)
    assert "64 of their tokens a decode step, and what they read cannot be counted" in " ".join(
        " ".join(join_text(row).split()) for row in rows
    )


def test_a_tall_tile_shows_the_last_minutes_with_the_ends_of_their_scale() -> None:
    series = SampleSeries()
    for second in range(30):
        series.add_sample(replace(SAMPLE, uptime=5000.0 + second, sequence=second), NOW - 30 + second)
    shown = render_tile(make_tile(READY, series=series), 80, 40)
    lines = [line[2:] for line in shown.splitlines()]
    tops = [next(at for at, line in enumerate(lines) if line.startswith(most)) for most in ("128 GiB", "100 % busy")]
    ends = [at for at, line in enumerate(lines) if line.startswith("0 ")]
    assert all(any(top < end for end in ends) for top in tops)
    assert "30 s" in shown
    curve = next(line for line in shown.splitlines() if line[2:].startswith("0 "))
    assert curve[-3] == "⣿", "a curve goes to the end of the tile, the newest at its right"
    low = render_tile(make_tile(READY, series=series), 80, 9)
    assert "  98 GiB  " in low, "in one row beside what was read"
    assert "100 %" not in low


def test_where_room_is_scarce_trends_go_before_numbers() -> None:
    shown = render_tile(make_tile(READY), 60, 5)
    assert "of 128.0 GiB" in shown
    assert "12.7 tok/s" in shown
    assert "1.75" in shown
    assert "swap" not in shown


NEVER = NodeTileModel(view=NodeTelemetryView(name=NODE, state=NodeState.UNKNOWN, when=0.0), connection=AWAY, now=NOW)
STATES = [make_tile(), make_tile(READY), make_tile(FOREIGN, READY), make_tile(READY, connection=AWAY), NEVER]


@given(st.sampled_from(STATES), st.integers(12, 130), st.integers(3, 20), st.booleans())
def test_a_tile_is_exactly_as_large_as_asked(glance: NodeTileModel, columns: int, count: int, chosen: bool) -> None:
    rows = NodeTile(glance).render_rows(columns, count, chosen=chosen)
    assert len(rows) == count
    assert {measure_row(row) for row in rows} == {columns}
    assert all(to_ascii(join_text(row)).isascii() for row in rows)


@given(st.sampled_from(STATES), st.integers(12, 130), st.integers(3, 40))
def test_a_tile_that_was_asked_how_tall_it_would_be_looks_as_one_that_was_not(
    glance: NodeTileModel, columns: int, count: int
) -> None:
    asked = NodeTile(glance)
    natural = count_useful_rows([asked], columns, count)
    assert natural <= max(count, MIN_TILE_LINES)
    assert asked.render_rows(columns, natural) == NodeTile(glance).render_rows(columns, natural)


@given(st.integers(1, 9), st.integers(0, 8), st.integers(50, 220), st.integers(10, 60))
def test_the_overview_is_exactly_as_large_as_asked_and_has_the_chosen_one(
    count: int, chosen: int, columns: int, high: int
) -> None:
    glances = tuple(
        replace(make_tile(READY), view=replace(make_tile(READY).view, name=NodeName(f"s{at}"))) for at in range(count)
    )
    chosen %= count
    painted = render_overview(OverviewScreenModel(glances=glances, chosen=chosen), columns, high)
    assert len(painted.rows) == high
    assert {measure_row(row) for row in painted.rows} == {columns}
    assert chosen in [box.index for box in painted.boxes]


def test_findings_and_the_last_lines_stand_below() -> None:
    found = Finding(kind=FindingKind.THERMAL, severity=Severity.PROBLEM, node=NODE, summary="heat slows the GPU down")
    glance = replace(make_tile(READY), view=replace(make_tile(READY).view, findings=(found,)))
    shown = "\n".join(
        join_text(row)
        for row in render_overview(
            OverviewScreenModel(glances=(glance,), chosen=0, lines=(RecentLogLine(NODE, "q", "[/red] \x1b[31mline"),)),
            80,
            24,
        ).rows
    )
    assert "✕ spark1  heat slows the GPU down" in shown
    assert "spark1 │ [/red] line" in shown


def test_log_lines_have_their_times_in_the_columns_of_events() -> None:
    lines = (
        RecentLogLine(NODE, "q", "loads", "2026-01-02T10:20:30.123456789Z"),
        RecentLogLine(NODE, "q", "no time", "?"),
    )
    happened = (make_log_entry("event"),)
    scene = OverviewScreenModel(glances=(make_tile(READY),), lines=lines, happened=happened)
    rows = [join_text(row) for row in render_overview(scene, 120, 40).rows]
    timed, untimed, event = (next(row for row in rows if word in row) for word in ("loads", "no time", "event"))
    assert re.match(r" 01-0\d \d\d:20  spark1 │ loads", timed)
    assert untimed.startswith("              spark1 │ no time")
    assert timed.index("loads") == event.index("up refused")


def test_an_idle_tile_offers_what_starts_now_with_a_known_speed_and_no_dash_where_none_is_known() -> None:
    fit = MemoryFit(node="spark1", profile="x", answer=FitOutcome.AFTER_DROP_CACHES)
    offers = (
        StartOffer(name="measured", fit=fit, rate=12.7, seconds=242.0),
        StartOffer(name="by-source", fit=fit, source_rate=FigureRange(23.3, 23.3)),
        StartOffer(name="unknown", fit=fit),
        StartOffer(name="missing", fit=fit, missing=("image",), rate=1.0),
        StartOffer(name="too-big", fit=replace(fit, answer=FitOutcome.SHORT), missing=("image",)),
    )
    idle = make_tile(offers=offers, start_key="u")
    for columns, lines, expected in (
        (60, 30, "23.3 tok/s"),
        (100, 30, "23.3 tok/s published"),
        (80, 12, "12.7 tok/s"),
    ):
        shown = render_tile(idle, columns, lines)
        assert expected in shown
        assert "— tok/s" not in shown
        assert "— to ready" not in shown
        assert "↓" not in "".join(line for line in shown.splitlines() if "MB/s" not in line), (
            "a start drops the cache itself"
        )
    shown = render_tile(idle, 60, 30)
    signs = [re.search(rf"(\S) {one.name} ", shown.partition("first ")[2]) for one in offers]
    assert [found and found[1] for found in signs] == list("✓✓✓▽✕")


def test_what_stands_beside_a_small_curve_was_read() -> None:
    series = SampleSeries()
    for second in range(30):
        series.add_sample(replace(SAMPLE, uptime=5000.0 + second, sequence=second), NOW - 30 + second)
    (row,) = [line for line in render_tile(make_tile(READY, series=series), 80, 9).splitlines() if "swap" in line]
    used = (MEMORY.total - MEMORY.available) / GIB
    assert f"  {used:.0f} GiB " in row


def test_a_program_that_tells_no_figures_has_no_empty_row_of_them_and_its_image_for_a_name() -> None:
    program = next(name for name in engines.engine_names() if engines.load_engine(name).is_any_program)
    voice = replace(READY, name="voice", engine=program, numbers=None, image="example.org/speech-front:7bd4")
    needed = replace(READY, name="voice-llm", container_id="c2", needed_by=("voice",))
    for columns, lines in ((80, 9), (60, 30)):
        shown = render_tile(make_tile(voice, needed), columns, lines)
        assert "decode  —" not in shown
        assert "speech-front:7bd4" in shown
    shown = render_tile(make_tile(voice, needed), 72, 30)
    assert "SGLang 0.5.12   :8003   for voice ● ready" in re.sub(" {4,}", " ", shown), (
        "since when goes before what it is"
    )


def test_a_tile_without_a_throughput_of_its_own_has_another_curve_in_its_place() -> None:
    series = SampleSeries()
    for second in range(30):
        sample = replace(
            SAMPLE, uptime=5000.0 + second, sequence=second, cpu=Cpu(busy=0.6),
            rdma=(RdmaLane(name="rocep1", receive_rate=8e8, send_rate=9e8),),
        )  # fmt: skip
        series.add_sample(sample, NOW - 30 + second)
    worker = replace(READY, rank="1/2", port=None)
    head = replace(READY, node=NodeName("spark2"), rank="0/2")
    part = make_tile(worker, series=series, heads={worker.name: head})
    loading = make_tile(replace(READY, phase=Phase.LOADING), series=series)
    for tile, title in ((part, "2 GB/s RDMA"), (loading, "100 % CPU")):
        assert title in render_tile(tile, 60, 30)
        assert title not in render_tile(tile, 80, 9)


def list_findings_of(node: str, *severities: Severity) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            kind=FindingKind.DISK, severity=each, node=node, summary=f"only {at} GiB free for /{node}-{'abcdef'[at]}"
        )
        for at, each in enumerate(severities)
    )


def test_where_not_all_findings_fit_the_worst_and_the_selected_one_stay_and_the_rest_is_counted() -> None:
    warnings = list_findings_of("spark1", *[Severity.WARNING] * 5)
    problems = list_findings_of("spark2", Severity.PROBLEM, Severity.PROBLEM)
    tile = make_tile(READY)
    other = replace(tile, view=replace(tile.view, name="spark2", findings=problems))
    scene = OverviewScreenModel(
        glances=(replace(tile, view=replace(tile.view, findings=warnings)), other), findings_key="i"
    )
    for selected in (None, *warnings):
        layout = render_overview(replace(scene, finding=selected), 80, 18)
        shown = [(join_text(layout.rows[y]), found) for y, found in sorted(layout.findings.items())]
        room = len(shown)
        assert 2 < room < 7
        assert [found for _, found in shown[:2]] == list(problems), "the worst of all Sparks first"
        marked = [found for row, found in shown if row.startswith("▸")]
        assert marked == ([] if selected is None else [selected])
        assert shown[-1][0].endswith(f"{7 - room} more: i ")
    moved = replace(warnings[3], summary=warnings[3].summary.replace("3", "2.5"))
    assert find_same(warnings, moved) == warnings[3], "its figures may change, and one of its kind stands before it"


@pytest.mark.parametrize(("columns", "high"), [(80, 22), (120, 38), (200, 48)])
def test_no_notice_and_no_curve_moves_a_tile(columns: int, high: int) -> None:
    flat, steep = SampleSeries(), SampleSeries()
    for second in range(30):
        sample = replace(SAMPLE, uptime=5000.0 + second, sequence=second)
        flat.add_sample(sample, NOW - 30 + second)
        moving = replace(MEMORY, free=(second + 1) * GIB, available=(second + 20) * GIB)
        busy = replace(GPU, busy=second / 30, power=10.0 + 2 * second)
        steep.add_sample(replace(sample, memory=moving, gpus=(busy,)), NOW - 30 + second)
    quiet = OverviewScreenModel(glances=(make_tile(READY, series=flat), make_tile(READY, series=flat)), chosen=0)
    happened = tuple(make_log_entry(f"event {at}") for at in range(6))
    loud = OverviewScreenModel(
        glances=(make_tile(READY, series=steep), make_tile(READY, series=steep)), chosen=0, lines=(RecentLogLine(NODE, "q", "line"),) * 12,
        notices=(("a notice of some length " * 6, TextStyle.ACCENT),) * 2, happened=happened,
    )  # fmt: skip
    calm, busy_one = render_overview(quiet, columns, high), render_overview(loud, columns, high)
    assert calm.boxes == busy_one.boxes
    for name in ("memory", "decode", "accept", "mem BW", "GPU"):
        before, after = (
            [at for at, line in enumerate(map(join_text, made.rows)) if line[2:].startswith(f"{name} ")]
            for made in (calm, busy_one)
        )
        assert before == after, name
        assert before or columns == 80, name


def test_where_there_is_room_more_of_what_happened_is_seen() -> None:
    happened = tuple(make_log_entry(f"event {at:02}") for at in range(20))
    scene = OverviewScreenModel(glances=(make_tile(READY), make_tile(READY)), chosen=0, happened=happened)
    counts = [
        sum("event " in line for line in map(join_text, render_overview(scene, columns, high).rows))
        for columns, high in ((80, 22), (200, 68))
    ]
    assert counts[0] <= 6 < counts[1]
    logs = replace(scene, lines=(RecentLogLine(NODE, "q", "a line of a log"),) * 40)
    lines = [join_text(line) for line in render_overview(logs, 200, 68).rows]
    assert sum("a line of a log" in line for line in lines) >= sum("event " in line for line in lines) > 6


def test_each_spark_has_its_share_of_the_log_and_what_is_wrong_comes_before_it() -> None:
    lines = (
        RecentLogLine(NODE, "q", "rare"),
        *(RecentLogLine(NodeName("loud"), "q", f"often {at}") for at in range(40)),
    )
    scene = OverviewScreenModel(glances=(make_tile(READY), make_tile(READY)), chosen=0, lines=lines)
    told = "\n".join(map(join_text, render_overview(scene, 120, 38).rows))
    assert "│ rare" in told
    assert "│ often 39" in told
    wrong = tuple(replace(one, remedy="mend it") for one in list_findings_of("spark1", *[Severity.WARNING] * 3))
    healthy = make_tile(READY)
    sick = replace(scene, glances=(replace(healthy, view=replace(healthy.view, findings=wrong)), healthy))
    told = "\n".join(map(join_text, render_overview(sick, 200, 58).rows))
    assert told.count("do: mend it") == 3
    assert "│ often 39" in told


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_tiles_stand_beside_each_other_where_there_is_room(count: int) -> None:
    scene = OverviewScreenModel(glances=tuple(make_tile(READY) for _ in range(count)))
    wide, narrow = (render_overview(scene, columns, 60).boxes for columns in (200, 80))
    assert {box.x for box in narrow} == {0}
    assert len({box.y for box in wide}) == (2 if count == 4 else 1)
    assert max(box.x + box.columns for box in wide) == 200


def test_ready_is_told_since_when_only_where_that_was_seen() -> None:
    assert "● ready, up 3 hours" in render_tile(make_tile(READY))
    assert "● ready for 2 min " in render_tile(make_tile(READY, ready={"qwen36": NOW - 150}))
    assert "● ready for 40 s " in render_tile(make_tile(READY, ready={"qwen36": NOW - 47}))
    assert "● ready just now" in render_tile(make_tile(READY, ready={"qwen36": NOW - 2}))


def test_by_what_it_computes_stands_on_its_tile_as_far_as_there_is_room() -> None:
    facts = (
        EngineFact(
            EngineFactName.QUANTIZATION_PATH, "Marlin fallback (FP4 weights, 16-bit arithmetic)", is_fallback=True
        ),
        EngineFact(EngineFactName.ATTENTION_BACKEND, "FLASHINFER"),
        EngineFact(EngineFactName.KV_CACHE_TOKENS, "512,432"),
        EngineFact(EngineFactName.MAX_CONCURRENCY, "7.25"),
    )
    one = InstanceView(
        name="i",
        node=NodeName("n"),
        container="c",
        image="image:1",
        state=ContainerState.RUNNING,
        status="Up",
        ours=True,
        memory=None,
        phase=Phase.READY,
        facts=facts,
    )
    lines = join_text(render_engine_facts(one, DrawArea(90)) or ())
    assert lines == "engine  ▲ Marlin fallback · attention flashinfer · KV 512,432 tokens · 7.2 whole contexts"
    assert (
        join_text(render_engine_facts(one, DrawArea(58)) or ())
        == "engine  ▲ Marlin fallback · flashinfer · KV 512,432 tokens"
    )
    assert join_text(render_engine_facts(one, DrawArea(56)) or ()).startswith("engine  ▲ Marlin fallback")
    assert render_engine_facts(replace(one, facts=()), DrawArea(56)) is None


def test_the_engines_version_is_what_its_log_says_and_a_bare_number_is_none() -> None:
    one = replace(READY, image="own/vllm:1", engine="vllm", facts=())
    assert describe_engine(one) == "vLLM"
    changed = replace(one, facts=(EngineFact(EngineFactName.ENGINE_VERSION, "0.32.0"),))
    assert describe_engine(changed) == "vLLM 0.32.0"
    like = replace(
        one,
        image="lmsys/sglang:v0.5.12",
        engine="sglang",
        facts=(EngineFact(EngineFactName.ENGINE_VERSION, "0.5.12 or like it"),),
    )
    assert describe_engine(like) == "SGLang 0.5.12"


@pytest.mark.parametrize("columns", [46, 60, 80])
@pytest.mark.parametrize("count", [8, 16])
def test_a_sick_spark_does_not_look_healthy(columns: int, count: int) -> None:
    kinds = (
        (FindingKind.SWAP, Severity.WARNING),
        (FindingKind.STUCK_CLOCK, Severity.PROBLEM),
        (FindingKind.MIN_FREE, Severity.NOTE),
    )
    found = tuple(Finding(kind=kind, severity=severity, node=NODE, summary="") for kind, severity in kinds)
    glance = make_tile(READY)
    healthy = NodeTile(glance).render_rows(columns, count)
    rows = NodeTile(replace(glance, view=replace(glance.view, findings=found))).render_rows(columns, count)
    assert "● ready" in join_text(rows[0])
    assert "✕ stuck clock" in join_text(rows[0])
    assert rows[0][0].tone is rows[-1][0].tone is TextStyle.BAD, "the frame has the colour of the worst"
    assert {healthy[0][0].tone, healthy[-1][0].tone} == {TextStyle.FRAME}
    clocks = [span.tone for row in rows for span in row if span.text.strip() == "2411"]
    assert clocks == [TextStyle.BAD], "the sick figure itself has its colour"
    away = replace(glance, connection=AWAY, view=replace(glance.view, findings=found))
    assert "stuck clock" not in join_text(NodeTile(away).render_rows(columns, count)[0]), (
        "what is not known now is not said"
    )


@pytest.mark.parametrize(("since", "minutes"), [(None, 1), (NOW - 30, 1), (NOW - 1000, 17), (NOW - 1e6, 360)])
def test_the_curves_begin_where_they_are_asked_to(since: float | None, minutes: int) -> None:
    assert choose_chart_seconds(make_tile(since=since)) == minutes * 60


def test_the_curves_of_a_fresh_panel_are_mostly_filled_and_say_of_what_time_they_are() -> None:
    for passed, span in ((14, "15 s"), (31, "45 s"), (61, "90 s"), (125, "3 min"), (301, "7 min"), (5000, "15 min")):
        series = SampleSeries()
        for second in range(passed + 1):
            series.add_sample(replace(SAMPLE, uptime=float(second)), NOW - passed + second)
        tile = make_tile(series=series)
        assert format_chart_span(tile) == span
        filled = [value is not None for value in read_series(tile, SeriesName.AVAILABLE, 60)]
        assert sum(filled) >= 38, span


def test_a_curve_of_a_clock_that_runs_fast_has_no_holes_and_a_real_gap_stays_one() -> None:
    fast = [float(at) if at % 8 in (0, 7) and at % 80 != 40 else None for at in range(240)]
    assert None not in fill_series_gaps(fast, 240.0)[:239]
    gap = [1.0 if not 100 < at < 140 else None for at in range(240)]
    assert fill_series_gaps(gap, 240.0)[101:140] == [None] * 39


def test_events_and_log_lines_have_a_time_and_where_needed_its_day() -> None:
    noon = time.mktime((2026, 7, 28, 12, 0, 0, 0, 0, -1))
    today = replace(make_log_entry("today"), when=noon - 3600.0)
    before = OperationRecord(
        id=1, kind=OperationKind.STOP, began=noon - 86400.0, operator="milo", nodes=(NODE,), instance="old"
    )
    said = RecentLogLine(NODE, "q", "said yesterday", datetime.fromtimestamp(noon - 90000.0, UTC).isoformat())
    scene = OverviewScreenModel(glances=(replace(make_tile(READY), now=noon),), happened=(today,))

    def list_beginnings(**more: Any) -> list[str]:
        rows = [join_text(row) for row in render_overview(replace(scene, **more), 120, 40).rows]
        return [row[:20] for row in rows if re.match(r" [\d ]", row) and NODE in row]

    assert list_beginnings() == [" 11:00:00  spark1   "]
    dated = [" 07-27 12:00  spark1 ", " 11:00:00     spark1 ", " 07-27 11:00  spark1 "]
    assert list_beginnings(past=(before,), lines=(said,)) == [one[:20] for one in dated]
    many = tuple(replace(said, when=datetime.fromtimestamp(noon - at, UTC).isoformat()) for at in range(60, 0, -1))
    assert set(list_beginnings(past=(before,), lines=many)) >= {" 11:00:00  spark1   "}, (
        "no row of another day is shown"
    )
    assert list_beginnings(lines=(replace(said, when="9999-12-31T23:59:59+00:00"),)), "a node can send any time"


@pytest.mark.parametrize(
    ("value", "words"), [("147.51", "148 whole contexts"), ("1.53", "1.5 whole contexts"), ("48", "48 at once")]
)
def test_how_many_contexts_fit_is_a_plain_number(value: str, words: str) -> None:
    fact = EngineFact(EngineFactName.MAX_CONCURRENCY, value)
    row = render_engine_facts(replace(READY, facts=(fact,)), DrawArea(90))
    assert join_text(row or ()) == f"engine  {words}"
