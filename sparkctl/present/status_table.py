"""``status`` as text: one block a node, memory first, then what runs."""

from __future__ import annotations

from collections.abc import Sequence

from sparkctl.core.store import InstanceView, NodeView
from sparkctl.model.finding import Severity
from sparkctl.model.memory import Memory
from sparkctl.model.node import NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.sample import memory_bar
from sparkctl.model.text import clean, shorten
from sparkctl.model.units import GIB, gib
from sparkctl.present.fold import fold
from sparkctl.present.sentences import phase_word, step_words
from sparkctl.present.symbols import symbol, to_ascii

_MEMORY_COLUMN = 2
_INDENT = 4
_LONGEST_NAME = 64  # columns of a name, which all rows are given: no profile may be called longer


def status_lines(views: Sequence[NodeView], ascii_only: bool = False, width: int | None = None) -> list[str]:
    """Return the lines of the whole picture; where ``width`` (columns) is given, none that can be broken is longer."""
    lines: list[str] = []
    for view in views:
        if lines:
            lines.append("")
        lines += _node(view, ascii_only, width)
    return [to_ascii(line) for line in lines] if ascii_only else lines


def _node(view: NodeView, ascii_only: bool, width: int | None) -> list[str]:
    head = f"{symbol(view.state, ascii_only)} {view.name}"
    if view.state is not NodeState.OK:
        words = f"{head}   {view.state}" + (f": {clean(view.detail)}" if view.detail else "")
        if view.attempt is not None:
            words += f"   attempt {view.attempt}" + (f", next try in {view.next_try:.1f} s" if view.next_try else "")
        return fold(words, width, _INDENT) + _hint(view, width)
    lines = fold(f"{head}   {memory_words(view.memory)}", width, len(head) + 3)
    lines += _switch(view, ascii_only, width)
    if not view.docker_known:
        return lines + fold(f"    Docker: {clean(view.detail or 'no answer')}", width) + _hint(view, width)
    return lines + instance_lines(view.instances, ascii_only, width)


def _switch(view: NodeView, ascii_only: bool, width: int | None) -> list[str]:
    """Return what is said of a switch that goes on there, or was left."""
    if view.switch is None:
        return []
    from sparkctl.operations.switching.journal import underway

    told = underway(view.name, view.switch, is_held=view.switch.is_held)
    said = told.message.removeprefix(f"{view.name}: ")
    lines = fold(f"    {symbol(Severity.WARNING, ascii_only)} {clean(said)}", width, 6)
    return lines + [each for one in (told.hint or "").splitlines() for each in fold(f"    try: {clean(one)}", width)]


def instance_lines(instances: Sequence[InstanceView], ascii_only: bool, width: int | None = None) -> list[str]:
    """Return a row for each instance, ours first."""
    blocks = instance_blocks(instances, ascii_only, width)
    return [line for block in blocks for line in block] or ["    nothing runs"]


def instance_blocks(instances: Sequence[InstanceView], ascii_only: bool, width: int | None = None) -> list[list[str]]:
    """Return the row of each instance as one line or, where it is narrow, more; in the order of `in_order`."""
    return _aligned([_row(instance, ascii_only) for instance in in_order(instances)], width)


def in_order(instances: Sequence[InstanceView]) -> list[InstanceView]:
    """Return ours first, each group by name."""
    return sorted(instances, key=lambda i: (not i.ours, i.name))


def _hint(view: NodeView, width: int | None) -> list[str]:
    return fold(f"    try: {clean(view.hint)}", width) if view.hint else []


def memory_words(memory: Memory | None) -> str:
    """Return used of total, then what could be had; page cache, as `top` has it, is shown and never counted as used."""
    if memory is None:
        return "memory —"
    words = [
        f"{memory.used / GIB:.1f} of {gib(memory.total)} used",
        f"{memory.available / GIB:.1f} available",
        f"{memory_bar(memory, None).page_cache / GIB:.1f} cache",
        f"{memory.free / GIB:.1f} free",
    ]
    if memory.swap_used >= GIB / 20:  # what would be shown as 0.0 is not worth a word
        words.append(f"swap {memory.swap_used / GIB:.1f}")
    return " · ".join(words)


def _row(instance: InstanceView, ascii_only: bool) -> list[str]:
    name = shorten(clean(instance.name), _LONGEST_NAME)
    if not instance.ours:
        mark = "." if ascii_only else "·"
        return [f"{mark} {name}", "foreign", gib(instance.memory), clean(instance.image), clean(instance.status)]
    phase = instance.phase or Phase.UNKNOWN
    state = phase_word(phase)
    if instance.is_kept:
        where = clean(_rank(instance) or instance.container)
        return [f"{symbol(phase, ascii_only)} {name}", state, gib(instance.memory), where, "kept for the way back"]
    more = step_words(instance.step, ascii_only) or (clean(instance.detail) if instance.detail else "")
    return [
        f"{symbol(phase, ascii_only)} {name}",
        state,
        gib(instance.memory),
        clean(instance.endpoint or _rank(instance) or instance.image),
        f"{clean(instance.status)}" + (f"   {more}" if more else ""),
    ]


def _rank(instance: InstanceView) -> str | None:
    """Return which rank of its model a worker is, None of anything else."""
    if instance.place is None or instance.place[0] == 0:
        return None
    index, count = instance.place
    return f"rank {index} of {count}" + (f", head on {instance.nodes[0]}" if instance.nodes else "")


def _aligned(rows: list[list[str]], width: int | None) -> list[list[str]]:
    """Return the rows in columns; the last two cells of all go to a second line where one row is too wide for one."""
    if not rows:
        return []
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(wide) if column == _MEMORY_COLUMN else cell.ljust(wide)
            for column, (cell, wide) in enumerate(zip(row, widths, strict=False))
        ]
        lines.append([*cells, row[-1]])
    whole = [" " * _INDENT + "   ".join(cells).rstrip() for cells in lines]
    if width is None or all(len(line) <= width for line in whole):
        return [[line] for line in whole]
    return [
        [
            " " * _INDENT + "   ".join(cells[:-2]).rstrip(),
            *fold(" " * (_INDENT + 2) + "   ".join(row[-2:]).rstrip(), width, _INDENT + 2),
        ]
        for cells, row in zip(lines, rows, strict=True)
    ]
