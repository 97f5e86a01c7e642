"""Runs the commands that the operator has started, each as a task that emits events. The store holds what they report.

The end of the panel ends these tasks, never the engines that they watch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing

from sparkctl.commands.stop.stop_instance import StopInstance
from sparkctl.concurrency import BackgroundTasks
from sparkctl.model.events import Event
from sparkctl.model.node import NodeName
from sparkctl.model.text.sanitize import sanitize_lines
from sparkctl.monitor.activity import Job, JobEnded, JobStarted
from sparkctl.monitor.store import Store
from sparkctl.tui.panel_options import PreparedCommand

_STOP_SECONDS = 2.0  # seconds that a command has to reach a safe point


class JobRunner:
    """Runs commands. ``emit`` gets every event and its job, ``finished`` each ended job and what it raised, if anything."""

    def __init__(
        self,
        store: Store,
        emit: Callable[[Event | JobStarted | JobEnded, int], None],
        finished: Callable[[Job, BaseException | None], object],
    ) -> None:
        self._store, self._emit, self._finished = store, emit, finished
        self._commands: dict[int, tuple[PreparedCommand, asyncio.Task[None]]] = {}
        self._tasks = BackgroundTasks(lambda _: None)  # each job's end is handled
        self._last_number = 0

    def interrupt_job(self, number: int) -> None:
        """End a job at its next safe point, as Ctrl-C does."""
        if number in self._commands:
            self._commands[number][0].context.interrupt.record_press()

    def interrupt_switch(self) -> None:
        """End the switch at its next safe point, as Ctrl-C does."""
        if (job := self._store.jobs.switch_job) is not None:
            self.interrupt_job(job.started.job)

    def start_job(self, prepared: PreparedCommand, nodes: tuple[NodeName, ...]) -> None:
        """Run a command as a task; ``nodes`` are those that it is about."""
        self._last_number += 1
        number, clock = self._last_number, prepared.context.clock

        async def emit_events() -> None:
            async with aclosing(prepared.events()) as events:
                async for event in events:
                    self._emit(event, number)

        def end_job(defect: BaseException | None) -> None:
            del self._commands[number]
            job = self._store.jobs.running[number]
            self._emit(JobEnded(clock.unix_time(), number), number)
            self._finished(job, defect)

        self._emit(
            JobStarted(ts=clock.unix_time(), job=number, verb=prepared.verb, words=prepared.words, nodes=nodes), number
        )
        task = self._tasks.start_task(emit_events(), " ".join(prepared.words), end_job)
        self._commands[number] = prepared, task

    def detach_starts(self, stop: StopInstance, nodes: Sequence[str]) -> None:
        """Stop watching the starts that a stop is about to end: those that it names, on these nodes; none: on all."""
        for number, job in self._store.jobs.running.items():
            is_named = stop.instance is None or stop.instance == job.instance
            is_there = not (nodes and job.started.nodes) or set(nodes) & set(job.started.nodes)
            if job.started.verb == "up" and is_named and is_there:
                self.interrupt_job(number)

    async def end_jobs(self) -> tuple[str, ...]:
        """End every command at its next safe point; return their messages and hints, one per line."""
        jobs = list(self._store.jobs.running.values())
        tasks = [task for _, task in self._commands.values()]
        for number in self._commands:
            self.interrupt_job(number)
        if tasks:
            await asyncio.wait(tasks, timeout=_STOP_SECONDS)
        await self._tasks.aclose(_STOP_SECONDS)
        ends = [job.ended for job in jobs if job.ended is not None and job.ended.message]
        return tuple(
            line
            for one in ends
            for line in (
                *sanitize_lines(one.message or ""),
                *(f"  try: {way}" for way in sanitize_lines(one.hint or "")),
            )
        )
