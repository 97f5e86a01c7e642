"""``status`` as text: one block per node, first its memory, then its instances."""

from __future__ import annotations

from collections.abc import Sequence

from sparkctl.model.finding import Severity
from sparkctl.model.instance import InstanceView
from sparkctl.model.memory_reading import MemoryReading
from sparkctl.model.node import NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.text.sanitize import sanitize_line, truncate_text
from sparkctl.model.text.units import GIB, format_gib
from sparkctl.monitor.node_views import NodeStatusView
from sparkctl.views.event_text import format_phase_name, format_step
from sparkctl.views.text.line_wrap import align_cells, wrap_line
from sparkctl.views.text.styled_text import get_state_symbol, measure_text

_MEMORY_COLUMN_INDEX = 2
_INDENT_COLUMNS = 4
_MAX_NAME_COLUMNS = 64  # width of the name column; the longest name that a profile may have


def format_status(views: Sequence[NodeStatusView], width: int | None = None) -> list[str]:
    """Return the lines of ``status``, wrapped to ``width`` columns if given."""
    lines: list[str] = []
    for view in views:
        if lines:
            lines.append("")
        lines += _format_node_status(view, width)
    return lines


def _format_node_status(view: NodeStatusView, width: int | None) -> list[str]:
    head = f"{get_state_symbol(view.state)} {view.name}"
    if view.state is not NodeState.OK:
        words = f"{head}   {view.state}" + (f": {sanitize_line(view.detail)}" if view.detail else "")
        if view.attempt is not None:
            words += f"   attempt {view.attempt}" + (f", next try in {view.next_try:.1f} s" if view.next_try else "")
        return wrap_line(words, width, _INDENT_COLUMNS) + _format_hint(view, width)
    lines = wrap_line(f"{head}   {describe_memory(view.memory)}", width, len(head) + 3)
    lines += _format_switch_notice(view, width)
    if not view.docker_known:
        return (
            lines
            + wrap_line(f"    Docker: {sanitize_line(view.detail or 'no answer')}", width)
            + _format_hint(view, width)
        )
    return lines + format_instances(view.instances, width)


def _format_switch_notice(view: NodeStatusView, width: int | None) -> list[str]:
    """Return the lines about a switch that is in progress or was interrupted on the node."""
    if view.switch is None:
        return []
    from sparkctl.monitor.switch_journal_io import build_switch_refusal

    told = build_switch_refusal(view.name, view.switch, is_held=view.switch.is_held)
    said = told.message.removeprefix(f"{view.name}: ")
    lines = wrap_line(f"    {get_state_symbol(Severity.WARNING)} {sanitize_line(said)}", width, 6)
    return lines + [
        each for one in (told.hint or "").splitlines() for each in wrap_line(f"    try: {sanitize_line(one)}", width)
    ]


def format_instances(instances: Sequence[InstanceView], width: int | None = None) -> list[str]:
    """Return a row for each instance; those that sparkctl started come first."""
    blocks = format_instance_blocks(instances, width)
    return [line for block in blocks for line in block] or ["    nothing runs"]


def format_instance_blocks(instances: Sequence[InstanceView], width: int | None = None) -> list[list[str]]:
    """Return each instance as one line, or as several if it is narrow; in the order of `sort_by_owner`."""
    return _align_columns([_list_instance_cells(instance) for instance in sort_by_owner(instances)], width)


def sort_by_owner(instances: Sequence[InstanceView]) -> list[InstanceView]:
    """Return the instances that sparkctl started first, each group sorted by name."""
    return sorted(instances, key=lambda i: (not i.ours, i.name))


def _format_hint(view: NodeStatusView, width: int | None) -> list[str]:
    return wrap_line(f"    try: {sanitize_line(view.hint)}", width) if view.hint else []


def describe_memory(memory: MemoryReading | None) -> str:
    """Return used of total, then available memory; page cache is shown, as in `top`, and never counted as used."""
    if memory is None:
        return "memory —"
    words = [
        f"{memory.used / GIB:.1f} of {format_gib(memory.total)} used",
        f"{memory.available / GIB:.1f} available",
        f"{memory.reclaimable / GIB:.1f} cache",
        f"{memory.free / GIB:.1f} free",
    ]
    if memory.swap_used >= GIB / 20:  # do not show 0.0
        words.append(f"swap {memory.swap_used / GIB:.1f}")
    return " · ".join(words)


def _list_instance_cells(instance: InstanceView) -> list[str]:
    name = truncate_text(sanitize_line(instance.name), _MAX_NAME_COLUMNS)
    if not instance.ours:
        mark = "·"
        return [
            f"{mark} {name}",
            "foreign",
            format_gib(instance.memory),
            sanitize_line(instance.image),
            sanitize_line(instance.status),
        ]
    phase = instance.phase or Phase.UNKNOWN
    state = format_phase_name(phase)
    if instance.is_kept:
        where = sanitize_line(_describe_worker_rank(instance) or instance.container)
        return [
            f"{get_state_symbol(phase)} {name}",
            state,
            format_gib(instance.memory),
            where,
            "kept for the way back",
        ]
    more = format_step(instance.step) or (sanitize_line(instance.detail) if instance.detail else "")
    return [
        f"{get_state_symbol(phase)} {name}",
        state,
        format_gib(instance.memory),
        sanitize_line(instance.endpoint or _describe_worker_rank(instance) or instance.image),
        f"{sanitize_line(instance.status)}" + (f"   {more}" if more else ""),
    ]


def _describe_worker_rank(instance: InstanceView) -> str | None:
    """Return the rank of a worker, None for anything else."""
    if instance.rank_position is None or instance.rank_position[0] == 0:
        return None
    index, count = instance.rank_position
    return f"rank {index} of {count}" + (f", head on {instance.nodes[0]}" if instance.nodes else "")


def _align_columns(rows: list[list[str]], width: int | None) -> list[list[str]]:
    """Return the rows in columns. If one row is too wide, the last two cells of all rows go to a second line."""
    lines = align_cells(rows, right=(_MEMORY_COLUMN_INDEX,))
    whole = [" " * _INDENT_COLUMNS + "   ".join(cells).rstrip() for cells in lines]
    if width is None or all(measure_text(line) <= width for line in whole):
        return [[line] for line in whole]
    return [
        [
            " " * _INDENT_COLUMNS + "   ".join(cells[:-2]).rstrip(),
            *wrap_line(" " * (_INDENT_COLUMNS + 2) + "   ".join(row[-2:]).rstrip(), width, _INDENT_COLUMNS + 2),
        ]
        for cells, row in zip(lines, rows, strict=True)
    ]
