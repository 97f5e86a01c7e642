"""``--record FILE``: write the events of a verb to a file while it runs."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from sparkctl.cli.verb_runner import EventPrinter
    from sparkctl.model.events import Event
    from sparkctl.monitor.recording.recording_file import EventRecorder


RECORDING_FAILED_EXIT_CODE = 74  # EX_IOERR of sysexits.h


def record_option(command: Any) -> Any:
    """Add ``--record``."""
    return click.option(
        "--record", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
        help="Write all events to FILE, for `top --replay`; secrets are masked.",
    )(command)  # fmt: skip


def overwrite_option(command: Any) -> Any:
    """Add ``--overwrite``."""
    return _overwrite_option("--overwrite")(command)


def record_options(command: Any) -> Any:
    """Add ``--record`` and ``--overwrite``, with ``--force`` as its alias for verbs that have no other --force."""
    return record_option(_overwrite_option("--overwrite", "--force")(command))


def _overwrite_option(*names: str) -> Any:
    return click.option(*names, "overwrite", is_flag=True, help="Let --record overwrite an existing file.")


def open_recorder(
    ctx: click.Context, path: Path | None, overwrite: bool
) -> AbstractContextManager[EventRecorder | None]:
    """Return a context with the opened recorder, or None if nothing is recorded."""
    if path is None:
        if overwrite:
            raise click.UsageError("--overwrite needs --record", ctx)
        return nullcontext()
    from sparkctl.cli import stderr
    from sparkctl.monitor.recording.recording_file import EventRecorder

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
        """Record one event and print it."""
        self.recorder.write(event)
        self.printer.print_event(event)

    def refresh(self) -> None:
        """Call the wrapped printer."""
        self.printer.refresh()

    def print_interrupt(self, presses: int) -> None:
        """Call the wrapped printer."""
        self.printer.print_interrupt(presses)
