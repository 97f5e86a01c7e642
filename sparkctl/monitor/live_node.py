"""One node of the live store: what was told of it last, and its instances as they are now."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from sparkctl.model.container import ContainerState
from sparkctl.model.events import (
    CachesDropped,
    ContainersListed,
    FactsLearned,
    FindingReported,
    MeterArrived,
    NodeStateChanged,
    PhaseChanged,
    SampleArrived,
)
from sparkctl.model.finding import Finding
from sparkctl.model.instance import InstanceView
from sparkctl.model.launch_plan import ContainerLabel, LaunchPlan
from sparkctl.model.memory_reading import MemoryReading
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.sample import Sample
from sparkctl.model.switch_plan import SwitchJournalStatus
from sparkctl.monitor.findings.base import NodeSnapshot
from sparkctl.monitor.findings.detectors import NodeDetectors
from sparkctl.monitor.kept import mark_rollback_containers
from sparkctl.monitor.meter_series import MeterSeries
from sparkctl.monitor.sample_series import SampleSeries
from sparkctl.monitor.startup_timeline import StartupTimeline
from sparkctl.monitor.told_between import ReadySince

_LEAVES = (Phase.STOPPING, Phase.STOPPED)


@dataclass(slots=True)
class NodeRecord:
    """``name`` is the node's; ``when`` the time of its last event that was news."""

    name: NodeName
    state: NodeStateChanged
    when: float
    rings: SampleSeries = field(default_factory=SampleSeries)
    arrived: SampleArrived | None = None
    memory: MemoryReading | None = None  # from a look; a sample tells more
    listed: ContainersListed | None = None  # the last that Docker answered for
    docker: ContainersListed | None = None  # the last, answered or not
    numbers: dict[str, MeterArrived] = field(default_factory=dict)  # by container id
    facts: dict[str, FactsLearned] = field(default_factory=dict)  # by container id
    phases: dict[str, PhaseChanged] = field(default_factory=dict)  # by instance, told after what was listed
    plans: dict[str, LaunchPlan] = field(default_factory=dict)
    courses: dict[str, StartupTimeline] = field(default_factory=dict)  # of starts, by instance
    ready: dict[str, ReadySince] = field(default_factory=dict)  # by instance, where it was seen getting ready
    dropped: CachesDropped | None = None  # the last time that its page cache was
    drafting: dict[str, MeterSeries] = field(default_factory=dict)  # by container id
    guarded: tuple[str, ...] | None = None  # instances that a guard watches
    switch: SwitchJournalStatus | None = None  # what lies there of a switch; None: not known
    kept: tuple[str, ...] = ()  # ids of the containers that it kept when what runs was listed, and since
    told: dict[tuple[str, str | None], FindingReported] = field(
        default_factory=dict
    )  # findings of asking, not of sampling
    health: NodeDetectors = field(default_factory=NodeDetectors)
    troubles: tuple[Finding, ...] = ()

    def build_snapshot(self, sample: Sample) -> NodeSnapshot:
        """Return what the detectors of what is wrong look at."""
        known = self.docker is not None and self.docker.known
        return NodeSnapshot(self.name, sample, self.instances() if known else None)

    def mark_guard_unknown(self) -> None:
        """That no guard ran was so before something began to start: it may have brought one, which was not asked for yet."""
        self.guarded = self.guarded or None

    def instances(self) -> tuple[InstanceView, ...]:
        """Return what was listed as it is now, and what is being started and was not listed yet."""
        listed = mark_rollback_containers(self.listed.instances if self.listed else (), self.kept)
        kept = {one.name for one in listed if one.is_kept}
        names = {one.name for one in listed if one.ours and not one.is_kept}
        coming = [
            _build_pending_instance(self.name, phase, self.plans.get(name))
            for name, phase in self.phases.items()
            if name not in names and not (name in kept and phase.phase in _LEAVES)
        ]
        names |= {one.name for one in coming}
        # Where the new one has the name of the one that is kept for it, that name means the new one.
        shown = [one for one in listed if not (one.is_kept and one.name in names)]
        return tuple(self._now(one) for one in (*shown, *coming))

    def _now(self, one: InstanceView) -> InstanceView:
        held = self.arrived.sample.get_container_memory(one.container_id) if self.arrived and one.container_id else None
        told = self.numbers.get(one.container_id or "")
        numbers, hint = (told.numbers, told.metrics_hint) if told else (None, None)
        facts = self.facts.get(one.container_id or "")
        one = replace(one, memory=held, numbers=numbers, metrics_hint=hint, facts=facts.facts if facts else ())
        phase = self.phases.get(one.name) if one.ours else None
        if one.is_kept and phase is not None and phase.phase is Phase.STOPPED:
            return one
        return one if phase is None else replace(one, phase=phase.phase, step=phase.step, detail=phase.detail)


def create_node_record(name: NodeName, now: float) -> NodeRecord:
    """Return a node of which nothing is known yet."""
    return NodeRecord(name, NodeStateChanged(now, name, NodeState.UNKNOWN), now)


def _build_pending_instance(node: NodeName, phase: PhaseChanged, plan: LaunchPlan | None) -> InstanceView:
    labels = {} if plan is None else dict(plan.labels)
    nodes = tuple(NodeName(name) for name in labels.get(ContainerLabel.NODES, "").split(",") if name)
    return InstanceView(
        phase.instance, node, plan.container_name if plan else "", plan.image if plan else "", ContainerState.UNKNOWN, "",
        ours=True, memory=None, phase=phase.phase, profile=plan.profile if plan else None,
        engine=plan.engine if plan else None, port=plan.node_port if plan else None, rank=labels.get(ContainerLabel.RANK),
        nodes=nodes, run=labels.get(ContainerLabel.RUN),
    )  # fmt: skip
