"""The lock of a node that another holds: after a break of the connection, and for a start that waits for it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from sparkctl.commands import node_lock
from sparkctl.commands.start import start_instance
from sparkctl.commands.start.start_request import StartInstance
from sparkctl.commands.stop.stop_instance import StopInstance
from sparkctl.config import load_config
from sparkctl.context import CommandContext
from sparkctl.files import shipped_profiles_dir
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.events import Event, Outcome, WarningEmitted
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.simulator import SimulatedSparks
from tests.support import sim_clients
from tests.support.events import find_command_end


async def test_a_lock_that_another_took_meanwhile_is_told_tried_again_and_told_again(
    sparks: SimulatedSparks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_lock, "_CONFLICT_RETRY_SECONDS", 0.1)
    node = load_config(sparks.config_path).nodes[0]
    milo, ann = (
        CommandContext(history=OperationHistory(tmp_path / name), operator=f"{name}@desk") for name in ("milo", "ann")
    )
    lines: list[str] = []
    async with milo.create_session(node) as session, ann.create_session(node) as hers:
        await session.link.connect()
        ours = await node_lock.acquire_node_lock(session, milo, "starting big", lines.append)
        sparks.sshd["spark1"].drop_connections()
        await sim_clients.wait_until_true(lambda: not sparks.nodes["spark1"].locks)
        await hers.link.connect()
        theirs = await node_lock.acquire_node_lock(hers, ann, "starting small", lines.append)
        await session.link.reconnect()
        await sim_clients.wait_until_true(lambda: len(lines) == 1)
        assert (
            "the connection was lost for a while, and with it the lock; now spark1: ann@desk is starting small"
            in lines[0]
        )
        with pytest.raises(node_lock.LockConflict, match="ann@desk"):
            await ours.reacquire_if_lost()
        assert len(lines) == 1, "it is said once"
        await theirs.release()
        await sim_clients.wait_until_true(lambda: len(lines) == 2)
        assert lines[1] == "the lock on spark1 is held again"
        assert "milo@desk" in sparks.nodes["spark1"].locks["/run"]
        await ours.release()
    await sim_clients.wait_until_true(lambda: not sparks.nodes["spark1"].locks)


@pytest.mark.parametrize("name", ["kokoro-tts", "orpheus-tts"])  # alone, and with what it needs
async def test_a_start_is_refused_while_another_works_there_and_with_queue_waits_until_that_ends_or_a_stop_cancels_it(
    name: str, sparks: SimulatedSparks, ctx: CommandContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_instance, "_QUEUE_SECONDS", 0.1)
    node = load_config(sparks.config_path).nodes[0]
    profile = ProfileLibrary(user=shipped_profiles_dir()).load_profile(name)
    request = StartInstance(profile=profile, nodes=(node,), guarded=False)
    stop = StopInstance(instance=name, nodes=(node,), known=frozenset((name,)))
    ann = CommandContext(history=OperationHistory(tmp_path / "ann"), operator="ann@desk")

    async def start_queued(events: list[Event]) -> None:
        async for event in replace(request, queue=True).run(ctx):
            events.append(event)

    def list_waits(events: list[Event]) -> list[str]:
        warnings = [one.message for one in events if isinstance(one, WarningEmitted)]
        return [words for words in warnings if "starts once that has ended" in words]

    async with ann.create_session(node) as hers:
        await hers.link.connect()
        theirs = await node_lock.acquire_node_lock(hers, ann, "starting small", lambda words: None)
        refused = find_command_end([event async for event in request.run(ctx)])
        assert refused.outcome is Outcome.REFUSED
        assert f"sparkctl up {name}" in (refused.hint or "")
        assert "--queue" in (refused.hint or "")
        events: list[Event] = []
        waiting = asyncio.create_task(start_queued(events))
        await sim_clients.wait_until_true(lambda: bool(list_waits(events)))
        stopped = find_command_end([event async for event in stop.run(ctx)])
        assert stopped.outcome is Outcome.DONE
        assert stopped.message == f"{name} waited to start on spark1: it is not started"
        await waiting
        ended = find_command_end(events)
        assert ended.outcome is Outcome.INTERRUPTED
        assert ended.message == f"{name} was not started: sparkctl down ended the waiting"
        nothing = find_command_end([event async for event in stop.run(ctx)])
        assert "is not running" in (nothing.message or ""), "it waits no longer"
        events = []
        waiting = asyncio.create_task(start_queued(events))
        await sim_clients.wait_until_true(lambda: bool(list_waits(events)))
        await asyncio.sleep(0.5)
        assert not sparks.docker["spark1"].containers
        await theirs.release()
        await waiting
    assert find_command_end(events).outcome in (Outcome.READY, Outcome.UNPROVED)
    assert len(list_waits(events)) == 1, "it is said once"
    assert not list((ctx.history.directory / "queued-starts").iterdir())
