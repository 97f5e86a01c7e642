"""What a switch says, on the simulated Sparks: each thing once, and what stays by its name."""

from __future__ import annotations

import json
from pathlib import Path

from sparkctl.commands.switch.switch_instance import switch_instance
from sparkctl.history.model import OperationKind
from sparkctl.history.operation_history import OperationHistory
from sparkctl.simulator import SimulatedSparks
from tests.support.events import collect_events_and_end
from tests.support.run_command import run_demo
from tests.support.switch_scene import NEW, OLD, SPEED, SwitchScene


def test_what_the_plan_has_cautioned_of_is_not_told_again_by_the_start() -> None:
    ran = run_demo("switch", "qwen36-as-posted", "--node", "spark1", "--json", scenario="big-model")
    events = [json.loads(line) for line in ran.stdout.splitlines()]
    assert ran.returncode == 0, events[-1]
    (plan,) = [one["plan"] for one in events if one["event"] == "switch-plan"]
    assert len(plan["cautions"]) == 1, "of NEXTN's workspace"
    warned = [f"{one['node']}: {one['message']}" for one in events if one["event"] == "warning"]
    assert warned, "of its flags"
    assert len(warned) == len(set(warned))
    assert not set(warned) & set(plan["cautions"])
    assert events[-1]["message"] == "qwen36-as-posted serves on spark1 in place of minimax-m27; spark2 is free"


async def test_what_stays_on_the_spark_that_only_lost_something_is_named(scene: SwitchScene) -> None:
    await scene.speech_beside()
    _, ended = await collect_events_and_end(switch_instance(scene.ctx(), scene.request()))
    assert ended.message == f"{NEW} serves on spark1 in place of {OLD}; kokoro-tts stays on spark2"


async def test_a_switch_that_has_nothing_to_stop_is_a_start_in_the_history_and_nothing_beside(tmp_path: Path) -> None:
    async with SimulatedSparks("empty", speed=SPEED, decode_speed=200.0) as sparks:
        scene = SwitchScene(sparks, tmp_path / "state")
        _, ended = await collect_events_and_end(switch_instance(scene.ctx(), scene.request()))
        assert ended.exit_code == 0, ended
        (row,) = OperationHistory(scene.state).list_operations()
        assert (row.kind, row.instance, row.has_succeeded) == (OperationKind.START, NEW, True)
        assert OperationHistory(scene.state).list_switch_parts(row) == ()
        _, ended = await collect_events_and_end(switch_instance(scene.ctx(), scene.request()))
        assert ended.exit_code == 0, "it runs already"
        assert len(OperationHistory(scene.state).list_operations()) == 1


async def test_a_switch_to_what_failed_twice_within_an_hour_is_asked_about_and_nothing_is_stopped(
    scene: SwitchScene,
) -> None:
    ctx = scene.ctx()
    for number in range(2):
        now = ctx.clock.unix_time()
        ctx.history.record_failure(NEW, "x", "spark1", "crashed", f"{number:012d}", now - 600 + number)
    _, ended = await collect_events_and_end(switch_instance(ctx, scene.request()))
    assert (ended.exit_code, scene.running()) == (6, scene.old)
    assert f"start it anyway: sparkctl switch {NEW} --node spark1" in (ended.hint or "")
    assert (ended.hint or "").endswith(" --again")
    _, ended = await collect_events_and_end(switch_instance(ctx, scene.request(once_more=True)))
    assert ended.exit_code == 0, ended
