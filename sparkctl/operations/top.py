"""``top``: what every node does, by the probe; what runs there, by Docker; what the engines do, by their figures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing

from sparkctl.core.context import Context
from sparkctl.core.health import identity
from sparkctl.core.live import Store
from sparkctl.core.sampler import IN_FRONT_OF_AN_OPERATOR, Sampler
from sparkctl.core.session import Session, node_failures
from sparkctl.core.store import LoadView
from sparkctl.core.together import together
from sparkctl.errors import InvalidInput, NodeError, Starved
from sparkctl.model.events import ContainersListed, Event, Found, NodeStateChanged, SampleArrived
from sparkctl.model.finding import Severity
from sparkctl.model.node import Node, NodeName, NodeState
from sparkctl.operations.following.follow import Follower, emit_told, failed, listing
from sparkctl.operations.following.inspecting import Inspections
from sparkctl.operations.following.numbers import Meters, is_measurable
from sparkctl.probe.decode import Hello

_ONCE_EVERY = 0.5  # seconds between the two samples of a single look: shares and rates take two
_ALIVE_WITHIN = 5.0
_ONCE_WITHIN = 10.0
_METRICS_APART = 1.0  # seconds between the two readings of an engine in a single look

Emit = Callable[[Event], None]


async def once(ctx: Context, nodes: Sequence[Node], record: Emit | None = None) -> tuple[LoadView, ...]:
    """Return what each node does now; a node that cannot be asked is a view too, with its state and words.

    ``record`` is given every event on the way.
    """
    store = Store()
    emit = _emitting(store, record)
    _begin(ctx, nodes, emit)
    found = await together(*(_look(ctx, node, emit) for node in nodes))
    _compare(ctx, {}, {node.name: who for node, who in zip(nodes, found, strict=True) if who is not None}, emit)
    return store.views()


def _emitting(store: Store, record: Emit | None, news: asyncio.Event | None = None) -> Emit:
    """Return how an event goes its way: written down, taken in, and told of where it changed something."""

    def emit(event: Event) -> None:
        if record is not None:
            record(event)
        if store.apply(event) and news is not None:
            news.set()

    return emit


def _begin(ctx: Context, nodes: Sequence[Node], emit: Emit) -> None:
    """Let the nodes stand in the operator's order, in a recording, too."""
    for node in nodes:
        emit(NodeStateChanged(ctx.clock.now(), node.name, NodeState.UNKNOWN))


def _compare(ctx: Context, before: Mapping[NodeName, Hello], now: Mapping[NodeName, Hello], emit: Emit) -> None:
    """Tell in what the nodes differ that should not, and where they no longer do."""
    unlike = {one.node: one for one in identity.differences(now)}
    for one in identity.differences(before):
        if one.node not in unlike:
            emit(Found(ctx.clock.now(), one.node, one.kind.value, Severity.GOOD, "the same versions"))
    for one in unlike.values():
        emit(Found.of(ctx.clock.now(), one))


async def _look(ctx: Context, node: Node, emit: Emit) -> Hello | None:
    """Look once; return who the node says it is."""
    async with Session(node, ctx.asker, ctx.clock) as session:
        try:
            with node_failures(node):
                return await _look_once(session, emit)
        except (NodeError, InvalidInput) as error:
            emit(failed(session, error))
            return None


async def _look_once(session: Session, emit: Emit) -> Hello:
    await session.link.connect()
    (arrived, who), listed = await together(_second_sample(session), listing(session, Inspections(session)))
    emit(listed)
    emit(arrived)
    for one in identity.troubles(session.node.name, who, arrived.sample):
        emit(Found.of(arrived.ts, one))
    await _count(session, listed, arrived.sample.time - arrived.ts, emit)
    return who


async def _second_sample(session: Session) -> tuple[SampleArrived, Hello]:
    name, sampler = session.node.name, Sampler(session, _ONCE_EVERY)
    try:
        async with asyncio.timeout(_ONCE_WITHIN), aclosing(sampler.samples()) as events:
            async for event in events:
                if isinstance(event, SampleArrived) and event.sample.sequence >= 2:
                    return event, sampler.identity or Hello()
    except TimeoutError as late:
        await session.run(["true"], timeout=_ALIVE_WITHIN)  # a login shell that does not run our commands says so here
        raise Starved(
            name, f"the probe on {name} sent no sample within {_ONCE_WITHIN:.0f} s", "it is there but very busy; wait"
        ) from late
    raise AssertionError("samples go on until they are closed")


async def _count(session: Session, listed: ContainersListed, ahead: float, emit: Emit) -> None:
    """Emit what two readings of each engine tell; what they cannot tell stays unknown."""
    if not any(is_measurable(one) for one in listed.instances):
        return
    meters = Meters(session)
    await meters.read(listed.instances)
    await session.clock.sleep(_METRICS_APART)
    await meters.read(listed.instances)
    await meters.read_logs(ahead)
    emit_told(session, meters.told(ahead), emit)


async def watch(
    ctx: Context,
    nodes: Sequence[Node],
    every: float = IN_FRONT_OF_AN_OPERATOR,
    record: Emit | None = None,
    again: float | None = None,
) -> AsyncGenerator[tuple[LoadView, ...], None]:
    """Yield all nodes whenever one of them has news; lost connections come back by themselves, visibly.

    ``every``: seconds between two samples of a node (`core.sampler` names three rates), one second at most while an
    instance of ours is loading there. ``record`` is given every event. ``again``: seconds until a node that cannot be used,
    as one that refused the login, is tried once more; None: not at all.
    """
    news = asyncio.Event()
    store = Store()
    emit = _emitting(store, record, news)
    _begin(ctx, nodes, emit)
    followers = [Follower(ctx, node, every, emit, again) for node in nodes]
    compared: dict[NodeName, Hello] = {}
    tasks = [asyncio.create_task(follower.run()) for follower in followers]
    for task in tasks:
        task.add_done_callback(lambda _: news.set())
    try:
        while True:
            await news.wait()
            news.clear()
            for task in tasks:
                if task.done():
                    task.result()  # a defect is not to be hidden
            known = {one.node.name: one.who for one in followers if one.who is not None}
            if known != compared:
                _compare(ctx, compared, known, emit)
                compared = known
            yield store.views()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
