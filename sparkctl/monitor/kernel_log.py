"""The kernel's log of a node: read once by a program of its own, or followed with the samples."""

from __future__ import annotations

import time
from collections import deque

from sparkctl.errors import NodeError
from sparkctl.model.finding import Severity
from sparkctl.model.kernel_event import KernelEvent, KernelEventKind, KernelLog
from sparkctl.model.sample import Sample
from sparkctl.node import bootstrap
from sparkctl.node.kernel_log_decoder import decode_kernel_lines, decode_kernel_log
from sparkctl.transport.node_connection import OutputTooLong
from sparkctl.transport.node_session import NodeSession

_TIMEOUT_SECONDS = 10.0
_BOOT_BEFORE_TIMEOUT_SECONDS = 60.0
_MAX_EVENTS = 200
_NEWS_SECONDS = 30.0  # seconds before the first sample from which on an event is news
READ_RIGHT_REMEDY = (
    "sudo usermod -aG adm $USER on the node, then log in again; or for all users: sudo sysctl kernel.dmesg_restrict=0"
)


async def read_kernel_log(session: NodeSession, *, boot_before: bool = False) -> KernelLog | None:
    """Return what the kernel logged since boot, with ``boot_before`` also how the boot before ended.

    None where the program does not run there, or does not answer in time. Raises `NodeError` for a lost connection.
    """
    node = session.node
    program = bootstrap.build_kernel_log_program(boot_before=boot_before, is_local=node.is_local)
    timeout = _BOOT_BEFORE_TIMEOUT_SECONDS if boot_before else _TIMEOUT_SECONDS
    try:
        done = await session.link.run(program.argv, stdin=program.stdin, timeout=timeout)
        return decode_kernel_log(done.stdout)
    except (TimeoutError, OutputTooLong, ValueError):
        return None


async def read_kernel_log_if_possible(session: NodeSession) -> KernelLog | None:
    """Return the same; None also where the node does not answer."""
    try:
        return await read_kernel_log(session)
    except NodeError:
        return None


class KernelHistory:
    """The events of one node, from samples, of this boot; the latest last. An agent that starts again sends old events
    again: they count once.
    """

    def __init__(self) -> None:
        self.events: deque[KernelEvent] = deque(maxlen=_MAX_EVENTS)
        self.trouble: str | None = None
        self._boot: str | None = None
        self._news_from: float | None = None
        self._known: set[tuple[float, str]] = set()

    def add_sample(self, sample: Sample, boot: str | None) -> tuple[KernelEvent, ...]:
        """Add the events of a sample; return those that are news: logged since sparkctl looks."""
        if boot != self._boot:
            self._boot, self._news_from = boot, None
            self._known.clear()
            self.events.clear()
        if self._news_from is None:
            self._news_from = sample.uptime - _NEWS_SECONDS
        if sample.kernel is None:
            return ()
        self.trouble = sample.kernel.trouble
        lines = [line for line in sample.kernel.lines if (line.at, line.text) not in self._known]
        if len(self._known) > 4 * _MAX_EVENTS:
            self._known.clear()
        self._known.update((line.at, line.text) for line in lines)
        began = sample.time - sample.uptime
        found = decode_kernel_lines(lines, lambda at: began + at)
        self.events += found
        news = self._news_from + began
        return tuple(one for one in found if one.at >= news and is_worth_a_line(one))


def is_worth_a_line(event: KernelEvent) -> bool:
    """Tell whether an operator who was away wants to see it."""
    return event.severity in (Severity.WARNING, Severity.PROBLEM) or event.kind is KernelEventKind.DRIVER_MEMORY


def format_log_start(log: KernelLog) -> str:
    """Return from when on the log is complete, in words."""
    return "boot" if log.oldest is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(log.oldest))
