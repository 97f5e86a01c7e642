"""What `i` shows is all that is told about a Spark elsewhere: failures, the guard, the connection and the config, too."""

from __future__ import annotations

from dataclasses import replace

from sparkctl.commands.action_context import ActionContext, reason_no_problems
from sparkctl.model.container import ContainerState
from sparkctl.model.events import CommandEnded, GuardActed, Outcome
from sparkctl.model.finding import Finding, FindingKind, Severity
from sparkctl.model.guard_state import GuardAction
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.verdict import Evidence, FailureCause, Verdict
from sparkctl.monitor.event_log import build_log_entry
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.views.finding_view import NodeProblems, render_problems
from sparkctl.views.text.styled_text import TextStyle, join_text

NODE = NodeName("spark2")
ONE = InstanceView(
    name="big", node=NODE, container="c", image="image", state=ContainerState.EXITED, status="Exited (1)", ours=True, memory=None, phase=Phase.FAILED
)  # fmt: skip
VIEW = NodeTelemetryView(name=NODE, state=NodeState.OK, when=10.0)
VERDICT = Verdict(
    cause=FailureCause.CUDA_OUT_OF_MEMORY,
    summary="big ran out of memory.",
    evidence=(Evidence("CUDA out of memory", "log", 7),),
    remedy="less context",
)
END = CommandEnded(
    ts=9.0, outcome=Outcome.FAILED, exit_code=1, seconds=30.0, node=NODE, instance="big", verdict=VERDICT
)
WELL = NodeProblems(view=VIEW, now=10.0, ends={})


def render_text(wrong: NodeProblems) -> str:
    return "\n".join(join_text(one) for one in render_problems(wrong, 90))


def test_a_healthy_node_has_no_problems() -> None:
    assert not WELL.has_other_problems
    assert render_problems(WELL, 90) == []
    now = ActionContext(names=(NODE,), views=(VIEW,), node=NODE)
    assert reason_no_problems(now) == "no problems found on spark2"
    assert reason_no_problems(replace(now, is_troubled=True)) is None


def test_a_failed_start_is_told_with_its_proof_and_not_twice() -> None:
    wrong = replace(
        WELL,
        view=replace(VIEW, instances=(ONE,)),
        ends={"big": END},
        notices=[("✕ big failed on spark2: so", TextStyle.BAD)],
    )
    assert wrong.has_other_problems
    assert render_text(wrong).count("big failed") == 1
    assert "line 7: CUDA out of memory" in render_text(wrong)
    assert "less context" in render_text(wrong)
    assert "✕ big failed; enter on it says why" in render_text(replace(wrong, ends={}, notices=()))
    assert "big ran out of memory" in render_text(replace(wrong, view=VIEW)), "its container is gone, the reason is not"
    ready = replace(VIEW, instances=(replace(ONE, phase=Phase.READY),))
    assert not replace(wrong, view=ready, notices=()).has_other_problems, "it was started anew since"


def test_what_the_guard_did_here_is_told_and_not_what_it_did_elsewhere() -> None:
    killed = GuardActed(ts=5.0, node=NODE, what=GuardAction.KILLED, why="swap grew by 3 GiB", at=5.0, instance="big")
    did = build_log_entry(killed)
    elsewhere = build_log_entry(replace(killed, node=NodeName("spark1"), why="other"))
    assert did is not None
    assert elsewhere is not None
    wrong = replace(WELL, happened=(did, elsewhere))
    assert wrong.has_other_problems
    assert "big was stopped: swap grew by 3 GiB" in render_text(wrong)
    assert "other" not in render_text(wrong)


def test_the_connection_the_config_a_refusal_and_the_findings_are_there_too() -> None:
    away = replace(VIEW, state=NodeState.REFUSED, detail="does not let milo in", hint="r asks again")
    finding = Finding(
        kind=FindingKind.SWAP, severity=Severity.WARNING, node=NODE, summary="swap is in use", remedy="turn it off"
    )
    wrong = replace(
        WELL, view=replace(away, findings=(finding,)), fault="config.yaml:2:1: no such key\nand another", hint="see README",
        notices=[("✕ no such profile on spark2", TextStyle.BAD), ("● fine", TextStyle.GOOD)],
    )  # fmt: skip
    words = render_text(wrong)
    for one in ("config.yaml:2:1: no such key", "and another", "try: see README", "does not let milo in", "r asks again",
                "no such profile", "swap is in use"):  # fmt: skip
        assert one in words
    assert "fine" not in words
    assert "\x1b" not in render_text(replace(wrong, fault="\x1b[31m"))


def test_a_long_proof_stays_beside_its_label() -> None:
    proof = Evidence("CUDA out of memory, it tried to allocate much more than there was " * 2, "log", 7)
    wrong = replace(
        WELL,
        view=replace(VIEW, instances=(ONE,)),
        ends={"big": replace(END, verdict=replace(VERDICT, evidence=(proof,)))},
    )
    rows = [join_text(row) for row in render_problems(wrong, 60)]
    at = next(at for at, row in enumerate(rows) if "proof" in row)
    column = rows[at].index("line 7")
    assert len(rows[at + 1]) - len(rows[at + 1].lstrip()) == column
