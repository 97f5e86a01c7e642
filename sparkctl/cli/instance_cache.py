"""The names of running instances as they were last seen, and of the config's nodes, for shell completion: it asks no node, and
reads no config that it has read before. Imports little."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping

from sparkctl.files import cache_dir, config_file, write_private_file

_FILE_NAME = "instances.json"
_NODES_FILE_NAME = "nodes.json"


def save_instances(names_by_node: dict[str, list[str]]) -> None:
    """Save the names that run on these nodes; those of other nodes stay as they were. A failure is no matter."""
    _write_object(_FILE_NAME, {**_read_nodes(), **names_by_node})


def add_instance(node: str, name: str) -> None:
    """Save that an instance runs on a node, too."""
    save_instances({node: sorted({*_read_nodes().get(node, ()), name})})


def read_instances() -> list[str] | None:
    """Return the names as they were last seen, None if none were ever saved."""
    nodes = _read_nodes()
    return sorted({name for names in nodes.values() for name in names}) if nodes else None


def read_config_nodes(read_names: Callable[[], list[str]]) -> list[str]:
    """Return the names of the config's nodes; ``read_names`` reads the config, where it is not the one that was read last."""
    path = config_file()
    try:
        state = path.stat()
    except OSError:
        return read_names()
    stamp = f"{path} {state.st_mtime_ns} {state.st_size} {state.st_ino}"
    names = _read_object(_NODES_FILE_NAME).get(stamp)
    if isinstance(names, list):
        return _keep_texts(names)
    found = read_names()
    _write_object(_NODES_FILE_NAME, {stamp: found})
    return found


def _read_nodes() -> dict[str, list[str]]:
    found = _read_object(_FILE_NAME)
    return {node: _keep_texts(names) for node, names in found.items() if isinstance(names, list)}


def _read_object(file: str) -> dict[str, object]:
    try:
        found = json.loads((cache_dir() / file).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write_object(file: str, content: Mapping[str, object]) -> None:
    path = cache_dir() / file
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private_file(path, json.dumps(content))


def _keep_texts(names: Iterable[object]) -> list[str]:
    return [name for name in names if isinstance(name, str)]
