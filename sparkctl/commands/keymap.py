"""Keys as an operator writes them and as terminals tell of them. Pure."""

from __future__ import annotations

import re
import unicodedata

_KEY = re.compile(r"(?:(?:ctrl|shift|alt)\+)*(?:[a-z][a-z0-9_]*|[a-zA-Z0-9])")
_NAMED = frozenset(
    ("up", "down", "left", "right", "home", "end", "pageup", "pagedown", "enter", "escape", "tab", "space", "backspace",
     "delete", "insert", *(f"f{number}" for number in range(1, 25)))
)  # fmt: skip
_KEY_ALIASES = {
    "solidus": "slash", "reverse_solidus": "backslash", "commercial_at": "at", "hyphen_minus": "minus",
    "plus_sign": "plus", "low_line": "underscore",
}  # fmt: skip
RESERVED_KEYS = frozenset(("ctrl+c",))  # copies a selection; the terminal's own way out stays what it is


def parse_key(text: str) -> str:
    """Return a key as terminals are told of it: ``?`` is ``question_mark``. Raises ValueError for what is no key."""
    if len(text) == 1 and text.isprintable() and not text.isspace():
        if text.isalnum():
            return text
        name = unicodedata.name(text).lower().replace("-", "_").replace(" ", "_")
        return _KEY_ALIASES.get(name, name)
    *_, last = text.split("+")
    if not _KEY.fullmatch(text) or (len(last) > 1 and last not in _NAMED and not _is_sign(last)):
        raise ValueError(f"{text!r} is no key; write for example x, ?, f5, ctrl+d or shift+tab")
    if text in RESERVED_KEYS:
        raise ValueError(f"{text} stays what it is in every terminal")
    return text


def _is_sign(name: str) -> bool:
    if name in _KEY_ALIASES.values():
        return True
    try:
        unicodedata.lookup(name.replace("_", " "))
    except KeyError:
        return False
    return True
