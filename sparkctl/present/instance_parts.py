"""The parts of the instance screen: why it failed, how far its start is, what it does, what it holds, what it runs with."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sparkctl.core.course import Course, Stretch
from sparkctl.core.logmarks import Level, header
from sparkctl.model.events import Ended
from sparkctl.model.instance import InstanceView
from sparkctl.model.metrics import Acceptance, Numbers
from sparkctl.model.phase import Phase, Step
from sparkctl.model.plan import LaunchPlan, ReadyRule
from sparkctl.model.text import clean
from sparkctl.model.units import GIB, clock, gib
from sparkctl.model.verdict import Verdict
from sparkctl.operations.launched import Launched
from sparkctl.present import numbers as words
from sparkctl.present.docker_line import docker_line
from sparkctl.present.fold import fold
from sparkctl.present.sentences import phase_word, step_words
from sparkctl.present.spans import Row, Span, Tone, cells, row, said
from sparkctl.present.symbols import bar, symbol
from sparkctl.present.tile_parts import Part, Space, folded, label

_ASKED = re.compile(r'"GET /(?:health|metrics)\S* HTTP')
_LEVELS = {Level.WARNING: Tone.ATTENTION, Level.ERROR: Tone.BAD}
_MORE = 1.1  # times what is expected
_POSITIONS = 8
_WIDEST = 40
_AHEAD = (Phase.DROPPING_CACHES, Phase.CREATING, Phase.STARTING, Phase.LOADING, Phase.WARMING)


# --- a verdict --------------------------------------------------------------------------------------------------------


def verdict_parts(verdict: Verdict, space: Space) -> list[Part]:
    """Return what happened, the lines that prove it, what to change, and the keys that lead on."""
    room = max(8, space.columns)
    parts = [Part(0, tuple(row(Span(line.strip(), Tone.STRONG)) for line in fold(clean(verdict.summary), room, 0)))]
    for at, proof in enumerate(verdict.evidence):
        where = f"line {proof.line:<5} " if proof.line is not None else f"{proof.origin:<10} "
        parts.append(Part(2 + at, tuple(folded("proof" if not at else "", where + proof.text, space, Tone.VALUE, 2))))
    parts.append(Part(1, tuple(folded("try", verdict.remedy, space, Tone.VALUE, 4))))
    return parts


def verdict_keys(verdict: Verdict) -> Row:
    """Return the keys under a verdict; the proof is one of them away."""
    line = evidence_line(verdict)
    log = " log" if line is None else f" log at line {line}"
    return row(
        Span("l", Tone.KEY), Span(log, Tone.LABEL), Span("     y", Tone.KEY), Span(" copy verdict", Tone.LABEL),
        Span("     u", Tone.KEY), Span(" start a profile", Tone.LABEL),
    )  # fmt: skip


def evidence_line(verdict: Verdict) -> int | None:
    """Return the line of the log that proves it best, None where it is no line of the log."""
    return next((proof.line for proof in verdict.evidence if proof.line is not None), None)


def verdict_text(end: Ended) -> str:
    """Return a verdict for a clipboard: a message to somebody else."""
    verdict = end.verdict
    if verdict is None:
        return clean(end.message or str(end.outcome))
    lines = [f"{end.instance} on {end.node} failed: {verdict.summary}"]
    for proof in verdict.evidence:
        where = f"log line {proof.line}" if proof.line is not None else proof.origin
        lines.append(f"  {where}: {proof.text}")
    return "\n".join(clean(line) for line in [*lines, f"  try: {verdict.remedy}"])


# --- a start ----------------------------------------------------------------------------------------------------------


def course_parts(course: Course, now: float, space: Space) -> list[Part]:
    """Return the phases with what each took, the one that goes on with its progress, those that are still to come."""
    parts = [Part(0, (_whole(course, now, space),))]
    for at, one in enumerate(course.stretches):
        last = at == len(course.stretches) - 1
        parts.append(Part(1 if last else 3 + len(course.stretches) - at, (_stretch(one, now, space, last=last),)))
    ahead = [phase for phase in _AHEAD if phase.rank > course.phase.rank]
    if ahead and not course.is_over:
        names = " · ".join(phase_word(phase) for phase in ahead)
        sign = symbol(Phase.PLANNED, space.ascii_only)
        parts.append(Part(4, (row(label("then"), Span(f"{sign} {names}", Tone.LABEL)),)))
    return parts


def _whole(course: Course, now: float, space: Space) -> Row:
    taken = course.seconds(now)
    spans = [label("start"), Span(clock(taken), Tone.STRONG)]
    if course.expected and taken is not None:
        spans.append(Span(f" of about {clock(course.expected)}", Tone.UNIT))
        room = space.columns - sum(cells(span.text) for span in spans) - 26
        if room >= 8:
            spans.append(Span("   " + bar(taken / course.expected, min(_WIDEST, room), space.ascii_only), Tone.ACCENT))
        if taken > 1.2 * course.expected:
            spans.append(Span("   longer than usual", Tone.ATTENTION))
    return tuple(spans)


def _stretch(one: Stretch, now: float, space: Space, *, last: bool) -> Row:
    goes_on = last and one.ended is None
    sign = symbol(one.phase, space.ascii_only) if goes_on else "+" if space.ascii_only else "✓"
    step = step_words(one.step, space.ascii_only) if goes_on else (step_words(_name_only(one)) if one.step else "")
    what = phase_word(one.phase) + (f" · {step}" if step else "")
    tone = Tone.VALUE if goes_on else Tone.LABEL
    return row(
        label(""), Span(f"{sign} ", Tone.ATTENTION if goes_on else Tone.GOOD), Span(f"{clock(one.seconds(now)):>7}  ", tone),
        Span(what, tone),
    )  # fmt: skip


def _name_only(one: Stretch) -> Step:

    assert one.step is not None
    return Step(one.step.name)


def took_row(course: Course, space: Space) -> Row | None:
    """Return in a row what a start took that is over, phase by phase as far as there is room."""
    taken = course.seconds(course.told)
    if taken is None or not course.stretches:
        return None
    spans = [label("start"), Span(clock(taken), Tone.VALUE)]
    if course.expected:
        spans.append(Span(f" of about {clock(course.expected)}", Tone.UNIT))
    sums: dict[Phase, float] = {}
    for one in course.stretches:
        sums[one.phase] = sums.get(one.phase, 0.0) + one.seconds(course.told)
    gap = "   "
    for phase, seconds in sums.items():
        piece = f"{gap}{phase_word(phase)} {clock(seconds)}"
        if sum(cells(span.text) for span in spans) + cells(piece) > space.columns:
            break
        spans.append(Span(piece, Tone.LABEL))
        gap = " · "
    return tuple(spans)


# --- figures ----------------------------------------------------------------------------------------------------------


def position_rows(seen: Acceptance | None, space: Space) -> list[Row]:
    """Return how often the first, second, third draft token was accepted, each as a bar; nothing where it is not told."""
    if seen is None or not seen.per_position:
        return []
    wide = max(4, min(_WIDEST, space.columns - 22))
    rows = []
    for at, share in enumerate(seen.per_position[:_POSITIONS], 1):
        name = "by pos." if at == 1 else ""
        rows.append(
            row(label(name), Span(f"{at:>2} ", Tone.LABEL), Span(bar(share, wide, space.ascii_only), Tone.ACCENT),
                Span(f"{words.percent(share):>7}", Tone.VALUE))
        )  # fmt: skip
    if (more := len(seen.per_position) - _POSITIONS) > 0:
        rows.append(row(label(""), Span(f"   {more} more", Tone.LABEL)))
    return rows


def latency_rows(numbers: Numbers, drafts: bool) -> list[Row]:
    """Return the time to the first token and between the following, prompts and the prefix cache."""
    rows = []
    if numbers.ttft is not None:
        spans = [label("TTFT"), Span(words.latency(numbers.ttft), Tone.VALUE)]
        if numbers.inter_token is not None:
            between = "steps" if drafts or numbers.acceptance is not None else "tokens"
            spans += [Span(f"   between {between} ", Tone.LABEL), Span(words.latency(numbers.inter_token), Tone.VALUE)]
        rows.append(tuple(spans))
    prompts: list[Span] = []
    if numbers.prompt_rate:
        prompts.append(Span(f"{words.speed(numbers.prompt_rate):<10}  ", Tone.VALUE))
    if numbers.prefix_hit_rate is not None:
        prompts += [Span("prefix cache ", Tone.LABEL), Span(words.percent(numbers.prefix_hit_rate), Tone.VALUE)]
    if prompts:
        rows.append((label("prompts"), *prompts))
    return rows


def claim_row(one: InstanceView, space: Space) -> Row | None:
    """Return what it holds against what it is expected to hold, as a bar; None where neither is known."""
    if one.expected is None:
        if one.memory is None:
            return None
        return row(label("holds"), Span(gib(one.memory), Tone.STRONG), Span("   no claim is known", Tone.LABEL))
    if one.memory is None:
        return row(
            label("holds"), Span(words.UNKNOWN, Tone.STALE), Span(f" of {gib(one.expected)} expected", Tone.UNIT)
        )
    over = one.memory > _MORE * one.expected
    figure = row(
        Span(f"{one.memory / GIB:5.1f}", Tone.ATTENTION if over else Tone.STRONG),
        Span(f" of {gib(one.expected)} expected", Tone.UNIT),
    )
    if over:
        figure = (*figure, Span("   more than it claims", Tone.ATTENTION))
    wide = max(4, min(_WIDEST, space.columns - 10 - sum(cells(span.text) for span in figure) - 2))
    filled = bar(one.memory / max(1, one.expected), wide, space.ascii_only)
    return row(label("holds"), Span(filled, Tone.ATTENTION if over else Tone.GPU), " ", *figure)


# --- what it runs with ------------------------------------------------------------------------------------------------


def plan_rows(run: Launched, columns: int) -> list[Row]:
    """Return the plan as it was read back from the container: what its labels say, then the ``docker run`` line."""
    plan = run.plan
    heads = [
        ("profile", f"{plan.profile}   hash {plan.profile_hash}" if plan.profile else words.UNKNOWN),
        ("image", plan.image), ("ready", ready_words(run.ready)),
        ("claims", words.UNKNOWN if plan.expected_memory is None else gib(plan.expected_memory)),
    ]  # fmt: skip
    space = Space(columns)
    rows = [each for name, sentence in heads for each in folded(name, sentence, space, Tone.VALUE, 2)]
    return [*rows, (), *run_rows(plan, columns)]


def run_rows(plan: LaunchPlan, columns: int) -> list[Row]:
    """Return the ``docker run`` line, an option a row; flags dim, values bright."""
    rows = []
    for line in docker_line(plan, with_labels=False).splitlines():
        for piece in fold(clean(line), columns, 4):
            indent = len(piece) - len(piece.lstrip(" "))
            flag, gap, value = piece.strip().partition(" ")
            spans = [Span(" " * indent), Span(flag, Tone.LABEL if flag.startswith("-") else Tone.VALUE)]
            rows.append((*spans, Span(gap + value, Tone.VALUE)))
    return rows


def ready_words(rule: ReadyRule | None) -> str:
    """Return what has to be so before it counts as ready."""
    if rule is None:
        return "its labels do not say"
    parts = [f"the line /{rule.line}/"] if rule.line else []
    parts += [f"{rule.health} answers"] if rule.health else []
    parts += [f"one token by {rule.probe}"] if rule.probe != "none" else []
    return ", then ".join(parts) or "it runs"


def tail_rows(lines: Sequence[str], trouble: str | None, room: int) -> list[Row]:
    """Return what the log said last, oldest first, without its lines' headers; where nothing came, why.

    That somebody (sparkctl, for one) asked for its health and its figures is left out.
    """
    last = [] if trouble is None else [row(said(trouble, Tone.ATTENTION))]
    shown = [line for line in lines if not _ASKED.search(line)][-max(1, room - len(last)) :] if room > len(last) else []
    if not shown and not last:
        return [row(Span("no line yet", Tone.STALE))]
    return [*map(_tail_row, shown), *last]


def _tail_row(line: str) -> Row:
    text = clean(line)
    level, head = header(text)
    return row(Span(text[head:], _LEVELS.get(level, Tone.LABEL) if level else Tone.LABEL))
