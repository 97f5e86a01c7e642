"""A memory estimate as text: what the profile needs, what the node has, and the margin."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from sparkctl.model.memory_fit import EstimatePart, EstimateSource, FitOutcome, MemoryBudget, MemoryFit
from sparkctl.model.missing_part import MissingPart
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import GIB, format_gib
from sparkctl.model.verdict import FieldChange
from sparkctl.views.text.line_wrap import wrap_line, wrap_text
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, make_row, measure_text, pad_text, sanitize_span

_SOURCE_NAMES = {
    EstimateSource.MEASURED: "measured",
    EstimateSource.HEADERS: "by its index",
    EstimateSource.HUB: "by the Hub",
    EstimateSource.CONFIG: "config.json",
    EstimateSource.FLAGS: "flags",
    EstimateSource.PROFILE: "profile",
    EstimateSource.HISTORY: "seen before",
    EstimateSource.ESTIMATE: "estimate",
}
_FIGURE_COLUMNS = 9
_MIN_HOW_COLUMNS = 24  # of the source of a figure beside its name


def format_estimate(one: MemoryFit, columns: int | None, before: Sequence[MemoryFit] = ()) -> list[str]:
    """Return the estimate, one line per part with its source and formula, wrapped to ``columns`` if given.

    If an estimate in ``before`` has the same needs, only the memory of this Spark is written.
    """
    claim = _format_claim(one, None)
    same = next((other for other in before if _format_claim(other, None) == claim), None)
    if same is not None:
        words = f"{one.profile} claims the same on {one.node} as on {same.node}"
        words += f": {format_gib(one.needed_bytes)}" if one.needed_bytes else ""
        lines = wrap_line(words, columns)
    else:
        lines = _format_claim(one, columns)
    if one.standing is not None:
        lines.append(f"{one.node} has")
        lines += [
            each for line in _format_budget(one.standing) for each in wrap_line(line, columns, _FIGURE_COLUMNS + 2)
        ]
        if one.floor:
            lines.append(f"{_format_figure(-one.floor)}  floor: to stay available")
    if one.left_bytes is not None:
        spare = "left" if _is_share_too_small(one) else "to spare"
        lines.append(f"{_format_figure(one.left_bytes)}  {spare if one.left_bytes >= 0 else 'short'}")
    if _is_share_too_small(one):
        lines += wrap_line(
            f"{_format_figure(one.margin)}  short in its share: {sanitize_line(one.cautions[0])}",
            columns,
            _FIGURE_COLUMNS + 2,
        )
    return lines


def _is_share_too_small(one: MemoryFit) -> bool:
    """Tell whether it is the engine's share that does not hold its content, whatever the Spark has beside it."""
    return one.margin != one.left_bytes and bool(one.cautions)


def _format_claim(one: MemoryFit, columns: int | None) -> list[str]:
    names = max((measure_text(sanitize_line(part.name)) + 2 * part.within for part in one.parts), default=0)
    lines = [f"{one.profile} claims" + (f" of each of {one.sparks} Sparks" if one.sparks > 1 else "")]
    lines += [line for part in one.parts for line in _format_part(part, names, columns)]
    return lines if one.needed_bytes is None else [*lines, f"{_format_figure(one.needed_bytes)}  together"]


def format_estimate_notes(one: MemoryFit, columns: int | None, before: Sequence[MemoryFit] = ()) -> list[str]:
    """Return the notes of an estimate that are not yet in those of ``before``."""
    notes = {note for other in before for note in _list_notes(other)}
    return [line for note in _list_notes(one) if note not in notes for line in wrap_line(f"note: {note}", columns, 6)]


def _list_notes(one: MemoryFit) -> list[str]:
    unsaid = one.cautions[1:] if _is_share_too_small(one) else one.cautions  # the first stands beside its figure
    notes = [sanitize_line(caution) for caution in unsaid]
    if one.largest is not None:
        notes.append(f"the largest {one.largest.field.removeprefix('args.')} to set now is {one.largest.value}")
    if one.least is not None:
        notes.append(f"the smallest {one.least.field.removeprefix('args.')} that holds it is {one.least.value}")
    return notes


def format_estimate_summary(
    fits: Sequence[MemoryFit],
    missing: Mapping[str, Sequence[MissingPart]],
    columns: int | None = None,
    *,
    is_proposal: bool = False,
    typed: str | None = None,
) -> list[str]:
    """Return a summary, one line per Spark, if there are several, or if something is not there, wrapped to ``columns`` if given.

    ``missing``: what is not there, by node. ``is_proposal``: nobody expects it to be there. ``typed`` as in `format_group_answer`.
    """
    if not fits or (len(fits) == 1 and fits[0].sparks == 1 and not missing.get(fits[0].node)):
        return []
    names = max(measure_text(one.node) for one in fits)
    shown = fits if len(fits) > 1 or missing.get(fits[0].node) else ()
    lines = [
        line
        for one in shown
        for line in wrap_line(
            f"{pad_text(one.node, names)}  {_describe_start(one, missing.get(one.node, ()), is_proposal)}",
            columns,
            names + 2,
        )
    ]
    return [*lines, *(line for answer in format_group_answer(fits, typed) for line in wrap_line(answer, columns))]


def _describe_start(one: MemoryFit, parts: Sequence[MissingPart], is_proposal: bool) -> str:
    """Return whether it can start, with the answer about its memory."""
    lacking = describe_missing_kinds(parts)
    if lacking is None:
        return describe_answer(one)
    return (
        f"{describe_answer(one)}; {lacking} yet" if is_proposal else f"cannot start: {lacking}; {describe_answer(one)}"
    )


def describe_missing_kinds(parts: Sequence[MissingPart]) -> str | None:
    """Return ``the image and the model are not there``; None where nothing is missing that a start needs."""
    names = [f"the {one.kind.replace('-', ' ')}" for one in parts if one.is_required]
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} not there" if names else None


def format_group_answer(fits: Sequence[MemoryFit], typed: str | None = None) -> list[str]:
    """Return the answer for a model on several Sparks; "" for a model on one. ``typed``: the profile as the operator named it."""
    sparks = max(one.sparks for one in fits)
    if sparks == 1:
        return []
    needs = [one.needed_bytes for one in fits if one.needed_bytes is not None]
    what = f"{fits[0].profile} needs {sparks} Sparks" + (f": {format_gib(max(needs))} on each" if needs else "")
    bad = [one.node for one in fits if one.is_refused]
    unknown = [one.node for one in fits if one.answer is FitOutcome.UNKNOWN]
    if len(fits) < sparks:
        end = f"; only {' and '.join(one.node for one in fits)} {'was' if len(fits) == 1 else 'were'} asked"
    elif len(fits) - len(bad) < sparks:
        end = f"; it does not fit on {' and '.join(bad)} now"
    elif unknown:
        end = f"; whether it fits on {' and '.join(unknown)} is not known"
    else:
        end = f"; it fits on {' and '.join(one.node for one in fits if not one.is_refused)} together"
    is_for_one = all(one.answer is FitOutcome.SEVERAL for one in fits)
    if not is_for_one:
        return [what + end]
    nodes = [*(one.node for one in fits[:sparks]), *["NODE"] * (sparks - len(fits))]
    words = ["sparkctl", "up", typed or fits[0].profile, *(word for one in nodes for word in ("--node", one))]
    return [what + end, f"to spread it over them: {shlex.join([*words, '--set', f'nodes={sparks}'])}"]


def describe_answer(one: MemoryFit) -> str:
    """Return an answer in a few words."""
    match one.answer:
        case FitOutcome.FITS:
            return f"fits, {format_gib(one.margin)} to spare"
        case FitOutcome.AFTER_DROP_CACHES:
            return f"fits once the page cache is dropped, {format_gib(one.margin)} to spare"
        case FitOutcome.IF_STOPPED:
            return f"fits only without {sanitize_line(' and '.join(one.stops))}, {one.shortfall_phrase}"
        case FitOutcome.SHORT:
            return f"does not fit, {one.shortfall_phrase}"
        case FitOutcome.SEVERAL:
            return f"not alone: it needs {one.sparks} Sparks"
        case FitOutcome.UNKNOWN:
            return "not known"


def _format_part(part: EstimatePart, names: int, columns: int | None) -> list[str]:
    how = f"{_SOURCE_NAMES[part.obtained]}: {sanitize_line(part.words)}" if part.words else _SOURCE_NAMES[part.obtained]
    name = f"{'· ' if part.within else ''}{sanitize_line(part.name)}"
    figure = (
        f"{'':{_FIGURE_COLUMNS}}  {_format_gib_number(part.size):>5}"
        if part.within
        else f"{_format_figure(part.size)}       "
    )
    begin = f"{figure}  {pad_text(name, names)}  "
    width = measure_text(begin)
    rows = wrap_line(how, None if columns is None else max(columns - width, _MIN_HOW_COLUMNS), 0)
    if columns is not None and width + max(map(measure_text, rows)) > columns:  # below its name, as a long path
        below = " " * (_FIGURE_COLUMNS + 4)
        return [*wrap_line(begin.rstrip(), columns), *wrap_line(below + how, columns, len(below))]
    first, *rest = rows
    return [begin + first, *(" " * width + line for line in rest)]


def _format_budget(there: MemoryBudget) -> list[str]:
    lines = [
        f"{_format_figure(there.available)}  available of {format_gib(there.total)}, {format_gib(there.droppable)} of it page cache to be dropped"
    ]
    for one in there.holders:
        name, owner = sanitize_line(one.name), "" if one.ours else ", not started by sparkctl"
        if one.is_replaced:
            lines.append(f"{_format_figure(one.held, sign='+')}  back from {name}, which is replaced")
        elif one.coming:
            lines.append(f"{_format_figure(-one.coming)}  {name} will still take")
        else:
            lines.append(f"{'':{_FIGURE_COLUMNS}}  {_format_gib_number(one.held):>5}  · held by {name}{owner}")
    if there.reserved:
        lines.append(f"{_format_figure(-there.reserved)}  for what it needs, which starts first")
    return lines


def _format_figure(size: int | None, sign: str = "") -> str:
    return f"{_format_gib_number(size, sign):>{_FIGURE_COLUMNS}}"


def _format_gib_number(size: int | None, sign: str = "") -> str:
    return "?" if size is None else f"{sign}{size / GIB:.1f}"


def build_estimate_json(one: MemoryFit, commands: Sequence[str]) -> dict[str, object]:
    """Return a memory estimate for ``--json``: its fields and the values computed from them; sizes in bytes."""
    return {
        "node": one.node,
        "answer": one.answer.value,
        "need": one.needed_bytes,
        "margin": one.margin,
        "short_by": one.missing_bytes,
        "floor": one.floor,
        "sparks": one.sparks,
        "sentence": one.summary_sentence,
        "stops": list(one.stops),
        "largest": _build_setting_json(one.largest),
        "least": _build_setting_json(one.least),
        "lacking": one.lacking,
        "absent": one.absent,
        "cautions": list(one.cautions),
        "commands": list(commands),
        "parts": [
            {
                "name": each.name,
                "size": each.size,
                "obtained": each.obtained.value,
                "words": each.words,
                "within": each.within,
            }
            for each in one.parts
        ],
        "standing": None if one.standing is None else _build_budget_json(one.standing),
    }


def _build_setting_json(one: FieldChange | None) -> dict[str, str] | None:
    return None if one is None else {"field": one.field, "value": one.value}


def _build_budget_json(there: MemoryBudget) -> dict[str, object]:
    holders = [
        {"name": one.name, "ours": one.ours, "held": one.held, "coming": one.coming, "is_replaced": one.is_replaced}
        for one in there.holders
    ]
    return {
        "total": there.total, "available": there.available, "droppable": there.droppable, "returned": there.returned_bytes,
        "coming": there.pending_bytes, "to_be_had": there.available_after_drop, "holders": holders,
    }  # fmt: skip


_OUTCOME_SYMBOLS = {
    FitOutcome.FITS: ("✓", TextStyle.GOOD),
    FitOutcome.AFTER_DROP_CACHES: ("↓", TextStyle.GOOD),
    FitOutcome.IF_STOPPED: ("▲", TextStyle.ATTENTION),
    FitOutcome.SHORT: ("✕", TextStyle.BAD),
    FitOutcome.SEVERAL: ("–", TextStyle.LABEL),
    FitOutcome.UNKNOWN: ("?", TextStyle.STALE),
}


_TIGHT_SYMBOL = "△", TextStyle.ATTENTION


def _choose_symbol(fit: MemoryFit) -> tuple[str, TextStyle]:
    return _TIGHT_SYMBOL if fit.is_tight else _OUTCOME_SYMBOLS[fit.answer]


def render_estimate_symbol(fit: MemoryFit | None) -> Span:
    """Return the symbol of an answer; a dot while it is calculated."""
    if fit is None:
        return Span("·", TextStyle.STALE)
    return Span(*_choose_symbol(fit))


def format_symbol_legend(*, is_counting: bool = False) -> TextRow:
    """Return the legend of the symbols; ``is_counting``: with the one of an estimate that is not there yet."""
    legend = (
        (FitOutcome.FITS, "fits"),
        (FitOutcome.AFTER_DROP_CACHES, "drop caches"),
        (FitOutcome.IF_STOPPED, "stop first"),
        (FitOutcome.SHORT, "too big"),
        (FitOutcome.SEVERAL, "for several"),
    )
    parts = [(_OUTCOME_SYMBOLS[answer], words) for answer, words in legend]
    parts[1:1] = [(_TIGHT_SYMBOL, "tight")]
    parts += [(("·", TextStyle.STALE), "calculating")] if is_counting else []
    return tuple(
        span for (sign, tone), words in parts for span in (Span(f"  {sign}", tone), Span(f" {words}", TextStyle.LABEL))
    )


def describe_estimate(fit: MemoryFit | None) -> Span:
    """Return an answer in a few words."""
    if fit is None:
        return Span("calculating", TextStyle.STALE)
    tone = _choose_symbol(fit)[1]
    match fit.answer:
        case FitOutcome.FITS | FitOutcome.AFTER_DROP_CACHES if fit.is_tight:
            return Span(f"tight, {format_gib(fit.margin)}", tone)
        case FitOutcome.FITS:
            return Span(f"fits, {format_gib(fit.margin)} left", TextStyle.LABEL)
        case FitOutcome.AFTER_DROP_CACHES:
            return Span("after drop caches", TextStyle.LABEL)
        case FitOutcome.IF_STOPPED:
            return sanitize_span(f"stop {' and '.join(fit.stops)}", tone)
        case FitOutcome.SHORT:
            return Span(f"{format_gib(fit.missing_bytes)} short", tone)
        case FitOutcome.SEVERAL:
            return Span(f"for {fit.sparks} Sparks", tone)
        case FitOutcome.UNKNOWN:
            return Span("not known", tone)


def render_estimate_line(fit: MemoryFit | None, columns: int) -> list[TextRow]:
    """Return the answer as a sentence with its symbol."""
    if fit is None:
        return [make_row(Span("fit  ", TextStyle.LABEL), Span("calculating ...", TextStyle.STALE))]
    tone = _choose_symbol(fit)[1]
    value = TextStyle.VALUE if tone is TextStyle.GOOD else tone
    why = f": {fit.cautions[0]}" if fit.answer is FitOutcome.UNKNOWN and not fit.parts and fit.cautions else ""
    why += f": it is tight, {format_gib(fit.estimated_bytes)} of the sum are estimates" if fit.is_tight else ""
    return wrap_text(fit.summary_sentence + why, columns, value, head=_render_fit_label(fit))


def _render_fit_label(fit: MemoryFit) -> TextRow:
    return make_row(Span("fit  ", TextStyle.LABEL), render_estimate_symbol(fit), " ")


def find_worst_estimate(fits: Sequence[MemoryFit]) -> MemoryFit:
    """Return the deciding answer if all must be good: a refused, unknown or tight one."""
    return max(fits, key=lambda one: (one.is_refused, one.answer is FitOutcome.UNKNOWN, one.is_tight))


def render_rank_estimates(fits: Sequence[MemoryFit | None], columns: int) -> list[TextRow]:
    """Return whether a model fits on its Sparks together: the result, then each Spark with its symbol."""
    known = [one for one in fits if one is not None]
    if len(known) < len(fits) or not known:
        return render_estimate_line(None, columns)
    worst = find_worst_estimate(known)
    tone = TextStyle.VALUE if _choose_symbol(worst)[1] is TextStyle.GOOD else _choose_symbol(worst)[1]
    rows = wrap_text("\n".join(format_group_answer(known)), columns, tone, head=_render_fit_label(worst))
    names = max(measure_text(one.node) for one in known)
    for one in known:
        begin = make_row(
            " " * 5,
            render_estimate_symbol(one),
            Span(" "),
            sanitize_span(f"{pad_text(one.node, names)}  ", TextStyle.LABEL),
        )
        rows += wrap_text(describe_answer(one), columns, head=begin)
    return rows


def render_estimate_detail(fit: MemoryFit | None, columns: int) -> list[TextRow]:
    """Return the estimate with its notes; nothing without an estimate."""
    if fit is None or not fit.parts:
        return []
    lines = [*format_estimate(fit, columns), *format_estimate_notes(fit, columns)]
    return [make_row(sanitize_span(line, TextStyle.LABEL)) for line in lines]
