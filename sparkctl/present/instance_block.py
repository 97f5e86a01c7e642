"""What stands under an instance in ``top``: what its engine does, how its drafts fare, what it reads and what it holds."""

from __future__ import annotations

from sparkctl.core.bandwidth import Bandwidth, of_instance, of_node, why_blank
from sparkctl.core.store import LoadView
from sparkctl.model.instance import InstanceView
from sparkctl.model.metrics import Acceptance, Activity, Numbers
from sparkctl.model.phase import Phase
from sparkctl.model.units import gib
from sparkctl.present import numbers as words
from sparkctl.present.fold import flow, fold

_INDENT = "      "
_GAP = " · "
_SILENT = "no figures: neither /metrics nor its log tells what it does"
_MORE = 1.1  # times what is expected


def instance_block(
    one: InstanceView, view: LoadView, width: int | None, explain: bool = False, brief: bool = False
) -> list[str]:
    """Return the lines under an instance's row; in ``brief`` without latencies, and what it holds only if unexpected.

    ``explain`` adds the formula of the estimate and its inputs, or why there is none.
    """
    if not one.ours:
        return []
    rows = []
    if one.phase is Phase.READY and one.port is not None:
        rows += _figures(one, view, brief)
    if (
        one.expected is not None
        and one.phase not in (Phase.FAILED, Phase.STOPPED)
        and not (brief and _as_expected(one))
    ):
        rows.append([f"holds {gib(one.memory)}", f"{gib(one.expected)} expected"])
    lines = [line for row in rows for line in flow(_INDENT, row, width, _GAP)]
    return lines + (_explanation(one, view, width) if explain and one.phase is Phase.READY else [])


def _as_expected(one: InstanceView) -> bool:
    return one.expected is None or one.memory is None or one.memory <= _MORE * one.expected


def _figures(one: InstanceView, view: LoadView, brief: bool) -> list[list[str]]:
    numbers = one.numbers or Numbers()
    drafted = None if one.per_step is None else one.per_step.draft_tokens
    first = [_SILENT if one.numbers is None else words.throughput(numbers)]
    if numbers.activity is not Activity.IDLE and one.numbers is not None:
        first += _load(numbers)
    if one.metrics_hint is not None and not brief:
        first.append(f"/metrics is off; in the profile: {one.metrics_hint}")
    rows = [first]
    if numbers.activity is Activity.DECODING:
        rows.append(_acceptance(numbers, drafted))
        if of_node(view) is None:
            rows.append(_reads(one, of_instance(one, view)))
    if brief:
        return [row for row in rows if row]
    if numbers.ttft is not None or numbers.inter_token is not None:
        rows.append(_latencies(numbers, bool(drafted)))
    return [row for row in rows if row]


def _load(numbers: Numbers) -> list[str]:
    cells = [words.queue(numbers), f"KV {words.percent(numbers.kv_usage)}"]
    if numbers.activity is Activity.DECODING and numbers.prompt_rate:
        cells.append(f"prompts {words.speed(numbers.prompt_rate)}")
    if numbers.prefix_hit_rate is not None:
        cells.append(f"prefix cache {words.percent(numbers.prefix_hit_rate)}")
    return cells


def _acceptance(numbers: Numbers, drafted: int | None) -> list[str]:
    seen = numbers.acceptance
    if seen is None and not drafted:
        return []  # no drafts are configured, or nobody knows
    if seen is None:
        return [f"accepts {words.UNKNOWN}", f"{drafted} drafts a step"]
    return ["accepts " + words.acceptance(numbers, drafted), *_positions(seen)]


def _positions(seen: Acceptance) -> list[str]:
    return [f"by position {words.positions(seen)}"] if seen.per_position else []


def _reads(one: InstanceView, seen: Bandwidth | None) -> list[str]:
    if seen is not None:
        return ["reads " + words.bandwidth(seen)]
    if one.per_step is None or one.per_step.weights is None:
        return [f"reads {words.UNKNOWN}", "model.weights in the profile would tell"]
    return [f"reads {words.UNKNOWN}", why_blank(one.numbers, one.per_step)]


def _latencies(numbers: Numbers, drafts: bool) -> list[str]:
    cells = []
    if numbers.ttft is not None:
        cells.append(f"first token {words.latency(numbers.ttft)}")
    if numbers.inter_token is not None:
        between = "steps" if drafts or numbers.acceptance is not None else "tokens"
        cells.append(f"between {between} {words.latency(numbers.inter_token)}")
    return cells


def _explanation(one: InstanceView, view: LoadView, width: int | None) -> list[str]:
    seen = of_instance(one, view)
    if of_node(view) is not None:
        return fold(
            f"{_INDENT}  bandwidth: the GPU's own counter says it, for all that runs there; see its line", width
        )
    if seen is None:
        return fold(f"{_INDENT}  no bandwidth: {why_blank(one.numbers, one.per_step)}", width)
    wide = max(len(name) for name, _ in seen.inputs)
    lines = fold(f"{_INDENT}  {seen.formula}", width)
    return lines + [
        line for name, value in seen.inputs for line in flow(f"{_INDENT}    {name:{wide}}  ", [value], width)
    ]
