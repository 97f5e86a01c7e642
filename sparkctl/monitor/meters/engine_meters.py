"""The engines' figures: what each counts on /metrics and, where that does not tell, what its log says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from sparkctl.concurrency import gather_or_cancel
from sparkctl.engines import engine_names, load_engine
from sparkctl.engines.base import Engine
from sparkctl.engines.line_preparer import LinePreparer
from sparkctl.errors import DockerError, DockerUnavailable, MetricsUnreadable, NodeError
from sparkctl.model.engine_metrics import EngineActivity, EngineMeter
from sparkctl.model.instance import InstanceView
from sparkctl.model.log_line import LogLine
from sparkctl.model.phase import Phase
from sparkctl.monitor.engine_probe import QueryMarkerSupport, request_engine
from sparkctl.monitor.meters.metrics_window import MetricsWindow
from sparkctl.monitor.meters.stats_line_window import StatsLineWindow, merge_meters
from sparkctl.transport import http_client
from sparkctl.transport.docker.log_stream import ContainerLogStream
from sparkctl.transport.node_session import NodeSession

_TIMEOUT_SECONDS = 3.0
_RETRY_SECONDS = 60.0  # seconds until an engine without /metrics is asked again
_LOG_LOOKBACK_SECONDS = 30.0  # seconds of log: as long as the longest stride between two lines of an engine at work
_LOG_TAIL_LINES = 2000  # lines; by `since` alone Docker reads a log from its beginning
_DISABLED_STATUSES = (404, 501)  # the second is llama-server's: not implemented, until --metrics is given


class MetricsSource(StrEnum):
    """What is known of an instance's /metrics."""

    UNASKED = "unasked"
    ON = "on"
    OFF = "off"  # the server says that there is no such page
    SILENT = "silent"  # no answer, or one that cannot be read


@dataclass(frozen=True, slots=True)
class MeterReading:
    """``numbers`` None: nothing is known. ``hint``: what to set in the profile to know more."""

    numbers: EngineMeter | None
    hint: str | None = None


def needs_log_meter(source: MetricsSource, counted: EngineMeter) -> bool:
    """Tell whether the log has to help out, after as many readings as a window takes."""
    if source is not MetricsSource.ON:
        return source is not MetricsSource.UNASKED
    silent = counted.activity is None
    return silent or (counted.activity is EngineActivity.DECODING and counted.generation_rate is None)


def has_meter(instance: InstanceView) -> bool:
    """Tell whether there can be figures: ready, ours, of an engine that we know, on a port."""
    known = instance.engine in engine_names() and instance.container_id is not None and instance.port is not None
    return instance.ours and known and instance.phase is Phase.READY


class EngineMeters:
    """The figures of one node's instances. Close it: it may be following logs."""

    def __init__(self, session: NodeSession) -> None:
        self._session = session
        self._meters: dict[str, InstanceMeter] = {}

    async def read_metrics(self, instances: Iterable[InstanceView]) -> None:
        """Take a reading of each instance that can have one, and forget the others. Raises LinkLost."""
        wanted = {one.container_id or "": one for one in instances if has_meter(one)}
        for gone in self._meters.keys() - wanted.keys():
            await self._meters.pop(gone).aclose()
        for container, instance in wanted.items():
            if container not in self._meters:
                self._meters[container] = InstanceMeter(
                    self._session, container, instance.port or 0, instance.engine or ""
                )
        await gather_or_cancel(*(meter.read_metrics() for meter in self._meters.values()))

    def follow_logs(self, ahead: float) -> None:
        """Begin to follow the logs that are needed; ``ahead``: seconds the node's clock is ahead of ours."""
        for meter in self._meters.values():
            meter.follow_log(ahead)

    async def read_logs(self, ahead: float) -> None:
        """Read the last of the logs that are needed, once. Raises LinkLost."""
        await gather_or_cancel(*(meter.read_log(ahead) for meter in self._meters.values()))

    def get_current_readings(self, ahead: float) -> dict[str, MeterReading]:
        """Return what is known now, by container id."""
        return {container: meter.get_reading(ahead) for container, meter in self._meters.items()}

    async def aclose(self) -> None:
        """Follow nothing any more."""
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
        self._manners = QueryMarkerSupport()
        self._log: LogMeter | None = None

    async def read_metrics(self) -> None:
        """Ask for its page of figures, unless it has none or it was off a moment ago."""
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
            answer = await request_engine(
                self._session.link, self._port, "GET", path, timeout=_TIMEOUT_SECONDS, manners=self._manners
            )
            if answer.status in _DISABLED_STATUSES:
                self._manners.takes_queries = True  # or it is no obstacle: without it the answer was the same
            if answer.is_success:
                page = answer.body.decode("utf-8", "replace")
                self._window.add_reading(self._clock.monotonic(), self._engine.parse_metrics(page))
        except (
            OSError,
            http_client.InvalidHttpResponse,
            MetricsUnreadable,
            DockerError,
        ):  # a TimeoutError is an OSError
            self._source = MetricsSource.SILENT
        else:
            off = MetricsSource.OFF if answer.status in _DISABLED_STATUSES else MetricsSource.SILENT
            self._source = MetricsSource.ON if answer.is_success else off

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
        said = EngineMeter() if self._log is None else self._log.compute_meter(self._clock.unix_time() + ahead)
        numbers = merge_meters(self._compute_metrics_meter(), said)
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
        return LogMeter(
            engine=self._engine,
            follower=ContainerLogStream(self._session.link, self._container, since=since, tail=_LOG_TAIL_LINES),
        )


@dataclass(slots=True, kw_only=True)
class LogMeter:
    """The stats lines of one log, by the node's clock. A log that is cut says nothing: its silence is not the engine's."""

    engine: Engine
    follower: ContainerLogStream
    _window: StatsLineWindow = field(default_factory=StatsLineWindow)
    _preparer: LinePreparer = field(default_factory=LinePreparer)
    _whole: bool = False
    _task: asyncio.Task[None] | None = None

    def compute_meter(self, now: float) -> EngineMeter:
        """Return what the log says as of ``now``, unix seconds on the node."""
        return (
            self._window.compute_meter(now)
            if self._whole and (self._task is None or not self._task.done())
            else EngineMeter()
        )

    async def read_log(self) -> None:
        """Take what there is."""
        await self._consume_lines(self.follower.read_available())
        self._whole = True

    def follow_log(self) -> None:
        """Take lines as they come; go on where the stream was cut. The end of the container is the end of this."""
        if self._task is not None and self._task.done():
            try:
                self._task.result()
                return
            except (NodeError, DockerUnavailable):
                self._task = None
            except DockerError:
                return  # asking again would bring the same answer
        if self._task is None:
            self._whole = True
            self._task = asyncio.create_task(self._consume_lines(self.follower.follow_lines()))

    async def aclose(self) -> None:
        """Stop following."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _consume_lines(self, lines: AsyncGenerator[tuple[LogLine, ...], None]) -> None:
        async with aclosing(lines) as batches:
            async for batch in batches:
                for line in batch:
                    for text in self._preparer.prepare_lines(line.text):
                        if (stats := self.engine.parse_stats_line(text)) is not None:
                            self._window.add_line(datetime.fromisoformat(line.when).timestamp(), stats)
