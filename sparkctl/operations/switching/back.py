"""The way back of a switch: the new one's containers go, the old ones are started again and prove themselves."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from sparkctl.core.diagnosing import ANY
from sparkctl.core.history_entry import Entry
from sparkctl.core.planning import guard_rule
from sparkctl.core.profiles import ProfileLibrary
from sparkctl.core.session import Session
from sparkctl.core.together import together
from sparkctl.core.wholes import Occupant, wholes
from sparkctl.engines import load, names
from sparkctl.errors import DockerError, NoSuchContainer, Refused, SparkctlError
from sparkctl.model.container import Container
from sparkctl.model.events import Outcome
from sparkctl.model.guard import UnwatchReason
from sparkctl.model.history import Kind
from sparkctl.model.node import NodeName
from sparkctl.model.plan import GuardRule, Label, Timeouts
from sparkctl.model.profile import Profile
from sparkctl.model.switch import SwitchStep, apart
from sparkctl.model.text import clean
from sparkctl.model.units import spoken
from sparkctl.model.verdict import Verdict
from sparkctl.operations.drop_caches import NoRight, drop
from sparkctl.operations.labels import rank_of
from sparkctl.operations.starting import readiness
from sparkctl.operations.starting.asking import Manners
from sparkctl.operations.starting.launched import read_back
from sparkctl.operations.starting.rank_watch import WatchedRank
from sparkctl.operations.starting.ranks_watch import End, measure_clocks, watch
from sparkctl.operations.starting.start_guard import unwatch
from sparkctl.operations.stopping.halting import grace_for
from sparkctl.operations.stopping.stop import Stopped, stop
from sparkctl.operations.switching.crew import Crew
from sparkctl.operations.switching.forward import own_name

_LIMITS = Timeouts()
_PATIENCE = _LIMITS.starting + _LIMITS.loading + _LIMITS.warming

Old = tuple[NodeName, Container]


class NotBack(SparkctlError):
    """What was stopped does not serve again. ``verdict``: on the ``instance`` whose log was watched, None where none was."""

    def __init__(
        self, message: str, hint: str | None = None, verdict: Verdict | None = None, instance: str | None = None
    ) -> None:
        super().__init__(message, hint)
        self.verdict, self.instance = verdict, instance


async def gone(crew: Crew) -> NotBack | None:
    """Return why not all of what was stopped can come back: a container of it was removed by somebody, or was not reached
    when the others stopped; None where it can."""
    try:
        old = [await _kept(crew, node, container) for node, container in crew.journal.old]
    except NotBack as lost:
        return lost
    for one in wholes(Occupant(node, container) for node, container in old):
        if one.missing:
            where = f" on {' and '.join(map(clean, one.elsewhere))}" if one.elsewhere else ""
            return NotBack(
                f"{one.name} cannot be started again: its rank{where} was not seen to run when it stopped, and half a "
                "model answers nobody"
            )
    return None


async def new_on(crew: Crew, node: NodeName) -> list[Container]:
    """Return what the switch started on a node: containers of that very profile, and never those of before."""
    kept, its = {container for _, container in crew.journal.old}, (crew.journal.instance, crew.journal.profile_hash)
    return [
        one
        for one in await crew.sessions[node].docker.list()
        if (one.label(Label.INSTANCE), one.label(Label.HASH)) == its and one.id not in kept
    ]


async def take_away(crew: Crew, node: NodeName, one: Container) -> Stopped:
    """Stop a container and remove it, its log kept."""
    await crew.ensure(node)
    await unwatch(crew.sessions[node], crew.inner, crew.emit, [one.id], UnwatchReason.STOPPED)
    return await stop(crew.sessions[node], crew.inner, crew.emit, one, grace_for(one, None))


async def undo(crew: Crew) -> str | None:
    """Stop and remove what the switch started, its log kept. Return which of its containers stayed, in words."""
    logs, kept = [], []
    for node in crew.journal.nodes:
        for one in await new_on(crew, node):
            stopped = await take_away(crew, node, one)
            logs += [stopped.log] if stopped.log else []
            kept += [f"{clean(stopped.kept)} on {node}"] if stopped.kept is not None else []
    said = f"; log: {' '.join(logs)}" if logs else ""
    left = f"{' and '.join(kept)} stayed: the log could not be saved whole" if kept else None
    crew.tell(SwitchStep.UNDOING, (left or f"nothing of {crew.journal.instance} is left") + said)
    return left


async def restore(crew: Crew) -> str:
    """Start the old containers again, in their order, and watch each model as `up` does: until it is ready by its own rule
    and gave a token.

    Returns what happened, in words. Raises `NotBack` where one does not come back.
    """
    began = crew.ctx.clock.monotonic()
    old = [await _kept(crew, node, container) for node, container in crew.journal.old]
    undropped = {node for node in dict.fromkeys(node for node, _ in old) if not await _drop(crew, node)}
    rows, ranks = _rows(crew, old), list[WatchedRank]()
    running = frozenset(container.id for _, container in old if container.is_alive)
    try:
        for node, container in old:
            ranks.append(await _rank_of(crew, node, container, began, drop_was_told=node in undropped))
            await _start(crew, container, ranks[-1])
        await together(*(_prove(crew, model, running) for model in _models(ranks)))
    except SparkctlError as why:
        for row in rows:
            is_it = isinstance(why, NotBack) and why.instance == row.operation.instance
            row.end(
                str(Outcome.FAILED), int(why.exit_code), why=why.message, hint=why.hint,
                verdict=why.verdict if isinstance(why, NotBack) and is_it else None,
            )  # fmt: skip
        raise
    finally:
        for rank in ranks:
            await rank.leave()  # its guard stays armed where it still loads
        seconds = crew.ctx.clock.monotonic() - began
        for row in rows:
            is_back = sys.exc_info()[0] is None
            row.end(
                str(Outcome.DONE if is_back else Outcome.INTERRUPTED), 0 if is_back else None,
                why="the same containers, started again", seconds=seconds if is_back else None,
            )  # fmt: skip
    took, is_one = spoken(seconds), len(crew.journal.stops) == 1
    crew.tell(SwitchStep.RESTORING, f"started again and ready after {took}")
    _, names = apart(crew.journal.instance, crew.journal.stops)
    return f"{' and '.join(names)} {'serves' if is_one else 'serve'} again after {took}"


async def _kept(crew: Crew, node: NodeName, container: str) -> Old:
    try:
        return node, await crew.sessions[node].docker.inspect(container)
    except NoSuchContainer as gone:
        names_ = " and ".join(crew.journal.stops)
        raise NotBack(
            f"the container {container[:12]} of {names_} is not on {node} any more",
            f"once this is over, start it anew: sparkctl up {crew.journal.stops[0]}",
        ) from gone


async def _drop(crew: Crew, node: NodeName) -> bool:
    """Drop a node's page cache; return whether that could be done."""
    try:
        await drop(crew.sessions[node], crew.inner, crew.emit)
    except NoRight as no:
        crew.warn(node, f"page cache not dropped: {no.message}", no.hint)
        return False
    return True


def _rows(crew: Crew, old: Sequence[Old]) -> list[Entry]:
    """Begin a row of the history for each model that is started again. Its seconds are no start's: nothing is expected of
    them."""
    ctx, where = crew.ctx, dict[str, list[NodeName]]()
    for node, container in old:
        where.setdefault(container.label(Label.INSTANCE) or own_name(container.name), []).append(node)
    rows = []
    for name, nodes in where.items():
        row = ctx.history.begin(Kind.START, ctx.clock, ctx.operator, nodes, ctx.operation, instance=name)
        row.know()
        rows.append(row)
    return rows


async def _rank_of(
    crew: Crew, node: NodeName, container: Container, began: float, *, drop_was_told: bool
) -> WatchedRank:
    """Return what watches one that is started again, as a start of its profile is watched. The container tells what it runs
    with; its times and its guard's rule are of the profile, where there is one of that name here."""
    session, profile = crew.sessions[node], _profile(container)
    index, _, count = (rank_of(container) or "0/1").partition("/")
    made = read_back(session.node, container, await session.docker.run_of(container.id)).plan
    made = replace(
        made, container_name=own_name(container.name), rank=int(index), ranks=int(count),
        timeouts=_LIMITS if profile is None else profile.start.timeouts,
        guard=None if not crew.guarded else GuardRule(limit=_PATIENCE) if profile is None else guard_rule(profile),
        secrets=tuple(await session.docker.secrets(container.id)),
    )  # fmt: skip
    again = f"sparkctl resume --node {crew.journal.touched[0]}"
    engine = load(made.engine if made.engine in names() else ANY)
    rank = WatchedRank(crew.inner, session, engine, made, crew.emit, began, again)
    rank.container_id, rank.drop_was_told = container.id, drop_was_told
    return rank


def _profile(container: Container) -> Profile | None:
    try:
        return ProfileLibrary().load(container.label(Label.PROFILE) or "")
    except SparkctlError:
        return None


async def _start(crew: Crew, container: Container, rank: WatchedRank) -> None:
    """Start it under a guard, where one is to be had; its log of before is not what it does now."""
    session, node = rank.session, rank.plan.node
    await crew.ensure(node)
    try:
        await rank.arm()
    except Refused as no:
        crew.warn(node, f"{no.message}; {rank.plan.instance} loads without one", no.hint)
    try:
        if rank.plan.container_name != container.name:
            await session.docker.rename(container.id, rank.plan.container_name)
        if not container.is_alive:
            await session.docker.start(container.id)
        rank.since = (await session.docker.inspect(container.id)).started
        await rank.watch_over(container.id)
    except DockerError as refused:
        raise NotBack(
            f"{rank.plan.container_name} on {node} could not be started again: {refused.message}", refused.hint
        ) from refused


def _models(ranks: Sequence[WatchedRank]) -> list[list[WatchedRank]]:
    """Return the ranks of each model, in their order."""
    found: dict[str, list[WatchedRank]] = {}
    for rank in ranks:
        found.setdefault(dict(rank.plan.labels).get(Label.RUN) or rank.container_id, []).append(rank)
    return [sorted(model, key=lambda rank: rank.plan.rank) for model in found.values()]


async def _prove(crew: Crew, model: Sequence[WatchedRank], running: Collection[str]) -> None:
    """Watch one model until it is ready; one that is ``running`` already, from an earlier try, may prove itself at once:
    its log need not tell any more how it started. Raises `NotBack` with the verdict on it."""
    is_running = all(rank.container_id in running for rank in model)
    end = (
        None
        if is_running and await _check_serving(model[0])
        else await watch(crew.inner, model, await measure_clocks(model))
    )
    if end is None or end.verdict is None:
        for rank in model:
            await rank.became_ready()
        return
    raise _not_back(end, end.verdict)


async def _check_serving(head: WatchedRank) -> bool:
    """Ask a model for its health and a token, once; False where its profile leaves nothing to ask for."""
    link, service = head.session.link, head.plan.service
    if service.ready.health is None and service.ready.probe == "none":
        return False
    manners = Manners()
    if not (await readiness.health(link, service, manners=manners)).good:
        return False
    service = await readiness.named(link, service, manners)
    return (await readiness.one_token(link, service, manners)).good


def _not_back(end: End, verdict: Verdict) -> NotBack:
    plan = end.rank.plan
    proof = "".join(f"\n  {one.text}" for one in verdict.evidence[:1])
    see = f"see why: sparkctl diagnose {plan.instance} --node {plan.node}"
    paths = [*filter(None, (end.log,)), *(path for _, path in end.more_logs)]
    log = f"{'its log' if len(paths) == 1 else 'the logs of its ranks'}: {' '.join(paths)}" if paths else None
    return NotBack(
        f"{plan.instance} did not come back: {verdict.summary}{proof}",
        "\n".join(filter(None, (verdict.remedy, see, log))), verdict, plan.instance,
    )  # fmt: skip


async def restart_order(sessions: Mapping[NodeName, Session], old: Sequence[Old]) -> tuple[Old, ...]:
    """Return containers in the order in which they are started again: those that are models by themselves as they were
    started, then the ranks of each model, as its engine wants them."""
    alone = [one for one in old if one[1].label(Label.RANK) is None]
    times = await together(*(_started(sessions[node], container) for node, container in alone))
    ordered = [alone[at] for at in sorted(range(len(alone)), key=lambda at: times[at])]
    runs = dict.fromkeys(one[1].label(Label.RUN) for one in old if one[1].label(Label.RANK) is not None)
    for run in runs:
        ranks = [one for one in old if one[1].label(Label.RANK) is not None and one[1].label(Label.RUN) == run]
        ranks.sort(key=_rank)
        head_first = await _begins_with_head(sessions[ranks[0][0]], ranks[0][1])
        ordered += ranks if head_first else [*ranks[1:], ranks[0]]
    return tuple(ordered)


async def _started(session: Session, container: Container) -> float:
    return (await session.docker.inspect(container.id)).started or container.created


def _rank(one: Old) -> int:
    index, _, _ = (one[1].label(Label.RANK) or "").partition("/")
    return int(index) if index.isascii() and index.isdigit() and len(index) < 9 else 0


async def _begins_with_head(session: Session, head: Container) -> bool:
    """Ask its engine by the head's own command: a worker's does not tell how they meet."""
    engine = head.label(Label.ENGINE) or ""
    return engine in names() and load(engine).begins_with_head((await session.docker.run_of(head.id)).command)
