"""The steps of a switch on its way: stop and keep the old one, prove its memory back, start the new one, clear the old."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from sparkctl.core.owed import Owed, OwedStops
from sparkctl.core.together import together
from sparkctl.core.wholes import Occupant, wholes
from sparkctl.errors import DockerError, NodeError, NoSuchContainer, Refused
from sparkctl.model.container import Container
from sparkctl.model.events import Ended, Outcome
from sparkctl.model.fit import Fit
from sparkctl.model.node import NodeName
from sparkctl.model.plan import Label
from sparkctl.model.switch import SwitchStep
from sparkctl.model.text import clean
from sparkctl.model.units import gib, spoken
from sparkctl.operations.labels import port_of
from sparkctl.operations.stopping.halting import stop_all
from sparkctl.operations.stopping.stop import sweep
from sparkctl.operations.stream import passed_on
from sparkctl.operations.switching.crew import Crew
from sparkctl.operations.switching.request import SwitchRequest
from sparkctl.operations.up import up

_SUFFIX = re.compile(r"\.kept-[0-9a-f]{6}$")
_MOST_NAME = 200

Fits = Callable[[], Coroutine[Any, Any, tuple[Fit, ...]]]


class NoRoom(Refused):
    """What was stopped did not give back what the new one needs."""


def kept_name(name: str, container_id: str) -> str:
    """Return the name of a container while it is kept."""
    return f"{name[:_MOST_NAME]}.kept-{container_id[:6]}"


def own_name(name: str) -> str:
    """Return the name that a kept container had."""
    return _SUFFIX.sub("", name)


async def alive_old(crew: Crew) -> dict[NodeName, list[Container]]:
    """Return what is still to be stopped, by node."""
    alive: dict[NodeName, list[Container]] = {}
    for node, container in await old_ones(crew):
        if container is not None and container.is_alive:
            alive.setdefault(node, []).append(container)
    return alive


async def stop_old(crew: Crew, alive: Mapping[NodeName, Sequence[Container]]) -> None:
    """Stop what goes and keep its containers; those that have ended already are fine. Raises the first failure."""
    if alive:
        halt = await stop_all(crew.sessions, crew.inner, crew.emit, alive, keep=True)
        for _, failure in halt.failures:
            raise failure
    names = " and ".join(crew.journal.stops)
    crew.tell(SwitchStep.STOPPING, f"{names} stopped; {_count(len(crew.journal.old))} kept")


async def old_ones(crew: Crew) -> tuple[tuple[NodeName, Container | None], ...]:
    """Return what was stopped, or is to be; None for one that is not there any more."""

    async def one(node: NodeName, container: str) -> tuple[NodeName, Container | None]:
        try:
            return node, await crew.sessions[node].docker.inspect(container)
        except NoSuchContainer:
            return node, None

    return await together(*(one(node, container) for node, container in crew.journal.old))


def _count(number: int) -> str:
    return "the container is" if number == 1 else f"{number} containers are"


async def prove_room(crew: Crew, fits: Fits) -> None:
    """Ask the sum again with what the nodes have now. Raises `NoRoom` where it does not come out."""
    made = await fits()
    short = [one for one in made if one.is_refused]
    if short:
        raise NoRoom(short[0].sentence + ", although what was in the way has stopped")
    free = ", ".join(
        f"{one.node} has {gib(one.standing.available)} available" for one in made if one.standing is not None
    )
    crew.tell(SwitchStep.RELEASING, free or "the nodes did not say what memory they have")


async def make_way(crew: Crew, names: frozenset[tuple[NodeName, str]]) -> None:
    """Rename kept containers that have a name which the new one is to have."""
    for node, container in await old_ones(crew):
        if container is not None and (node, container.name) in names:
            await crew.sessions[node].docker.rename(container.id, kept_name(container.name, container.id))


async def start_new(crew: Crew, request: SwitchRequest) -> Ended:
    """Start it as `up` does, under the locks that are held; return how that ended."""
    start = request.start(container for _, container in crew.journal.old)
    ended = await passed_on(up(crew.inner, start), crew.emit)
    if ended.outcome is Outcome.READY:
        crew.tell(SwitchStep.STARTING, f"{crew.journal.instance} is ready after {spoken(ended.seconds)}, a token came")
    return ended


async def clear_old(crew: Crew) -> str | None:
    """Remove the containers that were kept, their logs saved. Return which stayed, in words, because their logs could not be
    saved: it was done by us where the journal still is ours afterwards.

    The step has just asked whether the switch is still ours, and all are cleared at once.
    """

    async def clear(node: NodeName, container: Container) -> bool:
        try:
            await sweep(crew.sessions[node], crew.inner, crew.emit, container)
        except (Refused, DockerError) as why:
            crew.warn(node, why.message, why.hint)
            return False
        return True

    old = [(node, one) for node, one in await old_ones(crew) if one is not None]
    owe(crew, old)
    gone = await together(*(clear(node, container) for node, container in old))
    stayed = [f"{clean(one.name)} on {node}" for (node, one), is_gone in zip(old, gone, strict=True) if not is_gone]
    return f"{' and '.join(stayed)} stayed, as said above" if stayed else None


async def what_stays(crew: Crew) -> tuple[str, ...]:
    """Return what is on the Sparks that only lost something, a sentence for each: nothing that runs, or who."""

    async def of(node: NodeName) -> str:
        try:
            there = await crew.sessions[node].docker.list()
        except (NodeError, DockerError):
            return f"what else is on {node} is not known"
        ours = sorted({one.label(Label.INSTANCE) or one.name for one in there if one.is_ours and one.is_alive})
        others = sorted(clean(one.name) for one in there if one.is_alive and not one.is_ours)
        names = [*map(clean, ours), *(f"{name} (not sparkctl's)" for name in others)]
        return (
            f"{' and '.join(names)} {'stays' if len(names) == 1 else 'stay'} on {node}" if names else f"{node} is free"
        )

    return await together(*(of(node) for node in crew.journal.touched if node not in crew.journal.nodes))


async def owe_rest(crew: Crew) -> None:
    """Remember the ranks of the old ones on Sparks that were silent: the next contact stops them."""
    owe(crew, [(node, one) for node, one in await old_ones(crew) if one is not None])


def owe(crew: Crew, old: Sequence[tuple[NodeName, Container]]) -> None:
    """Remember the ranks on Sparks that were silent: the next contact stops them."""
    owed, now = OwedStops(crew.ctx.history.directory), crew.ctx.clock.now()
    for whole in wholes(Occupant(node, one, None, port_of(one)) for node, one in old):
        run = whole.label(Label.RUN)
        for name in whole.elsewhere if run else ():
            node = NodeName(name)
            if node in crew.journal.touched:
                continue
            try:
                owed.keep(Owed(node, whole.name, now, run=run))
            except OSError as error:
                crew.warn(node, f"that {whole.name} is still to be stopped there could not be kept: {error}")
