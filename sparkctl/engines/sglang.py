"""SGLang (0.5.12 to 0.5.23). It ends itself with SIGKILL, so its exit code says nothing; its lines do.

``Application startup complete.`` is not readiness here: the warm-up request is still to come, and a busy port is only
found out after it.
"""

from __future__ import annotations

import re

from sparkctl.engines import _exposition, _launch
from sparkctl.engines._failures import COMMON, ERROR, cuda_memory
from sparkctl.engines._fields import fields, number
from sparkctl.engines._vocabulary import Vocabulary, loading, rule
from sparkctl.engines.base import Decoding, Defaults, Signal, Weight
from sparkctl.model.metrics import EngineMetrics, LineKind, StatsLine
from sparkctl.model.phase import Phase, Step
from sparkctl.model.profile import Profile
from sparkctl.model.verdict import Cause

READY = "The server is fired up and ready to roll!"
_FRACTION = "args.mem-fraction-static"
_LOWER = f"Lower {_FRACTION} (it is a share of the memory that was available at the start)."

_QUIET = (
    "Decode batch",
    "Prefill batch",
    "server_args=",
    "Ignore import error",
    "If you hit GPU OOM",
    "kill_process_tree",
)
_PHASES = (
    (READY, Signal(Phase.READY)),
    ("Init torch distributed begin", loading("join")),
    ("Init parallel begin", loading("join")),
    ("Load weight begin", loading("weights")),
    ("Load weight end", loading("profiling")),
    ("KV Cache is allocated", loading("kv-cache")),
    ("KV Cache VA upper bound", loading("kv-cache")),
    ("Mamba Cache is allocated", loading("kv-cache")),
    ("Running FlashInfer autotune", loading("autotune")),
    ("Capture draft ", loading("draft")),
    ("Capture target draft ", loading("draft")),
    ("Capture cuda graph begin", loading("graphs")),
    ("Capture piecewise CUDA graph begin", loading("graphs")),
    ("Capture target decode CUDA graph begin", loading("graphs")),
    ("Capture target verify CUDA graph begin", loading("graphs")),
    ("Capture target prefill CUDA graph begin", loading("graphs")),
    ("INFO:     Started server process", Signal(Phase.WARMING, Step("http"))),
    ("INFO:     Application startup complete", Signal(Phase.WARMING, Step("warm-up"))),
    ("INFO:     Uvicorn running on", Signal(Phase.WARMING, Step("warm-up"))),
)
_BARS = (
    ("shards", "weights"),
    ("Loading safetensors", "weights"),
    ("Capturing", "graphs"),
    ("Compiling num tokens", "compile"),
    ("DeepGEMM", "compile"),
    ("checksums", "checksums"),
    ("Fetching", "download"),
)
_KV = Cause.KV_CACHE_TOO_SMALL
_MEMORY = (
    rule(
        r"Not enough memory\. Please try to increase --mem-fraction-static\."
        r"(?:.*mem_fraction_static=(?P<now>[\d.]+\d))?",
        _KV,
        "The weights left no room for the KV cache[ within a memory fraction of {now}].",
        f"Raise {_FRACTION}, or take a smaller model or context. (A CUDA out-of-memory wants the opposite.)",
        needle="Not enough memory",
        on=_FRACTION,
        fatal=True,
    ),
    rule(
        r"Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=(?P<now>[\d.]*\d)"
        r"(?:.*above (?P<least>[\d.]*\d))?",
        _KV,
        "The weights left no room for the KV cache within a memory fraction of {now}.",
        f"Raise {_FRACTION}[ above {{least}}].",
        needle="leave no GPU memory",
        on=_FRACTION,
        fatal=True,
    ),
    rule(
        r"leaves no room for the full KV pool within the available (?P<free>[\d.]+ \w+)",
        _KV,
        "The sliding-window pool left no room for the KV cache in {free}.",
        f"Lower args.max-running-requests or raise {_FRACTION}.",
        needle="leaves no room",
        on="args.max-running-requests",
        fatal=True,
    ),
    rule(
        rf"{ERROR}The memory capacity is unbalanced",
        Cause.STARTUP_MEMORY_CHECK,
        "The nodes of this model have unequal free memory: something else holds memory on one of them.",
        "Stop what else runs there, drop the page caches on both nodes, start again.",
        needle="memory capacity is unbalanced",
        fatal=True,
    ),
    *cuda_memory(_LOWER, _FRACTION, fatal=True),
    rule(
        r"Capture [\w -]*graph failed: .*out of memory",
        Cause.CUDA_OUT_OF_MEMORY,
        "CUDA ran out of memory while graphs were captured.",
        f"{_LOWER} Or lower args.cuda-graph-max-bs (newer: cuda-graph-max-bs-decode).",
        needle="graph failed: ",
        on=_FRACTION,
        fatal=True,
    ),
    rule(
        r"Capture [\w -]*graph failed: (?P<what>.*)",
        Cause.CRASHED,
        "Capturing CUDA graphs failed: {what}",
        f"{_LOWER} Or lower args.cuda-graph-max-bs (newer: cuda-graph-max-bs-decode).",
        needle="graph failed: ",
        fatal=True,
    ),
    rule(
        r"^(?:\w+: )?(?P<when>Prefill |Decode )?[Oo]ut of memory\. Try to lower your batch size",
        _KV,
        "The KV cache ran full and the scheduler could not free any of it.",
        f"Lower args.max-running-requests, or raise {_FRACTION}.",
        needle="ut of memory. Try to lower",
        on="args.max-running-requests",
        fatal=True,
    ),
    rule(
        r"alloc_req_slots runs out of memory",
        _KV,
        "The scheduler ran out of request slots.",
        "Lower args.max-running-requests.",
        needle="alloc_req_slots",
        on="args.max-running-requests",
        fatal=True,
    ),
)
_FLAGS = (
    rule(
        r"Unknown speculative algorithm name: (?P<name>\S+)",
        Cause.UNKNOWN_FLAG,
        "This image knows no speculative algorithm {name}.",
        "Correct args.speculative-algorithm (EAGLE, EAGLE3, NEXTN, STANDALONE, NGRAM, DFLASH).",
        needle="Unknown speculative algorithm",
        on="args.speculative-algorithm",
        fatal=True,
    ),
    rule(
        r"^TypeError: (?:'>' not supported between instances of|unsupported operand type\(s\) for \*:) "
        r"'NoneType' and 'int'",
        Cause.UNKNOWN_FLAG,
        "Speculative decoding is set by half.",
        "Give all of args.speculative-num-steps, speculative-eagle-topk and speculative-num-draft-tokens, or none.",
        needle="'NoneType' and 'int'",
        on="args.speculative-num-draft-tokens",
    ),
    rule(
        rf"{ERROR}.*[Uu]ser-specified context_length \((?P<asked>\d+)\) is greater than the derived "
        r"context_length \((?P<most>\d+)\)",
        Cause.UNKNOWN_FLAG,
        "The context of {asked} is longer than the model's {most}.",
        "Lower args.context-length to {most} or less.",
        needle="context_length",
        on="args.context-length",
        fatal=True,
    ),
)
_LOOK_AT_KERNEL = "Most often the machine ran out of memory: look at dmesg -T | grep -i oom on the node."
_ENDS = (
    rule(
        r"scheduler died during initialization \(exit code: -9\)",
        Cause.KILLED,
        "The scheduler was killed while it was starting.",
        f"{_LOOK_AT_KERNEL} {_LOWER}",
        needle="scheduler died",
        on=_FRACTION,
        fatal=True,
        weight=Weight.DEATH,
    ),
    rule(
        r"Subprocess (?P<name>\S+) \(pid=\d+\) crashed with exit code -15\.",
        Cause.STOPPED_BY_OTHERS,
        "{name} was told to stop (SIGTERM).",
        "Start it again if that was not meant.",
        needle="exit code -15",
        weight=Weight.DYING,
    ),
    rule(
        r"Subprocess (?P<name>\S+) \(pid=\d+\) crashed with exit code -9\.",
        Cause.KILLED,
        "{name} was killed.",
        f"{_LOOK_AT_KERNEL} {_LOWER}",
        needle="exit code -9",
        on=_FRACTION,
        fatal=True,
        weight=Weight.DEATH,
    ),
    rule(
        r"Subprocess (?P<name>\S+) \(pid=\d+\) crashed with exit code -7\.",
        Cause.CRASHED,
        "{name} died of a bus error: the container's shared memory is probably too small.",
        "Raise container.shm_size.",
        needle="exit code -7",
        on="container.shm_size",
        fatal=True,
        weight=Weight.DEATH,
    ),
    rule(
        r"Subprocess (?P<name>\S+) \(pid=\d+\) crashed with exit code (?P<code>-?\d+)",
        Cause.CRASHED,
        "{name} crashed with exit code {code}.",
        "Read the log before this line.",
        needle="crashed with exit code",
        fatal=True,
        weight=Weight.DYING,
    ),
    rule(
        r"TP rank (?P<rank>\d+) could finish the model loading, but there are other ranks",
        Cause.WORKER_LOST,
        "Another rank than {rank} did not finish loading.",
        "Look at the log of the other node.",
        needle="could finish the model loading",
        weight=Weight.DEATH,
    ),
    rule(
        r"Scheduler watchdog timeout \((?:self\.watchdog_timeout=(?P<seconds>[\d.]+))?",
        Cause.CRASHED,
        "The scheduler stood still[ for {seconds} s] and was ended by its watchdog.",
        "Look at the log of the other node if there is one; else raise args.watchdog-timeout.",
        needle="watchdog timeout",
        on="args.watchdog-timeout",
        fatal=True,
        weight=Weight.DEATH,
    ),
    rule(
        r"hit an exception|scheduler died during initialization|Initialization failed\. warmup error",
        Cause.CRASHED,
        "The engine ended on an exception.",
        "The lines after this one name it.",
        needle="i",
        fatal=True,
        weight=Weight.DYING,
    ),
    rule(
        r"Initialization failed\. Please see the error messages above|^SIGQUIT received\."
        r"|Received sigquit from a child",
        Cause.CRASHED,
        "One of the engine's processes failed.",
        "The lines before this one name the reason.",
        needle="i",
        fatal=True,
        weight=Weight.AFTERMATH,
    ),
)
_VOCABULARY = Vocabulary(_QUIET, _PHASES, _BARS, _MEMORY + _FLAGS + _ENDS + COMMON)

_CHAINS = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "FROZEN_KV_MTP")  # the draft model runs once for each step
_PASSES = {"NGRAM": 0, "DFLASH": 1}  # no draft model; a whole block of drafts in one go

_BATCH = re.compile(r"(?P<kind>Decode|Prefill) batch(?: \[\d+\])?[,.] ?")
_REALTIME = "sglang:realtime_tokens_total"
_SERIES = (
    "sglang:generation_tokens_total",
    "sglang:prompt_tokens_total",
    _REALTIME,
    "sglang:num_running_reqs",
    "sglang:num_queue_reqs",
    "sglang:token_usage",
    "sglang:num_used_tokens",
    "sglang:gen_throughput",
    "sglang:spec_accept_length",
    "sglang:spec_accept_rate",
    "sglang:time_to_first_token_seconds_bucket",
    "sglang:inter_token_latency_seconds_bucket",
)


def _tokens(page: _exposition.Page, mode: str, ended: str) -> float | None:
    """Return the live counter. Only a version without it falls back to the one that moves when a request ends."""
    return page.total(_REALTIME, mode=mode) if page.values(_REALTIME) else page.total(ended)


def _prefix(page: _exposition.Page) -> tuple[float | None, float | None]:
    """Return (tokens looked up, tokens found) of the prefix cache; a mode is absent until it first happens."""
    computed, cached = (page.total(_REALTIME, mode=mode) for mode in ("prefill_compute", "prefill_cache"))
    if computed is None or cached is None:
        return None, None
    return computed + cached, cached


class SGLang:
    """See ``engines.base.Engine``."""

    name = "sglang"
    title = "SGLang"
    memory_setting = _FRACTION
    metrics_setting = "args.enable-metrics: true"
    metrics_path = "/metrics"
    defaults = Defaults(
        command=("python", "-m", "sglang.launch_server"),
        port=30000,
        ready_line="^" + re.escape(READY),
        health="/health",
        probe="completions",
        gpus="all",
    )

    def argv(self, profile: Profile) -> tuple[str, ...]:
        """Return launch words, ``--model-path``, host, port, served name, then ``args`` in their order."""
        command = self.defaults.command if profile.command is None else profile.command
        if _launch.is_script(command):
            return command + _launch.words(profile.args)
        model: tuple[str, ...] = ()
        if profile.model.path is not None and not _launch.given(profile) & {"model-path", "model"}:
            model = ("--model-path", profile.model.path)
        return command + model + _launch.serving_words(profile, 30000) + _launch.words(profile.args)

    def classify(self, line: str) -> Signal | None:
        """Return what a prepared line says, None for nothing."""
        return _VOCABULARY.read(line)

    def api_key(self, profile: Profile) -> str | None:
        """Return the value of ``--api-key``, or None."""
        return _launch.api_key(profile)

    def decoding(self, words: tuple[str, ...]) -> Decoding:
        """Return the drafts of ``--speculative-*``, and tensor x pipeline parallel size.

        ``--speculative-num-draft-tokens`` counts what a step verifies, the bonus token among them.
        """
        ranks = _launch.ranks(words, "tp tp-size tensor-parallel-size", "pp pp-size pipeline-parallel-size")
        algorithm = _launch.value(words, "speculative-algorithm", "speculative-algo")
        if algorithm is None:
            return Decoding(ranks=ranks)
        verified = _launch.whole(_launch.value(words, "speculative-num-draft-tokens"))
        steps = _launch.whole(_launch.value(words, "speculative-num-steps"))
        drafts = max(0, verified - 1) if verified is not None else steps
        name = algorithm.upper()
        passes = steps if name in _CHAINS else _PASSES.get(name)
        return Decoding(drafts, passes, ranks)

    def metrics(self, page: str) -> EngineMetrics:
        """Return one reading of /metrics, which ``args.enable-metrics`` turns on."""
        read = _exposition.parse(page, _SERIES).one_rank()
        queries, hits = _prefix(read)
        length = read.positive_mean("sglang:spec_accept_length")
        return EngineMetrics(
            generation_tokens=_tokens(read, "decode", "sglang:generation_tokens_total"),
            prompt_tokens=_tokens(read, "prefill_compute", "sglang:prompt_tokens_total"),
            prefix_queries=queries,
            prefix_hits=hits,
            running=read.total("sglang:num_running_reqs"),
            waiting=read.total("sglang:num_queue_reqs"),
            kv_usage=read.fullest("sglang:token_usage"),
            kv_tokens=read.total("sglang:num_used_tokens"),
            generation_rate=read.total("sglang:gen_throughput"),
            accept_length=length,
            # 0 is also what the gauge shows without speculation; beside an accept length it means what it says.
            accept_rate=None if length is None else read.fullest("sglang:spec_accept_rate"),
            ttft=read.histogram("sglang:time_to_first_token_seconds"),
            inter_token=read.histogram("sglang:inter_token_latency_seconds"),
            in_strides=True,
        )

    def stats(self, line: str) -> StatsLine | None:
        """Return what a ``Decode batch`` or ``Prefill batch`` line says, None for any other."""
        head = _BATCH.match(line)
        if head is None:
            return None
        said = fields(line[head.end() :])
        usages = (number(value) for key, value in said.items() if key.endswith("usage"))
        tokens = said.get("#token") or said.get("#full token")
        return StatsLine(
            LineKind.DECODE if head["kind"] == "Decode" else LineKind.PREFILL,
            generation_rate=number(said.get("gen throughput (token/s)")),
            running=number(said.get("#running-req")),
            waiting=number(said.get("#queue-req")),
            kv_usage=max((usage for usage in usages if usage is not None), default=None),
            kv_tokens=number(tokens),
            accept_length=number(said.get("accept len")),
            accept_rate=number(said.get("accept rate")),
            prompt_tokens=number(said.get("#new-token")),
            cached_tokens=number(said.get("#cached-token")),
        )


ENGINE = SGLang()
