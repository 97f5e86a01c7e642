"""The live store: what each event changes, what it says changed, and that nothing unknown becomes a number."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.model import events
from sparkctl.model.container import ContainerState
from sparkctl.model.engine_metrics import EngineActivity, EngineMeter
from sparkctl.model.finding import FindingKind, Severity
from sparkctl.model.guard_state import GuardAction
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase, Step
from sparkctl.model.sample import (
    DiskSpace,
    Gpu,
    GpuProcess,
    MemoryReading,
    NetworkInterface,
    NodeProcess,
    RdmaLane,
    Sample,
)
from sparkctl.model.text.log_line import LogLine
from sparkctl.model.text.units import GIB
from sparkctl.model.verdict import FailureCause, Verdict
from sparkctl.monitor.store import Store, Topic, TopicKind

ONE, TWO = NodeName("spark1"), NodeName("spark2")
ID = "ab" * 32
READY = InstanceView(
    name="qwen36",
    node=ONE,
    container="sglang-qwen36",
    image="image",
    state=ContainerState.RUNNING,
    status="Up",
    ours=True,
    memory=None,
    phase=Phase.READY,
    engine="sglang",
    container_id=ID,
    port=8003,
)
NUMBERS = EngineMeter(activity=EngineActivity.DECODING, generation_rate=12.7)


def make_sample_event(ts: float, **more: object) -> events.SampleArrived:
    memory = MemoryReading(
        total=120 * GIB, available=50 * GIB, free=20 * GIB, page_cache=30 * GIB, swap_total=0, swap_free=0
    )
    held = (NodeProcess(pid=7, container=ID, resident=GIB, gpu_memory=40 * GIB),)
    gpu = Gpu(index=0, processes=(GpuProcess(7, 40 * GIB),))
    sample = Sample(sequence=1, time=ts, uptime=ts, memory=memory, processes=held, gpus=(gpu,))
    return events.SampleArrived(ts, ONE, replace(sample, **more), "boot")  # type: ignore[arg-type]


def apply_events(*some: events.Event) -> Store:
    store = Store([ONE, TWO])
    for event in some:
        store.apply_event(event)
    return store


def test_before_anything_came_everything_is_unknown() -> None:
    views = Store([ONE, TWO], 5.0).get_views()
    assert [(view.name, view.state, view.when) for view in views] == [
        (ONE, NodeState.UNKNOWN, 5.0),
        (TWO, NodeState.UNKNOWN, 5.0),
    ]
    assert views[0].memory is None
    assert views[0].instances == ()


def test_a_sample_proves_the_node_and_goes_into_its_history() -> None:
    store = Store([ONE])
    assert store.apply_event(make_sample_event(10.0)) == (Topic(TopicKind.STATE, ONE), Topic(TopicKind.SAMPLE, ONE))
    assert store.apply_event(make_sample_event(11.0)) == (Topic(TopicKind.SAMPLE, ONE),)
    assert store.apply_event(make_sample_event(11.0)) == ()  # not news
    view = store.get_view(ONE)
    assert (view.state, view.when) == (NodeState.OK, 11.0)
    assert view.memory is not None
    assert view.memory.free == 20 * GIB
    assert store.get_record(ONE).series.span_seconds == 1.0


def test_page_cache_is_in_nobodys_way_once_the_engine_is_ready() -> None:
    low = MemoryReading(
        total=120 * GIB, available=60 * GIB, free=3 * GIB, page_cache=57 * GIB, swap_total=0, swap_free=0
    )
    loads = replace(READY, phase=Phase.LOADING)
    store = apply_events(events.ContainersListed(ts=1.0, node=ONE, instances=(loads,)))
    for ts in range(2, 20, 2):
        store.apply_event(make_sample_event(float(ts), memory=low))
    assert [found.kind for found in store.get_view(ONE).findings] == [FindingKind.PAGE_CACHE]
    store.apply_event(events.ContainersListed(ts=19.0, node=ONE, instances=(READY,)))
    assert not store.get_view(ONE).findings


def test_an_instance_is_what_docker_the_probe_and_its_engine_say() -> None:
    store = apply_events(make_sample_event(1.0), events.ContainersListed(ts=2.0, node=ONE, instances=(READY,)))
    assert store.apply_event(
        events.MeterArrived(ts=3.0, node=ONE, container=ID, numbers=NUMBERS, metrics_hint="hint")
    ) == (Topic(TopicKind.NUMBERS, ONE),)
    (one,) = store.get_view(ONE).instances
    assert (one.memory, one.numbers, one.metrics_hint, one.phase) == (41 * GIB, NUMBERS, "hint", Phase.READY)
    store.apply_event(make_sample_event(4.0, gpus=None, gpu_silent_for=14.0))
    assert store.get_view(ONE).instances[0].memory is None, "what the CPU's side holds is not all"
    store.apply_event(make_sample_event(5.0, processes=None))
    assert store.get_view(ONE).instances[0].memory is None  # not known any more, and not held


def test_figures_end_with_readiness_and_with_the_connection() -> None:
    result = (
        events.ContainersListed(ts=2.0, node=ONE, instances=(READY,)),
        events.MeterArrived(ts=3.0, node=ONE, container=ID, numbers=NUMBERS),
    )
    restarted = events.ContainersListed(ts=4.0, node=ONE, instances=(replace(READY, phase=Phase.LOADING),))
    assert apply_events(*result, make_sample_event(1.0), restarted).get_view(ONE).instances[0].numbers is None
    lost = events.NodeStateChanged(ts=4.0, node=ONE, state=NodeState.UNREACHABLE)
    assert (
        apply_events(*result, make_sample_event(1.0), lost, make_sample_event(5.0)).get_view(ONE).instances[0].numbers
        is None
    )


def test_where_docker_does_not_say_the_last_list_stays_and_why_is_told() -> None:
    silent = events.ContainersListed(ts=9.0, node=ONE, known=False, detail="no answer", hint="systemctl status docker")
    view = apply_events(
        make_sample_event(1.0), events.ContainersListed(ts=2.0, node=ONE, instances=(READY,)), silent
    ).get_view(ONE)
    assert (view.docker_known, view.detail, view.hint) == (False, "no answer", "systemctl status docker")
    assert ([one.name for one in view.instances], view.instances_seen) == (["qwen36"], 2.0)


def test_a_node_that_is_away_shows_why_and_keeps_what_it_did() -> None:
    away = events.NodeStateChanged(
        ts=5.0, node=ONE, state=NodeState.STARVED, detail="no banner", attempt=3, next_try=4.5, hint="wait"
    )
    store = apply_events(make_sample_event(1.0), events.ContainersListed(ts=2.0, node=ONE, instances=(READY,)), away)
    view = store.get_view(ONE)
    assert (view.state, view.detail, view.hint) == (
        NodeState.STARVED,
        "no banner; attempt 3, next try in 4.5 s",
        "wait",
    )
    assert (view.sample, view.instances) == (None, ())
    assert store.get_last_known_view(ONE).sample is not None
    assert store.apply_event(replace(away, ts=6.0)) == ()
    assert store.apply_event(replace(away, attempt=4)) == (Topic(TopicKind.STATE, ONE),)


def test_a_start_is_seen_before_docker_lists_it_and_a_newer_list_wins() -> None:
    loading = events.PhaseChanged(ts=3.0, node=ONE, instance="qwen36", phase=Phase.LOADING, step=Step("weights", 3, 12))
    store = apply_events(make_sample_event(1.0))
    assert store.apply_event(loading) == (Topic(TopicKind.PHASE, ONE),)
    (one,) = store.get_view(ONE).instances
    assert (one.name, one.phase, one.step, one.state) == (
        "qwen36", Phase.LOADING, Step("weights", 3, 12), ContainerState.UNKNOWN,
    )  # fmt: skip
    older = events.ContainersListed(ts=2.5, node=ONE, instances=(READY,))
    assert apply_events(make_sample_event(1.0), loading, older).get_view(ONE).instances[0].phase is Phase.LOADING
    newer = events.ContainersListed(ts=4.0, node=ONE, instances=(READY,))
    assert [one.phase for one in apply_events(make_sample_event(1.0), loading, newer).get_view(ONE).instances] == [
        Phase.READY
    ]


def test_a_foreign_container_of_the_same_name_has_no_phase() -> None:
    foreign = replace(READY, ours=False, phase=None)
    loading = events.PhaseChanged(ts=3.0, node=ONE, instance="qwen36", phase=Phase.LOADING)
    shown = (
        apply_events(make_sample_event(1.0), events.ContainersListed(ts=2.0, node=ONE, instances=(foreign,)), loading)
        .get_view(ONE)
        .instances
    )
    assert [(one.ours, one.phase) for one in shown] == [(False, None), (True, Phase.LOADING)]


def test_lines_of_a_log_are_news_and_an_empty_batch_is_none() -> None:
    store = apply_events(make_sample_event(1.0))
    line = LogLine(when="2026-05-01T10:00:01Z", text="x", number=1)
    assert store.apply_event(events.LogArrived(ts=1.0, node=ONE, instance="qwen36", lines=(line,))) == (
        Topic(TopicKind.LOG, ONE),
    )
    assert store.apply_event(events.LogArrived(ts=2.0, node=ONE, instance="qwen36", lines=(), gap=True)) == ()


def test_the_last_finding_of_each_check_stands() -> None:
    bad = events.FindingReported(ts=1.0, node=ONE, check="swap", severity=Severity.WARNING, message="in use")
    good = events.FindingReported(ts=2.0, node=ONE, check="swap", severity=Severity.GOOD, message="empty again")
    assert list(apply_events(bad, good).get_record(ONE).reported.values()) == [good]
    assert not apply_events(bad).get_record(TWO).reported


def test_a_view_tells_what_is_wrong_the_worst_first() -> None:
    stuck = Gpu(index=0, busy=0.96, sm_clock=799, sm_clock_max=3003, power=19.5, celsius=52, reasons=0)
    result = events.FindingReported(
        ts=0.5, node=ONE, check="difference", severity=Severity.WARNING, message="driver 1 here, 2 there"
    )
    well = events.FindingReported(ts=0.6, node=ONE, check="min_free_kbytes", severity=Severity.GOOD, message="fine")
    strange = events.FindingReported(
        ts=0.7, node=ONE, check="of-a-later-version", severity=Severity.PROBLEM, message="who knows"
    )
    store = apply_events(result, well, strange, *(make_sample_event(float(ts), gpus=(stuck,)) for ts in range(1, 25)))
    found = store.get_view(ONE).findings
    assert [one.kind for one in found] == [FindingKind.STUCK_CLOCK, FindingKind.DIFFERENCE]
    store.apply_event(events.NodeStateChanged(ts=30.0, node=ONE, state=NodeState.UNREACHABLE, detail="gone"))
    assert store.get_view(ONE).findings == (), "of a node that does not answer nothing is known"


def test_what_was_asked_and_is_shown_by_the_samples_is_told_once() -> None:
    stuck = Gpu(index=0, busy=0.96, sm_clock=799, sm_clock_max=3003, power=19.5, celsius=52, reasons=0)
    asked = events.FindingReported(
        ts=0.5, node=ONE, check="stuck-clock", severity=Severity.WARNING, message="as doctor has it"
    )
    samples = [make_sample_event(float(ts), gpus=(stuck,)) for ts in range(1, 25)]
    assert [one.summary for one in apply_events(asked, *samples[:2]).get_view(ONE).findings] == ["as doctor has it"]
    live = apply_events(*samples).get_view(ONE).findings
    assert [one.kind for one in live] == [FindingKind.STUCK_CLOCK]
    assert apply_events(asked, *samples).get_view(ONE).findings == live, "the live one wins"
    other = events.FindingReported(
        ts=0.5, node=ONE, check="stuck-clock", severity=Severity.WARNING, message="of one instance", instance="qwen36"
    )
    assert len(apply_events(other, *samples).get_view(ONE).findings) == 2, "this is about another subject"


def test_a_finding_of_a_monitor_goes_away_where_it_begins_anew() -> None:
    def told(check: str, instance: str | None = None) -> events.FindingReported:
        return events.FindingReported(
            ts=1.0, node=ONE, check=check, severity=Severity.WARNING, message=check, instance=instance
        )

    kinds = ("swappiness", "min_free_kbytes", "known-bad", "last-boot", "drop-caches")
    store = apply_events(*map(told, kinds), told("not-generating", "qwen36"))
    store.apply_event(events.NodeStateChanged(ts=2.0, node=ONE, state=NodeState.UNKNOWN, detail="no sample for 9 s"))
    store.apply_event(events.NodeStateChanged(ts=2.5, node=ONE, state=NodeState.UNREACHABLE, detail="gone"))
    assert len(store.get_record(ONE).reported) == 6, "the same monitor goes on"
    store.apply_event(events.NodeStateChanged(ts=3.0, node=ONE, state=NodeState.UNKNOWN))
    assert [one.check for one in store.get_record(ONE).reported.values()] == ["drop-caches"], "doctor alone can tell"


def test_a_finding_of_an_instance_ends_with_it() -> None:
    result = events.FindingReported(
        ts=1.0, node=ONE, check="not-generating", severity=Severity.PROBLEM, message="hangs", instance="qwen36"
    )
    alive = events.ContainersListed(ts=2.0, node=ONE, instances=(READY,))
    gone = events.ContainersListed(ts=3.0, node=ONE)
    store = apply_events(make_sample_event(0.5), result, alive)
    assert [one.summary for one in store.get_view(ONE).findings] == ["hangs"]
    store.apply_event(replace(gone, known=False))
    assert len(store.get_view(ONE).findings) == 1, "not known is not gone"
    store.apply_event(gone)
    assert store.get_view(ONE).findings == ()


def test_what_samples_have_judged_since_a_doctor_is_as_they_say() -> None:
    asked = events.FindingReported(ts=1.0, node=ONE, check="disk", severity=Severity.PROBLEM, message="2 GiB free")
    enough, unread = DiskSpace("/", 900 * GIB, 800 * GIB), DiskSpace("/")
    for when, disks, shown in ((5.0, enough, 1), (100.0, unread, 1), (100.0, enough, 0)):
        view = apply_events(asked, make_sample_event(when, disks=(disks,))).get_view(ONE)
        assert len(view.findings) == shown


def test_what_two_nodes_show_beside_each_other_is_told_on_both() -> None:
    def at(node: NodeName, network: str) -> events.SampleArrived:
        port, link = (
            RdmaLane(name="rocep1s0f0", port="1", interface="enp1s0f0np0"),
            NetworkInterface(name="enp1s0f0np0", carrier=True, networks=(network,)),
        )
        return replace(make_sample_event(1.0, rdma=(port,), links=(link,)), node=node)

    store = apply_events(at(ONE, "192.168.200.0/24"), at(TWO, "10.0.0.0/24"))
    assert [[one.kind for one in view.findings] for view in store.get_views()] == [[FindingKind.FABRIC_ROUTE]] * 2
    assert not apply_events(at(ONE, "10.0.0.0/24"), at(TWO, "10.0.0.0/24")).get_view(ONE).findings
    assert not apply_events(at(ONE, "10.0.0.0/24")).get_view(ONE).findings


def test_what_docker_does_not_tell_at_the_moment_is_no_evidence() -> None:
    restarting = replace(READY, state=ContainerState.RESTARTING)
    listed = events.ContainersListed(ts=1.0, node=ONE, instances=(restarting,))
    assert [one.kind for one in apply_events(listed, make_sample_event(2.0)).get_view(ONE).findings] == [
        FindingKind.RESTART_LOOP
    ]
    silent = events.ContainersListed(ts=3.0, node=ONE, known=False, detail="no answer")
    assert not apply_events(listed, make_sample_event(2.0), silent, make_sample_event(4.0)).get_view(ONE).findings


@pytest.mark.parametrize(
    "event",
    [
        events.WarningEmitted(1.0, None, "m"),
        events.CommandEnded(ts=1.0, outcome=events.Outcome.DONE, exit_code=0, seconds=1.0, node=ONE),
    ],
)
def test_messages_change_no_view(event: events.Event) -> None:
    store = Store([ONE])
    before = store.get_views()
    assert store.apply_event(event) == ()
    assert store.get_views() == before


def test_a_look_at_memory_shows_until_a_sample_comes() -> None:
    reading = events.MemorySampled(
        2.0, ONE, MemoryReading(total=120, available=100, free=60, page_cache=38, swap_total=16, swap_free=15)
    )
    up = events.NodeStateChanged(ts=1.0, node=ONE, state=NodeState.OK)
    bar = apply_events(up, reading).get_view(ONE).memory
    assert bar is not None
    assert (bar.free, bar.gpu_processes) == (60, None)
    sampled = apply_events(up, reading, make_sample_event(3.0)).get_view(ONE).memory
    assert sampled is not None
    assert sampled.free == 20 * GIB


def test_an_unknown_node_is_added_by_its_first_event() -> None:
    store = Store()
    store.apply_event(make_sample_event(1.0))
    assert store.nodes == (ONE,)


def test_a_recorded_kill_is_told_with_the_memory_it_saw_and_its_reason() -> None:
    reading = events.MemorySampled(
        1.5,
        ONE,
        MemoryReading(
            total=120 * GIB, available=100 * GIB, free=60 * GIB, page_cache=38 * GIB, swap_total=0, swap_free=0
        ),
    )
    up = events.NodeStateChanged(ts=1.0, node=ONE, state=NodeState.OK)
    failed = events.PhaseChanged(ts=3.0, node=ONE, instance="qwen36", phase=Phase.FAILED, step=Step("weights", 3, 12))
    killed = events.GuardActed(
        ts=2.0,
        node=ONE,
        what=GuardAction.KILLED,
        why="266 MiB are available",
        at=2.0,
        instance="qwen36",
        container=ID,
        available=266 << 20,
        free=200 << 20,
    )
    store = apply_events(up, reading, failed)
    assert set(store.apply_event(killed)) == {Topic(TopicKind.MEMORY, ONE), Topic(TopicKind.PHASE, ONE)}
    view = store.get_view(ONE)
    assert view.memory is not None
    assert (view.memory.available, view.memory.free) == (266 << 20, 200 << 20)
    assert view.instances[0].detail == "stopped by the guard: 266 MiB are available"
    verdict = Verdict(
        cause=FailureCause.GUARD_STOPPED, summary="The guard stopped qwen36.", evidence=(), remedy="Lower it."
    )
    store.apply_event(
        events.CommandEnded(
            ts=4.0,
            outcome=events.Outcome.FAILED,
            exit_code=1,
            seconds=3.0,
            node=ONE,
            instance="qwen36",
            verdict=verdict,
        )
    )
    assert (store.get_view(ONE).instances[0].detail, store.get_view(ONE).instances[0].step) == (
        "The guard stopped qwen36.",
        None,
    )


def test_what_a_guard_watches_is_known_while_the_node_answers() -> None:
    store = apply_events(events.NodeStateChanged(ts=1.0, node=ONE, state=NodeState.OK))
    assert store.get_record(ONE).guarded is None
    assert store.apply_event(events.GuardStatusChanged(2.0, ONE, ("qwen36",))) == (Topic(TopicKind.GUARD, ONE),)
    assert store.apply_event(events.GuardStatusChanged(3.0, ONE, ("qwen36",))) == ()
    assert store.get_record(ONE).guarded == ("qwen36",)
    store.apply_event(events.NodeStateChanged(ts=4.0, node=ONE, state=NodeState.UNREACHABLE))
    assert store.get_record(ONE).guarded is None


def test_that_no_guard_runs_is_not_known_any_more_once_something_begins_to_start() -> None:
    def told(ts: float, phase: Phase) -> events.PhaseChanged:
        return events.PhaseChanged(
            ts=ts, node=ONE, instance="qwen36", phase=phase, step=None, elapsed=0.0, expected=None
        )

    off = (make_sample_event(1.0), events.GuardStatusChanged(2.0, ONE, ()))
    assert apply_events(*off).get_record(ONE).guarded == ()
    store = apply_events(*off, told(3.0, Phase.CREATING))
    assert store.get_record(ONE).guarded is None
    store.apply_event(events.GuardStatusChanged(4.0, ONE, ()))
    store.apply_event(told(5.0, Phase.LOADING))
    assert store.get_record(ONE).guarded == (), "it was asked since"
    somebodys = (
        events.ContainersListed(ts=3.0, node=ONE, instances=()),
        events.ContainersListed(ts=8.0, node=ONE, instances=(READY,)),
    )
    assert apply_events(*off, *somebodys).get_record(ONE).guarded is None
    assert apply_events(*off, somebodys[1]).get_record(ONE).guarded == (), "it was there when the guard was asked for"


def test_a_guard_that_acts_is_there() -> None:
    acts = events.GuardActed(
        ts=3.0, node=ONE, what=GuardAction.DROPPED, why="weights load", at=3.0, instance="qwen36", container=ID
    )
    store = apply_events(make_sample_event(1.0), events.GuardStatusChanged(2.0, ONE, ()))
    assert Topic(TopicKind.GUARD, ONE) in store.apply_event(acts)
    assert store.get_record(ONE).guarded == ("qwen36",)
    store.apply_event(replace(acts, ts=4.0))
    assert store.get_record(ONE).guarded == ("qwen36",)
    ended = replace(acts, what=GuardAction.ENDED)
    assert (
        apply_events(make_sample_event(1.0), events.GuardStatusChanged(2.0, ONE, ()), ended).get_record(ONE).guarded
        == ()
    )


def test_a_new_container_has_no_line_of_the_one_before() -> None:
    store = Store([ONE, TWO])
    for node in (ONE, TWO):
        store.apply_event(
            events.LogArrived(
                ts=1.0, node=node, instance="qwen36", lines=(LogLine(when="", text=f"failed on {node}", number=1),)
            )
        )
    store.apply_event(events.PhaseChanged(ts=2.0, node=ONE, instance="qwen36", phase=Phase.CREATING))
    assert [line.text for line in store.log_lines.lines] == ["failed on spark2"]
