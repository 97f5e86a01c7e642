"""``--record FILE``: what a verb does and sees, kept as it happens."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from sparkctl.cli.drive import Teller
    from sparkctl.core.recording import Recorder
    from sparkctl.model.events import Event


RECORDING_FAILED = 74  # what sysexits.h has for trouble with a file


def record_option(command: Any) -> Any:
    """Add ``--record``."""
    return click.option(
        "--record", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
        help="Write every event to FILE, for `top --replay`; secrets are masked.",
    )(command)  # fmt: skip


def overwrite_option(command: Any) -> Any:
    """Add ``--overwrite``."""
    return _overwrite("--overwrite")(command)


def record_options(command: Any) -> Any:
    """Add ``--record`` and ``--overwrite``, which is ``--force``, too, where a verb has no other force."""
    return record_option(_overwrite("--overwrite", "--force")(command))


def _overwrite(*names: str) -> Any:
    return click.option(*names, "overwrite", is_flag=True, help="Let --record write over a file that is there.")


def recorder(ctx: click.Context, path: Path | None, overwrite: bool) -> AbstractContextManager[Recorder | None]:
    """Return the opened recorder, None in its place where nothing is to be recorded."""
    if path is None:
        if overwrite:
            raise click.UsageError("--overwrite belongs to --record", ctx)
        return nullcontext()
    from sparkctl.cli import narrate
    from sparkctl.core.recording import Recorder

    return Recorder(path, lambda why: narrate.warning(None, why, None), force=overwrite)


def recorded(code: int, recording: Recorder | None) -> int:
    """Return the exit code of a verb that was recorded: success is none where the recording could not be written."""
    return RECORDING_FAILED if code == 0 and recording is not None and recording.failed else code


class RecordingTeller:
    """Writes each event down before another teller tells it."""

    def __init__(self, teller: Teller, recorder: Recorder) -> None:
        self.teller = teller
        self.recorder = recorder

    def tell(self, event: Event) -> None:
        """Record one event and tell it."""
        self.recorder.write(event)
        self.teller.tell(event)

    def tick(self) -> None:
        """Pass it on."""
        self.teller.tick()

    def interrupted(self, presses: int) -> None:
        """Pass it on."""
        self.teller.interrupted(presses)
