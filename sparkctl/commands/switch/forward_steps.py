"""The forward steps of a switch: stop and keep the old instance, check its memory, start the new one, remove the old
containers.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Mapping, Sequence

from sparkctl.commands.event_stream import forward_events
from sparkctl.commands.stop.pending_stops import PendingStop, PendingStopFiles
from sparkctl.commands.stop.stop_containers import (
    BeforeStop,
    read_before_stop,
    remove_if_there,
    save_ended_log,
    stop_containers,
)
from sparkctl.commands.switch.switch_request import SwitchInstance
from sparkctl.commands.switch.switch_transaction import SwitchTransaction
from sparkctl.concurrency import gather_or_cancel
from sparkctl.errors import ContainerNotFound, DockerError, NodeError, OperationRefused
from sparkctl.model.container import Container
from sparkctl.model.events import CommandEnded, Outcome
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.memory_fit import MemoryFit
from sparkctl.model.node import NodeName
from sparkctl.model.switch_plan import SwitchStep
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import format_duration, format_gib
from sparkctl.monitor.ranks import RankContainer, group_by_instance, order_stops
from sparkctl.profiles.container_labels import parse_port_label

_KEPT_SUFFIX_PATTERN = re.compile(r"\.kept-[0-9a-f]{6}$")
_MAX_NAME_LENGTH = 200


class MemoryNotReleased(OperationRefused):
    """The stopped instances did not release the memory that the new one needs."""


def rollback_name(name: str, container_id: str) -> str:
    """Return the name of a container while it is kept for a rollback."""
    return f"{name[:_MAX_NAME_LENGTH]}.kept-{container_id[:6]}"


def original_name(name: str) -> str:
    """Return the name that a kept container had before."""
    return _KEPT_SUFFIX_PATTERN.sub("", name)


@dataclass(frozen=True, slots=True)
class OldStops:
    """The old containers that still run: those of each turn by node, and what was read before the first turn."""

    turns: tuple[Mapping[NodeName, Sequence[Container]], ...]
    before: Mapping[NodeName, BeforeStop]


async def prepare_old_stops(transaction: SwitchTransaction) -> OldStops:
    """Return what is to be stopped, and in which turn: what is needed waits for what needs it, on whichever Spark that runs."""
    whole = group_by_instance(
        RankContainer(node, one, None, parse_port_label(one))
        for node, one in await list_old_containers(transaction)
        if one is not None and one.is_alive
    )
    turns: list[dict[NodeName, list[Container]]] = []
    for group in order_stops(whole):
        turns.append({})
        for part in (part for each in group for part in each.parts):
            turns[-1].setdefault(part.node, []).append(part.container)
    first = {node: here[0] for turn in turns[:1] for node, here in turn.items()}
    read = await gather_or_cancel(
        *(
            read_before_stop(transaction.sessions[node], transaction.step_context, transaction.emit, one)
            for node, one in first.items()
        )
    )
    return OldStops(tuple(turns), dict(zip(first, read, strict=True)))


async def stop_old_containers(transaction: SwitchTransaction, old: OldStops) -> None:
    """Stop the old containers and keep them; ended ones are fine. Raises the first failure."""
    for turn in old.turns:
        stopped = await stop_containers(
            transaction.sessions, transaction.step_context, transaction.emit, turn, keep=True, before=old.before
        )
        for _, failure in stopped.failures:
            raise failure
    names, count = " and ".join(transaction.journal.stops), len(transaction.journal.old)
    kept = "the container is" if count == 1 else f"{count} containers are"
    transaction.report_step(SwitchStep.STOPPING, f"{names} stopped; {kept} kept")


async def list_old_containers(transaction: SwitchTransaction) -> tuple[tuple[NodeName, Container | None], ...]:
    """Return the old containers, stopped or to be stopped; None for one that no longer exists."""

    async def inspect_old_container(node: NodeName, container: str) -> tuple[NodeName, Container | None]:
        try:
            return node, await transaction.sessions[node].docker.inspect_container(container)
        except ContainerNotFound:
            return node, None

    return await gather_or_cancel(
        *(inspect_old_container(node, container) for node, container in transaction.journal.old)
    )


def verify_memory_released(transaction: SwitchTransaction, fits: Sequence[MemoryFit]) -> None:
    """Raise `MemoryNotReleased` where the new instance does not fit by the current memory of the nodes."""
    short = [one for one in fits if one.is_refused]
    if short:
        raise MemoryNotReleased(short[0].summary_sentence + ", although what was in the way has stopped")
    free = ", ".join(
        f"{one.node} has {format_gib(one.standing.available)} available" for one in fits if one.standing is not None
    )
    transaction.report_step(SwitchStep.RELEASING, free or "the nodes did not report their memory")


async def rename_kept_containers(transaction: SwitchTransaction, names: frozenset[tuple[NodeName, str]]) -> None:
    """Rename kept containers whose names the new ones need."""
    for node, container in await list_old_containers(transaction):
        if container is not None and (node, container.name) in names:
            await transaction.sessions[node].docker.rename_container(
                container.id, rollback_name(container.name, container.id)
            )


async def start_new_instance(transaction: SwitchTransaction, request: SwitchInstance) -> CommandEnded:
    """Start the new instance as `up` does, under the locks that are held; return its end."""
    start = request.to_start_request(container for _, container in transaction.journal.old)
    ended = await forward_events(start.run(transaction.step_context), transaction.emit)
    if ended.outcome is Outcome.READY:
        transaction.report_step(
            SwitchStep.STARTING,
            f"{transaction.journal.instance} is ready after {format_duration(ended.seconds)}, {ended.proof or 'a token came'}",
        )
    return ended


OldContainers = tuple[tuple[NodeName, Container, bool], ...]  # and whether its log is saved


async def save_old_logs(transaction: SwitchTransaction) -> OldContainers:
    """Save the logs of the kept containers and return these; changes nothing on the nodes."""

    async def save_old_log(node: NodeName, container: Container) -> tuple[NodeName, Container, bool]:
        saving = save_ended_log(transaction.sessions[node], transaction.step_context, transaction.emit, container)
        return node, container, await _warn_of_failure(transaction, node, saving)

    old = [(node, one) for node, one in await list_old_containers(transaction) if one is not None]
    return await gather_or_cancel(*(save_old_log(node, container) for node, container in old))


async def remove_old_containers(transaction: SwitchTransaction, old: OldContainers) -> str | None:
    """Remove the kept containers whose logs are saved; return the others.

    The caller has just verified that the switch is still its own, and must verify it again afterwards. All are removed
    in parallel.
    """

    async def remove_old_container(node: NodeName, container: Container, is_saved: bool) -> bool:
        session = transaction.sessions[node]
        return is_saved and await _warn_of_failure(transaction, node, remove_if_there(session, container))

    save_pending_stops(transaction, [(node, container) for node, container, _ in old])
    gone = await gather_or_cancel(*(remove_old_container(*one) for one in old))
    stayed = [
        f"{sanitize_line(one.name)} on {node}" for (node, one, _), is_gone in zip(old, gone, strict=True) if not is_gone
    ]
    return f"{' and '.join(stayed)} stayed, as reported above" if stayed else None


async def _warn_of_failure(transaction: SwitchTransaction, node: NodeName, work: Awaitable[None]) -> bool:
    """Tell whether something was done on a node; what prevents it is a warning."""
    try:
        await work
    except (OperationRefused, DockerError) as why:
        transaction.warn(node, why.message, why.hint)
        return False
    return True


async def describe_losses(transaction: SwitchTransaction) -> tuple[str, ...]:
    """Return a sentence about each Spark that only lost an instance: what still runs there, or that it is free."""
    lost = {node for node, _ in transaction.journal.old}.difference(transaction.journal.nodes)

    async def describe_node(node: NodeName) -> str:
        try:
            there = await transaction.sessions[node].docker.list_containers()
        except (NodeError, DockerError):
            return f"what else is on {node} is not known"
        ours = sorted({one.instance_name for one in there if one.is_managed and one.is_alive})
        others = sorted(sanitize_line(one.name) for one in there if one.is_alive and not one.is_managed)
        names = [*map(sanitize_line, ours), *(f"{name} (not sparkctl's)" for name in others)]
        return (
            f"{' and '.join(names)} {'stays' if len(names) == 1 else 'stay'} on {node}" if names else f"{node} is free"
        )

    return await gather_or_cancel(*(describe_node(node) for node in sorted(lost)))


async def save_remaining_stops(transaction: SwitchTransaction) -> None:
    """Save the stops of old ranks on Sparks that did not answer, for the next contact."""
    save_pending_stops(
        transaction, [(node, one) for node, one in await list_old_containers(transaction) if one is not None]
    )


def save_pending_stops(transaction: SwitchTransaction, old: Sequence[tuple[NodeName, Container]]) -> None:
    """Save the stops of these ranks on Sparks that did not answer, for the next contact."""
    files, now = PendingStopFiles(transaction.ctx.history.directory), transaction.ctx.clock.unix_time()
    for whole in group_by_instance(RankContainer(node, one, None, parse_port_label(one)) for node, one in old):
        run = whole.get_label(ContainerLabel.RUN)
        for name in whole.elsewhere if run else ():
            node = NodeName(name)
            if node in transaction.journal.affected_nodes:
                continue
            try:
                files.save_stop(PendingStop(node=node, instance=whole.name, since=now, run=run))
            except OSError as error:
                transaction.warn(node, f"that {whole.name} is still to be stopped there could not be recorded: {error}")
