"""Memory bandwidth, estimated: a GB10 has no counter for it, and decoding is bound by what each step must read.

    GB/s = decode steps per second x bytes per step
    bytes per step = weights that this rank reads + draft model x its passes + KV cache of the running context

Prompts are bound by arithmetic, so there is no estimate while they are read, and none while no step happens.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparkctl.model.metrics import Activity, Numbers

GB = 1e9  # memory bandwidth is sold and measured in decimal gigabytes
FORMULA = "GB/s = decode steps/s x (weights + experts + draft model x passes + KV cache read) per step"


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What the memory can do, bytes/s: ``measured`` by the best GPU read seen, ``spec`` as printed."""

    measured: float = 230 * GB
    spec: float = 273 * GB


GB10 = Ceiling()


@dataclass(frozen=True, slots=True)
class Experts:
    """The routed experts of a mixture-of-experts model on this rank: ``bytes`` of all ``count`` of them per step."""

    bytes: int
    count: int
    per_token: int

    def touched(self, tokens: float) -> float:
        """Return how many experts of a layer ``tokens`` touch, if they choose at random: N(1 - (1 - k/N)^T)."""
        missed: float = (1 - self.per_token / self.count) ** tokens
        return self.count * (1 - missed)

    def read(self, tokens: float) -> tuple[float, float]:
        """Return bytes for one token's experts and for all that ``tokens`` can touch: alike tokens choose alike."""
        each = self.bytes / self.count
        return each * self.per_token, each * self.touched(max(1.0, tokens))


@dataclass(frozen=True, slots=True)
class Reads:
    """What one decode step reads on one node. Bytes.

    ``weights``: this rank's share of what every step reads; of an MoE model all but its routed ``experts``. ``draft``:
    the draft model, read ``draft_passes`` times a step. ``draft_tokens`` are verified beside the bonus token.
    """

    weights: int
    experts: Experts | None = None
    draft: int = 0
    draft_passes: float = 1.0
    draft_tokens: int = 0
    kv_per_token: int | None = None


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """An estimate: bytes/s from ``low`` to ``high`` (the same for a dense model), with its inputs in words."""

    low: float
    high: float
    ceiling: Ceiling
    inputs: tuple[tuple[str, str], ...]

    @property
    def is_range(self) -> bool:
        """Say whether it is a range and not a number."""
        return self.high > self.low

    @property
    def plausible(self) -> bool:
        """Say whether the memory could do it; if not, an input is wrong."""
        return self.low <= self.ceiling.spec

    def of_measured(self) -> tuple[float, float]:
        """Return the shares of the measured ceiling."""
        return self.low / self.ceiling.measured, self.high / self.ceiling.measured

    def of_spec(self) -> tuple[float, float]:
        """Return the shares of the printed specification."""
        return self.low / self.ceiling.spec, self.high / self.ceiling.spec

    def explain(self) -> tuple[str, ...]:
        """Return the formula and each input, a line each."""
        width = max(len(name) for name, _ in self.inputs)
        return (FORMULA, *(f"  {name:{width}}  {value}" for name, value in self.inputs))


def estimate(numbers: Numbers, reads: Reads, ceiling: Ceiling = GB10) -> Bandwidth | None:
    """Return the bandwidth that the engine's steps need, None while it reads prompts, idles, or is not known."""
    if numbers.activity is not Activity.DECODING or not numbers.steps:
        return None
    tokens = (numbers.batch or 1.0) * (1 + reads.draft_tokens)
    least, most = reads.experts.read(tokens) if reads.experts else (0.0, 0.0)
    draft = reads.draft * reads.draft_passes
    context = _context(numbers, reads)
    always = reads.weights + draft + (context or 0.0)
    return Bandwidth(
        numbers.steps * (always + least),
        numbers.steps * (always + most),
        ceiling,
        (*_step_inputs(numbers), *_read_inputs(numbers, reads, tokens, context)),
    )


def _context(numbers: Numbers, reads: Reads) -> float | None:
    if numbers.kv_tokens is None or reads.kv_per_token is None:
        return None
    return numbers.kv_tokens * reads.kv_per_token


def _step_inputs(numbers: Numbers) -> list[tuple[str, str]]:
    length = numbers.acceptance.length if numbers.acceptance else None
    inputs = [
        ("decode steps", f"{numbers.steps:.2f} per second over {numbers.seconds or 0:.0f} s ({numbers.estimator})")
    ]
    if numbers.generation_rate is not None:
        inputs.append(("generation", f"{numbers.generation_rate:.1f} tok/s, {numbers.batch or 1:.1f} requests a step"))
    inputs.append(("accept length", "no drafts" if length is None else f"{length:.2f} tokens per step"))
    return inputs


def _read_inputs(numbers: Numbers, reads: Reads, tokens: float, context: float | None) -> list[tuple[str, str]]:
    inputs = [("weights", _size(reads.weights))]
    if reads.experts is not None:
        experts = reads.experts
        least, most = experts.read(tokens)
        inputs.append(
            (
                "experts",
                f"{_size(least)} ({experts.per_token} of {experts.count}: one token's) to {_size(most)} "
                f"({experts.touched(max(1.0, tokens)):.0f}: {tokens:.0f} tokens verified at once)",
            )
        )
    if reads.draft:
        inputs.append(("draft model", f"{_size(reads.draft)} x {reads.draft_passes:g}"))
    if context is None:
        inputs.append(("KV cache", "not counted: its size is not known"))
    else:
        inputs.append(("KV cache", f"{_size(context)} ({numbers.kv_tokens:.0f} tokens of context)"))
    if numbers.prompt_rate:
        inputs.append(("prompts", f"{numbers.prompt_rate:.0f} tok/s were read as well; what that reads is not counted"))
    return inputs


def _size(count: float) -> str:
    return f"{count / GB:.2f} GB" if count >= 0.1 * GB else f"{count / 1e6:.1f} MB"
