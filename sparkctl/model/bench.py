"""A benchmark: its cells, and what was measured in each. Seconds, tokens, bytes, watts, MHz; None is "not known"."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, log, sqrt

from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchCell:
    """One situation: ``pp`` prompt tokens after ``depth`` tokens of context, ``tg`` generated tokens, ``concurrency`` requests
    at a time.
    """

    pp: int
    tg: int
    depth: int = 0
    concurrency: int = 1

    @property
    def context(self) -> int:
        """The tokens that one request holds at its end."""
        return self.depth + self.pp + self.tg

    def __str__(self) -> str:
        """Return the short name that owners of llama-bench know: ``pp2048 tg128 @ d4096 c2``."""
        depth = f" @ d{self.depth}" if self.depth else ""
        return f"pp{self.pp} tg{self.tg}{depth} c{self.concurrency}"


@dataclass(frozen=True, slots=True)
class Measurements:
    """One figure in each run of a cell."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The value in the middle."""
        import statistics  # imported late: it takes 10 ms, and every command imports this module

        return statistics.median(self.values)

    @property
    def low(self) -> float:
        """The smallest value."""
        return min(self.values)

    @property
    def high(self) -> float:
        """The largest value."""
        return max(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """A measured cell.

    The first five come from the load generator: ``generation_rate`` and ``prompt_rate`` in tokens/s of all requests
    together, ``ttft`` in seconds, ``peak_rate`` the most tokens/s in any second, one value for each run; ``latency`` of the
    connection in seconds. So do those that end with ``_each``, one value for each request, and ``first_response`` and
    ``prompt_seconds`` in seconds, which leaderboards read. The rest is what the engine and the node did from the first
    measured request to the end of the last: acceptance by the engine's counters, ``steps`` decode steps/s, ``bandwidth`` an
    estimate in bytes/s of what they read of the memory, the middle of ``bandwidth_range``,
    ``memory_peak`` bytes in use on the node, ``power`` in watts, ``tokens_per_joule`` generated, ``clock`` in MHz, all
    means but for the peak and ``celsius`` (the highest). ``throttled``: the driver slowed the GPU down for its heat or
    power. ``disturbed``: other clients generated tokens meanwhile. ``error``: why nothing was measured.
    """

    cell: BenchCell
    generation_rate: Measurements | None = None
    prompt_rate: Measurements | None = None
    ttft: Measurements | None = None
    peak_rate: Measurements | None = None
    latency: float | None = None
    accept_length: float | None = None
    accept_rate: float | None = None
    accept_positions: tuple[float, ...] | None = None
    steps: float | None = None
    bandwidth: float | None = None
    bandwidth_range: tuple[float, float] | None = None
    memory_peak: int | None = None
    power: float | None = None
    tokens_per_joule: float | None = None
    clock: float | None = None
    celsius: float | None = None
    throttled: bool | None = None
    disturbed: bool | None = None
    seconds: float | None = None
    error: str | None = None
    generation_rate_each: Measurements | None = None
    prompt_rate_each: Measurements | None = None
    peak_rate_each: Measurements | None = None
    first_response: Measurements | None = None
    prompt_seconds: Measurements | None = None


def estimate_seconds(cells: Sequence[BenchCell], runs: int, seen: Sequence[CellResult]) -> float | None:
    """Return about how long the requests of these cells take, by the speed in cells that were measured; None without any.

    Requests at a time share the steps, so their tokens/s together grow less than their number: by its square root, about.
    """
    known = [one for one in seen if one.generation_rate is not None and one.generation_rate.median > 0]
    if not known:
        return None if cells else 0.0
    seconds = []
    for cell in cells:
        alike = min(known, key=lambda one: _compare_sizes(one.cell, cell))
        rate = alike.generation_rate.median if alike.generation_rate else 0.0
        joint_rate = rate * sqrt(cell.concurrency / alike.cell.concurrency)
        prompts = (
            (cell.pp + cell.depth) / alike.prompt_rate.median
            if alike.prompt_rate and alike.prompt_rate.median > 0
            else 0.0
        )
        seconds.append(runs * cell.concurrency * (prompts + cell.tg / joint_rate))
    return fsum(seconds)


def _compare_sizes(one: BenchCell, other: BenchCell) -> tuple[float, int]:
    return abs(log(one.concurrency / other.concurrency)), abs(one.depth - other.depth)


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainResult:
    """One kind of text, its prompts one after the other.

    ``thinking``: None where the model has no such choice. ``tokens`` generated; ``generation_rate`` tokens/s by our clock, one value
    for each prompt; ``ttft`` seconds. Acceptance by the engine, over all ``steps`` that drafted; None without drafts, or where the
    engine did not tell. ``failed`` of ``prompts`` gave no figure, ``error``: why the first of them. ``disturbed``: other clients
    generated tokens meanwhile.
    """

    domain: str
    thinking: bool | None = None
    prompts: int
    failed: int = 0
    tokens: int = 0
    generation_rate: Measurements | None = None
    ttft: Measurements | None = None
    accept_length: float | None = None
    accept_rate: float | None = None
    steps: float | None = None
    disturbed: bool | None = None
    error: str | None = None

    @property
    def key(self) -> DomainKey:
        return DomainKey(self.domain, self.thinking)


@dataclass(frozen=True, slots=True)
class DomainKey:
    """A kind of text, where benchmarks have these in place of cells."""

    domain: str
    thinking: bool | None

    def __str__(self) -> str:
        """Return its name, with the pass."""
        return self.domain if self.thinking is None else f"{self.domain}, thinking {'on' if self.thinking else 'off'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchSetup:
    """What was measured with which tool: all that can change the figures."""

    profile: str | None = None
    digest: str | None = None  # of the profile
    text: str | None = None  # the profile's, without secrets
    engine: str | None = None
    engine_version: str | None = None
    image: str | None = None
    image_digest: str | None = None
    driver: str | None = None
    kernel: str | None = None
    served: str | None = None  # model name that requests carry
    context: int | None = None  # tokens of one request
    generator: str | None = None  # name and version
    book: str | None = None  # SHA-256 of the text that prompts are cut from
    prompts: str | None = None  # SHA-256 of the prompts by kind of text
    answer_tokens: int | None = None  # at most, of each answer to them
    draft_tokens: int | None = None  # in each step, 0 without drafts
    temperature: float | None = None  # of each request, or that of the launch; None: the model's or the engine's own
    thinking: bool | None = (
        None  # whether the cells' answers begin with thoughts; None: the server does not tell them apart
    )
    runs: int = 1
    prefix_caching: bool = False  # the load generator's switch: no prompt of it is found in a prefix cache
    prefix_cache: bool | None = None  # of the engine, as its command turns it on or off; None: its default


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRun:
    """One benchmark of one instance. ``number`` counts them on this machine; ``wanted``: all cells, measured or not.

    One by kind of text has ``domains`` and no cells; ``wanted_domains``: all that were asked for, none in older files;
    ``prompts``: the file of prompts, None for our own; ``baseline``: the number of the benchmark without drafts beside it.
    """

    number: int
    began: float
    instance: str
    nodes: tuple[NodeName, ...]
    setup: BenchSetup
    wanted: tuple[BenchCell, ...]
    results: tuple[CellResult, ...] = ()
    ended: float | None = None
    why: str | None = None  # why it ended early
    domains: tuple[DomainResult, ...] = ()
    wanted_domains: tuple[DomainKey, ...] = ()
    prompts: str | None = None
    baseline: int | None = None

    @property
    def missing(self) -> tuple[BenchCell, ...]:
        """The cells without a measurement, in order."""
        done = {one.cell for one in self.results if one.error is None}
        return tuple(cell for cell in self.wanted if cell not in done)

    @property
    def missing_domains(self) -> tuple[DomainKey, ...]:
        """The kinds of text without a whole measurement, in order."""
        done = {one.key for one in self.domains if one.error is None}
        return tuple(key for key in self.wanted_domains if key not in done)
