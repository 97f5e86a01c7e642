"""What could be started on an idle Spark: the profiles used last, what their starts measured, and which images are there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkctl.errors import DockerError, NodeError
from sparkctl.model.missing_part import PartKind
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.text.units import GIB, format_duration, format_gib

if TYPE_CHECKING:
    from sparkctl.concurrency import BackgroundTasks
    from sparkctl.context import CommandContext
    from sparkctl.model.profile import Profile
    from sparkctl.monitor.node_supervisor import NodeSupervisor
    from sparkctl.monitor.store import Store
    from sparkctl.tui.estimate_cache import MemoryEstimateCache
    from sparkctl.views.overview.tile_model import StartOffer

_MAX_OFFERS = 6
_RECHECK_SECONDS = 60.0  # seconds until the images of a node are looked for again
_HISTORY_ROWS = 60  # operations among which the last start of a profile is sought


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
        self._pull_seconds: dict[NodeName, float] = {}  # for a GiB of a model, on nodes where one was pulled
        self._images: dict[NodeName, dict[str, bool]] = {}  # whether it has an image, by name
        self._looked: dict[NodeName, float] = {}
        self._is_loading = False

    def forget(self) -> None:
        """Read profiles, history and images again: something was started or got."""
        self._profiles = None
        self._looked.clear()

    def list_offers(self, node: NodeName, recent: Sequence[str]) -> tuple[StartOffer, ...]:
        """Return what could be started on a node where nothing of sparkctl runs: the last used first, then what needs no
        image; () elsewhere."""
        from sparkctl.views.overview.tile_model import StartOffer

        view = self._store.get_last_known_view(node)
        is_idle = view.instances_seen is not None and not any(one.is_alive for one in view.instances)
        if not is_idle or self._store.get_state(node).state is not NodeState.OK:
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
                    name=one.name, fit=self._fits.get_estimate(one, node), rate=rate, seconds=seconds or one.expected_start_seconds,
                    missing=self.list_missing(one, node),
                )
            )  # fmt: skip
        return tuple(offers)

    def list_missing(self, profile: Profile, node: NodeName) -> tuple[str, ...]:
        """Return what a node certainly lacks for a profile, with its size where the profile tells it, and how long it takes where
        models came there before: ``image``, ``model 27.1 GiB in about 4 min``."""
        self._look_for_images(node)
        parts = ["image"] if self._images.get(node, {}).get(profile.image) is False else []
        sizes = {PartKind.MODEL: profile.model.weights, PartKind.DRAFT_MODEL: profile.model.draft_weights}
        for one in self._fits.list_missing_models(profile, node):
            size = sizes.get(one.kind)
            words = one.kind.value.replace("-", " ") + ("" if size is None else f" {format_gib(size)}")
            if size is not None and (seconds := self._pull_seconds.get(node)) is not None:
                words += f" in about {format_duration(seconds * size / GIB)}"
            parts.append(words)
        return tuple(parts)

    async def _load_profiles(self, recent: tuple[str, ...]) -> None:
        from sparkctl.profiles.profile_library import list_startable_profiles

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
            seconds = self._context.history.estimate_pull_seconds(node, GIB, is_image=False)
            if seconds is not None:
                self._pull_seconds[node] = seconds
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
