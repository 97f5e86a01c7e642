"""sparkctl's own link to a simulated node: the same calls that reach a real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from sparkctl.errors import ConnectionLost, NodeUnreachable, UnknownHostKey
from sparkctl.model.node import Node, NodeName, NodeState
from sparkctl.node import build_script_command, read_node_script
from sparkctl.node import node_inspection as probe
from sparkctl.simulator import SimClock, SimulatedSparks
from sparkctl.transport.node_connection import NodeConnection
from sparkctl.transport.node_session import open_connection
from tests.support import sim_clients


def _make_node(sparks: SimulatedSparks, known_hosts: str | None = None) -> Node:
    return Node(
        name=NodeName("spark1"),
        host="127.0.0.1",
        user="milo",
        port=sparks.ports["spark1"],
        identity=str(sparks.identity_path),
        known_hosts=known_hosts or str(sparks.known_hosts_path),
    )


@pytest.fixture
async def link(sparks: SimulatedSparks) -> AsyncIterator[NodeConnection]:
    """A connected link to spark1."""
    opened = open_connection(_make_node(sparks))
    await opened.connect()
    yield opened
    await opened.close()


async def test_a_look_and_a_lock(link: NodeConnection) -> None:
    done = await link.run(build_script_command("identity", "memory"), stdin=read_node_script("node_inspection.sh"))
    inspection = probe.decode_inspection(done.stdout)
    assert inspection.identity is not None
    assert inspection.identity.product == "DGX Spark"
    process = await link.start_process(
        ["sh", "-c", "the 'script'\n", "sparkctl-lock", "/run", "/tmp/l", "1", "me", "hold"]
    )
    assert await process.readline() == b"@@ held\n"
    second = await link.start_process(
        ["sh", "-c", "the 'script'\n", "sparkctl-lock", "/run", "/tmp/l", "2", "you", "hold"]
    )
    assert await second.readline() == b"@@ taken\n"
    assert await second.readline() == b"me\n"
    await second.release()
    await process.release()


async def test_a_lock_lapses_as_a_sparks_does() -> None:
    """30 s after its holder's last beat, and at once with its connection."""
    clock = SimClock(rate=20.0, elastic=True)
    async with SimulatedSparks("empty", clock=clock) as sparks:
        node, lock = sparks.nodes["spark1"], ["sh", "-c", "x", "sparkctl-lock", "/run", "/tmp/l", "1"]
        link = open_connection(_make_node(sparks))
        await link.connect()
        process = await link.start_process([*lock, "me", "hold"])
        assert await process.readline() == b"@@ held\n"
        began = clock.monotonic()
        while clock.monotonic() - began < 40:
            await process.write(b".")
            await asyncio.sleep(0.05)
        assert node.locks == {"/run": "me"}
        began = clock.monotonic()
        assert await asyncio.wait_for(process.readline(), sim_clients.PATIENCE) == b"", "its command has ended"
        assert clock.monotonic() - began > 20
        assert node.locks == {}
        clock.set_rate(0.001)
        again = await link.start_process([*lock, "you", "hold"])
        assert await again.readline() == b"@@ held\n"
        sparks.sshd["spark1"].drop_connections()
        await sim_clients.wait_until_true(lambda: not node.locks)
        clock.set_rate(1.0)
        await link.close()


async def test_who_wants_the_connection_back_is_not_taken_for_the_one_who_gave_up_just_before(
    link: NodeConnection, sparks: SimulatedSparks
) -> None:
    await sparks.sshd["spark1"].close()
    await sim_clients.wait_until_true(lambda: link.status.state is NodeState.UNREACHABLE)
    one = asyncio.create_task(link.reconnect())
    await sim_clients.wait_until_true(lambda: bool(link.status.attempt))
    one.cancel()
    other = asyncio.create_task(link.reconnect(give_up_after=0.5))
    with pytest.raises(NodeUnreachable):
        await other
    assert one.cancelled()


async def test_a_tunnel_to_a_closed_port_is_refused(link: NodeConnection) -> None:
    with pytest.raises(ConnectionRefusedError):
        await link.open_tcp("127.0.0.1", 8003)


async def test_a_cut_is_noticed_and_mended(link: NodeConnection, sparks: SimulatedSparks) -> None:
    process = await link.start_process(["sh", "-c", "x", "sparkctl-lock", "/run", "/tmp/l", "1", "me", "hold"])
    assert await process.readline() == b"@@ held\n"
    sparks.sshd["spark1"].drop_connections()
    with pytest.raises(ConnectionLost):
        await asyncio.wait_for(process.readline(), sim_clients.PATIENCE)
    await link.reconnect(give_up_after=sim_clients.PATIENCE)
    assert link.status.state is NodeState.OK
    assert (await link.run(["cat", "/etc/hostname"])).stdout == b"spark1\n"


async def test_an_unwritten_host_key_is_unknown(sparks: SimulatedSparks) -> None:
    empty = sparks.directory / "nothing-known"
    empty.touch()
    stranger = open_connection(_make_node(sparks, str(empty)))
    with pytest.raises(UnknownHostKey):
        await stranger.connect()
    await stranger.close()
