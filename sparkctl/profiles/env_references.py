"""References in a profile: ``${NAME}`` and ``${NAME:-default}`` are the operator's variables, ``$${`` is the text
``${``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

# ${NAME} or ${NAME:-default}; $${ is a dollar sign before a brace.
REFERENCE_PATTERN = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*+)(?::-(?P<default>[^}]{0,4096}+))?\}")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# In shell or compose text: $NAME, ${NAME}, ${NAME:-default}, ${NAME-default}, ${NAME:?words}, ${NAME?words}.
_SHELL_VARIABLE = re.compile(
    r"\$(?:(?P<bare>[A-Za-z_][A-Za-z0-9_]*)|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"(?:(?P<how>:?[-?+=])(?P<words>[^{}]*))?\})"
)


def escape_references(text: str) -> str:
    """Return text escaped so that a profile takes it literally."""
    return text.replace("${", "$${")


def resolve_defaults(text: str) -> str | None:
    """Return the text with each reference replaced by its default, None if one has no default."""
    missing = False

    def replace_reference(match: re.Match[str]) -> str:
        nonlocal missing
        if match["name"] is None:
            return "${"
        missing = missing or match["default"] is None
        return match["default"] or ""

    found = REFERENCE_PATTERN.sub(replace_reference, text)
    return None if missing else found


def has_references(text: str) -> bool:
    """Tell whether the text refers to the operator's environment."""
    return any(match["name"] is not None for match in REFERENCE_PATTERN.finditer(text))


def map_references(text: str, reference: Callable[[re.Match[str]], str], literal: Callable[[str], str] = str) -> str:
    """Return the text in another notation: each reference by ``reference``, the text between them by ``literal``."""
    out, end = "", 0
    for match in REFERENCE_PATTERN.finditer(text):
        out += literal(text[end : match.start()]) + (literal("${") if match["name"] is None else reference(match))
        end = match.end()
    return out + literal(text[end:])


def list_referenced_names(text: str) -> tuple[str, ...]:
    """Return the variables that a text refers to."""
    return tuple(match["name"] for match in REFERENCE_PATTERN.finditer(text) if match["name"] is not None)


def format_reference(name: str, default: str | None = None) -> str:
    """Return ``${NAME}`` or ``${NAME:-default}``; a default that this notation cannot hold is left out."""
    return f"${{{name}}}" if default is None or set(default) & set("{}") else f"${{{name}:-{default}}}"


def convert_shell_references(text: str, known: Mapping[str, str], *, dollar: str = "") -> str:
    """Return shell-like text in a profile's notation, with the variables in ``known`` replaced.

    ``dollar``: how the source writes a literal dollar sign (``$$`` in compose).
    """
    out, end = "", 0
    for match in _find_variables(text, dollar):
        out += escape_references(text[end : match.start()])
        end = match.end()
        if dollar and match[0].startswith(dollar):
            out += escape_references(match[0].removeprefix(dollar[1:]))
        else:
            out += _convert_variable(match, known)
    return out + escape_references(text[end:])


def _find_variables(text: str, dollar: str) -> list[re.Match[str]]:
    pattern = re.compile(rf"{re.escape(dollar)}\{{?|{_SHELL_VARIABLE.pattern}") if dollar else _SHELL_VARIABLE
    return list(pattern.finditer(text))


def _convert_variable(match: re.Match[str], known: Mapping[str, str]) -> str:
    name = match["bare"] or match["name"]
    if name in known:
        return known[name]
    if match["how"] in ("-", ":-", "=", ":="):
        return format_reference(name, match["words"])
    return format_reference(name)


def is_variable_name(text: str) -> bool:
    """Tell whether a text is a valid variable name."""
    return _VARIABLE_NAME.fullmatch(text) is not None
