"""Benchmarks as pictures: bars in the terminal, and a PNG or SVG by matplotlib, which the extra ``[bench]`` brings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sparkctl.errors import InvalidInput, OperationRefused
from sparkctl.model.bench import BenchCell, BenchRun, CellResult, DomainKey
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, make_row

_BAR_COLUMNS = 40
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_COLORS = ("#4c78a8", "#76b900", "#e0823d", "#8f63b5")
_INK, _FAINT, _GRID = "#22262b", "#6a7178", "#e4e7ea"
_INSTALL_HINT = "pip install 'dgx-sparkctl[bench]'"
_DOTS_PER_INCH = 160
_PANEL_WIDTH, _PANEL_HEIGHT = 7.4, 4.3  # inches


@dataclass(frozen=True, slots=True)
class ChartPoint:
    """A value at a place of the axis: a number, or a word where the axis has kinds. ``low`` and ``high`` of its runs."""

    at: int | str
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One picture: a line of points for each series."""

    title: str
    axis: str
    unit: str
    series: tuple[tuple[str, tuple[ChartPoint, ...]], ...]

    @property
    def has_kinds(self) -> bool:
        """Tell whether its axis has words: it is drawn as bars."""
        return any(isinstance(point.at, str) for _, points in self.series for point in points)


def build_charts(runs: Sequence[BenchRun]) -> list[Chart]:
    """Return the pictures of these runs: by concurrency, depth or kind of text. Raises `InvalidInput` where nothing was measured."""
    charts = [
        *_build_size_charts(runs, "concurrency", "depth", "requests at a time"),
        *_build_size_charts(runs, "depth", "concurrency", "tokens of context before the prompt"),
        *_build_domain_charts(runs),
    ]
    if not charts:
        raise InvalidInput("there is no measurement to draw", "sparkctl bench list")
    return charts


def _name_run(run: BenchRun, runs: Sequence[BenchRun]) -> str:
    is_clear = sum(one.instance == run.instance for one in runs) == 1
    return sanitize_line(run.instance) if is_clear else f"{sanitize_line(run.instance)}, no {run.number}"


def _build_size_charts(runs: Sequence[BenchRun], along: str, fixed: str, axis: str) -> list[Chart]:
    """Return throughput along one size of the cells, at the smallest sizes beside it that all runs have; where they have none in
    common, each at its own, which its name tells. One cell alone has no depth chart.
    """

    def read_others(cell: BenchCell) -> tuple[int, int, int]:
        return getattr(cell, fixed), cell.pp, cell.tg

    measured = {run.number: [one for one in run.results if one.generation_rate is not None] for run in runs}
    known = [run for run in runs if measured[run.number]]
    if not known:
        return []
    common = set.intersection(*({read_others(one.cell) for one in measured[run.number]} for run in known))
    series = []
    for run in known:
        others = min(common or {read_others(one.cell) for one in measured[run.number]})
        line = [one for one in measured[run.number] if read_others(one.cell) == others]
        name = _name_run(run, runs) + ("" if common else f", {_name_sizes(fixed, *others)}")
        series.append((name, tuple(sorted((_make_point(one, along) for one in line), key=lambda one: int(one.at)))))
    title = f"Generation by {along}" + (f", {_name_sizes(fixed, *min(common))}" if common else "")
    places = {point.at for _, points in series for point in points}
    if len(places) < 2 and along == "depth":
        return []
    if len(places) < 2 and any(len({one.cell.depth for one in run.results}) > 1 for run in runs):
        return []  # by depth it says more
    return [Chart(title=title, axis=axis, unit="tokens/s", series=tuple(series))]


def _name_sizes(fixed: str, value: int, pp: int, tg: int) -> str:
    more = f" c{value}" if fixed == "concurrency" else f" @ d{value}" if value else ""
    return f"pp{pp} tg{tg}{more}"


def _make_point(one: CellResult, along: str) -> ChartPoint:
    rate = one.generation_rate
    assert rate is not None
    return ChartPoint(getattr(one.cell, along), rate.median, rate.low, rate.high)


def _build_domain_charts(runs: Sequence[BenchRun]) -> list[Chart]:
    passes = [(run, thinking) for run in runs for thinking in dict.fromkeys(one.thinking for one in run.domains)]
    lengths, rates = [], []
    for run, thinking in passes:
        mine = [one for one in run.domains if one.thinking == thinking]
        name = str(DomainKey(_name_run(run, runs), thinking))
        lengths.append((name, tuple(
            ChartPoint(sanitize_line(one.domain), value, value, value) for one in mine if (value := one.accept_length) is not None
        )))  # fmt: skip
        rates.append((name, tuple(
            ChartPoint(sanitize_line(one.domain), rate.median, rate.low, rate.high)
            for one in mine if (rate := one.generation_rate) is not None
        )))  # fmt: skip
    found = (
        ("Tokens per step, by kind of text", "tokens/step", lengths),
        ("Generation by kind of text", "tokens/s", rates),
    )
    return [
        Chart(title=title, axis="", unit=unit, series=tuple(one for one in series if one[1]))
        for title, unit, series in found
        if any(points for _, points in series)
    ]


def list_series(charts: Sequence[Chart]) -> list[str]:
    """Return the names of all series: the place of one is its colour, the same in each picture."""
    fullest_first = sorted(charts, key=lambda one: -len(one.series))
    return list(dict.fromkeys(name for chart in fullest_first for name, _ in chart.series))


def render_charts(charts: Sequence[Chart]) -> list[TextRow]:
    rows: list[TextRow] = []
    all_names = list_series(charts)
    for chart in charts:
        most = max(point.value for _, points in chart.series for point in points) or 1.0
        places = list(dict.fromkeys(point.at for _, points in chart.series for point in points))
        names = max(len(name) for name, _ in chart.series)
        width = max(len(str(at)) for at in places)
        rows += [make_row(""), make_row(Span(chart.title, TextStyle.STRONG), Span(f"  {chart.unit}", TextStyle.LABEL))]
        for at in places if chart.has_kinds else sorted(places, key=lambda one: int(one)):
            label = str(at)
            for name, points in chart.series:
                point = next((one for one in points if one.at == at), None)
                bar = "" if point is None else _format_bar(point.value / most)
                style = (TextStyle.LABEL, TextStyle.GOOD, TextStyle.ACCENT, TextStyle.VALUE)[all_names.index(name) % 4]
                figure = "not known" if point is None else f" {point.value:.2f}" if most < 10 else f" {point.value:.1f}"
                rows.append(
                    make_row(
                        f"{label:>{width}}  ", Span(f"{name:<{names}}  ", TextStyle.LABEL), Span(bar, style), figure
                    )
                )
                label = ""
    return rows[1:]


def _format_bar(share: float) -> str:
    whole, eighths = divmod(round(share * _BAR_COLUMNS * 8), 8)
    return "█" * whole + (_EIGHTHS[eighths] if eighths else "")


def describe_runs(runs: Sequence[BenchRun]) -> str:
    """Return the set-ups in a line: what was measured, on what."""
    parts = []
    for run in runs:
        words = (run.setup.engine, run.setup.engine_version, run.setup.driver and f"driver {run.setup.driver}")
        made_of = " ".join(word for word in words if word)
        parts.append(f"{run.instance} on {' and '.join(run.nodes)}" + (f": {made_of}" if made_of else ""))
    return sanitize_line("   ".join(parts))


def save_charts(charts: Sequence[Chart], path: Path, note: str) -> None:
    """Write the pictures into one file, PNG or SVG by its name; ``note`` stands beneath.

    Raises `OperationRefused` without matplotlib, `InvalidInput` where the file cannot be written.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise OperationRefused("matplotlib, which draws the picture, is not installed", _INSTALL_HINT) from error
    settings: Any = {
        "font.size": 10.5, "axes.edgecolor": _GRID, "axes.labelcolor": _FAINT, "xtick.color": _FAINT, "ytick.color": _FAINT,
        "text.color": _INK, "svg.fonttype": "path",
    }  # fmt: skip
    with rc_context(settings):
        figure = Figure(
            figsize=(_PANEL_WIDTH, _PANEL_HEIGHT * len(charts)),
            layout=ConstrainedLayoutEngine(h_pad=0.14, hspace=0.03),
            facecolor="white",
        )
        FigureCanvasAgg(figure)
        axes = figure.subplots(len(charts), 1, squeeze=False)[:, 0]
        names = list_series(charts)
        for axis, chart in zip(axes, charts, strict=True):
            _draw_chart(axis, chart, names)
        figure.supxlabel(note, fontsize=8, color=_FAINT, x=0.01, ha="left")
        try:
            figure.savefig(path, dpi=_DOTS_PER_INCH)
        except OSError as error:
            raise InvalidInput(
                f"{path}: {error.strerror or error}", "choose a file in a folder that you can write to"
            ) from error


def _draw_chart(axis: Any, chart: Chart, names: Sequence[str]) -> None:
    places = list(dict.fromkeys(point.at for _, points in chart.series for point in points))
    if not chart.has_kinds:
        places.sort(key=lambda one: int(one))
    axis.set_title(chart.title, loc="left", fontweight="bold", pad=26, fontsize=12)
    axis.set_ylabel(chart.unit)
    axis.grid(axis="y", color=_GRID, linewidth=0.8)
    axis.set_axisbelow(True)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(length=0)
    is_bars = chart.has_kinds or len(places) == 1
    for number, (name, points) in enumerate(chart.series):
        color, values = _COLORS[names.index(name) % len(_COLORS)], [one.value for one in points]
        spread = [[one.value - one.low for one in points], [one.high - one.value for one in points]]
        if is_bars:
            width = 0.78 / len(chart.series)
            at = [places.index(one.at) + (number - (len(chart.series) - 1) / 2) * width for one in points]
            axis.bar(at, values, width * 0.92, color=color, label=name)
            if any(map(any, spread)):
                axis.errorbar(at, values, spread, fmt="none", ecolor=_INK, elinewidth=1, capsize=2.5, alpha=0.65)
            for x, one in zip(at, points, strict=True):
                label = f"{one.value:.2f}" if one.value < 10 else f"{one.value:.0f}"
                axis.annotate(
                    label, (x, one.high), (0, 4), textcoords="offset points", ha="center", color=_FAINT, fontsize=8
                )
        else:
            at = [places.index(one.at) for one in points]
            axis.errorbar(
                at, values, spread, color=color, label=name, marker="o", markersize=5.5, linewidth=2, capsize=3
            )
            for x, one in zip(at, points, strict=True):
                axis.annotate(
                    f"{one.value:.1f}",
                    (x, one.high),
                    (0, 5),
                    textcoords="offset points",
                    ha="center",
                    color=color,
                    fontsize=9,
                )
    long = max((len(str(one)) for one in places), default=0) > 6 and len(places) > 5
    axis.set_xticks(
        range(len(places)),
        [f"{one:,}" if isinstance(one, int) else one for one in places],
        rotation=28 if long else 0,
        ha="right" if long else "center",
    )
    axis.set_xlim(-0.6, len(places) - 0.4)
    if chart.axis:
        axis.set_xlabel(chart.axis)
    axis.set_ylim(0, max(one.high for _, points in chart.series for one in points) * 1.16)
    axis.legend(
        loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=min(4, len(chart.series)), frameon=False, borderaxespad=0.1
    )
