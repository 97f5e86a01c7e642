"""When images and models were used, as an age; and how long something took."""

from __future__ import annotations

import pytest

from sparkctl.model.text.units import format_ago, format_duration

NOW = 1_780_000_000.0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "just now"),
        (59, "just now"),
        (60, "1 min ago"),
        (3599, "59 min ago"),
        (7300, "2 h ago"),
        (86400 * 40, "40 d ago"),
    ],
)
def test_an_age_is_told_in_its_largest_unit(seconds: float, text: str) -> None:
    assert format_ago(NOW - seconds, NOW) == text


def test_an_unknown_time_has_no_age() -> None:
    assert format_ago(None, NOW) == "—"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(4.25, "4.2 s"), (59.9, "59 s"), (60, "1 min"), (82, "1 min 22 s"), (3600, "1 h"), (3725, "1 h 2 min")],
)
def test_a_duration_has_one_notation_however_long_it_is(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
