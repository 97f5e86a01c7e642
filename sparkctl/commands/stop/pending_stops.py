"""Stops that could not be done because a node was unreachable: saved until the next contact with it, for at most a day.

A pending stop names containers by id, or all ranks of one start: never an instance by name alone, because another may
run under that name by then. The files belong to the operator (0600 in a 0700 directory), one for each node and
instance. At the next contact each is finished or withdrawn, with a warning.

And starts that wait (``up --queue``): each has such a file while it waits, and a stop deletes it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sparkctl.context import CommandContext
from sparkctl.errors import ContainerNotFound
from sparkctl.files import load_state_file, write_private_file
from sparkctl.history.database import make_private_directory
from sparkctl.model.container import Container
from sparkctl.model.json_codec import to_json_data
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName

if TYPE_CHECKING:
    from sparkctl.model.events import Event
    from sparkctl.transport.node_session import NodeSession

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


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedStart:
    """A start that waits until no other operation works on its nodes. ``pid``: the process of this machine that waits."""

    instance: str
    nodes: tuple[NodeName, ...]
    pid: int

    @property
    def is_waiting(self) -> bool:
        """Tell whether its process still runs."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except OSError:
            pass  # it runs as another user
        return True


class QueuedStartFiles:
    """The files of starts that wait, below the state directory."""

    def __init__(self, state: Path) -> None:
        self._folder = state / "queued-starts"

    @contextmanager
    def save_start(self, instance: str, nodes: Collection[NodeName]) -> Iterator[Path | None]:
        """Keep a file for a start of this process while it waits; None where that cannot be written. It is cancelled if the file
        is gone."""
        path = self._folder / f"{uuid.uuid4().hex}.json"
        start = QueuedStart(instance=instance, nodes=tuple(nodes), pid=os.getpid())
        try:
            make_private_directory(self._folder)
            write_private_file(path, json.dumps(to_json_data(start), ensure_ascii=False) + "\n")
        except OSError:
            yield None
            return
        try:
            yield path
        finally:
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def cancel_starts(self, instance: str | None, nodes: Collection[NodeName]) -> tuple[QueuedStart, ...]:
        """Delete the files of this instance's starts (None: of all) on these nodes; return the starts that did wait."""
        found = []
        for path in self._folder.glob("*.json"):
            one = load_state_file(path, QueuedStart)
            if one is None or instance not in (None, one.instance) or not set(nodes) & set(one.nodes):
                continue
            with suppress(OSError):
                path.unlink(missing_ok=True)
                found += [one] if one.is_waiting else []
        return tuple(found)


_DEFAULT_GRACE_SECONDS = 30.0


def withdraw_pending_stops(
    ctx: CommandContext, node: NodeName, instances: Collection[str], warn: Callable[[str], None], why: str
) -> None:
    """Delete the pending stops of these instances on a node and report it, because a later request counts. ``why``:
    that request.
    """
    files = PendingStopFiles(ctx.history.directory)
    for one in files.list_for_node(node, ctx.clock.unix_time()):
        if one.instance in instances:
            files.delete_stop(one)
            warn(f"the stop of {one.instance} on {node}, asked for {_format_request_time(one)}, is dropped: {why}")


async def finish_pending_stops(session: NodeSession, ctx: CommandContext, warn: Callable[[str], None]) -> None:
    """Do the pending stops of this node; the caller has its lock. Raises `SparkctlError`, and keeps what is still
    pending then.

    A container that is gone needs nothing, and one that was started again since then is left running. So is one of which
    that is not known: its stop stays pending.
    """
    from sparkctl.commands.guard_session import stop_watching_containers  # `status` only lists the files
    from sparkctl.commands.stop.stop_containers import stop_instance_container
    from sparkctl.model.events import WarningEmitted
    from sparkctl.profiles.container_labels import parse_stop_grace_label

    files = PendingStopFiles(ctx.history.directory)

    def forward_warning(event: Event) -> None:
        if isinstance(event, WarningEmitted):
            warn(event.message if event.hint is None else f"{event.message} ({event.hint})")

    pending = files.list_for_node(session.node.name, ctx.clock.unix_time())
    if not pending:
        return
    containers = await session.docker.list_containers()
    for one in pending:
        is_settled = True
        for container in [found for found in containers if one.matches_container(found)]:
            if (is_new := await _has_new_start(session, container, one)) is None:
                is_settled = False
                warn(
                    f"{one.instance} was to be stopped on {one.node} ({_format_request_time(one)}); whether it was started "
                    f"again since is not known, so it keeps running (sparkctl down {one.instance} --node {one.node})"
                )
                continue
            if is_new:
                warn(
                    f"{one.instance} was to be stopped on {one.node} ({_format_request_time(one)}) and was started again since: it keeps running"
                )
                continue
            warn(f"finishing what was asked {_format_request_time(one)}: stopping {one.instance} on {one.node}")
            await stop_watching_containers(session, ctx, forward_warning, [container.id])
            grace = parse_stop_grace_label(container)
            await stop_instance_container(
                session, ctx, forward_warning, container, _DEFAULT_GRACE_SECONDS if grace is None else grace
            )
        if is_settled:
            files.delete_stop(one)


def _format_request_time(one: PendingStop) -> str:
    return time.strftime("at %H:%M", time.localtime(one.since))


async def _has_new_start(session: NodeSession, container: Container, one: PendingStop) -> bool | None:
    if not container.is_alive:
        return False
    from sparkctl.logs.rank_verdict import measure_clock_offset

    with suppress(ContainerNotFound):
        started = (await session.docker.inspect_container(container.id)).started
        offset = await measure_clock_offset(session)
        return was_started_since(started, None if offset is None else offset.ahead, one.since)
    return False


def was_started_since(started: float | None, ahead: float | None, since: float) -> bool | None:
    """Tell whether a start, by the clock of a node that is ``ahead`` seconds ahead of ours, is later than a request; None
    where one of them is not known.
    """
    return None if started is None or ahead is None else started - ahead > since
