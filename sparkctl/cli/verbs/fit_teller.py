"""What ``plan`` prints: the sum of each node, or one JSON document."""

from __future__ import annotations

from sparkctl.cli import stdout
from sparkctl.cli.event_printers import TextPrinter
from sparkctl.errors import ExitCode
from sparkctl.model.events import CommandEnded, Event, MemoryFitEvaluated
from sparkctl.model.json_codec import encode_event, to_json_data
from sparkctl.model.memory_fit import MemoryFit
from sparkctl.views.profiles.memory_estimate_view import (
    build_estimate_json,
    format_estimate,
    format_estimate_notes,
    format_estimate_summary,
    format_group_answer,
)


class EstimatePrinter(TextPrinter):
    """The answer and the sum on stdout; trouble is told as ever."""

    def __init__(self) -> None:
        super().__init__()
        self._fits: list[MemoryFit] = []
        self._shared: dict[str, None] = {}  # commands that are for all Sparks together

    def print_event(self, event: Event) -> None:
        """Print the answer when it comes, and what comes of all of them at the end."""
        if isinstance(event, CommandEnded) and (lines := format_estimate_summary(self._fits)):
            stdout.print_line()
            stdout.print_lines(lines)
            stdout.print_lines(f"then: {command}" for command in self._shared)
        if not isinstance(event, MemoryFitEvaluated):
            return super().print_event(event)
        if self._fits:
            stdout.print_line()
        stdout.print_line(event.fit.sentence)
        stdout.print_lines(format_estimate(event.fit, stdout.width(), self._fits))
        stdout.print_lines(format_estimate_notes(event.fit, stdout.width(), self._fits))
        self._fits.append(event.fit)
        if event.fit.sparks > 1:
            self._shared |= dict.fromkeys(event.commands)
        else:
            stdout.print_lines(f"then: {command}" for command in event.commands)
        return None


class EstimateJsonPrinter:
    """Everything at the end, as one document: ``{"schema": 1, "profile": ..., "nodes": [...]}``."""

    def __init__(self, profile: str) -> None:
        self._profile = profile
        self._judged: list[MemoryFitEvaluated] = []

    def print_event(self, event: Event) -> None:
        """Keep the answers; print them when the verb has ended."""
        if isinstance(event, MemoryFitEvaluated):
            self._judged.append(event)
        if not isinstance(event, CommandEnded):
            return
        if not self._judged or event.exit_code not in (ExitCode.DONE, ExitCode.REFUSED):
            stdout.print_json(encode_event(event))
            return
        nodes = [build_estimate_json(one.fit, one.commands) for one in self._judged]
        fits = [one.fit for one in self._judged]
        whole = {
            "schema": 1, "profile": self._profile, "exit_code": event.exit_code, "sparks": max(one.sparks for one in fits),
            "together": format_group_answer(fits),
        }  # fmt: skip
        stdout.print_json({**whole, "nodes": to_json_data(nodes)})

    def refresh(self) -> None:
        """Nothing lives here."""

    def print_interrupt(self, presses: int) -> None:
        """The result line says it."""
