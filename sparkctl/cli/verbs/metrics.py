"""``sparkctl metrics``: print or serve Prometheus metrics."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import click

from sparkctl.cli import stderr, stdout, verb_runner
from sparkctl.cli.options import WholeNumber, create_context, node_option, select_configured_nodes
from sparkctl.cli.verb_runner import run_until_interrupt
from sparkctl.errors import ExitCode, InvalidInput

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from prometheus_client import CollectorRegistry

    from sparkctl.context import CommandContext
    from sparkctl.model.node import Node


_METRICS_PATHS = ("/", "/metrics")
_HOST_PATTERN = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9.-]{1,253})(:[0-9]{1,5})?")
WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def create_metrics_server(port: int, host: str, registry: CollectorRegistry) -> WSGIServer:
    """Return a server for the registry's metrics, not yet serving. Raises OSError if the port is not available."""
    from wsgiref.simple_server import WSGIRequestHandler, make_server

    from prometheus_client.exposition import ThreadingWSGIServer, make_wsgi_app

    class _SilentRequestHandler(WSGIRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    return make_server(host, port, _restrict_paths(make_wsgi_app(registry)), ThreadingWSGIServer, _SilentRequestHandler)


def _restrict_paths(page: WsgiApp) -> WsgiApp:
    """Refuse other paths, methods other than GET, and a Host that is not this machine. The Host check prevents DNS
    rebinding: a web page whose name resolves to 127.0.0.1 could read the metrics."""

    def answer_request(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if not _is_loopback_host(environ.get("HTTP_HOST")):
            start("403 Forbidden", [("Content-Type", "text/plain")])
            return [b"use http://127.0.0.1 or http://localhost\n"]
        if environ.get("PATH_INFO") not in _METRICS_PATHS:
            start("404 Not Found", [("Content-Type", "text/plain")])
            return [b"there is only /metrics\n"]
        if environ.get("REQUEST_METHOD") != "GET":
            start("405 Method Not Allowed", [("Content-Type", "text/plain"), ("Allow", "GET")])
            return [b""]
        return page(environ, start)

    return answer_request


def _is_loopback_host(host: str | None) -> bool:
    """Tell whether a Host header names this machine itself: localhost or a loopback address, with any port."""
    found = _HOST_PATTERN.fullmatch(host or "")
    if found is None:
        return False
    name = found["name"].lower().rstrip(".")
    if name == "localhost":
        return True
    try:
        return ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


DEFAULT_PORT = 9768
_LOOPBACK = "127.0.0.1"  # the metrics stay on this machine on purpose; there is no option to listen elsewhere
_REFUSED_RETRY_SECONDS = 600.0  # seconds; often enough after a login is fixed, too rarely to be banned


@click.command("metrics", short_help="Print nodes and instances as Prometheus metrics, or serve them.")
@node_option(many=True)
@click.option(
    "--serve",
    type=WholeNumber(0, 65535),
    is_flag=False,
    flag_value=DEFAULT_PORT,
    metavar="[PORT]",
    help=f"Serve them on {_LOOPBACK} until Ctrl-C ({DEFAULT_PORT} unless you name a port; 0 takes a free one).",
)
def metrics_command(node: tuple[str, ...], serve: int | None) -> int:
    """Print metrics of every node and instance as Prometheus text. A value that is not known has no series.

    \b
    sparkctl metrics > /var/lib/node_exporter/sparks.prom
    sparkctl metrics --serve

    Exit 3 if a node could not be read; its sparkctl_node_up is 0.
    """
    context = create_context(may_ask=serve is None)
    nodes = select_configured_nodes(node)
    return verb_runner.run_async(
        _print_metrics(context, nodes) if serve is None else _serve_metrics(context, nodes, serve)
    )


async def _print_metrics(context: CommandContext, nodes: Sequence[Node]) -> int:
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
    """Keep an agent running on each node and answer each scrape with the latest values."""
    import threading

    from sparkctl.model.node import NodeState
    from sparkctl.monitor.node_views import NodeTelemetryView
    from sparkctl.monitor.sampler import BACKGROUND_INTERVAL
    from sparkctl.monitor.watch_nodes import watch_load_views
    from sparkctl.views.prometheus_metrics import build_registry

    latest = tuple(
        NodeTelemetryView(name=node.name, state=NodeState.UNKNOWN, when=context.clock.unix_time()) for node in nodes
    )
    try:
        server = create_metrics_server(port, _LOOPBACK, build_registry(lambda: latest, context.clock.unix_time))
    except OSError as error:
        raise InvalidInput(
            f"cannot serve on {_LOOPBACK}:{port}: {error.strerror or error}", "choose another port: --serve PORT"
        ) from error

    async def update_latest_views() -> None:
        nonlocal latest
        async with aclosing(
            watch_load_views(context, nodes, BACKGROUND_INTERVAL, again=_REFUSED_RETRY_SECONDS)
        ) as updates:
            async for views in updates:
                latest = views

    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    stdout.print_line(f"http://{_LOOPBACK}:{server.server_port}/metrics")
    stderr.print_message("each scrape gets the latest values; Ctrl-C ends the server")
    try:
        await run_until_interrupt(update_latest_views())
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    return 0
