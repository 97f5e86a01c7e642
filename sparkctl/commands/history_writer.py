"""Records a command in the history: a row is written before anything is done, updated from its events, and closed
however it ends.

Events are passed on unchanged. What no event carries (digest, driver, kernel, container, memory available before) the
command adds itself: ``ctx.note(NodeResult(node=..., driver=...))``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace

from sparkctl.context import CommandContext
from sparkctl.errors import ExitCode
from sparkctl.history.expected_durations import compute_model_key
from sparkctl.history.model import NodeResult, OperationKind, StepRecord
from sparkctl.history.operation_recorder import OperationRecorder
from sparkctl.model.engine_metrics import EngineFactName
from sparkctl.model.events import (
    BenchCellMeasured,
    BenchDomainMeasured,
    CommandEnded,
    EngineFactsReported,
    Event,
    GuardActed,
    LaunchPlanned,
    MemoryFitEvaluated,
    MemoryReleased,
    Outcome,
    PhaseChanged,
    SwitchStepReported,
    WarningEmitted,
)
from sparkctl.model.guard_state import GuardAction
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import Node, NodeName
from sparkctl.model.phase import ExpectedDurations, Phase, PhaseDuration
from sparkctl.model.profile import Profile
from sparkctl.model.switch_plan import SwitchStep
from sparkctl.monitor.startup_timeline import StartupTimeline, advance_timeline, merge_spans
from sparkctl.profiles.redaction import find_profile_secrets, render_redacted_yaml

CommandRun = Callable[[CommandContext], AsyncGenerator[Event, None]]
# it ran already, there was nothing to stop, or the name is not known
_UNRECORDED_EXIT_CODES = (ExitCode.DONE, ExitCode.USAGE)
_UNCHANGED_PHASES = (Phase.PLANNED, Phase.READY)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationSubject:
    """What a command does to what. ``command``: the command line that repeats it."""

    kind: OperationKind
    nodes: Sequence[Node]
    instance: str | None = None
    profile: Profile | None = None
    command: str | None


async def record_operation(
    ctx: CommandContext, subject: OperationSubject, verb: CommandRun
) -> AsyncGenerator[Event, None]:
    """Run ``verb`` with a context whose ``operation`` is its history row, and yield its events.

    Emits one `WarningEmitted` where no row can be written. The row of a command that did nothing (it ran already, a
    mistyped name) is removed again.
    """
    clerk = HistoryWriter(ctx, subject)
    try:
        async with aclosing(verb(replace(ctx, operation=clerk.entry))) as events:
            async for event in events:
                clerk.record_event(event)
                while (word := ctx.history.take_warning()) is not None:
                    yield WarningEmitted(ctx.clock.unix_time(), None, word, None)
                yield event
    finally:  # the consumer closed the stream, or a defect ended the command
        clerk.entry.record_end(str(Outcome.INTERRUPTED), None, why="sparkctl ended in the middle of it")


class HistoryWriter:
    """Writes a command's events into its history row."""

    def __init__(self, ctx: CommandContext, subject: OperationSubject) -> None:
        profile = subject.profile
        known = {} if profile is None else {
            "profile": profile.name, "hash": profile.digest, "text": render_redacted_yaml(profile), "engine": profile.engine,
            "image": profile.image, "alike": compute_model_key(profile.image, profile.model.path),
        }  # fmt: skip
        self._is_done_to = False  # something was changed, or a change was attempted
        self._timelines: dict[tuple[NodeName, str], StartupTimeline | None] = {}
        self.entry: OperationRecorder = ctx.history.begin_operation(
            subject.kind, ctx.clock, ctx.operator, [node.name for node in subject.nodes], ctx.operation,
            instance=subject.instance or (profile.name if profile else None), command=subject.command, **known,
        )  # fmt: skip
        self.entry.redact_values(find_profile_secrets(profile) if profile else ())
        self.entry.record_facts()

    def record_event(self, event: Event) -> None:
        """Record one event, if it holds something for the history."""
        match event:
            case LaunchPlanned():
                self.entry.redact_values(event.plan.secret_values)
                self.entry.record_facts(image=event.plan.image, instance=event.plan.instance)
            case MemoryFitEvaluated() if event.fit.estimated:
                self._record_node_result(event.node, None, estimated=event.fit.estimated)
            # a start within a switch has a row of its own
            case EngineFactsReported() if self.entry.operation.kind is OperationKind.START:
                version = next((one.value for one in event.facts if one.name is EngineFactName.ENGINE_VERSION), None)
                self._record_node_result(event.node, None, container=event.container, engine_version=version)
            case PhaseChanged():
                self._record_phase(event)
            case MemoryReleased():
                self._record_node_result(
                    event.node,
                    event.instance,
                    freed=event.freed,
                    missing=event.missing,
                    available_after=event.available,
                    available_before=event.before_start,
                )
            case GuardActed(what=GuardAction.KILLED):
                self._record_node_result(event.node, event.instance, receipt=f"the guard stopped it: {event.why}")
            case SwitchStepReported():
                self._is_done_to = self._is_done_to or event.step is not SwitchStep.CHECKING
                self.entry.record_facts(moments=_append_step(self.entry.operation.moments, event))
            case BenchCellMeasured() | BenchDomainMeasured():
                self._is_done_to = True
            case CommandEnded():
                self._record_end(event)
            case _:
                pass

    def _record_phase(self, event: PhaseChanged) -> None:
        self._is_done_to = self._is_done_to or event.phase not in _UNCHANGED_PHASES
        if event.elapsed is not None and self.entry.operation.kind is OperationKind.START:
            key = event.node, event.instance
            self._timelines[key] = advance_timeline(self._timelines.get(key), replace(event, ts=event.elapsed))
        row = self.entry.operation
        # only the head's: ranks have different steps; and not those of instances that a rollback restarts
        is_its = event.instance == row.instance and event.node in row.nodes[:1]
        if is_its and event.expected is not None and event.expected != row.usual.seconds:
            self.entry.record_facts(usual=ExpectedDurations(event.expected, event.expected_parts))

    def _record_node_result(self, node: NodeName, instance: str | None, **facts: object) -> None:
        name = instance or self.entry.operation.instance
        if name is not None:
            self.entry.record_node_result(NodeResult(node=node, instance=name, **facts))  # type: ignore[arg-type]

    def _record_end(self, event: CommandEnded) -> None:
        is_removal = self.entry.operation.kind is OperationKind.REMOVE and event.outcome is Outcome.DONE
        is_stopped_pull = self.entry.operation.kind is OperationKind.PULL and bool(self.entry.operation.shares)
        if not (self._is_done_to or is_removal or is_stopped_pull) and event.exit_code in _UNRECORDED_EXIT_CODES:
            self.entry.delete_row()
            return
        touched = tuple(dict.fromkeys(share.node for share in self.entry.operation.shares))
        if touched and self.entry.operation.kind is OperationKind.STOP and event.exit_code == 0:
            self.entry.record_facts(nodes=touched)  # asked of all nodes, and done on these
        elif self.entry.operation.kind is OperationKind.BENCH and event.node is not None:
            self.entry.record_facts(nodes=(event.node,))  # looked for on all nodes, and found on this one
        elif self.entry.operation.kind is OperationKind.SWITCH:
            self.entry.record_facts(nodes=tuple(dict.fromkeys((*self.entry.operation.nodes, *touched))))
        for (node, instance), timeline in self._timelines.items():
            if timeline is not None and event.exit_code != 0:  # a good start reports its own durations
                parts = tuple(
                    PhaseDuration(*one.part_key, one.compute_duration(event.seconds))
                    for one in merge_spans(timeline.stretches)
                )
                self._record_node_result(node, instance, parts=parts)
        if event.log is not None and event.node is not None:
            self._record_node_result(event.node, event.instance, log=event.log)
        for node, log in event.more_logs:
            self._record_node_result(node, event.instance, log=log)
        # A switch that another operator took over midway was not refused: it had changed something.
        is_taken_over = (
            self._is_done_to and self.entry.operation.kind is OperationKind.SWITCH and event.outcome is Outcome.REFUSED
        )
        self.entry.record_end(
            str(Outcome.INTERRUPTED if is_taken_over else event.outcome),
            event.exit_code,
            seconds=event.seconds,
            why=event.message,
            hint=event.hint,
            verdict=event.verdict,
        )


def _append_step(moments: tuple[StepRecord, ...], event: SwitchStepReported) -> tuple[StepRecord, ...]:
    """Return the steps with one more report: a proof belongs to the step that began before it."""
    last = moments[-1] if moments else None
    if last is not None and (last.step, last.instance) == (str(event.step), event.instance):
        return (*moments[:-1], replace(last, proof=event.proof or last.proof))
    return (*moments, StepRecord(str(event.step), event.instance, event.elapsed, event.proof))
