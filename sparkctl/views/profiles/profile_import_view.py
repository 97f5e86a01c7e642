"""What became of a source that was imported, as lines for people and as data for scripts."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from sparkctl.model.sanitize import sanitize_line
from sparkctl.model.secrets import redact_word
from sparkctl.profiles.importers.import_report import ImportReport, KeyOutcome, KeyRecord
from sparkctl.profiles.importers.profile_draft import ImportResult
from sparkctl.profiles.profile_lint import StartWarning

_WORDS = {KeyOutcome.KEPT: "kept", KeyOutcome.UNSUPPORTED: "left out", KeyOutcome.WITHHELD: "withheld"}


def format_import_report(imported: ImportResult, allows: str = " (--allow takes all of it)") -> list[str]:
    """Return how many keys went where, each one that is not in a field of the profile, and what should be known.

    ``allows``: how what is withheld is taken all the same.
    """
    ledger = imported.ledger
    counts = {fate: len(ledger.keys_with(fate)) for fate in KeyOutcome}
    parts = [f"{counts[KeyOutcome.MAPPED]} mapped"]
    parts += [f"{counts[KeyOutcome.KEPT]} kept under extra"] if counts[KeyOutcome.KEPT] else []
    parts += [f"{counts[KeyOutcome.UNSUPPORTED]} left out"] if counts[KeyOutcome.UNSUPPORTED] else []
    parts += [f"{counts[KeyOutcome.WITHHELD]} withheld{allows}"] if counts[KeyOutcome.WITHHELD] else []
    lines = [f"{_shown(imported.profile.name)} from {imported.kind.value}: {', '.join(parts)}"]
    for fate in (KeyOutcome.WITHHELD, KeyOutcome.UNSUPPORTED, KeyOutcome.KEPT):
        lines += [
            f"  {_WORDS[fate]:9} {_format_key_outcome(account, _allow(ledger, account) if allows else None)}"
            for account in ledger.keys_with(fate)
        ]
    lines += [f"  note      {_shown(remark.text)}" for remark in ledger.remarks]
    return lines


def build_import_json(
    imported: ImportResult, text: str, path: str | None, cautions: Sequence[StartWarning] = ()
) -> dict[str, object]:
    """Return the same as data; ``text`` is the profile's file."""
    ledger = imported.ledger
    return {
        "schema": 1,
        "kind": imported.kind.value,
        "name": imported.profile.name,
        "file": path,
        "mapped": [{"key": _shown(one.key), "to": one.to} for one in ledger.keys_with(KeyOutcome.MAPPED)],
        "kept": [
            {"key": _shown(one.key), "to": one.to, "why": _or_none(one.why)}
            for one in ledger.keys_with(KeyOutcome.KEPT)
        ],
        "unsupported": [
            {"key": _shown(one.key), "why": _or_none(one.why)} for one in ledger.keys_with(KeyOutcome.UNSUPPORTED)
        ],
        "withheld": [
            {"key": _shown(one.key), "why": _or_none(one.why), "allow": _allow(ledger, one)}
            for one in ledger.keys_with(KeyOutcome.WITHHELD)
        ],
        "notes": [_shown(remark.text) for remark in ledger.remarks],
        "cautions": [{"message": _shown(one.message), "set": _or_none(one.setting)} for one in cautions],
        "profile": text,
    }


def _allow(ledger: ImportReport, account: KeyRecord) -> str | None:
    """Return what takes this account alone; its name alone where its value may not be shown."""
    argument = ledger.allow_argument(account)
    return argument if argument is None or _shown(argument) == argument else account.allow


def _format_key_outcome(account: KeyRecord, allow: str | None) -> str:
    to = f" → {account.to}" if account.to else ""
    allow = f" (--allow {shlex.quote(allow)})" if allow else ""
    # Redacted one by one: together, the reason after a variable's name would look like its value.
    return f"{_shown(account.key)}{to}{f': {_shown(account.why)}' if account.why else ''}{allow}"


def _shown(text: str) -> str:
    return redact_word(sanitize_line(text))


def _or_none(text: str | None) -> str | None:
    return None if text is None else _shown(text)
