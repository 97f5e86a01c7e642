"""Printers of a verb's events: JSON lines on stdout, or text on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from sparkctl.cli import stderr, stdout
from sparkctl.errors import ExitCode, SparkctlError
from sparkctl.model.events import (
    BenchCellMeasured,
    BenchCellProgressed,
    BenchDomainMeasured,
    CachesDropped,
    CommandEnded,
    Event,
    FindingReported,
    GuardActed,
    LaunchPlanned,
    LogArrived,
    MemoryFitEvaluated,
    MemoryReleased,
    NodeStateChanged,
    Outcome,
    PartsMissing,
    PhaseChanged,
    SetupStepDone,
    SwitchPlanned,
    SwitchStepReported,
    TransferProgressed,
    TunnelState,
    TunnelStateChanged,
    WarningEmitted,
)
from sparkctl.model.finding import Severity
from sparkctl.model.guard_state import GuardAction
from sparkctl.model.json_codec import encode_event, redact_launch_plan, to_json_data
from sparkctl.model.memory_fit import FitOutcome, MemoryFit
from sparkctl.model.missing_part import MissingPart
from sparkctl.model.node import NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.profile import Profile
from sparkctl.model.switch_plan import SwitchStep
from sparkctl.model.text.log_line import join_texts
from sparkctl.model.text.sanitize import sanitize_line, sanitize_lines
from sparkctl.model.text.units import GIB, format_duration
from sparkctl.views.event_text import (
    describe_missing_guard,
    format_cache_drop,
    format_guard_event,
    format_missing_parts,
    format_node_state,
    format_phase,
    format_phase_name,
    format_release,
    format_setup_step_done,
    format_step,
    format_transfer,
    format_tunnel_state,
    format_verdict,
    judge_guard_action,
    render_transfer_bars,
)
from sparkctl.views.finding_view import format_answer_check
from sparkctl.views.profiles.memory_estimate_view import (
    build_estimate_json,
    describe_answer,
    describe_missing_kinds,
    format_estimate,
    format_estimate_notes,
    format_estimate_summary,
    format_group_answer,
)
from sparkctl.views.switch_plan_view import describe_switch_step, format_switch_plan
from sparkctl.views.text.line_wrap import wrap_line, wrap_styled_line
from sparkctl.views.text.styled_text import (
    Span,
    TextRow,
    TextStyle,
    get_severity_style,
    get_state_symbol,
    make_row,
    measure_text,
)

_SUMMARIZED_PHASES = (Phase.LOADING, Phase.WARMING)  # phases whose length an owner wants to see afterwards
_FINAL_PHASES = (Phase.READY, Phase.UNPROVED, Phase.FAILED, Phase.STOPPED)
_SILENT_GUARD_ACTIONS = (GuardAction.ENDED, GuardAction.COMPACTED)
_PROGRESS_SECONDS = 10.0  # interval of progress lines within a step, without a terminal
_SILENT_SECONDS = 5.0  # after which a check says what it waits for
_STILL_RUNNING_SECONDS = 30.0  # interval of lines that say that a phase without progress still lasts
_VERDICT_INDENT = 10


class JsonPrinter:
    """Prints one event a line as JSON; log lines only for verbs that show logs."""

    def __init__(self, *, logs: bool = False) -> None:
        self.logs = logs

    def print_event(self, event: Event) -> None:
        if isinstance(event, LogArrived) and not self.logs:
            return
        stdout.print_json(encode_event(event))

    def refresh(self) -> None:
        """Do nothing: there is no live line."""

    def print_interrupt(self, presses: int) -> None:
        """Do nothing: the result line reports the interrupt."""


@dataclass(slots=True)
class _PhaseProgress:
    """The last printed phase of a node, in monotonic seconds: its begin, its event's arrival, and the last print."""

    event: PhaseChanged
    since: float
    at: float
    printed_at: float

    @property
    def elapsed_seconds(self) -> float | None:
        """Seconds since the verb began, up to now."""
        return None if self.event.elapsed is None else self.event.elapsed + (time.monotonic() - self.at)

    @property
    def is_final(self) -> bool:
        """Whether no other phase follows by itself."""
        return self.event.phase in _FINAL_PHASES


class TextPrinter:
    """Prints events as text for people: a live line on a terminal, plain lines elsewhere. Only the endpoint goes to stdout."""

    def __init__(self, on_interrupt: str = "stopping ...") -> None:
        self.on_interrupt = on_interrupt
        self.live = stderr.LiveLine()
        self._phases: dict[str, _PhaseProgress] = {}  # by node
        self._transfers: dict[str, TransferProgressed] = {}  # what comes now, by node
        self._transfers_printed_at: dict[str, float] = {}  # monotonic, by node
        self._connected: set[str] = set()
        self._away: set[str] = set()
        self._warned: set[str] = set()
        self._has_ended = False
        self._has_tunnel = False

    def print_event(self, event: Event) -> None:
        match event:
            case PhaseChanged():
                self._print_phase(event)
            case TransferProgressed():
                self._print_transfer(event)
            case LogArrived() if self._is_pulling(event.node):  # the log of a build
                self.live.clear()
                for one in event.lines:
                    stderr.print_message(f"{event.node}  {sanitize_line(one.text)}")
            case CachesDropped():
                self._print_line(event.node, TextStyle.GOOD, get_state_symbol(Phase.READY), format_cache_drop(event))
                self._phases.pop(event.node, None)
            case GuardActed():
                self._print_guard_action(event)
            case BenchCellMeasured() | BenchDomainMeasured():
                from sparkctl.views.bench_view import format_domain_progress, format_progress  # imports statistics

                style = TextStyle.GOOD if event.result.error is None else TextStyle.ATTENTION
                mark = get_state_symbol(Phase.READY if event.result.error is None else Phase.FAILED)
                words = (
                    format_progress(event) if isinstance(event, BenchCellMeasured) else format_domain_progress(event)
                )
                self._print_line(event.node, style, mark, words)
            case MemoryReleased() if not event.holders and (event.missing or 0) <= GIB:  # the rest is a warning
                severity = Severity.WARNING if event.missing is None else Severity.GOOD
                style = TextStyle.ATTENTION if event.missing is None else TextStyle.GOOD
                self._print_line(event.node, style, get_state_symbol(severity), format_release(event))
            case MemoryFitEvaluated() if event.fit.is_refused:
                self.live.clear()
                columns = stdout.terminal_columns(sys.stderr)
                for line in format_estimate(event.fit, None if columns is None else columns - 2):
                    stderr.print_message(f"  {line}", _VERDICT_INDENT, is_trouble=True)
            case PartsMissing():
                self.live.clear()
                for line in format_missing_parts(event):
                    stderr.print_message(line, is_trouble=True)
            case NodeStateChanged():
                self._print_node_state(event)
            case SetupStepDone():
                style = TextStyle.ATTENTION if event.is_back else TextStyle.GOOD
                mark = get_state_symbol(Phase.FAILED if event.is_back else Phase.READY)
                self._print_line(event.node, style, mark, format_setup_step_done(event))
            case TunnelStateChanged():
                self._print_tunnel_state(event)
            case WarningEmitted():
                self.live.clear()
                self._warned.add(event.message)
                stderr.print_warning(event.node, event.message, event.hint)
            case FindingReported() if event.severity is not Severity.GOOD:
                self.live.clear()
                first, *more = format_answer_check(event)
                self._print_line(event.node or "", TextStyle.ATTENTION, first[0], first[2:])
                for line in more:
                    stderr.print_message(f"  {line}", _VERDICT_INDENT)
            case CommandEnded():
                self._has_ended = True
                self._print_end(event)
            case _:
                pass

    def refresh(self) -> None:
        """Move the clock on the live line; without a terminal, say now and then that it lasts."""
        going, now = [progress for progress in self._phases.values() if not progress.is_final], time.monotonic()
        if self.live.on:
            return self._update_live_line()
        for progress in going:
            if now - progress.printed_at >= _STILL_RUNNING_SECONDS and progress.event.node not in self._away:
                progress.printed_at = now
                stderr.print_message(
                    f"{progress.event.node}  {format_phase(progress.event, progress.elapsed_seconds, has_bar=False)}"
                )
        return None

    def print_interrupt(self, presses: int) -> None:
        """Say that the key was heard."""
        self.live.clear()
        if not self._has_ended:
            stderr.print_message(
                self.on_interrupt if presses == 1 else "heard; it ends as soon as nothing is half done ..."
            )

    def _print_guard_action(self, event: GuardActed) -> None:
        """That a watch has ended because we ended it is no news."""
        if event.what in _SILENT_GUARD_ACTIONS:
            return
        severity = judge_guard_action(event.what)
        words = f"guard: {format_guard_event(event)}"
        self._print_line(event.node, get_severity_style(severity), get_state_symbol(severity), words)

    def _print_node_state(self, event: NodeStateChanged) -> None:
        """A lost connection is news, and so are its attempts and its return. A first one that fails is the verb's end."""
        was_away, away = event.node in self._away, event.state is not NodeState.OK
        if not away:
            self._away.discard(event.node)
            self._connected.add(event.node)
        elif event.attempt is None and (was_away or event.node not in self._connected):
            return
        else:
            self._away.add(event.node)
        if away or was_away:
            self._print_line(
                event.node,
                TextStyle.ATTENTION if away else TextStyle.GOOD,
                get_state_symbol(event.state),
                format_node_state(event),
            )

    def _print_tunnel_state(self, event: TunnelStateChanged) -> None:
        """Print it, and at the first time the address on stdout, for a script that waits for it."""
        is_open = event.state is TunnelState.OPEN
        mark = get_state_symbol(Phase.READY if is_open else Phase.UNKNOWN)
        style = TextStyle.GOOD if is_open else TextStyle.ATTENTION
        self._print_line(event.node, style, mark, format_tunnel_state(event))
        if is_open and not self._has_tunnel:
            self._has_tunnel = True
            self.on_interrupt = "closing the tunnel ..."  # `up --tunnel` has ended its start
            stdout.print_line(event.url)
            stdout.flush_stdout()
            self._print_first_request(event.hint)

    def _print_phase(self, event: PhaseChanged) -> None:
        progress, now = self._phases.get(event.node), time.monotonic()
        self._transfers.pop(event.node, None)
        before = None if progress is None else progress.event
        moved_on = before is not None and event.phase not in (before.phase, Phase.FAILED, Phase.STOPPED)
        if (
            progress is not None
            and before is not None
            and moved_on
            and before.phase in _SUMMARIZED_PHASES
            and self.live.on
        ):
            words = f"{format_phase_name(before.phase)} done   {format_duration(now - progress.since)}{_format_usual_duration(before)}"
            self._print_line(before.node, TextStyle.GOOD, get_state_symbol(Phase.READY), words)
        new_phase = progress is None or before is None or before.phase is not event.phase
        since = now if progress is None or new_phase else progress.since
        progress = self._phases[event.node] = _PhaseProgress(
            event, since, now, 0.0 if progress is None else progress.printed_at
        )
        if progress.is_final:
            return self._print_final_phase(event)
        if self.live.on:
            return self._update_live_line()
        new_step = before is None or (before.step and before.step.name) != (event.step and event.step.name)
        if new_phase or new_step or now - progress.printed_at > _PROGRESS_SECONDS:
            progress.printed_at = now
            stderr.print_message(f"{event.node}  {format_phase(event, event.elapsed, has_bar=False)}")
        return None

    def _print_final_phase(self, event: PhaseChanged) -> None:
        style = {Phase.READY: TextStyle.GOOD, Phase.UNPROVED: TextStyle.ATTENTION, Phase.FAILED: TextStyle.BAD}.get(
            event.phase, TextStyle.LABEL
        )
        words = f"{event.instance} {format_phase_name(event.phase)}"
        if event.elapsed:
            words += f" after {format_duration(event.elapsed)}"
        if event.detail:
            words += f"   {sanitize_line(event.detail)}"
        self._print_line(event.node, style, get_state_symbol(event.phase), words)

    def _is_pulling(self, node: str) -> bool:
        progress = self._phases.get(node)
        return progress is not None and progress.event.phase is Phase.PULLING

    def _print_transfer(self, event: TransferProgressed) -> None:
        """A bar on a terminal; elsewhere a line every ten seconds. What has arrived whole stays as a line."""
        before, now = self._transfers.get(event.node), time.monotonic()
        is_whole = event.total is not None and event.done >= event.total and not event.parts
        if is_whole:
            self._transfers.pop(event.node, None)
        else:
            self._transfers[event.node] = event
        if self.live.on and not is_whole:
            return self._update_live_line()
        is_new = before is None or before.what != event.what
        if is_whole or is_new or now - self._transfers_printed_at.get(event.node, 0.0) > _PROGRESS_SECONDS:
            self._transfers_printed_at[event.node] = now
            columns = stdout.terminal_columns(sys.stderr)
            words = format_transfer(event, None if columns is None else columns - measure_text(event.node) - 5)
            style, state = (TextStyle.GOOD, Phase.READY) if is_whole else (TextStyle.ATTENTION, Phase.LOADING)
            self._print_line(event.node, style, get_state_symbol(state), words)
            if (progress := self._phases.get(event.node)) is not None:
                progress.printed_at = now
        return None

    def _print_end(self, event: CommandEnded) -> None:
        self._phases.clear()
        self._transfers.clear()
        self.live.clear()
        if event.verdict is not None:
            if event.outcome is Outcome.TIMED_OUT:
                words = f"{event.instance} not ready after {format_duration(event.seconds)}"
                self._print_line(event.node or "", TextStyle.ATTENTION, get_state_symbol(Phase.UNKNOWN), words)
            stderr.print_message(is_trouble=True)
            for line in format_verdict(event.verdict):
                hang = _VERDICT_INDENT if line.startswith(" ") else 0
                stderr.print_message(_paint_verdict_line(line), hang, is_trouble=True)
            stderr.print_message(_paint_verdict_line(f"  more    sparkctl help {event.verdict.cause}"), _VERDICT_INDENT)
        if event.message and event.outcome in (Outcome.DONE, Outcome.READY, Outcome.DETACHED, Outcome.PLANNED):
            for line in sanitize_lines(event.message):
                stderr.print_message(line)
        elif event.message and event.message not in self._warned:
            stderr.print_error(_prefix_node(event, event.message), event.hint)
        if event.outcome is Outcome.READY and (unguarded := describe_missing_guard(event.guard)) is not None:
            stderr.print_warning(
                event.node, f"{event.instance}: {unguarded}", f"sparkctl guard status --node {event.node}"
            )
        if event.log and event.outcome in (Outcome.FAILED, Outcome.TIMED_OUT):
            stderr.print_message(_paint_verdict_line(f"  log     {event.log}"), _VERDICT_INDENT, is_trouble=True)
            for _, path in event.more_logs:  # the path names its Spark
                stderr.print_message(f"          {path}", _VERDICT_INDENT, is_trouble=True)
        if event.outcome is Outcome.READY and not self._has_tunnel:
            self._print_first_request(event.hint)
        if event.endpoint and event.outcome is Outcome.READY and not self._has_tunnel:
            stdout.print_line(event.endpoint)

    def _print_first_request(self, hint: str | None) -> None:
        """Print what to try with a service that is ready."""
        for line in sanitize_lines(hint) if hint else ():
            stderr.print_message(f"try  {line}", _VERDICT_INDENT)

    def _update_live_line(self) -> None:
        """Rewrite the live line: what comes onto nodes, else the progress of the first node, then the other nodes."""
        if self._transfers:
            columns = (stdout.terminal_columns(sys.stderr) or 80) - 1
            return self.live.update(
                *(row for one in self._transfers.values() for row in render_transfer_bars(one, columns))
            )
        going = [progress for progress in self._phases.values() if not progress.is_final]
        if not going:
            return None
        first, *others = going
        phase = format_phase(first.event, first.elapsed_seconds)
        mark = Span(get_state_symbol(first.event.phase), TextStyle.ATTENTION)
        line: TextRow = (Span(f"{first.event.node}  "), mark, Span(f" {phase}"))
        for progress in others:
            event = progress.event
            words = f"   {event.node} {format_phase_name(event.phase)} {format_step(event.step)}".rstrip()
            line = (*line, Span(words))
        return self.live.update(line)

    def _print_line(self, node: str, tone: TextStyle, mark: str, words: str) -> None:
        self.live.clear()
        stderr.print_message((Span(f"{node}  "), Span(mark, tone), Span(f" {words}")), measure_text(node) + 4)
        if self.live.on:
            self._update_live_line()


def _paint_verdict_line(line: str) -> TextRow:
    """Return a line of a verdict in colour: what happened bold, the label of each line below it dim, a command accented."""
    if not line.startswith(" "):
        return (Span(line, TextStyle.STRONG),)
    label, rest = line[:_VERDICT_INDENT], line[_VERDICT_INDENT:]
    is_command = rest.startswith("sparkctl ") and label.strip() in ("again", "more")
    return (Span(label, TextStyle.LABEL), Span(rest, TextStyle.ACCENT if is_command else TextStyle.PLAIN))


def _format_usual_duration(event: PhaseChanged) -> str:
    """Return how long a phase with all its steps usually takes, "" if not known."""
    seconds = sum(one.seconds for one in event.expected_parts if one.phase is event.phase)
    return f", usually {format_duration(seconds)}" if seconds >= 1 else ""


def _prefix_node(event: CommandEnded, message: str) -> str:
    """Return the message with the node's name before it, unless the message names the node."""
    if event.outcome is not Outcome.UNREACHABLE or event.node is None or event.node in message:
        return message
    return f"{event.node}: {message}"


class LogPrinter(TextPrinter):
    """Prints log lines, with timestamps if wanted. A progress bar that was rewritten in place counts as one line, in its
    last state, so that line numbers match those of a verdict. With the logs of several ranks, the node's name stands before
    each line."""

    def __init__(self, timestamps: bool) -> None:
        super().__init__()
        self.timestamps = timestamps

    def print_event(self, event: Event) -> None:
        """Print a batch of log lines in one write."""
        if not isinstance(event, LogArrived):
            return super().print_event(event)
        from sparkctl.engines.line_preparer import split_carriage_returns

        if (
            not self.timestamps
            and event.rank is None
            and stdout.print_if_printable(join_texts(event.lines), len(event.lines))
        ):
            return None
        texts = [split_carriage_returns(line.text)[-1] if "\r" in line.text else line.text for line in event.lines]
        if self.timestamps:
            texts = [f"{line.when} {text}" for line, text in zip(event.lines, texts, strict=True)]
        if event.rank is not None:
            texts = [f"{event.node}  {text}" for text in texts]
        return stdout.print_sanitized_lines(texts)

    def refresh(self) -> None:
        """End where nobody reads what is followed (`| head`): an idle engine writes nothing that would tell."""
        stdout.check_reader()
        super().refresh()


class LaunchPlanPrinter(TextPrinter):
    """Prints the launch plan on stdout, warnings and errors on stderr."""

    def __init__(self, plan_format: str) -> None:
        super().__init__()
        self.plan_format = plan_format
        self._plans: list[LaunchPlanned] = []
        self._lacks_something = False

    def print_event(self, event: Event) -> None:
        """Print the plans at the end, unless the start would be refused for more than what is still to be got."""
        if isinstance(event, LaunchPlanned):
            self._plans.append(event)
            return
        self._lacks_something |= isinstance(event, PartsMissing)
        if isinstance(event, CommandEnded) and (not event.exit_code or self._lacks_something):
            for plan in self._plans:
                self._print_plan(plan)
        super().print_event(event)

    def _print_plan(self, event: LaunchPlanned) -> None:
        from sparkctl.profiles.exporters.docker_command import format_docker_run
        from sparkctl.views.profiles.launch_plan_view import format_launch_plan

        if self.plan_format == "docker":
            if event.plan.ranks > 1:
                stdout.print_line(f"# on {event.node}, rank {event.plan.rank} of {event.plan.ranks}")
            return stdout.print_line(format_docker_run(event.plan))
        if self.plan_format == "json":
            return stdout.print_json(to_json_data(redact_launch_plan(event.plan)))
        return stdout.print_lines(format_launch_plan(event.plan, stdout.get_terminal_width()))


class CheckPrinter(TextPrinter):
    """Prints each check on stdout, with what was asked and what came where it is not good."""

    def __init__(self, instance: str) -> None:
        super().__init__()
        self._instance = instance
        self._asked_at, self._said_at = time.monotonic(), 0.0

    def refresh(self) -> None:
        """Say on stderr that an answer takes long: a model that gives no token is waited for, for minutes."""
        now = time.monotonic()
        waited = now - self._asked_at
        words = f"waiting for an answer from {self._instance}   {format_duration(waited)}"
        if waited < _SILENT_SECONDS or self._has_ended:
            return
        if self.live.on:
            self.live.update(make_row(Span(words)))
        elif now - self._said_at >= _STILL_RUNNING_SECONDS:
            self._said_at = now
            stderr.print_message(words)

    def print_event(self, event: Event) -> None:
        self._asked_at, self._said_at = time.monotonic(), 0.0
        self.live.clear()
        if not isinstance(event, FindingReported):
            return super().print_event(event)
        return stdout.print_lines(format_answer_check(event))


_FINAL_STEPS = (SwitchStep.DONE, SwitchStep.RESTORED, SwitchStep.LEFT)


class BenchPrinter(TextPrinter):
    """Prints the progress of benchmarks on stderr, and at the end their tables on stdout."""

    def __init__(self, on_interrupt: str) -> None:
        super().__init__(on_interrupt)
        self._benchmarks: dict[int, None] = {}  # in the order of their first results
        self._estimated: set[tuple[str, str]] = set()  # instances and nodes whose time was told

    def print_event(self, event: Event) -> None:
        if isinstance(event, BenchCellMeasured | BenchDomainMeasured) and event.benchmark is not None:
            self._benchmarks[event.benchmark] = None
        if isinstance(event, BenchCellProgressed):
            from sparkctl.views.bench_view import format_cell_progress, format_sweep_time

            if event.remaining is not None and (event.instance, event.node) not in self._estimated:
                self._estimated.add((event.instance, event.node))
                self.live.clear()
                stderr.print_message(format_sweep_time(event))
            return self.live.update(make_row(Span(f"{event.node}  "), Span(format_cell_progress(event))))
        if isinstance(event, CommandEnded):
            self._print_tables()
        super().print_event(event)
        if isinstance(event, CommandEnded) and not event.exit_code and len(self._benchmarks) > 1:
            numbers = " ".join(map(str, self._benchmarks))
            stderr.print_message(f"side by side: sparkctl bench compare {numbers}")
        return None

    def _print_tables(self) -> None:
        from sparkctl.history.bench_store import BenchStore
        from sparkctl.views.bench_view import render_run

        self.live.clear()
        store = BenchStore()
        for number in self._benchmarks:
            with suppress(SparkctlError):
                run = store.load(number)
                baseline = None if run.baseline is None else store.load(run.baseline)
                stdout.print_rows([*render_run(run, baseline), make_row("")])


class SwitchPrinter(TextPrinter):
    """Prints a switch: the plan on stdout for ``plan_only``, else the plan and the steps on stderr."""

    def __init__(self, plan_only: bool = False) -> None:
        super().__init__("stopping at the next safe point ...")
        self._plan_only = plan_only
        self._stops: tuple[str, ...] = ()
        self._rows: Sequence[TextRow] = ()

    def print_event(self, event: Event) -> None:
        if isinstance(event, SwitchStepReported):
            return self._print_step(event)
        if isinstance(event, CommandEnded) and self._plan_only:
            self._print_plan_rows(is_refused=bool(event.exit_code))
        if not isinstance(event, SwitchPlanned):
            return super().print_event(event)
        self._stops = event.plan.stops
        self._rows = format_switch_plan(event.plan, stdout.get_terminal_width())
        if not self._plan_only:
            self._print_plan_rows(is_refused=True)
        return None

    def _print_plan_rows(self, *, is_refused: bool) -> None:
        """Print the plan: on stdout only where it is the answer."""
        if not is_refused:
            return stdout.print_rows(self._rows)
        for row in self._rows:
            stderr.print_message(row)
        return None

    def _print_step(self, event: SwitchStepReported) -> None:
        """Print a step when it begins, and its proof when it is done; the final steps are printed by the end of the verb."""
        self.live.clear()
        if event.proof is None:
            words = sanitize_line(describe_switch_step(event.step, event.instance, event.stops or self._stops))
            stderr.print_message((Span("──", TextStyle.FRAME), Span(f" {words}")))
        elif event.step not in _FINAL_STEPS:
            mark = Span(get_state_symbol(Phase.READY), TextStyle.GOOD)
            stderr.print_message((Span("   "), mark, Span(f" {sanitize_line(event.proof)}")), 5)


class EstimatePrinter(TextPrinter):
    """Prints the answer and the calculation on stdout, warnings and errors on stderr."""

    def __init__(self, profile: Profile, typed: str, assumed: str | None, obstacle: str | None) -> None:
        super().__init__()
        self._typed = typed  # the profile as the operator named it
        self._assumed = assumed
        self._obstacle = obstacle  # why `up` refuses it, however much memory there is
        self._held: list[Event] = []  # of a model over several Sparks: the answer for all of them comes first
        self._profile = profile
        self._fits: list[MemoryFit] = []
        self._missing: dict[str, tuple[MissingPart, ...]] = {}  # by node, of the profile itself
        self._shared: dict[str, None] = {}  # commands for all Sparks together, in order
        self._pulls: dict[str, None] = {}  # commands that get what is missing, in order
        self._later: dict[str, None] = {}  # commands that follow those, in order
        self._waiting: MemoryFitEvaluated | None = None  # not printed yet: what is missing there comes next

    @property
    def _own_fits(self) -> list[MemoryFit]:
        """The answers for the profile itself, without those for what it needs."""
        return [one for one in self._fits if one.profile == self._profile.name]

    def print_event(self, event: Event) -> None:
        """Print each answer with what is missing there, and the summary of all at the end."""
        if self._profile.nodes > 1 and isinstance(event, MemoryFitEvaluated | PartsMissing):
            self._held.append(event)
            return
        if isinstance(event, CommandEnded) and self._held:
            self._print_group_answer()
            for one in self._held:
                self._print_part(one)
        self._print_part(event)

    def _print_group_answer(self) -> None:
        """Print the answer for all Sparks together."""
        fits = [one.fit for one in self._held if isinstance(one, MemoryFitEvaluated)]
        for answer in format_group_answer([one for one in fits if one.profile == self._profile.name], self._typed):
            is_bad = self._obstacle is not None or any(one.is_refused for one in fits)
            style = (
                TextStyle.BAD
                if is_bad
                else TextStyle.ATTENTION
                if any(one.answer is FitOutcome.UNKNOWN for one in fits)
                else TextStyle.GOOD
            )
            stdout.print_rows(wrap_styled_line((Span(answer, style),), stdout.get_terminal_width()))
        stdout.print_line()

    def _print_part(self, event: Event) -> None:
        width = stdout.get_terminal_width()
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._print_fit(waiting, event if isinstance(event, PartsMissing) else None)
        if isinstance(event, CommandEnded) and self._fits:
            self._print_summary(width)
        if isinstance(event, PartsMissing):
            if event.instance == self._profile.name:
                self._missing[event.node] = event.parts
            self._pulls |= dict.fromkeys(event.commands)
            lines = format_missing_parts(replace(event, commands=()))  # the way to get them is the last word
            return stdout.print_rows(row for line in lines for row in wrap_line(line, width))
        if isinstance(event, MemoryFitEvaluated):
            self._waiting = event
            return None
        return super().print_event(event)

    def _print_fit(self, event: MemoryFitEvaluated, missing: PartsMissing | None) -> None:
        """Print an answer and its calculation; where something is ``missing``, that it cannot start."""
        width, fit = stdout.get_terminal_width(), event.fit
        if self._fits:
            stdout.print_line()
        if missing is not None and self._assumed is None and (lacking := describe_missing_kinds(missing.parts)):
            words = f"{fit.profile} cannot start on {fit.node} yet: {lacking}; its memory: {describe_answer(fit)}"
            answer: TextRow = (Span(words, TextStyle.BAD),)
        elif self._obstacle is not None and fit.profile == self._profile.name:
            words = f"{fit.profile} cannot start on {fit.node}: {self._obstacle.split('; ')[0]}; its memory: {describe_answer(fit)}"
            answer = (Span(words, TextStyle.BAD),)
        else:
            words = f"{fit.node}: {describe_answer(fit)}" if self._held else fit.summary_sentence
            answer = (Span(words, _choose_style(fit)),)
        stdout.print_rows(wrap_styled_line(answer, width))
        stdout.print_rows(format_estimate(fit, width, self._fits))
        stdout.print_rows(format_estimate_notes(fit, width, self._fits))
        self._fits.append(fit)
        if fit.sparks > 1:
            self._shared |= dict.fromkeys(event.commands)
        elif missing is not None:
            self._later |= dict.fromkeys(event.commands)
        else:
            stdout.print_rows(f"then: {command}" for command in event.commands)

    def _print_summary(self, width: int | None) -> None:
        from sparkctl.views.profiles.profile_view import summarize_reference

        if (measured := summarize_reference(self._profile.reference)) is not None:
            stdout.print_rows(wrap_line(f"source: {sanitize_line(measured)}", width, 2))
        is_proposal = self._assumed is not None
        is_shown = len(self._own_fits) == 1 and self._own_fits[0].sparks == 1 and not is_proposal  # in the first line
        summary = format_estimate_summary(
            self._own_fits, self._missing, width, is_proposal=is_proposal, typed=self._typed
        )
        if self._held:  # the first line has the answer
            stdout.print_rows([""] if self._shared else [])
        elif lines := [] if is_shown else summary:
            stdout.print_line()
            stdout.print_rows(lines)
        stdout.print_rows(f"get it: {command}" for command in self._pulls)
        stdout.print_rows(f"then: {command}" for command in {**self._shared, **self._later})
        if self._assumed is not None:
            command = f"sparkctl profiles new {self._profile.name} --from {self._profile.model.source}"
            words = f"No profile has this model yet. The figures are those of this one; save it to start it: {command}"
            stdout.print_line()
            stdout.print_lines(wrap_line(words, width))
            stdout.print_lines(f"  {line}".rstrip() for line in self._assumed.splitlines())


def _choose_style(fit: MemoryFit) -> TextStyle:
    if fit.is_refused:
        return TextStyle.BAD
    return TextStyle.ATTENTION if fit.answer is FitOutcome.UNKNOWN else TextStyle.GOOD


class EstimateJsonPrinter:
    """Prints everything at the end, as one document: ``{"schema": 1, "profile": ..., "nodes": [...], "warnings": [...]}``."""

    def __init__(self, profile: Profile, typed: str, assumed: str | None) -> None:
        self._profile, self._typed, self._assumed = profile, typed, assumed
        self._judged: list[MemoryFitEvaluated] = []
        self._warnings: list[WarningEmitted] = []
        self._missing: dict[int, tuple[MissingPart, ...]] = {}  # by the number of the answer before

    def print_event(self, event: Event) -> None:
        """Keep the answers; print them when the verb has ended."""
        if isinstance(event, MemoryFitEvaluated):
            self._judged.append(event)
        if isinstance(event, WarningEmitted):
            self._warnings.append(event)
        if isinstance(event, PartsMissing):
            self._missing[len(self._judged) - 1] = event.parts
        if not isinstance(event, CommandEnded):
            return
        if not self._judged or event.exit_code not in (ExitCode.DONE, ExitCode.REFUSED):
            stdout.print_json(encode_event(event))
            return
        entries = [
            {
                **build_estimate_json(one.fit, one.commands),
                "profile": one.fit.profile,
                "missing": [to_json_data(part) for part in self._missing.get(number, ())],
            }
            for number, one in enumerate(self._judged)
        ]
        nodes = [one for one in entries if one["profile"] == self._profile.name]
        needs = [one for one in entries if one["profile"] != self._profile.name]
        fits = [one.fit for one in self._judged if one.fit.profile == self._profile.name]
        whole = {
            "schema": 1,
            "profile": self._profile.name,
            "exit_code": event.exit_code,
            "sparks": max(one.sparks for one in fits),
            "together": format_group_answer(fits, self._typed),
            "reference": to_json_data(self._profile.reference),
        }
        if event.message is not None:
            whole["message"] = event.message
        if self._assumed is not None:
            whole["assumed"] = self._assumed
        whole["warnings"] = [{"node": one.node, "message": one.message, "hint": one.hint} for one in self._warnings]
        stdout.print_json({**whole, "nodes": to_json_data(nodes), "needs": to_json_data(needs)})

    def refresh(self) -> None:
        """Do nothing: there is no live line."""

    def print_interrupt(self, presses: int) -> None:
        """Do nothing: the result line reports the interrupt."""
