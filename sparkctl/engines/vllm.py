"""vLLM (0.19 to 0.33). The root of a failure stands in the middle of its log, a generic line at the end; an engine core
that was killed lets the API server end with code 0."""

from __future__ import annotations

import json
import re

from sparkctl.engines import _exposition, _launch
from sparkctl.engines._failures import COMMON, ERROR, cuda_memory
from sparkctl.engines._fields import fields, number, numbers, share
from sparkctl.engines._vocabulary import Vocabulary, loading, rule
from sparkctl.engines.base import Decoding, Defaults, Signal, Weight
from sparkctl.model.metrics import EngineMetrics, LineKind, StatsLine
from sparkctl.model.phase import Phase, Step
from sparkctl.model.profile import Profile
from sparkctl.model.verdict import Cause

_SHARE = "args.gpu-memory-utilization"
_LENGTH = "args.max-model-len"
_LOWER = f"Lower {_SHARE} (it is a share of all of the node's memory)."

_QUIET = (
    "Engine 0",
    "SpecDecoding metrics",
    "non-default args",
    "Initializing a V1 LLM engine",
    "Route: ",
    "kill_process_tree",
)
_WARMING = Signal(Phase.WARMING, Step("http"))
_PHASES = (
    ("INFO:     Application startup complete", Signal(Phase.READY)),
    ("Application startup complete", Signal(Phase.READY)),
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
_KV = Cause.KV_CACHE_TOO_SMALL
_MEMORY = (
    rule(
        r"Free memory on device ?\S* \((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\) on startup is less than desired "
        r"GPU memory utilization \((?P<share>[\d.]+), (?P<want>[\d.]+) GiB\)",
        Cause.STARTUP_MEMORY_CHECK,
        "{free} of {total} GiB were free at the start, and a share of {share} wants {want} GiB.",
        f"Stop what else holds memory on the node and drop the page caches, or lower {_SHARE}.",
        needle="is less than desired",
        on=_SHARE,
        fatal=True,
    ),
    rule(
        r"No available memory for the cache blocks",
        _KV,
        "The weights left no room for the KV cache.",
        f"Raise {_SHARE}, or take a smaller model.",
        needle="No available memory for the cache blocks",
        on=_SHARE,
        fatal=True,
    ),
    rule(
        r"To serve at least one request with the model\S* max seq len \((?P<asked>\d+)\), "
        r"\(?(?P<need>[\d.]+ GiB) KV cache is needed.*?"
        r"available KV cache memory \((?P<have>[\d.]+ GiB)\)(?:.*?maximum model length is (?P<most>\d+))?",
        _KV,
        "A context of {asked} needs {need} of KV cache, and {have} is available.",
        f"Lower {_LENGTH}[ to {{most}} or less], or raise {_SHARE}.",
        needle="To serve at least one request",
        on=_LENGTH,
        fatal=True,
    ),
    rule(
        r"To serve at least one request with the model|Cannot auto-fit max_model_len",
        _KV,
        "The KV cache does not hold one request of the full context.",
        f"Lower {_LENGTH}, or raise {_SHARE}.",
        needle="a",
        on=_LENGTH,
        fatal=True,
    ),
    rule(
        r"Available memory on node \d+ \((?P<free>[\d./]+) GiB\) on kv cache allocation is less than requested "
        r"memory for kv \((?P<want>[\d.]+ GiB)\)",
        _KV,
        "{want} of KV cache were asked for, {free} GiB was available.",
        "Ask for less KV cache, or stop what else holds memory on the node.",
        needle="on kv cache allocation is less than",
        fatal=True,
    ),
    rule(
        r"Error in memory profiling\. Initial free memory (?P<before>[\d.]+ \w+), "
        r"current free memory (?P<after>[\d.]+ \w+)",
        Cause.STARTUP_MEMORY_CHECK,
        "Memory was freed by something else while vLLM measured it ({before} free before, {after} after).",
        "Start it again: stop the other engine and drop caches before the start, not during it.",
        needle="Error in memory profiling",
        fatal=True,
    ),
    rule(
        r"CUDA out of memory occurred when warming up (?P<part>\w+) with (?P<count>\d+) dummy requests",
        Cause.CUDA_OUT_OF_MEMORY,
        "CUDA ran out of memory while the {part} was warmed up with {count} requests.",
        f"Lower args.max-num-seqs or {_SHARE}.",
        needle="when warming up",
        on="args.max-num-seqs",
        fatal=True,
    ),
    *cuda_memory(_LOWER, _SHARE, fatal=True),
)
_FLAGS = (
    rule(
        rf"{ERROR}Unsupported speculative method: '(?P<method>[^']*)'",
        Cause.UNKNOWN_FLAG,
        "This model cannot be run with the speculative method {method}.",
        "Correct or remove args.speculative-config.",
        needle="Unsupported speculative method",
        on="args.speculative-config",
        fatal=True,
    ),
    rule(
        r"invalid (?P<kind>tool call|reasoning) parser: (?P<name>\S+)",
        Cause.UNKNOWN_FLAG,
        "This image knows no {kind} parser {name}.",
        "Correct args.tool-call-parser or args.reasoning-parser; the line lists the known ones.",
        needle="invalid ",
        fatal=True,
    ),
    rule(
        r"validation errors? for \w+.*User-specified max_model_len \((?P<asked>\d+)\) is greater than the "
        r"derived max_model_len \(max_position_embeddings=(?P<most>\d+)",
        Cause.UNKNOWN_FLAG,
        "A context of {asked} is longer than the model's {most}.",
        f"Lower {_LENGTH} to {{most}} or less.",
        needle="User-specified max_model_len",
        on=_LENGTH,
        fatal=True,
    ),
)
# The one-line form of pydantic's error (see engines.lines). Found after the common rules: those know more.
_VALIDATION = (
    rule(
        r"validation errors? for SpeculativeConfig: (?P<what>.*?)(?: \[type=.*?input_value=(?P<given>[^,]*).*)?$",
        Cause.UNKNOWN_FLAG,
        "The speculative configuration is refused: {what}[ (given: {given})]",
        "Correct args.speculative-config.",
        needle="for SpeculativeConfig: ",
        on="args.speculative-config",
        fatal=True,
    ),
    rule(
        r"validation errors? for \w+: gpu_memory_utilization: (?P<what>.*?)"
        r"(?: \[type=.*?input_value=(?P<given>[^,]*).*)?$",
        Cause.UNKNOWN_FLAG,
        "The memory share is refused: {what}[ (given: {given})]",
        f"Set {_SHARE} to a share between 0 and 1.",
        needle=": gpu_memory_utilization: ",
        on=_SHARE,
        fatal=True,
    ),
    rule(
        r"validation errors? for \w+: (?:Value error, )?(?P<what>.*?)(?: \[type=.*)?$",
        Cause.UNKNOWN_FLAG,
        "The engine refused its settings: {what}",
        "Correct the setting it names.",
        needle="validation error",
        fatal=True,
    ),
    rule(
        r"validation errors? for (?P<model>\w+)$",
        Cause.UNKNOWN_FLAG,
        "The engine refused its settings ({model}).",
        "The lines after this one name the setting.",
        needle="validation error",
        weight=Weight.DYING,
    ),
)
_KERNEL = f"Most often the machine ran out of memory: look at dmesg -T | grep -i oom on the node. {_LOWER}"
_ENDS = (
    rule(
        r"Engine core proc (?P<name>\S+) died unexpectedly|Worker proc (?P<worker>\S+) died unexpectedly"
        r"|MPClient: engine core exited unexpectedly",
        Cause.KILLED,
        "The engine core[ {name}][ ({worker})] died without a word, as a process does that is killed.",
        _KERNEL,
        needle="unexpectedly",
        on=_SHARE,
        fatal=True,
        weight=Weight.DEATH,
    ),
    rule(
        r"RPC call to (?P<call>\w+) timed out",
        Cause.CRASHED,
        "The engine's worker did not answer ({call}).",
        f"On a node short of memory it stands still: {_LOWER}",
        needle="RPC call to",
        weight=Weight.DEATH,
    ),
    rule(
        r"EngineCore encountered a fatal error|EngineCore failed to start|WorkerProc failed to start"
        r"|WorkerProc hit an exception",
        Cause.CRASHED,
        "The engine core ended on an error.",
        "The lines after this one name it.",
        needle="r",
        fatal=True,
        weight=Weight.DYING,
    ),
    rule(
        r"Engine core initialization failed|WorkerProc initialization failed|EngineDeadError"
        r"|AsyncLLM output_handler failed|Engine process failed to start",
        Cause.CRASHED,
        "The engine core failed.",
        "The lines before this one name the reason; if none does, the process was killed (dmesg -T | grep -i oom).",
        needle="ngine",
        fatal=True,
        weight=Weight.AFTERMATH,
    ),
)
_VOCABULARY = Vocabulary(_QUIET, _PHASES, _BARS, _MEMORY + _FLAGS + _ENDS + COMMON[:-2] + _VALIDATION + COMMON[-2:])

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


class VLLM:
    """See ``engines.base.Engine``."""

    name = "vllm"
    title = "vLLM"
    memory_setting = _SHARE
    metrics_setting = None
    metrics_path = "/metrics"
    defaults = Defaults(
        command=("vllm", "serve"),
        port=8000,
        ready_line=r"^(?:INFO:\s+)?Application startup complete\.",
        health="/health",
        probe="completions",
        gpus="all",
    )

    def argv(self, profile: Profile) -> tuple[str, ...]:
        """Return launch words, the model, host, port, served name, then ``args`` in their order."""
        command = self.defaults.command if profile.command is None else profile.command
        if _launch.is_script(command):
            return command + _launch.words(profile.args)
        model: tuple[str, ...] = ()
        if profile.model.path is not None and "model" not in _launch.given(profile):
            # `vllm serve` takes the model as a word; the older api_server module only as a flag.
            by_flag = any("api_server" in word for word in command)
            model = ("--model", profile.model.path) if by_flag else (profile.model.path,)
        return command + model + _launch.serving_words(profile, 8000) + _launch.words(profile.args)

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
