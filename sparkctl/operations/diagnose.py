"""``diagnose``: what a log tells, of a file, of a container that is there, or the saved one of a container that is gone."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from sparkctl.core.context import Context
from sparkctl.core.diagnosing import Diagnosing
from sparkctl.core.log_files import SavedLog
from sparkctl.core.logfile import Bytes, blocks, opened
from sparkctl.core.session import Session
from sparkctl.engines import load, names
from sparkctl.errors import DockerError, InvalidInput, NodeError, NoSuchContainer
from sparkctl.model.container import Container
from sparkctl.model.diagnosis import Diagnosis
from sparkctl.model.node import Node, NodeName
from sparkctl.model.plan import Label, LaunchPlan
from sparkctl.model.secrets import redact
from sparkctl.model.verdict import Verdict
from sparkctl.operations import receipts
from sparkctl.operations.logs import find
from sparkctl.operations.masking import masked
from sparkctl.operations.starting import judge
from sparkctl.operations.starting.launched import read_back
from sparkctl.wire.logs import LogFollower

_SIGKILLED = 137
_HEAD = 5  # words of a start before its settings: sparkctl up PROFILE --node NODE
_OWN_FLAGS = ("--no-guard", "--again", "--force")


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """``source``: which log that was, in words. ``silent``: the nodes that could not be asked, each with why."""

    diagnosis: Diagnosis
    source: str
    node: NodeName | None = None
    instance: str | None = None
    silent: tuple[tuple[NodeName, NodeError | DockerError], ...] = ()


def of_bytes(source: Bytes, name: str, engine: str | None) -> Diagnosed:
    """Read a log from its bytes. Raises `InvalidInput` for what is no text."""
    reading = Diagnosing(engine)
    for block in blocks(source, name):
        reading.feed_block(block)
    return Diagnosed(reading.result(), name)


async def of_instance(ctx: Context, instance: str, nodes: Sequence[Node], engine: str | None) -> Diagnosed:
    """Read the log of an instance: from its container where there is one, else the newest saved one.

    Raises `InvalidInput` where nothing of that name is known, `NodeError` and `DockerError` where a node could not be asked.
    """
    silent: list[tuple[NodeName, NodeError | DockerError]] = []
    for node in nodes:
        try:
            async with ctx.session(node) as session:
                await session.link.connect()
                container = await find(session, instance)
                if container is not None:
                    ended = await session.docker.inspect(container.id)
                    start = ctx.history.start_of(ended.label(Label.INSTANCE) or ended.name, node.name, ended.id)
                    found = await of_container(session, ended, engine, start)
                    state = "runs" if ended.is_alive else "has ended"
                    return Diagnosed(found, f"the log of {instance} on {node.name}, which {state}", node.name, instance)
        except NoSuchContainer:
            continue
        except (NodeError, DockerError) as error:
            silent.append((node.name, error))
    wanted = [node.name for node in nodes] or None  # where no node is configured, of whatever node
    saved = next(iter(ctx.history.saved_logs(instance, wanted)), None)
    if saved is None:
        if silent:
            raise silent[0][1]
        raise unknown(ctx, instance, nodes)
    return replace(_of_saved(ctx, saved, engine), silent=tuple(silent))


async def of_container(
    session: Session, container: Container, engine: str | None = None, start: str | None = None
) -> Diagnosis:
    """Read a container's whole log; how it ended, and what the guard left, are proofs as well.

    ``start``: the command that started it, where that is known; its settings are repeated in what is to be tried."""
    plan = read_back(session.node, container, await session.docker.run_of(container.id)).plan
    said = container.label(Label.ENGINE)
    known = engine or (said if said in names() else None)
    reading = Diagnosing(known, plan.ready if said == known and plan.ready.line else None)
    secrets = await session.docker.secrets(container.id)
    async with aclosing(LogFollower(session.link, container.id).read()) as batches:
        async for batch in batches:
            for line in masked(batch, secrets):
                reading.feed_line(line)
            await asyncio.sleep(0)  # a long log holds up nobody else
    found = reading.result(plan)
    if not container.is_alive:
        found = replace(found, verdict=await _of_end(session, container, plan, reading, secrets, start))
    elif reading.reader.fatal is None:
        found = replace(found, verdict=None)  # it lives: an error that it printed was not its end
    return found if found.verdict is None else replace(found, verdict=with_command(found.verdict, plan, start))


async def _of_end(
    session: Session,
    container: Container,
    plan: LaunchPlan,
    reading: Diagnosing,
    secrets: frozenset[str],
    start: str | None,
) -> Verdict | None:
    if reading.reader.stopped is not None and reading.reader.end is None:
        return None  # it was told to end, and did
    if container.exit_code == _SIGKILLED and (receipt := await receipts.of(session, container.id)) is not None:
        claim = load(plan.engine).memory_setting if plan.engine in names() else None
        return judge.of_guard(plan, reading.reader, receipt, claim, None if claim is None else _now(plan, claim))
    if container.error:
        container = replace(container, error=redact(container.error, secrets))  # it quotes the command
    return judge.of_end(plan, reading.reader, container, start or _start(plan))


def with_command(verdict: Verdict, plan: LaunchPlan, start: str | None = None) -> Verdict:
    """Return a verdict with the command that tries its change: that of the ``start``, its other settings kept."""
    if verdict.edit is None or not plan.profile:
        return verdict
    words = shlex.split(start or _start(plan))
    own = len(words)  # flags of the start itself, no settings, stand last
    while words[own - 1] in _OWN_FLAGS or words[own - 1].startswith("--timeout="):
        own -= 1
    head, pairs = words[:_HEAD], words[_HEAD:own]
    kept = [
        word
        for name, value in zip(pairs[::2], pairs[1::2], strict=False)
        if value.partition("=")[0] != verdict.edit.field
        for word in (name, value)
    ]
    return replace(verdict, again=shlex.join([*head, *kept, "--set", verdict.edit.setting, *words[own:]]))


def _start(plan: LaunchPlan) -> str:
    return shlex.join(["sparkctl", "up", plan.profile or plan.instance, "--node", plan.node])


def _now(plan: LaunchPlan, claim: str) -> str | None:
    return plan.flag(claim.removeprefix("args."))


def _of_saved(ctx: Context, saved: SavedLog, engine: str | None) -> Diagnosed:
    node = NodeName(saved.node)
    with opened(saved.path) as source:
        found = of_bytes(source, str(saved.path), engine).diagnosis
    stored = ctx.history.kept_verdict(saved)
    if stored is not None and engine is None:
        # What Docker and the guard knew then is no longer to be had; the log is the same.
        found = replace(found, verdict=stored)
    return Diagnosed(found, f"the saved log of {saved.instance} from {saved.node}: {saved.path}", node, saved.instance)


def unknown(ctx: Context, instance: str, nodes: Sequence[Node]) -> InvalidInput:
    """Return the error for a word that is neither a file nor an instance, with what there is."""
    where = ", ".join(node.name for node in nodes) or "any Spark (none is configured)"
    known = ctx.history.instances_with_logs()
    hint = f"saved logs are of: {', '.join(known)}" if known else "see what runs: sparkctl status"
    return InvalidInput(f"no file {instance}, no instance {instance} on {where}, and no saved log of one", hint)
