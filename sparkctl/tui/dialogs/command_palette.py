"""The palette (ctrl+p): finds the actions that are possible now, and the themes, by their names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from sparkctl.commands.actions import Action, ActionContext, ActionId, list_available_actions
from sparkctl.errors import SparkctlError
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.tui.dialogs.base import Dialog
from sparkctl.tui.key_hints import format_key
from sparkctl.views.text.styled_text import (
    Span,
    TextRow,
    TextStyle,
    justify_row,
    make_row,
    measure_row,
    sanitize_span,
    truncate_row,
)

if TYPE_CHECKING:
    from sparkctl.tui.panel import Panel

THEME_PREFIX = "theme "  # prefix of the theme entries
_NO_SELECTION = -1  # no entry is selected until an arrow key selects one
_EXCLUDED_ACTIONS = (ActionId.PALETTE, ActionId.BACK)
_MAX_ENTRY_COLUMNS = 96
_MAX_VISIBLE_ENTRIES = 14  # visible entries
_MIN_WEAK_MATCH_LETTERS = 3  # letters that a match within a name needs


@dataclass(frozen=True, slots=True, kw_only=True)
class PaletteEntry:
    """An entry. ``does`` is an action's id, or `THEME_PREFIX` and a name; ``line`` is its command line."""

    does: str
    title: str
    key: str = ""
    line: str = ""
    names: tuple[str, ...] = ()  # its other names: in the footer, on the `:` line, in the config
    changes: bool = False


def list_palette_entries(panel: Panel) -> list[PaletteEntry]:
    """Return the actions that are possible now in the order of the help, then the themes by name."""
    now = panel.build_action_context()
    actions = panel.actions if panel.front_screen is None else panel.front_screen.actions
    found = [
        PaletteEntry(
            does=one.id,
            title=one.title,
            key=format_key(one.keys[0]) if one.keys else "",
            line=_describe_command(one, now),
            names=tuple(dict.fromkeys(name for name in (one.short, one.verb, str(one.id)) if name)),
            changes=one.changes,
        )
        for one in list_available_actions(actions, now)
        if one.id not in _EXCLUDED_ACTIONS
    ]
    return found + [
        PaletteEntry(does=THEME_PREFIX + name, title=THEME_PREFIX + name) for name in sorted(panel.available_themes)
    ]


def _describe_command(one: Action, now: ActionContext) -> str:
    """Return the command line of an action; of one whose profile cannot be read, its verb."""
    try:
        return (
            one.verb or ""
            if one.build_request is None
            else sanitize_line(" ".join(one.build_request(now).format_as_command()))
        )
    except SparkctlError:
        return one.verb or ""


def filter_entries(entries: Sequence[PaletteEntry], typed: str) -> list[PaletteEntry]:
    """Return the matching entries, the best first, actions before themes of equal rank; without text all actions."""
    if not typed.strip():
        return [one for one in entries if not one.does.startswith(THEME_PREFIX)]
    scored = [
        (fit, one.does.startswith(THEME_PREFIX), at, one)
        for at, one in enumerate(entries)
        if (fit := _rank_match(one, typed))
    ]
    return [one for *_, one in sorted(scored, key=lambda each: (each[0] is MatchRank.WEAK, each[1], each[0], each[2]))]


class MatchRank(IntEnum):
    """How well an entry matches the typed text, the best first."""

    NAME = 1  # a name is equal
    BEGINS = 2  # a name begins with it
    WORDS = 3  # words of a name or the title begin with its words
    WEAK = 4  # it is within the title, or its letters are in a name in order


def _rank_match(one: PaletteEntry, typed: str) -> MatchRank | None:
    """Return how well an entry matches; None where it does not."""
    wanted, names = typed.strip().casefold(), [name.casefold() for name in one.names]
    words = re.findall(r"[\w-]+", " ".join((*names, one.title.casefold())))
    if wanted in names:
        return MatchRank.NAME
    if any(name.startswith(wanted) for name in names):
        return MatchRank.BEGINS
    if all(any(word.startswith(part) for word in words) for part in wanted.split()):
        return MatchRank.WORDS
    is_within = len(wanted) >= _MIN_WEAK_MATCH_LETTERS and (
        wanted in one.title.casefold() or any(_is_subsequence(wanted, name) for name in names)
    )
    return MatchRank.WEAK if is_within else None


def _is_subsequence(wanted: str, name: str) -> bool:
    """Tell whether a name contains the letters in this order."""
    letters = iter(name)
    return all(letter in letters for letter in wanted)


def is_safe_on_enter(one: PaletteEntry, typed: str) -> bool:
    """Tell whether enter alone may run it: an action that changes something needs more than a weak match."""
    return not (one.changes and typed.strip() and _rank_match(one, typed) is MatchRank.WEAK)


class ActionPalette(Dialog[str]):
    """Returns ``does`` of the chosen entry.

    Textual's `CommandPalette` takes 19.9 ms of CPU time for a key and 82 ms for its first paint with 40 entries (Textual 8.2.8);
    this takes 9.4 and 34 ms, shows keys and command lines, and runs nothing that changes something on a weak match.
    """

    BELOW = 1
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,ctrl+n,tab", "move(1)", show=False, priority=True),
        Binding("up,ctrl+p,shift+tab", "move(-1)", show=False, priority=True),
        Binding("pagedown", "move(10)", show=False, priority=True),
        Binding("pageup", "move(-10)", show=False, priority=True),
    ]

    def __init__(self, entries: Sequence[PaletteEntry]) -> None:
        super().__init__("do")
        self._all = entries
        self._found = filter_entries(entries, "")
        self._at = 0
        self._first = 0
        self._visible: dict[int, TextRow] = {}  # the rows of the visible entries

    def compose(self) -> ComposeResult:
        yield from super().compose()
        yield Input(placeholder="type a part of its name", compact=True)

    def render_rows(self) -> Sequence[TextRow]:
        """Return the visible entries, with the selected one among them."""
        wide, high = self.inner_size
        above = [(), ()] if self.is_framed else []
        shown = max(1, min(_MAX_VISIBLE_ENTRIES, high - len(above) - 2))
        self._first = max(self._at - shown + 1, min(self._first, self._at), 0)
        ends = min(len(self._found), self._first + shown)
        self._visible = {
            at: self._render_entry(at, self._found[at], min(_MAX_ENTRY_COLUMNS, wide))
            for at in range(self._first, ends)
        }
        listed = [*self._visible.values()]
        if not listed:
            listed = [make_row(Span("no matching action", TextStyle.STALE))]
        return [*above, *listed, *[()] * (shown - len(listed))]

    def _render_entry(self, at: int, one: PaletteEntry, columns: int) -> TextRow:
        mine = at == self._at
        mark = "▸" if mine else " "
        key = make_row(Span(f" {one.key}", TextStyle.KEY))
        left = make_row(
            Span(f"{mark} ", TextStyle.ACCENT), sanitize_span(one.title, TextStyle.STRONG if mine else TextStyle.VALUE)
        )
        room = columns - measure_row(key)
        if one.line and room - measure_row(left) > 8:
            left = (*left, sanitize_span(f"   :{one.line}", TextStyle.LABEL))
        return justify_row(truncate_row(left, room), key, columns)

    def render_footer_rows(self) -> Sequence[TextRow]:
        more = len(self._found) - max(self._at, 0) - 1
        return [
            (),
            make_row(
                Span(f"{more} more   " if more > 0 else "", TextStyle.LABEL),
                Span("enter", TextStyle.KEY),
                Span(" does it   ", TextStyle.LABEL),
                Span("esc", TextStyle.KEY),
                Span(" leaves", TextStyle.LABEL),
            ),
        ]

    def field_row(self, rows: int) -> int:
        """Return the first row within the frame."""
        return 1

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show the matching entries."""
        self._found = filter_entries(self._all, event.value)
        self._at = 0 if self._found and is_safe_on_enter(self._found[0], event.value) else _NO_SELECTION
        self.draw_dialog()

    def on_input_submitted(self) -> None:
        """Run the selected entry."""
        if self._found and self._at != _NO_SELECTION:
            self.dismiss(self._found[self._at].does)

    def click_row(self, row: TextRow, x: int, *, twice: bool) -> None:
        if (at := next((at for at, one in self._visible.items() if one is row), None)) is not None:
            self.dismiss(self._found[at].does)

    def click_outside(self) -> None:
        self.dismiss(None)

    def on_mouse_scroll_down(self) -> None:
        """Select the next entry by the wheel."""
        self.action_move(1)

    def on_mouse_scroll_up(self) -> None:
        """Select the previous entry by the wheel."""
        self.action_move(-1)

    def action_move(self, by: int) -> None:
        """Select another entry."""
        self._at = max(0, min(len(self._found) - 1, self._at + by))
        self.draw_dialog()
