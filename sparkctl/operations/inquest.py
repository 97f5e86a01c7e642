"""Why a container of ours has ended that nobody watched: its whole log is read once, and judged as that of a start is."""

from __future__ import annotations

import asyncio
import shlex
from contextlib import aclosing
from dataclasses import replace

from sparkctl.core.context import Context
from sparkctl.core.reading import LogReader
from sparkctl.core.session import Session
from sparkctl.engines import load, names
from sparkctl.errors import NoSuchContainer
from sparkctl.model.container import Container
from sparkctl.model.events import Ended, Outcome
from sparkctl.model.node import Node
from sparkctl.model.plan import Label, LaunchPlan
from sparkctl.model.secrets import redact
from sparkctl.model.verdict import Verdict
from sparkctl.operations import judge, receipts
from sparkctl.operations.launched import read_back
from sparkctl.operations.masking import masked
from sparkctl.wire.logs import LogFollower

_SIGKILLED = 137


async def inquest(ctx: Context, node: Node, container_id: str) -> Ended | None:
    """Return how it ended, as the start that failed would have told it; None where nothing ended that can be judged: it
    lives on without a fatal line, or it is of an engine that is not known. Raises `NodeError` and `DockerError`."""
    async with ctx.session(node) as session:
        await session.link.connect()
        try:
            container = await session.docker.inspect(container_id)
            plan = read_back(node, container, await session.docker.run_of(container_id)).plan
            verdict = await _verdict(session, container, plan)
        except NoSuchContainer:
            return None
        if verdict is None:
            return None
        if verdict.edit is not None:
            words = ["sparkctl", "up", plan.profile, "--node", plan.node, "--set", verdict.edit.setting]
            verdict = replace(verdict, again=shlex.join(words))
        taken = (
            None if container.started is None or container.finished is None else container.finished - container.started
        )
        return Ended(
            ctx.clock.now(), Outcome.FAILED, 1, max(0.0, taken or 0.0), node.name, plan.instance, verdict=verdict
        )  # fmt: skip


async def _verdict(session: Session, container: Container, plan: LaunchPlan) -> Verdict | None:
    engine = container.label(Label.ENGINE) or ""
    if engine not in names():
        return None
    log = LogReader(load(engine), plan.ready, whole=True)
    secrets = await session.docker.secrets(container.id)
    async with aclosing(LogFollower(session.link, container.id).read()) as batches:
        async for batch in batches:
            log.read(masked(batch, secrets))
            await asyncio.sleep(0)  # a long log holds up nobody else
    if container.is_alive:
        return None if log.fatal is None else judge.of_fatal_line(plan, log, log.fatal)
    if container.exit_code == _SIGKILLED and (receipt := await receipts.of(session, container.id)) is not None:
        return judge.of_guard(plan, log, receipt, load(engine).memory_setting, None)
    if container.error:
        container = replace(container, error=redact(container.error, secrets))  # it quotes the command
    return judge.of_end(plan, log, container, f"sparkctl up {plan.profile} --node {plan.node}")
