"""The files of a model as they lie on a node: names and sizes, and its config.json as text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """``place`` is the path on the node that was asked for. ``is_there`` False: nothing is; None: it could not be told.

    ``files``: (name, bytes) of what may hold weights. ``index_total``: what the safetensors index says all of them come to.
    ``unfinished``: downloads that have not ended. ``config``: None where there is none that can be read.
    """

    place: str
    is_there: bool | None = None
    files: tuple[tuple[str, int], ...] = ()
    index_total: int | None = None
    unfinished: int = 0
    config: str | None = None
