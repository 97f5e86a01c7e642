"""The history in rows: what a reader is told of each outcome, and nothing that a terminal could be steered with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from sparkctl.history.model import NodeResult, OperationKind, OperationRecord, StepRecord
from sparkctl.history.start_diff import StartDiff, StartDifference
from sparkctl.model.node import NodeName
from sparkctl.model.phase import ExpectedDurations, Phase, PhaseDuration
from sparkctl.model.text.units import GIB
from sparkctl.model.verdict import Evidence, FailureCause, Verdict
from sparkctl.views.history_view import (
    build_history_row,
    build_operation_sections,
    describe_reason,
    render_history,
    render_sections,
)
from sparkctl.views.text.styled_text import Span, TextStyle, join_text

SPARK1 = NodeName("spark1")
PARTS = (
    PhaseDuration(Phase.LOADING, "weights", 190.0),
    PhaseDuration(Phase.LOADING, "weights", 9.0),
    PhaseDuration(Phase.WARMING, None, 20.0),
)
USUAL = (PhaseDuration(Phase.LOADING, "weights", 100.0), PhaseDuration(Phase.LOADING, "weights", 9.0))
SHARE = NodeResult(
    node=SPARK1, instance="qwen36", seconds=415.0, parts=PARTS, available_before=115 * GIB, peak=100 * GIB, settled=98 * GIB,
    estimated=96 * GIB, accept_length=3.12, log="/state/logs/a.log",
)  # fmt: skip
GOOD = OperationRecord(
    id=7,
    kind=OperationKind.START,
    began=1_777_000_000.0,
    operator="milo@desk",
    nodes=(SPARK1,),
    profile="qwen36",
    instance="qwen36",
    outcome="ready",
    exit_code=0,
    ended=1_777_000_420.0,
    seconds=420.0,
    usual=ExpectedDurations(400.0, USUAL),
    shares=(SHARE,),
    is_running=False,
)


def format_history(found: Sequence[OperationRecord], columns: int | None, *, has_others: bool = False) -> list[str]:
    return [join_text(row) for row in render_history(found, columns, has_others=has_others)]


def render_lines(
    one: OperationRecord, worked: OperationRecord | None = None, changes: StartDiff | None = None
) -> list[str]:
    return [join_text(row) for row in render_sections(build_operation_sections(one, worked, changes))]


@pytest.mark.parametrize(
    ("outcome", "running", "words", "tone"),
    [
        ("ready", False, "ready", TextStyle.GOOD), ("done", False, "ready", TextStyle.GOOD), ("timed-out", False, "timed out", TextStyle.ATTENTION),
        ("failed", False, "failed", TextStyle.BAD), (None, True, "under way", TextStyle.ACCENT),
        (None, False, "not known how it ended", TextStyle.ATTENTION), (None, None, "not known how it ended", TextStyle.ATTENTION),
    ],
)  # fmt: skip
def test_each_outcome_has_a_label(outcome: str | None, running: bool | None, words: str, tone: TextStyle) -> None:
    row = build_history_row(replace(GOOD, outcome=outcome, is_running=running))
    assert (row.outcome, row.tone) == (words, tone)


def test_a_row_tells_how_long_it_took_against_what_was_usual() -> None:
    assert build_history_row(GOOD).took == "6 min 55 s of about 6 min 40 s"
    assert build_history_row(replace(GOOD, usual=ExpectedDurations())).took == "6 min 55 s"
    assert build_history_row(replace(GOOD, shares=(), seconds=None)).took == ""


def test_a_table_has_one_line_for_each_and_a_second_one_for_the_reason_where_it_is_narrow() -> None:
    failed = replace(GOOD, id=8, outcome="failed", why="no\nroom " * 40)
    whole = format_history([failed, GOOD], None)
    assert len(whole) == 3
    assert whole[1].endswith("  no …"), "history show has the rest"
    narrow = format_history([failed, GOOD], 80)
    assert all(len(line) <= 80 for line in narrow)
    assert narrow[1].endswith("failed   6 min 55 s"), narrow
    assert narrow[2] == "      no …"
    assert len(narrow) == 4
    assert Span("failed", TextStyle.BAD) in render_history([failed, GOOD], 80, has_others=False)[1]
    assert format_history([GOOD], 120) == format_history([GOOD], None)
    assert "nothing was done from this machine yet" in format_history([], 80)[0]
    assert "to see all: sparkctl history" in format_history([], 80, has_others=True)[0]


@pytest.mark.parametrize(
    ("why", "shown"),
    [
        ("A 27B model of FP8 needs 1.5 GiB more", "A 27B model of FP8 needs 1.5 GiB more"),
        ("It was killed (SIGKILL). Nothing in its log says by whom.", "It was killed (SIGKILL) …"),
        ("too long " * 40, f"{'too long ' * 11}…"),
    ],
)
def test_the_column_why_has_one_short_line_and_the_details_the_rest(why: str, shown: str) -> None:
    failed = replace(GOOD, outcome="failed", why=why)
    assert format_history([failed], None)[1].endswith(f"  {shown}")
    assert f"  {why}" in render_lines(failed)


def test_sentences_of_an_end_do_not_run_into_each_other() -> None:
    left = replace(
        GOOD, outcome="interrupted", why="qwen36 goes on: sparkctl up qwen36\nStop it: sparkctl down qwen36.\n"
    )
    assert describe_reason(left) == "qwen36 goes on: sparkctl up qwen36; Stop it: sparkctl down qwen36"
    at = render_lines(left).index("why")
    assert render_lines(left)[at + 1 : at + 3] == [
        "  qwen36 goes on: sparkctl up qwen36",
        "  Stop it: sparkctl down qwen36.",
    ]


def test_a_detail_has_each_part_against_the_usual_one_of_its_place() -> None:
    said = "\n".join(render_lines(GOOD))
    assert "loading: weights              3 min 10 s   usually 1 min 40 s" in said
    assert "loading: weights                   9.0 s   usually 9.0 s" in said
    assert "warming up                          20 s\n" in said
    for words in (
        "at its peak 100.0 GiB",
        "once ready 98.0 GiB",
        "accept length 3.12\n",
        "/state/logs/a.log",
    ):
        assert words in said
    late = [
        row
        for section in build_operation_sections(GOOD, None, None)
        if section.title == "phases"
        for row in section.rows
    ]
    assert [row[1].tone for row in late] == [TextStyle.ATTENTION, TextStyle.VALUE, TextStyle.VALUE]


def test_changes_are_said_as_a_diff_and_what_is_not_known_too() -> None:
    changes = StartDiff(
        (StartDifference("args.tp", "1", "2"), StartDifference("env.NEW", None, "yes")), ("driver of spark1",)
    )
    said = render_lines(replace(GOOD, id=9, outcome="failed"), GOOD, changes)
    at = said.index("changed since it last worked")
    assert said[at + 1].startswith("  since 7, ")
    assert said[at + 2 :] == [
        "  - args.tp: 1", "  + args.tp: 2", "  + env.NEW: yes", "  not recorded, so not compared: driver of spark1",
    ]  # fmt: skip
    assert "  no recorded setting is different" in render_lines(GOOD, GOOD, StartDiff(()))
    assert "  no earlier successful start is known" in render_lines(GOOD)


def test_a_switch_has_its_steps_and_a_stop_what_came_back() -> None:
    switch = replace(
        GOOD,
        kind=OperationKind.SWITCH,
        moments=(StepRecord("stopping", "minimax", 3.0, "its processes are gone"),),
        shares=(),
    )
    whole = [
        join_text(row) for row in render_sections(build_operation_sections(switch, None, None, [replace(GOOD, id=8)]))
    ]
    assert "     8  start of qwen36 on spark1: ready   6 min 55 s of about 6 min 40 s" in whole
    assert any("stopping minimax" in line and "its processes are gone" in line for line in render_lines(switch))
    own = replace(
        switch, moments=(StepRecord("stopping", "qwen36", 3.0, "minimax stopped"), StepRecord("starting", "qwen36"))
    )
    lines = render_lines(own)[render_lines(own).index("steps") + 1 :]
    assert lines[0].split() == ["stopping", "after", "3.0", "s", "minimax", "stopped"], "it is not qwen36 that stops"
    assert lines[1].strip() == "starting qwen36"
    stop = replace(
        GOOD,
        kind=OperationKind.STOP,
        shares=(NodeResult(node=SPARK1, instance="qwen36", freed=98 * GIB, missing=2 * GIB),),
    )
    assert any("qwen36 on spark1  came back 98.0 GiB, missing 2.0 GiB" in line for line in render_lines(stop))
    assert "changed since it last worked" not in render_lines(stop)


def test_history_text_has_no_control_characters() -> None:
    evil = "\x1b]0;owned\x07\x1b[2J"
    verdict = Verdict(cause=FailureCause.CRASHED, summary=evil, evidence=(Evidence(evil, "log", 1),), remedy=evil)
    one = replace(
        GOOD,
        profile=evil,
        instance=evil,
        operator=evil,
        nodes=(NodeName(evil),),
        why=evil,
        hint=evil,
        image=evil,
        outcome="failed",
        shares=(replace(SHARE, driver=evil, receipt=evil, parts=()),),
        moments=(StepRecord(evil, evil, 1.0, evil),),
    )
    changes = StartDiff((StartDifference(evil, evil, evil),), (evil,))
    for changed in (one, replace(one, verdict=verdict)):
        assert "\x1b" not in "".join([*render_lines(changed, GOOD, changes), *format_history([changed], None)])


def test_resume_abort_and_free_are_called_by_their_names() -> None:
    switch = replace(GOOD, kind=OperationKind.SWITCH, command="sparkctl resume", outcome="ready")
    assert (build_history_row(switch).what, build_history_row(switch).profile) == ("resume", "qwen36")
    assert render_lines(switch)[0] == "7: resume of qwen36"
    assert not any("again" in line for line in render_lines(switch)), "nothing is left to be resumed"
    refused = replace(switch, command="sparkctl abort", outcome="refused", profile=None, instance=None)
    assert (build_history_row(refused).what, build_history_row(refused).profile) == ("abort", "what was left")
    assert any("sparkctl abort" in line for line in render_lines(refused))
    free = replace(
        GOOD, kind=OperationKind.STOP, command="sparkctl free spark2 --grace=5s", profile=None, instance=None
    )
    free = replace(free, nodes=(SPARK1, NodeName("spark2")))
    row = build_history_row(free)
    assert (row.what, row.profile, row.nodes) == ("free", "everything on spark2", "spark1, spark2")
    stop = replace(free, command=None)
    assert (build_history_row(stop).what, build_history_row(stop).profile) == ("stop", "everything")
    assert build_history_row(replace(GOOD, command="sparkctl up qwen36")).what == "start"


def test_what_was_usual_is_the_heads_and_not_held_against_another_rank() -> None:
    worker = replace(SHARE, node=NodeName("spark2"))
    both = render_lines(replace(GOOD, nodes=(SPARK1, NodeName("spark2")), shares=(SHARE, worker)))
    assert sum("usually" in line for line in both) == 2, "of the head's two parts"
    assert sum("usually" in line for line in both[: both.index("phases, spark2")]) == 2


def test_how_fast_the_weights_came_from_the_disk_is_told_where_their_size_is_known() -> None:
    text = "schema: 1\nname: qwen36\nengine: sglang\nimage: an:1\nmodel: {path: /m, weights: 27GB}\n"
    said = render_lines(replace(GOOD, text=text))
    assert [line for line in said if "/s" in line and "weights" in line] == [
        "  loading: weights              3 min 10 s   usually 1 min 40 s   136 MiB/s"
    ], "27 GB in 190 s; the second part is the draft model's"
    for other in (text.replace(", weights: 27GB", ""), None):
        assert not any("iB/s" in line for line in render_lines(replace(GOOD, text=other)))


def test_what_a_start_took_stands_beside_what_the_source_needed() -> None:
    text = (
        "schema: 1\nname: qwen36\nengine: sglang\nimage: an:1\nreference:\n"
        "  - {source: 'https://example.org/post', ready_cold: 570s, ready_warm: 90s}\n"
        "  - {source: 'https://example.org/other', differs: compiled, ready_cold: 18m}\n"
    )
    lines = [line for line in render_lines(replace(GOOD, text=text)) if "ready after" in line]
    assert lines == ["  source      ready after 9 min 30 s (cold), 1 min 30 s (warm) · example.org"]
    for other in (replace(GOOD, text=text, outcome="failed"), replace(GOOD, text=text, kind=OperationKind.STOP), GOOD):
        assert not any("ready after" in line for line in render_lines(other))


def test_the_first_request_stands_beside_the_same_one_asked_again_and_the_source_s() -> None:
    text = (
        "schema: 1\nname: qwen36\nengine: sglang\nimage: an:1\nreference:\n"
        "  - {source: 'https://example.org/post', generation_cold: 9.3}\n"
        "  - {source: 'https://example.org/post', differs: compiled, generation_cold: 13.7}\n"
    )
    figures = {"cold_ttft": 4.25, "cold_tokens_per_second": 9.84, "warm_ttft": 0.4, "warm_tokens_per_second": 35.94}
    cold = replace(GOOD, text=text, shares=(replace(GOOD.shares[0], **figures),))
    assert (
        "  spark1      first request: a token after 4.25 s, 9.8 tokens/s (example.org: 9.3 tokens/s); "
        "again: a token after 0.40 s, 35.9 tokens/s"
    ) in render_lines(cold)
    slow = replace(cold, text=None, shares=(replace(GOOD.shares[0], cold_ttft=171.0),))
    assert "  spark1      first request: a token after 2 min 51 s" in render_lines(slow)
    assert not any("first request" in line for line in render_lines(GOOD))


def test_averages_stand_beside_what_the_source_measured() -> None:
    text = (
        "schema: 1\nname: qwen36\nengine: sglang\nimage: an:1\nreference:\n  - source: https://example.org/post\n    figures:\n"
        "      - {concurrency: 1, generation: 22.6}\n      - {concurrency: 8, generation: 95.3}\n      - {accept_length: 2.5-3.5}\n"
    )
    lines = render_lines(replace(GOOD, text=text))
    (seen,) = [line for line in lines if "accept length" in line]
    assert seen.endswith("accept length 3.12 (example.org: 2.5–3.5)")
    asked = replace(GOOD, text=text, shares=(replace(GOOD.shares[0], warm_ttft=0.4, warm_tokens_per_second=21.0),))
    assert any(
        line.endswith("again: a token after 0.40 s, 21.0 tokens/s (example.org: 22.6, one request alone)")
        for line in render_lines(asked)
    )
    for other in (None, "no profile", text.replace("22.6", "fast"), text.replace("setup", "x").replace("an:1", "")):
        lines = [
            join_text(row) for row in render_sections(build_operation_sections(replace(GOOD, text=other), None, None))
        ]
        assert any(line.endswith("accept length 3.12") for line in lines)
