"""What ``switch`` says: its plan as pictures, then each step with what proves it."""

from __future__ import annotations

import sys

from sparkctl.cli import stderr, stdout
from sparkctl.cli.event_printers import TextPrinter
from sparkctl.cli.terminal_style import colour_text, is_ascii_only
from sparkctl.model.events import Event, SwitchPlanned, SwitchStepped
from sparkctl.model.phase import Phase
from sparkctl.model.sanitize import sanitize_line
from sparkctl.model.switch_plan import SwitchStep
from sparkctl.views.switch_rows import format_switch_plan
from sparkctl.views.switch_words import describe_switch_step
from sparkctl.views.text.state_symbols import state_symbol
from sparkctl.views.text.styled_text import plain_text, to_ascii_row

_MARKS = (SwitchStep.DONE, SwitchStep.RESTORED, SwitchStep.LEFT)


class SwitchPrinter(TextPrinter):
    """The plan on stdout where it is all that was asked for, else beside the steps on stderr."""

    def __init__(self, plan_only: bool = False) -> None:
        super().__init__("stopping at the next safe point ...")
        self._plan_only = plan_only
        self._stops: tuple[str, ...] = ()

    def print_event(self, event: Event) -> None:
        """Say one event."""
        if isinstance(event, SwitchStepped):
            return self._print_step(event)
        if not isinstance(event, SwitchPlanned):
            return super().print_event(event)
        self._stops = event.plan.stops
        plain = is_ascii_only(sys.stdout if self._plan_only else sys.stderr)
        rows = format_switch_plan(event.plan, stdout.width() or 80, plain)
        lines = [plain_text(to_ascii_row(one) if plain else one).rstrip() for one in rows]
        if self._plan_only:
            return stdout.print_lines(lines)
        for line in lines:
            stderr.print_message(line)
        return None

    def _print_step(self, event: SwitchStepped) -> None:
        """A step that begins, then what proved it; what is reached at once is told by the end."""
        self.live.clear()
        self._phase = None
        if event.proof is None:
            words = sanitize_line(describe_switch_step(event.step, event.instance, event.stops or self._stops))
            stderr.print_message(f"{colour_text('--' if self.ascii else '──', 'dim', self.colour)} {words}")
        elif event.step not in _MARKS:
            mark = colour_text(state_symbol(Phase.READY, self.ascii), "good", self.colour)
            stderr.print_message(f"   {mark} {sanitize_line(event.proof)}", 5)
