"""Each text that a failure rule matches holds one of its needles: a line without them is never asked."""

from __future__ import annotations

import importlib
import random
import re
from collections.abc import Callable, Iterator
from itertools import islice
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

from sparkctl.engines import engine_names
from sparkctl.engines.log_rules import DIGITS_TO_ZERO, FailureRule, LogRules, RuleFinder

EXAMPLES = 60  # a pattern, with other branches each time


def list_rules() -> list[FailureRule]:
    modules = [importlib.import_module(f"sparkctl.engines.{name}") for name in engine_names()]
    rules = [
        rule
        for module in modules
        for value in vars(module).values()
        if isinstance(value, LogRules)
        for rule in value.rules
    ]
    return list({rule.pattern: rule for rule in rules}.values())


def make_examples(pattern: str) -> Iterator[str]:
    """Yield texts that a pattern may match: what is optional is left out."""
    tree, dice = parser.parse(pattern), random.Random(1)
    for _ in range(EXAMPLES):
        yield _make_text(tree, dice.randrange)


def _make_text(tree: Any, choose: Callable[[int], int]) -> str:
    text = ""
    for code, value in tree:
        if code is codes.LITERAL:
            text += chr(value)
        elif code is codes.NOT_LITERAL:
            text += "x" if value != ord("x") else "y"
        elif code is codes.ANY:
            text += "x"
        elif code is codes.IN:
            text += _make_character(value)
        elif code is codes.SUBPATTERN:
            text += _make_text(value[3], choose)
        elif code is codes.ATOMIC_GROUP:
            text += _make_text(value, choose)
        elif code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
            text += "".join(_make_text(value[2], choose) for _ in range(value[0]))
        elif code is codes.BRANCH:
            text += _make_text(value[1][choose(len(value[1]))], choose)
        elif code is codes.GROUPREF_EXISTS:  # of a group that is left out
            text += _make_text(value[2] or (), choose)
    return text


def _make_character(members: Any) -> str:
    allowed = re.compile("") if members[0][0] is codes.NEGATE else None
    if allowed is not None:
        refused = {chr(value) for code, value in members[1:] if code is codes.LITERAL}
        return next(one for one in "x1 _-" if one not in refused)
    code, value = members[0]
    if code is codes.LITERAL:
        return chr(value)
    if code is codes.RANGE:
        return chr(value[0])
    return {codes.CATEGORY_DIGIT: "1", codes.CATEGORY_SPACE: " "}.get(value, "x")


@pytest.mark.parametrize("rule", list_rules(), ids=lambda rule: f"{rule.cause}-{rule.pattern[-30:]}")
def test_what_a_rule_matches_holds_a_needle(rule: FailureRule) -> None:
    matched = [text for text in make_examples(rule.pattern) if re.search(rule.pattern, text)]
    assert matched, "no example of this pattern was made"
    assert [text for text in matched if not any(needle in text for needle in rule.needles)] == []


def test_no_needle_is_in_every_line() -> None:
    assert [needle for rule in list_rules() for needle in rule.needles if len(needle.strip()) < 4] == []


@pytest.mark.parametrize("rule", list_rules(), ids=lambda rule: f"{rule.cause}-{rule.pattern[-30:]}")
def test_a_line_that_matches_is_known_by_its_shape(rule: FailureRule) -> None:
    """A pattern with certain digits is also asked with any digit in their place, once for each shape of a line."""
    finder = RuleFinder((rule,))
    for text in islice(make_examples(rule.pattern), 20):
        if rule.exception and rule.match_failure(text) is None:
            text = f"RuntimeError: {text}"
        shape = text.translate(DIGITS_TO_ZERO)
        changed = next((other for digit in "123456789" if (other := shape.replace("0", digit)) != text), text)
        if rule.match_failure(text) is not None and rule.match_failure(changed) is None and "0" in shape:
            assert finder.depends_on_digits(text, shape), text
        finder.depends_on_digits(rule.needles[0] + " 0", rule.needles[0] + " 0")  # each general form is a pattern
