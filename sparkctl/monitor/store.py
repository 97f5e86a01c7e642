"""The live store: every event goes through `Store.apply`, and every front end reads what came of it here.

Pure: nothing is awaited, asked or written. The same events, live or from a recording, make the same state.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import singledispatchmethod

from sparkctl.model.events import (
    CachesDropped,
    CommandEnded,
    ContainersListed,
    Event,
    FactsLearned,
    FindingReported,
    GuardActed,
    GuardStatusChanged,
    LaunchPlanned,
    LogArrived,
    MemorySampled,
    MeterArrived,
    NodeStateChanged,
    PhaseChanged,
    SampleArrived,
    SwitchFound,
)
from sparkctl.model.finding import Finding, FindingKind, Severity, sort_by_severity
from sparkctl.model.guard_state import GuardAction
from sparkctl.model.instance import InstanceView
from sparkctl.model.launch_plan import LaunchPlan
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.switch_plan import SwitchJournalStatus
from sparkctl.monitor.findings.detectors import detect_across_nodes
from sparkctl.monitor.findings.slow_path import detect_slow_path
from sparkctl.monitor.kept import list_rollback_containers
from sparkctl.monitor.live_node import NodeRecord, create_node_record
from sparkctl.monitor.meter_series import MeterSeries
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.monitor.ranks import apply_head_state
from sparkctl.monitor.sample_series import SampleSeries
from sparkctl.monitor.startup_timeline import StartupTimeline, advance_timeline
from sparkctl.monitor.told_between import ReadySince, is_still_stopping, track_ready_since

_COMES = (Phase.DROPPING_CACHES, Phase.CREATING, Phase.STARTING, Phase.LOADING, Phase.WARMING)
_NOT_LISTED_YET = 60.0  # seconds that a container may be followed by its start before Docker was asked what runs


class TopicKind(StrEnum):
    """What an event can change."""

    STATE = "state"
    SAMPLE = "sample"
    MEMORY = "memory"
    INSTANCES = "instances"
    NUMBERS = "numbers"
    PHASE = "phase"
    LOG = "log"
    FINDINGS = "findings"
    GUARD = "guard"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True)
class Topic:
    """Something that is other than it was: what, of which node, of which instance where it is about one."""

    what: TopicKind
    node: NodeName
    instance: str | None = None


class Store:
    """The state of the nodes as of the last event. Nodes stand in the order given, others behind as they turn up."""

    def __init__(self, nodes: Iterable[NodeName] = (), now: float = 0.0) -> None:
        self._nodes = {name: create_node_record(name, now) for name in nodes}

    @property
    def nodes(self) -> tuple[NodeName, ...]:
        """The nodes that are known."""
        return tuple(self._nodes)

    def apply(self, event: Event) -> tuple[Topic, ...]:
        """Take in an event; return what is other than before, nothing where the event was no news."""
        if event.node is None:
            return ()
        if event.node not in self._nodes:
            self._nodes[event.node] = create_node_record(event.node, event.ts)
        live = self._nodes[event.node]
        if topics := self._apply(event, live):
            live.when = event.ts
        return topics

    def views(self) -> tuple[NodeTelemetryView, ...]:
        """Return a view of every node."""
        return tuple(self.view(name) for name in self._nodes)

    def _findings(self, name: NodeName) -> tuple[Finding, ...]:
        """Return what is wrong with a node: by its samples, beside the others, by what was asked; the worst first."""
        answering = [one for one in self._nodes.values() if one.state.state is NodeState.OK and one.arrived]
        sights = [one.build_snapshot(one.arrived.sample) for one in answering if one.arrived]
        are_all = len(sights) == len(self._nodes)
        beside = [finding for finding in detect_across_nodes(sights, are_all=are_all) if finding.node == name]
        ready = {one.name for one in self._instances(name) if one.phase is Phase.READY}
        sampled = [
            one
            for one in self._nodes[name].troubles  # as of the last sample; that it is ready may be known since
            if not (one.kind is FindingKind.PAGE_CACHE and one.instance in ready)
        ]
        shown = [*sampled, *beside, *detect_slow_path(self._instances(name))]
        newer = {(one.kind.value, one.instance) for one in shown}  # what was asked before is told again by the samples
        asked = (_finding(one) for key, one in self._nodes[name].told.items() if key not in newer)
        return sort_by_severity([*shown, *(finding for finding in asked if finding is not None)])

    def _instances(self, name: NodeName) -> tuple[InstanceView, ...]:
        """Return what stands on a node; of workers what their heads say, as far as the nodes of those answer."""
        answering = (live for live in self._nodes.values() if live.state.state is NodeState.OK)
        return apply_head_state(self._nodes[name].instances(), (one for live in answering for one in live.instances()))

    def view(self, name: NodeName) -> NodeTelemetryView:
        """Return the node as it is seen now; of one that does not answer only its state and why. Raises KeyError."""
        live = self._nodes[name]
        state = live.state
        if state.state is not NodeState.OK:
            return NodeTelemetryView(name, state.state, live.when, _words(state), state.hint)
        docker = live.docker or ContainersListed(live.when, name)
        return NodeTelemetryView(
            name, state.state, live.when, docker.detail, docker.hint, live.arrived.sample if live.arrived else None,
            self._instances(name), docker.known, live.listed.ts if live.listed else None, live.memory,
            live.arrived.ts if live.arrived else None, self._findings(name), docker.memory_bandwidth,
        )  # fmt: skip

    def get_last_known_view(self, name: NodeName) -> NodeTelemetryView:
        """Return the view with what was known last, also of a node that does not answer now. Raises KeyError.

        Its ``sampled`` and ``instances_seen`` say of when that is; what an engine did then is not in it.
        """
        live = self._nodes[name]
        if live.state.state is NodeState.OK:
            return self.view(name)
        return replace(
            self.view(name), sample=live.arrived.sample if live.arrived else None, instances=self._instances(name),
            docker_known=False, instances_seen=live.listed.ts if live.listed else None, reading=live.memory,
            sampled=live.arrived.ts if live.arrived else None,
        )  # fmt: skip

    def state(self, name: NodeName) -> NodeStateChanged:
        """Return what was last told of the connection. Raises KeyError."""
        return self._nodes[name].state

    def phase(self, name: NodeName, instance: str) -> PhaseChanged | None:
        """Return what was told of an instance's start since it was last listed, None where nothing was. Raises KeyError."""
        return self._nodes[name].phases.get(instance)

    def get_startup_timeline(self, name: NodeName, instance: str) -> StartupTimeline | None:
        """Return how the last start that was watched went, None where none was. Raises KeyError."""
        return self._nodes[name].courses.get(instance)

    def ready_since(self, name: NodeName, instance: str) -> float | None:
        """Return since when (unix seconds) an instance is ready, None where nobody saw it getting so. Raises KeyError."""
        found = self._nodes[name].ready.get(instance)
        return None if found is None else found.since

    def get_last_cache_drop(self, name: NodeName) -> CachesDropped | None:
        """Return the last drop of a node's page cache that was told, None where none was. Raises KeyError."""
        return self._nodes[name].dropped

    def plan(self, name: NodeName, instance: str) -> LaunchPlan | None:
        """Return the plan of the last start that was watched, secrets and all. Raises KeyError."""
        return self._nodes[name].plans.get(instance)

    def get_meter_series(self, name: NodeName, container: str) -> MeterSeries | None:
        """Return how the drafts of a container fared lately, None where nothing is known. Raises KeyError."""
        return self._nodes[name].drafting.get(container)

    def get_guarded_instances(self, name: NodeName) -> tuple[str, ...] | None:
        """Return which instances a guard watches there, none where none runs; None where that is not known. Raises KeyError."""
        return self._nodes[name].guarded

    def switch(self, name: NodeName) -> SwitchJournalStatus | None:
        """Return what lies there of a switch, None where that is not known. Raises KeyError."""
        return self._nodes[name].switch

    def get_sample_series(self, name: NodeName) -> SampleSeries:
        """Return what the node did in the last hours. Raises KeyError."""
        return self._nodes[name].rings

    def get_clock_offset(self, name: NodeName) -> float | None:
        """Return the seconds by which a node's clock was ahead of ours when it was last heard, its way to us taken off
        them; None where that is not known. Raises KeyError."""
        arrived = self._nodes[name].arrived
        return None if arrived is None else arrived.sample.time - arrived.ts

    def findings(self, name: NodeName) -> tuple[FindingReported, ...]:
        """Return the last finding of each check that was asked, of the node and of each instance. Raises KeyError."""
        return tuple(self._nodes[name].told.values())

    @singledispatchmethod
    def _apply(self, event: Event, live: NodeRecord) -> tuple[Topic, ...]:
        """What is left is told to the operator as it comes, and changes nothing here."""
        return ()

    @_apply.register
    def _(self, event: NodeStateChanged, live: NodeRecord) -> tuple[Topic, ...]:
        before, live.state = live.state, event
        if event.state is not NodeState.OK:
            live.numbers.clear()  # what an engine did is of that moment only
            live.guarded = None
            live.switch = None
        return () if replace(event, ts=before.ts) == before else (Topic(TopicKind.STATE, event.node),)

    @_apply.register
    def _(self, event: SampleArrived, live: NodeRecord) -> tuple[Topic, ...]:
        if not live.rings.add_sample(event.sample, event.ts, event.boot):
            return ()
        live.arrived = event
        live.troubles = live.health.detect_all(live.build_snapshot(event.sample))
        back = live.state.state is not NodeState.OK
        if back:
            live.state = NodeStateChanged(event.ts, event.node, NodeState.OK)
        news = (Topic(TopicKind.SAMPLE, event.node),)
        return (Topic(TopicKind.STATE, event.node), *news) if back else news

    @_apply.register
    def _(self, event: MemorySampled, live: NodeRecord) -> tuple[Topic, ...]:
        live.memory = event.memory
        return (Topic(TopicKind.MEMORY, event.node),)

    @_apply.register
    def _(self, event: CachesDropped, live: NodeRecord) -> tuple[Topic, ...]:
        live.memory, live.dropped = event.after, event
        return (Topic(TopicKind.MEMORY, event.node),)

    @_apply.register
    def _(self, event: ContainersListed, live: NodeRecord) -> tuple[Topic, ...]:
        live.docker, before = event, live.listed
        if event.known:
            if before is not None and _alive(event) - _alive(before):
                live.mark_guard_unknown()
            live.listed = event
            live.kept = list_rollback_containers(live.switch)
            live.phases = {
                name: phase
                for name, phase in live.phases.items()
                if phase.ts > event.ts or is_still_stopping(phase, event)
            }
            live.ready = track_ready_since(live.ready, before, event)
            ready = {one.container_id for one in event.instances if one.phase is Phase.READY}
            live.numbers = {one: numbers for one, numbers in live.numbers.items() if one in ready}
            there = {one.container_id for one in event.instances}
            live.facts = {
                one: told for one, told in live.facts.items() if one in there or told.ts > event.ts - _NOT_LISTED_YET
            }
            live.drafting = {one: trend for one, trend in live.drafting.items() if one in ready}
        return (Topic(TopicKind.INSTANCES, event.node),)

    @_apply.register
    def _(self, event: MeterArrived, live: NodeRecord) -> tuple[Topic, ...]:
        live.numbers[event.container] = event
        live.drafting.setdefault(event.container, MeterSeries()).add_meter(event.ts, event.numbers)
        listed = live.listed.instances if live.listed else ()
        names = [one.name for one in listed if one.container_id == event.container]
        return tuple(Topic(TopicKind.NUMBERS, event.node, name) for name in names)

    @_apply.register
    def _(self, event: FactsLearned, live: NodeRecord) -> tuple[Topic, ...]:
        live.facts[event.container] = event
        listed = live.listed.instances if live.listed else ()
        names = [one.name for one in listed if one.container_id == event.container]
        return tuple(Topic(TopicKind.INSTANCES, event.node, name) for name in names)

    @_apply.register
    def _(self, event: LaunchPlanned, live: NodeRecord) -> tuple[Topic, ...]:
        live.plans[event.plan.instance] = event.plan
        return (Topic(TopicKind.PHASE, event.node, event.plan.instance),)

    @_apply.register
    def _(self, event: PhaseChanged, live: NodeRecord) -> tuple[Topic, ...]:
        before = live.phases.get(event.instance)
        if event.phase in _COMES and (before is None or before.phase not in _COMES):
            live.mark_guard_unknown()
        live.phases[event.instance] = event
        if event.phase is not Phase.READY:
            live.ready.pop(event.instance, None)
        elif event.elapsed:  # none: it was so already when it was asked for
            live.ready[event.instance] = ReadySince(event.ts)
        course = advance_timeline(live.courses.get(event.instance), event)
        if course is None:
            live.courses.pop(event.instance, None)
        else:
            live.courses[event.instance] = course
        return (Topic(TopicKind.PHASE, event.node, event.instance),)

    @_apply.register
    def _(self, event: GuardActed, live: NodeRecord) -> tuple[Topic, ...]:
        topics: tuple[Topic, ...] = ()
        if live.memory is not None and event.available is not None and event.free is not None:
            live.memory = replace(live.memory, available=event.available, free=event.free)
            topics = (Topic(TopicKind.MEMORY, event.node),)
        if event.what is GuardAction.KILLED and event.instance is not None:
            topics += _ended_by(live, event.instance, f"stopped by the guard: {event.why}")
        elif (
            event.what is not GuardAction.ENDED
            and event.instance is not None
            and event.instance not in (live.guarded or ())
        ):
            live.guarded = (*(live.guarded or ()), event.instance)
            topics += (Topic(TopicKind.GUARD, event.node),)
        return topics

    @_apply.register
    def _(self, event: GuardStatusChanged, live: NodeRecord) -> tuple[Topic, ...]:
        before, live.guarded = live.guarded, event.watched
        return (Topic(TopicKind.GUARD, event.node),) if before != event.watched else ()

    @_apply.register
    def _(self, event: SwitchFound, live: NodeRecord) -> tuple[Topic, ...]:
        before, live.switch = live.switch, event.view
        live.kept = list_rollback_containers(event.view) or live.kept
        return (Topic(TopicKind.SWITCH, event.node),) if before != event.view else ()

    @_apply.register
    def _(self, event: CommandEnded, live: NodeRecord) -> tuple[Topic, ...]:
        if event.verdict is None or event.instance is None:
            return ()
        return _ended_by(live, event.instance, event.verdict.summary)

    @_apply.register
    def _(self, event: LogArrived, live: NodeRecord) -> tuple[Topic, ...]:
        return (Topic(TopicKind.LOG, event.node, event.instance),) if event.lines else ()

    @_apply.register
    def _(self, event: FindingReported, live: NodeRecord) -> tuple[Topic, ...]:
        live.told[event.check, event.instance] = event
        return (Topic(TopicKind.FINDINGS, live.name),)


def _alive(listed: ContainersListed) -> set[str | None]:
    return {one.container_id for one in listed.instances if one.ours and one.is_alive}


def _ended_by(live: NodeRecord, instance: str, why: str) -> tuple[Topic, ...]:
    """Keep why a start that was followed has ended."""
    phase = live.phases.get(instance)
    if phase is None:
        return ()
    live.phases[instance] = replace(phase, step=None, detail=why)
    return (Topic(TopicKind.PHASE, live.name, instance),)


def _finding(found: FindingReported) -> Finding | None:
    """Return what is wrong by an event; None where all is well, or of a kind that this version does not know."""
    wrong = found.severity in (Severity.PROBLEM, Severity.WARNING, Severity.NOTE)
    if not wrong or found.node is None or found.check not in set(FindingKind):
        return None
    return Finding(
        FindingKind(found.check), found.severity, found.node, found.message, found.remedy, instance=found.instance,
        evidence=found.evidence, since=found.since,
    )  # fmt: skip


def _words(state: NodeStateChanged) -> str | None:
    words = state.detail or ""
    if state.attempt is not None and state.next_try is not None:
        words += f"; attempt {state.attempt}, next try in {state.next_try:.1f} s"
    return words or None
