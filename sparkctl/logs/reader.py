"""Reads containers' logs: one Docker stream for a container and connection, masked once, for any number of subscribers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakValueDictionary

from sparkctl.concurrency import yield_to_input
from sparkctl.context import CommandContext
from sparkctl.errors import ContainerNotFound, DockerError, LogUnreadable
from sparkctl.model.container import Container
from sparkctl.model.events import Emit, WarningEmitted
from sparkctl.model.launch_plan import ReadinessRule
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text.log_line import LogLine
from sparkctl.model.text.secrets import LineMasker
from sparkctl.transport.docker.log_resume import LogPosition
from sparkctl.transport.docker.log_stream import ContainerLogStream, LogBatches
from sparkctl.transport.node_connection import NodeConnection
from sparkctl.transport.node_session import NodeSession

if TYPE_CHECKING:
    from sparkctl.logs.analyzer import LogAnalyzer

_RING_LINES = 4_000  # newest lines of a log in memory: how far subscribers may be apart


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBatch:
    """Consecutive lines, never empty, and where the stream stood after them. ``follows_gap``: lines are missing before."""

    lines: Sequence[LogLine]
    position: LogPosition | None
    follows_gap: bool

    @property
    def first(self) -> int:
        """The number of the first line."""
        return self.lines[0].number

    @property
    def last(self) -> int:
        """The number of the last line."""
        return self.lines[-1].number


_readers: WeakKeyDictionary[NodeConnection, WeakValueDictionary[str, ContainerLogReader]] = WeakKeyDictionary()


def _get_reader(link: NodeConnection, container_id: str) -> ContainerLogReader:
    """Return the one reader of a container over this connection."""
    readers = _readers.setdefault(link, WeakValueDictionary())
    reader = readers.get(container_id)
    if reader is None:
        reader = readers[container_id] = ContainerLogReader()
    return reader


class ContainerLogReader:
    """Follows a container's log while somebody subscribes, and keeps the newest lines.

    It has no task of its own: the subscriber that needs the next lines reads them, for all, and meets the stream's errors;
    the others read on from there. It reads only as fast as the slowest subscriber, unless the watch of a start
    subscribes: then a slow one falls behind and reads what it missed from Docker.
    """

    def __init__(self) -> None:
        self.end = 0  # the number of the last line that was read
        self._feeds: list[LogFeed] = []
        self._ring: deque[LogBatch] = deque()
        self._held = 0  # lines in the ring
        self._stream: ContainerLogStream | None = None
        self._batches: LogBatches | None = None  # while the stream is open
        self._masker = LineMasker(())
        self._is_reading = False
        self._has_gap = False
        self._news = asyncio.Event()

    @property
    def has_begun(self) -> bool:
        """Whether there is a stream, open or broken."""
        return self._stream is not None

    def begin(self, stream: ContainerLogStream) -> None:
        """Follow this stream from where it stands."""
        self._stream = stream
        self.end = 0 if stream.position is None else stream.position.lines
        stream.on_gap = self._note_gap

    @property
    def analyzer(self) -> LogAnalyzer | None:
        """What a watched start knows of this log; None without one, or while the stream is cut."""
        if self._batches is None:
            return None
        return next((feed.analyzer for feed in self._feeds if feed.analyzer is not None), None)

    def attach(self, feed: LogFeed, secrets: frozenset[str]) -> None:
        """Add a subscriber; ``secrets`` are masked for all of them from now on, in the lines of the ring too."""
        self._feeds.append(feed)
        if self._masker.add_secrets(secrets):
            again = LineMasker(secrets)
            self._ring = deque(replace(batch, lines=again.mask_batch(batch.lines)) for batch in self._ring)

    async def detach(self, feed: LogFeed) -> None:
        """Remove a subscriber; the stream is closed with the last one."""
        self._feeds.remove(feed)
        self.tell_news()  # the others may have waited for it
        if not self._feeds and self._batches is not None:
            batches, self._batches = self._batches, None
            await batches.aclose()

    def find_batch(self, after: int) -> LogBatch | None:
        """Return the oldest batch in memory that has lines after this number, None if there is none yet."""
        return next((batch for batch in self._ring if batch.last > after), None)

    def find_number(self, line: LogLine, count: int) -> int | None:
        """Return the number here of a line that is the ``count``-th with its timestamp; None if that is not in memory."""
        if not self._ring or self._ring[0].lines[0].when >= line.when:
            return None
        for batch in self._ring:
            for one in batch.lines:
                if one.when == line.when:
                    count -= 1
                    if not count:
                        return one.number if one.text == line.text else None
        return None

    @property
    def first(self) -> int:
        """The number of the first line in memory; without any, that of the next line."""
        return self._ring[0].first if self._ring else self.end + 1

    def find_first_since(self, stamp: str) -> int:
        """Return the number of the first line in memory that is not older than a timestamp; after the last one if none."""
        return next((one.number for batch in self._ring for one in batch.lines if one.when >= stamp), self.end + 1)

    @property
    def last_stamp(self) -> str:
        """The timestamp of the last line in memory; empty without any."""
        return self._ring[-1].lines[-1].when if self._ring else ""

    async def read_more(self) -> bool:
        """Read the next lines, or wait for the subscriber that reads them; return False at the end of the log.

        Raises what `ContainerLogStream.follow_lines` raises; called again, it resumes where the stream broke.
        """
        end = self.end
        await yield_to_input()
        if self.end != end:
            return True
        if self._is_reading or self._must_wait():
            await self._news.wait()
            return True
        assert self._stream is not None
        self._is_reading = True
        try:
            if self._batches is None:
                self._batches = self._stream.follow_lines()
            lines = await anext(self._batches, None)
            if lines is None:
                self._batches = None
                return False
            self._append(
                LogBatch(
                    lines=self._masker.mask_batch(lines), position=self._stream.position, follows_gap=self._has_gap
                )
            )
            self._has_gap = False
            return True
        except BaseException:
            self._batches = None  # the stream has closed itself
            raise
        finally:
            self._is_reading = False
            self.tell_news()

    def _append(self, batch: LogBatch) -> None:
        self._ring.append(batch)
        self.end = batch.last
        self._held += len(batch.lines)
        while len(self._ring) > 1 and self._held - len(self._ring[0].lines) >= _RING_LINES:
            self._held -= len(self._ring.popleft().lines)

    def _must_wait(self) -> bool:
        if any(feed.analyzer is not None for feed in self._feeds):
            return False
        return any(feed.is_joined and self.end - feed.cursor > _RING_LINES // 2 for feed in self._feeds)

    def _note_gap(self) -> None:
        self._has_gap = True

    def tell_news(self) -> None:
        """Wake the subscribers that wait: lines were read or taken, or one has left."""
        self._news.set()
        self._news = asyncio.Event()


class LogFeed:
    """One subscriber's lines of a container's log: the older ones first, then each new one, in order, none lost.

    ``since`` (unix seconds) and ``tail`` (lines) set where it begins, or ``stream`` does, which may have been read from
    already; lines are numbered from there. ``secrets`` are masked. ``on_gap`` is called where Docker had rotated lines
    away. A watched start has an ``analyzer``, which reads all that the feed yields: nobody else's pace holds it up.
    """

    def __init__(
        self,
        session: NodeSession,
        container_id: str,
        *,
        since: float | None = None,
        tail: int | None = None,
        stream: ContainerLogStream | None = None,
        secrets: Collection[str] = (),
        on_gap: Callable[[], None] | None = None,
        analyzer: LogAnalyzer | None = None,
    ) -> None:
        self.analyzer = analyzer
        self.is_joined = False  # it reads what the reader reads
        self.cursor = 0  # the number, in the reader's count, of the last line taken; once it has joined
        self._link, self._id = session.link, container_id
        self._since, self._is_short = since, analyzer is not None or tail is not None
        self._own = stream or ContainerLogStream(
            session.link, container_id, since=since, tail=tail, on_gap=on_gap, docker=session.docker
        )
        self._on_gap = on_gap
        self._secrets = frozenset(secrets)
        self._masker = LineMasker(self._secrets)
        self._offset: int | None = None  # to add to the reader's numbers; None: it has not joined yet
        self._position: LogPosition | None = None
        self._newest: LogLine | None = None  # of its own stream
        self._newest_count = 0  # lines with that timestamp so far
        self._is_sure = (
            False  # an older timestamp was seen as well, so that none of these lines was before the beginning
        )
        self._reader = _get_reader(session.link, container_id)

    async def follow_lines(self) -> LogBatches:
        """Yield lines in batches until the container ends; another call goes on from there.

        Raises as `ContainerLogStream.follow_lines`, to every subscriber that reads on while the stream is broken.
        """
        reader = self._reader
        reader.attach(self, self._secrets)
        try:
            while True:
                if not self.is_joined:
                    async with aclosing(self._read_older()) as batches:
                        async for lines in batches:
                            yield lines
                batch = reader.find_batch(self.cursor)
                if batch is None:
                    if not await reader.read_more():
                        return
                elif batch.first > self.cursor + 1:
                    self.is_joined = False  # it fell behind
                    self._own = ContainerLogStream(self._link, self._id, position=self._position, on_gap=self._on_gap)
                else:
                    lines = self._take(batch)
                    yield lines
                    reader.tell_news()
        finally:
            await reader.detach(self)

    def _take(self, batch: LogBatch) -> Sequence[LogLine]:
        lines = batch.lines[self.cursor + 1 - batch.first :]
        if batch.follows_gap and self._on_gap is not None and len(lines) == len(batch.lines):
            self._on_gap()
        self.cursor, self._position = batch.last, batch.position
        return _shift_numbers(lines, self._offset or 0)

    async def _read_older(self) -> LogBatches:
        """Yield what was written before the lines that the reader has in memory, and join the reader."""
        reader = self._reader
        if self._is_short and self._begin_reader():
            return
        while True:
            end, has_new = reader.end, False
            async with aclosing(self._own.read_available(is_end=False)) as batches:
                async for raw in batches:
                    has_new = True
                    lines = self._masker.mask_batch(raw)
                    self._note_newest(lines)
                    yield _shift_numbers(lines, self._offset or 0)
            if self._begin_reader() or await self._join_reader():
                return
            if not has_new and reader.end == end:  # nothing was written meanwhile: both are at the end of the log
                self._join_after(reader.end)
                return

    def _begin_reader(self) -> bool:
        """Let the reader follow the own stream, unless it follows one already."""
        if self._reader.has_begun:
            return False
        self._reader.begin(self._own)
        self._join_after(self._reader.end)
        return True

    async def _join_reader(self) -> bool:
        """Join after the last line of the own stream; return False where the reader has it no more."""
        reader, newest = self._reader, self._newest
        while True:
            if self._offset is not None:
                number = self._count_own() if reader.first <= self._count_own() + 1 else None
            elif newest is None:
                number = reader.find_first_since(_format_stamp(self._since)) - 1 if self._since else reader.end
            else:
                number = reader.find_number(newest, self._newest_count) if self._is_sure else None
            if number is not None:
                self._join_after(number)
                return True
            if newest is None or newest.when <= reader.last_stamp or not await reader.read_more():
                return False

    def _join_after(self, number: int) -> None:
        if self._offset is None:
            self._offset = self._count_own() - number
        position = self._own.position
        self._position = None if position is None else replace(position, lines=number)
        self.cursor, self.is_joined = number, True

    def _count_own(self) -> int:
        return 0 if self._own.position is None else self._own.position.lines

    def _note_newest(self, lines: Sequence[LogLine]) -> None:
        stamp = lines[-1].when
        is_other = self._newest is not None and self._newest.when != stamp
        same = sum(line.when == stamp for line in lines)
        self._is_sure = self._is_sure or is_other or same < len(lines)
        self._newest_count = same if is_other or self._newest is None else self._newest_count + same
        self._newest = lines[-1]


def _shift_numbers(lines: Sequence[LogLine], by: int) -> Sequence[LogLine]:
    if not by:
        return lines
    return tuple(
        LogLine(when=one.when, text=one.text, number=one.number + by, stream=one.stream, cut=one.cut) for one in lines
    )


def _format_stamp(seconds: float) -> str:
    """Return unix seconds in the form of Docker's timestamps, to compare with them."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")


async def read_log(
    session: NodeSession,
    container_id: str,
    *,
    since: float | None = None,
    tail: int | None = None,
    secrets: Collection[str] = (),
    stamped: bool = True,
) -> LogBatches:
    """Yield the lines written so far, in batches, with ``secrets`` masked; raises as `ContainerLogStream.read_available`.

    ``stamped``: whether each needs its timestamp.
    """
    masker = LineMasker(secrets)
    stream = ContainerLogStream(
        session.link, container_id, since=since, tail=tail, stamped=stamped, docker=session.docker
    )
    async with aclosing(stream.read_available()) as batches:
        async for lines in batches:
            yield masker.mask_batch(lines)


async def analyze_log(
    session: NodeSession,
    container_id: str,
    engine: str,
    ready: ReadinessRule,
    *,
    since: float | None = None,
    tail: int | None = None,
    most: int | None = None,
) -> LogAnalyzer:
    """Return what a container's log says so far: as the start that is watched over this connection knows it, else read once.

    ``since`` and ``tail`` as in `LogFeed`; ``most``: stop after so many lines, or with the line that says ready. Raises as `read_log`.
    """
    if (watching := _get_reader(session.link, container_id).analyzer) is not None:
        return watching
    from sparkctl.engines import load_engine
    from sparkctl.logs.analyzer import LogAnalyzer  # imported late: `logs` reads no meaning

    analyzer = LogAnalyzer(engine=load_engine(engine), ready=ready)
    async with aclosing(read_log(session, container_id, since=since, tail=tail)) as batches:
        async for lines in batches:
            analyzer.feed_lines(lines[:most])
            if most is not None and ((most := most - len(lines)) <= 0 or analyzer.was_ready):
                break
    return analyzer


@dataclass(frozen=True, slots=True)
class SaveLogResult:
    """Where the log was saved, None: nowhere. Only if it is ``whole``, nothing is lost with the container.

    It is also ``whole`` if the container is gone, or if its log driver stores nothing readable.
    """

    path: str | None
    whole: bool


async def save_log(
    session: NodeSession, ctx: CommandContext, emit: Emit, container: Container, more: Collection[str] = ()
) -> SaveLogResult:
    """Save the container's complete log in the state directory; warn if that fails. Raises `NodeError`.

    The container's secrets, and ``more`` from the caller, are masked. Memory use is constant.
    """
    instance = container.instance_name

    def warn(what: str) -> None:
        emit(WarningEmitted(ctx.clock.unix_time(), session.node.name, what, None))

    try:
        secrets = (await session.docker.read_secret_values(container.id)).union(more)
        writer = ctx.history.open_log_writer(instance, session.node.name, container.id, secrets)
    except ContainerNotFound:
        return SaveLogResult(None, whole=True)
    except (DockerError, OSError) as broken:
        warn(f"the log of {instance} could not be saved: {broken}")
        return SaveLogResult(None, whole=False)
    try:
        async with aclosing(read_log(session, container.id, secrets=secrets)) as batches:
            async for lines in batches:
                writer.write(lines)
                if writer.failed is not None:
                    break
            else:
                writer.close(whole=True)
        if writer.failed is not None:
            warn(f"the saved log of {instance} is incomplete: {writer.failed}")
        return SaveLogResult(str(writer.path), whole=writer.failed is None)
    except LogUnreadable as none:
        warn(f"the log of {instance} is not saved: {none}")
        return SaveLogResult(None, whole=True)
    except DockerError as broken:
        warn(f"the saved log of {instance} is incomplete: {broken}")
        return SaveLogResult(str(writer.path), whole=False)
    finally:
        writer.close()
