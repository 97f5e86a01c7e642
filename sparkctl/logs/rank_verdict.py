"""The one verdict on a model whose ranks each tell of an end of their own: that of the first, named by its node. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import replace

from sparkctl.logs.first_failure import CONSEQUENCE_CAUSES
from sparkctl.model.node import NodeName
from sparkctl.model.sanitize import sanitize_line
from sparkctl.model.verdict import Verdict


def add_rank_name(verdict: Verdict, rank: int, ranks: int, node: NodeName) -> Verdict:
    """Return a verdict that says of which rank it is, and on which node."""
    return replace(verdict, summary=sanitize_line(f"Rank {rank} of {ranks}, on {node}: {verdict.summary}"))


def merge_rank_verdicts(root: Verdict, others: Iterable[Verdict]) -> Verdict:
    """Return the root's, with what went wrong elsewhere for a reason of its own beside it; all of them named."""
    own = tuple(other for other in others if other.cause not in CONSEQUENCE_CAUSES)
    return replace(root, contributing=(*root.contributing, *own))


def add_peer_log_commands(verdict: Verdict, instance: str, here: NodeName, nodes: Iterable[NodeName]) -> Verdict:
    """Return it with the commands that show the other side, where the trouble is between ranks and no setting explains it.

    ``here``: the node whose rank it is of; ``nodes``: of all ranks.
    """
    every = tuple(nodes)
    if verdict.cause not in CONSEQUENCE_CAUSES or verdict.field is not None or len(every) < 2:
        return verdict
    logs = [shlex.join(["sparkctl", "logs", instance, "--node", node]) for node in every if node != here]
    link = shlex.join(["sparkctl", "doctor", "--fabric", *(word for node in every for word in ("--node", node))])
    return replace(verdict, remedy=f"{verdict.remedy} The log: {'; '.join(logs)}. The link: {link}")
