"""``sparkctl status``."""

from __future__ import annotations

import asyncio
import importlib
import sys
from typing import TYPE_CHECKING

import click

from sparkctl.cli import loop
from sparkctl.cli.setup import chosen_nodes, json_document_option, make_context, node_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkctl.core.context import Context
    from sparkctl.core.owed import Owed
    from sparkctl.core.store import NodeView
    from sparkctl.model.node import Node


@click.command("status", short_help="Show the nodes, their memory and what runs there.")
@node_option(many=True)
@click.option("-w", "--watch", is_flag=True, help="Look again every two seconds until Ctrl-C.")
@click.option("--check", is_flag=True, help="Exit 5 unless every node and every instance is well.")
@json_document_option
@click.option("--ascii", "plain_letters", is_flag=True, help="Use no other letters than ASCII.")
def command(node: tuple[str, ...], watch: bool, check: bool, as_json: bool, plain_letters: bool) -> int:
    """Show every node: state, memory, what sparkctl started there and how far it is, and what others run.

    Exit 3 if a node could not be asked.
    """
    context = make_context(may_ask=not as_json)
    nodes = chosen_nodes(node)
    if watch:
        return loop.run(_watch(context, nodes, as_json, plain_letters))
    return loop.run(_once(context, nodes, check, as_json, plain_letters))


async def _once(context: Context, nodes: Sequence[Node], check: bool, as_json: bool, plain_letters: bool) -> int:
    from sparkctl.operations.status import status

    looking = asyncio.ensure_future(status(context, nodes))
    await asyncio.sleep(0)  # the connections set out; what printing needs is imported while they are on their way
    if not as_json:
        importlib.import_module("sparkctl.present.status_table")
    views = await looking
    _print(context, views, as_json, plain_letters)
    return _exit_code(views, check)


def _exit_code(views: Sequence[NodeView], check: bool) -> int:
    from sparkctl.errors import ExitCode
    from sparkctl.model.node import NodeState

    if any(view.state is not NodeState.OK or not view.docker_known for view in views):
        return int(ExitCode.UNREACHABLE)
    if check and not all(view.is_well for view in views):
        return int(ExitCode.UNHEALTHY)
    return int(ExitCode.DONE)


def _owed(context: Context, views: Sequence[NodeView]) -> tuple[Owed, ...]:
    """Return the stops that are still to be done on these nodes."""
    from sparkctl.core.owed import OwedStops

    names = {view.name for view in views}
    return tuple(one for one in OwedStops(context.history.directory).all(context.clock.now()) if one.node in names)


def _still_to_stop(context: Context, views: Sequence[NodeView]) -> list[str]:
    import time

    from sparkctl.core.owed import SETTLED_BY
    from sparkctl.model.text import clean

    return [
        f"{clean(one.instance)} is still to be stopped on {one.node}, asked at "
        f"{time.strftime('%H:%M', time.localtime(one.since))}: the next {SETTLED_BY} there does it"
        for one in _owed(context, views)
    ]


def _print(context: Context, views: Sequence[NodeView], as_json: bool, plain_letters: bool) -> None:
    from sparkctl.cli import output
    from sparkctl.cli.style import ascii_only
    from sparkctl.core.record import plain
    from sparkctl.present.status_table import status_lines

    if as_json:
        output.document({"schema": 1, "nodes": plain(tuple(views)), "unfinished_stops": plain(_owed(context, views))})
    else:
        picture = status_lines(views, plain_letters or ascii_only(sys.stdout), output.width())
        output.texts([*picture, *_still_to_stop(context, views)])


async def _watch(context: Context, nodes: Sequence[Node], as_json: bool, plain_letters: bool) -> int:
    """Repaint on a terminal, print again elsewhere; Ctrl-C is how it ends, so it is no error."""
    import time
    from contextlib import aclosing

    from sparkctl.cli import output
    from sparkctl.cli.drive import until_stopped
    from sparkctl.cli.style import ascii_only
    from sparkctl.operations.status import watch
    from sparkctl.present.status_table import status_lines

    async def show() -> None:
        painting = output.is_terminal() and not as_json
        async with aclosing(watch(context, nodes)) as looks:
            async for views in looks:
                if painting:
                    picture = status_lines(views, plain_letters or ascii_only(sys.stdout), output.width())
                    output.screen([time.strftime("%H:%M:%S"), "", *picture, *_still_to_stop(context, views)])
                else:
                    _print(context, views, as_json, plain_letters)

    await until_stopped(show())
    return 0
