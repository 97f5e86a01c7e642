"""A switch that is given up: what is left of the new one and of the old one is put away, logs saved, and neither serves."""

from __future__ import annotations

from sparkctl.core.together import together
from sparkctl.errors import DockerDown, DockerError, Refused
from sparkctl.model.container import Container
from sparkctl.model.node import NodeName
from sparkctl.model.switch import SwitchStep
from sparkctl.model.text import clean
from sparkctl.operations.switching.back import new_on, take_away
from sparkctl.operations.switching.crew import Crew, Fenced
from sparkctl.operations.switching.forward import old_ones, owe


async def put_away(crew: Crew) -> tuple[str, ...]:
    """Stop and remove what the journal names and sparkctl made; return what of it stayed, or still holds something.

    One that does not go keeps the others from nothing: a switch that cannot be undone has to have an end. Raises `Fenced`,
    `NodeError` and `DockerDown`.
    """
    old = [(node, one) for node, one in await old_ones(crew) if one is not None and one.is_ours]
    new = [(node, one) for node in crew.journal.nodes for one in await new_on(crew, node)]
    owe(crew, old)

    async def on(node: NodeName) -> list[str]:
        there = [one for where, one in (*new, *old) if where == node]
        return [f"{clean(one.name)} on {node}" for one in there if not await _is_gone(crew, node, one)]

    stayed = [each for names in await together(*(on(node) for node in crew.journal.touched)) for each in names]
    if not stayed:
        crew.tell(SwitchStep.UNDOING, "what was left of both is gone, the logs are saved")
    return tuple(stayed)


async def _is_gone(crew: Crew, node: NodeName, one: Container) -> bool:
    """Take one away; tell whether it is gone with all that it held. Why it is not has been said."""
    try:
        stopped = await take_away(crew, node, one)
    except (Fenced, DockerDown):
        raise
    except (Refused, DockerError) as why:
        crew.warn(node, why.message, why.hint)
        return False
    return stopped.removed and stopped.is_proved
