"""The lock of a node through a break of the connection: whoever lost it to another says so, and says when it is back."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkctl.commands import node_lock
from sparkctl.config import load_config
from sparkctl.context import CommandContext
from sparkctl.history.operation_history import OperationHistory
from sparkctl.simulator import SimulatedSparks
from tests.support import sim_clients


async def test_a_lock_that_another_took_meanwhile_is_told_tried_again_and_told_again(
    sparks: SimulatedSparks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_lock, "_CONFLICT_RETRY_SECONDS", 0.1)
    node = load_config(sparks.config_path).nodes[0]
    milo, ann = (
        CommandContext(history=OperationHistory(tmp_path / name), operator=f"{name}@desk") for name in ("milo", "ann")
    )
    told: list[str] = []
    async with milo.create_session(node) as session, ann.create_session(node) as hers:
        await session.link.connect()
        ours = await node_lock.acquire_node_lock(session, milo, "starting big", told.append)
        sparks.sshd["spark1"].drop_connections()
        await sim_clients.wait_until_true(lambda: not sparks.nodes["spark1"].locks)
        await hers.link.connect()
        theirs = await node_lock.acquire_node_lock(hers, ann, "starting small", told.append)
        await session.link.reconnect()
        await sim_clients.wait_until_true(lambda: len(told) == 1)
        assert (
            "the connection was lost for a while, and with it the lock; now spark1: ann@desk is starting small"
            in told[0]
        )
        with pytest.raises(node_lock.LockConflict, match="ann@desk"):
            await ours.reacquire_if_lost()
        assert len(told) == 1, "it is said once"
        await theirs.release()
        await sim_clients.wait_until_true(lambda: len(told) == 2)
        assert told[1] == "the lock on spark1 is held again"
        assert "milo@desk" in sparks.nodes["spark1"].locks["/run"]
        await ours.release()
    await sim_clients.wait_until_true(lambda: not sparks.nodes["spark1"].locks)
