"""What starting a profile would ask of a node's Docker, without asking Docker anything."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from sparkctl.commands.context import CommandContext
from sparkctl.engines import load_engine
from sparkctl.errors import InvalidInput
from sparkctl.model.launch_plan import LaunchPlan
from sparkctl.model.node import Node, NodeName
from sparkctl.model.profile import Profile
from sparkctl.profiles.launch_planning import build_launch_plan


async def read_node_home(ctx: CommandContext, node: Node) -> str:
    """Return the home of the node's user there, ``~`` where it does not say. Raises `NodeError`."""
    async with ctx.session(node) as session:
        await session.link.connect()
        await session.read_node("identity")
    return session.user_home


def build_preview_plan(
    ctx: CommandContext, profile: Profile, node: Node, home: str, environ: Mapping[str, str]
) -> LaunchPlan:
    """Return the launch that `up` would make of a profile. Raises `InvalidInput` for what it would refuse in the profile."""
    return build_launch_plan(
        profile, node, home=home, operator=ctx.operator, environ=environ, engine=load_engine(profile.engine)
    )


_UNSET = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\} is not set")
_SOMEWHERE = "/~"  # stands for a home that is not known: no path begins like that
_ANY = NodeName("spark")


@dataclass(frozen=True, slots=True)
class LaunchPreview:
    """The launch as far as it can be told: None where it cannot; ``refusal`` is why `up` would not do it."""

    plan: LaunchPlan | None
    refusal: InvalidInput | None = None


def preview_launch(
    ctx: CommandContext, profile: Profile, node: Node | None, home: str | None, environ: Mapping[str, str]
) -> LaunchPreview:
    """Return the launch of a profile, also without a node: a ``home`` that is not known is ``~``, and a variable that is not
    set stands as it is written."""
    where = node or Node(_ANY, str(_ANY))
    refusal = None
    try:
        made = build_preview_plan(ctx, profile, where, home or _SOMEWHERE, environ)
    except InvalidInput as error:
        refusal = error
        unset = {name: f"${{{name}}}" for name in _UNSET.findall(error.message)}
        try:
            made = build_preview_plan(ctx, profile, where, home or _SOMEWHERE, {**environ, **unset})
        except InvalidInput:
            return LaunchPreview(None, refusal)
    mounts = tuple(
        replace(one, source=one.source[1:]) if one.source.startswith(_SOMEWHERE) else one for one in made.mounts
    )
    return LaunchPreview(replace(made, mounts=mounts), refusal)
