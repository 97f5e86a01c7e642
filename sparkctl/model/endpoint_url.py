"""The URL at which clients reach an instance."""

from __future__ import annotations

from sparkctl.model.node import Node


def format_endpoint_url(node: Node, port: int | None) -> str | None:
    """Return ``http://HOST:PORT`` as the operator's machine reaches it, None without a port."""
    if port is None:
        return None
    host = "127.0.0.1" if node.is_local else node.host.rpartition("@")[2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
