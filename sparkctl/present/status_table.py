"""``status`` as text: one block a node, memory first, then what runs."""

from __future__ import annotations

from collections.abc import Sequence

from sparkctl.core.store import InstanceView, NodeView
from sparkctl.model.memory import Memory
from sparkctl.model.node import NodeState
from sparkctl.model.text import clean
from sparkctl.model.units import GIB, gib
from sparkctl.present.sentences import phase_word, step_words
from sparkctl.present.symbols import symbol

_MEMORY_COLUMN = 2


def status_lines(views: Sequence[NodeView], ascii_only: bool = False) -> list[str]:
    """Return the lines of the whole picture."""
    lines: list[str] = []
    for view in views:
        if lines:
            lines.append("")
        lines += _node(view, ascii_only)
    return lines


def _node(view: NodeView, ascii_only: bool) -> list[str]:
    head = f"{symbol(view.state, ascii_only)} {view.name}"
    if view.state is not NodeState.OK:
        words = f"{head}   {view.state}" + (f": {clean(view.detail)}" if view.detail else "")
        if view.attempt is not None:
            words += f"   attempt {view.attempt}" + (f", next try in {view.next_try:.1f} s" if view.next_try else "")
        return [words] + ([f"    try: {clean(view.hint)}"] if view.hint else [])
    lines = [f"{head}   {memory_words(view.memory)}"]
    if not view.docker_known:
        lines.append(f"    Docker: {clean(view.detail or 'no answer')}")
        return lines + ([f"    try: {clean(view.hint)}"] if view.hint else [])
    return lines + instance_lines(view.instances, ascii_only)


def instance_lines(instances: Sequence[InstanceView], ascii_only: bool) -> list[str]:
    """Return a row for each instance, ours first."""
    rows = [_row(instance, ascii_only) for instance in sorted(instances, key=lambda i: (not i.ours, i.name))]
    return _aligned(rows) if rows else ["    nothing runs"]


def memory_words(memory: Memory | None) -> str:
    """Return used of total, then what could be had; page cache is shown and never counted as used."""
    if memory is None:
        return "memory —"
    words = (
        f"memory {memory.used / GIB:.1f} of {gib(memory.total)} used   available {gib(memory.available)}   "
        f"page cache {gib(memory.page_cache)}   free {gib(memory.free)}"
    )
    return words + (f"   swap {gib(memory.swap_used)}" if memory.swap_total else "   no swap")


def _row(instance: InstanceView, ascii_only: bool) -> list[str]:
    name = clean(instance.name)
    if not instance.ours:
        mark = "." if ascii_only else "·"
        return [f"{mark} {name}", "foreign", gib(instance.memory), clean(instance.image), clean(instance.status)]
    assert instance.phase is not None
    state = phase_word(instance.phase)
    more = step_words(instance.step, ascii_only) or (clean(instance.detail) if instance.detail else "")
    return [
        f"{symbol(instance.phase, ascii_only)} {name}",
        state,
        gib(instance.memory),
        instance.endpoint or clean(instance.image),
        f"{clean(instance.status)}" + (f"   {more}" if more else ""),
    ]


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if column == _MEMORY_COLUMN else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=False))
        ]
        lines.append("    " + "   ".join([*cells, row[-1]]).rstrip())
    return lines
