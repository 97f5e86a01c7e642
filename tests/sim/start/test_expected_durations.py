"""What the parts of a start took is expected of the next one: kept by `up`, told by its events, in words and in recordings."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from sparkctl.cli.event_printers import TextPrinter
from sparkctl.cli.verbs.demo import seed_start_history
from sparkctl.commands.start.start_instance import start_instance
from sparkctl.commands.start.start_request import StartInstance
from sparkctl.commands.stop.stop_instance import StopInstance, stop_instance
from sparkctl.config import load_config
from sparkctl.context import CommandContext
from sparkctl.files import shipped_profiles_dir
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.events import CommandEnded, Outcome, PhaseChanged
from sparkctl.model.json_codec import decode_event, encode_event
from sparkctl.model.node import Node
from sparkctl.model.phase import Phase, PhaseDuration
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.simulator import SimulatedSparks

VLLM = "qwen36-vllm"


async def start_and_list_phases(ctx: CommandContext, node: Node) -> list[PhaseChanged]:
    profile = ProfileLibrary(shipped_profiles_dir()).load_profile(VLLM)
    events = [event async for event in start_instance(ctx, StartInstance(profile=profile, nodes=(node,)))]
    assert isinstance(events[-1], CommandEnded)
    assert events[-1].outcome is Outcome.READY
    return [event for event in events if isinstance(event, PhaseChanged)]


async def test_a_start_is_measured_part_by_part_and_the_next_one_knows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ctx = CommandContext(history=OperationHistory(tmp_path / "state"), operator="milo@desk")
    async with SimulatedSparks("empty", speed=5.0) as sparks:  # no two steps come in one batch, starved or not
        node = load_config(sparks.config_path).nodes[0]
        first = await start_and_list_phases(ctx, node)
        assert {event.expected_parts for event in first} == {()}
        async for _ in stop_instance(ctx, StopInstance(instance=VLLM, nodes=[node], grace=0.0, known=frozenset())):
            pass
        second = await start_and_list_phases(ctx, node)
    (known,) = {event.expected_parts for event in second}
    assert {Phase.CREATING, Phase.LOADING} <= {one.phase for one in known}
    assert {"weights", "compile"} <= {one.step for one in known}
    whole = second[0].expected
    assert whole is not None
    assert 0 < sum(one.seconds for one in known) <= whole + 1.0
    again = decode_event(json.loads(json.dumps(encode_event(second[-1]))))
    assert isinstance(again, PhaseChanged)
    assert again.expected_parts == known, "a recording tells it as well"

    teller = TextPrinter()
    teller.live.on = True
    long = (PhaseDuration(Phase.LOADING, "weights", 130.0), PhaseDuration(Phase.LOADING, "compile", 40.0))
    teller.print_event(PhaseChanged(ts=1.0, node=node.name, instance=VLLM, phase=Phase.LOADING, expected_parts=long))
    teller.print_event(PhaseChanged(ts=2.0, node=node.name, instance=VLLM, phase=Phase.WARMING, expected_parts=long))
    assert "loading done   0.0 s, usually 2 min 50 s" in capsys.readouterr().err


def test_the_simulated_operator_has_started_all_of_it_before(tmp_path: Path) -> None:
    seed_start_history(tmp_path, scenario="empty")
    profile = ProfileLibrary(shipped_profiles_dir()).load_profile(VLLM)
    known = OperationHistory(tmp_path).get_expected_durations(VLLM, profile.digest, "spark2")
    assert known.seconds == pytest.approx(sum(one.seconds for one in known.parts) + 2)
    assert any(one.step == "weights" for one in known.parts)


@pytest.mark.parametrize(
    ("scenario", "begun"),
    [
        ("fresh", []), ("trouble", [("minimax-m27", ("spark1", "spark2"), 26.0)]),
        ("two-stacks", [("qwen36-vllm", ("spark2",), 3.1), ("qwen36-ngram", ("spark1",), 5.2)]),
    ],
)  # fmt: skip
def test_the_simulated_history_has_the_starts_of_what_runs(
    tmp_path: Path, scenario: str, begun: list[tuple[str, tuple[str, ...], float]]
) -> None:
    seed_start_history(tmp_path, scenario)
    found = OperationHistory(tmp_path).list_operations()
    shown = [(one.profile, one.nodes, round((time.time() - (one.ended or 0.0)) / 3600, 1)) for one in found]
    assert shown[: len(begun)] == begun
    assert bool(found) is (scenario != "fresh")
