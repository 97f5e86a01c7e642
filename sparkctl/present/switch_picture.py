"""A Spark before a switch and after it: who stops, who stays, who comes, and its memory in the same four textures. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparkctl.model.node import NodeName
from sparkctl.model.sample import MemoryBar
from sparkctl.model.switch import Conflict, NodeChange, SwitchPlan, Tenant
from sparkctl.model.units import GIB, gib
from sparkctl.present.bars import legend, memory_line
from sparkctl.present.frame import framed
from sparkctl.present.spans import Row, Span, Tone, cut, ends, row, said, width
from sparkctl.present.switch_memory import after, before
from sparkctl.present.switch_words import why_words
from sparkctl.present.wrap import wrapped

WIDE = 110  # columns from which on before and after stand beside each other
_LABEL = 7
_BESIDE = 27  # columns of what stands beside a bar: ≈ 102.8 of 121.7 GiB est.
_WIDEST_BAR = 44


def pictures(
    plan: SwitchPlan, bars: Mapping[NodeName, MemoryBar], columns: int, ascii_only: bool = False, *, has_begun: bool = False
) -> list[Row]:  # fmt: skip
    """Return every Spark of a plan before and after; ``bars`` is their memory as it was last seen, where it was. What was
    before is now as long as nothing ``has_begun``."""
    make = _beside if columns >= WIDE else _below
    was = "before" if has_begun else "now"
    return [each for change in plan.changes for each in make(change, bars, columns, ascii_only, was)]


def _beside(
    change: NodeChange, bars: Mapping[NodeName, MemoryBar], columns: int, ascii_only: bool, was: str
) -> list[Row]:
    arrow = " > " if ascii_only else " → "
    left, right = (columns - len(arrow)) // 2, columns - len(arrow) - (columns - len(arrow)) // 2
    sides = [_now(change, bars, left - 4, ascii_only), _then(change, bars, right - 4, ascii_only)]
    lines = max(map(len, sides)) + 2
    titles = (
        row(said(change.node, Tone.TITLE), Span(f" {was}", Tone.LABEL)),
        row(said(change.node, Tone.TITLE), Span(" afterwards", Tone.LABEL)),
    )
    now, then = (
        framed(title, side, wide, lines, chosen=False, ascii_only=ascii_only)
        for title, side, wide in zip(titles, sides, (left, right), strict=True)
    )
    gaps = [Span(arrow if at == lines // 2 else " " * len(arrow), Tone.ACCENT) for at in range(lines)]
    return [(*one, gap, *other) for one, gap, other in zip(now, gaps, then, strict=True)]


def _below(
    change: NodeChange, bars: Mapping[NodeName, MemoryBar], columns: int, ascii_only: bool, was: str
) -> list[Row]:
    now, then = (make(change, bars, columns - 4, ascii_only, name) for make, name in ((_now, was), (_then, "then")))
    body = [*now, *then]
    title = row(said(change.node, Tone.TITLE), Span(f" {was}, and afterwards", Tone.LABEL))
    return list(framed(title, body, columns, len(body) + 2, chosen=False, ascii_only=ascii_only))


def _now(
    change: NodeChange, bars: Mapping[NodeName, MemoryBar], columns: int, ascii_only: bool, name: str = "memory"
) -> list[Row]:
    rows = _memory(name, before(change, bars), columns, ascii_only)
    if not change.tenants:
        rows.append(row(" " * _LABEL, Span("nothing runs here", Tone.STALE)))
    for one in change.tenants:
        rows.append(_tenant(one, columns, "stops" if one.goes else "stays"))
        if one.goes:
            why = row(Span(" " * (_LABEL + 2) + why_words(one.conflicts), Tone.LABEL))
            rows += wrapped([why], columns)
    return rows


def _then(
    change: NodeChange, bars: Mapping[NodeName, MemoryBar], columns: int, ascii_only: bool, name: str = "memory"
) -> list[Row]:
    rows = _memory(name, after(change, bars), columns, ascii_only, is_expected=True)
    rows += [_tenant(one, columns, "stays") for one in change.stays]
    if change.starts is not None:
        need = None if change.fit is None else change.fit.need
        size = "" if need is None else f"{'~' if ascii_only else '≈'} {gib(need)} est.  "
        left = row(" " * _LABEL, Span("+ ", Tone.GOOD), said(change.starts, Tone.TITLE))
        rows.append(ends(left, row(Span(size, Tone.UNIT), Span("starts", Tone.GOOD)), columns))
    elif change.is_free_after:
        rows.append(row(" " * _LABEL, Span(f"{'o' if ascii_only else '○'} nothing: it is free", Tone.GOOD)))
    return rows


def _tenant(one: Tenant, columns: int, does: str) -> Row:
    goes = does == "stops"
    rank = f"  rank {one.rank.replace('/', ' of ')}" if one.rank else ""
    whose = "" if one.ours else "  not sparkctl's"
    port = f"  :{one.port}" if one.port is not None and Conflict.PORT in one.conflicts else ""
    left = row(
        " " * _LABEL, Span("- " if goes else "= ", Tone.ATTENTION if goes else Tone.LABEL),
        said(one.instance, Tone.TITLE), said(f"{port}{rank}{whose}", Tone.LABEL),
    )  # fmt: skip
    held = "" if one.held is None else f"{gib(one.held)}  "
    return ends(left, row(Span(held, Tone.UNIT), Span(does, Tone.ATTENTION if goes else Tone.LABEL)), columns)


# --- memory -----------------------------------------------------------------------------------------------------------


def _memory(name: str, bar: MemoryBar | None, columns: int, ascii_only: bool, is_expected: bool = False) -> list[Row]:
    if bar is None:
        return [row(Span(f"{name:<{_LABEL}}", Tone.LABEL), Span("not known", Tone.STALE))]
    wide = max(4, min(_WIDEST_BAR, columns - _LABEL - _BESIDE))
    first = memory_line(f"{name:<{_LABEL}}", bar, wide, ascii_only, is_expected=is_expected)
    return [first, _shares(bar, columns, ascii_only)]


def _shares(bar: MemoryBar, columns: int, ascii_only: bool) -> Row:
    """Return the four parts in figures, each with its texture; with fewer words where it is narrow."""
    marks = legend(ascii_only)
    parts: Sequence[tuple[Tone, str, int | None]] = (
        (Tone.GPU, "GPU", bar.gpu_processes), (Tone.OTHER, "other", bar.other_used), (Tone.CACHE, "cache", bar.page_cache),
        (Tone.FREE, "free", bar.free),
    )  # fmt: skip
    made: Row = ()
    for decimals, gap in ((1, "  "), (0, "  "), (0, " ")):
        spans: list[Span] = [Span(" " * _LABEL)]
        for at, (tone, name, amount) in enumerate(parts):
            figure = "—" if amount is None else f"{amount / GIB:.{decimals}f}"
            spans += [
                Span((gap if at else "") + marks[tone], tone),
                Span(f" {name} ", Tone.LABEL),
                Span(figure, Tone.VALUE),
            ]
        made = tuple(spans)
        if width(made) <= columns:
            break
    return cut(made, columns)
