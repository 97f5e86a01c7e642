"""What a switch says, on the simulated Sparks: each thing once, and what stays by its name."""

from __future__ import annotations

import json

from tests.sim.test_command import demo


def test_what_the_plan_has_cautioned_of_is_not_told_again_by_the_start() -> None:
    ran = demo("switch", "qwen36", "--node", "spark1", "--json", scenario="big-model")
    events = [json.loads(line) for line in ran.stdout.splitlines()]
    assert ran.returncode == 0, events[-1]
    (plan,) = [one["plan"] for one in events if one["event"] == "switch-plan"]
    assert len(plan["cautions"]) == 1, "of NEXTN's workspace"
    warned = [f"{one['node']}: {one['message']}" for one in events if one["event"] == "warning"]
    assert warned, "of its flags"
    assert len(warned) == len(set(warned))
    assert not set(warned) & set(plan["cautions"])
