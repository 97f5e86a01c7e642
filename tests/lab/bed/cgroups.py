"""The cgroups of a node: a handle on every process in it, and what Docker hangs its containers under."""

from __future__ import annotations

import contextlib
import os
import signal
from functools import partial
from pathlib import Path

from tests.lab.bed.names import CGROUP
from tests.lab.bed.shell import await_true

ROOT = Path("/sys/fs/cgroup")
DAEMONS = "daemons"  # a leaf of its own: cgroup v2 allows processes in leaves only


def list_hierarchies() -> list[Path]:
    """Return the root of every mounted hierarchy: one for cgroup v2, one per controller for v1."""
    if (ROOT / "cgroup.procs").exists():
        return [ROOT]
    found = (path.parent.resolve() for path in ROOT.glob("*/cgroup.procs"))
    return sorted(set(found))


def create_cgroups(node: str) -> None:
    """Make the node's cgroups in every hierarchy."""
    for root in list_hierarchies():
        for path in (root / CGROUP, root / CGROUP / node, root / CGROUP / node / DAEMONS):
            path.mkdir(exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):  # v1 leaves these empty, and an empty set takes no process
                if (path / name).exists() and not (path / name).read_text().strip():
                    (path / name).write_text((path.parent / name).read_text())


def join_cgroups(node: str) -> None:
    """Move the calling process into the node's cgroups (nsenter does not)."""
    for root in list_hierarchies():
        with contextlib.suppress(OSError):
            (root / CGROUP / node / DAEMONS / "cgroup.procs").write_text("0")


def list_processes(node: str) -> set[int]:
    """Return the host pids of everything that runs in the node, its containers included."""
    while True:
        with contextlib.suppress(FileNotFoundError):  # a container's cgroup went while we looked: look again
            return _read_processes(node)


def _read_processes(node: str) -> set[int]:
    pids: set[int] = set()
    for root in list_hierarchies():
        for path in (root / CGROUP / node).rglob("cgroup.procs"):
            with contextlib.suppress(OSError):
                pids.update(int(line) for line in path.read_text().split())
    return pids


def kill_all(node: str) -> None:
    """End every process of the node and return when the last is gone."""

    def gone() -> bool:
        thaw(node)  # a paused container of a run that was cut off: under cgroup v1 it hears no SIGKILL
        left = list_processes(node)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left

    await_true(f"the processes of {node} to end", gone)


def thaw(node: str) -> None:
    """Let everything in the node go on that Docker has paused."""
    for root in list_hierarchies():
        for name, word in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
            for path in (root / CGROUP / node).rglob(name):
                with contextlib.suppress(OSError):  # its container went meanwhile
                    path.write_text(word)


def remove_cgroups() -> None:
    """Remove the lab's cgroups, deepest first."""
    for root in list_hierarchies():
        top = root / CGROUP
        inside = sorted((p for p in top.rglob("*") if p.is_dir()), key=lambda p: -len(p.parts))
        for path in (*inside, top):
            await_true(f"{path} to be empty", partial(_rmdir, path), 5.0)


def _rmdir(path: Path) -> bool:
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
