"""Reading labels: anybody on the node can set them, so each value is checked before it is believed."""

from __future__ import annotations

import json
import math
import re

from sparkctl.model.container import Container
from sparkctl.model.node import NodeName
from sparkctl.model.plan import Label, ReadyRule

_LONGEST_GRACE = 3600.0
_MOST_RANKS = 64
_RANK = re.compile(r"([0-9]{1,2})/([0-9]{1,2})")
_NODES = re.compile(r"[A-Za-z0-9._-]{1,64}(,[A-Za-z0-9._-]{1,64}){0,63}")
_RUN = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_PROBES = ("completions", "chat", "none")


def port_of(container: Container) -> int | None:
    """Return the port on the node, None for what is none."""
    text = container.label(Label.PORT) or ""
    port = int(text) if text.isascii() and text.isdigit() and len(text) <= 5 else 0
    return port if 0 < port < 65536 else None


def grace_of(container: Container) -> float | None:
    """Return the seconds between SIGTERM and SIGKILL, None for what is no such number."""
    try:
        grace = float(container.label(Label.GRACE) or "")
    except ValueError:
        return None
    return grace if math.isfinite(grace) and 0 <= grace <= _LONGEST_GRACE else None


def expected_of(container: Container) -> int | None:
    """Return the bytes of memory it is expected to hold, None for what is no such number."""
    text = container.label(Label.EXPECTED) or ""
    return (int(text) or None) if text.isascii() and text.isdigit() and len(text) <= 15 else None


def rank_of(container: Container) -> str | None:
    """Return which rank of how many it is, as "0/2"; None for one Spark alone, and for what is no rank."""
    found = _RANK.fullmatch(container.label(Label.RANK) or "")
    if found is None or not int(found[1]) < int(found[2]) <= _MOST_RANKS or int(found[2]) < 2:
        return None
    return f"{int(found[1])}/{int(found[2])}"


def nodes_of(container: Container) -> tuple[NodeName, ...]:
    """Return where its ranks are, as whoever started it calls the nodes, the head's first; empty where that is not said."""
    text = container.label(Label.NODES) or ""
    return tuple(map(NodeName, text.split(","))) if _NODES.fullmatch(text) else ()


def run_of(container: Container) -> str | None:
    """Return what all ranks of one start share, None where nothing usable is said."""
    text = container.label(Label.RUN) or ""
    return text if _RUN.fullmatch(text) else None


def rule_of(container: Container) -> ReadyRule | None:
    """Return when it counts as ready, None where its label does not say so in a usable way."""
    try:
        fields = json.loads(container.label(Label.READY) or "")
        line, health, probe = fields["line"], fields["health"], fields.get("probe", "none")
        if line is not None:
            re.compile(line)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, re.error):
        return None
    if not (health is None or (isinstance(health, str) and health.startswith("/"))) or probe not in _PROBES:
        return None
    return ReadyRule(line, health, probe)
