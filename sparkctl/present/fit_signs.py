"""Whether a profile fits on a node: a sign in the list, words beside it, the whole sum where there is room. Pure."""

from __future__ import annotations

from sparkctl.model.fit import Answer, Fit
from sparkctl.model.text import clean
from sparkctl.model.units import gib
from sparkctl.present.fit_rows import note_lines, sum_lines
from sparkctl.present.fold import fold
from sparkctl.present.spans import Row, Span, Tone, row, said

_SIGNS = {
    Answer.FITS: ("✓", "+", Tone.GOOD), Answer.AFTER_DROP_CACHES: ("↓", "v", Tone.GOOD),
    Answer.IF_STOPPED: ("▲", "!", Tone.ATTENTION), Answer.SHORT: ("✕", "x", Tone.BAD),
    Answer.SEVERAL: ("–", "-", Tone.LABEL), Answer.UNKNOWN: ("?", "?", Tone.STALE),
}  # fmt: skip


def fit_sign(fit: Fit | None, ascii_only: bool) -> Span:
    """Return the one character for an answer; one that is still being counted is a dot."""
    if fit is None:
        return Span("." if ascii_only else "·", Tone.STALE)
    sign, plain, tone = _SIGNS[fit.answer]
    return Span(plain if ascii_only else sign, tone)


def fit_legend(ascii_only: bool) -> Row:
    """Return what the signs mean."""
    told = (
        (Answer.FITS, "fits"), (Answer.AFTER_DROP_CACHES, "drop caches"), (Answer.IF_STOPPED, "stop first"),
        (Answer.SHORT, "too big"), (Answer.SEVERAL, "for several"),
    )  # fmt: skip
    parts = [(_SIGNS[answer], words) for answer, words in told]
    signs = [(plain if ascii_only else sign, tone, words) for (sign, plain, tone), words in parts]
    return tuple(
        span for sign, tone, words in signs for span in (Span(f"  {sign}", tone), Span(f" {words}", Tone.LABEL))
    )


def fit_words(fit: Fit | None) -> Span:
    """Return an answer in a few words."""
    if fit is None:
        return Span("being counted", Tone.STALE)
    tone = _SIGNS[fit.answer][2]
    match fit.answer:
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
    tone = _SIGNS[fit.answer][2]
    value = Tone.VALUE if tone is Tone.GOOD else tone
    why = f": {fit.cautions[0]}" if fit.answer is Answer.UNKNOWN and not fit.parts and fit.cautions else ""
    lines = fold(clean(fit.sentence + why), max(8, columns - 7), 0)
    head = row(Span("fit  ", Tone.LABEL), fit_sign(fit, ascii_only), Span(" "))
    return [row(*(head if not at else (Span(" " * 7),)), said(line, value)) for at, line in enumerate(lines)]


def fit_sum(fit: Fit | None, columns: int) -> list[Row]:
    """Return the sum and what is to be said beside it; nothing where nothing was counted."""
    if fit is None or not fit.parts:
        return []
    lines = [*sum_lines(fit, columns), *note_lines(fit, columns)]
    return [row(said(line, Tone.LABEL)) for line in lines]
