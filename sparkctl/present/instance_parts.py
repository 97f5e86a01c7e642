"""The parts of the instance screen: why it failed, how far its start is, what it does, what it holds, what it runs with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from sparkctl.core.drafting import Drafting, Told
from sparkctl.core.logmarks import Level, header
from sparkctl.model.events import Ended
from sparkctl.model.instance import InstanceView
from sparkctl.model.metrics import Acceptance, Numbers, Quantiles
from sparkctl.model.per_step import PerStep
from sparkctl.model.phase import Phase
from sparkctl.model.plan import LaunchPlan, ReadyRule
from sparkctl.model.text import clean
from sparkctl.model.units import GIB, gib
from sparkctl.model.verdict import Edit, Verdict
from sparkctl.operations.starting.launched import Launched
from sparkctl.present import numbers as words
from sparkctl.present.bars import claim_bar, gauge
from sparkctl.present.docker_line import docker_line
from sparkctl.present.fold import fold
from sparkctl.present.glance import old
from sparkctl.present.spans import Row, Span, Tone, cells, cut, fit, row, said, width
from sparkctl.present.tile_parts import Part, Space, folded, label

_ASKED = re.compile(r'"GET /(?:health|metrics)\S* HTTP')
_LEVELS = {Level.WARNING: Tone.ATTENTION, Level.ERROR: Tone.BAD}
_POSITIONS = 8
_MORE = 1.1  # times what is expected: what is nearer is as expected


# --- a verdict --------------------------------------------------------------------------------------------------------


def verdict_parts(verdict: Verdict, space: Space) -> list[Part]:
    """Return what happened, the lines that prove it, and what to change."""
    room = max(8, space.columns)
    parts = [Part(0, tuple(row(Span(line.strip(), Tone.STRONG)) for line in fold(clean(verdict.summary), room, 0)))]
    for at, proof in enumerate(verdict.evidence):
        where = f"{proof.place:<10} "
        parts.append(Part(2 + at, tuple(folded("proof" if not at else "", where + proof.text, space, Tone.VALUE, 2))))
    parts.append(Part(1, tuple(folded("try", verdict.remedy, space, Tone.VALUE, 4))))
    if verdict.edit is not None:
        parts.append(Part(1, tuple(_change_rows(verdict.edit, room))))
    for at, one in enumerate(verdict.contributing):
        line = evidence_line(one)
        where = "" if line is None else f"line {line:<5} "
        parts.append(Part(3 + at, tuple(folded("also" if not at else "", where + one.summary, space, Tone.LABEL, 2))))
    return parts


def _change_rows(edit: Edit, columns: int) -> list[Row]:
    """Return the change on one row, or where it is too long for that the field above and its values below."""
    field, *values = change_row(edit)
    if width(whole := row(label("change"), field, *values)) <= columns:
        return [whole]
    below = row(Span(values[0].text.lstrip(), values[0].tone), *values[1:])
    return [cut(row(label("change"), field), columns), cut(row(label(""), *below), columns)]


def change_row(edit: Edit) -> Row:
    """Return what is to be changed: the field, its value and the one to try."""
    spans = [said(edit.field, Tone.LABEL)]
    if edit.was is not None:
        spans += [said(f"  {edit.was}", Tone.VALUE), Span(" → ", Tone.LABEL)]
    else:
        spans.append(Span("  " if edit.value == "null" else " = ", Tone.LABEL))
    spans.append(Span("taken away", Tone.STRONG) if edit.value == "null" else said(edit.value, Tone.STRONG))
    return tuple(spans)


def verdict_keys(
    verdict: Verdict,
    space: Space,
    more: Sequence[tuple[str, str]] = (),
    accepts: str | None = None,
    *,
    roomy: bool = False,
) -> list[Row]:
    """Return the keys under a verdict, as many rows as it takes: in one column where it is ``roomy``, else in several. The
    proof is one of them away. ``more``: a key and what it does; ``accepts``: the one that does what is proposed."""
    line = evidence_line(verdict)
    tries = [] if accepts is None or verdict.edit is None else [(accepts, "tries the change")]
    log = ("l", "log") if line is None else ("enter", f"log at line {line}")
    keys = [*tries, log, *more, ("y", "copy verdict")]
    names, does = (max(cells(key[at]) for key in keys) for at in range(2))
    wide = names + 1 + does + 4
    across = 1 if roomy else max(1, min(len(keys), (space.columns + 4) // wide))
    made = [row(Span(f"{key:<{names}} ", Tone.KEY), Span(words, Tone.LABEL)) for key, words in keys]
    lines = [made[begin : begin + across] for begin in range(0, len(made), across)]
    return [row(*(span for one in line[:-1] for span in fit(one, wide)), *line[-1]) for line in lines]


def field_words(field: str, run: Launched | None) -> str:
    """Return a profile's field with the value that the container was started with, where that can be read back."""
    flag = f"--{field.removeprefix('args.')}"
    args = () if run is None or not field.startswith("args.") else run.plan.command
    value = next((after for one, after in pairwise(args) if one == flag), None)
    value = value or next((one.partition("=")[2] for one in args if one.startswith(f"{flag}=")), None)
    return clean(f"{field} {value}" if value else field)


def evidence_line(verdict: Verdict) -> int | None:
    """Return the line of the log that proves it best, None where it is no line of the log."""
    return next((proof.line for proof in verdict.evidence if proof.line is not None), None)


def evidence_lines(verdict: Verdict) -> tuple[int, ...]:
    """Return every line of the log that proves it, or what contributed to it, in the order of the log."""
    every = (proof.line for one in (verdict, *verdict.contributing) for proof in one.evidence)
    return tuple(sorted({line for line in every if line is not None}))


def verdict_text(end: Ended) -> str:
    """Return a verdict for a clipboard: a message to somebody else."""
    verdict = end.verdict
    if verdict is None:
        return clean(end.message or str(end.outcome))
    lines = [f"{end.instance} on {end.node} failed: {verdict.summary}"]
    for proof in verdict.evidence:
        where = f"log {proof.place}" if proof.origin == "log" else proof.place
        lines.append(f"  {where}: {proof.text}")
    return "\n".join(clean(line) for line in [*lines, f"  try: {verdict.remedy}"])


# --- figures ----------------------------------------------------------------------------------------------------------


def position_rows(seen: Acceptance | None, space: Space, last: Drafting | None = None, now: float = 0.0) -> list[Row]:
    """Return how often the first, second, third draft token was accepted, each as a bar; nothing where it was never told.

    ``last``: what was told last, which stays, faded, with its age at ``now``, while nobody is answered.
    """
    kept = None if last is None else last.positions
    fresh = () if seen is None else seen.per_position or ()
    shares = fresh or (() if kept is None else kept.value)
    tone = Tone.ACCENT if fresh else Tone.STALE
    rows = []
    for at, share in enumerate(shares[:_POSITIONS], 1):
        name = f"draft {at}" if at < 10 else f"dr. {at}"
        line = gauge(share, space.bar, space.ascii_only, tone)
        age = Span(f"   {old(now - kept.ts)}", Tone.STALE) if kept is not None and not fresh and at == 1 else Span("")
        figure = Span(f"{words.percent(share):>5}", Tone.VALUE if fresh else Tone.STALE)
        rows.append(row(label(name), *line, "  ", figure, age))
    if (more := len(shares) - _POSITIONS) > 0:
        rows.append(row(label(""), Span(f"{more} more", Tone.LABEL)))
    return rows


def latency_rows(numbers: Numbers, drafts: bool, last: Drafting | None = None, now: float = 0.0) -> list[Row]:
    """Return the time to the first token and between the following, prompts and the prefix cache.

    ``last``: what was told last of each; where there is nothing newer it stays, faded, with its age at ``now``: what is below
    does not jump with every request.
    """
    kept = last or Drafting()
    between = "step" if drafts or numbers.acceptance is not None else "token"
    rows = [
        _latency_row("TTFT", numbers.ttft, kept.ttft, now),
        _latency_row("between", numbers.inter_token, kept.inter_token, now, f"   from {between} to {between}"),
        _prompts_row(numbers, kept, now),
    ]
    return [each for each in rows if each is not None]


def _latency_row(
    name: str, fresh: Quantiles | None, last: Told[Quantiles] | None, now: float, of: str = ""
) -> Row | None:
    if fresh is not None:
        return row(label(name), Span(words.latency(fresh), Tone.VALUE), Span(of, Tone.LABEL))
    if last is None:
        return None
    return row(label(name), Span(f"{words.latency(last.value)}   {old(now - last.ts)}", Tone.STALE))


def _prompts_row(numbers: Numbers, last: Drafting, now: float) -> Row | None:
    prompts: list[Span] = []
    if numbers.prompt_rate:
        prompts.append(Span(f"{words.speed(numbers.prompt_rate):<12}", Tone.VALUE))
    if numbers.prefix_hit_rate is not None:
        prompts += [Span("prefix cache ", Tone.LABEL), Span(words.percent(numbers.prefix_hit_rate), Tone.VALUE)]
        prompts.append(Span(" found", Tone.UNIT))
    rate, found = last.prompt_rate, last.prefix_hit_rate
    if not prompts and (told := [one.ts for one in (rate, found) if one is not None]):
        text = "" if rate is None else f"{words.speed(rate.value):<12}"
        text += "" if found is None else f"prefix cache {words.percent(found.value)} found"
        prompts.append(Span(f"{text.rstrip()}   {old(now - max(told))}", Tone.STALE))
    return (label("prompts"), *prompts) if prompts else None


def step_cost_row(numbers: Numbers, per_step: PerStep | None) -> Row | None:
    """Return how often the engine steps, for how many requests at once, and how many tokens are drafted; None where
    nothing of it is known."""
    spans: list[Span] = []
    if numbers.steps is not None:
        spans += [Span(f"{numbers.steps:.1f}", Tone.VALUE), Span(" per second", Tone.UNIT)]
    if numbers.batch is not None:
        spans += [
            Span("   " if spans else ""),
            Span(f"{numbers.batch:.1f}", Tone.VALUE),
            Span(" requests each", Tone.UNIT),
        ]
    if per_step is not None and per_step.draft_tokens:
        spans += [
            Span("   " if spans else ""),
            Span(f"{per_step.draft_tokens}", Tone.VALUE),
            Span(" drafted", Tone.UNIT),
        ]
    return row(label("steps"), *spans) if spans else None


def claim_rows(one: InstanceView, total: int | None, space: Space) -> list[Row]:
    """Return what it holds against what it is expected to hold, on the scale of the memory bar; nothing where neither is
    known. What is near to it is as expected, and needs no words."""
    if one.memory is None:
        if one.expected is None:
            return []
        expected = Span(f" of {gib(one.expected)} expected", Tone.UNIT)
        return [row(label("holds"), Span(words.UNKNOWN, Tone.STALE), expected)]
    more = 0 if one.expected is None else one.memory - one.expected
    over = one.expected is not None and one.memory > _MORE * one.expected
    figure = row(Span(f"{one.memory / GIB:5.1f}", Tone.ATTENTION if over else Tone.STRONG))
    if one.expected is not None:
        figure = row(*figure, Span(f" of {one.expected / GIB:.1f} GiB", Tone.UNIT))
    else:
        figure = row(*figure, Span(" GiB", Tone.UNIT))
    line = (
        ()
        if total is None
        else (
            *claim_bar(one.memory, one.expected, total, space.bar, space.ascii_only, _MORE),
            Span("  "),
        )
    )
    rows = [row(label("holds"), *line, *figure)]
    if one.expected is None:
        rows.append(row(label(""), Span("no claim is known", Tone.LABEL)))
    elif over:
        rows.append(row(label(""), Span(f"{gib(more)} more than expected", Tone.ATTENTION)))
    elif one.expected > _MORE * one.memory or (more < 0 and one.phase is not Phase.READY):
        less = "less than expected" if one.phase is Phase.READY else "still to come, as expected"
        rows.append(row(label(""), Span(f"{gib(one.expected - one.memory)} {less}", Tone.LABEL)))
    return rows


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
    rows = [each for name, sentence in heads for each in folded(name, sentence, space, Tone.VALUE, 4)]
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
    parts = [f"the line /{_unescaped(rule.line)}/"] if rule.line else []
    parts += [f"{rule.health} answers"] if rule.health else []
    parts += [f"one token by {rule.probe}"] if rule.probe != "none" else []
    return ", then ".join(parts) or "it runs"


def _unescaped(pattern: str) -> str:
    """Return a pattern without the backslashes that mean nothing: before blanks and the like."""
    return re.sub(r"\\([ #&~'\"!,/:;<=>@_`%-])", r"\1", pattern)


def matter_rows(words: str | None, columns: int) -> list[Row]:
    """Return what is the matter with a log, as `matter_lines`, in a tone that no line of an engine has."""
    return [] if words is None else [row(Span(line, Tone.ACCENT)) for line in matter_lines(words, columns)]


def matter_lines(words: str, columns: int) -> list[str]:
    """Return a sentence folded; a path at its end is there to be copied, so it has a line of its own where it needs one."""
    words, columns = clean(words), max(8, columns)
    head, gap, path = words.rpartition(": ")
    if gap and path.startswith("/") and cells(words) > columns:
        pieces = [path[at : at + columns] for at in range(0, len(path), columns)]  # one that is longer goes on below
        return [*fold(f"{head}:", columns, 0), *pieces]
    return fold(words, columns, 0)


def tail_rows(lines: Sequence[str], trouble: str | None, room: int, columns: int = 80) -> list[Row]:
    """Return what the log said last, oldest first, without its lines' headers; where nothing came, why.

    That somebody (sparkctl, for one) asked for its health and its figures is left out.
    """
    last = matter_rows(trouble, columns)[-max(1, room) :]
    shown = [line for line in lines if not _ASKED.search(line)][-max(1, room - len(last)) :] if room > len(last) else []
    if not shown and not last:
        return [row(Span("reading ...", Tone.STALE))]
    return [*map(_tail_row, shown), *last]


def _tail_row(line: str) -> Row:
    text = clean(line)
    level, head = header(text)
    return row(Span(text[head:], _LEVELS.get(level, Tone.LABEL) if level else Tone.LABEL))
