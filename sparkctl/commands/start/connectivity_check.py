"""Before a start over several Sparks: check that the nodes reach each other over every lane of the link."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from sparkctl.concurrency import gather_or_cancel
from sparkctl.engines.base import Engine, EngineRank
from sparkctl.errors import NodeStarved, OperationRefused
from sparkctl.model.fabric_route import FabricRoute, NodeLanes, RouteEnd
from sparkctl.model.launch_plan import LaunchPlan
from sparkctl.model.node import NodeName
from sparkctl.model.text.sanitize import sanitize_line, truncate_text
from sparkctl.node import build_script_command, peer_checks, read_node_script
from sparkctl.node.peer_checks import PingReply, PingReport, PingTarget
from sparkctl.transport.node_session import NodeSession

_JUMBO_MTU = 9000
_NO_REPLY = PingReply(None)
_HEADER_BYTES = 28  # of IP and ICMP, in a packet of _JUMBO bytes


async def read_lanes(sessions: Sequence[NodeSession]) -> list[NodeLanes]:
    """Return the interfaces of each node that tells them."""
    inspections = await gather_or_cancel(*(session.read_node("fabric") for session in sessions))
    return [
        NodeLanes(session.node.name, inspection.lanes.lanes, inspection.lanes.has_devices)
        for session, inspection in zip(sessions, inspections, strict=True)
        if inspection.lanes is not None
    ]


async def check_fabric(sessions: Sequence[NodeSession], route: FabricRoute) -> tuple[str, ...]:
    """Return warnings about the link between the nodes; takes about 2 s, at most 8 s, on all nodes in parallel.

    Raises `OperationRefused` with the evidence where one end does not reach another over a lane, or where packets of
    9000 bytes are lost between ends that are both set to them. A check that could not run gives a warning, no refusal.
    """
    by_node = {session.node.name: session for session in sessions}
    answers = await gather_or_cancel(*(_ping_from_node(by_node[end.node], end, route) for end in route.ends))
    return evaluate_pings(route, {end.node: answer for end, answer in zip(route.ends, answers, strict=True)})


def list_ping_targets(end: RouteEnd, route: FabricRoute) -> list[PingTarget]:
    """Return the ping targets of a node: every other end, on every lane."""
    wanted = []
    for number, lane in enumerate(end.lanes):
        for other in route.ends:
            if other.node == end.node:
                continue
            peer = other.lanes[number]
            is_jumbo = min(lane.mtu or 0, peer.mtu or 0) >= _JUMBO_MTU
            size = _JUMBO_MTU - _HEADER_BYTES if is_jumbo else 0
            wanted.append(
                PingTarget(interface=lane.interface, own=lane.address, peer=peer.address, size=size, device=lane.device)
            )
    return wanted


async def _ping_from_node(session: NodeSession, end: RouteEnd, route: FabricRoute) -> PingReport | None:
    """Return a node's answer; None where it came too late or was not readable."""
    wanted = list_ping_targets(end, route)
    try:
        done = await session.run(
            build_script_command(*(target.script_argument for target in wanted)),
            stdin=read_node_script("peer_ping.sh"),
            timeout=peer_checks.PING_TIMEOUT_SECONDS,
        )
        return peer_checks.decode_ping_report(done.stdout)
    except (NodeStarved, ValueError):
        return None


def evaluate_pings(route: FabricRoute, answers: dict[NodeName, PingReport | None]) -> tuple[str, ...]:
    """Return the warnings that follow from the nodes' answers; raises `OperationRefused` where the link fails. Pure."""
    faults = [fault for end in route.ends for fault in _find_unreachable(end, route, answers.get(end.node))]
    if faults:
        raise OperationRefused("the Sparks cannot reach each other: " + "; ".join(faults), _suggest_remedy(route))
    lost = [loss for end in route.ends for loss in _find_jumbo_losses(end, route, answers.get(end.node))]
    if lost:
        raise OperationRefused(
            f"packets of {_JUMBO_MTU} bytes are lost on the way, although every end is set to that MTU: "
            + "; ".join(lost),
            f"set MTU {_JUMBO_MTU} on the switch between them, or 1500 on every end: sudo ip link set NAME mtu 1500",
        )
    return tuple(caution for end in route.ends for caution in _find_warnings(end, route, answers.get(end.node)))


def _find_unreachable(end: RouteEnd, route: FabricRoute, answer: PingReport | None) -> Iterator[str]:
    if answer is None:
        return
    for lane in end.lanes:
        if answer.carriers.get(lane.interface) is False:
            yield f"{end.node} {lane.interface} has lost its carrier"
    for target in list_ping_targets(end, route):
        reply = answer.reached.get((target.interface, target.peer))
        if reply is not None and reply.answered is False and answer.carriers.get(target.interface) is not False:
            yield f"{_describe_path(end, target, route)}: {reply.words}"


def _find_jumbo_losses(end: RouteEnd, route: FabricRoute, answer: PingReport | None) -> Iterator[str]:
    """Return losses of large packets; they prove something only where small packets were answered."""
    if answer is None:
        return
    for target in list_ping_targets(end, route):
        key = (target.interface, target.peer)
        large = answer.large.get(key)
        if large is not None and large.answered is False and answer.reached.get(key, _NO_REPLY).to_ping:
            yield f"{_describe_path(end, target, route)}: {large.words}"


def _find_warnings(end: RouteEnd, route: FabricRoute, answer: PingReport | None) -> Iterator[str]:
    if answer is None:
        yield f"{end.node} did not say in time whether it reaches the others: not checked"
        return
    for lane in end.lanes:
        state = answer.rdma.get(lane.device or "")
        if state is not None and state != "ACTIVE":
            yield f"{end.node}: the RDMA device {lane.device} on {lane.interface} is {state}: NCCL cannot use it"
    for target in list_ping_targets(end, route):
        key = (target.interface, target.peer)
        reply, large = answer.reached.get(key), answer.large.get(key)
        if reply is None or reply.answered is None:
            why = f" ({reply.words})" if reply is not None and reply.words else ""
            yield f"{_describe_path(end, target, route)}: whether it reaches it is not known{why}"
        elif target.size and (large is None or not large.answered):
            why = "no answer to ping" if large is None or large.answered is False else large.words
            yield f"{_describe_path(end, target, route)}: whether packets of {_JUMBO_MTU} bytes pass is not known ({why})"


def _describe_path(end: RouteEnd, target: PingTarget, route: FabricRoute) -> str:
    peer = next(other.node for other in route.ends for lane in other.lanes if lane.address == target.peer)
    return f"{end.node} to {peer} over {target.interface} ({target.peer})"


def _suggest_remedy(route: FabricRoute) -> str:
    lane = route.head_end.lanes[0]
    return (
        f"see on each: ip -br addr; the cable; and whether a firewall lets the others in: "
        f"sudo ufw allow in on {lane.interface}"
    )


_MAX_SSH_MESSAGE_LENGTH = 200  # characters of ssh's message


async def check_rank_logins(engine: Engine, sessions: Sequence[NodeSession], route: FabricRoute) -> tuple[str, ...]:
    """Return warnings about SSH logins between ranks; no check where the engine's ranks meet in another way.

    Raises `OperationRefused` where the head's user cannot log in at a worker's link address without a password.
    """
    head, *workers = sessions
    if not engine.list_ssh_key_mounts(EngineRank(0, tuple(end.address for end in route.ends))):
        return ()
    found = await gather_or_cancel(
        *(_try_ssh_login(head, worker, route.get_route_end(worker.node.name)) for worker in workers)
    )
    return tuple(caution for caution in found if caution is not None)


async def _try_ssh_login(head: NodeSession, worker: NodeSession, end: RouteEnd) -> str | None:
    where = f"{worker.node.name} ({end.address})"
    try:
        entry = peer_checks.decode_login_target(
            (await worker.run(peer_checks.LOGIN_SCRIPT_COMMAND, stdin=peer_checks.LOGIN_SCRIPT)).stdout
        )
        if not entry.has_keys:
            raise OperationRefused(
                f"{entry.user} on {worker.node.name} has no ~/.ssh/authorized_keys, by which mpirun is to log in there",
                _suggest_login_remedy(head, entry.user, end),
            )
        done = await head.run(peer_checks.build_login_test_command(entry, end.address))
    except (NodeStarved, ValueError):
        return (
            f"whether {head.node.name} can log in at {where}, as mpirun will, is not known: no answer, or another one"
        )
    if done.status == 0:
        return None
    why = done.last_error or f"ssh ended with {done.status}"
    raise OperationRefused(
        f"mpirun starts the ranks by SSH, and {head.node.name} cannot log in at {where} without a password: "
        f"{truncate_text(why, _MAX_SSH_MESSAGE_LENGTH)}",
        _suggest_login_remedy(head, entry.user, end),
    )


def _suggest_login_remedy(head: NodeSession, user: str, end: RouteEnd) -> str:
    return (
        "sparkctl setup --for PROFILE; or by hand "
        f"on {head.node.name}, without a passphrase: ssh-keygen -t ed25519 (unless there is a key), then: "
        f"ssh-copy-id {sanitize_line(user)}@{end.address}"
    )


_LOOPBACK = "127.0.0.1"
_CONNECT_TIMEOUT_SECONDS = 5.0  # seconds; on its own loopback a node answers at once


async def verify_port_access(session: NodeSession, plan: LaunchPlan) -> None:
    """Open a connection to the port and close it again; a refused connection is fine, because nothing listens there
    yet.

    Raises:
        ForwardingForbidden: sshd forwards no connection to it.
        OperationRefused: nothing answers, not even with a refusal.
    """
    service = plan.readiness_target
    is_asked = service.ready.health is not None or service.ready.probe != "none"
    if plan.rank != 0 or service.port is None or not is_asked:
        return
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_SECONDS):
            _, writer = await session.link.open_tcp(_LOOPBACK, service.port)
        writer.close()
    except ConnectionRefusedError:
        return
    except TimeoutError as silent:
        node = session.node.name
        raise OperationRefused(
            f"port {service.port} of {node} does not answer on its own loopback, so the start could not be watched",
            f"a firewall on {node} may drop it: sudo iptables -S; or take another port: --set port=PORT",
        ) from silent
