"""What every simulated engine has; each engine's own part is in its folder, in ``SIMULATED_ENGINES``, with its script."""

from __future__ import annotations

import math
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from sparkctl.engines import FALLBACK_ENGINE, engine_names, find_engine, load_engine_part
from sparkctl.engines.simulation.decode_model import (
    FIRST_TOKEN_SECONDS,
    DecodeCounts,
    DecodeModel,
    MetricRows,
)
from sparkctl.engines.simulation.engine_launch import (
    TORCH_STORE_WAIT_SECONDS,
    EngineFault,
    RankRendezvous,
    SimLaunch,
    count_draft_tokens,
    find_first_flag,
    find_positional_model,
    find_shell_line,
    find_upstream_port,
    guess_model_size,
    is_ngram,
    parse_fault,
    parse_flags,
)
from sparkctl.engines.simulation.script_player import LogStep, ScriptPlayer
from sparkctl.model.node import TOTAL_BYTES
from sparkctl.model.text.units import GIB

_TTFT_BUCKETS = (("0.1", 0.0), ("0.25", 0.35), ("0.5", 0.85), ("1.0", 0.95), ("2.5", 1.0), ("+Inf", 1.0))  # share up to
_ITL_BUCKETS = ("0.025", "0.05", "0.075", "0.1", "0.15", "0.2", "0.3", "0.5", "1.0", "+Inf")
DRAFT_HEAD_SHARE = 0.105  # bytes of a draft head (a layer, and the output over the whole vocabulary) for each of the model's parameters


class SimulatedEngine(ScriptPlayer):
    """One run of an engine, or of a worker that it starts on another Spark. ``available`` is MemAvailable now;
    ``port_taken`` tells whether its port is.

    The sections of its script: ``start``; ``out-of-memory`` (values: bytes ``wanted``, ``free`` and ``held`` already),
    ``bad-flag``; ``farewell`` after a SIGTERM; ``alone`` if only ``have`` of ``of`` ranks came, ``apart`` if a rank was
    lost (``loss``); ``follow`` for a rank that learns from the head what to load; ``work`` for the log of a stride of
    decoding (``made``, at a ``rate`` of tokens per second).
    """

    kind: str
    script = "simulated_engine.txt"
    marks: tuple[str, ...] = ()  # show it in a command or an image
    time_format = "%H:%M:%S"
    default_port = 0
    default_fraction = 0.9  # of the memory
    unnamed_size = 8.0  # billions of parameters of a model whose name does not tell
    has_metrics = False  # without a flag for them
    hears_sigterm = True
    access_prefix: str | None = ""  # before each line about a request; None: it writes none
    writes_text = True  # it serves a language model
    speaks = False  # it makes sound
    loading_body: dict[str, Any] | None = None  # the answer to every request while it loads; None: only to /health
    health_body: dict[str, str] | None = None
    needs_model_name = False  # it refuses another model's name
    stuck_error: str | None = None  # its answer if it cannot generate; None: it does not answer
    health_paths: tuple[str, ...] = ("/health",)

    def __init__(
        self, launch: SimLaunch, decoding: DecodeModel, available: Callable[[], int], port_taken: Callable[[], bool]
    ) -> None:
        folder = Path(sys.modules[type(self).__module__].__file__ or "").parent
        super().__init__(folder / self.script, launch)
        self.launch, self.decoding = launch, decoding
        self.available, self._port_taken = available, port_taken
        self._given |= self.describe_launch()

    # --- how a launch is read ---

    @classmethod
    def rate_launch(cls, image: str, argv: Sequence[str]) -> int:
        """Return how surely a container runs it: 0 not, 1 by its image, 2 by its command, 3 nothing else would."""
        words = " ".join(argv)
        if any(mark in words for mark in cls.marks):
            return 2
        return int("uvicorn" not in words and any(mark in image for mark in cls.marks))

    @classmethod
    def read_ranks(cls, argv: tuple[str, ...], env: Mapping[str, str]) -> tuple[tuple[str, ...], RankRendezvous | None]:
        """Return the engine's own words, and how the ranks connect; None if there is only one."""
        return argv, None

    # --- names in its script ---

    def describe_launch(self) -> dict[str, object]:
        """Return the values of names that stay the same during a run."""
        return {}

    def describe_work(self, made: DecodeCounts, seconds: float) -> dict[str, object]:
        """Return the values of names in ``work`` for what was decoded in ``seconds``."""
        return {}

    @property
    def port_taken(self) -> bool:
        """Whether somebody else has its port."""
        return self._port_taken()

    @property
    def is_spread(self) -> bool:
        """Whether it is one rank of several."""
        return self.launch.joining is not None

    @property
    def joining(self) -> RankRendezvous:
        """How its ranks connect. Only for one of several."""
        assert self.launch.joining is not None
        return self.launch.joining

    @property
    def place(self) -> str:
        """The address and port of the head; of a worker where the head looks for it."""
        return "{}:{}".format(*self.joining.main_address)

    @property
    def address(self) -> str:
        """The same, without the port."""
        return self.joining.main_address[0]

    @property
    def unknown_flag(self) -> str:
        """The flag to reject: the last one given."""
        return next((word for word in reversed(self.launch.argv) if word.startswith("--")), "--no-such-flag")

    @property
    def is_cut(self) -> bool:
        """Whether a rank was lost by a cut cable."""
        return bool(self["loss"].how == "cut")

    @property
    def lost_address(self) -> str:
        """The address of a lost rank."""
        return str(self["loss"].address)

    @property
    def weights_gib(self) -> float:
        return self.launch.weights / GIB

    @property
    def is_drafting(self) -> bool:
        return self.launch.draft_tokens > 0

    @property
    def patience(self) -> float:
        """Seconds for which torch's store waits for the other ranks."""
        return TORCH_STORE_WAIT_SECONDS

    @property
    def cuda_oom(self) -> str:
        """torch's message for ``wanted`` bytes that a process with ``held`` bytes could not allocate."""
        wanted, free, held = self["wanted"], self["free"], self["held"]
        return (
            f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {wanted / GIB:.2f} GiB. GPU 0 has a total "
            f"capacity of {TOTAL_BYTES / GIB:.2f} GiB of which {free / GIB:.2f} GiB is free. Including non-PyTorch memory, this process has "
            f"{held / GIB:.2f} GiB memory in use. Of the allocated memory {max(0, held - GIB) / GIB:.2f} GiB is allocated by "
            "PyTorch, and 412.55 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try "
            "setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
        )

    @property
    def port_in_use(self) -> str:
        """uvicorn's message for a port that is in use."""
        launch = self.launch
        problem = f"error while attempting to bind on address ('{launch.host}', {launch.port}): address already in use"
        return f"ERROR:    [Errno 98] {problem}"

    @property
    def peers_missing(self) -> str:
        """The message of torch's store: on the head when workers are missing, on a worker that does not reach it."""
        if self.launch.rank:
            address, port = self.joining.main_address
            return (
                f"torch.distributed.DistNetworkError: The client socket has timed out after {self.patience * 1000:.0f}ms while "
                f"trying to connect to ({address}, {port})."
            )
        return (
            f"torch.distributed.DistStoreError: Timed out after {self.patience + 1:.0f} seconds waiting for clients. "
            f"{self['have']}/{self['of']} clients joined."
        )

    @property
    def nccl_timeout(self) -> str:
        """The message of torch's watchdog about a collective operation that does not end after the cable is cut."""
        rank = self.launch.rank
        return (
            f"[rank{rank}]:[E ProcessGroupNCCL.cpp:688] [Rank {rank}] Watchdog caught collective operation timeout: "
            "WorkNCCL(SeqNum=41, OpType=ALLREDUCE, NumelIn=6144, NumelOut=6144, Timeout(ms)=600000) ran for 600012 "
            "milliseconds before timing out."
        )

    # --- at work ---

    @property
    def log_interval(self) -> float:
        """Seconds between two reports of its decoding in its log."""
        return 40 / self.launch.steps_per_second

    @property
    def is_idle(self) -> bool:
        """Whether a stride decoded nothing."""
        return bool(self["made"].generated < 1)

    @property
    def running(self) -> int:
        return self.decoding.running_requests

    def build_work_lines(self, made: DecodeCounts, seconds: float) -> Iterator[tuple[str, str]]:
        """Yield the log lines of one stride, with their stream; only the first rank counts."""
        if not self.launch.rank and self.has_section("work"):
            for step in self.play_section(
                "work", made=made, rate=made.generated / seconds, **self.describe_work(made, seconds)
            ):
                assert isinstance(step, LogStep)
                yield step.text, step.stream

    async def stream_work_lines(self) -> AsyncIterator[tuple[str, str]]:
        """Yield the log lines of its decoding with their stream, as long as they are read."""
        stride, was_idle = self.log_interval, True
        self.decoding.take_report()
        while True:
            await self.decoding.pace.decode_for(stride)
            made = self.decoding.take_report()
            idle = made.generated < 1
            if not (idle and was_idle):
                for line in self.build_work_lines(made, max(made.seconds, 1e-3)):
                    yield line
            if not idle:
                self.decoding.stride = made
            was_idle = idle

    def build_past_work_lines(self, seconds: float) -> Iterator[tuple[float, str, str]]:
        """Yield (age in seconds, line, stream) of the log that a steady load left over the last ``seconds``."""
        stride = self.log_interval
        for back in range(int(seconds // stride) if self.decoding.background else 0, 0, -1):
            made = self.decoding.compute_past_counts(back * stride, stride)
            self.decoding.stride = made
            for line, stream in self.build_work_lines(made, stride):
                yield (back - 1) * stride, line, stream

    def build_metrics_page(self) -> str:
        labels, rows = self.build_metrics(self.decoding.update_counts())
        lines: list[str] = []
        before = ""
        for name, kind, value in rows:
            bare, _, more = name.partition("|")
            inside = ",".join(part for part in (labels, more) if part)
            if bare != before:
                lines += [f"# HELP {bare} {bare.replace('_', ' ')}", f"# TYPE {bare} {kind}"]
            before = bare
            lines.append(f"{bare}{'{' + inside + '}' if inside else ''} {value!r}")
        return "\n".join([*lines, ""])

    def build_metrics(self, counts: DecodeCounts) -> tuple[str, MetricRows]:
        """Return the labels of each metric, and the metrics."""
        return "", []

    def build_latency_metrics(self, prefix: str, counts: DecodeCounts) -> MetricRows:
        """Return the histograms of the first token and of those after it."""
        name, between = f"{prefix}time_to_first_token_seconds", f"{prefix}inter_token_latency_seconds"
        step = 1 / self.launch.steps_per_second
        first = [
            (f'{name}_bucket|le="{le}"', "counter", float(int(counts.requests * share))) for le, share in _TTFT_BUCKETS
        ]
        steps = [
            (f'{between}_bucket|le="{le}"', "counter", counts.steps // 1 if step <= float(le) else 0.0)
            for le in _ITL_BUCKETS
        ]
        return [
            *first,
            *steps,
            (f"{name}_count", "counter", float(counts.requests)),
            (f"{name}_sum", "counter", counts.requests * FIRST_TOKEN_SECONDS),
            (f"{between}_count", "counter", counts.steps // 1),
            (f"{between}_sum", "counter", counts.steps / self.launch.steps_per_second),
        ]

    def build_page(self, path: str) -> object | None:
        """Return the JSON of a path that only this engine has, text for HTML; None for any other path."""
        return None

    def count_health_check(self) -> str | None:
        """Count a health check that makes an idle engine generate; return its log line, None if it does not."""
        return None


@cache
def list_simulated_engines() -> dict[str, type[SimulatedEngine]]:
    """Return the simulated engines and their workers by kind; the last one is for any other program."""
    names = sorted(engine_names(), key=lambda name: (name == FALLBACK_ENGINE, name))
    parts = [load_engine_part(name, "simulated_engine") for name in names]
    found: list[type[SimulatedEngine]] = [one for part in parts if part for one in part.SIMULATED_ENGINES]
    return {one.kind: one for one in found}


def _find_key_variable(kind: str, env: Mapping[str, str]) -> str | None:
    engine = find_engine(kind)
    names = () if engine is None else engine.api_key_variables
    return next((env[name] for name in names if env.get(name)), None)


def _parse_whole(what: str, text: str | None, default: int) -> int:
    if text and not text.isdecimal():
        raise ValueError(f"{what} is `{text}`, which is not a whole number")
    return int(text or default)


def parse_launch(
    image: str, command: Sequence[str], env: Mapping[str, str], fault: EngineFault | None, port: int | None = None
) -> SimLaunch:
    """Read a launch from a container's image, argv and environment; ``SIM_FAULT`` overrides ``fault``.

    ``port``: where any other program than an engine listens, if its command does not tell.
    """
    every = list(list_simulated_engines().values())
    rated = [(one.rate_launch(image, tuple(command)), one) for one in every]
    most, engine = max(rated, key=lambda pair: pair[0])
    engine = engine if most else every[-1]
    argv, joining = engine.read_ranks(tuple(command), env)
    if joining is None and (line := find_shell_line(argv)) is not None:
        argv, joining = engine.read_ranks(line, env)
    flags = parse_flags(argv)
    model = (
        find_first_flag(flags, "model-path", "model", "m", "hf-repo", "hf")
        or find_positional_model(argv)
        or "/models/unnamed-3B"
    )
    nodes = 1 if joining is None else max(2, joining.count)
    weights, active, parameters = guess_model_size(model, engine.unnamed_size)
    named = env.get("SIM_FAULT")
    return SimLaunch(
        kind=engine.kind,
        upstream=find_upstream_port(env),
        argv=argv,
        model=model,
        served=find_first_flag(flags, "served-model-name", "alias") or model,
        host=find_first_flag(flags, "host") or "127.0.0.1",
        port=_parse_whole(
            "the port",
            find_first_flag(flags, "port") or env.get("ORPHEUS_PORT") or env.get("PORT"),
            engine.default_port if most or port is None else port,
        ),
        weights=weights // nodes,
        active=active // nodes,
        shards=max(2, min(48, math.ceil(weights / nodes / 1.6e9))),
        fraction=float(
            find_first_flag(flags, "mem-fraction-static", "gpu-memory-utilization", "kv-cache-free-gpu-memory-fraction")
            or engine.default_fraction
        ),
        context=_parse_whole(
            "the context length", find_first_flag(flags, "context-length", "max-model-len", "ctx-size", "c"), 32768
        ),
        thinks=find_first_flag(flags, "reasoning-parser", "reasoning-format") is not None,
        draft_tokens=count_draft_tokens(flags),
        is_ngram=is_ngram(flags),
        head=0 if is_ngram(flags) else int(parameters * DRAFT_HEAD_SHARE / nodes),
        nodes=nodes,
        rank=0
        if joining is None or joining.is_head
        else _parse_whole("the rank", find_first_flag(flags, "node-rank"), 1),
        metrics=engine.has_metrics or "enable-metrics" in flags or "metrics" in flags,
        api_key=find_first_flag(flags, "api-key") or _find_key_variable(engine.kind, env),
        fault=parse_fault(named) if named else fault,
        joining=joining,
    )
