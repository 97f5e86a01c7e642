"""The node screen as rows: the machine's figures, its curves, and the processes of containers and of the GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from itertools import groupby

from sparkctl.logs.search import FilterPattern
from sparkctl.model.container import shorten_id
from sparkctl.model.instance import InstanceView
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.sample import CpuCluster, NodeProcess, Sample
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import GIB, format_ago, format_gib, format_time_of_day
from sparkctl.monitor.kernel_log import is_worth_a_line
from sparkctl.monitor.sample_series import SeriesName
from sparkctl.views.meter_view import CLOCK_LIMIT_REASONS, UNKNOWN
from sparkctl.views.overview.fabric_view import format_node_links
from sparkctl.views.overview.tile_model import NodeTileModel, build_finding_badge, build_node_badge, format_age
from sparkctl.views.overview.tile_rows import (
    BUSY_CPU_SHARES,
    DANGEROUS_DEGREES,
    HOT_NVME_DEGREES,
    LABEL_COLUMNS,
    AreaChart,
    DrawArea,
    build_chart_row,
    build_cpu_chart,
    build_gpu_charts,
    build_heat_chart,
    build_kernel_marks,
    build_machine_row,
    build_memory_bar,
    build_memory_chart,
    build_memory_legend,
    build_rdma_chart,
    format_chart_span,
    make_label,
    read_series,
    render_gpus,
    render_labelled_text,
    render_unreachable,
)
from sparkctl.views.text.charts import RowBlock, drop_least_important, expand_charts, render_gauge, round_above
from sparkctl.views.text.frame_layout import draw_frame, pad_screen
from sparkctl.views.text.line_wrap import wrap_row
from sparkctl.views.text.styled_text import (
    ScrollPage,
    Span,
    TextRow,
    TextStyle,
    compute_visible_range,
    get_severity_style,
    make_row,
    measure_row,
    pad_row,
    pad_text,
    sanitize_span,
    truncate_row,
    truncate_text,
)

_SIDE_BY_SIDE_COLUMNS = 110
_MIN_PROCESS_LINES = 4  # of the box of processes, its frame and head included
_MIN_CHART_LINES, _GOOD_CHART_LINES = 3, 6
_CORE_LEVELS = "▁▂▃▄▅▆▇█"
_NAME_COLUMNS = 16
_MAX_KERNEL_EVENTS = 3
_TODAY_SECONDS = 20 * 3600.0  # within a day the time of day is enough
_CORE_CELL_COLUMNS = 22  # at least, of a core with its bar


class ProcessSort(StrEnum):
    """The column that the processes are sorted by."""

    GPU = "gpu"
    MEMORY = "memory"
    CPU = "cpu"
    NAME = "name"
    PID = "pid"


_SORT_KEYS: dict[ProcessSort, Callable[[NodeProcess], tuple[float | str, ...]]] = {
    ProcessSort.GPU: lambda one: (-(one.gpu_memory or 0), -(one.resident or 0), one.pid),
    ProcessSort.MEMORY: lambda one: (-(one.resident or 0), one.pid),
    ProcessSort.CPU: lambda one: (-(one.cpu or 0.0), one.pid),
    ProcessSort.NAME: lambda one: (one.name or "", one.pid),
    ProcessSort.PID: lambda one: (one.pid,),
}
SORT_BY_HEAD = {
    "PID": ProcessSort.PID,
    "NAME": ProcessSort.NAME,
    "CPU": ProcessSort.CPU,
    "GPU": ProcessSort.GPU,
    "MEMORY": ProcessSort.MEMORY,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeScreenModel:
    """The state of the node screen. ``chosen``: the pid that the operator selected; ``pattern``: the filter of the processes."""

    tile: NodeTileModel
    order: ProcessSort = ProcessSort.GPU
    chosen: int | None = None
    pattern: FilterPattern | None = None

    @property
    def processes(self) -> tuple[NodeProcess, ...]:
        """The processes that match the filter, sorted."""
        sample = self.tile.view.sample
        every = list(sample.processes or ()) if sample is not None else []
        if self.pattern is not None:
            words = [f"{one.pid} {one.name or ''} {self.describe_owner(one)}" for one in every]
            every = [every[at] for at in self.pattern.select_indices(words)]
        return tuple(sorted(every, key=_SORT_KEYS[self.order]))

    @property
    def process_count(self) -> int:
        """How many processes there are, those that do not match included."""
        sample = self.tile.view.sample
        return 0 if sample is None else len(sample.processes or ())

    @property
    def selected(self) -> NodeProcess | None:
        """The selected process; where it has ended, the first one."""
        shown = self.processes
        return next((one for one in shown if one.pid == self.chosen), shown[0] if shown else None)

    def describe_owner(self, one: NodeProcess) -> str:
        """Return the owner of a process: an instance, a container that is not ours, or a systemd unit; "" where none is known."""
        if one.container is None:
            return one.unit or ""
        instance = self.find_owner(one)
        return shorten_id(one.container) if instance is None else instance.name

    def find_owner(self, one: NodeProcess) -> InstanceView | None:
        """Return the instance that a process belongs to, also one that is not ours."""
        instances = () if one.container is None else self.tile.view.instances
        return next((each for each in instances if each.container_id == one.container), None)


def render_node(scene: NodeScreenModel, columns: int, lines: int) -> ScrollPage:
    """Return the node page: the machine's figures, its charts below them or at their right, and the list of processes at the bottom,
    in no more rows than it needs: charts take the rest."""
    seen = scene.tile
    for_list = max(_MIN_PROCESS_LINES, min(scene.process_count + 3, lines // 2))
    high = max(0, lines - for_list)
    if columns >= _SIDE_BY_SIDE_COLUMNS:
        left = columns // 2
        space, side = DrawArea(left - 4, lines), DrawArea(columns - left - 4, lines)
        figures = _build_machine_blocks(seen, space)
        whole = _build_machine_blocks(seen, space, has_core_rows=True)
        if sum(len(part.rows) for part in whole) <= high - 2:
            figures = whole
        curves = _build_machine_charts(seen, side)
        if curves and curves[0].slot == "memory" and (marks := build_kernel_marks(seen, side)) is not None:
            curves.insert(1, marks)
        if not curves:
            high = min(high, sum(len(part.rows) for part in figures) + 2)
        shown = _fill_with_charts(figures, _build_further_charts(seen, space, side), high - 2)
        rows = [
            (*one, *other)
            for one, other in zip(
                draw_frame(_render_title(seen), shown, left, high),
                draw_frame(
                    make_row(Span(f"last {format_chart_span(seen)}", TextStyle.LABEL)),
                    drop_least_important(expand_charts(curves, high - 2), high - 2),
                    columns - left,
                    high,
                ),
                strict=True,
            )
        ]
    else:
        space = DrawArea(columns - 4, lines)
        figures, curves = _build_machine_blocks(seen, space), _build_machine_charts(seen, space)
        needed = sum(len(part.rows) for part in figures) + 2
        if not curves or high - needed < _MIN_CHART_LINES:
            high = min(high, needed)
        rows = list(draw_frame(_render_title(seen), _fill_with_charts(figures, curves, high - 2), columns, high))
    list_rows, shown_range = _render_processes(scene, columns - 4, lines - high - 3)
    title = make_row(
        Span("processes", TextStyle.LABEL),
        Span(f"   {len(scene.processes)}", TextStyle.VALUE),
        Span(" in containers or on the GPU", TextStyle.UNIT),
        Span(f"   sorted by {scene.order.value}", TextStyle.LABEL),
    )
    rows += draw_frame(title, list_rows, columns, lines - high)
    return ScrollPage(pad_screen(rows, columns, lines), 0, high + 2, shown_range)


def _fill_with_charts(figures: Sequence[RowBlock], curves: Sequence[RowBlock], room: int) -> list[TextRow]:
    """Return the figures, and in the rows that they leave as many of the curves as have room."""
    free = room - sum(len(part.rows) for part in figures)
    kept = curves[: max(free // _GOOD_CHART_LINES, int(free >= _MIN_CHART_LINES))]
    return drop_least_important(expand_charts([*figures, *kept], room), room)


def _render_title(seen: NodeTileModel) -> TextRow:
    badge = build_node_badge(seen)
    title = make_row(sanitize_span(seen.name, TextStyle.TITLE), " ", Span(f"{badge.sign} {badge.word}", badge.tone))
    if (worst := seen.worst_finding) is None:
        return title
    sick = build_finding_badge(worst)
    return make_row(*title, Span(" · ", TextStyle.FRAME), Span(f"{sick.sign} {sick.word}", sick.tone))


def _build_machine_blocks(seen: NodeTileModel, space: DrawArea, *, has_core_rows: bool = False) -> list[RowBlock]:
    """Return the figures of memory, GPU, CPU, disks, links and kernel, in this order; ``has_core_rows``: each core with a bar."""
    blocks = [] if seen.is_known else [_make_block(0, *render_unreachable(seen, space))]
    legend = build_memory_legend(seen, space)
    blocks += [build_memory_bar(seen, space), *([] if legend is None else [legend])]
    sample = seen.view.sample
    if sample is None:
        return blocks
    if seen.is_known and (age := seen.sample_age) is not None and age > 15:
        blocks.append(_make_block(1, make_row(make_label(""), Span(format_age(age), TextStyle.STALE))))
    blocks.append(_make_block(1, *render_gpus(seen, space)))
    if limits := [
        name for gpu in sample.gpus or () for bit, name in CLOCK_LIMIT_REASONS.items() if (gpu.reasons or 0) & bit
    ]:
        words = f"held back by {', '.join(dict.fromkeys(limits))}"
        blocks.append(_make_block(3, *render_labelled_text("", words, space, TextStyle.ATTENTION, 2)))
    if (machine := build_machine_row(seen, space)) is not None:
        blocks.append(RowBlock(spare=1, rows=machine.rows))
    shown = [one for one in seen.kernel if is_worth_a_line(one)][-_MAX_KERNEL_EVENTS:]
    blocks += [_make_block(4, row) for row in _render_cores(sample, space, has_core_rows=has_core_rows)]
    blocks += [_make_block(8, row) for row in (_render_core_rows(sample, space) if has_core_rows else ())]
    blocks += [
        _make_block(4, row) for row in _render_load(sample, space, is_quiet=not shown and seen.kernel_gaps is None)
    ]
    blocks += [_make_block(5, row) for row in _render_temperatures(sample, space)]
    blocks += [_make_block(2, row) for row in _render_disks(sample, space)]
    blocks += [_make_block(3, row) for row in _render_links(sample, space)]
    for at, one in enumerate(shown):
        label = make_label("kernel" if not at else "")
        is_today = sample.time - one.last < _TODAY_SECONDS
        when = format_time_of_day(one.last, has_seconds=True) if is_today else format_ago(one.last, sample.time)
        row = make_row(
            label, Span(f"{when} ", TextStyle.LABEL), sanitize_span(one.meaning, get_severity_style(one.severity))
        )
        blocks.append(_make_block(2, *wrap_row(row, space.columns, LABEL_COLUMNS)))
    if seen.kernel_gaps is not None:
        row = make_row(make_label("" if shown else "kernel"), sanitize_span(seen.kernel_gaps, TextStyle.STALE))
        blocks.append(_make_block(3, truncate_row(row, space.columns)))
    return blocks


def _make_block(spare: int, *rows: TextRow) -> RowBlock:
    return RowBlock(spare=spare, rows=tuple(rows))


def _render_cores(sample: Sample, space: DrawArea, *, has_core_rows: bool) -> list[TextRow]:
    """Return each cluster's load: with its cores' numbers where each has a row below, else with a bar for each core."""
    cpu = sample.cpu
    if cpu is None or not cpu.cores:
        return []
    clusters = cpu.clusters or (CpuCluster(cores=tuple(range(len(cpu.cores))), busy=cpu.busy),)
    most = max((cluster.capacity or 0 for cluster in clusters), default=0)
    parts: list[TextRow] = []
    for cluster in clusters:
        kind = "" if len(clusters) == 1 or not most else "fast " if cluster.capacity == most else "small "
        spans: list[Span] = [Span(kind, TextStyle.LABEL)]
        if has_core_rows:
            spans.append(Span(_format_core_numbers(cluster.cores), TextStyle.UNIT))
        else:
            known = [cpu.cores[core] if core < len(cpu.cores) else None for core in cluster.cores]
            for tone, group in groupby(known, key=_get_core_style):
                spans.append(Span("".join(map(_draw_core, group)), tone))
        share = UNKNOWN if cluster.busy is None else format(cluster.busy * 100, ".0f")
        parts.append(make_row(*spans, Span(f" {share:>3}", TextStyle.VALUE), Span(" %", TextStyle.UNIT)))
    row = make_row(
        make_label("cores"),
        *(span for at, part in enumerate(parts) for span in (*([Span("   ")] if at else []), *part)),
    )
    return [truncate_row(row, space.columns)]


def _format_core_numbers(cores: Sequence[int]) -> str:
    """Return ``5–9, 15–19``."""
    runs: list[list[int]] = []
    for core in sorted(cores):
        if runs and runs[-1][-1] == core - 1:
            runs[-1].append(core)
        else:
            runs.append([core])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def _render_load(sample: Sample, space: DrawArea, *, is_quiet: bool) -> list[TextRow]:
    """Return the load; ``is_quiet``: that the kernel's log was read and has nothing that matters, where there is room."""
    cpu = sample.cpu
    if cpu is None or not cpu.load or len(cpu.load) < 2:
        return []
    figures = "  ".join(f"{load:5.2f}" for load in cpu.load)
    row = make_row(make_label("load"), Span(figures, TextStyle.VALUE), Span("  1, 5, 15 min", TextStyle.UNIT))
    quiet = Span("   kernel  nothing logged", TextStyle.LABEL)
    wanted = (make_row(*row, quiet), make_row(*row[:2], quiet)) if is_quiet else ()
    return [next((one for one in wanted if measure_row(one) <= space.columns), row)]


def _render_core_rows(sample: Sample, space: DrawArea) -> list[TextRow]:
    """Return a bar and a figure for each core, in columns side by side, numbered down the columns."""
    cores = [] if sample.cpu is None else list(sample.cpu.cores)
    across = max(1, min(len(cores), (space.columns - LABEL_COLUMNS) // _CORE_CELL_COLUMNS))
    down = -(-len(cores) // across)
    bar = (space.columns - LABEL_COLUMNS) // across - 10
    rows = []
    for line in range(down):
        spans: list[Span] = [make_label("")]
        for at in range(line, len(cores), down):
            share = cores[at]
            figure = UNKNOWN if share is None else f"{share * 100:.0f}"
            spans += [
                Span(f"{at:>2} ", TextStyle.LABEL),
                *render_gauge(share or 0.0, bar, TextStyle.POWER, BUSY_CPU_SHARES),
                Span(f"{figure:>4}", TextStyle.VALUE),
                Span(" % ", TextStyle.UNIT),
            ]
        rows.append(truncate_row(tuple(spans), space.columns))
    return rows


def _draw_core(share: float | None) -> str:
    return "·" if share is None else _CORE_LEVELS[min(len(_CORE_LEVELS) - 1, int(share * len(_CORE_LEVELS)))]


def _get_core_style(share: float | None) -> TextStyle:
    if share is None:
        return TextStyle.STALE
    busy, full = BUSY_CPU_SHARES
    return TextStyle.BAD if share >= full else TextStyle.ATTENTION if share >= busy else TextStyle.POWER


def _render_temperatures(sample: Sample, space: DrawArea) -> list[TextRow]:
    """Return the hottest sensor of each kind of chip, as many as fit in a row."""
    hottest: dict[str, float] = {}
    for one in sample.temperatures or ():
        hottest[one.chip] = max(one.celsius, hottest.get(one.chip, one.celsius))
    if not hottest:
        return []
    spans: list[Span] = [make_label("heat")]
    for at, (chip, celsius) in enumerate(sorted(hottest.items(), key=lambda each: -each[1])):
        spans += [
            sanitize_span(f"{'   ' if at else ''}{chip} ", TextStyle.LABEL),
            Span(f"{celsius:.0f}", _get_heat_style(chip, celsius)),
            Span(" °C", TextStyle.UNIT),
        ]
    return [truncate_row(tuple(spans), space.columns)]


def _get_heat_style(chip: str, celsius: float) -> TextStyle:
    warns, bad = DANGEROUS_DEGREES
    if chip.startswith("nvme"):
        warns = HOT_NVME_DEGREES
    return TextStyle.BAD if celsius >= bad else TextStyle.ATTENTION if celsius >= warns else TextStyle.VALUE


def _render_disks(sample: Sample, space: DrawArea) -> list[TextRow]:
    rows = []
    disks = [one for one in sample.disks or () if one.total]
    wide = max(14, max((len(sanitize_line(one.path)) for one in disks), default=0))
    for at, one in enumerate(disks):
        row = make_row(
            make_label("disk" if not at else ""),
            sanitize_span(pad_text(sanitize_line(one.path), wide), TextStyle.LABEL),
            Span(f"  {format_gib(one.free):>11}", TextStyle.VALUE),
            Span(f" free of {format_gib(one.total)}", TextStyle.UNIT),
        )
        rows.append(truncate_row(row, space.columns))
    return rows


def _render_links(sample: Sample, space: DrawArea) -> list[TextRow]:
    links = format_node_links(sample)
    heads = [
        make_row(make_label("link" if not at else ""), sanitize_span(f"{cells[0]:<14}  ", TextStyle.LABEL))
        for at, cells in enumerate(links)
    ]
    made: list[TextRow] = []
    for forms in zip(*(_list_link_forms(cells[1:]) for cells in links), strict=True):  # one form for all of them
        made = [(*head, sanitize_span(words, TextStyle.VALUE)) for head, words in zip(heads, forms, strict=True)]
        if all(measure_row(row) <= space.columns for row in made):
            break
    return [truncate_row(row, space.columns) for row in made]


def _list_link_forms(cells: Sequence[str]) -> list[str]:
    """Return a link's figures in five forms, the longest first; each has the RDMA rate, which stands nowhere else."""
    figures = [cell for cell in cells if not cell.startswith("MTU")]
    at = next((at for at, cell in enumerate(figures) if cell.startswith("RDMA ")), None)
    slim = [cell for cell in figures if not cell.endswith("Gb/s")]
    if at is None:
        return ["  ".join(form) for form in (figures, slim, slim, slim, slim)]
    device, _, rates = figures[at].removeprefix("RDMA ").partition(" ")
    short = [f"RDMA {rates}" if device else figures[at], *figures[at + 1 :]]
    bare = ["IDLE" if cell.startswith("IDLE ") else cell for cell in short]  # a finding says the rest
    forms = [figures, slim, figures[at:], short, bare]
    return ["  ".join(form) for form in forms]


def _build_machine_charts(seen: NodeTileModel, space: DrawArea) -> list[RowBlock]:
    """Return the curves of memory, CPU and network, and GPU."""
    widths = space.split_chart_columns(2)
    received, sent = (read_series(seen, name, widths[1] * 2) for name in (SeriesName.RECEIVE, SeriesName.SEND))
    traffic = [
        None if into is None and out is None else ((into or 0.0) + (out or 0.0)) / 1e6
        for into, out in zip(received, sent, strict=True)
    ]
    most = round_above(max((one for one in traffic if one is not None), default=0.0), 1.0)
    row = build_chart_row(
        "cpu",
        [
            build_cpu_chart(seen, widths[0]),
            AreaChart(values=traffic, most=most, unit="MB/s", tone=TextStyle.LINK, title="network"),
        ],
        widths,
        space.chart_rows,
    )
    memory = build_memory_chart(seen, space)
    every = [memory, row, *build_gpu_charts(seen, space)]
    return [one for one in every if one is not None and one.grow is not None]


def _build_further_charts(seen: NodeTileModel, space: DrawArea, side: DrawArea) -> list[RowBlock]:
    """Return the curves for the rows below the figures: heat, where it has no room among the others (``side``), else the GPU's
    clock, and what RDMA moves; then page cache and swap."""
    widths = space.split_chart_columns(2)
    first = build_heat_chart(seen, widths[0])
    if side.is_chart_row_wide:
        clocks = read_series(seen, SeriesName.SM_CLOCK, widths[0] * 2)
        fastest = round_above(max((one for one in clocks if one is not None), default=0.0), 1000.0)
        first = AreaChart(values=clocks, most=fastest, unit="MHz", tone=TextStyle.POWER, title="clock")
    cache, swap = (
        [None if size is None else size / GIB for size in read_series(seen, name, wide * 2)]
        for name, wide in zip((SeriesName.PAGE_CACHE, SeriesName.SWAP_USED), widths, strict=True)
    )
    most = [round_above(max((one for one in values if one is not None), default=0.0), 1.0) for values in (cache, swap)]
    memory = [
        AreaChart(values=cache, most=most[0], unit="GiB", tone=TextStyle.GPU, title="page cache"),
        AreaChart(values=swap, most=most[1], unit="GiB", tone=TextStyle.GPU, title="swap"),
    ]
    rows = (
        build_chart_row("further", [first, build_rdma_chart(seen, widths[1])], widths, space.chart_rows),
        build_chart_row("cache", memory, widths, space.chart_rows),
    )
    return [row for row in rows if row is not None]


def _render_processes(scene: NodeScreenModel, columns: int, lines: int) -> tuple[list[TextRow], range]:
    """Return the head of the table and the processes that fit, and which they are."""
    sample, processes = scene.tile.view.sample, scene.processes
    if not processes:
        why = (
            "no data yet"
            if sample is None
            else f"not read: {sample.devices_trouble}"
            if sample.processes is None and sample.devices_trouble
            else "no process of a container or of the GPU"
            if scene.pattern is None
            else "nothing matches"
        )
        return [make_row(sanitize_span(why, TextStyle.STALE))], range(0)
    selected = scene.selected
    at = 0 if selected is None else processes.index(selected)
    there = compute_visible_range(len(processes), at, max(1, lines))
    owner = max(10, columns - _NAME_COLUMNS - 45)
    head = f"  {'PID':>8}  {'NAME':<{_NAME_COLUMNS}}  {'OF':<{owner}}{'CPU':>7}  {'GPU':>10}  {'MEMORY':>10}"
    rows = [make_row(Span(head, TextStyle.UNIT))]
    for one in (processes[each] for each in there):
        mine = one is selected
        name = truncate_text(sanitize_line(one.name or UNKNOWN), _NAME_COLUMNS)
        of = truncate_text(sanitize_line(scene.describe_owner(one)), owner)
        rows.append(
            pad_row(
                make_row(
                    Span("▸ " if mine else "  ", TextStyle.ACCENT),
                    Span(f"{one.pid:>8}  ", TextStyle.LABEL),
                    Span(pad_text(name, _NAME_COLUMNS) + "  ", TextStyle.STRONG if mine else TextStyle.VALUE),
                    Span(pad_text(of, owner), TextStyle.LABEL),
                    Span(f"{UNKNOWN if one.cpu is None else format(one.cpu * 100, '.0f'):>5}", TextStyle.VALUE),
                    Span(" %", TextStyle.UNIT),
                    *_render_gib(one.gpu_memory),
                    *_render_gib(one.resident),
                ),
                columns,
            )
        )
    return rows, there


def _render_gib(size: int | None) -> TextRow:
    if size is None:
        return make_row(Span(f"{UNKNOWN:>8}", TextStyle.STALE), Span("    "))
    return make_row(Span(f"{size / GIB:>8.1f}", TextStyle.VALUE), Span(" GiB", TextStyle.UNIT))
