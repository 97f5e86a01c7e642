"""``status`` as text: a table with a row for each node and each instance, and wide: a block for each node with all details."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from types import MappingProxyType

from sparkctl.model.finding import Finding, Severity
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.sample import MemoryReading
from sparkctl.model.text.sanitize import sanitize_line, truncate_text
from sparkctl.model.text.units import GIB, format_gib
from sparkctl.monitor.node_views import NodeStatusView
from sparkctl.monitor.ranks import place_needs
from sparkctl.views.event_text import format_phase_name, format_step
from sparkctl.views.meter_view import format_reference_rate
from sparkctl.views.text.line_wrap import align_cells, wrap_line
from sparkctl.views.text.styled_text import (
    Span,
    TextRow,
    TextStyle,
    get_state_style,
    get_state_symbol,
    join_text,
    measure_text,
    paint_line,
    truncate_row,
)

_MEMORY_COLUMN_INDEX = 2
_INDENT_COLUMNS = 4
_MAX_NAME_COLUMNS = 64  # width of the name column; the longest name that a profile may have


def format_status(
    views: Sequence[NodeStatusView],
    width: int | None = None,
    found: Mapping[NodeName, Sequence[Finding]] = MappingProxyType({}),
) -> list[str]:
    """Return the lines of the wide ``status``, wrapped to ``width`` columns if given: also the memory in full, what each
    instance was made from, and how fast it generates.

    ``found``: what one look at each node found; it is counted.
    """
    lines: list[str] = []
    for view in views:
        if lines:
            lines.append("")
        lines += [*_format_node_status(view, width), *_count_findings(view.name, found.get(view.name, ()), width)]
    return lines


def _count_findings(node: NodeName, found: Sequence[Finding], width: int | None) -> list[str]:
    """Return how many problems and warnings a node has, and the command that names them: ``✕ 1 problem, ▲ 3 warnings: ...``."""
    counts = [
        f"{get_state_symbol(severity)} {count} {word}{'' if count == 1 else 's'}"
        for severity, word in ((Severity.PROBLEM, "problem"), (Severity.WARNING, "warning"))
        if (count := sum(one.severity is severity for one in found))
    ]
    return wrap_line(f"    {', '.join(counts)}: sparkctl doctor --node {node}", width, 6) if counts else []


_COLUMNS = ("NODE", "MODEL", "STATE", "MEMORY", "TOK/S", "URL", "AGE")
_RIGHT_COLUMNS = ("MEMORY", "TOK/S")
_GAP = "  "
_MOST_SHORTENED = 2
_MIN_COLUMNS = {
    "MODEL": 14,
    "NODE": 8,
    "STATE": 8,
}  # how far a column may be cut where the terminal is narrow, the first first
_AGE_UNITS = {"second": "s", "minute": "min", "hour": "h", "day": "d", "week": "wk", "month": "mo", "year": "y"}
_AGE_PATTERN = re.compile(r"(?<!\d)(an?|\d{1,4}) (" + "|".join(_AGE_UNITS) + r")s?\b", re.IGNORECASE)


def format_status_table(
    views: Sequence[NodeStatusView],
    width: int | None,
    found_on: Mapping[NodeName, Sequence[Finding]] = MappingProxyType({}),
) -> list[TextRow]:
    """Return the table of ``status``; no row of it is wider than ``width``: addresses are shortened first, then names. Where it
    does not fit at all, the wide form is returned, which wraps.

    ``found_on``: what one look at each node found; it is counted.
    """
    head = tuple(Span(name, TextStyle.LABEL) for name in _COLUMNS)
    for shortened in range(_MOST_SHORTENED + 1):
        cells = [_list_row_cells(view, shortened) for view in views]
        aligned = _align_spans([head, *chain.from_iterable(cells)], width, cuts_names=shortened == _MOST_SHORTENED)
        if aligned is not None:
            break
    else:
        return [paint_line(line) for line in format_status(views, width, found_on)]
    lines = iter(aligned)
    found = [next(lines)]
    for view, rows in zip(views, cells, strict=True):
        found += [next(lines) for _ in rows]
        remarks = [*_format_remarks(view, width), *_count_findings(view.name, found_on.get(view.name, ()), width)]
        found += [paint_line(line) for line in remarks]
    return found


def _list_row_cells(view: NodeStatusView, shortened: int) -> list[tuple[Span, ...]]:
    """Return the row of a node and those of its instances. ``shortened``: 1: addresses as host:port, 2: as :port."""
    empty, memory = Span(""), view.memory
    used = "" if view.state is not NodeState.OK else format_gib(None if memory is None else memory.used)
    room = "" if memory is None else f"{memory.available / GIB:.1f} of {format_gib(memory.total)} available"
    room = room and (room, room.split(" ")[0] + " available", room.split(" ")[0] + " left")[shortened]
    state = empty if view.state is NodeState.OK else Span(str(view.state), get_state_style(view.state))
    name = Span(f"{get_state_symbol(view.state)} {view.name}", get_state_style(view.state))
    rows: list[tuple[Span, ...]] = [(name, empty, state, Span(used), empty, Span(room, TextStyle.LABEL), empty)]
    node = Span(f"  {view.name}", TextStyle.LABEL)
    if view.state is NodeState.OK and view.docker_known and not view.instances:
        rows.append((node, Span("nothing runs", TextStyle.LABEL), *[empty] * 5))
    return [*rows, *((node, *_list_instance_spans(one, shortened)) for one in sort_by_owner(view.instances))]


def _name_instance(one: InstanceView) -> str:
    return truncate_text(sanitize_line(one.shown_name), _MAX_NAME_COLUMNS)


def _describe_instance(one: InstanceView) -> tuple[str, str, TextStyle]:
    """Return an instance's name with its symbol, its state, and the style of both."""
    phase, is_known = one.phase or Phase.UNKNOWN, one.ours or one.phase is Phase.PULLING
    symbol, style = (get_state_symbol(phase), get_state_style(phase)) if is_known else ("·", TextStyle.LABEL)
    state = "kept" if one.is_kept else format_phase_name(phase) if is_known else "foreign"
    return f"{symbol} {_name_instance(one)} {describe_dependents(one)}".rstrip(), state, style


def _list_instance_spans(one: InstanceView, shortened: int) -> tuple[Span, ...]:
    name, state, style = _describe_instance(one)
    if one.step is not None and one.step.done is not None and one.step.total is not None and not one.is_kept:
        state += f" {one.step.done}/{one.step.total}"
    rate = None if one.numbers is None else one.numbers.generation_rate
    return (
        Span(name, style),
        Span(state, style),
        Span(format_gib(one.memory)),
        Span(f"{rate:.1f}" if rate is not None else "—" if one.phase is Phase.READY and one.endpoint else ""),
        Span(
            sanitize_line(
                _shorten_address(one.endpoint, shortened) or _describe_worker_rank(one, short=shortened > 0) or ""
            )
        ),
        Span(format_age(one.status), TextStyle.LABEL),
    )


def _shorten_address(url: str | None, shortened: int) -> str | None:
    """Return a URL, its host and port, or its port alone."""
    if url is None or not shortened:
        return url
    host = url.partition("://")[2] or url
    return host if shortened == 1 else ":" + host.rpartition(":")[2]


def format_age(status: str) -> str:
    """Return the age in Docker's words of a container's state: ``5 h`` for "Up 5 hours"."""
    found = _AGE_PATTERN.search(status)
    if found is None:
        return ""
    count = "1" if found[1].lower() in ("a", "an") else found[1]
    return f"{'< ' if 'less than' in status.lower() else ''}{count} {_AGE_UNITS[found[2].lower()]}"


def _align_spans(rows: Sequence[Sequence[Span]], width: int | None, *, cuts_names: bool) -> list[TextRow] | None:
    """Return the rows in columns of equal width, with ``cuts_names`` less than they need; None where they do not fit."""
    widths = [max(measure_text(row[at].text) for row in rows) for at in range(len(_COLUMNS))]
    excess = 0 if width is None else sum(widths) + len(_GAP) * (len(_COLUMNS) - 1) - width
    for name, least in _MIN_COLUMNS.items() if cuts_names else ():
        at = _COLUMNS.index(name)
        cut = min(max(0, excess), max(0, widths[at] - least))
        widths[at], excess = widths[at] - cut, excess - cut
    if excess > 0:
        return None
    lines = []
    for row in rows:
        spans: list[Span] = []
        for span, name, wide in zip(row, _COLUMNS, widths, strict=True):
            text = join_text(truncate_row((span,), wide))
            blanks = " " * (wide - measure_text(text))
            spans += [Span(blanks + text if name in _RIGHT_COLUMNS else text + blanks, span.tone), Span(_GAP)]
        lines.append(truncate_row(_strip_row(spans), width) if width else _strip_row(spans))
    return lines


def _strip_row(spans: list[Span]) -> TextRow:
    """Return a row without blanks at its end."""
    while spans and not spans[-1].text.strip():
        spans.pop()
    return (*spans[:-1], Span(spans[-1].text.rstrip(), spans[-1].tone)) if spans else ()


def _format_remarks(view: NodeStatusView, width: int | None) -> list[str]:
    """Return what a node's row cannot hold: why it does not answer, an unfinished switch, why an instance is not ready."""
    if (lines := _format_node_trouble(view, width)) is not None:
        return lines
    details = [
        (_name_instance(one), one.detail)
        for one in sort_by_owner(view.instances)
        if (one.ours or one.phase is Phase.PULLING)
        and one.detail
        and not one.is_kept
        and one.phase not in (Phase.STARTING, Phase.LOADING)  # it does not listen yet
    ]
    lines = [line for name, detail in details for line in wrap_line(f"    {name}: {sanitize_line(detail)}", width)]
    return _format_switch_notice(view, width) + lines + _format_ways_to_cause(view, width)


def _format_node_trouble(view: NodeStatusView, width: int | None) -> list[str] | None:
    """Return why nothing is known of what runs on a node, and what to do; None if it is known."""
    if view.state is NodeState.OK and view.docker_known:
        return None
    why = sanitize_line(view.detail or ("" if view.docker_known else "Docker does not answer"))
    if view.attempt is not None:
        why += f"; attempt {view.attempt}" + (f", next try in {view.next_try:.1f} s" if view.next_try else "")
    lines = wrap_line(f"    {why}", width, _INDENT_COLUMNS) if why else []
    lines += _format_switch_notice(view, width)
    return lines + (wrap_line(f"    try: {sanitize_line(view.hint)}", width) if view.hint else [])


def _format_ways_to_cause(view: NodeStatusView, width: int | None) -> list[str]:
    """Return the command that tells why, for each instance of sparkctl that failed; another may run elsewhere by its name."""
    failed = [one.name for one in sort_by_owner(view.instances) if one.ours and one.phase is Phase.FAILED]
    return [
        line
        for name in dict.fromkeys(failed)
        for line in wrap_line(
            f"    try: sparkctl diagnose {sanitize_line(name)} --node {sanitize_line(view.name)}", width
        )
    ]


def _format_node_status(view: NodeStatusView, width: int | None) -> list[str]:
    head = f"{get_state_symbol(view.state)} {view.name}"
    words = describe_memory(view.memory) if view.state is NodeState.OK else str(view.state)
    lines = wrap_line(f"{head}   {words}", width, len(head) + 3)
    if (trouble := _format_node_trouble(view, width)) is not None:
        return lines + trouble
    lines += _format_switch_notice(view, width)
    if not view.instances:
        return [*lines, "    nothing runs"]
    blocks = format_instance_blocks(view.instances, width)
    for block, one in zip(blocks, sort_by_owner(view.instances), strict=True):
        lines += [*block, *wrap_line(f"      {_describe_origin(one)}", width, 6)]
    return lines + _format_ways_to_cause(view, width)


def _describe_origin(one: InstanceView) -> str:
    """Return what an instance was made from and by whom, and how fast it generates."""
    rate = None if one.numbers is None else one.numbers.generation_rate
    named = (("profile", one.profile), ("engine", one.engine), ("started by", one.operator))
    words = [f"image {sanitize_line(one.image)}"] if one.image else []
    words += [f"{label} {truncate_text(sanitize_line(text), _MAX_NAME_COLUMNS)}" for label, text in named if text]
    if rate is not None:
        words.append(f"{rate:.1f} tok/s")
        words += [] if one.reference_rate is None else [format_reference_rate(one.reference_rate)]
    return " · ".join(words)


def _format_switch_notice(view: NodeStatusView, width: int | None) -> list[str]:
    """Return the lines about a switch that is in progress or was interrupted on the node."""
    if view.switch is None:
        return []
    from sparkctl.monitor.switch_journal_io import build_switch_refusal

    refusal = build_switch_refusal(view.name, view.switch, is_held=view.switch.is_held)
    message = refusal.message.removeprefix(f"{view.name}: ")
    lines = wrap_line(f"    {get_state_symbol(Severity.WARNING)} {sanitize_line(message)}", width, 6)
    return lines + [
        each for one in (refusal.hint or "").splitlines() for each in wrap_line(f"    try: {sanitize_line(one)}", width)
    ]


def format_instance_blocks(instances: Sequence[InstanceView], width: int | None) -> list[list[str]]:
    """Return each instance as one line, or as several if it is narrow; in the order of `sort_by_owner`."""
    return _align_columns([_list_instance_cells(instance) for instance in sort_by_owner(instances)], width)


def sort_by_owner(instances: Sequence[InstanceView]) -> list[InstanceView]:
    """Return the instances that sparkctl started first, each group sorted by name; what another needs is below it."""
    return place_needs(sorted(instances, key=lambda i: (not i.ours, i.name)))


def describe_dependents(one: InstanceView) -> str:
    """Return ``for orpheus-tts``, what cannot work without it; "" if nothing needs it."""
    return f"for {sanitize_line(', '.join(one.needed_by))}" if one.needed_by else ""


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


def _list_instance_cells(one: InstanceView) -> list[str]:
    name, state, _ = _describe_instance(one)
    where, more = one.endpoint or _describe_worker_rank(one) or one.image, format_step(one.step)
    if one.is_kept:
        where, more = _describe_worker_rank(one) or one.container, "for the way back"
    elif one.is_download:
        where = one.detail or ""
    elif one.ours:
        more = more or sanitize_line(one.detail or "")
    more = f"{sanitize_line(one.status)}   {more}".strip()
    return [name, state, format_gib(one.memory), sanitize_line(where), more]


def _describe_worker_rank(instance: InstanceView, *, short: bool = False) -> str | None:
    """Return the rank of a worker, None for anything else."""
    if instance.rank_position is None or instance.rank_position[0] == 0:
        return None
    index, count = instance.rank_position
    return f"rank {index} of {count}" + (f", head on {instance.nodes[0]}" if instance.nodes and not short else "")


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
