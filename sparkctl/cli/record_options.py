"""``--record FILE``: what a verb does and sees, kept as it happens."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from sparkctl.cli.verb_runner import EventPrinter
    from sparkctl.model.events import Event
    from sparkctl.monitor.recording.recording_file import EventRecorder


RECORDING_FAILED_EXIT_CODE = 74  # what sysexits.h has for trouble with a file


def record_option(command: Any) -> Any:
    """Add ``--record``."""
    return click.option(
        "--record", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
        help="Write every event to FILE, for `top --replay`; secrets are masked.",
    )(command)  # fmt: skip


def overwrite_option(command: Any) -> Any:
    """Add ``--overwrite``."""
    return _overwrite_option("--overwrite")(command)


def record_options(command: Any) -> Any:
    """Add ``--record`` and ``--overwrite``, which is ``--force``, too, where a verb has no other force."""
    return record_option(_overwrite_option("--overwrite", "--force")(command))


def _overwrite_option(*names: str) -> Any:
    return click.option(*names, "overwrite", is_flag=True, help="Let --record write over a file that is there.")


def open_recorder(
    ctx: click.Context, path: Path | None, overwrite: bool
) -> AbstractContextManager[EventRecorder | None]:
    """Return the opened recorder, None in its place where nothing is to be recorded."""
    if path is None:
        if overwrite:
            raise click.UsageError("--overwrite belongs to --record", ctx)
        return nullcontext()
    from sparkctl.cli import stderr
    from sparkctl.monitor.recording.recording_file import EventRecorder

    return EventRecorder(path, lambda why: stderr.print_warning(None, why, None), force=overwrite)


def choose_exit_code(code: int, recording: EventRecorder | None) -> int:
    """Return the exit code of a verb that was recorded: success is none where the recording could not be written."""
    return RECORDING_FAILED_EXIT_CODE if code == 0 and recording is not None and recording.failed else code


class RecordingPrinter:
    """Writes each event down before another teller tells it."""

    def __init__(self, teller: EventPrinter, recorder: EventRecorder) -> None:
        self.teller = teller
        self.recorder = recorder

    def print_event(self, event: Event) -> None:
        """Record one event and tell it."""
        self.recorder.write(event)
        self.teller.print_event(event)

    def refresh(self) -> None:
        """Pass it on."""
        self.teller.refresh()

    def print_interrupt(self, presses: int) -> None:
        """Pass it on."""
        self.teller.print_interrupt(presses)
