"""One model over two simulated Sparks: planned for each, started on both or on none, ready and ended as one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from sparkctl.commands.show_log import ShowLog, show_log
from sparkctl.commands.start.rank_watch import RankWatch
from sparkctl.commands.start.start_instance import start_instance
from sparkctl.commands.start.start_request import StartInstance
from sparkctl.commands.start.start_watch import WatchResult
from sparkctl.commands.stop.stop_instance import StopInstance, stop_instance
from sparkctl.config import load_config
from sparkctl.context import CommandContext
from sparkctl.engines.simulation.engine_launch import EngineFault
from sparkctl.engines.simulation.script_player import ExitStep
from sparkctl.files import shipped_profiles_dir
from sparkctl.logs.line_patterns import parse_log_time
from sparkctl.logs.rank_verdict import measure_clock_offset
from sparkctl.model.events import (
    Event,
    LaunchPlanned,
    LogArrived,
    NodeStateChanged,
    Outcome,
    PhaseChanged,
    WarningEmitted,
)
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.verdict import FailureCause
from sparkctl.monitor.node_status import read_node_statuses
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.simulator import SimNodeOptions, SimulatedSparks, engine_process
from sparkctl.simulator.docker_daemon import DockerApiError
from sparkctl.simulator.sim_node import NodeFault
from tests.support.events import find_command_end
from tests.support.run_command import run_demo
from tests.support.sim_clients import FAST, PATIENCE

BOTH = ("spark1", "spark2")


@pytest.fixture
async def slow() -> AsyncIterator[SimulatedSparks]:
    """Slow enough that a start can be met in the middle."""
    async with SimulatedSparks(speed=3) as opened:
        yield opened


def make_start_request(sparks: SimulatedSparks, *sets: str, name: str = "qwen36-tp2", **more: object) -> StartInstance:
    profile = ProfileLibrary(user=shipped_profiles_dir()).load_profile(name, overrides=sets)
    nodes = load_config(sparks.config_path).nodes
    return StartInstance(profile=profile, nodes=tuple(nodes), words=(name,), **more)  # type: ignore[arg-type]


async def collect_events(ctx: CommandContext, asked: StartInstance) -> list[Event]:
    return [event async for event in start_instance(ctx, asked)]


def list_phases(events: Sequence[Event], node: str) -> list[Phase]:
    told = [event.phase for event in events if isinstance(event, PhaseChanged) and event.node == node]
    return list(dict.fromkeys(told))


def list_container_states(sparks: SimulatedSparks) -> list[str]:
    return [one.state for name in BOTH for one in sparks.docker[name].containers.values()]


def read_rank_labels(sparks: SimulatedSparks, node: str) -> dict[str, str]:
    (one,) = sparks.docker[node].containers.values()
    return dict(one.body["Labels"])


async def wait_until_rank_loads(stream: AsyncIterator[Event], node: str) -> None:
    """Take events until a node's rank loads."""
    async for event in stream:
        if isinstance(event, PhaseChanged) and event.node == node and event.phase is Phase.LOADING:
            return


async def test_it_gets_ready_as_one_and_each_rank_knows_its_place(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    events = await collect_events(ctx, make_start_request(sparks))
    ended = find_command_end(events)
    assert (ended.outcome, ended.node, ended.endpoint) == (Outcome.READY, "spark1", "http://127.0.0.1:8003")
    head, worker = [event.plan for event in events if isinstance(event, LaunchPlanned)]
    assert [dict(plan.env)["VLLM_HOST_IP"] for plan in (head, worker)] == ["192.168.200.11", "192.168.200.12"]
    assert (head.get_flag_value("node-rank"), worker.get_flag_value("node-rank")) == ("0", "1")
    assert head.get_flag_value("dist-init-addr") == worker.get_flag_value("dist-init-addr") == "192.168.200.11:25000"
    assert (head.port, worker.port) == (8003, None)
    made = [one.node for one in events if isinstance(one, PhaseChanged) and one.phase is Phase.CREATING]
    assert made == ["spark2", "spark1"], "without Ray the head comes last: it looks for the others at once"
    for at, node in enumerate(BOTH):
        assert list_phases(events, node)[-1] is Phase.READY
        its = read_rank_labels(sparks, node)
        assert (its[ContainerLabel.RANK], its[ContainerLabel.NODES]) == (f"{at}/2", "spark1,spark2")
        assert ctx.history.list_saved_logs("qwen36-tp2", [NodeName(node)])
        assert [event for event in events if isinstance(event, LogArrived) and event.node == node]
    assert (
        read_rank_labels(sparks, "spark1")[ContainerLabel.RUN] == read_rank_labels(sparks, "spark2")[ContainerLabel.RUN]
    )


async def test_without_a_cable_it_goes_over_the_house_and_says_what_that_costs(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    asked = make_start_request(sparks, dry_run=True)
    over_lan = replace(asked, nodes=tuple(replace(node, fabric="enP7s7") for node in asked.nodes))
    events = await collect_events(ctx, over_lan)
    assert find_command_end(events).outcome is Outcome.PLANNED
    messages = [event.message for event in events if isinstance(event, WarningEmitted)]
    assert [("over enP7s7" in one, "fraction of the speed" in one) for one in messages] == [(True, True)]
    for plan in [event.plan for event in events if isinstance(event, LaunchPlanned)]:
        env = dict(plan.env)
        assert (env["NCCL_SOCKET_IFNAME"], env["NCCL_IB_DISABLE"]) == ("enP7s7", "1")
    assert list_container_states(sparks) == []


async def test_sparks_that_do_not_reach_each_other_are_refused_before_anything_changes(ctx: CommandContext) -> None:
    options = {"spark2": SimNodeOptions(troubles=frozenset({NodeFault.NO_ADDRESS}))}
    async with SimulatedSparks(options=options, **FAST) as sparks:
        asked = make_start_request(sparks)
        only_cable = replace(asked, nodes=tuple(replace(node, fabric="enp1s0f0np0") for node in asked.nodes))
        events = await collect_events(ctx, only_cable)
        assert find_command_end(events).outcome is Outcome.REFUSED
        assert list_phases(events, "spark1") == list_phases(events, "spark2") == []
        assert list_container_states(sparks) == []


async def test_what_runs_already_is_watched_or_ready_and_half_of_it_is_refused(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    assert find_command_end(await collect_events(ctx, make_start_request(sparks))).outcome is Outcome.READY
    again = await collect_events(ctx, make_start_request(sparks))
    assert find_command_end(again).outcome is Outcome.READY
    assert (find_command_end(again).message or "").startswith("qwen36-tp2 already runs on spark1 and spark2 (Up ")
    assert Phase.CREATING not in list_phases(again, "spark1") + list_phases(again, "spark2")
    sparks.docker["spark2"].containers.clear()  # a head that waits for ever for a worker that is gone
    half = find_command_end(await collect_events(ctx, make_start_request(sparks)))
    assert (half.outcome, half.exit_code) == (Outcome.REFUSED, 6)
    assert "half of qwen36-tp2 runs: a rank of it is on spark1, but none on spark2" in (half.message or "")
    assert "sparkctl down qwen36-tp2" in (half.hint or "")


@pytest.mark.parametrize(("broken", "other"), [BOTH, BOTH[::-1]])
async def test_a_rank_that_fails_ends_the_other_and_is_named(ctx: CommandContext, broken: str, other: str) -> None:
    async with SimulatedSparks(faults={broken: "cuda-oom"}, speed=3) as sparks:
        events = await collect_events(ctx, make_start_request(sparks))
        ended = find_command_end(events)
        assert (ended.outcome, ended.exit_code, ended.node) == (Outcome.FAILED, 1, broken)
        assert ended.verdict is not None
        assert ended.verdict.cause is FailureCause.CUDA_OUT_OF_MEMORY
        assert ended.verdict.summary.startswith(f"Rank {BOTH.index(broken)} of 2, on {broken}: ")
        assert f"/{broken}/" in (ended.log or "")
        ((where, log),) = ended.more_logs
        assert where == other
        assert log in [str(one.path) for one in ctx.history.list_saved_logs("qwen36-tp2", [NodeName(other)])]
        assert list_container_states(sparks) == ["exited", "exited"], "kept, as a failed start of one keeps its own"
        assert list_phases(events, broken)[-1] is Phase.FAILED
        assert list_phases(events, other)[-1] in (Phase.STOPPED, Phase.FAILED)
        assert all(ctx.history.list_saved_logs("qwen36-tp2", [NodeName(node)]) for node in BOTH)


async def test_a_defect_in_the_watch_of_one_rank_is_raised_where_the_other_failed(
    ctx: CommandContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = RankWatch.watch_until_end

    async def end_with_defect(rank: RankWatch) -> WatchResult:
        found = await watch(rank)
        if rank.plan.rank == 1:
            raise LookupError("a defect")
        return found

    monkeypatch.setattr(RankWatch, "watch_until_end", end_with_defect)
    async with SimulatedSparks(faults={"spark1": "cuda-oom"}, speed=3) as sparks:
        with pytest.raises(LookupError, match="a defect"):
            await collect_events(ctx, make_start_request(sparks))
        assert list_container_states(sparks) == ["exited", "exited"]


async def test_a_rank_that_mpirun_started_is_named_where_it_fails(ctx: CommandContext) -> None:
    async with SimulatedSparks(faults={"spark2": "cuda-oom"}, speed=3) as sparks:
        events = await collect_events(ctx, make_start_request(sparks, name="trtllm-qwen3-235b"))
        ended = find_command_end(events)
        assert (ended.outcome, ended.exit_code, ended.node) == (Outcome.FAILED, 1, "spark2")
        assert ended.verdict is not None
        assert ended.verdict.cause is not FailureCause.WORKER_LOST
        assert ended.verdict.summary.startswith("Rank 1 of 2, on spark2: ")
        assert list_container_states(sparks) == ["exited", "exited"]
        assert not [one.message for one in events if isinstance(one, WarningEmitted) and "log in" in one.message]


async def test_where_mpirun_loses_the_cable_the_rank_that_says_so_is_the_root(ctx: CommandContext) -> None:
    async with SimulatedSparks(speed=5) as sparks:  # the cable is cut in the middle of the start
        sparks.nodes["spark2"].clock_ahead = -0.5  # within what a slow way to it would leave open
        events = await collect_events(
            ctx, make_start_request(sparks, "env.SIM_FAULT=fabric-cut", name="trtllm-qwen3-235b")
        )
        ended = find_command_end(events)
        assert (ended.outcome, ended.node) == (Outcome.FAILED, "spark1")
        assert ended.verdict is not None
        assert ended.verdict.summary == "Rank 0 of 2, on spark1: mpirun lost its daemon on the other Spark."
        assert ended.verdict.remedy.endswith(
            " The log: sparkctl logs trtllm-qwen3-235b --node spark2. "
            "The link: sparkctl doctor --fabric --node spark1 --node spark2"
        )
        assert not ended.verdict.contributing


async def test_where_ray_loses_the_cable_the_head_that_says_so_is_the_root(ctx: CommandContext) -> None:
    async with SimulatedSparks(speed=5) as sparks:
        events = await collect_events(ctx, make_start_request(sparks, "env.SIM_FAULT=fabric-cut", name="minimax-m27"))
        ended = find_command_end(events)
        assert (ended.outcome, ended.node) == (Outcome.FAILED, "spark1")
        assert ended.verdict is not None
        assert ended.verdict.cause is FailureCause.RAY
        assert "sparkctl doctor --fabric" in ended.verdict.remedy


async def test_a_flag_that_mpiruns_program_does_not_know_is_told_by_its_head_alone(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    ended = find_command_end(
        await collect_events(ctx, make_start_request(sparks, "env.SIM_FAULT=bad-flag", name="trtllm-qwen3-235b"))
    )
    assert (ended.outcome, ended.node) == (Outcome.FAILED, "spark1")
    assert ended.verdict is not None
    assert ended.verdict.cause is FailureCause.UNKNOWN_FLAG
    assert not ended.verdict.contributing
    assert list_container_states(sparks) == ["exited", "exited"]
    (log,) = ctx.history.list_saved_logs("trtllm-qwen3-235b", [NodeName("spark2")])
    assert "This rank is over" in log.path.read_text()


async def test_a_guard_that_ends_one_rank_ends_the_model_and_is_the_verdict(ctx: CommandContext) -> None:
    async with SimulatedSparks(faults={"spark2": "memory-runaway"}, speed=5) as sparks:
        ended = find_command_end(await collect_events(ctx, make_start_request(sparks)))
        assert (ended.outcome, ended.node) == (Outcome.FAILED, "spark2")
        assert ended.verdict is not None
        assert ended.verdict.cause is FailureCause.GUARD_STOPPED
        assert list_container_states(sparks) == ["exited", "exited"]


async def test_clocks_are_compared_over_ssh(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    sparks.nodes["spark2"].clock_ahead = -200.0
    for node, ahead in zip(load_config(sparks.config_path).nodes, (0.0, -200.0), strict=True):
        async with ctx.create_session(node) as session:
            await session.link.connect()
            found = await measure_clock_offset(session)
            drift = sparks.nodes["spark1"].unix_time() - time.time()  # the simulated clock goes by another one
        assert found is not None
        assert abs(found.ahead - drift - ahead) <= found.doubt + 0.05


@pytest.mark.parametrize("ahead", [300.0, -300.0])
async def test_a_worker_that_somebody_kills_is_the_root_whatever_the_head_says_then(
    slow: SimulatedSparks, ctx: CommandContext, ahead: float
) -> None:
    slow.nodes["spark2"].clock_ahead = ahead
    stream = start_instance(ctx, make_start_request(slow))
    await wait_until_rank_loads(stream, "spark2")
    (worker,) = slow.docker["spark2"].containers.values()
    slow.docker["spark2"].running[worker.id].kill()
    ended = find_command_end([event async for event in stream])
    assert (ended.outcome, ended.node) == (Outcome.FAILED, "spark2")
    assert ended.verdict is not None
    assert "Rank 1 of 2, on spark2" in ended.verdict.summary
    assert list_container_states(slow) == ["exited", "exited"]


async def test_a_ray_worker_that_runs_out_of_memory_has_a_command_to_try_although_its_own_has_no_flags(
    slow: SimulatedSparks, ctx: CommandContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_process, "SIGKILL_EXIT", ExitStep(137, oom_killed=True))
    stream = start_instance(ctx, make_start_request(slow, name="minimax-m27"))
    await wait_until_rank_loads(stream, "spark2")
    (worker,) = slow.docker["spark2"].containers.values()
    slow.docker["spark2"].running[worker.id].kill()
    ended = find_command_end([event async for event in stream])
    assert ended.verdict is not None
    assert (ended.node, ended.verdict.cause) == ("spark2", FailureCause.HOST_OOM_KILL)
    assert ended.verdict.again is not None
    assert "--set args.gpu-memory-utilization=" in ended.verdict.again


async def test_a_worker_whose_spark_falls_silent_for_a_while_is_waited_for(
    slow: SimulatedSparks, ctx: CommandContext
) -> None:
    stream = start_instance(ctx, make_start_request(slow))
    await wait_until_rank_loads(stream, "spark2")
    slow.sshd["spark2"].drop_connections()
    events = [event async for event in stream]
    assert find_command_end(events).outcome is Outcome.READY
    away = [event for event in events if isinstance(event, NodeStateChanged) and event.node == "spark2"]
    assert [event.state for event in away][-1] is NodeState.OK
    assert len(away) > 1


async def test_a_worker_whose_spark_does_not_come_back_is_not_known_and_nothing_is_stopped(
    slow: SimulatedSparks, ctx: CommandContext
) -> None:
    """The head would wait for it: time is over, and what the worker did is not known."""
    slow.nodes["spark1"].fault = EngineFault.HANG
    stream = start_instance(ctx, make_start_request(slow, timeout=3.0))
    await wait_until_rank_loads(stream, "spark2")
    await slow.sshd["spark2"].close()
    ended = find_command_end([event async for event in stream])
    assert (ended.outcome, ended.exit_code, ended.node) == (Outcome.UNREACHABLE, 3, "spark2")
    assert "its rank of qwen36-tp2 may still be running there" in (ended.message or "")
    assert list_container_states(slow) == ["running", "running"]


async def test_a_head_that_fails_while_the_workers_spark_is_silent_is_the_verdict_and_the_worker_unknown(
    slow: SimulatedSparks, ctx: CommandContext
) -> None:
    stream = start_instance(ctx, make_start_request(slow))
    await wait_until_rank_loads(stream, "spark1")
    await slow.sshd["spark2"].close()
    (head,) = slow.docker["spark1"].containers.values()
    slow.docker["spark1"].running[head.id].kill()
    events = [event async for event in stream]
    ended = find_command_end(events)
    assert (ended.outcome, ended.node) == (Outcome.FAILED, "spark1")
    result = [
        (event.message, event.hint) for event in events if isinstance(event, WarningEmitted) and event.node == "spark2"
    ]
    assert any("whether its rank on spark2 has ended is not known" in what for what, _ in result), result
    assert any("sparkctl down qwen36-tp2" in (hint or "") for _, hint in result)


async def test_two_failures_of_whichever_rank_are_asked_about_before_the_third(ctx: CommandContext) -> None:
    for broken in BOTH:
        async with SimulatedSparks(faults={broken: "cuda-oom"}, **FAST) as sparks:
            assert find_command_end(await collect_events(ctx, make_start_request(sparks))).outcome is Outcome.FAILED
    async with SimulatedSparks(**FAST) as sparks:
        third = find_command_end(await collect_events(ctx, make_start_request(sparks)))
        assert third.outcome is Outcome.REFUSED
        assert "failed on spark1 and spark2 2 times within the last hour" in (third.message or "")
        assert (
            find_command_end(await collect_events(ctx, make_start_request(sparks, once_more=True))).outcome
            is Outcome.READY
        )


async def test_ctrl_c_leaves_both_ranks_and_the_next_up_watches_them(
    slow: SimulatedSparks, ctx: CommandContext
) -> None:
    stream = start_instance(ctx, make_start_request(slow))
    await wait_until_rank_loads(stream, "spark1")
    ctx.interrupt.record_press()
    ended = find_command_end([event async for event in stream])
    assert ended.outcome is Outcome.INTERRUPTED
    assert "keeps starting on spark1 and spark2 in the background" in (ended.message or "")
    assert list_container_states(slow) == ["running", "running"]
    other = CommandContext(history=ctx.history, operator="milo@desk")
    events = await collect_events(other, make_start_request(slow))
    assert find_command_end(events).outcome is Outcome.READY
    assert Phase.CREATING not in list_phases(events, "spark1") + list_phases(events, "spark2")


async def test_detach_returns_with_both_running(slow: SimulatedSparks, ctx: CommandContext) -> None:
    assert (
        find_command_end(await collect_events(ctx, make_start_request(slow, detach=True))).outcome is Outcome.DETACHED
    )
    assert list_container_states(slow) == ["running", "running"]


async def test_where_one_rank_cannot_be_created_nothing_stays_on_the_other(ctx: CommandContext) -> None:
    async with SimulatedSparks(**FAST) as sparks:
        refusing = sparks.docker["spark1"]

        def full(*_: object) -> None:
            raise DockerApiError(500, "write /var/lib/docker/tmp: no space left on device")

        refusing.start_container = full  # type: ignore[method-assign, assignment]
        events = await collect_events(ctx, make_start_request(sparks))
        ended = find_command_end(events)
        assert ended.exit_code in (1, 6)
        assert ended.node == "spark1"
        assert list_container_states(sparks) == []
        messages = [event.message for event in events if isinstance(event, WarningEmitted) and event.node == "spark2"]
        assert any("was removed again" in message for message in messages)


@pytest.mark.parametrize("node", BOTH)
async def test_ctrl_c_between_the_creations_of_two_ranks_takes_the_first_back(
    slow: SimulatedSparks, ctx: CommandContext, node: str
) -> None:
    """Whichever Spark it is whose container is made first."""
    ordered = (
        make_start_request(slow)
        if node == "spark2"
        else replace(make_start_request(slow), nodes=make_start_request(slow).nodes[::-1])
    )
    daemon, was = slow.docker[node], slow.docker[node].start_container
    made: list[str] = []

    def pressed(*given: object) -> object:
        made.extend(one.name for one in daemon.containers.values())
        ctx.interrupt.record_press()
        return was(*given)  # type: ignore[arg-type]

    daemon.start_container = pressed  # type: ignore[method-assign, assignment]
    events = await collect_events(ctx, ordered)
    ended = find_command_end(events)
    assert made, "it was created before the key"
    assert (ended.outcome, ended.exit_code) == (Outcome.INTERRUPTED, 130)
    assert ended.message == "interrupted before all ranks were started; the started ones are removed"
    assert list_container_states(slow) == [], "no half of it"
    messages = [event.message for event in events if isinstance(event, WarningEmitted) and event.node == node]
    assert any("was removed again" in message for message in messages)
    async with asyncio.timeout(PATIENCE):
        while any(slow.nodes[name].locks for name in BOTH):  # noqa: ASYNC110  the simulated shell ends on its own
            await asyncio.sleep(0.01)
    assert (
        find_command_end(
            await collect_events(CommandContext(history=ctx.history, operator="milo@desk"), make_start_request(slow))
        ).outcome
        is Outcome.READY
    )


async def test_the_locks_are_those_of_all_nodes_and_are_given_back(slow: SimulatedSparks, ctx: CommandContext) -> None:
    stream = start_instance(ctx, make_start_request(slow))
    await wait_until_rank_loads(stream, "spark1")
    assert [len(slow.nodes[name].locks) for name in BOTH] == [1, 1]
    second = find_command_end(
        await collect_events(
            CommandContext(history=ctx.history, operator="lena@desk"), make_start_request(slow, "port=9001")
        )
    )
    assert second.outcome is Outcome.REFUSED
    assert find_command_end([event async for event in stream]).outcome is Outcome.READY
    async with asyncio.timeout(PATIENCE):
        while any(slow.nodes[name].locks for name in BOTH):  # noqa: ASYNC110  the simulated shell ends on its own
            await asyncio.sleep(0.01)


async def test_a_worker_is_as_far_as_its_head_and_never_failed_or_ready_before(
    slow: SimulatedSparks, ctx: CommandContext
) -> None:
    stream = start_instance(ctx, make_start_request(slow))
    await wait_until_rank_loads(stream, "spark2")
    seen = await read_node_statuses(ctx, load_config(slow.config_path).nodes)
    (head,), (worker,) = (view.instances for view in seen)
    assert (worker.rank, worker.nodes, worker.run) == ("1/2", BOTH, head.run)
    assert worker.phase in (Phase.STARTING, Phase.LOADING, Phase.WARMING)
    assert find_command_end([event async for event in stream]).outcome is Outcome.READY
    seen = await read_node_statuses(ctx, load_config(slow.config_path).nodes)
    assert [one.phase for view in seen for one in view.instances] == [Phase.READY, Phase.READY]
    (alone,) = await read_node_statuses(ctx, load_config(slow.config_path).nodes[1:])
    assert alone.instances[0].phase is Phase.UNKNOWN
    assert alone.is_healthy, "nothing is wrong with what only its head can say"


async def test_the_logs_of_both_ranks_are_shown_each_as_its_own(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    assert find_command_end(await collect_events(ctx, make_start_request(sparks))).outcome is Outcome.READY
    nodes = load_config(sparks.config_path).nodes
    whole = [event async for event in show_log(ctx, ShowLog(instance="qwen36-tp2", nodes=nodes))]
    assert find_command_end(whole).outcome is Outcome.DONE
    result = [(event.node, event.rank) for event in whole if isinstance(event, LogArrived)]
    assert set(result) == {("spark1", "0/2"), ("spark2", "1/2")}
    one = [event async for event in show_log(ctx, ShowLog(instance="qwen36-tp2", nodes=nodes[1:]))]
    assert {(event.node, event.rank) for event in one if isinstance(event, LogArrived)} == {("spark2", None)}


@pytest.mark.parametrize("ahead", [300.0, -300.0])
async def test_the_logs_of_both_ranks_are_one_by_time_whatever_their_clocks_say(
    sparks: SimulatedSparks, ctx: CommandContext, ahead: float
) -> None:
    sparks.nodes["spark2"].clock_ahead = ahead
    assert find_command_end(await collect_events(ctx, make_start_request(sparks))).outcome is Outcome.READY
    nodes = load_config(sparks.config_path).nodes
    for tail in (None, 40):
        result = [
            (parse_log_time(line.when, ""), event.node)
            async for event in show_log(ctx, ShowLog(instance="qwen36-tp2", nodes=nodes, tail=tail, stamped=False))
            if isinstance(event, LogArrived)
            for line in event.lines
        ]
        ours = [at.seconds - (ahead if node == "spark2" else 0.0) for at, node in result if at is not None]
        assert len(ours) == len(result) > 20
        assert all(later > earlier - 1.0 for earlier, later in pairwise(ours)), (
            "as surely as clocks are measured on a busy machine"
        )
        changes = sum(one != other for (_, one), (_, other) in pairwise(result))
        assert changes > 2, "each beside the other"


async def test_the_saved_logs_of_both_ranks_are_shown_where_their_containers_are_gone(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    nodes = load_config(sparks.config_path).nodes
    for _ in range(2):
        assert find_command_end(await collect_events(ctx, make_start_request(sparks))).outcome is Outcome.READY
        down_ = [
            event
            async for event in stop_instance(ctx, StopInstance(instance="qwen36-tp2", nodes=nodes, everywhere=nodes))
        ]
        assert find_command_end(down_).exit_code == 0
    assert list_container_states(sparks) == []
    whole = [event async for event in show_log(ctx, ShowLog(instance="qwen36-tp2", nodes=nodes))]
    assert find_command_end(whole).outcome is Outcome.DONE
    result = [(event.node, event.rank) for event in whole if isinstance(event, LogArrived)]
    assert set(result) == {("spark1", "0/2"), ("spark2", "1/2")}
    said = [event.message for event in whole if isinstance(event, WarningEmitted)]
    shown = [str(ctx.history.list_saved_logs("qwen36-tp2", [node])[0].path) for node in BOTH]
    assert [path in words for path, words in zip(shown, said, strict=True)] == [True, True], "the newest of each"
    one = [event async for event in show_log(ctx, ShowLog(instance="qwen36-tp2", nodes=nodes[1:]))]
    assert {event.node for event in one if isinstance(event, LogArrived)} == {"spark2"}


def test_the_command_takes_all_nodes_or_one_for_each_rank_and_no_other_number() -> None:
    dry = run_demo("up", "qwen36-tp2", "--dry-run", "--format", "docker")
    assert dry.returncode == 0, dry.stderr
    assert dry.stdout.count("docker run -d") == 2
    assert dry.stdout.index("# on spark1, rank 0 of 2") < dry.stdout.index("# on spark2, rank 1 of 2")
    turned = run_demo("up", "qwen36-tp2", "--dry-run", "--format", "docker", "-n", "spark2", "-n", "spark1").stdout
    assert turned.startswith("# on spark2, rank 0 of 2")
    assert "--dist-init-addr 192.168.200.12:25000" in turned
    for words, said in (
        (("up", "qwen36-tp2", "-n", "spark1"), "is for 2 Sparks, but 1 is named"),
        (("up", "qwen36", "-n", "spark1", "-n", "spark2"), "is for one Spark, but spark1 and spark2 are named"),
        (("up", "qwen36-tp2", "-n", "spark1", "-n", "spark1"), "is for 2 Sparks, but 1 is named"),
    ):
        refused = run_demo(*words)
        assert refused.returncode == 2
        assert said in refused.stderr
