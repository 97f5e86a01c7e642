"""Creates and starts one container exactly once, also over a lost connection, and removes it completely on failure."""

from __future__ import annotations

import asyncio

from sparkctl.context import CommandContext, CommandInterrupted, NodeLock
from sparkctl.errors import ConnectionLost, ContainerNotFound, DockerError, NodeError
from sparkctl.history.model import NodeResult
from sparkctl.model.container import ContainerState
from sparkctl.model.launch_plan import ContainerLabel, LaunchPlan
from sparkctl.transport.node_session import NodeSession

_UNDO_TIMEOUT_SECONDS = 15.0


class CreateTimeout(DockerError):
    """Docker did not answer the create request within its time limit."""


async def create_container(ctx: CommandContext, session: NodeSession, plan: LaunchPlan, lock: NodeLock) -> str:
    """Create and start the container. The first Ctrl-C lets this finish (the engine then runs on), a second one undoes
    it.
    """
    # no TaskGroup: after the time limit the request goes on, and what it created is removed
    work = asyncio.ensure_future(_create_and_start(session, plan, lock))
    second = asyncio.ensure_future(ctx.interrupt.wait_for_press(2))
    try:
        await asyncio.wait({work, second}, timeout=plan.timeouts.creating, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            ctx.record_node_result(NodeResult(node=plan.node, instance=plan.instance, container=work.result()))
            return work.result()
        removed = await _remove_created_container(session, plan, work)
        if second.done():
            raise CommandInterrupted(f"interrupted while {plan.container_name} was created; {removed}")
        hint = f"on {plan.node}: systemctl status docker"
        raise CreateTimeout(plan.node, f"no answer to the creation in time; {removed}", hint)
    finally:
        second.cancel()
        work.cancel()
        await asyncio.gather(work, second, return_exceptions=True)


async def _create_and_start(session: NodeSession, plan: LaunchPlan, lock: NodeLock) -> str:
    try:
        container_id = await session.docker.create_container(plan)
    except ConnectionLost:
        container_id = await _create_after_reconnect(session, plan, lock)
    try:
        await session.docker.start_container(container_id)
    except ConnectionLost:
        await _start_after_reconnect(session, plan, container_id)
    except DockerError as refused:
        # Docker leaves a refused container in state "created": remove it.
        try:
            await session.docker.remove_container(container_id, force=True)
        except (DockerError, NodeError) as error:
            raise DockerError(
                plan.node,
                f"{refused.message}; and what it left behind could not be removed ({error.message})",
                refused.hint,
            ) from refused
        raise
    return container_id


async def _create_after_reconnect(session: NodeSession, plan: LaunchPlan, lock: NodeLock) -> str:
    """Check whether the create request was carried out before the connection broke; repeat it only if not."""
    await session.link.reconnect(give_up_after=plan.timeouts.creating)
    await lock.reacquire_if_lost()
    for container in await session.docker.list_containers():
        if container.name == plan.container_name and container.get_label(ContainerLabel.HASH) == plan.profile_hash:
            return container.id
    return await session.docker.create_container(plan)


async def _start_after_reconnect(session: NodeSession, plan: LaunchPlan, container_id: str) -> None:
    """Check whether the start request was carried out before the connection broke; a container that ran and ended was
    started.
    """
    await session.link.reconnect(give_up_after=plan.timeouts.creating)
    if (await session.docker.inspect_container(container_id)).state is ContainerState.CREATED:
        await session.docker.start_container(container_id)


async def _remove_created_container(session: NodeSession, plan: LaunchPlan, work: asyncio.Future[str]) -> str:
    """Remove what a creation left, and return a sentence that says so or why it failed.

    Wait for the pending request first: if cancelled here, Docker would still carry it out after this check.
    """
    await asyncio.wait({work}, timeout=_UNDO_TIMEOUT_SECONDS)
    if not work.done():
        return f"Docker has not answered yet: {plan.container_name} may still appear"
    if work.exception() is not None:
        return "nothing was left behind"  # it failed by itself and cleaned up
    try:
        await session.docker.remove_container(work.result(), force=True)
    except ContainerNotFound:
        return "it is gone"
    except (DockerError, NodeError) as error:
        return f"it may still be there ({error.message})"
    return "it was removed again"
