"""ctrl+p: every action that can be done now, by its name, and behind them the themes. What cannot be done is not offered."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from sparkctl.core.actions import ActionId, available
from sparkctl.model.text import clean
from sparkctl.present.keys import key_words
from sparkctl.present.spans import Row, Span, Tone, cut, ends, row, said, width
from sparkctl.tui.dialogs import Dialog
from sparkctl.tui.sheet import Sheet

if TYPE_CHECKING:
    from sparkctl.tui.app import Panel

THEME = "theme "  # what the entries of colours begin with
_NONE = -1  # nothing is chosen: an arrow chooses
_NOT = (ActionId.PALETTE, ActionId.BACK)
_WIDE = 70
_MOST = 14  # entries that are seen at once
_TELLING = 3  # letters from which on it means something that they stand within a name
_ABOVE = 3  # rows of the frame, the field and a blank one


@dataclass(frozen=True, slots=True)
class Entry:
    """``does`` is an action's id, or `THEME` and a name; ``line`` its command line."""

    does: str
    title: str
    key: str = ""
    line: str = ""
    names: tuple[str, ...] = ()  # what else it is called: in the footer, on the `:` line, in the config
    changes: bool = False


def entries(panel: Panel) -> list[Entry]:
    """Return what can be done now in the order of the help, then the colours by name."""
    now = panel.situation()
    actions = panel.actions if panel.front is None else panel.front.actions
    found = [
        Entry(
            one.id,
            one.title,
            key_words(one.keys[0], panel.ascii_only) if one.keys else "",
            clean(" ".join(one.words(now))) if one.words else one.verb or "",
            tuple(dict.fromkeys(name for name in (one.short, one.verb, str(one.id)) if name)),
            one.changes,
        )
        for one in available(actions, now)
        if one.id not in _NOT
    ]
    return found + [Entry(THEME + name, THEME + name) for name in sorted(panel.available_themes)]


def fitting(those: Sequence[Entry], typed: str) -> list[Entry]:
    """Return what fits, the best first, and every action before any theme that fits as well; nothing typed: all actions."""
    if not typed.strip():
        return [one for one in those if not one.does.startswith(THEME)]
    scored = [(fit, one.does.startswith(THEME), at, one) for at, one in enumerate(those) if (fit := _fit(one, typed))]
    return [one for *_, one in sorted(scored, key=lambda each: (each[0] is Fit.WEAK, each[1], each[0], each[2]))]


class Fit(IntEnum):
    """How well an entry is what was typed, the best first."""

    NAME = 1  # that is its name
    BEGINS = 2  # so its name begins
    WORDS = 3  # so words of its name or its title begin
    WEAK = 4  # it is somewhere within


def _fit(one: Entry, typed: str) -> Fit | None:
    """Return how well an entry fits; None where it does not."""
    wanted, names = typed.strip().casefold(), [name.casefold() for name in one.names]
    words = re.findall(r"[\w-]+", " ".join((*names, one.title.casefold())))
    if wanted in names:
        return Fit.NAME
    if any(name.startswith(wanted) for name in names):
        return Fit.BEGINS
    if all(any(word.startswith(part) for word in words) for part in wanted.split()):
        return Fit.WORDS
    is_within = len(wanted) >= _TELLING and (
        wanted in one.title.casefold() or any(_runs(wanted, name) for name in names)
    )
    return Fit.WEAK if is_within else None


def _runs(wanted: str, name: str) -> bool:
    """Tell whether the letters stand in a name in this order."""
    letters = iter(name)
    return all(letter in letters for letter in wanted)


def is_sure(one: Entry, typed: str) -> bool:
    """Tell whether it may be done by enter alone: what changes something is not, on a weak hit."""
    return not (one.changes and typed.strip() and _fit(one, typed) is Fit.WEAK)


class Palette(Dialog[str]):
    """Gives what the chosen entry does."""

    BELOW = 1
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,ctrl+n,tab", "move(1)", show=False, priority=True),
        Binding("up,ctrl+p,shift+tab", "move(-1)", show=False, priority=True),
        Binding("pagedown", "move(10)", show=False, priority=True),
        Binding("pageup", "move(-10)", show=False, priority=True),
    ]

    def __init__(self, those: Sequence[Entry]) -> None:
        super().__init__("do")
        self._all = those
        self._found = fitting(those, "")
        self._at = 0
        self._first = 0

    def compose(self) -> ComposeResult:
        """The sheet, and the field in its frame."""
        yield from super().compose()
        yield Input(placeholder="type a part of its name", compact=True)

    def rows(self) -> Sequence[Row]:
        """Return as many entries as there is room for, the chosen one among them."""
        wide, high = self.room
        above = [(), ()] if self.is_framed else []
        shown = max(1, min(_MOST, high - len(above) - 2))
        self._first = max(self._at - shown + 1, min(self._first, self._at), 0)
        listed = [self._row(at, one, min(_WIDE, wide)) for at, one in enumerate(self._found)][self._first :][:shown]
        if not listed:
            listed = [row(Span("nothing that can be done now is called so", Tone.STALE))]
        return [*above, *listed, *[()] * (shown - len(listed))]

    def _row(self, at: int, one: Entry, columns: int) -> Row:
        mine = at == self._at
        mark = (">" if self.panel.ascii_only else "▸") if mine else " "
        key = row(Span(f" {one.key}", Tone.KEY))
        left = row(Span(f"{mark} ", Tone.ACCENT), said(one.title, Tone.STRONG if mine else Tone.VALUE))
        room = columns - width(key)
        if one.line and room - width(left) > 8:
            left = (*left, said(f"   :{one.line}", Tone.LABEL))
        return ends(cut(left, room), key, columns)

    def answers(self) -> Sequence[Row]:
        """Return what keys do."""
        more = len(self._found) - max(self._at, 0) - 1
        return [(), row(Span(f"{more} more   " if more > 0 else "", Tone.LABEL), Span("enter", Tone.KEY),
                        Span(" does it   ", Tone.LABEL), Span("esc", Tone.KEY), Span(" leaves", Tone.LABEL))]  # fmt: skip

    def field_row(self, rows: int) -> int:
        """Return that the field is the first row within the frame."""
        return 1

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show what fits."""
        self._found = fitting(self._all, event.value)
        self._at = 0 if self._found and is_sure(self._found[0], event.value) else _NONE
        self.draw()

    def on_input_submitted(self) -> None:
        """Do the chosen one."""
        if self._found and self._at != _NONE:
            self.dismiss(self._found[self._at].does)

    def on_click(self, event: events.Click) -> None:
        """Do what was clicked."""
        at = event.screen_y - self.query_one(Sheet).region.y - (_ABOVE if self.is_framed else 0) + self._first
        if self._first <= at < min(len(self._found), self._first + _MOST):
            self.dismiss(self._found[at].does)

    def on_mouse_scroll_down(self) -> None:
        """Go on by the wheel."""
        self.action_move(1)

    def on_mouse_scroll_up(self) -> None:
        """Go back by the wheel."""
        self.action_move(-1)

    def action_move(self, by: int) -> None:
        """Go to another entry."""
        self._at = max(0, min(len(self._found) - 1, self._at + by))
        self.draw()
