"""A start as rows: how far it is, what each phase took, and the time against what is expected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkctl.core.course import Course, Stretch
from sparkctl.model.instance import InstanceView
from sparkctl.model.phase import Phase, Step
from sparkctl.model.units import GIB, clock
from sparkctl.present.bars import gauge
from sparkctl.present.glance import Glance, instance_badge
from sparkctl.present.sentences import phase_word, step_name
from sparkctl.present.spans import Row, Span, Tone, cut, row, width
from sparkctl.present.symbols import symbol
from sparkctl.present.tile_parts import LABEL, Part, Space, label

_LATE = 1.2  # times what is expected
_AHEAD = (Phase.DROPPING_CACHES, Phase.CREATING, Phase.STARTING, Phase.LOADING, Phase.WARMING)
_PAST = {Phase.DROPPING_CACHES: "caches", Phase.CREATING: "created", Phase.STARTING: "started"}
_NOTICED = 0.05 * GIB


def is_late(taken: float, expected: float | None) -> bool:
    """Tell whether a start takes longer than usual."""
    return expected is not None and taken > _LATE * expected


# --- in a tile --------------------------------------------------------------------------------------------------------


def start_parts(one: InstanceView, seen: Glance, space: Space) -> list[Part]:
    """Return the time against what is expected, the step with its progress, and what was and what is still to come."""
    told = seen.starts.get(one.name)
    elapsed = None if told is None or told.elapsed is None else told.elapsed + max(0.0, seen.now - told.ts)
    expected = None if told is None else told.expected
    stops = one.phase is Phase.STOPPING
    name = "stop" if stops else "start"
    rows = [_time_row(name, elapsed, expected, one, space)]
    if one.step is not None:
        rows.append(step_row(one.step, space))
    if elapsed is not None and is_late(elapsed, expected):
        rows.append(row(label(""), Span("longer than usual", Tone.ATTENTION)))
    course = seen.courses.get(one.name)
    if stops or course is None or course.is_over:
        return [Part(1, tuple(rows))]
    along = _along(course, seen, space)
    return [Part(1, tuple(rows)), *([Part(4, (along,))] if along else [])]


def _time_row(name: str, elapsed: float | None, expected: float | None, one: InstanceView, space: Space) -> Row:
    if elapsed is None:
        return row(label(name), Span(instance_badge(one).word, Tone.VALUE))
    if not expected:
        return row(label(name), Span(clock(elapsed), Tone.STRONG))
    late = is_late(elapsed, expected)
    line = gauge(elapsed / expected, space.bar, space.ascii_only, Tone.ATTENTION if late else Tone.ACCENT)
    about = f" of about {clock(expected)}"
    return row(
        label(name), *line, "  ", Span(clock(elapsed), Tone.ATTENTION if late else Tone.STRONG), Span(about, Tone.UNIT)
    )


def step_row(step: Step, space: Space) -> Row:
    """Return a step under its name with its progress, as far as that is known."""
    name, share, done = step_name(step), step_share(step), step_done(step)
    short = len(name) < LABEL
    beside = done if short else f"{done} {name}".strip()
    if share is None:
        return cut(row(label(name if short else "now"), Span(beside, Tone.VALUE)), space.columns)
    line = gauge(share, space.bar, space.ascii_only)
    return cut(row(label(name if short else "now"), *line, "  ", Span(beside, Tone.VALUE)), space.columns)


def step_share(step: Step) -> float | None:
    """Return how far a step is, 0..1, None where that is not known."""
    if step.fraction is not None:
        return step.fraction
    return step.done / step.total if step.done is not None and step.total else None


def step_done(step: Step) -> str:
    """Return ``12/18`` or ``67 %``, nothing where no progress is known."""
    if step.done is not None and step.total is not None:
        return f"{step.done}/{step.total}"
    return "" if step.fraction is None else f"{step.fraction * 100:.0f} %"


def _along(course: Course, seen: Glance, space: Space) -> Row:
    """Return ``caches ✓ −38.2   weights ✓   then warming up``; what the page cache gave back stays longest."""
    done = [(_past(one), _given_back(one, seen)) for one in _merged(course.stretches) if one.ended is not None]
    ahead = [phase_word(phase) for phase in _AHEAD if phase.rank > course.phase.rank]
    then = Span(f"then {', '.join(ahead)}", Tone.LABEL) if ahead else None
    while True:
        spans: list[Span] = [label("")]
        for name, more in done:
            spans += [Span(f"{name} ", Tone.LABEL), Span("✓", Tone.GOOD), Span(f"{more}   ", Tone.LABEL)]
        if then is not None:
            spans.append(then)
        if not done or width(spans) <= space.columns:
            return tuple(spans) if len(spans) > 1 else ()
        del done[min(1, len(done) - 1)]


def _past(one: Stretch) -> str:
    if one.phase in _PAST:
        return _PAST[one.phase]
    return step_name(one.step) if one.step is not None else phase_word(one.phase)


def _given_back(one: Stretch, seen: Glance) -> str:
    """Return by how much the page cache shrank, where it was dropped in this very start."""
    dropped = seen.dropped
    if one.phase is not Phase.DROPPING_CACHES or dropped is None or dropped.ts < one.began:
        return ""
    less = (dropped.before.page_cache - dropped.after.page_cache) / GIB
    return f" −{less:.1f}" if less >= _NOTICED / GIB else ""


# --- on a screen of its own -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Time:
    """The stretch of time, in seconds, that the bars of all phases are drawn on."""

    began: float
    whole: float


def course_parts(course: Course, now: float, space: Space) -> list[Part]:
    """Return every phase with what it took, where that lies in the whole start, and those that are still to come."""
    until = course.told if course.is_over else now
    merged = _merged(course.stretches)
    taken = course.seconds(until)
    parts = [Part(0, (_whole(course, taken, space),))]
    if not merged:
        return parts
    began = merged[0].began
    time = _Time(began, max(course.expected or 0.0, until - began, 1.0))
    for at, one in enumerate(merged):
        goes_on = at == len(merged) - 1 and not course.is_over
        failed = at == len(merged) - 1 and course.phase is Phase.FAILED
        row_ = _stretch_row(one, until, time, space, goes_on=goes_on, failed=failed)
        parts.append(Part(1 if goes_on or failed else 4 + len(merged) - at, (row_,)))
    ahead = [phase for phase in _AHEAD if phase.rank > course.phase.rank] if not course.is_over else []
    sign = symbol(Phase.PLANNED, space.ascii_only)
    parts += [
        Part(5, (row(label(sign), " " * space.bar, Span(f"  {phase_word(phase)}", Tone.LABEL)),)) for phase in ahead
    ]
    return parts


def _whole(course: Course, taken: float | None, space: Space) -> Row:
    spans = [label("start"), Span(clock(taken), Tone.STRONG)]
    if course.expected:
        spans.append(Span(f" of about {clock(course.expected)}", Tone.UNIT))
        if taken is not None and is_late(taken, course.expected):
            spans.append(Span("   longer than usual", Tone.ATTENTION))
    return cut(tuple(spans), space.columns)


def _doing(one: Stretch) -> str:
    return phase_word(one.phase) if one.step is None else step_name(one.step)


def _stretch_row(one: Stretch, now: float, time: _Time, space: Space, *, goes_on: bool, failed: bool) -> Row:
    """Return a phase: what it took, where that lies in the whole start, its name."""
    sign, tone = ("✓", Tone.GOOD) if not goes_on else (symbol(one.phase, space.ascii_only), Tone.ATTENTION)
    if failed:
        sign, tone = symbol(Phase.FAILED, space.ascii_only), Tone.BAD
    told = Tone.VALUE if goes_on or failed else Tone.LABEL
    start = min(space.bar - 1, int((one.began - time.began) / time.whole * space.bar))
    cells = max(1, min(space.bar - start, round(one.seconds(now) / time.whole * space.bar)))
    mark = "=" if space.ascii_only else "━"
    done = f"{step_done(one.step)} " if (goes_on or failed) and one.step is not None and step_done(one.step) else ""
    name = row(Span(f"  {done}", Tone.VALUE), Span(_doing(one), told))
    bar = Tone.BAD if failed else Tone.ACCENT if goes_on else Tone.OTHER
    head = row(Span(f"{sign} ", tone), Span(f"{clock(one.seconds(now)):>5} ", Tone.VALUE))
    line = row(" " * start, Span(mark * cells, bar), " " * (space.bar - start - cells))
    return cut((*head, *line, *name), space.columns)


def took_row(course: Course, space: Space) -> Row | None:
    """Return in a row what a start took that is over, phase by phase as far as there is room."""
    taken = course.seconds(course.told)
    if taken is None or not course.stretches:
        return None
    spans = list(_whole(course, taken, space))
    gap = "   "
    for one in _merged(course.stretches):
        piece = f"{gap}{_doing(one)} {clock(one.seconds(course.told))}"
        if width(spans) + len(piece) > space.columns:
            break
        spans.append(Span(piece, Tone.LABEL))
        gap = " · "
    return tuple(spans)


def _merged(stretches: Sequence[Stretch]) -> list[Stretch]:
    """Return the stretches with those of the same phase and step that follow each other as one."""
    found: list[Stretch] = []
    for one in stretches:
        last = found[-1] if found else None
        if last is not None and (last.phase, _name(last)) == (one.phase, _name(one)):
            found[-1] = Stretch(one.phase, one.step, last.began, one.ended)
        else:
            found.append(one)
    return found


def _name(one: Stretch) -> str | None:
    return None if one.step is None else one.step.name
