"""What became of every key of a source: nothing that somebody wrote is dropped without a word."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Fate(StrEnum):
    """Where a key of the source ended."""

    MAPPED = "mapped"  # stands in the profile
    KEPT = "kept"  # under `extra:`, where nothing uses it
    UNSUPPORTED = "unsupported"  # left out, and `why` says why
    WITHHELD = "withheld"  # left out until the operator allows it


@dataclass(frozen=True, slots=True)
class Account:
    """One key as the source names it (``defaults.port``, ``--gpus``). ``to``: the profile's field, where there is one."""

    key: str
    fate: Fate
    to: str | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Remark:
    """Something the operator should know, and where in the profile it is of use (a dotted path, None: nowhere)."""

    text: str
    path: str | None = None


class Ledger:
    """Collects accounts, what is kept, and remarks, in the order of the source."""

    def __init__(self, *, allow: bool = False) -> None:
        self.allow = allow
        self.accounts: list[Account] = []
        self.remarks: list[Remark] = []
        self.extra: dict[str, object] = {}

    def mapped(self, key: str, to: str) -> None:
        """Note that a key stands in the profile."""
        self._note(Account(key, Fate.MAPPED, to))

    def kept(self, key: str, value: object, why: str | None = None, name: str | None = None) -> None:
        """Keep a value under ``extra:``, by the last part of its key unless ``name`` says otherwise."""
        name = name or key
        while name in self.extra and self.extra[name] != value:
            name += "_"
        self.extra[name] = value
        self._note(Account(key, Fate.KEPT, f"extra.{name}", why))

    def unsupported(self, key: str, why: str) -> None:
        """Note that a key is left out."""
        self._note(Account(key, Fate.UNSUPPORTED, None, why))

    def permits(self, key: str, why: str) -> bool:
        """Tell whether something dangerous may be imported; where not, it is noted as withheld."""
        if not self.allow:
            self._note(Account(key, Fate.WITHHELD, None, why))
        return self.allow

    def remark(self, text: str, path: str | None = None) -> None:
        """Note what the operator should know."""
        remark = Remark(text, path)
        if remark not in self.remarks:
            self.remarks.append(remark)

    def of(self, fate: Fate) -> tuple[Account, ...]:
        """Return the accounts of one fate."""
        return tuple(account for account in self.accounts if account.fate is fate)

    def _note(self, account: Account) -> None:
        if account not in self.accounts:
            self.accounts.append(account)
