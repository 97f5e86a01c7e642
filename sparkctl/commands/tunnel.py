"""``tunnel``: an instance's endpoint on this machine's loopback, over the SSH connection, until Ctrl-C."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace

from sparkctl.commands.event_stream import build_end, open_session, stream_events
from sparkctl.commands.request import Request
from sparkctl.commands.start.start_request import StartInstance
from sparkctl.concurrency import gather_or_cancel, run_until_first
from sparkctl.context import CommandContext
from sparkctl.errors import ConnectionLost, InvalidInput, OperationRefused, SparkctlError
from sparkctl.model.container import Container
from sparkctl.model.events import CommandEnded, Emit, Event, Outcome, TunnelState, TunnelStateChanged, WarningEmitted
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import Node, NodeState
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.monitor.node_views import build_missing_instance_error
from sparkctl.profiles.container_labels import parse_port_label
from sparkctl.transport.node_connection import ByteReader, ByteWriter, ConnectionStatus
from sparkctl.transport.node_session import NodeSession
from sparkctl.transport.socket_relay import SocketRelay

_LOOPBACK = "127.0.0.1"
_CLIENT_PATIENCE_SECONDS = 30.0  # seconds that a new client waits for a connection that is away


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTunnel(Request):
    """A request to bring an instance's endpoint to this machine. ``port``: on this machine; None: the engine's, if free."""

    instance: str
    nodes: Sequence[Node]
    port: int | None = None

    def format_as_command(self) -> tuple[str, ...]:
        port = () if self.port is None else ("--port", str(self.port))
        return ("tunnel", self.instance, *self.format_node_options(), *port)

    def run(self, ctx: CommandContext) -> AsyncGenerator[Event, None]:
        return open_tunnel(ctx, self)


def open_tunnel(ctx: CommandContext, request: OpenTunnel) -> AsyncGenerator[Event, None]:
    """Listen on the loopback until Ctrl-C; a lost connection is made again, and each state is an event."""

    async def run_tunnel(emit: Emit) -> CommandEnded:
        began = ctx.clock.monotonic()
        async with AsyncExitStack() as stack:
            session, port = await _find_endpoint(stack, ctx, request, emit)
            await Tunnel(ctx, request, session, port, emit).keep_open()
        return build_end(ctx, began, Outcome.DONE, node=session.node.name, instance=request.instance)

    return stream_events(ctx, run_tunnel, request.instance, on_interrupt=None)


async def start_and_tunnel(ctx: CommandContext, request: StartInstance) -> AsyncGenerator[Event, None]:
    """Start an instance, keep a tunnel to it open once it is ready, and yield the end of the start last."""
    if request.nodes and request.nodes[0].is_local:
        raise OperationRefused(
            f"{request.nodes[0].name} is this machine: its endpoint needs no tunnel", "leave --tunnel out"
        )
    ended: CommandEnded | None = None
    async with aclosing(replace(request, tunnel=False).run(ctx)) as events:
        async for event in events:
            if isinstance(event, CommandEnded) and event.outcome is Outcome.READY:
                ended = event
            else:
                yield event
    if ended is None:
        return
    opening = OpenTunnel(instance=ended.instance or request.profile.name, nodes=request.nodes[:1])
    hint = ended.hint
    async with aclosing(open_tunnel(ctx, opening)) as events:
        async for event in events:
            if isinstance(event, TunnelStateChanged) and event.state is TunnelState.OPEN and hint:
                # its end comes only after the tunnel's
                yield replace(event, hint=hint.replace(ended.endpoint, event.url) if ended.endpoint else hint)
                hint = None
            elif not isinstance(event, CommandEnded):
                yield event
            elif event.exit_code and event.outcome is not Outcome.INTERRUPTED:
                what = f"no tunnel: {event.message}"  # it runs: that is what the command was for
                yield WarningEmitted(ctx.clock.unix_time(), event.node or ended.node, what, event.hint)
    yield ended


class Tunnel:
    """One listening port, and the connection that its clients share."""

    def __init__(self, ctx: CommandContext, request: OpenTunnel, session: NodeSession, port: int, emit: Emit) -> None:
        self._ctx, self._request, self._session, self._port, self._emit = ctx, request, session, port, emit
        self._state: TunnelState | None = None
        self._url = ""
        self._is_lost = asyncio.Event()
        self._is_there = asyncio.Event()
        self._is_there.set()

    async def keep_open(self) -> None:
        """Listen until Ctrl-C. Raises what a reconnect cannot wait for, and `OperationRefused` where the port is taken."""
        relay = await self._listen()
        self._url = f"http://{_LOOPBACK}:{relay.port}"
        remove_listener = self._session.link.add_status_listener(self._note_status)
        try:
            self._report(TunnelState.OPEN)
            await run_until_first(self._reconnect_when_lost(), self._ctx.interrupt.wait_for_press())
        finally:
            remove_listener()
            await relay.close()
        self._report(TunnelState.CLOSED)

    async def _listen(self) -> SocketRelay:
        wanted = (self._port, 0) if self._request.port is None else (self._request.port,)
        for at, port in enumerate(wanted, 1):
            try:
                return await SocketRelay.listen_tcp(self._connect_client, port)
            except OSError as error:
                if at == len(wanted):
                    why = (
                        "is in use on this machine"
                        if error.errno == errno.EADDRINUSE
                        else f"cannot be used: {error.strerror}"
                    )
                    raise OperationRefused(
                        f"port {port} {why}", "name another: --port N; without --port a free one is taken"
                    ) from error
        raise AssertionError("the last port raises")

    async def _reconnect_when_lost(self) -> None:
        while True:
            await self._is_lost.wait()
            self._report(TunnelState.LOST)
            await self._session.wait_reconnected()
            self._is_lost.clear()
            self._is_there.set()
            self._report(TunnelState.OPEN)

    async def _connect_client(self) -> tuple[ByteReader, ByteWriter]:
        async with asyncio.timeout(_CLIENT_PATIENCE_SECONDS):  # TimeoutError is an OSError
            await self._is_there.wait()
        try:
            streams = await self._session.link.open_tcp(_LOOPBACK, self._port)
        except ConnectionLost:
            raise
        except (SparkctlError, OSError) as error:
            self._report(TunnelState.REFUSED, sanitize_line(getattr(error, "message", None) or str(error)))
            raise
        self._report(TunnelState.OPEN)
        return streams

    def _note_status(self, status: ConnectionStatus) -> None:
        if status.state is not NodeState.OK and not self._is_lost.is_set():
            self._is_there.clear()
            self._is_lost.set()

    def _report(self, state: TunnelState, detail: str | None = None) -> None:
        if state is self._state:
            return
        self._state = state
        self._emit(
            TunnelStateChanged(
                ts=self._ctx.clock.unix_time(),
                node=self._session.node.name,
                instance=self._request.instance,
                state=state,
                url=self._url,
                detail=detail,
            )
        )


async def _find_endpoint(
    stack: AsyncExitStack, ctx: CommandContext, request: OpenTunnel, emit: Emit
) -> tuple[NodeSession, int]:
    """Return the session of the node where the instance answers, and its port there; other sessions are closed."""

    async def ask_node(node: Node) -> tuple[Node, tuple[Container, ...]] | SparkctlError:
        try:
            async with ctx.create_session(node) as session:
                await session.link.connect()
                return node, tuple(one for one in await session.docker.list_containers() if one.is_alive)
        except SparkctlError as error:
            return error

    answers = await gather_or_cancel(*map(ask_node, request.nodes))
    seen = [answer for answer in answers if not isinstance(answer, SparkctlError)]
    found = [
        (node, port)
        for node, containers in seen
        for one in containers
        if one.instance_name == request.instance and (port := _get_port(one)) is not None
    ]
    if not found:
        names = sorted(
            {one.instance_name for _, containers in seen for one in containers if _get_port(one) is not None}
        )
        where = " or ".join(node.name for node, _ in seen)
        unknown = build_missing_instance_error(request.instance, names, where)
        if (failure := next((answer for answer in answers if isinstance(answer, SparkctlError)), None)) is not None:
            raise failure.add_message(unknown) if seen else failure
        raise unknown
    if len(found) > 1:
        nodes = " and ".join(node.name for node, _ in found)
        raise InvalidInput(f"{request.instance} runs on {nodes}", f"name one: --node {found[0][0].name}")
    ((node, port),) = found
    if node.is_local:
        raise OperationRefused(
            f"{request.instance} runs on this machine: http://{_LOOPBACK}:{port} needs no tunnel", "sparkctl endpoints"
        )
    session = await open_session(stack, ctx, node, emit)
    await session.link.connect()
    return session, port


def _get_port(one: Container) -> int | None:
    """Return the port on the node where it answers; of a model over several Sparks only the head has one."""
    if not one.is_managed:
        return next(iter(one.ports), None)
    rank = one.get_label(ContainerLabel.RANK) or "0"
    return parse_port_label(one) if rank.partition("/")[0] == "0" else None
