"""Collect the flags that a profile gives its engine, with the position of each: in ``args``, or in ``command``."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import Any

from sparkctl.engines import engine_flags
from sparkctl.engines.engine_flags import EngineFlag, FlagCatalogue, find_profile_script
from sparkctl.engines.lint import FieldPath, LintMessage, LintRule, LintSeverity
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.profile import FlagValues, JsonValue, Profile
from sparkctl.model.text.sanitize import sanitize_line, truncate_text
from sparkctl.model.text.secrets import is_secret_name, redact

_SHELL_OPERATORS = frozenset("();<>|&")
_NUMBER_STARTS = frozenset("0123456789.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFlag:
    """One flag. ``values``: the words after it up to the next flag. ``left_out``: ``false`` in ``args``."""

    word: str
    values: tuple[str, ...]
    where: FieldPath
    in_args: bool
    is_json: bool = False
    left_out: bool = False
    inline: bool = False


def collect_profile_flags(profile: Profile) -> tuple[ProfileFlag, ...]:
    """Return the flags in the order the engine sees them: those of ``command``, then ``args``."""
    return (*_iter_command_flags(profile), *_iter_args_flags(profile))


def has_ignored_args(profile: Profile) -> bool:
    """Tell whether ``args`` come after a shell script, where nothing reads them."""
    return bool(profile.args) and find_profile_script(profile) is not None


def _iter_args_flags(profile: Profile) -> Iterator[ProfileFlag]:
    if has_ignored_args(profile):
        return
    for key, value in profile.args:
        word, where = engine_flags.flag_for_key(key), ("args", key)
        if isinstance(value, bool):
            yield ProfileFlag(word=word, values=(), where=where, in_args=True, left_out=not value)
        elif isinstance(value, JsonValue):
            yield ProfileFlag(word=word, values=(value.text,), where=where, in_args=True, is_json=True)
        elif isinstance(value, FlagValues):
            yield ProfileFlag(word=word, values=value.words, where=where, in_args=True)
        elif isinstance(value, str):
            yield ProfileFlag(word=word, values=(value,), where=where, in_args=True)
        else:
            for index, each in enumerate(value):
                yield ProfileFlag(word=word, values=(each,), where=(*where, index), in_args=True)


def _iter_command_flags(profile: Profile) -> Iterator[ProfileFlag]:
    command = profile.command or ()
    if (script := find_profile_script(profile)) is not None:
        for word, values, inline in _iter_flag_words(_skip_launch_words(split_shell_words(command[script]))):
            yield ProfileFlag(word=word, values=values, where=("command", script), in_args=False, inline=inline)
        return
    skipped = len(command) - len(_skip_launch_words(command))
    at = {index: word for index, word in enumerate(command) if index >= skipped and _is_flag(word)}
    for (index, _), (word, values, inline) in zip(at.items(), _iter_flag_words(command[skipped:]), strict=True):
        yield ProfileFlag(word=word, values=values, where=("command", index), in_args=False, inline=inline)


def _skip_launch_words(words: Sequence[str]) -> Sequence[str]:
    """Return the words after an engine's launch words; none if no launch is recognised."""
    for index, word in enumerate(words):
        name = word.rpartition("/")[2]
        if (
            "launch_server" in name
            or "api_server" in name
            or (name == "serve" and index and not _is_flag(words[index - 1]))
        ):
            rest = words[index + 1 :]
            ends = next((at for at, one in enumerate(rest) if one and _SHELL_OPERATORS.issuperset(one)), len(rest))
            return rest[:ends]
    return ()


def _iter_flag_words(words: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...], bool]]:
    for index, word in enumerate(words):
        if not _is_flag(word):
            continue
        name, equals, value = word.partition("=")
        if equals:
            yield name, (value,), True
            continue
        after = words[index + 1 :]
        ends = next((at for at, one in enumerate(after) if _is_flag(one)), len(after))
        yield name, tuple(after[:ends]), False


def _is_flag(word: str) -> bool:
    return len(word) > 1 and word[0] == "-" and word[1] not in _NUMBER_STARTS and " " not in word.partition("=")[0]


def split_shell_words(script: str) -> tuple[str, ...]:
    """Return the words of a script as a shell splits them; none if its quotes do not close."""
    parts = shlex.shlex(script.replace("\\\n", " "), posix=True, punctuation_chars=True)
    parts.whitespace_split = True
    try:
        return tuple(parts)
    except ValueError:
        return ()


class FlagMatchKind(Enum):
    """How the parser recognised the flag."""

    EXACT = "exact"
    ABBREVIATED = "abbreviated"
    AMBIGUOUS = "ambiguous"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagMatch:
    """``flag``: None if it is unknown or ambiguous. ``name``: the spelling that matched, with dashes if they count as
    equal.

    ``key``: the part after the first dot (``mode`` of ``--compilation-config.mode``). ``matches``: the candidates of an
    ambiguous flag.
    """

    how: FlagMatchKind
    name: str
    flag: EngineFlag | None = None
    key: str | None = None
    matches: tuple[str, ...] = ()


def match_flag(word: str, catalogue: FlagCatalogue) -> FlagMatch:
    """Return the match of a word that begins with a dash, without its ``=value``."""
    name, dot, key = word.partition(".") if catalogue.dotted else (word, "", "")
    if catalogue.underscores and name.startswith("--"):
        name = "--" + name[2:].replace("_", "-")
    whole = f"{name}.{key}" if dot else name
    if flag := catalogue.by_name.get(name):
        return FlagMatch(how=FlagMatchKind.EXACT, name=name, flag=flag, key=key if dot else None)
    if not catalogue.abbreviations or not name.startswith("--") or len(name) < 3 or dot:
        return FlagMatch(how=FlagMatchKind.UNKNOWN, name=whole)
    matches = tuple(one for one in catalogue.by_name if one.startswith(name))
    if len(matches) == 1:
        return FlagMatch(how=FlagMatchKind.ABBREVIATED, name=matches[0], flag=catalogue.by_name[matches[0]])
    return FlagMatch(
        how=FlagMatchKind.AMBIGUOUS if matches else FlagMatchKind.UNKNOWN, name=whole, matches=tuple(sorted(matches))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagAdvice:
    """Advice that no parser gives. ``names``: other names of a flag (older, or of other engines) and its name here.

    ``words``: what to do about a flag that this engine lacks. ``not_alike``: those of ``names`` that take another kind
    of value. ``replaceable``: flags whose value a checkpoint's own setting replaces before anything refuses it.
    ``key_values``: what a key of a JSON flag takes (``--flag.key``), in upper or lower case, or the name of the flag that takes the
    same.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    not_alike: frozenset[str] = frozenset()
    replaceable: frozenset[str] = frozenset()
    key_values: Mapping[str, tuple[str, ...] | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LintContext:
    """``title``: the engine's. ``others``: its other versions; ``foreign``: other engines, by title. ``version``: the one that runs, if known."""

    title: str
    catalogue: FlagCatalogue
    others: tuple[FlagCatalogue, ...] = ()
    foreign: tuple[tuple[str, FlagCatalogue], ...] = ()
    lore: FlagAdvice = field(default_factory=FlagAdvice)
    version: str | None = None

    def __str__(self) -> str:
        return f"{self.title} {self.catalogue.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagSetting:
    """The effective setting of a flag: the last one given. ``value``: None for a bare flag; ``values``: all words after
    it. ``name``: the spelling that was used (``--no-enable-prefix-caching``).
    """

    value: str | None
    where: FieldPath
    in_args: bool
    values: tuple[str, ...]
    name: str

    def report_flag(self, kind: LintRule, level: LintSeverity, message: str, setting: str | None = None) -> LintMessage:
        return LintMessage(
            kind=kind, level=level, where=self.where, message=message, on_key=self.in_args, setting=setting
        )

    def report_value(
        self, kind: LintRule, level: LintSeverity, message: str, setting: str | None = None
    ) -> LintMessage:
        """Return a message about the flag's value."""
        return LintMessage(kind=kind, level=level, where=self.where, message=message, on_key=False, setting=setting)


class FlagSettings:
    """The settings of a command line, found by any spelling of a flag."""

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
                value=value if reading.key is None else None,
                where=one.where,
                in_args=one.in_args,
                values=one.values,
                name=reading.name,
            )

    def find_flag(self, name: str) -> EngineFlag | None:
        """Return a flag by any of its names, None if the engine does not have it."""
        return self._catalogue.by_name.get(name)

    def get_setting(self, name: str) -> FlagSetting | None:
        """Return a flag's setting, None if it is not given."""
        flag = self.find_flag(name)
        return None if flag is None else self._found.get(flag.name)

    def get_value(self, name: str) -> str | None:
        found = self.get_setting(name)
        return None if found is None else found.value

    def get_number(self, name: str) -> float | None:
        """Return a flag's value as a number (``8k`` is 8000, ``8K`` 8192), None for anything else."""
        return parse_size_number(self.get_value(name))

    def get_json_keys(self, name: str) -> dict[str, str]:
        """Return the keys of a JSON flag that are set one by one (``--name.key value``)."""
        flag = self._catalogue.by_name.get(name)
        return {} if flag is None else self._keys.get(flag.name, {})


_SIZE_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def parse_size_number(text: str | None) -> float | None:
    """Return a number in an engine's notation, None for anything else."""
    if not text or len(text) > 30:
        return None
    unit = text[-1] if text[-1] in _SIZE_UNITS else ""
    try:
        return float(text[: len(text) - len(unit)]) * _SIZE_UNITS[unit]
    except (ValueError, OverflowError):
        return None


_JSON_SIZE_NUMBER = re.compile(r"(?<=[:\[,\s])(-?\d+(?:\.\d+)?)[kKmMgGtT](?=[\],}\s])")


def parse_json_value(text: str) -> Any:
    """Return the content of a JSON value. Raises ValueError. vLLM (0.32) also accepts ``8k`` as a number in it."""
    try:
        return json.loads(text)
    except ValueError:
        return json.loads(_JSON_SIZE_NUMBER.sub(r"\1", text))
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def quote_value(text: str, flag: str = "") -> str:
    """Return a value for a message: short, printable, in backticks; nothing for a flag with a secret's name."""
    return "its value" if is_secret_name(flag) else f"`{redact(truncate_text(sanitize_line(text), 60))}`"


def has_env_reference(text: str) -> bool:
    """Tell whether a value is known only at the start (``${PORT}``)."""
    return "$" in text
