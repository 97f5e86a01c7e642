"""What an engine did while it ran, for the history: read from its own counters before it is stopped."""

from __future__ import annotations

import asyncio

from sparkctl.core.context import Context
from sparkctl.core.session import Session
from sparkctl.engines import load, names
from sparkctl.errors import DockerError, MetricsUnreadable, NodeError
from sparkctl.model.container import Container
from sparkctl.model.history import Share
from sparkctl.model.metrics import EngineMetrics
from sparkctl.model.plan import Label
from sparkctl.operations.asking import ask
from sparkctl.operations.labels import port_of
from sparkctl.wire import http

_PATIENCE = 1.0  # seconds: nothing waits for a figure


async def keep(session: Session, ctx: Context, container: Container) -> None:
    """Note accept length and tokens/s of a container of ours that is about to be stopped; what cannot be read is left out."""
    engine, port = container.label(Label.ENGINE) or "", port_of(container)
    path = load(engine).metrics_path if engine in names() else None
    if ctx.operation is None or not container.is_alive or path is None or port is None:
        return
    try:
        async with asyncio.timeout(_PATIENCE):
            answer = await ask(session.link, port, "GET", path, timeout=_PATIENCE)
        if not answer.ok:
            return
        metrics = load(engine).metrics(answer.body.decode("utf-8", "replace"))
    except (OSError, http.BadAnswer, MetricsUnreadable, DockerError, NodeError):  # a TimeoutError is an OSError
        return
    length, rate = accept_length(metrics), tokens_per_second(metrics)
    if length is not None or rate is not None:
        instance = container.label(Label.INSTANCE) or container.name
        ctx.note(
            Share(session.node.name, instance, container=container.id, accept_length=length, tokens_per_second=rate)
        )
        ctx.history.saw(container.id, length, rate)


def accept_length(metrics: EngineMetrics) -> float | None:
    """Return tokens per verification step since the engine began: 1 + accepted/drafts by its counters, else its own gauge."""
    if metrics.drafts and metrics.accepted_tokens is not None:
        return 1 + metrics.accepted_tokens / metrics.drafts
    return metrics.accept_length or None


def tokens_per_second(metrics: EngineMetrics) -> float | None:
    """Return generated tokens per second of generation since the engine began, summed over requests: what one request saw.

    Where the engine does not count that time, its own average of its last stretch; None where it has generated nothing.
    """
    if metrics.generation_tokens and metrics.generation_seconds:
        return metrics.generation_tokens / metrics.generation_seconds
    return metrics.generation_rate or None
