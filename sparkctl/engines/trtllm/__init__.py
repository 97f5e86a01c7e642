"""TensorRT-LLM's trtllm-serve (1.1 to 1.3, PyTorch backend). From its source and from public logs of a GB10; not run
here.

mpirun starts it on several Sparks (see `mpirun`). It sizes its KV cache twice: a small one to measure with, then the
final one. ``/metrics`` is a JSON list here; Prometheus' page has another path, and exists only with
``return_perf_metrics: true`` in the file of ``args.config``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sparkctl.engines import engine_flags, metrics_parser
from sparkctl.engines.base import (
    DecodingSettings,
    Engine,
    EngineDefaults,
    EngineRank,
    Failure,
    FailureWeight,
    ImportRules,
    LineSignal,
    LogSignature,
    ModelWord,
)
from sparkctl.engines.failures import COMMON_CAUSES, CRASH_FAILURES, cuda_memory_rules
from sparkctl.engines.log_rules import LogRules, fact_rule, failure_rule, loading_signal, version_facts
from sparkctl.engines.remedies import adapt_rules
from sparkctl.engines.traps import build_trap_rules
from sparkctl.engines.trtllm import mpirun
from sparkctl.engines.trtllm.mpirun import MPIRUN_FAILURES, MPIRUN_SIGNALS
from sparkctl.model.engine_metrics import EngineFact, EngineFactName, EngineMetrics
from sparkctl.model.phase import Phase, Step
from sparkctl.model.verdict import DROP_CACHES_REMEDY, FailureCause

if TYPE_CHECKING:
    from sparkctl.model.profile import Profile

_READY_PATTERN = r"^INFO:\s+Application startup complete\."
FRACTION_FIELD = "args.kv_cache_free_gpu_memory_fraction"
_MAX_TOKENS_FIELD = "args.max_num_tokens"
_LOWER_MEMORY_REMEDY = f"Lower {FRACTION_FIELD} (it is a share of the memory that is free once the weights are there) or {_MAX_TOKENS_FIELD}."

_QUIET_STARTS = (
    "PyTorchConfig(",
    "TorchLlmArgs(",
    "LLM Args:",
    "iter = ",
    "Set PluginConfig",
    "insufficient GPU memory for CUDA graphs",
)
_COMPONENT_FAILED_TEXT = "The following component could not be created: "


def build_component_failure(
    component: str, cause: FailureCause, what: str, remedy: str, field: str | None
) -> tuple[str, LineSignal]:
    return _COMPONENT_FAILED_TEXT + component, LineSignal(
        failure=Failure(cause=cause, summary=f"There was no memory left for {what}.", remedy=remedy, field=field)
    )


_PHASE_SIGNALS = (
    # Its explanation of a failure: these lines contain none of the words that mark a failure elsewhere.
    build_component_failure(
        "Initial KV cache",
        FailureCause.KV_CACHE_TOO_SMALL,
        "the KV cache it measures with",
        f"Lower {_MAX_TOKENS_FIELD}.",
        _MAX_TOKENS_FIELD,
    ),
    build_component_failure(
        "KV cache", FailureCause.KV_CACHE_TOO_SMALL, "the KV cache", _LOWER_MEMORY_REMEDY, FRACTION_FIELD
    ),
    build_component_failure(
        "Draft", FailureCause.DRAFT_WORKSPACE, "the draft model", _LOWER_MEMORY_REMEDY, FRACTION_FIELD
    ),
    build_component_failure(
        "Model resources",
        FailureCause.CUDA_OUT_OF_MEMORY,
        "what the model needs while it runs",
        f"Lower {_MAX_TOKENS_FIELD}.",
        _MAX_TOKENS_FIELD,
    ),
    build_component_failure(
        "Model",
        FailureCause.WEIGHTS_DO_NOT_FIT,
        "the model",
        f"{DROP_CACHES_REMEDY} Stop what else holds memory on the node, lower {_MAX_TOKENS_FIELD}, or take a smaller model.",
        None,
    ),
    build_component_failure(
        "",
        FailureCause.CUDA_OUT_OF_MEMORY,
        "a part of the engine",
        f"Lower {_MAX_TOKENS_FIELD}. {_LOWER_MEMORY_REMEDY}",
        _MAX_TOKENS_FIELD,
    ),
    (
        "!!!!!!! Segfault encountered",
        LineSignal(
            failure=Failure(
                cause=FailureCause.CRASHED,
                summary="The engine died of a segmentation fault.",
                remedy="Try without CUDA graphs (cuda_graph_config: null in the file of args.config), or another image.",
                field="image",
                weight=FailureWeight.DEATH,
            )
        ),
    ),
    ("INFO:     Application startup complete.", LineSignal(Phase.READY)),
    ("INFO:     Started server process", LineSignal(Phase.WARMING, Step("http"))),
    ("Using LLM with", loading_signal("join")),
    ("Prefetching ", loading_signal("weights")),
    ("Model init total", loading_signal("profiling")),
    ("[Autotuner] Autotuning process starts", loading_signal("autotune")),
    ("Creating CUDA graph instances", loading_signal("graphs")),
    ("Run generation only CUDA graph warmup", loading_signal("graphs")),
    ("Run generation-only CUDA graph warmup", loading_signal("graphs")),
    *MPIRUN_SIGNALS,
)
_PROGRESS_BAR_STEPS = (
    ("safetensors", "weights"),
    ("Loading weights", "weights"),
    ("Fetching", "download"),
    ("Downloading", "download"),
)
# torch reports what did not fit, and then the engine what it was for: that is closer to what must change.
_MEMORY_FAILURES = (
    *cuda_memory_rules(
        _LOWER_MEMORY_REMEDY,
        FRACTION_FIELD,
        fatal=True,
        begins=r"^(?:Failed to initialize executor|Encountered an? error in forward|.{0,200}?(?=\bcudaMalloc))",
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"Executor creation failed due to insufficient GPU memory|Executor creation failed with an error which might",
        FailureCause.CUDA_OUT_OF_MEMORY,
        "The engine could not be created: the memory ran out.",
        f"{_LOWER_MEMORY_REMEDY} {DROP_CACHES_REMEDY}",
        needle="Executor creation failed",
        on=FRACTION_FIELD,
        fatal=True,
        weight=FailureWeight.DEATH,
    ),
)
_FLAG_FAILURES = (
    failure_rule(
        r"^Error: No such option:? '?--?(?P<flag>[\w.-]+)",
        FailureCause.UNKNOWN_FLAG,
        "TensorRT-LLM's command refused its flags: it does not know {flag}.",
        "Correct or remove args.{flag}: this image does not know it. In trtllm-serve, most settings go into the YAML file of args.config.",
        needle="No such option",
        on="args.{flag}",
        fatal=True,
    ),
    failure_rule(
        r"^Error: Invalid value for '(?:[^']* )?--?(?P<flag>[\w.-]+)'[^:]*: (?P<what>.*)",
        FailureCause.BAD_VALUE,
        "trtllm-serve refused the value of {flag}: {what}",
        "Correct args.{flag}.",
        needle="Invalid value for",
        on="args.{flag}",
        fatal=True,
    ),
    failure_rule(
        r"^Error: (?P<what>(?:Missing|Got unexpected|Option|Invalid value).*)",
        FailureCause.BAD_VALUE,
        "trtllm-serve refused its command line: {what}",
        "Correct args or model.path.",
        needle="Error: ",
        on="args",
        fatal=True,
    ),
    failure_rule(
        r"Unknown architecture for AutoModelForCausalLM: (?P<name>\w+)",
        FailureCause.MODEL_UNSUPPORTED,
        "This image does not support the model's architecture {name}.",
        "Take a newer image.",
        needle="Unknown architecture",
        on="image",
        fatal=True,
    ),
)
_EXIT_FAILURES = (
    failure_rule(
        r"^Encountered an? error in forward(?: function)?: (?P<what>.{1,300})",
        FailureCause.CRASHED,
        "The engine failed while it worked on requests: {what}",
        "Take a newer image, and look for this message among the issues of TensorRT-LLM. Requests that were running got an error; "
        "restart the model if it no longer answers.",
        needle="error in forward",
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"Failed to initialize executor on rank (?P<rank>\d{1,5}): (?P<what>\S.{0,300})",
        FailureCause.CRASHED,
        "The engine's worker of rank {rank} did not start: {what}",
        "The reason is the text after the colon. Take a newer image, or look for it among the issues of TensorRT-LLM.",
        needle="Failed to initialize executor on rank ",
        fatal=True,
        weight=FailureWeight.EXCEPTION,
    ),
    failure_rule(
        r"Executor worker (?:returned error|died)|MPI_ABORT was invoked|Failed to initialize executor",
        FailureCause.CRASHED,
        "The engine's worker ended.",
        "The lines before this one name the reason.",
        needle=("Executor worker", "Failed to initialize executor", "MPI_ABORT was invoked"),
        fatal=True,
        weight=FailureWeight.AFTERMATH,
    ),
)
# By the name that the common rules have for them. Its backends, formats and the like are set in its YAML file.
_COMMON_FLAGS = {
    "chat-template": "chat_template",
    "host": "host",
    "pipeline-parallel-size": "pipeline_parallel_size",
    "tensor-parallel-size": "tensor_parallel_size",
    "trust-remote-code": "trust_remote_code",
}
_LOG_RULES = LogRules(
    quiet=_QUIET_STARTS,
    phases=_PHASE_SIGNALS,
    bars=_PROGRESS_BAR_STEPS,
    facts=(
        fact_rule(
            "NVIDIA TensorRT", r"^NVIDIA TensorRT[ -]LLM Release (?P<it>\d[\w.+-]*)", EngineFactName.ENGINE_VERSION
        ),
        *(rule for package in ("tensorrt_llm", "tensorrt-llm") for rule in version_facts(package)),
    ),
    rules=build_trap_rules("trtllm")
    + _MEMORY_FAILURES
    + _FLAG_FAILURES
    + MPIRUN_FAILURES
    + adapt_rules(COMMON_CAUSES, "trtllm", _COMMON_FLAGS)
    + _EXIT_FAILURES
    + adapt_rules(CRASH_FAILURES, "trtllm", _COMMON_FLAGS),
)

_KV_CACHE_LINE = re.compile(
    r"^\[MemUsageChange\] Allocated [\d.]+ \w+ for max tokens in paged KV cache \((?P<tokens>\d+)\)"
)
_SIZES_LINE = re.compile(r"^max_seq_len=(?P<context>\d+), max_num_requests=(?P<requests>\d+)")
_VERSION_LINE = re.compile(r"^\[TensorRT[ -]LLM\] TensorRT[ -]LLM version: (?P<version>[\w.+-]+)")
_ATTENTION_BACKEND = re.compile(r"attn_backend='(?P<attention>\w+)'")
_KV_STEP = Step("kv-cache")

METRIC_PREFIX = "trtllm_"
_METRIC_NAMES = (
    f"{METRIC_PREFIX}generation_tokens_total",
    f"{METRIC_PREFIX}prompt_tokens_total",
    f"{METRIC_PREFIX}prompt_cached_tokens_total",
    f"{METRIC_PREFIX}num_requests_running",
    f"{METRIC_PREFIX}num_requests_waiting",
    f"{METRIC_PREFIX}kv_cache_utilization",
    f"{METRIC_PREFIX}kv_cache_used_blocks",
    f"{METRIC_PREFIX}kv_cache_tokens_per_block",
    f"{METRIC_PREFIX}spec_decode_num_draft_tokens_total",
    f"{METRIC_PREFIX}spec_decode_num_accepted_tokens_total",
    f"{METRIC_PREFIX}time_to_first_token_seconds_bucket",
    f"{METRIC_PREFIX}time_per_output_token_seconds_bucket",
)


def parse_fact_line(line: str) -> LineSignal | None:
    """Return the fact that a line reports; None if it reports none."""
    if line.startswith("[MemUsageChange]"):
        kv = _KV_CACHE_LINE.match(line)
        return kv and LineSignal(
            Phase.LOADING, _KV_STEP, facts=(EngineFact(EngineFactName.KV_CACHE_TOKENS, kv["tokens"]),)
        )
    if line.startswith("max_seq_len="):
        sizes = _SIZES_LINE.match(line)
        return sizes and LineSignal(
            facts=(
                EngineFact(EngineFactName.CONTEXT_LENGTH, sizes["context"]),
                EngineFact(EngineFactName.MAX_CONCURRENCY, sizes["requests"]),
            )
        )
    if line.startswith(("[TensorRT-LLM] TensorRT", "[TensorRT LLM] TensorRT")):
        version = _VERSION_LINE.match(line)
        return version and LineSignal(facts=(EngineFact(EngineFactName.ENGINE_VERSION, version["version"]),))
    if line.startswith("PyTorchConfig("):
        backend = _ATTENTION_BACKEND.search(line)
        return backend and LineSignal(facts=(EngineFact(EngineFactName.ATTENTION_BACKEND, backend["attention"]),))
    return None


class TensorRtLlmEngine(Engine):
    """See ``engines.base.Engine``."""

    name = "trtllm"
    title = "TensorRT-LLM"
    log_rules = _LOG_RULES
    memory_setting = FRACTION_FIELD
    share_flags = ("kv_cache_free_gpu_memory_fraction", "free_gpu_memory_fraction")
    context_flags = ("max_seq_len",)
    api_key_obstacle = "its server has none"
    metrics_setting = "return_perf_metrics: true, in the YAML file of args.config"
    signs = LogSignature(
        marks=r"\[TRT-LLM\]|\[TensorRT[ -]LLM\]|^NVIDIA TensorRT[ -]LLM Release |trtllm-serve",
        hints=("tensorrt_llm", "TensorRT-LLM"),
        begins=("Using LLM with",),
        serving=("iter = ",),
        served=("Encountered an error in forward function", "Encountered error in forward"),
    )
    metrics_path = "/prometheus/metrics"
    defaults = EngineDefaults(
        command=("trtllm-serve",),
        port=8000,
        ready_line=_READY_PATTERN,
        health="/health",
        probe="completions",
        gpus="all",
    )
    import_rules = ImportRules(
        program="trtllm-serve",
        subcommand="serve",
        model_word=ModelWord.ANYWHERE,
        name_flags=(),
        has_ranks=True,
        recipe_name="trtllm",
        recipe_words=("trtllm", "tensorrt-llm", "trt-llm"),
        recipe_image="nvcr.io/nvidia/tensorrt-llm/release:latest",
        recipe_command=("trtllm-serve", "{model}", "--backend", "pytorch"),
        recipe_flags={
            "host": "--host",
            "port": "--port",
            "tensor_parallel": "--tp_size",
            "pipeline_parallel": "--pp_size",
            "expert_parallel": "--ep_size",
            "max_num_tokens": "--max_num_tokens",
            "max_batch_size": "--max_batch_size",
            "max_model_len": "--max_seq_len",
            "tokenizer": "--tokenizer",
            "kv_cache_free_gpu_memory_fraction": "--kv_cache_free_gpu_memory_fraction",
            "trust_remote_code": "--trust_remote_code",
        },
        recipe_switches=("trust_remote_code",),
        placeholders={
            "--host": "host",
            "--port": "port",
            "--tp_size": "tensor_parallel",
            "--max_batch_size": "max_batch_size",
            "--max_num_tokens": "max_num_tokens",
            "--max_seq_len": "max_model_len",
        },
        variables=("TRTLLM", "TLLM"),
        directory_words=("tensorrt", "trtllm"),
    )

    def build_command(self, profile: Profile) -> tuple[str, ...]:
        """Return launch words, the model, host, port, then ``args``. No flag names it to clients: its name or directory does."""
        return engine_flags.build_server_command(profile, self.defaults, lambda path, _: (path,), name_flags=())

    def build_rank_command(self, words: tuple[str, ...], rank: EngineRank) -> tuple[str, ...]:
        """Return ``trtllm-llmapi-launch``, started by mpirun on the head; a worker runs an sshd that mpirun logs in to."""
        engine_flags.reject_shell_script(words)
        return mpirun.build_rank_command(("trtllm-llmapi-launch", *words), rank)

    def list_ssh_key_mounts(self, rank: EngineRank) -> tuple[str, ...]:
        """Return the head's ``~/.ssh``, and a worker's authorized_keys."""
        return mpirun.list_ssh_key_mounts(rank)

    def classify_line(self, line: str) -> LineSignal | None:
        return parse_fact_line(line) or _LOG_RULES.classify_line(line)

    def read_decoding_settings(self, words: tuple[str, ...]) -> DecodingSettings:
        """Return tensor x pipeline parallel size. Drafts are set in the file of ``--config``, which is not read."""
        return DecodingSettings(
            ranks=engine_flags.multiply_parallel_sizes(
                words, "tp-size tensor-parallel-size", "pp-size pipeline-parallel-size"
            )
        )

    def parse_metrics(self, page: str) -> EngineMetrics:
        """Return one reading of /prometheus/metrics."""
        read = metrics_parser.parse_metrics_page(page, _METRIC_NAMES)
        prompts, cached = (
            read.sum_of(f"{METRIC_PREFIX}prompt_tokens_total"),
            read.sum_of(f"{METRIC_PREFIX}prompt_cached_tokens_total"),
        )
        used, size = (
            read.sum_of(f"{METRIC_PREFIX}kv_cache_used_blocks"),
            read.max_of(f"{METRIC_PREFIX}kv_cache_tokens_per_block"),
        )
        return EngineMetrics(
            generation_tokens=read.sum_of(f"{METRIC_PREFIX}generation_tokens_total"),
            # This counts all prompt tokens, including those from the cache.
            prompt_tokens=None if prompts is None else max(0.0, prompts - (cached or 0.0)),
            prefix_queries=None if cached is None else prompts,
            prefix_hits=cached,
            draft_tokens=read.sum_of(f"{METRIC_PREFIX}spec_decode_num_draft_tokens_total"),
            accepted_tokens=read.sum_of(f"{METRIC_PREFIX}spec_decode_num_accepted_tokens_total"),
            running=read.sum_of(f"{METRIC_PREFIX}num_requests_running"),
            waiting=read.sum_of(f"{METRIC_PREFIX}num_requests_waiting"),
            kv_usage=read.max_of(f"{METRIC_PREFIX}kv_cache_utilization"),
            kv_tokens=None if used is None or size is None else used * size,
            ttft=read.sum_histogram(f"{METRIC_PREFIX}time_to_first_token_seconds"),
            inter_token=read.sum_histogram(f"{METRIC_PREFIX}time_per_output_token_seconds"),
            at_request_end=True,
        )


ENGINE = TensorRtLlmEngine()
