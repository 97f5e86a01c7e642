"""Driving a verb: its events to a printer, Ctrl-C to its interrupt, its end to the exit code. Imports little, for ``--help``."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from sparkctl.cli import stdout
from sparkctl.errors import ExitCode

if TYPE_CHECKING:
    from sparkctl.context import CommandContext
    from sparkctl.model.events import Event
    from sparkctl.monitor.recording import EventRecorder


class EventPrinter(Protocol):
    """Prints events for the operator, as text or as JSON lines."""

    def print_event(self, event: Event) -> None: ...

    def refresh(self) -> None:
        """Update the live line; called every second."""
        ...

    def print_interrupt(self, presses: int) -> None:
        """Acknowledge Ctrl-C at once, before the operation reaches a safe point."""
        ...


EventSource = Callable[["CommandContext"], AsyncGenerator["Event", None]]


def run_verb(ctx: CommandContext, verb: EventSource, printer: EventPrinter) -> int:
    """Run a verb to its end and return its exit code."""
    import asyncio

    _note_begin()
    return asyncio.run(_consume_events(ctx, verb, printer))


_has_begun = False


def has_begun() -> bool:
    """Tell whether a verb began its work, in this process."""
    return _has_begun


def _note_begin() -> None:
    global _has_begun
    _has_begun = True


async def _consume_events(ctx: CommandContext, verb: EventSource, printer: EventPrinter) -> int:
    import asyncio

    from sparkctl.cli.instance_cache import add_instance
    from sparkctl.concurrency import run_in_background
    from sparkctl.model.events import CommandEnded, Outcome

    loop = asyncio.get_running_loop()

    def interrupt_verb(number: int) -> None:
        ctx.interrupt.record_press(number)
        printer.print_interrupt(ctx.interrupt.presses)

    for number in _INTERRUPTING_SIGNALS:
        if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
            continue  # `nohup` asks for it
        with contextlib.suppress(NotImplementedError, ValueError):  # not the main thread: it gets no signals
            loop.add_signal_handler(number, interrupt_verb, number)

    async def refresh_every_second() -> None:
        while True:
            await asyncio.sleep(1)
            printer.refresh()

    code = 0
    async with contextlib.aclosing(verb(ctx)) as events, run_in_background(refresh_every_second()):
        async for event in events:
            is_hangup = ctx.interrupt.signal_number == signal.SIGHUP
            if is_hangup and isinstance(event, CommandEnded) and event.exit_code == ExitCode.INTERRUPTED:
                event = replace(event, exit_code=_HANGUP_EXIT_CODE)
            try:
                printer.print_event(event)
            except (stdout.StdoutClosed, stdout.StdoutWriteFailed):
                await asyncio.sleep(_SIGNAL_SECONDS)
                if ctx.interrupt.signal_number in (None, signal.SIGINT):
                    raise
                # the terminal was closed: the operation still ends where stopping is safe
                stdout.discard_buffer(sys.stdout)
            if isinstance(event, CommandEnded):
                code = event.exit_code
                if event.outcome in (Outcome.READY, Outcome.DETACHED) and event.node and event.instance:
                    add_instance(event.node, event.instance)
    return code


_INTERRUPTING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_HANGUP_EXIT_CODE = 128 + signal.SIGHUP  # as a shell tells it; SIGTERM and Ctrl-C are both 130
_SIGNAL_SECONDS = 0.1  # a terminal that closes takes stdout away, and sends SIGHUP a moment later


async def run_until_interrupt(work: Coroutine[Any, Any, None]) -> None:
    """Run ``work`` until it ends or Ctrl-C, which is no error: that is how users leave a repainting view."""
    import asyncio

    from sparkctl.concurrency import run_until_first

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    first, _ = await run_until_first(work, stop.wait())
    if first == 1 and stdout.is_terminal():
        stdout.print_line()  # below the ^C


T = TypeVar("T")


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` to its end as `asyncio.run` does; Ctrl-C is a KeyboardInterrupt."""
    import asyncio

    _note_begin()
    return asyncio.run(_with_signal_wakeup(work))


async def _with_signal_wakeup(work: Coroutine[Any, Any, T]) -> T:
    import asyncio

    # asyncio.run notes a Ctrl-C and relies on the loop waking up. A Ctrl-C just before the loop sleeps is noticed only at
    # the next event, which may never come. With a signal handler of its own, for any signal, every signal wakes the loop.
    with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):  # not the main thread: no signals there
        asyncio.get_running_loop().add_signal_handler(signal.SIGCONT, _ignore_signal)
    return await work


def _ignore_signal() -> None: ...


RECORDING_FAILED_EXIT_CODE = 74  # EX_IOERR of sysexits.h


def open_recorder(
    ctx: click.Context, path: Path | None, overwrite: bool
) -> AbstractContextManager[EventRecorder | None]:
    """Return a context with the opened recorder, or None if nothing is recorded."""
    if path is None:
        if overwrite:
            raise click.UsageError("--overwrite needs --record", ctx)
        return nullcontext()
    from sparkctl.cli import stderr
    from sparkctl.monitor.recording import EventRecorder

    return EventRecorder(path, lambda why: stderr.print_warning(None, why, None), force=overwrite)


def choose_exit_code(code: int, recording: EventRecorder | None) -> int:
    """Return the exit code of a recorded verb: a failed recording turns success into exit 74."""
    return RECORDING_FAILED_EXIT_CODE if code == 0 and recording is not None and recording.failed else code


class RecordingPrinter:
    """Records each event before another printer prints it."""

    def __init__(self, printer: EventPrinter, recorder: EventRecorder) -> None:
        self.printer = printer
        self.recorder = recorder

    def print_event(self, event: Event) -> None:
        self.recorder.write(event)
        self.printer.print_event(event)

    def refresh(self) -> None:
        """Call the wrapped printer."""
        self.printer.refresh()

    def print_interrupt(self, presses: int) -> None:
        """Call the wrapped printer."""
        self.printer.print_interrupt(presses)
