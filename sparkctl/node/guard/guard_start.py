"""Start the guard as a process of its own: in the background, with locked memory, after one line on stdout.

Sent to the node with the guard: standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal

from sparkctl.node.agent import AGENT_PROTOCOL, read_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Json = dict[str, Any]


def daemonize(task: Callable[[Callable[[], None]], None]) -> None:
    """Run ``task`` in a new process and session; the caller waits until the task calls its argument, or ends."""
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    os.close(reader)
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    os.umask(0o077)
    os.chdir("/")
    task(lambda: os.close(writer) if os.write(writer, b".") else None)


def redirect_streams(log: str) -> None:
    """Detach from the terminal's streams; later errors go to ``log``."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    errors = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    for fd, target in ((0, nowhere), (1, nowhere), (2, errors)):
        os.dup2(target, fd)


def lock_memory() -> bool:
    """Lock the process's memory, and keep it from waiting for memory, as far as permitted."""
    import ctypes
    import resource

    libc = ctypes.CDLL(None, use_errno=True)
    with contextlib.suppress(AttributeError):
        libc.prctl(15, b"sparkctl-guard", 0, 0, 0)  # PR_SET_NAME: what ps and top show
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    with contextlib.suppress(OSError):
        set_oom_score()
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (hard, hard))
    powers = re.search(rb"^CapEff:\s+(\w+)", read_file("/proc/self/status") or b"", re.MULTILINE)
    may_lock = powers is not None and int(powers.group(1), 16) >> 14 & 1  # CAP_IPC_LOCK
    is_unlimited = may_lock or hard == resource.RLIM_INFINITY or hard > 1 << 29
    flags = 3 if is_unlimited else 1  # MCL_CURRENT, and MCL_FUTURE only where growing cannot then fail
    return bool(libc.mlockall(flags) == 0)


def set_oom_score() -> None:
    """Tell the kernel not to choose this process when memory runs out."""
    fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, b"-1000")
    finally:
        os.close(fd)


def print_start_line(place: str, pid: int | None, already: bool) -> None:
    """Print the one line of stdout."""
    write_line({"kind": "guard", "socket": place + "/guard.sock", "pid": pid, "already": already})


def write_line(message: Json) -> None:
    """Write a line to stdout."""
    line = (
        json.dumps(dict({"probe": AGENT_PROTOCOL}, **message), separators=(",", ":")).encode("ascii", "replace") + b"\n"
    )
    with contextlib.suppress(OSError):  # nobody reads any more, but the guard is needed all the same
        os.write(1, line)
