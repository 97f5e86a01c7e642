"""What a dangerous command line asks before it is done: Cancel is the default, and who serves somebody wants its name typed."""

from __future__ import annotations

from collections.abc import Sequence

from textual.widgets import Input

from sparkctl.core.actions import Action, ActionId, Situation
from sparkctl.core.serving import cut_off, meant
from sparkctl.model.instance import InstanceView
from sparkctl.model.phase import Phase
from sparkctl.present.spans import Row, Span, Tone, row, said
from sparkctl.tui.dialogs import Choice, Dialog, Question, paragraph

DO = "do"  # what both dialogs give for a yes
_STOPS = ("down", "up")


def asks(one: Action, words: Sequence[str], now: Situation) -> bool:
    """Tell whether a question comes before it."""
    return one.confirm or bool(cut_off(now, words))


def question(one: Action, words: Sequence[str], now: Situation) -> Dialog[str]:
    """Return the dialog that asks; it gives `DO` for a yes."""
    if ended := _ended(words, now):
        return _removal(ended, words)
    line = paragraph(f"sparkctl {' '.join(words)}", Tone.LABEL)
    if serving := cut_off(now, words):
        wanted = serving[0].name if len(serving) == 1 else "all"
        body = [*paragraph(_what(words), Tone.STRONG), (), *map(_answers, serving), (), *line]
        return TypedName(one.short, body, wanted)
    if one.id is ActionId.RESTART:
        body = [*paragraph(f"Start {words[1]} on {now.node} once more, as it was?", Tone.STRONG), (), *line]
        return Choice(one.short, body, (("cancel", "Cancel"), (DO, "start it")), Tone.ATTENTION)
    does = "kill it" if "--kill" in words else "stop it" if words[0] in _STOPS else one.short
    body = [*paragraph(_what(words), Tone.STRONG), (), *line]
    return Choice(one.short, body, (("cancel", "Cancel"), (DO, does)), Tone.ATTENTION)


def _ended(words: Sequence[str], now: Situation) -> list[InstanceView]:
    """Return what a ``down`` means, where all of it has ended already: there is nothing to stop any more."""
    names, nodes = meant(words[1:])
    if words[0] != "down" or "--all" in words:
        return []
    named = [
        one
        for view in now.views
        if not nodes or view.name in nodes
        for one in view.instances
        if one.ours and one.name in names
    ]
    return [] if any(one.is_alive for one in named) else named


def _removal(ended: Sequence[InstanceView], words: Sequence[str]) -> Dialog[str]:
    """Return the question for a `down` of what has ended."""
    first = ended[0]
    there = " and ".join(dict.fromkeys(str(one.node) for one in ended))
    how = "has failed" if first.phase is Phase.FAILED else "has ended"
    body = [
        *paragraph(f"Remove {first.name} from {there}?", Tone.STRONG),
        *paragraph(f"It {how}: nothing is running any more. Its container goes; its log is saved first."),
        (), *paragraph(f"sparkctl {' '.join(words)}", Tone.LABEL),
    ]  # fmt: skip
    return Choice("remove", body, (("cancel", "Cancel"), (DO, "remove it")), Tone.ATTENTION)


def _answers(one: InstanceView) -> Row:
    count = round(one.numbers.running) if one.numbers and one.numbers.running else 0
    words = "a request" if count <= 1 else f"{count} requests"
    return row(said(f"{one.name} on {one.node} is answering {words} right now.", Tone.ATTENTION))


def _what(words: Sequence[str]) -> str:
    """Return what a dangerous command line will do, as a question."""
    names, nodes = meant(words[1:])
    does, there = "Kill" if "--kill" in words else "Stop", f" on {' and '.join(nodes)}" if nodes else ""
    if words[0] == "up":
        return f"Stop what runs as {names[0]}{there}, and start it anew?"
    if words[0] != "down":
        return f"Run this{' for' + there.removeprefix(' on') if there else ''}?"
    return f"{does} {'every instance that sparkctl started' if '--all' in words else (names or ['it'])[0]}{there}?"


class TypedName(Question):
    """Is answered by a name, typed in full; anything else does nothing."""

    def __init__(self, title: str, body: Sequence[Row], wanted: str) -> None:
        super().__init__(title, body)
        self._wanted = wanted
        self._wrong = False

    def answers(self) -> Sequence[Row]:
        """Return what is to be typed."""
        hint = (
            row(said(f"That is not {self._wanted}; esc leaves it running.", Tone.BAD))
            if self._wrong
            else row(Span("Type ", Tone.LABEL), said(self._wanted, Tone.KEY), Span(" to do it; esc leaves it running.", Tone.LABEL))
        )  # fmt: skip
        return [hint]

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the name; nothing typed is a no."""
        event.prevent_default()  # Textual calls the handler of every base class, too
        typed = event.value.strip()
        if typed in (self._wanted, ""):
            self.dismiss(DO if typed else None)
            return
        self._wrong = True
        self.query_one(Input).clear()
        self.draw()
