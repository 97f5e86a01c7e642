"""What a Spark did in the last quarter of an hour, where a tile has rows to spare: throughput, the GPU's work and power.

All of them are lines that begin at nothing: what is half as high is half as much, on each Spark and at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sparkctl.core.rings import Series
from sparkctl.model.instance import InstanceView
from sparkctl.present.bars import Scale, line, round_above
from sparkctl.present.glance import Glance
from sparkctl.present.spans import Row, Span, Tone, row
from sparkctl.present.tile_parts import Part, Space, label, smooth, window

TALLEST = 6  # rows of a curve, whatever it shows: what moves must not move what stands below
_SPARE = 9
_LEAST_RATE, _LEAST_POWER = 10.0, 40.0  # tok/s and W that a scale goes up to at least
_WHOLE = 100.0


def speed_part(one: InstanceView, seen: Glance, space: Space) -> Part | None:
    """Return the throughput's curve; None where nothing was ever read of it."""
    drafting = seen.drafting.get(one.container_id or "")
    if drafting is None:
        return None
    seconds = window(seen) * 60.0
    rates = smooth(drafting.rates(seen.now, seconds, space.bar * 2), seconds)
    said = None if one.numbers is None else one.numbers.generation_rate  # the figure beside it is on the scale as well
    most = max((rate for rate in (*rates, said) if rate is not None), default=0.0)
    return _part("speed", "", rates, round_above(most, _LEAST_RATE), "tok/s", space)


def gpu_parts(seen: Glance, space: Space) -> list[Part]:
    """Return the curves of the GPU's work and power, as far as they are known."""
    busy = _course(seen, Series.GPU_BUSY, space.bar * 2)
    shares = [None if share is None else share * 100 for share in busy]
    power = _course(seen, Series.POWER, space.bar * 2)
    most = seen.most_power or most_power([seen])
    parts = (
        _part("gpu", "", shares, _WHOLE, "%", space),
        _part("power", "power", power, most or _LEAST_POWER, "W", space),
    )
    return [part for part in parts if part is not None]


def most_power(glances: Iterable[Glance]) -> float | None:
    """Return up to how many watts the curves of these go: all have one scale; None where nothing is known."""
    known = [watts for seen in glances for watts in _watts(seen)]
    return round_above(max(known), _LEAST_POWER) if known else None


def _watts(seen: Glance) -> list[float]:
    gpus = () if seen.view.sample is None else seen.view.sample.gpus or ()
    spreads = () if seen.rings is None else seen.rings.cells(Series.POWER, window(seen) * 60.0, 60)
    now = [gpu.power for gpu in gpus if gpu.power is not None]
    return [spread.most for spread in spreads if spread is not None] + now


def _course(seen: Glance, series: Series, count: int) -> list[float | None]:
    if seen.rings is None:
        return []
    seconds = window(seen) * 60.0
    spreads = seen.rings.cells(series, seconds, count)
    return smooth([None if spread is None else spread.mean for spread in spreads], seconds)


def _part(slot: str, name: str, values: Sequence[float | None], most: float, unit: str, space: Space) -> Part | None:
    """Return a curve with the ends of its scale beside it."""
    if all(value is None for value in values):
        return None
    scale = Scale(0.0, most)

    def tall(height: int) -> tuple[Row, ...]:
        rows = [row(label(""), *each) for each in line(values, scale, height, space.ascii_only)]
        upto = f"0{'-' if space.ascii_only else '–'}{most:.0f} {unit}" if height == 1 else f"{most:5.0f} {unit}"
        rows[0] = row(label(name), *rows[0][1:], Span(f"  {upto}", Tone.UNIT))
        if height > 1:
            rows[-1] = row(*rows[-1], Span(f"  {0:5.0f}", Tone.UNIT))
        return tuple(rows)

    return Part(_SPARE, (), tall, slot, TALLEST)
