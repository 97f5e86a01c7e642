"""``switch``: its stream of events, and the first inspection of its nodes. While they answer, `switch_run` is imported, which does
the rest.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from functools import partial

from sparkctl.commands.event_stream import open_session, stream_events
from sparkctl.commands.history_writer import OperationSubject, record_operation
from sparkctl.commands.switch.switch_request import SwitchInstance
from sparkctl.concurrency import cancel_and_wait
from sparkctl.context import CommandContext
from sparkctl.history.model import OperationKind
from sparkctl.model.events import CommandEnded, Emit, Event
from sparkctl.node.node_inspection import NodeInspection
from sparkctl.transport.node_session import NodeSession


def switch_instance(ctx: CommandContext, request: SwitchInstance) -> AsyncGenerator[Event, None]:
    """Switch and stream what happens; the last event is `CommandEnded`."""

    def stream_switch(own: CommandContext) -> AsyncGenerator[Event, None]:
        job = partial(run_switch, own, request)
        return stream_events(own, job, request.profile.name, request.nodes[0].name, on_interrupt=None)

    subject = OperationSubject(
        kind=OperationKind.SWITCH,
        nodes=request.nodes,
        profile=request.profile,
        command=request.retry_command,
    )
    return stream_switch(ctx) if request.dry_run else record_operation(ctx, subject, stream_switch)


async def run_switch(ctx: CommandContext, request: SwitchInstance, emit: Emit) -> CommandEnded:
    """Run a switch. Where another command runs it as a part of its own, that command's history row records it."""
    began = ctx.clock.monotonic()
    async with AsyncExitStack() as stack:
        sessions = {node.name: await open_session(stack, ctx, node, emit) for node in request.known}
        # no TaskGroup: a node that does not answer is a result here, which the plan waits for
        inspections = {name: asyncio.create_task(connect_and_inspect(session)) for name, session in sessions.items()}
        stack.push_async_callback(cancel_and_wait, inspections.values())
        switch_run = await asyncio.to_thread(importlib.import_module, "sparkctl.commands.switch.switch_run")
        ended: CommandEnded = await switch_run.SwitchRun(ctx, request, sessions, inspections, emit, began).run()
        return ended


async def connect_and_inspect(session: NodeSession) -> NodeInspection:
    """Connect, and read what a plan is made of."""
    await session.link.connect()
    once = ["identity", "docker"] if session.home is None else []
    return await session.read_node(*once, "journal", "memory", "processes", "gpu", "listen")
