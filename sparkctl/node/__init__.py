"""What runs on a Spark, and what is known of a Spark's kernel."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any


def read_node_script(name: str) -> bytes:
    """Return a shell script of this folder, for the stdin of `build_script_command`."""
    return (Path(__file__).parent / name).read_bytes()


def build_script_command(*words: str) -> list[str]:
    """Return the argv that runs a script from stdin with these words."""
    return ["sh", "-s", "--", *words]


@lru_cache(maxsize=None)  # noqa: UP033  # Python 3.8 has no `cache`, and the programs of a node are in this package
def load_kernel_table() -> dict[str, Any]:
    """Return kernel_events.json: the rules for lines of the kernel's log, and the meanings of Xid numbers."""
    table: dict[str, Any] = json.loads((Path(__file__).parent / "kernel_events.json").read_text("utf-8"))
    return table
