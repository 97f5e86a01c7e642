"""Copies a model's files: requested by number, written next to their names, verified by checksums, then moved into
place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from sparkctl.clock import Clock
from sparkctl.commands.transfer.transfer_plan import (
    FileTransfer,
    SymbolicLink,
    TransferPlan,
    TransferRate,
    resolve_doubtful_files,
)
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
from sparkctl.model.node import NodeName
from sparkctl.transport.node_session import NodeSession

_MAX_STREAMS = 8  # one stream is limited by one core for TLS and checksums, about 0.6 GB/s
_CHECKSUM_TIMEOUT_SECONDS = 60.0  # seconds without a message; an end reports progress every few seconds
_PROGRESS_SECONDS = 0.5  # seconds between two progress reports


class TransferReporter:
    """Emits the progress of a transfer to one node."""

    def __init__(self, clock: Clock, emit: Emit, source: NodeName, target: NodeName, name: str) -> None:
        self.clock, self.emit, self.source, self.target, self.name = clock, emit, source, target, name
        self._pace = TransferRate(None, [])
        self._what = ""
        self._told_at = 0.0

    def begin_item(self, what: str, total: int | None, done: int = 0) -> None:
        """Begin a new item."""
        self._pace, self._what, self._told_at = TransferRate(total, []), what, 0.0
        self.report_progress(done)

    def report_progress(self, done: int, *, is_last: bool = False, parts: Sequence[TransferPart] = ()) -> None:
        """Report the bytes that have arrived."""
        now = self.clock.monotonic()
        rate, left = self._pace.add_sample(now, done)
        if is_last or self._told_at == 0.0 or now - self._told_at >= _PROGRESS_SECONDS:
            self._told_at = now
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

    def warn(self, words: str, hint: str | None = None) -> None:
        """Emit a warning."""
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
    held = await start_transfer_program(session, {"role": "sum", "files": list(files)})
    done = 0
    try:
        while line := await asyncio.wait_for(held.readline(), _CHECKSUM_TIMEOUT_SECONDS):
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
        await held.release()
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
            progress.target, f"what arrived of {', '.join(broken[:3])} is not what was sent; it was deleted",
            "repeat the command to send it again; if it happens again, look at the cable and the memory of both",
        )  # fmt: skip
