"""Whether a profile fits on a node: a sign in the list, words beside it, the whole sum where there is room. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sparkctl.model.fit import Answer, Fit
from sparkctl.model.text import clean
from sparkctl.model.units import gib
from sparkctl.present.fit_rows import briefly, note_lines, sum_lines, together_lines
from sparkctl.present.fold import fold
from sparkctl.present.spans import Row, Span, Tone, row, said, width

_SIGNS = {
    Answer.FITS: ("✓", "+", Tone.GOOD), Answer.AFTER_DROP_CACHES: ("↓", "v", Tone.GOOD),
    Answer.IF_STOPPED: ("▲", "!", Tone.ATTENTION), Answer.SHORT: ("✕", "x", Tone.BAD),
    Answer.SEVERAL: ("–", "-", Tone.LABEL), Answer.UNKNOWN: ("?", "?", Tone.STALE),
}  # fmt: skip


_TIGHT = "△", "~", Tone.ATTENTION


def _look(fit: Fit) -> tuple[str, str, Tone]:
    return _TIGHT if fit.is_tight else _SIGNS[fit.answer]


def fit_sign(fit: Fit | None, ascii_only: bool) -> Span:
    """Return the one character for an answer; one that is still being counted is a dot."""
    if fit is None:
        return Span("." if ascii_only else "·", Tone.STALE)
    sign, plain, tone = _look(fit)
    return Span(plain if ascii_only else sign, tone)


def fit_legend(ascii_only: bool) -> Row:
    """Return what the signs mean."""
    told = (
        (Answer.FITS, "fits"), (Answer.AFTER_DROP_CACHES, "drop caches"), (Answer.IF_STOPPED, "stop first"),
        (Answer.SHORT, "too big"), (Answer.SEVERAL, "for several"),
    )  # fmt: skip
    parts = [(_SIGNS[answer], words) for answer, words in told]
    parts[1:1] = [(_TIGHT, "tight")]
    signs = [(plain if ascii_only else sign, tone, words) for (sign, plain, tone), words in parts]
    return tuple(
        span for sign, tone, words in signs for span in (Span(f"  {sign}", tone), Span(f" {words}", Tone.LABEL))
    )


def fit_words(fit: Fit | None) -> Span:
    """Return an answer in a few words."""
    if fit is None:
        return Span("being counted", Tone.STALE)
    tone = _look(fit)[2]
    match fit.answer:
        case Answer.FITS | Answer.AFTER_DROP_CACHES if fit.is_tight:
            return Span(f"tight, {gib(fit.margin)}", tone)
        case Answer.FITS:
            return Span(f"fits, {gib(fit.margin)} left", Tone.LABEL)
        case Answer.AFTER_DROP_CACHES:
            return Span("after drop caches", Tone.LABEL)
        case Answer.IF_STOPPED:
            return said(f"stop {' and '.join(fit.stops)}", tone)
        case Answer.SHORT:
            return Span(f"{gib(fit.short_by)} short", tone)
        case Answer.SEVERAL:
            return Span(f"for {fit.sparks} Sparks", tone)
        case Answer.UNKNOWN:
            return Span("not known", tone)


def fit_line(fit: Fit | None, columns: int, ascii_only: bool) -> list[Row]:
    """Return the answer as a sentence, with its sign."""
    if fit is None:
        return [row(Span("fit  ", Tone.LABEL), Span("being counted ...", Tone.STALE))]
    tone = _look(fit)[2]
    value = Tone.VALUE if tone is Tone.GOOD else tone
    why = f": {fit.cautions[0]}" if fit.answer is Answer.UNKNOWN and not fit.parts and fit.cautions else ""
    why += f": it is tight, {gib(fit.guessed)} of the sum are estimates" if fit.is_tight else ""
    lines = fold(clean(fit.sentence + why), max(8, columns - 7), 0)
    head = row(Span("fit  ", Tone.LABEL), fit_sign(fit, ascii_only), Span(" "))
    return [row(*(head if not at else (Span(" " * 7),)), said(line, value)) for at, line in enumerate(lines)]


def worst_of(fits: Sequence[Fit]) -> Fit:
    """Return the answer that decides where all of them have to be good: what is refused, not known, or tight."""
    return max(fits, key=lambda one: (one.is_refused, one.answer is Answer.UNKNOWN, one.is_tight))


def share_lines(fits: Sequence[Fit | None], columns: int, ascii_only: bool) -> list[Row]:
    """Return whether the Sparks have room for a model together: what it comes to, then each one's share with its sign."""
    known = [one for one in fits if one is not None]
    if len(known) < len(fits) or not known:
        return fit_line(None, columns, ascii_only)
    told = [part for line in together_lines(known) for part in fold(clean(line), max(8, columns - 7), 0)]
    worst = worst_of(known)
    tone = Tone.VALUE if _look(worst)[2] is Tone.GOOD else _look(worst)[2]
    head = row(Span("fit  ", Tone.LABEL), fit_sign(worst, ascii_only), Span(" "))
    rows = [row(*(head if not at else (Span(" " * 7),)), said(line, tone)) for at, line in enumerate(told)]
    names = max(len(one.node) for one in known)
    for one in known:
        begin = row(" " * 5, fit_sign(one, ascii_only), Span(" "), said(f"{one.node:<{names}}  ", Tone.LABEL))
        words = fold(clean(briefly(one)), max(8, columns - width(begin)), 0)
        rows += [row(*(begin if not at else (Span(" " * width(begin)),)), said(line)) for at, line in enumerate(words)]
    return rows


def fit_sum(fit: Fit | None, columns: int) -> list[Row]:
    """Return the sum and what is to be said beside it; nothing where nothing was counted."""
    if fit is None or not fit.parts:
        return []
    lines = [*sum_lines(fit, columns), *note_lines(fit, columns)]
    return [row(said(line, Tone.LABEL)) for line in lines]
