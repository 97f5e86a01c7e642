"""``sparkctl metrics``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sparkctl.cli import loop
from sparkctl.cli.options import create_context, node_option, select_configured_nodes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkctl.commands.context import CommandContext
    from sparkctl.model.node import Node

PORT = 9768
_HERE = "127.0.0.1"  # the numbers are nobody's business but this machine's; there is no option to widen it
_REFUSED_AGAIN = 600.0  # seconds; often enough for whoever mends a login, too rarely for a ban


@click.command("metrics", short_help="Print nodes and instances as Prometheus metrics, or serve them.")
@node_option(many=True)
@click.option(
    "--serve", type=click.IntRange(0, 65535), is_flag=False, flag_value=PORT, metavar="[PORT]",
    help=f"Serve them on {_HERE} until Ctrl-C ({PORT} unless you name a port; 0 takes a free one).",
)  # fmt: skip
def command(node: tuple[str, ...], serve: int | None) -> int:
    """Print what every node and instance does as Prometheus text. What is not known has no series.

    \b
    sparkctl metrics > /var/lib/node_exporter/sparks.prom
    sparkctl metrics --serve

    Exit 3 if a node could not be asked; its sparkctl_node_up is 0.
    """
    context = create_context(may_ask=serve is None)
    nodes = select_configured_nodes(node)
    return loop.run_async(_print_metrics(context, nodes) if serve is None else _serve_metrics(context, nodes, serve))


async def _print_metrics(context: CommandContext, nodes: Sequence[Node]) -> int:
    from sparkctl.cli import stderr, stdout
    from sparkctl.errors import ExitCode
    from sparkctl.model.node import NodeState
    from sparkctl.monitor.watch_nodes import read_load_views
    from sparkctl.views.prometheus_metrics import render_metrics

    views = await read_load_views(context, nodes)
    stdout.print_lines(render_metrics(views, context.clock.unix_time()).splitlines())
    for view in views:
        if view.detail:
            stderr.print_warning(view.name, view.detail, view.hint)
    known = all(view.state is NodeState.OK and view.docker_known for view in views)
    return int(ExitCode.DONE if known else ExitCode.UNREACHABLE)


async def _serve_metrics(context: CommandContext, nodes: Sequence[Node], port: int) -> int:
    """Keep a probe running on each node and answer each scrape with what is known then."""
    import threading
    from contextlib import aclosing

    from sparkctl.cli import stderr, stdout
    from sparkctl.cli.verb_runner import run_until_interrupt
    from sparkctl.cli.verbs.scrape import create_metrics_server
    from sparkctl.errors import InvalidInput
    from sparkctl.model.node import NodeState
    from sparkctl.monitor.node_views import NodeTelemetryView
    from sparkctl.monitor.sampler import BACKGROUND_INTERVAL
    from sparkctl.monitor.watch_nodes import watch_load_views
    from sparkctl.views.prometheus_metrics import build_registry

    latest = tuple(NodeTelemetryView(node.name, NodeState.UNKNOWN, context.clock.unix_time()) for node in nodes)
    try:
        server = create_metrics_server(port, _HERE, build_registry(lambda: latest, context.clock.unix_time))
    except OSError as error:
        raise InvalidInput(
            f"cannot serve on {_HERE}:{port}: {error.strerror or error}", "another port: --serve PORT"
        ) from error

    async def keep() -> None:
        nonlocal latest
        async with aclosing(watch_load_views(context, nodes, BACKGROUND_INTERVAL, again=_REFUSED_AGAIN)) as looks:
            async for views in looks:
                latest = views

    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    stdout.print_line(f"http://{_HERE}:{server.server_port}/metrics")
    stderr.print_message("each scrape reads what is known then; Ctrl-C ends it")
    try:
        await run_until_interrupt(keep())
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    return 0
