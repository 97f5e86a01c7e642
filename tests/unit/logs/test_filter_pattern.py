"""Patterns, as typed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkctl.logs.search import parse_filter
from sparkctl.model.text.sanitize import sanitize_line


@pytest.mark.parametrize(
    ("typed", "text", "matches"),
    [
        ("oom", "CUDA OOM", True),
        ("OOM", "cuda oom", False),
        ("!info", "INFO x", False),
        ("!info", "ERROR x", True),
        (r"/took \d+ s/", "took 12 s", True),
        (r"/took \S+ s", "TOOK 12 s", True),
        ("!/^E/", "INFO", True),
        (r"\!", "what!", True),
        (r"\!", "what", False),
        (r"\/health/", "GET /health/ 200", True),
        ("a.c", "abc", False),
    ],
)
def test_patterns_match_as_typed(typed: str, text: str, matches: bool) -> None:
    pattern = parse_filter(typed)
    assert pattern is not None
    assert pattern.matches(text) is matches


@pytest.mark.parametrize("typed", ["", "!", "/", "//", "!/", "\\"])
def test_an_unfinished_pattern_is_none(typed: str) -> None:
    assert parse_filter(typed) is None


@pytest.mark.parametrize("typed", ["/(/", "/[a/", "!/*/", "/(?P<a>x)(?P<a>y)/"])
def test_a_bad_expression_says_so_and_matches_everything(typed: str) -> None:
    pattern = parse_filter(typed)
    assert pattern is not None
    assert pattern.fault
    assert pattern.matches("anything")
    assert pattern.find_matches("anything") == []


@given(st.text(max_size=12), st.text(max_size=60).map(sanitize_line))
def test_whatever_is_typed_spans_lie_in_the_text_and_say_that_it_matches(typed: str, text: str) -> None:
    pattern = parse_filter(typed)
    if pattern is None:
        return
    spans = pattern.find_matches(text)
    assert all(0 <= start < stop <= len(text) for start, stop in spans)
    if spans:
        assert pattern.matches(text)


@pytest.mark.parametrize(
    ("typed", "text", "spans"),
    [
        ("/x*/", "axxb", [(1, 3)]),
        ("/x*/", "ab", []),  # it matches between the letters, and nothing is there to highlight
        ("/^/", "ab", []),
        ("/b|$/", "ab", [(1, 2)]),
    ],
)
def test_an_empty_match_selects_its_line_and_highlights_nothing(
    typed: str, text: str, spans: list[tuple[int, int]]
) -> None:
    pattern = parse_filter(typed)
    assert pattern is not None
    assert pattern.matches(text)
    assert pattern.find_matches(text) == spans
