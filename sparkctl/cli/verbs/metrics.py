"""``sparkctl metrics``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sparkctl.cli import loop
from sparkctl.cli.setup import chosen_nodes, make_context, node_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkctl.core.context import Context
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
    context = make_context(may_ask=serve is None)
    nodes = chosen_nodes(node)
    return loop.run(_once(context, nodes) if serve is None else _serve(context, nodes, serve))


async def _once(context: Context, nodes: Sequence[Node]) -> int:
    from sparkctl.cli import narrate, output
    from sparkctl.errors import ExitCode
    from sparkctl.model.node import NodeState
    from sparkctl.operations.top import once
    from sparkctl.present.exposition import metrics_text

    views = await once(context, nodes)
    output.texts(metrics_text(views, context.clock.now()).splitlines())
    for view in views:
        if view.detail:
            narrate.warning(view.name, view.detail, view.hint)
    known = all(view.state is NodeState.OK and view.docker_known for view in views)
    return int(ExitCode.DONE if known else ExitCode.UNREACHABLE)


async def _serve(context: Context, nodes: Sequence[Node], port: int) -> int:
    """Keep a probe running on each node and answer each scrape with what is known then."""
    import threading
    from contextlib import aclosing

    from sparkctl.cli import narrate, output
    from sparkctl.cli.drive import until_stopped
    from sparkctl.cli.scrape import scraped
    from sparkctl.core.sampler import IN_THE_BACKGROUND
    from sparkctl.core.store import LoadView
    from sparkctl.errors import InvalidInput
    from sparkctl.model.node import NodeState
    from sparkctl.operations.top import watch
    from sparkctl.present.exposition import registry

    latest = tuple(LoadView(node.name, NodeState.UNKNOWN, context.clock.now()) for node in nodes)
    try:
        server = scraped(port, _HERE, registry(lambda: latest, context.clock.now))
    except OSError as error:
        raise InvalidInput(
            f"cannot serve on {_HERE}:{port}: {error.strerror or error}", "another port: --serve PORT"
        ) from error

    async def keep() -> None:
        nonlocal latest
        async with aclosing(watch(context, nodes, IN_THE_BACKGROUND, again=_REFUSED_AGAIN)) as looks:
            async for views in looks:
                latest = views

    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    output.text(f"http://{_HERE}:{server.server_port}/metrics")
    narrate.say("each scrape reads what is known then; Ctrl-C ends it")
    try:
        await until_stopped(keep())
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    return 0
