"""A start that could not be watched is refused before anything is made; what serves is never called down for that."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from sparkctl.commands.start.start_instance import start_instance
from sparkctl.commands.switch.switch_instance import switch_instance
from sparkctl.model.events import CommandEnded, Outcome, SwitchStepReported
from sparkctl.model.phase import Phase
from sparkctl.model.switch_plan import SwitchStep
from sparkctl.monitor.node_status import read_node_statuses
from sparkctl.simulator import SimulatedSparks
from tests.sim.start.test_start_guard import make_start_request
from tests.support.events import collect_events_and_end
from tests.support.switch_scene import FAULT, OLD, SwitchScene, abort_switch, list_switch_steps, resume_switch

pytestmark = [pytest.mark.simulation(speed=20), pytest.mark.usefixtures("own_profiles")]


def allow_forwarding(sparks: SimulatedSparks, *, allowed: bool) -> None:
    """Let each sshd forward TCP connections, or not any more: as after a change of its configuration."""
    for sshd in sparks.sshd.values():
        sshd.forwards_tcp = allowed


@pytest.mark.parametrize("more", [{}, {"detach": True}, {"dry_run": True}])
async def test_a_start_without_a_way_to_its_port_makes_no_container(sparks, ctx, more) -> None:  # type: ignore[no-untyped-def]
    allow_forwarding(sparks, allowed=False)
    _, ended = await collect_events_and_end(start_instance(ctx, make_start_request(sparks, **more)))
    assert (ended.outcome, ended.exit_code) == (Outcome.REFUSED, 6)
    assert "does not forward TCP connections to 127.0.0.1:" in (ended.message or "")
    assert "AllowTcpForwarding yes" in (ended.hint or "")
    assert "PermitOpen" in (ended.hint or "")
    assert not sparks.docker["spark1"].containers


async def test_what_runs_already_is_asked_in_a_session(sparks, ctx) -> None:  # type: ignore[no-untyped-def]
    _, ended = await collect_events_and_end(start_instance(ctx, make_start_request(sparks)))
    assert ended.exit_code == 0
    allow_forwarding(sparks, allowed=False)
    _, ended = await collect_events_and_end(start_instance(ctx, make_start_request(sparks)))
    assert ended.exit_code == 0, ended
    assert "already runs" in (ended.message or "")
    (view,) = await read_node_statuses(ctx, make_start_request(sparks).nodes)
    assert [one.phase for one in view.instances] == [Phase.READY]


async def test_a_switch_finds_it_while_the_old_one_serves(scene: SwitchScene) -> None:
    allow_forwarding(scene.sparks, allowed=False)
    seen, ended = await collect_events_and_end(switch_instance(scene.ctx(), scene.request()))
    assert (ended.outcome, ended.exit_code) == (Outcome.REFUSED, 6)
    assert "AllowTcpForwarding yes" in (ended.hint or "")
    assert list_switch_steps(seen) == [SwitchStep.CHECKING]
    assert scene.is_old()
    assert scene.journals == [None, None]


@pytest.mark.parametrize("verb", [resume_switch, abort_switch])
async def test_the_way_back_ends_where_the_old_one_serves(scene: SwitchScene, verb) -> None:  # type: ignore[no-untyped-def]
    """sshd's configuration changed in the middle of a switch: the old one serves again, and the journal does not stay."""
    restored = False
    async with aclosing(switch_instance(scene.ctx(), scene.request(FAULT))) as events:
        async for event in events:
            if isinstance(event, SwitchStepReported) and event.step is SwitchStep.UNDOING and event.proof is not None:
                restored = True
                allow_forwarding(scene.sparks, allowed=False)
                for sshd in scene.sparks.sshd.values():
                    sshd.drop_connections()
                break
    assert restored
    assert any(scene.journals)
    _, ended = await collect_events_and_end(verb(scene.ctx(), scene.finish()))
    assert isinstance(ended, CommandEnded)
    assert ended.exit_code == 0, ended
    assert f"{OLD} serves again" in (ended.message or "")
    assert scene.is_old()
    assert scene.journals == [None, None]
