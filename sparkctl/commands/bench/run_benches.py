"""``bench`` of several instances: one after the other, or at the same time on different nodes. What does not run is started
for its measurement and stopped again; what stops for it runs again at the end.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace

from sparkctl.commands.bench.run_bench import RunBench
from sparkctl.commands.event_stream import build_end_from_error, forward_events, stream_events
from sparkctl.commands.list_endpoints import list_endpoints
from sparkctl.commands.request import Request
from sparkctl.commands.restart_instance import build_restart
from sparkctl.commands.start.start_request import StartInstance
from sparkctl.commands.stop.stop_instance import StopInstance
from sparkctl.commands.switch.switch_request import SwitchInstance
from sparkctl.concurrency import gather_or_cancel
from sparkctl.context import CommandContext, InterruptSignal
from sparkctl.errors import ExitCode, SparkctlError
from sparkctl.model.events import CommandEnded, Emit, Event, Outcome, SwitchPlanned, WarningEmitted
from sparkctl.model.node import Node
from sparkctl.model.questions import BenchStartQuestion, NonInteractivePrompter
from sparkctl.monitor.node_status import read_node_statuses
from sparkctl.monitor.node_views import choose_instance


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBenches(Request):
    """A request to measure several instances.

    Attributes:
        benches: what to measure in each.
        starts: the starts of those that are profiles, in the order of ``benches``; None where there is none.
        are_started: start what does not run without a question.
        everywhere: all nodes, where ranks of what has to stop may be.
        together: all at the same time; they have to run on different nodes.
    """

    benches: tuple[RunBench, ...]
    nodes: Sequence[Node]
    starts: tuple[StartInstance | None, ...] = ()
    are_started: bool = False
    everywhere: Sequence[Node] = ()
    together: bool = False

    def format_as_command(self) -> tuple[str, ...]:
        """Return the words of its command line."""
        first = self.benches[0]
        if first.resume is not None:
            return first.format_as_command()
        names = [one.instance for one in self.benches]
        flags = [*(["--start"] if self.are_started else []), *(["--together"] if self.together else [])]
        _, _, *options = first.format_as_command()
        return ("bench", *names, *options, *flags)

    def run(self, ctx: CommandContext) -> AsyncGenerator[Event, None]:
        """Measure them."""
        return run_benches(ctx, self)


def run_benches(ctx: CommandContext, request: RunBenches) -> AsyncGenerator[Event, None]:
    """Measure each instance; what fails for one is a warning, and the others are measured all the same."""
    return stream_events(ctx, lambda emit: _BenchSeries(ctx=ctx, request=request, emit=emit).run(), on_interrupt=None)


@dataclass(slots=True, kw_only=True)
class _BenchSeries:
    """``stopped``: what ran before and stopped for a measurement, each with the start that repeats its own."""

    ctx: CommandContext
    request: RunBenches
    emit: Emit
    stopped: dict[str, StartInstance] = field(default_factory=dict)

    async def run(self) -> CommandEnded:
        """Measure all, then start again what stopped for it."""
        began = self.ctx.clock.monotonic()
        starts = self.request.starts or (None,) * len(self.request.benches)
        pairs = tuple(zip(self.request.benches, starts, strict=True))
        ends: list[CommandEnded] = []
        try:
            if self.request.together:
                ends += await gather_or_cancel(*(self._measure_one(*pair) for pair in pairs))
            else:
                for pair in pairs:
                    ends.append(await self._measure_one(*pair))
                    if self.ctx.interrupt.presses:
                        break
        finally:
            await self._start_again()
        return _merge_ends(self.ctx, self.request, ends, self.ctx.clock.monotonic() - began)

    async def _measure_one(self, bench: RunBench, start: StartInstance | None) -> CommandEnded:
        may_start = self.request.are_started or type(self.ctx.asker) is not NonInteractivePrompter
        if start is None or not may_start or await self._is_served(bench.instance, bench.nodes):
            return await forward_events(bench.run(self.ctx), self.emit)
        start = self.stopped.get(bench.instance, start)
        switch = SwitchInstance(
            profile=start.profile, engine=start.engine, nodes=start.nodes, names_nodes=start.names_nodes,
            known=tuple({one.name: one for one in (*start.nodes, *self.request.everywhere)}.values()), environ=start.environ,
            words=start.words,
        )  # fmt: skip
        stops, refused = await self._plan_stops(switch)
        if refused is not None:
            return refused
        question = BenchStartQuestion(bench.instance, tuple(node.name for node in start.nodes), stops)
        if not self.request.are_started and not await self.ctx.asker.ask_yes_no(question):
            return await forward_events(bench.run(self.ctx), self.emit)  # it tells that it does not run
        is_left = False
        try:
            await self._remember_starts(stops)
            ended = await forward_events((switch if stops else start).run(self.ctx), self.emit)
            if ended.outcome is Outcome.READY:
                return await forward_events(replace(bench, nodes=start.nodes[:1]).run(self.ctx), self.emit)
            # what failed stays to tell why, and an interrupted switch has its own way back
            is_left = bool(stops) or ended.outcome is not Outcome.INTERRUPTED
            if stops and ended.outcome is Outcome.INTERRUPTED:
                self.stopped.clear()
            return ended
        except SparkctlError as error:
            is_left = True
            return build_end_from_error(error, self.ctx, 0.0, bench.instance)
        finally:
            if not is_left and bench.instance not in self.stopped:
                await self._stop(bench.instance, start)

    async def _plan_stops(self, switch: SwitchInstance) -> tuple[tuple[str, ...], CommandEnded | None]:
        """Return the names of what has to stop for a start, and the end that refuses it, None where it may begin."""
        planned: list[SwitchPlanned] = []

        def keep_plan(event: Event) -> None:
            if isinstance(event, SwitchPlanned):
                planned.append(event)

        ended = await forward_events(replace(switch, dry_run=True).run(self.ctx), keep_plan)
        stops = planned[0].plan.stops if planned else ()
        return stops, ended if ended.exit_code else None

    async def _remember_starts(self, stops: Sequence[str]) -> None:
        """Keep how to start again what stops now. Raises `SparkctlError` where that cannot be done: then nothing stops."""
        views = await read_node_statuses(self.ctx, self.request.everywhere or self.request.nodes) if stops else ()
        for name in stops:
            found = choose_instance(views, name)
            self.stopped.setdefault(name, build_restart(self.ctx, found, self.request.everywhere)[0])

    async def _start_again(self) -> None:
        """Start what ran before and does not run now."""
        for name, start in self.stopped.items():
            if await self._is_served(name, start.nodes):
                continue
            ended = await forward_events(start.run(_without_interrupt(self.ctx)), self.emit)
            if ended.outcome is not Outcome.READY:
                words = f"{name} ran before and does not run again: {ended.message or ended.outcome}"
                self.emit(WarningEmitted(self.ctx.clock.unix_time(), ended.node, words, ended.hint))

    async def _stop(self, name: str, start: StartInstance) -> None:
        stopping = StopInstance(instance=name, nodes=start.nodes, everywhere=self.request.nodes)
        ended = await forward_events(stopping.run(_without_interrupt(self.ctx)), self.emit)
        if ended.exit_code:
            words = f"{name} was not stopped: {ended.message}"
            self.emit(WarningEmitted(self.ctx.clock.unix_time(), None, words, ended.hint))

    async def _is_served(self, name: str, nodes: Sequence[Node]) -> bool:
        served, _ = await list_endpoints(self.ctx, nodes)
        return any(one.ours and one.instance == name for one in served)


def _without_interrupt(ctx: CommandContext) -> CommandContext:
    """Return a context in which the Ctrl-C that ended the measurement does not end the stop as well."""
    return replace(ctx, interrupt=InterruptSignal())


def _merge_ends(ctx: CommandContext, request: RunBenches, ends: Sequence[CommandEnded], seconds: float) -> CommandEnded:
    """Return the end of all: done if all are, else the first that is not, with what became of the others."""
    if len(request.benches) == 1 and ends:
        return replace(ends[0], ts=ctx.clock.unix_time(), seconds=seconds)
    bad = next((one for one in ends if one.exit_code), None)
    if bad is None:
        return CommandEnded(
            ts=ctx.clock.unix_time(), outcome=Outcome.DONE, exit_code=int(ExitCode.DONE), seconds=seconds, node=None,
            message="; ".join(one.message for one in ends if one.message) or None, hint="sparkctl bench compare",
        )  # fmt: skip
    done = sum(not one.exit_code for one in ends)
    words = (
        f"{bad.instance or 'one'}: {bad.message or bad.outcome}; {done} of {len(request.benches)} were measured whole"
    )
    return replace(bad, ts=ctx.clock.unix_time(), seconds=seconds, message=words)
