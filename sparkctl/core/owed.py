"""What was to be stopped on a node that could not be reached: kept until the next contact with it, and no longer than a day.

It names containers by their ids, or all ranks of one start: never an instance by its name alone, under which another may
run by then. Files of the operator's own (0600 in a 0700 directory), one for each node and instance.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from sparkctl.core.history_file import make_private
from sparkctl.core.record import plain, rebuilt
from sparkctl.files import LARGEST_STATE_FILE, read_regular
from sparkctl.model.container import Container
from sparkctl.model.node import NodeName
from sparkctl.model.plan import Label

LASTS = 86400.0  # seconds: what was wished yesterday is asked again
SETTLED_BY = "up, down, free or switch"  # whoever takes the node's lock


@dataclass(frozen=True, slots=True)
class Owed:
    """A stop that is still to be done. ``containers`` are ids or their first 12 digits, ``run`` what all ranks of the start
    share; ``since`` is when it was asked for, unix seconds."""

    node: NodeName
    instance: str
    since: float
    containers: tuple[str, ...] = ()
    run: str | None = None

    def is_meant(self, container: Container) -> bool:
        """Tell whether this very container was to be stopped."""
        if not container.is_ours or container.label(Label.INSTANCE) != self.instance:
            return False
        by_id = any(len(one) >= 12 and container.id.startswith(one) for one in self.containers)
        return by_id or (self.run is not None and container.label(Label.RUN) == self.run)


class OwedStops:
    """The files below the state directory. One that cannot be read is none."""

    def __init__(self, state: Path) -> None:
        self._folder = state / "unfinished-stops"

    def all(self, now: float) -> tuple[Owed, ...]:
        """Return what is owed at unix time ``now``, the oldest first; what is too old is forgotten."""
        found = []
        for path in self._folder.glob("*.json"):
            try:
                one = rebuilt(Owed, json.loads(read_regular(path, LARGEST_STATE_FILE)))
            except (OSError, ValueError, AttributeError, RecursionError):
                continue
            if now - one.since > LASTS:
                with suppress(OSError):
                    path.unlink(missing_ok=True)
            else:
                found.append(one)
        return tuple(sorted(found, key=lambda one: one.since))

    def on(self, node: str, now: float) -> tuple[Owed, ...]:
        """Return what is owed on a node."""
        return tuple(one for one in self.all(now) if one.node == node)

    def keep(self, owed: Owed) -> None:
        """Keep it, with what was owed of that instance there before. Raises OSError."""
        for one in self.on(owed.node, owed.since):
            if one.instance == owed.instance:
                ids = dict.fromkeys((*one.containers, *owed.containers))
                owed = replace(owed, containers=tuple(ids), run=owed.run or one.run, since=max(owed.since, one.since))
        make_private(self._folder)
        path = self._path(owed)
        handle, name = tempfile.mkstemp(".new", path.name, self._folder)  # 0600
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(json.dumps(plain(owed), ensure_ascii=False) + "\n")
        Path(name).replace(path)

    def drop(self, owed: Owed) -> None:
        """Forget it: it is done, or not to be done any more."""
        with suppress(OSError):
            self._path(owed).unlink(missing_ok=True)

    def _path(self, owed: Owed) -> Path:
        digest = hashlib.sha256(f"{owed.node}\n{owed.instance}".encode()).hexdigest()[:24]
        return self._folder / f"{digest}.json"
