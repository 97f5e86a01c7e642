"""The engines that sparkctl knows, one folder each, found by name. To add one, add a folder that exports ``ENGINE``."""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, Any

from sparkctl.errors import InvalidInput
from sparkctl.model.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from sparkctl.engines.base import Engine

_NON_ENGINE_FOLDERS = frozenset({"failures", "lint", "simulation", "traps"})
FALLBACK_ENGINE = "container"  # for a program that no other engine is known for


@cache
def engine_names() -> tuple[str, ...]:
    """Return the names of all engines, sorted. Lists folders and imports none of them."""
    from pathlib import Path

    found = (file.parent.name for file in Path(__file__).parent.glob("*/__init__.py"))
    return tuple(sorted(name for name in found if name not in _NON_ENGINE_FOLDERS))


@dataclass(frozen=True, slots=True)
class HealthPaths:
    """Paths to use instead of a health path that generates a token.

    ``ready`` answers 2xx if and only if the engine is ready; versions without it answer with another status. ``alive``
    answers as soon as the HTTP server is up.
    """

    ready: str
    alive: str


@cache
def find_health_paths(engine: str, health: str) -> HealthPaths | None:
    """Return what to use instead of an engine's ``health`` path; None if that path generates no token.

    It reads ``health_paths.json`` of the engine's folder (SGLang's /health generates a token in every version; 0.5.23
    has /ready, 0.5.12 has not), and loads no engine: `status` asks for each instance.
    """
    import json
    from pathlib import Path

    if engine not in engine_names():
        return None
    file = Path(__file__).parent / engine / "health_paths.json"
    found = json.loads(file.read_text("utf-8")) if file.exists() else {}
    paths = found.get(health.partition("?")[0])
    return None if paths is None else HealthPaths(**paths)


def engine_title(name: str) -> str:
    """Return the title of an engine (SGLang); for an unknown engine its name."""
    engine = find_engine(name)
    return name if engine is None else engine.title


def find_engine(name: str | None) -> Engine | None:
    """Return the engine of this name, None if there is none."""
    return load_engine(name) if name is not None and name in engine_names() else None


@cache
def load_engine(name: str) -> Engine:
    """Return the engine of this name. Raises InvalidInput with the closest name if there is none."""
    if name not in engine_names():
        import difflib

        near = difflib.get_close_matches(name, engine_names(), n=1)
        hint = f"Did you mean {near[0]}?" if near else f"Known engines: {', '.join(engine_names())}."
        raise InvalidInput(f"There is no engine named {name!r}.", hint)
    engine: Engine = importlib.import_module(f"{__name__}.{name}").ENGINE
    return engine


def load_engines() -> tuple[Engine, ...]:
    return tuple(load_engine(name) for name in engine_names())


@cache
def collect_engine_words(field: str) -> tuple[str, ...]:
    """Return the words that all engines have in a field, for example ``api_key_variables``."""
    return tuple(word for one in load_engines() for word in getattr(one, field))


@cache
def load_engine_part(name: str, part: str) -> Any:
    """Return a module of an engine's folder (``lint``, ``memory``, ``simulated_engine``); None if there is no such."""
    from pathlib import Path

    if name not in engine_names() or not (Path(__file__).parent / name / f"{part}.py").exists():
        return None
    return importlib.import_module(f"{__name__}.{name}.{part}")
