"""What became of a source that was imported, as lines for people and as data for scripts."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from sparkctl.core.linting import Caution
from sparkctl.model.secrets import redact_word
from sparkctl.model.text import clean
from sparkctl.recipes.draft import Imported
from sparkctl.recipes.ledger import Account, Fate, Ledger

_WORDS = {Fate.KEPT: "kept", Fate.UNSUPPORTED: "left out", Fate.WITHHELD: "withheld"}


def report_lines(imported: Imported, allows: str = " (--allow takes all of it)") -> list[str]:
    """Return how many keys went where, each one that is not in a field of the profile, and what should be known.

    ``allows``: how what is withheld is taken all the same.
    """
    ledger = imported.ledger
    counts = {fate: len(ledger.of(fate)) for fate in Fate}
    parts = [f"{counts[Fate.MAPPED]} mapped"]
    parts += [f"{counts[Fate.KEPT]} kept under extra"] if counts[Fate.KEPT] else []
    parts += [f"{counts[Fate.UNSUPPORTED]} left out"] if counts[Fate.UNSUPPORTED] else []
    parts += [f"{counts[Fate.WITHHELD]} withheld{allows}"] if counts[Fate.WITHHELD] else []
    lines = [f"{_shown(imported.profile.name)} from {imported.kind.value}: {', '.join(parts)}"]
    for fate in (Fate.WITHHELD, Fate.UNSUPPORTED, Fate.KEPT):
        lines += [
            f"  {_WORDS[fate]:9} {_told(account, _allow(ledger, account) if allows else None)}"
            for account in ledger.of(fate)
        ]
    lines += [f"  note      {_shown(remark.text)}" for remark in ledger.remarks]
    return lines


def report_document(
    imported: Imported, text: str, path: str | None, cautions: Sequence[Caution] = ()
) -> dict[str, object]:
    """Return the same as data; ``text`` is the profile's file."""
    ledger = imported.ledger
    return {
        "schema": 1,
        "kind": imported.kind.value,
        "name": imported.profile.name,
        "file": path,
        "mapped": [{"key": _shown(one.key), "to": one.to} for one in ledger.of(Fate.MAPPED)],
        "kept": [{"key": _shown(one.key), "to": one.to, "why": _or_none(one.why)} for one in ledger.of(Fate.KEPT)],
        "unsupported": [{"key": _shown(one.key), "why": _or_none(one.why)} for one in ledger.of(Fate.UNSUPPORTED)],
        "withheld": [
            {"key": _shown(one.key), "why": _or_none(one.why), "allow": _allow(ledger, one)}
            for one in ledger.of(Fate.WITHHELD)
        ],
        "notes": [_shown(remark.text) for remark in ledger.remarks],
        "cautions": [{"message": _shown(one.message), "set": _or_none(one.setting)} for one in cautions],
        "profile": text,
    }


def _allow(ledger: Ledger, account: Account) -> str | None:
    """Return what takes this account alone; its name alone where its value may not be shown."""
    argument = ledger.allow_argument(account)
    return argument if argument is None or _shown(argument) == argument else account.allow


def _told(account: Account, allow: str | None) -> str:
    to = f" → {account.to}" if account.to else ""
    allow = f" (--allow {shlex.quote(allow)})" if allow else ""
    # Redacted one by one: together, the reason after a variable's name would look like its value.
    return f"{_shown(account.key)}{to}{f': {_shown(account.why)}' if account.why else ''}{allow}"


def _shown(text: str) -> str:
    return redact_word(clean(text))


def _or_none(text: str | None) -> str | None:
    return None if text is None else _shown(text)
