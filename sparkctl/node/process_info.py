"""Processes and files in /dev/shm from a node inspection: enough to say what outlived a container."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from sparkctl.model.text.units import KIB

_TICKS_PER_SECOND = 100  # ticks per second in /proc/PID/stat on every Linux: USER_HZ
_STAT_PATTERN = re.compile(
    r"^(\d+) \((.*)\) (\S) (\d+) (?:\S+ ){17}(\d+)", re.MULTILINE
)  # pid, name, state, parent, start
_CMDLINE_PATTERN = re.compile(r"^/proc/(\d+)/cmdline:(.*)$", re.MULTILINE)
_BLOCK_BYTES = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessInfo:
    """A process. ``start`` in ticks since boot: with the pid it identifies one process. ``born`` in unix seconds,
    ``resident`` its own bytes, ``words`` the beginning of its command line.
    """

    pid: int
    parent: int
    start: int
    name: str
    is_alive: bool
    words: tuple[str, ...] = ()
    born: float | None = None
    resident: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedMemoryFile:
    """A file in /dev/shm. ``inode`` is (device, number); ``size`` its bytes; ``born`` unix seconds, None if the kernel
    does not say. ``users``: the pids known to have it mapped or open.
    """

    path: str
    inode: tuple[int, int]
    owner: int
    size: int
    born: float | None
    users: frozenset[int] = frozenset()


def parse_processes(body: str | None, commands: str | None, resident: str | None) -> tuple[ProcessInfo, ...] | None:
    """Return the processes of a node, None if not reported."""
    if body is None:
        return None
    words: dict[int, list[str]] = {}
    for pid, word in _CMDLINE_PATTERN.findall(commands or ""):
        words.setdefault(int(pid), []).append(word.strip())
    boot = re.search(r"^btime (\d+)$", body, re.MULTILINE)
    own = {} if resident is None else parse_anonymous_memory(resident)
    return tuple(
        ProcessInfo(
            pid=int(pid),
            parent=int(parent),
            start=int(start),
            name=name,
            is_alive=state not in "ZXx",  # a zombie holds no memory
            words=tuple(filter(None, words.get(int(pid), ()))),
            born=int(boot[1]) + int(start) / _TICKS_PER_SECOND if boot else None,
            resident=own.get(int(pid)),
        )
        for pid, name, state, parent, start in _STAT_PATTERN.findall(body)
    )


def parse_anonymous_memory(resident: str) -> dict[int, int]:
    """Return the anonymous memory of each process, in bytes."""
    found = re.findall(r"/proc/(\d+)/status:RssAnon:\s+(\d+)", resident)
    return {int(pid): int(kib) * KIB for pid, kib in found}


def parse_shared_memory(body: str | None) -> tuple[SharedMemoryFile, ...] | None:
    """Return the files in /dev/shm and their known users, None if not reported."""
    if body is None:
        return None
    users: dict[tuple[int, int], set[int]] = {}
    for pid, major, minor, number in re.findall(
        r"^/proc/(\d+)/maps:([0-9a-f]+):([0-9a-f]+) (\d+) ", body, re.MULTILINE
    ):
        device = os.makedev(int(major, 16), int(minor, 16))
        users.setdefault((device, int(number)), set()).add(int(pid))
    for number_of_device, number, pid in re.findall(r"^open (\d+) (\d+) /proc/(\d+)/fd/", body, re.MULTILINE):
        users.setdefault((int(number_of_device), int(number)), set()).add(int(pid))
    found = []
    for one in re.findall(r"^file (\d+) (\d+) (\d+) (\d+) (\S+) (/dev/shm/.*)$", body, re.MULTILINE):
        inode, born = (int(one[0]), int(one[1])), one[4]
        since = float(born) if born.isdigit() and int(born) else None  # stat prints 0 or - if not known
        users_ = frozenset(users.get(inode, ()))
        found.append(
            SharedMemoryFile(
                path=one[5], inode=inode, owner=int(one[2]), size=int(one[3]) * _BLOCK_BYTES, born=since, users=users_
            )
        )
    return tuple(found)
