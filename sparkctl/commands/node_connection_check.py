"""``init``: testing a node before it goes into the config."""

from __future__ import annotations

from dataclasses import dataclass

from sparkctl.context import CommandContext
from sparkctl.errors import DockerError, NodeError
from sparkctl.model.node import Node
from sparkctl.transport.node_session import NodeSession


@dataclass(frozen=True, slots=True)
class ConnectionCheck:
    """What a first visit showed. ``problem`` is None where everything a start needs is there."""

    node: Node
    words: str
    problem: str | None = None
    remedy: str | None = None


async def check_connection(ctx: CommandContext, node: Node) -> ConnectionCheck:
    """Connect (asking about an unknown host key), look who is there, ask Docker."""
    async with NodeSession(node, ctx.asker, ctx.clock) as session:
        try:
            await session.link.connect()
            look = await session.read_node("identity", "memory")
            who = look.identity
            words = f"{who.user}@{who.host}, {who.product or who.machine}" if who else "it answers"
        except NodeError as error:
            return ConnectionCheck(node, "not reached", error.message, error.hint)
        try:
            info = await session.docker.read_info()
        except DockerError as error:
            return ConnectionCheck(node, words, error.message, error.hint)
        return ConnectionCheck(node, f"{words}, Docker {info.server_version}")
