"""An engine's figures as text: ``idle`` if no step happened, an em dash if a value is not known."""

from __future__ import annotations

from sparkctl.model.engine_metrics import DraftAcceptance, EngineActivity, EngineMeter, MeterSource, Quantiles
from sparkctl.model.reference import ComparableReference, FigureRange, list_acceptance_words
from sparkctl.model.sample import Gpu
from sparkctl.monitor.meters.bandwidth import GB, Bandwidth, BandwidthSource

UNKNOWN = "—"
CLOCK_LIMIT_REASONS = {
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
    0x100: "display clock",
}  # bit 0x1 is idle
_THROTTLE_REASONS = 0x8 | 0x20 | 0x40 | 0x80  # that somebody should see; the others are usual
IDLE = "idle"
_SOURCE_SUFFIXES = {MeterSource.COUNTERS: "", MeterSource.GAUGE: " · by its gauge", MeterSource.LOG: " · by its log"}


def format_token_rate(rate: float | None) -> str:
    """Return ``12.7 tok/s``; without a decimal from 100 on."""
    if rate is None:
        return UNKNOWN
    return f"{rate:.1f} tok/s" if rate < 99.95 else f"{rate:.0f} tok/s"


def format_reference_rate(rate: FigureRange) -> str:
    """Return ``published 12.7`` or ``published 23–27``: what others measured, to stand behind a live figure."""
    return f"published {rate.as_text()}"


def format_reference(reference: ComparableReference) -> str:
    """Return ``12.7 tok/s for 1 (11.9 at 16k), 43.1 for 8, 1.65–1.85 per step · example.org``: all that may be compared, and whose
    it is. In parentheses: in longer contexts, of so many tokens."""
    rates = []
    for at, (count, (first, *longer)) in enumerate(reference.rates_by_concurrency_and_context.items()):
        more = ", ".join(f"{rate.as_text()} at {context / 1024:.0f}k" for context, rate in longer)
        rates.append(f"{first[1].as_text()}{'' if at else ' tok/s'} for {count}{f' ({more})' if more else ''}")
    rates += list_acceptance_words(reference.accept_length, reference.accept_rate)
    return f"{', '.join(rates)} · {reference.source_names}"


def format_throughput(numbers: EngineMeter) -> str:
    """Return ``12.7 tok/s``, ``reading prompts``, ``idle`` or an em dash."""
    if numbers.activity is EngineActivity.IDLE:
        return IDLE
    if numbers.activity is EngineActivity.PREFILL:
        return "reading prompts" + (f" · {format_token_rate(numbers.prompt_rate)}" if numbers.prompt_rate else "")
    return format_token_rate(numbers.generation_rate)


def format_draft_acceptance(numbers: EngineMeter, drafted: int | None = None) -> str:
    """Return ``1.75 per step · 20 % of 3 drafts``, ``no drafts``, ``idle`` or an em dash.

    ``drafted``: the configured draft tokens per step. Figures that are not differences of counters name their source,
    such as ``· by its gauge``.
    """
    if numbers.activity is EngineActivity.IDLE:
        return IDLE
    seen = numbers.acceptance
    if seen is None:
        return UNKNOWN
    if seen.length is None and seen.rate is None:
        return "no drafts" + _SOURCE_SUFFIXES[seen.estimator]
    parts = [] if seen.length is None else [f"{seen.length:.2f} per step"]
    if seen.rate is not None:
        parts.append(f"{format_percent(seen.rate)} of {_format_draft_count(drafted)}")
    elif drafted is not None:
        parts.append(f"of {drafted + 1} at most")
    return " · ".join(parts) + _SOURCE_SUFFIXES[seen.estimator]


def _format_draft_count(drafted: int | None) -> str:
    if drafted is None:
        return "drafts"
    return f"{drafted} draft" if drafted == 1 else f"{drafted} drafts"


def format_position_acceptance(seen: DraftAcceptance | None) -> str:
    """Return ``86 · 71 · 62 %``: how often the first, second, third draft token was accepted."""
    if seen is None or not seen.per_position:
        return UNKNOWN
    return " · ".join(f"{share * 100:.0f}" for share in seen.per_position) + " %"


def format_bandwidth(seen: Bandwidth | None) -> str:
    """Return ``≈ 196 GB/s est. · 85 % of 230 measured, 72 % of 273 spec``, with a range for a mixture of experts.

    From the GPU's own counter: ``2118 GB/s measured · 44 % of 4814 spec``. "" if nothing is known.
    """
    if seen is None:
        return ""
    if not seen.is_plausible:
        return f"not known: the estimate is more than the memory can do, {seen.suspect}"
    amount = _format_number_range(seen.low / GB, seen.high / GB)
    spec = f"{_format_percent_range(seen.get_spec_shares())} % of {seen.ceiling.spec / GB:.0f} spec"
    if seen.source is BandwidthSource.COUNTER:
        return f"{amount} GB/s measured · {spec}"
    best, shares = seen.ceiling.measured, seen.get_measured_shares()
    if best is not None and shares is not None:
        spec = f"{_format_percent_range(shares)} % of {best / GB:.0f} measured, {spec}"
    return f"≈ {amount} GB/s est. · {spec}"


def _format_percent_range(shares: tuple[float, float]) -> str:
    low, high = shares
    return _format_number_range(low * 100, high * 100)


def format_queue(numbers: EngineMeter) -> str:
    """Return ``3 running, 1 waiting``."""
    if numbers.running is None:
        return UNKNOWN
    return f"{numbers.running:.0f} running" + (f", {numbers.waiting:.0f} waiting" if numbers.waiting else "")


def format_percent(share: float | None) -> str:
    """Return ``20 %`` for 0.2; with a decimal below 10 %, except for zero."""
    if share is None:
        return UNKNOWN
    value = share * 100
    return f"{value:.0f} %" if value >= 9.95 or value == 0 else f"{value:.1f} %"


def format_latency(seen: Quantiles | None) -> str:
    """Return ``310 ms p50, 1.20 s p95``."""
    return UNKNOWN if seen is None else f"{_format_short_time(seen.p50)} p50, {_format_short_time(seen.p95)} p95"


def _format_short_time(seconds: float) -> str:
    if seconds < 0.0095:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.0f} s"


def _format_number_range(low: float, high: float) -> str:
    one, other = f"{low:.0f}", f"{high:.0f}"
    return f"{one}–{other}" if one != other else one


def find_worst_clock_limit(gpu: Gpu) -> str | None:
    """Return why the GPU is throttled, in a word or two; None where it is not, or it is not known."""
    limits = [name for bit, name in CLOCK_LIMIT_REASONS.items() if (gpu.reasons or 0) & bit & _THROTTLE_REASONS]
    return limits[-1].partition(" (")[0] if limits else None
