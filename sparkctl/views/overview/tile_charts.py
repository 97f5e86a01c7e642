"""What a Spark did in the last quarter of an hour, where a tile has rows to spare: throughput, the GPU's work and power.

All of them are lines that begin at nothing: what is half as high is half as much, on each Spark and at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sparkctl.model.instance import InstanceView
from sparkctl.monitor.sample_series import SeriesName
from sparkctl.views.overview.tile_model import NodeTileModel
from sparkctl.views.overview.tile_rows import Part, Space, chart_minutes, fill_series_gaps, label
from sparkctl.views.text.charts import AxisScale, render_line_chart, round_above
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, make_row

TALLEST = 6  # rows of a curve, whatever it shows: what moves must not move what stands below
_SPARE = 9
_LEAST_RATE, _LEAST_POWER = 10.0, 40.0  # tok/s and W that a scale goes up to at least
_WHOLE = 100.0


def build_throughput_chart(one: InstanceView, seen: NodeTileModel, space: Space) -> Part | None:
    """Return the throughput's curve; None where nothing was ever read of it."""
    drafting = seen.drafting.get(one.container_id or "")
    if drafting is None:
        return None
    seconds = chart_minutes(seen) * 60.0
    rates = fill_series_gaps(drafting.get_generation_rates(seen.now, seconds, space.bar * 2), seconds)
    said = None if one.numbers is None else one.numbers.generation_rate  # the figure beside it is on the scale as well
    most = max((rate for rate in (*rates, said) if rate is not None), default=0.0)
    return _part("speed", "", rates, round_above(most, _LEAST_RATE), "tok/s", space)


def build_gpu_charts(seen: NodeTileModel, space: Space) -> list[Part]:
    """Return the curves of the GPU's work and power, as far as they are known."""
    busy = _read_series(seen, SeriesName.GPU_BUSY, space.bar * 2)
    shares = [None if share is None else share * 100 for share in busy]
    power = _read_series(seen, SeriesName.POWER, space.bar * 2)
    most = seen.most_power or max_power_scale([seen])
    parts = (
        _part("gpu", "", shares, _WHOLE, "%", space),
        _part("power", "power", power, most or _LEAST_POWER, "W", space),
    )
    return [part for part in parts if part is not None]


def max_power_scale(glances: Iterable[NodeTileModel]) -> float | None:
    """Return up to how many watts the curves of these go: all have one scale; None where nothing is known."""
    known = [watts for seen in glances for watts in _watts(seen)]
    return round_above(max(known), _LEAST_POWER) if known else None


def _watts(seen: NodeTileModel) -> list[float]:
    gpus = () if seen.view.sample is None else seen.view.sample.gpus or ()
    spreads = () if seen.rings is None else seen.rings.get_buckets(SeriesName.POWER, chart_minutes(seen) * 60.0, 60)
    now = [gpu.power for gpu in gpus if gpu.power is not None]
    return [spread.most for spread in spreads if spread is not None] + now


def _read_series(seen: NodeTileModel, series: SeriesName, count: int) -> list[float | None]:
    if seen.rings is None:
        return []
    seconds = chart_minutes(seen) * 60.0
    spreads = seen.rings.get_buckets(series, seconds, count)
    return fill_series_gaps([None if spread is None else spread.mean for spread in spreads], seconds)


def _part(slot: str, name: str, values: Sequence[float | None], most: float, unit: str, space: Space) -> Part | None:
    """Return a curve with the ends of its scale beside it."""
    if all(value is None for value in values):
        return None
    scale = AxisScale(0.0, most)

    def tall(height: int) -> tuple[TextRow, ...]:
        rows = [make_row(label(""), *each) for each in render_line_chart(values, scale, height, space.ascii_only)]
        upto = f"0{'-' if space.ascii_only else '–'}{most:.0f} {unit}" if height == 1 else f"{most:5.0f} {unit}"
        rows[0] = make_row(label(name), *rows[0][1:], Span(f"  {upto}", TextStyle.UNIT))
        if height > 1:
            rows[-1] = make_row(*rows[-1], Span(f"  {0:5.0f}", TextStyle.UNIT))
        return tuple(rows)

    return Part(_SPARE, (), tall, slot, TALLEST)
