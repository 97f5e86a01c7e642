"""llama.cpp's llama-server (builds of 2025 and 2026). Its version is a build number, and its flags change weekly.

Its port is open from the start and answers 503 on every path until the model is loaded. By default a newer build logs
little between the first line and the last: no progress, no sizes; ``-lv 4`` restores the older lines.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sparkctl.engines import engine_flags, metrics_parser
from sparkctl.engines.base import (
    HUB_ID_PATTERN,
    DecodingSettings,
    Engine,
    EngineDefaults,
    EngineRank,
    ImportRules,
    LineSignal,
    LogSignature,
)
from sparkctl.engines.failures import COMMON_CAUSES, CRASH_FAILURES
from sparkctl.engines.llamacpp.failures import (
    CONTEXT_FIELD,
    CUDA_FAILURES,
    EXIT_FAILURES,
    FLAG_FAILURES,
    FORMAT_FAILURES,
    MEMORY_FAILURES,
    MODEL_FAILURES,
)
from sparkctl.engines.log_rules import LogRules, loading_signal
from sparkctl.engines.metrics_parser import parse_leading_number
from sparkctl.engines.remedies import adapt_rules
from sparkctl.engines.traps import build_trap_rules
from sparkctl.model.engine_metrics import (
    NO_GPU_PATH,
    EngineFact,
    EngineFactName,
    EngineMetrics,
    StatsLine,
    StatsLineKind,
)
from sparkctl.model.phase import Phase, Step

if TYPE_CHECKING:
    from sparkctl.model.profile import Profile

_READY_PATTERN = re.compile(r"^(?:main|srv +(?:main|llama_server)): (?:server is )?listening on \w+://")
_PROGRESS_DOTS = re.compile(r"\.{2,100}")  # one for each percent of the weights
_WARM_UP_SIGNAL = LineSignal(Phase.WARMING, Step("warm-up"))
_HTTP_SIGNAL = LineSignal(Phase.WARMING, Step("http"))

_QUIET_STARTS = (
    "slot ",
    "srv  update_slots",
    "srv  log_server_r",
    "srv  params_from_",
    "llama_model_loader: - ",
    "load: ",
)
_PHASE_SIGNALS = (
    ("srv    load_model: loading model", loading_signal("weights")),
    ("main: loading model", loading_signal("weights")),
    ("llama_model_loader: loaded meta data", loading_signal("weights")),
    ("load_tensors: loading model tensors", loading_signal("weights")),
    ("llama_context: constructing", loading_signal("kv-cache")),
    ("llama_kv_cache", loading_signal("kv-cache")),
    ("llama_new_context_with_model: KV self size", loading_signal("compute buffers")),
    ("sched_reserve: reserving", loading_signal("compute buffers")),
    ("graph_reserve: reserving", loading_signal("compute buffers")),
    ("common_speculative_init_result: ", loading_signal("draft")),
    ("common_init_from_params: warming up", _WARM_UP_SIGNAL),
    ("cmn  common_init_: warming up", _WARM_UP_SIGNAL),
    ("srv    load_model: initializing", _WARM_UP_SIGNAL),
    ("srv          init: initializing slots", _WARM_UP_SIGNAL),
    ("srv  llama_server: model loaded", _HTTP_SIGNAL),
    ("main: model loaded", _HTTP_SIGNAL),
)
_FAILURE_RULES = (
    *build_trap_rules("llamacpp"),
    *adapt_rules(MEMORY_FAILURES + CUDA_FAILURES + MODEL_FAILURES + FLAG_FAILURES + EXIT_FAILURES, "llamacpp"),
    *adapt_rules(COMMON_CAUSES + CRASH_FAILURES, "llamacpp", {name: name for name in ("chat-template", "host")}),
    *FORMAT_FAILURES,
)
_LOG_RULES = LogRules(
    quiet=_QUIET_STARTS, phases=_PHASE_SIGNALS, bars=(("Downloading", "download"),), rules=_FAILURE_RULES
)

# Facts in log lines, by the line's beginning: (fact, pattern with one group).
_FACT_PATTERNS: dict[str, tuple[tuple[EngineFactName, re.Pattern[str]], ...]] = {
    "build: ": ((EngineFactName.ENGINE_VERSION, re.compile(r"^build: (?![01] )(\d+) ")),),
    "build_info: ": ((EngineFactName.ENGINE_VERSION, re.compile(r"^build_info: b?(?![01]\b)(\d+)")),),
    "print_info: arch ": ((EngineFactName.ARCHITECTURE, re.compile(r"= (\S+)")),),
    "print_info: file type": ((EngineFactName.QUANTIZATION, re.compile(r"= (.+)")),),
    "llama_context: n_ctx ": ((EngineFactName.KV_CACHE_TOKENS, re.compile(r"= (\d+)")),),
    "llama_context: n_ctx_": ((EngineFactName.CONTEXT_LENGTH, re.compile(r"n_ctx_(?:per_)?seq += (\d+)$")),),
    "llama_context: n_seq_max": ((EngineFactName.MAX_CONCURRENCY, re.compile(r"= (\d+)")),),
    "llama_kv_cache": ((EngineFactName.KV_CACHE_DTYPE, re.compile(r", K \((\w+)\): ")),),
    "common_chat_templates_init: failed": (
        (EngineFactName.CHAT_TEMPLATE, re.compile(r"failed to parse chat template \((defaulting to [\w-]+)\)")),
    ),
    "spec common_": ((EngineFactName.SPECULATIVE_METHOD, re.compile(r"adding speculative implementation '([^']+)'")),),
    "common_speculative_init": (
        (EngineFactName.SPECULATIVE_METHOD, re.compile(r"adding speculative implementation '([^']+)'")),
    ),
}
_FACT_STARTS = tuple(_FACT_PATTERNS)
_SLOT_SIZES = re.compile(r"n_slots = (?P<slots>\d+), n_ctx_slot = (?P<context>\d+), kv_unified = '(?P<unified>\w+)'")
_OFFLOADED_LAYERS = re.compile(r"^load_tensors: offloaded (?P<done>\d+)/(?P<all>\d+) layers to GPU")
_FLASH_ATTENTION = re.compile(
    r"^llama_context: (?:flash_attn += (?P<said>\w+)|Flash Attention was auto, set to (?P<found>\w+))"
    r"|^resolve_fused_ops: Flash Attention (?:not supported, set to )?(?P<newer>enabled|disabled)"
)
_GPU_CODE = re.compile(r"CUDA : ARCHS = (\d[\d,]{0,200})")
_GB10_CODE = re.compile(r"\b12[01]\d\b")  # kernels for 12.0 run on 12.1
_BEYOND_TRAINING = re.compile(
    r"^llama_context: n_ctx_(?:per_)?seq \((?P<runs>\d+)\) > n_ctx_train \((?P<trained>\d+)\)"
)
_NO_GPU_TEXT = "warning: no usable GPU found"

# Its throughput gauges are not used: every scrape, by anyone, resets them to zero.
_SPECULATION_PREFIX = "llamacpp:spec_decode_num_"
_METRIC_NAMES = (
    "llamacpp:tokens_predicted_total",
    "llamacpp:prompt_tokens_total",
    "llamacpp:prompt_tokens_cached_total",
    "llamacpp:tokens_predicted_seconds_total",
    "llamacpp:n_decode_total",
    "llamacpp:requests_processing",
    "llamacpp:requests_deferred",
    f"{_SPECULATION_PREFIX}drafts_total",
    f"{_SPECULATION_PREFIX}draft_tokens_total",
    f"{_SPECULATION_PREFIX}accepted_tokens_total",
    f"{_SPECULATION_PREFIX}accepted_tokens_per_pos_total",
)
_SLOT_TIMING = re.compile(r"slot +\w+: id +(?P<slot>\d+) \| task +-?\d+ \| +(?P<rest>.*)")
_LIVE_RATE_SECONDS = 3.0
_LIVE_RATE = re.compile(r"n_gen = +\d+, tg = +(?P<mean>[\d.]+) t/s(?:, tg_3s = +(?P<now>[\d.]+) t/s)?")
_PROMPT_RATE = re.compile(r"prompt processing, n_tokens = .{0,400}?(?<![\d.])(?P<rate>[\d.]++) tokens per second")
_REQUEST_END = re.compile(r"eval time = ")
_DRAFT_ACCEPTANCE = re.compile(
    r"draft acceptance(?: rate)? = +(?P<rate>[\d.]+) \( *(?P<accepted>\d+) accepted / +(?P<drafted>\d+) generated\)"
    r"(?:, mean len = +(?P<length>[\d.]+))?"
)

_MODEL_FLAGS = frozenset({"m", "model", "hf", "hfr", "hf-repo", "mu", "model-url", "dr", "docker-repo"})
_CHAINED_METHODS = ("draft-simple", "draft-mtp", "draft-eagle3")  # the draft model runs once for each drafted token
_DEFAULT_DRAFT_TOKENS = {"draft-simple": 3, "draft-mtp": 3, "draft-eagle3": 3}


def parse_facts(line: str) -> tuple[EngineFact, ...]:
    if line.startswith("srv    load_model: initializing"):
        return parse_slot_facts(line)
    if line.startswith("load_tensors: offloaded") and (found := _OFFLOADED_LAYERS.match(line)):
        on_gpu = found["done"] == found["all"]
        value = "all layers on the GPU" if on_gpu else f"{found['done']} of {found['all']} layers on the GPU"
        return (EngineFact(EngineFactName.QUANTIZATION_PATH, value, is_fallback=not on_gpu),)
    if line.startswith(_NO_GPU_TEXT):
        return (EngineFact(EngineFactName.QUANTIZATION_PATH, NO_GPU_PATH, is_fallback=True),)
    if line.startswith("system_info: ") and (found := _GPU_CODE.search(line)) and not _GB10_CODE.search(found[1]):
        return (EngineFact(EngineFactName.GPU_CODE, f"none for a GB10 (ARCHS = {found[1]})"),)
    if found := _BEYOND_TRAINING.match(line):
        return (EngineFact(EngineFactName.TRAINED_CONTEXT, f"{found['trained']}, and it runs with {found['runs']}"),)
    if found := _FLASH_ATTENTION.match(line):
        return parse_flash_attention(found["found"] or found["said"] or found["newer"])
    start = next((one for one in _FACT_STARTS if line.startswith(one)), None)
    named = ((name, pattern.search(line)) for name, pattern in _FACT_PATTERNS.get(start or "", ()))
    return tuple(EngineFact(name, format_fact(name, match[1].strip())) for name, match in named if match)


def format_fact(name: EngineFactName, value: str) -> str:
    return f"b{value}" if name is EngineFactName.ENGINE_VERSION else value


def parse_flash_attention(value: str) -> tuple[EngineFact, ...]:
    if value in ("enabled", "1"):
        return (EngineFact(EngineFactName.ATTENTION_BACKEND, "flash attention"),)
    if value in ("disabled", "0"):
        return (EngineFact(EngineFactName.ATTENTION_BACKEND, "no flash attention", is_fallback=True),)
    return ()  # auto: a later line gives the result


def parse_slot_facts(line: str) -> tuple[EngineFact, ...]:
    """Return the context of the slots. Each slot may fill a unified cache; otherwise each slot has its own."""
    if (found := _SLOT_SIZES.search(line)) is None:
        return ()
    slots, context = int(found["slots"]), int(found["context"])
    tokens = context if found["unified"] == "true" else slots * context
    return (
        EngineFact(EngineFactName.KV_CACHE_TOKENS, str(tokens)),
        EngineFact(EngineFactName.CONTEXT_LENGTH, str(context)),
        EngineFact(EngineFactName.MAX_CONCURRENCY, str(slots)),
    )


def parse_timing_line(slot: str, rest: str) -> StatsLine | None:
    # `prompt eval time` is ignored: it is logged at the end of the request, long after the prompt was processed.
    if found := _LIVE_RATE.match(rest):
        rate = parse_leading_number(found["now"] or found["mean"])
        return StatsLine(
            kind=StatsLineKind.DECODE, source=slot, generation_rate=rate, running=1.0, every=_LIVE_RATE_SECONDS
        )
    if found := _PROMPT_RATE.match(rest):
        return StatsLine(kind=StatsLineKind.PREFILL, source=slot, prompt_rate=parse_leading_number(found["rate"]))
    if _REQUEST_END.match(rest):
        return StatsLine(kind=StatsLineKind.REQUEST, source=slot, generation_rate=0.0, running=0.0)
    if found := _DRAFT_ACCEPTANCE.match(rest):
        drafted = parse_leading_number(found["drafted"])
        return StatsLine(
            kind=StatsLineKind.SPECULATION,
            source=slot,
            accept_length=parse_leading_number(found["length"]),
            accept_rate=parse_leading_number(found["rate"]) if drafted else None,
            accepted=parse_leading_number(found["accepted"]),
            drafted=drafted,
        )
    return None


RPC_PORT = 50052  # the default of rpc-server


def _build_model_flags(path: str, _: tuple[str, ...]) -> tuple[str, ...]:
    is_on_hub = HUB_ID_PATTERN.fullmatch(path) is not None and not path.endswith(".gguf")
    return ("-hf" if is_on_hub else "-m", path)


class LlamaCppEngine(Engine):
    """See ``engines.base.Engine``."""

    name = "llamacpp"
    title = "llama.cpp"
    log_rules = _LOG_RULES
    memory_setting = CONTEXT_FIELD
    context_flags = ("ctx-size", "c")
    version_source = ("/props", "build_info")
    temperature_flags = ("temperature", "temp")
    prefix_cache_flags = (("cache-prompt",), ("no-cache-prompt",))
    metrics_setting = "args.metrics: true"
    signs = LogSignature(
        marks=r"\d+\.\d\d\.\d{3}\.\d{3} [DIWE] |^srv {2,}(?:llama_server|load_model)|llama_model_load|ggml_cuda_|llama_server: "
        r'|^error: invalid argument: -|^error while handling argument "-|^gguf_init_from_file'  # often the whole log
        r"|main: (?:server is listening|model loaded|binding port)|slot (?:launch_slot_|print_timing|update_slots)",
        hints=(
            "llama-server",
            "llama.cpp",
            *(f"llama_{part}" for part in ("model_", "context", "init_", "new_", "kv_", "server")),
        ),
        begins=("srv  llama_server: initializing", "build: ", "build_info: "),
        loads=("load_tensors: loading model tensors",),
        own_checks=("GGML_ASSERT(",),
        serving=("slot ", "srv  update_slots", "srv  log_server_r"),
        served=(
            *("slot launch_slot_", "slot update_slots", "slot print_timing", "srv  update_slots: all slots are idle"),
            "srv  params_from_: Chat format: ",
            # as builds of 2024 wrote it, and ik_llama.cpp does
            *("INFO [            update_slots] ", "INFO [   launch_slot_with_task] "),
        ),
    )
    metrics_path = "/metrics"
    stats_words = ("slot ",)
    proposed_like = "llamacpp-gpt-oss-120b"
    proposed_settings = "command: []\nargs: {ctx-size: 32768, flash-attn: 'on'}\ncontainer: {network: host}"
    reads_gguf = True
    defaults = EngineDefaults(
        command=("llama-server",),
        port=8080,
        ready_line=_READY_PATTERN.pattern,
        health="/health",
        probe="completions",
        gpus="all",
    )
    import_rules = ImportRules(
        program="llama-server",
        model_flags={"m": False, "model": False, "hf": True, "hfr": True, "hf-repo": True},
        name_flags=("alias", "a"),
        image=r"/llama\.cpp:server",
        recipe_name="llama-cpp",
        recipe_words=("llama-server", "llama-cpp", "llama.cpp", "llamacpp"),
        recipe_image="scitrera/dgx-spark-llama-cpp:latest",
        recipe_command=("llama-server",),
        recipe_model_flags=("-m", "-hf"),
        recipe_flags={
            "host": "--host",
            "port": "--port",
            "ctx_size": "--ctx-size",
            "n_gpu_layers": "--n-gpu-layers",
            "parallel": "--parallel",
            "threads": "--threads",
            "chat_template": "--chat-template",
            "reasoning_format": "--reasoning-format",
            "split_mode": "--split-mode",
            "served_model_name": "--alias",
            "api_key": "--api-key",
            "flash_attn": "--flash-attn",
            "cont_batching": "--cont-batching",
            "no_webui": "--no-webui",
            "jinja": "--jinja",
        },
        recipe_switches=("flash_attn", "cont_batching", "no_webui", "jinja"),
        placeholders={
            "--host": "host",
            "--port": "port",
            "--alias": "served_model_name",
            "--ctx-size": "ctx_size",
            "--parallel": "parallel",
            "--n-gpu-layers": "n_gpu_layers",
        },
        variables=("LLAMA", "GGML"),
        key_variables=("LLAMA_API_KEY", "LLAMA_ARG_API_KEY"),
        directory_words=("llama", "llamacpp"),
        hidden_directories=(".llama.cpp",),
    )
    api_key_variables = ("LLAMA_API_KEY",)
    flag_variable_prefix = "LLAMA_ARG_"

    def build_command(self, profile: Profile) -> tuple[str, ...]:
        """Return launch words, ``-m`` FILE or ``-hf`` REPOSITORY:QUANTIZATION, host, port, alias, then ``args``."""
        return engine_flags.build_server_command(
            profile, self.defaults, _build_model_flags, _MODEL_FLAGS, ("alias", "a")
        )

    def build_rank_command(self, words: tuple[str, ...], rank: EngineRank) -> tuple[str, ...]:
        """Return the server with the workers' addresses in ``--rpc``; a worker is an ``rpc-server`` on its own address."""
        engine_flags.reject_shell_script(words)
        engine_flags.reject_per_rank_flags(words, "rpc")
        if rank.is_head:
            return (*words, "--rpc", ",".join(f"{address}:{RPC_PORT}" for address in rank.addresses[1:]))
        return ("rpc-server", "--host", rank.own_address, "--port", str(RPC_PORT))

    def classify_line(self, line: str) -> LineSignal | None:
        if line.startswith(_QUIET_STARTS):
            return None
        if "listening on" in line and _READY_PATTERN.match(line):
            return LineSignal(Phase.READY)
        if line.startswith(".") and _PROGRESS_DOTS.fullmatch(line):
            return LineSignal(Phase.LOADING, Step("weights", fraction=len(line) / 100))
        found, facts = _LOG_RULES.classify_line(line), parse_facts(line)
        if not facts:
            return found
        return LineSignal(found.phase, found.step, found.failure, facts) if found else LineSignal(facts=facts)

    def read_decoding_settings(self, words: tuple[str, ...]) -> DecodingSettings:
        """Return the drafts of ``--spec-type``, or of a draft model (``-md``), as far as the flags tell."""
        kind = engine_flags.find_flag_value(words, "spec-type")
        if kind is None:
            named = engine_flags.find_flag_value(
                words, "md", "model-draft", "spec-draft-model", "hfd", "hf-repo-draft", "spec-draft-hf"
            )
            kind = "draft-simple" if named else "none"
        if kind == "none":
            return DecodingSettings()
        if "," in kind:
            return DecodingSettings()  # several at once: the first that finds something drafts
        tokens = engine_flags.parse_count(
            engine_flags.find_flag_value(
                words, "spec-draft-n-max", "draft-max", "draft", "draft-n", "spec-ngram-mod-n-max"
            )
        )
        if kind in _CHAINED_METHODS:
            tokens = tokens or _DEFAULT_DRAFT_TOKENS[kind]
            return DecodingSettings(tokens, tokens)
        return DecodingSettings(tokens, 0 if kind.startswith("ngram") else None)

    def parse_metrics(self, page: str) -> EngineMetrics:
        """Return one reading of /metrics, which ``args.metrics`` turns on."""
        read = metrics_parser.parse_metrics_page(page, _METRIC_NAMES)
        computed = read.sum_of("llamacpp:prompt_tokens_total")
        cached = read.sum_of("llamacpp:prompt_tokens_cached_total")
        return EngineMetrics(
            generation_tokens=read.sum_of("llamacpp:tokens_predicted_total"),
            prompt_tokens=computed,
            prefix_queries=None if computed is None or cached is None else computed + cached,
            prefix_hits=cached,
            drafts=read.sum_of(f"{_SPECULATION_PREFIX}drafts_total"),
            draft_tokens=read.sum_of(f"{_SPECULATION_PREFIX}draft_tokens_total"),
            accepted_tokens=read.sum_of(f"{_SPECULATION_PREFIX}accepted_tokens_total"),
            accepted_per_position=read.sums_by_position(f"{_SPECULATION_PREFIX}accepted_tokens_per_pos_total"),
            passes=read.sum_of("llamacpp:n_decode_total"),
            generation_seconds=read.sum_of("llamacpp:tokens_predicted_seconds_total"),
            running=read.sum_of("llamacpp:requests_processing"),
            waiting=read.sum_of("llamacpp:requests_deferred"),
            at_request_end=True,
        )

    def parse_stats_line(self, line: str) -> StatsLine | None:
        """Return the figures in a slot's timing line, None for any other line. The end of a slot is reported as rate 0."""
        if not line.startswith("slot ") or (found := _SLOT_TIMING.match(line)) is None:
            return None
        return parse_timing_line(found["slot"], found["rest"])


ENGINE = LlamaCppEngine()
