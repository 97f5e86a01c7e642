"""The list of the profiles: a row for each. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sparkctl import engines
from sparkctl.model.phase import Phase
from sparkctl.model.sanitize import sanitize_line
from sparkctl.profiles.library import ProfileEntry
from sparkctl.views.profiles.fit_signs import describe_estimate, estimate_symbol
from sparkctl.views.profiles.lint_view import render_lint_badge
from sparkctl.views.profiles.profiles_screen_model import ProfilesScreenModel, format_ago
from sparkctl.views.profiles.shelf_order import COLUMNS, SORT_BY_COLUMN, find_running_instances, model_title
from sparkctl.views.text.scrolled import visible_range
from sparkctl.views.text.state_symbols import state_symbol
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, make_row, pad_row, sanitized, text_width

_GAP = 2
_LONGEST = 24  # columns of a profile's name
_BRIEF = 9  # columns of an engine's name where room is short
_WIDE_ENGINE_NAMES = 100  # columns from which on engines' names are whole
_USUAL = 80  # columns from which on names are whole
_CHECKED = 60  # columns from which on the check has a place there
_LEAST_MODEL = 20  # columns of the model: of fewer nobody would read which one it is
_STARTED, _FAILED = 16, 22  # columns of ``● 6:55, 12 d ago``, and where there is room of ``✕ cuda-oom, 12 min ago``
_WORDS = 26  # columns of ``spark1: after drop caches``
_NAME, _ENGINE, _MODEL, _NODES, _CHECK, _FITS, _RUNS, _LAST = range(len(COLUMNS))


def render_profile_list(shelf: ProfilesScreenModel, columns: int, lines: int) -> list[TextRow]:
    """Return at most ``lines`` rows: what is filtered by, the heads, and a row for each that has room."""
    shown = shelf.shown
    heads = _render_column_titles(shelf)
    wide = _widths(shelf, columns)
    rows = []
    if shelf.pattern is not None:
        count = f"{len(shown)}/{len(shelf.entries or ())}"
        rows.append(
            make_row(
                " ",
                Span(f"/ {count}  ", TextStyle.ACCENT),
                sanitized(shelf.pattern.fault or shelf.pattern.typed, TextStyle.VALUE),
            )
        )
    rows.append(_line(heads, wide, "   "))
    chosen = shelf.selected
    mark = ">" if shelf.ascii_only else "▸"
    at = 0 if chosen is None else shown.index(chosen)
    for one in [shown[each] for each in visible_range(len(shown), at, max(1, lines - len(rows)))]:
        line = _cells(one, shelf, has_words=wide[_FITS] > _WORDS)
        here = f" {mark} " if one is chosen else "   "
        whole = _line(line, wide, here, one is chosen)
        rows.append(whole if one.profile is not None else _broken(one, line, wide, here, one is chosen))
    return rows


def _render_column_titles(shelf: ProfilesScreenModel) -> list[TextRow]:
    return [(Span(head + _sorted_by(head, shelf), TextStyle.LABEL),) for head in COLUMNS]


def _sorted_by(head: str, shelf: ProfilesScreenModel) -> str:
    return "" if SORT_BY_COLUMN.get(head) is not shelf.order else " v" if shelf.ascii_only else " ↓"


def _widths(shelf: ProfilesScreenModel, columns: int) -> list[int]:
    """Return how wide each column is, 0 for one that is left out. It depends on what there is, not on what a filter leaves or
    what runs just now: nothing jumps. The model comes before the number of nodes and the words of the fit."""
    every = [one.profile for one in shelf.entries or () if one.profile is not None]
    sparks = max((text_width(sanitize_line(name)) for name in shelf.names), default=0)
    wide = [0] * len(COLUMNS)
    names = max((text_width(sanitize_line(one.summary.name)) for one in shelf.entries or ()), default=0)
    wide[_NAME] = min(max(names, len("profile ↓")), _LONGEST if columns >= _USUAL else max(10, columns // 4))
    engine = max((text_width(engines.engine_title(one.engine)) for one in every), default=0)
    wide[_ENGINE] = max(len("engine ↓"), engine if columns >= _WIDE_ENGINE_NAMES else min(engine, _BRIEF))
    wide[_CHECK] = len("check") if columns >= _CHECKED else 0
    wide[_FITS] = max(len("fits"), len(shelf.names)) if shelf.fits else 0  # without a Spark there is none to fit on
    wide[_RUNS] = max(len("runs on ↓"), sparks + 2)
    wide[_LAST] = _FAILED if columns >= _WIDE_ENGINE_NAMES else _STARTED
    models = max((text_width(sanitize_line(model_title(one) or "")) for one in every), default=0)
    for nodes, has_words in ((len("nodes"), True), (len("nodes"), False), (0, False)):
        fits = len(shelf.names) + 1 + _WORDS if has_words and shelf.fits else wide[_FITS]
        tried = [*wide[:_MODEL], 0, nodes, wide[_CHECK], fits, *wide[_RUNS:]]
        rest = columns - 3 - sum(tried) - _GAP * sum(1 for each in tried if each)
        if rest >= _LEAST_MODEL:
            tried[_MODEL] = max(_LEAST_MODEL, min(models, rest))
            return tried
    return wide


def _line(parts: Sequence[TextRow], wide: Sequence[int], mark: str, mine: bool = False) -> TextRow:
    spans: list[Span] = [Span(mark, TextStyle.ACCENT)]
    for at, part in enumerate(parts):
        if at < len(wide) and not wide[at]:
            continue
        if mine and not at:
            part = tuple(Span(one.text, TextStyle.STRONG) for one in part)
        spans += part if at == len(parts) - 1 else [*pad_row(part, wide[at]), Span(" " * _GAP)]
    return tuple(spans)


def _cells(one: ProfileEntry, shelf: ProfilesScreenModel, *, has_words: bool) -> list[TextRow]:
    profile, name = one.profile, one.summary.name
    ends = [_running_nodes(one, shelf), _last_start(name, shelf)]  # what is broken now may have been started before
    if profile is None:
        return [make_row(sanitized(name, TextStyle.VALUE)), *([()] * (_RUNS - 1)), *ends]
    return [
        make_row(sanitized(profile.name, TextStyle.VALUE)),
        make_row(sanitized(engines.engine_title(profile.engine), TextStyle.LABEL)),
        make_row(sanitized(model_title(profile) or "—", TextStyle.LABEL)),
        make_row(Span(str(profile.nodes), TextStyle.LABEL)),
        render_lint_badge(shelf.checks.get(name), shelf.ascii_only),
        _estimate_cells(one, shelf, has_words=has_words),
        *ends,
    ]


def _broken(one: ProfileEntry, line: Sequence[TextRow], wide: Sequence[int], mark: str, mine: bool) -> TextRow:
    """Return the row of a broken one: its first fault in place of engine and model."""
    first = one.summary.faults[0]
    more = f" (+{len(one.summary.faults) - 1})" if len(one.summary.faults) > 1 else ""
    place = first.place.file if first.place.line is None else f"line {first.place.line}"
    if first.place.file != str(one.summary.origin) and first.place.line is not None:
        place = f"{first.place.file.rpartition('/')[2]}:{first.place.line}"  # of a profile that it extends
    fault = make_row(sanitized(f"broken: {place}: {first.message}{more}", TextStyle.BAD))
    if all(
        span.tone is TextStyle.STALE for part in line[_RUNS:] for span in part
    ):  # it runs nowhere, and never was started
        return _line([line[0], fault], wide, mark, mine)
    between = [each for each in wide[1:_RUNS] if each]
    room = sum(between) + _GAP * (len(between) - 1)
    return _line([line[0], fault, *line[_RUNS:]], [wide[0], room, *wide[_RUNS:]], mark, mine)


def _estimate_cells(one: ProfileEntry, shelf: ProfilesScreenModel, *, has_words: bool) -> TextRow:
    """Return a sign for each node, and where there is room the words for the selected one, which they name."""
    fits = {node: shelf.fits[one.summary.name, node] for node in shelf.names if (one.summary.name, node) in shelf.fits}
    signs = tuple(estimate_symbol(fit, shelf.ascii_only) for fit in fits.values())
    if not has_words or shelf.node not in fits:
        return signs
    return (*signs, Span(" "), sanitized(f"{shelf.node}: ", TextStyle.LABEL), describe_estimate(fits[shelf.node]))


def _running_nodes(one: ProfileEntry, shelf: ProfilesScreenModel) -> TextRow:
    running = find_running_instances(one.summary.name, shelf.views)
    if not running:
        known = shelf.views and all(view.docker_known and view.instances_seen is not None for view in shelf.views)
        return make_row(Span("" if known else "?", TextStyle.STALE))
    ready = all(one.phase is Phase.READY for one in running)
    words = ", ".join(f"{state_symbol(one.phase or Phase.UNKNOWN, shelf.ascii_only)} {one.node}" for one in running)
    return make_row(sanitized(words, TextStyle.GOOD if ready else TextStyle.ATTENTION))


def _last_start(name: str, shelf: ProfilesScreenModel) -> TextRow:
    one = next((each for each in shelf.last if each.profile == name), None)
    if one is None:
        return make_row(Span("never", TextStyle.STALE))
    if one.failed is not None:
        sign = state_symbol(Phase.FAILED, shelf.ascii_only)
        return make_row(sanitized(f"{sign} {one.failed}, {format_ago(one.when, shelf.now)}", TextStyle.BAD))
    sign = state_symbol(Phase.READY, shelf.ascii_only)
    took = "" if one.seconds is None else f"{_clock(one.seconds)}, "
    return make_row(sanitized(f"{sign} {took}{format_ago(one.when, shelf.now)}", TextStyle.LABEL))


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
