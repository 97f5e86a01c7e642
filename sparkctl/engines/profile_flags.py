"""The flags that a profile gives its engine, each with where it stands: in ``args``, or in the words of ``command``."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sparkctl.engines import command_builder
from sparkctl.engines.command import find_shell_script
from sparkctl.engines.lint.model import FieldPath
from sparkctl.model.profile import FlagValues, JsonValue, Profile

_SHELL = frozenset("();<>|&")
_NUMBER = frozenset("0123456789.")


@dataclass(frozen=True, slots=True)
class ProfileFlag:
    """One flag. ``values``: the words after it, as far as none of them is a flag. ``left_out``: ``false`` in ``args``."""

    word: str
    values: tuple[str, ...]
    where: FieldPath
    in_args: bool
    is_json: bool = False
    left_out: bool = False
    inline: bool = False


def collect_profile_flags(profile: Profile) -> tuple[ProfileFlag, ...]:
    """Return the flags in the order in which the engine sees them: those of ``command``, then ``args``."""
    return (*_of_command(profile.command or ()), *_of_args(profile))


def has_ignored_args(profile: Profile) -> bool:
    """Tell whether ``args`` stand behind a shell's script, where nobody reads them."""
    return bool(profile.args) and find_shell_script(profile.command or ()) is not None


def _of_args(profile: Profile) -> Iterator[ProfileFlag]:
    if has_ignored_args(profile):
        return
    for key, value in profile.args:
        word, where = command_builder.flag_for_key(key), ("args", key)
        if isinstance(value, bool):
            yield ProfileFlag(word, (), where, in_args=True, left_out=not value)
        elif isinstance(value, JsonValue):
            yield ProfileFlag(word, (value.text,), where, in_args=True, is_json=True)
        elif isinstance(value, FlagValues):
            yield ProfileFlag(word, value.words, where, in_args=True)
        elif isinstance(value, str):
            yield ProfileFlag(word, (value,), where, in_args=True)
        else:
            for index, each in enumerate(value):
                yield ProfileFlag(word, (each,), (*where, index), in_args=True)


def _of_command(command: tuple[str, ...]) -> Iterator[ProfileFlag]:
    if (script := find_shell_script(command)) is not None:
        for word, values, inline in _flags(_words_after_launch(_shell_words(command[script]))):
            yield ProfileFlag(word, values, ("command", script), in_args=False, inline=inline)
        return
    skipped = len(command) - len(_words_after_launch(command))
    at = {index: word for index, word in enumerate(command) if index >= skipped and _is_flag(word)}
    for (index, _), (word, values, inline) in zip(at.items(), _flags(command[skipped:]), strict=True):
        yield ProfileFlag(word, values, ("command", index), in_args=False, inline=inline)


def _words_after_launch(words: Sequence[str]) -> Sequence[str]:
    """Return what an engine gets of a command line: the words after its launch; none where it is not seen to be started."""
    for index, word in enumerate(words):
        name = word.rpartition("/")[2]
        if (
            "launch_server" in name
            or "api_server" in name
            or (name == "serve" and index and not _is_flag(words[index - 1]))
        ):
            rest = words[index + 1 :]
            ends = next((at for at, one in enumerate(rest) if one and _SHELL.issuperset(one)), len(rest))
            return rest[:ends]
    return ()


def _flags(words: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...], bool]]:
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
    return len(word) > 1 and word[0] == "-" and word[1] not in _NUMBER and " " not in word.partition("=")[0]


def _shell_words(script: str) -> tuple[str, ...]:
    """Return the words of a script as a shell would part them; none of one whose quotes do not close."""
    parts = shlex.shlex(script.replace("\\\n", " "), posix=True, punctuation_chars=True)
    parts.whitespace_split = True
    try:
        return tuple(parts)
    except ValueError:
        return ()
