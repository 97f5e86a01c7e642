"""What a switch brings back, on the simulated Sparks: watched as a start is, and said why it does not come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from sparkctl.core.history import History
from sparkctl.model.events import Ended, PhaseChanged, SwitchStepped
from sparkctl.model.history import Kind
from sparkctl.model.phase import Phase
from sparkctl.model.switch import SwitchStep
from sparkctl.model.verdict import Cause
from sparkctl.operations.switch import switch
from sparkctl.operations.switch_finish import abort, resume
from tests.sim.clients import eventually
from tests.sim.test_switch import FAULT, NEW, OLD, Bed, divided, run


@pytest.fixture(autouse=True)
def _own_profiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`resume` loads the profile that the journal names."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
async def bed(tmp_path: Path) -> AsyncGenerator[Bed, None]:
    async with divided(tmp_path / "state") as made:
        yield made


async def test_what_comes_back_is_watched_as_a_start_is(bed: Bed) -> None:
    """Its log, from where it was started again: phases, steps of both ranks, and the guard's word that weights are read."""
    guards, seen = bed.sparks.guards, []

    def is_told() -> bool:
        return any(one.weights_until > 0 for guard in guards.values() for one in guard.watches.values())

    told: asyncio.Task[None] | None = None
    async with aclosing(switch(bed.ctx(), replace(bed.request(FAULT), guarded=True))) as events:
        async for event in events:
            seen.append(event)
            if isinstance(event, SwitchStepped) and event.step is SwitchStep.RESTORING and told is None:
                told = asyncio.create_task(eventually(is_told))
    assert told is not None
    await told
    back = [one for one in seen if isinstance(one, PhaseChanged) and one.instance == OLD]
    back = back[[one.phase for one in back].index(Phase.STARTING) :]
    for node in ("spark1", "spark2"):
        phases = list(dict.fromkeys(one.phase for one in back if one.node == node))
        assert phases[0] is Phase.STARTING
        assert phases[-1] is Phase.READY
        assert Phase.LOADING in phases
    steps_ = {one.step.name for one in back if one.node == "spark1" and one.step}
    assert "weights" in steps_, steps_
    assert [one.detail for one in back if one.phase is Phase.READY] == ["rank 0 of 2", "rank 1 of 2"]


async def test_what_does_not_come_back_has_its_verdict_too(bed: Bed) -> None:
    """The old one runs out of memory when it is started again: said with its cause, kept in its row, and tried once more."""
    old = set().union(*bed.old.values())
    kept = [one for docker in bed.sparks.docker.values() for one in docker.containers.values() if one.id in old]
    seen = []
    async with aclosing(switch(bed.ctx(), bed.request(FAULT))) as events:
        async for event in events:
            seen.append(event)
            if isinstance(event, SwitchStepped) and event.step is SwitchStep.UNDOING and event.proof is None:
                for one in kept:
                    one.body = {**one.body, "Env": [*(one.body.get("Env") or []), "SIM_FAULT=cuda-oom"]}
    (ended,) = [one for one in seen if isinstance(one, Ended)]
    assert ended.exit_code == 1
    assert f"{NEW} did not start; and {OLD} did not come back: Rank " in (ended.message or "")
    assert "CUDA ran out of memory" in (ended.message or "")
    assert f"sparkctl diagnose {OLD}" in (ended.hint or "")
    assert "sparkctl resume" in (ended.hint or "")
    assert any(one.phase is Phase.FAILED for one in seen if isinstance(one, PhaseChanged) and one.instance == OLD)
    again = next(one for one in History(bed.state).operations() if one.instance == OLD and one.kind is Kind.START)
    assert again.verdict is not None
    assert again.verdict.cause is Cause.CUDA_OUT_OF_MEMORY
    row = next(one for one in History(bed.state).operations() if one.kind is Kind.SWITCH)
    of_new = {one.container for one in row.shares if one.instance == NEW}
    assert not of_new & old, "what was brought back is not what was switched to"
    for one in kept:
        one.body = {**one.body, "Env": [word for word in one.body["Env"] if word != "SIM_FAULT=cuda-oom"]}
    _, ended = await run(resume(bed.ctx(), bed.finish()))
    assert ended.exit_code == 0, ended
    assert bed.is_old()


async def test_that_the_old_one_serves_again_is_said_once(bed: Bed) -> None:
    await run(switch(bed.ctx(), bed.request(FAULT, rolls_back=False)))
    seen, ended = await run(abort(bed.ctx(), bed.finish()))
    assert ended.exit_code == 0
    told = [one.proof or "" for one in seen if isinstance(one, SwitchStepped)] + [ended.message or ""]
    assert sum("serves again" in one for one in told) == 1, told
