"""How the operator's own ssh reaches a node: what our config says of it; ~/.ssh/config says the rest, as ever. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from sparkctl.model.node import Node

_BEST = "command -v bash >/dev/null && exec bash; exec sh"  # what an image has


def build_ssh_command(node: Node, environ: Mapping[str, str]) -> list[str]:
    """Return the words that open a shell on a node; no shell of ours reads them."""
    return [environ.get("SHELL") or "/bin/sh"] if node.is_local else [*_ssh(node), "--", node.host]


def build_container_shell_command(node: Node, container: str) -> list[str]:
    """Return the words that open a shell inside of a container, by its name; the node's own shell reads them as they are."""
    words = ["docker", "exec", "-it", "--", container, "sh", "-c", _BEST]
    return words if node.is_local else [*_ssh(node), "-t", "--", node.host, shlex.join(words)]


def _ssh(node: Node) -> list[str]:
    words = ["ssh"]
    if node.known_hosts:
        words += ["-o", f'UserKnownHostsFile="{_path(node.known_hosts)}"']
    words += ["-i", _path(node.identity)] if node.identity else []
    words += ["-J", node.jump] if node.jump else []
    words += ["-p", str(node.port)] if node.port else []
    words += ["-l", node.user] if node.user else []
    return words


def _path(text: str) -> str:
    return str(Path(text).expanduser()).replace("%", "%%")  # ssh puts names in place of what follows a single one
