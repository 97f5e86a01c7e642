"""The engine for any other program in a container. The profile says how it starts and when it is ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkctl.engines import engine_flags
from sparkctl.engines.base import Engine, EngineDefaults, EngineRank, ImportRules, LineSignal
from sparkctl.engines.failures import COMMON_CAUSES, CRASH_FAILURES, cuda_memory_rules
from sparkctl.engines.log_rules import LogRules, loading_signal
from sparkctl.engines.remedies import adapt_rules
from sparkctl.engines.traps import build_trap_rules
from sparkctl.errors import InvalidInput
from sparkctl.model.phase import Phase, Step

if TYPE_CHECKING:
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
    rules=build_trap_rules("container")
    + _MEMORY_FAILURES
    + adapt_rules(COMMON_CAUSES + CRASH_FAILURES, "container", {}),
)


class GenericContainerEngine(Engine):
    """See ``engines.base.Engine``. It has no ready line of its own: the profile's rule decides."""

    name = "container"
    title = "container"
    is_any_program = True
    log_rules = _LOG_RULES
    defaults = EngineDefaults(command=(), port=None, ready_line=None, health=None, probe="none", gpus=None)
    import_rules = ImportRules(
        recipe_name="ollama",
        recipe_words=("ollama",),
        recipe_image="ollama/ollama:latest",
        other_servers={"text-generation-launcher": "/health", "ollama": "/", "tritonserver": "/v2/health/ready"},
        other_images={"ollama/ollama": "/", "text-generation-inference": "/health"},
        variables=("OLLAMA",),
        directory_words=("ollama",),
        hidden_directories=(".ollama",),
    )

    def build_command(self, profile: Profile) -> tuple[str, ...]:
        """Return ``command`` and ``args`` as the profile gives them; empty means the image's own command."""
        return (profile.command or ()) + engine_flags.render_args(profile.args)

    def build_rank_command(self, words: tuple[str, ...], rank: EngineRank) -> tuple[str, ...]:
        """Raise `InvalidInput`: it is not known how to run this program on several Sparks."""
        raise InvalidInput(
            "a profile of engine container runs on one Spark",
            "set nodes: 1, or name the engine: sglang, vllm or llamacpp",
        )


ENGINE = GenericContainerEngine()
