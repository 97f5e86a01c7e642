"""Talking to a guard: a real one in a directory of its own, and peers that answer as no guard should."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from sparkctl.errors import GuardUnavailable
from sparkctl.model.guard_state import GuardAction, GuardEvent, GuardRole, UnwatchReason
from sparkctl.model.launch_plan import GuardRule
from sparkctl.model.node import Node, NodeName
from sparkctl.monitor import guard_client
from sparkctl.monitor.guard_client import GuardClient
from sparkctl.node import bootstrap
from sparkctl.transport.node_session import NodeSession

CONTAINER = "ab" * 32
RULE = GuardRule(1 << 20, 0, 60.0)
STATE = {"guard": 1, "kind": "state", "since": 1.0, "pid": 7}


@pytest.fixture
async def session() -> AsyncIterator[NodeSession]:
    async with NodeSession(Node(name=NodeName("here"), host="local")) as opened:
        await opened.link.connect()
        yield opened


async def watch_container(link: GuardClient) -> None:
    await link.watch_container(
        CONTAINER,
        "tiny",
        profile="tiny",
        operator="milo@desk",
        role=GuardRole.LOADING,
        rule=RULE,
        port=None,
        health=None,
    )


# a real guard


@pytest.fixture
async def socket(tmp_path: Path) -> AsyncIterator[str]:
    """A real guard, without a GPU and without Docker."""
    place = tmp_path / "guard"
    start = bootstrap.build_guard_program(
        nvml=b"", options=("--dir", str(place), "--docker", str(tmp_path / "none.sock"))
    )
    ran = await asyncio.to_thread(subprocess.run, start.argv, input=start.stdin, capture_output=True, timeout=20)
    said = json.loads(ran.stdout)
    yield said["socket"]
    with suppress(ProcessLookupError):
        os.kill(said["pid"], signal.SIGKILL)


async def test_a_real_guard_is_told_and_tells(session: NodeSession, socket: str) -> None:
    events: list[GuardEvent] = []
    link = await GuardClient.connect_guard(session, socket, events.append)
    assert link is not None
    assert (await link.get_state()).watches == ()
    await watch_container(link)
    state = await link.set_phase(CONTAINER, True)
    assert [(one.instance, one.floor, one.weights) for one in state.watches] == [("tiny", 1 << 20, True)]
    assert state.available
    await link.unwatch_container(CONTAINER, UnwatchReason.READY)
    assert [(event.what, event.why) for event in events] == [(GuardAction.ENDED, "ready")]
    with pytest.raises(GuardUnavailable, match="no such watch"):
        await link.set_phase(CONTAINER, True)
    assert link.is_open
    await link.close()


async def test_a_defect_in_what_takes_the_events_is_raised_where_an_answer_is_awaited(
    session: NodeSession, socket: str
) -> None:
    def fail(event: GuardEvent) -> None:
        raise RuntimeError(event.why)

    link = await GuardClient.connect_guard(session, socket, fail)
    assert link is not None
    await watch_container(link)
    with pytest.raises(RuntimeError, match="ready"):
        await link.unwatch_container(CONTAINER, UnwatchReason.READY)
    await link.close()


async def test_a_guard_that_is_killed_is_noticed(session: NodeSession, socket: str) -> None:
    link = await GuardClient.connect_guard(session, socket)
    assert link is not None
    os.kill((await link.get_state()).pid, signal.SIGSTOP)  # it cannot answer what comes now
    asking = asyncio.ensure_future(link.get_state())
    await asyncio.sleep(0.05)
    os.kill(int(Path(socket).with_name("guard.lock").read_text()), signal.SIGKILL)
    with pytest.raises(GuardUnavailable, match="has ended"):
        await asking
    await link.wait_closed()
    with pytest.raises(GuardUnavailable, match="has ended"):
        await link.get_state()
    await link.close()


async def test_where_nobody_listens_there_is_none(session: NodeSession, tmp_path: Path) -> None:
    assert await GuardClient.connect_guard(session, str(tmp_path / "nothing.sock")) is None


# peers that are no guard

Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def attach_to_peer(session: NodeSession, tmp_path: Path, peer: Peer) -> GuardClient:
    await asyncio.start_unix_server(peer, tmp_path / "peer.sock")
    link = await GuardClient.connect_guard(session, str(tmp_path / "peer.sock"))
    assert link is not None
    return link


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"hello\n", "unexpected"),
        (b'{"guard":2,"kind":"state"}\n', "unexpected"),
        (b'{"guard":1,"kind":"receipt","receipt":null}\n', "unexpected"),
        (b'{"guard":1,"kind":"refused","what":"no \\u001b[31mway"}\n', "refused: no way"),
        (b"", "has ended"),
        (b"x" * (3 << 20), "without an end"),
    ],
    ids=["words", "protocol", "kind", "refusal", "end", "endless"],
)
async def test_another_answer_is_trouble_with_words(
    session: NodeSession, tmp_path: Path, answer: bytes, words: str
) -> None:
    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(answer)
        writer.close()

    link = await attach_to_peer(session, tmp_path, peer)
    with pytest.raises(GuardUnavailable, match=words):
        await link.get_state()
    await link.close()


@pytest.mark.usefixtures("forwarded_clock")
async def test_a_guard_that_is_silent_is_given_up_before_its_late_answer_is_taken_for_another(
    session: NodeSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard_client, "_ANSWER_TIMEOUT_SECONDS", 0.05)

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    link = await attach_to_peer(session, tmp_path, peer)
    with pytest.raises(GuardUnavailable, match="did not answer within"):
        await link.get_state()
    with pytest.raises(GuardUnavailable):
        await link.get_state()
    assert not link.is_open
    await link.close()


async def test_the_late_answer_to_a_command_that_was_cancelled_is_not_the_next_ones(
    session: NodeSession, tmp_path: Path
) -> None:
    answers, asked, may_answer = iter(range(1, 9)), asyncio.Event(), asyncio.Event()

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            asked.set()
            await may_answer.wait()
            writer.write(json.dumps({**STATE, "pid": next(answers)}).encode() + b"\n")

    link = await attach_to_peer(session, tmp_path, peer)
    first = asyncio.create_task(link.get_state())
    await asked.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    may_answer.set()
    assert [(await link.get_state()).pid for _ in range(2)] == [2, 3]
    await link.close()


async def test_events_between_answers_are_no_answers(session: NodeSession, tmp_path: Path) -> None:
    event = {"guard": 1, "kind": "event", "event": {"at": 1.0, "what": "warned", "why": "w"}}

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            for message in (event, STATE, event):
                writer.write(json.dumps(message).encode() + b"\n")

    link = await attach_to_peer(session, tmp_path, peer)
    states = await asyncio.gather(link.get_state(), link.get_state(), link.get_state())
    assert [state.pid for state in states] == [7, 7, 7]
    await link.close()


# starts that bring none


@pytest.mark.parametrize(
    ("python", "words", "hint"),
    [
        (None, "no guard on here", "python3 -V"),
        ("echo No module named json >&2; exit 1", "ended without output", "python3 -V"),
        (
            'echo hi; echo \'{"probe":1,"kind":"refused","what":"not ours"}\'',
            "no guard on here: not ours",
            None,
        ),
        ("echo '{\"probe\":9}'", "unexpected", "python3 -V"),
    ],
    ids=["missing", "silent", "refusing", "strange"],
)
async def test_a_start_that_brings_no_guard_says_why(
    session: NodeSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    python: str | None,
    words: str,
    hint: str | None,
) -> None:
    if python is not None:
        (tmp_path / "python3").write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{python}\n")
        (tmp_path / "python3").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GuardUnavailable, match=words) as trouble:
        await GuardClient.start_guard(session, lambda event: None)
    assert (trouble.value.hint or "").endswith(hint or "")


async def serve_state(place: Path) -> None:
    """Answer each line at this socket with the state of a guard."""

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            writer.write(json.dumps(STATE).encode() + b"\n")

    await asyncio.start_unix_server(peer, place)


async def test_one_that_ended_after_it_was_found_is_started_again(
    session: NodeSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await serve_state(tmp_path / "peer.sock")
    hello = json.dumps({"probe": 1, "kind": "guard", "pid": 7, "socket": "PLACE", "already": True})
    gone, there = (hello.replace("PLACE", str(tmp_path / name)) for name in ("gone.sock", "peer.sock"))
    python = tmp_path / "python3"
    python.write_text(
        f"#!/bin/sh\nif [ -e {tmp_path}/once ]; then echo '{there}'; else echo '{gone}'; fi\n: > {tmp_path}/once\n"
    )
    python.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    link = await GuardClient.start_guard(session, lambda event: None)
    assert (await link.get_state()).pid == 7
    await link.close()


async def test_a_guard_that_listens_needs_no_python_and_one_that_ended_is_started(
    session: NodeSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await serve_state(tmp_path / "peer.sock")
    left = await guard_client.read_guard_directory(session)
    monkeypatch.setenv("PATH", str(tmp_path))
    there = replace(left, socket=str(tmp_path / "peer.sock"))
    link = await GuardClient.open_guard(session, there, lambda event: None)
    assert (await link.get_state()).pid == 7
    await link.close()
    for gone in (None, str(tmp_path / "gone.sock")):
        with pytest.raises(GuardUnavailable, match="no guard on here"):
            await GuardClient.open_guard(session, replace(left, socket=gone), lambda event: None)


async def test_what_else_is_to_be_known_of_guards_on_a_node(session: NodeSession) -> None:
    if os.geteuid() != 0:
        pytest.skip("starts a process of another user")
    named = (
        "import ctypes,time; ctypes.CDLL(None).prctl(15, b'sparkctl-guard', 0, 0, 0); print(flush=True); time.sleep(60)"
    )
    before = (await guard_client.read_guard_directory(session)).others
    other = await asyncio.create_subprocess_exec("python3", "-c", named, stdout=subprocess.PIPE, user=12345)
    try:
        assert other.stdout is not None
        await other.stdout.readline()
        left = await guard_client.read_guard_directory(session)
    finally:
        other.kill()
        await other.wait()
    assert left.others == before + 1
    assert "another user's guard runs on here" in dict(left.list_warnings("here")).popitem()[0]
