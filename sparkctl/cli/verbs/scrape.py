"""The one page that Prometheus asks for, on a port."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import ThreadingWSGIServer, make_wsgi_app

_PATHS = ("/", "/metrics")
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9.-]{1,253})(:[0-9]{1,5})?")
App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class _SilentRequestHandler(WSGIRequestHandler):
    """A scrape is no news."""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def create_metrics_server(port: int, host: str, registry: CollectorRegistry) -> WSGIServer:
    """Return a server of the registry's page, not yet serving. Raises OSError where the port cannot be had."""
    return make_server(host, port, _restrict_paths(make_wsgi_app(registry)), ThreadingWSGIServer, _SilentRequestHandler)


def _restrict_paths(page: App) -> App:
    """Refuse other paths, other methods than GET, and a Host that is not this machine: a web page may have its own name
    resolved to 127.0.0.1, and would read what comes from there."""

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if not _is_here(environ.get("HTTP_HOST")):
            start("403 Forbidden", [("Content-Type", "text/plain")])
            return [b"ask for it as http://127.0.0.1 or http://localhost\n"]
        if environ.get("PATH_INFO") not in _PATHS:
            start("404 Not Found", [("Content-Type", "text/plain")])
            return [b"there is only /metrics\n"]
        if environ.get("REQUEST_METHOD") != "GET":
            start("405 Method Not Allowed", [("Content-Type", "text/plain"), ("Allow", "GET")])
            return [b""]
        return page(environ, start)

    return answer


def _is_here(host: str | None) -> bool:
    """Tell whether a Host header names this machine itself: localhost or a loopback address, with whatever port."""
    found = _HOST.fullmatch(host or "")
    if found is None:
        return False
    name = found["name"].lower().rstrip(".")
    if name == "localhost":
        return True
    try:
        return ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False
