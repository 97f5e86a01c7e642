"""The screen of a switch: what would stop, stay and come; then each step with its proof; then how it ended. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import dropwhile

from sparkctl.core.switch_course import StepTaken as Taken
from sparkctl.core.switch_course import SwitchCourse
from sparkctl.model.events import Ended, Outcome
from sparkctl.model.finding import Severity
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase
from sparkctl.model.sample import MemoryBar
from sparkctl.model.switch import SwitchPlan, SwitchStep
from sparkctl.model.units import clock, spoken
from sparkctl.present.fold import first_command, within
from sparkctl.present.frame import filled
from sparkctl.present.glance import COMING, Glance
from sparkctl.present.results import result_line
from sparkctl.present.scrolled import Page, scrolled
from sparkctl.present.spans import Row, Span, Tone, ends, row, said
from sparkctl.present.start_parts import start_parts
from sparkctl.present.switch_picture import pictures
from sparkctl.present.switch_words import kept, step_words, summary
from sparkctl.present.symbols import symbol
from sparkctl.present.tile_parts import Space

WAY = (
    SwitchStep.CHECKING, SwitchStep.STOPPING, SwitchStep.RELEASING, SwitchStep.STARTING, SwitchStep.CLEARING, SwitchStep.DONE,
)  # fmt: skip
_WAY_BACK = (SwitchStep.UNDOING, SwitchStep.RESTORING, SwitchStep.RESTORED)
_REACHED = (SwitchStep.DONE, SwitchStep.RESTORED, SwitchStep.LEFT)
_DONE = {
    SwitchStep.CHECKING: "checked", SwitchStep.STOPPING: "stopped", SwitchStep.RELEASING: "released",
    SwitchStep.STARTING: "started", SwitchStep.CLEARING: "cleared", SwitchStep.RESTORING: "restored",
}  # fmt: skip
_HANG = 9  # columns before what is said of a step
_PROOF = 3  # lines of what a log says, at most: it is whole in the log
_WORD = 10  # columns of the word for a step that is done


@dataclass(frozen=True, slots=True)
class SwitchScene:
    """All that the screen shows. ``nodes``: where the new one is wanted, as far as that was said. ``plan`` None: not made yet,
    or it cannot be made, and ``trouble`` is why. ``bars`` is the Sparks' memory now, or as it was when the switch began;
    ``glances`` are what is known of them now; ``now`` in unix seconds. ``course``: a switch that has begun. ``do_key``: by
    which it is done. ``cautions``: what was said while it was planned, each with what can be done about it."""

    profile: str
    nodes: tuple[NodeName, ...] = ()
    plan: SwitchPlan | None = None
    is_planning: bool = False
    trouble: str | None = None
    hint: str | None = None
    bars: Mapping[NodeName, MemoryBar] = field(default_factory=dict)
    glances: Mapping[NodeName, Glance] = field(default_factory=dict)
    course: SwitchCourse | None = None
    now: float = 0.0
    further: int = 0
    ascii_only: bool = False
    do_key: str | None = "enter"
    cautions: tuple[tuple[str, str | None], ...] = ()


def switch_rows(scene: SwitchScene, columns: int, lines: int) -> Page:
    """Return exactly ``lines`` rows; what has no room is reached by scrolling."""
    inner = max(20, columns - 2)
    course = scene.course
    rows: list[Row] = []
    if course is not None:
        if course.end is not None:
            rows += [*_end(course, course.end, scene, inner), ()]
        rows += [*_steps(course, scene, inner), ()]
        plan = course.plan
    else:
        plan = scene.plan
        rows += [*_said(scene, inner), ()]
    if plan is not None and not (course is not None and _is_undone(course)):
        rows += pictures(plan, scene.bars, inner, scene.ascii_only, has_begun=course is not None)
    page = scrolled(rows, scene.further, lines, scene.ascii_only)
    return Page(filled([row(" ", *one) for one in page.rows], columns, lines, scene.ascii_only), page.further)


def _is_undone(course: SwitchCourse) -> bool:
    """Tell whether it is over and came to something else than its plan: that is no picture of these Sparks any more."""
    return course.end is not None and course.end.outcome not in (Outcome.READY, Outcome.DONE)


# --- before ------------------------------------------------------------------------------------------------------------


def _said(scene: SwitchScene, columns: int) -> list[Row]:
    """Return what it comes to, what stands against it, and what to press."""
    if scene.plan is None:
        if scene.trouble is not None:
            rows = _sentences(scene.trouble, columns, symbol(Severity.PROBLEM, scene.ascii_only), Tone.BAD)
            return rows + _ways(scene.hint, columns)
        return [row(Span("looking at the Sparks: what stands there, and what it would meet ...", Tone.STALE))]
    plan = scene.plan
    about = "" if plan.seconds is None else f"about {clock(plan.seconds)} until ready"
    rows = _sentences(summary(plan), columns, "", Tone.STRONG)
    bad, caution = (symbol(one, scene.ascii_only) for one in (Severity.PROBLEM, Severity.WARNING))
    rows += [each for one in plan.obstacles for each in _sentences(one, columns, bad, Tone.BAD)]
    rows += [each for one in plan.cautions for each in _sentences(one, columns, caution, Tone.ATTENTION)]
    for words, hint in scene.cautions:
        if words not in plan.cautions:
            rows += [*_sentences(words, columns, caution, Tone.ATTENTION), *_ways(hint, columns)]
    if plan.obstacles or plan.is_there:
        return rows
    if (way_back := kept(plan)) is not None:
        rows += _sentences(way_back, columns, "", Tone.LABEL)
    if scene.do_key is not None and not scene.is_planning:
        key = row(Span(scene.do_key, Tone.KEY), Span(" does it, after a question", Tone.LABEL))
        rows.append(ends(key, row(Span(about, Tone.UNIT)), columns))
    elif scene.is_planning:
        rows.append(row(Span("being looked at again ...", Tone.STALE)))
    return rows


def _sentences(words: str, columns: int, sign: str, tone: Tone) -> list[Row]:
    head = f"{sign} " if sign else ""
    rows: list[Row] = []
    for line in filter(None, words.splitlines()):
        for piece in within(said(line).text, max(16, columns - len(head)), 0):
            rows.append(row(Span(head if not rows or piece == line else " " * len(head), tone), Span(piece, tone)))
    return rows


def _ways(hint: str | None, columns: int) -> list[Row]:
    """Return what can be done, each way in a row of its own, commands so that they can be copied whole."""
    rows: list[Row] = []
    for line in filter(None, (hint or "").splitlines()):
        command = first_command(line)
        ways = (
            [line] if command is None or not line.startswith(f"{command}, or ") else [command, line[len(command) + 5 :]]
        )
        for at, way in enumerate(ways):
            head = "  or: " if at else "  try: "
            told = within(said(way).text, max(16, columns - len(head)), 0)
            rows += [
                row(Span(head if not each else " " * len(head), Tone.VALUE), Span(piece, Tone.VALUE))
                for each, piece in enumerate(told)
            ]
    return rows


def command_of(scene: SwitchScene) -> str | None:
    """Return the first command that the screen offers as a way out, None where it offers none."""
    hints = [scene.hint, *(hint for _, hint in scene.cautions)]
    if scene.course is not None:
        hints = [None if scene.course.end is None else scene.course.end.hint]
    lines = [line for hint in hints if hint for line in hint.splitlines()]
    return next((one for one in map(first_command, lines) if one is not None), None)


# --- its steps ---------------------------------------------------------------------------------------------------------


def words_of(step: SwitchStep, course: SwitchCourse, *, is_done: bool = False) -> str:
    """Return what a step of this switch does, or has done."""
    stops = () if course.plan is None else course.plan.stops
    return step_words(step, course.instance, stops, is_done=is_done)


def _steps(course: SwitchCourse, scene: SwitchScene, columns: int) -> list[Row]:
    rows: list[Row] = []
    for at, one in enumerate(course.steps):
        if at and one.step in _REACHED and one.proofs and set(one.proofs) <= set(course.steps[at - 1].proofs):
            continue  # the step before it has said so
        is_last = at == len(course.steps) - 1
        rows += _step(one, course, scene, columns, goes_on=is_last and one.ended is None and not course.is_over)
    if not course.is_over:
        rows += [_coming(step, course, scene.ascii_only) for step in _ahead(course)]
    return rows or [row(Span("beginning ...", Tone.STALE))]


def _step(one: Taken, course: SwitchCourse, scene: SwitchScene, columns: int, *, goes_on: bool) -> list[Row]:
    is_asked = one.step is SwitchStep.UNDOING and all(each.step in _WAY_BACK for each in course.steps)
    sign, tone = _sign(one, scene.ascii_only, goes_on=goes_on, is_asked=is_asked)
    until = scene.now if goes_on else one.ended
    taken = "" if until is None or one.step in _REACHED else clock(max(0.0, until - one.began))
    head, hang = row(Span(f"{sign} ", tone), Span(f"{taken:>5}  ", Tone.VALUE)), _HANG
    several = len({proof.node for proof in one.proofs}) > 1
    told = [
        (f"{proof.node}: {proof.text}" if several and proof.node else proof.text, Tone.LABEL) for proof in one.proofs
    ]
    if told and one.ended is not None and one.step in _DONE:
        head, hang = row(*head, Span(f"{_DONE[one.step]:<{_WORD}}", Tone.PLAIN)), _HANG + _WORD
    elif not told or one.step not in (SwitchStep.DONE, SwitchStep.RESTORED):  # what proves the last one says it
        words = words_of(one.step, course, is_done=one.ended is not None)
        told = told if told and one.step in _REACHED else [(words, Tone.STRONG if goes_on else Tone.PLAIN), *told]
    lines = [(line, kind) for words, kind in told for line in within(said(words).text, max(16, columns - hang), 0)]
    rows = [row(*(head if not at else row(" " * hang)), Span(line, kind)) for at, (line, kind) in enumerate(lines)]
    return rows + (_live(course, scene, columns) if goes_on else [])


def _live(course: SwitchCourse, scene: SwitchScene, columns: int) -> list[Row]:
    """Return how far what is being stopped or started by this step is, on each Spark."""
    old = () if course.plan is None else course.plan.stops
    rows: list[Row] = []
    space = Space(max(24, columns - _HANG), scene.ascii_only)
    for name, seen in scene.glances.items():
        for one in seen.view.instances:
            stops = one.phase is Phase.STOPPING
            is_new = course.step is SwitchStep.STARTING and one.name == course.instance and not stops
            is_old = course.step is SwitchStep.RESTORING and one.name != course.instance and not stops
            goes = course.step is SwitchStep.STOPPING and stops and (not old or one.name in old)
            if one.ours and one.phase in COMING and (is_new or is_old or goes):
                rows.append(row(" " * _HANG, said(f"{one.name} on {name}", Tone.LABEL)))
                rows += [row(" " * _HANG, *each) for part in start_parts(one, seen, space) for each in part.rows]
    return rows


def _sign(one: Taken, ascii_only: bool, *, goes_on: bool, is_asked: bool) -> tuple[str, Tone]:
    """``is_asked``: nothing failed here, somebody undoes what was left."""
    if one.step in (SwitchStep.UNDOING, SwitchStep.LEFT) and not is_asked:
        return symbol(Phase.FAILED, ascii_only), Tone.BAD
    if goes_on:
        return symbol(Phase.STARTING, ascii_only), Tone.ATTENTION
    if one.ended is None:
        return symbol(Phase.FAILED, ascii_only), Tone.BAD
    return "+" if ascii_only else "✓", Tone.GOOD


def _ahead(course: SwitchCourse) -> Sequence[SwitchStep]:
    step = course.step
    if step is None:
        return WAY
    way = _WAY_BACK if step in _WAY_BACK else WAY
    return list(dropwhile(lambda each: each is not step, way))[1:]


def _coming(step: SwitchStep, course: SwitchCourse, ascii_only: bool) -> Row:
    return row(Span(f"{'.' if ascii_only else '·'} {'':5}  {words_of(step, course)}", Tone.STALE))


# --- its end -----------------------------------------------------------------------------------------------------------


def _end(course: SwitchCourse, end: Ended, scene: SwitchScene, columns: int) -> list[Row]:
    """Return how it ended: ready, or why not, and what became of the one before."""
    if end.outcome in (Outcome.READY, Outcome.DONE):
        words, tone = result_line("switch", end, [end.node] if end.node else [], (), scene.ascii_only)
        rows = _sentences(words, columns, "", tone)
        return [*rows, row(Span(f"{spoken(end.seconds)} in all", Tone.LABEL))]
    bad = symbol(Phase.FAILED, scene.ascii_only)
    rows = _restored(course, scene, columns)
    has_story = end.verdict is not None
    if end.verdict is not None:
        rows += _sentences(f"{course.instance} failed: {end.verdict.summary}", columns, bad, Tone.BAD)
        for proof in end.verdict.evidence[:1]:
            told = _sentences(f"{proof.place}: {proof.text}", columns, " ", Tone.VALUE)
            rows += told[:_PROOF]
            if len(told) > _PROOF:
                rows[-1] = (*rows[-1], Span(" .." if scene.ascii_only else " …", Tone.LABEL))
        rows += _ways(end.verdict.remedy, columns)
    if end.message is not None and not (has_story and course.steps[-1].step is SwitchStep.RESTORED):
        rows += _sentences(end.message, columns, " " if has_story else bad, Tone.ATTENTION if rows else Tone.BAD)
    rows += _ways(end.hint, columns)
    return rows or _sentences(f"{end.outcome} after {spoken(end.seconds)}", columns, bad, Tone.BAD)


def _restored(course: SwitchCourse, scene: SwitchScene, columns: int) -> list[Row]:
    """Return that the one before serves again, and what proves it: that is what an owner wants to know first."""
    restored = next((one for one in course.steps if one.step is SwitchStep.RESTORED), None)
    if restored is None:
        return []
    old = words_of(SwitchStep.RESTORED, course, is_done=True)
    proofs = "; ".join(one.text for one in restored.proofs)
    said = proofs if proofs.startswith(old) else f"{old}: {proofs}" if proofs else old
    return _sentences(said, columns, symbol(Phase.READY, scene.ascii_only), Tone.GOOD)
