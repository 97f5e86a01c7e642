"""The progress of a start as rows: each phase with its duration, and the time against the expected time."""

from __future__ import annotations

from collections.abc import Sequence

from sparkctl.model.instance import InstanceView
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.phase import Phase, Step
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import GIB, format_clock
from sparkctl.monitor.startup_timeline import (
    PhaseSpan,
    StartupTimeline,
    list_remaining_parts,
    match_expected_seconds,
    merge_spans,
)
from sparkctl.views.event_text import format_phase_name, format_step_name
from sparkctl.views.overview.tile_model import NodeTileModel, build_instance_badge
from sparkctl.views.overview.tile_rows import LABEL_COLUMNS, DrawArea, make_label
from sparkctl.views.text.charts import RowBlock, make_block, render_gauge
from sparkctl.views.text.styled_text import (
    Span,
    TextRow,
    TextStyle,
    get_state_symbol,
    make_row,
    measure_row,
    measure_text,
    truncate_row,
)

_LATE_RATIO = 1.2  # factor of the expected duration
_STARTUP_PHASES = (Phase.PULLING, Phase.DROPPING_CACHES, Phase.CREATING, Phase.STARTING, Phase.LOADING, Phase.WARMING)
_FINISHED_PHASE_NAMES = {
    Phase.PULLING: "pulled",
    Phase.DROPPING_CACHES: "caches",
    Phase.CREATING: "created",
    Phase.STARTING: "started",
}
_MIN_DROP_BYTES = 0.05 * GIB
_EXPECTED_COLUMNS = 16  # width of the usual duration: "of about  0:28"
_SHORT_EXPECTED_COLUMNS = 10  # "≈  0:28", where there is not enough room
_MIN_EXPECTED_SECONDS = 1.0  # seconds; shorter parts get no usual duration
_MIN_BAR_COLUMNS = 8
_MAX_NEXT_PARTS = 2  # how many parts to come a tile names
_LATE_SLACK_SECONDS = 5.0  # seconds by which a part may exceed its usual duration


def is_start_late(taken: float, expected: float | None) -> bool:
    """Tell whether a start takes longer than usual."""
    return expected is not None and taken > _LATE_RATIO * expected


# --- in a tile --------------------------------------------------------------------------------------------------------


def render_startup_progress(one: InstanceView, seen: NodeTileModel, space: DrawArea) -> list[RowBlock]:
    """Return the elapsed and expected time, the current step with its progress, and the phases before and after it."""
    start, timeline = seen.starts.get(one.name), seen.timelines.get(one.name)
    elapsed = None if start is None or start.elapsed is None else start.elapsed + max(0.0, seen.now - start.ts)
    expected = None if start is None else start.expected
    stops = one.phase is Phase.STOPPING
    if start is None and timeline is not None and not (stops or timeline.is_over):
        elapsed, expected = timeline.compute_duration(seen.now), timeline.expected
    name = "stop" if stops else "start"
    rows = [_render_time(name, elapsed, expected, one, space)]
    now = (
        None if stops or timeline is None or timeline.is_over else _render_current_part(timeline, one, seen.now, space)
    )
    if now is None and one.step is not None:
        now = render_step(one.step, space, one.detail if one.phase is Phase.PULLING else None)
    rows += [now] if now is not None else []
    if elapsed is not None and is_start_late(elapsed, expected):
        rows.append(make_row(make_label(""), Span("longer than usual", TextStyle.ATTENTION)))
    if stops or timeline is None or timeline.is_over:
        return [make_block(1, *rows)]
    along = _render_phase_trail(timeline, seen, space, tells_now=now is not None)
    return [make_block(1, *rows), *([make_block(4, along)] if along else [])]


def _render_time(
    name: str, elapsed: float | None, expected: float | None, one: InstanceView, space: DrawArea
) -> TextRow:
    if elapsed is None:
        return make_row(make_label(name), Span(build_instance_badge(one).word, TextStyle.VALUE))
    if not expected:
        return make_row(make_label(name), Span(format_clock(elapsed), TextStyle.STRONG))
    late = is_start_late(elapsed, expected)
    line = render_gauge(elapsed / expected, space.bar_columns, TextStyle.ATTENTION if late else TextStyle.ACCENT)
    about = f" of about {format_clock(expected)}"
    return make_row(
        make_label(name),
        *line,
        "  ",
        Span(format_clock(elapsed), TextStyle.ATTENTION if late else TextStyle.STRONG),
        Span(about, TextStyle.UNIT),
    )


def render_step(step: Step, space: DrawArea, detail: str | None) -> TextRow:
    """Return a step under its name with its progress, if known, and with a detail of it."""
    name, share, done = format_step_name(step), compute_step_fraction(step), format_step_progress(step)
    if detail is not None:
        amount = sanitize_line(detail)
        room = space.columns - LABEL_COLUMNS - space.bar_columns - 2
        forms = (
            f"{done}  {amount}".strip(),
            amount,
            amount.partition(", ")[0],
        )  # the bar shows the share, the strip below the rest
        done = next((one for one in forms if share is None or measure_text(one) <= room), forms[-1])
    short = len(name) < LABEL_COLUMNS and bool(done)
    label = done if short else f"{done} {name}".strip()
    if share is None:
        return truncate_row(make_row(make_label(name if short else "now"), Span(label, TextStyle.VALUE)), space.columns)
    line = render_gauge(share, space.bar_columns)
    return truncate_row(
        make_row(make_label(name if short else "now"), *line, "  ", Span(label, TextStyle.VALUE)), space.columns
    )


def _render_current_part(timeline: StartupTimeline, one: InstanceView, now: float, space: DrawArea) -> TextRow | None:
    """Return the current part by its elapsed and expected time, if it reports no progress itself."""
    stretches, expected = merge_spans(timeline.stretches), match_expected_seconds(timeline)
    if (
        not stretches
        or not _is_worth_telling(expected[-1])
        or (one.step is not None and compute_step_fraction(one.step) is not None)
    ):
        return None
    if one.step is not None and one.step.name != stretches[-1].part_key[1]:
        return None  # from another source, and newer
    most, taken, name = expected[-1] or 1.0, stretches[-1].compute_duration(now), _describe_current_part(stretches[-1])
    line = render_gauge(
        taken / most,
        space.bar_columns,
        TextStyle.ATTENTION if _is_phase_late(taken, most) else TextStyle.ACCENT,
    )
    room = space.columns - LABEL_COLUMNS - space.bar_columns - 2
    short = len(name) < LABEL_COLUMNS
    ways = [
        f"{format_clock(taken)} of about {format_clock(most)}",
        f"{format_clock(taken)} of {format_clock(most)}",
        format_clock(taken),
    ]
    ways = ways if short else [f"{way} {name}" for way in ways]
    label = next((way for way in ways if len(way) <= room), ways[-1])
    return truncate_row(
        make_row(make_label(name if short else "now"), *line, "  ", Span(label, TextStyle.VALUE)), space.columns
    )


def _is_worth_telling(expected: float | None) -> bool:
    """Tell whether a part usually lasts long enough to show its time."""
    return expected is not None and expected >= _MIN_EXPECTED_SECONDS


def _is_phase_late(taken: float, expected: float | None) -> bool:
    """Tell whether a part takes longer than usual, beyond normal variation."""
    return expected is not None and taken > max(_LATE_RATIO * expected, expected + _LATE_SLACK_SECONDS)


def compute_step_fraction(step: Step) -> float | None:
    """Return the progress of a step, 0..1, None if not known."""
    if step.fraction is not None:
        return step.fraction
    return step.done / step.total if step.done is not None and step.total else None


def format_step_progress(step: Step) -> str:
    """Return ``12/18`` or ``67 %``, "" if no progress is known."""
    if step.done is not None and step.total is not None:
        return f"{step.done}/{step.total}"
    return "" if step.fraction is None else f"{step.fraction * 100:.0f} %"


def _render_phase_trail(timeline: StartupTimeline, seen: NodeTileModel, space: DrawArea, *, tells_now: bool) -> TextRow:
    """Return ``caches ✓ −38.2   weights ✓   then warming up``; the dropped page cache stays longest. The current part
    stands in between, unless it has a row of its own (``tells_now``)."""
    done = [
        (_format_finished_part(one), _format_dropped_cache(one, seen))
        for one in merge_spans(timeline.stretches)
        if one.ended is not None
    ]
    coming = [name for name, _ in _list_coming_parts(timeline)]
    last = timeline.stretches[-1] if timeline.stretches else None
    doing = "" if tells_now or last is None or last.ended is not None else _describe_current_part(last)
    more = " …" if len(coming) > _MAX_NEXT_PARTS else ""
    then = Span(f"then {', '.join(coming[:_MAX_NEXT_PARTS])}{more}", TextStyle.LABEL) if coming else None
    while True:
        spans: list[Span] = [make_label("")]
        for name, more in done:
            spans += [Span(f"{name} ", TextStyle.LABEL), Span("✓", TextStyle.GOOD), Span(f"{more}   ", TextStyle.LABEL)]
        spans += [Span(f"{doing}   ", TextStyle.VALUE)] if doing else []
        if then is not None:
            spans.append(then)
        if not done or measure_row(spans) <= space.columns:
            return tuple(spans) if len(spans) > 1 else ()
        del done[min(1, len(done) - 1)]


def _list_coming_parts(timeline: StartupTimeline) -> list[tuple[str, float | None]]:
    """Return the parts to come with their usual seconds, from earlier starts if known."""
    if timeline.expected_parts:
        parts = [one for one in list_remaining_parts(timeline) if _is_worth_telling(one.seconds)]
        return [
            (format_phase_name(one.phase) if one.step is None else format_step_name(Step(one.step)), one.seconds)
            for one in parts
        ]
    return [(format_phase_name(phase), None) for phase in _STARTUP_PHASES if phase.order > timeline.phase.order]


def _format_finished_part(one: PhaseSpan) -> str:
    if one.phase in _FINISHED_PHASE_NAMES:
        return _FINISHED_PHASE_NAMES[one.phase]
    return format_step_name(one.step) if one.step is not None else format_phase_name(one.phase)


def _format_dropped_cache(one: PhaseSpan, seen: NodeTileModel) -> str:
    """Return by how much this start shrank the page cache, if it dropped it."""
    dropped = seen.dropped
    if one.phase is not Phase.DROPPING_CACHES or dropped is None or dropped.ts < one.began:
        return ""
    less = (dropped.before.reclaimable - dropped.after.reclaimable) / GIB
    return f" −{less:.1f}" if less >= _MIN_DROP_BYTES / GIB else ""


# --- on a screen of its own -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _TimeAxis:
    """The period in seconds that the bars of all parts are drawn on, and its width in columns."""

    began: float
    whole: float
    columns: int

    def render_bar(self, began: float, seconds: float | None, mark: str, tone: TextStyle) -> TextRow:
        """Return the bar of a part within the whole start; empty if not known."""
        if seconds is None:
            return (Span(" " * self.columns, TextStyle.PLAIN),)
        start = min(self.columns - 1, int((began - self.began) / self.whole * self.columns))
        cells = max(1, min(self.columns - start, round(seconds / self.whole * self.columns)))
        return make_row(" " * start, Span(mark * cells, tone), " " * (self.columns - start - cells))


def render_startup_timeline(timeline: StartupTimeline, now: float, space: DrawArea) -> list[RowBlock]:
    """Return all parts: those done with actual and usual duration and their bar, then those to come."""
    until = timeline.updated_at if timeline.is_over else now
    stretches, expected = merge_spans(timeline.stretches), match_expected_seconds(timeline)
    coming = [] if timeline.is_over else _list_coming_parts(timeline)
    parts = [make_block(0, _render_total_time(timeline, timeline.compute_duration(until), space))]
    if not stretches:
        return parts
    rows = [
        _PhaseBar(of=one, doing=_describe_current_part(one, stretches[:at]), expected=most, goes_on=at == len(stretches) - 1 and not timeline.is_over,
              failed=at == len(stretches) - 1 and timeline.phase is Phase.FAILED)
        for at, (one, most) in enumerate(zip(stretches, expected, strict=True))
    ]  # fmt: skip
    began = stretches[0].began
    then = until + (
        0.0 if timeline.is_over else max(0.0, (expected[-1] or 0.0) - stretches[-1].compute_duration(until))
    )
    end = then + sum(seconds or 0.0 for _, seconds in coming)
    names = max(*(measure_row(one.render_name()) for one in rows), *(len(name) + 2 for name, _ in coming), 0)
    room = space.columns - LABEL_COLUMNS - names
    is_wide = room - _EXPECTED_COLUMNS >= _MIN_BAR_COLUMNS
    usual = _EXPECTED_COLUMNS if is_wide else _SHORT_EXPECTED_COLUMNS
    bar = max(_MIN_BAR_COLUMNS, min(space.bar_columns, room - (usual if timeline.expected_parts else 0)))
    time = _TimeAxis(began, max(timeline.expected or 0.0, end - began, 1.0), bar)
    for at, one in enumerate(rows):
        gap = names - measure_row(one.render_name())
        about = _render_expected_time(one.expected, gap, "of about" if is_wide else "≈", usual)
        line = truncate_row((*one.render_row(until, time), *about), space.columns)
        parts.append(make_block(1 if one.goes_on or one.failed else 4 + len(rows) - at, line))
    for name, seconds in coming:
        line = time.render_bar(then, seconds, "─", TextStyle.FRAME)
        sign = make_label(get_state_symbol(Phase.PLANNED))
        about = _render_expected_time(seconds, names - len(name) - 2, "about" if is_wide else "≈", usual)
        parts.append(
            make_block(
                5, truncate_row(make_row(sign, *line, Span(f"  {name}", TextStyle.LABEL), *about), space.columns)
            )
        )
        then += seconds or 0.0
    return parts


def _render_total_time(timeline: StartupTimeline, taken: float | None, space: DrawArea) -> TextRow:
    spans = [make_label("start"), Span(format_clock(taken), TextStyle.STRONG)]
    if timeline.expected:
        spans.append(Span(f" of about {format_clock(timeline.expected)}", TextStyle.UNIT))
        if taken is not None and is_start_late(taken, timeline.expected):
            spans.append(Span("   longer than usual", TextStyle.ATTENTION))
    return truncate_row(tuple(spans), space.columns)


def _describe_current_part(one: PhaseSpan, before: Sequence[PhaseSpan] = ()) -> str:
    """Return the name of a part; a step that repeats says so (a draft model has weights of its own)."""
    if one.step is None:
        return format_phase_name(one.phase)
    names = [each.step.name for each in before if each.step is not None]
    return format_step_name(one.step) + (", again" if one.step.name in names else "")


def _render_expected_time(seconds: float | None, gap: int, word: str, columns: int) -> TextRow:
    """Return the usual duration of a part, right-aligned in its column of this width."""
    if seconds is None or not _is_worth_telling(seconds):
        return ()
    return make_row(" " * gap, Span(f"{word:>{columns - 6}}{format_clock(seconds):>6}", TextStyle.UNIT))


@dataclass(frozen=True, slots=True, kw_only=True)
class _PhaseBar:
    """A part of a start that has begun."""

    of: PhaseSpan
    doing: str
    expected: float | None
    goes_on: bool
    failed: bool

    def render_name(self) -> TextRow:
        """Return its name with its progress."""
        step, is_last = self.of.step, self.goes_on or self.failed
        done = f"{format_step_progress(step)} " if is_last and step is not None and format_step_progress(step) else ""
        return make_row(
            Span(f"  {done}", TextStyle.VALUE), Span(self.doing, TextStyle.VALUE if is_last else TextStyle.LABEL)
        )

    def render_row(self, now: float, time: _TimeAxis) -> TextRow:
        """Return its duration, its bar within the whole start, and its name."""
        sign, tone = (
            ("✓", TextStyle.GOOD) if not self.goes_on else (get_state_symbol(self.of.phase), TextStyle.ATTENTION)
        )
        if self.failed:
            sign, tone = get_state_symbol(Phase.FAILED), TextStyle.BAD
        taken = self.of.compute_duration(now)
        bar = TextStyle.BAD if self.failed else TextStyle.ACCENT if self.goes_on else TextStyle.OTHER
        figure = TextStyle.ATTENTION if _is_phase_late(taken, self.expected) else TextStyle.VALUE
        line = time.render_bar(self.of.began, taken, "━", bar)
        return make_row(Span(f"{sign} ", tone), Span(f"{format_clock(taken):>5} ", figure), *line, *self.render_name())


def render_startup_duration(timeline: StartupTimeline, space: DrawArea) -> TextRow | None:
    """Return the durations of a finished start in one row, with the longest phases, as many as fit."""
    taken = timeline.compute_duration(timeline.updated_at)
    if taken is None or not timeline.stretches:
        return None
    spans = list(_render_total_time(timeline, taken, space))
    stretches = merge_spans(timeline.stretches)
    lasted = [one.compute_duration(timeline.updated_at) for one in stretches]
    pieces = [
        f"{_describe_current_part(one, stretches[:at])} {format_clock(lasted[at])}" for at, one in enumerate(stretches)
    ]
    room, kept = space.columns - measure_row(spans), set[int]()
    for at in sorted(range(len(pieces)), key=lambda at: -lasted[at]):
        if (room := room - 3 - measure_text(pieces[at])) < 0:
            break
        kept.add(at)
    words = " · ".join(piece for at, piece in enumerate(pieces) if at in kept)
    return make_row(*spans, Span(f"   {words}" if words else "", TextStyle.LABEL))
