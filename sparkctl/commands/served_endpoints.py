"""The types for a served model: its address, its name and its context length."""

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
    """An instance that answers requests now. ``url`` is the base URL for OpenAI clients; it ends with ``/v1``.

    ``models`` is empty where the server needs a key that sparkctl does not know; ``needs_key``: it refuses requests
    without a key.
    """

    node: NodeName
    instance: str
    url: str
    models: tuple[ServedModel, ...]
    needs_key: bool = False
    ours: bool = True
    engine: str | None = None
