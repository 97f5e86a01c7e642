"""What stands under an instance in ``top``: what its engine does, how its drafts fare, what it reads and what it holds."""

from __future__ import annotations

from sparkctl.model.engine_metrics import DraftAcceptance, EngineActivity, EngineMeter
from sparkctl.model.instance import InstanceView
from sparkctl.model.phase import Phase
from sparkctl.model.units import format_gib
from sparkctl.monitor.bandwidth import (
    Bandwidth,
    estimate_instance_bandwidth,
    explain_missing_estimate,
    get_node_bandwidth,
)
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.views import meter_view as words
from sparkctl.views.text.line_wrap import wrap_cells, wrap_line

_INDENT = "      "
_GAP = " · "
_SILENT = "no figures: neither /metrics nor its log tells what it does"
_MORE = 1.1  # times what is expected


def format_instance_block(
    one: InstanceView, view: NodeTelemetryView, width: int | None, explain: bool = False, brief: bool = False
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
        and not (brief and _is_memory_as_expected(one))
    ):
        rows.append([f"holds {format_gib(one.memory)}", f"{format_gib(one.expected)} expected"])
    lines = [line for row in rows for line in wrap_cells(_INDENT, row, width, _GAP)]
    return lines + (_explanation(one, view, width) if explain and one.phase is Phase.READY else [])


def _is_memory_as_expected(one: InstanceView) -> bool:
    return one.expected is None or one.memory is None or one.memory <= _MORE * one.expected


def _figures(one: InstanceView, view: NodeTelemetryView, brief: bool) -> list[list[str]]:
    numbers = one.numbers or EngineMeter()
    drafted = None if one.per_step is None else one.per_step.draft_tokens
    first = [_SILENT if one.numbers is None else words.format_throughput(numbers)]
    if numbers.activity is not EngineActivity.IDLE and one.numbers is not None:
        first += _format_throughput(numbers)
    if one.metrics_hint is not None and not brief:
        first.append(f"/metrics is off; in the profile: {one.metrics_hint}")
    rows = [first]
    if numbers.activity is EngineActivity.DECODING:
        rows.append(_acceptance(numbers, drafted))
        if get_node_bandwidth(view) is None:
            rows.append(_format_bandwidth(one, estimate_instance_bandwidth(one, view)))
    if brief:
        return [row for row in rows if row]
    if numbers.ttft is not None or numbers.inter_token is not None:
        rows.append(_latencies(numbers, bool(drafted)))
    return [row for row in rows if row]


def _format_throughput(numbers: EngineMeter) -> list[str]:
    cells = [words.format_queue(numbers), f"KV {words.format_percent(numbers.kv_usage)}"]
    if numbers.activity is EngineActivity.DECODING and numbers.prompt_rate:
        cells.append(f"prompts {words.format_token_rate(numbers.prompt_rate)}")
    if numbers.prefix_hit_rate is not None:
        cells.append(f"prefix cache {words.format_percent(numbers.prefix_hit_rate)}")
    return cells


def _acceptance(numbers: EngineMeter, drafted: int | None) -> list[str]:
    seen = numbers.acceptance
    if seen is None and not drafted:
        return []  # no drafts are configured, or nobody knows
    if seen is None:
        return [f"accepts {words.UNKNOWN}", f"{drafted} drafts a step"]
    return ["accepts " + words.format_draft_acceptance(numbers, drafted), *_positions(seen)]


def _positions(seen: DraftAcceptance) -> list[str]:
    return [f"by position {words.format_position_acceptance(seen)}"] if seen.per_position else []


def _format_bandwidth(one: InstanceView, seen: Bandwidth | None) -> list[str]:
    if seen is not None:
        return ["reads " + words.format_bandwidth(seen)]
    if one.per_step is None or one.per_step.weights is None:
        return [f"reads {words.UNKNOWN}", "model.weights in the profile would tell"]
    return [f"reads {words.UNKNOWN}", explain_missing_estimate(one.numbers, one.per_step)]


def _latencies(numbers: EngineMeter, drafts: bool) -> list[str]:
    cells = []
    if numbers.ttft is not None:
        cells.append(f"first token {words.format_latency(numbers.ttft)}")
    if numbers.inter_token is not None:
        between = "steps" if drafts or numbers.acceptance is not None else "tokens"
        cells.append(f"between {between} {words.format_latency(numbers.inter_token)}")
    return cells


def _explanation(one: InstanceView, view: NodeTelemetryView, width: int | None) -> list[str]:
    seen = estimate_instance_bandwidth(one, view)
    if get_node_bandwidth(view) is not None:
        return wrap_line(
            f"{_INDENT}  bandwidth: the GPU's own counter says it, for all that runs there; see its line", width
        )
    if seen is None:
        return wrap_line(f"{_INDENT}  no bandwidth: {explain_missing_estimate(one.numbers, one.per_step)}", width)
    wide = max(len(name) for name, _ in seen.inputs)
    lines = wrap_line(f"{_INDENT}  {seen.formula}", width)
    return lines + [
        line for name, value in seen.inputs for line in wrap_cells(f"{_INDENT}    {name:{wide}}  ", [value], width)
    ]
