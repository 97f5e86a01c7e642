"""Memory estimates of profiles on each node, as `plan` computes them, the users' home directories on the nodes, and what
could be started on an idle one.

The model files are read on a node once, over the connection that follows it. Estimates are computed in a thread, and only
where the memory budget has changed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from sparkctl.errors import DockerError, NodeError, SparkctlError
from sparkctl.model.missing_part import MissingPart, PartKind
from sparkctl.model.node import Node, NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.reference import find_single_rate
from sparkctl.model.text.units import GIB, format_duration, format_gib
from sparkctl.profiles.profile_library import list_startable_profiles

if TYPE_CHECKING:
    from sparkctl.concurrency import BackgroundTasks
    from sparkctl.context import CommandContext
    from sparkctl.model.launch_plan import LaunchPlan
    from sparkctl.model.memory_fit import CheckpointFiles, MemoryBudget, MemoryFit
    from sparkctl.model.profile import Profile
    from sparkctl.monitor.node_views import NodeTelemetryView
    from sparkctl.monitor.store import Store
    from sparkctl.monitor.watch_nodes import NodeSupervisor
    from sparkctl.views.overview.tile_model import StartOffer

_UPDATE_SECONDS = 2.0  # seconds at least between two updates of a node
_RECHECK_SECONDS = 60.0  # seconds until missing or incomplete files, and the images of a node, are read again
_STARTING_PHASES = (Phase.CREATING, Phase.STARTING, Phase.LOADING, Phase.WARMING)
_MEMORY_STEP_BITS = 28  # bits: a change of less than 256 MiB makes no new estimate
_MAX_OFFERS = 6
_HISTORY_ROWS = 60  # operations among which the last start of a profile is sought
_EstimateKey = tuple[str, NodeName]  # a profile's hash, and the node


class MemoryEstimateCache:
    """Computes memory estimates in the background and schedules a repaint when one has changed.

    ``context`` never asks the operator. A defect in the work goes to the owner of ``tasks``.
    """

    def __init__(
        self, context: CommandContext, store: Store, supervisor: NodeSupervisor, tasks: BackgroundTasks,
        schedule_repaint: Callable[[], None], *, is_replaying: bool,
    ) -> None:  # fmt: skip
        self._context, self._store, self._supervisor, self._tasks = context, store, supervisor, tasks
        self._schedule_repaint, self._is_replaying = schedule_repaint, is_replaying
        self._homes: dict[NodeName, str | None] = {}  # the users' home directories; None: being read
        self._wanted: dict[str, Profile] = {}
        self._answers: dict[_EstimateKey, MemoryFit] = {}
        self._counted: dict[_EstimateKey, object] = {}  # the inputs of each answer
        self._counted_for: dict[_EstimateKey, object] = {}  # the instances on the node at the last computation
        self._plans: dict[tuple[str, NodeName, str | None], LaunchPlan | None] = {}
        self._refused: dict[_EstimateKey, str] = {}  # why there is no plan
        self._found: dict[tuple[NodeName, str], tuple[float, CheckpointFiles]] = {}
        self._tried: dict[NodeName, float] = {}
        self._running: set[NodeName] = set()

    @property
    def is_idle(self) -> bool:
        """Whether no requested estimate is being computed."""
        return not self._running

    def get_estimate(self, profile: Profile, node: NodeName) -> MemoryFit | None:
        """Return the current estimate; None where there is none yet or other instances run on the node now."""
        key, store = (profile.digest, node), self._store
        is_old = node in store.nodes and self._counted_for.get(key) != _budget_fingerprint(
            store.get_last_known_view(node)
        )
        return None if is_old else self._answers.get(key)

    def list_missing_models(self, profile: Profile, node: NodeName) -> tuple[MissingPart, ...]:
        """Return the models of a profile that the node certainly lacks, by what was read there last."""
        from sparkctl.commands.start.missing_parts import find_missing_models

        plan = self._plans.get((profile.digest, node, self._homes.get(node)))
        read = [one for (name, _), (_, one) in self._found.items() if name == node]
        return () if plan is None or not read else find_missing_models(profile, plan, read)

    def request_estimates(self, profiles: Sequence[Profile]) -> None:
        """Compute estimates for these profiles on every node, and keep them current."""
        self._wanted = {one.digest: one for one in profiles}
        for name in self._store.nodes:
            if name not in self._running:
                self._running.add(name)
                self._tasks.start_task(self._update_and_rest(name), f"fits on {name}")

    def add_estimates(self, profiles: Sequence[Profile]) -> None:
        """Compute estimates for these profiles too, and try again where there is none yet."""
        if any(self.get_estimate(one, node) is None for one in profiles for node in self._store.nodes):
            self.request_estimates([*self._wanted.values(), *profiles])

    async def compute_estimate(self, profile: Profile, node: NodeName) -> MemoryFit | None:
        """Return the estimate for any profile; None where it cannot be computed."""
        if node not in self._store.nodes:
            return None
        await self._update_node(node, [profile])
        return self.get_estimate(profile, node)

    async def _update_and_rest(self, name: NodeName) -> None:
        """Update the requested estimates of a node, then wait until the next update may start."""
        try:
            await self._update_node(name, list(self._wanted.values()))
            await self._context.clock.sleep(_UPDATE_SECONDS)
        finally:
            self._running.discard(name)

    def get_home_directory(self, node: Node) -> str | None:
        """Return the user's home on a node; None while it is not known, and then read it where the node answers."""
        if node.name not in self._homes and self._store.get_view(node.name).state is NodeState.OK:
            self._homes[node.name] = None
            self._tasks.start_task(self._fetch_home_directory(node))
        return self._homes.get(node.name)

    async def _fetch_home_directory(self, node: Node) -> None:
        from sparkctl.commands.start.launch_plans import read_node_home

        try:
            self._homes[node.name] = await read_node_home(self._context, node)
        except SparkctlError:
            del self._homes[node.name]  # the tile shows the error; read again when the node answers
        self._schedule_repaint()

    async def _update_node(self, name: NodeName, wanted: Sequence[Profile]) -> None:
        view = self._store.get_last_known_view(name)
        node = self._supervisor.get_node(name) or Node(name=name, host=str(name))
        home = None if self._is_replaying else self.get_home_directory(node)
        plans = await asyncio.to_thread(self._build_launch_plans, wanted, node, home)
        if home is not None:
            await self._read_checkpoint_files(node, view, wanted, plans)
        is_live = not self._is_replaying and view.state is NodeState.OK
        if is_live and home is None:
            return  # the location of the files is not known yet
        is_news = await asyncio.to_thread(
            self._update_estimates, wanted, plans, view, is_live and name not in self._tried
        )
        counted = {(one.digest, name): _budget_fingerprint(view) for one in wanted}
        if is_news or any(self._counted_for.get(key) != there for key, there in counted.items()):
            self._counted_for |= counted
            self._schedule_repaint()

    def _build_launch_plans(self, wanted: Sequence[Profile], node: Node, home: str | None) -> list[LaunchPlan | None]:
        from sparkctl.commands.start.launch_plans import preview_launch

        for one in wanted:
            key = one.digest, node.name, home
            if key not in self._plans:
                seen = preview_launch(self._context, one, node, home, os.environ)
                self._plans[key] = seen.plan
                if seen.plan is None and seen.refusal is not None:
                    self._refused[one.digest, node.name] = seen.refusal.message
        return [self._plans[one.digest, node.name, home] for one in wanted]

    async def _read_checkpoint_files(
        self, node: Node, view: NodeTelemetryView, wanted: Sequence[Profile], plans: Sequence[LaunchPlan | None]
    ) -> None:
        """Read the model files on a node that were not read yet; retry later where the node does not answer."""
        from sparkctl.profiles.fit_evaluation import list_checkpoint_paths

        now = self._context.clock.monotonic()
        all_of_them = {
            place
            for one, plan in zip(wanted, plans, strict=True)
            if plan is not None
            for place in list_checkpoint_paths(one, plan)
        }
        new = sorted(place for place in all_of_them if self._is_due(node.name, place, now))
        if (
            not new
            or view.state is not NodeState.OK
            or now - self._tried.get(node.name, -_RECHECK_SECONDS) < _UPDATE_SECONDS * 5
        ):
            return
        self._tried[node.name] = now
        with suppress(NodeError):
            async with self._supervisor.create_background_session(node) as session:
                await session.link.connect()
                inspection = await session.read_node(*(f"model={place}" for place in new))
            self._found |= {(node.name, one.place): (now, one) for one in inspection.models}
            self._tried.pop(node.name)

    def _is_due(self, node: NodeName, place: str, now: float) -> bool:
        when, one = self._found.get((node, place), (None, None))
        return (
            when is None or one is None or (now - when > _RECHECK_SECONDS and (not one.is_there or one.unfinished > 0))
        )

    def _update_estimates(
        self, wanted: Sequence[Profile], plans: Sequence[LaunchPlan | None], view: NodeTelemetryView, is_looked_at: bool
    ) -> bool:
        """Compute the estimates whose inputs have changed; return whether there is a new one.

        For a profile on several nodes the estimate is about one rank's share, where there are enough nodes.
        ``is_looked_at``: files that were not read yet will be read soon.
        """
        from sparkctl.commands.start.node_fit import calculate_fit_from_budget, memory_budget_of_view
        from sparkctl.model.memory_fit import FitOutcome, MemoryFit
        from sparkctl.profiles.fit_evaluation import list_checkpoint_paths

        is_news, is_now = False, self._is_replaying or view.state is NodeState.OK
        for one, plan in zip(wanted, plans, strict=True):
            key = one.digest, view.name
            if plan is None:
                why = self._refused.get(key)
                fit = MemoryFit(
                    node=view.name, profile=one.name, answer=FitOutcome.UNKNOWN, cautions=() if why is None else (why,)
                )
                is_news, self._answers[key] = is_news or self._answers.get(key) != fit, fit
                continue
            wants = list_checkpoint_paths(one, plan)
            found = [self._found[view.name, place][1] for place in wants if (view.name, place) in self._found]
            if is_looked_at and len(found) < len(wants):
                continue
            there = (
                memory_budget_of_view(view, one.name) if is_now else None
            )  # the last budget of a silent node may be wrong
            premises = (_round_budget(there), tuple(found))
            if self._counted.get(key) != premises:
                self._counted[key] = premises
                ranks = one.nodes if len(self._store.nodes) >= one.nodes else 1
                self._answers[key] = calculate_fit_from_budget(self._context, one, plan, found, there, ranks)
                is_news = True
        return is_news


def _budget_fingerprint(view: NodeTelemetryView) -> object:
    """Return the live instances of a node and which of them still load: an estimate is valid for this state only."""
    return frozenset((one.container_id, one.phase in _STARTING_PHASES) for one in view.instances if one.is_alive)


def _round_budget(there: MemoryBudget | None) -> object:
    if there is None:
        return None
    holders = tuple(
        (one.name, (one.held or 0) >> _MEMORY_STEP_BITS, one.coming >> _MEMORY_STEP_BITS, one.is_replaced)
        for one in there.holders
    )
    return there.available >> _MEMORY_STEP_BITS, there.droppable >> _MEMORY_STEP_BITS, holders


class StartOfferCache:
    """Reads in the background what an idle Spark's tile offers; what is not known yet is not waited for."""

    def __init__(
        self, context: CommandContext, store: Store, supervisor: NodeSupervisor, tasks: BackgroundTasks, fits: MemoryEstimateCache
    ) -> None:  # fmt: skip
        self._context, self._store, self._supervisor = context, store, supervisor
        self._tasks, self._fits = tasks, fits
        self._profiles: tuple[Profile, ...] | None = None
        self._figures: dict[
            tuple[str, str], tuple[float | None, float | None]
        ] = {}  # tok/s and seconds, by profile and node
        self._pull_seconds: dict[
            tuple[NodeName, bool], float
        ] = {}  # for a GiB, of an image or not, where one was pulled
        self._images: dict[NodeName, dict[str, bool]] = {}  # whether it has an image, by name
        self._image_sizes: dict[tuple[NodeName, str], int | None] = {}  # as its registry tells; None: it was asked
        self._looked: dict[NodeName, float] = {}
        self._is_loading = False

    def forget(self) -> None:
        """Read profiles, history and images again: something was started or got."""
        self._profiles = None
        self._looked.clear()
        self._image_sizes = {key: size for key, size in self._image_sizes.items() if size is not None}

    def list_offers(self, node: NodeName, recent: Sequence[str]) -> tuple[StartOffer, ...]:
        """Return what could be started on an idle node: the last used first, then what needs no image; () elsewhere."""
        from sparkctl.views.overview.tile_model import StartOffer

        view = self._store.get_last_known_view(node)
        is_idle = view.instances_seen is not None and not any(one.is_alive for one in view.instances)
        if not is_idle or self._store.get_record(node).state.state is not NodeState.OK:
            return ()
        if self._profiles is None:
            if not self._is_loading:
                self._is_loading = True
                self._tasks.start_task(self._load_profiles(tuple(recent)), "offers")
            return ()
        self._look_for_images(node)
        images = self._images.get(node, {})
        wanted = [one for one in self._profiles if one.nodes == 1]
        wanted.sort(key=lambda one: one.name not in recent and images.get(one.image) is False)
        self._fits.add_estimates(wanted[:_MAX_OFFERS])
        offers = []
        for one in wanted[:_MAX_OFFERS]:
            rate, seconds = self._figures.get((one.name, node)) or self._figures.get((one.name, "")) or (None, None)
            offers.append(
                StartOffer(
                    name=one.name,
                    fit=self._fits.get_estimate(one, node),
                    rate=rate,
                    seconds=seconds or one.expected_start_seconds,
                    source_rate=find_single_rate(one.reference),
                    missing=self.list_missing(one, node),
                )
            )
        return tuple(offers)

    def list_missing(self, profile: Profile, node: NodeName, *, asks_registry: bool = False) -> tuple[str, ...]:
        """Return what a node certainly lacks for a profile, with its size where the profile or, once asked, the image's registry
        tells it, and how long it takes where such came there before: ``image``, ``model 27.1 GiB in about 4 min``."""
        self._look_for_images(node)
        sizes = {PartKind.MODEL: profile.model.weights, PartKind.DRAFT_MODEL: profile.model.draft_weights}
        lacking = [one.kind for one in self._fits.list_missing_models(profile, node)]
        if self._images.get(node, {}).get(profile.image) is False:
            lacking.insert(0, PartKind.IMAGE)
            sizes[PartKind.IMAGE] = self._image_sizes.get((node, profile.image))
            if asks_registry and (node, profile.image) not in self._image_sizes:
                self._image_sizes[node, profile.image] = None
                self._tasks.start_task(self._measure_image(node, profile), f"the size of {profile.image}")
        return tuple(self._describe_missing(node, kind, sizes.get(kind)) for kind in lacking)

    def _describe_missing(self, node: NodeName, kind: PartKind, size: int | None) -> str:
        words = kind.value.replace("-", " ") + ("" if size is None else f" {format_gib(size)}")
        if size is not None and (seconds := self._pull_seconds.get((node, kind is PartKind.IMAGE))) is not None:
            words += f" in about {format_duration(seconds * size / GIB)}"
        return words

    async def _load_profiles(self, recent: tuple[str, ...]) -> None:
        try:
            offers = await asyncio.to_thread(list_startable_profiles, recent)
            self._figures = await asyncio.to_thread(self._read_figures)
            self._profiles = tuple(one.profile for one in offers if one.profile is not None)
        finally:
            self._is_loading = False

    def _read_figures(self) -> dict[tuple[str, str], tuple[float | None, float | None]]:
        """Return what the last good start of each profile measured, on each node and ("") on any."""
        figures: dict[tuple[str, str], tuple[float | None, float | None]] = {}
        for node in self._store.nodes:
            for is_image in (False, True):
                seconds = self._context.history.estimate_pull_seconds(node, GIB, is_image=is_image)
                if seconds is not None:
                    self._pull_seconds[node, is_image] = seconds
        for one in self._context.history.list_operations(most=_HISTORY_ROWS):
            if one.profile is None or one.outcome != "ready":
                continue
            for share in one.shares:
                found = share.tokens_per_second, one.seconds
                figures.setdefault((one.profile, str(share.node)), found)
                figures.setdefault((one.profile, ""), found)
        return figures

    def _look_for_images(self, node: NodeName) -> None:
        now = self._context.clock.monotonic()
        if self._profiles is not None and now - self._looked.get(node, -_RECHECK_SECONDS) >= _RECHECK_SECONDS:
            self._looked[node] = now
            wanted = tuple(dict.fromkeys(one.image for one in self._profiles))
            self._tasks.start_task(self._find_images(node, wanted), f"images of {node}")

    async def _find_images(self, name: NodeName, wanted: Sequence[str]) -> None:
        node = self._supervisor.get_node(name)
        if node is None:
            return
        try:
            async with self._supervisor.create_background_session(node) as session:
                await session.link.connect()
                found = {image: await session.docker.inspect_image(image) is not None for image in wanted}
        except (NodeError, DockerError):
            return  # the tile shows why
        self._images[name] = found

    async def _measure_image(self, name: NodeName, profile: Profile) -> None:
        """Ask an image's registry, through the node, how large it is: once, as a registry counts who asks."""
        from sparkctl.commands.start.image_registry import measure_images

        node = self._supervisor.get_node(name)
        if node is None or profile.build is not None:
            return
        part = MissingPart(
            kind=PartKind.IMAGE,
            node=name,
            name=profile.image,
            reason="is not there",
            source=profile.image,
            made_by=profile.image_made_by,
        )
        try:
            async with self._supervisor.create_background_session(node) as session:
                await session.link.connect()
                (part,), _ = await measure_images(session, (part,), await session.docker.read_info())
        except (NodeError, DockerError):
            return  # the tile shows why
        self._image_sizes[name, profile.image] = part.size
