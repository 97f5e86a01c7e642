"""The history for the panel: what was done, the latest first, and the selected one with its phases against what was
expected and what had changed since it last worked. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkctl.history.model import NodeResult, OperationRecord
from sparkctl.history.start_diff import StartDiff
from sparkctl.logs.filter_pattern import FilterPattern
from sparkctl.model.sanitize import sanitize_line
from sparkctl.model.units import format_clock
from sparkctl.views.history_view import (
    DetailSection,
    HistoryRow,
    build_history_row,
    build_operation_sections,
    expected_durations,
    part_name,
    subject_words,
    verb_word,
)
from sparkctl.views.text.charts import render_gauge
from sparkctl.views.text.frame_layout import draw_frame, pad_screen
from sparkctl.views.text.scrolled import ScrollPage, scroll_rows, visible_range
from sparkctl.views.text.styled_text import (
    Span,
    TextRow,
    TextStyle,
    make_row,
    pad_row,
    sanitized,
    text_width,
    truncate_row,
)
from sparkctl.views.text.wrap import wrap_rows

_HANG = 4  # columns by which what has no room in a line goes on
_SIGNS = {
    TextStyle.GOOD: ("●", "+"),
    TextStyle.BAD: ("✕", "x"),
    TextStyle.ATTENTION: ("▲", "!"),
    TextStyle.ACCENT: ("◐", "*"),
}
_GAP = 2
_LONGEST = 24  # columns of a profile's name
_SHORTEST = 8  # of a name that is cut
_LATE_FACTOR = 1.25  # times what is usual
_PHASES = "phases"


@dataclass(frozen=True, slots=True)
class OperationDetail:
    """All that is known of one operation: the last start before it that went well, and what has changed since."""

    operation: OperationRecord
    worked: OperationRecord | None = None
    changes: StartDiff | None = None


@dataclass(frozen=True, slots=True)
class HistoryScreenModel:
    """What the screen shows. ``operations`` None: not read yet. ``told`` of the selected one, where it was read. ``trouble``:
    what is wrong with the file. ``key``: by which its log is shown."""

    operations: tuple[OperationRecord, ...] | None
    chosen: int | None = None
    told: OperationDetail | None = None
    trouble: str | None = None
    pattern: FilterPattern | None = None
    further: int = 0
    ascii_only: bool = False

    @property
    def shown(self) -> tuple[OperationRecord, ...]:
        """Those that the filter leaves."""
        found, pattern = self.operations or (), self.pattern
        return (
            found if pattern is None else tuple(one for one in found if pattern.matches(_words(build_history_row(one))))
        )

    @property
    def selected(self) -> OperationRecord | None:
        """The chosen one, else the latest."""
        shown = self.shown
        return next((one for one in shown if one.id == self.chosen), shown[0] if shown else None)


def _words(one: HistoryRow) -> str:
    return " ".join((str(one.id), one.when, one.what, one.profile, one.nodes, one.outcome, one.why))


def render_history_page(past: HistoryScreenModel, columns: int, lines: int) -> ScrollPage:
    """Return exactly ``lines`` rows: the list, and below it the selected one in full."""
    rows: list[TextRow] = []
    if past.trouble is not None:
        rows.append(make_row(" ", sanitized(past.trouble, TextStyle.ATTENTION)))
    if past.pattern is not None:
        count = f"{len(past.shown)}/{len(past.operations or ())}"
        told = past.pattern.fault or past.pattern.typed
        rows.append(make_row(" ", Span(f"/ {count}  ", TextStyle.ACCENT), sanitized(told, TextStyle.VALUE)))
    if past.operations is None or not past.shown:
        words = (
            "reading the history ..."
            if past.operations is None
            else "Nothing is kept of that."
            if past.pattern
            else _NOTHING
        )
        rows += [(), make_row("  ", Span(words, TextStyle.STALE))]
        return ScrollPage(pad_screen(rows, columns, lines, past.ascii_only))
    made = [build_history_row(one) for one in past.shown]
    fields, wide = _format_page_table(made, columns)
    rows.append(_line(_HEADS, wide, "   ", "", TextStyle.LABEL))
    top = len(rows)
    upper = min(len(made), max(3, (lines - top) // 3))
    upper = min(len(made), lines - top) if lines - top - upper < 5 else upper
    selected = past.selected
    at = next((at for at, one in enumerate(past.shown) if one is selected), 0)
    there = visible_range(len(made), at, upper)
    for each in there:
        rows.append(_entry(fields[each], made[each].tone, wide, past.ascii_only, is_chosen=each == at))
    further = 0
    if (left := lines - len(rows)) >= 4 and selected is not None:
        below = _detail(past, selected, columns, left)
        rows, further = [*rows, *below.rows], below.further
    return ScrollPage(pad_screen(rows, columns, lines, past.ascii_only), further, top, there)


_NOTHING = "Nothing is kept yet: every start, stop and switch from here is, from now on."
_HEADS = ("when", "what", "profile", "on", "how it ended", "took")


def _fields(one: HistoryRow) -> tuple[str, ...]:
    return one.when[5:], one.what, one.profile, one.nodes, one.outcome, one.took


def _format_page_table(made: Sequence[HistoryRow], columns: int) -> tuple[list[tuple[str, ...]], list[int]]:
    """Return the fields of each entry, and how wide each column is. Where it is narrow what was usual goes, then names are
    cut, and how long it took goes last of all."""
    room = columns - 5
    fields = [_fields(one) for one in made]
    wide = _widest(fields)
    if _overflow(wide, room):
        fields = [(*each[:5], each[5].partition(" of about ")[0]) for each in fields]
        wide = _widest(fields)
    for at in (2, 3):  # the profile, then the nodes
        wide[at] -= min(max(0, wide[at] - _SHORTEST), _overflow(wide, room))
    if _overflow(wide, room):
        wide[5] = 0
    return fields, wide


def _widest(fields: Sequence[Sequence[str]]) -> list[int]:
    wide = [max(text_width(head), *(text_width(each[at]) for each in fields)) for at, head in enumerate(_HEADS)]
    wide[2] = min(wide[2], _LONGEST)
    return wide


def _overflow(wide: Sequence[int], room: int) -> int:
    """Return how many columns are too many, 0 where all has room."""
    return max(0, sum(one + _GAP for one in wide if one) - room)


def _line(
    fields: Sequence[str], wide: Sequence[int], begin: str, sign: str, tone: TextStyle, ended: TextStyle | None = None
) -> TextRow:
    spans: list[Span] = [Span(begin, TextStyle.ACCENT), Span(f"{sign:<2}", ended or tone)]
    for at, (each, columns) in enumerate(zip(fields, wide, strict=True)):
        if columns:
            spans += [*pad_row((sanitized(each, (ended or tone) if at == 4 else tone),), columns), Span(" " * _GAP)]
    return tuple(spans)


def _entry(
    fields: Sequence[str], tone: TextStyle, wide: Sequence[int], ascii_only: bool, *, is_chosen: bool
) -> TextRow:
    mark = (" > " if ascii_only else " ▸ ") if is_chosen else "   "
    sign = _SIGNS.get(tone, ("·", "."))[ascii_only]
    return _line(fields, wide, mark, sign, TextStyle.STRONG if is_chosen else TextStyle.VALUE, tone)


# --- the selected one --------------------------------------------------------------------------------------------------


def _detail(past: HistoryScreenModel, one: OperationRecord, columns: int, lines: int) -> ScrollPage:
    """Return it in a frame: why first, phases as bars against what was expected, then what had changed."""
    inner = max(8, columns - 4)
    told = past.told if past.told is not None and past.told.operation.id == one.id else None
    title = make_row(sanitized(f"{one.id}  {verb_word(one)} {subject_words(one)}", TextStyle.TITLE))
    if told is None:
        body = [make_row(Span("being read ...", TextStyle.STALE))]
        return ScrollPage(draw_frame(title, body, columns, lines, chosen=False, ascii_only=past.ascii_only))
    rows: list[TextRow] = []
    head, *sections = build_operation_sections(told.operation, told.worked, told.changes)
    for section in (head, *sorted(sections, key=_rank)):
        if rows:
            rows.append(())
        if section is not head:
            rows.append(make_row(Span(section.title, TextStyle.LABEL)))
        share = _share(section, told.operation)
        made = list(section.rows) if share is None else render_phase_bars(told.operation, share, inner, past.ascii_only)
        rows += wrap_rows(made, inner, _HANG)
    page = scroll_rows(rows, past.further, lines - 2, past.ascii_only)
    return ScrollPage(
        draw_frame(title, page.rows, columns, lines, chosen=False, ascii_only=past.ascii_only), page.further
    )


def _rank(one: DetailSection) -> int:
    order = ("why", "how it ended", _PHASES, "changed", "steps", "memory", "seen", "files", "node")
    return next((at for at, name in enumerate(order) if one.title.startswith(name)), len(order))


def _share(section: DetailSection, one: OperationRecord) -> NodeResult | None:
    """Return whose phases a section tells, None where it tells something else."""
    if not section.title.startswith(_PHASES):
        return None
    named = [share for share in one.shares if section.title == f"{_PHASES}, {sanitize_line(share.node)}"]
    return named[0] if named else next((share for share in one.shares if share.parts), None)


def render_phase_bars(one: OperationRecord, share: NodeResult, columns: int, ascii_only: bool = False) -> list[TextRow]:
    """Return each phase with what it took, as a bar beside the others', and what was usual; of a phase that comes twice the
    second is the second. What took much longer than usual stands out."""
    left = expected_durations(one, share)
    names = max((text_width(part_name(part)) for part in share.parts), default=0)
    names = min(names, max(10, columns // 3))
    most = max([part.seconds for part in share.parts] + [part.seconds for part in left] + [1.0])
    beside = 22  # columns of 12:40   usually 12:31
    bar = max(0, min(48, columns - names - beside - 4))
    rows = []
    for part in share.parts:
        usual = next((each for each in left if each.key == part.key), None)
        if usual is not None:
            left.remove(usual)
        is_late = usual is not None and part.seconds > _LATE_FACTOR * usual.seconds + 1.0
        tone = TextStyle.ATTENTION if is_late else TextStyle.ACCENT
        expected = "" if usual is None else f"   usually {format_clock(usual.seconds)}"
        rows.append(
            make_row(
                *pad_row((sanitized(part_name(part), TextStyle.LABEL),), names),
                "  ",
                *render_gauge(part.seconds / most, bar, ascii_only, tone),
                Span(f"{format_clock(part.seconds):>8}", TextStyle.ATTENTION if is_late else TextStyle.VALUE),
                Span(expected, TextStyle.LABEL),
            )
        )
    return [truncate_row(each, columns) for each in rows]
