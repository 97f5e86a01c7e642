"""Stops that could not be done because a node was unreachable: saved until the next contact with it, for at most a
day.

A pending stop names containers by id, or all ranks of one start: never an instance by name alone, because another may
run under that name by then. The files belong to the operator (0600 in a 0700 directory), one for each node and
instance.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from sparkctl.files import load_state_file, write_private_file
from sparkctl.history.database import make_private_directory
from sparkctl.model.container import Container
from sparkctl.model.json_codec import to_json_data
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.node import NodeName

MAX_AGE_SECONDS = 86400.0  # seconds: an older request has to be made again
COMPLETING_COMMANDS = "up, down, free or switch"  # the commands that take the node's lock


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingStop:
    """A stop that is still to be done.

    ``containers``: ids or their first 12 digits. ``run``: the start id that all ranks share. ``since``: when it was
    requested, unix seconds.
    """

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
    """The files of pending stops below the state directory. A file that cannot be read is ignored."""

    def __init__(self, state: Path) -> None:
        self._folder = state / "unfinished-stops"

    def list_all(self, now: float) -> tuple[PendingStop, ...]:
        """Return the pending stops at unix time ``now``, the oldest first; delete those that are too old."""
        found = []
        for path in self._folder.glob("*.json"):
            one = load_state_file(path, PendingStop)
            if one is None:
                continue
            if now - one.since > MAX_AGE_SECONDS:
                with suppress(OSError):
                    path.unlink(missing_ok=True)
            else:
                found.append(one)
        return tuple(sorted(found, key=lambda one: one.since))

    def list_for_node(self, node: str, now: float) -> tuple[PendingStop, ...]:
        """Return the pending stops of a node."""
        return tuple(one for one in self.list_all(now) if one.node == node)

    def save_stop(self, stop: PendingStop) -> None:
        """Save a stop, merged with an earlier one of the same instance there. Raises OSError."""
        for one in self.list_for_node(stop.node, stop.since):
            if one.instance == stop.instance:
                ids = dict.fromkeys((*one.containers, *stop.containers))
                stop = replace(stop, containers=tuple(ids), run=stop.run or one.run, since=max(stop.since, one.since))
        make_private_directory(self._folder)
        write_private_file(self._get_stop_file(stop), json.dumps(to_json_data(stop), ensure_ascii=False) + "\n")

    def delete_stop(self, stop: PendingStop) -> None:
        """Delete a stop that is done or no longer wanted."""
        with suppress(OSError):
            self._get_stop_file(stop).unlink(missing_ok=True)

    def _get_stop_file(self, stop: PendingStop) -> Path:
        digest = hashlib.sha256(f"{stop.node}\n{stop.instance}".encode()).hexdigest()[:24]
        return self._folder / f"{digest}.json"
