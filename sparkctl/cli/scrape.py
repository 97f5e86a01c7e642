"""The one page that Prometheus asks for, on a port."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import ThreadingWSGIServer, make_wsgi_app

_PATHS = ("/", "/metrics")
App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class _Quiet(WSGIRequestHandler):
    """A scrape is no news."""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def scraped(port: int, host: str, registry: CollectorRegistry) -> WSGIServer:
    """Return a server of the registry's page, not yet serving. Raises OSError where the port cannot be had."""
    return make_server(host, port, _only_the_page(make_wsgi_app(registry)), ThreadingWSGIServer, _Quiet)


def _only_the_page(page: App) -> App:
    """Refuse other paths and other methods than GET."""

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ.get("PATH_INFO") not in _PATHS:
            start("404 Not Found", [("Content-Type", "text/plain")])
            return [b"there is only /metrics\n"]
        if environ.get("REQUEST_METHOD") != "GET":
            start("405 Method Not Allowed", [("Content-Type", "text/plain"), ("Allow", "GET")])
            return [b""]
        return page(environ, start)

    return answer
