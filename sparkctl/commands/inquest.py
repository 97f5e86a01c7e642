"""Why a container of ours has ended that nobody watched: its whole log is read once, and judged as that of a start is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sparkctl.commands.context import CommandContext
from sparkctl.commands.diagnose_log import diagnose_ranks
from sparkctl.engines import engine_names
from sparkctl.errors import ContainerNotFound
from sparkctl.model.events import CommandEnded, Outcome
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.node import Node, NodeName
from sparkctl.model.verdict import Evidence, Verdict


async def diagnose_exit(
    ctx: CommandContext, node: Node, container_id: str, known: Sequence[Node] = ()
) -> CommandEnded | None:
    """Return how it ended, as the start that failed would have told it; None where nothing ended that can be judged: it
    lives on without a fatal line, or it is of an engine that is not known. ``known``: where its other ranks are looked for,
    whose failure may be the first. Raises `NodeError` and `DockerError`."""
    async with ctx.session(node) as session:
        await session.link.connect()
        try:
            container = await session.docker.inspect_container(container_id)
            if container.label(ContainerLabel.ENGINE) not in engine_names():
                return None
            found = await diagnose_ranks(ctx, session, container, known)
        except ContainerNotFound:
            return None
    verdict = found.diagnosis.verdict
    if verdict is None:
        return None
    if found.node is not None and found.node != node.name:
        verdict = _label_foreign_evidence(verdict, found.node)
    if found.silent:
        silent = " and ".join(name for name, _ in found.silent)
        verdict = replace(
            verdict,
            evidence=(
                *verdict.evidence,
                Evidence(f"{silent} could not be asked: its rank may have failed first", "ssh"),
            ),
        )
    taken = None if container.started is None or container.finished is None else container.finished - container.started
    return CommandEnded(
        ctx.clock.unix_time(), Outcome.FAILED, 1, max(0.0, taken or 0.0), node.name,
        container.label(ContainerLabel.INSTANCE) or container.name, verdict=verdict,
    )  # fmt: skip


def _label_foreign_evidence(verdict: Verdict, node: NodeName) -> Verdict:
    """Return a verdict whose proofs are lines of another node's log: they are not to be looked for in the one here."""
    return replace(
        verdict,
        evidence=tuple(
            one if one.line is None else Evidence(f"line {one.line} on {node}: {one.text}", one.origin)
            for one in verdict.evidence
        ),
    )
