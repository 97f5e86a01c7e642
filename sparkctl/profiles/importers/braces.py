"""Placeholders in recipes' commands, filled in as the recipes' own tools do it."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_BLANK_CONTINUATION = re.compile(r"\\[ \t]+\n")
_DEEPEST = 8  # a value may hold placeholders itself, even its own
_MOST = 2_000  # placeholders in one command, those in values counted


@dataclass(frozen=True, slots=True)
class FilledText:
    """``used``: the placeholders that had a value; ``missing``: those that had none and stand as they were."""

    text: str
    used: tuple[str, ...]
    missing: tuple[str, ...]


def fill_sparkrun_placeholders(text: str, values: Mapping[str, str]) -> FilledText:
    """Fill in as sparkrun does: only ``{identifier}``, those inside a value too; doubled braces collapse where some are.

    A text without a doubled opening brace keeps all it has: ``}}`` closes nested JSON there.
    """
    return _Filling(values).fill(text, 0)


class _Filling:
    """One text being filled in; values that hold placeholders of each other end at a limit."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = values
        self.left = _MOST

    def fill(self, text: str, depth: int) -> FilledText:
        doubled = "{{" in text
        used: list[str] = []
        missing: list[str] = []
        parts: list[str] = []
        end = 0
        for match in _PLACEHOLDER.finditer(text):
            if _is_doubled(match):
                continue
            parts.append(_unescape_braces(text[end : match.start()], doubled))
            end = match.end()
            name = match[1]
            self.left -= 1 + len(self.values.get(name, "")) // 100
            if name not in self.values or depth >= _DEEPEST or self.left < 0:
                missing.append(name)
                parts.append(match[0])
                continue
            inner = self.fill(self.values[name], depth + 1)
            used += [name, *inner.used]
            missing += inner.missing
            parts.append(inner.text)
        parts.append(_unescape_braces(text[end:], doubled))
        names = (tuple(dict.fromkeys(used)), tuple(dict.fromkeys(missing)))
        return FilledText(_BLANK_CONTINUATION.sub("\\\\\n", "".join(parts)), *names)


def _unescape_braces(text: str, doubled: bool) -> str:
    return text.replace("{{", "{").replace("}}", "}") if doubled else text


def fill_eugr_placeholders(text: str, values: Mapping[str, str]) -> FilledText:
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
                return fill_sparkrun_placeholders(text, values)
    except ValueError:
        return fill_sparkrun_placeholders(text, values)
    return FilledText(
        _BLANK_CONTINUATION.sub("\\\\\n", out), *(tuple(dict.fromkeys(names)) for names in (used, missing))
    )


def _is_doubled(match: re.Match[str]) -> bool:
    """``{{name}}`` is the text {name}, not a placeholder; ``{{{name}}}`` is one in braces."""
    text, start, end = match.string, match.start(), match.end()
    before = 0
    while before < start and text[start - 1 - before] == "{":
        before += 1
    return before % 2 == 1 and text[end : end + 1] == "}"
