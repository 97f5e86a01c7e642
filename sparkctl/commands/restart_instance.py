"""``restart``: stop an instance, and start its profile again on the same nodes with the same overrides."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

from sparkctl.commands.event_stream import build_end_from_error
from sparkctl.commands.request import Preview, Request
from sparkctl.commands.start.start_request import StartInstance, build_start_request
from sparkctl.commands.stop.stop_impact import StopTarget, preview_stop
from sparkctl.commands.stop.stop_instance import StopInstance
from sparkctl.context import CommandContext
from sparkctl.errors import InvalidInput, OperationRefused, SparkctlError
from sparkctl.history.model import OperationRecord
from sparkctl.history.start_diff import describe_changes
from sparkctl.model.container import Container
from sparkctl.model.events import CommandEnded, Event, Outcome, WarningEmitted
from sparkctl.model.instance import InstanceView
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import Node, NodeState
from sparkctl.model.text.secrets import MASK
from sparkctl.monitor.node_status import read_node_statuses
from sparkctl.monitor.node_views import choose_instance
from sparkctl.profiles.profile_library import ProfileLibrary

if TYPE_CHECKING:
    from sparkctl.commands.action_context import ActionContext


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartInstance(Request):
    """Which instance, the nodes where it is searched, and all nodes, where its other ranks are."""

    instance: str
    nodes: Sequence[Node]
    everywhere: Sequence[Node]
    timeout: float | None = None

    def format_as_command(self) -> tuple[str, ...]:
        timeout = () if self.timeout is None else (f"--timeout={self.timeout:g}s",)
        return ("restart", self.instance, *self.format_node_options(), *timeout)

    def preview(self, now: ActionContext) -> Preview:
        """Return the question before it: that of the stop, with its own verb."""
        return replace(
            preview_stop(now, StopTarget(instance=self.instance, nodes=self.named_nodes), "Restart"), title="restart"
        )

    def run(self, ctx: CommandContext) -> AsyncGenerator[Event, None]:
        return restart_instance(ctx, self)


async def restart_instance(ctx: CommandContext, request: RestartInstance) -> AsyncGenerator[Event, None]:
    """Yield the events of the stop and of the start, and one end: that of the stop where the instance is not gone, else that
    of the start.
    """
    began = ctx.clock.monotonic()
    try:
        found = choose_instance(await read_node_statuses(ctx, request.nodes), request.instance)
        if not found.ours:
            raise InvalidInput(f"sparkctl did not start {found.name}, and does not restart it", None)
        plan = build_restart(ctx, found, (*request.everywhere, *request.nodes))
    except SparkctlError as error:
        yield build_end_from_error(error, ctx, ctx.clock.monotonic() - began, request.instance)
        return
    start = plan.start
    if not plan.is_known:
        yield WarningEmitted(
            ctx.clock.unix_time(),
            found.node,
            f"how {found.name} was started is not in this computer's history; it starts with its profile as it is here now",
            None,
        )
    elif plan.changes is not None:
        words = (
            f"the profile of {found.name} has changed since it was started, and applies as it is now: {plan.changes}"
        )
        yield WarningEmitted(ctx.clock.unix_time(), found.node, words, None)
    stop = StopInstance(
        instance=found.name,
        nodes=start.nodes,
        known=frozenset((found.name,)),
        everywhere=request.everywhere,
    )
    start = replace(start, timeout=request.timeout)
    async with aclosing(stop.run(ctx)) as events:
        async for event in events:
            if not isinstance(event, CommandEnded):
                yield event
            elif event.outcome is Outcome.UNHEALTHY and await _is_gone(ctx, found, start.nodes):
                # the start checks by itself whether there is enough memory
                words = event.message or f"{found.name} is stopped, but not all is as it should be"
                yield WarningEmitted(ctx.clock.unix_time(), found.node, words, event.hint)
            elif event.exit_code:
                yield event
                return
    async with aclosing(start.run(ctx)) as events:
        async for event in events:
            yield event


async def _is_gone(ctx: CommandContext, found: InstanceView, nodes: Sequence[Node]) -> bool:
    """Tell whether every node answers, and no rank of the instance runs there any more."""
    views = await read_node_statuses(ctx, nodes)
    return all(view.state is NodeState.OK and view.docker_known for view in views) and not any(
        one.ours and one.name == found.name and one.is_alive for view in views for one in view.instances
    )


@dataclass(frozen=True, slots=True)
class RestartPlan:
    """``start``: what repeats the start of an instance. ``is_known``: the history knows its overrides. ``changes``: what is different in
    its profile here now, in words; None: nothing, or nothing is known.
    """

    start: StartInstance
    is_known: bool
    changes: str | None


def build_restart(ctx: CommandContext, found: InstanceView, nodes: Sequence[Node]) -> RestartPlan:
    """Return the start that repeats that of an instance on some of ``nodes``.

    It is checked before anything is stopped. Raises `SparkctlError` where it cannot be started again.
    """
    record = ctx.history.find_start_of(found.name, found.container_id)
    words = (found.profile or found.name,) if record is None else _read_start_words(found.name, record)
    profile = ProfileLibrary().load_profile(words[0], overrides=words[2::2])
    by_name = {node.name: node for node in nodes}
    names = found.nodes or (found.node,)
    if missing := [name for name in names if name not in by_name]:
        raise InvalidInput(
            f"{found.name} also runs on {', '.join(missing)}, which is not in the config", "sparkctl init"
        )
    start = build_start_request(profile, [by_name[name] for name in names], words[0])
    changes = None if record is None else describe_changes(record, profile)
    return RestartPlan(replace(start, words=words, once_more=True), record is not None, changes)


def find_profile_changes(ctx: CommandContext, name: str, container: Container) -> str | None:
    """Return in words what the profile of a running instance has otherwise here now, with the overrides of its start.

    None: nothing, or it is not known here.
    """
    record = ctx.history.find_start_of(name, container.id)
    profile_name, digest = container.get_label(ContainerLabel.PROFILE), container.get_label(ContainerLabel.HASH)
    try:
        words = (profile_name or name,) if record is None else _read_start_words(name, record)
        profile = ProfileLibrary().load_profile(words[0], overrides=words[2::2])
    except SparkctlError:  # a profile of another computer, or one with a secret
        return None
    if record is not None:
        return describe_changes(record, profile)
    return None if not digest or digest == profile.digest else f"hash {digest} -> {profile.digest}"


def _read_start_words(name: str, record: OperationRecord) -> tuple[str, ...]:
    """Return the profile of a start and its overrides, as pairs of ``--set`` and a value.

    Raises `OperationRefused` for a secret among them, which the history does not store.
    """
    profile, *rest = shlex.split(record.command or "")[2:]
    pairs = [(flag, value) for flag, value in itertools.pairwise(rest) if flag == "--set"]
    if any(MASK in value for _, value in pairs):
        raise OperationRefused(
            f"{name} was started with a secret, which the history does not store",
            f"sparkctl down {name}, then sparkctl up",
        )
    return (profile, *(word for pair in pairs for word in pair))
