"""``up --pull``: get what is missing, then start."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from sparkctl.commands.pull.pull_profile import PullProfile
from sparkctl.commands.start.start_instance import start_instance
from sparkctl.commands.start.start_request import StartInstance
from sparkctl.context import CommandContext
from sparkctl.model.events import CommandEnded, Event


async def pull_and_start(ctx: CommandContext, request: StartInstance) -> AsyncGenerator[Event, None]:
    """Yield the events of both, and one end: that of the pull where it failed, else that of the start."""
    pull = PullProfile(
        profile=request.profile, nodes=request.nodes, environ=request.environ, words=request.words,
        dry_run=request.dry_run, names_nodes=request.names_nodes,
    )  # fmt: skip
    async with aclosing(pull.run(ctx)) as events:
        async for event in events:
            if not isinstance(event, CommandEnded):
                yield event
            elif event.exit_code:
                yield event
                return
    async with aclosing(start_instance(ctx, replace(request, pull=False))) as events:
        async for event in events:
            yield event
