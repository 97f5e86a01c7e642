"""What a Spark did in the last quarter of an hour, where a tile has rows to spare: throughput, the GPU's work and power."""

from __future__ import annotations

from collections.abc import Sequence

from sparkctl.core.rings import Series
from sparkctl.model.instance import InstanceView
from sparkctl.present.bars import Scale, area, line, scale_of
from sparkctl.present.glance import Glance
from sparkctl.present.spans import Row, Span, Tone, row
from sparkctl.present.tile_parts import Part, Space, label, smooth, window

_SPARE = 9
_LEAST_RATE, _LEAST_POWER = 8.0, 40.0  # tok/s and W: what moves less is the same
_WHOLE = Scale(0.0, 100.0)


def speed_part(one: InstanceView, seen: Glance, space: Space) -> Part | None:
    """Return the throughput's curve; None where nothing was ever read of it."""
    drafting = seen.drafting.get(one.container_id or "")
    if drafting is None:
        return None
    seconds = window(seen) * 60.0
    rates = smooth(drafting.rates(seen.now, seconds, space.bar * 2), seconds)
    return _part("", rates, scale_of(rates, _LEAST_RATE), "tok/s", space)


def gpu_parts(seen: Glance, space: Space) -> list[Part]:
    """Return the curves of the GPU's work and power, as far as they are known."""
    if seen.rings is None:
        return []
    seconds = window(seen) * 60.0
    busy, power = (
        smooth(
            [None if spread is None else spread.mean for spread in seen.rings.cells(series, seconds, space.bar * 2)],
            seconds,
        )
        for series in (Series.GPU_BUSY, Series.POWER)
    )
    shares = [None if share is None else share * 100 for share in busy]
    scale = _WHOLE if any(share is not None for share in shares) else None
    parts = (_part("", shares, scale, "%", space), _part("power", power, scale_of(power, _LEAST_POWER), "W", space))
    return [part for part in parts if part is not None]


def _part(name: str, values: Sequence[float | None], scale: Scale | None, unit: str, space: Space) -> Part | None:
    """Return a curve with the ends of its scale beside it: filled where that begins at nothing, else a line."""
    if scale is None:
        return None

    def tall(height: int) -> tuple[Row, ...]:
        paint = area if scale.least == 0 else line
        rows = [row(label(""), *each) for each in paint(values, scale, height, space.ascii_only)]
        rows[0] = row(label(name), *rows[0][1:], Span(f"  {scale.most:5.0f} {unit}", Tone.UNIT))
        rows[-1] = row(*rows[-1], Span(f"  {scale.least:5.0f}", Tone.UNIT))
        return tuple(rows)

    return Part(_SPARE, (), tall)
