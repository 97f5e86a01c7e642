"""Both ends of a transfer as real processes on this machine, between two directories."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sparkctl.clock import SystemClock
from sparkctl.commands.transfer.transfer_files import (
    TransferPlan,
    TransferReporter,
    compare_checksums,
    part_name,
    plan_transfer,
    transfer_files,
)
from sparkctl.commands.transfer.transfer_stream import (
    RouteUnreachable,
    TransferRoute,
    make_certificate_pair,
    open_transfer_stream,
    start_transfer_program,
)
from sparkctl.errors import NodeUnreachable, OperationRefused
from sparkctl.model.events import Event, TransferProgressed
from sparkctl.model.fabric_route import FabricLane
from sparkctl.model.node import Node, NodeName
from sparkctl.node import model_files_decoder
from sparkctl.transport.node_session import NodeSession

ONE, TWO = NodeName("one"), NodeName("two")
LO = FabricLane(interface="lo", address="127.0.0.1", network="127.0.0.0/8")
DIRECT = TransferRoute(((LO, LO),))


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@asynccontextmanager
async def open_two_sessions() -> AsyncIterator[tuple[NodeSession, NodeSession]]:
    async with NodeSession(Node(name=ONE, host="local")) as one, NodeSession(Node(name=TWO, host="local")) as two:
        yield one, two


def write_files(directory: Path) -> None:
    (directory / "blobs").mkdir(parents=True)
    (directory / "snap/deep").mkdir(parents=True)
    (directory / "blobs/big").write_bytes(os.urandom(9_000_001))
    (directory / "blobs/empty").write_bytes(b"")
    (directory / "snap/deep/odd name\nwith 'signs' $x é").write_bytes(b"x" * 70_000)
    (directory / "snap/model").symlink_to("../blobs/big")
    (directory / "snap/download.incomplete").write_bytes(b"no")
    outside = directory.parent / "outside"
    outside.write_bytes(b"elsewhere")
    (directory / "snap/outside").symlink_to(outside)


async def list_places(session: NodeSession, *places: Path) -> tuple[model_files_decoder.FileListing, ...]:
    asked = model_files_decoder.build_listing_program([str(one) for one in places], rooms=())
    done = await session.run(asked.argv, stdin=asked.stdin)
    return model_files_decoder.decode_file_listing(done.stdout)[0]


async def plan_between(one: NodeSession, source: Path, target: Path) -> TransferPlan:
    here, there = await list_places(one, source, target)
    return plan_transfer([(here, there)])


def make_reporter(events: list[Event]) -> TransferReporter:
    return TransferReporter(SystemClock(), events.append, ONE, TWO, "q")


def read_files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize("road", [DIRECT, TransferRoute()], ids=["direct", "through us"])
async def test_a_tree_arrives_with_its_links(tmp_path: Path, road: TransferRoute) -> None:
    source, target = tmp_path / "a/m", tmp_path / "b/m"
    write_files(source)
    events: list[Event] = []
    async with open_two_sessions() as (one, two):
        found = await plan_between(one, source, target)
        assert await transfer_files(one, two, found, road, make_reporter(events)) == road
        assert (await plan_between(one, source, target)).is_done
    wanted = read_files(source)
    del wanted["snap/download.incomplete"]
    assert read_files(target) == wanted
    assert (target / "snap/model").readlink() == Path("../blobs/big")
    assert not (target / "snap/outside").is_symlink()
    assert (target / "blobs/big").stat().st_mtime_ns == (source / "blobs/big").stat().st_mtime_ns
    moved = [event for event in events if isinstance(event, TransferProgressed)]
    assert (moved[0].done, moved[-1].done, moved[-1].total) == (0, found.total_bytes, found.total_bytes)


async def test_a_part_is_gone_on_with_and_a_damaged_one_thrown_away(tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    source.mkdir()
    target.mkdir()
    data = os.urandom(3_000_000)
    (source / "w").write_bytes(data)
    async with open_two_sessions() as (one, two):
        found = await plan_between(one, source, target)
        part = target / part_name("w", found.send[0].size, found.send[0].mtime)
        (target / ".w.1-1.sparkctl-part").write_bytes(b"of another state")
        part.write_bytes(b"X" + data[1:1_000_000])
        found = await plan_between(one, source, target)
        assert (found.present_bytes, found.missing_bytes) == (1_000_000, 2_000_000)
        with pytest.raises(NodeUnreachable, match="not what was sent"):
            await transfer_files(one, two, found, DIRECT, make_reporter([]))
        assert list(target.iterdir()) == []
        part.write_bytes(data[:1_000_000])
        found = await plan_between(one, source, target)
        events: list[Event] = []
        await transfer_files(one, two, found, DIRECT, make_reporter(events))
    assert read_files(target) == {"w": data}
    done = [event.done for event in events if isinstance(event, TransferProgressed)]
    assert done == sorted(done)
    assert done[0] == 1_000_000


async def test_contents_decide_where_only_the_time_differs(tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    for directory in (source, target):
        directory.mkdir()
        (directory / "same").write_bytes(b"same")
        (directory / "other").write_bytes(directory.name.encode())
        for name in ("same", "other"):
            os.utime(directory / name, (1, 1) if directory == source else (9, 9))
    async with open_two_sessions() as (one, two):
        found = await plan_between(one, source, target)
        assert len(found.doubtful) == 2
        found = await compare_checksums(one, two, found, make_reporter([]))
        assert [each.name for each in found.send] == ["other"]
        await transfer_files(one, two, found, DIRECT, make_reporter([]))
        assert (await plan_between(one, source, target)).is_done
    assert read_files(target) == read_files(source)


async def test_a_file_that_changes_meanwhile_is_not_kept(tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    source.mkdir()
    (source / "w").write_bytes(b"before")
    async with open_two_sessions() as (one, two):
        found = await plan_between(one, source, target)
        (source / "w").write_bytes(b"after it")
        with pytest.raises(NodeUnreachable, match="has changed since"):
            await transfer_files(one, two, found, DIRECT, make_reporter([]))
    assert not (target / "w").exists()


async def test_where_the_sender_does_not_get_through_it_goes_through_us(tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    source.mkdir()
    (source / "w").write_bytes(b"x" * 100)
    nowhere = TransferRoute(
        ((FabricLane(interface="eth9", address="192.0.2.1", network="192.0.2.0/24"), LO),)
    )  # an address that no machine has
    events: list[Event] = []
    async with open_two_sessions() as (one, two):
        road = await transfer_files(one, two, await plan_between(one, source, target), nowhere, make_reporter(events))
    assert road == TransferRoute()
    assert any("goes through this machine" in getattr(event, "message", "") for event in events)
    assert read_files(target) == read_files(source)


async def test_only_one_receives_at_a_time() -> None:
    async with open_two_sessions() as (one, two), open_transfer_stream(one, two, ([], []), DIRECT, 1):
        with pytest.raises(OperationRefused, match="another sync to two is under way"):
            async with open_transfer_stream(one, two, ([], []), DIRECT, 1):
                pass


async def test_a_transfer_program_ends_without_its_operator(tmp_path: Path) -> None:
    request = {"role": "take", "tls": make_certificate_pair()[1], "streams": 1, "listen": ["127.0.0.1"], "peers": ["127.0.0.1"],
               "jobs": [], "lock": None}  # fmt: skip
    async with open_two_sessions() as (one, _):
        memory = await start_transfer_program(one, request)
        await memory.readline()
        began = time.monotonic()
        await memory.release()
        assert time.monotonic() - began < 1.9  # by itself, and not by the kill that follows two seconds later


async def test_a_blocked_route_is_reported_as_unreachable() -> None:
    nowhere = TransferRoute(((FabricLane(interface="eth9", address="192.0.2.1", network="192.0.2.0/24"), LO),))
    async with open_two_sessions() as (one, two), open_transfer_stream(one, two, ([], []), nowhere, 1) as pair:
        with pytest.raises(RouteUnreachable):
            async for _ in pair.read_messages():
                pass


async def test_the_survey_tells_split_ggufs_rights_and_room(tmp_path: Path) -> None:
    for name in ("q-00001-of-00002.gguf", "q-00002-of-00002.gguf", "r-00001-of-00002.gguf", "other.gguf"):
        (tmp_path / name).write_bytes(b"g")
    async with open_two_sessions() as (one, _):
        split, alone, absent = await list_places(
            one, tmp_path / "q-00001-of-00002.gguf", tmp_path / "other.gguf", tmp_path / "no/such"
        )
    assert [entry.name for entry in split.entries] == ["q-00001-of-00002.gguf", "q-00002-of-00002.gguf"]
    assert [entry.name for entry in alone.entries] == ["other.gguf"]
    assert (absent.kind, absent.entries, absent.room.there) == ("none", (), str(tmp_path))
    assert absent.room.free


def test_a_survey_that_leads_out_of_its_place_is_not_believed() -> None:
    entries = [[name, "f", 1, 1, 0o644, None] for name in ("good", "../etc/passwd", "/etc/passwd", "a/../../b")]
    place = {"place": "/m", "kind": "dir", "base": "/m", "entries": entries, "denied": [], "parts": {}, "room": "/m",
             "there": "/m", "free": 1, "device": 1, "writable": True}  # fmt: skip
    answer = b"motd\n@@ survey " + json.dumps({"places": [place], "rooms": []}).encode() + b"\n"
    found = model_files_decoder.decode_file_listing(answer)[0][0]
    assert [entry.name for entry in found.entries] == ["good"]
    assert found.unsafe == ("../etc/passwd", "/etc/passwd", "a/../../b")
    for broken in (b"", b"@@ survey {}\n", b"@@ survey [1]\n", b"@@ survey nonsense\n"):
        with pytest.raises(ValueError, match=r".+"):
            model_files_decoder.decode_file_listing(broken)


async def test_a_part_of_a_file_with_a_longer_name_is_not_taken_for_stale(tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    source.mkdir()
    target.mkdir()
    for name in ("w", "w.index.json"):
        (source / name).write_bytes(os.urandom(1000))
    other = target / ".w.index.json.1000-5.sparkctl-part"
    other.write_bytes(b"what another stream writes now")
    async with open_two_sessions() as (one, two):
        found = await plan_between(one, source, target)
        only = TransferPlan(send=tuple(each for each in found.send if each.name == "w"))
        await transfer_files(one, two, only, DIRECT, make_reporter([]))
    assert (target / "w").read_bytes() == (source / "w").read_bytes()
    assert other.exists()


async def test_a_file_behind_a_directory_that_is_a_link_elsewhere_is_sent_as_a_file(tmp_path: Path) -> None:
    source, target = tmp_path / "a/m", tmp_path / "b/m"
    (tmp_path / "disk/shared").mkdir(parents=True)
    (source / "blobs").mkdir(parents=True)
    (source / "blobs/w").write_bytes(b"weights")
    (tmp_path / "disk/shared/w").symlink_to(source / "blobs/w")  # a link into the place, from outside of it
    (tmp_path / "disk/shared/back").symlink_to(source / "blobs")
    (tmp_path / "disk/shared/loop").symlink_to(tmp_path / "disk/shared")
    for name in ("another", "shared"):
        (source / name).symlink_to(tmp_path / "disk/shared")
    async with open_two_sessions() as (one, two):
        await transfer_files(one, two, await plan_between(one, source, target), DIRECT, make_reporter([]))
        assert (await plan_between(one, source, target)).is_done
    names = ("blobs/w", "another/w", "another/back/w", "shared/w", "shared/back/w")
    assert read_files(target) == dict.fromkeys(names, b"weights")
    assert not any(path.is_symlink() for path in target.rglob("*"))


async def test_a_base_that_is_a_link_of_the_owner_is_followed(tmp_path: Path) -> None:
    source, target = tmp_path / "a/m", tmp_path / "b/m"
    write_files(source)
    (tmp_path / "disk").mkdir()
    (tmp_path / "b").mkdir()
    target.symlink_to(tmp_path / "disk")
    async with open_two_sessions() as (one, two):
        await transfer_files(one, two, await plan_between(one, source, target), DIRECT, make_reporter([]))
        assert (await plan_between(one, source, target)).is_done
    assert target.is_symlink()
    assert (tmp_path / "disk/blobs/big").read_bytes() == (source / "blobs/big").read_bytes()
