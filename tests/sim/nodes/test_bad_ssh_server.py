"""Servers that speak no proper SSH: each is one node that is unreachable with a sentence, at whatever stage it goes wrong."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from sparkctl.context import CommandContext
from sparkctl.errors import ConnectionLost, NodeError
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.node import Node, NodeName, NodeState
from sparkctl.model.questions import NonInteractivePrompter
from sparkctl.monitor.node_status import read_node_statuses
from sparkctl.simulator import SimulatedSparks
from sparkctl.transport.ssh.ssh_connection import SshConnection
from sparkctl.transport.ssh.ssh_login import LoginTimeouts
from tests.support import sim_clients

LIMITS = LoginTimeouts(connect=10.0, login=10.0)
BANNER = b"SSH-2.0-x\r\n"


def build_ssh_packet(payload: bytes) -> bytes:
    """An SSH packet before any keys."""
    padding = 8 - (len(payload) + 5) % 8 + 8
    return struct.pack(">IB", len(payload) + padding + 1, padding) + payload + bytes(padding)


def build_key_exchange(*names: bytes) -> bytes:
    """A KEXINIT with these lists of names, the last for all that are left."""
    lists = [*names, *[names[-1]] * (10 - len(names))]
    return build_ssh_packet(
        b"\x14" + bytes(16) + b"".join(struct.pack(">I", len(one)) + one for one in lists) + bytes(5)
    )


USUAL = build_key_exchange(
    b"curve25519-sha256", b"ssh-ed25519", b"aes128-ctr", b"aes128-ctr", b"hmac-sha2-256", b"hmac-sha2-256", b"none"
)
NOISE = random.Random(12).randbytes(4096)
SERVERS = {
    "NULs": BANNER + bytes(4096),
    "a short KEXINIT": BANNER + b"\0\0\0\x0c\x04\x14" + bytes(10),
    "names that are not ASCII": BANNER + build_key_exchange(b"\xff\xfe\xfd"),
    "a banner that is not ASCII": b"SSH-2.0-\xff\xfe\xfd\r\n" + b"\xff" * 64,
    "no common names": BANNER + build_key_exchange(b"none"),
    "empty lists": BANNER + build_key_exchange(b""),
    "a packet of 4 GiB": BANNER + b"\xff" * 64,
    "a packet of length 0": BANNER + bytes(64),
    "noise": BANNER + NOISE,
    "noise without a banner": NOISE,
    "a web server": b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n<html>",
    "telnet": b"\xff\xfd\x18\xff\xfd\x20\xff\xfd\x23\xff\xfd\x27login: ",
    "a line without an end": b"SSH-2.0-" + b"x" * 300_000,
    "lines without an end": b"hello\r\n" * 50_000,
    "SSH 1": b"SSH-1.5-x\r\n",
    "noise in place of the server's key": BANNER + USUAL + build_ssh_packet(b"\x1f" + NOISE[:200]),
    "a key of a kind unheard of": BANNER + USUAL + build_ssh_packet(b"\x1f" + (struct.pack(">I", 4) + b"\xff\xfe\xfd\xfc") * 3),
    "a disconnect that is not UTF-8": BANNER + build_ssh_packet(b"\x01\0\0\0\x02" + struct.pack(">I", 3) + b"\xff\xfe\xfd" + bytes(4)),
    "a packet of the wrong stage": BANNER + build_ssh_packet(b"\x5e" + NOISE[:40]),
    "an extension that is cut": BANNER + USUAL + build_ssh_packet(b"\x07\0\0\0\x09\0\0"),
}  # fmt: skip
WITHOUT_BANNER = ("noise without a banner", "a web server", "telnet")  # the time limit ends these


@asynccontextmanager
async def listen_and_answer(answer: bytes) -> AsyncIterator[int]:
    """Say this to whoever connects, and hang up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            writer.write(answer)
            await writer.drain()
            await reader.read(65536)
            await reader.read(65536)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def make_node_at_port(port: int, sparks: SimulatedSparks | None = None, name: str = "bad") -> Node:
    if sparks is None:
        return Node(name=NodeName(name), host="127.0.0.1", user="milo", port=port, known_hosts="/dev/null")
    known = str(sparks.known_hosts_path)
    return Node(
        name=NodeName(name),
        host="127.0.0.1",
        user="milo",
        port=port,
        identity=str(sparks.identity_path),
        known_hosts=known,
    )


@pytest.fixture(autouse=True)
def debugging(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of an unexpected class is made a node's failure; nothing of whoever runs this comes in."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.setenv("SPARKCTL_DEBUG", "1")


@pytest.mark.parametrize("kind", SERVERS)
async def test_what_is_no_ssh_server_is_a_node_that_is_unreachable(kind: str) -> None:
    async with listen_and_answer(SERVERS[kind]) as port:
        limits = LoginTimeouts(connect=10.0, login=1.0) if kind in WITHOUT_BANNER else LIMITS
        link = SshConnection(make_node_at_port(port), NonInteractivePrompter(), limits)
        with pytest.raises(NodeError) as caught:
            await link.connect()
    assert caught.value.node == "bad"
    assert caught.value.message.isprintable()
    assert "127.0.0.1" in caught.value.message
    assert caught.value.hint


async def test_bad_servers_take_no_answer_of_the_good_ones_away(tmp_path: Path) -> None:
    async with (
        SimulatedSparks("two-stacks", **sim_clients.FAST) as sparks,
        listen_and_answer(SERVERS["NULs"]) as first,
        listen_and_answer(SERVERS["names that are not ASCII"]) as second,
    ):
        good = [make_node_at_port(sparks.ports[name], sparks, name) for name in ("spark1", "spark2")]
        ctx = CommandContext(history=OperationHistory(tmp_path / "state"), operator="milo@laptop")
        views = await read_node_statuses(
            ctx, [make_node_at_port(first), *good, make_node_at_port(second, name="worse")]
        )
    assert [view.state for view in views] == [
        NodeState.UNREACHABLE, NodeState.OK, NodeState.OK, NodeState.UNREACHABLE,
    ]  # fmt: skip
    assert "speaks no proper SSH" in (views[0].detail or "")
    assert [len(view.instances) for view in views[1:3]] == [1, 1]


@asynccontextmanager
async def relay_spoilt_traffic(port: int, spoil: Callable[[bytes, int], bytes]) -> AsyncIterator[int]:
    """Stand between: what the server sends passes through ``spoil``, which is given how much came before."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)

        async def up() -> None:
            while data := await reader.read(65536):
                far_writer.write(data)
            far_writer.close()

        upwards = asyncio.create_task(up())
        passed = 0
        with suppress(OSError):
            while data := await far_reader.read(65536):
                writer.write(spoil(data, passed))
                passed += len(data)
                await writer.drain()
        writer.close()
        upwards.cancel()
        await asyncio.gather(upwards, return_exceptions=True)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@pytest.mark.parametrize("seed", range(4))
async def test_a_byte_that_is_spoilt_anywhere_on_the_way_ends_one_connection(seed: int) -> None:
    """In the banner, in the key exchange, and behind the keys, where everything is authenticated."""
    chance = random.Random(seed)
    places = sorted(chance.sample(range(40), 4) + chance.sample(range(1200), 12) + chance.sample(range(6000), 6))

    async with SimulatedSparks("empty", **sim_clients.FAST) as sparks:

        async def attempt(place: int) -> None:
            def spoil(data: bytes, passed: int) -> bytes:
                at = place - passed
                return data if not 0 <= at < len(data) else data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]

            async with relay_spoilt_traffic(sparks.ports["spark1"], spoil) as port:
                known = sparks.known_hosts_path.with_name(f"known_hosts-{port}")
                known.write_text(
                    sparks.known_hosts_path.read_text().replace(f":{sparks.ports['spark1']} ", f":{port} ")
                )
                node = Node(
                    name=NodeName("bad"), host="127.0.0.1", user="milo", port=port, identity=str(sparks.identity_path),
                    known_hosts=str(known),
                )  # fmt: skip
                link = SshConnection(node, NonInteractivePrompter(), LoginTimeouts(connect=3.0, login=3.0))
                with suppress(NodeError):
                    await link.connect()
                    await link.run(["python3", "-ISc", "x"], timeout=3.0)
                await link.close()

        await asyncio.gather(*(attempt(place) for place in places))


PAYLOADS = (NOISE[:100], b"", b"\0\0\0\0", b"\0\0\0\x63" + NOISE[:30], b"\0\0\0\0\xff\xff\xff\xff", b"\xff" * 40)


@pytest.mark.parametrize("kind", [80, 90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 2, 3, 4, 20, 21, 51, 52, 193])
async def test_garbage_behind_the_keys_ends_the_connection_and_no_more(kind: int) -> None:
    """A server that was let in as the one we know may say what it likes: whoever waits is told that the link is lost."""
    async with SimulatedSparks("empty", **sim_clients.FAST) as sparks:
        for payload in PAYLOADS:
            await _say_behind_the_keys(sparks, kind, payload)


async def _say_behind_the_keys(sparks: SimulatedSparks, kind: int, payload: bytes) -> None:
    link = SshConnection(make_node_at_port(sparks.ports["spark1"], sparks, "spark1"), NonInteractivePrompter(), LIMITS)
    await link.connect()
    process = await link.start_process(["sh", "-c", "x", "sparkctl-lock", "/run", "/tmp/l", "1", "me", "hold"])
    assert (await process.readline()).startswith(b"@@ ")
    (login,) = sparks.sshd["spark1"].logins
    waiting = asyncio.ensure_future(process.readline())
    asking = asyncio.ensure_future(link.open_unix("/nowhere"))
    login.send_packet(kind, payload)
    login.send_packet(kind, payload)
    for task in (waiting, asking):
        done, _ = await asyncio.wait({task}, timeout=0.2)
        if done:
            error = task.exception()
            assert error is None or isinstance(error, NodeError | ConnectionRefusedError), repr(error)
        task.cancel()
    await asyncio.gather(waiting, asking, return_exceptions=True)
    with suppress(ConnectionLost, TimeoutError):
        await link.run(["python3", "-ISc", "x"], timeout=1.0)
    await process.release()
    await link.close()
    await sim_clients.wait_until_true(lambda: not sparks.sshd["spark1"].logins)
