"""The instance screen as text: what an owner reads first, at 80 and at 120 columns, and that it fits any room."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkctl.commands.start.launch_plans import ContainerLaunch
from sparkctl.model import events
from sparkctl.model.container import ContainerState
from sparkctl.model.decode_step import DecodeStepSpec
from sparkctl.model.engine_metrics import DraftAcceptance, EngineActivity, EngineMeter, MeterSource, Quantiles
from sparkctl.model.events import CommandEnded, Outcome
from sparkctl.model.instance import InstanceView
from sparkctl.model.launch_plan import LaunchPlan, PhaseTimeouts, ReadinessRule
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase, PhaseDuration, Step
from sparkctl.model.reference import ComparableReference, FigureRange, ReferenceRate
from sparkctl.model.sample import Gpu, GpuProcess, MemoryReading, NodeProcess, Sample
from sparkctl.model.text.units import GIB
from sparkctl.model.verdict import Evidence, FailureCause, FieldChange, Verdict
from sparkctl.monitor.activity import StartDiagnosed
from sparkctl.monitor.store import Store
from sparkctl.profiles.exporters.docker_command import format_docker_run
from sparkctl.views.instance_view import (
    InstanceScreenModel,
    describe_ready_rule,
    find_evidence_line,
    format_verdict_for_copy,
    render_docker_run,
    render_instance,
    render_instance_page,
    render_log_status,
    render_log_tail,
    render_verdict,
    render_verdict_keys,
)
from sparkctl.views.overview.tile_model import build_tile_model
from sparkctl.views.overview.tile_rows import DrawArea
from sparkctl.views.text.styled_text import TextStyle, join_text, measure_row, to_ascii

NODE, ID = NodeName("spark1"), "ab" * 32
READY = InstanceView(
    name="qwen36",
    node=NODE,
    container="vllm-qwen36",
    image="vllm/vllm-openai:v0.19.1",
    state=ContainerState.RUNNING,
    status="Up 3 hours",
    ours=True,
    memory=None,
    phase=Phase.READY,
    engine="vllm",
    container_id=ID,
    port=8000,
    operator="milo@desk",
    expected=96 * GIB,
)
NUMBERS = EngineMeter(
    activity=EngineActivity.DECODING, generation_rate=23.3, running=3.0, waiting=0.0, kv_usage=0.31, prompt_rate=117.0, prefix_hit_rate=0.4,
    acceptance=DraftAcceptance(2.63, 0.543, (0.86, 0.52, 0.25), MeterSource.COUNTERS), ttft=Quantiles(0.31, 1.2, 9),
    inter_token=Quantiles(0.11, 0.2, 99),
)  # fmt: skip
VERDICT = Verdict(
    cause=FailureCause.CUDA_OUT_OF_MEMORY,
    summary="The draft workspace did not fit: NEXTN asked for 0.82 × 112 GiB before the weights were loaded.",
    evidence=(Evidence("torch.OutOfMemoryError: CUDA out of memory.", "log", 412), Evidence("exit code 1", "docker")),
    remedy="Lower args.mem-fraction-static.",
    field="args.mem-fraction-static",
)
END = CommandEnded(
    ts=148.0, outcome=Outcome.FAILED, exit_code=4, seconds=48.0, node=NODE, instance="qwen36", verdict=VERDICT
)
PLAN = LaunchPlan(
    node=NODE,
    instance="qwen36",
    profile="qwen36",
    profile_hash="c6fce1d24079",
    engine="vllm",
    container_name="vllm-qwen36",
    image="vllm/vllm-openai:v0.19.1",
    entrypoint=None,
    command=("serve", "/models/q", "--port", "8000"),
    env=(("HF_TOKEN", "••••••"),),
    mounts=(),
    gpus="all",
    shm_size="16g",
    ipc="host",
    network="host",
    ulimits=(),
    devices=(),
    options=(),
    labels=(),
    port=8000,
    served_model=None,
    api_key=None,
    ready=ReadinessRule(line="startup complete", health="/health"),
    timeouts=PhaseTimeouts(),
    drop_caches=True,
    stop_grace=30.0,
    expected_memory=96 * GIB,
    floor_memory=None,
)


def make_store(*more: events.Event, one: InstanceView = READY) -> Store:
    made = Store([NODE])
    memory = MemoryReading(
        total=122 * GIB, available=30 * GIB, free=9 * GIB, page_cache=20 * GIB, swap_total=0, swap_free=0
    )
    held = (NodeProcess(pid=7, container=ID, resident=2 * GIB, gpu_memory=86 * GIB),)
    on_gpu = (GpuProcess(7, 86 * GIB),)
    gpu = Gpu(
        index=0,
        name="NVIDIA GB10",
        busy=0.96,
        sm_clock=2411,
        sm_clock_max=3003,
        power=61.0,
        celsius=71.0,
        processes=on_gpu,
    )
    sample = Sample(sequence=1, time=100.0, uptime=100.0, memory=memory, processes=held, gpus=(gpu,))
    made.apply_event(events.SampleArrived(100.0, NODE, sample, "boot"))
    made.apply_event(events.ContainersListed(ts=100.0, node=NODE, instances=(one,)))
    for event in more:
        made.apply_event(event)
    return made


def make_scene(
    made: Store, *, now: float = 130.0, end: CommandEnded | None = None, **more: object
) -> InstanceScreenModel:
    if end is not None:
        made.apply_event(StartDiagnosed(now, NODE, end))
    seen = build_tile_model(made, NODE, now, chosen="qwen36", offers=(), start_key=None, recent=(), address=None)
    one = next((each for each in made.get_last_known_view(NODE).instances if each.name == "qwen36"), None)
    return InstanceScreenModel(
        seen=seen, name="qwen36", one=one, timeline=made.get_record(NODE).timelines.get("qwen36"), end=end, **more
    )  # type: ignore[arg-type]


def render_screen(one: InstanceScreenModel, columns: int = 80, lines: int = 22) -> str:
    rows = render_instance(one, columns, lines)
    assert len(rows) == lines
    assert {measure_row(each) for each in rows} == {columns}
    return "\n".join(join_text(each) for each in rows)


AT_WORK = (events.MeterArrived(ts=101.0, node=NODE, container=ID, numbers=NUMBERS),)


@pytest.mark.parametrize(("columns", "lines"), [(80, 40), (120, 38)])
def test_what_no_request_tells_any_more_fades_and_nothing_below_jumps(columns: int, lines: int) -> None:
    quiet = replace(NUMBERS, ttft=None, inter_token=None, prompt_rate=None, prefix_hit_rate=None)
    made = make_store(*AT_WORK)
    at_work = render_screen(make_scene(made), columns, lines).splitlines()
    made.apply_event(events.MeterArrived(ts=103.0, node=NODE, container=ID, numbers=quiet))
    later = render_screen(make_scene(made), columns, lines).splitlines()
    for name in ("TTFT", "between", "prompts", "steps", "GPU", "model"):
        before, after = ([at for at, line in enumerate(each) if f"│ {name} " in line] for each in (at_work, later))
        assert before == after, name
    (row,) = [line for line in later if "TTFT" in line]
    assert "310 ms p50, 1.20 s p95   29 s old" in row
    faded = [
        span for each in render_instance(make_scene(made), columns, lines) for span in each if "29 s old" in span.text
    ]
    assert [span.tone for span in faded] == [TextStyle.STALE] * 3


def test_the_positions_of_drafts_stay_faded_while_an_engine_idles() -> None:
    made = make_store(*AT_WORK)
    fresh = [line for line in render_screen(make_scene(made), 120, 38).splitlines() if "│ draft " in line]
    assert fresh
    made.apply_event(
        events.MeterArrived(
            ts=103.0, node=NODE, container=ID, numbers=replace(NUMBERS, activity=EngineActivity.IDLE, acceptance=None)
        )
    )
    later = [line for line in render_screen(make_scene(made), 120, 38).splitlines() if "│ draft " in line]
    assert [line.split("%")[0] for line in later] == [line.split("%")[0] for line in fresh]
    assert "29 s old" in later[0]
    assert "old" not in fresh[0]


@pytest.mark.parametrize(("columns", "lines"), [(80, 22), (120, 38)])
def test_an_instance_shows_throughput_memory_and_log(columns: int, lines: int) -> None:
    run = ContainerLaunch(PLAN, PLAN.ready)
    seen = render_screen(make_scene(make_store(*AT_WORK), run=run, tail=("INFO: one", "[W] two")), columns, lines)
    assert "spark1 ─ ● ready, up 3 hours ─ qwen36" in seen
    assert "23.3 tok/s" in seen
    assert "3 running" in seen
    assert "KV  31 %" in seen
    assert "2.63 per step" in seen
    assert "310 ms p50, 1.20 s p95" in seen
    assert " 88.0 of ≈96.0 GiB" in seen
    assert "than expected" not in seen, "what is nearer than a tenth is as expected"
    assert "two" in seen
    bars = [line for line in seen.splitlines() if "draft " in line]
    assert ["86 %" in bars[0], "52 %" in bars[1], "25 %" in bars[2]] == [True] * 3
    assert bars[0].count("━") > bars[1].count("━") > bars[2].count("━") > 0
    holds, memory = (next(line for line in seen.splitlines() if f"│ {name} " in line) for name in ("model", "Spark"))
    assert holds.index("█") == memory.index("█") == bars[0].index("━"), "all bars begin alike"
    assert holds.index(" 88.0") == memory.index(" 92.0"), "and end alike: they have one scale"


def test_the_plan_stands_beside_where_there_is_room_and_is_a_key_away_where_not() -> None:
    run = ContainerLaunch(PLAN, PLAN.ready)
    ready = render_screen(make_scene(make_store(*AT_WORK), run=run), 120, 38)
    assert "d docker run line" in ready
    assert "docker run -d" not in ready, "its curves have the room"
    wide = render_screen(make_scene(make_store(), run=run), 120, 38)
    assert "docker run -d" in wide
    assert "-e HF_TOKEN" in wide
    assert "the line /startup complete/, then /health" in wide
    assert "docker run -d" not in render_screen(make_scene(make_store(*AT_WORK), run=run))


def test_a_start_has_its_phases_with_their_time_against_what_is_expected() -> None:
    coming = replace(READY, phase=Phase.LOADING, status="Up 1 minute")
    phases = (
        (100.0, Phase.DROPPING_CACHES, None), (103.0, Phase.CREATING, None), (105.0, Phase.STARTING, None),
        (126.0, Phase.LOADING, Step("weights", 12, 18)),
    )  # fmt: skip
    result = [
        events.PhaseChanged(
            ts=ts, node=NODE, instance="qwen36", phase=phase, step=step, elapsed=ts - 100, expected=415.0
        )
        for ts, phase, step in phases
    ]
    seen = render_screen(make_scene(make_store(*result, one=coming), now=350.0))
    assert "4:10 of about 6:55" in seen
    rows = {name: line for line in seen.splitlines() for name in ("starting", "weights", "warming up") if name in line}
    assert "✓  0:21 " in rows["starting"]
    assert "◐  3:44 " in rows["weights"]
    assert "12/18 weights" in rows["weights"]
    assert "○" in rows["warming up"]
    assert rows["starting"].index("━") < rows["weights"].index("━"), "each where it lies in the whole"


def test_each_part_stands_beside_what_it_usually_takes() -> None:
    coming = replace(READY, phase=Phase.LOADING, status="Up 1 minute", step=Step("compile"))
    usual = (
        PhaseDuration(Phase.STARTING, None, 21.0), PhaseDuration(Phase.LOADING, "weights", 130.0),
        PhaseDuration(Phase.LOADING, "compile", 40.0), PhaseDuration(Phase.LOADING, "graphs", 11.0),
        PhaseDuration(Phase.WARMING, "http", 0.4),
    )  # fmt: skip
    phases = (
        (105.0, Phase.STARTING, None), (126.0, Phase.LOADING, Step("weights", 12, 18)), (244.0, Phase.LOADING, Step("compile"))
    )  # fmt: skip
    result = [
        events.PhaseChanged(
            ts=ts,
            node=NODE,
            instance="qwen36",
            phase=phase,
            step=step,
            elapsed=ts - 100,
            expected=415.0,
            detail=None,
            expected_parts=usual,
        )
        for ts, phase, step in phases
    ]
    seen = render_screen(make_scene(make_store(*result, one=coming), now=264.0)).splitlines()
    rows = {name: next(line for line in seen if f" {name} " in line) for name in ("weights", "compile", "CUDA graphs")}
    assert "✓  1:58 " in rows["weights"]
    assert "of about  2:10" in rows["weights"]
    assert "◐  0:20 " in rows["compile"]
    assert "of about  0:40" in rows["compile"]
    assert "about  0:11" in rows["CUDA graphs"]
    assert "of about" not in rows["CUDA graphs"]
    assert len({line.index("about") for line in rows.values()}) == 1, "all in one column"
    assert not any("HTTP server" in line for line in seen), "what is over at once is not announced"


def test_a_failure_says_why_first_and_where_the_proof_is() -> None:
    made = make_store(one=replace(READY, phase=Phase.FAILED, status="Exited (1)"))
    seen = render_screen(make_scene(made, end=END))
    lines = seen.splitlines()
    assert "✕ failed after 48 s" in lines[0]
    assert "The draft workspace did not fit" in lines[1]
    assert "line 412" in seen
    assert "enter log at line 412" in seen
    assert "Lower args.mem-fraction-static." in seen
    assert find_evidence_line(VERDICT) == 412
    assert format_verdict_for_copy(END).splitlines()[1] == "  log line 412: torch.OutOfMemoryError: CUDA out of memory."


def test_a_failure_that_nobody_watched_says_that() -> None:
    made = make_store(one=replace(READY, phase=Phase.FAILED, status="Exited (1)", detail="exit code 1"))
    assert "this start was not watched from here" in render_screen(make_scene(made))


def test_a_removed_instance_keeps_its_verdict() -> None:
    made = make_store(events.ContainersListed(ts=120.0, node=NODE, instances=()))
    assert "It is not on this Spark now." in render_screen(make_scene(made))
    assert "The draft workspace did not fit" in render_screen(make_scene(made, end=END))


def test_a_silent_node_fades_and_tells_no_figures() -> None:
    lost = events.NodeStateChanged(
        ts=110.0, node=NODE, state=NodeState.UNREACHABLE, detail="no answer within 10 s", attempt=3, next_try=8.0
    )
    seen = render_screen(make_scene(make_store(*AT_WORK, lost)))
    assert "tok/s" not in seen
    assert "no answer within 10 s" in seen


def test_more_than_it_claims_is_said_in_words() -> None:
    assert "28.0 GiB more than expected" in render_screen(make_scene(make_store(one=replace(READY, expected=60 * GIB))))
    unknown = render_screen(make_scene(make_store(one=replace(READY, expected=None))))
    assert "no claim is known" in unknown


def test_our_own_questions_are_not_what_the_engine_said() -> None:
    seen = render_screen(
        make_scene(make_store(), tail=("weights read", '127.0.0.1:4 - "GET /metrics HTTP/1.1" 200 OK'))
    )
    assert "weights read" in seen
    assert "GET /metrics" not in seen


@settings(max_examples=80, deadline=None)
@given(
    st.integers(10, 200),
    st.integers(1, 60),
    st.sampled_from((None, END)),
    st.lists(st.text(max_size=80), max_size=9),
)
def test_any_room_is_filled_exactly_and_nothing_controls_the_terminal(
    columns: int, lines: int, end: CommandEnded | None, tail: list[str]
) -> None:
    run = ContainerLaunch(PLAN, None)
    made = make_scene(make_store(*AT_WORK), end=end, run=run, tail=tuple(tail), tail_trouble="\x1b[2J")
    rows = render_instance(made, columns, lines)
    assert len(rows) == lines
    said = [join_text(each) for each in rows]
    assert all(line.isprintable() for line in said)
    assert {measure_row(each) for each in rows} == {columns}
    assert all(to_ascii(line).isascii() for line in said)


def test_a_few_per_cent_more_than_it_claims_is_no_line_and_the_bar_has_a_mark_there() -> None:
    def tones(expected: int) -> set[TextStyle]:
        rows = render_instance(make_scene(make_store(one=replace(READY, expected=expected * GIB))), 80, 40)
        return {span.tone for row in rows for span in row if "more than expected" in span.text}

    assert tones(84) == set()
    assert tones(70) == {TextStyle.ATTENTION}
    for expected in (70, 84, 96):
        words = render_screen(make_scene(make_store(one=replace(READY, expected=expected * GIB))), 80, 40)
        holds, memory = (
            next(line for line in words.splitlines() if f"│ {name} " in line) for name in ("model", "Spark")
        )
        begin, wide = memory.index("█"), DrawArea(76).bar_columns
        assert holds.index("▐") == begin + round(expected * wide / 122) - 1, "on the scale of the memory bar"


@pytest.mark.parametrize("columns", [40, 56, 76])
def test_what_is_to_be_changed_is_whole_and_its_keys_stand_in_a_column(columns: int) -> None:
    edit = FieldChange("args.mem-fraction-static", "0.85", "0.95")
    verdict = replace(VERDICT, edit=edit)
    said = [join_text(each) for part in render_verdict(verdict, DrawArea(columns)) for each in part.rows]
    words = " ".join(" ".join(said).split())
    assert "change args.mem-fraction-static 0.95 → 0.85" in words
    keys = [
        join_text(each)
        for each in render_verdict_keys(verdict, DrawArea(columns), [("e", "edits the profile")], "a", roomy=True)
    ]
    assert [line.split()[0] for line in keys] == ["a", "enter", "e", "y"]
    assert len({line.index(does) for line, does in zip(keys, ("tries", "log", "edits", "copy"), strict=True)}) == 1
    several = render_verdict_keys(verdict, DrawArea(columns), [("e", "edits the profile")], "a", roomy=False)
    assert max(map(measure_row, several)) <= columns


def test_what_sparkctl_says_of_a_log_has_another_tone_than_an_engines_warning() -> None:
    (engine, ours) = render_log_tail(["[W] two"], "qwen36 has ended on spark2 with exit code 1", 8, columns=80)
    assert {span.tone for span in engine}.isdisjoint({span.tone for span in ours})


def test_a_log_of_which_nothing_was_read_yet_is_being_read() -> None:
    assert "reading ..." in render_screen(make_scene(make_store()), 80, 40)
    assert "no line yet" not in render_screen(make_scene(make_store()), 80, 40)


def test_a_saved_logs_path_is_whole() -> None:
    path = "/home/milo/.local/state/sparkctl/logs/" + "qwen36" * 3 + ".log"
    words = f"qwen36 has ended on spark1 with exit code 1; its saved log: {path}"
    assert path in render_screen(make_scene(make_store(), tail_trouble=words), 80, 40)
    assert join_text(render_log_status(words, 76)[-1]) == path
    assert [join_text(row) for row in render_log_status("no answer: /v1 is closed", 76)] == ["no answer: /v1 is closed"]


def test_a_ready_rule_reads_as_it_was_meant_and_to_its_end() -> None:
    rule = ReadinessRule(line=r"^The\ server\ is\ fired\ up\ and\ ready\ to\ roll!", health="/health")
    plan = replace(PLAN, ready=rule)
    seen = " ".join(render_screen(make_scene(make_store(), run=ContainerLaunch(plan, rule)), 120, 44).split())
    words = describe_ready_rule(rule)
    assert words.startswith("the line /^The server is fired up and ready to roll!/, then /health")
    assert "\\" not in words
    assert words.split()[-1] in seen


def test_a_failure_says_one_time_and_that_the_memory_is_that_of_now() -> None:
    weights, graphs = Step("weights"), Step("graphs")
    result = [
        events.PhaseChanged(ts=100.0 + at, node=NODE, instance="qwen36", phase=phase, step=step, elapsed=at)
        for at, phase, step in (
            (0.0, Phase.STARTING, None), (10.0, Phase.LOADING, weights), (90.0, Phase.LOADING, graphs),
            (100.0, Phase.LOADING, replace(weights)), (120.0, Phase.FAILED, None),
        )
    ]  # fmt: skip
    made = make_store(*result, one=replace(READY, phase=Phase.FAILED, status="Exited (1)"))
    seen = render_screen(make_scene(made, end=replace(END, seconds=123.0)), 120, 50)
    assert "failed after 2 min ─" in seen
    assert re.search(r"start +2:00", seen)
    assert "weights, again" in seen
    assert "memory of spark1 now, not at the failure" in seen


def test_a_part_that_answers_nobody_says_whose_it_is_and_has_the_figures_of_the_head() -> None:
    worker = replace(READY, node=NODE, port=None, per_step=DecodeStepSpec(weights=146 * 10**9, ranks=2))
    made = Store([NODE, NodeName("spark2")])
    head = replace(READY, node=NodeName("spark2"), per_step=worker.per_step)
    for node, one in ((NODE, worker), (NodeName("spark2"), head)):
        made.apply_event(events.NodeStateChanged(ts=99.0, node=node, state=NodeState.OK))
        made.apply_event(
            events.ContainersListed(ts=100.0, node=node, instances=(replace(one, container_id=f"c-{node}"),))
        )
    made.apply_event(events.MeterArrived(ts=101.0, node=NodeName("spark2"), container="c-spark2", numbers=NUMBERS))
    shown = " ".join("\n".join(join_text(each) for each in render_instance(make_scene(made), 100, 40)).split())
    assert "rank 1 of the engine on spark2" in shown
    assert "decode 23.3 tok/s" in shown


def test_a_part_of_a_model_says_which_it_is_and_where_the_other_is() -> None:
    for phase in (Phase.READY, Phase.LOADING, Phase.FAILED):
        head = replace(READY, phase=phase, rank="0/2", run="a1", nodes=("spark1", "spark2"))
        assert "part rank 0 of 2 · head, with spark2" in " ".join(
            render_screen(make_scene(make_store(one=head))).split()
        )
    worker = replace(READY, phase=Phase.LOADING, port=None, rank="1/2", run="a1", nodes=("spark2", "spark1"))
    assert "part rank 1 of 2, with spark2" in " ".join(render_screen(make_scene(make_store(one=worker))).split())
    assert "part " not in render_screen(make_scene(make_store()))


@pytest.mark.parametrize("columns", [90, 108])
def test_what_the_source_measured_stands_with_its_name(columns: int) -> None:
    rates = (ReferenceRate(1, FigureRange(12.7, 12.7)), ReferenceRate(8, FigureRange(43.1, 43.1)))
    post = ComparableReference("https://www.example.org/a-page.html", rates, FigureRange(1.65, 1.85))
    one = make_store(*AT_WORK, one=replace(READY, reference=post))
    shown = " ".join(render_screen(make_scene(one), columns, 40).split())
    assert "published 12.7 tok/s for 1, 43.1 for 8, 1.65–1.85 per step · example.org" in shown
    assert "source" not in render_screen(make_scene(make_store(*AT_WORK)), columns, 40)


def test_two_columns_stay_two_where_one_reads_on_and_stand_still_where_all_is_seen() -> None:
    plan = replace(PLAN, command=tuple(f"--flag-{number}" for number in range(60)))
    whole, tall = (make_scene(make_store(), run=ContainerLaunch(one, None)) for one in (PLAN, plan))
    still = render_instance_page(whole, 120, 40, 1)
    assert (still.rows, still.further) == (render_instance(whole, 120, 40), 0)
    page = render_instance_page(tall, 120, 40, 9999)
    assert page.further > 0
    shown = [join_text(row) for row in page.rows]
    assert len(shown) == 40
    assert any("--flag-59" in line and line.count("│") == 4 for line in shown), "beside the state, as at the beginning"
    assert "d shows" in render_screen(tall, 120, 40), "what is cut at the beginning"


def test_a_verdict_that_nearly_fills_the_page_has_the_end_of_the_log_below_it() -> None:
    made = make_scene(
        make_store(one=replace(READY, phase=Phase.FAILED, status="Exited (1)")), end=END,
        tail=tuple(f"line {number}" for number in range(30)),
    )  # fmt: skip
    for lines in range(8, 40):
        shown = render_screen(made, 80, lines).splitlines()
        at = next((at for at, line in enumerate(shown) if line.startswith("╰")), lines)
        blank = [line for line in shown[:at] if not line.strip("│ ")]
        assert len(blank) <= 1 or "line 29" in "\n".join(shown), (lines, "\n".join(shown))


@pytest.mark.parametrize("columns", range(40, 70))
def test_a_docker_line_is_one_command_in_any_width(columns: int) -> None:
    address = "-e URL=http://127.0.0.1:5006/v1"
    plan = replace(PLAN, env=(("URL", address.removeprefix("-e URL=")),))
    rows = [join_text(row) for row in render_docker_run(plan, columns)]
    assert all(len(row) <= columns for row in rows)
    assert all(row.endswith(" \\") and row.strip() != "\\" for row in rows[:-1]), rows
    whole = shlex.split(" ".join(row.removesuffix("\\") for row in rows))
    assert whole == shlex.split(format_docker_run(plan, with_labels=False).replace("\\\n", " "))
