"""What an instance runs with, read back from its container: the labels and Docker's own memory are the only state."""

from __future__ import annotations

from dataclasses import dataclass, fields

from sparkctl.commands.context import CommandContext
from sparkctl.model.container import Container
from sparkctl.model.container_labels import (
    parse_expected_memory_label,
    parse_port_label,
    parse_ready_rule_label,
    parse_stop_grace_label,
)
from sparkctl.model.json_codec import redact_launch_plan
from sparkctl.model.launch_plan import ContainerLabel, DockerRunSpec, LaunchPlan, PhaseTimeouts, ReadinessRule
from sparkctl.model.node import Node


@dataclass(frozen=True, slots=True)
class ContainerLaunch:
    """``plan`` may be shown: its secrets are masked. Of it only what makes the ``docker run`` line is read back, and what
    labels tell: ``ready`` is None where they do not. ``started`` in unix seconds by the node's clock."""

    plan: LaunchPlan
    ready: ReadinessRule | None
    started: float | None


async def read_container_launch(ctx: CommandContext, node: Node, container_id: str) -> ContainerLaunch:
    """Look how a container was started. Raises `NodeError` and `DockerError`, NoSuchContainer among them."""
    async with ctx.session(node) as session:
        await session.link.connect()
        container = await session.docker.inspect_container(container_id)
        return rebuild_launch_plan(node, container, await session.docker.read_run_options(container_id))


def rebuild_launch_plan(node: Node, container: Container, run: DockerRunSpec) -> ContainerLaunch:
    """Return the plan that a container came of. Pure."""
    ready = parse_ready_rule_label(container)
    same = {one.name: getattr(run, one.name) for one in fields(DockerRunSpec) if one.name != "name"}
    plan = LaunchPlan(
        node=node.name,
        instance=container.label(ContainerLabel.INSTANCE) or container.name,
        profile=container.label(ContainerLabel.PROFILE) or "",
        profile_hash=container.label(ContainerLabel.HASH) or "",
        engine=container.label(ContainerLabel.ENGINE) or "",
        container_name=run.name,
        port=parse_port_label(container),
        served_model=None,
        api_key=None,
        ready=ready or ReadinessRule(None, None, "none"),
        timeouts=PhaseTimeouts(),
        drop_caches=False,
        stop_grace=parse_stop_grace_label(container) or 0.0,
        expected_memory=parse_expected_memory_label(container),
        floor_memory=None,
        **same,
    )
    return ContainerLaunch(redact_launch_plan(plan), ready, container.started)
