"""What every verb is given: who acts, how to ask, what time it is, where history lies, and Ctrl-C as a fact."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from sparkctl.clock import Clock, SystemClock
from sparkctl.concurrency import cancel_and_wait
from sparkctl.errors import ExitCode, SparkctlError
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.questions import NonInteractivePrompter, Prompter

if TYPE_CHECKING:
    from sparkctl.history.model import NodeResult
    from sparkctl.history.operation_recorder import OperationRecorder
    from sparkctl.model.node import Node, NodeName
    from sparkctl.transport.node_session import NodeSession

T = TypeVar("T")


class NodeLock(Protocol):
    """A node that nobody else changes meanwhile."""

    async def reacquire_if_lost(self) -> None:
        """Have it, taking it again where a break of the connection lost it."""
        ...


class CommandInterrupted(SparkctlError):
    """The operator pressed Ctrl-C; ``message`` says what goes on without us."""

    exit_code = ExitCode.INTERRUPTED


class InterruptSignal:
    """Ctrl-C as a fact that an operation can wait for, so that it stops where stopping is safe."""

    def __init__(self) -> None:
        self.presses = 0
        self._pressed = asyncio.Event()

    def record_press(self) -> None:
        """Count one more; called from the front end's signal handler, on the loop."""
        self.presses += 1
        self._pressed.set()

    def raise_if_pressed(self, goes_on: str) -> None:
        """Raise `Interrupted` with ``goes_on`` if it was pressed: before the next thing is changed."""
        if self.presses:
            raise CommandInterrupted(goes_on)

    async def wait_for_press(self, presses: int = 1) -> None:
        """Return once it was pressed this often."""
        while self.presses < presses:
            self._pressed.clear()
            await self._pressed.wait()

    async def run_interruptible(self, work: Coroutine[Any, Any, T], goes_on: str) -> T:
        """Return what ``work`` returns, or cancel it and raise `Interrupted` with ``goes_on`` at the first press."""
        task = asyncio.ensure_future(work)
        press = asyncio.ensure_future(self.wait_for_press())
        try:
            await asyncio.wait({task, press}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise CommandInterrupted(goes_on)
        finally:
            await cancel_and_wait((task, press))


@dataclass(slots=True, kw_only=True)
class CommandContext:
    """What every verb is given: who acts, how to ask, what time it is, where history lies.

    ``lend``: how a verb, or a look beside other things, comes by a session; None: each has a connection of its own.
    ``holds``: nodes whose locks a verb of several steps has for all of them: a step takes none of its own there.
    ``operation``: the row in the history of what is being done, None where nothing is kept; a step's is a part of it.
    """

    history: OperationHistory
    operator: str
    asker: Prompter = field(default_factory=NonInteractivePrompter)
    clock: Clock = field(default_factory=SystemClock)
    interrupt: InterruptSignal = field(default_factory=InterruptSignal)
    lend: Callable[[Node], NodeSession] | None = None
    locks: set[str] = field(default_factory=set)  # tokens of the nodes' locks that this process has; copies share it
    holds: Mapping[NodeName, NodeLock] = field(default_factory=dict)
    operation: OperationRecorder | None = None

    def record_node_result(self, share: NodeResult) -> None:
        """Keep in the history what is known of a node's part in this; what is None in it says nothing. Never raises."""
        if self.operation is not None:
            self.operation.record_node_result(share)

    def create_session(self, node: Node) -> NodeSession:
        """Return a session to be opened on a node: over a connection that is there, where somebody lends one."""
        from sparkctl.transport.node_session import NodeSession

        return NodeSession(node, self.asker, self.clock) if self.lend is None else self.lend(node)
