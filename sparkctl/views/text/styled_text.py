"""Rows of styled text for the panel. A style says what a text means; the theme chooses the colour. Imports no
terminal library."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from sparkctl.model.text.sanitize import sanitize_line


class TextStyle(StrEnum):
    """The meaning of a text: one accent, three states, grey, and the parts of the memory bar."""

    PLAIN = "plain"
    LABEL = "label"  # dim: names of figures
    VALUE = "value"  # bright: the figures
    UNIT = "unit"  # dim: their units
    STRONG = "strong"
    ACCENT = "accent"
    GOOD = "good"
    ATTENTION = "attention"
    BAD = "bad"
    STALE = "stale"  # no longer sure
    FRAME = "frame"
    CHOSEN = "chosen"  # the frame of what is selected
    KEY = "key"
    TITLE = "title"
    GPU = "gpu"  # the four parts of the memory bar
    OTHER = "other"
    CACHE = "cache"
    FREE = "free"
    BODY = "body"  # what lies under a curve


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of text in one style. Text from a node must pass `sanitize_span` first."""

    text: str
    tone: TextStyle = TextStyle.PLAIN


TextRow = tuple[Span, ...]


def sanitize_span(text: str, tone: TextStyle = TextStyle.PLAIN) -> Span:
    """Return sanitised text from a node or an error as a span."""
    return Span(sanitize_line(text), tone)


def make_row(*parts: Span | str) -> TextRow:
    """Return a row of spans; a plain string becomes an unstyled span and must be sparkctl's own text."""
    return tuple(Span(part) if isinstance(part, str) else part for part in parts)


def measure_text(text: str) -> int:
    """Return the columns that a printable text takes."""
    return len(text) if text.isascii() else _measure_wide_text(text)


@lru_cache(512)
def _measure_wide_text(text: str) -> int:
    return sum(
        2 if unicodedata.east_asian_width(char) in "WF" else 0 if unicodedata.category(char) in ("Mn", "Me") else 1
        for char in text
    )


def measure_row(spans: Iterable[Span]) -> int:
    """Return the columns that a row takes."""
    taken = 0
    for span in spans:  # called for hundreds of rows per frame
        piece = span.text
        taken += len(piece) if piece.isascii() else _measure_wide_text(piece)
    return taken


def join_text(spans: Iterable[Span]) -> str:
    """Return the text of a row without styles."""
    return "".join(span.text for span in spans)


def truncate_row(spans: TextRow, columns: int, mark: str = "…") -> TextRow:
    """Return a row of at most ``columns``; a cut is marked."""
    return spans if measure_row(spans) <= columns else _cut_row(spans, columns, mark)


def _cut_row(spans: TextRow, columns: int, mark: str) -> TextRow:
    kept: list[Span] = []
    left = columns - measure_text(mark)
    for span in spans:
        wide = measure_text(span.text)
        if wide > left:
            kept.append(Span(truncate_text(span.text, max(0, left)) + (mark if columns > 0 else ""), span.tone))
            break
        kept.append(span)
        left -= wide
    return tuple(kept)


def truncate_text(piece: str, columns: int) -> str:
    """Return as much of a text as fits in this many columns, without a mark."""
    if piece.isascii():
        return piece[:columns]
    end = used = 0
    for char in piece:
        used += measure_text(char)
        if used > columns:
            break
        end += 1
    return piece[:end]


def pad_row(spans: TextRow, columns: int, mark: str = "…") -> TextRow:
    """Return a row of exactly ``columns``."""
    missing = columns - measure_row(spans)
    if missing < 0:
        spans = _cut_row(spans, columns, mark)
        missing = columns - measure_row(spans)
    return (*spans, Span(" " * missing)) if missing > 0 else spans


def justify_row(left: TextRow, right: TextRow, columns: int) -> TextRow:
    """Return a row with ``right`` at its end; if both do not fit, the right part stays whole."""
    right = truncate_row(right, columns)
    room = columns - measure_row(right)
    if room < 4:
        return pad_row(right, columns)
    return (*pad_row(truncate_row(left, room - 1), room), *right)


def restyle_row(spans: TextRow, tone: TextStyle) -> TextRow:
    """Return a row in one style, for example to fade old values."""
    return tuple(Span(span.text, tone) for span in spans)


def to_ascii_row(spans: TextRow) -> TextRow:
    """Return a row for any terminal: sparkctl's symbols have ASCII forms, other characters become question marks of
    equal width.

    The row may get narrower; fit it afterwards.
    """
    return tuple(span if span.text.isascii() else Span(_to_ascii_text(span.text), span.tone) for span in spans)


_ASCII_ROW_TRANSLATION = str.maketrans(
    {"·": ",", "✓": "+", "—": "-", "–": "-",
      "…": "~", "≈": "~", "°": None, "›": ">", "→": ">", "↑": "^", "↓": "v", "−": "-", "│": "|", "×": "x"}
)  # fmt: skip


def _to_ascii_text(piece: str) -> str:
    piece = re.sub(r" ·(?= |$)", ",", piece).translate(_ASCII_ROW_TRANSLATION)
    return "".join(char if char.isascii() else "?" * measure_text(char) for char in piece)


@dataclass(frozen=True, slots=True)
class ScrollPage:
    """Rows, and the row from which the scrollable part is shown. For a list, its ``entries`` start in row ``top``."""

    rows: tuple[TextRow, ...]
    further: int = 0
    top: int = 0
    entries: range = range(0)

    def entry_at(self, y: int) -> int | None:
        """Return the number of the list entry in a row."""
        return self.entries[y - self.top] if 0 <= y - self.top < len(self.entries) else None


def compute_visible_range(count: int, at: int, lines: int) -> range:
    """Return which of ``count`` entries are visible so that the one at ``at`` is among them, near the middle if
    possible."""
    first = max(0, min(at - lines // 2, count - lines))
    return range(first, min(count, first + lines))


def select_rows_around(rows: Sequence[TextRow], at: int, lines: int) -> list[TextRow]:
    """Return at most ``lines`` rows, the one at ``at`` among them."""
    return [rows[each] for each in compute_visible_range(len(rows), at, lines)]


def scroll_rows(
    rows: Sequence[TextRow], further: int, lines: int, ascii_only: bool = False, by: tuple[str, str] = ("pgup", "pgdn")
) -> ScrollPage:
    """Return the rows from ``further`` on; if not all fit, the last row says what is above and below, and the keys
    ``by`` that scroll."""
    if len(rows) <= lines or lines < 2:
        return ScrollPage(tuple(rows[: max(0, lines)]))
    shown = lines - 1
    first = max(0, min(further, len(rows) - shown))
    below = len(rows) - first - shown
    up, down = ("^", "v") if ascii_only else ("↑", "↓")
    words = [f"{up} {first}"] if first else []
    words += [f"{down} {below} more"] if below else ["the end"]
    keys = " and ".join([*([by[0]] if first else []), *([by[1]] if below else [])])
    says = make_row(Span("   ".join(words), TextStyle.LABEL), Span(f"   {keys}", TextStyle.KEY))
    return ScrollPage((*rows[first : first + shown], says), first)


_PIECE_PATTERN = re.compile(r" +|[^ ]+")


def wrap_rows(rows: Iterable[TextRow], columns: int, hang: int = 0) -> list[TextRow]:
    """Return the rows wrapped to ``columns`` between words; continuation lines keep the indent, at least ``hang``."""
    return [piece for one in rows for piece in _wrap_row(one, columns, hang)]


def _wrap_row(one: TextRow, columns: int, hang: int) -> list[TextRow]:
    if measure_row(one) <= columns:
        return [one]
    bare = join_text(one)
    indent = min(len(bare) - len(bare.lstrip(" ")), max(0, columns // 3))
    below = min(max(indent, hang), max(0, columns // 3))
    lines: list[TextRow] = []
    current, used = [Span(" " * indent)] if indent else [], indent
    begun = indent  # the column where the line's words begin
    for span in one:
        for piece in _PIECE_PATTERN.findall(span.text):
            is_gap = piece.startswith(" ")
            if used > begun and not is_gap and used + measure_text(piece) > columns:
                lines.append(_strip_row_end(current))
                current, used, begun = [Span(" " * below)] if below else [], below, below
            if is_gap and used == begun:
                continue  # a line does not start with blanks after its indent
            current.append(Span(piece, span.tone))
            used += measure_text(piece)
    return [*lines, _strip_row_end(current)]


def _strip_row_end(spans: list[Span]) -> TextRow:
    """Return a line without the blanks at its end."""
    while spans and not spans[-1].text.strip(" "):
        spans.pop()
    return tuple(spans)
