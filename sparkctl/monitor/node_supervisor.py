"""Runs one monitoring task for each node while the panel is open.

A defect in one task ends that task and is shown in the node's tile; the others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from sparkctl.concurrency import BackgroundTasks
from sparkctl.context import CommandContext
from sparkctl.model.events import Event, NodeStateChanged
from sparkctl.model.node import Node, NodeName, NodeState
from sparkctl.monitor.node_monitor import NodeMonitor, build_defect_state
from sparkctl.monitor.recording import RecordingPlayer
from sparkctl.monitor.sampler import INTERACTIVE_INTERVAL
from sparkctl.transport.node_session import NodeSession, SharedSession

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
        """Return a monitored node by name."""
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
        """Reconnect to a node now."""
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
