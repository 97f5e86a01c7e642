"""Whether profiles fit on the Sparks now: the sum of `plan`, held against what each was last seen to have.

A model's files are looked at on its node once, over the connection that is there anyway; all the rest is counted here,
beside the loop, and only where memory has moved.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sparkctl.commands.start.launch_plans import read_node_home
from sparkctl.errors import NodeError, SparkctlError
from sparkctl.model.node import Node, NodeName, NodeState
from sparkctl.model.phase import Phase

if TYPE_CHECKING:
    from sparkctl.model.launch_plan import LaunchPlan
    from sparkctl.model.memory_fit import CheckpointFiles, MemoryBudget, MemoryFit
    from sparkctl.model.profile import Profile
    from sparkctl.monitor.node_views import NodeTelemetryView
    from sparkctl.tui.panel_interface import Controller

_UPDATE_SECONDS = 2.0  # seconds at least between two sums of a node
_RECHECK_SECONDS = 60.0  # seconds until files that were not there, or not whole, are looked for again
_STARTING_PHASES = (Phase.CREATING, Phase.STARTING, Phase.LOADING, Phase.WARMING)
_MEMORY_STEP_BITS = 28  # bits: memory that moves by less than 256 MiB makes no other answer
_EstimateKey = tuple[str, NodeName]  # a profile's hash, and the node


class MemoryEstimateCache:
    """Of one room. `want` says what is seen; what is known of it is there a moment later, and ``room`` paints then."""

    def __init__(self, room: Controller) -> None:
        self._room = room
        self._wanted: dict[str, Profile] = {}
        self._answers: dict[_EstimateKey, MemoryFit] = {}
        self._counted: dict[_EstimateKey, object] = {}  # what an answer was counted from
        self._counted_for: dict[_EstimateKey, object] = {}  # what stood on the node when it was counted last
        self._plans: dict[tuple[str, NodeName, str | None], LaunchPlan | None] = {}
        self._refused: dict[_EstimateKey, str] = {}  # why there is no plan
        self._found: dict[tuple[NodeName, str], tuple[float, CheckpointFiles]] = {}
        self._tried: dict[NodeName, float] = {}
        self._running: dict[NodeName, asyncio.Task[None]] = {}

    def get_estimate(self, profile: Profile, node: NodeName) -> MemoryFit | None:
        """Return the answer, None where it was not counted yet, or for others than stand there now."""
        key, store = (profile.digest, node), self._room.bridge.store
        is_old = node in store.nodes and self._counted_for.get(key) != _budget_fingerprint(
            store.get_last_known_view(node)
        )
        return None if is_old else self._answers.get(key)

    def request_estimates(self, profiles: Sequence[Profile]) -> None:
        """Let the answers for these be there, and be those of now."""
        self._wanted = {one.digest: one for one in profiles}
        for name in self._room.bridge.store.nodes:
            if name not in self._running:
                task = self._room.run_background_task(self._update_and_rest(name), f"fits on {name}")
                self._running[name] = task
                task.add_done_callback(lambda done, name=name: self._finish_update(name, done))  # type: ignore[misc]

    async def compute_estimate(self, profile: Profile, node: NodeName) -> MemoryFit | None:
        """Return the answer for a profile that is nowhere in the list; None where it cannot be counted."""
        if node not in self._room.bridge.store.nodes:
            return None
        await self._update_node(node, [profile])
        return self.get_estimate(profile, node)

    def _finish_update(self, name: NodeName, task: asyncio.Task[None]) -> None:
        del self._running[name]
        if not task.cancelled():
            task.result()  # a defect is not to be hidden

    async def _update_and_rest(self, name: NodeName) -> None:
        """Count all that is wanted for a node, and rest."""
        await self._update_node(name, list(self._wanted.values()))
        await self._room.clock.sleep(_UPDATE_SECONDS)

    async def _update_node(self, name: NodeName, wanted: Sequence[Profile]) -> None:
        room = self._room
        view = room.bridge.store.get_last_known_view(name)
        node = room.supervisor.get_node(name) or Node(name=name, host=str(name))
        home = None if room.is_replaying else room.find_home_directory(node)
        plans = await asyncio.to_thread(self._build_launch_plans, wanted, node, home)
        if home is not None:
            await self._read_checkpoint_files(node, view, wanted, plans)
        is_live = not room.is_replaying and view.state is NodeState.OK
        if is_live and home is None:
            return  # where the files lie is not known yet: what came of it now would be no result
        is_news = await asyncio.to_thread(
            self._update_estimates, wanted, plans, view, is_live and name not in self._tried
        )
        counted = {(one.digest, name): _budget_fingerprint(view) for one in wanted}
        if is_news or any(self._counted_for.get(key) != there for key, there in counted.items()):
            self._counted_for |= counted
            room.bridge.schedule_repaint()

    def _build_launch_plans(self, wanted: Sequence[Profile], node: Node, home: str | None) -> list[LaunchPlan | None]:
        from sparkctl.commands.start.launch_plans import preview_launch

        for one in wanted:
            key = one.digest, node.name, home
            if key not in self._plans:
                seen = preview_launch(self._room.context, one, node, home, os.environ)
                self._plans[key] = seen.plan
                if seen.plan is None and seen.refusal is not None:
                    self._refused[one.digest, node.name] = seen.refusal.message
        return [self._plans[one.digest, node.name, home] for one in wanted]

    async def _read_checkpoint_files(
        self, node: Node, view: NodeTelemetryView, wanted: Sequence[Profile], plans: Sequence[LaunchPlan | None]
    ) -> None:
        """Look at the files of models that were not looked at yet. What does not answer now is asked again later."""
        from sparkctl.profiles.memory_fit.estimate_input import list_checkpoint_paths

        now, room = self._room.clock.monotonic(), self._room
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
            async with room.supervisor.create_background_session(node) as session:
                await session.link.connect()
                look = await session.read_node(*(f"model={place}" for place in new))
            self._found |= {(node.name, one.place): (now, one) for one in look.models}
            self._tried.pop(node.name)

    def _is_due(self, node: NodeName, place: str, now: float) -> bool:
        when, one = self._found.get((node, place), (None, None))
        return (
            when is None or one is None or (now - when > _RECHECK_SECONDS and (not one.is_there or one.unfinished > 0))
        )

    def _update_estimates(
        self, wanted: Sequence[Profile], plans: Sequence[LaunchPlan | None], view: NodeTelemetryView, is_looked_at: bool
    ) -> bool:
        """Count what has other premises than the last time; return whether there is a new answer. Of a profile for several
        Sparks it is whether its share fits, where there are as many. ``is_looked_at``: files that
        were not seen yet are going to be."""
        from sparkctl.commands.start.node_fit import calculate_fit_from_budget, memory_budget_of_view
        from sparkctl.model.memory_fit import FitOutcome, MemoryFit
        from sparkctl.profiles.memory_fit.estimate_input import list_checkpoint_paths

        is_news, is_now = False, self._room.is_replaying or view.state is NodeState.OK
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
            )  # what it had before it fell silent is no answer
            premises = (_round_budget(there), tuple(found))
            if self._counted.get(key) != premises:
                self._counted[key] = premises
                asked = one.nodes if len(self._room.bridge.store.nodes) >= one.nodes else 1
                self._answers[key] = calculate_fit_from_budget(self._room.context, one, plan, found, there, asked)
                is_news = True
        return is_news


def _budget_fingerprint(view: NodeTelemetryView) -> object:
    """Return what stands on a node, and what of it is still to take its memory: with that an answer is an old one."""
    return frozenset((one.container_id, one.phase in _STARTING_PHASES) for one in view.instances if one.is_alive)


def _round_budget(there: MemoryBudget | None) -> object:
    if there is None:
        return None
    holders = tuple(
        (one.name, (one.held or 0) >> _MEMORY_STEP_BITS, one.coming >> _MEMORY_STEP_BITS, one.is_replaced)
        for one in there.holders
    )
    return there.available >> _MEMORY_STEP_BITS, there.droppable >> _MEMORY_STEP_BITS, holders


class HomeDirectoryCache:
    """Of one room; ``spawn`` lets something go on beside the keys."""

    def __init__(self, room: Controller, spawn: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        self._room, self._spawn = room, spawn
        self._known: dict[NodeName, str | None] = {}  # None: being asked

    def get_home_directory(self, node: Node) -> str | None:
        """Return a home; None while it is not known, and then it is asked for where the node answers."""
        if node.name not in self._known and self._room.bridge.store.get_view(node.name).state is NodeState.OK:
            self._known[node.name] = None
            self._spawn(self._fetch_home_directory(node))
        return self._known.get(node.name)

    async def _fetch_home_directory(self, node: Node) -> None:
        try:
            self._known[node.name] = await read_node_home(self._room.non_interactive_context, node)
        except SparkctlError:
            del self._known[node.name]  # the tile says what is wrong with the node; asked again when it answers
        self._room.bridge.schedule_repaint()
