"""Curves say what they say by their scale, a gap stays one, and bars of one scale can be laid beside each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparkctl.views.text.charts import (
    AxisScale,
    fill_gaps,
    fit_axis_scale,
    render_area_chart,
    render_claim_bar,
    render_gauge,
    render_sparkline,
)
from sparkctl.views.text.styled_text import TextStyle, join_text, measure_row, to_ascii

VALUES = st.lists(st.none() | st.floats(-1e12, 1e12), max_size=90)
HALF = AxisScale(0.0, 1.0)


def test_what_stays_as_it_is_is_a_line_in_the_middle_and_not_a_wall() -> None:
    scale = fit_axis_scale([100.0] * 8, 20.0)
    assert scale == AxisScale(90.0, 110.0)
    assert join_text(render_sparkline([100.0] * 8, scale)) == "⠒⠒⠒⠒"
    assert join_text(render_sparkline([1.0, 2.0, 3.0, 4.0], AxisScale(1.0, 4.0))) == "⡠⠊"


def test_a_scale_does_not_go_below_its_floor_and_holds_every_value() -> None:
    assert fit_axis_scale([1.0, 2.0], 8.0) == AxisScale(0.0, 8.0)
    assert fit_axis_scale([3.0, 50.0], 8.0) == AxisScale(3.0, 50.0)
    assert fit_axis_scale([None, None], 8.0) is None


def test_a_gap_is_a_gap_and_a_moment_between_two_readings_is_none() -> None:
    values = [0.0, None, 1.0, None, None, None, 1.0, 1.0]
    assert fill_gaps(values, 1) == [0.0, 0.5, 1.0, None, None, None, 1.0, 1.0]
    assert join_text(render_sparkline(fill_gaps(values, 1), HALF)) == "⡠⠊ ⠉".replace(
        "⡠⠊", join_text(render_sparkline([0.0, 0.5, 1.0, None], HALF))
    )
    assert join_text(render_area_chart([1.0, 1.0, None, None], HALF, 1, danger=None)[0]) == "⣿ "


def test_an_area_is_brightest_at_its_edge() -> None:
    top, bottom = render_area_chart([0.8, 0.8], HALF, 2, danger=None)
    assert [span.tone for span in top] == [TextStyle.ACCENT]
    assert [span.tone for span in bottom] == [TextStyle.BODY]
    assert join_text(bottom) == "⣿"


def test_each_quantity_keeps_its_hue_from_the_edge_to_the_ground() -> None:
    for edge, ground in ((TextStyle.RATE, TextStyle.RATE_BODY), (TextStyle.POWER, TextStyle.POWER_BODY)):
        rows = render_area_chart([0.8, 0.8], HALF, 2, edge, danger=None)
        assert [span.tone for row in rows for span in row] == [edge, ground]


@given(VALUES, st.integers(1, 8))
def test_every_row_of_a_curve_is_as_wide_as_it_has_pairs(values: list[float | None], height: int) -> None:
    scale = fit_axis_scale(values, 1.0) or HALF
    for rows in (
        render_area_chart(values, scale, height, danger=None),
        [render_sparkline(values, scale)],
    ):
        assert {measure_row(row) for row in rows} == {(len(values) + 1) // 2}
        plain = [to_ascii(join_text(row)) for row in rows]
        assert {len(line) for line in plain} == {(len(values) + 1) // 2}
        assert all(line.isascii() and "?" not in line for line in plain)


@given(st.floats(-1, 2), st.integers(1, 80))
def test_a_gauge_is_as_wide_as_asked(share: float, columns: int) -> None:
    assert measure_row(render_gauge(share, columns)) == columns


@given(st.integers(0, 200), st.none() | st.integers(0, 200), st.integers(1, 100))
def test_a_claim_is_on_the_scale_of_the_whole(memory: int, claimed: int | None, columns: int) -> None:
    assert measure_row(render_claim_bar(memory, claimed, 122, columns, tolerance=1.0)) == columns


def test_what_is_held_beyond_the_claim_stands_out() -> None:
    spans = render_claim_bar(100, 96, 120, 60, tolerance=1.0)
    assert [(span.tone, len(span.text)) for span in spans] == [
        (TextStyle.GPU, 47), (TextStyle.STRONG, 1), (TextStyle.ATTENTION, 2), (TextStyle.PLAIN, 10)
    ]  # fmt: skip
    near = render_claim_bar(100, 96, 120, 60, tolerance=1.1)
    assert TextStyle.ATTENTION not in {span.tone for span in near}, "as expected"
    spans = render_claim_bar(60, 90, 120, 60, tolerance=1.0)
    assert [(span.tone, len(span.text)) for span in spans] == [
        (TextStyle.GPU, 30), (TextStyle.FREE, 14), (TextStyle.STRONG, 1), (TextStyle.PLAIN, 15)
    ]  # fmt: skip


def test_where_height_means_danger_a_curve_goes_over_into_its_colour_step_by_step() -> None:
    danger = (0.6, 0.9)

    def paint(value: float, height: int = 8) -> list[TextStyle]:
        rows = render_area_chart([value, value], AxisScale(0.0, 1.0), height, TextStyle.GPU, danger)
        return [span.tone for row in reversed(rows) for span in row if span.text != " "]

    assert set(paint(0.3)) == {TextStyle.GPU, TextStyle.MEMORY_BODY}, "far below the limits it has its own hue"
    assert paint(0.5)[-1] is TextStyle.MEMORY_WARM
    assert paint(0.65)[-1] is TextStyle.ATTENTION
    assert paint(0.8)[-1] is TextStyle.HOT
    ramp = paint(1.0)
    assert ramp[-1] is TextStyle.BAD
    assert ramp[0] is TextStyle.MEMORY_BODY, "at its foot it has its own hue"
    order = [TextStyle.MEMORY_BODY, TextStyle.MEMORY_WARM_BODY, TextStyle.ATTENTION_BODY, TextStyle.HOT_BODY]
    places = [order.index(tone) for tone in ramp if tone in order]
    assert places == sorted(places)
    assert len(set(places)) == 4
