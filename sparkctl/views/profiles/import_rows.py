"""What a pasted line or recipe becomes, as rows: the profile in short, where every key of it went, or why it is none. Pure."""

from __future__ import annotations

from sparkctl import engines
from sparkctl.commands.import_profile import ImportedProfile
from sparkctl.errors import SparkctlError
from sparkctl.model.finding import Severity
from sparkctl.model.profile import Profile
from sparkctl.model.sanitize import sanitize_line, sanitize_lines
from sparkctl.model.secrets import redact_word
from sparkctl.profiles.importers.import_report import KeyOutcome
from sparkctl.views.profiles.profile_import_view import format_import_report
from sparkctl.views.text.line_wrap import wrap_line
from sparkctl.views.text.state_symbols import state_symbol
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, make_row, sanitized, truncate_row

_TONES = {
    "withheld": TextStyle.ATTENTION,
    "left out": TextStyle.ATTENTION,
    "kept": TextStyle.VALUE,
    "note": TextStyle.VALUE,
}
_NAME = 10  # columns of the names of what follows


def render_import_preview(
    found: ImportedProfile | None, fault: SparkctlError | None, columns: int, ascii_only: bool
) -> list[TextRow]:
    """Return what is to be said of what was pasted, nothing where nothing was."""
    if fault is not None:
        return _fault_rows(fault, columns, ascii_only)
    if found is None:
        return []
    ledger = found.imported.ledger
    is_whole = not ledger.keys_with(KeyOutcome.UNSUPPORTED) and not ledger.keys_with(KeyOutcome.WITHHELD)
    sign, tone = (Severity.GOOD, TextStyle.GOOD) if is_whole else (Severity.WARNING, TextStyle.ATTENTION)
    head, *keys = format_import_report(found.imported, allows="")
    rows = [
        make_row(
            Span(f"{state_symbol(sign, ascii_only)} " if not at else "  ", tone), sanitized(line, TextStyle.STRONG)
        )
        for at, line in enumerate(wrap_line(head, columns - 2, 0))
    ]
    rows += _render_label("runs", _render_profile_summary(found.profile), columns, TextStyle.VALUE)
    for line in keys:
        name, _, words = line.strip().partition("  ")
        rows += _render_label(name, words.strip(), columns, _TONES.get(name, TextStyle.VALUE))
    for one in found.cautions:
        mends = f" (--set {redact_word(one.setting)})" if one.setting else ""
        rows += _render_label("check", redact_word(sanitize_line(one.message)) + mends, columns, TextStyle.ATTENTION)
    return rows


def _render_profile_summary(profile: Profile) -> str:
    """Return what will run: engine, port, model, image."""
    words = [
        engines.engine_title(profile.engine), f":{profile.port}" if profile.port is not None else "",
        profile.model.path or profile.model.served_name or "", profile.image,
    ]  # fmt: skip
    return sanitize_line("   ".join(each for each in words if each))


def _render_label(name: str, words: str, columns: int, tone: TextStyle) -> list[TextRow]:
    lines = wrap_line(words, max(8, columns - _NAME - 2), 0)
    return [
        truncate_row(
            make_row(Span(f"  {name if not at else '':<{_NAME}}", TextStyle.LABEL), sanitized(line, tone)), columns
        )
        for at, line in enumerate(lines)
    ]


def _fault_rows(fault: SparkctlError, columns: int, ascii_only: bool) -> list[TextRow]:
    """Return every fault with its place, and what to do."""
    sign = f"{state_symbol(Severity.PROBLEM, ascii_only)} "
    rows = []
    for line in sanitize_lines(fault.message):
        folded = wrap_line(line, columns - 2, 0)
        rows += [
            make_row(Span(sign if not at else "  ", TextStyle.BAD), sanitized(each, TextStyle.BAD))
            for at, each in enumerate(folded)
        ]
    hint = wrap_line(sanitize_line(fault.hint), columns - 2, 0) if fault.hint else []
    return [*rows, *(make_row(Span("  "), sanitized(line, TextStyle.LABEL)) for line in hint)]
