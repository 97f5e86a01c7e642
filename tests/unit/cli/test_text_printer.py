"""What people read of a verb's events on a pipe: each thing once, in words, with a command to copy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.cli.event_printers import CheckPrinter, TextPrinter
from sparkctl.model.events import (
    CommandEnded,
    Event,
    FindingReported,
    NodeStateChanged,
    Outcome,
    PhaseChanged,
    TransferProgressed,
    TunnelState,
    TunnelStateChanged,
    WarningEmitted,
)
from sparkctl.model.finding import Severity
from sparkctl.model.guard_state import GuardCoverage
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase, Step
from sparkctl.model.text.units import GIB
from sparkctl.model.verdict import Evidence, FailureCause, FieldChange, Verdict

NODE = NodeName("spark1")
GONE = "spark1 does not answer"


def print_events(capsys: pytest.CaptureFixture[str], *events: Event) -> list[str]:
    teller = TextPrinter()
    for event in events:
        teller.print_event(event)
    return capsys.readouterr().err.splitlines()


def make_node_state(state: NodeState, detail: str | None = None, attempt: int | None = None) -> NodeStateChanged:
    return NodeStateChanged(
        ts=1.0, node=NODE, state=state, detail=detail, attempt=attempt, next_try=0.5 if attempt else None
    )


def make_command_end(outcome: Outcome, **more: object) -> CommandEnded:
    return CommandEnded(ts=2.0, outcome=outcome, exit_code=3, seconds=40.2, node=NODE, instance="qwen36", **more)  # type: ignore[arg-type]


def test_a_first_connection_that_fails_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    lines = print_events(
        capsys,
        make_node_state(NodeState.UNREACHABLE, GONE),
        WarningEmitted(1.0, NODE, GONE, "is it on?"),
        make_command_end(Outcome.UNREACHABLE, message=GONE, hint="is it on?"),
    )
    assert lines == [f"▲ {GONE}", "  try: is it on?"]
    assert print_events(
        capsys, make_node_state(NodeState.UNREACHABLE, GONE), make_command_end(Outcome.UNREACHABLE, message=GONE)
    ) == [f"sparkctl: {GONE}"]


def test_a_lost_connection_its_attempts_and_its_return_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    lines = print_events(
        capsys,
        make_node_state(NodeState.OK),
        make_node_state(NodeState.UNREACHABLE, "reset"),
        make_node_state(NodeState.UNREACHABLE, "refused"),
        make_node_state(NodeState.UNREACHABLE, "refused", 1),
        make_node_state(NodeState.OK),
    )
    assert [line.partition("  ")[2] for line in lines] == [
        "◌ unreachable: reset",
        "◌ unreachable: refused (attempt 1, next in 0.5 s)",
        "● connected again",
    ]


def test_a_verdict_ends_with_the_command_to_try(capsys: pytest.CaptureFixture[str]) -> None:
    proof, edit = (
        Evidence("so it was", "docker"),
        FieldChange("args.mem-fraction-static", "0.72", "0.8", is_first_try=True),
    )
    other = Verdict(
        cause=FailureCause.DISK_FULL,
        summary="A disk is full.",
        evidence=(Evidence("No space", "log", 7),),
        remedy="Free some.",
    )
    verdict = Verdict(
        cause=FailureCause.HOST_OOM_KILL,
        summary="It was killed.",
        evidence=(proof,),
        remedy="Lower it.",
        field=edit.field,
        edit=edit,
        again="sparkctl up qwen36 --node spark1 --set args.mem-fraction-static=0.72",
        contributing=(other,),
    )
    lines = print_events(capsys, make_command_end(Outcome.TIMED_OUT, verdict=verdict))
    assert lines == [
        "spark1  ◌ qwen36 not ready after 40 s",
        "",
        "It was killed.",
        "  proof   docker: so it was",
        "  try     Lower it.",
        "  also    A disk is full. (line 7)",
        "  again   sparkctl up qwen36 --node spark1 --set args.mem-fraction-static=0.72",
        "          a first try: it was 0.8",
        "  more    sparkctl help host-oom-kill",
    ]


def test_a_verdict_without_a_value_to_try_offers_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    verdict = Verdict(
        cause=FailureCause.IMAGE_ARCH,
        summary="It is amd64.",
        evidence=(Evidence("so it was", "docker"),),
        remedy="Take another.",
        field="image",
    )
    assert not [
        line
        for line in print_events(capsys, make_command_end(Outcome.FAILED, verdict=verdict))
        if "again" in line or "..." in line
    ]


def test_steps_are_words(capsys: pytest.CaptureFixture[str]) -> None:
    steps = ("join", "http", "kv-cache", "graphs", "weights")
    events = [
        PhaseChanged(ts=1.0, node=NODE, instance="qwen36", phase=Phase.LOADING, step=Step(name)) for name in steps
    ]
    words = [line.rpartition("   ")[2] for line in print_events(capsys, *events)]
    assert words == ["joining", "HTTP server", "KV cache", "CUDA graphs", "weights"]


def test_a_phase_that_lasts_says_so_on_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("sparkctl.cli.event_printers.time.monotonic", lambda: now[0])
    teller = TextPrinter()
    teller.print_event(
        PhaseChanged(ts=1.0, node=NODE, instance="qwen36", phase=Phase.LOADING, step=Step("weights"), elapsed=5.0)
    )
    for _ in range(61):
        now[0] += 1
        teller.refresh()
    assert capsys.readouterr().err.splitlines() == [
        "spark1  loading   weights   0:05",
        "spark1  loading   weights   0:35",
        "spark1  loading   weights   1:05",
    ]


def test_a_check_says_that_an_answer_takes_long(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("sparkctl.cli.event_printers.time.monotonic", lambda: now[0])
    teller = CheckPrinter("qwen36")

    def wait(seconds: int) -> list[str]:
        for _ in range(seconds):
            now[0] += 1
            teller.refresh()
        return capsys.readouterr().err.splitlines()

    assert wait(4) == []
    assert wait(40) == ["waiting for an answer from qwen36   5.0 s", "waiting for an answer from qwen36   35 s"]
    teller.print_event(
        FindingReported(ts=1.0, node=NODE, check="question", severity=Severity.GOOD, message="it knows the answer")
    )
    assert wait(4) == [], "the next question has just been asked"
    assert wait(30) == ["waiting for an answer from qwen36   5.0 s"]


def test_a_second_press_promises_nothing_and_after_the_end_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    teller = TextPrinter("no longer watching ...")
    teller.print_interrupt(1)
    teller.print_interrupt(2)
    heard = capsys.readouterr().err.splitlines()
    assert heard == ["no longer watching ...", "heard; it ends as soon as nothing is half done ..."]
    teller.print_event(make_command_end(Outcome.INTERRUPTED, message="left at step 4", hint="sparkctl resume"))
    capsys.readouterr()
    teller.print_interrupt(2)
    assert capsys.readouterr().err == ""


def test_what_to_try_comes_when_the_tunnel_opens_and_not_again_at_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    opened = TunnelStateChanged(
        ts=1.0, node=NODE, instance="voice", state=TunnelState.OPEN, url="http://127.0.0.1:5005",
        hint="sparkctl say hello\ncurl http://127.0.0.1:5005/v1",
    )  # fmt: skip
    lines = print_events(capsys, opened, replace(opened, hint=None, state=TunnelState.LOST), replace(opened, hint=None))
    assert [line for line in lines if line.startswith("try")] == [
        "try  sparkctl say hello", "try  curl http://127.0.0.1:5005/v1"
    ]  # fmt: skip
    lines = print_events(capsys, opened, make_command_end(Outcome.READY, hint=opened.hint))
    assert sum(line.startswith("try") for line in lines) == 2


def test_a_start_that_was_not_guarded_is_said_at_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_events(capsys, make_command_end(Outcome.READY, guard=GuardCoverage.NONE)) == [
        "▲ spark1: qwen36: no guard watched its start",
        "  try: sparkctl guard status --node spark1",
    ]
    for whole in (GuardCoverage.FULL, GuardCoverage.OFF, None):
        assert print_events(capsys, make_command_end(Outcome.READY, guard=whole)) == []


def test_progress_is_a_sentence_on_a_pipe_and_what_came_whole_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    step = Step(name="weights", done=6, total=11)
    loading = PhaseChanged(ts=1.0, node=NODE, instance="qwen36", phase=Phase.LOADING, step=step, elapsed=3.0)
    whole = TransferProgressed(ts=1.0, node=NODE, source="docker.io", what="image", done=GIB, total=GIB)
    assert print_events(capsys, loading, whole) == [
        "spark1  loading   weights 6/11   0:03",
        "spark1  ● image   1.0 GiB of 1.0 GiB   100 %",
    ]
