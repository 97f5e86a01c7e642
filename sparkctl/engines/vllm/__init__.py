"""vLLM (0.19 to 0.33). The root of a failure is in the middle of its log, a generic line at the end.

If an engine core is killed, the API server ends with code 0. 0.19 names NVFP4 backends by an enum, 0.32 and later by the
kernel's class.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sparkctl.engines import engine_flags, metrics_parser
from sparkctl.engines.base import (
    COMMON_RECIPE_FLAGS,
    DecodingSettings,
    Engine,
    EngineDefaults,
    EngineRank,
    ImportRules,
    LineSignal,
    LogSignature,
    ModelWord,
)
from sparkctl.engines.log_rules import LogRules, fact_rule, loading_signal, version_facts
from sparkctl.engines.metrics_parser import parse_leading_number, parse_number_list, parse_percent, parse_stats_fields
from sparkctl.engines.vllm.failures import FAILURES, MEMORY_UTILIZATION_FIELD, QUOTED_WORKER_ERROR
from sparkctl.model.engine_metrics import EngineFactName, EngineMetrics, StatsLine, StatsLineKind
from sparkctl.model.phase import Phase, Step
from sparkctl.model.text.sanitize import load_json_map

if TYPE_CHECKING:
    from sparkctl.model.profile import Profile

_ENGINE_INIT_START = "Initializing a V1 LLM engine"
_NO_FP4_TEXT, _NO_FP8_TEXT = (
    f"Your GPU does not have native support for {kind} computation" for kind in ("FP4", "FP8")
)
_QUANTIZATION_PATH = EngineFactName.QUANTIZATION_PATH

FACTS = (
    fact_rule("vLLM API server version ", r"version v?(?P<it>\d[\w.+-]*)", EngineFactName.ENGINE_VERSION),
    fact_rule("vLLM server version ", r"version v?(?P<it>\d[\w.+-]*)", EngineFactName.ENGINE_VERSION),
    fact_rule("vLLM Version ", r"^vLLM Version v?(?P<it>\d[\w.+-]*)", EngineFactName.ENGINE_VERSION),  # NVIDIA's images
    fact_rule("vLLM version: ", r"version: v?(?P<it>\d[\w.+-]*)", EngineFactName.ENGINE_VERSION, is_guess=True),
    *version_facts("vllm"),
    # The banner: two of vLLM's four lines of block letters end in a fact.
    fact_rule(" ▄▄ ▄█", r" version (?P<it>\d[\w.+-]*)\s*$", EngineFactName.ENGINE_VERSION),
    fact_rule("  ▄▄ ▄█", r" version (?P<it>\d[\w.+-]*)\s*$", EngineFactName.ENGINE_VERSION),
    fact_rule("Launching vLLM (v", r"\(v(?P<it>\d[\w.+-]*)\)", EngineFactName.ENGINE_VERSION),
    fact_rule(_ENGINE_INIT_START, r"^[^(]*\(v(?P<it>\d[\w.+-]*)\)", EngineFactName.ENGINE_VERSION),
    fact_rule(_ENGINE_INIT_START, r" quantization=(?!None)(?P<it>[\w-]+)", EngineFactName.QUANTIZATION),
    fact_rule(_ENGINE_INIT_START, r" kv_cache_dtype=(?!auto)(?P<it>\w+)", EngineFactName.KV_CACHE_DTYPE),
    fact_rule(_ENGINE_INIT_START, r" max_seq_len=(?P<it>\d+)", EngineFactName.CONTEXT_LENGTH),
    fact_rule(_ENGINE_INIT_START, r"SpeculativeConfig\(method='(?P<it>\w+)'", EngineFactName.SPECULATIVE_METHOD),
    fact_rule(_ENGINE_INIT_START, r"SpeculativeConfig\([^)]*num_spec_tokens=(?P<it>\d+)", EngineFactName.DRAFT_TOKENS),
    fact_rule(
        "Hybrid or mamba-based model detected without support for prefix caching: disabl",
        "",
        EngineFactName.PREFIX_CACHE,
        "turned off by the engine for this model",
    ),
    fact_rule("Resolved architecture: ", r": (?P<it>\w+)", EngineFactName.ARCHITECTURE),
    fact_rule("Using max model len ", r"len (?P<it>\d+)", EngineFactName.CONTEXT_LENGTH),
    fact_rule(
        "Using ",
        r"^Using (?:AttentionBackendEnum\.)?(?P<it>[A-Z]\w+) attention backend out of",
        EngineFactName.ATTENTION_BACKEND,
    ),
    fact_rule(
        "Using ",
        r"^Using (?:AttentionBackendEnum\.)?(?P<it>[A-Z][A-Z0-9_]+) backend(?:\.$| \(selected)",
        EngineFactName.ATTENTION_BACKEND,
    ),
    fact_rule("GPU KV cache size: ", r"size: (?P<it>[\d,]+) tokens", EngineFactName.KV_CACHE_TOKENS),
    fact_rule("CPU KV cache size: ", r"size: (?P<it>[\d,]+) tokens", EngineFactName.KV_CACHE_TOKENS),
    fact_rule("XPU KV cache size: ", r"size: (?P<it>[\d,]+) tokens", EngineFactName.KV_CACHE_TOKENS),
    fact_rule(
        "GPU KV cache size: ",
        r"Maximum concurrency for [\d,]+ tokens per request: (?P<it>[\d.]+)x",
        EngineFactName.MAX_CONCURRENCY,
    ),
    fact_rule(
        "CPU KV cache size: ",
        r"Maximum concurrency for [\d,]+ tokens per request: (?P<it>[\d.]+)x",
        EngineFactName.MAX_CONCURRENCY,
    ),
    fact_rule(
        "XPU KV cache size: ",
        r"Maximum concurrency for [\d,]+ tokens per request: (?P<it>[\d.]+)x",
        EngineFactName.MAX_CONCURRENCY,
    ),
    fact_rule("Maximum concurrency for ", r"per request: (?P<it>[\d.]+)x", EngineFactName.MAX_CONCURRENCY),
    fact_rule(
        "Using ",
        r"^Using (?P<it>(?!Marlin|Emulation)\w*NvFp4LinearKernel) for NVFP4 GEMM",
        _QUANTIZATION_PATH,
        "native FP4 ({it})",
    ),
    fact_rule(
        "Using ",
        r"^Using NvFp4LinearBackend\.(?P<it>(?!MARLIN|EMULATION)\w+) for NVFP4 GEMM",
        _QUANTIZATION_PATH,
        "native FP4 ({it})",
    ),
    fact_rule(
        "Using ",
        r"^Using (?:NvFp4LinearBackend\.MARLIN|Marlin\w*Kernel) for NVFP4 GEMM",
        _QUANTIZATION_PATH,
        "Marlin fallback (FP4 weights, 16-bit arithmetic)",
        is_fallback=True,
    ),
    fact_rule(
        "Using ",
        r"^Using (?:NvFp4LinearBackend\.EMULATION|Emulation\w*Kernel) for NVFP4 GEMM",
        _QUANTIZATION_PATH,
        "FP4 emulation",
        is_fallback=True,
    ),
    fact_rule(
        "Using '",
        r"^Using '(?P<it>(?!MARLIN|EMULATION)\w+)' NvFp4 MoE backend",
        _QUANTIZATION_PATH,
        "native FP4 (MoE: {it})",
    ),
    fact_rule(
        "Using '",
        r"^Using '(?P<it>MARLIN|EMULATION)' NvFp4 MoE backend",
        _QUANTIZATION_PATH,
        "Marlin fallback (MoE: {it})",
        is_fallback=True,
    ),
    fact_rule(
        _NO_FP4_TEXT, "", _QUANTIZATION_PATH, "Marlin fallback (FP4 weights, 16-bit arithmetic)", is_fallback=True
    ),
    fact_rule(
        _NO_FP8_TEXT, "", _QUANTIZATION_PATH, "Marlin fallback (FP8 weights, 16-bit arithmetic)", is_fallback=True
    ),
    fact_rule("NVFP4 linear falling back to the slow", "", _QUANTIZATION_PATH, "FP4 emulation", is_fallback=True),
)


_REQUEST_STARTS = ("Received request ", "Added request ", "Generated response ")
_QUIET_STARTS = (
    "Engine 0",
    "SpecDecoding metrics",
    "non-default args",
    "Route: ",
    *_REQUEST_STARTS,
    "Exception in ASGI application",
    "Error retrieving safetensors",  # of a model in a directory: it goes on
    "ERROR:    Exception in ASGI application",
    "vllm.exceptions.VLLM",  # a client's bad request, with a traceback in 0.19
    "fastapi.exceptions.",
    "kill_process_tree",
)
_HTTP_SIGNAL = LineSignal(Phase.WARMING, Step("http"))
_PHASE_SIGNALS = (
    ("INFO:     Application startup complete.", LineSignal(Phase.READY)),
    ("Application startup complete.", LineSignal(Phase.READY)),
    ("Initializing model took", loading_signal("weights")),
    ("world_size=", loading_signal("join")),
    ("Starting to load model", loading_signal("weights")),
    ("Loading model from scratch", loading_signal("weights")),
    ("Loading drafter model", loading_signal("draft")),
    ("Loading weights took", loading_signal("profiling")),
    ("Model loading took", loading_signal("profiling")),
    ("Starting torch.compile", loading_signal("compile")),
    ("Using cache directory: ", loading_signal("compile")),
    ("Dynamo bytecode transform time", loading_signal("compile")),
    ("Compiling a graph for", loading_signal("compile")),
    ("Available KV cache memory: ", loading_signal("kv-cache")),
    ("GPU KV cache size: ", loading_signal("kv-cache")),
    ("CPU KV cache size: ", loading_signal("kv-cache")),
    ("Warming up FlashInfer attention", loading_signal("autotune")),
    ("JIT kernel warmup starting", loading_signal("autotune")),
    ("Running FlashInfer autotune", loading_signal("autotune")),
    ("Using FlashInfer autotune cache", loading_signal("autotune")),
    ("Graph capturing finished", loading_signal("graphs")),
    ("Warming up model for the compilation", loading_signal("compile")),
    ("init engine (profile, create kv cache", _HTTP_SIGNAL),
    ("Starting vLLM server on ", _HTTP_SIGNAL),
    ("Starting vLLM API server", _HTTP_SIGNAL),
    ("INFO:     Started server process", _HTTP_SIGNAL),
)
_PROGRESS_BAR_STEPS = (
    ("shards", "weights"),
    ("Loading safetensors", "weights"),
    ("Capturing", "graphs"),
    ("[AutoTuner]", "autotune"),
    ("DeepGEMM", "compile"),
    ("Fetching", "download"),
)
_LOG_RULES = LogRules(
    quiet=_QUIET_STARTS,
    phases=_PHASE_SIGNALS,
    bars=_PROGRESS_BAR_STEPS,
    rules=FAILURES,
    facts=FACTS,
    retold=QUOTED_WORKER_ERROR,
)

_LOG_INTERVAL_SECONDS = 10.0
_ENGINE_LINE = re.compile(r"(?:Engine (?P<number>\d+)|\d+ Engines Aggregated): (?=Avg )")
_SPECULATION_LINE = "SpecDecoding metrics: "
_SPECULATION_PREFIX = "vllm:spec_decode_num_"
_METRIC_NAMES = (
    "vllm:generation_tokens_total",
    "vllm:prompt_tokens_total",
    "vllm:prompt_tokens_by_source_total",
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total",
    f"{_SPECULATION_PREFIX}drafts_total",
    f"{_SPECULATION_PREFIX}draft_tokens_total",
    f"{_SPECULATION_PREFIX}accepted_tokens_total",
    f"{_SPECULATION_PREFIX}accepted_tokens_per_pos_total",
    "vllm:num_preemptions_total",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:cache_config_info",
    "vllm:time_to_first_token_seconds_bucket",
    "vllm:inter_token_latency_seconds_bucket",
    metrics_parser.PROCESS_START_SERIES,
)


CHAINED_METHODS = ("draft_model", "eagle", "eagle3")  # the draft model runs once for each drafted token
DRAFT_PASSES = {
    "ngram": 0,
    "ngram_gpu": 0,
    "suffix": 0,
    "dflash": 1,
    "medusa": 1,
}  # no draft model; all drafts at once


def read_speculative_config(words: tuple[str, ...]) -> dict[str, str]:
    """Return method and num_speculative_tokens as text, from JSON, dotted keys, or the short flags of 0.32 and later."""
    config = load_json_map(engine_flags.find_flag_value(words, "speculative-config", "sc")) or {}
    short = {"method": "spec-method", "num_speculative_tokens": "spec-tokens"}
    found = {key: str(config[key]) for key in short if key in config}
    for key, flag in short.items():
        dotted = f"speculative-config.{key.replace('_', '-')}"
        given = engine_flags.find_flag_value(words, dotted, f"sc.{key.replace('_', '-')}", flag)
        if given is not None:
            found[key] = given
    return found


def count_kv_cache_tokens(page: metrics_parser.MetricsPage) -> float | None:
    """Return the tokens the KV cache holds: share in use x number of blocks x block size, summed over data-parallel engines."""
    usage, tokens = page.list_values("vllm:kv_cache_usage_perc"), 0.0
    blocks, sizes = (
        [parse_leading_number(text) for text in page.list_label_values("vllm:cache_config_info", key)]
        for key in ("num_gpu_blocks", "block_size")
    )
    if not usage or not len(usage) == len(blocks) == len(sizes):
        return None
    for share, count, size in zip(usage, blocks, sizes, strict=True):  # in the page's order: by engine, all of one size
        if count is None or size is None:
            return None
        tokens += share * count * size
    return tokens


def count_computed_prompt_tokens(page: metrics_parser.MetricsPage) -> float | None:
    computed = page.sum_of("vllm:prompt_tokens_by_source_total", source="local_compute")
    return page.sum_of("vllm:prompt_tokens_total") if computed is None else computed


def parse_throughput_line(text: str, source: str) -> StatsLine:
    fields = parse_stats_fields(text)
    usage = next((value for key, value in fields.items() if key.endswith(" KV cache usage")), None)
    return StatsLine(
        kind=StatsLineKind.DECODE,
        source=source,
        generation_rate=parse_leading_number(fields.get("Avg generation throughput")),
        prompt_rate=parse_leading_number(fields.get("Avg prompt throughput")),
        running=parse_leading_number(fields.get("Running")),
        waiting=parse_leading_number(fields.get("Waiting")),
        kv_usage=parse_percent(usage),
        prefix_hit_rate=parse_percent(fields.get("Prefix cache hit rate")),
        every=_LOG_INTERVAL_SECONDS,
    )


def parse_speculation_line(text: str) -> StatsLine:
    fields = parse_stats_fields(text)
    # The throughputs of this line are ignored: they are averages since the previous such line, including idle time.
    return StatsLine(
        kind=StatsLineKind.SPECULATION,
        accept_length=parse_leading_number(fields.get("Mean acceptance length")),
        accept_rate=parse_percent(fields.get("Avg Draft acceptance rate")),
        accepted=parse_leading_number(fields.get("Accepted")),
        drafted=parse_leading_number(fields.get("Drafted")),
        per_position=parse_number_list(fields.get("Per-position acceptance rate")),
        every=_LOG_INTERVAL_SECONDS,
    )


RAY_PORT = 46379  # not Redis' own port, which is often in use


def build_model_flags(path: str, command: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words for the model: `vllm serve` takes it as a word, the older api_server module only as a flag.

    An image that starts the server itself may use either: both accept the flag.
    """
    by_flag = not command or any("api_server" in word for word in command)
    return ("--model", path) if by_flag else (path,)


class VllmEngine(Engine):
    """See ``engines.base.Engine``."""

    name = "vllm"
    title = "vLLM"
    log_rules = _LOG_RULES
    memory_setting = MEMORY_UTILIZATION_FIELD
    share_flags = ("gpu-memory-utilization", "gpu-memory-util")
    context_flags = ("max-model-len",)
    config_flags = ("hf-overrides", "rope-scaling", "hf-config-path")
    prefix_cache_flags = (("enable-prefix-caching",), ("no-enable-prefix-caching", "disable-prefix-caching"))
    version_source = ("/version", "version")
    temperature_flags = ("override-generation-config",)
    context_pattern = re.compile(r"\d{1,15}(\.\d+)?[kmgtKMGT]?|auto|-1")  # since 0.12: as much as fits
    metrics_path = "/metrics"
    stats_words = ("throughput", _SPECULATION_LINE)
    proposed_like = "qwen36-vllm"
    proposed_settings = (
        "args: {max-model-len: 32768, gpu-memory-utilization: 0.8}\ncontainer: {shm_size: 16g, network: host}"
    )
    signs = LogSignature(
        marks=r"\((?:APIServer|EngineCore\w*|Worker\w*|VllmWorker\w*|RayWorker(?:Vllm|Wrapper|Proc)) (?:rank=\d+ )?pid="
        r"|Engine \d{3}: Avg |vLLM (?:API )?server |Initializing an? (?:V1 )?LLM engine"
        r"|(?:DEBUG|INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d \[?[\w/]+\.py:\d+\]"
        r"|^(?:usage: )?vllm(?: serve)?(?: \[-h\]|: error: )|^ *\[--uvicorn-log-level |^== vLLM ==|^vLLM Version \d",
        hints=("/vllm/", "vllm.", "Collecting vllm", "vllm 0.", "err_execute_model_input"),
        begins=("non-default args: ",),
        serving=("Engine 0", "SpecDecoding metrics: ", *_REQUEST_STARTS),
        standstill=("No available shared memory broadcast block found",),
        served=(
            "AsyncLLM output_handler failed",
            "Dumping input data for V1 LLM engine",
            "Dumping scheduler output for model execution",
            "Error executing method 'execute_model'",
            "Engine background task failed",
            "Avg prompt throughput: ",  # without the engine's number: a logger of another form
            "Error in preprocessing prompt inputs",
            "Error in chat completion stream generator",
            *_REQUEST_STARTS,
        ),
    )
    defaults = EngineDefaults(
        command=("vllm", "serve"),
        port=8000,
        ready_line=r"^(?:INFO:\s+)?Application startup complete\.(?!\s*\w)",
        health="/health",
        probe="completions",
        gpus="all",
    )
    import_rules = ImportRules(
        program="vllm",
        subcommand="serve",
        module="vllm.entrypoints.openai.api_server",
        model_word=ModelWord.FIRST,
        model_flags={"model": None},
        short_flags={  # with the long names from its own help
            "-tp": "tensor-parallel-size",
            "-pp": "pipeline-parallel-size",
            "-dp": "data-parallel-size",
            "-dcp": "decode-context-parallel-size",
            "-pcp": "prefill-context-parallel-size",
            "-q": "quantization",
        },
        image=r"vllm[-_]openai|/vllm(?::|$)",
        has_ranks=True,
        is_recipe_default=True,
        built_image=r"vllm-node(?![^-:@])",
        nightly_image="ghcr.io/spark-arena/dgx-vllm-eugr-nightly",
        recipe_name="vllm",
        recipe_words=("vllm",),
        recipe_image="scitrera/dgx-spark-vllm:latest",
        recipe_command=("vllm", "serve", "{model}"),
        recipe_flags={
            **COMMON_RECIPE_FLAGS,
            "tensor_parallel": "-tp",
            "pipeline_parallel": "-pp",
            "data_parallel": "--data-parallel-size",
            "gpu_memory_utilization": "--gpu-memory-utilization",
            "max_model_len": "--max-model-len",
            "max_num_batched_tokens": "--max-num-batched-tokens",
            "max_num_seqs": "--max-num-seqs",
            "enforce_eager": "--enforce-eager",
            "enable_prefix_caching": "--enable-prefix-caching",
            "distributed_executor_backend": "--distributed-executor-backend",
            "otlp_traces_endpoint": "--otlp-traces-endpoint",
        },
        recipe_switches=("enforce_eager", "enable_prefix_caching", "trust_remote_code"),
        placeholders={
            "--host": "host",
            "--port": "port",
            "--served-model-name": "served_model_name",
            "--max-model-len": "max_model_len",
            "--gpu-memory-utilization": "gpu_memory_utilization",
            "--max-num-seqs": "max_num_seqs",
            "--tensor-parallel-size": "tensor_parallel",
            "--pipeline-parallel-size": "pipeline_parallel",
        },
        variables=("VLLM",),
        key_variables=("VLLM_API_KEY",),
        directory_words=("vllm",),
        hidden_directories=(".vllm",),
    )
    api_key_variables = ("VLLM_API_KEY",)
    address_variables = ("VLLM_HOST_IP",)
    process_titles = ("VLLM::", "vllm::")
    shm_names = ("vllm",)

    def build_command(self, profile: Profile) -> tuple[str, ...]:
        """Return launch words, the model, host, port, served name, then ``args`` in order."""
        return engine_flags.build_server_command(profile, self.defaults, build_model_flags, {"model"})

    def build_rank_command(self, words: tuple[str, ...], rank: EngineRank) -> tuple[str, ...]:
        """Return the command with ``--nnodes``, ``--node-rank`` and ``--master-addr``, or for Ray if the profile says
        so.

        With ``--distributed-executor-backend ray`` the head starts a Ray cluster and serves in it; the others join it.
        """
        engine_flags.reject_shell_script(words)
        engine_flags.reject_per_rank_flags(words, "nnodes", "node-rank", "master-addr", "headless")
        if not self.must_start_head_first(words):
            place = ("--nnodes", str(rank.count), "--node-rank", str(rank.index), "--master-addr", rank.head_address)
            return (*words, *place, *(() if rank.is_head else ("--headless",)))
        here = f"--node-ip-address={rank.own_address} --num-gpus=1 --disable-usage-stats"
        if rank.is_head:
            begin = f'ray start --head --port={RAY_PORT} {here} && exec "$@"'
            return ("sh", "-c", begin, "sh", *words)
        # As a container's first process Ray would ignore SIGTERM, for which it has no handler: every stop took the whole grace.
        join = f"ray start --address={rank.head_address}:{RAY_PORT} {here} --block"
        return ("sh", "-c", f'{join} & trap "kill $!" TERM INT; wait $!')

    def must_start_head_first(self, words: tuple[str, ...]) -> bool:
        """Tell whether the ranks use Ray: a worker soon gives up without a head. Without Ray they wait for each other."""
        return engine_flags.find_flag_value(words, "distributed-executor-backend") == "ray"

    def read_decoding_settings(self, words: tuple[str, ...]) -> DecodingSettings:
        """Return the drafts of ``--speculative-config`` (or ``--spec-*``), and tensor x pipeline parallel size."""
        ranks = engine_flags.multiply_parallel_sizes(words, "tp tensor-parallel-size", "pp pipeline-parallel-size")
        config = read_speculative_config(words)
        tokens = engine_flags.parse_count(config.get("num_speculative_tokens"))
        method = config.get("method", "")
        if not config:
            return DecodingSettings(ranks=ranks)
        chained = method in CHAINED_METHODS or method.endswith("mtp")
        return DecodingSettings(tokens, tokens if chained else DRAFT_PASSES.get(method), ranks)

    def parse_metrics(self, page: str) -> EngineMetrics:
        """Return one reading of /metrics, which is always on here."""
        read = metrics_parser.parse_metrics_page(page, _METRIC_NAMES)
        return EngineMetrics(
            generation_tokens=read.sum_of("vllm:generation_tokens_total"),
            prompt_tokens=count_computed_prompt_tokens(read),
            prefix_queries=read.sum_of("vllm:prefix_cache_queries_total"),
            prefix_hits=read.sum_of("vllm:prefix_cache_hits_total"),
            drafts=read.sum_of(f"{_SPECULATION_PREFIX}drafts_total"),
            draft_tokens=read.sum_of(f"{_SPECULATION_PREFIX}draft_tokens_total"),
            accepted_tokens=read.sum_of(f"{_SPECULATION_PREFIX}accepted_tokens_total"),
            accepted_per_position=read.sums_by_position(f"{_SPECULATION_PREFIX}accepted_tokens_per_pos_total"),
            preemptions=read.sum_of("vllm:num_preemptions_total"),
            running=read.sum_of("vllm:num_requests_running"),
            waiting=read.sum_of("vllm:num_requests_waiting"),
            kv_usage=read.max_of("vllm:kv_cache_usage_perc"),  # 0..1, whatever its name says
            kv_tokens=count_kv_cache_tokens(read),
            ttft=read.sum_histogram("vllm:time_to_first_token_seconds"),
            inter_token=read.sum_histogram("vllm:inter_token_latency_seconds"),
            started=read.max_of(metrics_parser.PROCESS_START_SERIES),
            copies=max(1, len(set(read.list_label_values("vllm:num_requests_running", "engine")))),
        )

    def parse_stats_line(self, line: str) -> StatsLine | None:
        """Return the figures in an ``Engine 000`` or ``SpecDecoding metrics`` line, None for any other."""
        if line.startswith(_SPECULATION_LINE):
            return parse_speculation_line(line.removeprefix(_SPECULATION_LINE))
        if "throughput" not in line or (head := _ENGINE_LINE.match(line)) is None:
            return None
        return parse_throughput_line(line[head.end() :], head["number"] or "")


ENGINE = VllmEngine()
