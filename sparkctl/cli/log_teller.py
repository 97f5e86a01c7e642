"""Log lines on stdout, cleaned; everything else of the verb as talk."""

from __future__ import annotations

from sparkctl.cli import output
from sparkctl.cli.tellers import WordTeller
from sparkctl.model.events import Event, LogArrived


class LogTeller(WordTeller):
    """Prints lines as they are, or after their stamp. A carriage return starts a new line: progress bars stay readable."""

    def __init__(self, timestamps: bool) -> None:
        super().__init__()
        self.timestamps = timestamps

    def tell(self, event: Event) -> None:
        """Print a batch in one write."""
        if not isinstance(event, LogArrived):
            return super().tell(event)
        if self.timestamps:
            return output.remote(
                f"{line.when} {part}" for line in event.lines for part in line.text.split("\r") if part
            )
        return output.remote(part for line in event.lines for part in line.text.rstrip("\r").split("\r"))
