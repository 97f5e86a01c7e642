"""SGLang (0.5.12 to 0.5.23). It ends itself with SIGKILL, so its exit code says nothing; its lines do.

``Application startup complete.`` is not readiness here: the warm-up request is still to come, and a busy port is only
found out after it.
"""

from __future__ import annotations

import re

from sparkctl.engines import _exposition, _launch
from sparkctl.engines._fields import fields, number
from sparkctl.engines._sglang_facts import FACTS
from sparkctl.engines._sglang_failures import FAILURES, FRACTION
from sparkctl.engines._vocabulary import Vocabulary, loading
from sparkctl.engines.base import Decoding, Defaults, Rank, Signal, Signs
from sparkctl.model.metrics import EngineMetrics, LineKind, StatsLine
from sparkctl.model.phase import Phase, Step
from sparkctl.model.profile import Profile

READY = "The server is fired up and ready to roll!"
_QUIET = (
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
_VOCABULARY = Vocabulary(_QUIET, _PHASES, _BARS, FAILURES, FACTS)

_CHAINS = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "FROZEN_KV_MTP")  # the draft model runs once for each step
_PASSES = {"NGRAM": 0, "DFLASH": 1}  # no draft model; a whole block of drafts in one go

_BATCH = re.compile(r"(?P<kind>Decode|Prefill) batch(?: \[\d+\])?[,.] ?")
_OF_A_PROMPT = ("#new-seq", "#new-token", "#cached-token", "#running-req")
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


_RENDEZVOUS = 25000  # the port at which the ranks meet; what the community's launchers take


class SGLang:
    """See ``engines.base.Engine``."""

    name = "sglang"
    title = "SGLang"
    memory_setting = FRACTION
    metrics_setting = "args.enable-metrics: true"
    metrics_path = "/metrics"
    signs = Signs(
        marks=r"server_args=(?:ServerArgs\(|\{)|(?:Decode|Prefill) batch[, ]|The server is fired up and ready to roll"
        r"|(?:Init torch distributed|Init parallel|Load weight|Capture \w+(?: \w+)* graph) (?:begin|end)"
        r"|^(?:usage: )?(?:sglang serve|launch_server\.py)(?: \[-h\]|: error: )|sglang/launch_server"
        r"|^== SGLang ==",
        hints=("/sglang/", "sglang.", "sglang::"),
        begins=("server_args=",),
        serving=("Decode batch", "Prefill batch", "Receive: obj=", "Finish: obj="),
    )
    defaults = Defaults(
        command=("python", "-m", "sglang.launch_server"),
        port=30000,
        ready_line=rf"^{re.escape(READY)}(?!\s*\w)",
        health="/health",
        probe="completions",
        gpus="all",
    )

    def argv(self, profile: Profile) -> tuple[str, ...]:
        """Return launch words, ``--model-path``, host, port, served name, then ``args`` in their order."""
        return _launch.argv(profile, self.defaults, lambda path, _: ("--model-path", path), {"model-path", "model"})

    def joined(self, words: tuple[str, ...], rank: Rank) -> tuple[str, ...]:
        """Return the command with ``--nnodes``, ``--node-rank`` and the head's ``--dist-init-addr``."""
        _launch.refuse_script(words)
        _launch.refuse_own(words, "nnodes", "node-rank", "dist-init-addr", "nccl-init-addr")
        place = ("--nnodes", str(rank.count), "--node-rank", str(rank.index))
        return (*words, *place, "--dist-init-addr", f"{rank.head}:{_RENDEZVOUS}")

    def login_mounts(self, rank: Rank) -> tuple[str, ...]:
        """Return nothing: no rank logs in at another."""
        return ()

    def begins_with_head(self, words: tuple[str, ...]) -> bool:
        """Return False: whoever comes first waits at the rendezvous."""
        return False

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
        ttft = read.histogram("sglang:time_to_first_token_seconds")
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
            ttft=ttft,
            inter_token=read.histogram("sglang:inter_token_latency_seconds"),
            in_strides=True,
            # In 0.5.12 and 0.5.23 this one counter is written at every step; the first token of a request, which comes of its
            # prompt, is not in it. Those of health checks are neither there nor in the histogram.
            counts_steps=bool(read.values(_REALTIME)),
            first_tokens=None if ttft is None or not read.values(_REALTIME) else ttft.count,
            health_tokens=1.0,
        )

    def stats(self, line: str) -> StatsLine | None:
        """Return what a ``Decode batch`` or ``Prefill batch`` line says, None for any other."""
        head = _BATCH.match(line)
        if head is None:
            return None
        said = fields(line[head.end() :])
        usages = (number(value) for key, value in said.items() if key.endswith("usage"))
        tokens = said.get("#token") or said.get("#full token")
        kind = LineKind.DECODE if head["kind"] == "Decode" else LineKind.PREFILL
        if kind is LineKind.PREFILL and [number(said.get(key)) for key in _OF_A_PROMPT] == [1, 1, 0, 0]:
            kind = LineKind.HEALTH
        return StatsLine(
            kind,
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
