"""The data of a tile: everything the store knows of one node at one moment, and the badges of its state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from sparkctl.model.events import CachesDropped, CommandEnded, NodeStateChanged, PhaseChanged
from sparkctl.model.finding import Finding, FindingKind, Severity
from sparkctl.model.instance import InstanceView
from sparkctl.model.kernel_event import KernelEvent
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.memory_fit import MemoryFit
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.reference import FigureRange
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import format_duration
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.monitor.ranks import count_ranks, is_head, is_same_start, place_needs
from sparkctl.monitor.sample_series import MeterSeries, SampleSeries
from sparkctl.monitor.startup_timeline import StartupTimeline
from sparkctl.monitor.store import Store
from sparkctl.views.event_text import TRANSITION_PHASES, format_phase_name
from sparkctl.views.text.styled_text import TextStyle, get_severity_style, get_state_symbol

_PHASE_RANKS = {
    phase: rank
    for rank, phase in enumerate(
        (*TRANSITION_PHASES, Phase.FAILED, Phase.UNPROVED, Phase.READY, Phase.UNKNOWN, Phase.STOPPED)
    )
}
_LAST_RANK = len(_PHASE_RANKS)
_PHASE_STYLES = {
    Phase.READY: TextStyle.GOOD,
    Phase.UNPROVED: TextStyle.ATTENTION,
    Phase.FAILED: TextStyle.BAD,
    Phase.UNKNOWN: TextStyle.STALE,
    Phase.STOPPED: TextStyle.LABEL,
}
_TITLE_SEVERITIES = (Severity.PROBLEM, Severity.WARNING)
_FINDING_WORDS = {
    FindingKind.THERMAL: "hot",
    FindingKind.SWAP: "swapping",
    FindingKind.IDLE_FUNCTION: "half the link idle",
    FindingKind.GID: "RDMA GID",
    FindingKind.RDMA_OFF: "RDMA off",
    FindingKind.DISK: "disk low",
    FindingKind.ORPHAN: "orphan process",
    FindingKind.ANSWERS: "bad answers",
    FindingKind.KV_FULL: "KV cache full",
    FindingKind.PARTNER: "other rank gone",
    FindingKind.KHO: "KHO",
    FindingKind.KERNEL: "kernel event",
}  # where the name of the kind is no short word for a title
_NODE_STATE_STYLES = {
    NodeState.OK: TextStyle.GOOD,
    NodeState.UNREACHABLE: TextStyle.STALE,
    NodeState.UNKNOWN: TextStyle.STALE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOffer:
    """A profile that could be started on an idle node: its estimate there, what its last starts measured (tok/s, and seconds
    until it was ready); None: not known. ``source_rate``: the tok/s of one request by its source. ``missing``: what the node
    certainly lacks for it."""

    name: str
    fit: MemoryFit | None
    rate: float | None = None
    seconds: float | None = None
    source_rate: FigureRange | None = None
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTileModel:
    """The data of one node at ``now`` (Unix time in seconds). ``view`` is the last known state; ``connection`` tells
    whether it still holds.

    ``drafting`` is by container id; ``starts``, ``timelines`` and ``ends`` are by instance; ``jobs`` are running jobs
    of this panel. ``heads``: the head of each instance that is only a worker here. ``ready``: since when (Unix time
    in seconds) an instance is ready, if known. ``most_power``: upper end of power curves in watts, common to all
    Sparks. ``since``: when the curves begin (Unix time in seconds); None: as far back as is known.
    """

    view: NodeTelemetryView
    connection: NodeStateChanged
    now: float
    series: SampleSeries | None = None
    drafting: Mapping[str, MeterSeries] = field(default_factory=dict)
    starts: Mapping[str, PhaseChanged] = field(default_factory=dict)
    timelines: Mapping[str, StartupTimeline] = field(default_factory=dict)
    ends: Mapping[str, CommandEnded] = field(default_factory=dict)
    address: str | None = None
    jobs: tuple[str, ...] = ()
    chosen: str | None = None  # the instance that is selected
    recent: tuple[str, ...] = ()  # the latest started profiles
    dropped: CachesDropped | None = None
    heads: Mapping[str, InstanceView] = field(default_factory=dict)
    ready: Mapping[str, float] = field(default_factory=dict)
    most_power: float | None = None
    start_key: str | None = None  # the key that starts a profile; None if none can be started here
    kernel: tuple[KernelEvent, ...] = ()  # what its kernel logged in this boot
    kernel_gaps: str | None = None  # what of that is not known
    offers: tuple[StartOffer, ...] = ()  # what could be started while nothing runs
    since: float | None = None

    @property
    def name(self) -> NodeName:
        return self.view.name

    @property
    def is_known(self) -> bool:
        return self.connection.state is NodeState.OK

    def seconds_ready(self, one: InstanceView) -> float | None:
        """Return for how many seconds an instance has been ready, None if not known."""
        since = self.ready.get(one.name) if one.ours and one.phase is Phase.READY else None
        return None if since is None else max(0.0, self.now - since)

    @property
    def worst_finding(self) -> Finding | None:
        """The most serious warning or problem of a node that answers, None without one."""
        found = self.view.findings if self.is_known else ()
        return next((one for level in _TITLE_SEVERITIES for one in found if one.severity is level), None)

    def get_finding_severity(self, kind: FindingKind) -> Severity | None:
        """Return how serious a finding of this kind is on the node, None without one."""
        found = self.view.findings if self.is_known else ()
        return next((one.severity for one in found if one.kind is kind), None)

    def list_failures(self) -> tuple[str, ...]:
        """Return the instances whose failure the tile explains."""
        failed = (one.name for one in self.view.instances if one.ours and one.phase is Phase.FAILED)
        return tuple(name for name in failed if (end := self.ends.get(name)) is not None and end.verdict is not None)

    @property
    def sample_age(self) -> float | None:
        """Seconds since the last sample, None before any."""
        return None if self.view.sampled is None else max(0.0, self.now - self.view.sampled)


@dataclass(frozen=True, slots=True)
class StateBadge:
    """A state as a symbol, a word and a style."""

    sign: str
    word: str
    tone: TextStyle


_ACTIVITY_BY_VERB = {"drop-caches": "dropping the page cache ...", "doctor": "being examined ..."}


def build_tile_model(
    store: Store, name: NodeName, now: float, *, address: str | None, chosen: str | None,
    recent: tuple[str, ...], start_key: str | None, offers: tuple[StartOffer, ...],
) -> NodeTileModel:  # fmt: skip
    """Return what the store knows of a node. Raises KeyError for an unknown node."""
    view, record = store.get_last_known_view(name), store.get_record(name)
    containers = {one.container_id for one in view.instances}
    ours = [one.name for one in view.instances if one.ours]
    return NodeTileModel(
        view=view,
        connection=record.state,
        now=now,
        series=record.series,
        drafting={key: one for key, one in record.drafting.items() if key in containers},
        starts={one: record.phases[one] for one in ours if one in record.phases},
        timelines={one: record.timelines[one] for one in ours if one in record.timelines},
        ends=store.get_start_results(name),
        address=address,
        jobs=tuple(_ACTIVITY_BY_VERB[one] for one in store.jobs.list_running_verbs(name) if one in _ACTIVITY_BY_VERB),
        chosen=chosen,
        recent=recent,
        dropped=record.dropped,
        heads=_find_heads(store, name, view),
        ready={one: record.ready[one].since for one in ours if one in record.ready},
        start_key=start_key,
        kernel=tuple(record.kernel.events),
        kernel_gaps=record.kernel.describe_gaps(),
        offers=offers,
    )


def _find_heads(store: Store, name: NodeName, view: NodeTelemetryView) -> dict[str, InstanceView]:
    """Return the heads of the instances that are workers of a model whose head is on another node."""
    workers = {one.name: one for one in view.instances if count_ranks(one) > 1 and not is_head(one)}
    return {
        one.name: one
        for other in (store.nodes if workers else ())
        if other != name
        for one in store.get_last_known_view(other).instances
        if one.name in workers and is_head(one) and is_same_start(one, workers[one.name])
    }


def sort_by_urgency(view: NodeTelemetryView) -> list[InstanceView]:
    """Return the instances in the order of interest: in transition, failed, serving, and containers of others last.

    Instances that failed before another got ready come after it; Docker lists the newest first. What another needs is
    below it.
    """
    serves = next((at for at, one in enumerate(view.instances) if one.ours and one.phase is Phase.READY), None)

    def sort_key(at: int, one: InstanceView) -> tuple[bool, int, bool, str]:
        is_past = one.phase is Phase.FAILED and serves is not None and serves < at
        phase = Phase.READY if is_past else one.phase
        return (not one.ours, _PHASE_RANKS[phase] if phase else _LAST_RANK, is_past, one.name)

    return place_needs([one for _, one in sorted(enumerate(view.instances), key=lambda pair: sort_key(*pair))])


def build_node_badges(seen: NodeTileModel) -> list[StateBadge]:
    """Return the node's badges: two if one instance serves while another fails or starts, the serving one first."""
    first = build_node_badge(seen)
    ordered = [one for one in sort_by_urgency(seen.view) if one.ours] if seen.connection.state is NodeState.OK else []
    serving = next((one for one in ordered if one.phase is Phase.READY), None)
    other = next((one for one in ordered if one.phase is Phase.FAILED or one.phase in TRANSITION_PHASES), None)
    if serving is None or other is None:
        return [first]
    mine, its = (build_instance_badge(one, seen.seconds_ready(one)) for one in (serving, other))
    return [
        StateBadge(mine.sign, format_phase_name(Phase.READY), mine.tone),
        StateBadge(its.sign, f"{sanitize_line(other.name)} {its.word}", its.tone),
    ]


def build_finding_badge(found: Finding) -> StateBadge:
    """Return a finding in two or three words, for a title."""
    word = _FINDING_WORDS.get(found.kind, str(found.kind).replace("-", " "))
    return StateBadge(get_state_symbol(found.severity), word, get_severity_style(found.severity))


def build_node_badge(seen: NodeTileModel) -> StateBadge:
    """Return the badge of the node or, if the node is healthy, of its most important instance."""
    connection = seen.connection
    if connection.state is NodeState.UNKNOWN and connection.detail is None:
        return StateBadge(get_state_symbol(NodeState.UNKNOWN), "connecting", TextStyle.STALE)
    if connection.state is not NodeState.OK:
        word = str(connection.state)
        if connection.state is NodeState.UNKNOWN and "defect" in (connection.detail or ""):
            word = "not watched"
        return StateBadge(
            get_state_symbol(connection.state), word, _NODE_STATE_STYLES.get(connection.state, TextStyle.BAD)
        )
    if not seen.view.docker_known and seen.view.instances_seen is None:
        return StateBadge(get_state_symbol(NodeState.UNKNOWN), "Docker does not answer", TextStyle.ATTENTION)
    ordered = sort_by_urgency(seen.view)
    if ordered and ordered[0].ours:
        return build_instance_badge(ordered[0], seen.seconds_ready(ordered[0]))
    if seen.view.instances_seen is None:
        return StateBadge(get_state_symbol(NodeState.UNKNOWN), "looking", TextStyle.STALE)
    word = "nothing from sparkctl runs" if ordered else "nothing runs"
    return StateBadge(get_state_symbol(Phase.STOPPED), word, TextStyle.LABEL)


def build_instance_badge(one: InstanceView, ready_for: float | None = None) -> StateBadge:
    """Return the badge of an instance; for containers of others only that it runs. ``ready_for`` is in seconds; None
    if the moment is not known: then the badge shows the age of the container ("up")."""
    if one.phase is None:
        return StateBadge(get_state_symbol(Phase.STOPPED), "foreign", TextStyle.LABEL)
    word = format_phase_name(one.phase) + (
        ", kept for the way back" if one.is_kept and one.phase is Phase.STOPPED else ""
    )
    if one.phase is Phase.READY and ready_for is not None:
        word += " just now" if ready_for < 10 else f" for {_format_coarse_duration(ready_for)}"
    elif one.phase is Phase.READY and one.status.startswith("Up "):
        word += f", up {sanitize_line(one.status[3:])}"
    return StateBadge(get_state_symbol(one.phase), word, _PHASE_STYLES.get(one.phase, TextStyle.ATTENTION))


def _format_coarse_duration(seconds: float) -> str:
    """Return a duration in steps of ten seconds, later of minutes, so that it does not change every second."""
    return format_duration(seconds // 10 * 10 if seconds < 60 else seconds // 60 * 60)


def format_age(seconds: float | None) -> str:
    """Return ``48 s old``."""
    if seconds is None:
        return "never seen"
    return f"{int(seconds)} s old" if seconds < 60 else f"{format_duration(seconds)} old"


def list_unreachable_nodes(views: Sequence[NodeTelemetryView]) -> list[tuple[str, TextStyle]]:
    """Return the nodes that do not answer, for screens without tiles; not those that were never contacted."""
    return [
        (
            f"{get_state_symbol(view.state)} {view.name} {view.state}",
            _NODE_STATE_STYLES.get(view.state, TextStyle.BAD),
        )
        for view in views
        if view.state is not NodeState.OK and (view.state is not NodeState.UNKNOWN or view.detail)
    ]
