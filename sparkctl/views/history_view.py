"""The history as rows: the list of operations and the details of one, for the command line and the panel."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sparkctl.history.model import NodeResult, OperationKind, OperationRecord
from sparkctl.model.container import shorten_id
from sparkctl.model.json_codec import to_json_data
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.phase import PhaseDuration, Step
from sparkctl.model.text.sanitize import sanitize_line, sanitize_lines, truncate_text
from sparkctl.model.text.units import format_clock, format_date_time, format_duration, format_gib, format_size
from sparkctl.views.event_text import format_byte_rate, format_phase_name, format_step_name, format_verdict
from sparkctl.views.text.line_wrap import align_cells, wrap_rows
from sparkctl.views.text.styled_text import (
    ScrollPage,
    Span,
    TextRow,
    TextStyle,
    compute_visible_range,
    make_row,
    measure_row,
    measure_text,
    pad_row,
    pad_text,
    sanitize_span,
    truncate_row,
)

if TYPE_CHECKING:
    from sparkctl.history.start_diff import StartDiff, StartDifference
    from sparkctl.logs.search import FilterPattern
    from sparkctl.model.reference import Reference

_UNKNOWN_END = "not known how it ended"
_LATE_RATIO = 1.25  # of the usual time
_LABEL_COLUMNS = 12
_VERBS_BY_KIND: dict[str, tuple[str, ...]] = {OperationKind.SWITCH: ("resume", "abort"), OperationKind.STOP: ("free",)}
_SHORTEST_READ_SECONDS = 1.0  # below it says nothing of a disk


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRow:
    """One operation in the list, each field the sanitised text of a column; ``tone`` is the style of the outcome."""

    id: int
    when: str
    what: str
    profile: str
    nodes: str
    outcome: str
    took: str
    why: str
    tone: TextStyle


@dataclass(frozen=True, slots=True)
class DetailSection:
    """A titled section of an operation's details."""

    title: str
    rows: tuple[TextRow, ...]


def build_history_row(one: OperationRecord) -> HistoryRow:
    return HistoryRow(
        id=one.id,
        when=format_date_time(one.began),
        what=describe_verb(one),
        profile=describe_subject(one),
        nodes=sanitize_line(", ".join(one.nodes)),
        outcome=describe_outcome(one),
        took=describe_duration(one),
        why=describe_reason(one),
        tone=choose_outcome_style(one),
    )


def describe_verb(one: OperationRecord) -> str:
    """Return the verb of an operation, if it says more than the operation's kind."""
    verb = (one.command or "").removeprefix("sparkctl ").partition(" ")[0]
    return verb if verb in _VERBS_BY_KIND.get(one.kind, ()) else sanitize_line(one.kind)


def describe_subject(one: OperationRecord) -> str:
    """Return the object of an operation: a profile, an instance, or everything on its nodes."""
    if name := one.profile or one.instance:
        return sanitize_line(name)
    if one.kind is OperationKind.SWITCH:
        return "what was left"  # it was refused before the nodes were known
    freed = [word for word in (one.command or "").split()[2:] if not word.startswith("-")]
    return sanitize_line(f"everything on {' and '.join(freed)}") if freed else "everything"


def _get_repeat_command(one: OperationRecord) -> str | None:
    """Return the command that repeats an operation, None for resume and abort, which cannot be repeated."""
    return None if one.has_succeeded and describe_verb(one) in _VERBS_BY_KIND[OperationKind.SWITCH] else one.command


def describe_outcome(one: OperationRecord) -> str:
    """Return the outcome in one or two words."""
    if one.outcome is None:
        return "under way" if one.is_running else _UNKNOWN_END
    if one.kind is OperationKind.START and one.outcome == "done":  # a rollback started it again, and saw it serve
        return "ready"
    return sanitize_line(one.outcome).replace("-", " ")


def choose_outcome_style(one: OperationRecord) -> TextStyle:
    if one.is_running:
        return TextStyle.ACCENT
    if one.has_succeeded:
        return TextStyle.GOOD
    return TextStyle.BAD if one.outcome == "failed" else TextStyle.ATTENTION


def describe_duration(one: OperationRecord) -> str:
    """Return how long an operation took, with the usual time if known: ``6 min 55 s of about 6 min 40 s``."""
    seconds = next((share.seconds for share in one.shares if share.seconds is not None), one.seconds)
    if one.kind is OperationKind.PULL:  # of several things
        seconds = one.seconds
    if seconds is None:
        return ""
    usual = one.usual.seconds
    return format_duration(seconds) + (
        f" of about {format_duration(usual)}" if usual is not None and one.kind is OperationKind.START else ""
    )


def describe_reason(one: OperationRecord) -> str:
    """Return the reason of the outcome, in one line."""
    cause = next((share.cause for share in one.shares if share.cause is not None), None)
    is_left = one.kind is OperationKind.SWITCH and one.outcome == "interrupted"  # where, and what became of it
    if one.verdict is not None and not (is_left and one.why):
        return sanitize_line(" ".join(one.verdict.summary.split()))
    words = one.why or (cause.replace("-", " ") if cause and not one.has_succeeded else None) or ""
    return sanitize_line("; ".join(" ".join(line.split()).rstrip(".") for line in words.splitlines() if line.strip()))


def _shorten_reason(reason: str) -> str:
    """Return its first sentence, short enough for a column; `history show` has the whole."""
    first = _SENTENCE_END.split(reason, maxsplit=1)[0]
    return truncate_text(first if first == reason else f"{first} …", _MAX_REASON_CHARS)


def render_history(found: Sequence[OperationRecord], columns: int | None, *, has_others: bool) -> list[TextRow]:
    """Return the list as a table, each outcome in its style. On a narrow terminal each reason has a row of its own, and
    the year and the usual time are left out. ``has_others``: the history has more entries than were selected."""
    if not found:
        nothing = "nothing was done from this machine yet; starts, stops, switches, downloads and benchmarks will be listed here"
        return [make_row("no entry matches; to see all: sparkctl history" if has_others else nothing)]
    made = [replace(row, why=_shorten_reason(row.why)) for row in map(build_history_row, found)]
    cells = [(str(r.id), r.when, r.what, r.profile, r.nodes, r.outcome, r.took, r.why) for r in made]
    rows = _align_rows(_TABLE_HEAD, cells, made)
    if columns is None or _is_within(rows, columns):
        return rows
    rows = _align_rows(_TABLE_HEAD[:-1], [one[:-1] for one in cells], made)
    if not _is_within(rows, columns):
        short = [(one[0], one[1][5:], *one[2:6], one[6].partition(" of about ")[0]) for one in cells]
        rows = _align_rows(_TABLE_HEAD[:-1], short, made)
    shown: list[TextRow] = []
    for row, why in zip(rows, ("", *(one.why for one in made)), strict=True):
        shown.append(truncate_row(row, columns, ""))
        shown += [truncate_row((Span(f"      {why}", TextStyle.LABEL),), columns)] if why else []
    return shown


_SENTENCE_END = re.compile(r"(?<=[\w)`'\"])\. (?=[A-Z0-9])|; ")
_MAX_REASON_CHARS = 100  # of the column *why*
_TABLE_HEAD = ("id", "when", "what", "profile", "nodes", "outcome", "took", "why")
_OUTCOME_CELL = 5


def _align_rows(head: Sequence[str], cells: Sequence[Sequence[str]], made: Sequence[HistoryRow]) -> list[TextRow]:
    """Return a table without blanks at the ends of its rows: the head dim, the outcomes in their styles."""
    first, *aligned = align_cells([head, *cells], right=(0,))
    rows: list[TextRow] = [(Span("  ".join(first).rstrip(), TextStyle.LABEL),)]
    for row, one in zip(aligned, made, strict=True):
        before = "".join(f"{cell}  " for cell in row[:_OUTCOME_CELL])
        after = "  ".join(row[_OUTCOME_CELL:]).rstrip().removeprefix(one.outcome)
        rows.append((Span(before), Span(one.outcome, one.tone), Span(after)))
    return rows


def _is_within(rows: Sequence[TextRow], columns: int) -> bool:
    return all(measure_row(row) <= columns for row in rows)


def build_operation_sections(
    one: OperationRecord,
    worked: OperationRecord | None,
    changes: StartDiff | None,
    parts: Sequence[OperationRecord] = (),
) -> tuple[DetailSection, ...]:
    """Return all details of an operation. ``worked``: the last good start before; ``changes``: since then; ``parts``: of a switch."""
    sections = [
        DetailSection(f"{one.id}: {describe_verb(one)} of {describe_subject(one)}", tuple(_render_head(one))),
        DetailSection("how it ended" if one.has_succeeded else "why", tuple(_render_reason(one))),
        *(
            DetailSection(_make_section_title(one, "phases", share), tuple(_render_phases(one, share)))
            for share in one.shares
        ),
        DetailSection("steps", tuple(_render_steps(one))),
        DetailSection("made of", tuple(_render_switch_parts(parts))),
        DetailSection("memory", tuple(_render_memory(one))),
        DetailSection("seen", tuple(_render_speed(one))),
        *(
            DetailSection(_make_section_title(one, "node", share), tuple(_render_node_facts(share)))
            for share in one.shares
        ),
        DetailSection("files", tuple(_render_files(one))),
    ]
    if one.kind is OperationKind.START:
        sections.append(DetailSection("changed since it last worked", tuple(_render_start_diff(worked, changes))))
    return tuple(each for each in sections if each.rows)


def render_sections(sections: Sequence[DetailSection]) -> Iterator[TextRow]:
    """Yield the rows of the sections, each below its title."""
    for number, section in enumerate(sections):
        if number:
            yield ()
        yield (Span(section.title, TextStyle.STRONG),)
        yield from ((Span("  "), *each) for each in section.rows)


def _make_section_title(one: OperationRecord, title: str, share: NodeResult) -> str:
    return title if len(one.shares) == 1 else f"{title}, {_describe_share(one, share)}"


def _describe_share(one: OperationRecord, share: NodeResult) -> str:
    """Return the node of a part, and its instance if a node may have several."""
    return sanitize_line(share.node if one.kind is OperationKind.START else f"{share.instance} on {share.node}")


def _render_label_value(name: str, value: str, tone: TextStyle = TextStyle.VALUE) -> TextRow:
    return make_row(
        Span(f"{name:{_LABEL_COLUMNS}}" if len(name) < _LABEL_COLUMNS else f"{name}  ", TextStyle.LABEL),
        sanitize_span(value, tone),
    )


def _render_head(one: OperationRecord) -> Iterator[TextRow]:
    yield _render_label_value("outcome", describe_outcome(one), choose_outcome_style(one))
    yield _render_label_value(
        "began", format_date_time(one.began, has_seconds=True) + (f" by {one.operator}" if one.operator else "")
    )
    if one.ended is not None:
        yield _render_label_value(
            "ended",
            format_date_time(one.ended, has_seconds=True)
            + (f", exit code {one.exit_code}" if one.exit_code is not None else ""),
        )
    if took := describe_duration(one):
        yield _render_label_value("took", took)
    yield from (_render_label_value("source", text) for text in _list_source_times(one))
    yield _render_label_value("on", ", ".join(one.nodes))
    for name, value in (
        ("engine", one.engine),
        ("image", one.image),
        ("hash", one.hash),
        ("again", _get_repeat_command(one)),
    ):
        if value is not None:
            yield _render_label_value(name, value)
    if one.parent is not None:
        yield _render_label_value("part of", f"the switch {one.parent}: sparkctl history show {one.parent}")


def _list_source_times(one: OperationRecord) -> Iterator[str]:
    """Yield how long a start took where others measured it with these settings: ``ready after 1 min 30 s (warm) · ...``."""
    from sparkctl.history.start_diff import load_recorded_reference
    from sparkctl.model.reference import name_source

    if one.kind is not OperationKind.START or not one.has_succeeded:
        return
    for reference in load_recorded_reference(one.text):
        times = ((reference.ready_cold, "cold"), (reference.ready_warm, "warm"))
        words = [f"{format_duration(seconds)} ({state})" for seconds, state in times if seconds is not None]
        if words and reference.differs is None:
            yield f"ready after {', '.join(words)} · {name_source(reference.source)}"


def _render_reason(one: OperationRecord) -> Iterator[TextRow]:
    if one.verdict is not None:
        yield from (make_row(sanitize_span(line)) for line in format_verdict(one.verdict))
        if one.kind is not OperationKind.SWITCH:
            return  # a switch also has the result of the previous models
    if one.why:
        yield from (make_row(sanitize_span(line)) for line in sanitize_lines(one.why) if line.strip())
    elif words := describe_reason(one):
        yield make_row(sanitize_span(words))
    if one.hint and not one.has_succeeded:
        yield from (make_row(sanitize_span(line, TextStyle.LABEL)) for line in sanitize_lines(one.hint))


def _render_phases(one: OperationRecord, share: NodeResult) -> Iterator[TextRow]:
    """Yield each phase with its duration and, for the head, the usual one; repeated phases are matched in order."""
    left = list_expected_durations(one, share)
    read = _find_weights_read(one, share)
    for part in share.parts:
        usual = next((each for each in left if each.part_key == part.part_key), None)
        if usual is not None:
            left.remove(usual)
        expected = "" if usual is None else f"   usually {format_duration(usual.seconds)}"
        if read is not None and part is read[0]:
            expected += f"   {format_size(read[1])}/s"
        is_late = _is_late(part, usual)
        yield make_row(
            Span(f"{format_part_name(part):28}", TextStyle.LABEL),
            Span(f"{format_duration(part.seconds):>12}", TextStyle.ATTENTION if is_late else TextStyle.VALUE),
            Span(expected, TextStyle.LABEL),
        )


def _find_weights_read(one: OperationRecord, share: NodeResult) -> tuple[PhaseDuration, int] | None:
    """Return the part that read the weights, and its bytes per second; None for an unknown size, or several Sparks."""
    from sparkctl.history.start_diff import load_recorded_profile

    parts = [each for each in share.parts if each.step == "weights" and each.seconds >= _SHORTEST_READ_SECONDS]
    profile = load_recorded_profile(one.text) if parts and len(one.nodes) == 1 else None
    if profile is None or profile.model.weights is None:
        return None
    longest = max(parts, key=lambda each: each.seconds)
    return longest, int(profile.model.weights / longest.seconds)


def _is_late(part: PhaseDuration, usual: PhaseDuration | None) -> bool:
    return usual is not None and part.seconds > _LATE_RATIO * usual.seconds + 1.0


def list_expected_durations(one: OperationRecord, share: NodeResult) -> list[PhaseDuration]:
    """Return the expected durations of the phases; they are known only for the head."""
    return list(one.usual.parts) if share.node in one.nodes[:1] else []


def format_part_name(part: PhaseDuration) -> str:
    """Return the name of a part of a start: ``loading: weights``."""
    return format_phase_name(part.phase) + (f": {format_step_name(Step(part.step))}" if part.step else "")


def _render_steps(one: OperationRecord) -> Iterator[TextRow]:
    from sparkctl.model.switch_plan import SwitchStep  # imported late: the list needs none of it

    of_new, of_old = (SwitchStep.STARTING, SwitchStep.UNDOING), (SwitchStep.RESTORING, SwitchStep.RESTORED)
    for each in one.moments:
        after = "" if each.seconds is None else f"after {format_duration(each.seconds)}"
        is_said = each.step in of_new or (each.instance != one.instance and each.step not in of_old)
        whose = each.instance if is_said else ""
        words = " ".join(sanitize_line(f"{each.step} {whose}").split())
        yield make_row(
            Span(f"{words:28}", TextStyle.LABEL),
            Span(f"{after:>18}"),
            sanitize_span(f"   {each.proof}" if each.proof else ""),
        )


def _render_switch_parts(parts: Sequence[OperationRecord]) -> Iterator[TextRow]:
    for part in parts:
        each = build_history_row(part)
        yield make_row(
            Span(f"{each.id:>4}  {each.what} of {each.profile} on {each.nodes}: ", TextStyle.LABEL),
            Span(each.outcome, each.tone),
            Span(f"   {each.took}" if each.took else ""),
        )


def _render_memory(one: OperationRecord) -> Iterator[TextRow]:
    widest = max((measure_text(_describe_share(one, share)) for share in one.shares), default=0)
    for share in one.shares:
        known = (
            ("available before", share.available_before if one.kind is OperationKind.START else None),
            ("at its peak", share.peak),
            ("once ready", share.settled),
            ("estimated", share.estimated),
            ("came back", share.freed),
            ("available then", share.available_after),
            ("before it was started", None if one.kind is OperationKind.START else share.available_before),
            ("missing", share.missing or None),
        )
        words = [f"{name} {format_gib(value)}" for name, value in known if value is not None]
        if words:
            yield _render_label_value(pad_text(_describe_share(one, share), widest), ", ".join(words))


def _render_speed(one: OperationRecord) -> Iterator[TextRow]:
    """Yield the accept length of each part and what its first request took, beside what others measured with the settings of its start."""
    from sparkctl.history.start_diff import load_recorded_reference
    from sparkctl.model.reference import select_comparable

    reference = select_comparable(load_recorded_reference(one.text))
    length = None if reference is None else reference.accept_length
    name = "" if reference is None else reference.source_names
    for share in one.shares:
        if requests := _describe_requests(share, load_recorded_reference(one.text)):
            yield _render_label_value(_describe_share(one, share), requests)
        if share.accept_length is not None:
            note = "" if length is None else f" ({name}: {length.as_text()})"
            yield _render_label_value(_describe_share(one, share), f"accept length {share.accept_length:.2f}{note}")


def _describe_requests(share: NodeResult, references: Sequence[Reference]) -> str:
    """Return what the first request after a start took, beside the source's, and once more: ``first request: ...; again: ...``."""
    from sparkctl.model.reference import name_source, select_comparable

    alone = select_comparable(references)
    usual = None if alone is None else alone.rates_by_concurrency.get(1)
    cold = next((one for one in references if one.differs is None and one.generation_cold is not None), None)
    parts = []
    for label, ttft, rate in (
        ("first request", share.cold_ttft, share.cold_tokens_per_second),
        ("again", share.warm_ttft, share.warm_tokens_per_second),
    ):
        sentences = (
            []
            if ttft is None
            else [f"a token after {ttft:.2f} s" if ttft < 10 else f"a token after {format_duration(ttft)}"]
        )
        sentences += [] if rate is None else [f"{rate:.1f} tokens/s"]
        if sentences and label == "first request" and cold is not None and cold.generation_cold is not None:
            sentences[-1] += f" ({name_source(cold.source)}: {cold.generation_cold.as_text()} tokens/s)"
        if rate is not None and label == "again" and alone is not None and usual is not None:
            sentences[-1] += f" ({alone.source_names}: {usual.as_text()}, one request alone)"
        parts += [f"{label}: {', '.join(sentences)}"] if sentences else []
    return "; ".join(parts)


def _render_node_facts(share: NodeResult) -> Iterator[TextRow]:
    if share.received is not None:
        took = "" if share.seconds is None else f" in {format_duration(share.seconds)}"
        took += f", {format_byte_rate(share.received / share.seconds)}" if share.seconds else ""
        yield _render_label_value("came", f"{format_size(share.received)}{took}")
    known = (
        ("container", share.container and shorten_id(share.container)),
        ("digest", share.image_digest),
        ("driver", share.driver),
        ("kernel", share.kernel),
        ("version", share.engine_version),
    )
    yield from (_render_label_value(name, value) for name, value in known if value is not None)


def _render_files(one: OperationRecord) -> Iterator[TextRow]:
    for share in one.shares:
        if share.log is not None:
            yield _render_label_value("log", share.log)
        if share.receipt is not None:
            yield _render_label_value("guard", share.receipt)


def _render_start_diff(worked: OperationRecord | None, changes: StartDiff | None) -> Iterator[TextRow]:
    if worked is None or changes is None:
        yield make_row(Span("no earlier successful start is known", TextStyle.LABEL))
        return
    yield make_row(Span(f"since {worked.id}, {format_date_time(worked.began)}", TextStyle.LABEL))
    if not changes.found:
        yield make_row(Span("no recorded setting is different"))
    for each in changes.found:
        yield from render_difference(each)
    if changes.unknown:
        yield make_row(sanitize_span(f"not recorded, so not compared: {', '.join(changes.unknown)}", TextStyle.LABEL))


def render_difference(one: StartDifference) -> Iterator[TextRow]:
    """Yield a change like a unified diff: the old value with a minus, the new one with a plus."""
    if one.before is not None:
        yield make_row(Span("- ", TextStyle.BAD), sanitize_span(f"{one.what}: {one.before}"))
    if one.after is not None:
        yield make_row(Span("+ ", TextStyle.GOOD), sanitize_span(f"{one.what}: {one.after}"))


def build_history_json(found: Sequence[OperationRecord]) -> dict[str, object]:
    """Return the list as JSON data, without the text of the profiles, which `build_operation_json` has."""
    return {
        "schema": 1,
        "operations": [{k: v for k, v in _to_json_object(one).items() if k != "text"} for one in found],
    }


def build_operation_json(
    one: OperationRecord,
    worked: OperationRecord | None,
    changes: StartDiff | None,
    parts: Sequence[OperationRecord],
) -> dict[str, object]:
    since = (
        None
        if worked is None or changes is None
        else {"id": worked.id, "began": worked.began} | _to_json_object(changes)
    )
    made_of = [part.id for part in parts]
    return {"schema": 1, "operation": _to_json_object(one), "made_of": made_of, "changed_since_it_worked": since}


def _to_json_object(value: object) -> dict[str, object]:
    data = to_json_data(value)
    assert isinstance(data, dict)
    return data


_HANG_COLUMNS = 4  # indent of continuation lines
_STYLE_SYMBOLS = {
    TextStyle.GOOD: "●",
    TextStyle.BAD: "✕",
    TextStyle.ATTENTION: "▲",
    TextStyle.ACCENT: "◐",
}
_GAP_COLUMNS = 2
_MAX_PROFILE_COLUMNS = 24  # width of a profile's name
_MIN_NAME_COLUMNS = 8  # width of a shortened name
_PHASES_TITLE = "phases"


@dataclass(frozen=True, slots=True)
class OperationDetail:
    """The details of one operation: its record, the last good start before it, and the differences since then."""

    operation: OperationRecord
    worked: OperationRecord | None
    changes: StartDiff | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryScreenModel:
    """``operations``: None before they are read. ``detail``: of the selected one, if read. ``trouble``: what is wrong with the file."""

    operations: tuple[OperationRecord, ...] | None
    chosen: int | None = None
    detail: OperationDetail | None = None
    trouble: str | None = None
    pattern: FilterPattern | None = None
    further: int = 0

    @property
    def visible_operations(self) -> tuple[OperationRecord, ...]:
        found, pattern = self.operations or (), self.pattern
        return (
            found
            if pattern is None
            else tuple(one for one in found if pattern.matches(_make_filter_text(build_history_row(one))))
        )

    @property
    def selected(self) -> OperationRecord | None:
        shown = self.visible_operations
        return next((one for one in shown if one.id == self.chosen), shown[0] if shown else None)


def _make_filter_text(one: HistoryRow) -> str:
    return " ".join((str(one.id), one.when, one.what, one.profile, one.nodes, one.outcome, one.why))


def render_history_page(past: HistoryScreenModel, columns: int, lines: int) -> ScrollPage:
    """Return exactly ``lines`` rows: the list, and below it the selected operation in full."""
    from sparkctl.views.text.frame_layout import pad_screen  # imported late: `sparkctl history` draws no frames

    rows: list[TextRow] = []
    if past.trouble is not None:
        rows.append(make_row(" ", sanitize_span(past.trouble, TextStyle.ATTENTION)))
    if past.pattern is not None:
        count = f"{len(past.visible_operations)}/{len(past.operations or ())}"
        typed = past.pattern.fault or past.pattern.typed
        rows.append(make_row(" ", Span(f"/ {count}  ", TextStyle.ACCENT), sanitize_span(typed, TextStyle.VALUE)))
    if past.operations is None or not past.visible_operations:
        words = (
            "reading the history ..."
            if past.operations is None
            else f"No entry is about {past.pattern.typed}. Esc shows all {len(past.operations)}."
            if past.pattern
            else _EMPTY_HISTORY_TEXT
        )
        rows += [(), make_row("  ", sanitize_span(words, TextStyle.STALE))]
        return ScrollPage(pad_screen(rows, columns, lines))
    made = [build_history_row(one) for one in past.visible_operations]
    fields, wide = _format_page_table(made, columns)
    heads = [
        head if measure_text(head) <= room else _SHORT_END_TITLE for head, room in zip(_PAGE_COLUMNS, wide, strict=True)
    ]
    rows.append(_render_page_row(heads, wide, "   ", "", TextStyle.LABEL))
    top = len(rows)
    upper = min(len(made), max(3, (lines - top) // 3))
    upper = min(len(made), lines - top) if lines - top - upper < 5 else upper
    selected = past.selected
    at = next((at for at, one in enumerate(past.visible_operations) if one is selected), 0)
    there = compute_visible_range(len(made), at, upper)
    for each in there:
        rows.append(_render_operation_row(fields[each], made[each].tone, wide, is_chosen=each == at))
    further = 0
    if (left := lines - len(rows)) >= 4 and selected is not None:
        below = _render_operation_frame(past, selected, columns, left)
        rows, further = [*rows, *below.rows], below.further
    return ScrollPage(pad_screen(rows, columns, lines), further, top, there)


_EMPTY_HISTORY_TEXT = "The history is empty. Every start, stop and switch from here will be listed."
_PAGE_COLUMNS = ("when", "what", "profile", "on", "how it ended", "took")
_SHORT_END_TITLE = "ended"


def _format_page_table(made: Sequence[HistoryRow], columns: int) -> tuple[list[tuple[str, ...]], list[int]]:
    """Return each entry's columns and their widths; what is too wide loses usual times, a long title, ends of names, durations."""
    room = columns - 5
    fields: list[tuple[str, ...]] = [
        (one.when[5:], one.what, one.profile, one.nodes, one.outcome, one.took) for one in made
    ]
    wide = _measure_columns(fields)
    if _count_excess_columns(wide, room):
        fields = [(*each[:5], each[5].partition(" of about ")[0]) for each in fields]
        wide = _measure_columns(fields)
    if _count_excess_columns(wide, room):
        wide[4] = max(len(_SHORT_END_TITLE), *(measure_text(each[4]) for each in fields))
    for at in (2, 3):  # the profile, then the nodes
        wide[at] -= min(max(0, wide[at] - _MIN_NAME_COLUMNS), _count_excess_columns(wide, room))
    if _count_excess_columns(wide, room):
        wide[5] = 0
    return fields, wide


def _measure_columns(fields: Sequence[Sequence[str]]) -> list[int]:
    wide = [
        max(measure_text(head), *(measure_text(each[at]) for each in fields)) for at, head in enumerate(_PAGE_COLUMNS)
    ]
    wide[2] = min(wide[2], _MAX_PROFILE_COLUMNS)
    return wide


def _count_excess_columns(wide: Sequence[int], room: int) -> int:
    """Return by how many columns the table is too wide, 0 if it fits."""
    return max(0, sum(one + _GAP_COLUMNS for one in wide if one) - room)


def _render_page_row(
    fields: Sequence[str], wide: Sequence[int], begin: str, sign: str, tone: TextStyle, ended: TextStyle | None = None
) -> TextRow:
    spans: list[Span] = [Span(begin, TextStyle.ACCENT), Span(f"{sign:<2}", ended or tone)]
    for at, (each, columns) in enumerate(zip(fields, wide, strict=True)):
        if columns:
            spans += [
                *pad_row((sanitize_span(each, (ended or tone) if at == 4 else tone),), columns),
                Span(" " * _GAP_COLUMNS),
            ]
    return tuple(spans)


def _render_operation_row(fields: Sequence[str], tone: TextStyle, wide: Sequence[int], *, is_chosen: bool) -> TextRow:
    mark = " ▸ " if is_chosen else "   "
    sign = _STYLE_SYMBOLS.get(tone, "·")
    return _render_page_row(fields, wide, mark, sign, TextStyle.STRONG if is_chosen else TextStyle.VALUE, tone)


# --- the selected one --------------------------------------------------------------------------------------------------


def _render_operation_frame(past: HistoryScreenModel, one: OperationRecord, columns: int, lines: int) -> ScrollPage:
    """Return the selected operation in a frame: the reason, its phases as bars, then what had changed."""
    from sparkctl.views.text.frame_layout import draw_frame, draw_page

    inner = max(8, columns - 4)
    detail = past.detail if past.detail is not None and past.detail.operation.id == one.id else None
    title = make_row(sanitize_span(f"{one.id}  {describe_verb(one)} {describe_subject(one)}", TextStyle.TITLE))
    if detail is None:
        body = [make_row(Span("being read ...", TextStyle.STALE))]
        return ScrollPage(draw_frame(title, body, columns, lines))
    rows: list[TextRow] = []
    head, *sections = build_operation_sections(detail.operation, detail.worked, detail.changes)
    for section in (head, *sorted(sections, key=_section_sort_key)):
        if rows:
            rows.append(())
        if section is not head:
            rows.append(make_row(Span(section.title, TextStyle.LABEL)))
        share = _find_section_share(section, detail.operation)
        made = list(section.rows) if share is None else render_phase_bars(detail.operation, share, inner)
        rows += wrap_rows(made, inner, _HANG_COLUMNS)
    return draw_page(title, rows, past.further, columns, lines)


def _section_sort_key(one: DetailSection) -> int:
    order = ("why", "how it ended", _PHASES_TITLE, "changed", "steps", "memory", "seen", "files", "node")
    return next((at for at, name in enumerate(order) if one.title.startswith(name)), len(order))


def _find_section_share(section: DetailSection, one: OperationRecord) -> NodeResult | None:
    """Return the node result whose phases a section shows, None for other sections."""
    if not section.title.startswith(_PHASES_TITLE):
        return None
    named = [share for share in one.shares if section.title == f"{_PHASES_TITLE}, {sanitize_line(share.node)}"]
    return named[0] if named else next((share for share in one.shares if share.parts), None)


def render_phase_bars(one: OperationRecord, share: NodeResult, columns: int) -> list[TextRow]:
    """Return each phase with its duration, a bar and the usual duration, matched in order; late ones stand out."""
    from sparkctl.views.text.charts import render_gauge

    left = list_expected_durations(one, share)
    names = max((measure_text(format_part_name(part)) for part in share.parts), default=0)
    names = min(names, max(10, columns // 3))
    most = max([part.seconds for part in share.parts] + [part.seconds for part in left] + [1.0])
    figure_columns = 22  # columns of 12:40   usually 12:31
    bar = max(0, min(48, columns - names - figure_columns - 4))
    rows = []
    for part in share.parts:
        usual = next((each for each in left if each.part_key == part.part_key), None)
        if usual is not None:
            left.remove(usual)
        is_late = _is_late(part, usual)
        tone = TextStyle.ATTENTION if is_late else TextStyle.ACCENT
        expected = "" if usual is None else f"   usually {format_clock(usual.seconds)}"
        rows.append(
            make_row(
                *pad_row((sanitize_span(format_part_name(part), TextStyle.LABEL),), names),
                "  ",
                *render_gauge(part.seconds / most, bar, tone),
                Span(f"{format_clock(part.seconds):>8}", TextStyle.ATTENTION if is_late else TextStyle.VALUE),
                Span(expected, TextStyle.LABEL),
            )
        )
    return [truncate_row(each, columns) for each in rows]
