"""``top``: what every node does, by the probe; what runs there, by Docker; what the engines do, by their figures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from sparkctl.core.context import Context
from sparkctl.core.sampler import IN_FRONT_OF_AN_OPERATOR, Sampler
from sparkctl.core.session import Session
from sparkctl.core.store import LoadView
from sparkctl.core.together import together
from sparkctl.errors import NodeError, Starved
from sparkctl.model.events import SampleArrived
from sparkctl.model.node import Node, NodeState
from sparkctl.model.sample import Sample
from sparkctl.operations.follow import Follower, filled, listing, with_listing
from sparkctl.operations.numbers import Meters, is_measurable
from sparkctl.wire.link import state_of

_ONCE_EVERY = 0.5  # seconds between the two samples of a single look: shares and rates take two
_ONCE_WITHIN = 10.0
_METRICS_APART = 1.0  # seconds between the two readings of an engine in a single look


async def once(ctx: Context, nodes: Sequence[Node]) -> tuple[LoadView, ...]:
    """Return what each node does now; a node that cannot be asked is a view too, with its state and words."""
    return tuple(await together(*(_look(ctx, node) for node in nodes)))


async def _look(ctx: Context, node: Node) -> LoadView:
    async with Session(node, ctx.asker, ctx.clock) as session:
        try:
            await session.link.connect()
            sample, listed = await together(_second_sample(session), listing(session))
            ahead = sample.time - ctx.clock.now()
            view = LoadView(node.name, NodeState.OK, ctx.clock.now(), sample=sample)
            return await _with_numbers(with_listing(view, listed), session, ahead)
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


async def _with_numbers(view: LoadView, session: Session, ahead: float) -> LoadView:
    """Return the view with what two readings of each engine tell; what they cannot tell stays unknown."""
    if not any(is_measurable(one) for one in view.instances):
        return view
    meters = Meters(session)
    await meters.read(view.instances)
    await session.clock.sleep(_METRICS_APART)
    await meters.read(view.instances)
    await meters.read_logs(ahead)
    return filled(view, meters.told(ahead))


async def watch(
    ctx: Context, nodes: Sequence[Node], every: float = IN_FRONT_OF_AN_OPERATOR
) -> AsyncGenerator[tuple[LoadView, ...], None]:
    """Yield all nodes whenever one of them has news; lost connections come back by themselves, visibly.

    ``every``: seconds between two samples of a node (`core.sampler` names three rates), one second at most while an
    instance of ours is loading there.
    """
    news = asyncio.Event()
    followers = [Follower(ctx, node, every, news) for node in nodes]
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
