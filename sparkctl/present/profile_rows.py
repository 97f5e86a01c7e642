"""The profiles of the panel: the list, and the one that is selected in full. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sparkctl.core.faults import Fault, Place
from sparkctl.core.history import LastStart
from sparkctl.core.logpattern import LinePattern
from sparkctl.core.paths import shipped_profiles_dir
from sparkctl.core.profiles import ProfileEntry
from sparkctl.core.store import LoadView
from sparkctl.model.finding import Severity
from sparkctl.model.lint import Level
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase
from sparkctl.model.profile import Profile
from sparkctl.model.text import clean
from sparkctl.model.units import gib, spoken
from sparkctl.present.fold import fold
from sparkctl.present.frame import filled, framed
from sparkctl.present.scrolled import Page, scrolled, seen
from sparkctl.present.shelf_order import HEADS, ORDERS, Order, model_words, rank, running_of
from sparkctl.present.spans import Row, Span, Tone, cells, cut, fit, row, said, text, width
from sparkctl.present.starting import standing_rows
from sparkctl.present.symbols import symbol

if TYPE_CHECKING:
    from sparkctl.core.linting import Checked

_GAP = 2
_ROOMY = 100  # columns from which on the number of nodes has one, all being for one
_NARROW = 72  # columns from which on the model has a place in the list
_ENGINES = {"sglang": "SGLang", "vllm": "vLLM"}
_DAY = 86400.0
_LEVELS = {
    Level.ERROR: (Severity.PROBLEM, Tone.BAD), Level.WARNING: (Severity.WARNING, Tone.ATTENTION),
    Level.INFO: (Severity.NOTE, Tone.LABEL),
}  # fmt: skip
_NOTE = ("--label dev.sparkctl.", "--label 'dev.sparkctl.")


@dataclass(frozen=True, slots=True)
class Preview:
    """What would be run on a node: the command's lines. ``trouble`` is why it would be refused, and ``note`` what of the
    command was not asked of a Spark; a line with trouble is as far as it goes without what is missing."""

    lines: tuple[str, ...] = ()
    trouble: str | None = None
    hint: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Shelf:
    """All that the screen shows. ``entries`` None: not read yet. ``further`` rows of what is below were read already.
    ``found``: what ``pattern`` leaves, where that is known already. ``sources``: the lines of the files at which faults
    are, secrets masked. ``check``: what is to be said of the selected one and its flags; None: not known yet."""

    entries: tuple[ProfileEntry, ...] | None
    chosen: str | None = None
    views: tuple[LoadView, ...] = ()
    names: tuple[NodeName, ...] = ()
    node: NodeName | None = None
    last: tuple[LastStart, ...] = ()
    preview: Preview = field(default_factory=Preview)
    warnings: tuple[str, ...] = ()
    check: Checked | None = None
    sources: Mapping[Place, str] = field(default_factory=dict)
    pattern: LinePattern | None = None
    found: tuple[ProfileEntry, ...] | None = None
    now: float = 0.0
    further: int = 0
    ascii_only: bool = False
    order: Order = Order.NAME

    @property
    def shown(self) -> tuple[ProfileEntry, ...]:
        """Those that the filter leaves."""
        entries = left(self.entries or (), self.pattern) if self.found is None else self.found
        return tuple(sorted(entries, key=lambda one: rank(self.order, one, self.views, self.last)))

    @property
    def at(self) -> int:
        """Where the selected one is among those that are shown."""
        chosen = self.selected
        return 0 if chosen is None else self.shown.index(chosen)

    @property
    def selected(self) -> ProfileEntry | None:
        """The chosen one, else the first that is shown."""
        shown = self.shown
        return next((one for one in shown if one.summary.name == self.chosen), shown[0] if shown else None)


def left(entries: tuple[ProfileEntry, ...], pattern: LinePattern | None) -> tuple[ProfileEntry, ...]:
    """Return the profiles that a filter leaves."""
    if pattern is None:
        return entries
    return tuple(entries[at] for at in pattern.select([_found_by(one) for one in entries]))


def _found_by(one: ProfileEntry) -> str:
    parts = (one.summary.name, one.summary.engine, one.summary.title, model_words(one.profile))
    return clean(" ".join(part for part in parts if part))


def shelf_rows(shelf: Shelf, columns: int, lines: int) -> Page:
    """Return exactly ``lines`` rows: the list on top, below it the selected one with its command."""
    further, top, there = 0, 1 + (shelf.pattern is not None), range(0)
    if shelf.entries is None:
        rows: list[Row] = [(), row("  ", Span("reading the profiles ...", Tone.STALE))]
    elif not shelf.entries:
        rows = [
            (),
            row("  ", Span("There is no profile.", Tone.STRONG)),
            row("  ", Span("sparkctl profiles schema", Tone.KEY)),
        ]
    else:
        upper = min(len(shelf.shown) + top, max(4, lines // 2 - 1))
        rows = _list(shelf, columns, upper)
        there = seen(len(shelf.shown), shelf.at, max(1, upper - top))
        if shelf.selected is not None and lines - upper >= 4:
            below = _detail(shelf, shelf.selected, columns, lines - upper)
            rows, further = [*rows, *below.rows], below.further
    return Page(filled(rows, columns, lines, shelf.ascii_only), further, top, there)


def _list(shelf: Shelf, columns: int, lines: int) -> list[Row]:
    shown = shelf.shown
    table = [_cells(one, shelf) for one in shown]
    heads = [head + _sorted_by(head, shelf) for head in HEADS]
    wide = [max([len(head), *(cells(line[at].text) for line in table)]) for at, head in enumerate(heads)]
    wide[0] = min(wide[0], max(10, columns // 3))
    if columns < _ROOMY and all(one.profile is None or one.profile.nodes == 1 for one in shown):
        wide[3] = 0
    rest = columns - 3 - sum(wide) + wide[2] - _GAP * 5
    wide[2] = max(0, min(wide[2], rest)) if columns >= _NARROW and rest >= 8 else 0
    rows = []
    if shelf.pattern is not None:
        count = f"{len(shown)}/{len(shelf.entries or ())}"
        rows.append(
            row(" ", Span(f"/ {count}  ", Tone.ACCENT), said(shelf.pattern.fault or shelf.pattern.typed, Tone.VALUE))
        )
    rows.append(_line([Span(head, Tone.LABEL) for head in heads], wide, "   "))
    chosen = shelf.selected
    mark = ">" if shelf.ascii_only else "▸"
    at = 0 if chosen is None else shown.index(chosen)
    for one, line in [(shown[each], table[each]) for each in seen(len(shown), at, max(1, lines - len(rows)))]:
        here = f" {mark} " if one is chosen else "   "
        whole = _line(line, wide, here, one is chosen)
        rows.append(whole if one.profile is not None else _broken(one, line, wide, here, one is chosen))
    return rows


def _sorted_by(head: str, shelf: Shelf) -> str:
    return "" if ORDERS.get(head) is not shelf.order else " v" if shelf.ascii_only else " ↓"


def _line(parts: Sequence[Span], wide: Sequence[int], mark: str, mine: bool = False) -> Row:
    spans: list[Span] = [Span(mark, Tone.ACCENT)]
    for at, part in enumerate(parts):
        if at < len(wide) and not wide[at]:
            continue
        tone = Tone.STRONG if mine and at == 0 else part.tone
        last = at == len(parts) - 1
        spans += [Span(part.text, tone)] if last else [*fit((Span(part.text, tone),), wide[at]), Span(" " * _GAP)]
    return tuple(spans)


def _cells(one: ProfileEntry, shelf: Shelf) -> list[Span]:
    profile, name = one.profile, one.summary.name
    ends = [_runs(one, shelf), _last(name, shelf)]  # what is broken now may have been started before
    if profile is None:
        return [said(name, Tone.VALUE), *([Span("")] * 3), *ends]
    return [
        said(profile.name, Tone.VALUE), said(_ENGINES.get(profile.engine, profile.engine), Tone.LABEL),
        said(model_words(profile) or "—", Tone.LABEL), Span(str(profile.nodes), Tone.LABEL), *ends,
    ]  # fmt: skip


def _broken(one: ProfileEntry, line: Sequence[Span], wide: Sequence[int], mark: str, mine: bool) -> Row:
    """Return the row of a broken one: its first fault in place of engine and model."""
    first = one.summary.faults[0]
    more = f" (+{len(one.summary.faults) - 1})" if len(one.summary.faults) > 1 else ""
    place = first.place.file if first.place.line is None else f"line {first.place.line}"
    if first.place.file != str(one.summary.origin) and first.place.line is not None:
        place = f"{first.place.file.rpartition('/')[2]}:{first.place.line}"  # of a profile that it extends
    fault = said(f"broken: {place}: {first.message}{more}", Tone.BAD)
    if line[4].tone is Tone.STALE and line[5].tone is Tone.STALE:  # it runs nowhere, and never was started
        return _line([line[0], fault], wide, mark, mine)
    between = [each for each in wide[1:4] if each]
    room = sum(between) + _GAP * (len(between) - 1)
    return _line([line[0], fault, *line[4:]], [wide[0], room, *wide[4:]], mark, mine)


def _runs(one: ProfileEntry, shelf: Shelf) -> Span:
    running = running_of(one.summary.name, shelf.views)
    if not running:
        known = shelf.views and all(view.docker_known and view.instances_seen is not None for view in shelf.views)
        return Span("" if known else "?", Tone.STALE)
    ready = all(one.phase is Phase.READY for one in running)
    words = ", ".join(f"{symbol(one.phase or Phase.UNKNOWN, shelf.ascii_only)} {one.node}" for one in running)
    return said(words, Tone.GOOD if ready else Tone.ATTENTION)


def _last(name: str, shelf: Shelf) -> Span:
    one = next((each for each in shelf.last if each.profile == name), None)
    if one is None:
        return Span("never", Tone.STALE)
    if one.failed is not None:
        sign = symbol(Phase.FAILED, shelf.ascii_only)
        return said(f"{sign} {one.failed}, {_ago(one.when, shelf.now)}", Tone.BAD)
    sign = symbol(Phase.READY, shelf.ascii_only)
    return said(f"{sign} {_clock(one.seconds or 0.0)}, {_ago(one.when, shelf.now)}", Tone.LABEL)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def _ago(when: float, now: float) -> str:
    passed = now - when
    if passed < 60:
        return "just now"
    return f"{int(passed // 60)} min ago" if passed < 3600 else f"{int(passed // 3600)} h ago" if passed < _DAY else (
        f"{int(passed // _DAY)} d ago"
    )  # fmt: skip


def _detail(shelf: Shelf, one: ProfileEntry, columns: int, lines: int) -> Page:
    summary = one.summary
    whose = "shipped" if summary.shipped else "yours, over the shipped one" if summary.overrides_shipped else "yours"
    title = row(said(summary.name, Tone.TITLE), Span(f"  {whose}", Tone.LABEL))
    inner = max(8, columns - 4)
    body = _whole(shelf, one.profile, inner) if one.profile is not None else _wrong(shelf, one, inner)
    page = scrolled(body, shelf.further, lines - 2, shelf.ascii_only)
    return Page(framed(title, page.rows, columns, lines, chosen=False, ascii_only=shelf.ascii_only), page.further)


def _wrong(shelf: Shelf, one: ProfileEntry, columns: int) -> list[Row]:
    """Return the faults as a compiler shows them, how to get to them, and what of the profile runs all the same."""
    rows = _faults(one.summary.faults, shelf.sources, columns, shelf.ascii_only)
    rows += [row(Span("e", Tone.KEY), Span(" edits it, at the first of them; it is checked on return", Tone.LABEL))]
    for each in running_of(one.summary.name, shelf.views):
        words = f"{each.name} runs on {each.node} all the same: what was started goes on as it was"
        rows += [row(said(line, Tone.LABEL)) for line in fold(clean(words), columns, 0)]
    return [*rows, *_last_row(one.summary.name, shelf)]


def _faults(faults: Sequence[Fault], sources: Mapping[Place, str], columns: int, ascii_only: bool) -> list[Row]:
    rows: list[Row] = []
    for fault in faults:
        rows += _placed(fault.place, str(fault), Level.ERROR, sources, columns, ascii_only)
    return [*rows, ()]


def _placed(
    place: Place, words: str, level: Level, sources: Mapping[Place, str], columns: int, ascii_only: bool
) -> list[Row]:
    """Return what is said of a place, which ``words`` begin with, and under it the line that is there."""
    severity, tone = _LEVELS[level]
    sign, where = Span(f"{symbol(severity, ascii_only)} ", tone), clean(str(place))
    short, message = _briefly(where), words.removeprefix(f"{where}: ")
    if cells(f"{short}: {message}") + 2 <= columns:
        rows = [row(sign, said(f"{short}: ", Tone.LABEL), said(message, tone))]
    else:
        rows = [row(sign, said(_end(short, columns - 2), Tone.LABEL))]
        rows += [row(said(line, tone)) for line in fold(f"  {message}", columns, 2)]
    return [*rows, *_source(place, sources.get(place), columns, ascii_only, tone)]


def _source(place: Place, line: str | None, columns: int, ascii_only: bool, tone: Tone) -> list[Row]:
    """Return the line of the file, and under it a mark where the fault is."""
    if line is None or place.line is None:
        return []
    bar = "|" if ascii_only else "│"
    head = f"  {place.line:>4} {bar} "
    rows = [cut(row(Span(head, Tone.FRAME), said(line, Tone.VALUE)), columns)]
    at = cells(clean(line[: (place.column or 1) - 1]))
    if at + len(head) < columns:
        rows.append(row(Span(f"  {'':>4} {bar} ", Tone.FRAME), Span(" " * at), Span("^", tone)))
    return rows


def _briefly(path: str) -> str:
    """Return a path as short as it stays clear: a shipped file by its name (nobody edits it there), one at home after ``~``."""
    if (name := path.removeprefix(f"{shipped_profiles_dir()}/")) != path:
        return name
    home = str(Path.home())
    return f"~{path[len(home) :]}" if path.startswith(f"{home}/") else path


def _last_row(name: str, shelf: Shelf) -> list[Row]:
    """Return how the last start of a profile went, in words; nothing where there was none."""
    one = next((each for each in shelf.last if each.profile == name), None)
    if one is None:
        return []
    label, ago = Span("last start ", Tone.LABEL), _ago(one.when, shelf.now)
    if one.failed is not None:
        return [row(label, said(f"failed on {one.node}, {ago}: {one.failed}", Tone.BAD))]
    return [row(label, said(f"ready on {one.node} after {spoken(one.seconds)}, {ago}", Tone.LABEL))]


def _end(words: str, columns: int) -> str:
    """Return the end of a path that is too long: the file and the line matter more than where it lies."""
    return words if cells(words) <= columns else f"…{words[-max(1, columns - 1) :]}"


def _whole(shelf: Shelf, profile: Profile, columns: int) -> list[Row]:
    rows: list[Row] = []
    if profile.title:
        rows.append(row(said(profile.title, Tone.VALUE)))
    check, last = _check_row(shelf), _last_row(profile.name, shelf)
    one = (*check, Span(" · ", Tone.LABEL), *last[0]) if last else check
    rows += [one] if width(one) <= columns else [cut(check, columns), *last]
    rows += _check_rows(shelf, columns, (Level.ERROR, Level.WARNING))
    rows += _warning_rows(shelf, columns)
    if profile.nodes != 1:
        rows.append(
            row(Span(f"for {profile.nodes} Sparks together: sparkctl starts profiles of one, so far", Tone.ATTENTION))
        )
    rows.append(_nodes_row(shelf))
    view = next((view for view in shelf.views if view.name == shelf.node), None)
    if view is not None:
        rows += [cut(each, columns) for each in standing_rows(profile, view, shelf.ascii_only, columns)]
        if view.memory is not None and profile.expected_memory is None:
            rows.append(
                row(Span("then ", Tone.LABEL), Span("not known: the profile has no expected_memory", Tone.STALE))
            )
    elif profile.expected_memory is not None:
        rows.append(
            row(
                Span("holds ", Tone.LABEL),
                Span(f"≈ {gib(profile.expected_memory)}", Tone.VALUE),
                Span(" est.", Tone.UNIT),
            )
        )
    infos = _check_rows(shelf, columns, (Level.INFO,))
    return [*rows, (), *_command(shelf.preview, columns), *([()] if infos else []), *infos]


def _check_row(shelf: Shelf) -> Row:
    """Return the sum of the check, as ``profiles check`` has it."""
    if shelf.check is None:
        return row(Span("checking its flags ...", Tone.STALE))
    from sparkctl.present.lint_lines import summed  # who shows no check loads no engine

    worst = next((level for level in (Level.ERROR, Level.WARNING) if shelf.check.of(level)), None)
    severity, tone = (Severity.GOOD, Tone.GOOD) if worst is None else _LEVELS[worst]
    words = f"checked: {summed(shelf.check)}"
    return row(
        Span(f"{symbol(severity, shelf.ascii_only)} ", tone), said(words, Tone.LABEL if tone is Tone.GOOD else tone)
    )


def _check_rows(shelf: Shelf, columns: int, levels: Sequence[Level]) -> list[Row]:
    """Return the findings of some levels as a compiler shows them, the worst first; what is only good to know has no line
    of its file under it."""
    rows: list[Row] = []
    for level in levels:
        for one in () if shelf.check is None else shelf.check.of(level):
            sources = {} if level is Level.INFO else shelf.sources
            rows += _placed(one.place, str(one), level, sources, columns, shelf.ascii_only)
    return rows


def _warning_rows(shelf: Shelf, columns: int) -> list[Row]:
    sign = symbol(Severity.WARNING, shelf.ascii_only)
    return [
        row(said(line, Tone.ATTENTION))
        for words in shelf.warnings
        for line in fold(f"{sign} {clean(words)}", columns, 2)
    ]


def _nodes_row(shelf: Shelf) -> Row:
    spans: list[Span] = [Span("on   ", Tone.LABEL)]
    for name in shelf.names:
        mine = name == shelf.node
        spans.append(said(f"[ {name} ]" if mine else f"  {name}  ", Tone.KEY if mine else Tone.LABEL))
    return tuple(spans) if shelf.names else row(Span("no Spark is configured", Tone.STALE))


def _command(preview: Preview, columns: int) -> list[Row]:
    rows: list[Row] = []
    if preview.trouble is not None:
        words = preview.trouble + (f"\n{preview.hint}" if preview.hint else "")
        rows += [
            row(said(part, Tone.ATTENTION)) for line in words.splitlines() for part in fold(clean(line), columns, 2)
        ]
        rows += [()] if preview.lines else []
    if preview.note is not None:
        rows += [row(said(part, Tone.STALE)) for part in fold(clean(preview.note), columns, 0)]
    notes = [line for line in preview.lines if line.strip().startswith(_NOTE)]
    for line in preview.lines:
        if line in notes:
            if line == notes[0]:
                words = f"  --label ...   {len(notes)} of them, by which sparkctl knows its own; y copies all"
                rows.append(cut(row(Span(words, Tone.STALE)), columns))
            continue
        flag, _, rest = clean(line).strip().partition(" ")
        indent = "" if line.startswith("docker") else "  "
        made = row(
            indent, Span(flag, Tone.ACCENT if flag.startswith("-") else Tone.VALUE), Span(f" {rest}" if rest else "")
        )
        rows += _wrapped(made, columns)
    return rows


def _wrapped(made: Row, columns: int) -> list[Row]:
    """Return a line of a command on as many rows as it takes, cut wherever the row ends: it is not broken between words."""
    if cells(text(made)) <= columns:
        return [made]
    rows, words, hang = [cut(made, columns, "")], text(made)[len(text(cut(made, columns, ""))) :], "      "
    while words:
        piece = cut((Span(words),), max(4, columns - len(hang)), "")
        rows.append(row(hang, *piece))
        words = words[max(1, len(text(piece))) :]
    return rows
