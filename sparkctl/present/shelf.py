"""What the profiles' screen shows, as data: the profiles, where they run, and what is known of the selected one. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkctl.core.faults import Place
from sparkctl.core.history import LastStart
from sparkctl.core.logpattern import LinePattern
from sparkctl.core.profiles import ProfileEntry
from sparkctl.core.store import LoadView
from sparkctl.model.fit import Fit
from sparkctl.model.node import NodeName
from sparkctl.model.text import clean
from sparkctl.present.shelf_order import Order, model_words, rank

if TYPE_CHECKING:
    from sparkctl.core.linting import Checked

_DAY = 86400.0


@dataclass(frozen=True, slots=True)
class Preview:
    """What would be run on a node: the command's lines. ``trouble`` is why it would be refused, and ``note`` what of the
    command was not asked of a Spark; a line with trouble is as far as it goes without what is missing."""

    lines: tuple[str, ...] = ()
    trouble: str | None = None
    hint: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Shelf:
    """All that the screen shows. ``entries`` None: not read yet. ``further`` rows of what is below were read already.
    ``found``: what ``pattern`` leaves, where that is known already. ``sources``: the lines of the files at which faults
    are, secrets masked. ``checks``: what is to be said of each and its flags, by name; one that is not there is not checked yet.
    ``fits``: by name and node; None while it is being counted."""

    entries: tuple[ProfileEntry, ...] | None
    chosen: str | None = None
    views: tuple[LoadView, ...] = ()
    names: tuple[NodeName, ...] = ()
    node: NodeName | None = None
    last: tuple[LastStart, ...] = ()
    preview: Preview = field(default_factory=Preview)
    warnings: tuple[str, ...] = ()
    checks: Mapping[str, Checked] = field(default_factory=dict)
    fits: Mapping[tuple[str, NodeName], Fit | None] = field(default_factory=dict)
    sources: Mapping[Place, str] = field(default_factory=dict)
    pattern: LinePattern | None = None
    found: tuple[ProfileEntry, ...] | None = None
    now: float = 0.0
    further: int = 0
    ascii_only: bool = False
    order: Order = Order.NAME

    @property
    def shown(self) -> tuple[ProfileEntry, ...]:
        """Those that the filter leaves."""
        entries = left(self.entries or (), self.pattern) if self.found is None else self.found
        return tuple(sorted(entries, key=lambda one: rank(self.order, one, self.views, self.last)))

    @property
    def at(self) -> int:
        """Where the selected one is among those that are shown."""
        chosen = self.selected
        return 0 if chosen is None else self.shown.index(chosen)

    @property
    def check(self) -> Checked | None:
        """What is to be said of the selected one; None: not known yet."""
        return None if self.selected is None else self.checks.get(self.selected.summary.name)

    @property
    def selected(self) -> ProfileEntry | None:
        """The chosen one, else the first that is shown."""
        shown = self.shown
        return next((one for one in shown if one.summary.name == self.chosen), shown[0] if shown else None)


def left(entries: tuple[ProfileEntry, ...], pattern: LinePattern | None) -> tuple[ProfileEntry, ...]:
    """Return the profiles that a filter leaves."""
    if pattern is None:
        return entries
    return tuple(entries[at] for at in pattern.select([_found_by(one) for one in entries]))


def _found_by(one: ProfileEntry) -> str:
    parts = (one.summary.name, one.summary.engine, one.summary.title, model_words(one.profile))
    return clean(" ".join(part for part in parts if part))


def ago(when: float, now: float) -> str:
    """Return how long ago something was."""
    passed = now - when
    if passed < 60:
        return "just now"
    if passed < 3600:
        return f"{int(passed // 60)} min ago"
    return f"{int(passed // 3600)} h ago" if passed < _DAY else f"{int(passed // _DAY)} d ago"
