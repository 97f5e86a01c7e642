"""``sparkctl top``."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from sparkctl.cli.setup import chosen_nodes, make_context, node_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkctl.core.context import Context
    from sparkctl.core.store import LoadView
    from sparkctl.model.node import Node


@click.command("top", short_help="Show memory, GPU, CPU, links and instances, live.")
@node_option(many=True)
@click.option("--once", is_flag=True, help="Look once and end.")
@click.option("--plain", is_flag=True, help="Print again instead of repainting the screen.")
@click.option("--json", "as_json", is_flag=True, help="A JSON document a look, on one line.")
def command(node: tuple[str, ...], once: bool, plain: bool, as_json: bool) -> int:
    """Show what every node does, every two seconds until Ctrl-C: the probe travels there over SSH and leaves no trace.

    Page cache is what the kernel would give back; it is never counted as used. Exit 3 (--once) if a node could not be asked.
    """
    context = make_context(may_ask=not as_json)
    nodes = chosen_nodes(node)
    return asyncio.run(_once(context, nodes, as_json) if once else _watch(context, nodes, plain, as_json))


async def _once(context: Context, nodes: Sequence[Node], as_json: bool) -> int:
    from sparkctl.errors import ExitCode
    from sparkctl.model.node import NodeState
    from sparkctl.operations.top import once

    views = await once(context, nodes)
    _print(views, as_json)
    known = all(view.state is NodeState.OK and view.docker_known for view in views)
    return int(ExitCode.DONE if known else ExitCode.UNREACHABLE)


async def _watch(context: Context, nodes: Sequence[Node], plain: bool, as_json: bool) -> int:
    import time
    from contextlib import aclosing

    from sparkctl.cli import output
    from sparkctl.cli.drive import until_stopped
    from sparkctl.cli.style import ascii_only
    from sparkctl.operations.top import watch
    from sparkctl.present.top_table import top_lines

    painting = output.is_terminal() and not as_json and not plain

    async def show() -> None:
        async with aclosing(watch(context, nodes)) as looks:
            async for views in looks:
                if painting:
                    output.screen([time.strftime("%H:%M:%S"), "", *top_lines(views, ascii_only(sys.stdout))])
                else:
                    _print(views, as_json)

    await until_stopped(show())
    return 0


def _print(views: Sequence[LoadView], as_json: bool) -> None:
    from sparkctl.cli import output
    from sparkctl.cli.style import ascii_only
    from sparkctl.present.top_table import top_document, top_lines

    if as_json:
        output.document(top_document(views))
    else:
        output.texts([*top_lines(views, ascii_only(sys.stdout)), ""])
