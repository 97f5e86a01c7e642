"""Health paths that make no engine generate a token. A file of its own, so that `status` need not import the engines."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HealthPaths:
    """Paths to use in place of a health path that generates a token. ``ready`` answers 2xx if and only if the engine is ready;
    versions without it answer with another status. ``alive`` answers as soon as the HTTP server is up."""

    ready: str
    alive: str


# SGLang's /health generates a token on an engine at rest, by every version. 0.5.23 has /ready, which 0.5.12 has not.
_SGLANG_PATHS = HealthPaths("/ready", "/model_info")
_HEALTH_PATHS = {
    ("sglang", "/health"): _SGLANG_PATHS,
    ("sglang", "/health_generate"): _SGLANG_PATHS,
    ("trtllm", "/health_generate"): HealthPaths("/health", "/health"),
}


def find_health_paths(engine: str, health: str) -> HealthPaths | None:
    """Return what to use in place of an engine's ``health`` path; None where that path generates no token."""
    return _HEALTH_PATHS.get((engine, health.partition("?")[0]))
