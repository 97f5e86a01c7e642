"""What a profile's flags are held against, and the flags as one engine version reads them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparkctl.engines.flags.model import FlagCatalogue
from sparkctl.engines.lint.model import FieldPath
from sparkctl.engines.profile_flags import ProfileFlag
from sparkctl.engines.reading import FlagMatch
from sparkctl.model.sanitize import sanitize_line, truncate_text
from sparkctl.model.secrets import is_secret_name, redact


@dataclass(frozen=True, slots=True)
class FlagAdvice:
    """What no parser tells. ``names``: the name here of what has another one elsewhere, or had before; ``words``: what to do
    about a flag that is not here; ``not_alike``: of those in ``names``, which take another value than the one here."""

    names: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    not_alike: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class LintContext:
    """``title`` is the engine's (SGLang). ``others``: its other versions; ``foreign``: other engines, by title."""

    title: str
    catalogue: FlagCatalogue
    others: tuple[FlagCatalogue, ...] = ()
    foreign: tuple[tuple[str, FlagCatalogue], ...] = ()
    lore: FlagAdvice = field(default_factory=FlagAdvice)

    def __str__(self) -> str:
        return f"{self.title} {self.catalogue.version}"


@dataclass(frozen=True, slots=True)
class FlagSetting:
    """A flag as it counts: the last of those that were given. ``value``: None of a bare one; ``values``: all words behind it."""

    value: str | None
    where: FieldPath
    in_args: bool
    values: tuple[str, ...] = ()


class FlagSettings:
    """What a command line sets, asked for by any spelling of a flag."""

    def __init__(self, readings: Sequence[tuple[ProfileFlag, FlagMatch]], catalogue: FlagCatalogue) -> None:
        self._catalogue = catalogue
        self._found: dict[str, FlagSetting] = {}
        self._keys: dict[str, dict[str, str]] = {}
        for one, reading in readings:
            if reading.flag is None or one.left_out:
                continue
            value = one.values[0] if one.values else None
            if reading.key is not None:
                self._keys.setdefault(reading.flag.name, {})[reading.key] = value or ""
            self._found[reading.flag.name] = FlagSetting(
                value if reading.key is None else None, one.where, one.in_args, one.values
            )

    def get(self, name: str) -> FlagSetting | None:
        """Return what a flag is set to, None where it is not given."""
        flag = self._catalogue.by_name.get(name)
        return None if flag is None else self._found.get(flag.name)

    def value(self, name: str) -> str | None:
        """Return a flag's value, None where it has none."""
        found = self.get(name)
        return None if found is None else found.value

    def number(self, name: str) -> float | None:
        """Return a flag's value as a number (``8k`` is 8000, ``8K`` 8192), None for anything else."""
        return parse_size_number(self.value(name))

    def keys(self, name: str) -> dict[str, str]:
        """Return the keys of a JSON flag that were set one by one (``--name.key value``)."""
        flag = self._catalogue.by_name.get(name)
        return {} if flag is None else self._keys.get(flag.name, {})


_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def parse_size_number(text: str | None) -> float | None:
    """Return a number as engines write them, None for anything else."""
    if not text or len(text) > 30:
        return None
    unit = text[-1] if text[-1] in _UNITS else ""
    try:
        return float(text[: len(text) - len(unit)]) * _UNITS[unit]
    except (ValueError, OverflowError):
        return None


_BIG = re.compile(r"(?<=[:\[,\s])(-?\d+(?:\.\d+)?)[kKmMgGtT](?=[\],}\s])")


def parse_json_value(text: str) -> Any:
    """Return what a JSON value holds. Raises ValueError. vLLM (0.32) takes ``8k`` for a number in it, too."""
    try:
        return json.loads(text)
    except ValueError:
        return json.loads(_BIG.sub(r"\1", text))
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def quote_value(text: str, flag: str = "") -> str:
    """Return a value for a message: short, printable, in backticks; of a flag that is named like a secret nothing."""
    return "its value" if is_secret_name(flag) else f"`{redact(truncate_text(sanitize_line(text), 60))}`"


def has_env_reference(text: str) -> bool:
    """Tell whether a value is only known when it starts (``${PORT}``)."""
    return "$" in text
