"""``top``: what every node does, by the probe; what runs there, by Docker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from sparkctl.core.context import Context
from sparkctl.core.sampler import IN_FRONT_OF_AN_OPERATOR, Sampler
from sparkctl.core.session import Session
from sparkctl.core.store import InstanceView, LoadView
from sparkctl.core.together import together
from sparkctl.errors import DockerError, LinkLost, NodeError, Starved
from sparkctl.model.events import NodeStateChanged, SampleArrived
from sparkctl.model.node import Node, NodeState
from sparkctl.model.sample import Sample
from sparkctl.operations.numbers import Meters, Told, is_measurable
from sparkctl.operations.status import instance_view
from sparkctl.wire.link import LinkStatus, state_of

_ONCE_EVERY = 0.5  # seconds between the two samples of a single look: shares and rates take two
_ONCE_WITHIN = 10.0
_DOCKER_EVERY = 5.0
_METRICS_APART = 1.0  # seconds between the two readings of an engine in a single look
_METRICS_EVERY = 2.0


async def once(ctx: Context, nodes: Sequence[Node]) -> tuple[LoadView, ...]:
    """Return what each node does now; a node that cannot be asked is a view too, with its state and words."""
    return tuple(await together(*(_look(ctx, node) for node in nodes)))


async def _look(ctx: Context, node: Node) -> LoadView:
    async with Session(node, ctx.asker, ctx.clock) as session:
        try:
            await session.link.connect()
            sample = await _second_sample(session)
            ahead = sample.time - ctx.clock.now()
            view = await _with_instances(LoadView(node.name, NodeState.OK, ctx.clock.now(), sample=sample), session)
            return await _with_numbers(view, session, ahead)
        except NodeError as error:
            return LoadView(node.name, state_of(error), ctx.clock.now(), error.message, error.hint)


async def _second_sample(session: Session) -> Sample:
    name = session.node.name
    try:
        async with asyncio.timeout(_ONCE_WITHIN), aclosing(Sampler(session, _ONCE_EVERY).samples()) as events:
            async for event in events:
                if isinstance(event, SampleArrived) and event.sample.sequence >= 2:
                    return event.sample
    except TimeoutError as late:
        raise Starved(
            name, f"the probe on {name} sent no sample within {_ONCE_WITHIN:.0f} s", "it is there but very busy; wait"
        ) from late
    raise AssertionError("samples go on until they are closed")


async def _with_instances(view: LoadView, session: Session) -> LoadView:
    """Return the view with what runs, or with why Docker cannot say."""
    try:
        containers = await session.docker.list()
        sample = view.sample
        held = {c.id: None if sample is None else sample.held_by(c.id) for c in containers}
        shown = await together(*(instance_view(session, c, held[c.id]) for c in containers))
    except DockerError as error:
        return replace(view, instances=(), docker_known=False, detail=error.message, hint=error.hint)
    return replace(view, instances=tuple(i for i in shown if i), docker_known=True, detail=None, hint=None)


async def _with_numbers(view: LoadView, session: Session, ahead: float) -> LoadView:
    """Return the view with what two readings of each engine tell; what they cannot tell stays unknown."""
    if not any(is_measurable(one) for one in view.instances):
        return view
    meters = Meters(session)
    await meters.read(view.instances)
    await session.clock.sleep(_METRICS_APART)
    await meters.read(view.instances)
    await meters.read_logs(ahead)
    return _filled(view, meters.told(ahead))


def _filled(view: LoadView, told: dict[str, Told]) -> LoadView:
    nothing = Told(None)
    found = ((one, told.get(one.container_id or "", nothing)) for one in view.instances)
    return replace(
        view, instances=tuple(replace(one, numbers=its.numbers, metrics_hint=its.hint) for one, its in found)
    )


async def watch(
    ctx: Context, nodes: Sequence[Node], every: float = IN_FRONT_OF_AN_OPERATOR
) -> AsyncGenerator[tuple[LoadView, ...], None]:
    """Yield all nodes whenever one of them has news; lost connections come back by themselves, visibly."""
    news = asyncio.Event()
    followers = [_Follower(ctx, node, every, news) for node in nodes]
    tasks = [asyncio.create_task(follower.run()) for follower in followers]
    try:
        while True:
            await news.wait()
            news.clear()
            for task in tasks:
                if task.done():
                    task.result()  # a defect is not to be hidden
            yield tuple(follower.view for follower in followers)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(slots=True)
class _Follower:
    """Keeps the view of one node."""

    ctx: Context
    node: Node
    every: float
    news: asyncio.Event
    view: LoadView = field(init=False)
    _listed_at: float = float("-inf")
    _listed: asyncio.Event = field(default_factory=asyncio.Event)
    _told: dict[str, Told] = field(default_factory=dict)
    _ahead: float = 0.0  # seconds that the node's clock is ahead of ours

    def __post_init__(self) -> None:
        self.view = LoadView(self.node.name, NodeState.UNKNOWN, self.ctx.clock.now())

    def show(self, view: LoadView) -> None:
        self.view = _filled(view, self._told)
        self.news.set()

    async def run(self) -> None:
        try:
            async with Session(self.node, self.ctx.asker, self.ctx.clock) as session:
                session.link.on_status(self._link_changed)
                counting = asyncio.create_task(self._count(session))
                try:
                    async with aclosing(Sampler(session, self.every).samples()) as events:
                        async for event in events:
                            await self._take(event, session)
                            if counting.done():
                                counting.result()  # a defect is not to be hidden
                except NodeError as error:
                    self.show(
                        LoadView(self.node.name, state_of(error), self.ctx.clock.now(), error.message, error.hint)
                    )
                finally:
                    counting.cancel()
                    await asyncio.gather(counting, return_exceptions=True)
        finally:
            self.news.set()

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

    async def _take(self, event: SampleArrived | NodeStateChanged, session: Session) -> None:
        if isinstance(event, NodeStateChanged):
            return self.show(LoadView(self.node.name, event.state, event.ts, event.detail))
        self._ahead = event.sample.time - self.ctx.clock.now()
        view = replace(self.view, state=NodeState.OK, when=event.ts, sample=event.sample)
        now = self.ctx.clock.monotonic()
        if now - self._listed_at >= _DOCKER_EVERY:
            try:
                view = await _with_instances(view, session)
                self._listed_at = now
                self._listed.set()
            except LinkLost:
                return None  # the sampler meets it next, and brings the link back
        else:
            view = replace(view, instances=tuple(_held_now(one, event.sample) for one in view.instances))
        return self.show(view)

    def _link_changed(self, status: LinkStatus) -> None:
        if status.state in (NodeState.OK, NodeState.UNKNOWN):
            return  # a sample will tell more
        self._listed_at = float("-inf")
        self._listed.clear()  # there is nothing to ask until the node is back
        self._told = {}
        words = status.detail or ""
        if status.attempt is not None and status.next_try is not None:
            words += f"; attempt {status.attempt}, next try in {status.next_try:.1f} s"
        self.show(LoadView(self.node.name, status.state, self.ctx.clock.now(), words or None))


def _held_now(instance: InstanceView, sample: Sample) -> InstanceView:
    held = sample.held_by(instance.container_id) if instance.container_id else None
    return replace(instance, memory=held)
