"""What an engine's parser makes of a word: argparse's rules, and what vLLM adds to them.

Exact names go first; then a long name's unique beginning stands for it (argparse's ``allow_abbrev``), and one that begins
several names is refused, even where they are names of one flag.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from sparkctl.model.flags import Flag, FlagCatalogue


class How(Enum):
    """By what the parser knew it."""

    EXACT = "exact"
    ABBREVIATED = "abbreviated"
    AMBIGUOUS = "ambiguous"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Reading:
    """``flag``: None where it is unknown or ambiguous. ``name``: the spelling that was found, with dashes where they count
    alike. ``key``: what follows the first dot (``mode`` of ``--compilation-config.mode``). ``matches``: of an ambiguous one."""

    how: How
    name: str
    flag: Flag | None = None
    key: str | None = None
    matches: tuple[str, ...] = ()


def read(word: str, catalogue: FlagCatalogue) -> Reading:
    """Return what becomes of a word that begins with a dash, without its ``=value``."""
    name, dot, key = word.partition(".") if catalogue.dotted else (word, "", "")
    if catalogue.underscores and name.startswith("--"):
        name = "--" + name[2:].replace("_", "-")
    whole = f"{name}.{key}" if dot else name
    if flag := catalogue.by_name.get(name):
        return Reading(How.EXACT, name, flag, key if dot else None)
    if not catalogue.abbreviations or not name.startswith("--") or len(name) < 3 or dot:
        return Reading(How.UNKNOWN, whole)
    matches = tuple(one for one in catalogue.by_name if one.startswith(name))
    if len(matches) == 1:
        return Reading(How.ABBREVIATED, matches[0], catalogue.by_name[matches[0]])
    return Reading(How.AMBIGUOUS if matches else How.UNKNOWN, whole, matches=tuple(sorted(matches)))
