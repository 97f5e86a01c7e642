"""What runs on a Spark, and what is known of a Spark's kernel."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any


@cache
def load_kernel_table() -> dict[str, Any]:
    """Return kernel_events.json: the rules for lines of the kernel's log, and the meanings of Xid numbers."""
    table: dict[str, Any] = json.loads((Path(__file__).parent / "kernel_events.json").read_text("utf-8"))
    return table
