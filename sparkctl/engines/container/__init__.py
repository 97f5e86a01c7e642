"""The engine for any other program in a container: speech, images, Ollama. The profile says how it starts and when it
is ready.
"""

from __future__ import annotations

from sparkctl.engines import command_builder
from sparkctl.engines.base import DecodingSettings, EngineDefaults, EngineRank, LineSignal, LogSignature
from sparkctl.engines.failures.common_failures import COMMON_FAILURES, cuda_memory_rules
from sparkctl.engines.log_rules import LogRules, loading_signal
from sparkctl.errors import InvalidInput
from sparkctl.model.engine_metrics import EngineMetrics, StatsLine
from sparkctl.model.phase import Phase, Step
from sparkctl.model.profile import Profile

_HTTP_SIGNAL = LineSignal(Phase.WARMING, Step("http"))
_PHASE_SIGNALS = (
    ("INFO:     Started server process", _HTTP_SIGNAL),
    ("INFO:     Application startup complete", _HTTP_SIGNAL),
    ("INFO:     Uvicorn running on", _HTTP_SIGNAL),
    ("Total VRAM ", loading_signal("import")),  # ComfyUI, its first line about the GPU
    ("Starting server", _HTTP_SIGNAL),  # ComfyUI
)
_PROGRESS_BAR_STEPS = (
    ("shards", "weights"),
    ("Loading", "weights"),
    ("Fetching", "download"),
    ("Downloading", "download"),
)
# Not fatal here: programs such as ComfyUI catch it, unload a model and continue. The container's end decides.
_MEMORY_FAILURES = cuda_memory_rules("Take a smaller model, or stop another one.", None, fatal=False)
_LOG_RULES = LogRules(
    quiet=("non-default args",),
    phases=_PHASE_SIGNALS,
    bars=_PROGRESS_BAR_STEPS,
    rules=_MEMORY_FAILURES + COMMON_FAILURES,
)


class GenericContainerEngine:
    """See ``engines.base.Engine``. It has no ready line of its own: the profile's rule decides."""

    name = "container"
    title = "container"
    memory_setting = None
    metrics_setting = None
    metrics_path = None
    signs = LogSignature()
    defaults = EngineDefaults(command=(), port=None, ready_line=None, health=None, probe="none", gpus=None)

    def build_command(self, profile: Profile) -> tuple[str, ...]:
        """Return ``command`` and ``args`` as the profile gives them; empty means the image's own command."""
        return (profile.command or ()) + command_builder.render_args(profile.args)

    def build_rank_command(self, words: tuple[str, ...], rank: EngineRank) -> tuple[str, ...]:
        """Raise `InvalidInput`: it is not known how to run this program on several Sparks."""
        raise InvalidInput(
            "a profile of engine container runs on one Spark",
            "set nodes: 1, or name the engine: sglang, vllm or llamacpp",
        )

    def list_ssh_key_mounts(self, rank: EngineRank) -> tuple[str, ...]:
        """Return nothing: no rank logs in to another."""
        return ()

    def must_start_head_first(self, words: tuple[str, ...]) -> bool:
        """Return False: there is only one rank."""
        return False

    def classify_line(self, line: str) -> LineSignal | None:
        """Return what a prepared line says, None for nothing. Never ``ready``."""
        return _LOG_RULES.classify_line(line)

    def find_api_key(self, profile: Profile) -> str | None:
        """Return the value of ``--api-key``, or None."""
        return command_builder.find_api_key(profile)

    def read_decoding_settings(self, words: tuple[str, ...]) -> DecodingSettings:
        """Return nothing: the program's flags are not known."""
        return DecodingSettings()

    def parse_metrics(self, page: str) -> EngineMetrics:
        """Return nothing: the program's metrics are not known."""
        return EngineMetrics()

    def parse_stats_line(self, line: str) -> StatsLine | None:
        """Return nothing: the program's log lines are not known."""
        return None


ENGINE = GenericContainerEngine()
