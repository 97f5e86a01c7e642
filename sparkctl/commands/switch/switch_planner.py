"""Plans a switch: which instances must stop so that a profile can start, as a `SwitchPlan`. Pure.

It stops only what conflicts, only whole models, and never what sparkctl did not start.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import combinations

from sparkctl.errors import SparkctlError
from sparkctl.model.container import Container, ContainerState
from sparkctl.model.launch_plan import ContainerLabel, LaunchPlan
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.memory_fit import FitOutcome, MemoryFit
from sparkctl.model.node import NodeName
from sparkctl.model.profile import Profile
from sparkctl.model.switch_plan import NodeSwitchPlan, SwitchConflict, SwitchContainer, SwitchPlan
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import GIB, format_gib
from sparkctl.monitor.ranks import InstanceContainers, RankContainer, choose_needs_to_stop, group_by_instance

_MAX_EXHAUSTIVE_INSTANCES = 8  # of more instances only each one alone, and the largest together, are tried
_TIGHT_BYTES = 5 * GIB  # of room to spare; an estimate is seldom better than that
_TRANSIENT_STATES = (ContainerState.REMOVING, ContainerState.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingRank:
    """What is to start on a node. ``fit``: the estimate with these containers (ids) gone. ``alone``: the launch as a
    model on one node, whose arguments describe the model, unlike those of one rank; None: same as ``plan``.
    ``fit_changed``: the estimate of a changed profile. ``image_hint``, ``model_hint``: how to get what the node lacks.
    """

    plan: LaunchPlan
    has_image: bool
    image_hint: str = ""
    model_hint: str = ""
    fit: Callable[[frozenset[str]], MemoryFit]
    alone: LaunchPlan | None = None
    fit_changed: Callable[[Profile, frozenset[str]], MemoryFit] | None = None

    @property
    def model_plan(self) -> LaunchPlan:
        """The launch whose arguments describe the model."""
        return self.alone or self.plan

    @property
    def exclusive_group(self) -> str | None:
        return dict(self.plan.labels).get(ContainerLabel.GROUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInventory:
    """What one node has: who may have processes there, memory in bytes, ports in use.

    ``silent``: why it could not be asked; nothing else is known then. ``ended``: names of ended containers, and
    whether sparkctl made them. ``is_needed``: the new one needs something here, and this is none of its own nodes.
    """

    node: NodeName
    occupants: tuple[RankContainer, ...] = ()
    total: int | None = None
    available: int | None = None
    listening: frozenset[int] | None = None
    ended: tuple[tuple[str, bool], ...] = ()
    coming: IncomingRank | None = None
    silent: str | None = None
    error: SparkctlError | None = None  # of a silent one, with what to do
    needs: tuple[IncomingRank, ...] = ()  # what starts there first, because it is needed
    is_needed: bool = False

    @property
    def starts(self) -> tuple[IncomingRank, ...]:
        """Everything that starts here, in this order."""
        new = [
            need for need in self.needs if not any(is_running_need(one.container, need.plan) for one in self.occupants)
        ]
        return (*new, *(() if self.coming is None else (self.coming,)))

    @property
    def last_start(self) -> IncomingRank | None:
        """What starts here last, whose estimate counts what starts before it; None: nothing starts here."""
        return self.starts[-1] if self.starts else None


ConflictReasons = dict[tuple[NodeName, str], list[SwitchConflict]]  # by node and container id


@dataclass(slots=True, kw_only=True)
class _PlanBuilder:
    """Builds a `SwitchPlan` step by step."""

    sites: Sequence[NodeInventory]
    all: Sequence[InstanceContainers]
    goes: list[InstanceContainers] = field(default_factory=list)
    used: list[InstanceContainers] = field(default_factory=list)  # what the new one needs runs already, and stays
    why: ConflictReasons = field(default_factory=dict)
    obstacles: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)
    cautions: list[str] = field(default_factory=list)

    @property
    def stopped_ids(self) -> frozenset[str]:
        return frozenset(each for one in self.goes for each in one.container_ids)

    def add_stop(self, whole: InstanceContainers, node: NodeName, conflict: SwitchConflict) -> None:
        """Add an instance to the stops, with the reason on this node."""
        if whole not in self.goes:
            self.goes.append(whole)
        for part in whole.containers_on(node):
            reasons = self.why.setdefault((node, part.container.id), [])
            if conflict not in reasons:
                reasons.append(conflict)


def plan_switch(
    profile: str, nodes: Sequence[NodeName], sites: Sequence[NodeInventory], *, keep_going: bool = False,
    seconds: float | None = None, rolls_back: bool = True,
) -> SwitchPlan:  # fmt: skip
    """Return the plan for switching to ``profile`` on ``nodes`` (the head first).

    ``sites``: every known node, also those that may only hold a rank of a stopped model. ``keep_going``: a silent node
    that only loses something is no obstacle. ``rolls_back``: whether the old instances come back where the new one
    fails.
    """
    ordered = sorted(sites, key=lambda site: (nodes.index(site.node) if site.node in nodes else len(nodes), site.node))
    draft = _PlanBuilder(sites=ordered, all=group_by_instance(each for site in ordered for each in site.occupants))
    instance = next((site.coming.plan.instance for site in ordered if site.coming is not None), profile)
    for site in ordered:
        if site.silent is not None and (site.node in nodes or site.is_needed):
            what = "it" if site.node in nodes else "what it needs"
            draft.obstacles.append(
                f"{site.node} must start {what}, and could not be asked: {sanitize_line(site.silent)}"
            )
    if _is_already_running(draft, ordered, nodes):
        return SwitchPlan(
            profile=profile, instance=instance, nodes=tuple(nodes), changes=(), seconds=seconds, is_there=True
        )
    targets = [site for site in ordered if site.last_start is not None]
    draft.used = [
        whole
        for site in ordered
        for whole in draft.all
        if any(
            is_running_need(part.container, need.plan) for need in site.needs for part in whole.containers_on(site.node)
        )
    ]
    for site in targets:
        for coming in (*site.needs, site.coming):
            if coming is not None and not any(one.name == coming.plan.instance for one in draft.used):
                _add_conflicts(draft, site, coming)
    _add_needs(draft)
    _free_memory(draft, targets)
    _add_needs(draft)
    _include_all_ranks(draft, keep_going=keep_going)
    for site in targets:
        for one in site.starts:
            _add_fit_cautions(draft, site, one, one.fit(draft.stopped_ids))
    changes = tuple(change for site in ordered if (change := _build_node_plan(draft, site)) is not None)
    stops = tuple(sorted({one.name for one in draft.goes}))
    return SwitchPlan(
        profile=profile, instance=instance, nodes=tuple(nodes), changes=changes, stops=stops, obstacles=tuple(dict.fromkeys(draft.obstacles)),
        cautions=tuple(dict.fromkeys(draft.cautions)), seconds=seconds, halves=tuple(sorted({one.name for one in draft.goes if one.missing})),
        rolls_back=rolls_back, hints=tuple(dict.fromkeys(one for one in draft.hints if one)),
    )  # fmt: skip


def _is_already_running(draft: _PlanBuilder, sites: Sequence[NodeInventory], nodes: Sequence[NodeName]) -> bool:
    """Tell whether exactly this version runs there already, with all its ranks."""
    coming = [site.coming.plan for site in sites if site.coming is not None]
    wanted = {(one.instance, one.profile_hash) for one in coming}
    return len(coming) == len(nodes) and any(
        one.is_managed
        and {(one.name, one.get_label(ContainerLabel.HASH))} == wanted
        and one.nodes == tuple(nodes)
        and not one.missing
        for one in draft.all
    )


# conflicts


def is_running_need(container: Container, launch: LaunchPlan) -> bool:
    """Tell whether a container is what a launch would start, running already."""
    wanted = (launch.instance, launch.profile_hash)
    found = (container.get_label(ContainerLabel.INSTANCE), container.get_label(ContainerLabel.HASH))
    return container.is_managed and container.is_alive and found == wanted


def _add_needs(draft: _PlanBuilder) -> None:
    """Add what was started for the stopped instances, where nothing else needs it, the new one included."""
    others = [one for one in draft.all if one not in draft.used]
    for need in choose_needs_to_stop(draft.goes, others):
        for node in dict.fromkeys(need.nodes):
            draft.add_stop(need, node, SwitchConflict.NEED)


def _add_conflicts(draft: _PlanBuilder, site: NodeInventory, coming: IncomingRank) -> None:
    """Add the stops for conflicts other than memory; report foreign conflicts as obstacles."""
    launch, node = coming.plan, site.node
    if not coming.has_image:
        draft.obstacles.append(f"{node} does not have the image {launch.image}")
        draft.hints.append(coming.image_hint)
    for name, ours in site.ended:
        if name == launch.container_name and not ours:
            draft.obstacles.append(_describe_name_conflict(node, name))
    holders = 0
    for whole in draft.all:
        for part in whole.containers_on(node):
            takes_port = launch.node_port is not None and launch.node_port in (part.port, *part.container.ports)
            holders += takes_port
            if not whole.is_managed:
                if takes_port:
                    draft.obstacles.append(_describe_foreign_conflict(node, part, f"has port {launch.node_port}"))
                elif part.container.name == launch.container_name:
                    draft.obstacles.append(_describe_name_conflict(node, part.container.name))
                continue
            reasons = {
                _classify_same_name(whole, launch): part.name == launch.instance,
                SwitchConflict.PORT: takes_port,
                SwitchConflict.GROUP: coming.exclusive_group is not None
                and part.container.get_label(ContainerLabel.GROUP) == coming.exclusive_group,
                SwitchConflict.NAME: part.container.name == launch.container_name and part.name != launch.instance,
            }
            for conflict, is_so in reasons.items():
                if is_so:
                    draft.add_stop(whole, node, conflict)
    if not holders and launch.node_port is not None and launch.node_port in (site.listening or ()):
        draft.obstacles.append(
            f"port {launch.node_port} on {node} is in use by a process that is not a container of sparkctl: end it there, "
            f"or start on another port: --set port={launch.node_port + 1}"
        )


def _classify_same_name(whole: InstanceContainers, launch: LaunchPlan) -> SwitchConflict:
    """Return how a model of the same name differs from the new one."""
    if whole.get_label(ContainerLabel.HASH) != launch.profile_hash:
        return SwitchConflict.INSTANCE
    return SwitchConflict.PART if whole.missing else SwitchConflict.PLACES


def _describe_name_conflict(node: NodeName, name: str) -> str:
    return (
        f"{sanitize_line(name)} on {node} has the name that the new container is to have, and sparkctl did not make it: rename or "
        "remove it there, or give the profile another container.name"
    )


def _describe_foreign_conflict(node: NodeName, part: RankContainer, what: str) -> str:
    name = sanitize_line(part.container.name)
    return f"{name} on {node} {what}; sparkctl did not start it and does not stop it: on {node}: docker stop {name}"


# memory


def _free_memory(draft: _PlanBuilder, targets: Sequence[NodeInventory]) -> None:
    """Add the fewest stops that free enough memory, the smaller instances among equals."""
    short = [site for site in targets if _is_fit_refused(site, draft.stopped_ids)]
    if not short:
        return
    places = {site.node for site in targets}
    stays = (*draft.goes, *draft.used)
    free = [one for one in draft.all if one.is_managed and one not in stays and places.intersection(one.nodes)]
    for some in _list_stop_choices(free):
        gone = draft.stopped_ids.union(*(one.container_ids for one in some))
        if not any(_is_fit_refused(site, gone) for site in targets):
            for one in _select_necessary_stops(draft, targets, some):
                for node in dict.fromkeys(one.nodes):
                    if node in {site.node for site in short}:
                        draft.add_stop(one, node, SwitchConflict.MEMORY)
                if one not in draft.goes:  # memory counts that an earlier stop does not free
                    draft.add_stop(one, one.nodes[0], SwitchConflict.MEMORY)
            return
    _add_memory_obstacles(draft, targets, free)


def _list_stop_choices(free: Sequence[InstanceContainers]) -> Iterator[tuple[InstanceContainers, ...]]:
    order = sorted(free, key=lambda one: (one.memory_bytes, one.name, one.nodes))
    if len(order) > _MAX_EXHAUSTIVE_INSTANCES:
        yield from ((one,) for one in order)
        for count in range(2, len(order) + 1):
            yield tuple(order[-count:])
        return
    for count in range(1, len(order) + 1):
        yield from sorted(combinations(order, count), key=lambda some: sum(one.memory_bytes for one in some))


def _select_necessary_stops(
    draft: _PlanBuilder, targets: Sequence[NodeInventory], some: Sequence[InstanceContainers]
) -> list[InstanceContainers]:
    """Return the stops that are necessary: with many instances not every combination was tried."""
    kept = list(some)
    for one in some:
        fewer = draft.stopped_ids.union(*(each.container_ids for each in kept if each is not one))
        if not any(_is_fit_refused(site, fewer) for site in targets):
            kept.remove(one)
    return kept


def _is_fit_refused(site: NodeInventory, gone: frozenset[str]) -> bool:
    return (one := site.last_start) is not None and one.fit(gone).is_refused


def _add_memory_obstacles(
    draft: _PlanBuilder, targets: Sequence[NodeInventory], free: Sequence[InstanceContainers]
) -> None:
    """Report who holds the missing memory, where stopping all of sparkctl's instances is not enough."""
    gone = draft.stopped_ids.union(*(one.container_ids for one in free))
    others = " and ".join(sorted({sanitize_line(one.name) for one in free}))
    for site in targets:
        if (starts := site.last_start) is None or not (fit := starts.fit(gone)).is_refused:
            continue
        foreign = [one for one in site.occupants if not one.container.is_managed and one.held]
        named = [one for one in foreign if one.name in fit.stops] if fit.answer is FitOutcome.IF_STOPPED else []
        for one in named:
            draft.obstacles.append(_describe_foreign_conflict(site.node, one, "holds the memory that it needs"))
        if not named:
            even = f"even with {others} stopped: " if free else ""
            draft.obstacles.append(f"{even}{fit.summary_sentence}")


# whole models only


def _include_all_ranks(draft: _PlanBuilder, *, keep_going: bool) -> None:
    """Add all ranks of the stopped models, and report those that cannot be reached."""
    silent = {site.node: site.silent for site in draft.sites if site.silent is not None}
    for whole in draft.goes:
        for part in whole.parts:
            if part.container.state in _TRANSIENT_STATES:
                draft.obstacles.append(
                    f"{sanitize_line(part.container.name)} on {part.node} is changing state "
                    f"({sanitize_line(part.container.status)}): try again in a moment"
                )
            draft.why.setdefault((part.node, part.container.id), [SwitchConflict.NODES])
        unknown = [name for name in whole.elsewhere if name not in {site.node for site in draft.sites}]
        silent_names = [name for name in whole.elsewhere if name in silent] or (list(silent) if whole.missing else [])
        if not whole.missing or not (silent_names or unknown):
            continue
        where = " and ".join(sanitize_line(name) for name in (*silent_names, *unknown))
        what = f"{sanitize_line(whole.name)} has a rank on {where}, which could not be asked"
        if keep_going:
            draft.cautions.append(f"{what}: it is left there, and stops when the node is reached again")
        else:
            draft.obstacles.append(f"{what}: half a model would be left there (--keep-going continues anyway)")


# the result


def _add_fit_cautions(draft: _PlanBuilder, site: NodeInventory, coming: IncomingRank, fit: MemoryFit) -> None:
    if fit.absent is not None:
        draft.obstacles.append(f"the model {sanitize_line(fit.absent)} is missing or incomplete on {site.node}")
        draft.hints.append(coming.model_hint)
        return
    more = fit.cautions
    if fit.answer is FitOutcome.UNKNOWN:
        why, more = fit.cautions[:1], fit.cautions[1:]
        draft.cautions += [sanitize_line(": ".join((fit.summary_sentence, *why))), *_explain_unknown_fit(draft, site)]
    elif not fit.is_refused and fit.margin is not None and (fit.is_tight or fit.margin < _TIGHT_BYTES):
        name = sanitize_line(coming.plan.instance)
        spare = format_gib(max(0, fit.margin))
        draft.cautions.append(f"{site.node}: tight: {name} fits with {spare} to spare, and may run out of memory")
    draft.cautions.extend(f"{site.node}: {sanitize_line(one)}" for one in more)


def _explain_unknown_fit(draft: _PlanBuilder, site: NodeInventory) -> list[str]:
    """Explain that nothing is stopped for a memory need that cannot be estimated: name the largest holder and the
    command that stops it.
    """
    stays = [
        whole
        for whole in draft.all
        if whole not in draft.goes and any(one.held for one in whole.containers_on(site.node))
    ]
    if not stays:
        return []
    most = max(stays, key=lambda whole: sum(one.held or 0 for one in whole.containers_on(site.node)))
    memory, name = format_gib(sum(one.held or 0 for one in most.containers_on(site.node))), sanitize_line(most.name)
    command = f"sparkctl down {shlex.quote(name)}"
    command = (
        (command if len(most.parts) > 1 else f"{command} --node {site.node}")
        if most.is_managed
        else f"docker stop {shlex.quote(name)}"
    )
    where = "" if most.is_managed else f", on {site.node}"
    return [
        f"so nothing stops for memory on {site.node}, where {name} holds most: {memory}. To have it first{where}: {command}"
    ]


def _build_node_plan(draft: _PlanBuilder, site: NodeInventory) -> NodeSwitchPlan | None:
    """Return what changes on a node, None where nothing does."""
    gone = draft.stopped_ids
    loses = [one for one in site.occupants if one.container.id in gone]
    starts = site.last_start
    if starts is None and not loses:
        return None
    fit = None if starts is None else starts.fit(gone)
    tenants = tuple(_build_switch_container(one, draft.why) for one in site.occupants)
    return NodeSwitchPlan(
        node=site.node,
        total=site.total,
        available=site.available,
        tenants=tenants,
        starts=None if starts is None else starts.plan.instance,
        fit=fit,
        available_after=_compute_available_after(site, loses, fit),
    )


def _build_switch_container(
    one: RankContainer, why: Mapping[tuple[NodeName, str], Sequence[SwitchConflict]]
) -> SwitchContainer:
    rank = None if one.rank_position is None else f"{one.rank_position[0]}/{one.rank_position[1]}"
    return SwitchContainer(
        instance=one.name, container=one.container.name, container_id=one.container.id, ours=one.container.is_managed, held=one.held,
        conflicts=tuple(why.get((one.node, one.container.id), ())), rank=rank, port=one.port,
    )  # fmt: skip


def _compute_available_after(site: NodeInventory, loses: Sequence[RankContainer], fit: MemoryFit | None) -> int | None:
    """Return the memory available afterwards: what is available now, plus what is released, minus what the new one
    takes.
    """
    if site.available is None or any(one.held is None for one in loses):
        return None
    free = site.available + sum(one.held or 0 for one in loses)
    if site.last_start is not None:
        if fit is None or fit.needed_bytes is None:
            return None
        free -= fit.needed_bytes + (fit.standing.reserved if fit.standing is not None else 0)
    return max(0, free if site.total is None else min(free, site.total))
