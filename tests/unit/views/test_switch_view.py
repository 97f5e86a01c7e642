"""A switch as a picture: nothing is lost where it is narrow, and what is an estimate says so."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from sparkctl.model.container import ContainerState
from sparkctl.model.events import CommandEnded, NodeStateChanged, Outcome, SwitchPlanned, SwitchStepReported
from sparkctl.model.instance import InstanceView
from sparkctl.model.memory_fit import EstimatePart, EstimateSource, FitOutcome, MemoryFit
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase, Step
from sparkctl.model.sample import MemoryBar, MemoryReading
from sparkctl.model.switch_plan import JournalPresence as JournalFound
from sparkctl.model.switch_plan import (
    NodeSwitchPlan,
    SwitchConflict,
    SwitchContainer,
    SwitchJournal,
    SwitchJournalStatus,
    SwitchPlan,
    SwitchStep,
)
from sparkctl.model.verdict import Evidence, FailureCause, Verdict
from sparkctl.monitor.event_log import RecentLogLine
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.monitor.switch_progress import SwitchProgress, advance_switch
from sparkctl.views.instance_view import render_log_status
from sparkctl.views.overview.overview_view import _wrap_notice
from sparkctl.views.overview.tile_model import NodeTileModel
from sparkctl.views.switch_plan_view import (
    describe_rollback_window,
    describe_switch_step,
    format_switch_plan,
    summarize_switch_plan,
)
from sparkctl.views.switch_plan_view import get_memory_before_switch as memory_before
from sparkctl.views.switch_plan_view import predict_memory_after_switch as memory_after
from sparkctl.views.switch_view import (
    SwitchScreenModel,
    describe_switch_journal,
    find_offered_command,
    render_switch,
    render_switch_progress_line,
    render_unfinished_switch,
)
from sparkctl.views.text.styled_text import TextStyle, join_text, measure_row, to_ascii

GIB = 1 << 30
ONE, OTHER = NodeName("spark1"), NodeName("spark2")
TOTAL = 121 * GIB
FIT = MemoryFit(
    node=ONE,
    profile="qwen36",
    answer=FitOutcome.IF_STOPPED,
    parts=(EstimatePart(name="weights", size=35 * GIB, obtained=EstimateSource.MEASURED),),
)
CHANGES = (
    NodeSwitchPlan(
        node=ONE,
        total=TOTAL,
        available=14 * GIB,
        tenants=(
            SwitchContainer(
                instance="minimax-m27",
                container="c",
                container_id="a",
                ours=True,
                held=98 * GIB,
                conflicts=(SwitchConflict.MEMORY,),
                rank="0/2",
                port=8000,
            ),
            SwitchContainer(
                instance="orpheus-tts", container="o", container_id="b", ours=True, held=6 * GIB, port=5005
            ),
        ),
        starts="qwen36",
        fit=FIT,
        available_after=72 * GIB,
    ),
    NodeSwitchPlan(
        node=OTHER,
        total=TOTAL,
        available=18 * GIB,
        tenants=(
            SwitchContainer(
                instance="minimax-m27",
                container="c2",
                container_id="d",
                ours=True,
                held=97 * GIB,
                conflicts=(SwitchConflict.NODES,),
                rank="1/2",
            ),
        ),
        starts=None,
        fit=None,
        available_after=113 * GIB,
    ),
)
PLAN = SwitchPlan(
    profile="qwen36",
    instance="qwen36",
    nodes=(ONE,),
    changes=CHANGES,
    stops=("minimax-m27",),
    obstacles=(),
    cautions=("the image is old",),
    seconds=198.0,
)
SCENE = SwitchScreenModel(profile="qwen36", nodes=(ONE,), plan=PLAN)


def render_screen(scene: SwitchScreenModel, columns: int, lines: int) -> str:
    rows = render_switch(scene, columns, lines).rows
    assert len(rows) == lines
    assert all(measure_row(row) == columns for row in rows)
    return "\n".join(join_text(row) for row in rows)


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_who_stops_who_stays_and_who_comes_is_there_in_any_width(columns: int) -> None:
    seen = render_screen(SCENE, columns, 60)
    assert "- minimax-m27  rank 0 of 2" in seen
    assert "no room for both" in seen
    assert "= orpheus-tts" in seen
    assert "+ qwen36" in seen
    assert "35.0 GiB est.  starts" in seen
    assert "nothing: it is free" in seen
    assert "the image is old" in seen
    assert to_ascii(seen).isascii()


def test_before_and_after_stand_beside_each_other_where_there_is_room_and_are_read_on_to_where_there_is_not() -> None:
    (line,) = [line for line in render_screen(SCENE, 120, 40).splitlines() if "spark1 now" in line]
    assert "spark1 afterwards" in line
    page = render_switch(replace(SCENE, further=99), 60, 13)
    assert page.further > 0
    assert "the end" in join_text(page.rows[-1])


def test_what_is_left_afterwards_is_the_plans_figure_in_four_parts() -> None:
    now = MemoryBar(
        total=TOTAL,
        available=14 * GIB,
        gpu_processes=104 * GIB,
        other_used=3 * GIB,
        page_cache=5 * GIB,
        free=9 * GIB,
        swap_used=0,
    )
    bar = memory_after(CHANGES[0], {ONE: now})
    assert bar is not None
    assert bar.available == 72 * GIB
    assert bar.page_cache == 0, "a start drops it"
    assert bar.gpu_processes == (104 - 98 + 35) * GIB
    assert sum((bar.gpu_processes, bar.other_used, bar.page_cache, bar.free)) == TOTAL
    free = memory_after(CHANGES[1], {OTHER: now})
    assert free is not None
    assert free.page_cache == 5 * GIB, "where nothing starts nothing is dropped"
    assert memory_after(replace(CHANGES[0], available_after=None), {}) is None


def test_the_command_line_and_the_panel_draw_the_same_memory_and_say_the_same_of_it() -> None:
    lines = [join_text(one) for one in format_switch_plan(PLAN, columns=None)]
    panel = render_screen(SCENE, 80, 60)
    for change in CHANGES:
        for bar in (memory_before(change, {}), memory_after(change, {})):
            assert bar is not None
            figure = f"{(bar.total - bar.free) / GIB:.1f} of 121.0 GiB"
            assert any(figure in line for line in lines), (figure, lines)
            assert figure in panel
    assert summarize_switch_plan(PLAN) == "minimax-m27 stops, qwen36 starts on spark1, and spark2 is free"
    assert f"{summarize_switch_plan(PLAN)} (usually ready after 3 min 18 s)" in lines
    assert describe_rollback_window(PLAN) in lines
    assert summarize_switch_plan(PLAN) in panel
    for line in (
        "- minimax-m27  rank 0 of 2",
        "no room for both",
        "+ qwen36",
        "○ nothing: it is free",
        "▲ the image is old",
    ):
        assert any(line in one for one in lines)
        assert line in panel
    assert "the containers of minimax-m27 are kept until qwen36 is ready" in panel
    for other in (replace(PLAN, rolls_back=False), replace(PLAN, halves=("minimax-m27",), rolls_back=False)):
        way_back = describe_rollback_window(other)
        assert way_back is not None
        assert "started again if" not in way_back, "it is not"
        assert ("sparkctl abort (--no-rollback)" in way_back) == (not other.halves)
        assert ("there is no rollback" in way_back) == bool(other.halves)
    refused = replace(PLAN, obstacles=("port 8003 is taken by postgres",))
    assert describe_rollback_window(refused) is None
    assert summarize_switch_plan(refused) in [join_text(one) for one in format_switch_plan(refused, columns=None)]


def test_a_step_names_what_it_is_about_and_where_that_was_not_told_says_what_was_there() -> None:
    for each in SwitchStep:
        for is_done in (False, True):
            assert describe_switch_step(each, "qwen36", ("minimax-m27",), is_done=is_done)
            assert "old one" not in describe_switch_step(each, "qwen36", is_done=is_done, stops=())
    assert describe_switch_step(SwitchStep.RESTORING, "qwen36", ("a", "b")) == "starting a and b again"
    assert describe_switch_step(SwitchStep.RESTORING, "qwen36", stops=()) == "starting what was there again"


def test_a_switch_to_the_same_profile_changed_tells_the_two_apart() -> None:
    same = replace(PLAN, instance="minimax-m27")
    assert summarize_switch_plan(same).startswith(
        "minimax-m27 as it ran stops, minimax-m27 as asked for starts on spark1"
    )
    result = describe_rollback_window(same) or ""
    assert (
        "the containers of minimax-m27 as it ran are kept until minimax-m27 as asked for is ready, and started again"
        in result
    )
    said = [describe_switch_step(each, "minimax-m27", ("minimax-m27",)) for each in SwitchStep]
    assert "starting minimax-m27 as asked for" in said
    assert "starting minimax-m27 as it ran again" in said
    assert any(one.startswith("removing minimax-m27 as asked for") for one in said)


def test_what_stands_against_it_is_said_and_no_key_is_offered() -> None:
    seen = render_screen(replace(SCENE, plan=replace(PLAN, obstacles=("port 8003 is taken by postgres",))), 80, 24)
    assert "✕ port 8003 is taken by postgres" in seen
    assert "enter does it" not in seen
    assert "it is not possible to switch to" in seen


def test_what_was_said_while_it_was_planned_stands_there_once_with_what_can_be_done() -> None:
    said = (
        ("the image is old", None),
        ("--nextn dies of that", "sparkctl switch qwen36 --set a=1\nstart qwen36-ngram"),
    )
    seen = render_screen(replace(SCENE, cautions=said), 80, 30)
    assert seen.count("the image is old") == 1
    assert "▲ --nextn dies of that" in seen
    assert "try: sparkctl switch qwen36 --set a=1" in seen
    assert "try: start qwen36-ngram" in seen
    refused = render_screen(
        SwitchScreenModel(profile="qwen36", trouble="it is for 2 Sparks", hint="sparkctl init"), 80, 24
    )
    assert "try: sparkctl init" in refused


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_way_out_is_there_whole_in_any_width_and_is_what_can_be_copied(columns: int) -> None:
    command = "sparkctl switch qwen36 --node spark1 --set args.speculative-num-draft-tokens=20"
    scene = replace(SCENE, cautions=(("SGLang dies of that", f"{command}, or start qwen36 in its place"),))
    lines = render_screen(scene, columns, 40).splitlines()
    at = next(at for at, line in enumerate(lines) if "try: " in line)
    below = next(at for at, line in enumerate(lines) if "or: start qwen36 in its place" in line)
    typed = "\n".join(line.replace("try: ", "").strip() for line in lines[at:below])
    assert shlex.split(typed.replace(" \\\n", " ")) == shlex.split(command)
    assert find_offered_command(scene) == command
    assert find_offered_command(SCENE) is None


def test_what_stands_there_already_is_said_and_no_key_is_offered() -> None:
    seen = render_screen(
        SwitchScreenModel(
            profile="qwen36",
            nodes=(ONE,),
            plan=SwitchPlan(profile="qwen36", instance="qwen36", nodes=(ONE,), changes=(), is_there=True),
        ),
        80,
        24,
    )
    assert "qwen36 already runs on spark1: there is nothing to switch" in seen
    assert "enter does it" not in seen


def make_progress(*more: SwitchStepReported | CommandEnded) -> SwitchProgress:
    made: SwitchProgress | None = None
    for event in (SwitchPlanned(100.0, ONE, PLAN), *more):
        made = advance_switch(made, event)
    assert made is not None
    return made


def make_step_event(ts: float, which: SwitchStep, proof: str | None = None) -> SwitchStepReported:
    return SwitchStepReported(ts=ts, node=ONE, step=which, instance="qwen36", proof=proof, elapsed=ts - 100.0)


def test_a_rollback_tells_both_stories() -> None:
    verdict = Verdict(
        cause=FailureCause.CUDA_OUT_OF_MEMORY,
        summary="The workspace did not fit",
        evidence=(Evidence("CUDA out of memory", "log", 412),),
        remedy="less",
    )
    made = make_progress(
        make_step_event(101, SwitchStep.CHECKING),
        make_step_event(104, SwitchStep.CHECKING, "all is there"),
        make_step_event(104, SwitchStep.STARTING),
        make_step_event(160, SwitchStep.UNDOING),
        make_step_event(165, SwitchStep.RESTORING),
        make_step_event(400, SwitchStep.RESTORED, "nothing of the switch is left"),
        CommandEnded(
            ts=401.0,
            outcome=Outcome.FAILED,
            exit_code=1,
            seconds=301.0,
            node=ONE,
            instance="qwen36",
            verdict=verdict,
            message="qwen36 did not start; minimax-m27 serves again after 235 s",
        ),
    )
    seen = render_screen(replace(SCENE, progress=made, now=500.0), 80, 40)
    assert "✕ qwen36 failed: The workspace did not fit" in seen
    assert "line 412: CUDA out of memory" in seen
    assert "● minimax-m27 runs again: nothing of the switch is left" in seen
    assert seen.count("s again") == 1, "once is enough"
    assert "✓  0:03  checked   all is there" in seen
    assert "✕        starting qwen36" in seen
    assert seen.index("minimax-m27 runs again") < seen.index("qwen36 failed"), "what serves now comes first"
    assert "spark1 before" not in seen, "the plan is no picture of these Sparks any more"


def test_after_a_rollback_it_is_said_twice_at_most_that_the_old_one_serves() -> None:
    again = "minimax-m27 serves again after 7 min"
    verdict = Verdict(
        cause=FailureCause.CUDA_OUT_OF_MEMORY,
        summary="no room",
        evidence=(Evidence("out of memory " * 60, "log", 412),),
        remedy="less",
    )
    made = make_progress(
        make_step_event(104, SwitchStep.STARTING),
        make_step_event(160, SwitchStep.UNDOING),
        make_step_event(165, SwitchStep.RESTORING),
        make_step_event(400, SwitchStep.RESTORING, again),
        make_step_event(400, SwitchStep.RESTORED, again),
        CommandEnded(
            ts=401.0,
            outcome=Outcome.FAILED,
            exit_code=1,
            seconds=301.0,
            node=ONE,
            instance="qwen36",
            verdict=verdict,
            message=f"qwen36 did not start; {again}",
        ),
    )
    for columns in (60, 80, 120):
        seen = render_screen(replace(SCENE, progress=made, now=500.0), columns, 40)
        assert " ".join(seen.split()).count("serves again") == 2
        assert seen.count("out of memory") < 30, "three lines of it, all of it is in the log"
        assert "…" in seen


def test_a_path_that_is_longer_than_a_line_is_there_whole() -> None:
    path = "/tmp/" + "/".join(f"folder{at}" for at in range(12)) + "/20261122.log"
    seen = render_screen(
        replace(
            SCENE, progress=make_progress(make_step_event(101, SwitchStep.UNDOING, f"nothing is left; log: {path}"))
        ),
        80,
        40,
    )
    assert path in "".join(seen.split())


def test_what_was_before_is_shown_as_it_was_sampled_when_it_began() -> None:
    bar = MemoryBar(
        total=TOTAL,
        available=14 * GIB,
        gpu_processes=93 * GIB,
        other_used=12 * GIB,
        page_cache=2 * GIB,
        free=14 * GIB,
        swap_used=0,
    )
    made = make_progress(make_step_event(101, SwitchStep.CHECKING))
    seen = render_screen(replace(SCENE, progress=made, bars={ONE: bar}), 80, 40)
    assert "GPU 93 " in seen
    assert "other 12 " in seen


def test_the_last_step_is_said_once_by_what_proves_it() -> None:
    made = make_progress(make_step_event(101, SwitchStep.DONE, "qwen36 serves on spark1"))
    seen = render_screen(replace(SCENE, progress=made, now=500.0), 80, 40)
    assert "✓        qwen36 serves on spark1" in seen
    assert " done" not in seen


def make_tile(name: NodeName) -> NodeTileModel:
    reading = MemoryReading(
        total=TOTAL, available=80 * GIB, free=70 * GIB, page_cache=10 * GIB, swap_total=0, swap_free=0
    )
    view = NodeTelemetryView(name=name, state=NodeState.OK, when=10.0, reading=reading)
    return NodeTileModel(view=view, connection=NodeStateChanged(ts=10.0, node=name, state=NodeState.OK), now=10.0)


def test_a_running_switch_on_a_small_screen_shows_the_memory_and_the_log() -> None:
    progress = make_progress(make_step_event(101, SwitchStep.STARTING))
    scene = replace(SCENE, progress=progress, glances={ONE: make_tile(ONE)}, now=142.0)
    seen = render_screen(scene, 80, 22)
    assert "41.0 of 121.0 GiB" in seen
    assert "log of qwen36" in seen
    assert "afterwards" not in seen
    assert "afterwards" in render_screen(replace(scene, glances={}), 80, 40)


def test_a_model_on_two_sparks_on_a_small_screen_shows_both_memories_the_log_and_each_done_step_in_a_line() -> None:
    proof = "the image is there, the same on each; 29 files of weights are complete (107.1 GiB); mounts are in order"
    tiles = {name: make_tile(name) for name in (ONE, OTHER)}
    for name, tile in tiles.items():
        one = InstanceView(
            name="qwen36",
            node=name,
            container="c",
            image="i",
            state=ContainerState.RUNNING,
            status="up",
            ours=True,
            memory=None,
            phase=Phase.LOADING,
            step=Step("weights", done=27, total=36),
        )
        tiles[name] = replace(tile, view=replace(tile.view, instances=(one,)))
    progress = make_progress(
        make_step_event(101, SwitchStep.CHECKING, proof),
        make_step_event(102, SwitchStep.STOPPING, "minimax-m27 stopped; 2 containers are kept"),
        make_step_event(103, SwitchStep.STARTING),
    )
    both = replace(progress, plan=replace(PLAN, nodes=(ONE, OTHER)))
    log = tuple(RecentLogLine(ONE, "qwen36", f"line {at}") for at in range(9))
    scene = replace(SCENE, progress=both, glances=tiles, now=142.0, log=log)
    lines = render_screen(scene, 80, 22).splitlines()
    assert sum("41.0 of 121.0 GiB" in line for line in lines) == 2
    assert sum("27/36" in line for line in lines) == 2
    assert any("spark2" in line and "qwen36" in line for line in lines)
    assert [line.strip()[-1] for line in lines if "checked" in line] == ["…"]
    assert sum("line " in line for line in lines) >= 4, "the log"
    said = (("▲ spark1: guard: it dropped the page cache", TextStyle.ATTENTION),)
    lines = render_screen(replace(scene, notices=said), 80, 22).splitlines()
    assert "it dropped the page cache" in lines[-1], "below everything, not over it"
    assert sum("41.0 of 121.0 GiB" in line for line in lines) == 2


def test_of_two_models_that_stop_the_sentences_are_in_the_plural() -> None:
    told = [
        describe_switch_step(each, "minimax-m27", ("qwen36", "orpheus-tts"), is_done=is_done)
        for each in SwitchStep
        for is_done in (False, True)
    ]
    assert "checking what can fail, while qwen36 and orpheus-tts serve" in told
    assert "stopping qwen36 and orpheus-tts; their containers are kept" in told
    assert "waiting for their memory to be free again" in told
    assert "qwen36 and orpheus-tts run again" in told
    assert not [one for one in told if " its " in one and "qwen36" in one]


def test_in_one_line_it_says_how_far_it_is_and_who_left_it() -> None:
    line = join_text(render_switch_progress_line(make_progress(make_step_event(101, SwitchStep.RELEASING)), 142.0, "s"))
    assert "switch to qwen36, step 3 of 6 · 0:42   s shows it   waiting for its memory to be free again" in line
    journal = SwitchJournal(
        id="0" * 12,
        operator="milo@laptop",
        since=0.0,
        step=SwitchStep.STARTING,
        instance="qwen36",
        words=("qwen36",),
        profile_hash="h",
        nodes=(ONE,),
        stops=(),
        old=(),
    )
    assert "switch to qwen36 was left: step 4 of 6, starting, by milo@laptop since " in describe_switch_journal(
        ONE, SwitchJournalStatus(JournalFound.READ, journal)
    )
    assert "goes on: on its way back, restoring" in describe_switch_journal(
        ONE, SwitchJournalStatus(JournalFound.READ, replace(journal, step=SwitchStep.RESTORING), is_held=True)
    )
    unknown = describe_switch_journal(ONE, SwitchJournalStatus(JournalFound.UNREADABLE, why="it is damaged"))
    assert unknown == "spark1: there is a journal of a switch, but it is damaged"


def test_what_is_undone_because_somebody_asked_for_it_has_not_failed() -> None:
    asked = [
        make_step_event(5.0, SwitchStep.UNDOING),
        make_step_event(6.0, SwitchStep.UNDOING, "nothing of qwen36 is left"),
    ]
    failed = [make_step_event(1.0, SwitchStep.STARTING), *asked]
    for expected, sign in ((asked, "✓"), (failed, "✕")):
        made: SwitchProgress | None = None
        for event in expected:
            made = advance_switch(made, event)
        seen = render_screen(replace(SCENE, progress=made, now=7.0), 80, 30)
        (line,) = [line for line in seen.splitlines() if "qwen36 is removed" in line]
        assert line.strip().startswith(sign)


def test_who_left_a_switch_and_since_when_is_there_whole_in_any_width() -> None:
    words = "switch to qwen36-ngram was left: step 4 of 6, starting, by root@vm since 09:14"
    for columns in (60, 78, 118):
        rows = render_unfinished_switch(words, (("o", "goes on with it"),), is_held=False, columns=columns)
        assert all(measure_row(row) <= columns for row in rows)
        assert (
            " ".join(join_text(row).strip("▲ ") for row in rows)
            == f"{words}{' ' if columns > 100 else '  '}o goes on with it"
        )
        assert len(rows) == 2, "the keys take no line of their own where there is little room"


@pytest.mark.parametrize("most", [2, 3, 4])
def test_what_was_refused_keeps_its_way_out_where_there_is_little_room(most: int) -> None:
    way = "sparkctl status --node spark1 --watch"
    words = f"✕ spark1: switch to qwen36-vllm in progress, step 4 of 6 (starting), by root@vm since 09:32   try: wait for it: {way}"
    lines = [join_text(row) for row in _wrap_notice(words, TextStyle.BAD, 78, most)]
    assert len(lines) <= most
    assert any(way in line for line in lines)
    assert lines[0].startswith("✕ spark1: switch to qwen36-vllm in progress")


def test_a_path_in_what_is_said_of_a_log_is_there_whole() -> None:
    path = "/tmp/sparkctl-demo-5budbrug/state/logs/20261122-092348-a92/" + "spark1/" * 6 + "sglang.log.gz"
    lines = [join_text(row) for row in render_log_status(f"it has ended; its saved log: {path}", 60)]
    assert all(len(line) <= 60 for line in lines)
    assert "".join(lines[1:]) == path


FREE_PLAN = replace(PLAN, changes=CHANGES[1:], stops=(), cautions=())


def test_where_nothing_stops_no_step_is_told_that_does_not_happen() -> None:
    planned = render_screen(replace(SCENE, plan=FREE_PLAN), 120, 40)
    assert "1  starting qwen36" in planned
    assert "stopping" not in planned
    made = advance_switch(None, SwitchPlanned(100.0, ONE, FREE_PLAN))
    assert made is not None
    running = render_screen(replace(SCENE, progress=made, now=160.0), 80, 24)
    assert "◐  1:00  starting qwen36" in running
    assert "what was there" not in running
    assert "of 6" not in join_text(render_switch_progress_line(made, 160.0, None))
    end = CommandEnded(ts=200.0, outcome=Outcome.READY, exit_code=0, seconds=100.0, node=ONE, instance="qwen36")
    ready = render_screen(replace(SCENE, progress=advance_switch(made, end), now=300.0), 80, 24)
    assert "✓  1:40  qwen36 started" in ready
    assert "beginning" not in ready


def test_the_failure_of_what_it_needs_is_its_verdict_by_its_own_name_and_a_refused_one_has_no_steps() -> None:
    verdict = Verdict(cause=FailureCause.HOST_OOM_KILL, summary="The kernel ended it", evidence=(), remedy="less")
    end = CommandEnded(
        ts=120.0, outcome=Outcome.FAILED, exit_code=1, seconds=20.0, node=ONE, instance="orpheus-llm", verdict=verdict,
        message="orpheus-tts was not started: orpheus-llm, which it needs, is not ready",
    )  # fmt: skip
    for plan in (FREE_PLAN, replace(FREE_PLAN, obstacles=("no room",))):  # with the step of its start, and without any
        made = advance_switch(advance_switch(None, SwitchPlanned(100.0, ONE, plan)), end, is_own=True)
        seen = render_screen(replace(SCENE, progress=made, now=130.0), 80, 24)
        assert "✕ orpheus-llm failed: The kernel ended it" in seen
        assert "orpheus-tts was not started" in seen
        assert "beginning" not in seen
