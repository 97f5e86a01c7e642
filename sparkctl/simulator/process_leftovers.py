"""What a simulated node shows of its processes and its /dev/shm, and what engines leave there when they are killed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkctl.engines.simulation.unified_memory import KIB

if TYPE_CHECKING:
    from sparkctl.simulator.sim_node import SimNode

UNLINK_SCRIPT_MARKER = "# sparkctl unlink 1"
TMPFS_DEVICE = 27  # 0:1b, of the tmpfs
ORPHAN_TITLE = "VLLM::EngineCore"
SHARED_MEMORY_BYTES = 96 * 1024 * KIB  # bytes that an engine with ipc=host shares between its processes


@dataclass(slots=True)
class SimShmFile:
    """A file in /dev/shm; ``users`` are pids."""

    inode: int
    size: int
    born: float
    users: set[int] = field(default_factory=set)


@dataclass(slots=True)
class ProcessLeftovers:
    """What outlives containers. ``lost``: titles of processes whose parent is gone, by pid. ``sees_maps``: whether the user
    may read what the engines have mapped; those run as root, so mostly not."""

    born: dict[int, float] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)
    files: dict[str, SimShmFile] = field(default_factory=dict)
    sees_maps: bool = False

    def add_shared_memory(self, container: str, pids: list[int], now: float) -> None:
        """Let the processes of a container share a file."""
        path = f"/dev/shm/psm_{container[:8]}"  # noqa: S108
        self.files[path] = SimShmFile(len(self.files) + 40, SHARED_MEMORY_BYTES, now, set(pids))

    def remove_shared_memory(self, container: str, *, litters: bool) -> None:
        """A container has ended, and what it shared goes with it, or stays used by nobody."""
        path = f"/dev/shm/psm_{container[:8]}"  # noqa: S108
        if litters and path in self.files:
            self.files[path].users.clear()
        else:
            self.files.pop(path, None)


def format_processes(node: SimNode) -> list[str]:
    """Return what the look prints of processes."""
    boot = node.unix_time() - node.uptime
    titles = dict.fromkeys(node.processes, "python3") | node.remains.lost
    rest = " ".join(["0"] * 17)
    stats, words = [], []
    for pid, title in sorted({1: "systemd", **titles}.items()):
        start = round((node.remains.born.get(pid, boot) - boot) * 100)
        stats.append(f"{pid} ({title[:15]}) S {0 if pid == 1 else 1} {rest} {start} 0 0 0")
        words.append(f"/proc/{pid}/cmdline:{title}")
    return ["@@ procs", f"btime {boot:.0f}", *stats, "@@ commands", *words]


def format_shared_memory(node: SimNode) -> list[str]:
    """Return what the look prints of /dev/shm."""
    lines = ["@@ shm"]
    for path, one in sorted(node.remains.files.items()):
        lines.append(f"file {TMPFS_DEVICE} {one.inode} 0 {one.size // 512} {one.born:.0f} {path}")
        if node.remains.sees_maps:
            lines += [f"/proc/{pid}/maps:00:{TMPFS_DEVICE:x} {one.inode}   {path}" for pid in sorted(one.users)]
    return lines


def remove_shared_files(node: SimNode, words: list[str]) -> str:
    """Do what `node/remove_shared_memory.sh` does."""
    for identity, path in zip(words[::2], words[1::2], strict=False):
        one = node.remains.files.get(path)
        if one is not None and identity == f"{TMPFS_DEVICE}:{one.inode}":
            del node.remains.files[path]
    return ""
