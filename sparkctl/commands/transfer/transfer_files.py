"""Copies a model's files: planned from the listings of both nodes, requested by number, written next to their names, verified by
checksums, then moved into place.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import PurePosixPath
from typing import Any

from sparkctl.clock import Clock
from sparkctl.commands.transfer.transfer_stream import (
    RouteUnreachable,
    TransferRoute,
    TransferStream,
    open_transfer_stream,
    parse_message,
    start_transfer_program,
)
from sparkctl.concurrency import gather_or_cancel
from sparkctl.errors import NodeUnreachable
from sparkctl.model.events import Emit, TransferPart, TransferProgressed, WarningEmitted
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName
from sparkctl.model.text.units import GIB, MIB
from sparkctl.node.model_files_decoder import FileListing, FreeSpace, ModelFile
from sparkctl.transport.node_session import NodeSession

_MAX_STREAMS = 8  # one stream is limited by one core for TLS and checksums, about 0.6 GB/s
_CHECKSUM_TIMEOUT_SECONDS = 60.0  # seconds without a message; an end reports progress every few seconds
_PROGRESS_SECONDS = 0.5  # seconds between two progress reports
_RATE_SECONDS = 6.0  # seconds whose mean is the rate


class TransferReporter:
    """Emits the progress of a transfer to one node."""

    def __init__(self, clock: Clock, emit: Emit, source: NodeName, target: NodeName, name: str) -> None:
        self.clock, self.emit, self.source, self.target, self.name = clock, emit, source, target, name
        self._pace = TransferRate(None)
        self._what = ""
        self._reported_at = 0.0
        self._present = self._done = 0

    def begin_item(self, what: str, total: int | None, done: int = 0) -> None:
        self._pace, self._what, self._reported_at, self._present = TransferRate(total), what, 0.0, done
        self.report_progress(done)

    def report_progress(self, done: int, *, is_last: bool = False, parts: Sequence[TransferPart] = ()) -> None:
        now, self._done = self.clock.monotonic(), done
        rate, left = self._pace.add_sample(now, done)
        if is_last or self._reported_at == 0.0 or now - self._reported_at >= _PROGRESS_SECONDS:
            self._reported_at = now
            self.emit(
                TransferProgressed(
                    ts=self.clock.unix_time(),
                    node=self.target,
                    source=self.source,
                    what=self._what,
                    done=done,
                    total=self._pace.total,
                    rate=rate,
                    left=left,
                    parts=tuple(parts),
                )
            )

    def set_total(self, total: int | None) -> None:
        """Set the bytes in all, where they become known only on the way."""
        self._pace.total = total

    def set_present(self, done: int) -> None:
        """Set the bytes that were there before it began, where they become known only on the way."""
        self._present = done

    @property
    def received(self) -> int:
        """The bytes of the item that have come since it began."""
        return max(0, self._done - self._present)

    def warn(self, words: str, hint: str | None = None) -> None:
        self.emit(WarningEmitted(self.clock.unix_time(), self.target, words, hint))


async def compare_checksums(
    source: NodeSession, target: NodeSession, plan: TransferPlan, progress: TransferReporter
) -> TransferPlan:
    """Return the plan with the doubtful files decided by checksums, computed on both nodes in parallel; files with
    equal contents get the source's time, so that the next comparison needs no checksums.
    """
    total = sum(one.size for one in plan.doubtful)
    progress.begin_item("comparing files with different times", total)
    sizes = [one.size for one in plan.doubtful]

    def report_summed_bytes(done: int) -> None:
        progress.report_progress(done)

    here, there = await gather_or_cancel(
        _read_checksums(source, [{"path": one.source} for one in plan.doubtful], sizes, report_summed_bytes),
        _read_checksums(target, [_describe_target(one) for one in plan.doubtful], sizes, lambda _: None),
    )
    equal = {one.number: a is not None and a == b for one, a, b in zip(plan.doubtful, here, there, strict=True)}
    return resolve_doubtful_files(plan, equal)


def _describe_target(one: FileTransfer | SymbolicLink) -> dict[str, Any]:
    """Return the target path as the receiver expects it: it follows no link below the base."""
    return {"base": one.base, "name": one.name}


async def _read_checksums(
    session: NodeSession, files: Sequence[dict[str, Any]], sizes: Sequence[int], seen: Any
) -> list[str | None]:
    """Return the checksum of each file, None where it could not be read."""
    found: list[str | None] = [None] * len(files)
    process = await start_transfer_program(session, {"role": "sum", "files": list(files)})
    done = 0
    try:
        while line := await asyncio.wait_for(process.readline(), _CHECKSUM_TIMEOUT_SECONDS):
            message = parse_message(session.node.name, line)
            if "done" in message:
                return found
            if "summed" in message and 0 <= (number := message["summed"]) < len(found):
                found[number] = None if message.get("sum") is None else str(message["sum"])
                done += sizes[number]
                seen(done)
    except TimeoutError:
        pass
    finally:
        await process.release()
    raise NodeUnreachable(session.node.name, f"{session.node.name} did not finish the checksums of its files")


async def transfer_files(
    source: NodeSession, target: NodeSession, plan: TransferPlan, route: TransferRoute, progress: TransferReporter
) -> TransferRoute:
    """Copy the files that differ, then the links; return the route that was used."""
    if plan.is_done:
        return route
    try:
        await _stream_files(source, target, plan, route, progress)
    except RouteUnreachable as closed:
        progress.warn(
            f"{source.node.name} does not reach {target.node.name} directly ({closed.message}): it goes through this machine",
            f"a firewall on {target.node.name}? sudo ufw allow in on INTERFACE",
        )
        route = TransferRoute()
        await _stream_files(source, target, plan, route, progress)
    return route


async def _stream_files(
    source: NodeSession, target: NodeSession, plan: TransferPlan, route: TransferRoute, progress: TransferReporter
) -> None:
    progress.begin_item(f"files of {progress.name}", plan.total_bytes, plan.present_bytes)
    sending = [{"n": one.number, "path": one.source, "size": one.size, "mtime": one.mtime} for one in plan.send]
    taking = [
        {"n": one.number, **_describe_target(one), "size": one.size, "mtime": one.mtime, "mode": one.mode}
        for one in plan.send
    ]
    streams = max(1, min(_MAX_STREAMS, len(plan.send)))
    async with open_transfer_stream(source, target, (sending, taking), route, streams) as pair:
        await _verify_and_place_files(pair, {one.number: one for one in plan.send}, plan, progress)
    progress.report_progress(plan.total_bytes, is_last=True)


async def _verify_and_place_files(
    pair: TransferStream, files: dict[int, FileTransfer], plan: TransferPlan, progress: TransferReporter
) -> None:
    """Keep each file with equal checksums on both nodes, delete the others; then make the links and end both sides."""
    sums: dict[int, dict[str, str]] = {number: {} for number in files}
    open_ = set(files)
    broken: list[str] = []

    async def send_times_and_links() -> None:
        await pair.send_to_receiver(touch=[{**_describe_target(each), "mtime": each.mtime} for each in plan.touch])
        await pair.send_to_receiver(
            links=[{**_describe_target(link), "target": link.target} for link in plan.links if not broken]
        )

    if not files:
        await send_times_and_links()
    async for side, message in pair.read_messages():
        if "at" in message:
            progress.report_progress(message["at"])
        number = message.get("sent", message.get("got"))
        if isinstance(number, int) and number in sums:
            sums[number][side] = str(message.get("sum"))
            if len(sums[number]) == 2:
                is_equal = len(set(sums[number].values())) == 1
                if not is_equal:
                    broken.append(files[number].name)
                await pair.send_to_receiver(**({"keep": number} if is_equal else {"drop": number}))
        number = message.get("kept", message.get("dropped"))
        if isinstance(number, int):
            open_.discard(number)
            if not open_:
                await send_times_and_links()
        if "linked" in message:
            await pair.send_to_receiver(end=True)
    if broken:
        raise NodeUnreachable(
            progress.target,
            f"what arrived of {', '.join(broken[:3])} is not what was sent; it was deleted",
            "repeat the command to send it again; if it happens again, look at the cable and the memory of both",
        )


RESERVED_BYTES = 64 * MIB  # stays free on the disk of the target
_PART_SUFFIX = ".sparkctl-part"
_CONTENT_NAME_PATTERN = re.compile(r"(?:^|/)blobs/(?:[0-9a-f]{40}|[0-9a-f]{64})$")  # in Hugging Face's cache
_NANOSECONDS_PER_SECOND = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTransfer:
    """A file with its source and target: ``name`` below ``base``. ``have``: bytes that an earlier transfer left
    there.
    """

    number: int
    name: str
    source: str
    base: str
    size: int
    mtime: int
    mode: int
    have: int


@dataclass(frozen=True, slots=True)
class SymbolicLink:
    """A symbolic link to make: ``name`` below ``base``, and its target."""

    base: str
    name: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferPlan:
    """What a transfer does.

    ``send``: files that differ. ``doubtful``: same size but another time, so checksums decide. ``touch``: files where
    only the time differs. ``same``: number of files that are equal already.
    """

    send: tuple[FileTransfer, ...] = ()
    doubtful: tuple[FileTransfer, ...] = ()
    links: tuple[SymbolicLink, ...] = ()
    touch: tuple[FileTransfer, ...] = ()
    same: int = 0

    @property
    def total_bytes(self) -> int:
        """The bytes of the files to send, including those that have arrived already."""
        return sum(one.size for one in self.send)

    @property
    def present_bytes(self) -> int:
        """The bytes that an earlier transfer left."""
        return sum(one.have for one in self.send)

    @property
    def missing_bytes(self) -> int:
        """The bytes still to send."""
        return self.total_bytes - self.present_bytes

    @property
    def is_done(self) -> bool:
        """Tell whether nothing is left to do."""
        return not (self.send or self.doubtful or self.links or self.touch)


def part_name(name: str, size: int, mtime: int) -> str:
    """Return the name of a file's incomplete copy, relative as the file's; it contains the size and time of the
    version that it belongs to.
    """
    path = PurePosixPath(name)
    return str(path.with_name(f".{path.name}.{size}-{mtime // _NANOSECONDS_PER_SECOND}{_PART_SUFFIX}"))


def plan_transfer(pairs: Iterable[tuple[FileListing, FileListing]]) -> TransferPlan:
    """Return the plan for each (source, target) pair of the same place."""
    send: list[FileTransfer] = []
    doubtful: list[FileTransfer] = []
    links: list[SymbolicLink] = []
    same = 0
    for source, target in pairs:
        there = {entry.name: entry for entry in target.entries}
        for entry in source.entries:
            found = there.get(entry.name)
            if entry.link is not None:
                if found is None or found.link != entry.link:
                    links.append(SymbolicLink(target.base, entry.name, entry.link))
                else:
                    same += 1
                continue
            if _is_same_file(entry, found):
                same += 1
                continue
            have = min(entry.size, target.parts.get(part_name(entry.name, entry.size, entry.mtime), 0))
            origin = f"{source.base.rstrip('/')}/{entry.name}"
            number = len(send) + len(doubtful)
            one = FileTransfer(
                number=number,
                name=entry.name,
                source=origin,
                base=target.base,
                size=entry.size,
                mtime=entry.mtime,
                mode=entry.mode,
                have=have,
            )
            (doubtful if found is not None and found.link is None and found.size == entry.size else send).append(one)
    return TransferPlan(send=tuple(send), doubtful=tuple(doubtful), links=tuple(links), touch=(), same=same)


def _is_same_file(entry: ModelFile, found: ModelFile | None) -> bool:
    if found is None or found.link is not None or found.size != entry.size:
        return False
    return (
        found.mtime // _NANOSECONDS_PER_SECOND == entry.mtime // _NANOSECONDS_PER_SECOND
        or _CONTENT_NAME_PATTERN.search(entry.name) is not None
    )


def resolve_doubtful_files(one: TransferPlan, equal: Mapping[int, bool]) -> TransferPlan:
    """Return the plan after the checksums of the doubtful files are known: those that differ are sent."""
    differing = tuple(each for each in one.doubtful if not equal.get(each.number, False))
    touch = tuple(each for each in one.doubtful if equal.get(each.number, False))
    return TransferPlan(
        send=(*one.send, *differing), doubtful=(), links=one.links, touch=touch, same=one.same + len(touch)
    )


@dataclass(frozen=True, slots=True)
class SpaceNeed:
    """Bytes that ``what`` needs on a disk."""

    what: str
    size: int
    room: FreeSpace


def list_file_needs(plan: TransferPlan, targets: Iterable[FileListing]) -> list[SpaceNeed]:
    """Return what the files to send need, for each target directory of its own."""
    rooms = {target.base: target.room for target in targets}
    missing = {base: sum(one.size - one.have for one in plan.send if one.base == base) for base in rooms}
    return [
        SpaceNeed(f"the files in {room.path}", missing[base], room) for base, room in rooms.items() if missing[base]
    ]


def find_disk_shortage(needs: Sequence[SpaceNeed]) -> list[tuple[SpaceNeed, int]]:
    """Return what does not fit and the missing bytes; items on one filesystem share its free space."""
    left: dict[object, int] = {}
    lacking = []
    for need in needs:
        if need.room.free is None or not need.size:
            continue
        key = need.room.device if need.room.device is not None else need.room.path
        free = left.get(key, need.room.free - RESERVED_BYTES)
        left[key] = free - need.size
        if left[key] < 0:
            lacking.append((need, -left[key]))
    return lacking


@dataclass(slots=True)
class TransferRate:
    """The rate of the last seconds and the time until the end."""

    total: int | None
    seen: list[tuple[float, int]] = field(init=False, default_factory=list)

    def add_sample(self, now: float, done: int) -> tuple[float | None, float | None]:
        """Return bytes per second and the remaining seconds; None where not known yet."""
        self.seen.append((now, done))
        while len(self.seen) > 2 and now - self.seen[0][0] > _RATE_SECONDS:
            del self.seen[0]
        first, before = self.seen[0]
        if now - first < 0.5 or done <= before:
            return None, None
        rate = (done - before) / (now - first)
        return rate, None if self.total is None else max(0.0, self.total - done) / rate


def format_file_count(count: int, size: int) -> str:
    """Return for example ``14 files, 34.2 GiB``."""
    amount = f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / MIB:.1f} MiB"
    return f"{count} file{'' if count == 1 else 's'}, {amount}"
