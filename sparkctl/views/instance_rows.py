"""Parts of the instance screen: verdict, progress of a start, figures, memory and launch plan."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from sparkctl.commands.start.launch_plans import ContainerLaunch
from sparkctl.logs.line_classifier import LogLevel, parse_level_header
from sparkctl.model.decode_step import DecodeStepSpec
from sparkctl.model.engine_metrics import DraftAcceptance, EngineMeter, Quantiles
from sparkctl.model.events import CommandEnded
from sparkctl.model.instance import InstanceView
from sparkctl.model.launch_plan import LaunchPlan, ReadinessRule
from sparkctl.model.phase import Phase
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import GIB, format_gib
from sparkctl.model.verdict import FieldChange, Verdict
from sparkctl.monitor.meters.meter_series import LastValue, MeterSeries
from sparkctl.profiles.exporters.docker_command import format_docker_run
from sparkctl.views import meter_view as words
from sparkctl.views.overview.tile_model import format_age
from sparkctl.views.overview.tile_rows import DrawArea, RowBlock, make_label, render_labelled_text
from sparkctl.views.text.charts import render_claim_bar, render_gauge
from sparkctl.views.text.line_wrap import wrap_row, wrap_text
from sparkctl.views.text.styled_text import (
    Span,
    TextRow,
    TextStyle,
    make_row,
    measure_row,
    measure_text,
    pad_row,
    sanitize_span,
    truncate_row,
)

_POLLING_REQUEST_PATTERN = re.compile(r'"GET /(?:health|metrics)\S* HTTP')
_LEVEL_STYLES = {LogLevel.WARNING: TextStyle.ATTENTION, LogLevel.ERROR: TextStyle.BAD}
_MAX_POSITIONS = 8
_EXCESS_RATIO = 1.1  # factor of the expected memory; smaller differences count as expected


# --- a verdict --------------------------------------------------------------------------------------------------------


def render_verdict(verdict: Verdict, space: DrawArea) -> list[RowBlock]:
    """Return what happened, the evidence from the log, and what to change."""
    room = max(8, space.columns)
    parts = [
        RowBlock(
            spare=0,
            rows=tuple(wrap_text(verdict.summary, room, TextStyle.STRONG)),
        )
    ]
    for at, proof in enumerate(verdict.evidence):
        where = f"{proof.location:<10} "
        parts.append(
            RowBlock(
                spare=2 + at,
                rows=tuple(
                    render_labelled_text("proof" if not at else "", where + proof.text, space, TextStyle.VALUE, 2)
                ),
            )
        )
    parts.append(RowBlock(spare=1, rows=tuple(render_labelled_text("try", verdict.remedy, space, TextStyle.VALUE, 4))))
    if verdict.edit is not None:
        parts.append(RowBlock(spare=1, rows=tuple(_wrap_change(verdict.edit, room))))
    for at, one in enumerate(verdict.contributing):
        line = find_evidence_line(one)
        where = "" if line is None else f"line {line:<5} "
        parts.append(
            RowBlock(
                spare=3 + at,
                rows=tuple(
                    render_labelled_text("also" if not at else "", where + one.summary, space, TextStyle.LABEL, 2)
                ),
            )
        )
    return parts


def _wrap_change(edit: FieldChange, columns: int) -> list[TextRow]:
    """Return the change in one row, or the field above and its values below if it is too long."""
    field, *values = render_change(edit)
    if measure_row(whole := make_row(make_label("change"), field, *values)) <= columns:
        return [whole]
    below = make_row(Span(values[0].text.lstrip(), values[0].tone), *values[1:])
    return [
        truncate_row(make_row(make_label("change"), field), columns),
        truncate_row(make_row(make_label(""), *below), columns),
    ]


def render_change(edit: FieldChange) -> TextRow:
    """Return the proposed change: the field, its value and the new value."""
    spans = [sanitize_span(edit.field, TextStyle.LABEL)]
    if edit.was is not None:
        spans += [sanitize_span(f"  {edit.was}", TextStyle.VALUE), Span(" → ", TextStyle.LABEL)]
    else:
        spans.append(Span("  " if edit.value == "null" else " = ", TextStyle.LABEL))
    spans.append(
        Span("taken away", TextStyle.STRONG) if edit.value == "null" else sanitize_span(edit.value, TextStyle.STRONG)
    )
    return tuple(spans)


def render_verdict_keys(
    verdict: Verdict,
    space: DrawArea,
    more: Sequence[tuple[str, str]] = (),
    accepts: str | None = None,
    *,
    roomy: bool = False,
) -> list[TextRow]:
    """Return the keys under a verdict: in one column if it is ``roomy``, else in several. ``more``: further keys with
    their labels; ``accepts``: the key that applies the proposed change."""
    line = find_evidence_line(verdict)
    tries = [] if accepts is None or verdict.edit is None else [(accepts, "tries the change")]
    log = ("l", "log") if line is None else ("enter", f"log at line {line}")
    keys = [*tries, log, *more, ("y", "copy verdict")]
    names, does = (max(measure_text(key[at]) for key in keys) for at in range(2))
    wide = names + 1 + does + 4
    across = 1 if roomy else max(1, min(len(keys), (space.columns + 4) // wide))
    made = [make_row(Span(f"{key:<{names}} ", TextStyle.KEY), Span(words, TextStyle.LABEL)) for key, words in keys]
    lines = [made[begin : begin + across] for begin in range(0, len(made), across)]
    return [make_row(*(span for one in line[:-1] for span in pad_row(one, wide)), *line[-1]) for line in lines]


def format_profile_field(field: str, run: ContainerLaunch | None) -> str:
    """Return a profile's field with the value that the container was started with, if it can be read back."""
    flag = f"--{field.removeprefix('args.')}"
    args = () if run is None or not field.startswith("args.") else run.plan.command
    value = next((after for one, after in pairwise(args) if one == flag), None)
    value = value or next((one.partition("=")[2] for one in args if one.startswith(f"{flag}=")), None)
    return sanitize_line(f"{field} {value}" if value else field)


def find_evidence_line(verdict: Verdict) -> int | None:
    """Return the number of the log line that proves the verdict best, None if no log line does."""
    return next((proof.line for proof in verdict.evidence if proof.line is not None), None)


def list_evidence_lines(verdict: Verdict) -> tuple[int, ...]:
    """Return the numbers of all log lines that prove the verdict or contributed to it, in order."""
    every = (proof.line for one in (verdict, *verdict.contributing) for proof in one.evidence)
    return tuple(sorted({line for line in every if line is not None}))


def format_verdict_for_copy(end: CommandEnded) -> str:
    """Return a verdict as text for the clipboard."""
    verdict = end.verdict
    if verdict is None:
        return sanitize_line(end.message or str(end.outcome))
    lines = [f"{end.instance} on {end.node} failed: {verdict.summary}"]
    for proof in verdict.evidence:
        where = f"log {proof.location}" if proof.origin == "log" else proof.location
        lines.append(f"  {where}: {proof.text}")
    return "\n".join(sanitize_line(line) for line in [*lines, f"  try: {verdict.remedy}"])


# --- figures ----------------------------------------------------------------------------------------------------------


def render_position_acceptance(
    seen: DraftAcceptance | None, space: DrawArea, last: MeterSeries | None = None, now: float = 0.0
) -> list[TextRow]:
    """Return the acceptance of the first, second and third draft token as bars; nothing if it was never reported.

    ``last`` is the last report, which stays, faded and with its age at ``now``, while there is no newer one.
    """
    kept = None if last is None else last.positions
    fresh = () if seen is None else seen.per_position or ()
    shares = fresh or (() if kept is None else kept.value)
    tone = TextStyle.ACCENT if fresh else TextStyle.STALE
    rows = []
    for at, share in enumerate(shares[:_MAX_POSITIONS], 1):
        name = f"draft {at}" if at < 10 else f"dr. {at}"
        line = render_gauge(share, space.bar_columns, tone)
        age = (
            Span(f"   {format_age(now - kept.ts)}", TextStyle.STALE)
            if kept is not None and not fresh and at == 1
            else Span("")
        )
        figure = Span(f"{words.format_percent(share):>5}", TextStyle.VALUE if fresh else TextStyle.STALE)
        rows.append(make_row(make_label(name), *line, "  ", figure, age))
    if (more := len(shares) - _MAX_POSITIONS) > 0:
        rows.append(make_row(make_label(""), Span(f"{more} more", TextStyle.LABEL)))
    return rows


def render_latencies(
    numbers: EngineMeter, drafts: bool, last: MeterSeries | None = None, now: float = 0.0
) -> list[TextRow]:
    """Return time to first token, inter-token time, prompt throughput and prefix cache.

    ``last`` holds the last value of each. If there is nothing newer it stays, faded and with its age at ``now``, so
    that the rows below do not move with every request.
    """
    kept = last or MeterSeries()
    between = "step" if drafts or numbers.acceptance is not None else "token"
    rows = [
        _render_latency("TTFT", numbers.ttft, kept.ttft, now),
        _render_latency("between", numbers.inter_token, kept.inter_token, now, f"   from {between} to {between}"),
        _render_prompt_rate(numbers, kept, now),
    ]
    return [each for each in rows if each is not None]


def _render_latency(
    name: str, fresh: Quantiles | None, last: LastValue[Quantiles] | None, now: float, of: str = ""
) -> TextRow | None:
    if fresh is not None:
        return make_row(make_label(name), Span(words.format_latency(fresh), TextStyle.VALUE), Span(of, TextStyle.LABEL))
    if last is None:
        return None
    return make_row(
        make_label(name), Span(f"{words.format_latency(last.value)}   {format_age(now - last.ts)}", TextStyle.STALE)
    )


def _render_prompt_rate(numbers: EngineMeter, last: MeterSeries, now: float) -> TextRow | None:
    prompts: list[Span] = []
    if numbers.prompt_rate:
        prompts.append(Span(f"{words.format_token_rate(numbers.prompt_rate):<12}", TextStyle.VALUE))
    if numbers.prefix_hit_rate is not None:
        prompts += [
            Span("prefix cache ", TextStyle.LABEL),
            Span(words.format_percent(numbers.prefix_hit_rate), TextStyle.VALUE),
        ]
        prompts.append(Span(" found", TextStyle.UNIT))
    rate, found = last.prompt_rate, last.prefix_hit_rate
    if not prompts and (told := [one.ts for one in (rate, found) if one is not None]):
        text = "" if rate is None else f"{words.format_token_rate(rate.value):<12}"
        text += "" if found is None else f"prefix cache {words.format_percent(found.value)} found"
        prompts.append(Span(f"{text.rstrip()}   {format_age(now - max(told))}", TextStyle.STALE))
    return (make_label("prompts"), *prompts) if prompts else None


def render_step_cost(numbers: EngineMeter, per_step: DecodeStepSpec | None) -> TextRow | None:
    """Return steps per second, requests per step, and drafted tokens; None if nothing is known."""
    spans: list[Span] = []
    if numbers.steps is not None:
        spans += [Span(f"{numbers.steps:.1f}", TextStyle.VALUE), Span(" per second", TextStyle.UNIT)]
    if numbers.batch is not None:
        spans += [
            Span("   " if spans else ""),
            Span(f"{numbers.batch:.1f}", TextStyle.VALUE),
            Span(" requests each", TextStyle.UNIT),
        ]
    if per_step is not None and per_step.draft_tokens:
        spans += [
            Span("   " if spans else ""),
            Span(f"{per_step.draft_tokens}", TextStyle.VALUE),
            Span(" drafted", TextStyle.UNIT),
        ]
    return make_row(make_label("steps"), *spans) if spans else None


def render_memory_claim(one: InstanceView, total: int | None, space: DrawArea) -> list[TextRow]:
    """Return the memory held against the expected memory, on the scale of the memory bar; nothing if neither is
    known. A small difference gets no words."""
    if one.memory is None:
        if one.expected is None:
            return []
        expected = Span(f" of {format_gib(one.expected)} expected", TextStyle.UNIT)
        return [make_row(make_label("holds"), Span(words.UNKNOWN, TextStyle.STALE), expected)]
    more = 0 if one.expected is None else one.memory - one.expected
    over = one.expected is not None and one.memory > _EXCESS_RATIO * one.expected
    figure = make_row(Span(f"{one.memory / GIB:5.1f}", TextStyle.ATTENTION if over else TextStyle.STRONG))
    if one.expected is not None:
        figure = make_row(*figure, Span(f" of {one.expected / GIB:.1f} GiB", TextStyle.UNIT))
    else:
        figure = make_row(*figure, Span(" GiB", TextStyle.UNIT))
    line = (
        ()
        if total is None
        else (
            *render_claim_bar(one.memory, one.expected, total, space.bar_columns, _EXCESS_RATIO),
            Span("  "),
        )
    )
    rows = [make_row(make_label("holds"), *line, *figure)]
    if one.expected is None:
        rows.append(make_row(make_label(""), Span("no claim is known", TextStyle.LABEL)))
    elif over:
        rows.append(make_row(make_label(""), Span(f"{format_gib(more)} more than expected", TextStyle.ATTENTION)))
    elif one.expected > _EXCESS_RATIO * one.memory or (more < 0 and one.phase is not Phase.READY):
        less = "less than expected" if one.phase is Phase.READY else "still to come, as expected"
        rows.append(make_row(make_label(""), Span(f"{format_gib(one.expected - one.memory)} {less}", TextStyle.LABEL)))
    return rows


# --- what it runs with ------------------------------------------------------------------------------------------------


def render_launched_plan(run: ContainerLaunch, columns: int) -> list[TextRow]:
    """Return the plan as read back from the container: its labels, then the ``docker run`` line."""
    plan = run.plan
    heads = [
        ("profile", f"{plan.profile}   hash {plan.profile_hash}" if plan.profile else words.UNKNOWN),
        ("image", plan.image), ("ready", describe_ready_rule(run.ready)),
        ("claims", words.UNKNOWN if plan.expected_memory is None else format_gib(plan.expected_memory)),
    ]  # fmt: skip
    space = DrawArea(columns)
    rows = [
        each for name, sentence in heads for each in render_labelled_text(name, sentence, space, TextStyle.VALUE, 4)
    ]
    return [*rows, (), *render_docker_run(plan, columns)]


def render_docker_run(plan: LaunchPlan, columns: int) -> list[TextRow]:
    """Return the ``docker run`` line, one option per row; flags dim, values bright."""
    rows = []
    for line in format_docker_run(plan, with_labels=False).splitlines():
        text = sanitize_line(line)
        indent = len(text) - len(text.lstrip(" "))
        flag, gap, value = text.strip().partition(" ")
        spans = [Span(" " * indent), Span(flag, TextStyle.LABEL if flag.startswith("-") else TextStyle.VALUE)]
        rows += wrap_row((*spans, Span(gap + value, TextStyle.VALUE)), columns, 4)
    return rows


def describe_ready_rule(rule: ReadinessRule | None) -> str:
    """Return the conditions under which the instance counts as ready."""
    if rule is None:
        return "not in its labels"
    parts = [f"the line /{_remove_needless_escapes(rule.line)}/"] if rule.line else []
    parts += [f"{rule.health} answers"] if rule.health else []
    parts += [f"one token by {rule.probe}"] if rule.probe != "none" else []
    return ", then ".join(parts) or "it runs"


def _remove_needless_escapes(pattern: str) -> str:
    """Return a pattern without needless backslashes, such as those before blanks."""
    return re.sub(r"\\([ #&~'\"!,/:;<=>@_`%-])", r"\1", pattern)


def render_log_status(
    words: str | None, columns: int, tone: TextStyle = TextStyle.ACCENT, head: TextRow = ()
) -> list[TextRow]:
    """Return the problem of a log as rows, by default in a style that no log line has, after ``head``; a path at its end
    gets a line of its own if needed, so that it can be copied."""
    words, columns = sanitize_line(words or ""), max(8, columns)
    before, gap, path = words.rpartition(": ")
    if gap and path.startswith("/") and measure_text(words) + measure_row(head) > columns:
        words = f"{before}:\n{path}"
    return wrap_text(words, columns, tone, head=head)


def render_log_tail(lines: Sequence[str], trouble: str | None, room: int, columns: int = 80) -> list[TextRow]:
    """Return the last log lines, oldest first and without their headers, or why there are none.

    Requests for health and metrics, such as sparkctl's own, are left out.
    """
    last = render_log_status(trouble, columns)[-max(1, room) :]
    shown = (
        [line for line in lines if not _POLLING_REQUEST_PATTERN.search(line)][-max(1, room - len(last)) :]
        if room > len(last)
        else []
    )
    if not shown and not last:
        return [make_row(Span("reading ...", TextStyle.STALE))]
    return [*map(_render_tail_line, shown), *last]


def _render_tail_line(line: str) -> TextRow:
    text = sanitize_line(line)
    level, head = parse_level_header(text)
    return make_row(Span(text[head:], _LEVEL_STYLES.get(level, TextStyle.LABEL) if level else TextStyle.LABEL))
