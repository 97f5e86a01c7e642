"""Finds a profile for a first start: one that fits and is there, else one that `up --pull` can complete."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace

from sparkctl.commands.start.check_fit import CheckFit, check_fit
from sparkctl.context import CommandContext
from sparkctl.errors import SparkctlError
from sparkctl.model.events import MemoryFitEvaluated, PartsMissing
from sparkctl.model.node import Node
from sparkctl.profiles.profile_library import list_startable_profiles
from sparkctl.transport.node_session import NodeSession, SharedSession

_SEARCH_SECONDS = 20.0  # seconds; what was found by then is the answer


async def suggest_profile(ctx: CommandContext, nodes: Sequence[Node], environ: Mapping[str, str]) -> str | None:
    """Return the command that starts it, None where no profile fits. A node that does not answer is passed over."""
    pullable: str | None = None
    async with AsyncExitStack() as stack:
        sessions: dict[str, NodeSession] = {}
        for node in nodes:
            with suppress(SparkctlError):
                session = await stack.enter_async_context(ctx.create_session(node))
                await session.link.connect()
                sessions[node.name] = session
        there = [node for node in nodes if node.name in sessions]
        shared = replace(ctx, lend=lambda node: SharedSession(sessions[node.name]))
        with suppress(TimeoutError):
            async with asyncio.timeout(_SEARCH_SECONDS):
                for offer in list_startable_profiles(ctx.history.get_recent_profiles(3)):
                    profile = offer.profile
                    if profile is None or profile.nodes > 1 or not there:
                        continue
                    fits: list[str] = []
                    missing: dict[str, PartsMissing] = {}
                    async for event in check_fit(shared, CheckFit(profile, there, environ, (offer.name,))):
                        if isinstance(event, MemoryFitEvaluated) and not event.fit.is_refused:
                            fits.append(event.node)
                        elif isinstance(event, PartsMissing):
                            missing[event.node] = event
                    for name in fits:
                        if name not in missing:
                            return f"sparkctl up {offer.name} --node {name}"
                        if missing[name].commands and pullable is None:
                            pullable = f"sparkctl up {offer.name} --node {name} --pull"
    return pullable
