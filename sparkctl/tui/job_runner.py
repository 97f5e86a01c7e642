"""Runs the commands that the operator has started, each as a task that emits events.

The end of the panel ends these tasks, never the engines that they watch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from sparkctl.commands.stop.stop_instance import StopInstance
from sparkctl.concurrency import cancel_and_wait
from sparkctl.model.events import (
    CachesDropped,
    CommandEnded,
    Event,
    LaunchPlanned,
    PhaseChanged,
    SwitchStepReported,
    WarningEmitted,
)
from sparkctl.model.text.sanitize import sanitize_lines
from sparkctl.tui.panel_options import PreparedCommand

_STOP_SECONDS = 2.0  # seconds that a command has to reach a safe point


@dataclass(slots=True, kw_only=True)
class Job:
    """One running command and the events that its report needs. ``switches``: it has begun the steps of a switch."""

    started: PreparedCommand
    warnings: list[WarningEmitted] = field(default_factory=list)
    caches: list[CachesDropped] = field(default_factory=list)
    plan: LaunchPlanned | None = None
    instance: str | None = None
    ended: CommandEnded | None = None
    switches: bool = False

    def record_event(self, event: Event) -> None:
        """Keep what the report at the end needs."""
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
    """Runs commands. ``emit`` gets every event, ``finished`` each ended job and the exception that ended it, if any."""

    def __init__(self, emit: Callable[[Event], None], finished: Callable[[Job, BaseException | None], object]) -> None:
        self._emit, self._finished = emit, finished
        self._tasks: dict[asyncio.Task[None], Job] = {}

    @property
    def running_jobs(self) -> tuple[Job, ...]:
        """The jobs that have not ended."""
        return tuple(self._tasks.values())

    @property
    def switch_job(self) -> Job | None:
        """The job that runs a switch."""
        return next((job for job in self.running_jobs if job.switches), None)

    def interrupt_switch(self) -> None:
        """End the switch at its next safe point, as Ctrl-C does."""
        if self.switch_job is not None:
            self.switch_job.started.context.interrupt.record_press()

    def start_job(self, started: PreparedCommand) -> Job:
        """Run a command as a task."""
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

    def detach_starts(self, stop: StopInstance, nodes: Sequence[str]) -> None:
        """Stop watching the starts that a stop is about to end: those that it names, on these nodes; none: on all."""
        for job in self.running_jobs:
            is_named = stop.instance is None or stop.instance == job.instance
            is_there = not (nodes and job.started.nodes) or set(nodes) & set(job.started.nodes)
            if job.started.verb == "up" and is_named and is_there:
                job.started.context.interrupt.record_press()

    async def aclose(self) -> tuple[str, ...]:
        """End every command at its next safe point; return their messages and hints, one per line."""
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
