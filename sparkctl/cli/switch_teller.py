"""What ``switch`` says: its plan as pictures, then each step with what proves it."""

from __future__ import annotations

import sys

from sparkctl.cli import narrate, output
from sparkctl.cli.style import ascii_only, paint
from sparkctl.cli.tellers import WordTeller
from sparkctl.model.events import Event, SwitchPlanned, SwitchStepped
from sparkctl.model.phase import Phase
from sparkctl.model.switch import SwitchStep
from sparkctl.model.text import clean
from sparkctl.present.spans import plain_ascii, text
from sparkctl.present.switch_rows import plan_rows
from sparkctl.present.switch_words import step_words
from sparkctl.present.symbols import symbol

_MARKS = (SwitchStep.DONE, SwitchStep.RESTORED, SwitchStep.LEFT)


class SwitchTeller(WordTeller):
    """The plan on stdout where it is all that was asked for, else beside the steps on stderr."""

    def __init__(self, plan_only: bool = False) -> None:
        super().__init__("stopping at the next safe point ...")
        self._plan_only = plan_only
        self._stops: tuple[str, ...] = ()

    def tell(self, event: Event) -> None:
        """Say one event."""
        if isinstance(event, SwitchStepped):
            return self._tell_step(event)
        if not isinstance(event, SwitchPlanned):
            return super().tell(event)
        self._stops = event.plan.stops
        plain = ascii_only(sys.stdout if self._plan_only else sys.stderr)
        rows = plan_rows(event.plan, output.width() or 80, plain)
        lines = [text(plain_ascii(one) if plain else one).rstrip() for one in rows]
        if self._plan_only:
            return output.texts(lines)
        for line in lines:
            narrate.say(line)
        return None

    def _tell_step(self, event: SwitchStepped) -> None:
        """A step that begins, then what proved it; what is reached at once is told by the end."""
        self.live.clear()
        self._phase = None
        if event.proof is None:
            words = clean(step_words(event.step, event.instance, event.stops or self._stops))
            narrate.say(f"{paint('--' if self.ascii else '──', 'dim', self.colour)} {words}")
        elif event.step not in _MARKS:
            mark = paint(symbol(Phase.READY, self.ascii), "good", self.colour)
            narrate.say(f"   {mark} {clean(event.proof)}", 5)
