"""Writing the config: what ``sparkctl init`` leaves behind."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable
from pathlib import Path

from sparkctl import paths
from sparkctl.errors import InvalidInput
from sparkctl.model.node import GB10_BANDWIDTH_GB_S, Node
from sparkctl.profiles.yaml_reader import resolve_scalar

_HEADER = """\
# sparkctl: the Sparks and how to reach them. `sparkctl init` wrote this; edit it as you like.
# Per node: name and host, then as needed user, port, identity, jump, known_hosts (where absent, ~/.ssh/config decides),
# models (directory of the models on the node), fabric (interface of the link to the other Spark),
# memory_bandwidth_gb_s (273 unless you know better). `host: local` is the machine sparkctl runs on.
"""
_KEYS = ("name", "host", "user", "port", "identity", "jump", "known_hosts", "models", "fabric")
_PLAIN = re.compile(r"[A-Za-z0-9_~/][A-Za-z0-9_~/.@+-]*")


def render_config(nodes: Iterable[Node]) -> str:
    """Return the config file's text for these nodes: commented, the same for the same nodes."""
    lines = [_HEADER, "nodes:"]
    for node in nodes:
        pairs = [(key, getattr(node, key)) for key in _KEYS]
        if node.memory_bandwidth_gb_s != GB10_BANDWIDTH_GB_S:
            pairs.append(("memory_bandwidth_gb_s", node.memory_bandwidth_gb_s))
        written = [f"{key}: {_scalar(value)}" for key, value in pairs if value is not None]
        lines += [f"  {'-' if index == 0 else ' '} {text}" for index, text in enumerate(written)]
    if len(lines) == 2:
        lines[-1] = "nodes: []"
    return "\n".join(lines) + "\n"


def write_config(nodes: Iterable[Node], path: Path | None = None, *, replace: bool = False) -> Path:
    """Write the config in one step, readable by its owner alone, and return its path.

    Raises `InvalidInput` where there is one already and ``replace`` is False, or where the directory says no.
    """
    path = path or paths.config_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _put(render_config(nodes), path, replace=replace)
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be written: {error.strerror or error}") from error
    return path


def _put(text: str, path: Path, *, replace: bool) -> None:
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(file, "w", encoding="utf-8") as stream:
            stream.write(text)
        if replace:
            fresh.replace(path)
        else:
            path.hardlink_to(fresh)  # refuses to replace, where rename would not
    except FileExistsError as error:
        raise InvalidInput(
            f"there is a config already ({path}); it was kept", hint="sparkctl init --replace"
        ) from error
    finally:
        fresh.unlink(missing_ok=True)


def _scalar(value: object) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    if not isinstance(value, str):
        return text
    if _PLAIN.fullmatch(text) and isinstance(resolve_scalar(text), str):
        return text
    escaped = "".join(_escape(char) for char in text)
    return f'"{escaped}"'


def _escape(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if char.isprintable():
        return char
    return f"\\U{ord(char):08x}"
