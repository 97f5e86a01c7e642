"""`images` as text: a table for each node."""

from __future__ import annotations

from collections.abc import Sequence

from sparkctl.commands.images import ImageUse, NodeImages
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import format_ago, format_size
from sparkctl.views.text.line_wrap import align_cells, wrap_line

_HEADINGS = ("image", "size", "created", "last used", "used by")


def format_images(nodes: Sequence[NodeImages], now: float, width: int | None = None) -> list[str]:
    """Return the lines of ``images``, wrapped to ``width`` columns if given. ``now``: unix seconds, for the ages."""
    lines: list[str] = []
    for node in nodes:
        lines += ([""] if lines else []) + _format_node(node, now)
    return [part for line in lines for part in wrap_line(line, width, 4)]


def _format_node(node: NodeImages, now: float) -> list[str]:
    if node.images is None:
        hint = [f"    try: {sanitize_line(node.hint)}"] if node.hint else []
        return [f"{node.name}   {sanitize_line(node.detail or 'not known')}", *hint]
    if not node.images:
        return [f"{node.name}   no image"]
    rows = [_HEADINGS, *(_list_cells(one, now) for one in node.images)]
    return [node.name, *("  " + "  ".join(cells) for cells in align_cells(rows, right=(1,)))]


def _list_cells(one: ImageUse, now: float) -> tuple[str, ...]:
    name = " ".join(one.image.names) or one.image.id.removeprefix("sha256:")[:12]
    what = "" if one.image.names else " (old build)" if one.is_old_build else " (dangling)"
    groups = (("container", one.containers), ("profile", one.profiles))
    users = [f"{word}{'s' if len(names) > 1 else ''} {', '.join(names)}" for word, names in groups if names]
    return (
        sanitize_line(name) + what,
        "—" if one.image.size is None else format_size(one.image.size),
        format_ago(one.image.created, now),
        format_ago(one.last_used, now),
        sanitize_line("; ".join(users)) or "nothing",
    )
