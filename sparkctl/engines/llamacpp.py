"""llama.cpp's llama-server (builds of 2025 and 2026). Its version is a build number, and its flags change from week to week.

Its port is open from the start and answers 503 on every path until the model is loaded. By default a newer build says little
between the first line and the last: no progress, no sizes; ``-lv 4`` brings the lines of old back.
"""

from __future__ import annotations

import re

from sparkctl.engines import _exposition, _launch
from sparkctl.engines._failures import COMMON
from sparkctl.engines._fields import number
from sparkctl.engines._llama_rules import CONTEXT, CUDA, ENDS, FLAGS, MEMORY, MODEL, UNMARKED
from sparkctl.engines._vocabulary import Vocabulary, loading
from sparkctl.engines.base import Decoding, Defaults, Rank, Signal, Signs
from sparkctl.model.engine_facts import EngineFact, FactName
from sparkctl.model.metrics import EngineMetrics, LineKind, StatsLine
from sparkctl.model.phase import Phase, Step
from sparkctl.model.profile import Profile

_READY = re.compile(r"^(?:main|srv +(?:main|llama_server)): (?:server is )?listening on \w+://")
_DOTS = re.compile(r"\.{2,100}")  # one for each percent of the weights
_WARM_UP = Signal(Phase.WARMING, Step("warm-up"))
_HTTP = Signal(Phase.WARMING, Step("http"))

_QUIET = ("slot ", "srv  update_slots", "srv  log_server_r", "srv  params_from_", "llama_model_loader: - ", "load: ")
_PHASES = (
    ("srv    load_model: loading model", loading("weights")),
    ("main: loading model", loading("weights")),
    ("llama_model_loader: loaded meta data", loading("weights")),
    ("load_tensors: loading model tensors", loading("weights")),
    ("llama_context: constructing", loading("kv-cache")),
    ("llama_kv_cache", loading("kv-cache")),
    ("sched_reserve: reserving", loading("graphs")),
    ("graph_reserve: reserving", loading("graphs")),
    ("common_speculative_init_result: ", loading("draft")),
    ("common_init_from_params: warming up", _WARM_UP),
    ("cmn  common_init_: warming up", _WARM_UP),
    ("srv    load_model: initializing", _WARM_UP),
    ("srv          init: initializing slots", _WARM_UP),
    ("srv  llama_server: model loaded", _HTTP),
    ("main: model loaded", _HTTP),
)
_RULES = MEMORY + CUDA + MODEL + FLAGS + ENDS + COMMON
_VOCABULARY = Vocabulary(_QUIET, _PHASES, (("Downloading", "download"),), _RULES)

_UNMARKED = ("gguf_", "GGUF", "flash_attn", "path_model")

# What a line says of how it runs, by its beginning: (fact, pattern with one group).
_FACTS: dict[str, tuple[tuple[FactName, re.Pattern[str]], ...]] = {
    "build: ": ((FactName.ENGINE_VERSION, re.compile(r"^build: (\d+) ")),),
    "build_info: ": ((FactName.ENGINE_VERSION, re.compile(r"^build_info: b?(\d+)")),),
    "print_info: arch ": ((FactName.ARCHITECTURE, re.compile(r"= (\S+)")),),
    "print_info: file type": ((FactName.QUANTIZATION, re.compile(r"= (.+)")),),
    "llama_context: n_ctx ": ((FactName.KV_CACHE_TOKENS, re.compile(r"= (\d+)")),),
    "llama_context: n_ctx_": ((FactName.CONTEXT_LENGTH, re.compile(r"n_ctx_(?:per_)?seq += (\d+)$")),),
    "llama_context: n_seq_max": ((FactName.MAX_CONCURRENCY, re.compile(r"= (\d+)")),),
    "llama_kv_cache": ((FactName.KV_CACHE_DTYPE, re.compile(r", K \((\w+)\): ")),),
    "spec common_": ((FactName.SPECULATIVE_METHOD, re.compile(r"adding speculative implementation '([^']+)'")),),
    "common_speculative_init": (
        (FactName.SPECULATIVE_METHOD, re.compile(r"adding speculative implementation '([^']+)'")),
    ),
}
_FACT_STARTS = tuple(_FACTS)
_SLOTS = re.compile(r"n_slots = (?P<slots>\d+), n_ctx_slot = (?P<context>\d+), kv_unified = '(?P<unified>\w+)'")
_LAYERS = re.compile(r"^load_tensors: offloaded (?P<done>\d+)/(?P<all>\d+) layers to GPU")
_FLASH = re.compile(
    r"^llama_context: (?:flash_attn += (?P<said>\w+)|Flash Attention was auto, set to (?P<found>\w+))"
    r"|^resolve_fused_ops: Flash Attention (?:not supported, set to )?(?P<newer>enabled|disabled)"
)
_NO_GPU = "warning: no usable GPU found"

# Its throughput gauges are left out: each is a window that every scrape, by anyone, sets back to zero.
_SPEC = "llamacpp:spec_decode_num_"
_SERIES = (
    "llamacpp:tokens_predicted_total",
    "llamacpp:prompt_tokens_total",
    "llamacpp:prompt_tokens_cached_total",
    "llamacpp:tokens_predicted_seconds_total",
    "llamacpp:n_decode_total",
    "llamacpp:requests_processing",
    "llamacpp:requests_deferred",
    f"{_SPEC}drafts_total",
    f"{_SPEC}draft_tokens_total",
    f"{_SPEC}accepted_tokens_total",
    f"{_SPEC}accepted_tokens_per_pos_total",
)
_TIMING = re.compile(r"slot +\w+: id +(?P<slot>\d+) \| task +-?\d+ \| +(?P<rest>.*)")
_LIVE_SECONDS = 3.0
_LIVE = re.compile(r"n_gen = +\d+, tg = +(?P<mean>[\d.]+) t/s(?:, tg_3s = +(?P<now>[\d.]+) t/s)?")
_PROMPT = re.compile(r"prompt processing, n_tokens = .{0,400}?(?<![\d.])(?P<rate>[\d.]++) tokens per second")
_ENDED = re.compile(r"eval time = ")
_DRAFTS = re.compile(
    r"draft acceptance(?: rate)? = +(?P<rate>[\d.]+) \( *(?P<accepted>\d+) accepted / +(?P<drafted>\d+) generated\)"
    r"(?:, mean len = +(?P<length>[\d.]+))?"
)

_HUB = re.compile(r"[\w.-]+/[\w.-]+(?::[\w.-]+)?")
_MODEL_FLAGS = frozenset({"m", "model", "hf", "hfr", "hf-repo", "mu", "model-url", "dr", "docker-repo"})
_CHAINS = ("draft-simple", "draft-mtp", "draft-eagle3")  # the draft model runs once for each drafted token
_DRAFTS_BY_DEFAULT = {"draft-simple": 3, "draft-mtp": 3, "draft-eagle3": 3}


def _facts(line: str) -> tuple[EngineFact, ...]:
    if line.startswith("srv    load_model: initializing"):
        return _slots(line)
    if line.startswith("load_tensors: offloaded") and (found := _LAYERS.match(line)):
        on_gpu = found["done"] == found["all"]
        value = "all layers on the GPU" if on_gpu else f"{found['done']} of {found['all']} layers on the GPU"
        return (EngineFact(FactName.QUANTIZATION_PATH, value, is_fallback=not on_gpu),)
    if line.startswith(_NO_GPU):
        return (EngineFact(FactName.QUANTIZATION_PATH, "CPU", is_fallback=True),)
    if found := _FLASH.match(line):
        return _flash(found["found"] or found["said"] or found["newer"])
    start = next((one for one in _FACT_STARTS if line.startswith(one)), None)
    named = ((name, pattern.search(line)) for name, pattern in _FACTS.get(start or "", ()))
    return tuple(EngineFact(name, _told(name, match[1].strip())) for name, match in named if match)


def _told(name: FactName, value: str) -> str:
    return f"b{value}" if name is FactName.ENGINE_VERSION else value


def _flash(said: str) -> tuple[EngineFact, ...]:
    if said in ("enabled", "1"):
        return (EngineFact(FactName.ATTENTION_BACKEND, "flash attention"),)
    if said in ("disabled", "0"):
        return (EngineFact(FactName.ATTENTION_BACKEND, "no flash attention", is_fallback=True),)
    return ()  # auto: a later line tells


def _slots(line: str) -> tuple[EngineFact, ...]:
    """A unified cache is one for all slots, and each may fill it; else every slot has its own."""
    if (found := _SLOTS.search(line)) is None:
        return ()
    slots, context = int(found["slots"]), int(found["context"])
    tokens = context if found["unified"] == "true" else slots * context
    return (
        EngineFact(FactName.KV_CACHE_TOKENS, str(tokens)),
        EngineFact(FactName.CONTEXT_LENGTH, str(context)),
        EngineFact(FactName.MAX_CONCURRENCY, str(slots)),
    )


def _timing(slot: str, rest: str) -> StatsLine | None:
    # `prompt eval time` is left alone: it is told at the end of the request, when its prompt is long read.
    if found := _LIVE.match(rest):
        rate = number(found["now"] or found["mean"])
        return StatsLine(LineKind.DECODE, slot, generation_rate=rate, running=1.0, every=_LIVE_SECONDS)
    if found := _PROMPT.match(rest):
        return StatsLine(LineKind.PREFILL, slot, prompt_rate=number(found["rate"]))
    if _ENDED.match(rest):
        return StatsLine(LineKind.REQUEST, slot, generation_rate=0.0, running=0.0)
    if found := _DRAFTS.match(rest):
        drafted = number(found["drafted"])
        return StatsLine(
            LineKind.SPECULATION,
            slot,
            accept_length=number(found["length"]),
            accept_rate=number(found["rate"]) if drafted else None,
            accepted=number(found["accepted"]),
            drafted=drafted,
        )
    return None


_RPC = 50052  # the default of rpc-server


def _model(path: str, _: tuple[str, ...]) -> tuple[str, ...]:
    is_on_hub = _HUB.fullmatch(path) is not None and not path.endswith(".gguf")
    return ("-hf" if is_on_hub else "-m", path)


class LlamaCpp:
    """See ``engines.base.Engine``."""

    name = "llamacpp"
    title = "llama.cpp"
    memory_setting = CONTEXT
    metrics_setting = "args.metrics: true"
    signs = Signs(
        marks=r"\d+\.\d\d\.\d{3}\.\d{3} [DIWE] |^srv {2,}(?:llama_server|load_model)|llama_model_load|ggml_cuda_|llama_server: "
        r'|^error: invalid argument: -|^error while handling argument "-|^gguf_init_from_file'  # often the whole log
        r"|main: (?:server is listening|model loaded|binding port)|slot (?:launch_slot_|print_timing|update_slots)",
        hints=("llama-server", "llama.cpp", "llama_"),
        begins=("srv  llama_server: initializing", "build: ", "build_info: "),
        serving=("slot ", "srv  update_slots", "srv  log_server_r"),
    )
    metrics_path = "/metrics"
    defaults = Defaults(
        command=("llama-server",),
        port=8080,
        ready_line=_READY.pattern,
        health="/health",
        probe="completions",
        gpus="all",
    )

    def argv(self, profile: Profile) -> tuple[str, ...]:
        """Return launch words, ``-m`` FILE or ``-hf`` REPOSITORY:QUANTIZATION, host, port, alias, then ``args`` in their order."""
        return _launch.argv(profile, self.defaults, _model, _MODEL_FLAGS, ("alias", "a"))

    def joined(self, words: tuple[str, ...], rank: Rank) -> tuple[str, ...]:
        """Return the server with the workers' addresses in ``--rpc``; a worker is an ``rpc-server`` on its own address."""
        _launch.refuse_script(words)
        _launch.refuse_own(words, "rpc")
        if rank.is_head:
            return (*words, "--rpc", ",".join(f"{address}:{_RPC}" for address in rank.addresses[1:]))
        return ("rpc-server", "--host", rank.own, "--port", str(_RPC))

    def login_mounts(self, rank: Rank) -> tuple[str, ...]:
        """Return nothing: no rank logs in at another."""
        return ()

    def begins_with_head(self, words: tuple[str, ...]) -> bool:
        """Return False: the server looks for its workers at once."""
        return False

    def classify(self, line: str) -> Signal | None:
        """Return what a prepared line says, None for nothing."""
        if line.startswith(_QUIET):
            return None
        if "listening on" in line and _READY.match(line):
            return Signal(Phase.READY)
        if line.startswith(".") and _DOTS.fullmatch(line):
            return Signal(Phase.LOADING, Step("weights", fraction=len(line) / 100))
        found, facts = _VOCABULARY.read(line), _facts(line)
        if found is None and not facts and any(word in line for word in _UNMARKED):
            return next((Signal(failure=seen) for one in UNMARKED if (seen := one.read(line))), None)
        if not facts:
            return found
        return Signal(found.phase, found.step, found.failure, facts) if found else Signal(facts=facts)

    def api_key(self, profile: Profile) -> str | None:
        """Return the value of ``--api-key``, or None."""
        return _launch.api_key(profile)

    def decoding(self, words: tuple[str, ...]) -> Decoding:
        """Return the drafts of ``--spec-type``, or of a draft model (``-md``), as far as the flags tell them."""
        kind = _launch.value(words, "spec-type")
        if kind is None:
            named = _launch.value(
                words, "md", "model-draft", "spec-draft-model", "hfd", "hf-repo-draft", "spec-draft-hf"
            )
            kind = "draft-simple" if named else "none"
        if kind == "none":
            return Decoding()
        if "," in kind:
            return Decoding()  # several at once: whichever finds something drafts
        tokens = _launch.whole(
            _launch.value(words, "spec-draft-n-max", "draft-max", "draft", "draft-n", "spec-ngram-mod-n-max")
        )
        if kind in _CHAINS:
            tokens = tokens or _DRAFTS_BY_DEFAULT[kind]
            return Decoding(tokens, tokens)
        return Decoding(tokens, 0 if kind.startswith("ngram") else None)

    def metrics(self, page: str) -> EngineMetrics:
        """Return one reading of /metrics, which ``args.metrics`` turns on."""
        read = _exposition.parse(page, _SERIES)
        computed = read.total("llamacpp:prompt_tokens_total")
        cached = read.total("llamacpp:prompt_tokens_cached_total")
        return EngineMetrics(
            generation_tokens=read.total("llamacpp:tokens_predicted_total"),
            prompt_tokens=computed,
            prefix_queries=None if computed is None or cached is None else computed + cached,
            prefix_hits=cached,
            drafts=read.total(f"{_SPEC}drafts_total"),
            draft_tokens=read.total(f"{_SPEC}draft_tokens_total"),
            accepted_tokens=read.total(f"{_SPEC}accepted_tokens_total"),
            accepted_per_position=read.positions(f"{_SPEC}accepted_tokens_per_pos_total"),
            passes=read.total("llamacpp:n_decode_total"),
            generation_seconds=read.total("llamacpp:tokens_predicted_seconds_total"),
            running=read.total("llamacpp:requests_processing"),
            waiting=read.total("llamacpp:requests_deferred"),
            at_request_end=True,
        )

    def stats(self, line: str) -> StatsLine | None:
        """Return what a timing line of a slot says, None for any other. A slot's end is told as rate 0."""
        if not line.startswith("slot ") or (found := _TIMING.match(line)) is None:
            return None
        return _timing(found["slot"], found["rest"])


ENGINE = LlamaCpp()
