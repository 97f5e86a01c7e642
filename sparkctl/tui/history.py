"""What was done from here: every start, stop and switch, how it went, and what had changed since it last worked."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType

from sparkctl.core import logpattern
from sparkctl.core.actions import HISTORY, Action, Situation
from sparkctl.present.history_page import Past, Told, history_page
from sparkctl.tui.listing import ListScreen
from sparkctl.tui.screen import bound

if TYPE_CHECKING:
    from sparkctl.core.history import History as Store
    from sparkctl.model.history import Operation

_EVERY = 3.0  # seconds between two looks whether there is more
_MOST = 200


def make(now: Situation) -> History:
    """Return the screen; of the profile that is selected, where one is."""
    return History(now.profile or "")


class History(ListScreen[int]):
    """The files are read beside the loop."""

    PLACE = HISTORY
    BINDINGS: ClassVar[list[BindingType]] = bound(HISTORY)

    def __init__(self, profile: str = "", chosen: int | None = None) -> None:
        super().__init__()
        self._typed, self._chosen = profile, chosen
        self._operations: tuple[Operation, ...] | None = None
        self._told: Told | None = None
        self._trouble: str | None = None
        self._reading: int | None = None  # of which all is being read

    @property
    def crumb(self) -> str:
        """The screen's name."""
        return "history"

    def narrow(self, profile: str, chosen: int | None) -> None:
        """Show what was done with a profile, or one operation."""
        self._typed, self._chosen, self._further = profile, chosen, 0
        self.repaint()

    def on_mount(self) -> None:
        """Read now, and look for more."""
        self.panel.opening(self._read())
        self.set_interval(_EVERY, lambda: self.panel.spawn(self._read()))

    def selected(self, now: Situation) -> Situation:
        """Return the situation with the selected operation's instance, where it was done."""
        one = self._past().selected
        if one is None:
            return now
        node = one.nodes[0] if one.nodes and one.nodes[0] in now.names else now.node
        return replace(now, node=node, instance=one.instance or one.profile, profile=one.profile, remedy=one.command)

    def picture(self) -> None:
        """Paint, and have the selected one read."""
        past = self._past()
        self.show(history_page(past, *self.room_of(self.sheet)))
        one = past.selected
        if one is not None and self._reading != one.id and (self._told is None or self._told.operation != one):
            self._reading = one.id
            self.panel.spawn(self._read_one(one))

    def _past(self) -> Past:
        return Past(
            self._operations, self._chosen, self._told, self._trouble, logpattern.parse(self._typed), self._further,
            self.panel.ascii_only,
        )  # fmt: skip

    def listed(self) -> tuple[tuple[int, ...], int | None]:
        """Return the numbers of the operations and of the selected one."""
        past = self._past()
        one = past.selected
        return tuple(each.id for each in past.shown), None if one is None else one.id

    def do_copy(self, _: Action) -> None:
        """Copy the command that does the same again."""
        one = self._past().selected
        if one is not None and one.command is not None:
            self.panel.copy(one.command, one.command)
        else:
            self.panel.say("no command is kept of this one")

    # --- what is read beside ---

    async def _read(self) -> None:
        await self.panel.room_made.wait()
        if self.panel.room is None:
            return
        store = self.panel.room.context.history
        found, word = await asyncio.to_thread(_operations, store)
        self._trouble = word or self._trouble
        if found != self._operations:
            if self._chosen is None and self._operations and (one := self._past().selected) is not None:
                self._chosen = one.id  # what is looked at stays, whatever comes above it
            self._operations = found
            if self.is_attached:
                self.repaint()

    async def _read_one(self, one: Operation) -> None:
        assert self.panel.room is not None
        told = await asyncio.to_thread(_told, self.panel.room.context.history, one)
        if self._reading == one.id:
            self._told, self._reading = told, None
        if self.is_attached:
            self.repaint()


def _operations(store: Store) -> tuple[tuple[Operation, ...], str | None]:
    return store.operations(most=_MOST), store.word()


def _told(store: Store, one: Operation) -> Told:
    from sparkctl.core.what_changed import what_changed

    worked = store.worked_before(one)
    return Told(one, worked, None if worked is None else what_changed(worked, one))
