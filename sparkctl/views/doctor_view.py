"""The doctor screen: findings of `doctor` and of live samples, the worst first."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence

from sparkctl.commands.actions import ACTIONS
from sparkctl.logs.search import FilterPattern
from sparkctl.model.events import FindingReported
from sparkctl.model.finding import FindingKind, Severity
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import format_duration, format_time_of_day
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.views.finding_view import LABEL_COLUMNS, format_since, render_finding
from sparkctl.views.text.frame_layout import draw_frame, draw_page, pad_screen
from sparkctl.views.text.line_wrap import wrap_text
from sparkctl.views.text.styled_text import (
    ScrollPage,
    Span,
    TextRow,
    TextStyle,
    compute_visible_range,
    get_severity_style,
    get_state_symbol,
    justify_row,
    make_row,
    measure_row,
    measure_text,
    pad_text,
    render_severity,
    sanitize_span,
)

_SEVERITY_ORDER = (Severity.PROBLEM, Severity.WARNING, Severity.UNKNOWN, Severity.NOTE, Severity.GOOD)
_SEVERITY_NOUNS = {
    Severity.PROBLEM: ("problem", "problems"),
    Severity.WARNING: ("warning", "warnings"),
    Severity.UNKNOWN: ("not known", "not known"),
    Severity.NOTE: ("note", "notes"),
    Severity.GOOD: ("good", "good"),
}
_FAILED_STATES = (NodeState.UNREACHABLE, NodeState.UNTRUSTED, NodeState.REFUSED, NodeState.STARVED)
_OWN_COMMAND_PATTERN = re.compile(r"sparkctl [a-z][a-z-]*(?: [A-Za-z0-9_.:@-]+)*")  # exactly one command
_MIN_GOOD_LINES = 8  # from so many free rows on, what is good is listed below the selected finding
_PLACEHOLDER_PATTERN = re.compile(r"\b[A-Z]{3,}\b")


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One finding. ``is_live``: the samples show it; else `doctor` found it. ``since``: text. ``folded``: good findings it stands for."""

    found: FindingReported
    is_live: bool
    since: str | None = None
    folded: tuple[DoctorFinding, ...] = ()

    @property
    def stable_key(self) -> tuple[str, ...]:
        """The key of a finding that stays the same while its figures change."""
        one = self.found
        if self.folded:
            return ("", one.check, "", "")
        return (one.node or "", one.check, one.instance or "", "" if one.instance or self.is_live else one.message)

    @property
    def filter_text(self) -> str:
        """The text that the filter searches."""
        one = self.found
        return sanitize_line(
            " ".join(filter(None, (one.severity.value, one.node, one.check, one.instance, one.message)))
        )

    @property
    def remedy_command(self) -> str | None:
        """The remedy as it is copied: without the words that say where to type it."""
        remedy = self.found.remedy
        if remedy is None:
            return None
        return re.sub(rf"^(?:once )?on {re.escape(self.found.node or '')}: |^once: ", "", remedy)

    @property
    def fix_argv(self) -> tuple[str, ...] | None:
        """The sparkctl command line that the remedy consists of; None if the operator has to do something by hand."""
        remedy = self.found.remedy
        if remedy is None or not _OWN_COMMAND_PATTERN.fullmatch(remedy) or _PLACEHOLDER_PATTERN.search(remedy):
            return None
        words = tuple(shlex.split(remedy)[1:])
        return words if any(one.changes and one.verb == words[0] for one in ACTIONS) else None


@dataclass(frozen=True, slots=True)
class DoctorProgress:
    """The examination of a node: how many seconds it has taken, and how many findings it has so far."""

    name: NodeName
    seconds: float
    findings: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorScreenModel:
    """The doctor screen's state. ``when``: end of the oldest node's examination, Unix seconds; ``running``: nodes being examined."""

    entries: tuple[DoctorFinding, ...] = ()
    when: float | None = None
    running: tuple[DoctorProgress, ...] = ()
    chosen: tuple[str, ...] | None = None
    further: int = 0
    is_recording: bool = False
    now: float = 0.0
    pattern: FilterPattern | None = None

    @property
    def visible_findings(self) -> tuple[DoctorFinding, ...]:
        """The findings that match the filter. Without one, all that is good is one line, whose detail lists it."""
        if (pattern := self.pattern) is not None:
            return tuple(one for one in self.entries if pattern.matches(one.filter_text))
        good = tuple(one for one in self.entries if one.found.severity is Severity.GOOD)
        if len(good) < 2:
            return self.entries
        return (*(one for one in self.entries if one.found.severity is not Severity.GOOD), _fold_good_findings(good))

    @property
    def selected(self) -> DoctorFinding | None:
        shown = self.visible_findings
        return next((one for one in shown if one.stable_key == self.chosen), shown[0] if shown else None)


def _fold_good_findings(good: tuple[DoctorFinding, ...]) -> DoctorFinding:
    names = ", ".join(dict.fromkeys(one.found.check for one in good))
    found = FindingReported(
        ts=min(one.found.ts for one in good),
        node=None,
        check="good",
        severity=Severity.GOOD,
        message=f"{len(good)} checks are good: {names}",
    )
    return DoctorFinding(found, False, folded=good)


def merge_findings(
    found: Sequence[FindingReported],
    views: Sequence[NodeTelemetryView],
    reported: Sequence[FindingReported] = (),
    when: Callable[[NodeName], float | None] = lambda _: None,
) -> tuple[DoctorFinding, ...]:
    """Return the findings of the examination and of the views, the worst first. If both have one, the view's is newer
    and wins.

    ``told`` are findings that only an examination can find; the views hold them, too, but no sample shows them. One
    that is older than the last examination of its node, which ended at ``when``, and was not found by it, is over.
    """
    keys = {(one.node, one.check, one.instance, one.message) for one in reported}
    live = [
        DoctorFinding(FindingReported.from_finding(view.when, one), True, format_since(one.since, _get_node_time(view)))
        for view in views
        if view.state is NodeState.OK
        for one in view.findings
        if (one.node, one.kind.value, one.instance, one.summary) not in keys
    ]
    live += [_make_connection_finding(view) for view in views if view.state in _FAILED_STATES]
    newer = {(one.found.node, one.found.check, one.found.instance) for one in live}
    seen = {(one.node, one.check, one.instance, one.message) for one in found}
    looked = [*found]
    looked += [
        one for one in reported if _is_newer(one, when) and (one.node, one.check, one.instance, one.message) not in seen
    ]
    inspections = [DoctorFinding(one, False) for one in looked if (one.node, one.check, one.instance) not in newer]
    names = [view.name for view in views]
    kinds = [kind.value for kind in FindingKind]

    def sort_key(one: DoctorFinding) -> tuple[int, int, int]:
        each = one.found
        return (
            _SEVERITY_ORDER.index(each.severity),
            names.index(each.node) if each.node in names else len(names),
            # what is good stands in the order of the examination, as on the command line
            kinds.index(each.check) if each.check in kinds and each.severity is not Severity.GOOD else len(kinds),
        )

    return tuple(sorted((*live, *inspections), key=sort_key))


def _is_newer(one: FindingReported, when: Callable[[NodeName], float | None]) -> bool:
    looked = None if one.node is None else when(one.node)
    return looked is None or one.ts > looked


def _get_node_time(view: NodeTelemetryView) -> float:
    return view.sample.time if view.sample is not None else view.when


def _make_connection_finding(view: NodeTelemetryView) -> DoctorFinding:
    what = f"{view.state}" + (f": {view.detail}" if view.detail else "")
    return DoctorFinding(
        FindingReported(
            ts=view.when,
            node=view.name,
            check=FindingKind.CONNECTION.value,
            severity=Severity.PROBLEM,
            message=what,
            remedy=view.hint,
        ),
        True,
    )


def render_doctor(checkup: DoctorScreenModel, columns: int, lines: int) -> ScrollPage:
    """Return exactly ``lines`` rows: the summary, the list of findings, and the selected one in full."""
    rows: list[TextRow] = [_render_summary(checkup, columns)]
    if checkup.pattern is not None:
        rows.append(_render_filter(checkup, checkup.pattern))
    shown = checkup.visible_findings
    further, count, room = 0, len(shown), lines - len(rows)
    top, there = len(rows), range(0)
    if count:
        upper = min(count, max(3, room - min(_max_detail_lines(shown, checkup.now, columns), room // 2)))
        if room - upper < 4:
            upper = min(count, room)
        at = 0 if checkup.selected is None else shown.index(checkup.selected)
        there = compute_visible_range(count, at, upper if count <= upper else upper - 1)
        rows += _render_list(checkup, shown, there)
        if len(there) < count:
            rows.append(_render_hidden_counts(there, count))
        if (left := lines - len(rows)) >= 4 and checkup.selected is not None:
            below = _render_detail_page(checkup, checkup.selected, columns, left)
            rows, further = [*rows, *below.rows], below.further
        good = next((one for one in shown if one.folded and one != checkup.selected), None)
        if good is not None and (left := lines - len(rows)) >= _MIN_GOOD_LINES:
            rows += _render_good_box(good, columns, left)
    elif checkup.pattern is None and not checkup.running and checkup.when is not None:
        rows += [(), make_row("  ", Span("No findings.", TextStyle.STALE))]
    return ScrollPage(pad_screen(rows, columns, lines), further, top, there)


def _render_summary(checkup: DoctorScreenModel, columns: int) -> TextRow:
    """Return the progress or the age of the examination, and the number of findings of each severity."""
    left = (
        _render_progress(checkup) if checkup.running else make_row(Span(f" {_describe_age(checkup)}", TextStyle.LABEL))
    )
    bad = (Severity.PROBLEM, Severity.WARNING)
    is_over = checkup.when is not None and not checkup.running
    well = is_over and not any(one.found.severity in bad for one in checkup.entries)
    head = (Span("nothing is wrong", TextStyle.GOOD),) if well else ()
    room = columns - measure_row(left) - measure_row(head) - 3
    counts = next((made for made in _render_counts(checkup) if measure_row(made) <= room), ())
    between = (Span(" · ", TextStyle.LABEL),) if head and counts else ()
    return justify_row(left, (*head, *between, *counts, Span(" ")), columns)


def _render_counts(checkup: DoctorScreenModel) -> Iterator[TextRow]:
    """Yield the number of findings of each severity, in forms of decreasing length: words, symbols, only problems."""
    numbers = [(each, sum(one.found.severity is each for one in checkup.entries)) for each in _SEVERITY_ORDER]
    numbers = [(each, number) for each, number in numbers if number]

    def join_parts(parts: Sequence[tuple[Severity, str]], by: str) -> TextRow:
        spans = [Span(words, get_severity_style(each)) for each, words in parts]
        return tuple(span for at, one in enumerate(spans) for span in ([Span(by, TextStyle.LABEL)] * bool(at) + [one]))

    yield join_parts([(each, f"{number} {_SEVERITY_NOUNS[each][number != 1]}") for each, number in numbers], " · ")
    signs = [(each, f"{get_state_symbol(each)} {number}") for each, number in numbers]
    yield join_parts(signs, "  ")
    yield join_parts(signs[:2], "  ")


def _render_progress(checkup: DoctorScreenModel) -> TextRow:
    spans = [Span(" examining ", TextStyle.ATTENTION)]
    for at, one in enumerate(checkup.running):
        how = (
            f" {one.findings} found"
            if one.findings
            else ""
            if one.seconds < 1
            else f" no answer for {one.seconds:.0f} s"
        )
        spans += [
            Span(", " if at else "", TextStyle.LABEL),
            sanitize_span(one.name, TextStyle.TITLE),
            Span(how, TextStyle.LABEL),
        ]
    return (*spans, Span(" ...", TextStyle.LABEL))


def _describe_age(checkup: DoctorScreenModel) -> str:
    if checkup.is_recording and checkup.when is None:
        return "a recording: what its samples show"
    return "not examined yet" if checkup.when is None else f"examined {_format_ago(checkup.when, checkup.now)}"


def _format_ago(when: float, now: float) -> str:
    """Return the time of day, and how long ago in coarse steps: the screen does not change every second."""
    passed, clock = now - when, format_time_of_day(when, has_seconds=True)
    if passed < 10:
        return f"{clock}, just now"
    step = 10 if passed < 60 else 60
    return f"{clock}, {format_duration(passed // step * step)} ago"


def _render_filter(checkup: DoctorScreenModel, pattern: FilterPattern) -> TextRow:
    count = f"{len(checkup.visible_findings)}/{len(checkup.entries)}"
    return make_row(
        " ", Span(f"/ {count}  ", TextStyle.ACCENT), sanitize_span(pattern.fault or pattern.typed, TextStyle.VALUE)
    )


def _render_hidden_counts(there: range, count: int) -> TextRow:
    """Return how many findings are above and below the visible ones."""
    up, down = ("↑", "↓")
    above, below = there.start, count - there.stop
    words = [*([f"{up} {above} above"] if above else []), *([f"{down} {below} below"] if below else [])]
    return make_row(Span(f"   {'   '.join(words)}", TextStyle.LABEL))


def _render_list(checkup: DoctorScreenModel, shown: Sequence[DoctorFinding], there: range) -> list[TextRow]:
    wide = max(measure_text(sanitize_line(one.found.node or "")) for one in shown)
    kind = max(measure_text(sanitize_line(one.found.check)) for one in shown)
    mark = "▸"
    chosen = checkup.selected
    rows: list[TextRow] = []
    for one in [shown[each] for each in there]:
        each, mine = one.found, one == chosen  # a folded line is made anew each time
        tone = TextStyle.STRONG if mine else TextStyle.LABEL if each.severity is Severity.GOOD else TextStyle.VALUE
        rows.append(
            make_row(
                Span(f" {mark if mine else ' '} ", TextStyle.ACCENT),
                render_severity(each.severity),
                sanitize_span(
                    f"{pad_text(sanitize_line(each.node or ''), wide)}  ", TextStyle.TITLE if mine else TextStyle.LABEL
                ),
                sanitize_span(f"{pad_text(sanitize_line(each.check), kind)}  ", TextStyle.LABEL),
                sanitize_span(each.message, tone),
            )
        )
    return rows


def _max_detail_lines(shown: Sequence[DoctorFinding], now: float, columns: int) -> int:
    """Return the line count of the longest finding, so that the list keeps its place while the selection moves."""
    return max(len(_render_detail(one, now, columns - 4)) for one in shown) + 2


def _render_detail_page(checkup: DoctorScreenModel, one: DoctorFinding, columns: int, lines: int) -> ScrollPage:
    tone = get_severity_style(one.found.severity)
    sign = get_state_symbol(one.found.severity)
    where = (f"  {one.found.node or ''}", f"  {one.found.check}") if not one.folded else ("", "")
    title = make_row(
        Span(f"{sign} {_SEVERITY_NOUNS[one.found.severity][0]}", tone),
        sanitize_span(where[0], TextStyle.TITLE),
        sanitize_span(where[1], TextStyle.LABEL),
    )
    whole = _render_detail(one, checkup.now, max(8, columns - 4), is_read=_is_shown_in_full(checkup, one, columns))
    return draw_page(title, whole, checkup.further, columns, min(lines, len(whole) + 2))


def _render_good_box(one: DoctorFinding, columns: int, lines: int) -> Sequence[TextRow]:
    """Return what is good in a frame below the selected finding; it is read on where it is selected."""
    rows = _render_folded(one.folded, max(8, columns - 4))
    if len(rows) > lines - 2:
        more = make_row(Span(f"… {len(rows) - lines + 3} more rows", TextStyle.STALE))
        rows = [*rows[: lines - 3], more]
    title = make_row(Span(f"{get_state_symbol(Severity.GOOD)} good", get_severity_style(Severity.GOOD)))
    return draw_frame(title, rows, columns, len(rows) + 2)


def _is_shown_in_full(checkup: DoctorScreenModel, one: DoctorFinding, columns: int) -> bool:
    """Tell whether the list row already shows all of a good finding."""
    before = 9 + sum(
        max(measure_text(sanitize_line(getattr(each.found, name) or "")) for each in checkup.visible_findings)
        for name in ("node", "check")
    )
    return one.found.severity is Severity.GOOD and before + measure_text(sanitize_line(one.found.message)) <= columns


def _render_detail(one: DoctorFinding, now: float, columns: int, *, is_read: bool = False) -> list[TextRow]:
    """Return what a finding is (unless ``is_read``: the list shows it), since when, why it matters, and what to do."""
    if one.folded:
        return _render_folded(one.folded, columns)
    seen = f"now{f', {one.since}' if one.since else ''}" if one.is_live else _format_ago(one.found.ts, now)
    rows = render_finding(one.found, seen, columns, is_read=is_read)
    if one.found.remedy is None:
        return rows
    does = (
        (Span("   enter", TextStyle.KEY), Span(" does it, after a question", TextStyle.LABEL)) if one.fix_argv else ()
    )
    return [*rows, make_row(" " * LABEL_COLUMNS, Span("y", TextStyle.KEY), Span(" copies it", TextStyle.LABEL), *does)]


def _render_folded(folded: Sequence[DoctorFinding], columns: int) -> list[TextRow]:
    """Return the good findings, each with its node and what was checked."""
    cells = [(sanitize_line(one.found.node or ""), sanitize_line(one.found.check)) for one in folded]
    wide, kind = (max(measure_text(cell[at]) for cell in cells) for at in (0, 1))
    rows: list[TextRow] = []
    for one, (node, check) in zip(folded, cells, strict=True):
        words = f"{pad_text(node, wide)}  {pad_text(check, kind)}  "
        rows += wrap_text(one.found.message, columns, TextStyle.VALUE, head=make_row(Span(words, TextStyle.LABEL)))
    return rows
