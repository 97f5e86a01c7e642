"""Texts that make a regular expression take long, made of the expression itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

_CANDIDATES = "a0A .-_:=\"'/[(\\,;|@$\n\tZ9#%&+*~<>{}])!?^`\x1b\x00é\U0001f600x"
_MANY = 24  # repeats that may be more often than this are worth a text
_REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT)
GENERAL = (
    "a",
    " ",
    "0",
    "\\",
    '"',
    "[(",
    "a ",
    "a: ",
    "a=",
    "-",
    "\n",
    "a.",
    "://",
    "a:b@",
    '\\"',
    "'x",
    "{",
    "${a",
    "\t",
    "0.",
)


def hostile_pieces(pattern: str | bytes, flags: int) -> Sequence[tuple[str, str]]:
    """Return what to begin a text with, and what to repeat after it, so that the pattern has a lot to try."""
    tree = _parser.parse(pattern, flags)
    found: dict[tuple[str, str], None] = {("", piece): None for piece in GENERAL}
    for choice in range(3):
        whole = _make_match(tree, choice)
        if whole:
            found["", whole] = None
            found["", whole[:-1] or whole] = None
            found[whole, whole[-1]] = None
        for before, repeated in _list_repeats(tree, choice, ""):
            if repeated:
                found[before, repeated] = None
                found["", before + repeated] = None
                found["", before + repeated * 3] = None
                found[before, repeated + "\n"] = None
    return tuple(found)


def _list_repeats(tree: Any, choice: int, before: str) -> Iterator[tuple[str, str]]:
    for operation, value in tree:
        if operation in _REPEATS:
            body = value[2]
            if value[1] >= _MANY:
                yield before, _make_match(body, choice)
            yield from _list_repeats(body, choice, before)
        elif operation is _constants.SUBPATTERN:
            yield from _list_repeats(value[-1], choice, before)
        elif operation is _constants.BRANCH:
            for one in value[1]:
                yield from _list_repeats(one, choice, before)
        elif operation is _constants.ATOMIC_GROUP:
            yield from _list_repeats(value, choice, before)
        elif operation in (_constants.ASSERT, _constants.ASSERT_NOT):
            yield from _list_repeats(value[1], choice, before)
        before += _make_match([(operation, value)], choice)


def _make_match(tree: Any, choice: int) -> str:
    """Return a text that the pattern matches, nearly: what stands around it is not looked at."""
    text = ""
    for operation, value in tree:
        if operation is _constants.LITERAL:
            text += chr(value)
        elif operation is _constants.NOT_LITERAL:
            text += next(char for char in _CANDIDATES if ord(char) != value)
        elif operation is _constants.ANY:
            text += "ax .'"[choice]
        elif operation is _constants.IN:
            fitting = _list_fitting(tuple(value))
            text += fitting[choice % len(fitting)]
        elif operation in _REPEATS:
            least, most, body = value
            text += _make_match(body, choice) * max(least, min(most, 1 + choice % 2))
        elif operation is _constants.SUBPATTERN:
            text += _make_match(value[-1], choice)
        elif operation is _constants.ATOMIC_GROUP:
            text += _make_match(value, choice)
        elif operation is _constants.BRANCH:
            text += _make_match(value[1][choice % len(value[1])], choice)
    return text


@cache
def _list_fitting(items: tuple[Any, ...]) -> list[str]:
    return [char for char in _CANDIDATES if _is_in_class(char, items)] or [chr(_get_first(items))]


def _is_in_class(char: str, items: Any) -> bool:
    fits, negated = False, False
    for operation, value in items:
        if operation is _constants.NEGATE:
            negated = True
        elif operation is _constants.LITERAL:
            fits = fits or ord(char) == value
        elif operation is _constants.RANGE:
            fits = fits or value[0] <= ord(char) <= value[1]
        elif operation is _constants.CATEGORY:
            fits = fits or _is_in_category(char, str(value))
    return fits is not negated


@cache
def _is_in_category(char: str, category: str) -> bool:
    return re.match(_CATEGORIES[category], char) is not None


def _get_first(items: Any) -> int:
    return next((value if operation is _constants.LITERAL else value[0] for operation, value in items
                 if operation in (_constants.LITERAL, _constants.RANGE)), ord("a"))  # fmt: skip


_CATEGORIES = {
    "CATEGORY_DIGIT": r"\d", "CATEGORY_NOT_DIGIT": r"\D", "CATEGORY_SPACE": r"\s", "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w", "CATEGORY_NOT_WORD": r"\W",
}  # fmt: skip
