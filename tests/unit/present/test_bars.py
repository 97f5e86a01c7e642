"""Curves say what they say by their scale, a gap stays one, and bars of one scale can be laid beside each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparkctl.present.bars import Scale, area, bridged, claim_bar, curve, gauge, line, scale_of
from sparkctl.present.spans import Tone, text, width

VALUES = st.lists(st.none() | st.floats(-1e12, 1e12), max_size=90)
HALF = Scale(0.0, 1.0)


def test_what_stays_as_it_is_is_a_line_in_the_middle_and_not_a_wall() -> None:
    scale = scale_of([100.0] * 8, 20.0)
    assert scale == Scale(90.0, 110.0)
    assert text(curve([100.0] * 8, scale)) == "⠒⠒⠒⠒"
    assert text(curve([1.0, 2.0, 3.0, 4.0], Scale(1.0, 4.0))) == "⡠⠊"


def test_a_scale_does_not_go_below_its_floor_and_holds_every_value() -> None:
    assert scale_of([1.0, 2.0], 8.0) == Scale(0.0, 8.0)
    assert scale_of([3.0, 50.0], 8.0) == Scale(3.0, 50.0)
    assert scale_of([None, None], 8.0) is None


def test_a_gap_is_a_gap_and_a_moment_between_two_readings_is_none() -> None:
    values = [0.0, None, 1.0, None, None, None, 1.0, 1.0]
    assert bridged(values, 1) == [0.0, 0.5, 1.0, None, None, None, 1.0, 1.0]
    assert text(curve(bridged(values, 1), HALF)) == "⡠⠊ ⠉".replace("⡠⠊", text(curve([0.0, 0.5, 1.0, None], HALF)))
    assert text(area([1.0, 1.0, None, None], HALF, 1)[0]) == "⣿ "


def test_an_area_is_brightest_at_its_edge() -> None:
    top, bottom = area([0.8, 0.8], HALF, 2)
    assert [span.tone for span in top] == [Tone.ACCENT]
    assert [span.tone for span in bottom] == [Tone.BODY]
    assert text(bottom) == "⣿"


@given(VALUES, st.integers(1, 8), st.booleans())
def test_every_row_of_a_curve_is_as_wide_as_it_has_pairs(
    values: list[float | None], height: int, ascii_only: bool
) -> None:
    scale = scale_of(values, 1.0) or HALF
    for rows in (
        area(values, scale, height, ascii_only),
        line(values, scale, height, ascii_only),
        [curve(values, scale, ascii_only)],
    ):
        assert {width(row) for row in rows} == {(len(values) + 1) // 2}
        assert not ascii_only or all(text(row).isascii() for row in rows)


@given(st.floats(-1, 2), st.integers(1, 80), st.booleans())
def test_a_gauge_is_as_wide_as_asked(share: float, columns: int, ascii_only: bool) -> None:
    assert width(gauge(share, columns, ascii_only)) == columns


@given(st.integers(0, 200), st.none() | st.integers(0, 200), st.integers(1, 100), st.booleans())
def test_a_claim_is_on_the_scale_of_the_whole(held: int, claimed: int | None, columns: int, ascii_only: bool) -> None:
    assert width(claim_bar(held, claimed, 122, columns, ascii_only)) == columns


def test_what_is_held_beyond_the_claim_stands_out() -> None:
    spans = claim_bar(100, 96, 120, 60)
    assert [(span.tone, len(span.text)) for span in spans] == [
        (Tone.GPU, 47), (Tone.STRONG, 1), (Tone.ATTENTION, 2), (Tone.PLAIN, 10)
    ]  # fmt: skip
    near = claim_bar(100, 96, 120, 60, tolerance=1.1)
    assert Tone.ATTENTION not in {span.tone for span in near}, "as expected"
    spans = claim_bar(60, 90, 120, 60)
    assert [(span.tone, len(span.text)) for span in spans] == [
        (Tone.GPU, 30), (Tone.FREE, 14), (Tone.STRONG, 1), (Tone.PLAIN, 15)
    ]  # fmt: skip
