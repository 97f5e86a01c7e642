"""What a look at a node has found so far, beside what the one before it found."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from sparkctl.model.events import CheckCompleted, Event, FindingReported
from sparkctl.model.finding import Severity
from sparkctl.model.node import NodeName
from sparkctl.tui.operation_trackers import DoctorRuns

ONE, TWO = NodeName("spark1"), NodeName("spark2")


def make_finding_event(
    check: str, ts: float, node: NodeName = ONE, severity: Severity = Severity.GOOD
) -> FindingReported:
    return FindingReported(ts=ts, node=node, check=check, severity=severity, message=f"{check} at {ts:.0f}")


async def stream_events(*events: Event) -> AsyncGenerator[Event, None]:
    for event in events:
        yield event


async def play_events(seen: DoctorRuns, now: float, *events: Event) -> None:
    seen.start_run((ONE, TWO), now)
    assert [event async for event in seen.record_findings(stream_events(*events), (ONE, TWO))] == list(events)


def list_messages(seen: DoctorRuns) -> list[str]:
    return [one.message for one in seen.all_findings]


async def test_a_node_is_through_by_itself_and_a_comparison_may_follow() -> None:
    seen = DoctorRuns()
    seen.start_run((ONE, TWO), 100)
    events = seen.record_findings(
        stream_events(
            make_finding_event("docker", 101), CheckCompleted(102, ONE, 2.0), make_finding_event("difference", 103)
        ),
        (ONE, TWO),
    )
    assert seen.running_nodes == (ONE, TWO)
    await anext(events)
    assert list_messages(seen) == ["docker at 101"]
    await anext(events)
    assert (seen.running_nodes, seen.get_last_run_time(ONE), seen.get_last_run_time(TWO)) == ((TWO,), 102, None)
    assert [event async for event in events]
    assert list_messages(seen) == ["docker at 101", "difference at 103"]
    assert seen.running_nodes == (), "left before it was through: there was no look"
    assert seen.get_last_run_time(TWO) is None


async def test_what_was_found_before_stays_until_the_new_look_is_through() -> None:
    seen = DoctorRuns()
    await play_events(
        seen,
        100,
        make_finding_event("docker", 101),
        make_finding_event("swap", 101),
        CheckCompleted(102, ONE, 2.0),
        CheckCompleted(102, TWO, 2.0),
    )
    seen.start_run((ONE,), 200)
    assert (seen.running_nodes, seen.get_last_run_time(ONE)) == ((ONE,), 102)
    events = seen.record_findings(
        stream_events(make_finding_event("docker", 201), CheckCompleted(202, ONE, 2.0)), (ONE,)
    )
    await anext(events)
    assert list_messages(seen) == ["docker at 201", "swap at 101"]
    assert [event async for event in events]
    assert list_messages(seen) == ["docker at 201"], "no swap any more"
    assert seen.get_last_run_time(ONE) == 202


async def test_an_aborted_examination_keeps_the_earlier_age() -> None:
    seen = DoctorRuns()
    await play_events(
        seen,
        100,
        make_finding_event("docker", 101),
        make_finding_event("swap", 101),
        CheckCompleted(102, ONE, 2.0),
        CheckCompleted(102, TWO, 2.0),
    )
    await play_events(seen, 200, make_finding_event("docker", 201))
    assert (seen.running_nodes, seen.get_last_run_time(ONE)) == ((), 102)
    assert list_messages(seen) == ["docker at 201", "swap at 101"]


async def test_a_connection_that_breaks_meanwhile_was_not_good() -> None:
    seen = DoctorRuns()
    broken = make_finding_event("connection", 102, severity=Severity.PROBLEM)
    await play_events(
        seen,
        100,
        make_finding_event("connection", 101),
        broken,
        CheckCompleted(102, ONE, 2.0),
        CheckCompleted(102, TWO, 2.0),
    )
    assert seen.all_findings == (broken,)
