"""The engines' figures: what each counts on /metrics and, where that does not tell, what its log says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from sparkctl.core.linewindow import LineWindow, prefer
from sparkctl.core.session import Session
from sparkctl.core.store import InstanceView
from sparkctl.core.together import together
from sparkctl.core.window import MetricsWindow
from sparkctl.engines import load, names
from sparkctl.engines.base import Engine
from sparkctl.engines.lines import LinePreparer
from sparkctl.errors import DockerDown, DockerError, MetricsUnreadable, NodeError
from sparkctl.model.log import LogLine
from sparkctl.model.metrics import Activity, Numbers
from sparkctl.model.phase import Phase
from sparkctl.operations.starting.asking import Manners, ask
from sparkctl.wire import http
from sparkctl.wire.logs import LogFollower

_TIMEOUT = 3.0
_OFF_FOR = 60.0  # seconds until an engine without /metrics is asked again
_BACK = 30.0  # seconds of log: as long as the longest stride between two lines of an engine at work
_TAIL = 2000  # lines; by `since` alone Docker reads a log from its beginning
_IS_OFF = (404, 501)  # the second is llama-server's: not implemented, until --metrics is given


class Source(StrEnum):
    """What is known of an instance's /metrics."""

    UNASKED = "unasked"
    ON = "on"
    OFF = "off"  # the server says that there is no such page
    SILENT = "silent"  # no answer, or one that cannot be read


@dataclass(frozen=True, slots=True)
class Told:
    """``numbers`` None: nothing is known. ``hint``: what to set in the profile to know more."""

    numbers: Numbers | None
    hint: str | None = None


def needs_log(source: Source, counted: Numbers) -> bool:
    """Tell whether the log has to help out, after as many readings as a window takes."""
    if source is not Source.ON:
        return source is not Source.UNASKED
    silent = counted.activity is None
    return silent or (counted.activity is Activity.DECODING and counted.generation_rate is None)


def is_measurable(instance: InstanceView) -> bool:
    """Tell whether there can be figures: ready, ours, of an engine that we know, on a port."""
    known = instance.engine in names() and instance.container_id is not None and instance.port is not None
    return instance.ours and known and instance.phase is Phase.READY


class Meters:
    """The figures of one node's instances. Close it: it may be following logs."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._meters: dict[str, _Meter] = {}

    async def read(self, instances: Iterable[InstanceView]) -> None:
        """Take a reading of each instance that can have one, and forget the others. Raises LinkLost."""
        wanted = {one.container_id or "": one for one in instances if is_measurable(one)}
        for gone in self._meters.keys() - wanted.keys():
            await self._meters.pop(gone).aclose()
        for container, instance in wanted.items():
            if container not in self._meters:
                self._meters[container] = _Meter(self._session, container, instance.port or 0, instance.engine or "")
        await together(*(meter.count() for meter in self._meters.values()))

    def follow_logs(self, ahead: float) -> None:
        """Begin to follow the logs that are needed; ``ahead``: seconds the node's clock is ahead of ours."""
        for meter in self._meters.values():
            meter.follow(ahead)

    async def read_logs(self, ahead: float) -> None:
        """Read the last of the logs that are needed, once. Raises LinkLost."""
        await together(*(meter.look_back(ahead) for meter in self._meters.values()))

    def told(self, ahead: float) -> dict[str, Told]:
        """Return what is known now, by container id."""
        return {container: meter.told(ahead) for container, meter in self._meters.items()}

    async def aclose(self) -> None:
        """Follow nothing any more."""
        for meter in self._meters.values():
            await meter.aclose()
        self._meters.clear()


class _Meter:
    """One engine: the window of its counters, and that of its log where needed."""

    def __init__(self, session: Session, container: str, port: int, engine: str) -> None:
        self._session, self._container, self._port = session, container, port
        self._engine = load(engine)
        self._clock = session.clock
        self._window = MetricsWindow()
        self._source = Source.UNASKED
        self._asked = 0.0
        self._readings = 0
        self._manners = Manners()
        self._log: _Log | None = None

    async def count(self) -> None:
        """Ask for its page of figures, unless it has none or it was off a moment ago."""
        path = self._engine.metrics_path
        if path is None:
            self._source = Source.OFF
            return
        now = self._clock.monotonic()
        if self._source is Source.OFF and now - self._asked < _OFF_FOR:
            return
        self._asked = now
        self._readings += 1
        try:
            answer = await ask(self._session.link, self._port, "GET", path, timeout=_TIMEOUT, manners=self._manners)
            if answer.status in _IS_OFF:
                self._manners.takes_queries = True  # or it is no obstacle: without it the answer was the same
            if answer.ok:
                page = answer.body.decode("utf-8", "replace")
                self._window.add(self._clock.monotonic(), self._engine.metrics(page))
        except (OSError, http.BadAnswer, MetricsUnreadable, DockerError):  # a TimeoutError is an OSError
            self._source = Source.SILENT
        else:
            off = Source.OFF if answer.status in _IS_OFF else Source.SILENT
            self._source = Source.ON if answer.ok else off

    def follow(self, ahead: float) -> None:
        if self._log is None and self._needs_log():
            self._log = self._new_log(ahead)
        if self._log is not None:
            self._log.follow()

    async def look_back(self, ahead: float) -> None:
        if self._needs_log():
            self._log = self._new_log(ahead)
            with suppress(DockerError, TimeoutError):
                async with asyncio.timeout(_TIMEOUT):
                    await self._log.read()

    def told(self, ahead: float) -> Told:
        said = Numbers() if self._log is None else self._log.numbers(self._clock.now() + ahead)
        numbers = prefer(self._counted(), said)
        hint = self._engine.metrics_setting if self._source is Source.OFF else None
        return Told(None if numbers == Numbers() else numbers, hint)

    async def aclose(self) -> None:
        if self._log is not None:
            await self._log.aclose()

    def _counted(self) -> Numbers:
        return self._window.numbers(self._clock.monotonic())

    def _needs_log(self) -> bool:
        enough = self._readings > 1 or self._source is Source.OFF
        return enough and needs_log(self._source, self._counted())

    def _new_log(self, ahead: float) -> _Log:
        since = self._clock.now() + ahead - _BACK
        return _Log(self._engine, LogFollower(self._session.link, self._container, since=since, tail=_TAIL))


@dataclass(slots=True)
class _Log:
    """The stats lines of one log, by the node's clock. A log that is cut says nothing: its silence is not the engine's."""

    engine: Engine
    follower: LogFollower
    _window: LineWindow = field(default_factory=LineWindow)
    _preparer: LinePreparer = field(default_factory=LinePreparer)
    _whole: bool = False
    _task: asyncio.Task[None] | None = None

    def numbers(self, now: float) -> Numbers:
        """Return what the log says as of ``now``, unix seconds on the node."""
        return self._window.numbers(now) if self._whole and (self._task is None or not self._task.done()) else Numbers()

    async def read(self) -> None:
        """Take what there is."""
        await self._take(self.follower.read())
        self._whole = True

    def follow(self) -> None:
        """Take lines as they come; go on where the stream was cut. The end of the container is the end of this."""
        if self._task is not None and self._task.done():
            try:
                self._task.result()
                return
            except (NodeError, DockerDown):
                self._task = None
            except DockerError:
                return  # asking again would bring the same answer
        if self._task is None:
            self._whole = True
            self._task = asyncio.create_task(self._take(self.follower.follow()))

    async def aclose(self) -> None:
        """Stop following."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _take(self, lines: AsyncGenerator[tuple[LogLine, ...], None]) -> None:
        async with aclosing(lines) as batches:
            async for batch in batches:
                for line in batch:
                    for text in self._preparer.feed(line.text):
                        if (stats := self.engine.stats(text)) is not None:
                            self._window.add(datetime.fromisoformat(line.when).timestamp(), stats)
