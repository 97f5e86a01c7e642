"""Memory bandwidth, estimated: a GB10 has no counter for it, and decoding is bound by what each step must read.

    GB/s = decode steps per second x bytes per step
    bytes per step = weights that a step reads + draft model x its passes + KV cache of the running context + linear layers' state

Of data-parallel engines each has its part of the requests, and of the experts. It steps by itself, and reads all else whole.

A step takes a few rows of an embedding table, and nothing of a vision tower: these are not counted. Prompts are bound by
arithmetic and read what nobody counts, so there is no estimate while they take a good part of the time, and none
without decode steps.
"""

from __future__ import annotations

import math
from dataclasses import replace
from enum import StrEnum
from functools import lru_cache

from sparkctl.model.decode_step import DecodeStepSpec
from sparkctl.model.engine_metrics import EngineActivity, EngineMeter
from sparkctl.model.instance import InstanceView
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import GB10_BANDWIDTH_GB_S
from sparkctl.model.sample import Sample
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.profiles.container_labels import format_decode_step_label, parse_decode_step_label

GB = 1e9  # memory bandwidth is specified and measured in decimal gigabytes
FORMULA = "GB/s = decode steps/s x (weights + experts + draft model x passes + KV cache + state) per step"
# Prompt tokens for each step, above which there is no estimate. Some 300 take the time of a step: 30 take a tenth of it.
_MAX_PROMPT_TOKENS_PER_STEP = 30.0
# Skew of the choice of experts: Qwen3-30B-A3B took 90 % of its choices from 65 of 128 experts over mixed prompts.
_HOT_CHOICES = 0.9
# How much more than by a choice at random can be read: an H100's counter, which may be 6 % off, showed 9 % more for four tokens
# (vLLM reads an expert again for each of so few), and no more than 1 % for eight and 32.
_MOST_ABOVE_RANDOM = 1.15


_GB10_BYTES_PER_SECOND = 230 * GB
_MAX_BYTES_PER_SECOND = 1 << 60  # bytes/s: no memory comes near it
_SPEC_TOLERANCE = 1.02  # rounding and a short window can exceed the specification by this factor


@dataclass(frozen=True, slots=True)
class BandwidthLimit:
    """The memory's bandwidth in bytes/s: ``spec`` as specified, ``measured``: the best measured GPU read, if known."""

    measured: float | None = _GB10_BYTES_PER_SECOND
    spec: float = GB10_BANDWIDTH_GB_S * GB

    def can_reach(self, rate: float) -> bool:
        """Tell whether the memory can do so many bytes/s."""
        return rate <= self.spec * _SPEC_TOLERANCE


GB10 = BandwidthLimit()


def get_bandwidth_limit(gb_per_second: float | None) -> BandwidthLimit:
    """Return the limit for a node with this specification in the config; only a GB10 has been measured."""
    if gb_per_second is None or gb_per_second == GB10_BANDWIDTH_GB_S:
        return GB10
    return BandwidthLimit(None, gb_per_second * GB)


class BandwidthSource(StrEnum):
    """How a bandwidth was obtained."""

    ESTIMATE = "estimate"
    COUNTER = "counter"  # the GPU's own counter


@dataclass(frozen=True, slots=True)
class ExpertReads:
    """The routed experts of a mixture-of-experts model on this rank: ``bytes`` of all ``count`` of them per step.

    ``are_parameters``: the number of experts is not known, and single parameters are used instead. The range is wider
    then: parameters that every token reads count as if they were chosen, too.
    """

    bytes: int
    count: int
    per_token: int
    are_parameters: bool = False

    def count_touched_experts(self, tokens: float, unlike: float | None = None) -> tuple[float, float, float]:
        """Return how many experts of a layer ``tokens`` touch: at least, at random, and at most. For one token all are equal.

        At random: N(1 - (1 - k/N)^T). At least: half of the experts get nine tenths of the choices, as a real model's do.
        At most: somewhat more than at random, and never more than if no two tokens chose the same one. ``unlike``: how many
        of the tokens must be different from each other, if not all: what repeats a token chooses the same experts.
        """
        fewest = tokens if unlike is None else min(tokens, unlike)
        share = self.per_token / self.count
        random = self.count * (1 - (1 - share) ** tokens)
        hot = min(1.0, 2 * _HOT_CHOICES * share)
        skewed = self.count / 2 * ((1 - (1 - hot) ** fewest) + (1 - (1 - (2 * share - hot)) ** fewest))
        most = min(float(self.count), self.per_token * max(1.0, tokens))
        most = min(most, max(self.per_token, random * _MOST_ABOVE_RANDOM))
        least = float(self.per_token) if self.are_parameters else max(self.per_token, skewed)
        return min(least, most), min(max(random, least), most), most

    def estimate_read_bytes(self, tokens: float, unlike: float | None = None) -> tuple[float, float]:
        """Return the bytes of the experts that ``tokens`` touch, at least and at most."""
        least, _, most = self.count_touched_experts(tokens, unlike)
        return least * (self.bytes / self.count), most * (self.bytes / self.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeStepReads:
    """What one decode step reads on one node. Bytes.

    ``weights``: this rank's share of what every step reads; for an MoE model without the routed ``experts``. ``draft``: the
    draft model, read ``draft_passes`` times a step; None if its size is not known. ``draft_tokens`` are verified together
    with the bonus token.
    """

    weights: int
    experts: ExpertReads | None = None
    draft: int | None = 0
    draft_passes: float = 1.0
    draft_tokens: int = 0
    kv_per_token: float | None = None
    state_per_request: float = 0.0
    whole: int | None = None  # the whole checkpoint; each of ``ranks`` nodes reads a share
    unread: int = 0  # of the whole checkpoint: what no step reads
    is_measured: bool = False  # from the headers of the files on the node
    ranks: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidth:
    """Bytes/s from ``low`` to ``high`` (equal for a dense model), with its inputs in words.

    ``suspect``: if it is not plausible, which input must be wrong and what to do about it.
    """

    low: float
    high: float
    ceiling: BandwidthLimit
    inputs: tuple[tuple[str, str], ...]
    source: BandwidthSource = BandwidthSource.ESTIMATE
    suspect: str | None = None

    @property
    def is_plausible(self) -> bool:
        """Tell whether the memory can reach it; if not, an input is wrong."""
        return self.ceiling.can_reach(self.low)

    def get_measured_shares(self) -> tuple[float, float] | None:
        """Return the shares of the measured limit, None if none was measured."""
        best = self.ceiling.measured
        return None if best is None else (self.low / best, self.high / best)

    def get_spec_shares(self) -> tuple[float, float]:
        """Return the shares of the specification."""
        return self.low / self.ceiling.spec, self.high / self.ceiling.spec

    @property
    def formula(self) -> str:
        """The formula that uses the inputs."""
        return FORMULA if self.source is BandwidthSource.ESTIMATE else "GB/s = the GPU's own counter x its peak"

    def explain_formula(self) -> tuple[str, ...]:
        """Return the formula and each input, one a line."""
        width = max(len(name) for name, _ in self.inputs)
        return (self.formula, *(f"  {name:{width}}  {value}" for name, value in self.inputs))


def estimate_bandwidth(
    numbers: EngineMeter, reads: DecodeStepReads, ceiling: BandwidthLimit = GB10
) -> Bandwidth | None:
    """Return the bandwidth that the engine's steps need; None while it processes prompts, idles, or is not known.

    What is chosen of a mixture of experts is a range, and the memory's specification ends it: only the smallest choice can be
    too much for it.
    """
    if numbers.activity is not EngineActivity.DECODING or not numbers.steps or _explain_blank(numbers):
        return None
    tokens = _count_step_tokens(numbers, reads)
    unlike = _count_unlike_tokens(numbers, reads)
    copies = _count_copies(numbers)
    least, most = reads.experts.estimate_read_bytes(tokens, unlike) if reads.experts else (0.0, 0.0)
    least, most = least / copies, most / copies
    draft = (reads.draft or 0) * reads.draft_passes
    context = _context_bytes(numbers, reads)
    always = reads.weights + draft + (context or 0.0) + _count_state_bytes(numbers, reads, tokens)
    low, high = numbers.steps * (always + least), numbers.steps * (always + most)
    if ceiling.can_reach(low):
        low, high = min(low, ceiling.spec), min(high, ceiling.spec)
    found = Bandwidth(
        low=low,
        high=high,
        ceiling=ceiling,
        inputs=(*_list_step_inputs(numbers), *_list_read_inputs(numbers, reads, tokens, context)),
    )
    return (
        found
        if found.is_plausible
        else replace(found, suspect=_explain_implausible(reads, least, draft, context or 0.0))
    )


def read_gpu_bandwidth(sample: Sample) -> Bandwidth | None:
    """Return the sum of the GPUs' own counters; None if one has no such counter, like a GB10."""
    known = [(one.bandwidth_share, one.bandwidth_peak) for one in sample.gpus or ()]
    pairs = [(share, peak) for share, peak in known if share is not None and peak is not None]
    sound = all(0 <= share < math.inf and 0 < peak < _MAX_BYTES_PER_SECOND for share, peak in pairs)
    if not pairs or len(pairs) < len(known) or not sound:
        return None
    rate, peak = sum(share * peak for share, peak in pairs), float(sum(peak for _, peak in pairs))
    inputs = (
        ("counter", f"{rate / peak * 100:.1f} % of the peak"),
        ("peak", _format_gigabytes(peak) + "/s"),
    )
    return Bandwidth(
        low=rate, high=rate, ceiling=BandwidthLimit(None, peak), inputs=inputs, source=BandwidthSource.COUNTER
    )


def get_node_bandwidth(view: NodeTelemetryView) -> Bandwidth | None:
    """Return the bandwidth that the node's GPUs count themselves, None without counters."""
    return None if view.sample is None else read_gpu_bandwidth(view.sample)


def estimate_instance_bandwidth(one: InstanceView, view: NodeTelemetryView) -> Bandwidth | None:
    """Return the estimate for an instance on a node; None if the GPU has its own counter, or nothing is known."""
    reads = build_decode_step_reads(one.per_step)
    if one.numbers is None or reads is None or get_node_bandwidth(view) is not None:
        return None
    found = estimate_bandwidth(one.numbers, reads, get_bandwidth_limit(view.memory_bandwidth))
    return found if found is not None and 0 <= found.low <= found.high < math.inf else None


@lru_cache(64)  # asked for at every paint, and always the same for an instance
def build_decode_step_reads(facts: DecodeStepSpec | None) -> DecodeStepReads | None:
    """Return what one rank of a model reads in a step, None if the weights are not known.

    Labels are checked when they are read; facts can also come from a recording, so they are checked here, too.
    """
    if facts is None or facts.weights is None or parse_decode_step_label(format_decode_step_label(facts)) != facts:
        return None
    weights, experts, ranks = facts.weights - (facts.unread or 0), None, facts.ranks
    total, active = facts.parameters, facts.active_parameters
    if facts.experts is not None:
        routed = facts.experts
        weights = max(0, weights - routed.weights)
        experts = ExpertReads(routed.weights // ranks, routed.count, routed.per_token)
    elif total is not None and active is not None and active < total:
        weights, experts = 0, ExpertReads(weights // ranks, total, active, are_parameters=True)
    draft = facts.draft_weights if facts.draft_weights is not None or facts.draft_passes else 0
    return DecodeStepReads(
        weights=weights // ranks,
        experts=experts,
        draft=None if draft is None else draft // ranks,
        draft_passes=1.0 if facts.draft_passes is None else facts.draft_passes,
        draft_tokens=facts.draft_tokens or 0,
        kv_per_token=None if facts.kv_per_token is None else facts.kv_per_token / ranks,
        state_per_request=(facts.state_per_request or 0) / ranks,
        whole=facts.weights,
        unread=facts.unread or 0,
        is_measured=facts.is_measured,
        ranks=ranks,
    )


def explain_missing_estimate(numbers: EngineMeter | None, facts: DecodeStepSpec | None) -> str:
    """Return why there is no estimate: a sentence for an owner."""
    if facts is None or facts.weights is None:
        return (
            "what a step reads is not known: the model's files were not read at its start; model.weights in the profile (bytes "
            "of the checkpoint) would tell, from the next start on"
        )
    if numbers is None or numbers.activity is None:
        return "what the engine does is not known"
    if numbers.activity is EngineActivity.IDLE:
        return "no decode step: nothing is read"
    if numbers.activity is EngineActivity.PREFILL:
        return "prompts are being read: that is bound by arithmetic, not by memory"
    return _explain_blank(numbers) or "the engine has not reported its step rate yet"


def is_prefilling(numbers: EngineMeter) -> bool:
    """Tell whether an engine reads so many prompts beside its decode steps that there is no honest estimate."""
    load = numbers.step_load
    many = load is not None and load.is_running and (load.prompt_tokens or 0.0) > _MAX_PROMPT_TOKENS_PER_STEP
    return many or numbers.activity is EngineActivity.PREFILL


def _explain_blank(numbers: EngineMeter) -> str | None:
    """Return why steps that were counted give no honest figure, None if they do."""
    load = numbers.step_load
    if load is None:
        return None
    if not load.is_running:
        return "the last request has ended: nothing is read now"
    if load.prompt_tokens is not None and is_prefilling(numbers):
        return (
            f"too many prompts for an estimate: {load.prompt_tokens:.0f} of their tokens a decode step, and what they read "
            "cannot be counted"
        )
    return None


def _count_step_tokens(numbers: EngineMeter, reads: DecodeStepReads) -> float:
    if numbers.step_load is not None and numbers.step_load.tokens is not None:
        return numbers.step_load.tokens
    return (numbers.batch or 1.0) * (1 + reads.draft_tokens)


def _count_copies(numbers: EngineMeter) -> int:
    return 1 if numbers.step_load is None else numbers.step_load.copies


def _count_unlike_tokens(numbers: EngineMeter, reads: DecodeStepReads) -> float | None:
    """Return the requests where drafts are copied from the text, not a model's: a text that repeats itself drafts the same tokens."""
    return (numbers.batch or 1.0) if reads.draft_tokens and not reads.draft_passes else None


def _explain_implausible(reads: DecodeStepReads, least: float, draft: float, context: float) -> str:
    """Return which input must be wrong: the largest size, because steps are counted and sizes are typed by hand."""
    parts = {
        "model.weights": float(reads.weights),
        "model.experts" if not (reads.experts and reads.experts.are_parameters) else "model.active_parameters": least,
        "model.draft_weights, or the engine's draft steps,": draft,
        "model.kv_per_token": context,
    }
    name = max(parts, key=lambda part: parts[part])
    dense = name == "model.weights" and reads.experts is None
    return f"{name} in the profile must be wrong" + (
        " (a mixture of experts? then model.experts is missing; on two Sparks each reads its half)" if dense else ""
    )


def _context_bytes(numbers: EngineMeter, reads: DecodeStepReads) -> float | None:
    context_tokens = _get_context_tokens(numbers)
    return None if context_tokens is None or reads.kv_per_token is None else context_tokens * reads.kv_per_token


def _count_state_bytes(numbers: EngineMeter, reads: DecodeStepReads, tokens: float) -> float:
    """Return what linear layers read of each request, and write for each token: drafts that are rejected leave the state before."""
    return reads.state_per_request * ((numbers.batch or 1.0) + tokens) / _count_copies(numbers)


def _get_context_tokens(numbers: EngineMeter) -> float | None:
    """Return the mean over the same steps, of one engine; where only the log is known, its last line."""
    kv_tokens = None if numbers.step_load is None else numbers.step_load.kv_tokens
    kv_tokens = numbers.kv_tokens if kv_tokens is None else kv_tokens
    return None if kv_tokens is None else kv_tokens / _count_copies(numbers)


def _list_step_inputs(numbers: EngineMeter) -> list[tuple[str, str]]:
    length = numbers.acceptance.length if numbers.acceptance else None
    inputs = [
        ("decode steps", f"{numbers.steps:.2f} per second over {numbers.seconds or 0:.0f} s ({numbers.estimator})")
    ]
    if numbers.generation_rate is not None:
        inputs.append(("generation", f"{numbers.generation_rate:.1f} tok/s, {numbers.batch or 1:.1f} requests a step"))
    inputs.append(("accept length", "no drafts" if length is None else f"{length:.2f} tokens per step"))
    return inputs


def _list_read_inputs(
    numbers: EngineMeter, reads: DecodeStepReads, tokens: float, context: float | None
) -> list[tuple[str, str]]:
    inputs = []
    if reads.whole is not None:
        source = "measured by the headers of its files" if reads.is_measured else "model.weights of the profile"
        inputs.append(("checkpoint", f"{_format_gigabytes(reads.whole)} ({source})"))
        if reads.unread:
            inputs.append(
                ("not read", f"{_format_gigabytes(reads.unread)} of it: embedding table, vision tower and the like")
            )
        elif not reads.is_measured:
            inputs.append(("", "a separate embedding table counts as read, so this is some percent too high"))
        if reads.ranks > 1:
            inputs.append(("nodes", f"{reads.ranks}, each reads its share"))
    if (copies := _count_copies(numbers)) > 1:
        inputs.append(("engines", f"{copies} (data parallel), each has its part of requests, context and experts"))
    if reads.weights:
        inputs.append(("weights", _format_gigabytes(reads.weights)))
    if reads.experts is not None:
        drafts = " with their drafts" if reads.draft_tokens else ""
        inputs.append(("tokens a step", f"{tokens:.1f} = {numbers.batch or 1.0:.1f} requests{drafts}"))
        name = "active share" if reads.experts.are_parameters else "experts"
        inputs.append((name, _format_experts(reads.experts, tokens, _count_unlike_tokens(numbers, reads))))
    if reads.draft is None:
        inputs.append(("draft model", "not counted: set model.draft_weights in the profile"))
    elif reads.draft:
        inputs.append(("draft model", f"{_format_gigabytes(reads.draft)} x {reads.draft_passes:g}"))
    if context is None:
        lacking = "the engine does not report" if reads.kv_per_token else "set model.kv_per_token in the profile for"
        inputs.append(("KV cache", f"not counted: {lacking} its size"))
    else:
        inputs.append(
            ("KV cache", f"{_format_gigabytes(context)} ({_get_context_tokens(numbers):.0f} tokens of context)")
        )
    if reads.state_per_request:
        state = _format_gigabytes(_count_state_bytes(numbers, reads, tokens))
        inputs.append(("state", f"{state} (linear layers: read for each request, written for each token)"))
    if numbers.prompt_rate:
        inputs.append(("prompts", f"{numbers.prompt_rate:.0f} tok/s were read as well; what that reads is not counted"))
    return inputs


def _format_experts(experts: ExpertReads, tokens: float, unlike: float | None) -> str:
    least, most = experts.estimate_read_bytes(tokens, unlike)
    if tokens <= 1:
        chosen, all_experts = (_format_expert_count(experts, one) for one in (experts.per_token, experts.count))
        return f"{_format_gigabytes(least)} (one token's: {chosen} of {all_experts})"
    counts = [_format_expert_count(experts, one) for one in experts.count_touched_experts(tokens, unlike)]
    return (
        f"{_format_gigabytes(least)} to {_format_gigabytes(most)} ({tokens:.0f} tokens at once: {counts[0]} to {counts[2]} of "
        f"{_format_expert_count(experts, experts.count)}, at random {counts[1]})"
    )


def _format_expert_count(experts: ExpertReads, count: float) -> str:
    return f"{count / 1e9:.1f} billion parameters" if experts.are_parameters else f"{count:.0f}"


def _format_gigabytes(count: float) -> str:
    return f"{count / GB:.2f} GB" if count >= 0.1 * GB else f"{count / 1e6:.1f} MB"
