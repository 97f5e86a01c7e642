"""``top`` as text: one block per node with memory, GPU, CPU, links, disks, findings and instances."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from sparkctl.model.engine_metrics import EngineActivity, EngineMeter
from sparkctl.model.fabric_route import find_idle_lanes
from sparkctl.model.finding import FindingKind, Severity, sort_by_severity
from sparkctl.model.instance import InstanceView
from sparkctl.model.json_codec import to_json_data
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.sample import Cpu, DiskSpace, Gpu, MemoryBar, RdmaLane, Sample, Temperature
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import GIB, format_duration, format_gib
from sparkctl.monitor.meters.bandwidth import (
    Bandwidth,
    estimate_instance_bandwidth,
    explain_missing_estimate,
    get_node_bandwidth,
)
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.views import meter_view as words
from sparkctl.views.finding_view import format_node_findings
from sparkctl.views.meter_view import CLOCK_LIMIT_REASONS, UNKNOWN, format_bandwidth
from sparkctl.views.overview.fabric_view import format_node_links
from sparkctl.views.status_view import format_instance_blocks, sort_by_owner
from sparkctl.views.text.charts import render_memory_bar
from sparkctl.views.text.line_wrap import wrap_cells, wrap_line
from sparkctl.views.text.styled_text import get_state_symbol

_INDENT_TEXT = "      "
_CELL_SEPARATOR = " · "
_NO_FIGURES_TEXT = "no figures: neither /metrics nor its log has any"
_EXCESS_RATIO = 1.1  # factor of the expected memory


def format_instance_block(
    one: InstanceView, view: NodeTelemetryView, width: int | None, explain: bool, brief: bool
) -> list[str]:
    """Return the lines under an instance's row; in ``brief`` without latencies, and memory only if unexpected.

    ``explain`` adds the formula and the inputs of the bandwidth estimate, or why there is none.
    """
    if not one.ours:
        return []
    rows = []
    if one.phase is Phase.READY and one.port is not None:
        rows += _list_meter_rows(one, view, brief)
    if (
        one.expected is not None
        and one.phase not in (Phase.FAILED, Phase.STOPPED)
        and not (brief and _is_memory_as_expected(one))
    ):
        row = [f"holds {format_gib(one.memory)}", f"its profile expects {format_gib(one.expected)}"]
        is_less = one.phase is Phase.READY and one.memory is not None and one.memory * _EXCESS_RATIO < one.expected
        rows.append([*row, "why: sparkctl help three figures"] if is_less else row)
    lines = [line for row in rows for line in wrap_cells(_INDENT_TEXT, row, width, _CELL_SEPARATOR)]
    return lines + (_explain_bandwidth(one, view, width) if explain and one.phase is Phase.READY else [])


def _is_memory_as_expected(one: InstanceView) -> bool:
    return one.expected is None or one.memory is None or one.memory <= _EXCESS_RATIO * one.expected


def _list_meter_rows(one: InstanceView, view: NodeTelemetryView, brief: bool) -> list[list[str]]:
    numbers = one.numbers or EngineMeter()
    drafted = None if one.per_step is None else one.per_step.draft_tokens
    first = [_NO_FIGURES_TEXT if one.numbers is None else words.format_throughput(numbers)]
    if (rate := one.reference_rate) is not None:
        first.append(words.format_reference_rate(rate))
    if numbers.activity is not EngineActivity.IDLE and one.numbers is not None:
        first += _format_throughput(numbers)
    if one.metrics_hint is not None and not brief:
        first.append(f"/metrics is off; in the profile: {one.metrics_hint}")
    rows = [first]
    if numbers.activity is EngineActivity.DECODING:
        rows.append(_list_acceptance_cells(numbers, drafted))
        if get_node_bandwidth(view) is None:
            rows.append(_format_bandwidth(one, estimate_instance_bandwidth(one, view)))
    if brief:
        return [row for row in rows if row]
    if numbers.ttft is not None or numbers.inter_token is not None:
        rows.append(_list_latency_cells(numbers, bool(drafted)))
    return [row for row in rows if row]


def _format_throughput(numbers: EngineMeter) -> list[str]:
    cells = [words.format_queue(numbers), f"KV {words.format_percent(numbers.kv_usage)}"]
    if numbers.activity is EngineActivity.DECODING and numbers.prompt_rate:
        cells.append(f"prompts {words.format_token_rate(numbers.prompt_rate)}")
    if numbers.prefix_hit_rate is not None:
        cells.append(f"prefix cache {words.format_percent(numbers.prefix_hit_rate)}")
    return cells


def _list_acceptance_cells(numbers: EngineMeter, drafted: int | None) -> list[str]:
    seen = numbers.acceptance
    if seen is None and not drafted:
        return []  # no drafts are configured, or it is not known
    if seen is None:
        return [f"accepts {words.UNKNOWN}", f"{drafted} drafts a step"]
    positions = [f"by position {words.format_position_acceptance(seen)}"] if seen.per_position else []
    return ["accepts " + words.format_draft_acceptance(numbers, drafted), *positions]


def _format_bandwidth(one: InstanceView, seen: Bandwidth | None) -> list[str]:
    if seen is not None:
        return ["bandwidth " + words.format_bandwidth(seen)]
    if one.per_step is None or one.per_step.weights is None:
        return [f"bandwidth {words.UNKNOWN}", "set model.weights in the profile"]
    return [f"bandwidth {words.UNKNOWN}", explain_missing_estimate(one.numbers, one.per_step)]


def _list_latency_cells(numbers: EngineMeter, drafts: bool) -> list[str]:
    cells = []
    if numbers.ttft is not None:
        cells.append(f"TTFT {words.format_latency(numbers.ttft)}")
    if numbers.inter_token is not None:
        between = "steps" if drafts or numbers.acceptance is not None else "tokens"
        cells.append(f"ITL {words.format_latency(numbers.inter_token)} between {between}")
    return cells


def _explain_bandwidth(one: InstanceView, view: NodeTelemetryView, width: int | None) -> list[str]:
    seen = estimate_instance_bandwidth(one, view)
    if get_node_bandwidth(view) is not None:
        return wrap_line(
            f"{_INDENT_TEXT}  bandwidth: the GPU's own counter measures it for the whole node; see the GPU's line",
            width,
        )
    if seen is None:
        return wrap_line(f"{_INDENT_TEXT}  no bandwidth: {explain_missing_estimate(one.numbers, one.per_step)}", width)
    wide = max(len(name) for name, _ in seen.inputs)
    lines = wrap_line(f"{_INDENT_TEXT}  {seen.formula}", width)
    return lines + [
        line for name, value in seen.inputs for line in wrap_cells(f"{_INDENT_TEXT}    {name:{wide}}  ", [value], width)
    ]


_BAR_COLUMNS, _SHORT_BAR_COLUMNS, _WIDE_MIN_COLUMNS = 40, 30, 100
_OLD_LIST_SECONDS = 15.0  # seconds; Docker is read every 5 s and has 10 s to answer
_LOW_DISK_SHARE = 0.05  # share of a disk; below this it is always shown
_TALLER_WINDOW_TEXT = "a taller window shows them"


def format_top(
    views: Sequence[NodeTelemetryView],
    width: int | None = None,
    explain: bool = False,
    height: int | None = None,
) -> list[str]:
    """Return all lines, wrapped to ``width`` columns where possible.

    ``explain`` adds the formula and the inputs of each instance's bandwidth estimate, or why there is none. If there
    are more lines than ``height``, the least important items are left out one by one, and a line says so.
    """
    style = _TopFormat(width=width, explain=explain)
    lines = _format_nodes(views, style)
    if height is not None and len(lines) > height:
        lines = _fit_height(views, style, max(1, height))
    return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class _TopFormat:
    """Format options; ``brief``: only problems, plus the optional items that fit."""

    width: int | None
    explain: bool
    brief: bool = False
    items: frozenset[tuple[str, str]] = frozenset()  # (node, what)

    def has_room_for(self, node: str, what: str) -> bool:
        """Tell whether an optional item is shown."""
        return not self.brief or (node, what) in self.items


def _format_nodes(views: Sequence[NodeTelemetryView], style: _TopFormat) -> list[str]:
    lines: list[str] = []
    for view in views:
        lines += ([""] if lines else []) + _format_node_block(view, style)
    return lines


def _fit_height(views: Sequence[NodeTelemetryView], style: _TopFormat, height: int) -> list[str]:
    """Return the view in at most this many lines: the brief form plus as many optional items as fit."""
    style = replace(style, brief=True)
    wanted = _list_optional_items(views)
    lines, missing = _format_nodes(views, style), list(wanted)
    if len(lines) + len(_format_omitted(missing, style.width)) > height:
        return _clip_height(views, style, height)
    for item in wanted:
        more = replace(style, items=style.items | {item})
        picture, left = _format_nodes(views, more), [one for one in missing if one != item]
        if len(picture) + len(_format_omitted(left, style.width)) <= height:
            style, lines, missing = more, picture, left
    return [*lines, *_format_omitted(missing, style.width)]


def _list_optional_items(views: Sequence[NodeTelemetryView]) -> list[tuple[str, str]]:
    """Return the optional items, the most important first: remedies of the worst findings, evidence, then the rest."""
    there = [view for view in views if view.state is NodeState.OK]
    found = sort_by_severity([one for view in there for one in view.findings])
    ranked = [
        (one.node, next(view for view in there if view.name == one.node).findings.index(one), one) for one in found
    ]
    items: list[tuple[str, str]] = [(node, f"try {index}") for node, index, one in ranked if one.remedy]
    items += [(node, f"proof {index}") for node, index, one in ranked]
    sampled = [view for view in there if view.sample is not None]
    items += [(view.name, "instances") for view in there if view.instances]
    return items + [(view.name, what) for what in ("CPU", "links", "disks") for view in sampled]


def _format_omitted(missing: Sequence[tuple[str, str]], width: int | None) -> list[str]:
    """Return the line that names what was left out, "" if nothing was."""
    whats = {what.split()[0] for _, what in missing}
    words = {
        "try": "remedies",
        "proof": "evidence",
        "instances": "details of instances",
        "CPU": "CPU",
        "links": "links",
        "disks": "healthy disks",
    }
    named = [word for what, word in words.items() if what in whats]
    return wrap_line(f"(left out: {', '.join(named)}; {_TALLER_WINDOW_TEXT})", width, 1) if named else []


def _clip_height(views: Sequence[NodeTelemetryView], style: _TopFormat, height: int) -> list[str]:
    """Return the most important lines if even the brief form does not fit: each node's head and findings first."""
    blocks = [_format_node_block(view, replace(style, items=frozenset({(view.name, "first")}))) for view in views]
    whole = sum(len(block) for block in blocks)
    footer = wrap_line(f"({whole} lines in all: make the window taller, or choose with --node)", style.width, 1)
    room = max(len(blocks), height - len(footer))
    shares = [0] * len(blocks)
    while sum(shares) < min(room, whole):  # one line each in turn, so that short blocks leave room to others
        for index, block in enumerate(blocks):
            if shares[index] < len(block) and sum(shares) < room:
                shares[index] += 1
    hidden = [
        f"{view.name}: {words}"
        for view, share in zip(views, shares, strict=True)
        if (words := _count_omitted_findings(view, share - 1, style))
    ]
    lines = [line for block, share in zip(blocks, shares, strict=True) for line in block[:share]]
    if not hidden:
        return [*lines, *footer]
    more = wrap_line(f"(more: {'; '.join(hidden)}; make the window taller, or choose with --node)", style.width, 1)
    return [*lines[: max(0, height - len(more))], *more]


def _count_omitted_findings(view: NodeTelemetryView, room: int, style: _TopFormat) -> str:
    """Return how many findings of each severity are not within this many lines under the node's head."""
    counts: Counter[Severity] = Counter()
    for one in view.findings if view.state is NodeState.OK else ():
        room -= len(format_node_findings([one], view.when, style.width, ()))
        counts[one.severity] += room < 0
    return ", ".join(f"{count} {get_state_symbol(severity)}" for severity, count in counts.items() if count)


def _format_node_block(view: NodeTelemetryView, style: _TopFormat) -> list[str]:
    width = style.width
    head = f"{get_state_symbol(view.state)} {view.name}"
    hint = wrap_line(f"    try: {sanitize_line(view.hint)}", width) if view.hint else []
    nothing = view.sample is None and view.memory is None and not view.instances
    if view.state is not NodeState.OK or nothing:
        return (
            wrap_line(f"{head}   {view.state}" + (f": {sanitize_line(view.detail)}" if view.detail else ""), width, 4)
            + hint
        )
    rows = _list_memory_rows(view.memory, view.sample, width)
    if view.sample is not None:
        rows += _list_gpu_rows(view.sample, get_node_bandwidth(view))
        rows += _list_machine_rows(view, view.sample, style)
    now = view.sample.time if view.sample is not None else view.when
    found_first = style.brief and (view.name, "first") in style.items
    wanted = [part for what, part in style.items if what == view.name] if style.brief else None
    troubles = format_node_findings(view.findings, now, width, wanted)
    lines = [
        head,
        *(troubles if found_first else []),
        *(line for name, cells in rows for line in wrap_cells(f"    {name:<6}  ", cells, width)),
    ]
    if not view.docker_known:
        lines += wrap_line(f"    Docker: {sanitize_line(view.detail or 'no answer')}", width) + hint
    lines += _format_instances(view, style)
    return lines + ([] if found_first else troubles)


def _list_machine_rows(view: NodeTelemetryView, sample: Sample, style: _TopFormat) -> list[tuple[str, list[str]]]:
    """Return CPU, links and disks; in brief only problems that no finding reports."""
    disks = [disk for disk in sample.disks or () if style.has_room_for(view.name, "disks") or _is_disk_low(disk)]
    all_links = style.has_room_for(view.name, "links")
    is_named = not all_links and any(one.kind is FindingKind.IDLE_FUNCTION for one in view.findings)
    return [
        *(
            [("CPU", _list_cpu_cells(sample.cpu, sample.temperatures or ()))]
            if style.has_room_for(view.name, "CPU")
            else []
        ),
        *(("device", [words]) for words in list_missing_readings(sample)),
        *(("link", cells) for cells in ([] if is_named else format_node_links(sample, only_idle=not all_links))),
        *(("disk", _list_disk_cells(disk)) for disk in disks),
    ]


def list_missing_readings(sample: Sample) -> list[str]:
    """Return why drives, links, sensors and processes are not known; empty if they are."""
    if sample.devices_silent_for is not None:
        return [f"no answer for {sample.devices_silent_for:.0f} s (drives, links, temperatures, processes)"]
    return [sanitize_line(sample.devices_trouble)] if sample.devices_trouble else []


def _is_disk_low(disk: DiskSpace) -> bool:
    return disk.total is None or disk.free is None or disk.free < _LOW_DISK_SHARE * disk.total


def _format_instances(view: NodeTelemetryView, style: _TopFormat) -> list[str]:
    """Return a row for each instance with its figures, and their age if they are old."""
    if view.instances_seen is None and not view.instances:
        return ["    what runs is not known yet"] if view.docker_known else []
    age = 0.0 if view.instances_seen is None else view.when - view.instances_seen
    lines = [f"    as of {format_duration(age)} ago:"] if age > _OLD_LIST_SECONDS or not view.docker_known else []
    if not view.instances:
        return [*lines, "    nothing runs"]
    rows = format_instance_blocks(view.instances, style.width)
    for one, row in zip(sort_by_owner(view.instances), rows, strict=True):
        lines += [
            *row,
            *format_instance_block(
                one, view, style.width, style.explain, not style.has_room_for(view.name, "instances")
            ),
        ]
    return lines


def _list_memory_rows(bar: MemoryBar | None, sample: Sample | None, width: int | None) -> list[tuple[str, list[str]]]:
    if bar is None:
        return [("memory", [UNKNOWN])]
    cells = [
        f"GPU processes {_format_gib_number(bar.gpu_processes)}",
        f"other {_format_gib_number(bar.other_used)}{_format_other_memory(bar)}",
        f"page cache {_format_gib_number(bar.page_cache)}",
        f"free {_format_gib_number(bar.free)}",
    ]
    columns = _BAR_COLUMNS if width is None or width >= _WIDE_MIN_COLUMNS else _SHORT_BAR_COLUMNS
    whole = f"{format_memory_bar(bar, columns)} {format_gib(bar.total)}"
    more = [whole, f"available {format_gib(bar.available)}", f"swap {format_gib(bar.swap_used)}"]
    pressure = sample.detail.pressure if sample is not None and sample.detail is not None else None
    if pressure is not None and pressure.some is not None:
        more.append(f"pressure {pressure.some * 100:.0f} %")
    if width is not None and width < _WIDE_MIN_COLUMNS:
        return [("memory", more[:2]), ("", cells + more[2:])]
    return [("memory", more), ("", cells)]


def _format_other_memory(bar: MemoryBar) -> str:
    """Return the parts of `other`: memory of processes, and unaccounted memory."""
    if bar.processes is None:
        return ""
    return f" (processes {_format_gib_number(bar.processes)}, unaccounted {_format_gib_number(bar.unaccounted)})"


def _format_gib_number(size: int | None) -> str:
    return UNKNOWN if size is None else f"{size / GIB:.1f}"


def format_memory_bar(bar: MemoryBar, width: int = _BAR_COLUMNS) -> str:
    """Return the four parts of memory as one bar of this many cells."""
    ends = "▕▏"
    return ends[0] + "".join(span.text for span in render_memory_bar(bar, width)) + ends[1]


def _list_gpu_rows(sample: Sample, read: Bandwidth | None) -> list[tuple[str, list[str]]]:
    if sample.gpu_silent_for is not None:
        return [("GPU", [f"no answer for {sample.gpu_silent_for:.0f} s"])]
    if not sample.gpus:
        return [("GPU", [sanitize_line(sample.gpu_trouble or UNKNOWN)])]
    rows = [("GPU", _list_gpu_cells(gpu)) for gpu in sample.gpus]
    return rows if read is None else [*rows, ("", [f"memory {format_bandwidth(read)}"])]


def _list_gpu_cells(gpu: Gpu) -> list[str]:
    words = [
        _format_share(gpu.busy),
        f"{UNKNOWN if gpu.sm_clock is None else gpu.sm_clock} of "
        f"{UNKNOWN if gpu.sm_clock_max is None else gpu.sm_clock_max} MHz",
        f"{UNKNOWN if gpu.power is None else format(gpu.power, '.0f')} W",
        (UNKNOWN if gpu.celsius is None else format(gpu.celsius, ".0f")) + " °C",
        UNKNOWN if gpu.pstate is None else f"P{gpu.pstate}",
    ]
    reasons = [name for bit, name in CLOCK_LIMIT_REASONS.items() if (gpu.reasons or 0) & bit]
    if reasons:
        words.append("held back by " + ", ".join(reasons))
    return words


def _list_cpu_cells(cpu: Cpu | None, temperatures: Sequence[Temperature]) -> list[str]:
    if cpu is None:
        return [UNKNOWN]
    words = [_format_share(cpu.busy)]
    if len(cpu.clusters) > 1:
        words += [f"{len(cluster.cores)} cores {_format_share(cluster.busy)}" for cluster in cpu.clusters]
    if cpu.load:
        words.append("load " + " ".join(f"{load:.2f}" for load in cpu.load))
    hottest: dict[str, float] = {}
    for one in temperatures:
        hottest[one.chip] = max(one.celsius, hottest.get(one.chip, one.celsius))
    return words + [f"{sanitize_line(chip)} {celsius:.0f} °C" for chip, celsius in sorted(hottest.items())]


def _list_disk_cells(disk: DiskSpace) -> list[str]:
    words = "not there" if disk.total is None else f"{format_gib(disk.free)} free of {format_gib(disk.total)}"
    return [sanitize_line(disk.path), words]


def _format_share(share: float | None) -> str:
    return UNKNOWN if share is None else f"{share * 100:.0f} %"


def build_top_json(views: Sequence[NodeTelemetryView]) -> dict[str, object]:
    return {
        "schema": 1,
        "nodes": [_build_node_json(view) for view in views],
        "instances": [_build_instance_json(one, view) for view in views for one in view.instances],
    }


def _build_node_json(view: NodeTelemetryView) -> dict[str, object]:
    sample = to_json_data(view.sample) if view.sample is not None else {}
    assert isinstance(sample, dict)
    head: dict[str, object] = {"name": view.name, "state": view.state.value, "detail": view.detail, "hint": view.hint}
    head |= {
        "when": round(view.when, 3),
        "docker_known": view.docker_known,
        "instances_seen": to_json_data(view.instances_seen),
    }
    if view.sample is not None:
        idle = find_idle_lanes(view.sample.rdma or ())
        sample["rdma"] = [_build_port_json(port, idle) for port in view.sample.rdma or ()]
    tail = {
        "memory": to_json_data(view.memory),
        "bandwidth": _build_bandwidth_json(get_node_bandwidth(view)),
        "findings": to_json_data(view.findings),
    }
    return head | sample | tail


def _build_port_json(port: RdmaLane, idle: dict[str, str]) -> dict[str, object]:
    body = to_json_data(port)
    assert isinstance(body, dict)
    return body | {"errors": dict(port.errors), "idle_while": idle.get(port.name)}


def _build_instance_json(one: InstanceView, view: NodeTelemetryView) -> dict[str, object]:
    body = to_json_data(one)
    assert isinstance(body, dict)
    read = estimate_instance_bandwidth(one, view)
    body |= {
        "seen": to_json_data(view.instances_seen),
        "reference_rate": to_json_data(one.reference_rate),
        "bandwidth": _build_bandwidth_json(read),
        "bandwidth_blank": None,
    }
    if one.ours and read is None:
        counted = "measured by the GPU's own counter, for the whole node"
        body["bandwidth_blank"] = (
            counted if get_node_bandwidth(view) is not None else explain_missing_estimate(one.numbers, one.per_step)
        )
    return body


def _build_bandwidth_json(seen: Bandwidth | None) -> dict[str, object] | None:
    """Return low and high bytes/s, the shares of the memory's bandwidth, and the method."""
    if seen is None:
        return None
    shares = {
        "of_measured": _round_pair(seen.get_measured_shares(), 3),
        "of_spec": _round_pair(seen.get_spec_shares(), 3),
    }
    why = {"plausible": seen.is_plausible, "suspect": seen.suspect, "explanation": list(seen.explain_formula())}
    low, high = _round_pair((seen.low, seen.high), -8) or (None, None)
    return {"low": low, "high": high, "source": seen.source.value, **shares, **why}


def _round_pair(pair: tuple[float, float] | None, places: int) -> tuple[float, float] | None:
    """Round to the digits that such a figure deserves, so that a recording, whose inputs are rounded, gives the same."""
    return None if pair is None else (round(pair[0], places), round(pair[1], places))
