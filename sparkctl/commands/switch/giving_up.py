"""A switch that is given up: what is left of the new one and of the old one is put away, logs saved, and neither serves."""

from __future__ import annotations

from sparkctl.commands.switch.forward_steps import list_old_containers, save_pending_stops
from sparkctl.commands.switch.rollback import list_new_containers, remove_container
from sparkctl.commands.switch.switch_transaction import OwnershipLost, SwitchTransaction
from sparkctl.concurrency import gather_or_cancel
from sparkctl.errors import DockerError, DockerUnavailable, OperationRefused
from sparkctl.model.container import Container
from sparkctl.model.node import NodeName
from sparkctl.model.sanitize import sanitize_line
from sparkctl.model.switch_plan import SwitchStep


async def remove_both_sides(crew: SwitchTransaction) -> tuple[str, ...]:
    """Stop and remove what the journal names and sparkctl made; return what of it stayed, or still holds something.

    One that does not go keeps the others from nothing: a switch that cannot be undone has to have an end. Raises `Fenced`,
    `NodeError` and `DockerDown`.
    """
    old = [(node, one) for node, one in await list_old_containers(crew) if one is not None and one.is_managed]
    new = [(node, one) for node in crew.journal.nodes for one in await list_new_containers(crew, node)]
    save_pending_stops(crew, old)

    async def on(node: NodeName) -> list[str]:
        there = [one for where, one in (*new, *old) if where == node]
        return [f"{sanitize_line(one.name)} on {node}" for one in there if not await _is_gone(crew, node, one)]

    stayed = [each for names in await gather_or_cancel(*(on(node) for node in crew.journal.touched)) for each in names]
    if not stayed:
        crew.report_step(SwitchStep.UNDOING, "what was left of both is gone, the logs are saved")
    return tuple(stayed)


async def _is_gone(crew: SwitchTransaction, node: NodeName, one: Container) -> bool:
    """Take one away; tell whether it is gone with all that it held. Why it is not has been said."""
    try:
        stopped = await remove_container(crew, node, one)
    except (OwnershipLost, DockerUnavailable):
        raise
    except (OperationRefused, DockerError) as why:
        crew.warn(node, why.message, why.hint)
        return False
    return stopped.removed and stopped.is_proved
