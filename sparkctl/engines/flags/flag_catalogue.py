"""The flag catalogues shipped with sparkctl, each read on first use: ``engines/ENGINE/flags-VERSION.json``.

``python -m tests.tools.nightly.flags`` makes one from an installed engine.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from sparkctl import engines

_ENGINES_DIRECTORY = Path(engines.__file__).parent
_VERSION_PATTERN = re.compile(r"(?<![\d.])(\d+\.\d+(?:\.\d+)?)")


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
    extended_by: str | None = None  # a flag that brings more values from a file of the operator's

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


class CatalogueMatch(StrEnum):
    """Why this catalogue was chosen: it is for this version, for the nearest one, or the newest if no version is known."""

    EXACT = "exact"
    NEAREST = "nearest"
    NEWEST = "newest"


@dataclass(frozen=True, slots=True)
class CatalogueChoice:
    """``version``: the requested one, None if not known; ``said_by``: what names it."""

    catalogue: FlagCatalogue
    basis: CatalogueMatch
    version: str | None
    said_by: str


@cache
def list_versions(engine: str) -> tuple[str, ...]:
    """Return the versions of an engine with a catalogue, the oldest first. Lists files; reads none of them."""
    found = (file.stem.removeprefix("flags-") for file in (_ENGINES_DIRECTORY / engine).glob("flags-*.json"))
    return tuple(sorted(found, key=parse_version))


@cache
def list_engines_with_catalogue() -> tuple[str, ...]:
    """Return the engines that have a catalogue."""
    return tuple(name for name in engines.engine_names() if list_versions(name))


@cache
def load_catalogue(engine: str, version: str) -> FlagCatalogue:
    """Return one catalogue."""
    data = json.loads((_ENGINES_DIRECTORY / engine / f"flags-{version}.json").read_text("utf-8"))
    return FlagCatalogue(
        engine=data["engine"],
        version=data["version"],
        origin=data["origin"],
        flags=tuple(_parse_flag_entry(name, entry) for name, entry in data["flags"].items()),
        abbreviations=data["abbreviations"],
        underscores=data["underscores"],
        dotted=data["dotted"],
        partial=data.get("partial", False),
    )


def choose_catalogue(
    engine: str, image: str, said: str | None = None, asked: str | None = None
) -> CatalogueChoice | None:
    """Return the catalogue for a profile, None for an engine without any.

    ``asked`` (``--engine-version``) overrides ``said`` (``engine_version:``), which overrides the image's tag.
    """
    have = list_versions(engine)
    if not have:
        return None
    wanted = [
        (asked, "--engine-version"),
        (said, "engine_version"),
        (parse_version_from_tag(image, have), "the image's tag"),
    ]
    for version, said_by in wanted:
        if version is None or not parse_version(version):
            continue
        if version in have:
            return CatalogueChoice(load_catalogue(engine, version), CatalogueMatch.EXACT, version, said_by)
        return CatalogueChoice(
            load_catalogue(engine, _find_nearest_version(version, have)), CatalogueMatch.NEAREST, version, said_by
        )
    return CatalogueChoice(load_catalogue(engine, have[-1]), CatalogueMatch.NEWEST, None, "nothing")


def load_other_versions(chosen: FlagCatalogue) -> tuple[FlagCatalogue, ...]:
    """Return the catalogues of the engine's other versions."""
    return tuple(load_catalogue(chosen.engine, one) for one in list_versions(chosen.engine) if one != chosen.version)


def load_other_engines(engine: str) -> tuple[FlagCatalogue, ...]:
    """Return the newest catalogue of each other engine."""
    return tuple(load_catalogue(one, list_versions(one)[-1]) for one in list_engines_with_catalogue() if one != engine)


def parse_version_from_tag(image: str, have: tuple[str, ...]) -> str | None:
    """Return the engine version in an image's tag, None if there is none.

    Vendors number their images differently (``26.04``): an engine version begins like the known ones.
    """
    _, colon, tag = image.partition("@")[0].rpartition("/")[2].partition(":")
    begins = {parse_version(one)[0] for one in have}
    found = [one for one in _VERSION_PATTERN.findall(tag) if colon and parse_version(one)[0] in begins]
    return max(found, key=lambda one: one.count("."), default=None)


def _find_nearest_version(version: str, have: tuple[str, ...]) -> str:
    wanted = (*parse_version(version), 0, 0)[:3]

    def version_distance(one: str) -> tuple[int, ...]:
        return tuple(abs(a - b) for a, b in zip(wanted, (*parse_version(one), 0, 0)[:3], strict=True))

    return min(have, key=version_distance)


def _parse_flag_entry(name: str, entry: dict[str, Any]) -> EngineFlag:
    keys = entry.get("keys")
    return EngineFlag(
        name=name,
        aliases=tuple(entry.get("aliases", ())),
        hidden=tuple(entry.get("hidden", ())),
        takes=FlagArity(entry.get("takes", FlagArity.ONE)),
        type=FlagValueType(entry.get("type", FlagValueType.TEXT)),
        nullable=entry.get("nullable", False),
        choices=_to_optional_tuple(entry.get("choices")),
        values=_to_optional_tuple(entry.get("values")),
        old_values=tuple(entry.get("old_values", ())),
        fold_case=entry.get("fold_case", False),
        keys=None if keys is None else tuple((key, tuple(values)) for key, values in keys.items()),
        default=entry.get("default"),
        negatable=entry.get("negatable", False),
        deprecated=entry.get("deprecated", False),
        replacement=entry.get("replacement"),
        appends=entry.get("appends", False),
        extended_by=entry.get("extended_by"),
    )


def _to_optional_tuple(found: list[str] | None) -> tuple[str, ...] | None:
    return None if found is None else tuple(found)
