"""A container that is kept is never called gone, where its log could not be saved, nor failed, where a switch may need it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sparkctl.commands.start.start_instance import start_instance
from sparkctl.commands.stop.stop_instance import StopInstance, stop_instance
from sparkctl.commands.switch.switch_instance import switch_instance
from sparkctl.context import CommandContext
from sparkctl.model.events import Event, MemoryReleased, Outcome, PhaseChanged, SwitchStepReported
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase
from sparkctl.monitor.watch_nodes import read_load_views
from sparkctl.simulator import SimulatedSparks
from sparkctl.views.event_log_view import describe_command_result
from sparkctl.views.event_text import format_release
from tests.sim.start.test_start_guard import make_start_request
from tests.support.events import collect_events_and_end
from tests.support.switch_scene import FAULT, NEW, OLD, open_two_rank_model

pytestmark = pytest.mark.simulation(speed=20)


def refuse_logs(state: Path) -> Path:
    """Let no log be saved below a state directory, whoever tries it; return what stands in the way."""
    state.mkdir(mode=0o700, exist_ok=True)
    shutil.rmtree(state / "logs", ignore_errors=True)
    (state / "logs").write_text("no directory")
    return state / "logs"


def join_messages(events: list[Event]) -> str:
    return "\n".join(format_release(event) for event in events if isinstance(event, MemoryReleased))


@pytest.mark.parametrize("frees", [False, True])
async def test_down_and_free_end_with_5(sparks: SimulatedSparks, ctx: CommandContext, frees: bool) -> None:
    await collect_events_and_end(start_instance(ctx, make_start_request(sparks)))
    barrier = refuse_logs(ctx.history.directory)
    asked = StopInstance(instance=None if frees else "qwen36-vllm", nodes=make_start_request(sparks).nodes, frees=frees)
    seen, ended = await collect_events_and_end(stop_instance(ctx, asked))
    (container,) = sparks.docker["spark1"].containers.values()
    assert (ended.outcome, ended.exit_code) == (Outcome.UNHEALTHY, 5)
    assert f"{container.name} on spark1 was kept" in (ended.message or "")
    assert "repeat the command" in (ended.hint or "")
    assert "nothing of it is left" not in join_messages(seen)
    assert f"its container {container.name} was kept" in join_messages(seen)
    line, _ = describe_command_result("free" if frees else "down", ended, [NodeName("spark1")])
    assert "was kept" in line
    barrier.unlink()
    _, ended = await collect_events_and_end(stop_instance(ctx, asked))
    assert (ended.outcome, ended.exit_code) == (Outcome.DONE, 0)
    assert not sparks.docker["spark1"].containers


async def test_a_switch_names_what_stayed(tmp_path: Path) -> None:
    async with open_two_rank_model(tmp_path / "state") as bed:
        refuse_logs(bed.state)
        seen, ended = await collect_events_and_end(switch_instance(bed.ctx(), bed.request()))
        assert ended.outcome is Outcome.READY
        assert "stayed" in (ended.message or "")
        assert "nothing of it is left" not in join_messages(seen)


async def test_so_does_its_way_back(tmp_path: Path) -> None:
    async with open_two_rank_model(tmp_path / "state") as bed:
        refuse_logs(bed.state)
        seen, ended = await collect_events_and_end(switch_instance(bed.ctx(), bed.request(FAULT)))
        proofs = [event.proof or "" for event in seen if isinstance(event, SwitchStepReported)]
        assert f"{OLD} serves again" in (ended.message or "")
        assert "stayed: the log could not be saved completely" in (ended.message or "")
        assert not any("nothing of" in one for one in proofs), proofs
        assert len(bed.all()) == 3, "the old one's two, and the one that stayed"


async def test_metrics_count_what_a_switch_keeps_as_stopped(tmp_path: Path) -> None:
    async with open_two_rank_model(tmp_path / "state") as bed:
        assert await bed.crash(
            switch_instance(bed.ctx(), bed.request()),
            lambda event: isinstance(event, PhaseChanged) and (event.instance, event.phase) == (NEW, Phase.STARTING),
        )
        views = await read_load_views(bed.ctx(), bed.nodes)
        kept = {(one.node, one.name): (one.phase, one.is_kept) for view in views for one in view.instances}
        assert kept["spark1", OLD] == kept["spark2", OLD] == (Phase.STOPPED, True)
