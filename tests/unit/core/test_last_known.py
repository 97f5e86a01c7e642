"""What should still stand on a node that is silent: what was started from here and did not end since."""

from __future__ import annotations

from sparkctl.core.last_known import Started, last_known
from sparkctl.model.history import Kind, Operation, Share
from sparkctl.model.node import NodeName

ONE, TWO = NodeName("spark1"), NodeName("spark2")


def start(number: int, name: str, *nodes: NodeName, outcome: str | None = "ready") -> Operation:
    shares = tuple(Share(node, name, container=f"{node}-{name}".ljust(64, "0")) for node in nodes)
    return Operation(number, Kind.START, 0.0, "milo", nodes, name, name, outcome=outcome, shares=shares)


def end(number: int, of: Operation, kind: Kind = Kind.STOP, *, outcome: str = "done", log: str | None = "x.log",
        parent: int | None = None) -> Operation:  # fmt: skip
    shares = tuple(Share(one.node, one.instance, container=one.container, log=log) for one in of.shares)
    return Operation(number, kind, 0.0, "milo", of.nodes, outcome=outcome, parent=parent, shares=shares)


def names(*operations: Operation) -> list[str]:
    return [one.instance for one in last_known(operations)]


def test_a_start_stands_until_it_was_stopped_from_here() -> None:
    big = start(1, "big", ONE, TWO)
    assert last_known([big]) == (Started("big", ((ONE, "spark1-big00"), (TWO, "spark2-big00"))),)
    assert last_known([big])[0].on(TWO) == ("spark2-big00",)
    assert names(end(2, big), big) == []
    assert names(start(3, "other", TWO), end(2, big), big) == ["other"]


def test_a_start_that_failed_has_ended_and_one_that_was_left_has_not() -> None:
    assert names(start(1, "a", ONE, outcome="failed")) == []
    for outcome in ("detached", "interrupted", "timed-out", None):
        assert names(start(1, "a", ONE, outcome=outcome)) == ["a"]


def test_a_stop_that_did_not_come_to_its_end_says_nothing() -> None:
    big = start(1, "big", TWO)
    assert names(end(2, big, log=None, outcome="unreachable"), big) == ["big"]


def test_what_a_switch_stopped_is_gone_only_where_the_switch_went_well() -> None:
    big = start(1, "big", TWO)
    assert names(end(2, big, Kind.SWITCH, outcome="ready"), big) == []
    assert names(end(2, big, Kind.SWITCH, outcome="failed"), big) == ["big"]
    failed = Operation(2, Kind.SWITCH, 0.0, "milo", (TWO,), outcome="failed")
    assert names(end(3, big, parent=2), failed, big) == ["big"]
