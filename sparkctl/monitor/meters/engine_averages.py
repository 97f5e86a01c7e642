"""Average figures of an engine for the history: from its counters before a stop, and while it is watched."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

from sparkctl.context import CommandContext
from sparkctl.engines import engine_names, load_engine
from sparkctl.engines.base import Engine
from sparkctl.engines.line_preparer import LinePreparer
from sparkctl.errors import DockerError, MetricsUnreadable, NodeError
from sparkctl.files import open_regular_file
from sparkctl.history.model import NodeResult
from sparkctl.model.container import Container
from sparkctl.model.engine_metrics import EngineActivity, EngineMeter, EngineMetrics
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.monitor.engine_probe import request_engine
from sparkctl.profiles.container_labels import parse_port_label
from sparkctl.transport import http_client
from sparkctl.transport.node_session import NodeSession

_TIMEOUT_SECONDS = 1.0  # seconds: nothing may wait for a figure
_LOG_TAIL_BYTES = 256 * 1024  # bytes of a log


async def record_counter_averages(session: NodeSession, ctx: CommandContext, container: Container) -> bool:
    """Record accept length and tokens/s of our container before its stop; return whether any was known."""
    engine, port = container.get_label(ContainerLabel.ENGINE) or "", parse_port_label(container)
    path = load_engine(engine).metrics_path if engine in engine_names() else None
    if ctx.operation is None or not container.is_alive or path is None or port is None:
        return False
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            answer = await request_engine(session.link, port, "GET", path, timeout=_TIMEOUT_SECONDS)
        if not answer.is_success:
            return False
        metrics = load_engine(engine).parse_metrics(answer.body.decode("utf-8", "replace"))
    except (
        OSError,
        http_client.InvalidHttpResponse,
        MetricsUnreadable,
        DockerError,
        NodeError,
    ):  # a TimeoutError is an OSError
        return False
    return _record_averages(session, ctx, container, compute_accept_length(metrics), compute_tokens_per_second(metrics))


async def record_log_averages(session: NodeSession, ctx: CommandContext, container: Container, log: str | None) -> None:
    """Record them from the end of a saved log, if the engine's counters could not be read."""
    engine = container.get_label(ContainerLabel.ENGINE) or ""
    if ctx.operation is not None and log is not None and engine in engine_names():
        length, rate = await asyncio.to_thread(average_stats_lines, Path(log), load_engine(engine))
        _record_averages(session, ctx, container, length, rate)


def _record_averages(
    session: NodeSession, ctx: CommandContext, container: Container, length: float | None, rate: float | None
) -> bool:
    if length is None and rate is None:
        return False
    instance = container.instance_name
    ctx.record_node_result(
        NodeResult(
            node=session.node.name,
            instance=instance,
            container=container.id,
            accept_length=length,
            tokens_per_second=rate,
        )
    )
    ctx.history.record_engine_figures(container.id, length, rate)
    return True


def average_stats_lines(path: Path, engine: Engine) -> tuple[float | None, float | None]:
    """Return means of accept length and tokens/s over the stats lines at the end of a saved log."""
    try:
        with open_regular_file(path) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
            lines = file.read(_LOG_TAIL_BYTES).decode("utf-8", "replace").splitlines()[1:]
    except OSError:
        return None, None
    preparer, length, rate = LinePreparer(), RunningMean(), RunningMean()
    for line in lines:
        for text in preparer.prepare_lines(line.partition(" ")[2]):
            stats = engine.parse_stats_line(text)
            if stats is not None and stats.accept_length:
                length = length.add_value(stats.accept_length)
            if stats is not None and stats.generation_rate:
                rate = rate.add_value(stats.generation_rate)
    return length.value or None, rate.value or None


class EngineAverages:
    """Means over the readings in which an engine generated, while it is watched; by container."""

    def __init__(self) -> None:
        self._lengths: dict[str, RunningMean] = {}
        self._rates: dict[str, RunningMean] = {}
        self._news: set[str] = set()

    def add_reading(self, container: str, numbers: EngineMeter | None) -> None:
        """Add one reading."""
        if numbers is None or numbers.activity is not EngineActivity.DECODING:
            return
        length = None if numbers.acceptance is None else numbers.acceptance.length
        for means, value in ((self._lengths, length), (self._rates, numbers.generation_rate)):
            if value:
                means[container] = means.get(container, RunningMean()).add_value(value)
                self._news.add(container)

    def pop_changed(self) -> list[tuple[str, float | None, float | None]]:
        """Return (container, accept length, tokens/s) of those that changed since the last call."""
        found = [
            (one, _get_mean_value(self._lengths.get(one)), _get_mean_value(self._rates.get(one)))
            for one in sorted(self._news)
        ]
        self._news.clear()
        return found


@dataclass(frozen=True, slots=True)
class RunningMean:
    """A running mean."""

    value: float = 0.0
    count: int = 0

    def add_value(self, value: float) -> RunningMean:
        """Return the mean with one value added."""
        return RunningMean(self.value + (value - self.value) / (self.count + 1), self.count + 1)


def _get_mean_value(mean: RunningMean | None) -> float | None:
    return None if mean is None else mean.value


def compute_accept_length(metrics: EngineMetrics) -> float | None:
    """Return tokens per verification step since the engine began: 1 + accepted/drafts by its counters, else its own gauge."""
    if metrics.drafts and metrics.accepted_tokens is not None:
        return 1 + metrics.accepted_tokens / metrics.drafts
    return metrics.accept_length or None


def compute_tokens_per_second(metrics: EngineMetrics) -> float | None:
    """Return generated tokens per second of generation since the engine began, summed over requests: what one request saw.

    If the engine does not count that time, its own latest average; None if it has generated nothing.
    """
    if metrics.generation_tokens and metrics.generation_seconds:
        return metrics.generation_tokens / metrics.generation_seconds
    return metrics.generation_rate or None
