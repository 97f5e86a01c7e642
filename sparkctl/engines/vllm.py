"""vLLM (0.19 to 0.33). The root of a failure stands in the middle of its log, a generic line at the end; an engine core
that was killed lets the API server end with code 0."""

from __future__ import annotations

import json
import re

from sparkctl.engines import _exposition, _launch
from sparkctl.engines._fields import fields, number, numbers, share
from sparkctl.engines._vllm_facts import FACTS
from sparkctl.engines._vllm_failures import FAILURES, RETOLD, SHARE
from sparkctl.engines._vocabulary import Vocabulary, loading
from sparkctl.engines.base import Decoding, Defaults, Rank, Signal, Signs
from sparkctl.model.metrics import EngineMetrics, LineKind, StatsLine
from sparkctl.model.phase import Phase, Step
from sparkctl.model.profile import Profile

_QUIET = (
    "Engine 0",
    "SpecDecoding metrics",
    "Added request ",
    "non-default args",
    "Route: ",
    "Received request ",
    "Generated response ",
    "Exception in ASGI application",
    "ERROR:    Exception in ASGI application",
    "vllm.exceptions.VLLM",  # a client's bad request, with a traceback in 0.19
    "fastapi.exceptions.",
    "kill_process_tree",
)
_WARMING = Signal(Phase.WARMING, Step("http"))
_PHASES = (
    ("INFO:     Application startup complete.", Signal(Phase.READY)),
    ("Application startup complete.", Signal(Phase.READY)),
    ("Initializing model took", loading("weights")),
    ("world_size=", loading("join")),
    ("Starting to load model", loading("weights")),
    ("Loading drafter model", loading("draft")),
    ("Loading weights took", loading("profiling")),
    ("Model loading took", loading("profiling")),
    ("Starting torch.compile", loading("compile")),
    ("Using cache directory: ", loading("compile")),
    ("Dynamo bytecode transform time", loading("compile")),
    ("Compiling a graph for", loading("compile")),
    ("Available KV cache memory: ", loading("kv-cache")),
    ("GPU KV cache size: ", loading("kv-cache")),
    ("CPU KV cache size: ", loading("kv-cache")),
    ("Warming up FlashInfer attention", loading("autotune")),
    ("JIT kernel warmup starting", loading("autotune")),
    ("Running FlashInfer autotune", loading("autotune")),
    ("Warming up model for the compilation", loading("compile")),
    ("init engine (profile, create kv cache", _WARMING),
    ("Starting vLLM server on ", _WARMING),
    ("Starting vLLM API server", _WARMING),
    ("INFO:     Started server process", _WARMING),
)
_BARS = (
    ("shards", "weights"),
    ("Loading safetensors", "weights"),
    ("Capturing", "graphs"),
    ("DeepGEMM", "compile"),
    ("Fetching", "download"),
)
_VOCABULARY = Vocabulary(_QUIET, _PHASES, _BARS, FAILURES, FACTS, RETOLD)

_LOG_SECONDS = 10.0
_ENGINE = re.compile(r"(?:Engine (?P<number>\d+)|\d+ Engines Aggregated): (?=Avg )")
_SPECULATION = "SpecDecoding metrics: "
_SPEC = "vllm:spec_decode_num_"
_SERIES = (
    "vllm:generation_tokens_total",
    "vllm:prompt_tokens_total",
    "vllm:prompt_tokens_by_source_total",
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total",
    f"{_SPEC}drafts_total",
    f"{_SPEC}draft_tokens_total",
    f"{_SPEC}accepted_tokens_total",
    f"{_SPEC}accepted_tokens_per_pos_total",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:cache_config_info",
    "vllm:time_to_first_token_seconds_bucket",
    "vllm:inter_token_latency_seconds_bucket",
    _exposition.STARTED,
)


_CHAINS = ("draft_model", "eagle", "eagle3")  # the draft model runs once for each drafted token
_PASSES = {"ngram": 0, "ngram_gpu": 0, "suffix": 0, "dflash": 1, "medusa": 1}  # no draft model; all drafts in one go


def _speculation(words: tuple[str, ...]) -> dict[str, str]:
    """Return method and num_speculative_tokens as text, from JSON, dotted keys, or the short flags of 0.32 and later."""
    try:
        said = json.loads(_launch.value(words, "speculative-config", "sc") or "{}")
    except (ValueError, RecursionError):
        said = {}
    short = {"method": "spec-method", "num_speculative_tokens": "spec-tokens"}
    found = {key: str(said[key]) for key in short if isinstance(said, dict) and key in said}
    for key, flag in short.items():
        dotted = f"speculative-config.{key.replace('_', '-')}"
        given = _launch.value(words, dotted, f"sc.{key.replace('_', '-')}", flag)
        if given is not None:
            found[key] = given
    return found


def _kv_tokens(page: _exposition.Page) -> float | None:
    """Return the tokens the KV cache holds: its share in use of blocks times block size. One engine only."""
    usage = page.values("vllm:kv_cache_usage_perc")
    sizes = [
        number(text) for key in ("num_gpu_blocks", "block_size") for text in page.label("vllm:cache_config_info", key)
    ]
    if len(usage) != 1 or len(sizes) != 2 or sizes[0] is None or sizes[1] is None:
        return None
    return usage[0] * sizes[0] * sizes[1]


def _computed_prompts(page: _exposition.Page) -> float | None:
    computed = page.total("vllm:prompt_tokens_by_source_total", source="local_compute")
    return page.total("vllm:prompt_tokens_total") if computed is None else computed


def _engine_line(text: str, source: str) -> StatsLine:
    said = fields(text)
    usage = next((value for key, value in said.items() if key.endswith(" KV cache usage")), None)
    return StatsLine(
        LineKind.DECODE,
        source,
        generation_rate=number(said.get("Avg generation throughput")),
        prompt_rate=number(said.get("Avg prompt throughput")),
        running=number(said.get("Running")),
        waiting=number(said.get("Waiting")),
        kv_usage=share(usage),
        prefix_hit_rate=share(said.get("Prefix cache hit rate")),
        every=_LOG_SECONDS,
    )


def _speculation_line(text: str) -> StatsLine:
    said = fields(text)
    # The throughputs of this line are left alone: they are averaged since the previous such line, idle time included.
    return StatsLine(
        LineKind.SPECULATION,
        accept_length=number(said.get("Mean acceptance length")),
        accept_rate=share(said.get("Avg Draft acceptance rate")),
        accepted=number(said.get("Accepted")),
        drafted=number(said.get("Drafted")),
        per_position=numbers(said.get("Per-position acceptance rate")),
        every=_LOG_SECONDS,
    )


_RAY = 46379  # not Redis' own port, which is often taken


def _model(path: str, command: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words for the model: `vllm serve` takes it as a word, the older api_server module only as a flag. An image
    that starts the server itself may do it either way: both take the flag."""
    by_flag = not command or any("api_server" in word for word in command)
    return ("--model", path) if by_flag else (path,)


class VLLM:
    """See ``engines.base.Engine``."""

    name = "vllm"
    title = "vLLM"
    memory_setting = SHARE
    metrics_setting = None
    metrics_path = "/metrics"
    signs = Signs(
        marks=r"\((?:APIServer|EngineCore\w*|Worker\w*) pid=|Engine \d{3}: Avg |vLLM (?:API )?server |Initializing a V1 LLM"
        r"|(?:DEBUG|INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d \[\w+\.py:\d+\]"
        r"|^(?:usage: )?vllm(?: serve)?(?: \[-h\]|: error: )|^== vLLM ==|^vLLM Version \d",
        hints=("/vllm/", "vllm."),
        begins=("non-default args: ",),
        serving=("Engine 0", "SpecDecoding metrics: ", "Received request ", "Added request ", "Generated response "),
    )
    defaults = Defaults(
        command=("vllm", "serve"),
        port=8000,
        ready_line=r"^(?:INFO:\s+)?Application startup complete\.(?!\s*\w)",
        health="/health",
        probe="completions",
        gpus="all",
    )

    def argv(self, profile: Profile) -> tuple[str, ...]:
        """Return launch words, the model, host, port, served name, then ``args`` in their order."""
        return _launch.argv(profile, self.defaults, _model, {"model"})

    def joined(self, words: tuple[str, ...], rank: Rank) -> tuple[str, ...]:
        """Return the command with ``--nnodes``, ``--node-rank`` and ``--master-addr``; through Ray where the profile says so.

        With ``--distributed-executor-backend ray`` the head begins a Ray cluster and serves in it, the others join it.
        """
        _launch.refuse_script(words)
        _launch.refuse_own(words, "nnodes", "node-rank", "master-addr", "headless")
        if not self.begins_with_head(words):
            place = ("--nnodes", str(rank.count), "--node-rank", str(rank.index), "--master-addr", rank.head)
            return (*words, *place, *(() if rank.is_head else ("--headless",)))
        here = f"--node-ip-address={rank.own} --num-gpus=1 --disable-usage-stats"
        if rank.is_head:
            begin = f'ray start --head --port={_RAY} {here} && exec "$@"'
            return ("sh", "-c", begin, "sh", *words)
        # As a container's first process Ray would not hear SIGTERM, for which it has no handler: every stop took the whole grace.
        join = f"ray start --address={rank.head}:{_RAY} {here} --block"
        return ("sh", "-c", f'{join} & trap "kill $!" TERM INT; wait $!')

    def login_mounts(self, rank: Rank) -> tuple[str, ...]:
        """Return nothing: no rank logs in at another."""
        return ()

    def begins_with_head(self, words: tuple[str, ...]) -> bool:
        """Tell whether Ray joins them: a worker gives up soon where there is no head. Without Ray they wait for each other."""
        return _launch.value(words, "distributed-executor-backend") == "ray"

    def classify(self, line: str) -> Signal | None:
        """Return what a prepared line says, None for nothing."""
        return _VOCABULARY.read(line)

    def api_key(self, profile: Profile) -> str | None:
        """Return the value of ``--api-key``, or None."""
        return _launch.api_key(profile)

    def decoding(self, words: tuple[str, ...]) -> Decoding:
        """Return the drafts of ``--speculative-config`` (or ``--spec-*``), and tensor x pipeline parallel size."""
        ranks = _launch.ranks(words, "tp tensor-parallel-size", "pp pipeline-parallel-size")
        config = _speculation(words)
        tokens = _launch.whole(config.get("num_speculative_tokens"))
        method = config.get("method", "")
        if not config:
            return Decoding(ranks=ranks)
        chained = method in _CHAINS or method.endswith("mtp")
        return Decoding(tokens, tokens if chained else _PASSES.get(method), ranks)

    def metrics(self, page: str) -> EngineMetrics:
        """Return one reading of /metrics, which is always on here."""
        read = _exposition.parse(page, _SERIES)
        return EngineMetrics(
            generation_tokens=read.total("vllm:generation_tokens_total"),
            prompt_tokens=_computed_prompts(read),
            prefix_queries=read.total("vllm:prefix_cache_queries_total"),
            prefix_hits=read.total("vllm:prefix_cache_hits_total"),
            drafts=read.total(f"{_SPEC}drafts_total"),
            draft_tokens=read.total(f"{_SPEC}draft_tokens_total"),
            accepted_tokens=read.total(f"{_SPEC}accepted_tokens_total"),
            accepted_per_position=read.positions(f"{_SPEC}accepted_tokens_per_pos_total"),
            running=read.total("vllm:num_requests_running"),
            waiting=read.total("vllm:num_requests_waiting"),
            kv_usage=read.fullest("vllm:kv_cache_usage_perc"),  # 0..1, whatever its name says
            kv_tokens=_kv_tokens(read),
            ttft=read.histogram("vllm:time_to_first_token_seconds"),
            inter_token=read.histogram("vllm:inter_token_latency_seconds"),
            started=read.fullest(_exposition.STARTED),
        )

    def stats(self, line: str) -> StatsLine | None:
        """Return what an ``Engine 000`` or ``SpecDecoding metrics`` line says, None for any other."""
        if line.startswith(_SPECULATION):
            return _speculation_line(line.removeprefix(_SPECULATION))
        if "throughput" not in line or (head := _ENGINE.match(line)) is None:
            return None
        return _engine_line(line[head.end() :], head["number"] or "")


ENGINE = VLLM()
