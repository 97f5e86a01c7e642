"""Rows of spans broken between words, each word in its own tone."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sparkctl.present.spans import Row, Span, cells, text, width

_PIECE = re.compile(r" +|[^ ]+")


def wrapped(rows: Iterable[Row], columns: int, hang: int = 0) -> list[Row]:
    """Return the rows as rows of at most ``columns``, as far as words are no longer; later ones hang by their indent, and at
    least by ``hang``."""
    return [piece for one in rows for piece in _wrapped(one, columns, hang)]


def _wrapped(one: Row, columns: int, hang: int) -> list[Row]:
    if width(one) <= columns:
        return [one]
    bare = text(one)
    indent = min(len(bare) - len(bare.lstrip(" ")), max(0, columns // 3))
    below = min(max(indent, hang), max(0, columns // 3))
    lines: list[Row] = []
    current, used = [Span(" " * indent)] if indent else [], indent
    begun = indent  # where the words of this line begin
    for span in one:
        for piece in _PIECE.findall(span.text):
            is_gap = piece.startswith(" ")
            if used > begun and not is_gap and used + cells(piece) > columns:
                lines.append(_ended(current))
                current, used, begun = [Span(" " * below)] if below else [], below, below
            if is_gap and used == begun:
                continue  # no line begins with a gap beside its indent
            current.append(Span(piece, span.tone))
            used += cells(piece)
    return [*lines, _ended(current)]


def _ended(spans: list[Span]) -> Row:
    """Return a line without the gap at its end."""
    while spans and not spans[-1].text.strip(" "):
        spans.pop()
    return tuple(spans)
