"""Combines the verdicts of several ranks into one: the first failure counts, with the name of its node. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from sparkctl.errors import NodeError
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.verdict import FailureCause, Verdict
from sparkctl.transport.node_session import NodeSession

# Causes of a rank that ended because another one did.
CONSEQUENCE_CAUSES = frozenset({FailureCause.WORKER_LOST, FailureCause.NCCL, FailureCause.RAY})
_MAX_CAUSE_DELAY_SECONDS = (
    10.0  # seconds: a silent end, such as a SIGKILL, gets its Docker timestamp after the other ranks noticed it
)


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """``ahead``: seconds by which a node's clock is ahead of ours, plus or minus ``doubt``."""

    ahead: float
    doubt: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFailure:
    """A rank that failed ``at`` (unix seconds of its node's clock; None: not known) of ``cause``; ``is_aftermath``: its log only says
    that something else failed before; ``is_bare_exit``: only its exit code is known."""

    node: NodeName
    cause: FailureCause
    at: float | None
    is_aftermath: bool = False
    is_bare_exit: bool = False


def compute_clock_offset(asked: float, answer: float, heard: float) -> ClockOffset:
    """Return the offset of a clock that answered ``answer``; ``asked`` and ``heard`` are our times around it, in seconds."""
    return ClockOffset(answer - (asked + heard) / 2, max(0.0, heard - asked) / 2)


def pick_most_precise(offsets: Iterable[ClockOffset]) -> ClockOffset | None:
    """Return the offset with the least doubt, None if there is none."""
    return min(offsets, key=lambda one: one.doubt, default=None)


def find_first_failure(failures: Iterable[RankFailure], offsets: Mapping[NodeName, ClockOffset]) -> RankFailure:
    """Return the failure that the others follow from: the first, by one clock.

    An aftermath never counts while another rank gives a cause, as both may be closer in time than the clocks' precision. A
    lost rank is never the cause while some rank has a cause of its own; a communication failure gives way to such a cause
    unless that came much later, or is only an exit code that came later at all. Raises ValueError without failures.
    """

    def to_local_time(one: RankFailure) -> float:
        known = offsets.get(one.node)
        return float("inf") if one.at is None else one.at - (known.ahead if known is not None else 0.0)

    every = sorted(failures, key=to_local_time)
    if not every:
        raise ValueError("nothing failed")
    in_time = [one for one in every if not one.is_aftermath] or every
    first = in_time[0]
    reasons = [one for one in in_time if one.cause not in CONSEQUENCE_CAUSES]
    if not reasons:
        return first
    own = _break_clock_tie(reasons, to_local_time, {node: known.doubt for node, known in offsets.items()})
    if first in reasons:
        return own
    between = next((one for one in in_time if one.cause is not FailureCause.WORKER_LOST), None)
    delay = 0.0 if own.is_bare_exit else _MAX_CAUSE_DELAY_SECONDS
    if between is None or to_local_time(own) <= to_local_time(between) + delay:
        return own
    return between


def _break_clock_tie(
    in_time: Sequence[RankFailure], ours: Callable[[RankFailure], float], doubts: Mapping[NodeName, float]
) -> RankFailure:
    """Return the first failure; if the clocks cannot decide, the node's name does, so that every caller gets the same."""

    def get_doubt(one: RankFailure) -> float:
        return doubts.get(one.node, 0.0)

    first = in_time[0]
    same = [one for one in in_time[1:] if ours(one) - ours(first) <= get_doubt(one) + get_doubt(first)]
    return min((first, *same), key=lambda one: one.node)


def add_rank_name(verdict: Verdict, rank: int, ranks: int, node: NodeName) -> Verdict:
    """Return a verdict whose summary names the rank and the node."""
    return replace(verdict, summary=sanitize_line(f"Rank {rank} of {ranks}, on {node}: {verdict.summary}"))


def merge_rank_verdicts(root: Verdict, others: Iterable[Verdict]) -> Verdict:
    """Return the root's verdict with independent failures of other ranks as contributing, each with its rank."""
    own = tuple(other for other in others if other.cause not in CONSEQUENCE_CAUSES)
    return replace(root, contributing=(*root.contributing, *own))


def add_peer_log_commands(verdict: Verdict, instance: str, here: NodeName, nodes: Iterable[NodeName]) -> Verdict:
    """Add commands that show the other ranks' logs and the link, if the failure is between ranks and no setting explains it.

    ``here``: the node of the verdict's rank; ``nodes``: those of all ranks.
    """
    every = tuple(nodes)
    if verdict.cause not in CONSEQUENCE_CAUSES or verdict.field is not None or len(every) < 2:
        return verdict
    logs = [shlex.join(["sparkctl", "logs", instance, "--node", node]) for node in every if node != here]
    link = shlex.join(["sparkctl", "doctor", "--fabric", *(word for node in every for word in ("--node", node))])
    return replace(verdict, remedy=f"{verdict.remedy} The log: {'; '.join(logs)}. The link: {link}")


_MEASUREMENT_COUNT = 3  # the first may wait for a shell to load; the fastest counts
_TIMEOUT_SECONDS = 5.0


async def measure_clock_offset(session: NodeSession) -> ClockOffset | None:
    """Return a node's clock offset, None if it does not answer; takes three round trips."""
    found = []
    for _ in range(_MEASUREMENT_COUNT):
        asked = session.clock.unix_time()
        try:
            done = await session.run(["date", "+%s.%N"], timeout=_TIMEOUT_SECONDS)
            heard = session.clock.unix_time()
            found.append(compute_clock_offset(asked, float(done.stdout.decode("ascii").strip()), heard))
        except (NodeError, ValueError):
            break
    return pick_most_precise(found)
