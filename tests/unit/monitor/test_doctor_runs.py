"""What a doctor run on a node has found so far, beside what the one before it found."""

from __future__ import annotations

from sparkctl.model.events import CheckCompleted, Event, FindingReported
from sparkctl.model.finding import Severity
from sparkctl.model.node import NodeName
from sparkctl.monitor.activity import DoctorRuns, JobEnded, JobStarted
from sparkctl.monitor.store import Store

ONE, TWO = NodeName("spark1"), NodeName("spark2")


def make_finding_event(
    check: str, ts: float, node: NodeName = ONE, severity: Severity = Severity.GOOD
) -> FindingReported:
    return FindingReported(ts=ts, node=node, check=check, severity=severity, message=f"{check} at {ts:.0f}")


def start_doctor(store: Store, now: float, *nodes: NodeName, words: tuple[str, ...] = ("doctor",)) -> None:
    store.apply_event(JobStarted(ts=now, job=1, verb="doctor", words=words, nodes=nodes))


def play_events(store: Store, now: float, *events: Event) -> None:
    start_doctor(store, now, ONE, TWO)
    for event in events:
        store.apply_event(event, 1)
    store.apply_event(JobEnded(now + 50, 1))


def list_messages(runs: DoctorRuns) -> list[str]:
    return [one.message for one in runs.all_findings]


def test_a_node_is_through_by_itself_and_a_comparison_may_follow() -> None:
    store = Store()
    start_doctor(store, 100, ONE, TWO)
    runs = store.jobs.doctor
    assert runs.running_nodes == (ONE, TWO)
    assert store.jobs.list_running_verbs(ONE) == ("doctor",)
    store.apply_event(make_finding_event("docker", 101), 1)
    assert list_messages(runs) == ["docker at 101"]
    store.apply_event(CheckCompleted(102, ONE, 2.0), 1)
    assert (runs.running_nodes, runs.get_last_run_time(ONE), runs.get_last_run_time(TWO)) == ((TWO,), 102, None)
    store.apply_event(make_finding_event("difference", 103), 1)
    store.apply_event(JobEnded(104, 1))
    assert list_messages(runs) == ["docker at 101", "difference at 103"]
    assert runs.running_nodes == (), "left before it was through: there was no run"
    assert runs.get_last_run_time(TWO) is None


def test_what_was_found_before_stays_until_the_new_run_is_through() -> None:
    store = Store()
    runs = store.jobs.doctor
    play_events(
        store,
        100,
        make_finding_event("docker", 101),
        make_finding_event("swap", 101),
        CheckCompleted(102, ONE, 2.0),
        CheckCompleted(102, TWO, 2.0),
    )
    start_doctor(store, 200, ONE)
    assert (runs.running_nodes, runs.get_last_run_time(ONE)) == ((ONE,), 102)
    store.apply_event(make_finding_event("docker", 201), 1)
    assert list_messages(runs) == ["docker at 201", "swap at 101"]
    store.apply_event(CheckCompleted(202, ONE, 2.0), 1)
    assert list_messages(runs) == ["docker at 201"], "no swap any more"
    assert runs.get_last_run_time(ONE) == 202


def test_an_aborted_examination_keeps_the_earlier_age() -> None:
    store = Store()
    runs = store.jobs.doctor
    play_events(
        store,
        100,
        make_finding_event("docker", 101),
        make_finding_event("swap", 101),
        CheckCompleted(102, ONE, 2.0),
        CheckCompleted(102, TWO, 2.0),
    )
    play_events(store, 200, make_finding_event("docker", 201))
    assert (runs.running_nodes, runs.get_last_run_time(ONE)) == ((), 102)
    assert list_messages(runs) == ["docker at 201", "swap at 101"]


def test_a_connection_that_breaks_meanwhile_was_not_good() -> None:
    store = Store()
    broken = make_finding_event("connection", 102, severity=Severity.PROBLEM)
    play_events(
        store,
        100,
        make_finding_event("connection", 101),
        broken,
        CheckCompleted(102, ONE, 2.0),
        CheckCompleted(102, TWO, 2.0),
    )
    assert store.jobs.doctor.all_findings == (broken,)


def test_findings_of_others_are_not_those_of_the_run() -> None:
    store = Store()
    start_doctor(store, 100, ONE)
    store.apply_event(make_finding_event("swap", 101))
    assert list_messages(store.jobs.doctor) == []


def test_a_recorded_check_owns_the_findings_since_it_began() -> None:
    store = Store()
    for event in (make_finding_event("swap", 99), make_finding_event("docker", 101), CheckCompleted(102, ONE, 2.0)):
        store.apply_event(event)
    assert list_messages(store.jobs.doctor) == ["docker at 101"]
    store.clear()
    assert list_messages(store.jobs.doctor) == []


def test_collecting_files_is_no_examination() -> None:
    store = Store()
    start_doctor(store, 100, ONE, words=("doctor", "--collect"))
    assert store.jobs.doctor.running_nodes == ()
    assert store.jobs.list_running_verbs(ONE) == ()
