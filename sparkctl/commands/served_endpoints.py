"""Where a model is reached, and by what name."""

from __future__ import annotations

from dataclasses import dataclass

from sparkctl.model.node import NodeName


@dataclass(frozen=True, slots=True)
class ServedModel:
    """``context``: tokens of one request, prompt and answer together; None where the engine does not say."""

    name: str
    context: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedEndpoint:
    """An instance that answers requests now. ``url`` is what OpenAI's clients call a base URL; it ends with ``/v1``.

    ``models`` is empty where it wants a key that nobody here knows; ``needs_key``: it refuses whoever has none.
    """

    node: NodeName
    instance: str
    url: str
    models: tuple[ServedModel, ...]
    needs_key: bool = False
    ours: bool = True
    engine: str | None = None
