"""Logs as Docker serves them: frames, stamps, resuming, splitting, the honest end."""

from __future__ import annotations

import asyncio
import struct
import time

import asyncssh
import docker
import pytest

from sparkctl.simulator.sim_container import ContainerLog, LogQuery, parse_nanoseconds
from tests.support import sim_clients
from tests.support.sim_clients import run_in_thread

BOTH = frozenset({"stdout", "stderr"})


async def _read_whole_log(journal: ContainerLog, **wanted: object) -> list[bytes]:
    raw = b"".join([chunk async for chunk in journal.read_records(LogQuery(streams=BOTH, **wanted))])  # type: ignore[arg-type]
    frames = []
    while raw:
        (size,) = struct.unpack(">I", raw[4:8])
        frames.append(raw[8 : 8 + size])
        raw = raw[8 + size :]
    return frames


async def test_since_resumes_exactly(client: docker.DockerClient) -> None:
    container = await run_in_thread(sim_clients.launch_engine, client)
    await run_in_thread(sim_clients.wait_until_ready, container)
    lines = (await run_in_thread(container.logs, timestamps=True)).splitlines()
    stamps = [line.split(b" ", 1)[0] for line in lines if line[:2] == b"20"]
    assert stamps == sorted(set(stamps))
    middle = stamps[len(stamps) // 2].decode()
    fraction = middle.rpartition(".")[2].removesuffix("Z")
    whole = int(docker.utils.datetime_to_timestamp(__import__("datetime").datetime.fromisoformat(middle[:19])))
    rest = await run_in_thread(client.api._get, client.api._url("/containers/{0}/logs", container.id), params={
        "stdout": 1, "stderr": 1, "timestamps": 1, "since": f"{whole}.{fraction}"})  # fmt: skip
    again = client.api._get_result_tty(False, rest, False).splitlines()
    assert again[0].startswith(middle.encode())
    assert again == lines[lines.index(again[0]) :]


async def test_raw_follow_ends_with_the_final_chunk(
    connection: asyncssh.SSHClientConnection, client: docker.DockerClient
) -> None:
    container = await run_in_thread(sim_clients.launch_engine, client, environment={"SIM_FAULT": "exit0"})
    reader, writer = await connection.open_unix_connection("/var/run/docker.sock", encoding=None)
    path = f"/v1.51/containers/{container.id}/logs?follow=1&stdout=1&stderr=1&timestamps=1&tail=all"
    writer.write(f"GET {path} HTTP/1.1\r\nHost: docker\r\nConnection: close\r\n\r\n".encode())
    answer = await asyncio.wait_for(reader.read(), sim_clients.PATIENCE)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert b"Transfer-Encoding: chunked" in head
    assert body.endswith(b"\r\n0\r\n\r\n")
    assert b"Load weight begin" in body


async def test_a_follower_who_leaves_is_let_go(
    connection: asyncssh.SSHClientConnection, client: docker.DockerClient
) -> None:
    container = await run_in_thread(sim_clients.launch_engine, client)
    await run_in_thread(sim_clients.wait_until_ready, container)
    reader, writer = await connection.open_unix_connection("/var/run/docker.sock", encoding=None)
    writer.write(f"GET /containers/{container.id}/logs?follow=1&stderr=1 HTTP/1.1\r\nHost: d\r\n\r\n".encode())
    await asyncio.wait_for(reader.readuntil(b"roll!"), sim_clients.PATIENCE)
    writer.write_eof()
    await asyncio.wait_for(reader.read(), sim_clients.PATIENCE)
    assert reader.at_eof()


async def test_a_bar_without_newline_is_kept_back() -> None:
    journal = ContainerLog(time.time_ns)
    journal.open_run()
    journal.write("\rbar 1%")
    journal.write("\rbar 2%")
    assert await _read_whole_log(journal) == []
    journal.write("\n")
    assert await _read_whole_log(journal) == [b"\rbar 1%\rbar 2%\n"]


async def test_long_lines_come_in_pieces_of_16_kib() -> None:
    journal = ContainerLog(time.time_ns)
    journal.open_run()
    journal.write("x" * 40_000 + "\n")
    assert [len(piece) for piece in await _read_whole_log(journal)] == [16384, 16384, 7233]


async def test_the_end_stores_what_had_no_newline_and_lets_followers_go() -> None:
    journal = ContainerLog(time.time_ns)
    journal.open_run()
    following = asyncio.ensure_future(_read_whole_log(journal, follow=True))
    await asyncio.sleep(0)
    journal.write("half a line")
    journal.close_run()
    assert await asyncio.wait_for(following, sim_clients.PATIENCE) == [b"half a line"]


@pytest.mark.parametrize(("tail", "expected"), [(None, 3), (2, 2), (0, 0), (9, 3)])
async def test_tail_returns_the_last_lines(tail: int | None, expected: int) -> None:
    journal = ContainerLog(time.time_ns)
    journal.open_run()
    journal.write("a\nb\nc\n")
    assert len(await _read_whole_log(journal, tail=tail)) == expected


def test_a_fraction_is_read_without_rounding() -> None:
    assert parse_nanoseconds("1795217521.685689512") == 1795217521685689512
    assert parse_nanoseconds("12.5") == 12_500_000_000
