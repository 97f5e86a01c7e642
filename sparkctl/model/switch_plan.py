"""A switch from one model to another: what stops, stays and starts, and its journal. Pure data; bytes; None is "not
known".
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.memory_fit import MemoryFit
from sparkctl.model.node import NodeName


class SwitchConflict(StrEnum):
    """Why something must stop before the new model can start."""

    MEMORY = "memory"  # by the fit calculation there is no room for both
    PORT = "port"
    GROUP = "group"  # both are in the same exclusive group
    INSTANCE = "instance"  # another version of the same profile
    PLACES = "places"  # the same profile, with its ranks in another order or on other Sparks
    PART = "part"  # the same profile, but some of its ranks are missing
    NAME = "name"  # its container has the name that the new container needs
    NEED = "need"  # it was started for what stops, and nothing else needs it
    NODES = "nodes"  # another of its ranks must stop, and no rank is left alone


class SwitchStep(StrEnum):
    """The steps in order: UNDOING to RESTORED undo the switch, LEFT leaves it as it failed.

    The journal on the nodes names the step that was begun last.
    """

    CHECKING = "checking"  # everything that can fail while the old model still serves
    STOPPING = "stopping"  # the old model stops; its container is kept until the new model is proved
    RELEASING = "releasing"  # its memory has demonstrably come back
    STARTING = "starting"
    CLEARING = "clearing"  # the new model is proved: the old containers are removed
    DONE = "done"
    UNDOING = "undoing"  # the new model failed: its log is saved, its containers are removed
    RESTORING = "restoring"  # the old containers are started again
    RESTORED = "restored"  # the old model is proved to serve
    LEFT = "left"  # the failed containers are left because the operator asked for it


FORWARD_STEPS = (
    SwitchStep.CHECKING, SwitchStep.STOPPING, SwitchStep.RELEASING, SwitchStep.STARTING, SwitchStep.CLEARING, SwitchStep.DONE,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchContainer:
    """One container on a node now. ``instance`` is its instance name if it is managed, else the container's name.

    ``held``: memory. ``conflicts``: why it must stop, empty if it stays. ``rank`` as "0/2", None for a model on one
    Spark.
    """

    instance: str
    container: str
    container_id: str
    ours: bool
    held: int | None = None
    conflicts: tuple[SwitchConflict, ...] = ()
    rank: str | None = None
    port: int | None = None

    @property
    def must_stop(self) -> bool:
        return bool(self.conflicts)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSwitchPlan:
    """One node before and after the switch. ``starts``: what starts here, None if nothing does.

    ``fit``: of the new instance, with the stopped ones counted as gone. ``available_after``: estimated MemAvailable
    afterwards.
    """

    node: NodeName
    total: int | None
    available: int | None
    tenants: tuple[SwitchContainer, ...]
    starts: str | None = None
    fit: MemoryFit | None = None
    available_after: int | None = None

    @property
    def stopped_containers(self) -> tuple[SwitchContainer, ...]:
        return tuple(one for one in self.tenants if one.must_stop)

    @property
    def remaining_containers(self) -> tuple[SwitchContainer, ...]:
        return tuple(one for one in self.tenants if not one.must_stop)

    @property
    def is_free_after(self) -> bool:
        """Tell whether nothing runs there afterwards."""
        return self.starts is None and not self.remaining_containers


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchPlan:
    """A whole switch. ``nodes``: those of the new model, its head first; ``changes``: every affected node.

    ``stops``: names of the instances to stop. ``obstacles``: why it is impossible (empty: it is possible).
    ``hints``: how to get what is missing. ``cautions``: sentences on what may still go wrong. ``seconds``: the usual
    length of the new start. ``is_there``: the same model already runs on these nodes, so nothing is switched.

    ``halves``: those of ``stops`` with missing ranks; then nothing is restored if the new model fails. ``rolls_back``
    False: the operator does not want the old model restored. ``unproved``: those of ``stops`` that gave no token yet.
    """

    profile: str
    instance: str
    nodes: tuple[NodeName, ...]
    changes: tuple[NodeSwitchPlan, ...]
    stops: tuple[str, ...] = ()
    obstacles: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    seconds: float | None = None
    is_there: bool = False
    halves: tuple[str, ...] = ()
    rolls_back: bool = True
    hints: tuple[str, ...] = ()
    unproved: tuple[str, ...] = ()

    @property
    def is_possible(self) -> bool:
        """Tell whether there is no obstacle."""
        return not self.obstacles


def distinguish_names(instance: str, stops: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return distinct names for what starts and what stops, for a switch from a model to a changed version of itself."""
    if instance not in stops:
        return instance, tuple(stops)
    return f"{instance} as asked for", tuple(f"{one} as it ran" if one == instance else one for one in stops)


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchJournal:
    """The record on every node of a switch that is not finished, enough for another operator to finish it.

    ``words``: the profile and its overrides as given, without secrets; ``profile_hash`` is of the resulting profile.
    ``old``: the stopped containers that are kept, by node. ``since`` in unix seconds. ``rolls_back`` False: a new model
    that failed is left as it is. ``guarded`` and ``timeout`` (seconds) belong to the new start. ``keep_going`` belongs
    to the switch. ``need_nodes``: where what the new model needs is started. ``ran_before``: ids of the containers that
    were started for a model of that name before the switch, and go on. ``unproved``: those of ``stops`` that gave no
    token, so that a rollback waits for none. A journal without one of these comes from a version that did not have it.
    """

    id: str
    operator: str
    since: float
    step: SwitchStep
    instance: str
    words: tuple[str, ...]
    profile_hash: str
    nodes: tuple[NodeName, ...]
    stops: tuple[str, ...]
    old: tuple[tuple[NodeName, str], ...]  # (node, container id), in the order in which they are started again
    rolls_back: bool = True
    guarded: bool = True
    timeout: float | None = None
    keep_going: bool = False
    need_nodes: tuple[NodeName, ...] = ()
    ran_before: tuple[str, ...] = ()
    unproved: tuple[str, ...] = ()

    @property
    def affected_nodes(self) -> tuple[NodeName, ...]:
        """Every node that has the journal, in the order in which their locks are taken."""
        return tuple(sorted({*self.nodes, *self.need_nodes, *(node for node, _ in self.old)}))

    @property
    def old_node_options(self) -> str:
        """Where what was stopped ran, as options of `up` and `switch`; of several models it is not known which was where."""
        nodes = dict.fromkeys(node for node, _ in self.old)
        return " ".join(f"--node {node}" for node in nodes) if nodes and len(self.stops) == 1 else "--node NODE"


class JournalPresence(StrEnum):
    """The state of a node's journal file."""

    NONE = "none"
    READ = "read"
    UNREADABLE = "unreadable"  # damaged, or owned by another user: it exists but cannot be read


@dataclass(frozen=True, slots=True)
class SwitchJournalStatus:
    """The journal of one node. ``is_held``: someone holds the node's lock, so the switch is running; else it was
    abandoned.
    """

    found: JournalPresence
    journal: SwitchJournal | None = None
    is_held: bool = False
    why: str | None = None
