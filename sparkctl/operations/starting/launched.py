"""What an instance runs with, read back from its container: the labels and Docker's own memory are the only state."""

from __future__ import annotations

from dataclasses import dataclass, fields

from sparkctl.core.context import Context
from sparkctl.core.record import masked
from sparkctl.model.container import Container
from sparkctl.model.node import Node
from sparkctl.model.plan import DockerRun, Label, LaunchPlan, ReadyRule, Timeouts
from sparkctl.operations.labels import expected_of, grace_of, port_of, rule_of


@dataclass(frozen=True, slots=True)
class Launched:
    """``plan`` may be shown: its secrets are masked. Of it only what makes the ``docker run`` line is read back, and what
    labels tell: ``ready`` is None where they do not. ``started`` in unix seconds by the node's clock."""

    plan: LaunchPlan
    ready: ReadyRule | None
    started: float | None


async def launched(ctx: Context, node: Node, container_id: str) -> Launched:
    """Look how a container was started. Raises `NodeError` and `DockerError`, NoSuchContainer among them."""
    async with ctx.session(node) as session:
        await session.link.connect()
        container = await session.docker.inspect(container_id)
        return read_back(node, container, await session.docker.run_of(container_id))


def read_back(node: Node, container: Container, run: DockerRun) -> Launched:
    """Return the plan that a container came of. Pure."""
    ready = rule_of(container)
    same = {one.name: getattr(run, one.name) for one in fields(DockerRun) if one.name != "name"}
    plan = LaunchPlan(
        node=node.name, instance=container.label(Label.INSTANCE) or container.name,
        profile=container.label(Label.PROFILE) or "", profile_hash=container.label(Label.HASH) or "",
        engine=container.label(Label.ENGINE) or "", container_name=run.name, port=port_of(container), served_model=None,
        api_key=None, ready=ready or ReadyRule(None, None, "none"), timeouts=Timeouts(), drop_caches=False,
        stop_grace=grace_of(container) or 0.0, expected_memory=expected_of(container), floor_memory=None, **same,
    )  # fmt: skip
    return Launched(masked(plan), ready, container.started)
