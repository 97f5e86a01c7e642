"""``models`` as text: what lies on each node, how large, when last used, who needs it."""

from __future__ import annotations

from collections.abc import Sequence

from sparkctl.model.json_codec import to_json_data
from sparkctl.model.stored_model import NodeModels, StoredModel
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import format_ago, format_size
from sparkctl.views.text.line_wrap import align_cells, wrap_line


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
            f"{view.node}   {len(view.models)} models, {format_size(whole)}"
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
