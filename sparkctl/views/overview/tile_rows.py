"""The rows and charts of a tile, with priorities: if there is too little room, the least important rows are left out.

Curves start at zero, so that half the height is half the value on each Spark and at any time; only that of the accept length, which
has one row, lies between the readings that stand beside it.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from sparkctl import engines
from sparkctl.logs.line_marker import LogLevel, parse_level_header
from sparkctl.model.engine_metrics import EngineActivity, EngineFactName
from sparkctl.model.finding import FindingKind, Severity
from sparkctl.model.instance import InstanceView
from sparkctl.model.kernel_event import KernelEvent
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.reference import FigureRange
from sparkctl.model.sample import DiskSpace, Gpu, MemoryBar
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import GIB
from sparkctl.monitor.kernel_log import is_worth_a_line
from sparkctl.monitor.meters.bandwidth import (
    estimate_instance_bandwidth,
    explain_missing_estimate,
    get_node_bandwidth,
    is_prefilling,
)
from sparkctl.monitor.ranks import count_ranks
from sparkctl.monitor.sample_series import COARSE_SPAN, SeriesName
from sparkctl.views import meter_view as words
from sparkctl.views.event_text import TRANSITION_PHASES
from sparkctl.views.meter_view import find_worst_clock_limit
from sparkctl.views.overview.tile_model import NodeTileModel, build_instance_badge, format_age
from sparkctl.views.status_view import describe_dependents
from sparkctl.views.text.charts import (
    AxisScale,
    ChartValues,
    DangerLimits,
    RowBlock,
    fill_gaps,
    fit_axis_scale,
    make_block,
    render_area_chart,
    render_memory_bar,
    render_memory_legend,
    render_sparkline,
    round_above,
)
from sparkctl.views.text.line_wrap import wrap_text
from sparkctl.views.text.styled_text import (
    Span,
    TextRow,
    TextStyle,
    get_severity_style,
    get_state_symbol,
    justify_row,
    make_row,
    measure_row,
    measure_text,
    pad_row,
    sanitize_span,
    truncate_row,
)

_LEVEL_STYLES = {LogLevel.WARNING: TextStyle.ATTENTION, LogLevel.ERROR: TextStyle.BAD}
LABEL_COLUMNS = 8  # width of the labels of figures
MAX_CHART_ROWS, TALL_CHART_ROWS = 9, 16  # largest height of a curve; on a tall screen
# Possible periods of curves in seconds. The shortest that holds all readings is used; at least about two thirds of it are filled.
_CHART_SECONDS = (15, 20, 30, 45, 60, 90, 120, 180, 240, 300, 420, 600, 900)
_MAX_GAP_SECONDS = 10.0  # seconds; a shorter pause between readings is no gap
_MAX_MISSED_READINGS = 2
_MAX_BAR_COLUMNS = 88
_BAR_TEXT_COLUMNS = 19  # width of the text beside a bar: 102.8 of 121.7 GiB
_CHART_GAP_COLUMNS = 2  # between two curves side by side
_TWO_CHARTS_MIN_COLUMNS, _THREE_CHARTS_MIN_COLUMNS = 48, 84
HOT_NVME_DEGREES = 70.0  # °C from which a drive slows down soon
_MACHINE_DROP_PRIORITY = 5
_MAX_CURVE_CELLS = 24  # width of a curve within a row
_FULL_BADGE_COLUMNS = 64  # from this width on, badges have words
_VERSION_TAG_PATTERN = re.compile(r"v?\d+\.\d")  # a bare number may be a build counter
_MIN_LENGTH_SPREAD = 0.4  # tokens per step; smaller differences of accept lengths do not count


@dataclass(frozen=True, slots=True)
class DrawArea:
    """The area inside the frame, in columns, and the drawing options. ``chart_rows``: the largest height of a curve, the same for
    all values, so that rows below do not move. ``is_tall``: there are rows for whole
    sentences and for each curve."""

    columns: int
    chart_rows: int = MAX_CHART_ROWS
    is_tall: bool = False

    @property
    def is_wide(self) -> bool:
        """Whether two groups of figures fit side by side."""
        return self.columns >= 72

    @property
    def bar_columns(self) -> int:
        """The width of every bar, so that all are aligned."""
        return max(4, min(_MAX_BAR_COLUMNS, self.columns - LABEL_COLUMNS - _BAR_TEXT_COLUMNS - 1))

    @property
    def chart_columns(self) -> int:
        """The width of a curve that stands alone in its rows: all of it, as its scale stands inside."""
        return max(4, self.columns)

    def split_chart_columns(self, count: int) -> list[int]:
        """Return the widths of this many curves side by side; the last takes what is left over."""
        each = max(4, (self.columns - _CHART_GAP_COLUMNS * (count - 1)) // count)
        return [*[each] * (count - 1), max(4, self.columns - (each + _CHART_GAP_COLUMNS) * (count - 1))]

    @property
    def is_chart_row_wide(self) -> bool:
        """Whether three curves fit side by side."""
        return self.columns >= _THREE_CHARTS_MIN_COLUMNS


def choose_chart_seconds(seen: NodeTileModel) -> int:
    """Return how many seconds the curves show: whole minutes since ``seen.since``, else those that are known."""
    if seen.since is not None:
        return 60 * min(int(COARSE_SPAN // 60), max(1, math.ceil((seen.now - seen.since) / 60)))
    span = 60.0 if seen.series is None or not seen.series.span_seconds else seen.series.span_seconds
    return _CHART_SECONDS[min(bisect_left(_CHART_SECONDS, span), len(_CHART_SECONDS) - 1)]


def format_chart_span(seen: NodeTileModel) -> str:
    """Return ``45 s`` or ``15 min``: the time that the curves show."""
    seconds = choose_chart_seconds(seen)
    return f"{seconds} s" if seconds % 60 else f"{seconds // 60} min"


def fill_series_gaps(values: ChartValues, seconds: float) -> list[float | None]:
    """Return the values of equal intervals of ``seconds`` in all, with small gaps filled: of a few seconds, or of a few of the
    readings' usual distances, as where a simulated clock runs fast.
    """
    known = [at for at, value in enumerate(values) if value is not None]
    if not known or known[-1] - known[0] == len(known) - 1:
        return list(values)  # none has a gap, the usual case
    distances = sorted(later - before for before, later in pairwise(known))
    usual = distances[len(distances) // 2]
    return fill_gaps(values, max(1, int(_MAX_GAP_SECONDS * len(values) / seconds), _MAX_MISSED_READINGS * usual))


def make_label(name: str) -> Span:
    """Return the label of a figure, padded to the common width."""
    return Span(f"{name:<{LABEL_COLUMNS}}", TextStyle.LABEL)


# --- what runs --------------------------------------------------------------------------------------------------------


def render_instance_row(
    one: InstanceView, space: DrawArea, *, marked: bool | None, badge: bool, ready_for: float | None = None
) -> TextRow:
    """Return name, engine with version, port, and the state if it is not shown elsewhere. ``marked``: whether it is the selected
    one of several, None for the only one. What does not fit beside the state is left out whole."""
    mark = () if marked is None else make_row(Span("▸ " if marked else "  ", TextStyle.ACCENT))
    name = make_row(*mark, sanitize_span(one.shown_name, TextStyle.TITLE))
    port = "" if one.port is None else f":{one.port}"
    parts = [part for part in (describe_engine(one), port, describe_rank(one), describe_dependents(one)) if part]
    if not badge:
        return make_row(*name, *(sanitize_span(f"   {part}", TextStyle.LABEL) for part in parts))
    state = build_instance_badge(one, ready_for)
    memory = f"{one.memory / GIB:6.1f} GiB" if one.memory is not None and not one.is_download else ""
    words = state.word if not one.is_download or one.detail is None else sanitize_line(f"model {one.detail}")
    longest = measure_row(name) + sum(3 + measure_text(part) for part in parts)
    if longest + 3 + measure_text(words) + measure_text(memory) > space.columns:
        words = words.partition(",")[0].partition(" for ")[0]  # since when it is ready goes before what it is
    right = make_row(Span(f"{state.sign} {words}", state.tone), Span(memory, TextStyle.UNIT))
    gap = "   "
    while parts and measure_row(name) + sum(measure_text(gap + part) for part in parts) >= space.columns - measure_row(
        right
    ):
        if gap == "   ":
            gap = " "
        else:
            del parts[0]  # the last tells most of an instance beside others
    left = make_row(*name, *(sanitize_span(gap + part, TextStyle.LABEL) for part in parts))
    return justify_row(left, right, space.columns)


def describe_engine(one: InstanceView) -> str:
    """Return ``SGLang 0.5.12``, or the image for a container of others and for a program that no engine knows. The version comes
    from the log, else from the image's tag if that looks like a version."""
    engine = engines.find_engine(one.engine)
    if one.engine is None or (engine is not None and engine.is_any_program):
        return one.image.rpartition("/")[2]
    name = engines.engine_title(one.engine)
    version = next((fact.value for fact in one.facts if fact.name is EngineFactName.ENGINE_VERSION), None)
    if version is not None and " " not in version:  # SGLang's log gives the version only approximately
        return f"{name} {version}"
    tag = one.image.rpartition(":")[2] if ":" in one.image.rpartition("/")[2] else ""
    return f"{name} {tag.removeprefix('v')}" if _VERSION_TAG_PATTERN.match(tag) else name


def render_failure(one: InstanceView, seen: NodeTileModel, space: DrawArea) -> list[TextRow]:
    """Return what happened and the line that proves it."""
    end = seen.ends.get(one.name)
    verdict = None if end is None else end.verdict
    state = one.detail or (one.status if not one.is_alive else "it is being ended") or "it ended"
    sentence = verdict.headline if verdict else f"{state}: enter shows the cause"
    most, most_proof = (5, 3) if space.is_tall else (2, 1)
    rows = render_labelled_text("why", sentence, space, TextStyle.BAD, most)
    if verdict is not None and verdict.evidence:
        proof = verdict.evidence[0]
        where = f"line {proof.line}  " if proof.line is not None else f"{proof.origin}  "
        rows += render_labelled_text("proof", where + proof.text, space, TextStyle.VALUE, most_proof)
    if verdict is not None:
        rows += render_labelled_text("try", verdict.remedy, space, TextStyle.VALUE, most)
    return rows


def render_labelled_text(name: str, sentence: str, space: DrawArea, tone: TextStyle, most: int) -> list[TextRow]:
    """Return a labelled sentence in at most ``most`` rows; a cut is marked."""
    room = max(8, space.columns - LABEL_COLUMNS)
    whole = wrap_text(sentence, room, tone)
    lines = whole[:most]
    if len(whole) > most:
        lines[-1] = (*truncate_row(lines[-1], room - 2, ""), Span(" …", tone))
    return [make_row(make_label(name if not at else ""), *line) for at, line in enumerate(lines)]


# --- the engine's figures ---------------------------------------------------------------------------------------------


def tells_figures(one: InstanceView) -> bool:
    """Tell whether there are figures of its engine, or may be."""
    engine = engines.find_engine(one.engine)
    return one.numbers is not None or engine is None or not engine.is_any_program


def render_throughput(one: InstanceView, space: DrawArea) -> TextRow:
    """Return throughput, what others measured, requests and KV cache; ``idle`` if no step happened."""
    numbers = one.numbers
    if numbers is None:
        return make_row(make_label("decode"), Span(words.UNKNOWN, TextStyle.STALE))
    if numbers.activity is EngineActivity.IDLE:
        return make_row(make_label("decode"), Span(words.IDLE, TextStyle.VALUE))
    speed = words.format_throughput(numbers)
    spans = [make_label("decode"), Span(f"{speed:<12}", TextStyle.STRONG)]
    reference = _render_reference_rate(one)
    spans += reference
    if numbers.running is not None:
        spans += [Span(f"{numbers.running:3.0f}", TextStyle.VALUE), Span(" running", TextStyle.UNIT)]
    if reference and space.columns < 64:
        pass  # nothing waits where a figure is comparable
    elif numbers.waiting is not None and (numbers.waiting or space.columns >= 54):
        tone = TextStyle.ATTENTION if numbers.waiting else TextStyle.VALUE
        spans += [Span(f"{numbers.waiting:3.0f}", tone), Span(" waiting", TextStyle.UNIT)]
    if numbers.kv_usage is not None:
        spans += [
            Span("   KV", TextStyle.LABEL),
            Span(f" {words.format_percent(numbers.kv_usage):>5}", TextStyle.VALUE),
        ]
    if measure_row(spans) > space.columns:
        spans = [Span(" run", TextStyle.UNIT) if span.text == " running" else span for span in spans]
    if measure_row(spans) > space.columns:
        spans = [span for span in spans if span not in reference]
    return tuple(spans)


def _render_reference_rate(one: InstanceView) -> TextRow:
    rate = one.reference_rate
    return () if rate is None else make_row(Span(f"{words.format_reference_rate(rate)} ", TextStyle.LABEL))


def describe_rank(one: InstanceView) -> str:
    """Return ``rank 0 of 2 · head``; "" for a model on one Spark."""
    if one.rank_position is None:
        return ""
    index, count = one.rank_position
    return f"rank {index} of {count}{' · head' if not index else ''}"


def describe_head(one: InstanceView, head: InstanceView) -> TextRow:
    """Return where a worker's head answers, and its figures. Without a position, the worker of two ranks is the second."""
    if one.rank_position is not None:
        row = make_row(Span("its head answers, on ", TextStyle.LABEL), sanitize_span(head.node, TextStyle.VALUE))
    else:
        which = "rank 1" if count_ranks(one) == 2 else "a worker"
        row = make_row(Span(f"{which} of the engine on ", TextStyle.LABEL), sanitize_span(head.node, TextStyle.VALUE))
    if head.numbers is None:
        return row
    is_idle = head.numbers.activity is EngineActivity.IDLE
    return make_row(
        *row, Span(f" · {words.IDLE if is_idle else words.format_throughput(head.numbers)}", TextStyle.VALUE)
    )


def render_acceptance(one: InstanceView, seen: NodeTileModel | None, space: DrawArea) -> TextRow | None:
    """Return draft acceptance, None without drafts; with its trend, unless ``seen`` is None."""
    numbers = one.numbers
    if numbers is None or (numbers.acceptance is None and numbers.activity is not EngineActivity.DECODING):
        return None
    accepted = numbers.acceptance
    if accepted is None or (accepted.length is None and accepted.rate is None):
        return (
            None
            if accepted is None
            else make_row(make_label("accept"), Span(words.format_draft_acceptance(numbers), TextStyle.VALUE))
        )
    spans = [make_label("accept")]
    if accepted.length is not None:
        spans += [Span(f"{accepted.length:.2f}", TextStyle.STRONG), Span(" per step", TextStyle.UNIT)]
    if accepted.rate is not None:
        spans += [
            Span(f"{words.format_percent(accepted.rate):>8}", TextStyle.VALUE),
            Span(" of drafts", TextStyle.UNIT),
        ]
    curve = () if seen is None else _render_accept_curve(one, seen, space, space.columns - measure_row(spans) - 2)
    return (*spans, *curve)


def _format_concurrency(text: str) -> str:
    """Return ``148 whole contexts``, or ``8 at once`` for a number of requests."""
    if "." not in text:
        return f"{text} at once"
    try:
        number = float(text)
    except ValueError:
        return f"{text} whole contexts"
    return f"{number:.{0 if number >= 10 else 1}f} whole contexts"


def render_engine_facts(one: InstanceView, space: DrawArea) -> TextRow | None:
    """Return facts from the engine's log, as many as fit: number format, attention, KV cache, most requests; None without any."""
    facts = {fact.name: fact for fact in one.facts}
    badges: list[Span] = []
    is_roomy = space.columns >= _FULL_BADGE_COLUMNS
    if (path := facts.get(EngineFactName.QUANTIZATION_PATH)) is not None:
        sign = f"{get_state_symbol(Severity.WARNING)} " if path.is_fallback else ""
        short = path.value.partition(" (")[0]
        badges.append(sanitize_span(f"{sign}{short}", TextStyle.ATTENTION if path.is_fallback else TextStyle.GOOD))
    elif (kind := facts.get(EngineFactName.QUANTIZATION)) is not None:
        badges.append(sanitize_span(kind.value, TextStyle.VALUE))
    if (attention := facts.get(EngineFactName.ATTENTION_BACKEND)) is not None:
        badges.append(sanitize_span(f"{'attention ' if is_roomy else ''}{attention.value.lower()}", TextStyle.VALUE))
    if (kv := facts.get(EngineFactName.KV_CACHE_TOKENS)) is not None:
        badges.append(sanitize_span(f"KV {_format_token_count(kv.value, short=not is_roomy)} tokens", TextStyle.VALUE))
    if (most := facts.get(EngineFactName.MAX_CONCURRENCY)) is not None:
        badges.append(sanitize_span(_format_concurrency(most.value), TextStyle.VALUE))
    if (method := facts.get(EngineFactName.SPECULATIVE_METHOD)) is not None:
        badges.append(sanitize_span(method.value, TextStyle.VALUE))
    shown = make_row(make_label("engine"))
    for at, badge in enumerate(badges):
        longer = make_row(*shown, *([Span(" · ", TextStyle.LABEL)] if at else []), badge)
        if measure_row(longer) > space.columns:
            break
        shown = longer
    return shown if len(shown) > 1 else None


def _format_token_count(text: str, *, short: bool) -> str:
    """Return a token count with thousands separators, however the log writes it; ``short``: in millions if possible."""
    digits = text.replace(",", "")
    if not digits.isdecimal() or len(digits) > 15:
        return text
    return f"{int(digits) / 1e6:.2f} M" if short and len(digits) > 6 else f"{int(digits):,}"


def render_bandwidth(one: InstanceView, seen: NodeTileModel, space: DrawArea, most_lines: int = 1) -> list[TextRow]:
    """Return the memory bandwidth of decoding: the GPU's own figure, or an estimate marked as such, or why an engine
    that decodes has none, in a few words where there is one line. Nothing if nothing is decoded."""
    found = get_node_bandwidth(seen.view) or estimate_instance_bandwidth(one, seen.view)
    if found is None:
        if one.numbers is None or one.numbers.activity is not EngineActivity.DECODING:
            return []
        if one.per_step is None or one.per_step.weights is None:
            why = "set model.weights in the profile"
        elif most_lines == 1 and is_prefilling(one.numbers):
            why = "prompts were read too"
        else:
            why = explain_missing_estimate(one.numbers, one.per_step)
        return render_labelled_text("mem BW", f"{words.UNKNOWN}  {why}", space, TextStyle.LABEL, most_lines)
    amount, _, shares = words.format_bandwidth(found).partition(" · ")
    room = space.columns - LABEL_COLUMNS - measure_text(amount) - 2
    if measure_text(shares) > room:
        shares = shares.partition(", ")[0]
    rest = Span(f"  {shares}", TextStyle.LABEL) if shares and measure_text(shares) <= room else Span("")
    return [make_row(make_label("mem BW"), Span(amount, TextStyle.VALUE), rest)]


def render_decode_summary(one: InstanceView, seen: NodeTileModel, space: DrawArea) -> TextRow | None:
    """Return throughput and acceptance in one row, None without acceptance."""
    numbers = one.numbers
    accepted = None if numbers is None else numbers.acceptance
    if (
        numbers is None
        or accepted is None
        or accepted.length is None
        or numbers.activity is not EngineActivity.DECODING
    ):
        return None
    spans = [make_label("decode"), Span(f"{words.format_throughput(numbers):<12}", TextStyle.STRONG)]
    if numbers.running is not None:
        spans += [Span(f"{numbers.running:2.0f}", TextStyle.VALUE), Span(" run", TextStyle.UNIT)]
    if numbers.kv_usage is not None:
        spans += [Span("  KV", TextStyle.LABEL), Span(f" {words.format_percent(numbers.kv_usage):>5}", TextStyle.VALUE)]
    spans += [
        Span("   accept ", TextStyle.LABEL),
        Span(f"{accepted.length:.2f}", TextStyle.STRONG),
        Span("/step", TextStyle.UNIT),
    ]
    if accepted.rate is not None:
        spans.append(Span(f" {words.format_percent(accepted.rate):>5}", TextStyle.VALUE))
    reference = _render_reference_rate(one)
    if measure_row(spans) + measure_row(reference) <= space.columns:
        spans[2:2] = reference
    return (*spans, *_render_accept_curve(one, seen, space, space.columns - measure_row(spans) - 2))


def _render_accept_curve(one: InstanceView, seen: NodeTileModel, space: DrawArea, room: int) -> TextRow:
    """Return the trend of the accept length with its scale; nothing without room or readings."""
    drafting = seen.drafting.get(one.container_id or "")
    if drafting is None or room < 13:
        return ()
    wide = min(room - 9, _MAX_CURVE_CELLS)
    seconds = float(choose_chart_seconds(seen))
    lengths = fill_series_gaps(drafting.get_accept_lengths(seen.now, seconds, wide * 2), seconds)
    scale = fit_axis_scale(lengths, _MIN_LENGTH_SPREAD, 1.0)
    if scale is None:
        return ()
    known = [length for length in lengths if length is not None]
    bounds = "–".join(dict.fromkeys(f"{one:.1f}" for one in (min(known), max(known))))
    return make_row("  ", *render_sparkline(lengths, scale, TextStyle.RATE), Span(f" {bounds}", TextStyle.UNIT))


def render_gpus(seen: NodeTileModel, space: DrawArea) -> list[TextRow]:
    """Return utilisation, clock, power and temperature of each GPU."""
    sample = seen.view.sample
    if sample is None:
        return [make_row(make_label("GPU"), Span(words.UNKNOWN, TextStyle.STALE))]
    if sample.gpu_silent_for is not None:
        return [make_row(make_label("GPU"), Span(f"no answer for {sample.gpu_silent_for:.0f} s", TextStyle.ATTENTION))]
    if not sample.gpus:
        return [make_row(make_label("GPU"), sanitize_span(sample.gpu_trouble or words.UNKNOWN, TextStyle.ATTENTION))]
    slow, hot = (
        None if level is None else get_severity_style(level)
        for level in map(seen.get_finding_severity, (FindingKind.STUCK_CLOCK, FindingKind.THERMAL))
    )
    return [_render_gpu(gpu, slow, hot) for gpu in sample.gpus]


def _render_gpu(gpu: Gpu, slow: TextStyle | None, hot: TextStyle | None) -> TextRow:
    """Return the figures of a GPU; ``slow`` and ``hot``: the styles of a clock and a temperature with a finding."""
    if hot is None:
        hot = TextStyle.ATTENTION if gpu.celsius is not None and gpu.celsius >= 85 else TextStyle.VALUE
    limit = find_worst_clock_limit(gpu)
    return make_row(
        make_label("GPU"),
        *_render_figure(None if gpu.busy is None else gpu.busy * 100, 3, "%"),
        *_render_figure(gpu.sm_clock, 7, "MHz", slow or TextStyle.VALUE),
        *_render_figure(gpu.power, 6, "W"),
        *_render_figure(gpu.celsius, 5, "°C", hot),
        *(() if limit is None else (Span(f"   {limit}", TextStyle.ATTENTION),)),
    )


def build_machine_row(seen: NodeTileModel, space: DrawArea) -> RowBlock | None:
    """Return CPU, load, NVMe, free disk and network, as much as fits; None before a sample."""
    sample = seen.view.sample
    if sample is None or sample.cpu is None:
        return None
    shown = make_row(
        make_label("CPU"), *_render_figure(None if sample.cpu.busy is None else sample.cpu.busy * 100, 3, "%")
    )
    parts: list[TextRow] = []
    if sample.cpu.load:
        parts.append(make_row(Span("  load", TextStyle.LABEL), Span(f"{sample.cpu.load[0]:5.1f}", TextStyle.VALUE)))
    heat = [one.celsius for one in sample.temperatures or () if one.chip.startswith("nvme")]
    if heat:
        tone = TextStyle.ATTENTION if max(heat) >= HOT_NVME_DEGREES else TextStyle.VALUE
        parts.append(make_row(Span("  NVMe", TextStyle.LABEL), *_render_figure(max(heat), 3, "°C", tone)))
    if (free := _find_least_free(sample.disks or ())) is not None:
        level = seen.get_finding_severity(FindingKind.DISK)
        tone = TextStyle.VALUE if level is None else get_severity_style(level)
        parts.append(make_row(Span("  free", TextStyle.LABEL), *_render_size(free, tone)))
    received, sent = (
        sum(rate for link in sample.links or () if (rate := getattr(link, way)) is not None)
        for way in ("receive_rate", "send_rate")
    )
    if any(link.receive_rate is not None for link in sample.links or ()):
        parts.append(
            make_row(
                Span("  ↓", TextStyle.LABEL),
                Span(f"{received / 1e6:6.1f}", TextStyle.VALUE),
                Span(" ↑", TextStyle.LABEL),
                Span(f"{sent / 1e6:6.1f}", TextStyle.VALUE),
                Span(" MB/s", TextStyle.UNIT),
            )
        )
    for part in parts:
        if measure_row(shown) + measure_row(part) <= space.columns:
            shown = make_row(*shown, *part)
    return make_block(_MACHINE_DROP_PRIORITY, shown)


def _find_least_free(disks: Iterable[DiskSpace]) -> int | None:
    """Return the bytes free on the fullest of the disks that are there."""
    known = [one for one in disks if one.total and one.free is not None]
    fullest = min(known, key=lambda one: (one.free or 0) / (one.total or 1), default=None)
    return None if fullest is None else fullest.free


def _render_size(size: int, tone: TextStyle) -> TextRow:
    if size >= 1024 * GIB:
        return make_row(Span(f"{size / GIB / 1024:5.1f}", tone), Span(" TiB", TextStyle.UNIT))
    return make_row(Span(f"{size / GIB:5.0f}", tone), Span(" GiB", TextStyle.UNIT))


def _render_figure(value: float | None, wide: int, unit: str, tone: TextStyle = TextStyle.VALUE) -> TextRow:
    return make_row(
        Span(f"{words.UNKNOWN if value is None else f'{value:.0f}':>{wide}}", tone), Span(f" {unit}", TextStyle.UNIT)
    )


# --- a node that does not answer --------------------------------------------------------------------------------------


def render_unreachable(seen: NodeTileModel, space: DrawArea) -> list[TextRow]:
    """Return the failed attempts, the time of the next one, and what to do."""
    connection, rows = seen.connection, []
    if connection.detail:
        rows += render_labelled_text("tried", connection.detail, space, TextStyle.VALUE, 3)
    elif seen.address:
        rows.append(make_row(make_label(""), sanitize_span(seen.address, TextStyle.STALE)))
    if connection.next_try is not None:
        left = max(0.0, connection.next_try - max(0.0, seen.now - connection.ts))
        when = "now" if left < 1 else f"in {left:.0f} s"
        spans = [make_label("next"), Span(f"try {when}", TextStyle.VALUE)]
        if connection.attempt is not None:
            spans.append(Span(f"   attempt {connection.attempt} failed", TextStyle.UNIT))
        rows.append(tuple(spans))
    if connection.hint:
        rows += render_labelled_text("do", connection.hint, space, TextStyle.VALUE, 2)
    if seen.view.sampled is not None:
        rows.append(make_row(make_label(""), Span(f"what follows is {format_age(seen.sample_age)}", TextStyle.STALE)))
    return rows


def is_in_transition(one: InstanceView) -> bool:
    """Tell whether a start or a stop is in progress."""
    return one.phase in TRANSITION_PHASES


_CHART_DROP_PRIORITY = 9
_MIN_RATE_SCALE, _MIN_POWER_SCALE = 10.0, 40.0  # smallest upper end of a scale, in tok/s and W
_MIN_ACCEPT_SCALE = 2.0  # tokens per step
_FULL_PERCENT = 100.0
BUSY_CPU_SHARES = 0.5, 0.9  # from where on a CPU or a core warns, and is bad
_MOST_DEGREES, DANGEROUS_DEGREES = 100.0, (85.0, 92.0)  # °C: the scale, and where the curve warns and is bad


@dataclass(frozen=True, slots=True, kw_only=True)
class AreaChart:
    """A curve from zero to ``most``, and what stands in its corners. ``danger``: from where on it warns, and is bad."""

    values: Sequence[float | None]
    most: float
    unit: str
    tone: TextStyle
    title: str = ""
    danger: DangerLimits | None = None


def build_throughput_chart(one: InstanceView, seen: NodeTileModel, space: DrawArea) -> RowBlock | None:
    """Return the curve of the throughput and, on a wide screen, of the accept length; None without a reading."""
    drafting = seen.drafting.get(one.container_id or "")
    if drafting is None:
        return None
    seconds = float(choose_chart_seconds(seen))
    accepts = space.is_chart_row_wide and any(drafting.get_accept_lengths(seen.now, seconds, 2))
    widths = space.split_chart_columns(2 if accepts else 1)
    rates = fill_series_gaps(drafting.get_generation_rates(seen.now, seconds, widths[0] * 2), seconds)
    reference = (
        None if one.numbers is None else one.numbers.generation_rate
    )  # the scale includes the figure beside the curve
    most = max((rate for rate in (*rates, reference) if rate is not None), default=0.0)
    charts = [AreaChart(values=rates, most=round_above(most, _MIN_RATE_SCALE), unit="tok/s", tone=TextStyle.RATE)]
    if accepts:
        lengths = fill_series_gaps(drafting.get_accept_lengths(seen.now, seconds, widths[1] * 2), seconds)
        longest = round_above(max((one for one in lengths if one is not None), default=0.0), _MIN_ACCEPT_SCALE)
        charts.append(AreaChart(values=lengths, most=longest, unit="per step", tone=TextStyle.RATE, title="accept"))
    return build_chart_row("speed", charts, widths, space.chart_rows)


def build_gpu_charts(seen: NodeTileModel, space: DrawArea) -> list[RowBlock]:
    """Return the curves of GPU utilisation and power, as far as known; with room for three, of its temperature too."""
    most = seen.most_power or compute_power_scale([seen]) or _MIN_POWER_SCALE
    count = 3 if space.is_chart_row_wide else 2
    is_wide = space.columns >= _TWO_CHARTS_MIN_COLUMNS
    widths = space.split_chart_columns(count) if is_wide else [space.chart_columns] * count
    busy = [None if share is None else share * 100 for share in read_series(seen, SeriesName.GPU_BUSY, widths[0] * 2)]
    watts = read_series(seen, SeriesName.POWER, widths[1] * 2)
    charts = [
        AreaChart(values=busy, most=_FULL_PERCENT, unit="%", tone=TextStyle.POWER, title="busy"),
        AreaChart(values=watts, most=most, unit="W", tone=TextStyle.POWER, title="power"),
    ]
    if space.is_chart_row_wide:
        charts.append(build_heat_chart(seen, widths[2]))
    if is_wide:
        rows = [build_chart_row("gpu", charts, widths, space.chart_rows)]
    else:
        rows = [
            build_chart_row(name, [chart], widths[:1], space.chart_rows)
            for name, chart in zip(("gpu", "power"), charts, strict=True)
        ]
    return [row for row in rows if row is not None]


def build_heat_chart(seen: NodeTileModel, columns: int) -> AreaChart:
    """Return the curve of the GPU's temperature."""
    return AreaChart(
        values=read_series(seen, SeriesName.CELSIUS, columns * 2),
        most=_MOST_DEGREES,
        unit="°C",
        tone=TextStyle.POWER,
        title="heat",
        danger=DANGEROUS_DEGREES,
    )


def build_cpu_chart(seen: NodeTileModel, columns: int) -> AreaChart:
    """Return the curve of how busy all cores are."""
    busy = [None if share is None else share * 100 for share in read_series(seen, SeriesName.CPU_BUSY, columns * 2)]
    warns, bad = BUSY_CPU_SHARES
    return AreaChart(
        values=busy, most=_FULL_PERCENT, unit="%", tone=TextStyle.POWER, title="CPU", danger=(warns * 100, bad * 100)
    )


def build_rdma_chart(seen: NodeTileModel, columns: int) -> AreaChart:
    """Return the curve of what RDMA moves over all links, both ways together."""
    received, sent = (read_series(seen, name, columns * 2) for name in (SeriesName.RDMA_RECEIVE, SeriesName.RDMA_SEND))
    traffic = [
        None if into is None and out is None else ((into or 0.0) + (out or 0.0)) / 1e9
        for into, out in zip(received, sent, strict=True)
    ]
    most = round_above(max((one for one in traffic if one is not None), default=0.0), 1.0)
    return AreaChart(values=traffic, most=most, unit="GB/s", tone=TextStyle.LINK, title="RDMA")


def build_substitute_chart(chart: AreaChart, space: DrawArea) -> RowBlock | None:
    """Return a curve in the place that the throughput has in the tile of another Spark."""
    return build_chart_row("speed", [chart], [space.chart_columns], space.chart_rows)


def compute_power_scale(glances: Iterable[NodeTileModel]) -> float | None:
    """Return the upper end in watts of all power curves, which share one scale; None if nothing is known."""
    known = [watts for seen in glances for watts in _list_watts(seen)]
    return round_above(max(known), _MIN_POWER_SCALE) if known else None


def _list_watts(seen: NodeTileModel) -> list[float]:
    gpus = () if seen.view.sample is None else seen.view.sample.gpus or ()
    spreads = (
        () if seen.series is None else seen.series.get_buckets(SeriesName.POWER, float(choose_chart_seconds(seen)), 60)
    )
    now = [gpu.power for gpu in gpus if gpu.power is not None]
    return [spread.most for spread in spreads if spread is not None] + now


def read_series(seen: NodeTileModel, series: SeriesName, count: int) -> list[float | None]:
    """Return the readings of the curves' time in this many equal parts, the newest last; [] without any."""
    if seen.series is None:
        return []
    seconds = float(choose_chart_seconds(seen))
    spreads = seen.series.get_buckets(series, seconds, count)
    return fill_series_gaps([None if spread is None else spread.mean for spread in spreads], seconds)


def build_chart_row(slot: str, charts: Sequence[AreaChart], widths: Sequence[int], tallest: int) -> RowBlock | None:
    """Return filled curves side by side in at most ``tallest`` rows, the newest at the right; None if nothing is known."""
    if all(value is None for chart in charts for value in chart.values):
        return None

    def render_height(height: int) -> tuple[TextRow, ...]:
        made = [render_chart(chart, columns, height) for chart, columns in zip(charts, widths, strict=True)]
        gap = Span(" " * _CHART_GAP_COLUMNS)
        return tuple(
            tuple(span for at, part in enumerate(parts) for span in ((gap, *part) if at else part))
            for parts in zip(*made, strict=True)
        )

    return RowBlock(spare=_CHART_DROP_PRIORITY, rows=(), grow=render_height, slot=slot, tallest=tallest)


def render_chart(chart: AreaChart, columns: int, height: int) -> tuple[TextRow, ...]:
    """Return a curve with its scale inside: the upper end and its title in the upper left corner, zero in the lower."""
    values = chart.values or [None] * (columns * 2)
    rows = list(render_area_chart(values, AxisScale(0.0, chart.most), height, chart.tone, chart.danger))
    top = make_row(Span(f"{chart.most:.0f} {chart.unit}", TextStyle.UNIT))
    if chart.title:
        if (
            measure_row(top) + 1 + measure_text(chart.title) >= columns * 3 // 4
        ):  # what it is matters more than its unit
            top = make_row(Span(f"{chart.most:.0f}", TextStyle.UNIT))
        top = make_row(*top, Span(f" {chart.title}", TextStyle.LABEL))
    rows[0] = _lay_over(rows[0], make_row(*top, " "), columns)
    if height > 1:
        rows[-1] = _lay_over(rows[-1], make_row(Span("0 ", TextStyle.UNIT)), columns)
    return tuple(pad_row(row, columns) for row in rows)


def _lay_over(row: TextRow, words: TextRow, columns: int) -> TextRow:
    """Return a row of a curve with words over its beginning, where they leave most of it."""
    taken = measure_row(words)
    return make_row(*words, *_skip_columns(row, taken)) if taken <= columns * 3 // 4 else row


_BOUNDS_UNIT_COLUMNS = 3  # by which a curve in one row is shorter than the bar above it
_SCARCE_MEMORY_BYTES = 8 * GIB  # available memory below which its curve warns
_LOW_MEMORY_BYTES = 2 * GIB  # available memory below which the figure is a warning


def build_memory_groups(seen: NodeTileModel, space: DrawArea, label: str = "memory") -> list[RowBlock]:
    """Return all rows about memory. ``label``: of the bar."""
    parts = (build_memory_legend(seen, space), build_memory_chart(seen, space), build_kernel_marks(seen, space))
    return [build_memory_bar(seen, space, label), *(part for part in parts if part)]


def build_memory_bar(seen: NodeTileModel, space: DrawArea, label: str = "memory") -> RowBlock:
    """Return the memory bar and the used memory (GPU and other). Page cache is shown, but not counted as used."""
    bar = seen.view.memory
    if bar is None:
        return make_block(0, make_row(make_label(label), Span(words.UNKNOWN, TextStyle.STALE)))
    return make_block(
        0,
        make_row(
            make_label(label),
            *render_memory_bar(bar, space.bar_columns),
            "  ",
            *format_used_memory(bar),
        ),
    )


def format_used_memory(bar: MemoryBar) -> TextRow:
    """Return ``98.4 of 121.7 GiB``."""
    used = bar.total - bar.free - bar.page_cache
    tone = TextStyle.BAD if bar.available < _LOW_MEMORY_BYTES else TextStyle.STRONG
    return make_row(Span(f"{used / GIB:5.1f}", tone), Span(f" of {bar.total / GIB:.1f} GiB", TextStyle.UNIT))


def build_memory_legend(seen: NodeTileModel, space: DrawArea) -> RowBlock | None:
    """Return the four parts of memory in figures with their textures: the legend of the bar."""
    bar = seen.view.memory
    if bar is None:
        return None
    forms = [
        (LABEL_COLUMNS + indent, gap, 3 + places, places)
        for gap, indent, places in (
            ("  ", 0, 1),
            (" ", 0, 1),
            (" ", -LABEL_COLUMNS, 1),
            (" ", -LABEL_COLUMNS, 0),
        )
    ]
    return make_block(3, render_memory_legend(bar, space.columns, forms))


def build_memory_chart(seen: NodeTileModel, space: DrawArea) -> RowBlock | None:
    """Return used memory over time, and swap: as a line in one row, with the least and the most, as an area in more."""
    bar, series = seen.view.memory, seen.series
    if bar is None or series is None:
        return None
    wide, total = space.bar_columns - _BOUNDS_UNIT_COLUMNS, bar.total
    swap = make_row(Span("swap ", TextStyle.LABEL), Span(f"{bar.swap_used / GIB:.1f}", TextStyle.VALUE))
    span = format_chart_span(seen)
    used = _read_used_memory(seen, total, wide * 2)
    name = make_label(span)

    def render_height(height: int) -> tuple[TextRow, ...]:
        if height == 1:
            return (short,)
        tall = _read_used_memory(seen, total, space.chart_columns * 2)
        chart = AreaChart(
            values=[None if value is None else value / GIB for value in tall],
            most=total / GIB,
            unit="GiB",
            tone=TextStyle.GPU,
            danger=((total - _SCARCE_MEMORY_BYTES) / GIB, (total - _LOW_MEMORY_BYTES) / GIB),
        )
        rows = render_chart(chart, space.chart_columns, height)
        inside = make_row(
            Span(f"{total / GIB:.0f} GiB", TextStyle.UNIT), Span(f" {span}  ", TextStyle.LABEL), *swap, " "
        )
        return (_lay_over(rows[0], inside, space.chart_columns), *rows[1:])

    known = [value / GIB for value in used if value is not None]
    if not known:
        short = make_row(name, " " * wide, "  ", *swap)
        return RowBlock(spare=5, rows=(short,), grow=render_height, slot="memory", tallest=1)
    bounds = f"{FigureRange(round(min(known)), round(max(known))).as_text()} GiB"
    curve = render_sparkline(used, AxisScale(0.0, total), TextStyle.GPU)
    short = make_row(name, *curve, Span(f"  {bounds:<12}", TextStyle.UNIT), *swap)
    return RowBlock(spare=5, rows=(short,), grow=render_height, slot="memory", tallest=space.chart_rows)


def _read_used_memory(seen: NodeTileModel, total: int, count: int) -> list[float | None]:
    available = read_series(seen, SeriesName.AVAILABLE, count)
    return [None if value is None else total - value for value in available]


def _skip_columns(row: TextRow, columns: int) -> TextRow:
    """Return a row of a curve without its first columns."""
    for at, (text, tone) in enumerate(row):
        if len(text) > columns:
            return (Span(text[columns:], tone), *row[at + 1 :])
        columns -= len(text)
    return ()


_KERNEL_MARK = "▲"


def build_kernel_marks(seen: NodeTileModel, space: DrawArea) -> RowBlock | None:
    """Return marks under the memory curve where the kernel logged something, and the last of it; None without any."""
    now, seconds = seen.view.sample.time if seen.view.sample else seen.now, float(choose_chart_seconds(seen))
    shown = [one for one in seen.kernel if 0.0 <= now - one.last <= seconds and is_worth_a_line(one)]
    if not shown:
        return None
    name, last = make_label("kernel"), shown[-1]
    short = (LABEL_COLUMNS, space.bar_columns - _BOUNDS_UNIT_COLUMNS)  # a curve in one row has its span before it
    marks = {first: _place_marks(shown, now, seconds, wide) for first, wide in (short, (0, space.chart_columns))}
    low = _draw_marks(marks[LABEL_COLUMNS])
    if any(last.meaning in found.summary for found in seen.view.findings):  # which says what it was
        places, tall = marks[0], _draw_marks(marks[0])
        if min(places) >= LABEL_COLUMNS:
            tall = make_row(name, *_skip_columns(tall, LABEL_COLUMNS))
        elif max(places) < space.chart_columns - LABEL_COLUMNS:
            tall = make_row(
                *tall, " " * (space.chart_columns - LABEL_COLUMNS - max(places)), Span("kernel", TextStyle.LABEL)
            )
        # it goes before the curve above it
        return RowBlock(spare=6, rows=(make_row(name, *low),), slot="memory", below=(tall,))
    legend = make_row(
        name, Span(f"{_KERNEL_MARK} ", _get_mark_style(last)), sanitize_span(last.meaning, TextStyle.VALUE)
    )
    said = truncate_row(legend, space.columns)
    return RowBlock(
        spare=4, rows=(make_row(make_label(""), *low), said), slot="memory", below=(_draw_marks(marks[0]), said)
    )


def _place_marks(events: Sequence[KernelEvent], now: float, seconds: float, columns: int) -> dict[int, TextStyle]:
    """Return the column of each event in a curve of the last ``seconds``, with the style of the worst that is there."""
    places: dict[int, TextStyle] = {}
    for one in events:
        at = min(columns - 1, int(columns * (1 - (now - one.last) / seconds)))
        if places.get(at) is not TextStyle.BAD:
            places[at] = _get_mark_style(one)
    return dict(sorted(places.items()))


def _get_mark_style(event: KernelEvent) -> TextStyle:
    return TextStyle.BAD if event.severity is Severity.PROBLEM else TextStyle.ATTENTION


def _draw_marks(places: Mapping[int, TextStyle]) -> TextRow:
    spans: list[Span] = []
    for before, at in zip((-1, *places), places, strict=False):
        spans += [Span(" " * (at - before - 1), TextStyle.LABEL), Span(_KERNEL_MARK, places[at])]
    return make_row(*spans)


def render_log_text(line: str) -> Span:
    """Return the text of a log line without its header; warnings and errors stand out."""
    text = sanitize_line(line)
    level, head = parse_level_header(text)
    return Span(text[head:], _LEVEL_STYLES.get(level, TextStyle.LABEL) if level else TextStyle.LABEL)
