"""Merges the logs of several ranks by time. Pure, except for awaiting the sources."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from sparkctl.logs.timestamps import parse_log_time
from sparkctl.model.log_line import LogLine
from sparkctl.model.node import NodeName

LineBatches = AsyncIterator[Sequence[LogLine]]


async def merge_by_time(
    sources: Mapping[NodeName, LineBatches], ahead: Mapping[NodeName, float]
) -> AsyncGenerator[tuple[NodeName, tuple[LogLine, ...]], None]:
    """Yield the lines of all sources in the order of their timestamps; consecutive lines of one source come together. At most
    one batch of each source is in memory.

    ``ahead``: seconds by which a source's clock is ahead of ours. The lines of one source keep their own order, also if its
    clock was set back; a line without a timestamp follows the line before it.
    """
    if len(sources) == 1:
        ((name, batches),) = sources.items()
        async for batch in batches:
            yield name, tuple(batch)
        return
    heads = [_MergeSource(name=name, batches=batches, ahead=ahead.get(name, 0.0)) for name, batches in sources.items()]
    for head in heads:
        await head.load_batch()
    heads = [head for head in heads if head.lines]
    while heads:
        first = min(heads, key=lambda head: head.times[head.at])
        limit = min((head.times[head.at] for head in heads if head is not first), default=float("inf"))
        yield first.name, first.take_until(limit)
        if first.at == len(first.lines):
            await first.load_batch()
            if not first.lines:
                heads.remove(first)


@dataclass(slots=True, kw_only=True)
class _MergeSource:
    """The current batch of one source; ``at`` is the index of the next line."""

    name: NodeName
    batches: LineBatches
    ahead: float
    lines: tuple[LogLine, ...] = ()
    times: tuple[float, ...] = ()
    at: int = 0
    last: float = float("-inf")

    async def load_batch(self) -> None:
        """Load the next batch; it is empty at the end of the source."""
        self.lines, self.times, self.at = (), (), 0
        async for batch in self.batches:
            if batch:
                self.lines = tuple(batch)
                self.times = tuple(self._line_time(line) for line in batch)
                return

    def take_until(self, limit: float) -> tuple[LogLine, ...]:
        """Return the next line, and those after it that are not later than ``limit``."""
        begin, self.at = self.at, self.at + 1
        while self.at < len(self.lines) and self.times[self.at] <= limit:
            self.at += 1
        return self.lines[begin : self.at]

    def _line_time(self, line: LogLine) -> float:
        found = parse_log_time(line.when, "") if line.when else None
        if found is not None:
            self.last = max(self.last, found.seconds - self.ahead)
        return self.last
