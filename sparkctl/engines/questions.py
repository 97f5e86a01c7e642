"""What a ready engine can be asked without making it generate. Apart from the engines' own files: `status` imports no more."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QuietQuestions:
    """Paths to ask in place of one whose answer is a generation. ``ready`` answers 2xx if and only if the engine is ready;
    versions without it answer something else than 2xx. ``alive`` is answered by whatever HTTP server is up."""

    ready: str
    alive: str


# SGLang's /health generates a token on an engine at rest, by every version. 0.5.23 has /ready, which 0.5.12 has not.
_SGLANG = QuietQuestions("/ready", "/model_info")
_QUIET = {
    ("sglang", "/health"): _SGLANG,
    ("sglang", "/health_generate"): _SGLANG,
    ("trtllm", "/health_generate"): QuietQuestions("/health", "/health"),
}


def quiet_questions(engine: str, health: str) -> QuietQuestions | None:
    """Return what to ask of a ready engine in place of its health path; None where that path makes it generate nothing."""
    return _QUIET.get((engine, health.partition("?")[0]))
