"""What a tile is made of: everything the store knows of one node at one moment, and the words for its state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sparkctl.core.course import Course
from sparkctl.core.drafting import Drafting
from sparkctl.core.live import Store
from sparkctl.core.parts import is_head, is_of_one, parts_of
from sparkctl.core.rings import Rings
from sparkctl.core.store import LoadView
from sparkctl.model.events import CachesDropped, Ended, NodeStateChanged, PhaseChanged
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.text import clean
from sparkctl.model.units import spoken
from sparkctl.present.sentences import phase_word
from sparkctl.present.spans import Tone
from sparkctl.present.symbols import symbol

COMING = (
    Phase.PLANNED,
    Phase.DROPPING_CACHES,
    Phase.CREATING,
    Phase.STARTING,
    Phase.LOADING,
    Phase.WARMING,
    Phase.STOPPING,
)
_RANK = {phase: rank for rank, phase in enumerate((*COMING, Phase.FAILED, Phase.READY, Phase.UNKNOWN, Phase.STOPPED))}
_LAST = len(_RANK)
_TONES = {Phase.READY: Tone.GOOD, Phase.FAILED: Tone.BAD, Phase.UNKNOWN: Tone.STALE, Phase.STOPPED: Tone.LABEL}
_NODE_TONES = {NodeState.OK: Tone.GOOD, NodeState.UNREACHABLE: Tone.STALE, NodeState.UNKNOWN: Tone.STALE}


@dataclass(frozen=True, slots=True)
class Glance:
    """One node at ``now`` (unix seconds). ``view`` is the last that was known; ``told`` says whether that is still so.

    ``drafting`` is by container id, ``starts``, ``courses`` and ``ends`` by instance; ``jobs`` are what this panel is doing
    there. ``heads``: of an instance that serves nothing here, the same one where it does. ``ready``: since when
    (unix seconds) an instance is, where that was seen. ``most_power``: up to how many watts curves of power go, so that those
    of several Sparks have one scale.
    """

    view: LoadView
    told: NodeStateChanged
    now: float
    rings: Rings | None = None
    drafting: Mapping[str, Drafting] = field(default_factory=dict)
    starts: Mapping[str, PhaseChanged] = field(default_factory=dict)
    courses: Mapping[str, Course] = field(default_factory=dict)
    ends: Mapping[str, Ended] = field(default_factory=dict)
    address: str | None = None
    jobs: tuple[str, ...] = ()
    chosen: str | None = None  # the instance that is selected
    recent: tuple[str, ...] = ()  # profiles that were started last
    dropped: CachesDropped | None = None
    heads: Mapping[str, InstanceView] = field(default_factory=dict)
    ready: Mapping[str, float] = field(default_factory=dict)
    most_power: float | None = None
    start_key: str | None = None  # by which a profile is started; None: here nothing is

    @property
    def name(self) -> NodeName:
        """The node's."""
        return self.view.name

    @property
    def is_known(self) -> bool:
        """Tell whether the node answers."""
        return self.told.state is NodeState.OK

    def ready_for(self, one: InstanceView) -> float | None:
        """Return for how many seconds an instance is ready, None where that is not known."""
        since = self.ready.get(one.name) if one.ours and one.phase is Phase.READY else None
        return None if since is None else max(0.0, self.now - since)

    @property
    def age(self) -> float | None:
        """Seconds since the last sample, None before any."""
        return None if self.view.sampled is None else max(0.0, self.now - self.view.sampled)


@dataclass(frozen=True, slots=True)
class Badge:
    """A state in one sign, one word and one tone."""

    sign: str
    word: str
    tone: Tone


def glance(
    store: Store, name: NodeName, now: float, *, ends: Mapping[str, Ended], address: str | None = None,
    jobs: tuple[str, ...] = (), chosen: str | None = None, recent: tuple[str, ...] = (),
    start_key: str | None = None,
) -> Glance:  # fmt: skip
    """Return what the store knows of a node. Raises KeyError."""
    view = store.last(name)
    drafting = {one.container_id: store.drafting(name, one.container_id) for one in view.instances if one.container_id}
    ours = [one.name for one in view.instances if one.ours]
    starts = {one: store.phase(name, one) for one in ours}
    courses = {one: store.course(name, one) for one in ours}
    return Glance(
        view, store.state(name), now, store.rings(name), {key: one for key, one in drafting.items() if one},
        {key: one for key, one in starts.items() if one}, {key: one for key, one in courses.items() if one}, ends, address,
        jobs, chosen, recent, store.dropped(name), _heads(store, name, view),
        {one: since for one in ours if (since := store.ready_since(name, one)) is not None},
        start_key=start_key,
    )  # fmt: skip


def _heads(store: Store, name: NodeName, view: LoadView) -> dict[str, InstanceView]:
    """Return the heads of the instances that share their model with another node and serve nothing here."""
    workers = {one.name: one for one in view.instances if parts_of(one) > 1 and not is_head(one)}
    return {
        one.name: one
        for other in (store.nodes if workers else ())
        if other != name
        for one in store.last(other).instances
        if one.name in workers and is_head(one) and is_of_one(one, workers[one.name])
    }


def in_order(view: LoadView) -> list[InstanceView]:
    """Return the instances as an owner looks for them: what moves, what failed, what serves; foreign ones last.

    What failed before something else got ready comes after that: Docker lists the newest first.
    """
    serves = next((at for at, one in enumerate(view.instances) if one.ours and one.phase is Phase.READY), None)

    def rank(at: int, one: InstanceView) -> tuple[bool, int, bool, str]:
        is_past = one.phase is Phase.FAILED and serves is not None and serves < at
        phase = Phase.READY if is_past else one.phase
        return (not one.ours, _RANK[phase] if phase else _LAST, is_past, one.name)

    return [one for _, one in sorted(enumerate(view.instances), key=lambda pair: rank(*pair))]


def node_badges(seen: Glance, ascii_only: bool = False) -> list[Badge]:
    """Return the state of the node; where one instance serves while another failed or comes, both: the one that serves
    first, the other by its name."""
    first = node_badge(seen, ascii_only)
    ordered = [one for one in in_order(seen.view) if one.ours] if seen.told.state is NodeState.OK else []
    serving = next((one for one in ordered if one.phase is Phase.READY), None)
    other = next((one for one in ordered if one.phase is Phase.FAILED or one.phase in COMING), None)
    if serving is None or other is None:
        return [first]
    mine, its = (instance_badge(one, ascii_only, seen.ready_for(one)) for one in (serving, other))
    return [
        Badge(mine.sign, phase_word(Phase.READY), mine.tone),
        Badge(its.sign, f"{clean(other.name)} {its.word}", its.tone),
    ]


def node_badge(seen: Glance, ascii_only: bool = False) -> Badge:
    """Return the state of the node, or, where that is well, of what matters most on it."""
    told = seen.told
    if told.state is NodeState.UNKNOWN and told.detail is None:
        return Badge(symbol(NodeState.UNKNOWN, ascii_only), "connecting", Tone.STALE)
    if told.state is not NodeState.OK:
        word = str(told.state)
        if told.state is NodeState.UNKNOWN and "defect" in (told.detail or ""):
            word = "not watched"
        return Badge(symbol(told.state, ascii_only), word, _NODE_TONES.get(told.state, Tone.BAD))
    if not seen.view.docker_known and seen.view.instances_seen is None:
        return Badge(symbol(NodeState.UNKNOWN, ascii_only), "Docker does not answer", Tone.ATTENTION)
    ordered = in_order(seen.view)
    if ordered and ordered[0].ours:
        return instance_badge(ordered[0], ascii_only, seen.ready_for(ordered[0]))
    if seen.view.instances_seen is None:
        return Badge(symbol(NodeState.UNKNOWN, ascii_only), "looking", Tone.STALE)
    word = "nothing of ours runs" if ordered else "nothing runs"
    return Badge(symbol(Phase.STOPPED, ascii_only), word, Tone.LABEL)


def instance_badge(one: InstanceView, ascii_only: bool = False, ready_for: float | None = None) -> Badge:
    """Return the state of an instance; of a foreign one only that it is there. ``ready_for``: seconds, None where nobody saw
    it getting ready: then its container's age is told, and called so."""
    if one.phase is None:
        return Badge(symbol(Phase.STOPPED, ascii_only), "foreign", Tone.LABEL)
    word = phase_word(one.phase) + (", kept for the way back" if one.is_kept and one.phase is Phase.STOPPED else "")
    if one.phase is Phase.READY and ready_for is not None:
        word += " just now" if ready_for < 10 else f" for {_coarse(ready_for)}"
    elif one.phase is Phase.READY and one.status.startswith("Up "):
        word += f", up {clean(one.status[3:])}"
    return Badge(symbol(one.phase, ascii_only), word, _TONES.get(one.phase, Tone.ATTENTION))


def _coarse(seconds: float) -> str:
    """Return a time that does not tick: by ten seconds, then by minutes."""
    return spoken(seconds // 10 * 10 if seconds < 60 else seconds // 60 * 60)


def old(seconds: float | None) -> str:
    """Return ``48 s old``."""
    if seconds is None:
        return "never seen"
    return f"{int(seconds)} s old" if seconds < 60 else f"{spoken(seconds)} old"


def troubled(views: Sequence[LoadView], ascii_only: bool = False) -> list[tuple[str, Tone]]:
    """Return which nodes do not answer, for screens on which their tiles are not seen; not those that were never asked."""
    return [
        (f"{symbol(view.state, ascii_only)} {view.name} {view.state}", _NODE_TONES.get(view.state, Tone.BAD))
        for view in views
        if view.state is not NodeState.OK and (view.state is not NodeState.UNKNOWN or view.detail)
    ]
