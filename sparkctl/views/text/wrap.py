"""Rows of spans broken between words, each word in its own tone."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sparkctl.views.text.styled_text import Span, TextRow, plain_text, row_width, text_width

_PIECE = re.compile(r" +|[^ ]+")


def wrap_rows(rows: Iterable[TextRow], columns: int, hang: int = 0) -> list[TextRow]:
    """Return the rows as rows of at most ``columns``, as far as words are no longer; later ones hang by their indent, and at
    least by ``hang``."""
    return [piece for one in rows for piece in _wrapped(one, columns, hang)]


def _wrapped(one: TextRow, columns: int, hang: int) -> list[TextRow]:
    if row_width(one) <= columns:
        return [one]
    bare = plain_text(one)
    indent = min(len(bare) - len(bare.lstrip(" ")), max(0, columns // 3))
    below = min(max(indent, hang), max(0, columns // 3))
    lines: list[TextRow] = []
    current, used = [Span(" " * indent)] if indent else [], indent
    begun = indent  # where the words of this line begin
    for span in one:
        for piece in _PIECE.findall(span.text):
            is_gap = piece.startswith(" ")
            if used > begun and not is_gap and used + text_width(piece) > columns:
                lines.append(_strip_row_end(current))
                current, used, begun = [Span(" " * below)] if below else [], below, below
            if is_gap and used == begun:
                continue  # no line begins with a gap beside its indent
            current.append(Span(piece, span.tone))
            used += text_width(piece)
    return [*lines, _strip_row_end(current)]


def _strip_row_end(spans: list[Span]) -> TextRow:
    """Return a line without the gap at its end."""
    while spans and not spans[-1].text.strip(" "):
        spans.pop()
    return tuple(spans)
