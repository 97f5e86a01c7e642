"""``top`` as text, a block a node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sparkctl.model.finding import FindingKind, Severity, sort_by_severity
from sparkctl.model.node import NodeState
from sparkctl.model.sample import Cpu, DiskSpace, Gpu, MemoryBar, Sample, Temperature
from sparkctl.model.sanitize import sanitize_line
from sparkctl.model.units import GIB, format_duration, format_gib
from sparkctl.monitor.bandwidth import Bandwidth, get_node_bandwidth
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.views.finding_view import format_node_findings
from sparkctl.views.instance_block import format_instance_block
from sparkctl.views.link_rows import format_node_links
from sparkctl.views.meter_view import UNKNOWN, format_bandwidth
from sparkctl.views.status_view import format_instance_blocks, sort_by_owner
from sparkctl.views.text.charts import render_memory_bar
from sparkctl.views.text.line_wrap import wrap_cells, wrap_line
from sparkctl.views.text.state_symbols import state_symbol, to_ascii

BLANK_REASONS = {
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
    0x100: "display clock",
}  # 0x1 is idle
_BAR, _SHORT_BAR, _WIDE = 40, 30, 100
_OLD = 15.0  # seconds: Docker is asked every five, and has ten to answer
_SHORT = 0.05  # of a disk: less free than that is told however little room there is
_TALLER = "a taller window shows them"


def format_top(
    views: Sequence[NodeTelemetryView],
    ascii_only: bool = False,
    width: int | None = None,
    explain: bool = False,
    height: int | None = None,
) -> list[str]:
    """Return the lines of the whole picture, none longer than ``width`` columns that can be broken.

    ``explain`` adds, under each instance, the formula of its bandwidth with all inputs, or why there is none. Where the
    lines are more than ``height``, what is least needed is left out, item by item, and that is said.
    """
    style = _TopFormat(ascii_only, width, explain)
    lines = _format_nodes(views, style)
    if height is not None and len(lines) > height:
        lines = _fit_height(views, style, max(1, height))
    return [to_ascii(line) for line in lines] if ascii_only else lines


@dataclass(frozen=True, slots=True)
class _TopFormat:
    """How the picture is wanted; ``brief``: only what is not in order, and the items that there is room for."""

    ascii_only: bool
    width: int | None
    explain: bool
    brief: bool = False
    items: frozenset[tuple[str, str]] = frozenset()  # (node, what)

    def has(self, node: str, what: str) -> bool:
        """Say whether there is room for it."""
        return not self.brief or (node, what) in self.items


def _format_nodes(views: Sequence[NodeTelemetryView], style: _TopFormat) -> list[str]:
    lines: list[str] = []
    for view in views:
        lines += ([""] if lines else []) + _node(view, style)
    return lines


def _fit_height(views: Sequence[NodeTelemetryView], style: _TopFormat, height: int) -> list[str]:
    """Return the picture in so many lines: in brief, then one item more after the other while there is room."""
    style = replace(style, brief=True)
    wanted = _items(views)
    lines, missing = _format_nodes(views, style), list(wanted)
    if len(lines) + len(_format_omitted(missing, style.width)) > height:
        return _clip_height(views, style, height)
    for item in wanted:
        more = replace(style, items=style.items | {item})
        picture, left = _format_nodes(views, more), [one for one in missing if one != item]
        if len(picture) + len(_format_omitted(left, style.width)) <= height:
            style, lines, missing = more, picture, left
    return [*lines, *_format_omitted(missing, style.width)]


def _items(views: Sequence[NodeTelemetryView]) -> list[tuple[str, str]]:
    """Return what a brief picture lacks, what is needed most first: remedies of the worst, their proofs, then the rest."""
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
    """Return the line that says what was left out, nothing where that is nothing."""
    whats = {what.split()[0] for _, what in missing}
    words = {
        "try": "remedies", "proof": "evidence", "instances": "details of instances", "CPU": "CPU", "links": "links",
        "disks": "disks in good order",
    }  # fmt: skip
    named = [word for what, word in words.items() if what in whats]
    return wrap_line(f"(left out: {', '.join(named)}; {_TALLER})", width, 1) if named else []


def _clip_height(views: Sequence[NodeTelemetryView], style: _TopFormat, height: int) -> list[str]:
    """Return what matters most where not even the brief picture has room: every node's head and findings go first."""
    blocks = [_node(view, replace(style, items=frozenset({(view.name, "first")}))) for view in views]
    whole = sum(len(block) for block in blocks)
    footer = wrap_line(f"({whole} lines in all: make the window taller, or choose with --node)", style.width, 1)
    room = max(len(blocks), height - len(footer))
    shares = [0] * len(blocks)
    while sum(shares) < min(room, whole):  # a line each in turn: a short block leaves its room to the others
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
    """Return how many findings of each severity are not within so many lines under the node's head."""
    counts: Counter[Severity] = Counter()
    for one in view.findings if view.state is NodeState.OK else ():
        room -= len(format_node_findings([one], view.when, style.ascii_only, style.width, ()))
        counts[one.severity] += room < 0
    return ", ".join(
        f"{count} {state_symbol(severity, style.ascii_only)}" for severity, count in counts.items() if count
    )


def _node(view: NodeTelemetryView, style: _TopFormat) -> list[str]:
    ascii_only, width = style.ascii_only, style.width
    head = f"{state_symbol(view.state, ascii_only)} {view.name}"
    hint = wrap_line(f"    try: {sanitize_line(view.hint)}", width) if view.hint else []
    nothing = view.sample is None and view.memory is None and not view.instances
    if view.state is not NodeState.OK or nothing:
        return (
            wrap_line(f"{head}   {view.state}" + (f": {sanitize_line(view.detail)}" if view.detail else ""), width, 4)
            + hint
        )
    rows = _memory_rows(view.memory, view.sample, ascii_only, width)
    if view.sample is not None:
        rows += _gpu_rows(view.sample, get_node_bandwidth(view))
        rows += _machine_rows(view, view.sample, style)
    now = view.sample.time if view.sample is not None else view.when
    found_first = style.brief and (view.name, "first") in style.items
    wanted = [part for what, part in style.items if what == view.name] if style.brief else None
    troubles = format_node_findings(view.findings, now, ascii_only, width, wanted)
    lines = [
        head,
        *(troubles if found_first else []),
        *(line for name, cells in rows for line in wrap_cells(f"    {name:<6}  ", cells, width)),
    ]
    if not view.docker_known:
        lines += wrap_line(f"    Docker: {sanitize_line(view.detail or 'no answer')}", width) + hint
    lines += _instances(view, style)
    return lines + ([] if found_first else troubles)


def _machine_rows(view: NodeTelemetryView, sample: Sample, style: _TopFormat) -> list[tuple[str, list[str]]]:
    """Return CPU, links and disks; in brief only what is not in order and what no finding says anyway."""
    disks = [disk for disk in sample.disks or () if style.has(view.name, "disks") or _is_short(disk)]
    all_links = style.has(view.name, "links")
    said = not all_links and any(one.kind is FindingKind.IDLE_FUNCTION for one in view.findings)
    return [
        *([("CPU", _cpu(sample.cpu, sample.temperatures or ()))] if style.has(view.name, "CPU") else []),
        *(("device", [words]) for words in list_missing_readings(sample)),
        *(
            ("link", cells)
            for cells in ([] if said else format_node_links(sample, style.ascii_only, only_idle=not all_links))
        ),
        *(("disk", _disk(disk)) for disk in disks),
    ]


def list_missing_readings(sample: Sample) -> list[str]:
    """Return why nothing is known of drives, links, sensors and processes; nothing where they are."""
    if sample.devices_silent_for is not None:
        return [f"no answer for {sample.devices_silent_for:.0f} s (drives, links, temperatures, processes)"]
    return [sanitize_line(sample.devices_trouble)] if sample.devices_trouble else []


def _is_short(disk: DiskSpace) -> bool:
    return disk.total is None or disk.free is None or disk.free < _SHORT * disk.total


def _instances(view: NodeTelemetryView, style: _TopFormat) -> list[str]:
    """Return a row for each instance with its figures under it, and as of when they were seen where that is long ago."""
    if view.instances_seen is None and not view.instances:
        return ["    what runs is not known yet"] if view.docker_known else []
    age = 0.0 if view.instances_seen is None else view.when - view.instances_seen
    lines = [f"    as of {format_duration(age)} ago:"] if age > _OLD or not view.docker_known else []
    if not view.instances:
        return [*lines, "    nothing runs"]
    rows = format_instance_blocks(view.instances, style.ascii_only, style.width)
    for one, row in zip(sort_by_owner(view.instances), rows, strict=True):
        lines += [
            *row,
            *format_instance_block(one, view, style.width, style.explain, not style.has(view.name, "instances")),
        ]
    return lines


def _memory_rows(
    bar: MemoryBar | None, sample: Sample | None, ascii_only: bool, width: int | None
) -> list[tuple[str, list[str]]]:
    if bar is None:
        return [("memory", [UNKNOWN])]
    cells = [
        f"GPU processes {_gib(bar.gpu_processes)}",
        f"other {_gib(bar.other_used)}{_within(bar)}",
        f"page cache {_gib(bar.page_cache)}",
        f"free {_gib(bar.free)}",
    ]
    whole = f"{format_memory_bar(bar, ascii_only, _BAR if width is None or width >= _WIDE else _SHORT_BAR)} {format_gib(bar.total)}"
    more = [whole, f"available {format_gib(bar.available)}", f"swap {format_gib(bar.swap_used)}"]
    pressure = sample.detail.pressure if sample is not None and sample.detail is not None else None
    if pressure is not None and pressure.some is not None:
        more.append(f"pressure {pressure.some * 100:.0f} %")
    if width is not None and width < _WIDE:
        return [("memory", more[:2]), ("", cells + more[2:])]
    return [("memory", more), ("", cells)]


def _within(bar: MemoryBar) -> str:
    """Return what `other` is made of: what processes hold, and what nobody is known to hold."""
    if bar.processes is None:
        return ""
    return f" (processes {_gib(bar.processes)}, unaccounted {_gib(bar.unaccounted)})"


def _gib(size: int | None) -> str:
    return UNKNOWN if size is None else f"{size / GIB:.1f}"


def format_memory_bar(bar: MemoryBar, ascii_only: bool, width: int = _BAR) -> str:
    """Return the four parts as one bar of so many cells."""
    ends = "[]" if ascii_only else "▕▏"
    return ends[0] + "".join(span.text for span in render_memory_bar(bar, width, ascii_only)) + ends[1]


def _gpu_rows(sample: Sample, read: Bandwidth | None) -> list[tuple[str, list[str]]]:
    if sample.gpu_silent_for is not None:
        return [("GPU", [f"no answer for {sample.gpu_silent_for:.0f} s"])]
    if not sample.gpus:
        return [("GPU", [sanitize_line(sample.gpu_trouble or UNKNOWN)])]
    rows = [("GPU", _gpu(gpu)) for gpu in sample.gpus]
    return rows if read is None else [*rows, ("", [f"memory {format_bandwidth(read)}"])]


def _gpu(gpu: Gpu) -> list[str]:
    words = [
        _share(gpu.busy),
        f"{UNKNOWN if gpu.sm_clock is None else gpu.sm_clock} of "
        f"{UNKNOWN if gpu.sm_clock_max is None else gpu.sm_clock_max} MHz",
        f"{UNKNOWN if gpu.power is None else format(gpu.power, '.0f')} W",
        (UNKNOWN if gpu.celsius is None else format(gpu.celsius, ".0f")) + " °C",
        UNKNOWN if gpu.pstate is None else f"P{gpu.pstate}",
    ]
    reasons = [name for bit, name in BLANK_REASONS.items() if (gpu.reasons or 0) & bit]
    if reasons:
        words.append("held back by " + ", ".join(reasons))
    return words


def _cpu(cpu: Cpu | None, temperatures: Sequence[Temperature]) -> list[str]:
    if cpu is None:
        return [UNKNOWN]
    words = [_share(cpu.busy)]
    if len(cpu.clusters) > 1:
        words += [f"{len(cluster.cores)} cores {_share(cluster.busy)}" for cluster in cpu.clusters]
    if cpu.load:
        words.append("load " + " ".join(f"{load:.2f}" for load in cpu.load))
    hottest: dict[str, float] = {}
    for one in temperatures:
        hottest[one.chip] = max(one.celsius, hottest.get(one.chip, one.celsius))
    return words + [f"{sanitize_line(chip)} {celsius:.0f} °C" for chip, celsius in sorted(hottest.items())]


def _disk(disk: DiskSpace) -> list[str]:
    words = "not there" if disk.total is None else f"{format_gib(disk.free)} free of {format_gib(disk.total)}"
    return [sanitize_line(disk.path), words]


def _share(share: float | None) -> str:
    return UNKNOWN if share is None else f"{share * 100:.0f} %"
