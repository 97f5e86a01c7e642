"""The operator's own ``ssh`` and ``docker exec``: argv that open a shell on a node or in a container."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from sparkctl.model.node import Node

_SHELL_COMMAND = "command -v bash >/dev/null && exec bash; exec sh"  # an image may lack bash


def build_ssh_command(node: Node, environ: Mapping[str, str], words: Sequence[str] = ()) -> list[str]:
    """Return the argv that opens a shell on a node, or runs ``words`` in one as ssh does; it is run without a local shell."""
    if not node.is_local:
        return [*_build_ssh_prefix(node), "--", node.host, *words]
    shell = environ.get("SHELL") or "/bin/sh"
    return [shell, "-c", " ".join(words)] if words else [shell]


def build_container_command(
    node: Node, container: str, command: Sequence[str] = ("sh", "-c", _SHELL_COMMAND), *, is_terminal: bool = True
) -> list[str]:
    """Return the argv that runs a command in a container, without one a shell; over ssh it is quoted for the node's shell."""
    words = ["docker", "exec", "-it" if is_terminal else "-i", "--", container, *command]
    terminal = ["-t"] if is_terminal else []
    return words if node.is_local else [*_build_ssh_prefix(node), *terminal, "--", node.host, shlex.join(words)]


def suggest_install(program: str) -> str:
    """Return what to do where a program of this machine is missing: ssh for a Spark, docker where this machine is the Spark."""
    return "install OpenSSH" if program == "ssh" else f"install it, or put it on PATH: {program}"


def _build_ssh_prefix(node: Node) -> list[str]:
    words = ["ssh"]
    if node.known_hosts:
        words += ["-o", f'UserKnownHostsFile="{_format_ssh_path(node.known_hosts)}"']
    words += ["-i", _format_ssh_path(node.identity)] if node.identity else []
    words += ["-J", node.jump] if node.jump else []
    words += ["-p", str(node.port)] if node.port else []
    words += ["-l", node.user] if node.user else []
    return words


def _format_ssh_path(text: str) -> str:
    return str(Path(text).expanduser()).replace("%", "%%")  # ssh expands tokens after a single %
