"""``images`` and ``models`` as text: what lies on each node, how large, when last used, who needs it."""

from __future__ import annotations

from collections.abc import Sequence

from sparkctl.commands.images import ImageUse, NodeImages
from sparkctl.commands.stored_models import NodeModels, StoredModel
from sparkctl.model.json_codec import to_json_data
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


def format_models(views: Sequence[NodeModels], now: float, width: int | None = None) -> list[str]:
    """Return the lines of ``models``, wrapped to ``width`` columns if given. ``now``: unix seconds, for the ages."""
    lines: list[str] = []
    for view in views:
        lines += [""] if lines else []
        if view.trouble is not None:
            lines.append(f"{view.node}   not known: {sanitize_line(view.trouble)}")
            continue
        whole = sum(one.size for one in view.models)
        lines.append(
            f"{view.node}   {len(view.models)} model{'s' if len(view.models) > 1 else ''}, {format_size(whole)}"
            if view.models
            else f"{view.node}   no model"
        )
        cells = [_format_cells(one, now, several=len(views) > 1) for one in view.models]
        lines += ["  ".join(row).rstrip() for row in align_cells(cells, right=(0,))]
    return [part for line in lines for part in wrap_line(line, width, 4)]


def _format_cells(one: StoredModel, now: float, *, several: bool) -> list[str]:
    used = "last used ?" if one.used is None else f"used {format_ago(one.used, now)}"
    if one.is_link:
        state = "a link"
    elif one.is_whole is None:
        state = "not known whether it is complete: its files cannot be read"
    else:
        state = "complete" if one.is_whole else f"incomplete: {sanitize_line(one.faults[0])}"
    needed = ", ".join(one.profiles) or (
        "no profile uses it" if one.is_brought else "not downloaded by sparkctl, no profile uses it"
    )
    where = [f"also on {' and '.join(one.also_on)}" if one.also_on else "only here"] if several else []
    return [f"  {format_size(one.size)}", sanitize_line(one.place), used, state, *where, sanitize_line(needed)]


def build_models_json(views: Sequence[NodeModels]) -> dict[str, object]:
    """Return the document of ``models --json``; sizes in bytes, times in unix seconds."""
    return {"schema": 1, "nodes": to_json_data(views)}
