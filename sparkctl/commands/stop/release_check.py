"""Proving that what a container held is given back: memory at its plateau, no process that outlived it, no file in /dev/shm."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sparkctl.commands.event_stream import Emit
from sparkctl.commands.stop.container_footprint import (
    ContainerFootprint,
    Leftover,
    capture_footprint,
    compute_missing_memory,
    describe_leftover,
    find_leftover_shm_files,
    find_surviving_processes,
    summarize_shm_files,
)
from sparkctl.context import CommandContext
from sparkctl.errors import ContainerNotFound
from sparkctl.model.container import Container
from sparkctl.model.container_labels import parse_expected_memory_label
from sparkctl.model.events import MemorySampled, WarningEmitted
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.memory_reading import MemoryBeforeStart
from sparkctl.model.text.units import GIB, MIB, format_gib
from sparkctl.node import process_info
from sparkctl.node.node_inspection import NodeInspection
from sparkctl.transport.node_session import NodeSession

MIN_REPORTED_BYTES = GIB
MIN_AWAITED_BYTES = 256 * MIB
_PLATEAU_BYTES = 512 * MIB  # two readings closer than this are a plateau
_POLL_SECONDS = 1.5
_PLATEAU_READINGS = 2
_RELEASE_TIMEOUT_SECONDS = 60.0  # unified memory has been seen to take this long after a kill
_PROCESS_EXIT_SECONDS = 10.0  # a process that lives so long after Docker said that it is gone does not go by itself
_NODE_SECTIONS = ("memory", "processes", "gpu", "procs")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseResult:
    """What became of what a container held; bytes, None where it could not be measured. ``missing`` is 0 if all is back."""

    freed: int | None
    missing: int | None
    left: tuple[Leftover, ...]
    before_start: int | None
    after: NodeInspection

    @property
    def available_bytes(self) -> int | None:
        """MemAvailable at the end."""
        return None if self.after.memory is None else self.after.memory.available

    @property
    def is_complete(self) -> bool:
        """Tell whether nothing is known to be left that matters."""
        return (self.missing or 0) <= MIN_REPORTED_BYTES and not any(one.counts for one in self.left)


class ReleaseCheck:
    """One container's: `begin` before it is stopped, `prove` after."""

    def __init__(self, session: NodeSession, ctx: CommandContext, emit: Emit, container: Container) -> None:
        self._session, self._ctx, self._emit, self._container = session, ctx, emit, container
        self._was = ContainerFootprint(container=container.id)
        self._before = NodeInspection()
        self._start: MemoryBeforeStart | None = None

    async def measure_before(self) -> None:
        """Take what it has and holds now: what cannot be known any more once it has gone."""
        started, shares = None, False
        with contextlib.suppress(ContainerNotFound):
            now = await self._session.docker.inspect_container(self._container.id)
            started, shares = now.started, bool(now.shares_shm)
        self._before = await self._session.read_node(*_NODE_SECTIONS, *(["shm"] if shares else []))
        self._was = capture_footprint(self._container.id, started, self._before, shares_shm=shares)
        instance = self._container.get_label(ContainerLabel.INSTANCE) or self._container.name
        self._start = self._ctx.history.load_memory_before(instance, self._session.node.name, self._container.id)

    async def wait_until_released(self, tell: Callable[[str], None]) -> ReleaseResult:
        """Wait until all is back, or until waiting does not help; ``tell`` hears how much is back so far."""
        freed, missing, left, after = await self._wait_for_memory(tell)
        if self._was.shares_shm:
            left += await self._remove_shared_memory()
        before = None if self._start is None else self._start.available
        return ReleaseResult(freed=freed, missing=missing, left=left, before_start=before, after=after)

    async def _wait_for_memory(
        self, tell: Callable[[str], None]
    ) -> tuple[int | None, int | None, tuple[Leftover, ...], NodeInspection]:
        """Read MemAvailable until what was held is back and it is near what it was before the start.

        What was held is known: only its return ends the wait, or patience (unified memory has been seen to come back a
        minute after its process). Otherwise two pauses without a change are all that can be waited for, as they are for
        what is missing compared with the start: others may have that.
        """
        clock, held = self._ctx.clock, self._was.held
        expected = parse_expected_memory_label(self._container)
        own = max(held or 0, expected or 0) or None
        began, still = clock.monotonic(), 0
        after = await self._session.read_node(*_NODE_SECTIONS)
        while True:
            left = find_surviving_processes(self._was, after)
            if self._before.memory is None or after.memory is None:
                return None, None, left, after
            freed = after.memory.available - self._before.memory.available
            short = compute_missing_memory(self._start, after, own)
            lacking = None if held is None else max(0, held - freed)
            is_back = lacking is not None and held is not None and (held < MIN_AWAITED_BYTES or lacking < held // 10)
            waited = clock.monotonic() - began
            is_over = (
                still >= _PLATEAU_READINGS
                or waited > _RELEASE_TIMEOUT_SECONDS
                or (bool(left) and waited > _PROCESS_EXIT_SECONDS)
            )
            is_near = short == 0 if lacking is None else is_back and not short
            if is_over or (is_near and not left):
                self._emit(MemorySampled(clock.unix_time(), self._session.node.name, after.memory))
                return freed, _compute_missing_bytes(lacking, short, is_back=is_back), left, after
            if held is not None:
                tell(f"{format_gib(max(0, freed))} of {format_gib(held)} back")
            last = after.memory.available
            await clock.sleep(_POLL_SECONDS)
            after = await self._session.read_node(*_NODE_SECTIONS)
            may_settle = held is None or is_back
            settled = may_settle and after.memory is not None and abs(after.memory.available - last) < _PLATEAU_BYTES
            still = still + 1 if settled else 0

    async def _remove_shared_memory(self) -> tuple[Leftover, ...]:
        """Remove what it left in /dev/shm and is its for certain; return what stays there."""
        look = await self._session.read_node("shm")
        certain, likely = find_leftover_shm_files(self._was, look)
        if certain:
            argv = [word for one in certain for word in ("{}:{}".format(*one.inode), one.path)]
            script = (Path(process_info.__file__).parent / "remove_shared_memory.sh").read_bytes()
            await self._session.run(["sh", "-s", "--", *argv], stdin=script)
            certain, likely = find_leftover_shm_files(self._was, await self._session.read_node("shm"))
        if likely and await self._is_shared_by_others():
            likely = ()
        return summarize_shm_files([*certain, *likely])

    async def _is_shared_by_others(self) -> bool:
        """Tell whether what lies in /dev/shm may be of another container that lives."""
        for one in await self._session.docker.list_containers():
            if one.is_alive and one.id != self._container.id:
                with contextlib.suppress(ContainerNotFound):
                    if (await self._session.docker.inspect_container(one.id)).shares_shm:
                        return True
        return False


def _compute_missing_bytes(lacking: int | None, short: int | None, *, is_back: bool) -> int | None:
    """Return what did not come back: of what was held, and compared with the start."""
    if lacking is None:
        return short
    return max(0 if is_back else lacking, short or 0)


def build_leftover_warning(
    session: NodeSession, ctx: CommandContext, instance: str, proof: ReleaseResult
) -> WarningEmitted:
    """Return who still holds what of an instance, with the next step."""
    node = session.node.name
    parts = [describe_leftover(one) for one in proof.left]
    remedies = [one.remedy for one in proof.left]
    is_missing = proof.missing is not None and proof.missing > MIN_REPORTED_BYTES
    if is_missing and not any(one.counts for one in proof.left):
        what, remedy = _explain_missing_memory(session, proof.after)
        parts.append(what)
        remedies.append(remedy)
    lacks = (
        f"{format_gib(proof.missing)} did not come back on {node}"
        if is_missing
        else f"something of it is left on {node}"
    )
    return WarningEmitted(
        ctx.clock.unix_time(),
        node,
        f"{instance}: {lacks}: {'; '.join(parts)}",
        f"on {node}: {'   and: '.join(remedies)}",
    )


def _explain_missing_memory(session: NodeSession, after: NodeInspection) -> tuple[str, str]:
    """Name GPU processes that belong to no container first; they are the usual orphans."""
    outside = [
        (pid, held)
        for pid, held in sorted((after.gpu or {}).items(), key=lambda p: -p[1])
        if pid not in (after.pids or {})
    ]
    if outside:
        pid, held = outside[0]
        what = f"process {pid} outside any container holds {format_gib(held)} of GPU memory"
        return what, f"ps -fp {pid}   and, if it is a leftover of the engine: sudo kill {pid}"
    cache = after.memory.page_cache if after.memory else None
    hint = f"ls -lh /dev/shm   and: sparkctl drop-caches --node {session.node.name}"
    return f"no process is seen that holds it (page cache now {format_gib(cache)})", hint
