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

from sparkctl.files import MAX_STATE_FILE_BYTES, read_regular_file
from sparkctl.history.database import make_private_directory
from sparkctl.model.container import Container
from sparkctl.model.json_codec import from_json_data, to_json_data
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.node import NodeName

MAX_AGE_SECONDS = 86400.0  # seconds: what was wished yesterday is asked again
COMPLETING_COMMANDS = "up, down, free or switch"  # whoever takes the node's lock


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingStop:
    """A stop that is still to be done. ``containers`` are ids or their first 12 digits, ``run`` what all ranks of the start
    share; ``since`` is when it was asked for, unix seconds."""

    node: NodeName
    instance: str
    since: float
    containers: tuple[str, ...] = ()
    run: str | None = None

    def matches_container(self, container: Container) -> bool:
        """Tell whether this very container was to be stopped."""
        if not container.is_managed or container.get_label(ContainerLabel.INSTANCE) != self.instance:
            return False
        by_id = any(len(one) >= 12 and container.id.startswith(one) for one in self.containers)
        return by_id or (self.run is not None and container.get_label(ContainerLabel.RUN) == self.run)


class PendingStopFiles:
    """The files below the state directory. One that cannot be read is none."""

    def __init__(self, state: Path) -> None:
        self._folder = state / "unfinished-stops"

    def list_all(self, now: float) -> tuple[PendingStop, ...]:
        """Return what is owed at unix time ``now``, the oldest first; what is too old is forgotten."""
        found = []
        for path in self._folder.glob("*.json"):
            try:
                one = from_json_data(PendingStop, json.loads(read_regular_file(path, MAX_STATE_FILE_BYTES)))
            except (OSError, ValueError, AttributeError, RecursionError):
                continue
            if now - one.since > MAX_AGE_SECONDS:
                with suppress(OSError):
                    path.unlink(missing_ok=True)
            else:
                found.append(one)
        return tuple(sorted(found, key=lambda one: one.since))

    def list_for_node(self, node: str, now: float) -> tuple[PendingStop, ...]:
        """Return what is owed on a node."""
        return tuple(one for one in self.list_all(now) if one.node == node)

    def save_stop(self, owed: PendingStop) -> None:
        """Keep it, with what was owed of that instance there before. Raises OSError."""
        for one in self.list_for_node(owed.node, owed.since):
            if one.instance == owed.instance:
                ids = dict.fromkeys((*one.containers, *owed.containers))
                owed = replace(owed, containers=tuple(ids), run=owed.run or one.run, since=max(owed.since, one.since))
        make_private_directory(self._folder)
        path = self._get_stop_file(owed)
        handle, name = tempfile.mkstemp(".new", path.name, self._folder)  # 0600
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(json.dumps(to_json_data(owed), ensure_ascii=False) + "\n")
        Path(name).replace(path)

    def delete_stop(self, owed: PendingStop) -> None:
        """Forget it: it is done, or not to be done any more."""
        with suppress(OSError):
            self._get_stop_file(owed).unlink(missing_ok=True)

    def _get_stop_file(self, owed: PendingStop) -> Path:
        digest = hashlib.sha256(f"{owed.node}\n{owed.instance}".encode()).hexdigest()[:24]
        return self._folder / f"{digest}.json"
