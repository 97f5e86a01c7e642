"""What a switch has stopped and keeps has not failed, as long as the journal says so; what is down on a way back may have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.model import events
from sparkctl.model.container import ContainerState
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.sample import MemoryReading, Sample
from sparkctl.model.switch_plan import JournalPresence, SwitchJournal, SwitchJournalStatus, SwitchStep
from sparkctl.monitor.node_views import NodeStatusView
from sparkctl.monitor.store import Store
from sparkctl.views.status_view import format_status

ONE, TWO = NodeName("spark1"), NodeName("spark2")
OLD, NEW = "ab" * 32, "cd" * 32
ENDED = InstanceView(
    name="minimax-m27",
    node=TWO,
    container="vllm-minimax-m27",
    image="image",
    state=ContainerState.EXITED,
    status="Exited (137) 3 seconds ago",
    ours=True,
    memory=None,
    phase=Phase.FAILED,
    detail="it was killed",
    container_id=OLD,
    rank="1/2",
    nodes=(ONE, TWO),
)
COMES = replace(
    ENDED, state=ContainerState.RUNNING, phase=Phase.LOADING, container_id=NEW, status="Up", detail=None, rank=None
)
MEMORY = MemoryReading(total=120, available=100, free=100, page_cache=0, swap_total=0, swap_free=0)
NONE = SwitchJournalStatus(JournalPresence.NONE)


def make_journal_status(step: SwitchStep = SwitchStep.STARTING, *, is_held: bool = True) -> SwitchJournalStatus:
    journal = SwitchJournal(
        id="0" * 12,
        operator="milo@desk",
        since=0.0,
        step=step,
        instance="qwen36",
        words=("qwen36",),
        profile_hash="h",
        nodes=(ONE,),
        stops=("minimax-m27",),
        old=((TWO, OLD),),
    )
    return SwitchJournalStatus(JournalPresence.READ, journal, is_held)


def list_shown_phases(*some: events.Event) -> list[tuple[str, Phase | None, bool]]:
    store = Store([TWO])
    store.apply_event(events.SampleArrived(1.0, TWO, Sample(sequence=1, time=1.0, uptime=1.0, memory=MEMORY), "boot"))
    for event in some:
        store.apply_event(event)
    return [(one.name, one.phase, one.is_kept) for one in store.get_view(TWO).instances]


def make_container_list(ts: float, *instances: InstanceView) -> events.ContainersListed:
    return events.ContainersListed(ts=ts, node=TWO, instances=instances)


def make_phase_event(ts: float, phase: Phase) -> events.PhaseChanged:
    return events.PhaseChanged(
        ts=ts, node=TWO, instance="minimax-m27", phase=phase, step=None, elapsed=0.0, expected=None
    )


FAILED, KEPT = ("minimax-m27", Phase.FAILED, False), ("minimax-m27", Phase.STOPPED, True)


def test_a_kept_container_stays_stopped_until_the_list_after_the_journal() -> None:
    assert list_shown_phases(make_container_list(2.0, ENDED)) == [FAILED]
    found, gone = (
        events.SwitchJournalReported(1.5, TWO, make_journal_status()),
        events.SwitchJournalReported(3.0, TWO, NONE),
    )
    assert list_shown_phases(found, make_container_list(2.0, ENDED)) == [KEPT]
    assert list_shown_phases(make_container_list(2.0, ENDED), found) == [KEPT]
    assert list_shown_phases(found, make_container_list(2.0, ENDED), gone) == [KEPT]
    assert list_shown_phases(found, make_container_list(2.0, ENDED), gone, make_container_list(4.0, ENDED)) == [FAILED]


@pytest.mark.parametrize(
    ("step", "is_held", "phase"),
    [
        (SwitchStep.STARTING, False, Phase.STOPPED), (SwitchStep.LEFT, False, Phase.STOPPED),
        (SwitchStep.RESTORING, True, Phase.STOPPED), (SwitchStep.RESTORING, False, Phase.FAILED),
    ],
)  # fmt: skip
def test_after_a_broken_rollback_a_stopped_container_may_have_failed(
    step: SwitchStep, is_held: bool, phase: Phase
) -> None:
    found = events.SwitchJournalReported(1.5, TWO, make_journal_status(step, is_held=is_held))
    assert [one[1] for one in list_shown_phases(found, make_container_list(2.0, ENDED))] == [phase]


def test_stop_events_and_a_new_container_of_the_same_name_count() -> None:
    found = events.SwitchJournalReported(1.5, TWO, make_journal_status())
    assert list_shown_phases(found, make_container_list(2.0, ENDED), make_phase_event(2.5, Phase.STOPPING)) == [
        ("minimax-m27", Phase.STOPPING, True)
    ]
    assert list_shown_phases(found, make_container_list(2.0, ENDED), make_phase_event(2.5, Phase.STOPPED)) == [KEPT]
    new = [("minimax-m27", Phase.CREATING, False)]
    assert list_shown_phases(found, make_container_list(2.0, ENDED), make_phase_event(2.5, Phase.CREATING)) == new
    assert list_shown_phases(found, make_container_list(2.0, COMES, ENDED)) == [("minimax-m27", Phase.LOADING, False)]
    failed = replace(COMES, state=ContainerState.EXITED, phase=Phase.FAILED)
    assert list_shown_phases(found, make_container_list(2.0, failed, ENDED)) == [FAILED]


def test_status_says_what_it_is_kept_for_and_that_nothing_is_wrong_with_it() -> None:
    kept = replace(ENDED, phase=Phase.STOPPED, detail=None, is_kept=True)
    node = NodeStatusView(
        name=TWO, state=NodeState.OK, when=0.0, memory=None, instances=(kept,), switch=make_journal_status()
    )
    assert node.is_healthy
    (line,) = [line for line in format_status([node]) if "minimax-m27" in line]
    assert line.split("   ") == [
        "",
        " ○ minimax-m27",
        "kept",
        "—",
        "rank 1 of 2, head on spark1",
        "Exited (137) 3 seconds ago",
        "for the way back",
    ]
