"""Regular expressions from users (a profile's ready line, a typed filter), with a limit on their running time.

Python's ``re`` may try every way to match an expression and cannot be interrupted. So the ways are counted first: for a
text of a thousand characters ``.*a.*b`` has some millions, ``(\\w+ )+b`` far too many. A line is searched only as far as
all ways can be tried in time; an expression with too many ways for any useful length is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import factorial
from typing import Any

_LINE_LENGTHS = (16384, 8192, 4096, 2048, 1024, 512, 256, 128, 64)  # maximum characters of a line
_MAX_STEPS = 1e9  # takes some seconds on the worst possible line
_REPEAT_OPERATIONS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_CHARACTER_CLASSES = {
    "DIGIT": r"\d",
    "NOT_DIGIT": r"\D",
    "SPACE": r"\s",
    "NOT_SPACE": r"\S",
    "WORD": r"\w",
    "NOT_WORD": r"\W",
}
TOO_SLOW_MESSAGE = (
    "a repetition inside a repetition can take extremely long on some lines: write the expression without it"
)


@dataclass(frozen=True, slots=True)
class BoundedPattern:
    """An expression, and how many characters of a line it may search."""

    expression: re.Pattern[str]
    longest: int

    @property
    def pattern(self) -> str:
        """The expression as it was written."""
        return self.expression.pattern

    def search(self, text: str) -> re.Match[str] | None:
        """Return the first match in the searched part of the line."""
        if len(text) <= self.longest:
            return self.expression.search(text)
        found = self.expression.search(text, 0, self.longest)
        # `$` would match where the line is cut off, which is not its end.
        is_false_end = found is not None and found.end() == self.longest and "$" in self.expression.pattern
        return None if is_false_end else found

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """Return every match in the searched part of the line."""
        return self.expression.finditer(text, 0, self.longest)


def compile_bounded(pattern: str, flags: int = 0) -> BoundedPattern:
    """Return an expression that always ends in time. Raises ValueError with what is wrong, including `re.error`."""
    try:
        expression = re.compile(pattern, flags)
        from re import _parser  # type: ignore[attr-defined]  # the only way to see what an expression repeats

        tree = _parser.parse(pattern, flags)
    except (OverflowError, RecursionError) as error:
        raise ValueError("too large") from error
    for length in _LINE_LENGTHS:
        ways, repeats = _count_ways(tree, float(length))
        steps = ways if pattern.startswith(("^", r"\A")) and "|" not in pattern else ways * length
        if steps <= _MAX_STEPS * factorial(min(repeats + 1, 20)):
            return BoundedPattern(expression, length)
    raise ValueError(TOO_SLOW_MESSAGE)


def _count_ways(tree: Iterable[tuple[Any, Any]], length: float) -> tuple[float, int]:
    """Return the maximum number of ways to match a text of that length, and how many repetitions share it."""
    ways, repeats, items = 1.0, 0, list(tree)
    for (operation, value), (after, char) in zip(items, [*items[1:], (None, None)], strict=False):
        if str(operation) in _REPEAT_OPERATIONS and str(after) == "LITERAL" and _never_matches_char(value[2], char):
            continue  # it must end at the next character, so there is one way
        found, within = _count_operation_ways(str(operation), value, length)
        ways, repeats = min(ways * found, 1e300), repeats + within
    return ways, repeats


def _never_matches_char(body: Any, char: int) -> bool:
    """Tell whether a repetition is of single characters other than ``char``."""
    if len(body) != 1 or (operation := str(body[0][0])) not in ("IN", "LITERAL", "NOT_LITERAL"):
        return False
    value = body[0][1]
    if operation != "IN":
        return bool(value == char) is (operation == "NOT_LITERAL")
    is_negated, fits = False, False
    for kind, item in value:
        match str(kind):
            case "NEGATE":
                is_negated = True
            case "LITERAL":
                fits = fits or item == char
            case "RANGE":
                fits = fits or item[0] <= char <= item[1]
            case _:
                known = _CHARACTER_CLASSES.get(str(item).removeprefix("CATEGORY_"))
                fits = fits or known is None or re.fullmatch(known, chr(char)) is not None
    return bool(fits) is is_negated


def _count_operation_ways(operation: str, value: Any, length: float) -> tuple[float, int]:
    match operation:
        case _ if operation in _REPEAT_OPERATIONS:
            least, most, body = value
            most = min(float(most), length)
            inner, within = _count_ways(body, length)
            if operation == "POSSESSIVE_REPEAT" and inner == 1:
                return 1.0, within  # it never backtracks
            if inner > 1 and most > 1:
                return (inner**most if most * inner < 900 else 1e300) * (most - least + 1), within
            return inner * (most - least + 1), within + (most - least > 32)
        case "SUBPATTERN":
            return _count_ways(value[-1], length)
        case "ATOMIC_GROUP":
            return _count_ways(value, length)
        case "ASSERT" | "ASSERT_NOT":
            return _count_ways(value[1], length)
        case "BRANCH":
            counted = [_count_ways(one, length) for one in value[1]]
            return sum(ways for ways, _ in counted), max(within for _, within in counted)
        case "GROUPREF_EXISTS":
            counted = [_count_ways(one, length) for one in value[1:] if one is not None]
            return sum(ways for ways, _ in counted), max(within for _, within in counted)
    return 1.0, 0
