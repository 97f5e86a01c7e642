"""A transfer under attack: real ends as processes on this machine, and somebody between them, beside them, or in one."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import stat
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkctl.clock import SystemClock
from sparkctl.commands.transfer import transfer_profile, transfer_stream
from sparkctl.commands.transfer.transfer_files import (
    TransferPlan,
    TransferReporter,
    part_name,
    plan_transfer,
    transfer_files,
)
from sparkctl.commands.transfer.transfer_stream import (
    TransferRoute,
    TransferStream,
    make_certificate_pair,
    start_transfer_program,
)
from sparkctl.errors import DockerError, OperationRefused, SparkctlError, TransferTampered
from sparkctl.model.fabric_route import FabricLane
from sparkctl.model.node import Node, NodeName
from sparkctl.node import model_files_decoder
from sparkctl.node.transfer import is_safe_link, is_safe_name
from sparkctl.transport.node_session import NodeSession

ONE, TWO = NodeName("one"), NodeName("two")
HERE = "127.0.0.1"
DIRECT = TransferRoute(
    (
        (
            FabricLane(interface="lo", address=HERE, network="127.0.0.0/8"),
            FabricLane(interface="lo", address=HERE, network="127.0.0.0/8"),
        ),
    )
)
Change = Callable[[bytes, int], bytes]  # what becomes of bytes of the sender, and where in its stream they are


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@asynccontextmanager
async def open_two_sessions() -> AsyncIterator[tuple[NodeSession, NodeSession]]:
    async with NodeSession(Node(name=ONE, host="local")) as one, NodeSession(Node(name=TWO, host="local")) as two:
        yield one, two


def make_reporter() -> TransferReporter:
    return TransferReporter(SystemClock(), lambda _: None, ONE, TWO, "q")


async def list_both_ends(
    session: NodeSession, source: Path, target: Path
) -> tuple[model_files_decoder.FileListing, model_files_decoder.FileListing]:
    asked = model_files_decoder.build_listing_program([str(source), str(target)], rooms=())
    done = await session.run(asked.argv, stdin=asked.stdin)
    here, there = model_files_decoder.decode_file_listing(done.stdout)[0]
    return here, there


# --- somebody between the two --------------------------------------------------------------------------------------


class Proxy:
    """Stands between the sender and the receiver, and changes what the sender says."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.elsewhere: int | None = None

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, target: int) -> None:
        try:
            back, onward = await asyncio.open_connection(HERE, self.elsewhere or target)
            await asyncio.gather(
                self._pump(reader, onward, self.change), self._pump(back, writer, lambda data, _: data)
            )
        except OSError:
            pass
        finally:
            writer.close()

    @staticmethod
    async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, change: Change) -> None:
        at = 0
        while data := await reader.read(1 << 16):
            writer.write(change(data, at))
            at += len(data)
            await writer.drain()
        writer.close()


@pytest.fixture
def man_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> Callable[[Change], Proxy]:
    """Let what a sender is told lead it to a proxy, as a forged ARP answer does."""

    def install(change: Change) -> Proxy:
        proxy = Proxy(change)
        real = transfer_stream.start_transfer_program

        async def start_elsewhere(session: NodeSession, request: dict[str, Any]) -> Any:
            if "dial" in request:
                ways = []
                for *_, port, name in request["dial"]:
                    server = await asyncio.start_server(partial(proxy.pass_on, target=port), HERE, 0)
                    ways.append([HERE, HERE, server.sockets[0].getsockname()[1], name])
                request = {**request, "dial": ways}
            return await real(session, request)

        monkeypatch.setattr(transfer_stream, "start_transfer_program", start_elsewhere)
        return proxy

    return install


def flip_bit(first: int) -> Change:
    """Change one bit of the first bytes from there on."""

    def change(data: bytes, at: int) -> bytes:
        if not at <= first < at + len(data):
            return data
        where = first - at
        return data[:where] + bytes([data[where] ^ 1]) + data[where + 1 :]

    return change


@pytest.mark.parametrize(("first", "files"), [(0, 1), (700, 1), (5_000, 1), (400_000, 1), (400_000, 3)])
async def test_one_bit_that_is_changed_on_the_way_ends_the_transfer(
    tmp_path: Path, man_in_the_middle: Callable[[Change], Proxy], first: int, files: int
) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    source.mkdir()
    for number in range(files):
        (source / f"w{number}").write_bytes(os.urandom(3_000_000))
    man_in_the_middle(flip_bit(first))
    async with open_two_sessions() as (one, two):
        found = plan_transfer([await list_both_ends(one, source, target)])
        with pytest.raises(TransferTampered, match="changes the transfer"):
            await transfer_files(one, two, found, DIRECT, make_reporter())
    assert all(path.name.endswith(".sparkctl-part") for path in target.glob("*"))


async def test_who_puts_an_end_of_his_own_in_between_is_not_spoken_to(
    tmp_path: Path, man_in_the_middle: Callable[[Change], Proxy]
) -> None:
    """He has certificates of his own, and none of those that the operator has made."""
    source, target = tmp_path / "a", tmp_path / "b"
    source.mkdir()
    (source / "w").write_bytes(b"weights" * 1000)
    own, _ = make_certificate_pair()
    (tmp_path / "own.pem").write_text(own["certificate"] + own["key"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "own.pem")
    heard = b""

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal heard
        heard += await reader.read()
        writer.close()

    proxy = man_in_the_middle(lambda data, _: data)
    async with await asyncio.start_server(listen, HERE, 0, ssl=context) as server:
        proxy.elsewhere = server.sockets[0].getsockname()[1]
        async with open_two_sessions() as (one, two):
            found = plan_transfer([await list_both_ends(one, source, target)])
            with pytest.raises(TransferTampered, match="somebody else answers in place of the other end"):
                await transfer_files(one, two, found, DIRECT, make_reporter())
    assert heard == b""
    assert not (target / "w").exists()


# --- an image ------------------------------------------------------------------------------------------------------

DOCKER = '''#!{python}
"""Docker as far as a transfer uses it: its archives are lines of JSON, {{"name": id}}."""
import json, os, pathlib, sys
at = pathlib.Path(os.environ["FAKE_DOCKER"])
names = json.loads((at / "names").read_text())
verb, words = sys.argv[1], sys.argv[2:]
if verb == "images":
    print(*(f"{{name}} {{number}}" for name, number in names.items()), sep="\\n")
elif verb == "save":
    sys.stdout.write((at / "archive").read_text())
elif verb == "load":
    archive = sys.stdin.read()
    (at / "loaded").write_text(archive)
    found = json.loads(archive)
    names.update(found)
    for name in found:
        print("Loaded image:", name) if not (at / "silent").exists() else None
elif verb == "events":
    print((at / "events").read_text() if (at / "events").exists() else "")
elif verb == "tag":
    names[words[1]] = words[0]
elif verb == "rmi":
    del names[words[-1]]
if verb in ("load", "tag", "rmi"):  # the others run beside each other
    (at / "names").write_text(json.dumps(names))
'''
WANTED, OTHER = "me/model:1", "vllm/vllm-openai:latest"


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A docker command that both ends find; its state in files."""
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin/docker"
    command.write_text(DOCKER.format(python=sys.executable))
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_DOCKER", str(tmp_path))
    (tmp_path / "names").write_text(json.dumps({OTHER: "sha256:good", WANTED: "sha256:old"}))
    return tmp_path


def list_image_names(docker: Path) -> dict[str, str]:
    found = json.loads((docker / "names").read_text())
    assert isinstance(found, dict)
    return found


async def stream_image(name: str = WANTED) -> None:
    async with open_two_sessions() as (one, two):
        await transfer_profile._stream_image(one, two, {"n": 0, "image": name}, DIRECT, make_reporter())


async def test_an_archive_that_is_changed_on_its_way_is_not_loaded(
    docker: Path, man_in_the_middle: Callable[[Change], Proxy]
) -> None:
    """The handshake passes as it is, as in the attack of somebody who knows no key; what follows does not."""
    (docker / "archive").write_text(json.dumps({WANTED: "sha256:new"}) + " " * 3_000_000)
    man_in_the_middle(flip_bit(1_000_000))
    with pytest.raises(TransferTampered, match="changes the transfer"):
        await stream_image()
    assert list_image_names(docker) == {OTHER: "sha256:good", WANTED: "sha256:old"}
    assert not (docker / "loaded").exists()


async def test_the_wanted_image_takes_its_name(docker: Path) -> None:
    (docker / "archive").write_text(json.dumps({WANTED: "sha256:new"}))
    await stream_image()
    assert list_image_names(docker) == {OTHER: "sha256:good", WANTED: "sha256:new"}


@pytest.mark.parametrize("name", ["docker.io/me/model:1", "index.docker.io/me/model:1"])
async def test_a_name_is_the_same_however_long_it_is_written(docker: Path, name: str) -> None:
    (docker / "archive").write_text(json.dumps({WANTED: "sha256:new"}))
    await stream_image(name)
    assert list_image_names(docker)[WANTED] == "sha256:new"


@pytest.mark.parametrize("is_silent", [False, True])
async def test_another_image_in_the_archive_takes_no_name(docker: Path, is_silent: bool) -> None:
    """What had a name has it again, what had none is untagged; also where `docker load` does not speak of it."""
    (docker / "archive").write_text(
        json.dumps({WANTED: "sha256:new", OTHER: "sha256:evil", "new/one:1": "sha256:evil"})
    )
    if is_silent:
        (docker / "silent").touch()
    with pytest.raises(DockerError, match="sent more than the image me/model:1: new/one:1, vllm/vllm-openai:latest"):
        await stream_image()
    assert list_image_names(docker) == {OTHER: "sha256:good", WANTED: "sha256:old"}


async def test_what_somebody_else_pulls_meanwhile_stays(docker: Path) -> None:
    """The archive stands for both: Docker has the other name afterwards, and says that a pull has brought it."""
    (docker / "archive").write_text(json.dumps({WANTED: "sha256:new", "other/pulled:1": "sha256:pulled"}))
    (docker / "silent").touch()
    event = {"Action": "pull", "Actor": {"ID": "other/pulled:1", "Attributes": {"name": "other/pulled"}}}
    (docker / "events").write_text(json.dumps(event))
    await stream_image()
    assert list_image_names(docker) == {OTHER: "sha256:good", WANTED: "sha256:new", "other/pulled:1": "sha256:pulled"}
    (docker / "silent").unlink()  # now `docker load` says that it was the archive
    (docker / "names").write_text(json.dumps({OTHER: "sha256:good"}))
    with pytest.raises(DockerError, match="other/pulled:1"):
        await stream_image()
    assert list_image_names(docker) == {OTHER: "sha256:good"}


async def test_a_full_disk_of_docker_is_said_as_such(docker: Path) -> None:
    (docker / "archive").write_text("{}")
    (docker / "bin/docker").write_text(
        "#!/bin/sh\ncase $1 in save) echo x;; load) cat >/dev/null; echo 'write /x: no space left on device'; exit 1;; esac\n"
    )
    with pytest.raises(DockerError) as failed:
        await stream_image()
    assert type(failed.value).__name__ == "DiskFull"
    assert "docker load failed on two: write /x: no space left on device" in failed.value.message
    assert failed.value.hint


# --- strangers at the port -----------------------------------------------------------------------------------------


@asynccontextmanager
async def start_receiver(session: NodeSession, **changes: Any) -> AsyncIterator[tuple[Any, int, dict[str, str]]]:
    """A receiver that waits for one stream without a job; yields it, its port, and what its sender is told."""
    sender, own = make_certificate_pair()
    request = {"role": "take", "tls": own, "streams": 1, "listen": [HERE], "peers": [HERE], "jobs": [], **changes}
    memory = await start_transfer_program(session, request)
    try:
        yield memory, json.loads(await memory.readline())["ports"][0], sender
    finally:
        await memory.release()


async def finish_as_sender(session: NodeSession, port: int, tls: dict[str, str]) -> dict[str, Any]:
    """Be the sender that the receiver waits for; return its last words."""
    request = {"role": "send", "tls": tls, "streams": 1, "jobs": [], "dial": [[HERE, HERE, port, "lo"]]}
    memory = await start_transfer_program(session, request)
    try:
        said = json.loads(await memory.readline())
        assert isinstance(said, dict)
        return said
    finally:
        await memory.release()


def await_closed(port: int) -> None:
    """Return once nobody listens there."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        with socket.socket() as link:
            if link.connect_ex((HERE, port)) != 0:
                return
        time.sleep(0.05)
    pytest.fail(f"port {port} is still open")


async def test_silent_strangers_keep_nobody_waiting_and_the_port_is_closed_when_all_are_there(tmp_path: Path) -> None:
    async with open_two_sessions() as (one, two), start_receiver(two) as (_, port, tls):
        with ExitStack() as stack:
            for _ in range(200):
                stack.enter_context(socket.create_connection((HERE, port)))
            began = time.monotonic()
            assert await finish_as_sender(one, port, tls) == {"done": True}
            assert time.monotonic() - began < 9.0  # less than one handshake may take
        await asyncio.to_thread(await_closed, port)


async def test_where_no_descriptor_is_left_the_port_stays_open(tmp_path: Path) -> None:
    sender, own = make_certificate_pair()
    asked = model_files_decoder.build_transfer_program(
        {"role": "take", "tls": own, "streams": 1, "listen": [HERE], "peers": [HERE], "jobs": []}
    )
    async with open_two_sessions() as (one, two):
        process = await two.link.start_process(["sh", "-c", 'ulimit -n 24; exec "$@"', "sh", *asked.argv])
        await process.write(asked.stdin)
        port = json.loads(await process.readline())["ports"][0]
        with ExitStack() as stack:
            for _ in range(60):
                stack.enter_context(socket.create_connection((HERE, port)))
            await asyncio.sleep(1.0)
        assert await finish_as_sender(one, port, sender) == {"done": True}
        await process.release()


async def test_nobody_but_the_expected_address_is_greeted() -> None:
    async with open_two_sessions() as (one, two), start_receiver(two) as (_, port, tls):
        with socket.socket() as stranger:
            stranger.bind(("127.0.0.2", 0))
            stranger.settimeout(5)
            stranger.connect((HERE, port))
            assert stranger.recv(1) == b""
        assert await finish_as_sender(one, port, tls) == {"done": True}


async def test_a_stranger_with_a_certificate_of_his_own_is_turned_away() -> None:
    async with open_two_sessions() as (one, two), start_receiver(two, meeting=4) as (memory, port, _):
        await finish_as_sender(
            one, port, make_certificate_pair()[0] | {"peer": make_certificate_pair()[1]["certificate"]}
        )
        own, other = make_certificate_pair()
        said = await finish_as_sender(one, port, {**own, "peer": other["certificate"]})
        assert said["kind"] == "tampered"  # to him, we are the wrong one, too
        assert json.loads(await memory.readline()) == {"at": 0}
        assert json.loads(await memory.readline())["error"] == "the other end did not come"


async def test_the_key_is_on_no_disk_and_in_no_command_line(tmp_path: Path) -> None:
    async with open_two_sessions() as (_, two), start_receiver(two) as (_, port, tls):
        assert "PRIVATE KEY" in tls["key"]
        await asyncio.to_thread(assert_holds_no_key, port)


def assert_holds_no_key(port: int) -> None:
    """Look at our receivers as another program of this machine could."""
    found = [one.parent for one in Path("/proc").glob("[0-9]*/cmdline") if b"sparkctl-carry" in _read_if_possible(one)]
    assert found, port
    for process in found:
        assert b"PRIVATE" not in _read_if_possible(process / "cmdline") + _read_if_possible(process / "environ")
        files = [str(one.readlink()) for one in (process / "fd").iterdir()]
        assert not any("memfd" in one or "/dev/shm" in one for one in files), files


def _read_if_possible(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


# --- a node that lies about its files ------------------------------------------------------------------------------


def make_listing(base: str, *entries: list[Any]) -> model_files_decoder.FileListing:
    """What a node says of a place, as it is understood."""
    place = {"place": base, "kind": "dir", "base": base, "entries": list(entries), "denied": [], "parts": {},
             "room": base, "there": base, "free": 1 << 40, "device": 1, "writable": True}  # fmt: skip
    return model_files_decoder.decode_file_listing(
        b"@@ survey " + json.dumps({"places": [place], "rooms": []}).encode() + b"\n"
    )[0][0]


def file_entry(path: Path, name: str) -> list[Any]:
    about = path.stat()
    return [name, "f", about.st_size, about.st_mtime_ns, 0o644, None]


async def test_no_file_is_written_through_a_link_that_an_earlier_sync_has_brought(tmp_path: Path) -> None:
    """First a link to the owner's directory, then a file in it: both are refused, each by itself."""
    source, target, home = tmp_path / "a", tmp_path / "b", tmp_path / "home/.ssh"
    for directory in (source / "a", target, home):
        directory.mkdir(parents=True)
    (home / "authorized_keys").write_text("the owner's")
    (source / "a/authorized_keys").write_text("the attacker's")
    for way in (str(home), "../home/.ssh"):
        first = make_listing(str(source), ["a", "l", 0, 0, 0, way])
        assert first.unsafe == ("a",)
        assert first.entries == ()
    (target / "a").symlink_to(home)
    second = make_listing(str(source), file_entry(source / "a/authorized_keys", "a/authorized_keys"))
    async with open_two_sessions() as (one, two):
        with pytest.raises(OperationRefused, match="is a link or a file, and nothing is written through it"):
            await transfer_files(
                one, two, plan_transfer([(second, make_listing(str(target)))]), DIRECT, make_reporter()
            )
    assert (home / "authorized_keys").read_text() == "the owner's"
    assert [path.name for path in home.iterdir()] == ["authorized_keys"]


async def tell_receiver(jobs: list[dict[str, Any]], **words: Any) -> SparkctlError | None:
    """Tell a real receiver to do something with what has come; return what it says against it."""
    async with (
        open_two_sessions() as (one, two),
        transfer_stream.open_transfer_stream(one, two, ([], jobs), DIRECT, 1) as pair,
    ):
        await pair.send_to_receiver(**words)
        await pair.send_to_receiver(end=True)
        return await drain_stream(pair)


async def drain_stream(pair: TransferStream) -> SparkctlError | None:
    try:
        async for _ in pair.read_messages():
            pass
    except SparkctlError as error:
        return error
    return None


@pytest.mark.parametrize("verb", ["keep", "drop", "touch", "links"])
async def test_nothing_below_a_link_is_renamed_removed_touched_or_linked(tmp_path: Path, verb: str) -> None:
    base, outside = tmp_path / "base", tmp_path / "outside"
    base.mkdir()
    outside.mkdir()
    (base / "d").symlink_to(outside)
    for name in ("w", ".w.1-5.sparkctl-part"):
        (outside / name).write_bytes(b"x")
        os.utime(outside / name, (9, 9))
    job = {"n": 0, "base": str(base), "name": "d/w", "size": 1, "mtime": 5 * 10**9, "mode": 0o777, "target": "x"}
    before = {path.name: (path.read_bytes(), path.stat().st_mtime, path.stat().st_mode) for path in outside.iterdir()}
    refused = await tell_receiver([job], **{verb: 0 if verb in ("keep", "drop") else [job]})
    assert isinstance(refused, OperationRefused), refused
    assert "nothing is written through it" in refused.message
    after = {path.name: (path.read_bytes(), path.stat().st_mtime, path.stat().st_mode) for path in outside.iterdir()}
    assert after == before


@pytest.mark.parametrize("target", ["/etc", "../x", "a/../../x", "a/..", "..", ".", "", "./a", "a//b", "../../x"])
async def test_the_receiver_makes_no_link_that_leads_out(tmp_path: Path, target: str) -> None:
    base = tmp_path / "base"
    base.mkdir()
    refused = await tell_receiver([], links=[{"base": str(base), "name": "l", "target": target}])
    assert isinstance(refused, OperationRefused), refused
    assert list(base.iterdir()) == []


@pytest.mark.parametrize("kind", ["link", "hard link", "fifo", "directory"])
async def test_a_part_that_is_no_plain_file_of_its_own_is_not_written_to(tmp_path: Path, kind: str) -> None:
    source, target, victim = tmp_path / "a", tmp_path / "b", tmp_path / "victim"
    source.mkdir()
    target.mkdir()
    (source / "w").write_bytes(b"new")
    victim.write_bytes(b"")
    found = plan_transfer([(make_listing(str(source), file_entry(source / "w", "w")), make_listing(str(target)))])
    part = target / part_name("w", found.send[0].size, found.send[0].mtime)
    if kind == "link":
        part.symlink_to(victim)
    elif kind == "hard link":
        os.link(victim, part)
    elif kind == "fifo":
        os.mkfifo(part)
    else:
        part.mkdir()
    async with open_two_sessions() as (one, two):
        with pytest.raises(OperationRefused, match=r"is not a plain file|is a second name of another file"):
            await transfer_files(one, two, found, DIRECT, make_reporter())
    assert victim.read_bytes() == b""
    assert not (target / "w").exists()


async def test_a_fifo_in_place_of_a_file_that_is_to_be_sent_does_not_hang(tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    source.mkdir()
    (source / "w").write_bytes(b"new")
    found = plan_transfer([(make_listing(str(source), file_entry(source / "w", "w")), make_listing(str(target)))])
    (source / "w").unlink()
    os.mkfifo(source / "w")
    async with open_two_sessions() as (one, two):
        with pytest.raises(OperationRefused, match="is not a plain file"):
            await asyncio.wait_for(transfer_files(one, two, found, DIRECT, make_reporter()), 30)


async def test_a_link_takes_the_place_of_a_file_and_leads_inside(tmp_path: Path) -> None:
    base = tmp_path / "base"
    (base / "s").mkdir(parents=True)
    (base / "blob").write_bytes(b"x")
    (base / "s/l").write_bytes(b"a copy")
    assert await tell_receiver([], links=[{"base": str(base), "name": "s/l", "target": "../blob"}]) is None
    assert (base / "s/l").readlink() == Path("../blob")
    assert stat.S_ISREG((base / "s/l").stat().st_mode)


WORDS = st.lists(st.sampled_from(["..", ".", "", "a", "b", "/", "...", "a\0"]), min_size=1, max_size=6)


@given(WORDS, WORDS)
def test_a_safe_link_never_leads_out_whatever_links_there_are_below(name: list[str], target: list[str]) -> None:
    """Without `..` behind a name, what follows it can only go down; so a plain count of levels is the whole truth."""
    path, way = "/".join(name), "/".join(target)
    if not is_safe_link(path, way):
        return
    assert is_safe_name(path)
    words = way.split("/")
    ups = words.count("..")
    assert words[:ups] == [".."] * ups
    assert ups <= path.count("/")
    assert set(words[ups:]).isdisjoint({"", ".", ".."})
    assert words[ups:]


def test_two_entries_of_one_name_are_one_job() -> None:
    found = make_listing("/m", ["w", "f", 5, 5, 0o644, None], ["w", "f", 5, 5, 0o644, None])
    assert len(plan_transfer([(found, make_listing("/x"))]).send) == 1
    assert (
        plan_transfer([(make_listing("/m", ["w.sparkctl-part", "f", 5, 5, 0o644, None]), make_listing("/x"))])
        == TransferPlan()
    )
