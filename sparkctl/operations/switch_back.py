"""The way back of a switch: the new one's containers go, the old ones are started again and prove themselves."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from sparkctl.core.history_entry import Entry
from sparkctl.core.planning import guard_rule
from sparkctl.core.profiles import ProfileLibrary
from sparkctl.core.session import Session
from sparkctl.core.together import together
from sparkctl.engines import load, names
from sparkctl.errors import DockerError, LinkLost, NoSuchContainer, Refused, SparkctlError
from sparkctl.model.container import Container
from sparkctl.model.events import Outcome, PhaseChanged
from sparkctl.model.guard import UnwatchReason
from sparkctl.model.history import Kind
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase
from sparkctl.model.plan import GuardRule, Label, Service, Timeouts
from sparkctl.model.switch import SwitchStep
from sparkctl.model.units import spoken
from sparkctl.operations import readiness
from sparkctl.operations.drop_caches import NoRight, drop
from sparkctl.operations.halting import grace_for
from sparkctl.operations.labels import port_of, rule_of
from sparkctl.operations.launched import read_back
from sparkctl.operations.readiness import served_model
from sparkctl.operations.start_guard import StartGuard, unwatch
from sparkctl.operations.stop import stop
from sparkctl.operations.switch_crew import Crew
from sparkctl.operations.switch_forward import own_name

_POLL = 1.0
_LIMITS = Timeouts()
_PATIENCE = _LIMITS.starting + _LIMITS.loading + _LIMITS.warming
_LOST = 120.0  # seconds for a node to come back while the old one starts

Old = tuple[NodeName, Container]


class NotBack(SparkctlError):
    """What was stopped does not serve again."""


async def gone(crew: Crew) -> NotBack | None:
    """Return why not all of what was stopped can come back: a container of it was removed by somebody; None where it can."""
    try:
        for node, container in crew.journal.old:
            await _kept(crew, node, container)
    except NotBack as lost:
        return lost
    return None


async def undo(crew: Crew) -> None:
    """Stop and remove what the switch started, its log kept: containers of that very profile, and never those of before."""
    kept = {container for _, container in crew.journal.old}
    logs = []
    for node in crew.journal.nodes:
        session = crew.sessions[node]
        for one in await session.docker.list():
            its = (crew.journal.instance, crew.journal.profile_hash)
            if (one.label(Label.INSTANCE), one.label(Label.HASH)) != its or one.id in kept:
                continue
            await crew.ensure(node)
            await unwatch(session, crew.inner, crew.emit, [one.id], UnwatchReason.STOPPED)
            stopped = await stop(session, crew.inner, crew.emit, one, grace_for(one, None))
            logs += [stopped.log] if stopped.log else []
    said = f"; log: {' '.join(logs)}" if logs else ""
    crew.tell(SwitchStep.UNDOING, f"nothing of {crew.journal.instance} is left{said}")


async def restore(crew: Crew) -> str:
    """Start the old containers again, in their order, and prove each model by its own rule and a token.

    Returns what happened, in words. Raises `NotBack` where one does not come back.
    """
    began = crew.ctx.clock.monotonic()
    old = [await _kept(crew, node, container) for node, container in crew.journal.old]
    for node in dict.fromkeys(node for node, _ in old):
        await _drop(crew, node)
    rows, guards = _rows(crew, old), list[StartGuard]()
    try:
        for node, container in old:
            await _start(crew, node, container, guards)
        for node, container in old:
            await _prove(crew, node, container, old)
        for guard in guards:
            await guard.end(UnwatchReason.READY)
    except SparkctlError as why:
        for row in rows:
            row.end(str(Outcome.FAILED), int(why.exit_code), why=why.message)
        raise
    finally:
        for guard in guards:
            await guard.leave()  # it stays armed where the old one still loads
        for row in rows:
            is_back = sys.exc_info()[0] is None
            row.end(str(Outcome.DONE if is_back else Outcome.INTERRUPTED), 0 if is_back else None, why="started again")
    serves = "serves" if len(crew.journal.stops) == 1 else "serve"
    story = f"{' and '.join(crew.journal.stops)} {serves} again after {spoken(crew.ctx.clock.monotonic() - began)}"
    crew.tell(SwitchStep.RESTORING, story)
    return story


async def _kept(crew: Crew, node: NodeName, container: str) -> Old:
    try:
        return node, await crew.sessions[node].docker.inspect(container)
    except NoSuchContainer as gone:
        names_ = " and ".join(crew.journal.stops)
        raise NotBack(
            f"the container {container[:12]} of {names_} is not on {node} any more",
            f"once this is over, start it anew: sparkctl up {crew.journal.stops[0]}",
        ) from gone


async def _drop(crew: Crew, node: NodeName) -> None:
    try:
        await drop(crew.sessions[node], crew.inner, crew.emit)
    except NoRight as no:
        crew.warn(node, f"page cache not dropped: {no.message}", no.hint)


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


async def _guard(crew: Crew, node: NodeName, container: Container) -> StartGuard | None:
    """Have a guard for one that is started again, as a start of its profile has; None where there is none to be had."""
    rule = _guard_rule(container)
    if not crew.guarded or rule is None:
        return None
    session = crew.sessions[node]
    made = read_back(session.node, container, await session.docker.run_of(container.id)).plan
    guard = StartGuard(session, crew.inner, crew.emit, made, rule)
    try:
        await guard.arm(drop_was_told=True)
    except Refused as no:
        crew.warn(node, f"{no.message}; {container.label(Label.INSTANCE) or container.name} loads without one", no.hint)
        return None
    return guard


def _guard_rule(container: Container) -> GuardRule | None:
    """Return the rule of its profile as it is here; where there is none of that name, the one that every start has."""
    try:
        return guard_rule(ProfileLibrary().load(container.label(Label.PROFILE) or ""))
    except SparkctlError:
        return GuardRule(limit=_PATIENCE)


async def _start(crew: Crew, node: NodeName, container: Container, guards: list[StartGuard]) -> None:
    session = crew.sessions[node]
    await crew.ensure(node)
    guard = await _guard(crew, node, container)
    guards += [guard] if guard is not None else []
    try:
        if (name := own_name(container.name)) != container.name:
            await session.docker.rename(container.id, name)
        if not container.is_alive:
            await session.docker.start(container.id)
        if guard is not None:
            await guard.watch(container.id)
    except DockerError as refused:
        raise NotBack(
            f"{container.name} on {node} could not be started again: {refused.message}", refused.hint
        ) from refused


async def _prove(crew: Crew, node: NodeName, container: Container, all_of_it: Sequence[Old]) -> None:
    """Wait until it is as ready as its label says: a rank that answers nobody counts with its head."""
    rule = rule_of(container)
    if rule is None or (rule.health is None and rule.probe == "none"):
        return None
    session, port, began = crew.sessions[node], port_of(container), crew.ctx.clock.monotonic()
    _phase(crew, node, container, Phase.STARTING, 0.0)
    why = "not asked yet"
    while True:
        elapsed = crew.ctx.clock.monotonic() - began
        for other, one in all_of_it:
            await _is_alive(crew, other, one)
        try:
            answer = await readiness.health(session.link, Service(port, rule))
            if answer.good:
                model = None if port is None else await served_model(session.link, port)
                answer = await readiness.one_token(session.link, Service(port, rule, model))
                if answer.good:
                    return _phase(crew, node, container, Phase.READY, crew.ctx.clock.monotonic() - began)
            why = answer.told(await session.docker.secrets(container.id)) if answer.said else answer.what
        except LinkLost:
            await session.link.reconnect(give_up_after=_LOST)
        if elapsed > _PATIENCE:
            raise NotBack(
                f"{container.name} on {node} is not ready after {spoken(elapsed)}: {why}", _log(container, node)
            )
        _phase(crew, node, container, Phase.LOADING, elapsed)
        await crew.ctx.clock.sleep(_POLL)


async def _is_alive(crew: Crew, node: NodeName, container: Container) -> None:
    try:
        now = await crew.sessions[node].docker.inspect(container.id)
    except NoSuchContainer as gone:
        raise NotBack(f"{container.name} on {node} was removed while it started again") from gone
    except LinkLost:
        await crew.sessions[node].link.reconnect(give_up_after=_LOST)
        return
    if not now.is_alive:
        code = "" if now.exit_code is None else f" with exit code {now.exit_code}"
        raise NotBack(f"{container.name} on {node} ended{code} when it was started again", _log(container, node))


def _log(container: Container, node: NodeName) -> str:
    name = container.label(Label.INSTANCE) or container.name
    return f"see why: sparkctl diagnose {name} --node {node}"


def _phase(crew: Crew, node: NodeName, container: Container, phase: Phase, elapsed: float) -> None:
    name = container.label(Label.INSTANCE) or container.name
    crew.emit(PhaseChanged(crew.ctx.clock.now(), node, name, phase, None, elapsed))


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
