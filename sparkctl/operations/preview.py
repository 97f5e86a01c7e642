"""What starting a profile would ask of a node's Docker, without asking Docker anything."""

from __future__ import annotations

from collections.abc import Mapping

from sparkctl.core.context import Context
from sparkctl.core.planning import plan
from sparkctl.core.session import Session
from sparkctl.engines import load
from sparkctl.model.node import Node
from sparkctl.model.plan import LaunchPlan
from sparkctl.model.profile import Profile


async def home_on(ctx: Context, node: Node) -> str:
    """Return the home of the node's user there, ``~`` where it does not say. Raises `NodeError`."""
    async with Session(node, ctx.asker, ctx.clock) as session:
        await session.link.connect()
        look = await session.look("identity")
    return look.identity.home if look.identity else "~"


def planned(ctx: Context, profile: Profile, node: Node, home: str, environ: Mapping[str, str]) -> LaunchPlan:
    """Return the launch that `up` would make of a profile. Raises `InvalidInput` for what it would refuse in the profile."""
    return plan(profile, node, home=home, operator=ctx.operator, environ=environ, engine=load(profile.engine))
