"""What is asked on the `:` line and answered in a dialog: whether a profile fits, and what an instance's log tells."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from sparkctl.core.actions import INSTANCE, aimed
from sparkctl.core.serving import meant
from sparkctl.errors import InvalidInput, SparkctlError
from sparkctl.model.events import Ended, Event, FitJudged, Warned
from sparkctl.model.finding import Severity
from sparkctl.model.phase import Phase
from sparkctl.present.diagnosis import diagnosis_lines
from sparkctl.present.fit_rows import last_lines, note_lines, sum_lines
from sparkctl.present.fold import within
from sparkctl.present.spans import Row, Tone, row, said
from sparkctl.present.symbols import symbol
from sparkctl.tui.dialogs import Reader

if TYPE_CHECKING:
    from sparkctl.operations.diagnose import Diagnosed
    from sparkctl.tui.app import Panel
    from sparkctl.tui.setup import Started

_WIDEST = 104
_HANG = 10  # of what a diagnosis says, below its labels


def ask_fit(panel: Panel, words: Sequence[str]) -> None:
    """Say whether a profile fits, as ``plan`` does. Raises `SparkctlError` for a line that is none."""
    assert panel.room is not None
    panel.opening(_show_fit(panel, panel.room.understood(words)))


async def _show_fit(panel: Panel, started: Started) -> None:
    told: list[Event] = []
    try:
        async with aclosing(started.events()) as events:
            async for event in events:
                told.append(event)
    except SparkctlError as error:
        panel.refuse(error)
        return
    name = meant(started.words[1:])[0][0]
    rows = fit_answer(told, _columns(panel), panel.ascii_only)
    panel.push_screen(Reader(f"does {name} fit", [(), *rows, ()]))


def fit_answer(told: Sequence[Event], columns: int, ascii_only: bool = False) -> list[Row]:
    """Return what ``plan`` has told: what comes of it for all Sparks, then the sum of each, what to do, and trouble."""
    judged = [one for one in told if isinstance(one, FitJudged)]
    rows = [
        row(said(part, Tone.STRONG))
        for line in last_lines([one.fit for one in judged])
        for part in within(line, columns, 2)
    ]
    for at, one in enumerate(judged):
        before = [other.fit for other in judged[:at]]
        rows += [()] if rows else []
        rows += [row(said(line, Tone.STRONG)) for line in within(said(one.fit.sentence).text, columns, 0)]
        lines = (*sum_lines(one.fit, columns, before), *note_lines(one.fit, columns, before))
        rows += [row(said(line, Tone.LABEL)) for line in lines]
    commands = dict.fromkeys(each for one in judged for each in one.commands)
    rows += [()] if commands else []
    rows += [row(said(line)) for each in commands for line in within(f"then: {each}", columns, 6)]
    sign = symbol(Severity.WARNING, ascii_only)
    for event in told:
        if isinstance(event, Warned):
            where = f"{event.node}: " if event.node else ""
            rows += _trouble(f"{sign} {where}{event.message}", event.hint, columns)
        elif isinstance(event, Ended) and event.message:
            rows += _trouble(event.message, event.hint, columns)
    return rows


def _trouble(message: str, hint: str | None, columns: int) -> list[Row]:
    told = [*message.splitlines(), *(f"try: {line}" for line in (hint or "").splitlines())]
    return [row(said(part, Tone.ATTENTION)) for line in told for part in within(said(line).text, columns, 2)]


def ask_diagnosis(panel: Panel, words: Sequence[str]) -> None:
    """Open an instance that has failed, where its verdict stands; of any other, and of one that is gone, say what its log
    tells. Raises `InvalidInput` for a line that is for the command line."""
    names, nodes = meant(words[1:])
    own = [word for word in words[1:] if word.startswith("-") and word.partition("=")[0] not in ("--node", "-n")]
    if own or len(names) != 1 or "/" in names[0] or names[0] == "-":
        raise InvalidInput(
            "here a log is read of an instance: diagnose NAME [--node NODE]",
            f"a file, and all else, is for the command line: sparkctl {shlex.join(words)}",
        )
    if unknown := [node for node in nodes if node not in panel.names]:
        raise InvalidInput(f"no node is called {unknown[0]}", f"there are: {', '.join(panel.names)}")
    now = aimed(panel.situation(), words)
    if now.selected is not None and now.selected.ours and now.selected.phase is Phase.FAILED:
        panel.open(INSTANCE, now)
    else:
        panel.opening(_show_diagnosis(panel, names[0], nodes))


async def _show_diagnosis(panel: Panel, name: str, nodes: Sequence[str]) -> None:
    from sparkctl.operations.diagnose import of_instance

    assert panel.room is not None
    asked = [node for node in panel.sparks if not nodes or node.name in nodes]
    try:
        found = await of_instance(panel.room.unasked, name, asked, None)
    except SparkctlError as error:
        panel.refuse(error)
        return
    rows = diagnosis_answer(found, _columns(panel))
    panel.push_screen(Reader(f"what the log of {name} tells", [(), *rows, ()]))


def diagnosis_answer(found: Diagnosed, columns: int) -> list[Row]:
    """Return which log that was, and what it tells."""
    from sparkctl.engines import load

    lines = diagnosis_lines(found.diagnosis, lambda name: load(name).title, found.instance, found.node)
    rows = [row(said(found.source, Tone.LABEL)), ()]
    rows += [row(said(part)) for line in lines for part in within(line, columns, _HANG)]
    for where, error in found.silent:
        rows += _trouble(f"{where}: {error.message}", error.hint, columns)
    return rows


def _columns(panel: Panel) -> int:
    return max(20, min(_WIDEST, panel.size.width - 10))
