"""Reads an instance's log for a screen: from its container, followed through every break, a saved log or a recording.

A subscription is one task of the controller, ended by `close`. It follows and masks the log as the ``logs`` command does,
over the connection that follows the node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

from sparkctl.commands.show_log import ShowLog, read_saved_log, show_log
from sparkctl.concurrency import yield_to_input
from sparkctl.context import InterruptSignal
from sparkctl.model.events import CommandEnded, LogArrived, NodeStateChanged, Outcome, WarningEmitted
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.text.log_line import LogLine
from sparkctl.model.text.units import format_date_time

if TYPE_CHECKING:
    from sparkctl.history.log_archive import SavedLog
    from sparkctl.tui.controller import PanelController

MAX_LINES_AT_ONCE = 64  # lines between two checks for keys: about a millisecond of work
_RETRY_SECONDS = 5.0  # s at least until an unreachable node is tried again
_RESTART_POLL_SECONDS = 1.0  # s between two checks whether the instance was started again
_REPLAY_STEP_SECONDS = 0.25
RECOVERY_NOTICE_SECONDS = 5.0  # s for which the end of a break is shown: a short break would end before it is painted


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConsumer:
    """The callbacks of a reader.

    ``begin`` is called before the first line of a container's log, ``take`` with lines in their order, ``tell`` with a
    problem or with None when there is none, and ``over`` at the end of a complete log.
    """

    begin: Callable[[], None]
    take: Callable[[Sequence[LogLine]], None]
    tell: Callable[[str | None], None]
    over: Callable[[], None] = lambda: None


class LogSubscription:
    """Reads the log of one instance on one node until it is closed.

    ``tail``: only so many last lines; line numbers then count from there. ``saved``: the saved log of an earlier start.
    """

    def __init__(
        self, controller: PanelController, node: NodeName, instance: str, reader: LogConsumer, tail: int | None = None,
        saved: SavedLog | None = None,
    ) -> None:  # fmt: skip
        self._saved = saved
        self._controller, self._node, self._instance, self._reader, self._tail = (
            controller,
            node,
            instance,
            reader,
            tail,
        )
        self._delivered = asyncio.Event()
        self._container: str | None = None
        self._is_broken = False
        self._recovery_notice: asyncio.Task[None] | None = None  # shows that a break has ended
        self._task = controller.run_background_task(self._run(), f"log of {instance} on {node}")
        self._task.add_done_callback(self._report_defect)

    def close(self) -> None:
        self._task.remove_done_callback(self._report_defect)
        self._task.cancel()
        self._cancel_recovery_notice()

    async def _run(self) -> None:
        if self._saved is not None:
            await self._read_saved(self._saved)
            return
        if self._controller.is_replaying:
            await self._replay_recording()
            return
        while True:
            self._container = self._find_container()
            self._reader.begin()
            ended = await self._follow_container()
            self._reader.over()
            if ended is not None and ended.outcome is Outcome.UNREACHABLE:
                self._reader.tell(f"{ended.message or 'its Spark does not answer'}; read again when it answers")
                await self._controller.clock.sleep(_RETRY_SECONDS)
                while not self._is_node_answering():
                    await self._controller.clock.sleep(_RESTART_POLL_SECONDS)
                continue
            while self._find_container() in (None, self._container):
                await self._controller.clock.sleep(_RESTART_POLL_SECONDS)

    async def _follow_container(self) -> CommandEnded | None:
        node = self._controller.supervisor.get_node(self._node)
        if node is None:
            self._reader.tell(f"{self._node} is no longer in the config")
            return None
        ctx = replace(self._controller.context, interrupt=InterruptSignal())
        request = ShowLog(
            instance=self._instance,
            nodes=[node],
            follow=True,
            tail=self._tail,
            pace=self._wait_for_delivery,
            session=self._controller.supervisor.create_background_session,
        )
        self._reader.tell(None if self._is_node_answering() else f"connecting to {self._node} ...")
        warned: list[str] = []
        async with aclosing(show_log(ctx, request)) as events:  # closed with the subscription
            async for event in events:
                match event:
                    case LogArrived():
                        self._report_recovery()
                        await self._deliver_lines(event.lines)
                    case NodeStateChanged(state=NodeState.OK):
                        self._report_recovery()
                    case NodeStateChanged():
                        self._cancel_recovery_notice()
                        self._is_broken = True
                        self._reader.tell(_describe_break(event))
                    case WarningEmitted():
                        self._cancel_recovery_notice()
                        warned.append(event.message)
                        self._reader.tell(event.message)
                    case CommandEnded():
                        self._cancel_recovery_notice()
                        self._is_broken = False
                        # warnings tell that it is a saved log, and what ended the container
                        self._reader.tell(event.message or "; ".join(warned[-2:]) or str(event.outcome))
                        return event
                    case _:
                        pass
        return None

    def _report_recovery(self) -> None:
        """Report that all is well; after a break, report the break for some seconds first."""
        if self._is_broken:
            self._is_broken = False
            self._reader.tell(f"{self._node} was away and is back: the log goes on where it stopped")
            self._recovery_notice = self._controller.run_background_task(
                self._clear_recovery_notice(), f"break of the log of {self._instance}"
            )
        elif self._recovery_notice is None:
            self._reader.tell(None)

    async def _clear_recovery_notice(self) -> None:
        await self._controller.clock.sleep(RECOVERY_NOTICE_SECONDS)
        self._recovery_notice = None
        self._reader.tell(None)

    def _cancel_recovery_notice(self) -> None:
        """Stop showing that a break has ended, because there is newer news."""
        if self._recovery_notice is not None:
            self._recovery_notice.cancel()
            self._recovery_notice = None

    async def _deliver_lines(self, lines: Sequence[LogLine]) -> None:
        for start in range(0, len(lines), MAX_LINES_AT_ONCE):
            self._reader.take(lines[start : start + MAX_LINES_AT_ONCE])
            await yield_to_input()
        self._delivered.set()

    async def _wait_for_delivery(self) -> None:
        self._delivered.clear()
        await self._delivered.wait()

    def _is_node_answering(self) -> bool:
        store = self._controller.store
        return self._node in store.nodes and store.get_record(self._node).state.state is NodeState.OK

    def _find_container(self) -> str | None:
        """Return the id of the instance's live container; None where none is known."""
        store = self._controller.store
        if self._node not in store.nodes:
            return None
        views = store.get_last_known_view(self._node).instances
        return next((one.container_id for one in views if one.name == self._instance and one.is_alive), None)

    async def _read_saved(self, saved: SavedLog) -> None:
        self._reader.begin()
        when = format_date_time(saved.saved)
        self._reader.tell(f"an earlier start; this is its saved log ({when}); P goes further back")
        try:
            for lines in read_saved_log(saved.path):
                await self._deliver_lines(lines)
        except OSError as broken:
            self._reader.tell(f"the saved log cannot be read: {broken}")
        self._reader.over()

    async def _replay_recording(self) -> None:
        """Deliver the lines of the recording at their times; start again when the recording seeks back."""
        own = self._node, self._instance
        recorded = (one for one in self._controller.recorded if isinstance(one, LogArrived))
        mine = [one for one in recorded if (one.node, one.instance) == own]
        while True:
            turn = self._controller.turn
            self._reader.begin()
            await asyncio.sleep(0)  # a reader that restarts may have closed this subscription
            if not mine:
                self._reader.tell("this recording contains no line of its log")
            for event in mine:
                while event.ts > self._controller.displayed_time() and not turn.is_set():
                    await self._controller.clock.sleep(_REPLAY_STEP_SECONDS)
                if turn.is_set():
                    break
                await self._deliver_lines(event.lines)
            else:
                self._reader.over()
            await turn.wait()

    def _report_defect(self, task: asyncio.Task[None]) -> None:
        """Show a defect in the log's own status; it ends this log only."""
        if not task.cancelled() and (defect := task.exception()) is not None:
            self._reader.tell(f"a defect in sparkctl: {type(defect).__name__}: {defect}; please report it")


def _describe_break(event: NodeStateChanged) -> str:
    words = f"{event.node}: {event.detail or event.state}"
    if event.next_try is not None:
        words += f"; attempt {event.attempt}, next try in {event.next_try:.0f} s"
    return f"{words}; the log goes on where it stopped"
