"""``sparkctl status``: show the nodes and what runs there."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import click

from sparkctl.cli import verb_runner
from sparkctl.cli.options import (
    ascii_option,
    create_context,
    json_document_option,
    node_option,
    select_configured_nodes,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkctl.commands.stop.pending_stops import PendingStop
    from sparkctl.context import CommandContext
    from sparkctl.model.node import Node
    from sparkctl.monitor.node_views import NodeStatusView


@click.command("status", short_help="Show the nodes, their memory and what runs there.")
@node_option(many=True)
@click.option("-w", "--watch", is_flag=True, help="Refresh every two seconds until Ctrl-C.")
@click.option("--check", is_flag=True, help="Exit 5 unless every node and every instance is healthy.")
@json_document_option
@ascii_option
def command(node: tuple[str, ...], watch: bool, check: bool, as_json: bool) -> int:
    """Show every node: state, memory, the instances that sparkctl started and their state, and engines that it did not start.

    Exit 3 if a node could not be read.
    """
    context = create_context(may_ask=not as_json)
    nodes = select_configured_nodes(node)
    if watch:
        return verb_runner.run_async(_watch_status(context, nodes, as_json))
    return verb_runner.run_async(_print_status_once(context, nodes, check, as_json))


async def _print_status_once(context: CommandContext, nodes: Sequence[Node], check: bool, as_json: bool) -> int:
    from sparkctl.concurrency import gather_or_cancel
    from sparkctl.monitor.node_status import read_node_statuses

    async def import_status_view() -> None:
        if not as_json:
            importlib.import_module("sparkctl.views.status_view")

    # the connections start first; meanwhile import what printing needs
    views, _ = await gather_or_cancel(read_node_statuses(context, nodes), import_status_view())
    _print_status(context, views, as_json)
    return _choose_exit_code(views, check)


def _choose_exit_code(views: Sequence[NodeStatusView], check: bool) -> int:
    from sparkctl.errors import ExitCode
    from sparkctl.model.node import NodeState

    if any(view.state is not NodeState.OK or not view.docker_known for view in views):
        return int(ExitCode.UNREACHABLE)
    if check and not all(view.is_healthy for view in views):
        return int(ExitCode.UNHEALTHY)
    return int(ExitCode.DONE)


def _list_pending_stops(context: CommandContext, views: Sequence[NodeStatusView]) -> tuple[PendingStop, ...]:
    """Return the pending stops of these nodes."""
    from sparkctl.commands.stop.pending_stops import PendingStopFiles

    names = {view.name for view in views}
    return tuple(
        one
        for one in PendingStopFiles(context.history.directory).list_all(context.clock.unix_time())
        if one.node in names
    )


def _describe_pending_stops(context: CommandContext, views: Sequence[NodeStatusView]) -> list[str]:
    import time

    from sparkctl.commands.stop.pending_stops import COMPLETING_COMMANDS
    from sparkctl.model.text.sanitize import sanitize_line

    return [
        f"{sanitize_line(one.instance)} is still to be stopped on {one.node}, asked at "
        f"{time.strftime('%H:%M', time.localtime(one.since))}: the next {COMPLETING_COMMANDS} there does it"
        for one in _list_pending_stops(context, views)
    ]


def _print_status(context: CommandContext, views: Sequence[NodeStatusView], as_json: bool) -> None:
    from sparkctl.cli import stdout
    from sparkctl.model.json_codec import to_json_data
    from sparkctl.views.status_view import format_status

    if as_json:
        stdout.print_json(
            {
                "schema": 1,
                "nodes": to_json_data(tuple(views)),
                "unfinished_stops": to_json_data(_list_pending_stops(context, views)),
            }
        )
    else:
        picture = format_status(views, stdout.get_terminal_width())
        stdout.print_rows([*picture, *_describe_pending_stops(context, views)])


async def _watch_status(context: CommandContext, nodes: Sequence[Node], as_json: bool) -> int:
    """Repaint on a terminal, print again elsewhere, until Ctrl-C, which is no error here."""
    import time
    from contextlib import aclosing

    from sparkctl.cli import stdout
    from sparkctl.cli.verb_runner import run_until_interrupt
    from sparkctl.monitor.node_status import watch_node_statuses
    from sparkctl.views.status_view import format_status

    async def print_updates() -> None:
        painting = stdout.is_terminal() and not as_json
        async with aclosing(watch_node_statuses(context, nodes)) as updates:
            async for views in updates:
                if painting:
                    picture = format_status(views, stdout.get_terminal_width())
                    stdout.repaint_screen(
                        [time.strftime("%H:%M:%S"), "", *picture, *_describe_pending_stops(context, views)]
                    )
                else:
                    _print_status(context, views, as_json)

    await run_until_interrupt(print_updates())
    return 0
