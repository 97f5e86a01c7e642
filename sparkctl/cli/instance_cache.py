"""The names of running instances as they were last seen, for shell completion: it asks no node. Imports little."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable

from sparkctl.files import cache_dir, write_private_file

_FILE_NAME = "instances.json"


def save_instances(names_by_node: dict[str, list[str]]) -> None:
    """Save the names that run on these nodes; those of other nodes stay as they were. A failure is no matter."""
    path = cache_dir() / _FILE_NAME
    found = {**_read_nodes(), **names_by_node}
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private_file(path, json.dumps(found))


def add_instance(node: str, name: str) -> None:
    """Save that an instance runs on a node, too."""
    save_instances({node: sorted({*_read_nodes().get(node, ()), name})})


def read_instances() -> list[str] | None:
    """Return the names as they were last seen, None if none were ever saved."""
    nodes = _read_nodes()
    return sorted({name for names in nodes.values() for name in names}) if nodes else None


def _read_nodes() -> dict[str, list[str]]:
    try:
        found = json.loads((cache_dir() / _FILE_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {node: _keep_texts(names) for node, names in found.items() if isinstance(names, list)}


def _keep_texts(names: Iterable[object]) -> list[str]:
    return [name for name in names if isinstance(name, str)]
