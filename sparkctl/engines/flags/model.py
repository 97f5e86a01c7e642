"""The flags of one engine version, as its argument parser defines them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum


class FlagArity(StrEnum):
    """How many words follow a flag."""

    NONE = "none"  # a switch
    ONE = "one"
    OPTIONAL = "optional"
    MANY = "many"
    ANY = "any"  # none, one or many


class FlagValueType(StrEnum):
    """The type that the parser converts a value to; any other value is text."""

    TEXT = "text"
    INT = "int"
    FLOAT = "float"
    SIZE = "size"  # 8192, 8k, 1.5M
    SIZE_OR_AUTO = "size-or-auto"
    JSON = "json"
    JSON_OR_TEXT = "json-or-text"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFlag:
    """``choices`` are checked by the parser, ``values`` only by the engine (None: any). ``keys``: of a JSON value, with
    the allowed values of each (empty: any).

    ``hidden``: aliases that still work but are no longer shown. ``nullable``: the word None is accepted, too.
    ``default`` as text, None: none, or not a short word.
    """

    name: str
    aliases: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    takes: FlagArity = FlagArity.ONE
    type: FlagValueType = FlagValueType.TEXT
    nullable: bool = False
    choices: tuple[str, ...] | None = None
    values: tuple[str, ...] | None = None
    old_values: tuple[str, ...] = ()
    fold_case: bool = False
    keys: tuple[tuple[str, tuple[str, ...]], ...] | None = None
    default: str | None = None
    negatable: bool = False  # a switch with an opposite
    deprecated: bool = False
    replacement: str | None = None
    appends: bool = False

    @property
    def spellings(self) -> tuple[str, ...]:
        """All its names, the main one first."""
        return (self.name, *self.aliases)


_VERSION_PARTS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagCatalogue:
    """``abbreviations``: a unique beginning of a long name is accepted. ``underscores``: they count as dashes.

    ``dotted``: ``--name.key value`` sets one key of a JSON value. ``origin``: how the list was made. ``partial``: the
    engine may have flags that are not listed.
    """

    engine: str
    version: str
    origin: str
    flags: tuple[EngineFlag, ...]
    abbreviations: bool = True
    underscores: bool = False
    dotted: bool = False
    partial: bool = False
    by_name: dict[str, EngineFlag] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        self.by_name.update((name, flag) for flag in self.flags for name in flag.spellings)


def parse_version(version: str) -> tuple[int, ...]:
    """Return a version as numbers, for order and distance: the first three of ``0.19.2rc1``."""
    return tuple(int(part) for part in _VERSION_PARTS.findall(version)[:3])
