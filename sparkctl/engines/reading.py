"""What an engine's parser makes of a word: argparse's rules, and what vLLM adds to them.

Exact names go first; then a long name's unique beginning stands for it (argparse's ``allow_abbrev``), and one that begins
several names is refused, even where they are names of one flag.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from sparkctl.engines.flags.model import EngineFlag, FlagCatalogue


class FlagMatchKind(Enum):
    """By what the parser knew it."""

    EXACT = "exact"
    ABBREVIATED = "abbreviated"
    AMBIGUOUS = "ambiguous"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class FlagMatch:
    """``flag``: None where it is unknown or ambiguous. ``name``: the spelling that was found, with dashes where they count
    alike. ``key``: what follows the first dot (``mode`` of ``--compilation-config.mode``). ``matches``: of an ambiguous one."""

    how: FlagMatchKind
    name: str
    flag: EngineFlag | None = None
    key: str | None = None
    matches: tuple[str, ...] = ()


def match_flag(word: str, catalogue: FlagCatalogue) -> FlagMatch:
    """Return what becomes of a word that begins with a dash, without its ``=value``."""
    name, dot, key = word.partition(".") if catalogue.dotted else (word, "", "")
    if catalogue.underscores and name.startswith("--"):
        name = "--" + name[2:].replace("_", "-")
    whole = f"{name}.{key}" if dot else name
    if flag := catalogue.by_name.get(name):
        return FlagMatch(FlagMatchKind.EXACT, name, flag, key if dot else None)
    if not catalogue.abbreviations or not name.startswith("--") or len(name) < 3 or dot:
        return FlagMatch(FlagMatchKind.UNKNOWN, whole)
    matches = tuple(one for one in catalogue.by_name if one.startswith(name))
    if len(matches) == 1:
        return FlagMatch(FlagMatchKind.ABBREVIATED, matches[0], catalogue.by_name[matches[0]])
    return FlagMatch(
        FlagMatchKind.AMBIGUOUS if matches else FlagMatchKind.UNKNOWN, whole, matches=tuple(sorted(matches))
    )
