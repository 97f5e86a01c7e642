"""The link to a Spark breaks in the middle of a switch: nothing goes back, and the journal says from where to go on."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace

import pytest

from sparkctl.commands.switch.switch_instance import switch_instance
from sparkctl.commands.switch.switch_transaction import SwitchTransaction
from sparkctl.model.events import CommandEnded, Event, Outcome, PhaseChanged, SwitchStepReported
from sparkctl.model.phase import Phase
from sparkctl.model.switch_plan import SwitchStep
from tests.support.events import collect_events_and_end, find_command_end
from tests.support.switch_scene import FAULT, NEW, OLD, SwitchScene, abort_switch, list_switch_steps, resume_switch

pytestmark = pytest.mark.usefixtures("own_profiles")

SOON = ("start.timeouts.creating=10s",)  # what the simulation does until then costs real time
# What Docker does with a container of which instance when the link breaks, and the step at which the switch is left.
FORWARD = [
    pytest.param("kill", OLD, SwitchStep.STOPPING, id="stopping"),
    pytest.param("create", NEW, SwitchStep.STARTING, id="creating"),
    pytest.param("start", NEW, SwitchStep.STARTING, id="starting"),
    pytest.param("destroy", OLD, SwitchStep.CLEARING, id="clearing"),
]
BACKWARD = [
    pytest.param("destroy", NEW, SwitchStep.UNDOING, id="undoing"),
    pytest.param("start", OLD, SwitchStep.RESTORING, id="restoring"),
]


def _assert_left(scene: SwitchScene, ended: CommandEnded, step: SwitchStep) -> None:
    """It ends as not reachable, names the step and the commands, and the journal of both Sparks stays."""
    assert (ended.outcome, ended.exit_code) == (Outcome.UNREACHABLE, 3), ended
    assert step.value in (ended.message or "")
    assert "sparkctl resume" in (ended.hint or "")
    assert ("sparkctl abort" in (ended.hint or "")) is (step is not SwitchStep.CLEARING)  # then the new one serves
    assert all(scene.journals)


@pytest.mark.parametrize(("action", "instance", "step"), FORWARD)
async def test_gone_for_good_nothing_goes_back_and_resume_finishes_it(
    scene: SwitchScene, action: str, instance: str, step: SwitchStep
) -> None:
    scene.cut_link_at(action, instance=instance, is_for_good=True)
    seen, ended = await collect_events_and_end(switch_instance(scene.ctx(), scene.request(SOON)))
    _assert_left(scene, ended, step)
    assert list_switch_steps(seen)[-1] is step
    assert ended.verdict is None, "nothing is known of the new one, least of all that it failed"
    await scene.plug_in()
    _, ended = await collect_events_and_end(resume_switch(scene.ctx(), scene.finish()))
    assert ended.exit_code == 0, ended
    assert scene.is_new()
    assert scene.journals == [None, None]


@pytest.mark.parametrize(("action", "instance", "step"), BACKWARD)
async def test_gone_for_good_on_the_way_back_it_is_left_there_and_goes_back(
    scene: SwitchScene, action: str, instance: str, step: SwitchStep
) -> None:
    scene.cut_link_at(action, instance=instance, is_for_good=True)
    seen, ended = await collect_events_and_end(switch_instance(scene.ctx(), scene.request(FAULT)))
    _assert_left(scene, ended, step)
    assert list_switch_steps(seen)[-1] is step
    assert ended.verdict is not None, "why the new one failed is known"
    await scene.plug_in()
    _, ended = await collect_events_and_end(resume_switch(scene.ctx(), scene.finish()))
    assert ended.exit_code == 0, ended
    assert scene.is_old()
    assert scene.journals == [None, None]


async def test_gone_while_a_container_is_created_abort_removes_it_and_brings_the_old_one_back(
    scene: SwitchScene,
) -> None:
    scene.cut_link_at("create", instance=NEW, is_for_good=True)
    _, ended = await collect_events_and_end(switch_instance(scene.ctx(), scene.request(SOON)))
    assert "whether sglang-qwen36-ngram was created and started there is not known" in (ended.message or "")
    await scene.plug_in()
    _, ended = await collect_events_and_end(abort_switch(scene.ctx(), scene.finish()))
    assert ended.exit_code == 0, ended
    assert scene.is_old()


async def test_gone_while_it_checks_nothing_was_stopped_and_the_journal_may_be_left(
    scene: SwitchScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SwitchTransaction._retry_after_reconnect, "__defaults__", (5.0,))  # in place of a minute
    seen: list[Event] = []
    async with aclosing(switch_instance(scene.ctx(), scene.request())) as events:
        async for event in events:
            seen.append(event)
            if isinstance(event, SwitchStepReported) and event.step is SwitchStep.CHECKING:
                scene.sparks.sshd["spark1"].unplug()
    ended = find_command_end(seen)
    assert (ended.outcome, ended.exit_code) == (Outcome.UNREACHABLE, 3), ended
    assert "nothing was stopped" in (ended.message or "")
    assert "sparkctl abort" in (ended.hint or "")
    assert scene.is_old()
    await scene.plug_in()
    _, ended = await collect_events_and_end(abort_switch(scene.ctx(), scene.finish()))
    assert ended.exit_code == 0, ended
    assert scene.is_old()
    assert scene.journals == [None, None]


@pytest.mark.parametrize("action", ["create", "start"])
async def test_back_at_once_it_goes_on_with_the_container_that_docker_made(scene: SwitchScene, action: str) -> None:
    scene.cut_link_at(action, instance=NEW, is_for_good=False)
    _, ended = await collect_events_and_end(switch_instance(scene.ctx(), scene.request()))
    assert (ended.outcome, ended.exit_code) == (Outcome.READY, 0), ended
    assert scene.is_new()


@pytest.mark.parametrize("is_silent", [False, True], ids=["refused", "silent"])
async def test_gone_when_the_time_is_over_it_is_unreachable_and_not_late(
    scene: SwitchScene, *, is_silent: bool
) -> None:
    """Also where the link has just gone silent, which nobody has noticed: late would mean a rollback."""
    request = replace(scene.request(("env.SIM_FAULT=hang",)), timeout=20.0)
    seen: list[Event] = []
    async with aclosing(switch_instance(scene.ctx(), request)) as events:
        async for event in events:
            if isinstance(event, PhaseChanged) and event.phase is Phase.LOADING and not _is_loading(seen):
                cut = scene.silence if is_silent else scene.sparks.sshd["spark1"].unplug
                asyncio.get_running_loop().call_later(19.0 - event.elapsed, cut)
            seen.append(event)
    ended = find_command_end(seen)
    _assert_left(scene, ended, SwitchStep.STARTING)
    assert list_switch_steps(seen)[-1] is SwitchStep.STARTING
    assert ended.verdict is None
    assert "qwen36-ngram may still be running there" in (ended.message or "")


def _is_loading(seen: list[Event]) -> bool:
    return any(isinstance(one, PhaseChanged) and one.phase is Phase.LOADING for one in seen)
