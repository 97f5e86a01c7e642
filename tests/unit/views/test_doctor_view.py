"""The doctor of the panel as text: the worst first, what is newer wins, and what can be done from here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.logs.search import parse_filter
from sparkctl.model.events import FindingReported
from sparkctl.model.finding import Finding, FindingEvidence, FindingKind, Severity
from sparkctl.model.node import NodeName, NodeState
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.views.doctor_view import DoctorFinding, DoctorProgress, DoctorScreenModel, merge_findings, render_doctor
from sparkctl.views.finding_view import FINDING_EXPLANATIONS, explain_finding
from sparkctl.views.text.styled_text import join_text, measure_row, measure_text, to_ascii

ONE, TWO = NodeName("spark1"), NodeName("spark2")
NOW = 1_770_000_000.0


def make_finding_event(
    check: str, severity: Severity, message: str, remedy: str | None = None, node: NodeName = ONE
) -> FindingReported:
    return FindingReported(ts=NOW, node=node, check=check, severity=severity, message=message, remedy=remedy)


REPORTED = (
    make_finding_event("docker", Severity.GOOD, "Docker 28.5.2"),
    make_finding_event(
        "drop-caches", Severity.PROBLEM, "no right to drop the page cache", "once on spark1: echo x | sudo tee /etc/y"
    ),
    make_finding_event("swap", Severity.WARNING, "4.0 GiB of swap in use", "on spark2: sudo swapoff -a", TWO),
    make_finding_event("gpu", Severity.UNKNOWN, "nvidia-smi did not answer", None, TWO),
)
FULL = Finding(
    kind=FindingKind.PAGE_CACHE, severity=Severity.WARNING, node=ONE, summary="page cache takes the memory that qwen36 needs",
    remedy="sparkctl drop-caches --node spark1", instance="qwen36",
    evidence=(FindingEvidence("free", "3.1 GiB"), FindingEvidence("page cache", "70.2 GiB")), since=NOW - 48,
)  # fmt: skip
SWAP = Finding(
    kind=FindingKind.SWAP, severity=Severity.PROBLEM, node=TWO, summary="6.0 GiB of swap, and growing", since=NOW - 60
)


def make_node_views(*findings: Finding, state: NodeState = NodeState.OK) -> tuple[NodeTelemetryView, ...]:
    mine = tuple(one for one in findings if one.node == ONE)
    other = tuple(one for one in findings if one.node == TWO)
    return NodeTelemetryView(name=ONE, state=NodeState.OK, when=NOW, findings=mine), NodeTelemetryView(
        name=TWO, state=state, when=NOW, detail="timed out", hint="r", findings=other
    )


def render_screen(checkup: DoctorScreenModel, columns: int = 80, lines: int = 22) -> str:
    page = render_doctor(checkup, columns, lines)
    assert len(page.rows) == lines
    assert {measure_row(row) for row in page.rows} == {columns}
    return "\n".join(join_text(row).rstrip() for row in page.rows)


def list_order(made: tuple[DoctorFinding, ...]) -> list[tuple[str | None, str]]:
    return [(one.found.node, one.found.check) for one in made]


def test_the_worst_comes_first_of_all_nodes() -> None:
    made = merge_findings(REPORTED, make_node_views(FULL))
    assert list_order(made) == [
        (ONE, "drop-caches"), (ONE, "page-cache"), (TWO, "swap"), (TWO, "gpu"), (ONE, "docker"),
    ]  # fmt: skip


def test_what_the_samples_show_goes_before_what_the_look_found() -> None:
    made = merge_findings(REPORTED, make_node_views(SWAP))
    swaps = [one for one in made if one.found.check == "swap"]
    assert [(one.found.message, one.is_live) for one in swaps] == [("6.0 GiB of swap, and growing", True)]


def test_what_was_asked_is_never_said_to_be_in_the_samples_and_ends_with_the_next_look() -> None:
    old = make_finding_event("settings", Severity.WARNING, "swappiness 60 bites")
    standing = Finding(kind=FindingKind.SETTINGS, severity=Severity.WARNING, node=ONE, summary="swappiness 60 bites")
    (one,) = merge_findings((), make_node_views(standing), reported=(old,))
    assert not one.is_live
    assert merge_findings((), make_node_views(standing), reported=(old,), when=lambda _: NOW + 5) == ()
    (one,) = merge_findings((old,), make_node_views(standing), reported=(old,), when=lambda _: NOW)
    assert not one.is_live


def test_a_node_that_does_not_answer_is_a_problem_of_now() -> None:
    made = merge_findings(REPORTED, make_node_views(SWAP, state=NodeState.UNREACHABLE))
    assert (TWO, "connection") in list_order(made)
    assert "timed out" in next(one.found.message for one in made if one.found.check == "connection")
    assert not [one for one in made if one.found.message == SWAP.summary], "its samples are old"


@pytest.mark.parametrize("columns", [80, 120])
def test_the_selected_one_is_shown_with_proof_age_and_remedy(columns: int) -> None:
    made = merge_findings(REPORTED, make_node_views(FULL))
    words = render_screen(DoctorScreenModel(entries=made, when=NOW, chosen=made[1].stable_key), columns)
    assert "1 problem · 2 warnings · 1 not known · 1 good" in words
    assert "▸ ▲ spark1" in words
    assert "seen   now, for 48 s · free 3.1 GiB · page cache 70.2 GiB" in words
    assert "why    Engines look at free memory" in words
    assert "sparkctl drop-caches --node spark1" in words
    assert "y copies it   enter does it, after a question" in words


def test_only_a_command_of_ours_and_nothing_else_is_done_from_here() -> None:
    def deed(remedy: str) -> tuple[str, ...] | None:
        return DoctorFinding(make_finding_event("x", Severity.PROBLEM, "m", remedy), False).fix_argv

    assert deed("sparkctl drop-caches --node spark1") == ("drop-caches", "--node", "spark1")
    for other in (
        "sparkctl drop-caches --node spark1; reboot", "sparkctl drop-caches && rm -rf /", "sparkctl down NAME",
        "sudo swapoff -a", "sparkctl status", "sparkctl logs qwen36", "stop it (sparkctl down qwen36)", "sparkctl drop-caches $(x)",
    ):  # fmt: skip
        assert deed(other) is None, other


def test_what_is_copied_is_the_command_without_where_it_belongs() -> None:
    made = merge_findings(REPORTED, make_node_views())
    assert [one.remedy_command for one in made if one.found.remedy] == ["echo x | sudo tee /etc/y", "sudo swapoff -a"]


def test_no_problem_is_shown_only_after_an_examination() -> None:
    good = (REPORTED[0],)
    assert "nothing is wrong" in render_screen(
        DoctorScreenModel(entries=merge_findings(good, make_node_views()), when=NOW)
    )
    assert "nothing is wrong" not in render_screen(DoctorScreenModel())


def test_how_far_an_examination_is_stands_beside_what_it_found() -> None:
    asked = (DoctorProgress(ONE, 3.2, 7), DoctorProgress(TWO, 4.0))
    first = render_screen(
        DoctorScreenModel(entries=merge_findings(REPORTED, make_node_views()), when=None, running=asked)
    ).splitlines()[0]
    assert first.startswith(" examining spark1 7 found, spark2 no answer for 4 s ...")
    assert first.endswith("✕ 1  ▲ 1  ◌ 1  ● 1"), "signs where there is no room for words"


def test_age_is_shown_in_coarse_steps() -> None:
    good = merge_findings((REPORTED[0],), make_node_views())
    assert ", just now" in render_screen(DoctorScreenModel(entries=good, when=NOW, now=NOW + 9))
    assert ", 40 s ago" in render_screen(DoctorScreenModel(entries=good, when=NOW, now=NOW + 47))
    assert ", 3 min ago" in render_screen(DoctorScreenModel(entries=good, when=NOW, now=NOW + 219))


def test_a_filter_leaves_what_matches_and_says_how_many() -> None:
    words = render_screen(
        DoctorScreenModel(entries=merge_findings(REPORTED, make_node_views()), when=NOW, pattern=parse_filter("spark2"))
    )
    assert " / 2/4  spark2" in words
    assert "drop-caches" not in words
    assert "1 problem" in words, "the count is of all"


def test_every_kind_of_finding_says_why_it_matters() -> None:
    assert set(FINDING_EXPLANATIONS) == set(FindingKind)
    assert explain_finding("of a later version") is None


@pytest.mark.parametrize(("columns", "lines"), [(60, 13), (40, 8), (12, 3), (1, 1)])
def test_small_terminals_break_nothing(columns: int, lines: int) -> None:
    hostile = make_finding_event(
        "x\x1b[2J", Severity.PROBLEM, "a\x1b]52;c;AAAA\x07b [/red] \u202e" + "w" * 300, "rm\x1b[0m\n-rf"
    )
    made = merge_findings((*REPORTED, hostile), make_node_views(FULL))
    for one in made:
        words = render_screen(DoctorScreenModel(entries=made, when=NOW, chosen=one.stable_key), columns, lines)
        assert all(char.isprintable() or char == "\n" for char in words)
        assert to_ascii(words).isascii()
        assert all(len(to_ascii(line)) == measure_text(line) for line in words.splitlines())


def test_where_not_all_findings_fit_it_is_said_how_many_stand_above_and_below() -> None:
    many = tuple(make_finding_event(f"check-{at:02}", Severity.NOTE, f"all is well with {at}") for at in range(20))
    made = DoctorScreenModel(entries=merge_findings(many, make_node_views()), when=NOW, now=NOW)
    first = render_doctor(made, 80, 22)
    below = 20 - len(first.entries)
    assert f"↓ {below} below" in render_screen(made)
    assert "above" not in render_screen(made)
    last = DoctorScreenModel(entries=made.entries, when=NOW, chosen=made.entries[-1].stable_key, now=NOW)
    assert f"↑ {below} above" in render_screen(last)
    assert "below" not in render_screen(last)
    assert render_doctor(last, 80, 22).entries.stop == 20
    assert "below" not in render_screen(DoctorScreenModel(entries=made.entries[:5], when=NOW, now=NOW))


def test_what_is_good_is_said_once_where_the_list_has_all_of_it() -> None:
    good = DoctorScreenModel(
        entries=merge_findings((make_finding_event("docker", Severity.GOOD, "Docker 28.5.2"),), make_node_views()),
        when=NOW,
        now=NOW,
    )
    assert render_screen(good).count("Docker 28.5.2") == 1
    cut = DoctorScreenModel(
        entries=merge_findings((make_finding_event("docker", Severity.GOOD, "Docker 28.5.2 " * 9),), make_node_views()),
        when=NOW,
        now=NOW,
    )
    assert "what" in render_screen(cut)
    bad = DoctorScreenModel(
        entries=merge_findings((make_finding_event("docker", Severity.PROBLEM, "no Docker"),), make_node_views()),
        when=NOW,
        now=NOW,
    )
    assert render_screen(bad).count("no Docker") == 2


def test_what_is_good_is_one_line_whose_detail_lists_it_and_a_filter_finds_each() -> None:
    good = [make_finding_event(f"check-{at:02}", Severity.GOOD, f"all is well with {at}") for at in range(20)]
    bad = make_finding_event("disk", Severity.WARNING, "little is free")
    made = DoctorScreenModel(entries=merge_findings((bad, *good), make_node_views()), when=NOW, now=NOW)
    assert [one.found.check for one in made.visible_findings] == ["disk", "good"]
    shown = render_screen(made)
    assert "20 checks are good: check-00, check-01" in shown
    assert "20 good" in shown, "each is counted"
    folded = replace(made, chosen=made.visible_findings[1].stable_key)
    detail = render_screen(folded, 120, 40)
    assert all(f"check-{at:02}  all is well with {at}" in detail for at in range(20))
    one = replace(made, pattern=parse_filter("check-07"))
    assert [each.found.check for each in one.visible_findings] == ["check-07"]
