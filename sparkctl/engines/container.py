"""Anything else in a container: speech, images, Ollama. Its profile says how to start it and when it is ready."""

from __future__ import annotations

from sparkctl.engines import _launch
from sparkctl.engines._failures import COMMON, cuda_memory
from sparkctl.engines._vocabulary import Vocabulary, loading
from sparkctl.engines.base import Decoding, Defaults, Rank, Signal, Signs
from sparkctl.errors import InvalidInput
from sparkctl.model.metrics import EngineMetrics, StatsLine
from sparkctl.model.phase import Phase, Step
from sparkctl.model.profile import Profile

_HTTP = Signal(Phase.WARMING, Step("http"))
_PHASES = (
    ("INFO:     Started server process", _HTTP),
    ("INFO:     Application startup complete", _HTTP),
    ("INFO:     Uvicorn running on", _HTTP),
    ("Total VRAM ", loading("import")),  # ComfyUI, its first word of the GPU
    ("Starting server", _HTTP),  # ComfyUI
)
_BARS = (("shards", "weights"), ("Loading", "weights"), ("Fetching", "download"), ("Downloading", "download"))
# Not fatal here: programs such as ComfyUI catch it, unload a model and go on. The container's end decides.
_MEMORY = cuda_memory("Take a smaller model, or stop another one.", None, fatal=False)
_VOCABULARY = Vocabulary(("non-default args",), _PHASES, _BARS, _MEMORY + COMMON)


class Container:
    """See ``engines.base.Engine``. It has no ready line of its own: the profile's rule decides."""

    name = "container"
    title = "container"
    memory_setting = None
    metrics_setting = None
    metrics_path = None
    signs = Signs()
    defaults = Defaults(command=(), port=None, ready_line=None, health=None, probe="none", gpus=None)

    def argv(self, profile: Profile) -> tuple[str, ...]:
        """Return ``command`` and ``args`` as the profile gives them; empty leaves the image's own command."""
        return (profile.command or ()) + _launch.words(profile.args)

    def joined(self, words: tuple[str, ...], rank: Rank) -> tuple[str, ...]:
        """Raise `InvalidInput`: how a program that nobody here knows is spread, nobody here knows."""
        raise InvalidInput(
            "a profile of engine container runs on one Spark",
            "set nodes: 1, or name the engine: sglang, vllm or llamacpp",
        )

    def login_mounts(self, rank: Rank) -> tuple[str, ...]:
        """Return nothing: no rank logs in at another."""
        return ()

    def begins_with_head(self, words: tuple[str, ...]) -> bool:
        """Return False: there is no order of several."""
        return False

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
        """Return nothing known: what such a page would hold, nobody here can tell."""
        return EngineMetrics()

    def stats(self, line: str) -> StatsLine | None:
        """Return nothing: its lines are those of a program that nobody here knows."""
        return None


ENGINE = Container()
