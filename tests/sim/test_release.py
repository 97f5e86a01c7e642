"""A stop that proves itself: on simulated Sparks whose engines leave processes and shared memory behind, or nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from sparkctl import engines
from sparkctl.core.config import load_config
from sparkctl.core.context import Context
from sparkctl.core.history import History
from sparkctl.core.paths import shipped_profiles_dir
from sparkctl.core.profiles import ProfileLibrary
from sparkctl.model.events import Ended, Event, Outcome, Released, Warned
from sparkctl.model.memory import BeforeStart
from sparkctl.model.node import Node
from sparkctl.model.units import GIB
from sparkctl.operations.down import DownRequest, down
from sparkctl.operations.up import up
from sparkctl.operations.up_request import UpRequest
from sparkctl.sim import SimulatedSparks
from sparkctl.sim.node import Trouble
from tests.sim.clients import FAST

INSTANCE = "qwen36-ngram"


@pytest.fixture
async def sparks() -> AsyncIterator[SimulatedSparks]:
    """Two empty Sparks, fast."""
    async with SimulatedSparks(**FAST) as opened:
        yield opened


@pytest.fixture
def ctx(tmp_path: Path) -> Context:
    return Context(History(tmp_path / "state"), "milo@desk")


@pytest.fixture
def node(sparks: SimulatedSparks) -> Node:
    return load_config(sparks.config_path).nodes[0]


async def everything(events: AsyncIterator[Event]) -> tuple[list[Event], Ended]:
    told = [event async for event in events]
    assert isinstance(told[-1], Ended)
    return told, told[-1]


async def start(ctx: Context, node: Node, **changes: object) -> str:
    """Start the profile and return its container's id."""
    profile = ProfileLibrary(user=shipped_profiles_dir()).load(INSTANCE)
    if changes:
        profile = replace(profile, container=replace(profile.container, **changes))  # type: ignore[arg-type]
    told, ended = await everything(up(ctx, UpRequest(profile, engines.load(profile.engine), (node,))))
    assert ended.outcome is Outcome.READY, told
    return INSTANCE


def released(told: list[Event]) -> Released:
    (one,) = [event for event in told if isinstance(event, Released)]
    return one


def warnings(told: list[Event]) -> list[str]:
    return [f"{event.message} | {event.hint}" for event in told if isinstance(event, Warned)]


async def test_all_is_back_and_near_what_it_was_before_the_start(ctx: Context, node: Node) -> None:
    await start(ctx, node)
    told, ended = await everything(down(ctx, DownRequest(INSTANCE, [node])))
    one = released(told)
    assert (ended.outcome, ended.exit_code) == (Outcome.DONE, 0), warnings(told)
    assert (one.missing, one.holders) == (0, ())
    assert one.freed is not None
    assert one.freed > 20 * GIB
    assert one.before_start is not None
    assert one.available is not None
    assert abs(one.before_start - one.available) < 2 * GIB
    assert warnings(told) == []


async def test_a_worker_that_outlives_its_container_is_named_with_what_it_holds(
    sparks: SimulatedSparks, ctx: Context, node: Node
) -> None:
    await start(ctx, node)
    spark = sparks.nodes["spark1"]
    spark.options = replace(spark.options, troubles=frozenset({Trouble.LINGERS}))
    told, ended = await everything(down(ctx, DownRequest(INSTANCE, [node])))
    (pid,) = spark.remains.lost
    one = released(told)
    assert (ended.outcome, ended.exit_code) == (Outcome.UNHEALTHY, 5)
    ((who, held),) = one.holders
    assert who == f"process {pid} (VLLM::EngineCore), which outlived it"
    assert held is not None
    assert held > 20 * GIB
    assert one.missing is not None
    assert one.missing > 20 * GIB
    (said,) = warnings(told)
    assert f"sudo kill {pid}" in said
    assert "GiB did not come back on spark1" in said
    assert not sparks.docker["spark1"].containers, "what could be removed was"


@pytest.mark.parametrize("sees_maps", [False, True])
async def test_what_a_killed_engine_leaves_in_dev_shm_goes_where_it_is_surely_its_and_is_named_else(
    sparks: SimulatedSparks, ctx: Context, node: Node, *, sees_maps: bool
) -> None:
    spark = sparks.nodes["spark1"]
    spark.remains.sees_maps = sees_maps
    spark.options = replace(spark.options, troubles=frozenset({Trouble.LITTERS}))
    await start(ctx, node, ipc="host")
    (path,) = spark.remains.files
    told, ended = await everything(down(ctx, DownRequest(INSTANCE, [node], grace=0.0)))
    if sees_maps:
        assert not spark.remains.files
        assert (ended.exit_code, released(told).holders) == (0, ())
        return
    assert path in spark.remains.files
    assert ended.exit_code == 5
    ((who, held),) = released(told).holders
    assert (path.rpartition("/")[2] in who, held) == (True, 96 << 20)
    assert f"sudo rm -- {path}" in warnings(told)[0]


async def test_what_lay_in_dev_shm_before_the_start_is_left_alone(
    sparks: SimulatedSparks, ctx: Context, node: Node
) -> None:
    spark = sparks.nodes["spark1"]
    spark.remains.share("older", [], spark.clock.now() - 3600)
    await start(ctx, node, ipc="host")
    told, ended = await everything(down(ctx, DownRequest(INSTANCE, [node])))
    assert (ended.exit_code, warnings(told)) == (0, [])
    assert list(spark.remains.files) == ["/dev/shm/psm_older"]


async def test_less_than_before_the_start_is_missing_even_if_nobody_is_seen_to_hold_it(
    sparks: SimulatedSparks, ctx: Context, node: Node
) -> None:
    """As after a crash that the driver did not clear away."""
    await start(ctx, node)
    daemon = sparks.docker["spark1"]
    (container,) = daemon.containers.values()
    was = ctx.history.before_start(INSTANCE, "spark1", container.id)
    assert was is not None
    ctx.history.keep_before(INSTANCE, "spark1", container.id, BeforeStart(was.available + 30 * GIB, was.held))
    told, ended = await everything(down(ctx, DownRequest(INSTANCE, [node])))
    assert ended.exit_code == 5
    missing = released(told).missing
    assert missing is not None
    assert 25 * GIB < missing < 35 * GIB
    assert "no process is seen that holds it" in warnings(told)[0]
