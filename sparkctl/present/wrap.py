"""Rows of spans broken between words, each word in its own tone."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sparkctl.present.spans import Row, Span, cells, text, width

_PIECE = re.compile(r" +|[^ ]+")


def wrapped(rows: Iterable[Row], columns: int) -> list[Row]:
    """Return the rows as rows of at most ``columns``, as far as words are no longer; later ones hang by their indent."""
    return [piece for one in rows for piece in _wrapped(one, columns)]


def _wrapped(one: Row, columns: int) -> list[Row]:
    if width(one) <= columns:
        return [one]
    bare = text(one)
    indent = min(len(bare) - len(bare.lstrip(" ")), max(0, columns // 3))
    begun = [Span(" " * indent)] if indent else []
    lines: list[Row] = []
    current, used = list(begun), indent
    for span in one:
        for piece in _PIECE.findall(span.text):
            is_gap = piece.startswith(" ")
            if used > indent and not is_gap and used + cells(piece) > columns:
                lines.append(_ended(current))
                current, used = list(begun), indent
            if is_gap and used == indent:
                continue  # no line begins with a gap beside its indent
            current.append(Span(piece, span.tone))
            used += cells(piece)
    return [*lines, _ended(current)]


def _ended(spans: list[Span]) -> Row:
    """Return a line without the gap at its end."""
    while spans and not spans[-1].text.strip(" "):
        spans.pop()
    return tuple(spans)
