"""Flags: building an engine's command line from ``args``, reading flags from one, and the catalogues of each engine's flags.

A catalogue is shipped as ``engines/ENGINE/flags-VERSION.json`` and read on first use. One with a ``base`` holds only what differs from
that version's: null for a flag that it lacks. ``python -m tests.tools.nightly.flags`` makes one from an installed engine.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkctl import engines
from sparkctl.engines.base import EngineDefaults
from sparkctl.errors import InvalidInput
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text.sanitize import load_json_map

if TYPE_CHECKING:
    from sparkctl.model.profile import ArgValue, Profile


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
    aliases: tuple[str, ...]
    hidden: tuple[str, ...]
    takes: FlagArity
    type: FlagValueType
    nullable: bool
    choices: tuple[str, ...] | None
    values: tuple[str, ...] | None
    old_values: tuple[str, ...]
    fold_case: bool
    keys: tuple[tuple[str, tuple[str, ...]], ...] | None
    default: str | None
    negatable: bool  # a switch with an opposite
    deprecated: bool
    replacement: str | None
    appends: bool
    extended_by: str | None  # a flag that brings more values from a file of the operator's

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
    abbreviations: bool
    underscores: bool
    dotted: bool
    partial: bool
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
    return tuple(name for name in engines.engine_names() if list_versions(name))


@cache
def load_catalogue(engine: str, version: str) -> FlagCatalogue:
    data = json.loads((_ENGINES_DIRECTORY / engine / f"flags-{version}.json").read_text("utf-8"))
    base = load_catalogue(engine, data["base"]) if "base" in data else None
    flags = {} if base is None else {one.name: one for one in base.flags}
    flags |= {name: _parse_flag_entry(name, entry) for name, entry in data["flags"].items() if entry is not None}
    return FlagCatalogue(
        engine=data["engine"],
        version=data["version"],
        origin=data["origin"],
        flags=tuple(flags[name] for name in sorted(flags) if data["flags"].get(name, {}) is not None),
        abbreviations=data["abbreviations"],
        underscores=data["underscores"],
        dotted=data["dotted"],
        partial=data.get("partial", False),
    )


def choose_catalogue(engine: str, image: str, declared: str | None, asked: str | None = None) -> CatalogueChoice | None:
    """Return the catalogue for a profile, None for an engine without any.

    ``asked`` (``--engine-version``) overrides ``declared`` (``engine_version:``), which overrides the image's tag.
    """
    have = list_versions(engine)
    if not have:
        return None
    wanted = [
        (asked, "--engine-version"),
        (declared, "engine_version"),
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
    return tuple(load_catalogue(chosen.engine, one) for one in list_versions(chosen.engine) if one != chosen.version)


def load_other_engines(engine: str) -> tuple[FlagCatalogue, ...]:
    """Return the newest catalogue of each other engine."""
    return tuple(load_catalogue(one, list_versions(one)[-1]) for one in list_engines_with_catalogue() if one != engine)


def parse_version_from_tag(image: str, have: tuple[str, ...]) -> str | None:
    """Return the engine version in an image's tag, if it begins like known ones: vendors have other numbers (``26.04``)."""
    _, colon, tag = image.partition("@")[0].rpartition("/")[2].partition(":")
    begins = {parse_version(one)[0] for one in have}
    found = [one for one in _VERSION_PATTERN.findall(tag) if colon and parse_version(one)[0] in begins]
    return max(found, key=lambda one: one.count("."), default=None)


def _find_nearest_version(version: str, have: tuple[str, ...]) -> str:
    """Return the newest version that is not newer, else the oldest: flags come more often than they go."""
    wanted = (*parse_version(version), 0, 0)[:3]
    return max((one for one in have if (*parse_version(one), 0, 0)[:3] <= wanted), key=parse_version, default=have[0])


def _parse_flag_entry(name: str, entry: dict[str, Any]) -> EngineFlag:
    keys = entry.get("keys")
    return EngineFlag(
        name=name,
        aliases=tuple(entry.get("aliases", ())),
        hidden=tuple(entry.get("hidden", ())),
        takes=FlagArity(entry.get("takes", FlagArity.ONE)),
        # a parser may leave the JSON in a word to its reader
        type=FlagValueType(
            entry.get("type", FlagValueType.JSON if entry.get("default") == "{}" else FlagValueType.TEXT)
        ),
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


_SHELL_NAMES = ("sh", "bash", "dash", "zsh", "ash")
_SHELL_OPTIONS_WITH_FILE = ("--rcfile", "--init-file")


def find_shell_script(words: Sequence[str]) -> int | None:
    """Return the index of SCRIPT in ``bash -lc SCRIPT`` or ``bash -c -i SCRIPT``, None for any other command.

    Words after it are arguments of the script (``$0``, ``$1``): flags added to such a command have no effect.
    """
    if len(words) < 3 or words[0].rpartition("/")[2] not in _SHELL_NAMES:
        return None
    at, has_script = 1, False
    while at < len(words) and words[at][:1] in ("-", "+") and len(words[at]) > 1:
        option = words[at]
        at += 1
        if option == "--":
            break
        if option.startswith("--"):
            at += option in _SHELL_OPTIONS_WITH_FILE
            continue
        has_script = has_script or (option[0] == "-" and "c" in option)  # more options may follow: bash -c -i SCRIPT
        at += option.count("o") + option.count("O")  # each takes the next word: bash -euo pipefail -c SCRIPT
    return at if has_script and at < len(words) else None


_ALL_ARGUMENTS = re.compile(r"""(?<!\\)\$(?:[@*]|\{[@*]\})""")


def find_profile_script(profile: Profile) -> int | None:
    """Return the index of the script in a profile's command, whose shell may be its entry point; None if it has none.

    A script that hands its arguments on (``exec "$@"``) is none: the words behind it are the engine's command line.
    """
    command = profile.command or ()
    if (at := find_shell_script(command)) is None and profile.container.entrypoint:
        at = find_shell_script((profile.container.entrypoint, *command))
        at = None if at is None else at - 1
    return None if at is None or _ALL_ARGUMENTS.search(command[at]) else at


_MAX_COUNT = 1 << 50
_COUNT_PATTERN = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)([kKmMgGtT]?)", re.ASCII)
_COUNT_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}


def parse_scaled_count(text: str) -> int | None:
    """Return a whole number as engines read it, also 8k (8000), 8K (8192), 1M and 128.5k; None for anything else."""
    if (found := _COUNT_PATTERN.fullmatch(text)) is None:
        return None
    digits, unit = found[1], found[2]
    if not unit:
        return int(digits) if digits.isdigit() else None
    factor = (1000 if unit.islower() else 1024) ** _COUNT_POWERS[unit.lower()]
    whole, _, rest = digits.partition(".")
    count: int = int(whole + rest) * factor // 10 ** len(rest)
    return count if count <= _MAX_COUNT else None


class CommandFlags:
    """The words of a launch; for a shell with a script, the words of the script."""

    def __init__(self, command: Sequence[str], entrypoint: str | None = None) -> None:
        is_shell = entrypoint is not None and find_shell_script((entrypoint, *command)) is not None
        self._words = _unwrap_script_words((entrypoint, *command) if entrypoint and is_shell else command)

    def get_value(self, *flags: str) -> str | None:
        """Return the last value of these flags (names without dashes); "" for a bare flag, None if none is given."""
        wanted, found = {flag.replace("_", "-") for flag in flags}, None
        for at, word in enumerate(self._words):
            name, given, own = word.partition("=")
            if not _is_flag(name) or name.lstrip("-").replace("_", "-") not in wanted:
                continue
            following = self._words[at + 1] if at + 1 < len(self._words) else "--"
            found = own if given else "" if _is_flag(following) else following
        return found

    def has_flag(self, *flags: str) -> bool:
        """Tell whether one of these flags is given, with a value or bare."""
        return self.get_value(*flags) is not None

    def get_count(self, *flags: str) -> int | None:
        """Return a whole number, with the units that engines accept (`parse_scaled_count`); None for anything else."""
        return parse_scaled_count(self.get_value(*flags) or "")

    def get_fraction(self, *flags: str) -> float | None:
        """Return a share above 0 and at most 1; None for anything else."""
        try:
            value = float(self.get_value(*flags) or "")
        except ValueError:
            return None
        return value if math.isfinite(value) and 0 < value <= 1 else None

    def get_json(self, *flags: str) -> Mapping[str, Any]:
        """Return a flag's JSON map, an empty one if there is none."""
        return load_json_map(self.get_value(*flags)) or {}

    def get_served_model(self) -> str | None:
        """Return the model after ``serve``, if it is given without a flag."""
        for at, word in enumerate(self._words[:-1]):
            if (
                (word == "serve" or word.endswith("-serve"))
                and not _is_flag(self._words[at + 1])
                and self._words[at + 1] != "serve"
            ):
                return self._words[at + 1]
        return None


def _is_flag(word: str) -> bool:
    return word.startswith("-") and word[1:2] not in ("", *"0123456789.")


def _unwrap_script_words(command: Sequence[str]) -> tuple[str, ...]:
    script = find_shell_script(command)
    if script is None:
        return tuple(command)
    try:
        words = shlex.split(command[script], comments=True)
    except ValueError:
        words = command[script].split()
    behind = tuple(command[script + 2 :])  # after the script comes its $0, and then its arguments
    return tuple(each for word in words for each in (behind if word == "$@" else (word,)))


def parse_positive_int(value: object) -> int | None:
    """Return a number from untrusted JSON as a count: above 0, and within a plausible limit."""
    known = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MAX_COUNT
    return value if known and isinstance(value, int) else None


def flag_for_key(key: str) -> str:
    """Return the flag for a key: ``tp`` → ``--tp``, ``q`` → ``-q``; a key with a dash is unchanged."""
    if key.startswith("-"):
        return key
    return f"-{key}" if len(key) == 1 else f"--{key}"


def render_args(args: tuple[tuple[str, ArgValue], ...]) -> tuple[str, ...]:
    """Return ``args`` as words, in order: True is a bare flag, False nothing; a tuple repeats the flag."""
    from sparkctl.model.profile import FlagValues, JsonValue  # reading a log needs no profile

    out: list[str] = []
    for key, value in args:
        if isinstance(value, bool):
            out += [flag_for_key(key)] if value else []
        elif isinstance(value, JsonValue):
            out += [flag_for_key(key), value.text]
        elif isinstance(value, FlagValues):
            out += [flag_for_key(key), *value.words]
        elif isinstance(value, str):
            out += [flag_for_key(key), value]
        else:
            for item in value:
                out += [flag_for_key(key), item]
    return tuple(out)


def list_arg_flags(profile: Profile) -> frozenset[str]:
    """Return the names of all flags the profile sets itself, without dashes and with ``-`` for ``_``."""
    return frozenset(key.lstrip("-").replace("_", "-") for key, _ in profile.args)


def build_serving_flags(profile: Profile, default_port: int | None, name_flags: tuple[str, ...]) -> tuple[str, ...]:
    """Return host, port and served name, without those that ``args`` sets.

    ``name_flags``: the flags that name the model to clients, the preferred one first; empty if the engine has none.
    """
    mine: list[tuple[str, ArgValue]] = [("host", "0.0.0.0"), ("port", str(profile.port or default_port))]  # noqa: S104
    own = list_arg_flags(profile)
    if profile.model.served_name is not None and name_flags and not own & set(name_flags):
        mine.append((name_flags[0], profile.model.served_name))
    return render_args(tuple((key, value) for key, value in mine if key not in own))


def build_server_command(
    profile: Profile,
    defaults: EngineDefaults,
    model: Callable[[str, tuple[str, ...]], tuple[str, ...]],
    model_flags: AbstractSet[str] = frozenset(),
    name_flags: tuple[str, ...] = ("served-model-name",),
) -> tuple[str, ...]:
    """Return a server's words: launch, model, host, port and served name, then ``args`` in order.

    ``model`` returns the words for a model's path; they are left out if ``args`` set one of ``model_flags``. A shell
    script as command gets only ``args`` added; `profiles check` warns that nothing reads them.
    """
    command = defaults.command if profile.command is None else profile.command
    if find_profile_script(profile) is not None:
        return command + render_args(profile.args)
    path = None if list_arg_flags(profile) & model_flags else profile.model.path
    named = () if path is None else model(path, command)
    return command + named + build_serving_flags(profile, defaults.port, name_flags) + render_args(profile.args)


def find_flag_value(words: Sequence[str], *flags: str) -> str | None:
    """Return the last value of these flags on a command line, ``--flag value`` or ``--flag=value``."""
    found = None
    for at, word in enumerate(words):
        name, given, own = word.partition("=")
        if name.startswith("-") and "-" + name.lstrip("-").replace("_", "-") in {"-" + f.lstrip("-") for f in flags}:
            found = own if given else words[at + 1] if at + 1 < len(words) else None
    return found


def parse_count(text: str | None) -> int | None:
    """Return the count that a flag sets, None for anything else."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= 5 else None


def multiply_parallel_sizes(words: Sequence[str], *flags: str) -> int:
    """Return the product of the sizes that these flags set, each flag with several names: 1 if none is set."""
    return math.prod(parse_count(find_flag_value(words, *names.split())) or 1 for names in flags)


def reject_per_rank_flags(words: Sequence[str], *flags: str) -> None:
    """Raise `InvalidInput` for a flag that differs between ranks: one value for all of them cannot work."""
    for name in flags:
        if find_flag_value(words, name) is not None or f"--{name}" in words:
            raise InvalidInput(
                f"args.{name} is for one Spark of several: sparkctl gives each its own",
                f"remove args.{name} from the profile",
            )


def reject_shell_script(command: Sequence[str]) -> None:
    """Raise `InvalidInput` for a shell script as command: the words for each rank cannot be added to it."""
    if find_shell_script(command) is not None:
        raise InvalidInput(
            "command is a shell with a script of its own, and each Spark of several needs words of its own added",
            "give the engine's own command as command:, and its flags as args:",
        )
