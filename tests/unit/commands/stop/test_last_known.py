"""What should still stand on a node that is silent: what was started from here and did not end since."""

from __future__ import annotations

from sparkctl.commands.stop.stop_instance import OpenStart, find_open_starts
from sparkctl.history.model import NodeResult, OperationKind, OperationRecord
from sparkctl.model.node import NodeName

ONE, TWO = NodeName("spark1"), NodeName("spark2")


def make_start_record(number: int, name: str, *nodes: NodeName, outcome: str | None = "ready") -> OperationRecord:
    shares = tuple(NodeResult(node=node, instance=name, container=f"{node}-{name}".ljust(64, "0")) for node in nodes)
    return OperationRecord(
        id=number,
        kind=OperationKind.START,
        began=0.0,
        operator="milo",
        nodes=nodes,
        profile=name,
        instance=name,
        outcome=outcome,
        shares=shares,
    )


def make_end_record(
    number: int,
    of: OperationRecord,
    kind: OperationKind = OperationKind.STOP,
    *,
    outcome: str = "done",
    log: str | None = "x.log",
    parent: int | None = None,
) -> OperationRecord:
    shares = tuple(
        NodeResult(node=one.node, instance=one.instance, container=one.container, log=log) for one in of.shares
    )
    return OperationRecord(
        id=number, kind=kind, began=0.0, operator="milo", nodes=of.nodes, outcome=outcome, parent=parent, shares=shares
    )


def list_open_names(*operations: OperationRecord) -> list[str]:
    return [one.instance for one in find_open_starts(operations)]


def test_a_start_stands_until_it_was_stopped_from_here() -> None:
    big = make_start_record(1, "big", ONE, TWO)
    assert find_open_starts([big]) == (OpenStart("big", ((ONE, "spark1-big00"), (TWO, "spark2-big00"))),)
    assert find_open_starts([big])[0].containers_on(TWO) == ("spark2-big00",)
    assert list_open_names(make_end_record(2, big), big) == []
    assert list_open_names(make_start_record(3, "other", TWO), make_end_record(2, big), big) == ["other"]


def test_a_start_that_failed_has_ended_and_one_that_was_left_has_not() -> None:
    assert list_open_names(make_start_record(1, "a", ONE, outcome="failed")) == []
    for outcome in ("detached", "interrupted", "timed-out", None):
        assert list_open_names(make_start_record(1, "a", ONE, outcome=outcome)) == ["a"]


def test_a_stop_that_did_not_come_to_its_end_says_nothing() -> None:
    big = make_start_record(1, "big", TWO)
    assert list_open_names(make_end_record(2, big, log=None, outcome="unreachable"), big) == ["big"]


def test_what_a_switch_stopped_is_gone_only_where_the_switch_went_well() -> None:
    big = make_start_record(1, "big", TWO)
    assert list_open_names(make_end_record(2, big, OperationKind.SWITCH, outcome="ready"), big) == []
    assert list_open_names(make_end_record(2, big, OperationKind.SWITCH, outcome="failed"), big) == ["big"]
    failed = OperationRecord(
        id=2, kind=OperationKind.SWITCH, began=0.0, operator="milo", nodes=(TWO,), outcome="failed"
    )
    assert list_open_names(make_end_record(3, big, parent=2), failed, big) == ["big"]
