"""The context of every command: operator, prompter, clock, history and the Ctrl-C signal."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from sparkctl.clock import Clock, SystemClock
from sparkctl.errors import ExitCode, SparkctlError
from sparkctl.model.questions import NonInteractivePrompter, Prompter

if TYPE_CHECKING:
    import asyncio

    from sparkctl.history.model import NodeResult
    from sparkctl.history.operation_history import OperationHistory
    from sparkctl.history.operation_recorder import OperationRecorder
    from sparkctl.model.node import Node, NodeName
    from sparkctl.transport.node_session import NodeSession

T = TypeVar("T")


class NodeLock(Protocol):
    """The lock of a node: no other operator changes the node meanwhile."""

    async def reacquire_if_lost(self) -> None:
        """Acquire the lock again if a lost connection released it."""
        ...


class CommandInterrupted(SparkctlError):
    """The operator pressed Ctrl-C; ``message`` says what keeps running in the background."""

    exit_code = ExitCode.INTERRUPTED


class InterruptSignal:
    """Ctrl-C, a closed terminal (SIGHUP) or SIGTERM as an event that an operation can wait for, so that it stops where stopping is safe."""

    def __init__(self) -> None:
        self.presses = 0
        self.signal_number: int | None = None  # of the first press
        self._pressed: asyncio.Event | None = None  # while somebody waits

    def record_press(self, signal_number: int | None = None) -> None:
        """Count one press; called by the front end's signal handler in the event loop."""
        self.presses += 1
        self.signal_number = self.signal_number or signal_number
        if self._pressed is not None:
            self._pressed.set()

    def raise_if_pressed(self, goes_on: str) -> None:
        """Raise `CommandInterrupted` with the message ``goes_on`` if Ctrl-C was pressed; call it before each change."""
        if self.presses:
            raise CommandInterrupted(goes_on)

    async def wait_for_press(self, presses: int = 1) -> None:
        """Return when Ctrl-C was pressed this many times."""
        import asyncio  # imported late: verbs that reach no node do without it

        if self._pressed is None:
            self._pressed = asyncio.Event()
        while self.presses < presses:
            self._pressed.clear()
            await self._pressed.wait()

    async def run_interruptible(self, work: Coroutine[Any, Any, T], goes_on: str) -> T:
        """Return what ``work`` returns, or cancel it at the first press and raise `CommandInterrupted` with ``goes_on``."""
        from sparkctl.concurrency import run_until_first

        number, result = await run_until_first(work, self.wait_for_press())
        if number == 0:
            return result  # type: ignore[return-value]  # of the work
        raise CommandInterrupted(goes_on)


class UnshownEvents:
    """Counts the events that commands emitted and the front end has not handled yet, so that a question can wait for those before it.

    Nobody may ask while handling an event: its own would never be done.
    """

    def __init__(self) -> None:
        self._count = 0
        self._waiting: list[asyncio.Future[None]] = []

    def add(self, more: int) -> None:
        """Count so many more, or less where it is negative; wake who waits when none is left."""
        self._count += more
        if not self._count:
            for one in self._waiting:
                if not one.done():
                    one.set_result(None)
            self._waiting.clear()

    async def wait_until_shown(self) -> None:
        """Return when every event that was emitted is handled."""
        import asyncio  # imported late, as above

        while self._count:
            shown: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(shown)
            await shown


def get_operator() -> str:
    """Return ``user@laptop``, which labels started containers and locks, so that other operators see whose they are."""
    import getpass
    import socket

    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.getuid())
    return os.environ.get("SPARKCTL_OPERATOR") or f"{user}@{socket.gethostname()}"


@dataclass(slots=True, kw_only=True)
class CommandContext:
    """What every command needs: the operator, the prompter, the clock and the history.

    ``lend``: returns a session over a shared connection; None: each session opens a connection of its own.
    ``holds``: locks that a command of several steps holds for all its steps; a step takes no lock on these nodes.
    ``operation``: the recorder of the running operation in the history, None if nothing is recorded.
    """

    history: OperationHistory
    operator: str
    prompter: Prompter = field(default_factory=NonInteractivePrompter)
    clock: Clock = field(default_factory=SystemClock)
    interrupt: InterruptSignal = field(default_factory=InterruptSignal)
    unshown: UnshownEvents = field(default_factory=UnshownEvents)
    lend: Callable[[Node], NodeSession] | None = None
    locks: set[str] = field(default_factory=set)  # tokens of the nodes' locks that this process has; copies share it
    holds: Mapping[NodeName, NodeLock] = field(default_factory=dict)
    operation: OperationRecorder | None = None

    def record_node_result(self, share: NodeResult) -> None:
        """Record a node's part of the operation in the history; fields that are None change nothing. Never raises."""
        if self.operation is not None:
            self.operation.record_node_result(share)

    def create_session(self, node: Node) -> NodeSession:
        """Return an unopened session of a node, over a shared connection if ``lend`` is set."""
        from sparkctl.transport.node_session import NodeSession

        return NodeSession(node, self.prompter, self.clock) if self.lend is None else self.lend(node)
