"""Text as a profile writes it: ``${NAME}`` and ``${NAME:-default}`` are the operator's own, ``$${`` is the text ``${``."""

from __future__ import annotations

import re
from collections.abc import Mapping

REFERENCE = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*+)(?::-(?P<default>[^}]{0,4096}+))?\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# In a shell's or compose's text: $NAME, ${NAME}, ${NAME:-default}, ${NAME-default}, ${NAME:?words}, ${NAME?words}.
_SHELL = re.compile(
    r"\$(?:(?P<bare>[A-Za-z_][A-Za-z0-9_]*)|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"(?:(?P<how>:?[-?+=])(?P<words>[^{}]*))?\})"
)


def literal(text: str) -> str:
    """Return text that means itself in a profile."""
    return text.replace("${", "$${")


def settled(text: str) -> str | None:
    """Return the text for a field that knows no references: defaults stand in, None where one has no default."""
    missing = False

    def value(match: re.Match[str]) -> str:
        nonlocal missing
        if match["name"] is None:
            return "${"
        missing = missing or match["default"] is None
        return match["default"] or ""

    found = REFERENCE.sub(value, text)
    return None if missing else found


def has_references(text: str) -> bool:
    """Tell whether something in the text comes from the operator's environment."""
    return any(match["name"] is not None for match in REFERENCE.finditer(text))


def names_in(text: str) -> tuple[str, ...]:
    """Return the variables a text asks for."""
    return tuple(match["name"] for match in REFERENCE.finditer(text) if match["name"] is not None)


def reference(name: str, default: str | None = None) -> str:
    """Return ``${NAME}`` or ``${NAME:-default}``; a default that cannot be written so is left out."""
    return f"${{{name}}}" if default is None or set(default) & set("{}") else f"${{{name}:-{default}}}"


def from_shell(text: str, known: Mapping[str, str], *, dollar: str = "") -> str:
    """Return shell-like text in a profile's notation, the variables in ``known`` replaced.

    ``dollar``: what stands for a dollar sign itself (``$$`` in compose).
    """
    out, end = "", 0
    for match in _pieces(text, dollar):
        out += literal(text[end : match.start()])
        end = match.end()
        if dollar and match[0].startswith(dollar):
            out += literal(match[0].removeprefix(dollar[1:]))
        else:
            out += _meant(match, known)
    return out + literal(text[end:])


def _pieces(text: str, dollar: str) -> list[re.Match[str]]:
    pattern = re.compile(rf"{re.escape(dollar)}\{{?|{_SHELL.pattern}") if dollar else _SHELL
    return list(pattern.finditer(text))


def _meant(match: re.Match[str], known: Mapping[str, str]) -> str:
    name = match["bare"] or match["name"]
    if name in known:
        return known[name]
    if match["how"] in ("-", ":-", "=", ":="):
        return reference(name, match["words"])
    return reference(name)


def is_name(text: str) -> bool:
    """Tell whether a variable may be called so."""
    return _NAME.fullmatch(text) is not None
