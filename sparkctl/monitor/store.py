"""The live store: all state is here. Every event goes through `Store.apply_event`, and every front end reads from here.

Pure: it awaits, requests and writes nothing. The same events, live or from a recording, give the same state.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace
from enum import StrEnum
from functools import singledispatchmethod

from sparkctl.model.container import ContainerState
from sparkctl.model.events import (
    CachesDropped,
    CommandEnded,
    ContainersListed,
    EngineFactsReported,
    Event,
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
    SwitchJournalReported,
    TransferProgressed,
    TunnelStateChanged,
)
from sparkctl.model.finding import Finding, FindingKind, Severity, sort_by_severity
from sparkctl.model.guard_state import GuardAction
from sparkctl.model.instance import InstanceView
from sparkctl.model.launch_plan import ContainerLabel, LaunchPlan
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.sample import MemoryBar, MemoryReading, Sample
from sparkctl.model.switch_plan import SwitchJournalStatus
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import format_clock, format_size
from sparkctl.monitor.activity import (
    QUEUED_WORDS,
    JobEnded,
    Jobs,
    JobStarted,
    NoticeBoard,
    NoticesCleared,
    NoticeShown,
    StartDiagnosed,
    SwitchHidden,
)
from sparkctl.monitor.event_log import EventLog, KernelEventLogged, RecentLogLines, StartRefused
from sparkctl.monitor.findings import NodeSnapshot
from sparkctl.monitor.findings.node_detectors import NodeDetectors, detect_across_nodes, detect_slow_path
from sparkctl.monitor.kernel_log import KernelHistory
from sparkctl.monitor.node_views import NodeTelemetryView, list_rollback_containers, mark_rollback_containers
from sparkctl.monitor.ranks import apply_dependents, apply_head_state
from sparkctl.monitor.sample_series import MeterSeries, SampleSeries
from sparkctl.monitor.startup_timeline import StartupTimeline, advance_timeline
from sparkctl.monitor.switch_progress import SwitchState

_STOP_TIMEOUT_SECONDS = 180.0  # seconds without news, after which a reported stop no longer counts
_GONE_STOP_TIMEOUT_SECONDS = 5.0  # the same once its container is gone: then news comes every second or two
_JUDGED_AFTER_SECONDS = (
    60.0  # seconds of samples after a doctor's finding: longer than any of these must last to be shown
)
# what the monitor of a node reports anew when it begins anew: the node's settings, its last boot, an engine that hangs
_MONITORED_KINDS = {
    *(FindingKind.MIN_FREE, FindingKind.SWAPPINESS, FindingKind.SETTINGS, FindingKind.EARLYOOM, FindingKind.KHO),
    *(FindingKind.KNOWN_BAD, FindingKind.LAST_BOOT, FindingKind.NOT_GENERATING),
}
_LOADING_PHASES = (Phase.STARTING, Phase.LOADING, Phase.WARMING)


@dataclass(frozen=True, slots=True)
class ReadyTime:
    """Since when (unix seconds) an instance is ready, and its container: None until it is listed."""

    since: float
    container: str | None = None


def is_still_stopping(phase: PhaseChanged, listed: ContainersListed) -> bool:
    """Tell whether a reported stop still runs: the engine answers until it ends, but is no longer ready."""
    if phase.phase is not Phase.STOPPING:
        return False
    lives = any(one.ours and one.name == phase.instance and one.is_alive for one in listed.instances)
    return listed.ts - phase.ts <= (_STOP_TIMEOUT_SECONDS if lives else _GONE_STOP_TIMEOUT_SECONDS)


def track_ready_since(
    known: dict[str, ReadyTime], before: ContainersListed | None, listed: ContainersListed
) -> dict[str, ReadyTime]:
    """Return since when each listed instance is ready: by its events, or by an earlier list that had it starting."""
    phases = {one.container_id: one.phase for one in before.instances} if before is not None else {}
    found: dict[str, ReadyTime] = {}
    for one in listed.instances:
        if not one.ours or one.phase is not Phase.READY or one.container_id is None:
            continue
        reading = known.get(one.name)
        if reading is not None and reading.container in (None, one.container_id):
            found[one.name] = replace(reading, container=one.container_id)
        elif phases.get(one.container_id) in _LOADING_PHASES:
            found[one.name] = ReadyTime(listed.ts, one.container_id)
    return found


_STOP_PHASES = (Phase.STOPPING, Phase.STOPPED)


@dataclass(slots=True, kw_only=True)
class NodeRecord:
    """All that is known of one node; ``when``: the time of its last event that changed anything."""

    name: NodeName
    state: NodeStateChanged
    when: float
    series: SampleSeries = field(default_factory=SampleSeries)
    arrived: SampleArrived | None = None
    memory: MemoryReading | None = None  # from an inspection; a sample has more
    listed: ContainersListed | None = None  # the last list that Docker answered
    docker: ContainersListed | None = None  # the last list, answered or not
    numbers: dict[str, MeterArrived] = field(default_factory=dict)  # by container id
    facts: dict[str, EngineFactsReported] = field(default_factory=dict)  # by container id
    phases: dict[str, PhaseChanged] = field(default_factory=dict)  # by instance, since the last list
    plans: dict[str, LaunchPlan] = field(default_factory=dict)  # of watched starts, secrets included, by instance
    timelines: dict[str, StartupTimeline] = field(default_factory=dict)  # of starts, by instance
    ready: dict[str, ReadyTime] = field(default_factory=dict)  # by instance, if it was seen becoming ready
    dropped: CachesDropped | None = None  # the last drop of its page cache
    drafting: dict[str, MeterSeries] = field(default_factory=dict)  # by container id
    guarded: tuple[str, ...] | None = None  # instances that a guard watches; empty: no guard runs
    switch: SwitchJournalStatus | None = None  # the switch journal on it; None: not known
    kept: tuple[str, ...] = ()  # ids of containers that the switch keeps, at the last list and since
    # findings of checks, not of samples
    reported: dict[tuple[str, str | None], FindingReported] = field(default_factory=dict)
    health: NodeDetectors = field(default_factory=NodeDetectors)
    kernel: KernelHistory = field(default_factory=KernelHistory)
    troubles: tuple[Finding, ...] = ()

    def build_snapshot(self, sample: Sample) -> NodeSnapshot:
        """Return the input of the detectors."""
        known = self.docker is not None and self.docker.known
        return NodeSnapshot(self.name, sample, self.list_instances() if known else None, tuple(self.kernel.events))

    @property
    def clock_offset(self) -> float | None:
        """Seconds by which its clock was ahead of ours at its last sample, corrected for the transfer time; None if not known."""
        return None if self.arrived is None else self.arrived.sample.time - self.arrived.ts

    def is_listed(self, container: str) -> bool:
        """Tell whether the last list has this container."""
        return self.listed is not None and any(one.container_id == container for one in self.listed.instances)

    def mark_guard_unknown(self) -> None:
        """Forget that no guard ran: a start may have brought one since."""
        self.guarded = self.guarded or None

    def list_instances(self) -> tuple[InstanceView, ...]:
        """Return the listed instances with their current phase, and starting ones that are not listed yet."""
        listed = mark_rollback_containers(self.listed.instances if self.listed else (), self.kept)
        kept = {one.name for one in listed if one.is_kept}
        names = {one.name for one in listed if one.ours and not one.is_kept}
        coming = [
            _build_pending_instance(self.name, phase, self.plans.get(name))
            for name, phase in self.phases.items()
            if name not in names and not (name in kept and phase.phase in _STOP_PHASES)
        ]
        names |= {one.name for one in coming}
        # If the new instance has the same name as the kept one, the name means the new one.
        shown = [one for one in listed if not (one.is_kept and one.name in names)]
        return tuple(self._add_live_state(one) for one in (*shown, *coming))

    def _add_live_state(self, one: InstanceView) -> InstanceView:
        memory = (
            self.arrived.sample.get_container_memory(one.container_id) if self.arrived and one.container_id else None
        )
        reading = self.numbers.get(one.container_id or "")
        numbers, hint = (reading.numbers, reading.metrics_hint) if reading else (None, None)
        facts = self.facts.get(one.container_id or "")
        one = replace(one, memory=memory, numbers=numbers, metrics_hint=hint, facts=facts.facts if facts else ())
        phase = self.phases.get(one.name) if one.ours else None
        if one.is_kept and phase is not None and phase.phase is Phase.STOPPED:
            return one
        return one if phase is None else replace(one, phase=phase.phase, step=phase.step, detail=phase.detail)


def create_node_record(name: NodeName, now: float) -> NodeRecord:
    """Return the record of a node of which nothing is known yet."""
    return NodeRecord(name=name, state=NodeStateChanged(ts=now, node=name, state=NodeState.UNKNOWN), when=now)


def _build_pending_instance(node: NodeName, phase: PhaseChanged, plan: LaunchPlan | None) -> InstanceView:
    labels = {} if plan is None else dict(plan.labels)
    nodes = tuple(NodeName(name) for name in labels.get(ContainerLabel.NODES, "").split(",") if name)
    return InstanceView(
        name=phase.instance,
        node=node,
        container=plan.container_name if plan else "",
        image=plan.image if plan else "",
        state=ContainerState.UNKNOWN,
        status="",
        ours=True,
        memory=None,
        phase=phase.phase,
        profile=plan.profile if plan else None,
        engine=plan.engine if plan else None,
        port=plan.node_port if plan else None,
        rank=labels.get(ContainerLabel.RANK),
        nodes=nodes,
        run=labels.get(ContainerLabel.RUN),
    )


_STARTING_PHASES = (Phase.PULLING, Phase.DROPPING_CACHES, Phase.CREATING, Phase.STARTING, Phase.LOADING, Phase.WARMING)
_UNLISTED_GRACE_SECONDS = 60.0  # seconds for which a start's container counts before Docker lists it


class TopicKind(StrEnum):
    """Kinds of state that an event can change."""

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
    ACTIVITY = "activity"  # of the operator's commands: no view of a node shows it


@dataclass(frozen=True, slots=True)
class Topic:
    """One change: of which kind, and on which node; None for `TopicKind.ACTIVITY` alone."""

    what: TopicKind
    node: NodeName | None


StoreEvent = Event | JobStarted | JobEnded | NoticeShown | NoticesCleared | SwitchHidden | StartDiagnosed | StartRefused


class Store:
    """The state as of the last event. Nodes keep the given order; others follow as they appear.

    The parts are for reading; they change by `apply_event` alone.
    """

    def __init__(self, nodes: Iterable[NodeName] = (), now: float = 0.0) -> None:
        self.clear()
        self._nodes |= {name: create_node_record(name, now) for name in nodes}

    def clear(self) -> None:
        """Forget everything, because a recording begins again."""
        self._nodes: dict[NodeName, NodeRecord] = {}
        self._start_results: dict[tuple[NodeName, str], CommandEnded] = {}
        self.event_log = EventLog()
        self.log_lines = RecentLogLines()
        self.switches = SwitchState()
        self.jobs = Jobs()
        self.notices = NoticeBoard()
        self._forget_views()

    def _forget_views(self) -> None:
        """Forget what was derived from the state: it holds between two events, in which a paint asks several times."""
        self._views: dict[NodeName, NodeTelemetryView] = {}
        self._instances: dict[NodeName, tuple[InstanceView, ...]] = {}  # of each node alone
        self._findings_across: tuple[Finding, ...] | None = None

    @property
    def nodes(self) -> tuple[NodeName, ...]:
        return tuple(self._nodes)

    def apply_event(self, event: StoreEvent, job: int | None = None) -> tuple[Topic, ...]:
        """Apply an event; return what changed, nothing if the event was no news. ``job``: by which it was emitted."""
        topics: tuple[Topic, ...] = ()
        if event.node is not None:
            if event.node not in self._nodes:
                self._nodes[event.node] = create_node_record(event.node, event.ts)
            live = self._nodes[event.node]
            if topics := self._apply(event, live):
                live.when = event.ts
            self._forget_views()
        return (*topics, Topic(TopicKind.ACTIVITY, None)) if self._apply_activity(event, topics, job) else topics

    def _apply_activity(self, event: StoreEvent, topics: tuple[Topic, ...], job: int | None) -> bool:
        """Apply an event to the parts that are not about one node; return whether one of them has changed."""
        match event:
            case SampleArrived():
                if topics and topics[0].what is TopicKind.STATE:  # the first sample after a break
                    self.event_log.add_event(NodeStateChanged(ts=event.ts, node=event.node, state=NodeState.OK))
                return False
            case NoticeShown():
                self.notices.add_notice(event, {name: self._list_instances(name) for name in self._nodes})
            case NoticesCleared():
                self.notices.clear()
            case SwitchHidden():
                self.switches.hide()
            case StartDiagnosed():
                self._record_start_result(event.end)
            case StartRefused():
                self.event_log.add_event(event)
            case JobStarted() | JobEnded():
                ended = self.jobs.running.get(event.job) if isinstance(event, JobEnded) else None
                if ended is not None and ended.started.verb == "tunnel":
                    self._drop_tunnel_notices(ended.started.words[1])
                if ended is not None and ended.started.verb == "up":
                    self._drop_queue_notice(ended.started.words[1])
                self.jobs.apply_event(event, job)
            case _:
                return self._follow_commands(event, job)
        return True

    def _drop_tunnel_notices(self, instance: str) -> None:
        """Drop what was said of the tunnel to an instance: it has another state now, or is gone."""
        for words in (f"tunnel to {sanitize_line(instance)} is ", f"tunnel to {sanitize_line(instance)}: "):
            self.notices.drop_naming(words)

    def _drop_queue_notice(self, instance: str) -> None:
        """Drop what was said of a start that waited: it waits no longer."""
        self.notices.drop_naming(f"{sanitize_line(instance)} {QUEUED_WORDS}")

    def _follow_commands(self, event: Event, job: int | None) -> bool:
        """Apply an event of a command or of the monitoring; return whether it changed the activity."""
        is_news = self.jobs.apply_event(event, job)
        switched = self.switches.running
        is_news |= self.switches.apply_event(event, job, self.list_memory_bars)
        if switched is not None and self.switches.running is None:
            self.notices.drop_naming(f"switch to {switched.instance} in progress")
        match event:
            case ContainersListed():
                if event.known:
                    self.event_log.add_container_list(event, self._list_instances(event.node))
            case LogArrived():
                self.log_lines.add_lines(event)
            case PhaseChanged():
                self._start_results.pop((event.node, event.instance), None)
                if event.phase is Phase.CREATING:
                    self._drop_queue_notice(event.instance)
                    self.log_lines.forget_instance(event.node, event.instance)
            case CommandEnded():
                is_news |= self._forget_pull(event)
                if event.verdict is not None:
                    is_news |= self._record_start_result(event)
            case NodeStateChanged() if event.state is not NodeState.OK:
                self.switches.forget_journal(event.node)
            case TunnelStateChanged():
                self._drop_tunnel_notices(event.instance)
            case _:
                pass
        self.event_log.add_event(event)
        if isinstance(event, ContainersListed | PhaseChanged) and self.notices.rests_on(event.node):
            live = self._nodes[event.node]
            if live.state.state is NodeState.OK and (live.docker is None or live.docker.known):
                self.notices.drop_outdated(event.node, self._list_instances(event.node))
        return is_news

    def _forget_pull(self, end: CommandEnded) -> bool:
        """A command ended while a profile was pulled: no container has its name."""
        pulled = [
            live
            for live in self._nodes.values()
            if end.instance in live.phases and live.phases[end.instance].phase is Phase.PULLING
        ]
        for live in pulled:
            del live.phases[str(end.instance)]
            live.timelines.pop(str(end.instance), None)
        self._forget_views()
        return bool(pulled)

    def _record_start_result(self, end: CommandEnded) -> bool:
        if end.node is None or end.instance is None:
            return False
        self._start_results[end.node, end.instance] = end
        return True

    def get_start_results(self, name: NodeName) -> dict[str, CommandEnded]:
        """Return how the last starts on a node ended with a verdict, by instance."""
        return {instance: end for (node, instance), end in self._start_results.items() if node == name}

    def list_memory_bars(self) -> dict[NodeName, MemoryBar]:
        """Return the last memory reading of each node that has one and answers."""
        views = (self.get_view(name) for name in self._nodes)
        return {view.name: view.memory for view in views if view.memory is not None}

    def get_views(self, names: Iterable[NodeName] | None = None) -> tuple[NodeTelemetryView, ...]:
        """Return a view of every node, or of those with these ``names`` that are known, in that order."""
        return tuple(self.get_view(name) for name in (self._nodes if names is None else names) if name in self._nodes)

    def find_instance(self, name: NodeName, instance: str) -> InstanceView | None:
        """Return an instance as last known; None where it is not there."""
        there = self._list_instances(name) if name in self._nodes else ()
        return next((one for one in there if one.name == instance), None)

    def find_start_failure(self, name: NodeName, instance: str) -> CommandEnded | None:
        """Return how the last start failed; None where it did not, or the instance was started again since."""
        one = self.find_instance(name, instance)
        return self._start_results.get((name, instance)) if one is None or one.phase is Phase.FAILED else None

    def _collect_findings(self, name: NodeName) -> tuple[Finding, ...]:
        """Return the findings of a node, worst first: by its samples, by comparison with other nodes, and by checks."""
        if self._findings_across is None:
            answering = [one for one in self._nodes.values() if one.state.state is NodeState.OK and one.arrived]
            sights = [one.build_snapshot(one.arrived.sample) for one in answering if one.arrived]
            self._findings_across = detect_across_nodes(sights, are_all=len(sights) == len(self._nodes))
        across = [finding for finding in self._findings_across if finding.node == name]
        ready = {one.name for one in self._list_instances(name) if one.phase is Phase.READY}
        sampled = [
            one
            for one in self._nodes[name].troubles  # as of the last sample; the instance may have become ready since
            if not (one.kind is FindingKind.PAGE_CACHE and one.instance in ready)
        ]
        shown = [*sampled, *across, *detect_slow_path(self._list_instances(name))]
        newer = {(one.kind.value, one.instance) for one in shown}  # samples repeat what checks found before
        live = self._nodes[name]
        reported = (
            _build_finding(one)
            for key, one in live.reported.items()
            if key not in newer and not _is_outdated(one, live)
        )
        return sort_by_severity([*shown, *(finding for finding in reported if finding is not None)])

    def _list_instances(self, name: NodeName) -> tuple[InstanceView, ...]:
        """Return the instances of a node; workers have the phase of their heads, as far as the heads' nodes answer."""

        def list_own(live: NodeRecord) -> tuple[InstanceView, ...]:
            if live.name not in self._instances:
                self._instances[live.name] = live.list_instances()
            return self._instances[live.name]

        answering = [live for live in self._nodes.values() if live.state.state is NodeState.OK]
        everything = [one for live in answering for one in list_own(live)]
        return apply_dependents(apply_head_state(list_own(self._nodes[name]), everything), everything)

    def get_view(self, name: NodeName) -> NodeTelemetryView:
        """Return the node's current view; for a node that does not answer, only its state and the reason. Raises KeyError."""
        if name not in self._views:
            self._views[name] = self._build_view(self._nodes[name])
        return self._views[name]

    def _build_view(self, live: NodeRecord) -> NodeTelemetryView:
        name = live.name
        state = live.state
        if state.state is not NodeState.OK:
            return NodeTelemetryView(
                name=name, state=state.state, when=live.when, detail=_format_state_detail(state), hint=state.hint
            )
        docker = live.docker or ContainersListed(ts=live.when, node=name)
        return NodeTelemetryView(
            name=name,
            state=state.state,
            when=live.when,
            detail=docker.detail,
            hint=docker.hint,
            sample=live.arrived.sample if live.arrived else None,
            instances=self._list_instances(name),
            docker_known=docker.known,
            instances_seen=live.listed.ts if live.listed else None,
            reading=live.memory,
            sampled=live.arrived.ts if live.arrived else None,
            findings=self._collect_findings(name),
            memory_bandwidth=docker.memory_bandwidth,
        )

    def get_last_known_view(self, name: NodeName) -> NodeTelemetryView:
        """Return the last known view, also of a node that does not answer now. Raises KeyError.

        ``sampled`` and ``instances_seen`` are the times of that knowledge; the engines' figures are left out.
        """
        live = self._nodes[name]
        if live.state.state is NodeState.OK:
            return self.get_view(name)
        return replace(
            self.get_view(name),
            sample=live.arrived.sample if live.arrived else None,
            instances=self._list_instances(name),
            docker_known=False,
            instances_seen=live.listed.ts if live.listed else None,
            reading=live.memory,
            sampled=live.arrived.ts if live.arrived else None,
        )

    def get_record(self, name: NodeName) -> NodeRecord:
        """Return all that is known of a node, for reading. Raises KeyError."""
        return self._nodes[name]

    @singledispatchmethod
    def _apply(self, event: StoreEvent, live: NodeRecord) -> tuple[Topic, ...]:
        """Apply an event to one node. Other events are shown to the operator as they come, and change nothing here."""
        return ()

    @_apply.register
    def _apply_node_state_changed(self, event: NodeStateChanged, live: NodeRecord) -> tuple[Topic, ...]:
        before, live.state = live.state, event
        if event.state is not NodeState.OK:
            live.numbers.clear()  # an engine's figures hold for that moment only
            live.guarded = None
            live.switch = None
        if event.state is NodeState.UNKNOWN and event.detail is None:  # its monitor begins anew
            live.reported = {key: finding for key, finding in live.reported.items() if key[0] not in _MONITORED_KINDS}
        return () if replace(event, ts=before.ts) == before else (Topic(TopicKind.STATE, event.node),)

    @_apply.register
    def _apply_sample_arrived(self, event: SampleArrived, live: NodeRecord) -> tuple[Topic, ...]:
        if not live.series.add_sample(event.sample, event.ts, event.boot):
            return ()
        live.arrived = event
        for logged in live.kernel.add_sample(event.sample, event.boot):
            self.event_log.add_event(KernelEventLogged(ts=event.ts, node=event.node, event=logged))
        live.troubles = live.health.detect_all(live.build_snapshot(event.sample))
        back = live.state.state is not NodeState.OK
        if back:
            live.state = NodeStateChanged(ts=event.ts, node=event.node, state=NodeState.OK)
        news = (Topic(TopicKind.SAMPLE, event.node),)
        return (Topic(TopicKind.STATE, event.node), *news) if back else news

    @_apply.register
    def _apply_memory_sampled(self, event: MemorySampled, live: NodeRecord) -> tuple[Topic, ...]:
        live.memory = event.memory
        return (Topic(TopicKind.MEMORY, event.node),)

    @_apply.register
    def _apply_caches_dropped(self, event: CachesDropped, live: NodeRecord) -> tuple[Topic, ...]:
        live.memory, live.dropped = event.after, event
        return (Topic(TopicKind.MEMORY, event.node),)

    @_apply.register
    def _apply_containers_listed(self, event: ContainersListed, live: NodeRecord) -> tuple[Topic, ...]:
        latest, before, phases = live.docker, live.listed, live.phases
        live.docker = event
        if event.known:
            if before is not None and _list_alive_ids(event) - _list_alive_ids(before):
                live.mark_guard_unknown()
            live.listed = event
            live.kept = list_rollback_containers(live.switch)
            live.phases = {
                name: phase
                for name, phase in live.phases.items()
                if phase.ts > event.ts or phase.phase is Phase.PULLING or is_still_stopping(phase, event)
            }
            live.ready = track_ready_since(live.ready, before, event)
            ready = {one.container_id for one in event.instances if one.phase is Phase.READY}
            live.numbers = {one: numbers for one, numbers in live.numbers.items() if one in ready}
            there = {one.container_id for one in event.instances}
            live.facts = {
                one: facts
                for one, facts in live.facts.items()
                if one in there or facts.ts > event.ts - _UNLISTED_GRACE_SECONDS
            }
            live.drafting = {one: trend for one, trend in live.drafting.items() if one in ready}
            names = {one.name for one in event.instances if one.is_alive}
            live.reported = {key: facts for key, facts in live.reported.items() if key[1] is None or key[1] in names}
        is_new = latest is None or replace(event, ts=latest.ts) != latest or live.phases != phases
        return (Topic(TopicKind.INSTANCES, event.node),) if is_new else ()

    @_apply.register
    def _apply_meter_arrived(self, event: MeterArrived, live: NodeRecord) -> tuple[Topic, ...]:
        live.numbers[event.container] = event
        live.drafting.setdefault(event.container, MeterSeries()).add_meter(event.ts, event.numbers)
        return (Topic(TopicKind.NUMBERS, event.node),) if live.is_listed(event.container) else ()

    @_apply.register
    def _apply_engine_facts_reported(self, event: EngineFactsReported, live: NodeRecord) -> tuple[Topic, ...]:
        live.facts[event.container] = event
        return (Topic(TopicKind.INSTANCES, event.node),) if live.is_listed(event.container) else ()

    @_apply.register
    def _apply_launch_planned(self, event: LaunchPlanned, live: NodeRecord) -> tuple[Topic, ...]:
        live.plans[event.plan.instance] = event.plan
        return (Topic(TopicKind.PHASE, event.node),)

    @_apply.register
    def _apply_phase_changed(self, event: PhaseChanged, live: NodeRecord) -> tuple[Topic, ...]:
        before = live.phases.get(event.instance)
        if event.phase in _STARTING_PHASES and (before is None or before.phase not in _STARTING_PHASES):
            live.mark_guard_unknown()
        live.phases[event.instance] = event
        if event.phase is not Phase.READY:
            live.ready.pop(event.instance, None)
        elif event.elapsed:  # without it, the instance was in that phase already
            live.ready[event.instance] = ReadyTime(event.ts)
        timeline = advance_timeline(live.timelines.get(event.instance), event)
        if timeline is None:
            live.timelines.pop(event.instance, None)
        else:
            live.timelines[event.instance] = timeline
        return (Topic(TopicKind.PHASE, event.node),)

    @_apply.register
    def _apply_transfer_progressed(self, event: TransferProgressed, live: NodeRecord) -> tuple[Topic, ...]:
        """What comes onto a node is the progress of the one profile that is pulled there."""
        pulled = [name for name, phase in live.phases.items() if phase.phase is Phase.PULLING]
        if len(pulled) != 1 or (step := live.phases[pulled[0]].step) is None:
            return ()
        amount = format_size(event.done) + (f" of {format_size(event.total)}" if event.total else "")
        left = "" if event.left is None else f", {format_clock(event.left)} left"
        share = min(1.0, event.done / event.total) if event.total else None
        live.phases[pulled[0]] = replace(
            live.phases[pulled[0]], step=replace(step, fraction=share), detail=f"{amount}{left}"
        )
        return (Topic(TopicKind.PHASE, event.node),)

    @_apply.register
    def _apply_guard_acted(self, event: GuardActed, live: NodeRecord) -> tuple[Topic, ...]:
        topics: tuple[Topic, ...] = ()
        if live.memory is not None and event.available is not None and event.free is not None:
            live.memory = replace(live.memory, available=event.available, free=event.free)
            topics = (Topic(TopicKind.MEMORY, event.node),)
        if event.what is GuardAction.KILLED and event.instance is not None:
            topics += _record_end_reason(live, event.instance, f"stopped by the guard: {event.why}")
        elif (
            event.what is not GuardAction.ENDED
            and event.instance is not None
            and event.instance not in (live.guarded or ())
        ):
            live.guarded = (*(live.guarded or ()), event.instance)
            topics += (Topic(TopicKind.GUARD, event.node),)
        return topics

    @_apply.register
    def _apply_guard_status_changed(self, event: GuardStatusChanged, live: NodeRecord) -> tuple[Topic, ...]:
        before, live.guarded = live.guarded, event.watched
        return (Topic(TopicKind.GUARD, event.node),) if before != event.watched else ()

    @_apply.register
    def _apply_switch_journal_reported(self, event: SwitchJournalReported, live: NodeRecord) -> tuple[Topic, ...]:
        before, live.switch = live.switch, event.view
        live.kept = list_rollback_containers(event.view) or live.kept
        return (Topic(TopicKind.SWITCH, event.node),) if before != event.view else ()

    @_apply.register
    def _apply_command_ended(self, event: CommandEnded, live: NodeRecord) -> tuple[Topic, ...]:
        if event.verdict is None or event.instance is None:
            return ()
        return _record_end_reason(live, event.instance, event.verdict.summary)

    @_apply.register
    def _apply_log_arrived(self, event: LogArrived, live: NodeRecord) -> tuple[Topic, ...]:
        return (Topic(TopicKind.LOG, event.node),) if event.lines else ()

    @_apply.register
    def _apply_finding_reported(self, event: FindingReported, live: NodeRecord) -> tuple[Topic, ...]:
        live.reported[event.check, event.instance] = event
        return (Topic(TopicKind.FINDINGS, live.name),)


def _list_alive_ids(listed: ContainersListed) -> set[str | None]:
    return {one.container_id for one in listed.instances if one.ours and one.is_alive}


def _record_end_reason(live: NodeRecord, instance: str, why: str) -> tuple[Topic, ...]:
    """Store why a watched start ended."""
    phase = live.phases.get(instance)
    if phase is None:
        return ()
    live.phases[instance] = replace(phase, step=None, detail=why)
    return (Topic(TopicKind.PHASE, live.name),)


def _is_outdated(found: FindingReported, live: NodeRecord) -> bool:
    """Tell whether samples have judged the same since, for long enough, and with all that this needs."""
    if live.arrived is None or live.arrived.ts - found.ts <= _JUDGED_AFTER_SECONDS:
        return False
    sample = live.arrived.sample
    match found.check:
        case FindingKind.DISK:
            return bool(sample.disks) and all(disk.free is not None for disk in sample.disks or ())
        case FindingKind.ORPHAN:
            return sample.processes is not None and sample.gpus is not None
        case FindingKind.FABRIC_ROUTE:
            return sample.links is not None and sample.rdma is not None
        case FindingKind.GID | FindingKind.RESTART_LOOP:
            return live.docker is not None and live.docker.known
    return False


def _build_finding(found: FindingReported) -> Finding | None:
    """Return the finding of an event; None if all is well, or if this version does not know its kind."""
    wrong = found.severity in (Severity.PROBLEM, Severity.WARNING, Severity.NOTE)
    if not wrong or found.node is None or found.check not in set(FindingKind):
        return None
    return Finding(
        FindingKind(found.check), found.severity, found.node, found.message, remedy=found.remedy, instance=found.instance,
        evidence=found.evidence, since=found.since
    )  # fmt: skip


def _format_state_detail(state: NodeStateChanged) -> str | None:
    words = state.detail or ""
    if state.attempt is not None and state.next_try is not None:
        words += f"; attempt {state.attempt}, next try in {state.next_try:.1f} s"
    return words or None
