"""The SSH link against a real SSH server: what is carried, what each failure is called, how it comes back."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from sparkctl.errors import (
    ChangedHostKey,
    ConnectionLost,
    HostKeyUntrusted,
    InvalidInput,
    LoginRefused,
    NodeStarved,
    NodeUnreachable,
    UnknownHostKey,
)
from sparkctl.model.node import Node, NodeName, NodeState
from sparkctl.model.questions import NonInteractivePrompter
from sparkctl.transport.node_connection import ConnectionStatus, OutputTooLong
from sparkctl.transport.ssh import ssh_config
from sparkctl.transport.ssh.ssh_connection import (
    MIN_BACKOFF_SECONDS,
    SshConnection,
)
from sparkctl.transport.ssh.ssh_login import KeyboardInteractive, LoginPrompter
from tests.unit.transport.ssh.ssh_servers import QUICK, Operator, Server, listen_silently, serve_ssh

CLIENT = asyncssh.generate_private_key("ssh-ed25519")
HOST = asyncssh.generate_private_key("ssh-ed25519")
OTHER = asyncssh.generate_private_key("ssh-ed25519")
ECDSA = asyncssh.generate_private_key("ecdsa-sha2-nistp256")
LIMITED = 20.0  # seconds any of these may take


def format_known_host(port: int, key: asyncssh.SSHKey) -> str:
    return ssh_config.format_known_hosts_line("127.0.0.1", port, key) + "\n"


def write_identity(home: Path, key: asyncssh.SSHKey = CLIENT, passphrase: str | None = None) -> str:
    file = home / "key"
    # OpenSSH's own format needs bcrypt to encrypt, which asyncssh does without where it is not installed
    key.write_private_key(file, "pkcs8-pem" if passphrase else "openssh", passphrase)
    file.chmod(0o600)
    return str(file)


def make_node_at_port(home: Path, port: int, **fields: object) -> Node:
    node = Node(
        name=NodeName("spark1"),
        host="127.0.0.1",
        user="milo",
        port=port,
        identity=write_identity(home),
        known_hosts=str(home / "known_hosts"),
    )
    return replace(node, **fields)


@pytest.fixture
async def server(home: Path) -> AsyncIterator[Server]:
    """An SSH server whose key is known."""
    async with serve_ssh(CLIENT, HOST) as running:
        (home / "known_hosts").write_text(format_known_host(running.port, HOST))
        yield running


@pytest.fixture
async def link(home: Path, server: Server) -> AsyncIterator[SshConnection]:
    """A connected link to it."""
    opened = SshConnection(make_node_at_port(home, server.port), limits=QUICK)
    await opened.connect()
    yield opened
    await opened.close()


async def test_a_command_arrives_word_for_word(link: SshConnection) -> None:
    words = ["a b", "it's", "\\", "$HOME", "*", "", "\n", "=ls"]
    done = await link.run(["printf", "%s|", *words])
    assert (done.stdout, done.stderr, done.status) == ("".join(word + "|" for word in words).encode(), b"", 0)


async def test_stdin_status_and_both_outputs(link: SshConnection) -> None:
    done = await link.run(["sh", "-s"], stdin=b"cat; echo err >&2; exit 3\n")
    assert (done.stdout, done.stderr, done.status) == (b"", b"err\n", 3)
    assert (await link.run(["cat"], stdin=b"\x00\xff" * 100_000)).stdout == b"\x00\xff" * 100_000


async def test_a_command_that_does_not_end_is_ended(link: SshConnection) -> None:
    with pytest.raises(TimeoutError):
        await link.run(["sleep", "60"], timeout=0.2)
    assert (await link.run(["echo", "alive"])).stdout == b"alive\n"


async def test_endless_output_is_an_error(link: SshConnection) -> None:
    with pytest.raises(OutputTooLong, match="16 MiB"):
        await link.run(["head", "-c", "17000000", "/dev/zero"], timeout=LIMITED)


async def test_a_held_command_ends_when_released(link: SshConnection) -> None:
    process = await link.start_process(["sh", "-c", "echo begun; cat >/dev/null"])
    assert await process.readline() == b"begun\n"
    await process.release()
    assert await process.readline() == b""


async def test_sockets_are_carried(link: SshConnection, tmp_path: Path) -> None:
    path = tmp_path / "s"

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(100))
        writer.close()

    unix = await asyncio.start_unix_server(echo, path)
    tcp = await asyncio.start_server(echo, "127.0.0.1", 0)
    for reader, writer in (
        await link.open_unix(str(path)),
        await link.open_tcp("127.0.0.1", tcp.sockets[0].getsockname()[1]),
    ):
        writer.write(b"hello")
        assert await reader.read(100) == b"hello"
        assert await reader.read(100) == b""
        writer.close()
    unix.close()
    tcp.close()


async def test_a_port_without_listener_is_unreachable(link: SshConnection, tmp_path: Path) -> None:
    with pytest.raises(ConnectionRefusedError):
        await link.open_tcp("127.0.0.1", free_port())
    with pytest.raises(ConnectionRefusedError):
        await link.open_unix(str(tmp_path / "none"))


@pytest.mark.parametrize("kind", ["session", "unix", "tcp"])
async def test_a_channel_that_is_given_up_while_it_opens_is_closed(
    link: SshConnection, server: Server, tmp_path: Path, kind: str
) -> None:
    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with (
        await asyncio.start_unix_server(hold, tmp_path / "s"),
        await asyncio.start_server(hold, "127.0.0.1", 0) as tcp,
    ):
        if kind == "session":
            opening: asyncio.Task[Any] = asyncio.create_task(link.start_process(["cat"]))
        elif kind == "unix":
            opening = asyncio.create_task(link.open_unix(str(tmp_path / "s")))
        else:
            opening = asyncio.create_task(link.open_tcp("127.0.0.1", tcp.sockets[0].getsockname()[1]))
        channels: dict[int, Any] = server.connections[0]._channels  # those that the node holds open
        async with asyncio.timeout(LIMITED):
            while not channels:  # noqa: ASYNC110 - asyncssh sets no event
                await asyncio.sleep(0)
        assert not opening.done()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        async with asyncio.timeout(5.0):
            while channels:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert (await link.run(["echo", "alive"])).stdout == b"alive\n"


async def test_the_local_docker_socket_is_ours_alone_and_goes_away(link: SshConnection) -> None:
    path = await link.docker_socket()
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert await link.docker_socket() == path
    await link.close()
    assert not path.parent.exists()


async def test_a_second_connect_does_nothing(link: SshConnection, server: Server) -> None:
    await link.connect()
    assert server.logins == 1


# trust


async def test_an_unknown_key_is_refused_with_its_fingerprint(home: Path) -> None:
    async with serve_ssh(CLIENT, HOST) as server:
        link = SshConnection(make_node_at_port(home, server.port), limits=QUICK)
        with pytest.raises(UnknownHostKey) as caught:
            await link.connect()
    assert caught.value.fingerprint == HOST.get_fingerprint()
    assert caught.value.known_hosts_line + "\n" == format_known_host(server.port, HOST)
    assert str(server.port) in (caught.value.hint or "")
    assert link.status.state is NodeState.UNTRUSTED
    assert server.logins == 0
    assert not (home / "known_hosts").exists()


async def test_a_confirmed_key_is_kept_and_not_asked_about_again(home: Path) -> None:
    file = home / "new" / "known_hosts"
    async with serve_ssh(CLIENT, HOST) as server:
        node = make_node_at_port(home, server.port, known_hosts=str(file))
        operator = Operator(True)
        for _ in range(2):
            link = SshConnection(node, operator, QUICK)
            await link.connect()
            await link.close()
    assert [question.fingerprint for question in operator.asked] == [HOST.get_fingerprint()]
    assert file.read_text() == format_known_host(server.port, HOST)
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


async def test_a_declined_key_is_not_kept(home: Path) -> None:
    async with serve_ssh(CLIENT, HOST) as server:
        with pytest.raises(UnknownHostKey):
            await SshConnection(make_node_at_port(home, server.port), Operator(False), QUICK).connect()
    assert not (home / "known_hosts").exists()


async def test_a_changed_key_is_refused_with_both_fingerprints_and_never_asked_about(home: Path) -> None:
    async with serve_ssh(CLIENT, HOST) as server:
        (home / "known_hosts").write_text(format_known_host(server.port, OTHER))
        operator = Operator(True)
        with pytest.raises(ChangedHostKey) as caught:
            await SshConnection(make_node_at_port(home, server.port), operator, QUICK).connect()
    assert HOST.get_fingerprint() in caught.value.message
    assert OTHER.get_fingerprint() in caught.value.message
    assert f"ssh-keygen -R '[127.0.0.1]:{server.port}'" in (caught.value.hint or "")
    assert operator.asked == []


@pytest.mark.parametrize("known", [HOST, ECDSA])
async def test_of_two_key_types_the_known_one_is_asked_for(home: Path, known: asyncssh.SSHKey) -> None:
    async with serve_ssh(CLIENT, ECDSA, HOST) as server:
        (home / "known_hosts").write_text(format_known_host(server.port, known))
        link = SshConnection(make_node_at_port(home, server.port), limits=QUICK)
        await link.connect()
        await link.close()
    assert server.logins == 1


async def test_a_revoked_key_is_refused(home: Path) -> None:
    async with serve_ssh(CLIENT, HOST) as server:
        (home / "known_hosts").write_text(
            "@revoked " + format_known_host(server.port, HOST) + format_known_host(server.port, HOST)
        )
        with pytest.raises(ChangedHostKey, match="revoked"):
            await SshConnection(make_node_at_port(home, server.port), limits=QUICK).connect()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"principals": ["127.0.0.1"], "valid_after": 0, "valid_before": 1000}, "has expired"),
        ({"principals": ["127.0.0.1"], "valid_after": "+10w", "valid_before": "+20w"}, "is not valid yet"),
        ({"principals": ["another"]}, "is for another name"),
    ],
)
async def test_what_is_wrong_with_a_host_certificate_is_said(home: Path, given: dict[str, Any], words: str) -> None:
    authority = asyncssh.generate_private_key("ssh-ed25519")
    certificate = authority.generate_host_certificate(HOST, "host", **given)
    async with serve_ssh(CLIENT, (HOST, certificate)) as server:
        (home / "known_hosts").write_text("@cert-authority " + format_known_host(server.port, authority))
        with pytest.raises(HostKeyUntrusted, match=words) as caught:
            await SshConnection(make_node_at_port(home, server.port), limits=QUICK).connect()
    assert "revoked" not in caught.value.message
    assert caught.value.hint


async def test_a_certificate_of_a_revoked_authority_is_said_to_be_so(home: Path) -> None:
    authority = asyncssh.generate_private_key("ssh-ed25519")
    certificate = authority.generate_host_certificate(HOST, "host", principals=["127.0.0.1"])
    async with serve_ssh(CLIENT, (HOST, certificate)) as server:
        mine = format_known_host(server.port, authority)
        (home / "known_hosts").write_text("@cert-authority " + mine + "@revoked " + mine)
        with pytest.raises(ChangedHostKey, match="revoked"):
            await SshConnection(make_node_at_port(home, server.port), limits=QUICK).connect()


async def test_a_known_hosts_or_a_key_that_is_a_pipe_costs_a_sentence(home: Path, server: Server) -> None:
    node = make_node_at_port(home, server.port)
    known = (home / "known_hosts").read_text()
    (home / "known_hosts").unlink()
    os.mkfifo(home / "known_hosts")
    with pytest.raises(HostKeyUntrusted, match="known_hosts cannot be read: it is a FIFO"):
        await SshConnection(node, limits=QUICK).connect()
    (home / "known_hosts").unlink()
    (home / "known_hosts").write_text(known)
    write_identity(home, CLIENT)
    os.mkfifo(home / "key-cert.pub")
    with pytest.raises(LoginRefused, match="cannot be used as a key: it is a FIFO"):
        await SshConnection(node, limits=QUICK).connect()


# login


async def test_a_strange_key_is_refused_once_and_named(home: Path, server: Server) -> None:
    node = make_node_at_port(home, server.port)
    write_identity(home, OTHER)
    link = SshConnection(node, limits=QUICK)
    with pytest.raises(LoginRefused, match="~/key") as caught:
        await link.reconnect()
    assert f"ssh-copy-id -i ~/key -p {server.port} milo@127.0.0.1" in (caught.value.hint or "")
    assert (server.logins, link.status.state) == (1, NodeState.REFUSED)


async def test_a_key_with_a_passphrase_and_no_agent_is_explained(home: Path, server: Server) -> None:
    node = make_node_at_port(home, server.port)
    write_identity(home, CLIENT, "secret")
    with pytest.raises(LoginRefused, match="passphrase") as caught:
        await SshConnection(node, limits=QUICK).connect()
    assert "ssh-add ~/key" in (caught.value.hint or "")


async def test_an_agent_of_ours_that_does_not_answer_is_named(
    home: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = make_node_at_port(home, server.port)
    write_identity(home, OTHER)
    agent = socket.socket(socket.AF_UNIX)
    agent.bind(str(home / "agent"))
    agent.listen(5)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(home / "agent"))
    with agent, pytest.raises(NodeUnreachable, match="the ssh-agent of this machine does not answer") as caught:
        await SshConnection(node, limits=QUICK).connect()
    assert "ssh-add -l" in (caught.value.hint or "")


async def test_a_missing_identity_is_our_own_mistake(home: Path, server: Server) -> None:
    with pytest.raises(InvalidInput, match="identity"):
        await SshConnection(make_node_at_port(home, server.port, identity="~/none"), limits=QUICK).connect()


# the network


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


async def test_a_closed_port_is_unreachable(home: Path) -> None:
    with pytest.raises(NodeUnreachable, match="refuses connections"):
        await SshConnection(make_node_at_port(home, free_port()), limits=QUICK).connect()


@pytest.mark.parametrize(
    ("host", "advice"), [("spark.invalid", "check the name"), ("spark-nowhere.local", "an IP address")]
)
async def test_an_unknown_name_is_unreachable(home: Path, host: str, advice: str) -> None:
    with pytest.raises(NodeUnreachable, match="no such name") as caught:
        await SshConnection(make_node_at_port(home, 22, host=host), limits=QUICK).connect()
    assert advice in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("banner", "close", "words"),
    [
        (b"", False, "does not greet as SSH does"),
        (b"", True, "before an SSH greeting"),
        (b"Exceeded MaxStartups\r\n", True, "before an SSH greeting"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", True, "or something else listens there"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", False, "did not finish .* large packets are lost"),
    ],
)
async def test_a_server_that_does_not_speak_is_starved(home: Path, banner: bytes, close: bool, words: str) -> None:
    async with listen_silently(banner, close) as port:
        link = SshConnection(make_node_at_port(home, port), limits=QUICK)
        with pytest.raises(NodeStarved, match=words):
            await link.connect()
    assert link.status.state is NodeState.STARVED


@pytest.mark.parametrize("said", [b"SSH-1.5-x\r\n", b"A" * 100_000, b"hello\r\n" * 5000])
async def test_what_is_surely_no_ssh_server_is_not_called_a_machine_without_memory(home: Path, said: bytes) -> None:
    async with listen_silently(said, False) as port:
        with pytest.raises(NodeUnreachable, match="speaks no proper SSH"):
            await SshConnection(make_node_at_port(home, port), limits=QUICK).connect()


async def test_a_jump_host_is_crossed_with_its_own_key_check(home: Path, server: Server) -> None:
    async with serve_ssh(CLIENT, OTHER) as jump:
        (home / ".ssh").mkdir()
        (home / ".ssh" / "config").write_text(f"Host door\n  HostName 127.0.0.1\n  Port {jump.port}\n"
                                              f"  User milo\n  IdentityFile {home}/key\n")  # fmt: skip
        node = make_node_at_port(home, server.port, jump="door")
        with pytest.raises(UnknownHostKey, match="jump host door"):
            await SshConnection(node, limits=QUICK).connect()
        known = home / "known_hosts"
        known.write_text(known.read_text() + format_known_host(jump.port, OTHER))
        link = SshConnection(node, limits=QUICK)
        await link.connect()
        assert (await link.run(["echo", "through"])).stdout == b"through\n"
        with pytest.raises(NodeUnreachable, match="the jump host cannot reach"):
            await SshConnection(replace(node, port=free_port()), limits=QUICK).connect()
        jump.cut()
        with pytest.raises(ConnectionLost):
            await link.run(["sleep", "20"], timeout=LIMITED)
        await link.close()


async def test_a_lost_node_leaves_no_login_on_its_jump_host(home: Path, server: Server) -> None:
    async with serve_ssh(CLIENT, OTHER) as jump:
        (home / ".ssh").mkdir()
        (home / ".ssh" / "config").write_text(f"Host door\n  HostName 127.0.0.1\n  Port {jump.port}\n"
                                              f"  User milo\n  IdentityFile {home}/key\n")  # fmt: skip
        known = home / "known_hosts"
        known.write_text(known.read_text() + format_known_host(jump.port, OTHER))
        link = SshConnection(make_node_at_port(home, server.port, jump="door"), limits=QUICK)
        await link.connect()
        (through,) = jump.connections
        server.cut()
        async with asyncio.timeout(LIMITED):
            await through.wait_closed()
        assert link.status.state is NodeState.UNREACHABLE
        await link.close()


async def test_a_jump_host_that_is_off_is_named(home: Path, server: Server) -> None:
    node = make_node_at_port(home, server.port, jump=f"milo@127.0.0.1:{free_port()}")
    with pytest.raises(NodeUnreachable, match=r"jump host 127\.0\.0\.1: .* refuses connections"):
        await SshConnection(node, limits=QUICK).connect()


async def test_an_alias_of_the_ssh_config_is_enough(home: Path, server: Server) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh" / "config").write_text(
        f"Include sync\nHost *\n  UserKnownHostsFile {home}/known_hosts\n  ForwardAgent yes\n  RequestTTY force\n"
    )
    (home / ".ssh" / "sync").write_text(
        f"Host spark-2a60\n  HostName 127.0.0.1\n  Port {server.port}\n  User milo\n  IdentityFile {write_identity(home)}\n"
        "  IdentitiesOnly yes\n  IdentityFile ~/.ssh/gone\n"
    )
    link = SshConnection(Node(name=NodeName("spark1"), host="spark-2a60"), limits=QUICK)
    await link.connect()
    assert (await link.run(["echo", "hi"])).stdout == b"hi\n"
    await link.close()


# loss and return


async def test_what_runs_when_the_connection_breaks_is_lost(link: SshConnection, server: Server) -> None:
    process = await link.start_process(["sh", "-c", "echo up; cat"])
    assert await process.readline() == b"up\n"
    running = asyncio.create_task(link.run(["cat"], stdin=b"", timeout=LIMITED))
    await running
    server.cut()
    with pytest.raises(ConnectionLost, match="spark1"):
        await process.readline()
    assert link.status.state is NodeState.UNREACHABLE
    for call in (link.run(["true"]), link.open_unix("/x"), link.open_tcp("127.0.0.1", 1), link.start_process(["true"])):
        with pytest.raises(ConnectionLost):
            await call


async def test_reconnecting_announces_each_try_and_comes_back(link: SshConnection, server: Server) -> None:
    seen: list[ConnectionStatus] = []
    lost, waiting = asyncio.Event(), asyncio.Event()

    def note(status: ConnectionStatus) -> None:
        seen.append(status)
        lost.set()
        if status.attempt is not None:
            waiting.set()

    link.add_status_listener(note)
    home_port, link.node = server.port, replace(link.node, port=free_port())
    server.cut()
    async with asyncio.timeout(LIMITED):
        await lost.wait()
        back = asyncio.create_task(link.reconnect())
        await waiting.wait()
        assert link.status.attempt == 1
        assert link.status.next_try is not None
        assert MIN_BACKOFF_SECONDS / 2 <= link.status.next_try <= MIN_BACKOFF_SECONDS
        link.node = replace(link.node, port=home_port)
        await back
    assert seen[-1].state is NodeState.OK
    assert (await link.run(["echo", "back"])).stdout == b"back\n"


async def test_reconnecting_gives_up_in_time_with_the_last_error(home: Path) -> None:
    with pytest.raises(NodeUnreachable):
        await SshConnection(make_node_at_port(home, free_port()), limits=QUICK).reconnect(give_up_after=0.1)


def test_the_nodes_password_is_not_for_a_jump_host() -> None:
    questions = LoginPrompter(NodeName("spark1"), NonInteractivePrompter(), "of spark1")
    jump = KeyboardInteractive(questions, "gateway", 5.0, is_node=False)
    node = KeyboardInteractive(questions, "spark1", 5.0, is_node=True)
    assert jump.take_password() is None
    assert (node.take_password(), node.take_password()) == ("of spark1", None)
