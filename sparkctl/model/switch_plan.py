"""A switch: what stops, what stays, what starts, and how far it is. Pure data; bytes; None is "not known"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from sparkctl.model.memory_fit import MemoryFit
from sparkctl.model.node import NodeName


class SwitchConflict(StrEnum):
    """Why something has to go before the new one can come."""

    MEMORY = "memory"  # the fit calculation: not both
    PORT = "port"
    GROUP = "group"  # of one exclusive group
    INSTANCE = "instance"  # another version of the same
    PLACES = "places"  # the very same, its ranks in another order or on other Sparks
    PART = "part"  # the very same, and not all of its ranks are there
    NAME = "name"  # its container has the name that the new one's is to have
    NODES = "nodes"  # another of its ranks has to go, and none is left behind


class SwitchStep(StrEnum):
    """The steps, in their order; the last four are the way back. The journal on the nodes names the one that was begun."""

    CHECKING = "checking"  # everything that can fail while the old model serves
    STOPPING = "stopping"  # the old one; its container is kept, ended, until the new one is proved
    RELEASING = "releasing"  # its memory is proved to be back
    STARTING = "starting"
    CLEARING = "clearing"  # the new one has proved itself: the old one's containers go
    DONE = "done"
    UNDOING = "undoing"  # the new one failed: its log is kept, its containers go
    RESTORING = "restoring"  # the old one's containers are started again
    RESTORED = "restored"  # and have proved themselves
    LEFT = "left"  # the wreck was asked for


FORWARD_STEPS = (
    SwitchStep.CHECKING, SwitchStep.STOPPING, SwitchStep.RELEASING, SwitchStep.STARTING, SwitchStep.CLEARING, SwitchStep.DONE,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchContainer:
    """One container that stands on a node now. ``instance`` is its name where it is ours, else the container's.

    ``held``: memory. ``conflicts``: why it has to go, none where it stays. ``rank`` as "0/2", None for one Spark alone.
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
        """Tell whether it is to be stopped."""
        return bool(self.conflicts)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSwitchPlan:
    """One node before and after. ``starts``: what comes here, None where something only goes. ``fit`` is of that, with what
    goes counted as gone. ``available_after``: MemAvailable once it is done, an estimate."""

    node: NodeName
    total: int | None
    available: int | None
    tenants: tuple[SwitchContainer, ...]
    starts: str | None = None
    fit: MemoryFit | None = None
    available_after: int | None = None

    @property
    def stopped_containers(self) -> tuple[SwitchContainer, ...]:
        """Whom it loses."""
        return tuple(one for one in self.tenants if one.must_stop)

    @property
    def remaining_containers(self) -> tuple[SwitchContainer, ...]:
        """Who is not touched."""
        return tuple(one for one in self.tenants if not one.must_stop)

    @property
    def is_free_after(self) -> bool:
        """Tell whether nothing stands there afterwards."""
        return self.starts is None and not self.remaining_containers


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchPlan:
    """A whole switch. ``nodes`` are those of the new one, its head first; ``changes`` has every node that is touched.

    ``stops`` are the names of the instances that go, ``obstacles`` why it cannot be done (none: it can), ``cautions`` what
    may go wrong all the same, a sentence each. ``seconds``: how long the new one's start usually takes. ``is_there``: the
    very same stands on these nodes already, so nothing is switched. ``halves``: those of ``stops`` of which not all ranks are
    there; then nothing is started again where the new one fails. ``rolls_back`` False: nor is it where that was not wanted.
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

    @property
    def is_possible(self) -> bool:
        """Tell whether nothing stands against it."""
        return not self.obstacles


def distinguish_names(instance: str, stops: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return what starts and what stops by names that tell them apart, where one is switched to as it was changed."""
    if instance not in stops:
        return instance, tuple(stops)
    return f"{instance} as asked for", tuple(f"{one} as it ran" if one == instance else one for one in stops)


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchJournal:
    """What lies on every node of a switch that is under way or was left: enough for another operator to finish it.

    ``words``: the profile and its overrides as they were given, without secrets; ``profile_hash`` is of what they made.
    ``old`` are the containers that were stopped and are kept, by node; ``since`` in unix seconds. ``rolls_back`` False: a
    new one that failed is left for study. ``guarded`` and ``timeout`` (seconds) are of the new one's start, ``keep_going`` of
    the switch: a journal that does not tell of it was written where nobody had asked for that.
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

    @property
    def affected_nodes(self) -> tuple[NodeName, ...]:
        """Every node on which it lies, in the order in which their locks are taken."""
        return tuple(sorted({*self.nodes, *(node for node, _ in self.old)}))


class JournalPresence(StrEnum):
    """What lies where a node keeps the journal of a switch."""

    NONE = "none"
    READ = "read"
    UNREADABLE = "unreadable"  # damaged, or of another user: there is one, and nobody knows which


@dataclass(frozen=True, slots=True)
class SwitchJournalStatus:
    """The journal of one node. ``is_held``: somebody has the node's lock, so that it goes on; else it was left."""

    found: JournalPresence
    journal: SwitchJournal | None = None
    is_held: bool = False
    why: str | None = None
