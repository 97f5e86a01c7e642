"""Watches all nodes, for ``top`` and for the panel: samples of the agent, containers by Docker, and the engines' figures.

The panel runs one task for each node: a defect ends that task and is shown in the node's tile; the others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial

from sparkctl.concurrency import BackgroundTasks, gather_or_cancel
from sparkctl.context import CommandContext
from sparkctl.errors import InvalidInput, NodeError, NodeStarved
from sparkctl.model.events import Emit, Event, FindingReported, NodeStateChanged, SampleArrived, SwitchJournalReported
from sparkctl.model.finding import Severity
from sparkctl.model.kernel_event import KernelLine
from sparkctl.model.node import Node, NodeName, NodeState
from sparkctl.monitor.findings import node_settings
from sparkctl.monitor.meters.engine_meters import EngineMeters
from sparkctl.monitor.node_monitor import (
    NodeMonitor,
    build_defect_state,
    build_failure_state,
    emit_meter_readings,
    read_container_list,
)
from sparkctl.monitor.node_status import ContainerInspections
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.monitor.recording import RecordingPlayer
from sparkctl.monitor.sampler import INTERACTIVE_INTERVAL, NodeSampler
from sparkctl.monitor.store import Store
from sparkctl.monitor.switch_journal_io import read_journal
from sparkctl.node.agent_decoder import AgentHello
from sparkctl.transport.node_session import NodeSession, SharedSession, isolate_node_failures

_SAMPLE_GAP_SECONDS = 0.5  # seconds between the two samples of a single reading: shares and rates need two
_ALIVE_TIMEOUT_SECONDS = 5.0
_SAMPLE_TIMEOUT_SECONDS = 10.0


async def read_load_views(
    ctx: CommandContext, nodes: Sequence[Node], record: Emit | None = None
) -> tuple[NodeTelemetryView, ...]:
    """Return a view of each node now; a node that does not answer has a view with its state and the error.

    ``record`` gets every event.
    """
    store = Store()
    emit = _create_emitter(store, record)
    _emit_initial_states(ctx, nodes, emit)
    found = await gather_or_cancel(*(_read_node_load(ctx, node, emit) for node in nodes))
    _emit_version_differences(
        ctx, {}, {node.name: hello for node, hello in zip(nodes, found, strict=True) if hello is not None}, emit
    )
    return store.get_views()


def _create_emitter(store: Store, record: Emit | None, news: asyncio.Event | None = None) -> Emit:
    """Return a function that records an event, applies it to the store, and sets ``news`` if a view changed."""

    def emit(event: Event) -> None:
        if record is not None:
            record(event)
        if any(topic.node is not None for topic in store.apply_event(event)) and news is not None:
            news.set()

    return emit


def _emit_initial_states(ctx: CommandContext, nodes: Sequence[Node], emit: Emit) -> None:
    """Emit one state for each node first, so that the nodes keep the operator's order, in a recording, too."""
    for node in nodes:
        emit(NodeStateChanged(ts=ctx.clock.unix_time(), node=node.name, state=NodeState.UNKNOWN))


def _emit_version_differences(
    ctx: CommandContext, before: Mapping[NodeName, AgentHello], now: Mapping[NodeName, AgentHello], emit: Emit
) -> None:
    """Report versions that differ between nodes, and those that no longer do."""
    unlike = {one.node: one for one in node_settings.compare_node_versions(now)}
    for one in node_settings.compare_node_versions(before):
        if one.node not in unlike:
            emit(
                FindingReported(
                    ts=ctx.clock.unix_time(),
                    node=one.node,
                    check=one.kind.value,
                    severity=Severity.GOOD,
                    message="the same versions",
                )
            )
    for one in unlike.values():
        emit(FindingReported.from_finding(ctx.clock.unix_time(), one))


async def _read_node_load(ctx: CommandContext, node: Node, emit: Emit) -> AgentHello | None:
    """Read a node once; return its identity."""
    async with NodeSession(node, ctx.prompter, ctx.clock) as session:
        try:
            with isolate_node_failures(node):
                return await _read_session_load(ctx, session, emit)
        except (NodeError, InvalidInput) as error:
            emit(build_failure_state(session, error))
            return None


async def _read_session_load(ctx: CommandContext, session: NodeSession, emit: Emit) -> AgentHello:
    await session.link.connect()
    (arrived, hello), listed = await gather_or_cancel(
        _read_second_sample(session), read_container_list(session, ContainerInspections(session), ctx)
    )
    if any(one.ours and not one.is_alive for one in listed.instances):  # a switch may have stopped it, and keep it
        emit(SwitchJournalReported(session.clock.unix_time(), session.node.name, await read_journal(session)))
    emit(listed)
    emit(arrived)
    for one in node_settings.list_setting_problems(session.node.name, hello, arrived.sample):
        emit(FindingReported.from_finding(arrived.ts, one))
    readings = await EngineMeters(session).read_once(listed.instances, arrived.sample.time - arrived.ts)
    emit_meter_readings(session, readings, emit)
    return hello


async def _read_second_sample(session: NodeSession) -> tuple[SampleArrived, AgentHello]:
    name, sampler = session.node.name, NodeSampler(session, _SAMPLE_GAP_SECONDS)
    logged: tuple[KernelLine, ...] = ()  # the first sample has what the kernel logged before
    try:
        async with asyncio.timeout(_SAMPLE_TIMEOUT_SECONDS), aclosing(sampler.stream_samples()) as events:
            async for event in events:
                if not isinstance(event, SampleArrived):
                    continue
                kernel = event.sample.kernel
                logged += () if kernel is None else kernel.lines
                if event.sample.sequence >= 2:
                    kernel = None if kernel is None else replace(kernel, lines=logged)
                    return replace(event, sample=replace(event.sample, kernel=kernel)), sampler.identity or AgentHello()
    except TimeoutError as late:
        # a login shell that does not run our commands says so here
        await session.run(["true"], timeout=_ALIVE_TIMEOUT_SECONDS)
        raise NodeStarved(
            name,
            f"the probe on {name} sent no sample within {_SAMPLE_TIMEOUT_SECONDS:.0f} s",
            "it is there but very busy; wait",
        ) from late
    raise AssertionError("samples go on until they are closed")


async def watch_load_views(
    ctx: CommandContext,
    nodes: Sequence[Node],
    every: float = INTERACTIVE_INTERVAL,
    record: Emit | None = None,
    again: float | None = None,
) -> AsyncGenerator[tuple[NodeTelemetryView, ...], None]:
    """Yield all nodes whenever one of them changes; lost connections reconnect by themselves, visibly.

    ``every``: seconds between two samples of a node (`monitor.sampler` names three rates), one second at most while an
    instance of ours is loading there. ``record`` gets every event. ``again``: seconds until an unusable node (a refused
    login, for example) is tried once more; None: never. A defect in the reading of one node is shown as its state, and the
    others go on; it is raised once it has happened to all.
    """
    news = asyncio.Event()
    store = Store()
    emit = _create_emitter(store, record, news)
    _emit_initial_states(ctx, nodes, emit)
    followers = [NodeMonitor(ctx=ctx, node=node, every=every, emit=emit, again=again) for node in nodes]
    compared: dict[NodeName, AgentHello] = {}
    defects: dict[NodeName, BaseException] = {}

    def report_end(node: Node, defect: BaseException | None) -> None:
        if defect is not None:
            defects[node.name] = defect
            emit(build_defect_state(ctx, node, defect, "start the command again; please report it"))
            news.set()

    tasks = BackgroundTasks(lambda _: None)  # the end of each is handled
    for follower in followers:
        tasks.start_task(follower.run(), on_end=partial(report_end, follower.node))
    try:
        while True:
            await news.wait()
            news.clear()
            if len(defects) == len(followers):
                raise next(iter(defects.values()))
            known = {one.node.name: one.hello for one in followers if one.hello is not None}
            if known != compared:
                _emit_version_differences(ctx, compared, known, emit)
                compared = known
            yield store.get_views()
    finally:
        await tasks.aclose(None)


_CLOSE_TIMEOUT_SECONDS = 3.0  # seconds for closing connections


class NodeSupervisor:
    """Starts and ends the tasks. ``emit`` gets every event, ``on_error`` a defect in the player of a recording."""

    def __init__(
        self, ctx: CommandContext, emit: Callable[[Event], None], on_error: Callable[[BaseException], None]
    ) -> None:
        self._ctx, self._emit, self._every = ctx, emit, INTERACTIVE_INTERVAL
        self._nodes: dict[NodeName, Node] = {}
        self._tasks: dict[NodeName, asyncio.Task[None]] = {}
        self._background = BackgroundTasks(on_error)
        self._followers: dict[NodeName, NodeMonitor] = {}

    @property
    def sample_interval(self) -> float:
        """Seconds between two samples of a node; less while an instance is loading."""
        return self._every

    def set_sample_interval(self, seconds: float) -> None:
        """Set the seconds between two samples; it takes effect at each node's next container list."""
        self._every = seconds
        for follower in self._followers.values():
            follower.every = seconds

    def follow_nodes(self, nodes: Sequence[Node]) -> None:
        """Monitor exactly these nodes from now on; running tasks of them go on."""
        wanted = {node.name: node for node in nodes}
        for name in [name for name, node in self._nodes.items() if wanted.get(name) != node]:
            self._stop_follower(name)
        for name, node in wanted.items():
            if name not in self._nodes:
                self._nodes[name] = node
                self._start_follower(node)

    def get_node(self, name: NodeName) -> Node | None:
        return self._nodes.get(name)

    def create_background_session(self, node: Node) -> NodeSession:
        """Return a session for background work: over the task's connection, or over a new one. It never prompts the operator."""
        follower = self._followers.get(node.name)
        if follower is None or follower.session is None or follower.node != node:
            return NodeSession(node, clock=self._ctx.clock)
        return SharedSession(follower.session)

    def create_command_session(self, node: Node) -> NodeSession:
        """Return a session for a command of the operator: over the existing connection, so that no second factor is asked for
        again; otherwise over a new one, which may prompt."""
        follower = self._followers.get(node.name)
        session = None if follower is None or follower.node != node else follower.session
        if session is None or session.link.status.state is not NodeState.OK:
            return NodeSession(node, self._ctx.prompter, self._ctx.clock)
        return SharedSession(session)

    def reconnect_node(self, name: NodeName) -> None:
        node = self._nodes.get(name)
        if node is not None:
            self._stop_follower(name)
            self._nodes[name] = node
            self._emit(NodeStateChanged(ts=self._ctx.clock.unix_time(), node=name, state=NodeState.UNKNOWN))
            self._start_follower(node)

    def play_recording(self, player: RecordingPlayer) -> None:
        """Play a recording instead of monitoring nodes."""
        self._background.start_task(player.run(), "play")

    async def aclose(self) -> None:
        """End everything and wait for it."""
        self._nodes.clear()
        await self._background.aclose(_CLOSE_TIMEOUT_SECONDS)

    def _start_follower(self, node: Node) -> None:
        follower = NodeMonitor(ctx=self._ctx, node=node, every=self._every, emit=self._emit)
        self._followers[node.name] = follower
        self._tasks[node.name] = self._background.start_task(
            follower.run(), f"follow {node.name}", lambda defect: self._report_defect(follower, defect)
        )

    def _stop_follower(self, name: NodeName) -> None:
        del self._nodes[name]
        self._followers.pop(name, None)
        if task := self._tasks.pop(name, None):
            task.cancel()  # it puts away its connection, and nobody else holds it then

    def _report_defect(self, follower: NodeMonitor, defect: BaseException | None) -> None:
        """Say of what a follower died; one that ended by itself has said why."""
        node = follower.node
        if defect is not None and self._followers.get(node.name) is follower:
            self._emit(build_defect_state(self._ctx, node, defect, "r tries again; please report it"))
