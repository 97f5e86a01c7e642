"""Log lines on stdout, cleaned; everything else of the verb as talk."""

from __future__ import annotations

from sparkctl.cli import stdout
from sparkctl.cli.event_printers import TextPrinter
from sparkctl.engines.line_preparer import split_carriage_returns
from sparkctl.model.events import Event, LogArrived


class LogPrinter(TextPrinter):
    """Prints lines as they are, or after their stamp. A progress bar that was rewritten in place is one line, as it was
    left, so that the nth line here is the line n that a verdict names. Where the logs of several ranks are shown together,
    the node's name stands before each line."""

    def __init__(self, timestamps: bool) -> None:
        super().__init__()
        self.timestamps = timestamps

    def print_event(self, event: Event) -> None:
        """Print a batch in one write."""
        if not isinstance(event, LogArrived):
            return super().print_event(event)
        lines = ((line.when, split_carriage_returns(line.text)[-1]) for line in event.lines)
        where = "" if event.rank is None else f"{event.node}  "
        return stdout.print_sanitized_lines(
            f"{where}{when} {text}" if self.timestamps else f"{where}{text}" for when, text in lines
        )
