"""What lies on the Sparks of switches: one that somebody else does, or one that was left."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparkctl.model.events import Event, SwitchFound
from sparkctl.model.node import NodeName
from sparkctl.model.switch_plan import JournalPresence, SwitchJournal, SwitchJournalStatus
from sparkctl.monitor.store import Store
from sparkctl.views.switch_line import describe_switch_journal, render_unfinished_switch
from sparkctl.views.text.styled_text import TextRow


class SwitchJournals:
    """Of one room. ``store`` gives the live store; what was read of a node before a switch of our own ended is over."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._seen: dict[NodeName, float] = {}
        self._ended = 0.0  # when the last one from here did, unix seconds

    def apply_event(self, event: Event) -> None:
        """Know when each journal was read."""
        if isinstance(event, SwitchFound):
            self._seen[event.node] = event.ts

    def mark_own_switch_ended(self, when: float) -> None:
        """A switch of this panel has ended, at a moment in unix seconds."""
        self._ended = when

    def views(self) -> dict[str, tuple[NodeName, SwitchJournalStatus]]:
        """Return each once: by its number, or by the Spark where that cannot be read."""
        store, found = self._store(), dict[str, tuple[NodeName, SwitchJournalStatus]]()
        for name in store.nodes:
            view = store.switch(name)
            was_ours = self._seen.get(name, 0.0) < self._ended
            if view is not None and view.found is not JournalPresence.NONE and not was_ours:
                key = name if view.journal is None else view.journal.id
                if key not in found or view.is_held:
                    found[key] = name, view
        return found

    @property
    def has_abandoned_switch(self) -> bool | None:
        """Whether one was left on the Sparks; False: one goes on; None: there is none that is known."""
        views = [view for _, view in self.views().values()]
        return not any(view.is_held for view in views) if views else None

    @property
    def abandoned_journal(self) -> SwitchJournal | None:
        """The one that was left; None where there is none, or several, or where it cannot be read."""
        views = [view for _, view in self.views().values()]
        return views[0].journal if len(views) == 1 and not views[0].is_held else None

    def moves(self, keys: Sequence[tuple[str, str]], ascii_only: bool, columns: int) -> list[TextRow]:
        """Return a line for each, and with one that was left the ``keys`` that end it, each with its word."""
        return [
            line
            for name, view in self.views().values()
            for line in render_unfinished_switch(
                describe_switch_journal(name, view), () if view.is_held or view.journal is None else tuple(keys),
                is_held=view.is_held, ascii_only=ascii_only, columns=columns,
            )
        ]  # fmt: skip
