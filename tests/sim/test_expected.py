"""What the parts of a start took is expected of the next one: kept by `up`, told by its events, in words and in recordings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparkctl import engines
from sparkctl.cli.demo_story import remember
from sparkctl.cli.tellers import WordTeller
from sparkctl.core.config import load_config
from sparkctl.core.context import Context
from sparkctl.core.history import History
from sparkctl.core.paths import shipped_profiles_dir
from sparkctl.core.profiles import ProfileLibrary
from sparkctl.core.record import decode, encode
from sparkctl.model.events import Ended, Outcome, PhaseChanged
from sparkctl.model.node import Node
from sparkctl.model.phase import PartTime, Phase
from sparkctl.operations.down import DownRequest, down
from sparkctl.operations.starting.request import UpRequest
from sparkctl.operations.up import up
from sparkctl.sim import SimulatedSparks

VLLM = "qwen36-vllm"


async def started(ctx: Context, node: Node) -> list[PhaseChanged]:
    profile = ProfileLibrary(shipped_profiles_dir()).load(VLLM)
    events = [event async for event in up(ctx, UpRequest(profile, engines.load(profile.engine), (node,)))]
    assert isinstance(events[-1], Ended)
    assert events[-1].outcome is Outcome.READY
    return [event for event in events if isinstance(event, PhaseChanged)]


async def test_a_start_is_measured_part_by_part_and_the_next_one_knows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ctx = Context(History(tmp_path / "state"), "milo@desk")
    async with SimulatedSparks("empty", speed=10.0) as sparks:  # so slow that no two steps come in one batch
        node = load_config(sparks.config_path).nodes[0]
        first = await started(ctx, node)
        assert {event.expected_parts for event in first} == {()}
        async for _ in down(ctx, DownRequest(VLLM, [node], 0.0, frozenset())):
            pass
        second = await started(ctx, node)
    (known,) = {event.expected_parts for event in second}
    assert {Phase.CREATING, Phase.LOADING} <= {one.phase for one in known}
    assert {"weights", "compile"} <= {one.step for one in known}
    whole = second[0].expected
    assert whole is not None
    assert 0 < sum(one.seconds for one in known) <= whole + 1.0
    again = decode(json.loads(json.dumps(encode(second[-1]))))
    assert isinstance(again, PhaseChanged)
    assert again.expected_parts == known, "a recording tells it as well"

    teller = WordTeller()
    teller.live.on = True
    long = (PartTime(Phase.LOADING, "weights", 130.0), PartTime(Phase.LOADING, "compile", 40.0))
    teller.tell(PhaseChanged(1.0, node.name, VLLM, Phase.LOADING, expected_parts=long))
    teller.tell(PhaseChanged(2.0, node.name, VLLM, Phase.WARMING, expected_parts=long))
    assert "loading done   0.0 s, usually 2 min 50 s" in capsys.readouterr().err


def test_the_simulated_operator_has_started_all_of_it_before(tmp_path: Path) -> None:
    remember(tmp_path)
    profile = ProfileLibrary(shipped_profiles_dir()).load(VLLM)
    known = History(tmp_path).expected(VLLM, profile.digest, "spark2")
    assert known.seconds == pytest.approx(sum(one.seconds for one in known.parts) + 2)
    assert any(one.step == "weights" for one in known.parts)
