"""One node, followed: samples, what Docker says runs, and the engines' figures, each by a task of its own.

None of them waits for another: a Docker that hangs, or an engine that does not answer, holds up no sample.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from sparkctl.core.context import Context
from sparkctl.core.sampler import WHILE_LOADING, Sampler
from sparkctl.core.session import Session
from sparkctl.core.store import InstanceView, LoadView
from sparkctl.core.together import together
from sparkctl.errors import DockerError, NodeError
from sparkctl.model.events import NodeStateChanged, SampleArrived
from sparkctl.model.node import Node, NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.sample import Sample
from sparkctl.operations.numbers import Meters, Told
from sparkctl.operations.status import instance_view
from sparkctl.wire.link import LinkStatus, state_of

_DOCKER_EVERY = 5.0
_METRICS_EVERY = 2.0
_LOADING = (Phase.PLANNED, Phase.DROPPING_CACHES, Phase.CREATING, Phase.STARTING, Phase.LOADING, Phase.WARMING)


@dataclass(slots=True)
class Follower:
    """Keeps ``view``, the view of one node, and sets ``news`` at each change. ``run`` goes on until it is cancelled.

    ``every``: seconds between samples. While an instance of ours is loading there they come every second.
    """

    ctx: Context
    node: Node
    every: float
    news: asyncio.Event
    view: LoadView = field(init=False)
    _answers: asyncio.Event = field(default_factory=asyncio.Event)  # the node can be asked
    _listed: asyncio.Event = field(default_factory=asyncio.Event)  # and Docker has said what runs
    _told: dict[str, Told] = field(default_factory=dict)
    _ahead: float = 0.0  # seconds that the node's clock is ahead of ours

    def __post_init__(self) -> None:
        self.view = LoadView(self.node.name, NodeState.UNKNOWN, self.ctx.clock.now())

    def show(self, view: LoadView) -> None:
        """Let ``view`` be what is seen, with what the engines told last."""
        self.view = filled(view, self._told)
        self.news.set()

    async def run(self) -> None:
        """Follow the node; ends only where waiting does not help, the view saying why."""
        try:
            async with Session(self.node, self.ctx.asker, self.ctx.clock) as session:
                session.link.on_status(self._link_changed)
                sampler = Sampler(session, self.every)
                beside = [asyncio.create_task(work) for work in (self._list(session, sampler), self._count(session))]
                try:
                    await self._sample(sampler, beside)
                except NodeError as error:
                    self.show(
                        LoadView(self.node.name, state_of(error), self.ctx.clock.now(), error.message, error.hint)
                    )
                finally:
                    for task in beside:
                        task.cancel()
                    await asyncio.gather(*beside, return_exceptions=True)
        finally:
            self.news.set()

    async def _sample(self, sampler: Sampler, beside: Iterable[asyncio.Task[None]]) -> None:
        async with aclosing(sampler.samples()) as events:
            async for event in events:
                self._take(event)
                for task in beside:
                    if task.done():
                        task.result()  # a defect is not to be hidden

    def _take(self, event: SampleArrived | NodeStateChanged) -> None:
        if isinstance(event, NodeStateChanged):
            return self.show(LoadView(self.node.name, event.state, event.ts, event.detail))
        self._ahead = event.sample.time - self.ctx.clock.now()
        view = replace(self.view, state=NodeState.OK, when=event.ts, sample=event.sample)
        if view.docker_known:
            view = replace(view, detail=None, hint=None)  # those of a state that has passed
        self._answers.set()
        return self.show(holding(view, event.sample))

    async def _list(self, session: Session, sampler: Sampler) -> None:
        """Ask Docker what runs, again and again. What it does not answer for stays, as of when it was seen."""
        while True:
            await self._answers.wait()
            try:
                view = await listing(session)
            except NodeError:  # the sampler meets it next, and brings the link back
                self._answers.clear()
                continue
            if self._answers.is_set():
                self.show(with_listing(self.view, view))
                if view.docker_known:
                    self._listed.set()
                await self._set_rate(sampler)
            await self.ctx.clock.sleep(_DOCKER_EVERY)

    async def _set_rate(self, sampler: Sampler) -> None:
        loading = any(one.ours and one.phase in _LOADING for one in self.view.instances)
        wanted = min(self.every, WHILE_LOADING) if loading else self.every
        if wanted != sampler.every:
            await sampler.set_rate(wanted)

    async def _count(self, session: Session) -> None:
        """Read the engines again and again; of a node that cannot be asked nothing is told."""
        meters = Meters(session)
        try:
            while True:
                await self._listed.wait()
                try:
                    await meters.read(self.view.instances)
                    meters.follow_logs(self._ahead)
                    self._told = meters.told(self._ahead)
                    self.show(self.view)
                except NodeError:
                    self._told = {}  # the sampler meets it, too, and says so
                await self.ctx.clock.sleep(_METRICS_EVERY)
        finally:
            await meters.aclose()

    def _link_changed(self, status: LinkStatus) -> None:
        if status.state in (NodeState.OK, NodeState.UNKNOWN):
            return  # a sample will tell more
        self._answers.clear()
        self._listed.clear()  # there is nothing to ask until the node is back
        self._told = {}
        words = status.detail or ""
        if status.attempt is not None and status.next_try is not None:
            words += f"; attempt {status.attempt}, next try in {status.next_try:.1f} s"
        self.show(LoadView(self.node.name, status.state, self.ctx.clock.now(), words or None))


async def listing(session: Session) -> LoadView:
    """Return what Docker says runs, or why it does not say. Raises NodeError where the node cannot be asked."""
    now = session.clock.now()
    view = LoadView(session.node.name, NodeState.OK, now)
    try:
        containers = await session.docker.list()
        shown = await together(*(instance_view(session, one, None) for one in containers))
    except DockerError as error:
        return replace(view, docker_known=False, detail=error.message, hint=error.hint)
    return replace(view, instances=tuple(one for one in shown if one), instances_seen=now)


def with_listing(view: LoadView, listed: LoadView) -> LoadView:
    """Return ``view`` with what was listed; where Docker did not say, with the instances that were seen last."""
    view = replace(view, docker_known=listed.docker_known, detail=listed.detail, hint=listed.hint)
    if not listed.docker_known:
        return view
    view = replace(view, instances=listed.instances, instances_seen=listed.instances_seen)
    return view if view.sample is None else holding(view, view.sample)


def holding(view: LoadView, sample: Sample) -> LoadView:
    """Return ``view`` with what each instance holds according to ``sample``."""
    return replace(view, instances=tuple(_held_now(one, sample) for one in view.instances))


def _held_now(instance: InstanceView, sample: Sample) -> InstanceView:
    held = sample.held_by(instance.container_id) if instance.container_id else None
    return replace(instance, memory=held)


def filled(view: LoadView, told: dict[str, Told]) -> LoadView:
    """Return ``view`` with the engines' figures."""
    nothing = Told(None)
    found = ((one, told.get(one.container_id or "", nothing)) for one in view.instances)
    return replace(
        view, instances=tuple(replace(one, numbers=its.numbers, metrics_hint=its.hint) for one, its in found)
    )
