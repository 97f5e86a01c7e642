"""The instance screen as rows: its state and figures, memory against claim, the log's end, what it runs with. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkctl.core.course import Course
from sparkctl.core.parts import is_head
from sparkctl.model.events import Ended, Warned
from sparkctl.model.finding import Severity
from sparkctl.model.instance import InstanceView
from sparkctl.model.metrics import Activity
from sparkctl.model.phase import Phase
from sparkctl.model.text import clean
from sparkctl.model.units import spoken
from sparkctl.operations.starting.launched import Launched
from sparkctl.present.frame import filled, framed
from sparkctl.present.glance import COMING, Badge, Glance, instance_badge
from sparkctl.present.instance_parts import (
    claim_rows,
    latency_rows,
    plan_rows,
    position_rows,
    step_cost_row,
    tail_rows,
    verdict_keys,
    verdict_parts,
)
from sparkctl.present.level import chosen_rows, with_curves
from sparkctl.present.numbers import IDLE
from sparkctl.present.scrolled import Page, scrolled
from sparkctl.present.spans import Row, Span, Tone, cut, row, said, toned, width
from sparkctl.present.start_parts import course_parts, start_parts, took_row
from sparkctl.present.symbols import symbol
from sparkctl.present.tile_curves import gpu_parts, speed_part
from sparkctl.present.tile_memory import memory_parts
from sparkctl.present.tile_parts import (
    Part,
    Space,
    accept_row,
    away_rows,
    decode_row,
    engine_words,
    failure_rows,
    folded,
    gpu_rows,
    head_words,
    label,
    rank_of,
    reads_row,
    uses_row,
)

_WIDE = 110  # columns from which on the plan stands beside
_LOG = 8  # lines of a box of the log, or of the plan, that is worth its frame beside the other
_LEAST = 4  # lines of a box that says something
_FRAME = 6  # columns of a frame beside its title
_TALL = 40  # lines from which on there is room for all of a start above the rest


@dataclass(frozen=True, slots=True)
class InstanceScene:
    """All that the screen shows. ``one`` is None where it is not there (any more); ``end`` is how a start of it ended that
    was watched, ``course`` how that went. ``run`` is what it runs with, or ``run_trouble`` why that is not known; ``tail``
    are the last lines of its log, ``tail_trouble`` what is the matter with following it. ``remedies`` are the keys that may
    mend a failure, each with what it does; ``end_trouble`` is why there is no verdict. ``warnings``: of its last start
    from here. ``accepts``: the key that does what its verdict proposes."""

    seen: Glance
    name: str
    one: InstanceView | None = None
    course: Course | None = None
    end: Ended | None = None
    run: Launched | None = None
    run_trouble: str | None = None
    tail: tuple[str, ...] = ()
    tail_trouble: str | None = None
    ascii_only: bool = False
    remedies: tuple[tuple[str, str], ...] = ()
    end_trouble: str | None = None
    warnings: tuple[Warned, ...] = ()
    accepts: str | None = None


def instance_rows(scene: InstanceScene, columns: int, lines: int) -> tuple[Row, ...]:
    """Return exactly ``lines`` rows of exactly ``columns``."""
    rows = _beside(scene, columns, lines) if columns >= _WIDE and lines >= 20 else _stacked(scene, columns, lines)
    return filled(rows, columns, lines, scene.ascii_only)


def instance_page(scene: InstanceScene, columns: int, lines: int, further: int) -> Page:
    """Return what fits on ``lines`` rows; read on from there, all of it below each other from row ``further`` on."""
    if further <= 0:
        return Page(instance_rows(scene, columns, lines))
    page = scrolled(_whole(scene, columns, lines), further, lines, scene.ascii_only)
    return Page(filled(page.rows, columns, lines, scene.ascii_only), page.further)


def _whole(scene: InstanceScene, columns: int, lines: int) -> list[Row]:
    """Return all that there is to be said, each box as tall as it has a use for."""
    space = Space(max(8, columns - 4), scene.ascii_only)
    state, memory = _state_parts(scene, space, roomy=True), _memory_parts(scene, space)
    boxes = [(_title(scene), [each for part in with_curves(state, _height(state) + lines) for each in part.rows])]
    if memory:
        boxes.append((_named(_memory_name(scene)), [each for part in memory for each in part.rows]))
    boxes.append((_named("runs with"), _plan(scene, columns - 4)))
    rows = [each for title, body in boxes for each in _box(scene, title, body, columns, len(body) + 2)]
    return [*rows, *_log(scene, columns, max(_LOG, lines - 1))]


def _beside(scene: InstanceScene, columns: int, lines: int) -> list[Row]:
    left = max(columns // 2, 60)
    right = columns - left
    space = Space(left - 4, scene.ascii_only)
    state, memory = _state_parts(scene, space, roomy=True), _memory_parts(scene, space)
    plan = _plan(scene, right - 4)
    needed = _height(state) + 2 + (_height(memory) + 2 if memory else 0)
    top = min(lines - _LOG, max(needed, len(plan) + 2))
    below = min(_height(memory) + 2, top // 2) if memory else 0
    room = top - below - 2
    lefts = [*_box(scene, _title(scene), chosen_rows(with_curves(state, room), room), left, top - below)]
    if memory:
        lefts += _box(scene, _named(_memory_name(scene)), chosen_rows(memory, below - 2), left, below)
    rights = _box(scene, _named("runs with"), _cut(plan, top - 2), right, top)
    rows = [(*one, *other) for one, other in zip(lefts, rights, strict=True)]
    return [*rows, *_log(scene, columns, lines - top)]


def _stacked(scene: InstanceScene, columns: int, lines: int) -> list[Row]:
    space = Space(max(8, columns - 4), scene.ascii_only)
    state, memory = _state_parts(scene, space, roomy=lines >= _TALL), _memory_parts(scene, space)
    first = min(lines, _height(state) + 2)
    left = lines - first
    title = _leading_on(_title(scene), columns)
    if left < _LEAST:
        return list(_box(scene, title, chosen_rows(state, lines - 2), columns, lines))
    rows = [*_box(scene, title, chosen_rows(state, first - 2), columns, first)]
    if memory and left >= _LEAST:
        high = min(_height(memory) + 2, max(3, left - _LEAST))
        if left - high < _LEAST:
            high = left
        rows += _box(scene, _named(_memory_name(scene)), chosen_rows(memory, high - 2), columns, high)
        left -= high
    plan = _plan(scene, columns - 4)
    for_plan = min(len(plan) + 2, left // 2)
    if for_plan < _LOG:
        for_plan = 0  # one key away
    rows += _log(scene, columns, left - for_plan) if left else []
    if for_plan:
        rows += _box(scene, _named("runs with"), _cut(plan, for_plan - 2), columns, for_plan)
    return rows


def _height(parts: Sequence[Part]) -> int:
    return sum(len(part.rows) for part in parts)


def _box(scene: InstanceScene, title: Row, rows: Sequence[Row], columns: int, lines: int) -> tuple[Row, ...]:
    return framed(title, rows, columns, lines, chosen=False, ascii_only=scene.ascii_only)


def _named(name: str) -> Row:
    return row(Span(name, Tone.LABEL))


def _memory_name(scene: InstanceScene) -> str:
    return f"memory of {clean(scene.seen.name)} now, not at the failure" if _has_failed(scene) else "memory"


def _cut(rows: Sequence[Row], room: int) -> list[Row]:
    if len(rows) <= room or room < 1:
        return list(rows)
    more = len(rows) - room + 1
    return [*rows[: room - 1], row(Span("d", Tone.KEY), Span(f" shows {more} lines more", Tone.LABEL))]


# --- state ------------------------------------------------------------------------------------------------------------


def _title(scene: InstanceScene) -> Row:
    badge = _badge(scene)
    dash = Span(" - " if scene.ascii_only else " ─ ", Tone.FRAME)
    return row(
        said(scene.seen.name, Tone.TITLE), dash, Span(f"{badge.sign} {badge.word}", badge.tone), dash,
        said(scene.name, Tone.TITLE),
    )  # fmt: skip


def _leading_on(title: Row, columns: int) -> Row:
    """Return a title with the key by which one reads on: there is always more than is seen below each other."""
    whole = row(Span("   pgdn", Tone.KEY), Span(" reads on", Tone.LABEL))
    fits = (one for one in (whole, whole[:1]) if width(title) + width(one) <= columns - _FRAME)
    return (*title, *next(fits, ()))


def _badge(scene: InstanceScene) -> Badge:
    one = scene.one
    if not scene.seen.is_known:
        state = scene.seen.told.state
        return Badge(symbol(state, scene.ascii_only), str(state), Tone.STALE)
    if _has_failed(scene):
        taken = _taken(scene)
        words = f"failed after {spoken(taken)}" if taken else "failed"
        return Badge(symbol(Phase.FAILED, scene.ascii_only), words, Tone.BAD)
    if one is None:
        return Badge(symbol(Phase.STOPPED, scene.ascii_only), "not there", Tone.LABEL)
    return instance_badge(one, scene.ascii_only, scene.seen.ready_for(one))


def _taken(scene: InstanceScene) -> float | None:
    """Return how long a start took that failed: as its phases have it, which stand below, else as its end does."""
    course = scene.course
    if course is not None and course.phase is Phase.FAILED and course.elapsed is not None:
        return course.elapsed
    return None if scene.end is None else scene.end.seconds


def _has_failed(scene: InstanceScene) -> bool:
    if scene.one is None:
        return scene.end is not None and scene.end.verdict is not None
    return scene.one.phase is Phase.FAILED


def _state_parts(scene: InstanceScene, space: Space, *, roomy: bool) -> list[Part]:
    seen, one = scene.seen, scene.one
    if not seen.is_known:
        parts = [Part(1, tuple(away_rows(seen, space)))]
        return parts if one is None else [*parts, *_faded(_about(one, space))]
    if _has_failed(scene):
        return [*_failure(scene, space, roomy=roomy), *_warnings(scene, space)]  # its phases before what it warned of
    if one is None:
        return [Part(0, (row(Span("It is not on this Spark now.", Tone.VALUE)), _saved()))]
    if one.phase in COMING:
        return [
            *_coming(scene, one, space),
            *_warnings(scene, space),
            *_about(one, space),
            *_gpu(scene, space),
            *(gpu_parts(seen, space) if roomy else []),
        ]
    return [*_about(one, space), *_doing(scene, one, space, roomy=roomy), *_warnings(scene, space)]


def _warnings(scene: InstanceScene, space: Space) -> list[Part]:
    """Return what its start has warned of, with its sign, a line each; the notice and `i` have it in full."""
    sign = symbol(Severity.WARNING, scene.ascii_only)
    return [
        Part(9, (cut(row(label("warned"), said(f"{sign} {one.message}", Tone.ATTENTION)), space.columns),))
        for one in scene.warnings[-3:]
    ]


def _saved() -> Row:
    return row(Span("l", Tone.KEY), Span(" shows the log that was kept of it, if there is one", Tone.LABEL))


def _faded(parts: Sequence[Part]) -> list[Part]:
    return [Part(one.spare + 1, tuple(toned(each, Tone.STALE) for each in one.rows)) for one in parts]


def _about(one: InstanceView, space: Space) -> list[Part]:
    """Return what it is: engine, port, whose."""
    words = [engine_words(one), f":{one.port}" if one.port is not None else "", one.container if not one.ours else ""]
    if one.operator:
        words.append(f"by {one.operator}")
    rows = [row(label("what"), said("   ".join(word for word in words if word), Tone.VALUE))]
    if one.endpoint and space.columns >= 56:
        rows.append(row(label("at"), said(one.endpoint, Tone.VALUE)))
    if (uses := uses_row(one, space)) is not None:
        rows.append(uses)
    told = [Part(3, (rows[0],)), *(Part(6, (each,)) for each in rows[1:])]
    return [*told, *_part(one, space)] if is_head(one) or one.phase is not Phase.READY else told


def _part(one: InstanceView, space: Space) -> list[Part]:
    """Return which rank it is, and where the others are; nothing of a model on one Spark."""
    if one.place is None:
        return []
    others = [clean(node) for node in one.nodes if node != one.node]
    words = rank_of(one) + (f", with {' and '.join(others)}" if others else "")
    return [Part(3, tuple(folded("part", words, space, Tone.VALUE, 2)))]


def _failure(scene: InstanceScene, space: Space, *, roomy: bool) -> list[Part]:
    verdict = None if scene.end is None else scene.end.verdict
    if verdict is not None:
        parts = [
            *verdict_parts(verdict, space),
            *(Part(1, (each,)) for each in verdict_keys(verdict, space, scene.remedies, scene.accepts, roomy=roomy)),
        ]
    else:
        assert scene.one is not None
        rows = failure_rows(scene.one, scene.seen, space)
        hint = row(
            Span("l", Tone.KEY), Span(" log, then ", Tone.LABEL), Span("E", Tone.KEY), Span(" for its first error", Tone.LABEL),
        )  # fmt: skip
        why = scene.end_trouble or "nobody here watched this start"
        parts = [Part(0, tuple(rows)), Part(1, (*folded("", why, space, Tone.STALE, 2), hint))]
    parts += _took(scene, space, roomy=roomy)
    return parts if scene.one is None else [*parts, *_about(scene.one, space)[:1], *_part(scene.one, space)]


def _coming(scene: InstanceScene, one: InstanceView, space: Space) -> list[Part]:
    if scene.course is not None and not scene.course.is_over and one.phase is not Phase.STOPPING:
        return course_parts(scene.course, scene.seen.now, space)
    told = [Part(3, (row(label(""), said(one.detail, Tone.LABEL)),))] if one.detail else []
    return [*start_parts(one, scene.seen, space), *told]


def _took(scene: InstanceScene, space: Space, *, roomy: bool) -> list[Part]:
    """Return how its start went, as far as it was watched: phase by phase where there is room."""
    if scene.course is None or not scene.course.stretches:
        return []
    if roomy:
        return [Part(7 + part.spare, part.rows) for part in course_parts(scene.course, scene.seen.now, space)]
    took = took_row(scene.course, space)
    return [] if took is None else [Part(8, (took,))]


def _doing(scene: InstanceScene, one: InstanceView, space: Space, *, roomy: bool) -> list[Part]:
    if one.phase is Phase.READY and (head := scene.seen.heads.get(one.name)) is not None:
        rank = rank_of(one)
        part = row(label("part"), *([Span(f"{rank} · ", Tone.LABEL)] if rank else []), *head_words(one, head))
        decode = Part(1, (decode_row(head.numbers, space),))
        accept = accept_row(head, scene.seen, space)
        return [Part(1, (part,)), decode, *([] if accept is None else [Part(2, (accept,))]), *_gpu(scene, space)]
    if one.phase is not Phase.READY or one.port is None:
        words = one.detail or (
            "a container that sparkctl did not start; its figures are not read" if not one.ours else ""
        )
        parts = [Part(1, tuple(folded("", words, space, Tone.LABEL, 3)))] if words else []
        return [*parts, *_gpu(scene, space)]
    parts = [Part(0, (decode_row(one.numbers, space),))]
    if roomy and (speed := speed_part(one, scene.seen, space)) is not None:
        parts.append(speed)
    numbers = one.numbers
    if (accept := accept_row(one, scene.seen, space)) is not None:
        parts.append(Part(1, (accept,)))
    if numbers is not None:
        if numbers.activity is Activity.IDLE and one.per_step is not None and one.per_step.draft_tokens:
            parts.append(Part(2, (row(label("accept"), Span(IDLE, Tone.VALUE)),)))
        last = scene.seen.drafting.get(one.container_id or "")
        if positions := position_rows(numbers.acceptance, space, last, scene.seen.now):
            parts.append(Part(4, tuple(positions)))
        if (reads := reads_row(one, scene.seen, space)) is not None:
            parts.append(Part(3, (reads,)))
        drafts = one.per_step is not None and bool(one.per_step.draft_tokens)
        parts += [Part(5, (each,)) for each in latency_rows(numbers, drafts, last, scene.seen.now)]
        if (steps := step_cost_row(numbers, one.per_step)) is not None:
            parts.append(Part(6, (steps,)))
    if one.metrics_hint is not None:
        hint = f"/metrics is off; in the profile: {one.metrics_hint}"
        parts.append(Part(7, tuple(folded("", hint, space, Tone.LABEL, 2))))
    parts += _gpu(scene, space)
    if roomy:
        parts += gpu_parts(scene.seen, space)
    return [*parts, *_took(scene, space, roomy=roomy)]


def _gpu(scene: InstanceScene, space: Space) -> list[Part]:
    return [Part(4, tuple(gpu_rows(scene.seen, space)))]


# --- the other boxes --------------------------------------------------------------------------------------------------


def _memory_parts(scene: InstanceScene, space: Space) -> list[Part]:
    parts = []
    bar = scene.seen.view.memory
    if scene.one is not None:
        rows = claim_rows(scene.one, None if bar is None else bar.total, space)
        parts += [Part(1 if not at else 2, (each,)) for at, each in enumerate(rows)]
    if bar is not None:
        parts += memory_parts(scene.seen, space)
    return parts if scene.seen.is_known else _faded(parts)


def _plan(scene: InstanceScene, columns: int) -> list[Row]:
    if scene.run is None:
        return [row(said(scene.run_trouble or "being read from its container ...", Tone.STALE))]
    return plan_rows(scene.run, columns)


def _log(scene: InstanceScene, columns: int, lines: int) -> tuple[Row, ...]:
    title = row(Span("log", Tone.LABEL), Span("   l", Tone.KEY), Span(" all of it", Tone.LABEL))
    return _box(scene, title, tail_rows(scene.tail, scene.tail_trouble, lines - 2, columns - 4), columns, lines)
