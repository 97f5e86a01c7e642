"""Whether what a container held has been given back: who outlived it, what it left in /dev/shm, what is missing. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from sparkctl.model.memory_reading import MemoryBeforeStart
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.secrets import redact_words
from sparkctl.model.text.units import GIB, MIB, format_size
from sparkctl.node.node_inspection import NodeInspection
from sparkctl.node.process_info import ProcessInfo, SharedMemoryFile

# The titles that engines' processes give themselves, and Ray's own programs; nothing that somebody types.
_ENGINE_PROCESS_PATTERN = re.compile(r"VLLM::|vllm::|sglang::|ray::|raylet$|gcs_server$")
# As torch, Python's multiprocessing, NCCL and the engines call what they share.
_SHM_NAME_PATTERN = re.compile(r"(psm_|sem\.mp-|sem\.loky|loky-|torch_|nccl-|vllm|sglang|cuda\.shm|plasma)")
_ADOPTING_PROCESS = "systemd"  # a user's own takes in what has lost its parent
_MAX_TITLE_LENGTH = 60
_CLOCK_SLACK_SECONDS = 1.0  # seconds by which the kernel's stamps may be early: they are rounded down
_MEMORY_TOLERANCE_BYTES = 2 * GIB  # MemAvailable wanders by as much while nothing happens to engines
_MIN_SHM_BYTES = 16 * MIB


@dataclass(frozen=True, slots=True)
class Leftover:
    """Something that is left. ``what`` names it, ``size`` is in bytes (None: not known), ``remedy`` a command on the node."""

    what: str
    size: int | None
    remedy: str
    counts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFootprint:
    """A container as it was just before it was stopped: its processes as (pid, start), since when it ran by the node's
    clock, the files in /dev/shm that they had mapped, and whether it shared the node's /dev/shm."""

    container: str
    processes: frozenset[tuple[int, int]] = frozenset()
    started: float | None = None
    files: frozenset[tuple[int, int]] = frozenset()
    shares_shm: bool = False
    held: int | None = None


def capture_footprint(
    container: str, started: float | None, look: NodeInspection, *, shares_shm: bool
) -> ContainerFootprint:
    """Return what a look shows of a container that is about to be stopped."""
    pids = {pid for pid, own in (look.pids or {}).items() if own == container}
    processes = frozenset((one.pid, one.start) for one in look.procs or () if one.pid in pids)
    files = frozenset(one.inode for one in look.shm or () if one.users & pids) if shares_shm else frozenset()
    return ContainerFootprint(
        container=container,
        processes=processes,
        started=started,
        files=files,
        shares_shm=shares_shm,
        held=look.get_container_memory(container),
    )


def find_surviving_processes(was: ContainerFootprint, now: NodeInspection) -> tuple[Leftover, ...]:
    """Return the processes of a container that outlived it, the largest first.

    Certain are those that it had before (the same pid with another start is another process) and those that the kernel
    still counts as its. An engine's process in no container, that has lost its parent and began after the container, is
    taken for one of its: nobody else looks after it.
    """
    names = {one.pid: one.name for one in now.procs or ()}
    found = []
    for one in now.procs or ():
        if not one.is_alive:
            continue
        own = (now.pids or {}).get(one.pid)
        is_certain = (one.pid, one.start) in was.processes or own == was.container
        if is_certain or (own is None and _is_orphaned_engine(one, names) and _started_after_container(one, was)):
            found.append((one, (now.gpu or {}).get(one.pid, 0) + (one.resident or 0), is_certain))
    return tuple(
        Leftover(
            f"process {one.pid} ({format_process_title(one)}), which {'outlived it' if is_certain else 'belongs to no container'}",
            held or None,
            f"sudo kill {one.pid}   (kill -9 if it stays)",
        )
        for one, held, is_certain in sorted(found, key=lambda each: -each[1])
    )


def _is_orphaned_engine(one: ProcessInfo, names: dict[int, str]) -> bool:
    """Tell whether it is an engine's process by its title and has lost its parent."""
    program = PurePosixPath(one.words[0]).name if one.words else one.name
    adopted = one.parent <= 1 or one.parent not in names or names[one.parent] == _ADOPTING_PROCESS
    return adopted and _ENGINE_PROCESS_PATTERN.match(program) is not None


def _started_after_container(one: ProcessInfo, was: ContainerFootprint) -> bool:
    return one.born is not None and was.started is not None and one.born >= was.started - _CLOCK_SLACK_SECONDS


def format_process_title(one: ProcessInfo) -> str:
    """Return the head of a process' command line, secrets in it masked."""
    words = sanitize_line(" ".join(redact_words(one.words)) or one.name)
    return words if len(words) <= _MAX_TITLE_LENGTH else words[: _MAX_TITLE_LENGTH - 1] + "…"


def find_leftover_shm_files(
    was: ContainerFootprint, now: NodeInspection
) -> tuple[tuple[SharedMemoryFile, ...], tuple[SharedMemoryFile, ...]]:
    """Return the files that a container left in /dev/shm: those that are its for certain, and those that seem to be.

    All are younger than it and used by nobody who is seen. For certain: it had them mapped. They seem so: the engines'
    libraries call them such names, and no other container shared this directory meanwhile, which the caller knows.
    """
    if not was.shares_shm or was.started is None:
        return (), ()
    unused = [
        one
        for one in now.shm or ()
        if not one.users and one.born is not None and one.born >= was.started - _CLOCK_SLACK_SECONDS
    ]
    certain = tuple(one for one in unused if one.inode in was.files)
    likely = tuple(
        one
        for one in unused
        if one not in certain and _SHM_NAME_PATTERN.match(PurePosixPath(one.path).name) is not None
    )
    return certain, likely


def summarize_shm_files(files: Iterable[SharedMemoryFile]) -> tuple[Leftover, ...]:
    """Return files in /dev/shm as one thing that is left; a few semaphores are told and no reason to worry."""
    import shlex

    paths = sorted(files, key=lambda one: -one.size)
    if not paths:
        return ()
    total = sum(one.size for one in paths)
    names = [sanitize_line(PurePosixPath(one.path).name) for one in paths[:3]]
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    remove = shlex.join(["sudo", "rm", "--", *(sanitize_line(one.path) for one in paths[:8])])
    what = f"{', '.join(names)}{more} in /dev/shm, in use by nobody"
    return (Leftover(what, total, remove, counts=total >= _MIN_SHM_BYTES),)


def compute_missing_memory(before: MemoryBeforeStart | None, now: NodeInspection, own: int | None) -> int | None:
    """Return how much less is available than before the start, what processes hold more by now taken off.

    ``own``: what it held or was to hold; no more than that can be its. None: not known; 0: as much as before, or nearly.
    """
    if before is None or now.memory is None:
        return None
    grown = 0 if before.held is None or now.everybody is None else max(0, now.everybody - before.held)
    short = max(0, before.available - now.memory.available - grown)
    short = short if own is None else min(short, own)
    return 0 if short <= max(_MEMORY_TOLERANCE_BYTES, (own or 0) // 20) else short


def describe_leftover(one: Leftover) -> str:
    """Return ``process 812 (VLLM::EngineCore), which outlived it: 11.0 GiB``."""
    return one.what if one.size is None else f"{one.what}: {format_size(one.size)}"
