"""Checks that a stopped container's resources are released: memory, surviving processes, files in /dev/shm."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import PurePosixPath

from sparkctl.context import CommandContext
from sparkctl.engines import collect_engine_words
from sparkctl.errors import ContainerNotFound
from sparkctl.model.container import Container
from sparkctl.model.events import Emit, MemorySampled, WarningEmitted
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.sample import MemoryBeforeStart
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.secrets import redact_words
from sparkctl.model.text.units import GIB, MIB, format_gib, format_size
from sparkctl.node import build_script_command, read_node_script
from sparkctl.node.node_inspection import NodeInspection, ProcessInfo, SharedMemoryFile
from sparkctl.profiles.container_labels import parse_expected_memory_label
from sparkctl.transport.node_session import NodeSession

_RAY_PROGRAMS = ("raylet", "gcs_server")
# As torch, Python's multiprocessing, NCCL and Ray name their shared memory.
_SHM_NAMES = ("psm_", "sem.mp-", "sem.loky", "loky-", "torch_", "nccl-", "cuda.shm", "plasma")
_ADOPTING_PROCESS = "systemd"  # a user's own init adopts processes without a parent
_MAX_TITLE_LENGTH = 60
# Seconds by which a birth may seem older than its container's start: the kernel tells when it booted in whole seconds, from
# which births of processes are counted; Docker stamps a start a moment after it.
_PROCESS_BIRTH_SLACK, _FILE_BIRTH_SLACK = 1.0, 0.2
_FIRST_PID = 1  # init, which root owns and everybody sees
_MEMORY_TOLERANCE_BYTES = 2 * GIB  # MemAvailable varies by this much while no engine changes
_MIN_SHM_BYTES = 16 * MIB


@dataclass(frozen=True, slots=True)
class Leftover:
    """Something that was not released. ``what`` names it, ``size`` in bytes (None: not known), ``remedy``: a command
    for the node.
    """

    what: str
    size: int | None
    remedy: str
    counts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFootprint:
    """A container just before its stop: its processes as (pid, start time), when it started by the node's clock, the
    files in /dev/shm that they had mapped, and whether it shared the node's /dev/shm.
    """

    container: str
    processes: frozenset[tuple[int, int]] = frozenset()
    started: float | None = None
    files: frozenset[tuple[int, int]] = frozenset()
    shares_shm: bool = False
    held: int | None = None


def capture_footprint(
    container: str, started: float | None, inspection: NodeInspection, *, shares_shm: bool
) -> ContainerFootprint:
    """Return the footprint of a container that is about to be stopped."""
    pids = {pid for pid, own in (inspection.pids or {}).items() if own == container}
    processes = frozenset((one.pid, one.start) for one in inspection.procs or () if one.pid in pids)
    files = frozenset(one.inode for one in inspection.shm or () if one.users & pids) if shares_shm else frozenset()
    return ContainerFootprint(
        container=container,
        processes=processes,
        started=started,
        files=files,
        shares_shm=shares_shm,
        held=inspection.get_container_memory(container),
    )


def find_surviving_processes(was: ContainerFootprint, now: NodeInspection) -> tuple[Leftover, ...]:
    """Return the processes of a container that outlived it, the largest first.

    Certain are those that it had before (the same pid with another start time is another process) and those that the
    kernel still counts as its own. An engine's process without a container and without a parent, younger than the
    container, is assumed to be one of its own: nothing else takes care of it.
    """
    names = {one.pid: one.name for one in now.procs or ()}
    found = []
    for one in now.procs or ():
        if not one.is_alive:
            continue
        own = (now.pids or {}).get(one.pid)
        is_certain = (one.pid, one.start) in was.processes or own == was.container
        is_later = one.born is not None and was.started is not None and one.born >= was.started - _PROCESS_BIRTH_SLACK
        if is_certain or (own is None and is_later and _is_orphaned_engine(one, names)):
            on_gpu = (now.gpu or {}).get(one.pid, 0)
            found.append((one, None if on_gpu is None else on_gpu + (one.resident or 0), is_certain))
    return tuple(
        Leftover(
            f"process {one.pid} ({format_process_title(one)}), which {'outlived it' if is_certain else 'belongs to no container'}",
            memory or None,
            f"sudo kill {one.pid}   (kill -9 if it stays)",
        )
        for one, memory, is_certain in sorted(found, key=lambda each: -(each[1] or 0))
    )


def _is_orphaned_engine(one: ProcessInfo, names: dict[int, str]) -> bool:
    """Tell whether it is an engine's process by its title and has lost its parent."""
    program = PurePosixPath(one.words[0]).name if one.words else one.name
    adopted = one.parent <= 1 or one.parent not in names or names[one.parent] == _ADOPTING_PROCESS
    titles = ("ray::", *collect_engine_words("process_titles"))
    return adopted and (program in _RAY_PROGRAMS or program.startswith(titles))


def format_process_title(one: ProcessInfo) -> str:
    """Return the start of a process's command line, secrets in it masked."""
    words = sanitize_line(" ".join(redact_words(one.words)) or one.name)
    return words if len(words) <= _MAX_TITLE_LENGTH else words[: _MAX_TITLE_LENGTH - 1] + "…"


def find_leftover_shm_files(
    was: ContainerFootprint, now: NodeInspection
) -> tuple[tuple[SharedMemoryFile, ...], tuple[SharedMemoryFile, ...]]:
    """Return the files that a container left in /dev/shm: those that are certainly its own, and those that probably
    are.

    All are younger than the container and not mapped by any visible process. Certain: the container had them mapped.
    Probable: they have a name as the engines' libraries give it, and no other container shared this directory
    meanwhile (the caller knows that).
    """
    if not was.shares_shm or was.started is None:
        return (), ()
    unused = [
        one
        for one in now.shm or ()
        if not one.users and one.born is not None and one.born >= was.started - _FILE_BIRTH_SLACK
    ]
    certain = tuple(one for one in unused if one.inode in was.files)
    names = (*_SHM_NAMES, *collect_engine_words("shm_names"))
    likely = tuple(one for one in unused if one not in certain and PurePosixPath(one.path).name.startswith(names))
    return certain, likely


def summarize_shm_files(files: Iterable[SharedMemoryFile]) -> tuple[Leftover, ...]:
    """Return files in /dev/shm as one leftover; a few semaphores are reported and count as harmless."""
    import shlex

    paths = sorted(files, key=lambda one: -one.size)
    if not paths:
        return ()
    total = sum(one.size for one in paths)
    names = [sanitize_line(PurePosixPath(one.path).name) for one in paths[:3]]
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    remove = shlex.join(["sudo", "rm", "--", *(sanitize_line(one.path) for one in paths[:8])])
    what = f"{', '.join(names)}{more} in /dev/shm, not in use"
    return (Leftover(what, total, remove, counts=total >= _MIN_SHM_BYTES),)


def compute_missing_memory(before: MemoryBeforeStart | None, now: NodeInspection, own: int | None) -> int | None:
    """Return how much less memory is available than before the start, minus what other processes took meanwhile.

    ``own``: the memory that it held or was to hold, the upper bound of the result. None: not known; 0: as much as
    before, or nearly.
    """
    if before is None or now.memory is None:
        return None
    others = None if now.everybody is None else now.everybody - count_unowned_gpu_bytes(now)
    grown = 0 if before.held is None or others is None else max(0, others - before.held)
    short = max(0, before.available - now.memory.available - grown)
    short = short if own is None else min(short, own)
    return 0 if short <= max(_MEMORY_TOLERANCE_BYTES, (own or 0) // 20) else short


def count_unowned_gpu_bytes(now: NodeInspection) -> int:
    """Return the bytes that the GPU still counts for processes that have ended: the driver frees them later than the processes.

    0 where not every process is to be seen (``hidepid``): then no one can tell an ended process from another user's.
    """
    alive = {one.pid for one in now.procs or () if one.is_alive}
    if _FIRST_PID not in alive:
        return 0
    known = alive | set(now.pids or {})
    return sum(memory or 0 for pid, memory in (now.gpu or {}).items() if pid not in known)


def describe_leftover(one: Leftover) -> str:
    """Return for example ``process 812 (VLLM::EngineCore), which outlived it: 11.0 GiB``."""
    return one.what if one.size is None else f"{one.what}: {format_size(one.size)}"


MIN_REPORTED_BYTES = GIB
MIN_AWAITED_BYTES = 256 * MIB
_PLATEAU_BYTES = 512 * MIB  # two readings closer than this count as stable
_POLL_SECONDS = 1.5
_PLATEAU_READINGS = 2
_RELEASE_TIMEOUT_SECONDS = 60.0  # unified memory can take this long after a kill
_PROCESS_EXIT_SECONDS = 10.0  # a process that lives this long after its container has ended will not end by itself
_NODE_SECTIONS = ("memory", "processes", "gpu", "procs")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseResult:
    """The result of a release check in bytes, None where it could not be measured. ``missing`` is 0 if everything was
    released.
    """

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
        """Tell whether nothing significant is known to be left."""
        return (self.missing or 0) <= MIN_REPORTED_BYTES and not any(one.counts for one in self.left)


class ReleaseCheck:
    """The check of one container: `measure_before` before it is stopped, `wait_until_released` after."""

    def __init__(self, session: NodeSession, ctx: CommandContext, emit: Emit, container: Container) -> None:
        self._session, self._ctx, self._emit, self._container = session, ctx, emit, container
        self._was = ContainerFootprint(container=container.id)
        self._before = NodeInspection()
        self._start: MemoryBeforeStart | None = None

    async def measure_before(self) -> None:
        """Measure what the container has and holds now; after its end that is no longer known."""
        now = self._container
        if now.shares_shm is None:  # as Docker's list has it
            with contextlib.suppress(ContainerNotFound):
                now = await self._session.docker.inspect_container(now.id)
        started, shares = now.started, bool(now.shares_shm)
        self._before = await self._session.read_node(*_NODE_SECTIONS, *(["shm"] if shares else []))
        self._was = capture_footprint(self._container.id, started, self._before, shares_shm=shares)
        instance = self._container.instance_name
        self._start = self._ctx.history.load_memory_before(instance, self._session.node.name, self._container.id)

    async def wait_until_released(self, tell: Callable[[str], None]) -> ReleaseResult:
        """Wait until everything is released, or until waiting does not help; ``tell`` gets the progress."""
        freed, missing, left, after = await self._wait_for_memory(tell)
        if self._was.shares_shm:
            left += await self._remove_shared_memory(after)
        before = None if self._start is None else self._start.available
        return ReleaseResult(freed=freed, missing=missing, left=left, before_start=before, after=after)

    async def _wait_for_memory(
        self, tell: Callable[[str], None]
    ) -> tuple[int | None, int | None, tuple[Leftover, ...], NodeInspection]:
        """Read MemAvailable until what was held is back and it is close to its value before the start.

        The amount that was held is known: only its return ends the wait, or the time limit (unified memory can come
        back a minute after its process). What is missing compared with the start may belong to others: two readings
        without a change end that wait, unless the GPU still counts memory of a process that has ended.
        """
        clock, memory_before = self._ctx.clock, self._was.held
        expected = parse_expected_memory_label(self._container)
        own = max(memory_before or 0, expected or 0) or None
        began, still = clock.monotonic(), 0
        sections = (*_NODE_SECTIONS, *(["shm"] if self._was.shares_shm else []))
        after = await self._session.read_node(*sections)
        while True:
            left = find_surviving_processes(self._was, after)
            if self._before.memory is None or after.memory is None:
                return None, None, left, after
            freed = after.memory.available - self._before.memory.available
            short = compute_missing_memory(self._start, after, own)
            lacking = None if memory_before is None else max(0, memory_before - freed)
            is_back = (
                lacking is not None
                and memory_before is not None
                and (memory_before < MIN_AWAITED_BYTES or lacking < memory_before // 10)
            )
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
            if memory_before is not None:
                tell(f"{format_gib(max(0, freed))} of {format_gib(memory_before)} back")
            last = after.memory.available
            await clock.sleep(_POLL_SECONDS)
            after = await self._session.read_node(*sections)
            may_settle = (memory_before is None or is_back) and not count_unowned_gpu_bytes(after)
            settled = may_settle and after.memory is not None and abs(after.memory.available - last) < _PLATEAU_BYTES
            still = still + 1 if settled else 0

    async def _remove_shared_memory(self, after: NodeInspection) -> tuple[Leftover, ...]:
        """Remove the files in /dev/shm that are certainly its own; return those that stay."""
        certain, likely = find_leftover_shm_files(self._was, after)
        if certain:
            argv = [word for one in certain for word in ("{}:{}".format(*one.inode), one.path)]
            script = read_node_script("remove_shared_memory.sh")
            await self._session.run(build_script_command(*argv), stdin=script)
            certain, likely = find_leftover_shm_files(self._was, await self._session.read_node("shm"))
        if likely and await self._is_shared_by_others():
            likely = ()
        return summarize_shm_files([*certain, *likely])

    async def _is_shared_by_others(self) -> bool:
        """Tell whether another running container may own files in /dev/shm."""
        for one in await self._session.docker.list_containers():
            if one.is_alive and one.id != self._container.id:
                with contextlib.suppress(ContainerNotFound):
                    if (await self._session.docker.inspect_container(one.id)).shares_shm:
                        return True
        return False


def _compute_missing_bytes(lacking: int | None, short: int | None, *, is_back: bool) -> int | None:
    """Return what was not released: of the memory that was held, and compared with the start."""
    if lacking is None:
        return short
    return max(0 if is_back else lacking, short or 0)


def build_leftover_warning(
    session: NodeSession, ctx: CommandContext, instance: str, proof: ReleaseResult
) -> WarningEmitted:
    """Return the warning about what an instance left, with the next step."""
    node = session.node.name
    parts = [describe_leftover(one) for one in proof.left]
    remedies = [one.remedy for one in proof.left]
    is_missing = proof.missing is not None and proof.missing > MIN_REPORTED_BYTES
    if is_missing and not any(one.counts for one in proof.left):
        what, remedy = _explain_missing_memory(session, proof.after)
        parts.append(what)
        remedies.append(remedy)
    problem = (
        f"{format_gib(proof.missing)} did not come back on {node}"
        if is_missing
        else f"something of it is left on {node}"
    )
    return WarningEmitted(
        ctx.clock.unix_time(),
        node,
        f"{instance}: {problem}: {'; '.join(parts)}",
        f"on {node}: {'   and: '.join(remedies)}",
    )


def _explain_missing_memory(session: NodeSession, after: NodeInspection) -> tuple[str, str]:
    """Explain missing memory; GPU processes outside any container come first, because they are the usual cause."""
    outside = [
        (pid, memory)
        for pid, memory in sorted((after.gpu or {}).items(), key=lambda p: -(p[1] or 0))
        if pid not in (after.pids or {})
    ]
    if outside:
        pid, memory = outside[0]
        what = f"process {pid} outside any container holds {format_gib(memory)} of GPU memory"
        return what, f"ps -fp {pid}   and, if it is a leftover of the engine: sudo kill {pid}"
    cache = after.memory.page_cache if after.memory else None
    hint = f"ls -lh /dev/shm   and: sparkctl drop-caches --node {session.node.name}"
    return f"no visible process holds it (page cache now {format_gib(cache)})", hint
