"""The one verdict on a model whose ranks each tell of an end of their own: that of the first, named by its node. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sparkctl.core.first_failure import CONSEQUENCES
from sparkctl.model.node import NodeName
from sparkctl.model.text import clean
from sparkctl.model.verdict import Verdict


def named(verdict: Verdict, rank: int, ranks: int, node: NodeName) -> Verdict:
    """Return a verdict that says of which rank it is, and on which node."""
    return replace(verdict, summary=clean(f"Rank {rank} of {ranks}, on {node}: {verdict.summary}"))


def one(root: Verdict, others: Iterable[Verdict]) -> Verdict:
    """Return the root's, with what went wrong elsewhere for a reason of its own beside it; all of them named."""
    own = tuple(other for other in others if other.cause not in CONSEQUENCES)
    return replace(root, contributing=(*root.contributing, *own))
