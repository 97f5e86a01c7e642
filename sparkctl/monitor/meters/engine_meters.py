"""Reads the engines' figures: from /metrics and, where that is not enough, from stats lines in the log; and
their accept length, for the history.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import field, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from sparkctl.concurrency import gather_or_cancel, yield_to_input
from sparkctl.context import CommandContext
from sparkctl.engines import engine_names, load_engine
from sparkctl.engines.base import Engine
from sparkctl.engines.line_preparer import LinePreparer
from sparkctl.errors import DockerError, DockerUnavailable, MetricsUnreadable, NodeError
from sparkctl.files import open_regular_file
from sparkctl.history.model import NodeResult
from sparkctl.logs.reader import LogFeed, read_log
from sparkctl.model.container import Container
from sparkctl.model.engine_metrics import (
    DraftAcceptance,
    EngineActivity,
    EngineMeter,
    EngineMetrics,
    MeterSource,
    StatsLine,
    StatsLineKind,
)
from sparkctl.model.instance import InstanceView
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.phase import Phase
from sparkctl.monitor.engine_probe import QueryMarkerSupport, request_engine
from sparkctl.monitor.meters.metrics_window import (
    WINDOW_SECONDS,
    MetricsWindow,
    ReportCadence,
    compute_weighted_mean,
    sum_known,
)
from sparkctl.profiles.container_labels import find_container_api_key, parse_port_label
from sparkctl.transport import http_client
from sparkctl.transport.docker.log_stream import LogBatches
from sparkctl.transport.node_session import NodeSession

_LATE_FACTOR = 1.5  # a line that comes every 10 s is late after 15
_SLOW_PROMPT_RATE = 500.0  # tokens of a prompt that even a large model on a Spark reads in a second
_SHORT_PROMPT_SECONDS = 2.0  # the shortest time for which a prompt is shown as being read
_MAX_STATS_LINES = 4_000  # lines in memory: an engine at work writes some a second
TimedStatsLine = tuple[float, StatsLine]


class StatsLineWindow:
    """Collects stats lines with their times, and computes the engine's figures over ``seconds``.

    Without any line, nothing is known (stats may be off). A silent engine is idle: engines write these lines only while they
    step. Do not use it while the log stream itself is cut.
    """

    def __init__(self, seconds: float = WINDOW_SECONDS) -> None:
        self.seconds = seconds
        self._lines: deque[TimedStatsLine] = deque(maxlen=_MAX_STATS_LINES)
        self._last: dict[str, TimedStatsLine] = {}  # of each engine or slot, its newest line with a speed
        self._pulse = ReportCadence()
        self._last_work = float("-inf")  # time of the last line that shows work
        self._began = False  # a request began on an empty engine since the last beat

    def add_line(self, when: float, line: StatsLine) -> None:
        """Add a line; ``when`` in seconds of the same clock as `compute_meter` uses."""
        self._lines.append((when, line))
        if line.kind is not StatsLineKind.HEALTH:
            self._last_work = when
        while when - self._lines[0][0] > 6 * self.seconds:
            self._lines.popleft()
        if line.kind is StatsLineKind.PREFILL and not line.running:
            self._began = True
        if line.kind is StatsLineKind.DECODE and line.every is None:
            self._pulse.record_report(when, unbroken=not self._began)
            self._began = False
        if line.kind in (StatsLineKind.DECODE, StatsLineKind.REQUEST):
            self._last[line.source] = (when, line)

    def compute_meter(self, now: float) -> EngineMeter:
        """Return the figures as of ``now``; all are None if no line was ever seen."""
        if not self._last and not self._lines:
            return EngineMeter()
        stats_lines = [line for when, line in self._last.values() if self._is_current(now, when, line)]
        seen = replace(self._build_gauge_meter(stats_lines), seconds=self.seconds, estimator=MeterSource.LOG)
        if any(line.generation_rate for line in stats_lines):
            return self._compute_decoding_meter(seen, stats_lines, now)
        if self._is_reading_prompts(now) or any(line.prompt_rate or line.running for line in stats_lines):
            return replace(
                seen,
                activity=EngineActivity.PREFILL,
                generation_rate=0.0,
                prompt_rate=self._compute_prompt_rate(stats_lines, now),
            )
        if self._reports_in_strides() and now - self._last_work < self._pulse.max_silence(self.seconds):
            return EngineMeter()  # not silent for long enough to call it idle
        return EngineMeter(
            activity=EngineActivity.IDLE,
            seconds=self.seconds,
            estimator=MeterSource.LOG,
            generation_rate=0.0,
            prompt_rate=0.0,
            steps=0.0,
        )

    def _reports_in_strides(self) -> bool:
        lines = [line for _, line in self._last.values()]
        return not lines or any(line.kind is StatsLineKind.DECODE and line.every is None for line in lines)

    def _is_current(self, now: float, when: float, line: StatsLine) -> bool:
        if line.every is None and line.kind is StatsLineKind.DECODE:
            return self._pulse.is_stepping(now, self.seconds)
        return now - when <= max(self.seconds, _LATE_FACTOR * (line.every or 0.0))

    def _compute_decoding_meter(self, seen: EngineMeter, stats_lines: list[StatsLine], now: float) -> EngineMeter:
        rate = sum(line.generation_rate or 0.0 for line in stats_lines)
        known = rate if self._pulse.trusted or not self._reports_in_strides() else None
        acceptance = self._compute_acceptance(stats_lines, now)
        length = (acceptance.length if acceptance else None) or 1.0
        batch = max(1.0, seen.running or 0.0)
        return replace(
            seen,
            activity=EngineActivity.DECODING,
            generation_rate=known,
            prompt_rate=self._compute_prompt_rate(stats_lines, now),
            prefix_hit_rate=self._compute_prefix_hit_rate(stats_lines, now),
            batch=batch,
            steps=None if known is None else known / length / batch,
            acceptance=acceptance,
        )

    def _build_gauge_meter(self, stats_lines: list[StatsLine]) -> EngineMeter:
        usages = [line.kv_usage for line in stats_lines if line.kv_usage is not None]
        return EngineMeter(
            running=sum_known([line.running for line in stats_lines]),
            waiting=sum_known([line.waiting for line in stats_lines]),
            kv_usage=max(usages, default=None),
            kv_tokens=sum_known([line.kv_tokens for line in stats_lines]),
        )

    def _compute_acceptance(self, stats_lines: list[StatsLine], now: float) -> DraftAcceptance | None:
        own = [line for line in stats_lines if line.accept_length is not None]
        late = max(self.seconds, *(_LATE_FACTOR * (line.every or 0.0) for line in stats_lines))
        lines = self._select_lines(now, late, StatsLineKind.SPECULATION) or (
            [
                line
                for line in self._select_lines(now, self.seconds, StatsLineKind.DECODE)
                if line.accept_length is not None
            ]
            or own
        )
        lengths = [(line.accept_length, line.drafted or 1.0) for line in lines if line.drafted != 0]
        rates = [(line.accept_rate, line.drafted or 1.0) for line in lines if line.drafted != 0]
        length, rate = compute_weighted_mean(lengths), compute_weighted_mean(rates)
        if length is None and rate is None:
            return None
        positions = lines[-1].per_position if lines else None
        return DraftAcceptance(length, rate, positions, MeterSource.LOG)

    def _is_reading_prompts(self, now: float) -> bool:
        """Tell whether a prompt may still be read. SGLang writes the line when it begins a piece of one: a short question is
        read at once, and no line says what comes after it.
        """
        for when, line in self._lines:
            tokens = math.inf if line.prompt_tokens is None else line.prompt_tokens
            most = min(self.seconds, _SHORT_PROMPT_SECONDS + tokens / _SLOW_PROMPT_RATE)
            if line.kind is StatsLineKind.PREFILL and now - when <= most:
                return True
        return False

    def _recent_prompt_lines(self, now: float) -> list[StatsLine]:
        return self._select_lines(now, self.seconds, StatsLineKind.PREFILL)

    def _compute_prompt_rate(self, stats_lines: list[StatsLine], now: float) -> float | None:
        rate = sum_known([line.prompt_rate for line in stats_lines])
        if rate is not None:
            return rate
        tokens = sum_known([line.prompt_tokens for line in self._recent_prompt_lines(now)])
        if tokens is not None:
            return tokens / self.seconds
        return sum_known([line.prompt_rate for line in self._recent_prompt_lines(now)])

    def _compute_prefix_hit_rate(self, stats_lines: list[StatsLine], now: float) -> float | None:
        rates = [line.prefix_hit_rate for line in stats_lines if line.prefix_hit_rate is not None]
        if rates:
            return sum(rates) / len(rates)
        cached = sum_known([line.cached_tokens for line in self._recent_prompt_lines(now)])
        computed = sum_known([line.prompt_tokens for line in self._recent_prompt_lines(now)])
        return cached / (cached + computed) if cached is not None and computed else None

    def _select_lines(self, now: float, seconds: float, kind: StatsLineKind) -> list[StatsLine]:
        return [line for when, line in self._lines if line.kind is kind and now - when <= seconds]


def merge_meters(counted: EngineMeter, logged: EngineMeter) -> EngineMeter:
    """Return the counted figures; where counters are missing for an engine at work, use those of the log."""
    if counted.activity is None:
        return counted if logged.activity is None else logged
    if counted.activity is not EngineActivity.DECODING or logged.activity is not EngineActivity.DECODING:
        return counted
    if counted.generation_rate is None and logged.generation_rate is not None:
        counted = replace(counted, generation_rate=logged.generation_rate, estimator=MeterSource.LOG)
    judged = counted.acceptance is not None and counted.acceptance.length is not None
    acceptance = counted.acceptance if judged else logged.acceptance or counted.acceptance
    return replace(counted, steps=counted.steps or logged.steps, acceptance=acceptance)


_TIMEOUT_SECONDS = 3.0
_RETRY_SECONDS = 60.0  # seconds until an engine without /metrics is asked again
_READING_GAP_SECONDS = 1.0  # seconds between two readings, where nothing is followed
_LOG_LOOKBACK_SECONDS = 30.0  # seconds of log: the longest time between two lines of an engine at work
_LOG_TAIL_LINES = 2000  # lines; with `since` alone, Docker reads a log from its beginning
_UNAUTHORIZED_STATUSES = (401, 403)
_DISABLED_STATUSES = (404, 501)  # the second is llama-server's: not implemented, until --metrics is given


class MetricsSource(StrEnum):
    """What is known of an instance's /metrics."""

    UNASKED = "unasked"
    ON = "on"
    OFF = "off"  # the server has no such page
    SILENT = "silent"  # no answer, or an unreadable one


@dataclass(frozen=True, slots=True)
class MeterReading:
    """``numbers`` None: nothing is known. ``hint``: what to set in the profile to know more."""

    numbers: EngineMeter | None
    hint: str | None = None


def needs_log_meter(source: MetricsSource, counted: EngineMeter) -> bool:
    """Tell whether the log is needed as well, once the window has enough readings."""
    if source is not MetricsSource.ON:
        return source is not MetricsSource.UNASKED
    silent = counted.activity is None
    return silent or (counted.activity is EngineActivity.DECODING and counted.generation_rate is None)


def has_meter(instance: InstanceView) -> bool:
    """Tell whether there can be figures: a ready instance of ours, with a known engine and a port."""
    known = instance.engine in engine_names() and instance.container_id is not None and instance.port is not None
    return instance.ours and known and instance.phase is Phase.READY


class EngineMeters:
    """The figures of one node's instances. Close it, as it may be following logs."""

    def __init__(self, session: NodeSession) -> None:
        self._session = session
        self._meters: dict[str, InstanceMeter] = {}

    async def read_metrics(self, instances: Iterable[InstanceView]) -> None:
        """Read the metrics of each instance that can have them, and forget the others. Raises ConnectionLost."""
        wanted = {one.container_id or "": one for one in instances if has_meter(one)}
        for gone in self._meters.keys() - wanted.keys():
            await self._meters.pop(gone).aclose()
        for container, instance in wanted.items():
            if container not in self._meters:
                self._meters[container] = InstanceMeter(
                    self._session, container, instance.port or 0, instance.engine or ""
                )
        await gather_or_cancel(*(meter.read_metrics() for meter in self._meters.values()))

    async def read_once(
        self, instances: Sequence[InstanceView], ahead: float, *, is_first: bool = True
    ) -> dict[str, MeterReading]:
        """Return the figures of two readings a second apart, or since the one before, by container id; ``ahead`` as in
        `follow_logs`. Raises ConnectionLost."""
        if any(map(has_meter, instances)):
            await self.read_metrics(instances)
            if is_first:
                await self._session.clock.sleep(_READING_GAP_SECONDS)
                await self.read_metrics(instances)
            await self.read_logs(ahead)
        return self.get_current_readings(ahead)

    def follow_logs(self, ahead: float) -> None:
        """Start following the needed logs; ``ahead``: seconds by which the node's clock is ahead of ours."""
        for meter in self._meters.values():
            meter.follow_log(ahead)

    async def read_logs(self, ahead: float) -> None:
        """Read the end of the needed logs, once. Raises ConnectionLost."""
        await gather_or_cancel(*(meter.read_log(ahead) for meter in self._meters.values()))

    def get_current_readings(self, ahead: float) -> dict[str, MeterReading]:
        """Return the current readings, by container id."""
        return {container: meter.get_reading(ahead) for container, meter in self._meters.items()}

    async def aclose(self) -> None:
        """Stop following logs."""
        for meter in self._meters.values():
            await meter.aclose()
        self._meters.clear()


class InstanceMeter:
    """One engine: the window of its counters, and that of its log where needed."""

    def __init__(self, session: NodeSession, container: str, port: int, engine: str) -> None:
        self._session, self._container, self._port = session, container, port
        self._engine = load_engine(engine)
        self._clock = session.clock
        self._window = MetricsWindow()
        self._source = MetricsSource.UNASKED
        self._asked = 0.0
        self._readings = 0
        # Every engine whose counters are read takes a query: a page that is not there is not asked for without our mark.
        self._marker_support = QueryMarkerSupport(takes_queries=True)
        self._key: str | None = None
        self._log: LogMeter | None = None

    async def read_metrics(self) -> None:
        """Request /metrics, unless the engine has none or it was off a moment ago."""
        path = self._engine.metrics_path
        if path is None:
            self._source = MetricsSource.OFF
            return
        now = self._clock.monotonic()
        if self._source is MetricsSource.OFF and now - self._asked < _RETRY_SECONDS:
            return
        self._asked = now
        self._readings += 1
        try:
            answer = await self._request_metrics(path)
            if answer.status in _UNAUTHORIZED_STATUSES and self._key is None:
                run = await self._session.docker.read_run_options(self._container)
                if (key := find_container_api_key(run)) is not None:
                    self._key = key
                    answer = await self._request_metrics(path)
            if answer.is_success:
                page = answer.body.decode("utf-8", "replace")
                self._window.add_reading(self._clock.monotonic(), self._engine.parse_metrics(page))
        except (OSError, http_client.InvalidHttpResponse, MetricsUnreadable, DockerError):  # also a time-out
            self._source = MetricsSource.SILENT
        else:
            off = MetricsSource.OFF if answer.status in _DISABLED_STATUSES else MetricsSource.SILENT
            self._source = MetricsSource.ON if answer.is_success else off

    async def _request_metrics(self, path: str) -> http_client.HttpResponse:
        headers = [("Authorization", f"Bearer {self._key}")] if self._key else []
        return await request_engine(
            self._session.link, self._port, "GET", path, headers=headers, timeout=_TIMEOUT_SECONDS,
            marker_support=self._marker_support,
        )  # fmt: skip

    def follow_log(self, ahead: float) -> None:
        if self._log is None and self._needs_log():
            self._log = self._create_log_meter(ahead)
        if self._log is not None:
            self._log.follow_log()

    async def read_log(self, ahead: float) -> None:
        if self._needs_log():
            self._log = self._create_log_meter(ahead)
            with suppress(DockerError, TimeoutError):
                async with asyncio.timeout(_TIMEOUT_SECONDS):
                    await self._log.read_log()

    def get_reading(self, ahead: float) -> MeterReading:
        logged = EngineMeter() if self._log is None else self._log.compute_meter(self._clock.unix_time() + ahead)
        numbers = merge_meters(self._compute_metrics_meter(), logged)
        hint = self._engine.metrics_setting if self._source is MetricsSource.OFF else None
        return MeterReading(None if numbers == EngineMeter() else numbers, hint)

    async def aclose(self) -> None:
        if self._log is not None:
            await self._log.aclose()

    def _compute_metrics_meter(self) -> EngineMeter:
        return self._window.compute_meter(self._clock.monotonic())

    def _needs_log(self) -> bool:
        enough = self._readings > 1 or self._source is MetricsSource.OFF
        return enough and needs_log_meter(self._source, self._compute_metrics_meter())

    def _create_log_meter(self, ahead: float) -> LogMeter:
        since = self._clock.unix_time() + ahead - _LOG_LOOKBACK_SECONDS
        return LogMeter(engine=self._engine, session=self._session, container=self._container, since=since)


@dataclass(slots=True, kw_only=True)
class LogMeter:
    """The stats lines of one log, by the node's clock. While the stream is cut, its silence does not mean an idle engine."""

    engine: Engine
    session: NodeSession
    container: str
    since: float  # unix seconds on the node
    window: StatsLineWindow = field(default_factory=StatsLineWindow)
    _feed: LogFeed | None = None
    _preparer: LinePreparer = field(default_factory=LinePreparer)
    _whole: bool = False
    _task: asyncio.Task[None] | None = None

    def compute_meter(self, now: float) -> EngineMeter:
        """Return the figures of the log as of ``now``, unix seconds on the node."""
        return (
            self.window.compute_meter(now)
            if self._whole and (self._task is None or not self._task.done())
            else EngineMeter()
        )

    async def read_log(self, tail: int | None = _LOG_TAIL_LINES) -> None:
        """Read the available lines once, the last ``tail`` of them; None: all."""
        await self._consume_lines(read_log(self.session, self.container, since=self.since, tail=tail))
        self._whole = True

    def follow_log(self) -> None:
        """Follow the log; resume where the stream was cut, and end with the container."""
        if self._task is not None and self._task.done():
            try:
                self._task.result()
                return
            except (NodeError, DockerUnavailable):
                self._task = None
            except DockerError:
                return  # another request would give the same answer
        if self._task is None:
            self._whole = True
            if self._feed is None:
                self._feed = LogFeed(self.session, self.container, since=self.since, tail=_LOG_TAIL_LINES)
            # no TaskGroup: it follows until `aclose`, in no block; each poll asks how it ended
            self._task = asyncio.create_task(self._consume_lines(self._feed.follow_lines()))

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _consume_lines(self, lines: LogBatches) -> None:
        async with aclosing(lines) as batches:
            async for batch in batches:
                for line in batch:
                    if not any(word in line.text for word in self.engine.stats_words):
                        continue
                    for text in self._preparer.prepare_lines(line.text):
                        if (stats := self.engine.parse_stats_line(text)) is not None:
                            with suppress(ValueError):  # a line without a usable stamp is of no moment
                                self.window.add_line(datetime.fromisoformat(line.when).timestamp(), stats)
                await yield_to_input()  # batches that another subscriber has read come without a wait


_AVERAGES_TIMEOUT_SECONDS = 1.0  # seconds: nothing may wait for a figure
_LOG_TAIL_BYTES = 256 * 1024  # bytes of a log


async def record_counted_accept_length(session: NodeSession, ctx: CommandContext, container: Container) -> bool:
    """Record the accept length of our container before its stop; return whether it was known."""
    engine, port = container.get_label(ContainerLabel.ENGINE) or "", parse_port_label(container)
    path = load_engine(engine).metrics_path if engine in engine_names() else None
    if ctx.operation is None or not container.is_alive or path is None or port is None:
        return False
    try:
        async with asyncio.timeout(_AVERAGES_TIMEOUT_SECONDS):
            answer = await request_engine(session.link, port, "GET", path, timeout=_AVERAGES_TIMEOUT_SECONDS)
        if not answer.is_success:
            return False
        metrics = load_engine(engine).parse_metrics(answer.body.decode("utf-8", "replace"))
    except (OSError, http_client.InvalidHttpResponse, MetricsUnreadable, DockerError, NodeError):  # also a time-out
        return False
    return _record_accept_length(session, ctx, container, compute_accept_length(metrics))


async def record_logged_accept_length(
    session: NodeSession, ctx: CommandContext, container: Container, log: str | None
) -> None:
    """Record it from the end of a saved log, if the engine's counters could not be read."""
    engine = container.get_label(ContainerLabel.ENGINE) or ""
    if ctx.operation is not None and log is not None and engine in engine_names():
        length = await asyncio.to_thread(average_accept_length, Path(log), load_engine(engine))
        _record_accept_length(session, ctx, container, length)


def _record_accept_length(
    session: NodeSession, ctx: CommandContext, container: Container, length: float | None
) -> bool:
    if length is None:
        return False
    ctx.record_node_result(
        NodeResult(
            node=session.node.name, instance=container.instance_name, container=container.id, accept_length=length
        )
    )
    ctx.history.record_accept_length(container.id, length)
    return True


def average_accept_length(path: Path, engine: Engine) -> float | None:
    """Return the mean accept length over the stats lines at the end of a saved log."""
    try:
        with open_regular_file(path) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
            lines = file.read(_LOG_TAIL_BYTES).decode("utf-8", "replace").splitlines()[1:]
    except OSError:
        return None
    preparer, length = LinePreparer(), RunningMean()
    for line in lines:
        for text in preparer.prepare_lines(line.partition(" ")[2]):
            stats = engine.parse_stats_line(text)
            if stats is not None and stats.accept_length:
                length = length.add_value(stats.accept_length)
    return length.value or None


class AcceptLengths:
    """Mean accept lengths over the readings in which an engine generated, while it is watched; by container.

    No mean of its tokens/s: a reading covers idle seconds and several requests, so it tells nobody what one request gets.
    """

    def __init__(self) -> None:
        self._lengths: dict[str, RunningMean] = {}
        self._news: set[str] = set()

    def add_reading(self, container: str, numbers: EngineMeter | None) -> None:
        if numbers is None or numbers.activity is not EngineActivity.DECODING:
            return
        if numbers.acceptance is not None and numbers.acceptance.length:
            mean = self._lengths.get(container, RunningMean())
            self._lengths[container] = mean.add_value(numbers.acceptance.length)
            self._news.add(container)

    def pop_changed(self) -> list[tuple[str, float]]:
        """Return (container, accept length) of those that changed since the last call."""
        found = [(one, self._lengths[one].value) for one in sorted(self._news)]
        self._news.clear()
        return found


@dataclass(frozen=True, slots=True)
class RunningMean:
    """A running mean."""

    value: float = 0.0
    count: int = 0

    def add_value(self, value: float) -> RunningMean:
        return RunningMean(self.value + (value - self.value) / (self.count + 1), self.count + 1)


def compute_accept_length(metrics: EngineMetrics) -> float | None:
    """Return tokens per verification step since the engine began: 1 + accepted/drafts by its counters, else its own gauge."""
    if metrics.drafts and metrics.accepted_tokens is not None:
        return 1 + metrics.accepted_tokens / metrics.drafts
    return metrics.accept_length or None
