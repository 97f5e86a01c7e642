"""What ``switch`` says: its plan as pictures, then each step with what proves it."""

from __future__ import annotations

import sys

from sparkctl.cli import narrate, output
from sparkctl.cli.style import ascii_only
from sparkctl.cli.tellers import WordTeller
from sparkctl.model.events import Event, SwitchPlanned
from sparkctl.present.spans import plain_ascii, text
from sparkctl.present.switch_rows import plan_rows


class SwitchTeller(WordTeller):
    """The plan on stdout where it is all that was asked for, else beside the steps on stderr."""

    def __init__(self, plan_only: bool = False) -> None:
        super().__init__("stopping at the next safe point ...")
        self._plan_only = plan_only

    def tell(self, event: Event) -> None:
        """Say one event."""
        if not isinstance(event, SwitchPlanned):
            return super().tell(event)
        plain = ascii_only(sys.stdout if self._plan_only else sys.stderr)
        rows = plan_rows(event.plan, output.width() or 80, plain)
        lines = [text(plain_ascii(one) if plain else one).rstrip() for one in rows]
        if self._plan_only:
            return output.texts(lines)
        for line in lines:
            narrate.say(line)
        return None
