"""The profiles screen: its state, and as rows the list and the selected profile in full."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from itertools import zip_longest

from sparkctl import engines
from sparkctl.engines.lint import LintSeverity
from sparkctl.history.operation_history import LastStart
from sparkctl.logs.search import FilterPattern
from sparkctl.model.finding import Severity
from sparkctl.model.instance import InstanceView
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.memory_fit import MemoryFit
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase
from sparkctl.model.profile import Profile
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import format_ago, format_duration, format_gib
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.profiles.profile_library import ProfileEntry
from sparkctl.profiles.profile_lint import LintResult
from sparkctl.profiles.yaml_reader import FilePosition
from sparkctl.views.profiles.launch_plan_view import describe_rank_nodes, render_budget_before_start
from sparkctl.views.profiles.lint_view import render_diagnostics, render_faults, render_lint_badge, render_lint_summary
from sparkctl.views.profiles.memory_estimate_view import (
    describe_estimate,
    format_symbol_legend,
    render_estimate_detail,
    render_estimate_line,
    render_estimate_symbol,
    render_rank_estimates,
)
from sparkctl.views.profiles.profile_view import summarize_reference
from sparkctl.views.text.frame_layout import draw_page, pad_screen
from sparkctl.views.text.line_wrap import wrap_text
from sparkctl.views.text.styled_text import (
    ScrollPage,
    Span,
    TextRow,
    TextStyle,
    compute_visible_range,
    get_state_symbol,
    join_text,
    make_row,
    measure_row,
    measure_text,
    pad_row,
    sanitize_span,
    truncate_row,
)


class ProfileSort(StrEnum):
    """The order of the list."""

    NAME = "name"
    ENGINE = "engine"
    MODEL = "model"
    RUNS = "where it runs"
    STARTED = "last start"


COLUMN_TITLES = ("profile", "engine", "model", "nodes", "check", "fits", "runs on", "last start")
SORT_BY_COLUMN = {
    "profile": ProfileSort.NAME,
    "engine": ProfileSort.ENGINE,
    "model": ProfileSort.MODEL,
    "runs on": ProfileSort.RUNS,
    "last start": ProfileSort.STARTED,
}


def make_sort_key(
    order: ProfileSort, one: ProfileEntry, views: Sequence[NodeTelemetryView], last: Sequence[LastStart]
) -> tuple[bool, float, str]:
    """Return the sort key; broken profiles come last unless sorted by name."""
    profile = one.profile
    if profile is None or order is ProfileSort.NAME:
        return order is not ProfileSort.NAME, 0.0, one.summary.name
    match order:
        case ProfileSort.ENGINE:
            return False, 0.0, f"{profile.engine} {profile.name}"
        case ProfileSort.MODEL:
            return False, 0.0, f"{(get_model_title(profile) or '~').lower()} {profile.name}"
        case ProfileSort.RUNS:
            return False, 0.0 if find_running_instances(profile.name, views) else 1.0, profile.name
        case ProfileSort.STARTED:
            when = max((each.when for each in last if each.profile == profile.name), default=0.0)
            return False, -when, profile.name


def get_model_title(profile: Profile | None) -> str | None:
    """Return the profile's title, else its model."""
    if profile is None:
        return None
    path = profile.model.path
    return profile.title or (path.rstrip("/").rpartition("/")[2] if path else profile.model.served_name)


def find_running_instances(name: str, views: Sequence[NodeTelemetryView]) -> list[InstanceView]:
    """Return sparkctl's instances that were started from a profile, or have its name."""
    return [
        one for view in views for one in view.instances if one.ours and one.is_alive and name in (one.profile, one.name)
    ]


@dataclass(frozen=True, slots=True)
class ProfilePreview:
    """What a start on a node would run: the lines of the command. ``trouble`` is why it would be refused; ``note``
    names parts that were not read from a Spark. With ``trouble`` the lines are incomplete."""

    lines: tuple[str, ...] = ()
    trouble: str | None = None
    hint: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilesScreenModel:
    """The state of the profiles screen. ``entries`` is None before they are read. ``further``: rows scrolled.
    ``found``: the matches of ``pattern``, if known. ``sources``: lines of files that have faults, secrets masked.
    ``checks``: lint results by name; a missing one is not checked yet. ``fits``: memory estimates by name and node;
    None while calculated. ``visible_entries``: the profiles that match the filter, sorted; a model is asked for them often."""

    entries: tuple[ProfileEntry, ...] | None
    chosen: str | None = None
    views: tuple[NodeTelemetryView, ...] = ()
    names: tuple[NodeName, ...] = ()
    node: NodeName | None = None
    last: tuple[LastStart, ...] = ()
    preview: ProfilePreview = field(default_factory=ProfilePreview)
    warnings: tuple[str, ...] = ()
    checks: Mapping[str, LintResult] = field(default_factory=dict)
    fits: Mapping[tuple[str, NodeName], MemoryFit | None] = field(default_factory=dict)
    sources: Mapping[FilePosition, str] = field(default_factory=dict)
    pattern: FilterPattern | None = None
    found: tuple[ProfileEntry, ...] | None = None
    now: float = 0.0
    further: int = 0
    order: ProfileSort = ProfileSort.NAME
    visible_entries: tuple[ProfileEntry, ...] = field(init=False)

    def __post_init__(self) -> None:
        entries = filter_profiles(self.entries or (), self.pattern) if self.found is None else self.found
        by_name = self.order is ProfileSort.NAME
        ordered = sorted(
            entries,
            key=lambda one: (
                by_name and not find_running_instances(one.summary.name, self.views),
                make_sort_key(self.order, one, self.views, self.last),
            ),
        )  # by name, what runs comes first
        object.__setattr__(self, "visible_entries", tuple(ordered))

    @property
    def selected_index(self) -> int:
        """The position of the selected profile among the visible ones."""
        chosen = self.selected
        return 0 if chosen is None else self.visible_entries.index(chosen)

    @property
    def selected_lint(self) -> LintResult | None:
        """The lint result of the selected profile; None if not known yet."""
        return None if self.selected is None else self.checks.get(self.selected.summary.name)

    @property
    def selected(self) -> ProfileEntry | None:
        """The selected profile, else the first visible one."""
        shown = self.visible_entries
        return next((one for one in shown if one.summary.name == self.chosen), shown[0] if shown else None)


def filter_profiles(entries: tuple[ProfileEntry, ...], pattern: FilterPattern | None) -> tuple[ProfileEntry, ...]:
    if pattern is None:
        return entries
    return tuple(entries[at] for at in pattern.select_indices([_make_filter_text(one) for one in entries]))


def _make_filter_text(one: ProfileEntry) -> str:
    parts = (one.summary.name, one.summary.engine, one.summary.title, get_model_title(one.profile))
    return sanitize_line(" ".join(part for part in parts if part))


_GAP_COLUMNS = 2
_MAX_PROFILE_COLUMNS = 24  # width of a profile's name
_SHORT_ENGINE_COLUMNS = 9  # width of an engine's name if there is little room
_FULL_ENGINE_MIN_COLUMNS = 100  # from this width on, engine names are shown in full
_FULL_NAME_MIN_COLUMNS = 80  # from this width on, names are shown in full
_CHECK_MIN_COLUMNS = 60  # from this width on, the check has a column
_MIN_MODEL_COLUMNS = 20  # smallest width of the model's column
_WHOLE_MODEL_COLUMNS, _MOST_MODEL_COLUMNS = (
    48,
    36,
)  # of the model's column, before an estimate has words; before nodes have a column
_MAX_HEAD_COLUMNS = 3  # of the head of a Spark's estimate
_SHORT_START_COLUMNS, _LONG_START_COLUMNS = (
    16,
    22,
)  # columns of ``● 6:55, 12 d ago``, and where there is room of ``✕ cuda-oom, 12 min ago``
_FIT_TEXT_COLUMNS = 26  # columns of ``spark1: after drop caches``
_NAME_INDEX, _ENGINE_INDEX, _MODEL_INDEX, _NODES_INDEX, _CHECK_INDEX, _FITS_INDEX, _RUNS_INDEX, _LAST_INDEX = range(
    len(COLUMN_TITLES)
)


def render_profile_list(shelf: ProfilesScreenModel, columns: int, lines: int) -> list[TextRow]:
    """Return at most ``lines`` rows: the filter, the column heads, and the visible profiles."""
    shown = shelf.visible_entries
    wide = _compute_column_widths(shelf, columns)
    heads = _render_column_titles(shelf, has_words=wide[_FITS_INDEX] > _FIT_TEXT_COLUMNS)
    rows = []
    if shelf.pattern is not None:
        count = f"{len(shown)}/{len(shelf.entries or ())}"
        rows.append(
            make_row(
                " ",
                Span(f"/ {count}  ", TextStyle.ACCENT),
                sanitize_span(shelf.pattern.fault or shelf.pattern.typed, TextStyle.VALUE),
            )
        )
    rows.append(_render_list_row(heads, wide, "   "))
    if not shown and shelf.pattern is not None and shelf.entries:
        rows.append(make_row("   ", Span("No profile matches. Esc clears the filter.", TextStyle.STALE)))
    chosen = shelf.selected
    mark = "▸"
    at = 0 if chosen is None else shown.index(chosen)
    for one in [shown[each] for each in compute_visible_range(len(shown), at, max(1, lines - len(rows)))]:
        line = _render_cells(one, shelf, has_words=wide[_FITS_INDEX] > _FIT_TEXT_COLUMNS)
        here = f" {mark} " if one is chosen else "   "
        whole = _render_list_row(line, wide, here, one is chosen)
        rows.append(whole if one.profile is not None else _render_broken_profile(one, line, wide, here, one is chosen))
    return rows


def _render_column_titles(shelf: ProfilesScreenModel, *, has_words: bool) -> list[TextRow]:
    fits = " ".join((*_shorten_node_names(shelf), *(["fits"] if has_words else [])))
    return [
        (Span(fits or head if head == "fits" else head + _format_sort_mark(head, shelf), TextStyle.LABEL),)
        for head in COLUMN_TITLES
    ]


def _shorten_node_names(shelf: ProfilesScreenModel) -> tuple[str, ...]:
    """Return a short head for each Spark's estimate, such as ``s1`` and ``s2``; () where there is no such."""
    names = [sanitize_line(name) for name in shelf.names]
    shared = next((at for at, each in enumerate(zip(*names, strict=False)) if len(set(each)) > 1), 0)
    short = tuple(f"{name[:1] if shared else ''}{name[shared:]}" for name in names)
    is_short = all(0 < measure_text(one) <= _MAX_HEAD_COLUMNS for one in short) and len(set(short)) == len(short)
    return short if is_short and len(names) > 1 else ()


def _format_sort_mark(head: str, shelf: ProfilesScreenModel) -> str:
    return "" if SORT_BY_COLUMN.get(head) is not shelf.order else " ↓"


def _compute_column_widths(shelf: ProfilesScreenModel, columns: int) -> list[int]:
    """Return the width of each column, 0 for one that is left out. Widths depend on all profiles, not on the filter
    or on what runs, so that nothing jumps. The model has priority over the number of nodes and the text of the
    estimate."""
    every = [one.profile for one in shelf.entries or () if one.profile is not None]
    sparks = max((measure_text(sanitize_line(name)) for name in shelf.names), default=0)
    wide = [0] * len(COLUMN_TITLES)
    names = max((measure_text(sanitize_line(one.summary.name)) for one in shelf.entries or ()), default=0)
    wide[_NAME_INDEX] = min(
        max(names, len("profile ↓")),
        _MAX_PROFILE_COLUMNS if columns >= _FULL_NAME_MIN_COLUMNS else max(10, columns // 4),
    )
    engine = max((measure_text(engines.engine_title(one.engine)) for one in every), default=0)
    wide[_ENGINE_INDEX] = max(
        len("engine ↓"), engine if columns >= _FULL_ENGINE_MIN_COLUMNS else min(engine, _SHORT_ENGINE_COLUMNS)
    )
    wide[_CHECK_INDEX] = len("check") if columns >= _CHECK_MIN_COLUMNS else 0
    short = _shorten_node_names(shelf)
    signs = measure_text(" ".join(short)) if short else len(shelf.names)
    wide[_FITS_INDEX] = (
        (signs if short else max(len("fits"), signs)) if shelf.fits else 0
    )  # without a Spark there is no estimate
    wide[_RUNS_INDEX] = max(len("runs on ↓"), sparks + 2)
    most = _LONG_START_COLUMNS if columns >= _FULL_ENGINE_MIN_COLUMNS else _SHORT_START_COLUMNS
    starts = max((measure_row(_render_last_start(one.summary.name, shelf)) for one in shelf.entries or ()), default=0)
    wide[_LAST_INDEX] = min(most, max(starts, len("last start ↓")))
    models = max((measure_text(sanitize_line(_format_model(one))) for one in every), default=0)
    ways = (
        (len("nodes"), True, min(models, _WHOLE_MODEL_COLUMNS)),
        (len("nodes"), False, min(models, _MOST_MODEL_COLUMNS)),
        (0, False, _MIN_MODEL_COLUMNS),
    )
    for nodes, has_words, model in ways:
        fits = signs + 1 + _FIT_TEXT_COLUMNS if has_words and shelf.fits else wide[_FITS_INDEX]
        tried = [*wide[:_MODEL_INDEX], 0, nodes, wide[_CHECK_INDEX], fits, *wide[_RUNS_INDEX:]]
        rest = columns - 3 - sum(tried) - _GAP_COLUMNS * sum(1 for each in tried if each)
        if rest >= model:
            tried[_MODEL_INDEX] = max(_MIN_MODEL_COLUMNS, min(models, rest))
            every_name = measure_text(", ".join(sanitize_line(name) for name in shelf.names)) + 2
            tried[_RUNS_INDEX] += max(0, min(rest - tried[_MODEL_INDEX], every_name - tried[_RUNS_INDEX]))
            return tried
    return wide


def _render_list_row(parts: Sequence[TextRow], wide: Sequence[int], mark: str, mine: bool = False) -> TextRow:
    spans: list[Span] = [Span(mark, TextStyle.ACCENT)]
    for at, part in enumerate(parts):
        if at < len(wide) and not wide[at]:
            continue
        if mine and not at:
            part = tuple(Span(one.text, TextStyle.STRONG) for one in part)
        spans += part if at == len(parts) - 1 else [*pad_row(part, wide[at]), Span(" " * _GAP_COLUMNS)]
    return tuple(spans)


def _render_cells(one: ProfileEntry, shelf: ProfilesScreenModel, *, has_words: bool) -> list[TextRow]:
    profile, name = one.profile, one.summary.name
    ends = [
        _render_running_nodes(one, shelf),
        _render_last_start(name, shelf),
    ]  # a broken profile may have been started before
    if profile is None:
        return [make_row(sanitize_span(name, TextStyle.VALUE)), *([()] * (_RUNS_INDEX - 1)), *ends]
    return [
        make_row(sanitize_span(profile.name, TextStyle.VALUE)),
        make_row(sanitize_span(engines.engine_title(profile.engine), TextStyle.LABEL)),
        make_row(sanitize_span(_format_model(profile) or "—", TextStyle.LABEL)),
        make_row(Span(str(profile.nodes), TextStyle.LABEL)),
        render_lint_badge(shelf.checks.get(name)),
        _render_estimates(one, shelf, has_words=has_words),
        *ends,
    ]


def _render_broken_profile(
    one: ProfileEntry, line: Sequence[TextRow], wide: Sequence[int], mark: str, mine: bool
) -> TextRow:
    """Return the row of a broken profile: its first fault instead of engine and model."""
    first = one.summary.faults[0]
    more = f" (+{len(one.summary.faults) - 1})" if len(one.summary.faults) > 1 else ""
    place = first.place.file if first.place.line is None else f"line {first.place.line}"
    if first.place.file != str(one.summary.origin) and first.place.line is not None:
        place = f"{first.place.file.rpartition('/')[2]}:{first.place.line}"  # the fault is in a profile that it extends
    fault = make_row(sanitize_span(f"broken: {place}: {first.message}{more}", TextStyle.BAD))
    if all(
        span.tone is TextStyle.STALE for part in line[_RUNS_INDEX:] for span in part
    ):  # it runs nowhere and was never started
        return _render_list_row([line[0], fault], wide, mark, mine)
    between = [each for each in wide[1:_RUNS_INDEX] if each]
    room = sum(between) + _GAP_COLUMNS * (len(between) - 1)
    return _render_list_row([line[0], fault, *line[_RUNS_INDEX:]], [wide[0], room, *wide[_RUNS_INDEX:]], mark, mine)


def _format_model(profile: Profile) -> str:
    """Return the title without its engine, which has a column."""
    return (get_model_title(profile) or "").replace(f" on {engines.engine_title(profile.engine)}", "", 1)


def _render_estimates(one: ProfileEntry, shelf: ProfilesScreenModel, *, has_words: bool) -> TextRow:
    """Return a symbol for each node and, if there is room, the text for the selected node."""
    fits = {node: shelf.fits[one.summary.name, node] for node in shelf.names if (one.summary.name, node) in shelf.fits}
    short = _shorten_node_names(shelf)
    signs = tuple(
        span
        for at, (node, fit) in enumerate(fits.items())
        for span in pad_row(
            (render_estimate_symbol(fit),),
            measure_text(short[shelf.names.index(node)]) + (at < len(fits) - 1) if short else 1,
        )
    )
    if not has_words or shelf.node not in fits:
        return signs
    return (*signs, Span(" "), sanitize_span(f"{shelf.node}: ", TextStyle.LABEL), describe_estimate(fits[shelf.node]))


def _render_running_nodes(one: ProfileEntry, shelf: ProfilesScreenModel) -> TextRow:
    running = find_running_instances(one.summary.name, shelf.views)
    if not running:
        known = shelf.views and all(view.docker_known and view.instances_seen is not None for view in shelf.views)
        return make_row(Span("" if known else "?", TextStyle.STALE))
    ready = all(one.phase is Phase.READY for one in running)
    short = dict(zip(shelf.names, _shorten_node_names(shelf), strict=False)) if len(running) > 1 else {}
    words = " ".join(
        f"{get_state_symbol(one.phase or Phase.UNKNOWN)} {short.get(one.node, one.node)}" for one in running
    )
    return make_row(sanitize_span(words, TextStyle.GOOD if ready else TextStyle.ATTENTION))


def _render_last_start(name: str, shelf: ProfilesScreenModel) -> TextRow:
    one = next((each for each in shelf.last if each.profile == name), None)
    if one is None:
        return make_row(Span("never", TextStyle.STALE))
    if one.failed is not None:
        sign = get_state_symbol(Phase.FAILED)
        return make_row(sanitize_span(f"{sign} {one.failed}, {format_ago(one.when, shelf.now)}", TextStyle.BAD))
    sign = get_state_symbol(Phase.READY)
    took = "" if one.seconds is None else f"{_format_minutes(one.seconds)}, "
    return make_row(sanitize_span(f"{sign} {took}{format_ago(one.when, shelf.now)}", TextStyle.LABEL))


def _format_minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


_FULL_DETAIL_MIN_LINES = 14  # from this height on, all about memory fits above the command
_ESTIMATE_HEADING = [
    make_row(Span("memory: the figures on the left add up; · is a part of the line above", TextStyle.STALE))
]
_TWO_COLUMNS_MIN = 150  # from this width on, the sum stands beside the command
_OWN_LABEL_PREFIXES = ("--label dev.sparkctl.", "--label 'dev.sparkctl.")


def render_profile_detail(shelf: ProfilesScreenModel, one: ProfileEntry, columns: int, lines: int) -> ScrollPage:
    """Return the selected profile in full, in a frame of exactly ``lines`` rows."""
    summary = one.summary
    whose = (
        "shipped" if summary.shipped else "yours, replaces the shipped one" if summary.overrides_shipped else "yours"
    )
    title = make_row(sanitize_span(summary.name, TextStyle.TITLE), Span(f"  {whose}", TextStyle.LABEL))
    inner = max(8, columns - 4)
    body = (
        _render_loaded_profile(shelf, one.profile, inner, lines - 2)
        if one.profile is not None
        else _render_profile_errors(shelf, one, inner)
    )
    return draw_page(title, body, shelf.further, columns, lines)


def _render_profile_errors(shelf: ProfilesScreenModel, one: ProfileEntry, columns: int) -> list[TextRow]:
    """Return the faults like compiler messages, the key to edit the file, and which instances of the profile run."""
    rows = render_faults(one.summary.faults, shelf.sources, columns)
    rows += [
        make_row(
            Span("e", TextStyle.KEY), Span(" edits it, at the first of them; it is checked on return", TextStyle.LABEL)
        )
    ]
    for each in find_running_instances(one.summary.name, shelf.views):
        words = f"{each.name} still runs on {each.node} with the settings of its start"
        rows += wrap_text(words, columns, TextStyle.LABEL)
    return [*rows, *_describe_last_start(one.summary.name, shelf)]


def _describe_last_start(name: str, shelf: ProfilesScreenModel) -> list[TextRow]:
    """Return the result of a profile's last start as text, "" if there was none."""
    one = next((each for each in shelf.last if each.profile == name), None)
    if one is None:
        return []
    label, when = Span("last start ", TextStyle.LABEL), format_ago(one.when, shelf.now)
    if one.failed is not None:
        return [make_row(label, sanitize_span(f"failed on {one.node}, {when}: {one.failed}", TextStyle.BAD))]
    after = "" if one.seconds is None else f" after {format_duration(one.seconds)}"
    return [make_row(label, sanitize_span(f"ready on {one.node}{after}, {when}", TextStyle.LABEL))]


def _render_loaded_profile(shelf: ProfilesScreenModel, profile: Profile, columns: int, lines: int) -> list[TextRow]:
    rows: list[TextRow] = []
    later: list[TextRow] = []  # rows about memory that come after the command if there is little room
    if profile.title:
        rows.append(make_row(sanitize_span(profile.title, TextStyle.VALUE)))
    check, last = render_lint_summary(shelf.selected_lint), _describe_last_start(profile.name, shelf)
    one = (*check, Span(" · ", TextStyle.LABEL), *last[0]) if last else check
    rows += [one] if measure_row(one) <= columns else [truncate_row(check, columns), *last]
    if (measured := summarize_reference(profile.reference)) is not None:
        spans = (Span("published  ", TextStyle.LABEL), sanitize_span(measured, TextStyle.VALUE))
        rows.append(truncate_row(make_row(*spans), columns))
    rows += render_diagnostics(shelf.selected_lint, shelf.sources, columns, (LintSeverity.ERROR, LintSeverity.WARNING))
    rows += _render_warnings(shelf, columns)
    if profile.nodes != 1:
        rows.append(make_row(Span(describe_rank_nodes(profile), TextStyle.ATTENTION)))
    rows.append(_render_nodes(shelf, profile, columns))
    fit = None if shelf.node is None else shelf.fits.get((profile.name, shelf.node))
    is_fitted = (profile.name, shelf.node) in shelf.fits
    if is_fitted and 1 < profile.nodes <= len(shelf.names):
        rows += render_rank_estimates(_list_rank_estimates(shelf, profile), columns)
    elif is_fitted:
        rows += render_estimate_line(fit, columns)
    view = next((view for view in shelf.views if view.name == shelf.node), None)
    if view is not None:
        standing = [
            truncate_row(each, columns)
            for each in render_budget_before_start(profile, view, columns, fit, is_counting=is_fitted)
        ]
        if is_fitted and lines < _FULL_DETAIL_MIN_LINES:
            rows, later = [*rows, *standing[-1:]], standing[:-1]
        else:
            rows += standing
        is_counted = fit is not None and fit.needed_bytes is not None
        if view.memory is not None and profile.expected_memory is None and not is_counted:
            rows.append(
                make_row(
                    Span("then ", TextStyle.LABEL),
                    Span("not known: the profile has no expected_memory", TextStyle.STALE),
                )
            )
    elif profile.expected_memory is not None:
        rows.append(
            make_row(
                Span("holds ", TextStyle.LABEL),
                Span(f"≈ {format_gib(profile.expected_memory)}", TextStyle.VALUE),
                Span(" est.", TextStyle.UNIT),
            )
        )
    infos = render_diagnostics(shelf.selected_lint, shelf.sources, columns, (LintSeverity.INFO,))
    is_wide = columns >= _TWO_COLUMNS_MIN
    half = columns // 2 if is_wide else columns
    sums = render_estimate_detail(fit, half)
    command = _render_command(shelf.preview, half - 3 if is_wide else half)
    if sums:
        sums = [*_ESTIMATE_HEADING, *sums]
    if is_wide and sums:
        pairs = zip_longest(command, sums, fillvalue=())
        command, sums = [], [make_row(*pad_row(left, half), *right) for left, right in pairs]
    legend = [] if _has_legend(shelf, profile, columns) else [truncate_row(format_symbol_legend(), columns)]
    blocks = [sums, [*later, *legend], infos]
    blocks.insert(
        0 if shelf.preview.trouble is not None else 2, command
    )  # the sum comes before the command that it allows
    return [*rows, *(each for block in blocks if block for each in ((), *block))]


def _list_rank_estimates(shelf: ProfilesScreenModel, profile: Profile) -> list[MemoryFit | None]:
    """Return the estimates for the Sparks of its ranks: the selected one and the next ones."""
    at = shelf.names.index(shelf.node) if shelf.node in shelf.names else 0
    there = [shelf.names[(at + each) % len(shelf.names)] for each in range(profile.nodes)]
    return [shelf.fits.get((profile.name, name)) for name in there]


def _render_warnings(shelf: ProfilesScreenModel, columns: int) -> list[TextRow]:
    sign = get_state_symbol(Severity.WARNING)
    return [row for words in shelf.warnings for row in wrap_text(f"{sign} {words}", columns, TextStyle.ATTENTION, 2)]


def _render_nodes(shelf: ProfilesScreenModel, profile: Profile, columns: int) -> TextRow:
    """Return the Sparks, the selected one in brackets, each with its estimate, and the legend if there is room."""
    if not shelf.names:
        return make_row(Span("no Spark is configured", TextStyle.STALE))
    spans = _render_candidate_nodes(shelf, profile)
    return (*spans, *format_symbol_legend()) if shelf.fits and _has_legend(shelf, profile, columns) else spans


def _has_legend(shelf: ProfilesScreenModel, profile: Profile, columns: int) -> bool:
    """Tell whether the row of the Sparks has room for the legend, or needs none."""
    return (
        not shelf.fits
        or measure_row(_render_candidate_nodes(shelf, profile)) + measure_row(format_symbol_legend()) <= columns
    )


def _render_candidate_nodes(shelf: ProfilesScreenModel, profile: Profile) -> TextRow:
    spans: list[Span] = [Span("on   ", TextStyle.LABEL)]
    for name in shelf.names:
        mine = name == shelf.node
        tone = TextStyle.KEY if mine else TextStyle.LABEL
        spans.append(sanitize_span(f"[ {name} ]" if mine else f"  {name}  ", tone))
        if (profile.name, name) in shelf.fits:
            spans += [Span(" "), render_estimate_symbol(shelf.fits[profile.name, name]), Span(" ")]
    return tuple(spans)


def _render_command(preview: ProfilePreview, columns: int) -> list[TextRow]:
    rows: list[TextRow] = []
    if preview.trouble is not None:
        words = preview.trouble + (f"\n{preview.hint}" if preview.hint else "")
        rows += wrap_text(words, columns, TextStyle.ATTENTION, 2)
        rows += [()] if preview.lines else []
    if preview.note is not None:
        rows += wrap_text(preview.note, columns, TextStyle.STALE)
    notes = [line for line in preview.lines if line.strip().startswith(_OWN_LABEL_PREFIXES)]
    for line in preview.lines:
        if line in notes:
            if line == notes[0]:
                words = f"  --label ...   {len(notes)} of them: sparkctl finds its containers by them; y copies all"
                rows.append(truncate_row(make_row(Span(words, TextStyle.STALE)), columns))
            continue
        flag, _, rest = sanitize_line(line).strip().partition(" ")
        indent = "" if line.startswith("docker") else "  "
        made = make_row(
            indent,
            Span(flag, TextStyle.ACCENT if flag.startswith("-") else TextStyle.VALUE),
            Span(f" {rest}" if rest else ""),
        )
        rows += _wrap_command_row(made, columns)
    return rows


def _wrap_command_row(made: TextRow, columns: int) -> list[TextRow]:
    """Return a line of a command on as many rows as needed, cut at the row's end, not between words."""
    if measure_text(join_text(made)) <= columns:
        return [made]
    rows, words, hang = (
        [truncate_row(made, columns, "")],
        join_text(made)[len(join_text(truncate_row(made, columns, ""))) :],
        "      ",
    )
    while words:
        piece = truncate_row((Span(words),), max(4, columns - len(hang)), "")
        rows.append(make_row(hang, *piece))
        words = words[max(1, len(join_text(piece))) :]
    return rows


def render_profiles_screen(shelf: ProfilesScreenModel, columns: int, lines: int) -> ScrollPage:
    """Return exactly ``lines`` rows: the list on top, below it the selected profile with its command."""
    further, top, there = 0, 1 + (shelf.pattern is not None), range(0)
    if shelf.entries is None:
        rows: list[TextRow] = [(), make_row("  ", Span("reading the profiles ...", TextStyle.STALE))]
    elif not shelf.entries:
        rows = [
            (),
            make_row("  ", Span("There is no profile.", TextStyle.STRONG)),
            make_row("  ", Span("sparkctl profiles schema", TextStyle.KEY)),
        ]
    else:
        upper = min(len(shelf.visible_entries) + top, max(4, lines // 2 - 1))
        rows = render_profile_list(shelf, columns, upper)
        there = compute_visible_range(len(shelf.visible_entries), shelf.selected_index, max(1, upper - top))
        if shelf.selected is not None and lines - upper >= 4:
            below = render_profile_detail(shelf, shelf.selected, columns, lines - upper)
            rows, further = [*rows, *below.rows], below.further
    return ScrollPage(pad_screen(rows, columns, lines), further, top, there)
