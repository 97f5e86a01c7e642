"""What is wrong in a file, as a compiler shows it: the place, the words, the line that is there and a mark under it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sparkctl.core.faults import Fault, Place
from sparkctl.core.paths import shipped_profiles_dir
from sparkctl.model.finding import Severity
from sparkctl.model.lint import ChangeKind, Level
from sparkctl.model.text import clean
from sparkctl.present.fold import fold
from sparkctl.present.spans import Row, Span, Tone, cells, cut, row, said
from sparkctl.present.symbols import symbol

if TYPE_CHECKING:
    from sparkctl.core.linting import Checked
    from sparkctl.present.shelf import Shelf

LEVELS = {
    Level.ERROR: (Severity.PROBLEM, Tone.BAD), Level.WARNING: (Severity.WARNING, Tone.ATTENTION),
    Level.INFO: (Severity.NOTE, Tone.LABEL),
}  # fmt: skip


def fault_rows(faults: Sequence[Fault], sources: Mapping[Place, str], columns: int, ascii_only: bool) -> list[Row]:
    rows: list[Row] = []
    for fault in faults:
        rows += _placed(fault.place, str(fault), Level.ERROR, sources, columns, ascii_only)
    return [*rows, ()]


def _placed(
    place: Place, words: str, level: Level, sources: Mapping[Place, str], columns: int, ascii_only: bool
) -> list[Row]:
    """Return what is said of a place, which ``words`` begin with, and under it the line that is there."""
    severity, tone = LEVELS[level]
    sign, where = Span(f"{symbol(severity, ascii_only)} ", tone), clean(str(place))
    short, message = briefly(where), words.removeprefix(f"{where}: ")
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


def briefly(path: str) -> str:
    """Return a path as short as it stays clear: a shipped file by its name (nobody edits it there), one at home after ``~``."""
    if (name := path.removeprefix(f"{shipped_profiles_dir()}/")) != path:
        return name
    home = str(Path.home())
    return f"~{path[len(home) :]}" if path.startswith(f"{home}/") else path


def _end(words: str, columns: int) -> str:
    """Return the end of a path that is too long: the file and the line matter more than where it lies."""
    return words if cells(words) <= columns else f"…{words[-max(1, columns - 1) :]}"


def badge(check: Checked | None, ascii_only: bool) -> Row:
    """Return how many errors and warnings a check found, each with its sign; a sign alone for none, nothing while it is not
    known."""
    if check is None:
        return ()
    found = [(level, len(check.of(level))) for level in (Level.ERROR, Level.WARNING)]
    spans = [
        Span(f"{symbol(LEVELS[level][0], ascii_only)}{count}", LEVELS[level][1]) for level, count in found if count
    ]
    return tuple(spans) or row(Span("+" if ascii_only else "✓", Tone.LABEL))


def mendable(check: Checked) -> int:
    """Return how many findings `profiles check --fix` would mend: those in the file itself."""
    mine = str(check.path)
    return sum(
        one.change is not None and (one.place.file == mine or one.change.kind is ChangeKind.ADD)
        for one in check.diagnostics
    )


def check_row(shelf: Shelf) -> Row:
    """Return the sum of the check, as ``profiles check`` has it, and the key that mends what it can."""
    if shelf.check is None:
        return row(Span("checking its flags ...", Tone.STALE))
    from sparkctl.present.lint_lines import summed  # who shows no check loads no engine

    worst = next((level for level in (Level.ERROR, Level.WARNING) if shelf.check.of(level)), None)
    severity, tone = (Severity.GOOD, Tone.GOOD) if worst is None else LEVELS[worst]
    words = f"checked: {summed(shelf.check)}"
    spans = [
        Span(f"{symbol(severity, shelf.ascii_only)} ", tone),
        said(words, Tone.LABEL if tone is Tone.GOOD else tone),
    ]
    if count := mendable(shelf.check):
        spans += [Span("   F", Tone.KEY), Span(" mends it" if count == 1 else f" mends {count} of them", Tone.LABEL)]
    return tuple(spans)


def check_rows(shelf: Shelf, columns: int, levels: Sequence[Level]) -> list[Row]:
    """Return the findings of some levels as a compiler shows them, the worst first; what is only good to know has no line
    of its file under it."""
    rows: list[Row] = []
    for level in levels:
        for one in () if shelf.check is None else shelf.check.of(level):
            sources = {} if level is Level.INFO else shelf.sources
            rows += _placed(one.place, str(one), level, sources, columns, shelf.ascii_only)
    return rows
