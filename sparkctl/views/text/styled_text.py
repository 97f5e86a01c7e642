"""Rows of styled text for the panel: what a piece of text means, never which colour it has. No terminal library here."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from sparkctl.model.sanitize import sanitize_line


class TextStyle(StrEnum):
    """What a piece of text is. One accent, three states, and grey; the rest is weight."""

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
    """A piece of text of one tone. Text from a node goes through `said` first."""

    text: str
    tone: TextStyle = TextStyle.PLAIN


TextRow = tuple[Span, ...]


def sanitized(text: str, tone: TextStyle = TextStyle.PLAIN) -> Span:
    """Return text from a node, or of an error, as a span: cleaned."""
    return Span(sanitize_line(text), tone)


def make_row(*parts: Span | str) -> TextRow:
    """Return a row; bare text is plain and ours."""
    return tuple(Span(part) if isinstance(part, str) else part for part in parts)


def text_width(text: str) -> int:
    """Return how many columns a printable text takes."""
    return len(text) if text.isascii() else _wide(text)


@lru_cache(512)
def _wide(text: str) -> int:
    return sum(
        2 if unicodedata.east_asian_width(char) in "WF" else 0 if unicodedata.category(char) in ("Mn", "Me") else 1
        for char in text
    )


def row_width(spans: Iterable[Span]) -> int:
    """Return how many columns a row takes."""
    taken = 0
    for span in spans:  # a picture asks this of hundreds of rows
        piece = span.text
        taken += len(piece) if piece.isascii() else _wide(piece)
    return taken


def plain_text(spans: Iterable[Span]) -> str:
    """Return the bare text of a row."""
    return "".join(span.text for span in spans)


def truncate_row(spans: TextRow, columns: int, mark: str = "…") -> TextRow:
    """Return a row of at most ``columns``; a cut is marked."""
    return spans if row_width(spans) <= columns else _cut(spans, columns, mark)


def _cut(spans: TextRow, columns: int, mark: str) -> TextRow:
    kept: list[Span] = []
    left = columns - text_width(mark)
    for span in spans:
        wide = text_width(span.text)
        if wide > left:
            kept.append(Span(truncate_text(span.text, max(0, left)) + (mark if columns > 0 else ""), span.tone))
            break
        kept.append(span)
        left -= wide
    return tuple(kept)


def truncate_text(piece: str, columns: int) -> str:
    """Return as much of a text as fits into so many columns, unmarked."""
    if piece.isascii():
        return piece[:columns]
    end = used = 0
    for char in piece:
        used += text_width(char)
        if used > columns:
            break
        end += 1
    return piece[:end]


def pad_row(spans: TextRow, columns: int, mark: str = "…") -> TextRow:
    """Return a row of exactly ``columns``."""
    missing = columns - row_width(spans)
    if missing < 0:
        spans = _cut(spans, columns, mark)
        missing = columns - row_width(spans)
    return (*spans, Span(" " * missing)) if missing > 0 else spans


def justify_row(left: TextRow, right: TextRow, columns: int) -> TextRow:
    """Return a row with ``right`` at its end; where both do not fit, the right one stays whole."""
    right = truncate_row(right, columns)
    room = columns - row_width(right)
    if room < 4:
        return pad_row(right, columns)
    return (*pad_row(truncate_row(left, room - 1), room), *right)


def restyle_row(spans: TextRow, tone: TextStyle) -> TextRow:
    """Return a row all in one tone: how what is old fades."""
    return tuple(Span(span.text, tone) for span in spans)


def to_ascii_row(spans: TextRow) -> TextRow:
    """Return a row that any terminal can show: our own signs have plain ones, what is left is question marks, as wide.

    It may get narrower: it is fitted into its room afterwards.
    """
    return tuple(span if span.text.isascii() else Span(_ascii(span.text), span.tone) for span in spans)


_PLAIN = str.maketrans(
    {"·": ",", "✓": "+", "—": "-", "–": "-",
      "…": "~", "≈": "~", "°": None, "›": ">", "→": ">", "↑": "^", "↓": "v", "−": "-", "│": "|", "×": "x"}
)  # fmt: skip


def _ascii(piece: str) -> str:
    piece = re.sub(r" ·(?= |$)", ",", piece).translate(_PLAIN)
    return "".join(char if char.isascii() else "?" * text_width(char) for char in piece)
