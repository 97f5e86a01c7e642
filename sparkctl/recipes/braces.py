"""Placeholders in recipes' commands, filled in as the recipes' own tools do it."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_BLANK_CONTINUATION = re.compile(r"\\[ \t]+\n")
_DEEPEST = 8  # a value may hold placeholders itself, even its own
_LONGEST = 200_000


@dataclass(frozen=True, slots=True)
class Filled:
    """``used``: the placeholders that had a value; ``missing``: those that had none and stand as they were."""

    text: str
    used: tuple[str, ...]
    missing: tuple[str, ...]


def by_rule(text: str, values: Mapping[str, str], depth: int = 0) -> Filled:
    """Fill in as sparkrun does: only ``{identifier}``, those inside a value too; doubled braces collapse where some are.

    A text without a doubled opening brace keeps all it has: ``}}`` closes nested JSON there.
    """
    doubled = "{{" in text
    used: list[str] = []
    missing: list[str] = []
    out, end = "", 0
    for match in _PLACEHOLDER.finditer(text):
        if _is_doubled(match):
            continue
        out += _collapsed(text[end : match.start()], doubled)
        end = match.end()
        name = match[1]
        if name not in values or depth >= _DEEPEST or len(out) > _LONGEST:
            missing.append(name)
            out += match[0]
            continue
        inner = by_rule(values[name], values, depth + 1)
        used += [name, *inner.used]
        missing += inner.missing
        out += inner.text
    out += _collapsed(text[end:], doubled)
    return Filled(_BLANK_CONTINUATION.sub("\\\\\n", out), *(tuple(dict.fromkeys(names)) for names in (used, missing)))


def _collapsed(text: str, doubled: bool) -> str:
    return text.replace("{{", "{").replace("}}", "}") if doubled else text


def by_format(text: str, values: Mapping[str, str]) -> Filled:
    """Fill in as eugr's script does, by Python's ``str.format``; what that refuses is filled in by sparkrun's rule."""
    used: list[str] = []
    missing: list[str] = []
    out = ""
    try:
        for before, name, spec, conversion in string.Formatter().parse(text):
            out += before
            if name is None:
                continue
            if name in values and not spec and not conversion:
                used.append(name)
                out += values[name]
            elif re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and not spec and not conversion:
                missing.append(name)
                out += "{" + name + "}"
            else:
                return by_rule(text, values)
    except ValueError:
        return by_rule(text, values)
    return Filled(_BLANK_CONTINUATION.sub("\\\\\n", out), *(tuple(dict.fromkeys(names)) for names in (used, missing)))


def _is_doubled(match: re.Match[str]) -> bool:
    """``{{name}}`` is the text {name}, not a placeholder; ``{{{name}}}`` is one in braces."""
    text, start, end = match.string, match.start(), match.end()
    before = len(text[:start]) - len(text[:start].rstrip("{"))
    after = len(text[end:]) - len(text[end:].lstrip("}"))
    return before % 2 == 1 and after >= 1
