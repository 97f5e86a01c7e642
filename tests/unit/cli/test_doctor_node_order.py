"""`doctor` tells of several Sparks in the operator's order, whichever answers first."""

from __future__ import annotations

import pytest

from sparkctl.cli.verbs import doctor
from sparkctl.model.events import CheckCompleted, CommandEnded, FindingReported, Outcome
from sparkctl.model.finding import FindingKind, Severity
from sparkctl.model.node import NodeName

ONE, TWO = NodeName("spark1"), NodeName("spark2")


def make_finding_event(node: NodeName | None, words: str) -> FindingReported:
    return FindingReported(ts=1.0, node=node, check=FindingKind.DOCKER.value, severity=Severity.GOOD, message=words)


def test_nodes_are_printed_in_config_order(capsys: pytest.CaptureFixture[str]) -> None:
    teller = doctor._create_findings_printer([ONE, TWO], at_once=False)
    for event in (make_finding_event(TWO, "two a"), make_finding_event(ONE, "one a"), CheckCompleted(2.0, TWO, 1.0)):
        teller.print_event(event)
    assert capsys.readouterr().out == ""
    for event in (make_finding_event(ONE, "one b"), CheckCompleted(3.0, ONE, 2.0), make_finding_event(TWO, "two b")):
        teller.print_event(event)
    said = capsys.readouterr().out
    order = [said.index(words) for words in ("spark1", "one a", "one b", "spark2", "two a", "two b")]
    assert order == sorted(order), said
    assert said.count("spark1") == said.count("spark2") == 1


def test_one_that_never_answers_keeps_nothing_back_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    teller = doctor._create_findings_printer([ONE, TWO], at_once=False)
    for event in (
        make_finding_event(TWO, "two a"),
        CheckCompleted(2.0, TWO, 1.0),
        CommandEnded(ts=9.0, outcome=Outcome.INTERRUPTED, exit_code=130, seconds=9.0),
    ):
        teller.print_event(event)
    assert "two a" in capsys.readouterr().out


def test_findings_of_one_node_are_printed_as_they_come(capsys: pytest.CaptureFixture[str]) -> None:
    doctor._create_findings_printer([ONE], at_once=False).print_event(make_finding_event(ONE, "one a"))
    assert "one a" in capsys.readouterr().out
