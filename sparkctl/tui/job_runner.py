"""What the operator has started: verbs, each a task of its own, their events through the one store.

Quitting ends the watching, never what is watched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkctl.commands.actions import DOCTOR, SWITCH
from sparkctl.commands.stop.stop_impact import parse_targets
from sparkctl.concurrency import cancel_and_wait
from sparkctl.model.events import (
    CachesDropped,
    CommandEnded,
    Event,
    LaunchPlanned,
    Outcome,
    PhaseChanged,
    SwitchStepReported,
    WarningEmitted,
)
from sparkctl.model.node import NodeName
from sparkctl.model.switch_plan import SwitchStep
from sparkctl.model.text.sanitize import sanitize_lines
from sparkctl.tui.dialogs.base import TextDialog, wrap_paragraph
from sparkctl.tui.panel_options import PreparedCommand
from sparkctl.views.command_result_view import (
    describe_command_result,
    describe_running_instances,
    describe_stopped_models,
    render_refused_start,
)
from sparkctl.views.profiles.launch_plan_view import format_launch_plan
from sparkctl.views.text.styled_text import TextRow, TextStyle, make_row, sanitize_span

if TYPE_CHECKING:
    from sparkctl.tui.app import PanelApp
    from sparkctl.tui.controller import PanelController

_STOP_SECONDS = 2.0  # seconds that a verb has to get to where it can be left


@dataclass(slots=True, kw_only=True)
class Job:
    """One verb that runs, and what it has said that its end does not. ``switches``: it has begun to change what stands there."""

    started: PreparedCommand
    warnings: list[WarningEmitted] = field(default_factory=list)
    caches: list[CachesDropped] = field(default_factory=list)
    plan: LaunchPlanned | None = None
    instance: str | None = None
    ended: CommandEnded | None = None
    switches: bool = False

    def record_event(self, event: Event) -> None:
        """Remember what is told at the end."""
        match event:
            case WarningEmitted():
                self.warnings.append(event)
            case CachesDropped():
                self.caches.append(event)
            case LaunchPlanned():
                self.plan, self.instance = event, event.plan.instance
            case PhaseChanged():
                self.instance = event.instance
            case SwitchStepReported():
                self.switches = True
            case CommandEnded():
                self.ended = event
            case _:
                pass


class JobRunner:
    """Runs verbs. ``emit`` is given every event, ``finished`` each job when it is over, with its defect if that ended it."""

    def __init__(self, emit: Callable[[Event], None], finished: Callable[[Job, BaseException | None], object]) -> None:
        self._emit, self._finished = emit, finished
        self._tasks: dict[asyncio.Task[None], Job] = {}

    @property
    def running_jobs(self) -> tuple[Job, ...]:
        """Those that are not over."""
        return tuple(self._tasks.values())

    @property
    def switch_job(self) -> Job | None:
        """The one that is in the middle of a switch."""
        return next((job for job in self.running_jobs if job.switches), None)

    def interrupt_switch(self) -> None:
        """Let that end where it can be left, as Ctrl-C does."""
        if self.switch_job is not None:
            self.switch_job.started.context.interrupt.record_press()

    def start_job(self, started: PreparedCommand) -> Job:
        """Run a verb beside everything else."""
        job = Job(started=started)

        async def emit_events() -> None:
            async with aclosing(started.events()) as events:
                async for event in events:
                    job.record_event(event)
                    self._emit(event)

        task = asyncio.create_task(emit_events(), name=" ".join(started.words))
        self._tasks[task] = job
        task.add_done_callback(self._on_task_done)
        return job

    def detach_starts(self, down: PreparedCommand) -> None:
        """Stop watching the starts that a ``down`` or a ``free`` is about to end: what it names, on the nodes that it is about."""
        names, _ = parse_targets(down.words)
        for job in self.running_jobs:
            is_named = (
                down.verb == "free" or "--all" in down.words or (job.instance is not None and job.instance in names)
            )
            is_there = not (down.nodes and job.started.nodes) or set(down.nodes) & set(job.started.nodes)
            if job.started.verb == "up" and is_named and is_there:
                job.started.context.interrupt.record_press()

    async def aclose(self) -> tuple[str, ...]:
        """Let every verb end where it can be left; return what they say of what goes on and of what can be done, a line each."""
        tasks = dict(self._tasks)
        for job in tasks.values():
            job.started.context.interrupt.record_press()
        if tasks:
            await asyncio.wait(tasks, timeout=_STOP_SECONDS)
        await cancel_and_wait(tasks, _STOP_SECONDS)
        ends = [job.ended for job in tasks.values() if job.ended is not None and job.ended.message]
        return tuple(
            line
            for one in ends
            for line in (
                *sanitize_lines(one.message or ""),
                *(f"  try: {way}" for way in sanitize_lines(one.hint or "")),
            )
        )

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        job = self._tasks.pop(task)
        if not task.cancelled():
            self._finished(job, task.exception())


_SWITCH_VERBS = ("switch", "resume", "abort")  # their screen tells how they end
_MAX_DIALOG_COLUMNS = 96


def report_job_end(room: PanelController, panel: PanelApp, job: Job, defect: BaseException | None) -> None:
    """Say how a verb ended: below the tiles, and in a dialog where there is more to read."""
    started, ended = job.started, job.ended
    if defect is not None:
        words, tone = f"a defect in sparkctl: {type(defect).__name__}: {defect}", TextStyle.BAD
    elif ended is not None:
        nodes = [ended.node] if ended.node else list(started.nodes)
        words, tone = describe_command_result(started.verb, ended, nodes, job.caches, panel.ascii_only)
    else:
        return
    if started.verb == "doctor" and ended is not None and not ended.message:
        return  # what it found says all
    if started.verb == "sync":
        room.moves.clear(ended)
    if panel.front_screen is not None and panel.front_screen.SCREEN_ID == DOCTOR:
        room.run_doctor([node for node in panel.config_nodes if node.name in started.nodes])  # is it mended?
    details = _build_details_dialog(job, min(_MAX_DIALOG_COLUMNS, panel.size.width - 10), by_hand=room.is_taken_over)
    is_seen = (
        panel.front_screen is not None and panel.front_screen.SCREEN_ID == SWITCH and started.verb in _SWITCH_VERBS
    )
    room.show_notice(words, tone, is_shown=details is not None or is_seen)
    if details is not None:
        panel.push_screen(details)


def build_exit_summary(room: PanelController, names: Sequence[NodeName]) -> tuple[str, ...]:
    """Return what goes on running, of a node that does not answer what ran there last, and how it stands with what our own
    switch stops: a sentence each."""
    if room.is_replaying:
        return ()
    watched, own = {job.instance for job in room.jobs.running_jobs}, room.own_switch  # their own end says it
    if own is not None and own.current_step is not SwitchStep.CHECKING:
        watched |= {own.instance, *own.stops}
    views = [room.bridge.store.get_last_known_view(view.name) for view in room.list_node_views(names)]
    said = (
        describe_running_instances(
            view, [one for one in view.instances if one.name not in watched], room.displayed_time()
        )
        for view in views
    )
    return (*(one for one in said if one is not None), *(() if own is None else describe_stopped_models(own)))


def _build_details_dialog(job: Job, columns: int, *, by_hand: bool) -> TextDialog | None:
    """Return what there is to read about what was done, None where one line tells it."""
    ended = job.ended
    if ended is None:
        return None
    if by_hand and job.started.verb == "up" and ended.outcome is Outcome.REFUSED and ended.message:
        return TextDialog(
            "not started", [(), *render_refused_start(job.started.words, ended, columns), ()], TextStyle.ATTENTION
        )
    if ended.outcome is Outcome.PLANNED and (rows := _render_dry_run(job, ended, columns)):
        return TextDialog("a dry run: nothing was changed", [(), *rows, ()])
    return None


def _render_dry_run(job: Job, ended: CommandEnded, columns: int) -> list[TextRow]:
    if job.plan is not None:
        return [make_row(sanitize_span(line)) for line in format_launch_plan(job.plan.plan, columns)]
    if job.started.verb in ("down", "free"):
        return [each for line in (ended.message or "").splitlines() for each in wrap_paragraph(line, columns=columns)]
    return []
