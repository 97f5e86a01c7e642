"""From what a container is told to run to plain words: shells and wrappers around one command are taken off."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparkctl.engines.command import find_shell_script
from sparkctl.profiles.env_references import has_references, referenced_names, resolve_defaults
from sparkctl.profiles.importers import shell_parser

_HARMLESS = re.compile(r"^(set\s+[-+]\S+(\s+pipefail)?|cd\s+(?P<directory>/\S*))$")


@dataclass(frozen=True, slots=True)
class UnwrappedCommand:
    """``words`` literal; ``env`` what the script set before its command, ``directory`` where it went. None for ``words``: it
    stays a script."""

    words: tuple[str, ...] | None
    env: tuple[tuple[str, str], ...] = ()
    script: str | None = None
    directory: str | None = None


def sole_shell_script(words: Sequence[str]) -> str | None:
    """Return the script of ``bash -lc '...'``, None for any other command, also one with words behind its script."""
    text = shell_script_text(words)
    return text if text is not None and words[-1] == text and words[-2].startswith("-") else None


def shell_script_text(words: Sequence[str]) -> str | None:
    """Return the script of a shell, whatever stands behind it; None where there is no shell with one."""
    at = find_shell_script(words)
    return None if at is None else words[at]


def unwrap_shell_command(script: str, env: Mapping[str, str]) -> UnwrappedCommand:
    """Return the one command of a script, its variables taken from ``env`` (a profile's notation)."""
    commands = shell_parser.parse_shell(
        script.strip(), {name: value for name, value in env.items() if not has_references(value)}
    )
    found: dict[str, str] = {}
    whole = UnwrappedCommand(None, (), script)
    if len(script) > shell_parser.MAX_CHARS:
        return whole
    rest: list[shell_parser.ShellCommand] = []
    directory: str | None = None
    for command in commands:
        harmless = _HARMLESS.match(_line(command))
        if harmless is None:
            rest.append(command)
        elif (went := harmless["directory"]) is not None:
            if rest or has_references(went) or command.after not in ("", "&&", ";"):
                return whole  # something may have been run elsewhere before
            directory = resolve_defaults(went)
    for position, command in enumerate(rest):
        if command.redirections or command.after not in ("", "&&", ";") or any(word.unknown for word in command.words):
            return whole
        words = list(command.words)
        exported = bool(words) and words[0].text == "export"
        words = words[1:] if exported else words
        leading: dict[str, str] = {}
        while words and (pair := shell_parser.parse_assignment(words[0])) is not None:
            leading[pair[0]] = pair[1]
            words = words[1:]
        found |= leading
        if not words:
            continue
        if exported or position != len(rest) - 1:
            return whole
        texts = [resolve_defaults(word.text) if not has_references(word.text) else None for word in words]
        if any(text is None for text in texts):
            return whole
        plain = [text for text in texts if text is not None]
        plain = plain[1:] if plain[0] == "exec" else plain
        if not plain or any(has_references(value) for value in found.values()):
            return whole
        if any(_would_split(word) for word in words):
            return whole
        return UnwrappedCommand(tuple(plain), tuple(found.items()), None, directory)
    return whole


def delete(script: str, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the variables of a script that nobody sets before it."""
    words = [word for command in shell_parser.parse_shell(script, env) for word in command.words]
    return tuple(dict.fromkeys(name for word in words for name in referenced_names(word.text)))


def _line(command: shell_parser.ShellCommand) -> str:
    return " ".join(word.text for word in command.words) if not command.redirections else "<"


def _would_split(word: shell_parser.ShellWord) -> bool:
    """A glob outside of quotes is the shell's to fill in."""
    return not word.quoted and re.search(r"\*|^~|\{[^{}]*,[^{}]*\}", word.text) is not None
