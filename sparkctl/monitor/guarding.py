"""Whether a node is guarded, asked now and then beside what else is followed there. No guard is started by asking."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from sparkctl.errors import GuardUnavailable, NodeError
from sparkctl.model.events import Event, GuardStatusChanged
from sparkctl.monitor import guard_receipts
from sparkctl.monitor.guard_client import GuardClient
from sparkctl.transport.session import Session

_EVERY = 10.0
_SOUGHT_EVERY = 30.0  # seconds between two looks for a guard's socket, which run a shell on the node


class GuardPoller:
    """Emits `GuardStood` of a node."""

    def __init__(self, session: Session, emit: Callable[[Event], None]) -> None:
        self._session, self._emit = session, emit
        self._socket: str | None = None

    async def run(self, answers: asyncio.Event) -> None:
        """Ask again and again while the node answers."""
        clock = self._session.clock
        while True:
            await answers.wait()
            with suppress(NodeError):  # the sampler meets it, too, and says so
                watched = await self._ask()
                if answers.is_set():
                    self._emit(GuardStatusChanged(clock.unix_time(), self._session.node.name, watched))
            await clock.sleep(_SOUGHT_EVERY if self._socket is None else _EVERY)

    async def _ask(self) -> tuple[str, ...] | None:
        """Return the instances that a guard watches, none where none runs; None where one may run that cannot be asked."""
        if self._socket is None:
            left = await guard_receipts.read_guard_directory(self._session)
            self._socket = left.socket
            if self._socket is None:
                return None if left.states else ()
        link = await GuardClient.connect_guard(self._session, self._socket)
        if link is None:  # it has gone, and its socket with it; or the node lets nobody through to it
            left = await guard_receipts.read_guard_directory(self._session)
            self._socket = left.socket
            return None if left.states else ()
        try:
            return tuple(watch.instance for watch in (await link.get_state()).watches)
        except GuardUnavailable:
            return None
        finally:
            await link.close()
