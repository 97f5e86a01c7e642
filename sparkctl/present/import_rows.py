"""What a pasted line or recipe becomes, as rows: the profile in short, where every key of it went, or why it is none. Pure."""

from __future__ import annotations

from sparkctl import engines
from sparkctl.errors import SparkctlError
from sparkctl.model.finding import Severity
from sparkctl.model.profile import Profile
from sparkctl.model.secrets import redact_word
from sparkctl.model.text import clean, clean_lines
from sparkctl.operations.profile_import import Written
from sparkctl.present.fold import fold
from sparkctl.present.import_report import report_lines
from sparkctl.present.spans import Row, Span, Tone, cut, row, said
from sparkctl.present.symbols import symbol
from sparkctl.recipes.ledger import Fate

_TONES = {"withheld": Tone.ATTENTION, "left out": Tone.ATTENTION, "kept": Tone.VALUE, "note": Tone.VALUE}
_NAME = 10  # columns of the names of what follows


def import_rows(found: Written | None, fault: SparkctlError | None, columns: int, ascii_only: bool) -> list[Row]:
    """Return what is to be said of what was pasted, nothing where nothing was."""
    if fault is not None:
        return _fault_rows(fault, columns, ascii_only)
    if found is None:
        return []
    ledger = found.imported.ledger
    is_whole = not ledger.of(Fate.UNSUPPORTED) and not ledger.of(Fate.WITHHELD)
    sign, tone = (Severity.GOOD, Tone.GOOD) if is_whole else (Severity.WARNING, Tone.ATTENTION)
    head, *keys = report_lines(found.imported, allows="")
    rows = [
        row(Span(f"{symbol(sign, ascii_only)} " if not at else "  ", tone), said(line, Tone.STRONG))
        for at, line in enumerate(fold(head, columns - 2, 0))
    ]
    rows += _told("runs", _short(found.profile), columns, Tone.VALUE)
    for line in keys:
        name, _, words = line.strip().partition("  ")
        rows += _told(name, words.strip(), columns, _TONES.get(name, Tone.VALUE))
    for one in found.cautions:
        mends = f" (--set {redact_word(one.setting)})" if one.setting else ""
        rows += _told("check", redact_word(clean(one.message)) + mends, columns, Tone.ATTENTION)
    return rows


def _short(profile: Profile) -> str:
    """Return what will run: engine, port, model, image."""
    words = [
        engines.title(profile.engine), f":{profile.port}" if profile.port is not None else "",
        profile.model.path or profile.model.served_name or "", profile.image,
    ]  # fmt: skip
    return clean("   ".join(each for each in words if each))


def _told(name: str, words: str, columns: int, tone: Tone) -> list[Row]:
    lines = fold(words, max(8, columns - _NAME - 2), 0)
    return [
        cut(row(Span(f"  {name if not at else '':<{_NAME}}", Tone.LABEL), said(line, tone)), columns)
        for at, line in enumerate(lines)
    ]


def _fault_rows(fault: SparkctlError, columns: int, ascii_only: bool) -> list[Row]:
    """Return every fault with its place, and what to do."""
    sign = f"{symbol(Severity.PROBLEM, ascii_only)} "
    rows = []
    for line in clean_lines(fault.message):
        folded = fold(line, columns - 2, 0)
        rows += [row(Span(sign if not at else "  ", Tone.BAD), said(each, Tone.BAD)) for at, each in enumerate(folded)]
    hint = fold(clean(fault.hint), columns - 2, 0) if fault.hint else []
    return [*rows, *(row(Span("  "), said(line, Tone.LABEL)) for line in hint)]
