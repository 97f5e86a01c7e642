"""What a dangerous command line asks before it is done: Cancel is the default, and who serves somebody wants its name typed."""

from __future__ import annotations

from collections.abc import Sequence

from textual.widgets import Input

from sparkctl.core.actions import Action, ActionId, Situation
from sparkctl.core.parts import parts_of, stands_on
from sparkctl.core.serving import aimed_at, cut_off, ended_by, is_model_answering, meant, named_by, unseen
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeState
from sparkctl.model.phase import Phase
from sparkctl.present.spans import Row, Span, Tone, row, said
from sparkctl.tui.dialogs import Asking, Choice, Question, paragraph

DO = "do"  # what both dialogs give for a yes
_STOPS = ("down", "up", "free")


def asks(one: Action, words: Sequence[str], now: Situation) -> bool:
    """Tell whether a question comes before it."""
    return one.confirm or bool(cut_off(now, words) or unseen(now, words))


def question(one: Action, words: Sequence[str], now: Situation) -> Asking:
    """Return the dialog that asks; it gives `DO` for a yes."""
    if ended := _ended(words, now):
        return _removal(ended, words)
    line = [*_lost(words, now), *paragraph(f"sparkctl {' '.join(words)}", Tone.LABEL)]
    serving, dark = cut_off(now, words), unseen(now, words)
    if serving or dark:
        names = {each.name for each in serving} or set(meant(words[1:])[0])
        why = [row for each in serving for row in _answers(each, now)]
        why += [
            row for name in dark for row in paragraph(f"What runs on {name} was not looked at yet.", Tone.ATTENTION)
        ]
        body = [*_asked(words, now), (), *why, (), *line]
        return TypedName(one.short, body, names.pop() if len(names) == 1 else "all")
    if one.id is ActionId.RESTART:
        body = [*paragraph(f"Start {words[1]} on {now.node} once more, as it was?", Tone.STRONG), (), *line]
        return Choice(one.short, body, (("cancel", "Cancel"), (DO, "start it")), Tone.ATTENTION)
    does = "kill it" if "--kill" in words else "stop it" if words[0] in _STOPS else one.short
    return Choice(one.short, [*_asked(words, now), (), *line], (("cancel", "Cancel"), (DO, does)), Tone.ATTENTION)


def _ended(words: Sequence[str], now: Situation) -> list[InstanceView]:
    """Return what a ``down`` means, where all of it has ended already: there is nothing to stop any more."""
    if words[0] != "down" or "--all" in words:
        return []
    named = named_by(now, words)
    return [] if any(one.is_alive for one in named) else list(named)


def _lost(words: Sequence[str], now: Situation) -> list[Row]:
    """Return which of the Sparks that are meant does not answer any more: what is said of it is what was seen last."""
    nodes = aimed_at(words)[1] or [str(now.node)]
    rows: list[Row] = []
    for view in now.views:
        if view.name in nodes and view.state not in (NodeState.OK, NodeState.UNKNOWN):
            rows += paragraph(f"{view.name} is {view.state}: it cannot be told anything now.", Tone.BAD)
    return [*rows, ()] if rows else []


def _removal(ended: Sequence[InstanceView], words: Sequence[str]) -> Asking:
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


def _answers(one: InstanceView, now: Situation) -> list[Row]:
    """Return whom it would cut off; a part that answers nobody itself is told of by the one that does."""
    there = f"{one.name} on {one.node}"
    if is_model_answering(one, now) is None:
        return paragraph(f"Whether {there} is answering somebody right now is not known.", Tone.ATTENTION)
    count = round(one.numbers.running) if one.numbers and one.numbers.running else 0
    if not count and parts_of(one) > 1:
        return []
    return paragraph(
        f"{there} is answering {'a request' if count <= 1 else f'{count} requests'} right now.", Tone.ATTENTION
    )


def _asked(words: Sequence[str], now: Situation) -> list[Row]:
    """Return the question, and of a model on several Sparks what becomes of its parts."""
    ended = ended_by(now, words) if words[0] in _STOPS else ()
    asked = paragraph(_what(words, tuple(dict.fromkeys(str(one.node) for one in ended)), now), Tone.STRONG)
    asked += _freed(ended, aimed_at(words)[1], now) if words[0] == "free" else []
    spread = {one.name: one for one in ended if words[0] == "down" and parts_of(one) > 1}
    for name, one in spread.items():
        stopped, seen = {each.node for each in ended if each.name == name}, stands_on(one, now.views)
        left = [node for node in seen if node not in stopped]
        if left:
            asked += paragraph(
                f"Its part on {' and '.join(left)} stays, and answers nobody without this one.", Tone.BAD
            )
        elif len(seen) < parts_of(one):
            asked += paragraph(
                f"It is a part of {parts_of(one)}; the others are not seen and not stopped by this.", Tone.ATTENTION
            )
        else:
            asked += paragraph(f"It is one model on {len(seen)} Sparks: its parts stop together.")
    return asked


def _freed(ended: Sequence[InstanceView], nodes: Sequence[str], now: Situation) -> list[Row]:
    """Return what stops where everything does, where its other parts are, and what is left alone."""
    rows: list[Row] = []
    for name in dict.fromkeys(one.name for one in ended):
        where = list(dict.fromkeys(str(one.node) for one in ended if one.name == name))
        others = [node for node in where if node not in nodes]
        apart = ": one model, and no half of it is left behind" if others else ""
        rows += paragraph(f"{name} stops on {' and '.join(where)}{apart}.", Tone.ATTENTION if others else Tone.PLAIN)
    there = [one for view in now.views if view.name in nodes for one in view.instances if one.is_alive]
    rows += [] if ended else paragraph("Nothing of sparkctl's runs there, as far as it was seen.")
    foreign = [f"{one.name} on {one.node}" for one in there if not one.ours]
    if foreign:
        rows += paragraph(f"Not sparkctl's, and left alone: {', '.join(foreign)}.", Tone.LABEL)
    return rows


def _what(words: Sequence[str], there_it_is: Sequence[str], now: Situation) -> str:
    """Return what a dangerous command line will do, as a question."""
    names, nodes = meant(words[1:])
    nodes = nodes or list(there_it_is)
    does, there = "Kill" if "--kill" in words else "Stop", f" on {' and '.join(nodes)}" if nodes else ""
    if words[0] == "up":
        return f"Stop what runs as {names[0]}{there}, and start it anew?"
    if words[0] == "free":
        return f"Stop everything that sparkctl started on {' and '.join(aimed_at(words)[1])}?"
    if words[0] in ("resume", "abort"):
        return _of_left(words, now)
    if words[0] != "down":
        return f"Run this{' for' + there.removeprefix(' on') if there else ''}?"
    return f"{does} {'every instance that sparkctl started' if '--all' in words else (names or ['it'])[0]}{there}?"


def _of_left(words: Sequence[str], now: Situation) -> str:
    """Return what would become of the models of a switch that was left, by their names where its journal says them."""
    one = now.journal
    if one is None:
        what, new, old = "the switch that was left", "What it started", "what it stopped"
    else:
        what = f"the switch to {one.instance} that {one.operator} left at its step {one.step}"
        new, old = one.instance, " and ".join(one.stops)
    if words[0] == "resume":
        return f"Go on with {what}?"
    serves = one is not None and any(
        each.name == one.instance and each.phase is Phase.READY for view in now.views for each in view.instances
    )
    ready = ", which is ready now," if serves else ""
    if "--give-up" in words:
        both = f"{new}{ready} and {old} go" if old else f"{new}{ready} goes"
        return f"Give up {what}? {both}, logs saved, and nothing of it serves."
    return f"Undo {what}? {new}{ready} goes{f', and {old} serves again' if old else ''}."


class TypedName(Question):
    """Is answered by a name, typed in full; anything else does nothing."""

    def __init__(self, title: str, body: Sequence[Row], wanted: str) -> None:
        super().__init__(title, body)
        self._wanted = wanted
        self._wrong = ""  # how what was typed last begins to be refused

    def answers(self) -> Sequence[Row]:
        """Return what is to be typed."""
        hint = (
            row(said(f"{self._wrong} not {self._wanted}; esc leaves it running.", Tone.BAD))
            if self._wrong
            else row(Span("Type ", Tone.LABEL), said(self._wanted, Tone.KEY), Span(" to do it; esc leaves it running.", Tone.LABEL))
        )  # fmt: skip
        return [hint]

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the name. Nothing else closes it: what is typed behind would be for the screen below."""
        event.prevent_default()  # Textual calls the handler of every base class, too
        if event.value.strip() == self._wanted:
            self.dismiss(DO)
            return
        self._wrong = "That is" if event.value.strip() else "Nothing typed is"
        self.query_one(Input).clear()
        self.draw()
