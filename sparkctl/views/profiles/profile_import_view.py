"""The report of a profile import, as text and as JSON data."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from sparkctl import engines
from sparkctl.commands.import_profile import ImportedProfile
from sparkctl.errors import SparkctlError
from sparkctl.model.finding import Severity
from sparkctl.model.profile import Profile
from sparkctl.model.text.sanitize import sanitize_line, sanitize_lines
from sparkctl.model.text.secrets import redact_word
from sparkctl.profiles.importers.profile_draft import ImportReport, ImportResult, KeyOutcome, KeyRecord
from sparkctl.profiles.profile_lint import StartWarning
from sparkctl.views.text.line_wrap import wrap_text
from sparkctl.views.text.styled_text import (
    Span,
    TextRow,
    TextStyle,
    get_state_symbol,
    make_row,
)

_OUTCOME_WORDS = {KeyOutcome.KEPT: "kept", KeyOutcome.UNSUPPORTED: "left out", KeyOutcome.WITHHELD: "withheld"}


def format_import_report(imported: ImportResult, allows: str = " (--allow takes all of it)") -> list[str]:
    """Return how many keys were imported, each key that is in no field of the profile, and the notes.

    ``allows``: show how to import what is withheld.
    """
    ledger = imported.ledger
    counts = {fate: len(ledger.list_keys_by_outcome(fate)) for fate in KeyOutcome}
    parts = [f"{counts[KeyOutcome.MAPPED]} mapped"]
    parts += [f"{counts[KeyOutcome.KEPT]} kept under extra"] if counts[KeyOutcome.KEPT] else []
    parts += [f"{counts[KeyOutcome.UNSUPPORTED]} left out"] if counts[KeyOutcome.UNSUPPORTED] else []
    parts += [f"{counts[KeyOutcome.WITHHELD]} withheld{allows}"] if counts[KeyOutcome.WITHHELD] else []
    lines = [f"{_redact_text(imported.profile.name)} from {imported.kind.value}: {', '.join(parts)}"]
    for fate in (KeyOutcome.WITHHELD, KeyOutcome.UNSUPPORTED, KeyOutcome.KEPT):
        lines += [
            f"  {_OUTCOME_WORDS[fate]:9} {_format_key_outcome(account, _format_allow_argument(ledger, account) if allows else None)}"
            for account in ledger.list_keys_by_outcome(fate)
        ]
    lines += [f"  note      {_redact_text(remark.text)}" for remark in ledger.remarks]
    return lines


def build_import_json(
    imported: ImportResult, text: str, path: str | None, cautions: Sequence[StartWarning] = ()
) -> dict[str, object]:
    """Return the report as JSON data; ``text`` is the profile's file."""
    ledger = imported.ledger
    return {
        "schema": 1,
        "kind": imported.kind.value,
        "name": imported.profile.name,
        "file": path,
        "mapped": [
            {"key": _redact_text(one.key), "to": one.to} for one in ledger.list_keys_by_outcome(KeyOutcome.MAPPED)
        ],
        "kept": [
            {"key": _redact_text(one.key), "to": one.to, "why": _redact_optional_text(one.why)}
            for one in ledger.list_keys_by_outcome(KeyOutcome.KEPT)
        ],
        "unsupported": [
            {"key": _redact_text(one.key), "why": _redact_optional_text(one.why)}
            for one in ledger.list_keys_by_outcome(KeyOutcome.UNSUPPORTED)
        ],
        "withheld": [
            {
                "key": _redact_text(one.key),
                "why": _redact_optional_text(one.why),
                "allow": _format_allow_argument(ledger, one),
            }
            for one in ledger.list_keys_by_outcome(KeyOutcome.WITHHELD)
        ],
        "notes": [_redact_text(remark.text) for remark in ledger.remarks],
        "cautions": [
            {"message": _redact_text(one.message), "set": _redact_optional_text(one.setting)} for one in cautions
        ],
        "profile": text,
    }


def _format_allow_argument(ledger: ImportReport, account: KeyRecord) -> str | None:
    """Return the ``--allow`` argument for one key; only its name if its value may not be shown."""
    argument = ledger.format_allow_argument(account)
    return argument if argument is None or _redact_text(argument) == argument else account.allow


def _format_key_outcome(account: KeyRecord, allow: str | None) -> str:
    to = f" → {account.to}" if account.to else ""
    allow = f" (--allow {shlex.quote(allow)})" if allow else ""
    # Redacted separately: together, the reason after a variable's name would look like its value.
    return f"{_redact_text(account.key)}{to}{f': {_redact_text(account.why)}' if account.why else ''}{allow}"


def _redact_text(text: str) -> str:
    return redact_word(sanitize_line(text))


def _redact_optional_text(text: str | None) -> str | None:
    return None if text is None else _redact_text(text)


_LINE_STYLES = {
    "withheld": TextStyle.ATTENTION,
    "left out": TextStyle.ATTENTION,
    "kept": TextStyle.VALUE,
    "note": TextStyle.VALUE,
}
_NAME_COLUMNS = 10  # width of the labels


def render_import_preview(found: ImportedProfile | None, fault: SparkctlError | None, columns: int) -> list[TextRow]:
    """Return the preview of the pasted source; nothing for an empty one."""
    if fault is not None:
        return _render_fault(fault, columns)
    if found is None:
        return []
    ledger = found.imported.ledger
    is_whole = not ledger.list_keys_by_outcome(KeyOutcome.UNSUPPORTED) and not ledger.list_keys_by_outcome(
        KeyOutcome.WITHHELD
    )
    sign, tone = (Severity.GOOD, TextStyle.GOOD) if is_whole else (Severity.WARNING, TextStyle.ATTENTION)
    head, *keys = format_import_report(found.imported, allows="")
    rows = wrap_text(head, columns, TextStyle.STRONG, head=make_row(Span(f"{get_state_symbol(sign)} ", tone)))
    rows += _render_label("runs", _render_profile_summary(found.profile), columns, TextStyle.VALUE)
    for line in keys:
        name, _, words = line.strip().partition("  ")
        rows += _render_label(name, words.strip(), columns, _LINE_STYLES.get(name, TextStyle.VALUE))
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
    label = Span(f"  {name:<{_NAME_COLUMNS}}", TextStyle.LABEL)
    return wrap_text(words, columns, tone, head=make_row(label))


def _render_fault(fault: SparkctlError, columns: int) -> list[TextRow]:
    """Return every fault with its place, and what to do."""
    sign = make_row(Span(f"{get_state_symbol(Severity.PROBLEM)} ", TextStyle.BAD))
    rows = [row for line in sanitize_lines(fault.message) for row in wrap_text(line, columns, TextStyle.BAD, head=sign)]
    return rows + (wrap_text(fault.hint, columns, TextStyle.LABEL, head=make_row("  ")) if fault.hint else [])
