"""``bench`` of several instances: one after the other, or at the same time on different nodes; started and stopped where wanted."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace

from sparkctl.commands.bench.run_bench import RunBench
from sparkctl.commands.event_stream import forward_events, stream_events
from sparkctl.commands.list_endpoints import list_endpoints
from sparkctl.commands.request import Request
from sparkctl.commands.start.start_request import StartInstance
from sparkctl.commands.stop.stop_instance import StopInstance
from sparkctl.concurrency import gather_or_cancel
from sparkctl.context import CommandContext
from sparkctl.errors import ExitCode
from sparkctl.model.events import CommandEnded, Emit, Event, Outcome, WarningEmitted
from sparkctl.model.node import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBenches(Request):
    """A request to measure several instances.

    Attributes:
        benches: what to measure in each.
        starts: the starts of those that are profiles, in the order of ``benches``; None where there is none.
        are_started: start what does not run, and stop it again after its measurement.
        together: all at the same time; they have to run on different nodes.
    """

    benches: tuple[RunBench, ...]
    nodes: Sequence[Node]
    starts: tuple[StartInstance | None, ...] = ()
    are_started: bool = False
    together: bool = False

    def format_as_command(self) -> tuple[str, ...]:
        """Return the words of its command line."""
        first = self.benches[0]
        names = [one.instance for one in self.benches]
        flags = [*(["--start"] if self.are_started else []), *(["--together"] if self.together else [])]
        _, _, *options = first.format_as_command()
        return ("bench", *names, *options, *flags)

    def run(self, ctx: CommandContext) -> AsyncGenerator[Event, None]:
        """Measure them."""
        return run_benches(ctx, self)


def run_benches(ctx: CommandContext, request: RunBenches) -> AsyncGenerator[Event, None]:
    """Measure each instance; what fails for one is a warning, and the others are measured all the same."""

    async def run_each(emit: Emit) -> CommandEnded:
        began = ctx.clock.monotonic()
        starts = request.starts or (None,) * len(request.benches)
        pairs = tuple(zip(request.benches, starts, strict=True))
        ends: list[CommandEnded] = []
        if request.together:
            ends += await gather_or_cancel(*(_measure_one(ctx, request, *pair, emit) for pair in pairs))
        else:
            for pair in pairs:
                ends.append(await _measure_one(ctx, request, *pair, emit))
                if ctx.interrupt.presses:
                    break
        return _merge_ends(ctx, request, ends, ctx.clock.monotonic() - began)

    return stream_events(ctx, run_each, on_interrupt=None)


async def _measure_one(
    ctx: CommandContext, request: RunBenches, bench: RunBench, start: StartInstance | None, emit: Emit
) -> CommandEnded:
    if not request.are_started or start is None or await _is_served(ctx, bench):
        return await forward_events(bench.run(ctx), emit)
    ended = await forward_events(start.run(ctx), emit)
    if ended.outcome is not Outcome.READY:
        return ended
    try:
        return await forward_events(replace(bench, nodes=start.nodes[:1]).run(ctx), emit)
    finally:
        stopping = StopInstance(instance=bench.instance, nodes=start.nodes, everywhere=request.nodes)
        stopped = await forward_events(stopping.run(_without_interrupt(ctx)), emit)
        if stopped.exit_code:
            emit(
                WarningEmitted(
                    ctx.clock.unix_time(), None, f"{bench.instance} was not stopped: {stopped.message}", stopped.hint
                )
            )


def _without_interrupt(ctx: CommandContext) -> CommandContext:
    """Return a context in which the Ctrl-C that ended the measurement does not end the stop as well."""
    from sparkctl.context import InterruptSignal

    return replace(ctx, interrupt=InterruptSignal())


async def _is_served(ctx: CommandContext, bench: RunBench) -> bool:
    served, _ = await list_endpoints(ctx, bench.nodes)
    return any(one.ours and one.instance == bench.instance for one in served)


def _merge_ends(ctx: CommandContext, request: RunBenches, ends: Sequence[CommandEnded], seconds: float) -> CommandEnded:
    """Return the end of all: done if all are, else the first that is not, with what became of the others."""
    bad = next((one for one in ends if one.exit_code), None)
    if bad is None:
        return CommandEnded(
            ts=ctx.clock.unix_time(), outcome=Outcome.DONE, exit_code=int(ExitCode.DONE), seconds=seconds, node=None,
            hint="sparkctl bench compare" if len(ends) > 1 else None,
        )  # fmt: skip
    done = sum(not one.exit_code for one in ends)
    words = f"{bad.instance or 'one'}: {bad.message or bad.outcome}; {done} of {len(request.benches)} were measured completely"
    return replace(bad, ts=ctx.clock.unix_time(), seconds=seconds, message=words)
