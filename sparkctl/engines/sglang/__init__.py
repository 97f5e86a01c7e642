"""SGLang (0.5.12 to 0.5.23). It ends itself with SIGKILL, so its exit code says nothing; its log lines do.

``Application startup complete.`` does not mean ready here: the warm-up request follows, and a busy port is only noticed
after it. 0.5.12 prints its settings as ``ServerArgs(name=value, ...)``, 0.5.23 as a dict.
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
)
from sparkctl.engines.log_rules import FactRule, LogRules, fact_rule, loading_signal, version_facts
from sparkctl.engines.metrics_parser import parse_leading_number, parse_stats_fields
from sparkctl.engines.sglang.failures import FAILURES, MEMORY_FRACTION_FIELD, UNSET_TOP_K, WRAPPED_ERROR
from sparkctl.model.engine_metrics import EngineFactName, EngineMetrics, StatsLine, StatsLineKind
from sparkctl.model.phase import Phase, Step

if TYPE_CHECKING:
    from sparkctl.model.profile import Profile

_QUANTIZATION_PATH = EngineFactName.QUANTIZATION_PATH
_WEIGHT_ONLY_TEXT = "this checkpoint weight-only via FP4 Marlin"


def _server_args_fact(key: str, value: str, name: EngineFactName, says: str = "{it}") -> FactRule:
    # Without an algorithm the numbers of drafts are only defaults. Its setting stands before theirs.
    given = r"[ ({]'?speculative_algorithm(?:'\s*: |=)'.*" if key.startswith("speculative_") else ""
    return fact_rule("server_args=", rf"{given}[ ({{]'?{key}(?:'\s*: |=)(?!None\b|'auto'){value}", name, says)


FACTS = (
    fact_rule(
        "SGLang Version ", r"^SGLang Version v?(?P<it>\d[\w.+-]*)", EngineFactName.ENGINE_VERSION
    ),  # NVIDIA's images
    fact_rule("SGLang version: ", r"version: v?(?P<it>\d[\w.+-]*)", EngineFactName.ENGINE_VERSION, is_guess=True),
    *version_facts("sglang"),
    _server_args_fact("quantization", r"'(?P<it>[\w-]+)'", EngineFactName.QUANTIZATION),
    _server_args_fact("kv_cache_dtype", r"'(?P<it>\w+)'", EngineFactName.KV_CACHE_DTYPE),
    _server_args_fact("attention_backend", r"'(?P<it>\w+)'", EngineFactName.ATTENTION_BACKEND),
    fact_rule(
        "server_args=",
        r"[ ({]'?speculative_algorithm(?:'\s*: |=)'(?P<it>\w+)'",
        EngineFactName.SPECULATIVE_METHOD,
    ),
    _server_args_fact(
        "speculative_num_draft_tokens", r"(?P<it>\d+)", EngineFactName.DRAFT_TOKENS, "{it} verified a step"
    ),
    _server_args_fact("speculative_num_steps", r"(?P<it>\d+)", EngineFactName.DRAFT_STEPS),
    _server_args_fact("speculative_eagle_topk", r"(?P<it>\d+)", EngineFactName.DRAFT_TOP_K),
    _server_args_fact(
        "speculative_num_steps",
        r"\d+, '?speculative_eagle_topk(?:'\s*: |=)None\b",
        EngineFactName.DRAFT_TOP_K,
        UNSET_TOP_K,
    ),
    _server_args_fact("context_length", r"(?P<it>\d+)", EngineFactName.CONTEXT_LENGTH),
    fact_rule("Load weight begin", r"avail mem=(?P<it>[\d.]+) GB", EngineFactName.AVAILABLE_AT_LOAD),
    fact_rule("Load weight end", r" type=(?P<it>\w+)", EngineFactName.ARCHITECTURE),
    fact_rule("Load weight end", r" quant=(?!None)(?P<it>[\w-]+)", EngineFactName.QUANTIZATION),
    fact_rule("Using KV cache dtype: ", r": (?:torch\.)?(?P<it>\w+)", EngineFactName.KV_CACHE_DTYPE),
    fact_rule("KV Cache is allocated", r"dtype: (?:torch\.)?(?P<it>\w+)", EngineFactName.KV_CACHE_DTYPE),
    fact_rule("Use sliding window memory pool", r"full_layer_tokens=(?P<it>\d+)", EngineFactName.KV_CACHE_TOKENS),
    # The sliding window's pool is allocated first; it holds no whole context.
    fact_rule("KV Cache is allocated", r"#tokens: (?P<it>\d+)", EngineFactName.KV_CACHE_TOKENS, is_guess=True),
    fact_rule("max_total_num_tokens=", r"^max_total_num_tokens=(?P<it>\d+)", EngineFactName.KV_CACHE_TOKENS),
    fact_rule("max_total_num_tokens=", r" max_running_requests=(?P<it>\d+)", EngineFactName.MAX_CONCURRENCY),
    fact_rule("max_total_num_tokens=", r" context_len=(?P<it>\d+)", EngineFactName.CONTEXT_LENGTH),
    fact_rule("Attention backend not ", r"Use (?P<it>\w+) backend by default", EngineFactName.ATTENTION_BACKEND),
    fact_rule("Attention backend not ", r"Falling back to '(?P<it>\w+)'", EngineFactName.ATTENTION_BACKEND),
    fact_rule("Use ", r"^Use (?P<it>\w+) as (?:default )?attention backend", EngineFactName.ATTENTION_BACKEND),
    fact_rule("Using ", r"^Using (?P<it>\w+) as attention backend", EngineFactName.ATTENTION_BACKEND),
    fact_rule("Using ", r"^Using (?P<it>\w*NvFp4\w*Kernel) for NVFP4 GEMM", _QUANTIZATION_PATH, "native FP4 ({it})"),
    fact_rule(
        "Your GPU does not have native support for FP4",
        "",
        _QUANTIZATION_PATH,
        "Marlin fallback (FP4 weights, 16-bit arithmetic)",
        is_fallback=True,
    ),
    fact_rule(
        "Your GPU does not have native support for FP8",
        "",
        _QUANTIZATION_PATH,
        "Marlin fallback (FP8 weights, 16-bit arithmetic)",
        is_fallback=True,
    ),
    fact_rule(
        "NVFP4 w4a4",
        _WEIGHT_ONLY_TEXT,
        _QUANTIZATION_PATH,
        "Marlin fallback (FP4 weights, 16-bit arithmetic)",
        is_fallback=True,
    ),
    fact_rule(
        "--fp4-gemm-backend",
        "FP4 Marlin",
        _QUANTIZATION_PATH,
        "Marlin fallback (FP4 weights, 16-bit arithmetic)",
        is_fallback=True,
    ),
)


READY_LINE = "The server is fired up and ready to roll!"
_QUIET_STARTS = (
    "Decode batch",
    "Prefill batch",
    "Ignore import error",
    "If you hit GPU OOM",
    "KV cache pool is full. Retract",
    "retract_decode: ",
    "Available memory ",
    "Multimodal preprocessing ran out",
    "Health check failed",
    "Receive: obj=",
    "Finish: obj=",
    "kill_process_tree",
    "Possible solutions",
)
_PHASE_SIGNALS = (
    (READY_LINE, LineSignal(Phase.READY)),
    ("Init torch distributed begin", loading_signal("join")),
    ("Init parallel begin", loading_signal("join")),
    ("Load weight begin", loading_signal("weights")),
    ("Load weight end", loading_signal("profiling")),
    ("KV Cache is allocated", loading_signal("kv-cache")),
    ("KV Cache VA upper bound", loading_signal("kv-cache")),
    ("Mamba Cache is allocated", loading_signal("kv-cache")),
    ("Memory pool end", loading_signal("autotune")),
    ("Running FlashInfer autotune", loading_signal("autotune")),
    ("Capture draft ", loading_signal("draft")),
    ("Capture target draft ", loading_signal("draft")),
    ("Capture cuda graph begin", loading_signal("graphs")),
    ("Capture piecewise CUDA graph begin", loading_signal("graphs")),
    ("Capture target decode CUDA graph begin", loading_signal("graphs")),
    ("Capture target verify CUDA graph begin", loading_signal("graphs")),
    ("Capture target prefill CUDA graph begin", loading_signal("graphs")),
    ("INFO:     Started server process", LineSignal(Phase.WARMING, Step("http"))),
    ("INFO:     Application startup complete", LineSignal(Phase.WARMING, Step("warm-up"))),
    ("INFO:     Uvicorn running on", LineSignal(Phase.WARMING, Step("warm-up"))),
)
_PROGRESS_BAR_STEPS = (
    ("shards", "weights"),
    ("Loading safetensors", "weights"),
    ("Capturing", "graphs"),
    ("[AutoTuner]", "autotune"),
    ("Compiling num tokens", "compile"),
    ("DeepGEMM", "compile"),
    ("checksums", "checksums"),
    ("Fetching", "download"),
)
_LOG_RULES = LogRules(
    quiet=_QUIET_STARTS,
    phases=_PHASE_SIGNALS,
    bars=_PROGRESS_BAR_STEPS,
    rules=FAILURES,
    facts=FACTS,
    retold=WRAPPED_ERROR,
)

_CHAINED_ALGORITHMS = (
    "EAGLE",
    "EAGLE3",
    "NEXTN",
    "STANDALONE",
    "FROZEN_KV_MTP",
)  # the draft model runs once for each step
_DRAFT_PASSES = {"NGRAM": 0, "DFLASH": 1}  # no draft model; a whole block of drafts at once

_BATCH_LINE = re.compile(r"(?P<kind>Decode|Prefill) batch(?: \[\d+\])?[,.] ?")
_HEALTH_CHECK_KEYS = ("#new-seq", "#new-token", "#cached-token", "#running-req")
_REALTIME_TOKENS = "sglang:realtime_tokens_total"
_METRIC_NAMES = (
    "sglang:generation_tokens_total",
    "sglang:prompt_tokens_total",
    _REALTIME_TOKENS,
    "sglang:num_retracted_requests_total",
    "sglang:num_running_reqs",
    "sglang:num_queue_reqs",
    "sglang:token_usage",
    "sglang:num_used_tokens",
    "sglang:gen_throughput",
    "sglang:spec_accept_length",
    "sglang:spec_accept_rate",
    "sglang:e2e_request_latency_seconds_count",
    "sglang:time_to_first_token_seconds_bucket",
    "sglang:inter_token_latency_seconds_bucket",
)


def count_live_or_final_tokens(page: metrics_parser.MetricsPage, mode: str, ended: str) -> float | None:
    """Return the live counter. Only a version without it uses the one that changes when a request ends."""
    return page.sum_of(_REALTIME_TOKENS, mode=mode) if page.list_values(_REALTIME_TOKENS) else page.sum_of(ended)


def count_prefix_cache_tokens(page: metrics_parser.MetricsPage) -> tuple[float | None, float | None]:
    """Return (tokens looked up, tokens found) of the prefix cache; a mode is missing until it first occurs."""
    computed, cached = (page.sum_of(_REALTIME_TOKENS, mode=mode) for mode in ("prefill_compute", "prefill_cache"))
    if computed is None or cached is None:
        return None, None
    return computed + cached, cached


DIST_INIT_PORT = 25000  # the port at which the ranks connect, as community launchers use it


class SglangEngine(Engine):
    """See ``engines.base.Engine``."""

    name = "sglang"
    title = "SGLang"
    log_rules = _LOG_RULES
    memory_setting = MEMORY_FRACTION_FIELD
    share_flags = ("mem-fraction-static", "mem-fraction", "mem-frac")
    context_flags = ("context-length", "context-len")
    config_flags = ("json-model-override-args",)
    prefix_cache_flags = ((), ("disable-radix-cache",))
    version_source = ("/server_info", "version")
    temperature_flags = ("preferred-sampling-params",)
    metrics_setting = "args.enable-metrics: true"
    # github.com/sgl-project/sglang/issues/37457: its `server_args=` line and /server_info have it, also from a file (0.5.23)
    api_key_obstacle = "it prints the key into its log and gives it out at /server_info"
    acceptance_steps = 40
    metrics_path = "/metrics"
    stats_words = ("Decode batch", "Prefill batch")
    bench_fields = (("return_token_ids", "false"),)  # it knows the field, and refuses true in a chat
    signs = LogSignature(
        marks=r"server_args=(?:ServerArgs\(|\{)|(?:Decode|Prefill) batch[,. ]|The server is fired up and ready to roll"
        r"|(?:Init torch distributed|Init parallel|Load weight|Capture \w+(?: \w+)* graph) (?:begin|end)"
        r"|^(?:usage: )?(?:sglang(?: serve)?|launch_server\.py)(?: \[-h\]|: error: )|sglang/launch_server|^\[sgl_kernel\]"
        r"|^== SGLang ==",
        hints=("/sglang/", "sglang.", "Collecting sglang", "sglang 0.", "sglang::", "sgl_kernel", "sgl-kernel"),
        begins=("server_args=",),
        serving=("Decode batch", "Prefill batch", "Receive: obj=", "Finish: obj="),
    )
    defaults = EngineDefaults(
        command=("python", "-m", "sglang.launch_server"),
        port=30000,
        ready_line=rf"^{re.escape(READY_LINE)}(?!\s*\w)",
        health="/health",
        probe="completions",
        gpus="all",
    )
    process_titles = ("sglang::",)
    shm_names = ("sglang",)
    import_rules = ImportRules(
        program="sglang",
        subcommand="serve",
        module="sglang.launch_server",
        model_flags={"model-path": None, "model": None},
        has_ranks=True,
        recipe_name="sglang",
        recipe_words=("sglang",),
        recipe_image="scitrera/dgx-spark-sglang:latest",
        recipe_command=("python3", "-m", "sglang.launch_server", "--model-path", "{model}"),
        recipe_flags={
            **COMMON_RECIPE_FLAGS,
            "tensor_parallel": "--tp-size",
            "pipeline_parallel": "--pp-size",
            "gpu_memory_utilization": "--mem-fraction-static",
            "max_model_len": "--context-length",
            "max_num_seqs": "--max-running-requests",
            "chunked_prefill": "--chunked-prefill-size",
            "tokenizer_path": "--tokenizer-path",
            "speculative_algorithm": "--speculative-algorithm",
            "speculative_num_steps": "--speculative-num-steps",
            "speculative_eagle_topk": "--speculative-eagle-topk",
            "speculative_num_draft_tokens": "--speculative-num-draft-tokens",
            "speculative_draft_model_path": "--speculative-draft-model-path",
            "enable_torch_compile": "--enable-torch-compile",
            "disable_radix_cache": "--disable-radix-cache",
        },
        recipe_switches=("trust_remote_code", "enable_torch_compile", "disable_radix_cache"),
        placeholders={
            "--host": "host",
            "--port": "port",
            "--served-model-name": "served_model_name",
            "--context-length": "max_model_len",
            "--mem-fraction-static": "gpu_memory_utilization",
            "--max-running-requests": "max_num_seqs",
            "--tp": "tensor_parallel",
            "--tp-size": "tensor_parallel",
        },
        variables=("SGLANG", "SGL"),
        key_variables=("SGLANG_API_KEY",),
        directory_words=("sglang",),
        hidden_directories=(".sglang",),
    )

    def build_command(self, profile: Profile) -> tuple[str, ...]:
        """Return launch words, ``--model-path``, host, port, served name, then ``args`` in order."""
        return engine_flags.build_server_command(
            profile, self.defaults, lambda path, _: ("--model-path", path), {"model-path", "model"}
        )

    def build_rank_command(self, words: tuple[str, ...], rank: EngineRank) -> tuple[str, ...]:
        """Return the command with ``--nnodes``, ``--node-rank`` and the head's ``--dist-init-addr``."""
        engine_flags.reject_shell_script(words)
        engine_flags.reject_per_rank_flags(words, "nnodes", "node-rank", "dist-init-addr", "nccl-init-addr")
        place = ("--nnodes", str(rank.count), "--node-rank", str(rank.index))
        return (*words, *place, "--dist-init-addr", f"{rank.head_address}:{DIST_INIT_PORT}")

    def read_decoding_settings(self, words: tuple[str, ...]) -> DecodingSettings:
        """Return the drafts of ``--speculative-*``, and tensor x pipeline parallel size.

        ``--speculative-num-draft-tokens`` counts the tokens that a step verifies, including the bonus token.
        """
        ranks = engine_flags.multiply_parallel_sizes(
            words, "tp tp-size tensor-parallel-size", "pp pp-size pipeline-parallel-size"
        )
        algorithm = engine_flags.find_flag_value(words, "speculative-algorithm", "speculative-algo")
        if algorithm is None:
            return DecodingSettings(ranks=ranks)
        verified = engine_flags.parse_count(engine_flags.find_flag_value(words, "speculative-num-draft-tokens"))
        steps = engine_flags.parse_count(engine_flags.find_flag_value(words, "speculative-num-steps"))
        drafts = max(0, verified - 1) if verified is not None else steps
        name = algorithm.upper()
        passes = steps if name in _CHAINED_ALGORITHMS else _DRAFT_PASSES.get(name)
        return DecodingSettings(drafts, passes, ranks)

    def parse_metrics(self, page: str) -> EngineMetrics:
        """Return one reading of /metrics, which ``args.enable-metrics`` turns on."""
        read = metrics_parser.parse_metrics_page(page, _METRIC_NAMES).without_rank_copies()
        queries, hits = count_prefix_cache_tokens(read)
        length = read.mean_above_zero("sglang:spec_accept_length")
        ttft = read.sum_histogram("sglang:time_to_first_token_seconds")
        return EngineMetrics(
            generation_tokens=count_live_or_final_tokens(read, "decode", "sglang:generation_tokens_total"),
            ended_requests=read.sum_of("sglang:e2e_request_latency_seconds_count"),
            prompt_tokens=count_live_or_final_tokens(read, "prefill_compute", "sglang:prompt_tokens_total"),
            prefix_queries=queries,
            prefix_hits=hits,
            preemptions=read.sum_of("sglang:num_retracted_requests_total"),
            running=read.sum_of("sglang:num_running_reqs"),
            waiting=read.sum_of("sglang:num_queue_reqs"),
            kv_usage=read.max_of("sglang:token_usage"),
            kv_tokens=read.sum_of("sglang:num_used_tokens"),
            generation_rate=read.sum_of("sglang:gen_throughput"),
            accept_length=length,
            # The gauge is also 0 without speculation; only beside an accept length does 0 mean zero.
            accept_rate=None if length is None else read.max_of("sglang:spec_accept_rate"),
            ttft=ttft,
            inter_token=read.sum_histogram("sglang:inter_token_latency_seconds"),
            in_strides=True,
            counts_prefill_apart=True,
            # In 0.5.12 and 0.5.23 only this counter is updated at every step; it lacks the first token of a request, which the
            # prefill produces. Tokens of health checks are neither in it nor in the histogram.
            counts_steps=bool(read.list_values(_REALTIME_TOKENS)),
            first_tokens=None if ttft is None or not read.list_values(_REALTIME_TOKENS) else ttft.count,
            health_tokens=1.0,
        )

    def parse_stats_line(self, line: str) -> StatsLine | None:
        """Return the figures in a ``Decode batch`` or ``Prefill batch`` line, None for any other."""
        head = _BATCH_LINE.match(line)
        if head is None:
            return None
        fields = parse_stats_fields(line[head.end() :])
        usages = (parse_leading_number(value) for key, value in fields.items() if key.endswith("usage"))
        tokens = fields.get("#token") or fields.get("#full token")
        kind = StatsLineKind.DECODE if head["kind"] == "Decode" else StatsLineKind.PREFILL
        if kind is StatsLineKind.PREFILL and [parse_leading_number(fields.get(key)) for key in _HEALTH_CHECK_KEYS] == [
            1,
            1,
            0,
            0,
        ]:
            kind = StatsLineKind.HEALTH
        return StatsLine(
            kind=kind,
            generation_rate=parse_leading_number(fields.get("gen throughput (token/s)")),
            running=parse_leading_number(fields.get("#running-req")),
            waiting=parse_leading_number(fields.get("#queue-req")),
            kv_usage=max((usage for usage in usages if usage is not None), default=None),
            kv_tokens=parse_leading_number(tokens),
            accept_length=parse_leading_number(fields.get("accept len")),
            accept_rate=parse_leading_number(fields.get("accept rate")),
            prompt_tokens=parse_leading_number(fields.get("#new-token")),
            cached_tokens=parse_leading_number(fields.get("#cached-token")),
        )


ENGINE = SglangEngine()
