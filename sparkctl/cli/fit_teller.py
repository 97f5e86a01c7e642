"""What ``plan`` prints: the sum of each node, or one JSON document."""

from __future__ import annotations

from sparkctl.cli import output
from sparkctl.cli.tellers import WordTeller
from sparkctl.core.record import encode, plain
from sparkctl.errors import ExitCode
from sparkctl.model.events import Ended, Event, FitJudged
from sparkctl.model.fit import Fit
from sparkctl.present.fit_rows import document, last_lines, note_lines, sum_lines, together_lines


class FitTeller(WordTeller):
    """The answer and the sum on stdout; trouble is told as ever."""

    def __init__(self) -> None:
        super().__init__()
        self._fits: list[Fit] = []
        self._shared: dict[str, None] = {}  # commands that are for all Sparks together

    def tell(self, event: Event) -> None:
        """Print the answer when it comes, and what comes of all of them at the end."""
        if isinstance(event, Ended) and (lines := last_lines(self._fits)):
            output.text()
            output.texts(lines)
            output.texts(f"then: {command}" for command in self._shared)
        if not isinstance(event, FitJudged):
            return super().tell(event)
        if self._fits:
            output.text()
        output.text(event.fit.sentence)
        output.texts(sum_lines(event.fit, output.width(), self._fits))
        output.texts(note_lines(event.fit, output.width(), self._fits))
        self._fits.append(event.fit)
        if event.fit.sparks > 1:
            self._shared |= dict.fromkeys(event.commands)
        else:
            output.texts(f"then: {command}" for command in event.commands)
        return None


class FitDocument:
    """Everything at the end, as one document: ``{"schema": 1, "profile": ..., "nodes": [...]}``."""

    def __init__(self, profile: str) -> None:
        self._profile = profile
        self._judged: list[FitJudged] = []

    def tell(self, event: Event) -> None:
        """Keep the answers; print them when the verb has ended."""
        if isinstance(event, FitJudged):
            self._judged.append(event)
        if not isinstance(event, Ended):
            return
        if not self._judged or event.exit_code not in (ExitCode.DONE, ExitCode.REFUSED):
            output.document(encode(event))
            return
        nodes = [document(one.fit, one.commands) for one in self._judged]
        fits = [one.fit for one in self._judged]
        whole = {
            "schema": 1, "profile": self._profile, "exit_code": event.exit_code, "sparks": max(one.sparks for one in fits),
            "together": together_lines(fits),
        }  # fmt: skip
        output.document({**whole, "nodes": plain(nodes)})

    def tick(self) -> None:
        """Nothing lives here."""

    def interrupted(self, presses: int) -> None:
        """The result line says it."""
