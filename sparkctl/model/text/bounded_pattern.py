"""Regular expressions from users (a profile's ready line, a typed filter), with a limit on their running time.

Python's ``re`` may try every way to match an expression and cannot be interrupted. So its steps on the worst possible line
are counted first: a repetition tries what follows it at each of its ends, and reads to find them; it begins at every character.
For a text of a thousand characters ``x.*a.*b`` takes some millions, ``(\\w+ )+b`` far too many. A line is searched only as far
as that takes no time that anybody notices; an expression with too many steps for any useful length is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import takewhile
from math import factorial
from typing import Any

from sparkctl.model.lazy_dataclass import dataclass

_LINE_LENGTHS = (16384, 8192, 4096, 2048, 1024, 512, 256, 128, 64)  # maximum characters of a line
_MAX_STEPS = 2.5e7  # takes 0.2 s on the worst possible line: a key-press waits for it
_MANY = 1e300
Items = Sequence[tuple[Any, Any]]  # an expression as Python's own parser has it
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
    """An expression, and how many characters of a line it may search. ``searched``: the same, tried only where it can begin."""

    expression: re.Pattern[str]
    longest: int
    searched: re.Pattern[str]

    @property
    def pattern(self) -> str:
        """The expression as it was written."""
        return self.expression.pattern

    def search(self, text: str) -> re.Match[str] | None:
        """Return the first match in the searched part of the line."""
        if len(text) <= self.longest:
            return self.searched.search(text)
        found = self.searched.search(text, 0, self.longest)
        # `$` would match where the line is cut off, which is not its end.
        is_false_end = found is not None and found.end() == self.longest and "$" in self.expression.pattern
        return None if is_false_end else found

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """Return every match in the searched part of the line."""
        return self.searched.finditer(text, 0, self.longest)


@lru_cache(256)  # a profile's is checked, and compiled again for each of its logs
def compile_bounded(pattern: str, flags: int = 0) -> BoundedPattern:
    """Return an expression that always ends in time. Raises ValueError with what is wrong, including `re.error`."""
    try:
        expression = re.compile(pattern, flags)
        from re import _parser  # type: ignore[attr-defined]  # the only way to see what an expression repeats

        items = list(_parser.parse(pattern, flags))
    except (OverflowError, RecursionError) as error:
        raise ValueError("too large") from error
    is_anchored = pattern.startswith(("^", r"\A")) and "|" not in pattern
    searched = expression
    if pattern.startswith((".*", ".+")) and pattern[2:3] not in ("?", "+") and "|" not in pattern:
        # What matches further on matches from the line's beginning, too, and a greedy one then has no second match.
        is_anchored, searched = True, re.compile(rf"\A{pattern}", flags)
    chars = "".join({*map(chr, range(128)), *_OTHER_CHARS, *_list_chars(items)})
    for length in _LINE_LENGTHS:
        steps, shared = _count_steps(items, float(length), chars)
        if not is_anchored:
            steps, shared = steps * length / _count_prefix(items), shared + 1
        if steps <= _MAX_STEPS * factorial(min(shared, 20)):
            return BoundedPattern(expression, length, searched)
    raise ValueError(TOO_SLOW_MESSAGE)


def _count_prefix(items: Items) -> int:
    """Return at how many characters at least two beginnings are apart: the length of the text with which each begins."""
    chars = [value for _, value in takewhile(lambda item: str(item[0]) == "LITERAL", items)]
    is_periodic = any(chars[:size] == chars[-size:] for size in range(1, len(chars)))
    return 1 if is_periodic else max(1, len(chars))


_OTHER_CHARS = "\u00e9\u0663\u2003\u2014"  # beyond ASCII: a letter, a digit, a space, a sign


def _count_steps(
    items: Items, length: float, chars: str, after: tuple[float | None, str] = (None, "")
) -> tuple[float, int]:
    """Return the maximum number of steps from one beginning in a text of that length, and how many repetitions share the
    text. ``after``: the steps of what follows, None if nothing follows that could fail; and which of ``chars`` it begins with.
    """
    (steps, follows), shared = after, 0
    for operation, value in reversed(items):
        name = str(operation)
        first = _list_first_chars([(operation, value)], chars, follows)
        if name in _REPEAT_OPERATIONS:
            least, most, body = value[0], min(float(value[1]), length), list(value[2])
            if steps is None:
                steps = None if least == 0 else _count_steps(body, length, chars)[0] * least
            elif _is_single(body) and (
                name == "POSSESSIVE_REPEAT" or not set(follows) & set(first if least else _list_matching(body, chars))
            ):
                steps += most  # it has one end, which it looks for
                shared = max(shared, most >= length)
            else:
                ways, within = _count_operation_ways(name, value, length, chars, follows)
                steps, shared = min(ways * steps + most, _MANY), shared + within
        elif name == "SUBPATTERN":
            steps, within = _count_steps(list(value[-1]), length, chars, (steps, follows))
            shared += within
        elif name == "BRANCH":
            counted = [_count_steps(list(one), length, chars, (steps, follows)) for one in value[1]]
            steps, shared = sum(one for one, _ in counted), shared + max(within for _, within in counted)
        elif name in ("ASSERT", "ASSERT_NOT", "ATOMIC_GROUP"):  # nothing goes back into it
            inner, within = _count_steps(list(value if name == "ATOMIC_GROUP" else value[1]), length, chars)
            steps, shared = (steps or 0.0) + inner, max(shared, within)
        else:
            ways, within = _count_operation_ways(name, value, length, chars, follows)
            steps, shared = min(ways * max(steps or 1.0, 1.0), _MANY), shared + within
        follows = first
    return max(steps or 1.0, 1.0), shared


def _is_single(body: Items) -> bool:
    """Tell whether a repetition is of single characters."""
    return len(body) == 1 and str(body[0][0]) in ("IN", "LITERAL", "NOT_LITERAL", "ANY")


def _list_matching(body: Items, chars: str) -> str:
    """Return which of these characters a repetition of single characters matches, in either case."""
    if len(body) == 1 and str(body[0][0]) == "ANY":
        return chars
    if len(body) == 1 and str(body[0][0]) == "LITERAL":  # most are, and every start compiles some
        literal = chr(body[0][1])
        return "".join([char for char in chars if literal in _list_cases(char)])
    return "".join(char for char in chars if not all(_never_matches_char(body, ord(one)) for one in _list_cases(char)))


@lru_cache(1024)
def _list_cases(char: str) -> frozenset[str]:
    return frozenset(one for one in (char, char.lower(), char.upper()) if len(one) == 1)


def _list_first_chars(items: Items, chars: str, follows: str) -> str:
    """Return with which of these characters a match may begin; ``follows``: those with which what follows may begin."""
    for operation, value in reversed(items):
        name = str(operation)
        if name in _REPEAT_OPERATIONS:
            inner = _list_first_chars(list(value[2]), chars, follows)
            follows = "".join({*inner, *(follows if value[0] == 0 else "")})
        elif _is_single([(operation, value)]):
            follows = _list_matching([(operation, value)], chars)
        elif name in ("SUBPATTERN", "ATOMIC_GROUP"):
            follows = _list_first_chars(list(value[-1] if name == "SUBPATTERN" else value), chars, follows)
        elif name == "BRANCH":
            follows = "".join({char for one in value[1] for char in _list_first_chars(list(one), chars, follows)})
        elif name == "AT":
            continue
        else:
            follows = chars
    return follows


def _list_chars(items: Any) -> set[str]:
    """Return the characters that an expression names, with those beside the ends of its ranges."""
    found: set[str] = set()
    several = [items]
    while several:
        one = several.pop()
        if isinstance(one, tuple) and len(one) == 2 and str(one[0]) in ("LITERAL", "NOT_LITERAL"):
            found |= {chr(one[1])}
        elif isinstance(one, tuple) and len(one) == 2 and str(one[0]) == "RANGE":
            found |= {chr(at) for end in one[1] for at in (end - 1, end, end + 1) if 0 <= at < 0x110000}
        elif isinstance(one, (list, tuple)) or hasattr(one, "data"):
            several += list(one)
    return found


def _count_ways(items: Items, length: float, chars: str, follows: str) -> tuple[float, int]:
    """Return the maximum number of ways to match a text of that length, and how many repetitions share it."""
    ways, repeats = 1.0, 0
    for operation, value in reversed(items):
        name = str(operation)
        has_one_end = (
            name in _REPEAT_OPERATIONS
            and _is_single(list(value[2]))
            and bool(follows)
            and not set(follows) & set(_list_matching(list(value[2]), chars))
        )
        if not has_one_end:
            found, within = _count_operation_ways(name, value, length, chars, follows)
            ways, repeats = min(ways * found, _MANY), repeats + within
        follows = _list_first_chars([(operation, value)], chars, follows)
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


def _count_operation_ways(operation: str, value: Any, length: float, chars: str, follows: str) -> tuple[float, int]:
    match operation:
        case _ if operation in _REPEAT_OPERATIONS:
            least, most, body = value
            most = min(float(most), length)
            again = "".join({*follows, *_list_first_chars(list(body), chars, "")}) if most > 1 else follows
            inner, within = _count_ways(list(body), length, chars, again)
            if operation == "POSSESSIVE_REPEAT" and inner == 1:
                return 1.0, within  # it never backtracks
            if inner > 1 and most > 1:
                return (inner**most if most * inner < 900 else _MANY) * (most - least + 1), within
            return inner * (most - least + 1), within + (most >= length)
        case "SUBPATTERN":
            return _count_ways(list(value[-1]), length, chars, follows)
        case "ATOMIC_GROUP":
            return _count_ways(list(value), length, chars, "")
        case "ASSERT" | "ASSERT_NOT":
            return _count_ways(list(value[1]), length, chars, "")
        case "BRANCH":
            counted = [_count_ways(list(one), length, chars, follows) for one in value[1]]
            return sum(ways for ways, _ in counted), max(within for _, within in counted)
        case "GROUPREF_EXISTS":
            counted = [_count_ways(list(one), length, chars, follows) for one in value[1:] if one is not None]
            return sum(ways for ways, _ in counted), max(within for _, within in counted)
    return 1.0, 0
