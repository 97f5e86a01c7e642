"""What `diagnose` says of an instance is what `up` said of it: while its container is there, and when it is gone."""

from __future__ import annotations

import json
import re
from functools import partial

import pytest

from sparkctl.commands.ask_instance import CheckInstance, check_instance
from sparkctl.commands.diagnose_log import diagnose_exit, diagnose_instance
from sparkctl.commands.restart_instance import RestartInstance
from sparkctl.commands.start.start_instance import start_instance
from sparkctl.commands.start.start_request import StartInstance
from sparkctl.commands.stop.stop_instance import StopInstance, stop_instance
from sparkctl.commands.tunnel import OpenTunnel
from sparkctl.config import load_config
from sparkctl.context import CommandContext
from sparkctl.errors import InvalidInput, NodeUnreachable
from sparkctl.files import shipped_profiles_dir
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.events import CommandEnded
from sparkctl.model.node import Node
from sparkctl.model.phase import Phase
from sparkctl.model.verdict import FailureCause
from sparkctl.monitor.node_status import read_node_status
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.simulator import SimulatedSparks
from sparkctl.views.status_view import format_status
from tests.support.events import collect_events_and_end
from tests.support.run_command import run_demo


async def start_and_fail(ctx: CommandContext, node: Node, fault: str) -> CommandEnded:
    """Start a profile that fails, and return its end."""
    overrides = [f"env.SIM_FAULT={fault}"]
    profile = ProfileLibrary(user=shipped_profiles_dir()).load_profile("qwen36", overrides=overrides)
    request = StartInstance(
        profile=profile,
        nodes=(node,),
        environ={},
        words=("qwen36", "--set", overrides[0]),
    )
    events = [event async for event in start_instance(ctx, request)]
    assert isinstance(events[-1], CommandEnded)
    return events[-1]


@pytest.mark.parametrize("fault", ["cuda-oom", "oom-killed", "bad-flag", "exit0", "memory-runaway"])
async def test_one_verdict_by_whichever_way_it_is_asked_for(ctx: CommandContext, node: Node, fault: str) -> None:
    ended = await start_and_fail(ctx, node, fault)
    assert ended.verdict is not None
    there = await diagnose_instance(ctx, "qwen36", [node], None)
    judged = there.diagnosis.verdict
    assert judged is not None
    assert (there.node, there.diagnosis.engine, there.diagnosis.ready) == (node.name, "sglang", False)
    assert (judged.cause, judged.field, judged.edit) == (ended.verdict.cause, ended.verdict.field, ended.verdict.edit)
    assert judged.evidence[0] == ended.verdict.evidence[0] or judged.cause is FailureCause.GUARD_STOPPED
    if judged.edit is not None:
        assert judged.again == ended.verdict.again
        assert judged.again == (
            f"sparkctl up qwen36 --node spark1 --set env.SIM_FAULT={fault} --set {judged.edit.set_argument}"
        )
        assert "..." not in judged.again
    async with ctx.create_session(node) as session:
        await session.link.connect()
        (container,) = [one for one in await session.docker.list_containers() if "qwen36" in one.name]
    found = await diagnose_exit(ctx, node, container.id, known=())
    assert found is not None
    assert found.verdict == judged

    assert [event async for event in stop_instance(ctx, StopInstance(instance="qwen36", nodes=[node]))]
    gone = await diagnose_instance(ctx, "qwen36", [node], None)
    assert "saved log" in gone.source
    assert gone.diagnosis.verdict == ended.verdict, "what Docker and the guard knew is kept with the log"
    (saved,) = ctx.history.list_saved_logs("qwen36", [node.name])
    kept = saved.path.with_suffix(".verdict.json")
    assert kept.stat().st_mode & 0o777 == 0o600
    kept.write_text("{")
    again = await diagnose_instance(ctx, "qwen36", [node], None)
    assert again.diagnosis.engine == "sglang"


@pytest.mark.simulation("speech")
async def test_who_held_the_memory_is_told_by_both(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    node = load_config(sparks.config_path).nodes[1]
    ended = await start_and_fail(ctx, node, "cuda-oom")
    assert ended.verdict is not None
    assert "sparkctl down orpheus" in ended.verdict.remedy
    there = await diagnose_instance(ctx, "qwen36", [node], None)
    assert there.diagnosis.verdict == ended.verdict


async def test_of_two_starts_of_one_name_the_one_that_failed_is_diagnosed(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    first, second = load_config(sparks.config_path).nodes
    await start_and_fail(ctx, second, "cuda-oom")
    profile = ProfileLibrary(user=shipped_profiles_dir()).load_profile("qwen36")
    start = StartInstance(profile=profile, nodes=(first,), environ={}, words=("qwen36",))
    events = [event async for event in start_instance(ctx, start)]
    assert isinstance(events[-1], CommandEnded)
    assert events[-1].exit_code == 0
    found = await diagnose_instance(ctx, "qwen36", [first, second], None)
    assert (found.node, found.diagnosis.verdict is not None) == (second.name, True)
    healthy = await diagnose_instance(ctx, "qwen36", [first], None)
    assert (healthy.node, healthy.diagnosis.verdict) == (first.name, None)


async def test_status_calls_an_end_before_ready_a_failure_as_up_does(ctx: CommandContext, node: Node) -> None:
    ended = await start_and_fail(ctx, node, "exit0")
    assert ended.verdict is not None
    elsewhere = CommandContext(history=OperationHistory(ctx.history.directory / "other"), operator="other")
    for reader in (ctx, elsewhere):  # also on a computer that knows nothing of this start
        async with reader.create_session(node) as session:
            view = await read_node_status(reader, session)
        (one,) = view.instances
        assert (one.phase, one.detail) == (Phase.FAILED, "it ended by itself, with exit code 0, before it was ready")
        assert "ended by itself, with exit code 0, before it was ready" in ended.verdict.summary
        assert one.endpoint is None, "nothing answers there any more"
        assert one.port == 8003
        assert "try: sparkctl diagnose qwen36 --node spark1" in "\n".join(format_status([view]))


async def test_a_word_that_is_nothing(ctx: CommandContext, node: Node) -> None:
    with pytest.raises(InvalidInput, match="no instance howl on spark1"):
        await diagnose_instance(ctx, "howl", [node], None)


def test_an_instance_at_work_by_the_command() -> None:
    ran = run_demo("diagnose", "qwen36-ngram", "--node", "spark1", "--json", scenario="two-stacks")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert (found["engine"], found["phase"], found["ready"], found["verdict"]) == ("sglang", Phase.READY, True, None)
    assert (found["schema"], found["contributing"], found["instance"], found["node"]) == (
        1,
        [],
        "qwen36-ngram",
        "spark1",
    )
    words = run_demo("diagnose", "qwen36-ngram", "--node", "spark1", scenario="two-stacks")
    assert words.stdout.startswith("SGLang")
    assert "it was ready" in words.stdout
    unknown = run_demo("diagnose", "howl", "--json", scenario="two-stacks")
    assert unknown.returncode == 2
    assert "no instance howl on spark1, spark2" in unknown.stderr


FAULTS_OF_TWO = [("minimax-m27", "worker-dies"), ("qwen36-tp2", "worker-dies"), ("trtllm-qwen3-235b", "worker-dies")]


@pytest.mark.parametrize(("name", "fault"), FAULTS_OF_TWO)
async def test_over_two_sparks_the_verdict_is_that_of_the_first_failure_whichever_rank_is_asked(
    sparks: SimulatedSparks, ctx: CommandContext, name: str, fault: str
) -> None:
    nodes = load_config(sparks.config_path).nodes
    profile = ProfileLibrary(user=shipped_profiles_dir()).load_profile(name, overrides=[f"env.SIM_FAULT={fault}"])
    request = StartInstance(profile=profile, nodes=tuple(nodes), environ={}, words=(name,))
    ended = [event async for event in start_instance(ctx, request)][-1]
    assert isinstance(ended, CommandEnded)
    assert ended.verdict is not None
    assert ended.verdict.cause is not FailureCause.RAY, "the worker reached the head at its second try, and died later"
    assert ended.node is not None
    whole = await diagnose_instance(ctx, name, nodes, None)
    judged = whole.diagnosis.verdict
    assert judged is not None
    assert (whole.node, judged.cause, judged.summary) == (ended.node, ended.verdict.cause, ended.verdict.summary)
    assert f"of 2 of {name} on {ended.node}" in whole.source
    assert "also read" in whole.source
    for at, node in enumerate(nodes):
        async with ctx.create_session(node) as session:
            await session.link.connect()
            (container,) = [one for one in await session.docker.list_containers() if name in one.name]
        found = await diagnose_exit(ctx, node, container.id, nodes)
        assert found is not None
        assert found.verdict is not None
        assert (found.node, found.verdict.summary) == (node.name, ended.verdict.summary)
        lines = [one for one in found.verdict.evidence if one.line is not None]
        assert not lines or node.name == ended.node, "a line of the other's log is not one to go to here"
        alone = await diagnose_instance(ctx, name, [node], None)
        assert f"rank {at} of 2 of {name} on {node.name}" in alone.source
        assert "no other rank's log was read" in alone.source

    assert [event async for event in stop_instance(ctx, StopInstance(instance=name, nodes=nodes, everywhere=nodes))]
    gone = await diagnose_instance(ctx, name, nodes, None)
    assert gone.diagnosis.verdict == ended.verdict


async def test_a_rank_whose_spark_is_silent_is_said_to_be_left_out(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    nodes = load_config(sparks.config_path).nodes
    profile = ProfileLibrary(user=shipped_profiles_dir()).load_profile(
        "minimax-m27", overrides=["env.SIM_FAULT=worker-dies"]
    )
    request = StartInstance(profile=profile, nodes=tuple(nodes), environ={}, words=("minimax-m27",))
    assert [event async for event in start_instance(ctx, request)]
    await sparks.sshd["spark2"].close()
    found = await diagnose_instance(ctx, "minimax-m27", nodes, None)
    assert [name for name, _ in found.silent] == ["spark2"]
    assert "no other rank's log was read" in found.source
    assert found.diagnosis.verdict is not None
    assert found.diagnosis.verdict.summary.startswith("Rank 0 of 2, on spark1: ")


@pytest.mark.parametrize("verb", ["down", "down --dry-run", "check", "restart", "tunnel"])
async def test_a_name_that_nobody_knows_is_said_beside_the_spark_that_is_away(
    sparks: SimulatedSparks, ctx: CommandContext, verb: str
) -> None:
    await sparks.sshd["spark2"].close()
    nodes = load_config(sparks.config_path).nodes
    stop = StopInstance(instance="howl", nodes=nodes, everywhere=nodes, dry_run=verb == "down --dry-run")
    ask = CheckInstance(instance="howl", nodes=nodes, is_full=False, is_strict=False)
    run = {
        "check": partial(check_instance, request=ask),
        "restart": RestartInstance(instance="howl", nodes=nodes, everywhere=nodes).run,
        "tunnel": OpenTunnel(instance="howl", nodes=nodes).run,
    }.get(verb, stop.run)
    _, ended = await collect_events_and_end(run(ctx))
    assert ended.exit_code == 3, ended
    assert re.search(r" refuses connections; no .* is called howl", ended.message or ""), ended


async def test_a_check_says_where_it_ended_and_which_spark_is_away(
    sparks: SimulatedSparks, ctx: CommandContext, node: Node
) -> None:
    await start_and_fail(ctx, node, "cuda-oom")
    await sparks.sshd["spark2"].close()
    nodes = load_config(sparks.config_path).nodes
    ask = CheckInstance(instance="qwen36", nodes=nodes, is_full=False, is_strict=False)
    _, ended = await collect_events_and_end(check_instance(ctx, ask))
    assert (ended.exit_code, ended.node) == (3, "spark2"), ended
    assert re.search(r" refuses connections; qwen36 on spark1 is not running$", ended.message or ""), ended


async def test_a_check_of_a_model_that_ends_meanwhile_is_no_success(
    sparks: SimulatedSparks, ctx: CommandContext, node: Node
) -> None:
    profile = ProfileLibrary(shipped_profiles_dir()).load_profile("qwen36-vllm")
    start = StartInstance(profile=profile, nodes=(node,), environ={}, words=("qwen36-vllm",))
    assert (await collect_events_and_end(start_instance(ctx, start)))[1].exit_code == 0
    (running,) = sparks.docker["spark1"].running.values()
    ask, ends = CheckInstance(instance="qwen36-vllm", nodes=(node,), is_full=True, is_strict=False), []
    async for event in check_instance(ctx, ask):
        running.kill()
        ends += [event] if isinstance(event, CommandEnded) else []
    (ended,) = ends
    assert (ended.exit_code, ended.message) == (6, "qwen36-vllm on spark1 ended while it was asked")


async def test_a_word_that_no_spark_knows_is_said_though_one_of_them_is_away(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    await sparks.sshd["spark2"].close()
    with pytest.raises(
        NodeUnreachable, match=r"refuses.*; no file howl, no instance howl on spark1, and no saved log of one"
    ):
        await diagnose_instance(ctx, "howl", load_config(sparks.config_path).nodes, None)
