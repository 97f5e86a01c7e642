"""What earlier starts of a profile left: the guard's receipts, and failures that are a reason to ask before one more."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sparkctl.commands.context import CommandContext
from sparkctl.errors import OperationRefused
from sparkctl.history.model import NodeResult
from sparkctl.logs import start_verdict
from sparkctl.model.launch_plan import LaunchPlan
from sparkctl.model.questions import RetryStartQuestion
from sparkctl.model.verdict import Verdict
from sparkctl.monitor import guard_receipts
from sparkctl.transport.session import Session

_WITHIN = 3600.0  # seconds
_BEFORE_ASKING = 2  # failed starts within them

Warn = Callable[[str], None]


async def collect_guard_receipts(session: Session, ctx: CommandContext, plan: LaunchPlan, warn: Warn) -> None:
    """Fetch what the guard left while nobody was connected, and say what became of an earlier start of this."""
    for receipt in (await guard_receipts.read_guard_directory(session)).receipts:
        if guard_receipts.save_receipt(ctx, session, receipt, warn) and receipt.instance == plan.instance:
            when = time.strftime("%H:%M", time.localtime(receipt.at))
            warn(f"the guard stopped {plan.instance} at {when}: {start_verdict.describe_memory_drop(receipt)}")


async def confirm_after_failures(ctx: CommandContext, plans: Sequence[LaunchPlan], again: str) -> None:
    """Two starts that failed one after the other are a reason to think before the third: ask, or refuse.

    ``plans`` are those of all ranks, the head's first: whichever of them failed. ``again`` is the command that asks for the
    same once more. Raises `Refused` where the answer is no, or nobody answers.
    """
    head, since = plans[0], ctx.clock.unix_time() - _WITHIN
    found = {one for plan in plans for one in ctx.history.failures_since_ready(plan.profile, plan.node, since)}
    failures = tuple(sorted(found))
    if len(failures) < _BEFORE_ASKING or await ctx.asker.ask_yes_no(
        RetryStartQuestion(head.node, head.profile, failures)
    ):
        return
    raise OperationRefused(
        f"{head.profile} failed on {' and '.join(plan.node for plan in plans)} {len(failures)} times within the last hour "
        f"({_describe_failures([how for _, how in failures])}); nothing was started",
        f"see why: sparkctl logs {head.instance} --node {head.node}\nstart it all the same: {again} --again",
    )


def _describe_failures(causes: Sequence[str]) -> str:
    """Return how the starts failed, in words, each way once."""
    words = [cause.replace("-", " ") for cause in causes]
    if len(set(words)) == 1:
        return f"each time: {words[0]}"
    return ", ".join(words)


def record_start_failure(
    ctx: CommandContext, plan: LaunchPlan, container: str, verdict: Verdict, warn: Warn, *, counts: bool
) -> None:
    """Keep why this start failed beside its log; ``counts``: as a failure, not only as one that took too long."""
    try:
        ctx.history.save_verdict(plan.instance, plan.node, container, verdict)
        if counts and ctx.operation is not None:
            ctx.record_node_result(
                NodeResult(plan.node, plan.instance, container=container or None, cause=str(verdict.cause))
            )
        elif counts:
            now = ctx.clock.unix_time()
            ctx.history.record_failure(plan.profile, plan.profile_hash, plan.node, verdict.cause, container, now)
    except OSError as error:
        warn(f"this failed start was not kept in the history: {error}")
