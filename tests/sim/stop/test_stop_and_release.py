"""A stop that proves itself: on simulated Sparks whose engines leave processes and shared memory behind, or nothing."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from sparkctl.commands.node_lock import acquire_node_lock
from sparkctl.commands.restart_instance import RestartInstance
from sparkctl.commands.start.start_instance import start_instance
from sparkctl.commands.start.start_request import StartInstance
from sparkctl.commands.stop.pending_stops import PendingStop, PendingStopFiles
from sparkctl.commands.stop.stop_containers import stop_instance_container
from sparkctl.commands.stop.stop_instance import StopInstance, stop_instance
from sparkctl.config import load_config
from sparkctl.context import CommandContext
from sparkctl.errors import NodeStarved
from sparkctl.files import shipped_profiles_dir
from sparkctl.history.model import NodeResult, OperationKind
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.events import (
    CommandEnded,
    ContainersListed,
    Event,
    MemoryReleased,
    Outcome,
    PhaseChanged,
)
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.node import Node, NodeName
from sparkctl.model.phase import Phase
from sparkctl.model.profile import Profile
from sparkctl.model.sample import MemoryBeforeStart
from sparkctl.model.text.units import GIB
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.simulator import SimulatedSparks
from sparkctl.simulator.sim_node import NodeFault, SimNode
from tests.support.events import collect_events_and_end, list_warnings
from tests.support.run_command import parse_result, run_demo
from tests.support.sim_clients import FAST, PATIENCE

INSTANCE = "qwen36-ngram"


def load_shipped_profile(name: str) -> Profile:
    return ProfileLibrary(user=shipped_profiles_dir()).load_profile(name)


async def start_and_get_id(ctx: CommandContext, node: Node, **changes: object) -> str:
    """Start the profile and return its container's id."""
    profile = load_shipped_profile(INSTANCE)
    if changes:
        profile = replace(profile, container=replace(profile.container, **changes))  # type: ignore[arg-type]
    events, ended = await collect_events_and_end(start_instance(ctx, StartInstance(profile=profile, nodes=(node,))))
    assert ended.outcome is Outcome.READY, events
    return INSTANCE


def give_fault(sparks: SimulatedSparks, fault: NodeFault) -> SimNode:
    """Have spark1 show a fault from now on; return it."""
    spark = sparks.nodes["spark1"]
    spark.options = replace(spark.options, troubles=frozenset({fault}))
    return spark


def find_memory_release(events: list[Event]) -> MemoryReleased:
    (one,) = [event for event in events if isinstance(event, MemoryReleased)]
    return one


async def test_all_is_back_and_near_what_it_was_before_the_start(ctx: CommandContext, node: Node) -> None:
    await start_and_get_id(ctx, node)
    events, ended = await collect_events_and_end(stop_instance(ctx, StopInstance(instance=INSTANCE, nodes=[node])))
    one = find_memory_release(events)
    assert (ended.outcome, ended.exit_code) == (Outcome.DONE, 0), list_warnings(events)
    assert (one.missing, one.holders) == (0, ())
    assert one.freed is not None
    assert one.freed > 20 * GIB
    assert one.before_start is not None
    assert one.available is not None
    assert abs(one.before_start - one.available) < 2 * GIB
    assert list_warnings(events) == []


async def test_a_worker_that_outlives_its_container_is_named_with_what_it_holds(
    sparks: SimulatedSparks, ctx: CommandContext, node: Node
) -> None:
    await start_and_get_id(ctx, node)
    spark = give_fault(sparks, NodeFault.LINGERS)
    events, ended = await collect_events_and_end(stop_instance(ctx, StopInstance(instance=INSTANCE, nodes=[node])))
    (pid,) = spark.remains.lost
    one = find_memory_release(events)
    assert (ended.outcome, ended.exit_code) == (Outcome.UNHEALTHY, 5)
    ((caller, memory),) = one.holders
    assert caller == f"process {pid} (VLLM::EngineCore), which outlived it"
    assert memory is not None
    assert memory > 20 * GIB
    assert one.missing is not None
    assert one.missing > 20 * GIB
    (said,) = list_warnings(events)
    assert f"sudo kill {pid}" in said
    assert "GiB did not come back on spark1" in said
    assert not sparks.docker["spark1"].containers, "what could be removed was"


async def test_the_log_is_saved_and_the_container_removed_though_the_wait_for_its_memory_fails(
    sparks: SimulatedSparks, ctx: CommandContext, node: Node
) -> None:
    await start_and_get_id(ctx, node)
    give_fault(sparks, NodeFault.LINGERS)

    def fail_while_memory_comes_back(event: Event) -> None:
        if isinstance(event, PhaseChanged) and (event.detail or "").endswith(" back"):
            raise NodeStarved("spark1", "it did not answer")

    async with ctx.create_session(node) as session:
        await session.link.connect()
        (container,) = await session.docker.list_containers()
        with pytest.raises(NodeStarved):
            await stop_instance_container(session, ctx, fail_while_memory_comes_back, container, 5.0)
    assert sparks.docker["spark1"].containers == {}
    assert [path for path in (ctx.history.directory / "logs").rglob("*.log") if path.stat().st_size]


@pytest.mark.parametrize("sees_maps", [False, True])
async def test_what_a_killed_engine_leaves_in_dev_shm_goes_where_it_is_surely_its_and_is_named_else(
    sparks: SimulatedSparks, ctx: CommandContext, node: Node, *, sees_maps: bool
) -> None:
    spark = give_fault(sparks, NodeFault.LITTERS)
    spark.remains.sees_maps = sees_maps
    await start_and_get_id(ctx, node, ipc="host")
    (path,) = spark.remains.files
    events, ended = await collect_events_and_end(
        stop_instance(ctx, StopInstance(instance=INSTANCE, nodes=[node], grace=0.0))
    )
    if sees_maps:
        assert not spark.remains.files
        assert (ended.exit_code, find_memory_release(events).holders) == (0, ())
        return
    assert path in spark.remains.files
    assert ended.exit_code == 5
    ((caller, memory),) = find_memory_release(events).holders
    assert (path.rpartition("/")[2] in caller, memory) == (True, 96 << 20)
    assert f"sudo rm -- {path}" in list_warnings(events)[0]


async def test_what_lay_in_dev_shm_before_the_start_is_left_alone(
    sparks: SimulatedSparks, ctx: CommandContext, node: Node
) -> None:
    spark = sparks.nodes["spark1"]
    spark.remains.add_shared_memory("older", [], spark.clock.unix_time() - 3600)
    await start_and_get_id(ctx, node, ipc="host")
    events, ended = await collect_events_and_end(stop_instance(ctx, StopInstance(instance=INSTANCE, nodes=[node])))
    assert (ended.exit_code, list_warnings(events)) == (0, [])
    assert list(spark.remains.files) == ["/dev/shm/psm_older"]


async def test_less_than_before_the_start_is_missing_even_if_nobody_is_seen_to_hold_it(
    sparks: SimulatedSparks, ctx: CommandContext, node: Node
) -> None:
    """As after a crash that the driver did not clear away."""
    await start_and_get_id(ctx, node)
    daemon = sparks.docker["spark1"]
    (container,) = daemon.containers.values()
    was = ctx.history.load_memory_before(INSTANCE, "spark1", container.id)
    assert was is not None
    ctx.history.save_memory_before(
        INSTANCE, "spark1", container.id, MemoryBeforeStart(was.available + 30 * GIB, was.held)
    )
    events, ended = await collect_events_and_end(stop_instance(ctx, StopInstance(instance=INSTANCE, nodes=[node])))
    assert ended.exit_code == 5
    missing = find_memory_release(events).missing
    assert missing is not None
    assert 25 * GIB < missing < 35 * GIB
    assert "no visible process holds it" in list_warnings(events)[0]


# a model over both Sparks


def start_rank_containers(sparks: SimulatedSparks, names: str = "spark1,spark2") -> list[str]:
    """Let both Sparks run a rank each of one model; return their containers' ids."""
    found = []
    for rank, daemon in enumerate(sparks.docker.values()):
        (old,) = daemon.containers.values()
        labels = {
            **old.labels,
            ContainerLabel.INSTANCE: "big",
            ContainerLabel.RANK: f"{rank}/2",
            ContainerLabel.NODES: names,
            ContainerLabel.RUN: "run-1",
        }
        old.body = {**old.body, "Labels": labels}
        old.name = f"big-{rank}"
        found.append(old.id)
    return found


@pytest.fixture
async def both() -> AsyncIterator[SimulatedSparks]:
    async with SimulatedSparks("two-stacks", **FAST) as opened:
        yield opened


async def test_of_two_starts_of_one_name_none_is_stopped_on_a_guess(both: SimulatedSparks, ctx: CommandContext) -> None:
    for run, daemon in enumerate(both.docker.values()):
        (old,) = daemon.containers.values()
        old.body = {
            **old.body,
            "Labels": {**old.labels, ContainerLabel.INSTANCE: "big", ContainerLabel.RUN: f"run-{run}"},
        }
    nodes = load_config(both.config_path).nodes
    whichever = StopInstance(instance="big", nodes=nodes, names_nodes=False, everywhere=nodes)
    _, ended = await collect_events_and_end(stop_instance(ctx, whichever))
    assert (ended.exit_code, ended.message) == (2, "big runs more than once: on spark1, and on spark2")
    assert ended.hint == "sparkctl down big --node spark1\nsparkctl down big --node spark2"
    assert [len(daemon.containers) for daemon in both.docker.values()] == [1, 1]
    told, ended = await collect_events_and_end(
        stop_instance(ctx, replace(whichever, nodes=[nodes[1]], names_nodes=True))
    )
    assert ended.exit_code == 0, list_warnings(told)
    assert [len(daemon.containers) for daemon in both.docker.values()] == [1, 0]


async def test_a_model_on_two_sparks_is_stopped_on_both_though_one_was_named(
    both: SimulatedSparks, ctx: CommandContext
) -> None:
    start_rank_containers(both)
    nodes = load_config(both.config_path).nodes
    events, ended = await collect_events_and_end(
        stop_instance(ctx, StopInstance(instance="big", nodes=[nodes[1]], everywhere=nodes))
    )
    assert (ended.outcome, ended.exit_code) == (Outcome.DONE, 0), list_warnings(events)
    assert [daemon.containers for daemon in both.docker.values()] == [{}, {}]
    assert "big is one model on spark1 and spark2: it is stopped on all of them" in list_warnings(events)[0]
    stopping = [one.node for one in events if isinstance(one, PhaseChanged) and one.phase is Phase.STOPPING]
    assert stopping[0] == "spark1", "the head is asked first"
    assert {one.node for one in events if isinstance(one, MemoryReleased)} == {"spark1", "spark2"}


async def test_ranks_are_found_under_other_names_and_one_that_is_not_is_told(
    both: SimulatedSparks, ctx: CommandContext
) -> None:
    nodes = load_config(both.config_path).nodes
    start_rank_containers(both, "gx10-a,gx10-b")
    events, ended = await collect_events_and_end(
        stop_instance(ctx, StopInstance(instance="big", nodes=[nodes[0]], everywhere=nodes))
    )
    assert (ended.exit_code, both.docker["spark2"].containers) == (0, {})
    assert len(list_warnings(events)) == 1


async def test_a_rank_on_a_node_that_nobody_knows_is_no_success(both: SimulatedSparks, ctx: CommandContext) -> None:
    nodes = load_config(both.config_path).nodes
    start_rank_containers(both, "spark1,gx10-b")
    events, ended = await collect_events_and_end(
        stop_instance(ctx, StopInstance(instance="big", nodes=[nodes[0]], everywhere=[nodes[0]]))
    )
    assert (ended.outcome, ended.exit_code) == (Outcome.UNHEALTHY, 5)
    assert ended.message == "stopped here, but a rank may still run: big on gx10-b"
    assert not both.docker["spark1"].containers
    assert len(both.docker["spark2"].containers) == 1, "no node was asked that is not there"
    assert any("no node here has that name" in one for one in list_warnings(events))


async def test_free_takes_the_whole_model_and_leaves_what_others_started(
    both: SimulatedSparks, ctx: CommandContext
) -> None:
    start_rank_containers(both)
    nodes = load_config(both.config_path).nodes
    foreign = both.docker["spark2"].create_container(
        "whisper", {"Image": "ghcr.io/me/whisper:1", "Cmd": ["serve"], "HostConfig": {}}
    )
    foreign.state = "running"
    request = StopInstance(instance=None, nodes=[nodes[1]], everywhere=nodes, frees=True)
    events, ended = await collect_events_and_end(stop_instance(ctx, replace(request, dry_run=True)))
    assert (ended.outcome, ended.exit_code) == (Outcome.PLANNED, 0)
    message = ended.message or ""
    assert message.startswith("would stop big on spark1 and spark2\nspark2: ")
    assert "whisper was not started by sparkctl and is left alone" in message
    assert not any(isinstance(one, PhaseChanged) for one in events)
    events, ended = await collect_events_and_end(stop_instance(ctx, request))
    assert ended.exit_code == 0, list_warnings(events)
    assert list(both.docker["spark2"].containers.values()) == [foreign]
    assert foreign.state == "running"
    assert both.docker["spark1"].containers == {}
    assert "whisper" in (ended.message or "")
    (listed,) = [one for one in events if isinstance(one, ContainersListed)]
    assert [one.name for one in listed.instances] == ["whisper"]


# a node that is away


async def make_unreachable_node(sparks: SimulatedSparks, node: Node) -> Node:
    """Return a node as it is when nothing listens there."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return replace(node, port=free.getsockname()[1])


async def test_the_worker_s_node_is_away_so_the_next_contact_stops_exactly_that_run(
    both: SimulatedSparks, ctx: CommandContext
) -> None:
    ids = start_rank_containers(both)
    one, two = load_config(both.config_path).nodes
    off = await make_unreachable_node(both, two)
    events, ended = await collect_events_and_end(
        stop_instance(ctx, StopInstance(instance="big", nodes=[one, off], everywhere=[one, off]))
    )
    assert (ended.outcome, ended.exit_code) == (Outcome.UNREACHABLE, 3)
    assert both.docker["spark1"].containers == {}, "the rest proceeds"
    assert list(both.docker["spark2"].containers) == [ids[1]]
    assert any("of big is stopped at the next contact with spark2" in words for words in list_warnings(events))
    (owed,) = PendingStopFiles(ctx.history.directory).list_all(ctx.clock.unix_time())
    assert (owed.node, owed.instance, owed.run, owed.containers) == ("spark2", "big", "run-1", ())

    daemon = both.docker["spark2"]
    (worker,) = daemon.containers.values()
    other = daemon.create_container(
        "big-again", {**worker.body, "Labels": {**worker.labels, ContainerLabel.RUN: "run-2"}}
    )
    request = StartInstance(profile=load_shipped_profile("kokoro-tts"), nodes=(two,))
    events, ended = await collect_events_and_end(start_instance(ctx, request))
    assert any(
        "finishing what was asked at" in words and "stopping big on spark2" in words for words in list_warnings(events)
    )
    assert ids[1] not in daemon.containers
    assert other.id in daemon.containers, "another start of it is not what was meant"
    assert PendingStopFiles(ctx.history.directory).list_all(ctx.clock.unix_time()) == ()


async def test_the_head_is_stopped_too_where_only_the_worker_s_node_was_named_and_is_away(
    both: SimulatedSparks, ctx: CommandContext
) -> None:
    ids = start_rank_containers(both)
    one, two = load_config(both.config_path).nodes
    off = await make_unreachable_node(both, two)
    _, ended = await collect_events_and_end(
        stop_instance(ctx, StopInstance(instance="big", nodes=[off], everywhere=[one, off]))
    )
    assert (ended.exit_code, both.docker["spark1"].containers) == (3, {})
    (owed,) = PendingStopFiles(ctx.history.directory).list_all(ctx.clock.unix_time())
    assert (owed.node, owed.run) == ("spark2", "run-1")
    assert list(both.docker["spark2"].containers) == [ids[1]]


async def test_free_of_a_silent_spark_stops_the_whole_model_and_owes_its_rank_alone(
    both: SimulatedSparks, ctx: CommandContext
) -> None:
    ids = start_rank_containers(both)
    one, two = load_config(both.config_path).nodes
    for name, ended in (("big", None), ("orpheus-tts", "freed")):  # the second was stopped there before
        started = ctx.history.begin_operation(
            OperationKind.START, ctx.clock, "milo", [one.name, two.name], profile=name, instance=name
        )
        container = ids[1] if ended is None else "e" * 64
        started.record_node_result(NodeResult(node=two.name, instance=name, container=container))
        started.record_end("ready", 0)
        ctx.history.open_log_writer(name, two.name, container, ()).close(whole=True)
        if ended is not None:
            stopped = ctx.history.begin_operation(OperationKind.STOP, ctx.clock, "milo", [two.name], instance=name)
            stopped.record_node_result(NodeResult(node=two.name, instance=name, container=container, freed=GIB))
            stopped.record_end("done", 0)
    off = await make_unreachable_node(both, two)
    request = StopInstance(instance=None, nodes=[off], everywhere=[one, off], frees=True)
    events, ended_ = await collect_events_and_end(stop_instance(ctx, replace(request, dry_run=True)))
    assert ended_.exit_code == 3
    assert "it would be stopped on spark1 now, and on spark2 at the next contact" in "\n".join(list_warnings(events))
    assert PendingStopFiles(ctx.history.directory).list_all(ctx.clock.unix_time()) == (), "who only looks owes nothing"
    events, ended_ = await collect_events_and_end(stop_instance(ctx, request))
    assert (ended_.outcome, ended_.exit_code) == (Outcome.UNREACHABLE, 3)
    assert both.docker["spark1"].containers == {}, "the rest proceeds"
    said = "\n".join(list_warnings(events))
    assert (
        "big is one model on spark1 and spark2: it is stopped on spark1 now, and on spark2 at the next contact" in said
    )
    assert "orpheus-tts" not in said
    (owed,) = PendingStopFiles(ctx.history.directory).list_all(ctx.clock.unix_time())
    assert (owed.node, owed.instance, owed.run) == ("spark2", "big", "run-1")


async def test_nothing_is_owed_of_a_model_that_serves_on_because_its_head_could_not_be_stopped(
    both: SimulatedSparks, ctx: CommandContext, tmp_path: Path
) -> None:
    ids = start_rank_containers(both)
    one, two = load_config(both.config_path).nodes
    started = ctx.history.begin_operation(
        OperationKind.START, ctx.clock, "milo", [one.name, two.name], profile="big", instance="big"
    )
    for node, container in zip((one, two), ids, strict=True):
        started.record_node_result(NodeResult(node=node.name, instance="big", container=container))
    started.record_end("ready", 0)
    off = await make_unreachable_node(both, two)
    other = CommandContext(history=OperationHistory(tmp_path / "theirs"), operator="ann@desk")
    async with other.create_session(one) as session:
        await session.link.connect()
        lock = await acquire_node_lock(session, other, "starting something", lambda words: None)
        for instance in (None, "big"):
            events, ended = await collect_events_and_end(
                stop_instance(ctx, StopInstance(instance=instance, nodes=[off], everywhere=[one, off]))
            )
            assert ended.exit_code == 3
            assert any("ann@desk" in words for words in list_warnings(events))
        await lock.release()
    assert list(both.docker["spark1"].containers) == [ids[0]]
    assert PendingStopFiles(ctx.history.directory).list_all(ctx.clock.unix_time()) == ()


async def test_of_a_model_whose_sparks_are_both_silent_every_rank_is_owed(
    both: SimulatedSparks, ctx: CommandContext
) -> None:
    ids = start_rank_containers(both)
    nodes = load_config(both.config_path).nodes
    started = ctx.history.begin_operation(
        OperationKind.START, ctx.clock, "milo", [node.name for node in nodes], profile="big", instance="big"
    )
    for node, container in zip(nodes, ids, strict=True):
        started.record_node_result(NodeResult(node=node.name, instance="big", container=container))
    started.record_end("ready", 0)
    silent = [await make_unreachable_node(both, node) for node in nodes]
    _, ended = await collect_events_and_end(
        stop_instance(ctx, StopInstance(instance=None, nodes=silent[1:], everywhere=silent, frees=True))
    )
    assert ended.exit_code == 3
    owed = {one.node: one.containers for one in PendingStopFiles(ctx.history.directory).list_all(ctx.clock.unix_time())}
    assert owed == {"spark1": (ids[0][:12],), "spark2": (ids[1][:12],)}


async def test_what_runs_elsewhere_by_itself_is_not_stopped_for_a_node_that_is_away(
    both: SimulatedSparks, ctx: CommandContext
) -> None:
    one, two = load_config(both.config_path).nodes
    off = await make_unreachable_node(both, two)
    _, ended = await collect_events_and_end(
        stop_instance(ctx, StopInstance(instance=INSTANCE, nodes=[off], everywhere=[one, off]))
    )
    assert ended.exit_code == 3
    assert len(both.docker["spark1"].containers) == 1
    assert PendingStopFiles(ctx.history.directory).list_all(ctx.clock.unix_time()) == ()


async def test_a_container_restarted_meanwhile_is_not_stopped(both: SimulatedSparks, ctx: CommandContext) -> None:
    ids = start_rank_containers(both)
    two = load_config(both.config_path).nodes[1]
    owed = PendingStopFiles(ctx.history.directory)
    (worker,) = both.docker["spark2"].containers.values()
    assert worker.started is not None
    owed.save_stop(
        PendingStop(node=two.name, instance="big", since=worker.started / 1e9 - 5, containers=(ids[1][:12],))
    )
    _, ended = await collect_events_and_end(stop_instance(ctx, StopInstance(instance=None, nodes=[two], dry_run=True)))
    assert ended.exit_code == 0
    assert owed.list_all(ctx.clock.unix_time()), "who only looks settles nothing"
    async with ctx.create_session(two) as session:
        await session.link.connect()
        said: list[str] = []
        await (await acquire_node_lock(session, ctx, "testing", said.append)).release()
    assert "was started again since: it keeps running" in said[0]
    assert ids[1] in both.docker["spark2"].containers
    assert owed.list_all(ctx.clock.unix_time()) == ()


async def test_a_link_that_breaks_in_the_middle_leaves_that_container_to_the_next_contact(
    both: SimulatedSparks, ctx: CommandContext
) -> None:
    ids = start_rank_containers(both)
    nodes = load_config(both.config_path).nodes
    events: list[Event] = []
    async for event in stop_instance(ctx, StopInstance(instance="big", nodes=nodes, everywhere=nodes)):
        events.append(event)
        if isinstance(event, PhaseChanged) and (event.node, event.phase) == ("spark2", Phase.STOPPING):
            both.sshd["spark2"].drop_connections()
    ended = events[-1]
    assert isinstance(ended, CommandEnded)
    assert (ended.outcome, ended.exit_code) == (Outcome.UNREACHABLE, 3)
    assert both.docker["spark1"].containers == {}
    (owed,) = PendingStopFiles(ctx.history.directory).list_all(ctx.clock.unix_time())
    assert (owed.node, owed.containers, owed.run) == ("spark2", (ids[1],), "run-1")
    events, ended = await collect_events_and_end(
        stop_instance(ctx, StopInstance(instance="big", nodes=nodes, everywhere=nodes))
    )
    assert ended.exit_code == 0, list_warnings(events)
    assert both.docker["spark2"].containers == {}
    assert PendingStopFiles(ctx.history.directory).list_all(ctx.clock.unix_time()) == ()


async def _refused_free(both: SimulatedSparks, ctx: CommandContext, tmp_path: Path) -> tuple[list[Event], CommandEnded]:
    nodes = load_config(both.config_path).nodes
    other = CommandContext(history=OperationHistory(tmp_path / "hers"), operator="ann@desk")
    async with other.create_session(nodes[0]) as session:
        await session.link.connect()
        lock = await acquire_node_lock(session, other, "starting something", lambda words: None)
        events, ended = await collect_events_and_end(
            stop_instance(ctx, StopInstance(instance=None, nodes=nodes[1:], everywhere=nodes, frees=True))
        )
        await lock.release()
    assert ended.exit_code == 6
    return events, ended


async def test_nothing_is_stopped_of_what_somebody_is_at_work_on_elsewhere(
    both: SimulatedSparks, ctx: CommandContext, tmp_path: Path
) -> None:
    start_rank_containers(both)
    nodes = load_config(both.config_path).nodes
    other = CommandContext(history=OperationHistory(tmp_path / "theirs"), operator="ann@desk")
    async with other.create_session(nodes[1]) as session:
        await session.link.connect()
        lock = await acquire_node_lock(session, other, "starting something", lambda words: None)
        result, ended = await collect_events_and_end(
            stop_instance(ctx, StopInstance(instance="big", nodes=nodes, everywhere=nodes))
        )
        await lock.release()
    assert (ended.outcome, ended.exit_code) == (Outcome.REFUSED, 6)
    assert "ann@desk" in (ended.message or "")
    assert not any("ann@desk" in words for words in list_warnings(result)), (
        "the refusal is the verb's last word, not a caution"
    )
    result, _ = await _refused_free(both, ctx, tmp_path)
    assert not any("it is stopped" in words for words in list_warnings(result)), "nothing is said of what is not done"
    assert [len(daemon.containers) for daemon in both.docker.values()] == [1, 1], "no half of it was stopped"
    assert not any(isinstance(one, PhaseChanged) for one in result)
    assert PendingStopFiles(ctx.history.directory).list_all(ctx.clock.unix_time()) == ()


def test_the_command_frees_a_node_of_a_model_over_both_and_tells_what_is_left() -> None:
    ran = run_demo("free", "spark2", scenario="big-model")
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("nothing of it is left") == 2
    assert "spark2: 115." in ran.stderr
    planned = parse_result(run_demo("free", "spark2", "--dry-run", "--json", scenario="big-model"))
    assert planned["outcome"] == "planned"
    assert "would stop minimax-m27 on spark1 and spark2" in planned["message"]
    unknown = run_demo("free", "spark9", scenario="big-model")
    assert unknown.returncode == 2
    assert "no node is called" in unknown.stderr


async def test_status_tells_what_is_still_to_be_stopped(sparks: SimulatedSparks, tmp_path: Path) -> None:
    now = time.time()
    PendingStopFiles(tmp_path).save_stop(
        PendingStop(node=NodeName("spark2"), instance="big", since=now, containers=("a" * 12,))
    )
    env = {**os.environ, "SPARKCTL_STATE": str(tmp_path), "SPARKCTL_CONFIG": str(sparks.config_path)}

    async def status(*words: str) -> str:
        argv = (sys.executable, "-m", "sparkctl", "status", *words)
        process = await asyncio.create_subprocess_exec(*argv, env=env, stdout=asyncio.subprocess.PIPE)
        return (await asyncio.wait_for(process.communicate(), PATIENCE))[0].decode()

    at = time.strftime("%H:%M", time.localtime(now))
    result = await status()
    assert f"big is still to be stopped on spark2, asked at {at}" in result
    assert "the next up, down, free or switch there does it" in result
    assert "still to be stopped" not in await status("--node", "spark1")
    document = json.loads(await status("--json"))
    assert [one["instance"] for one in document["unfinished_stops"]] == ["big"]


async def test_a_worker_that_goes_with_its_head_is_measured_before_that(ctx: CommandContext) -> None:
    async with SimulatedSparks(speed=10.0, decode_speed=200.0) as sparks:
        nodes = load_config(sparks.config_path).nodes
        profile = load_shipped_profile("qwen36-tp2")
        events, ended = await collect_events_and_end(
            start_instance(ctx, StartInstance(profile=profile, nodes=tuple(nodes)))
        )
        assert ended.outcome is Outcome.READY, list_warnings(events)
        events, ended = await collect_events_and_end(
            stop_instance(ctx, StopInstance(instance="qwen36-tp2", nodes=nodes, everywhere=nodes))
        )
        assert ended.exit_code == 0, list_warnings(events)
        proofs = {one.node: one for one in events if isinstance(one, MemoryReleased)}
        assert set(proofs) == {"spark1", "spark2"}
        assert all(one.freed is not None and one.freed > 20 * GIB for one in proofs.values())
        assert all(one.before_start is not None for one in proofs.values())
        assert [daemon.containers for daemon in sparks.docker.values()] == [{}, {}]


async def test_a_restart_goes_on_where_the_old_one_left_something(
    sparks: SimulatedSparks, ctx: CommandContext, node: Node
) -> None:
    """What serves does not stay down over a warning: the start checks by itself whether there is enough memory."""
    give_fault(sparks, NodeFault.LITTERS)
    await start_and_get_id(ctx, node, ipc="host")
    ((before, process),) = sparks.docker["spark1"].running.items()
    process.deaf = True  # type: ignore[union-attr]  # it is killed, and leaves its shared memory
    request = RestartInstance(instance=INSTANCE, nodes=(node,), everywhere=(node,))
    events, ended = await collect_events_and_end(request.run(ctx))
    assert (ended.outcome, ended.exit_code) == (Outcome.READY, 0), ended
    (after,) = sparks.docker["spark1"].containers
    assert after != before
    warnings = "\n".join(list_warnings(events))
    assert "something of it is left on spark1" in warnings
    assert "stopped, but not everything that it held is back" in warnings
