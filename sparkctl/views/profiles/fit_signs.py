"""Whether a profile fits on a node: a sign in the list, words beside it, the whole sum where there is room. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sparkctl.model.memory_fit import FitOutcome, MemoryFit
from sparkctl.model.sanitize import sanitize_line
from sparkctl.model.units import format_gib
from sparkctl.views.profiles.memory_estimate_view import (
    describe_answer,
    format_estimate,
    format_estimate_notes,
    format_group_answer,
)
from sparkctl.views.text.line_wrap import wrap_line
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, make_row, row_width, sanitized

_SIGNS = {
    FitOutcome.FITS: ("✓", "+", TextStyle.GOOD), FitOutcome.AFTER_DROP_CACHES: ("↓", "v", TextStyle.GOOD),
    FitOutcome.IF_STOPPED: ("▲", "!", TextStyle.ATTENTION), FitOutcome.SHORT: ("✕", "x", TextStyle.BAD),
    FitOutcome.SEVERAL: ("–", "-", TextStyle.LABEL), FitOutcome.UNKNOWN: ("?", "?", TextStyle.STALE),
}  # fmt: skip


_TIGHT = "△", "~", TextStyle.ATTENTION


def _look(fit: MemoryFit) -> tuple[str, str, TextStyle]:
    return _TIGHT if fit.is_tight else _SIGNS[fit.answer]


def estimate_symbol(fit: MemoryFit | None, ascii_only: bool) -> Span:
    """Return the one character for an answer; one that is still being counted is a dot."""
    if fit is None:
        return Span("." if ascii_only else "·", TextStyle.STALE)
    sign, plain, tone = _look(fit)
    return Span(plain if ascii_only else sign, tone)


def format_symbol_legend(ascii_only: bool) -> TextRow:
    """Return what the signs mean."""
    told = (
        (FitOutcome.FITS, "fits"), (FitOutcome.AFTER_DROP_CACHES, "drop caches"), (FitOutcome.IF_STOPPED, "stop first"),
        (FitOutcome.SHORT, "too big"), (FitOutcome.SEVERAL, "for several"),
    )  # fmt: skip
    parts = [(_SIGNS[answer], words) for answer, words in told]
    parts[1:1] = [(_TIGHT, "tight")]
    signs = [(plain if ascii_only else sign, tone, words) for (sign, plain, tone), words in parts]
    return tuple(
        span for sign, tone, words in signs for span in (Span(f"  {sign}", tone), Span(f" {words}", TextStyle.LABEL))
    )


def describe_estimate(fit: MemoryFit | None) -> Span:
    """Return an answer in a few words."""
    if fit is None:
        return Span("being counted", TextStyle.STALE)
    tone = _look(fit)[2]
    match fit.answer:
        case FitOutcome.FITS | FitOutcome.AFTER_DROP_CACHES if fit.is_tight:
            return Span(f"tight, {format_gib(fit.margin)}", tone)
        case FitOutcome.FITS:
            return Span(f"fits, {format_gib(fit.margin)} left", TextStyle.LABEL)
        case FitOutcome.AFTER_DROP_CACHES:
            return Span("after drop caches", TextStyle.LABEL)
        case FitOutcome.IF_STOPPED:
            return sanitized(f"stop {' and '.join(fit.stops)}", tone)
        case FitOutcome.SHORT:
            return Span(f"{format_gib(fit.short_by)} short", tone)
        case FitOutcome.SEVERAL:
            return Span(f"for {fit.sparks} Sparks", tone)
        case FitOutcome.UNKNOWN:
            return Span("not known", tone)


def render_estimate_line(fit: MemoryFit | None, columns: int, ascii_only: bool) -> list[TextRow]:
    """Return the answer as a sentence, with its sign."""
    if fit is None:
        return [make_row(Span("fit  ", TextStyle.LABEL), Span("being counted ...", TextStyle.STALE))]
    tone = _look(fit)[2]
    value = TextStyle.VALUE if tone is TextStyle.GOOD else tone
    why = f": {fit.cautions[0]}" if fit.answer is FitOutcome.UNKNOWN and not fit.parts and fit.cautions else ""
    why += f": it is tight, {format_gib(fit.guessed)} of the sum are estimates" if fit.is_tight else ""
    lines = wrap_line(sanitize_line(fit.sentence + why), max(8, columns - 7), 0)
    head = make_row(Span("fit  ", TextStyle.LABEL), estimate_symbol(fit, ascii_only), Span(" "))
    return [make_row(*(head if not at else (Span(" " * 7),)), sanitized(line, value)) for at, line in enumerate(lines)]


def worst_estimate(fits: Sequence[MemoryFit]) -> MemoryFit:
    """Return the answer that decides where all of them have to be good: what is refused, not known, or tight."""
    return max(fits, key=lambda one: (one.is_refused, one.answer is FitOutcome.UNKNOWN, one.is_tight))


def render_rank_estimates(fits: Sequence[MemoryFit | None], columns: int, ascii_only: bool) -> list[TextRow]:
    """Return whether the Sparks have room for a model together: what it comes to, then each one's share with its sign."""
    known = [one for one in fits if one is not None]
    if len(known) < len(fits) or not known:
        return render_estimate_line(None, columns, ascii_only)
    told = [
        part for line in format_group_answer(known) for part in wrap_line(sanitize_line(line), max(8, columns - 7), 0)
    ]
    worst = worst_estimate(known)
    tone = TextStyle.VALUE if _look(worst)[2] is TextStyle.GOOD else _look(worst)[2]
    head = make_row(Span("fit  ", TextStyle.LABEL), estimate_symbol(worst, ascii_only), Span(" "))
    rows = [make_row(*(head if not at else (Span(" " * 7),)), sanitized(line, tone)) for at, line in enumerate(told)]
    names = max(len(one.node) for one in known)
    for one in known:
        begin = make_row(
            " " * 5, estimate_symbol(one, ascii_only), Span(" "), sanitized(f"{one.node:<{names}}  ", TextStyle.LABEL)
        )
        words = wrap_line(sanitize_line(describe_answer(one)), max(8, columns - row_width(begin)), 0)
        rows += [
            make_row(*(begin if not at else (Span(" " * row_width(begin)),)), sanitized(line))
            for at, line in enumerate(words)
        ]
    return rows


def render_estimate_detail(fit: MemoryFit | None, columns: int) -> list[TextRow]:
    """Return the sum and what is to be said beside it; nothing where nothing was counted."""
    if fit is None or not fit.parts:
        return []
    lines = [*format_estimate(fit, columns), *format_estimate_notes(fit, columns)]
    return [make_row(sanitized(line, TextStyle.LABEL)) for line in lines]
