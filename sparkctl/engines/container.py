"""Anything else in a container: speech, images, llama.cpp. Its profile says how to start it and when it is ready."""

from __future__ import annotations

import re

from sparkctl.engines import _exposition, _launch
from sparkctl.engines._failures import COMMON, cuda_memory
from sparkctl.engines._fields import number
from sparkctl.engines._vocabulary import Vocabulary, loading
from sparkctl.engines.base import Decoding, Defaults, Signal
from sparkctl.model.metrics import EngineMetrics, LineKind, StatsLine
from sparkctl.model.phase import Phase, Step
from sparkctl.model.profile import Profile

_HTTP = Signal(Phase.WARMING, Step("http"))
_PHASES = (
    ("srv    load_model: loading model", loading("weights")),
    ("srv  llama_server: model loaded", _HTTP),
    ("main: model loaded", _HTTP),
    ("INFO:     Started server process", _HTTP),
    ("INFO:     Application startup complete", _HTTP),
    ("INFO:     Uvicorn running on", _HTTP),
)
_BARS = (("shards", "weights"), ("Loading", "weights"), ("Fetching", "download"), ("Downloading", "download"))
# Not fatal here: programs such as ComfyUI catch it, unload a model and go on. The container's end decides.
_MEMORY = cuda_memory("Take a smaller model, or stop another one.", None, fatal=False)
_VOCABULARY = Vocabulary(("non-default args",), _PHASES, _BARS, _MEMORY + COMMON)

# llama-server. Its throughput gauges are left out: each is a window that every scrape, by anyone, sets back to zero.
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
_PROMPT = re.compile(r"prompt processing, n_tokens = .*?(?P<rate>[\d.]+) tokens per second")
_ENDED = re.compile(r"eval time = ")
_DRAFTS = re.compile(
    r"draft acceptance(?: rate)? = +(?P<rate>[\d.]+) \( *(?P<accepted>\d+) accepted / +(?P<drafted>\d+) generated\)"
    r"(?:, mean len = +(?P<length>[\d.]+))?"
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


class Container:
    """See ``engines.base.Engine``. It has no ready line of its own: the profile's rule decides."""

    name = "container"
    title = "Container"
    memory_setting = None
    metrics_setting = None
    defaults = Defaults(command=(), port=None, ready_line=None, health=None, probe="none", gpus=None)

    def argv(self, profile: Profile) -> tuple[str, ...]:
        """Return ``command`` and ``args`` as the profile gives them; empty leaves the image's own command."""
        return (profile.command or ()) + _launch.words(profile.args)

    def classify(self, line: str) -> Signal | None:
        """Return what a prepared line says, None for nothing. Never ``ready``."""
        return _VOCABULARY.read(line)

    def api_key(self, profile: Profile) -> str | None:
        """Return the value of ``--api-key``, or None."""
        return _launch.api_key(profile)

    def decoding(self, words: tuple[str, ...]) -> Decoding:
        """Return nothing: its flags are those of a program that nobody here knows."""
        return Decoding()

    def metrics(self, page: str) -> EngineMetrics:
        """Return one reading of llama-server's /metrics (its flag ``--metrics``); of anything else all is unknown."""
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
        """Return what a timing line of llama-server says, None for any other. A slot's end is told as rate 0."""
        if not line.startswith("slot ") or (found := _TIMING.match(line)) is None:
            return None
        return _timing(found["slot"], found["rest"])


ENGINE = Container()
