"""Scenarios: what runs on the simulated Sparks at the start."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from sparkctl import engines
from sparkctl.engines.base import EngineRank
from sparkctl.model.fabric_route import NodeLanes
from sparkctl.model.launch_plan import LaunchPlan
from sparkctl.model.node import Node, NodeName
from sparkctl.model.text.units import GIB
from sparkctl.monitor.find_fabric_route import build_nccl_environment, find_fabric_route
from sparkctl.node.node_inspection import decode_inspection
from sparkctl.paths import shipped_profiles_dir
from sparkctl.profiles.launch_planning import RankPlacement, build_launch_plan
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.simulator.docker_daemon import SimDockerDaemon
from sparkctl.simulator.engine_process import EngineProcess
from sparkctl.simulator.node_programs.inspection_output import format_inspection
from sparkctl.simulator.sim_node import HOME, NodeFault
from sparkctl.transport.docker.create_request import build_create_request

HOUR_SECONDS = 3600.0
PAST_LOAD_SECONDS = 600.0  # seconds of work in the log and in the counters
FATAL_AER_LINE = "pcieport 0000:00:00.0: AER: Uncorrectable (Fatal) error message received from 0000:00:00.0"
ORPHAN_PID = 2811  # of an engine whose parent has died
OPERATOR = "milo@desk"
RUN_ID = "0f3b7c91"  # of the start that was a day ago


async def run_empty(_nodes: Sequence[SimDockerDaemon]) -> None:
    """Nothing runs; the page cache is full of the last model."""


async def run_fresh(nodes: Sequence[SimDockerDaemon]) -> None:
    """Two Sparks with nothing on them: no image, no model."""
    for docker in nodes:
        docker.node.make_fresh()


async def run_two_models(nodes: Sequence[SimDockerDaemon]) -> None:
    """Two models, both busy: SGLang with FP8 on the first Spark, vLLM with NVFP4 on the second."""
    await _start_loaded_engine(nodes[0], _plan_shipped_profile("qwen36-ngram"), 5.2 * HOUR_SECONDS, requests=1)
    if len(nodes) > 1:
        await _start_loaded_engine(nodes[1], _plan_shipped_profile("qwen36-vllm"), 3.1 * HOUR_SECONDS, requests=1)


async def run_speech(nodes: Sequence[SimDockerDaemon]) -> None:
    """A speech server and the model behind it on the last Spark; the first one is free."""
    for name in ("orpheus-llm", "orpheus-tts"):
        await _start_ready_engine(nodes[-1], _plan_shipped_profile(name), 2 * HOUR_SECONDS).ready.wait()


async def run_demo_story(nodes: Sequence[SimDockerDaemon]) -> None:
    """One model on both Sparks, before the two stacks of the demo's story."""
    await run_big_model(nodes)


async def run_node_faults(nodes: Sequence[SimDockerDaemon]) -> None:
    """The big model, and everything that `top` can find: a stuck clock, heat, half a fabric, a full disk, a lost
    engine, a PCIe error in the kernel's log.
    """
    ill = (
        {NodeFault.STUCK_CLOCK, NodeFault.IDLE_FUNCTION, NodeFault.FULL_DISK},
        {NodeFault.HOT, NodeFault.IDLE_FUNCTION, NodeFault.OTHER_GID, NodeFault.ORPHAN},
    )
    for docker, troubles in zip(nodes, ill, strict=False):
        docker.node.options = replace(docker.node.options, troubles=frozenset(troubles))
        if NodeFault.ORPHAN in troubles:
            docker.node.memory.allocate(ORPHAN_PID, gpu=11 * GIB)
            docker.node.log_kernel_line(FATAL_AER_LINE)
    await run_big_model(nodes, gid_index="3")


async def run_big_model(nodes: Sequence[SimDockerDaemon], gid_index: str | None = None) -> None:
    """One model too big for one Spark, started on all of them as by `up`: the first is the head; all compute every
    token.
    """
    plans = _plan_ranks("minimax-m27", nodes)
    if gid_index is not None:
        plans = [replace(one, env=(*one.env, ("NCCL_IB_GID_INDEX", gid_index))) for one in plans]
    begun = [_start_ready_engine(docker, made, 26 * HOUR_SECONDS) for docker, made in zip(nodes, plans, strict=True)]
    for process in begun:
        await process.ready.wait()
    begun[0].add_background_load(1, since=PAST_LOAD_SECONDS)


def _plan_ranks(name: str, nodes: Sequence[SimDockerDaemon]) -> list[LaunchPlan]:
    """Return the launch plan of `sparkctl up NAME` for each of these nodes."""
    names = tuple(NodeName(docker.node.name) for docker in nodes)
    seen = [decode_inspection(format_inspection(docker.node, ["fabric"]).encode()).lanes for docker in nodes]
    lanes = [NodeLanes(name, one.lanes, one.has_devices) for name, one in zip(names, seen, strict=True) if one]
    way = find_fabric_route(lanes, {})
    addresses = tuple(end.address for end in way.ends)
    return [
        _plan_shipped_profile(
            name,
            RankPlacement(
                rank=EngineRank(index, addresses),
                nodes=names,
                run=RUN_ID,
                env=build_nccl_environment(way, each.node),
                has_devices=each.has_devices,
            ),
        )
        for index, each in enumerate(lanes)
    ]


def _plan_shipped_profile(name: str, place: RankPlacement | None = None) -> LaunchPlan:
    """Return the launch plan of `sparkctl up NAME` for a shipped profile, or for one rank of it: same command, labels
    and hash.
    """
    profile = ProfileLibrary(user=shipped_profiles_dir()).load_profile(name)
    where = "simulated" if place is None else place.nodes[place.rank.index]
    return build_launch_plan(
        profile, Node(name=NodeName(where), host="127.0.0.1"), home=HOME, operator=OPERATOR, environ={},
        engine=engines.load_engine(profile.engine), place=place,
    )  # fmt: skip


def _start_ready_engine(docker: SimDockerDaemon, made: LaunchPlan, ready_since: float) -> EngineProcess:
    """Start an engine that has been ready for this many seconds."""
    container = docker.create_container(made.container_name, build_create_request(made))
    docker.start_container(container, ready_since=ready_since)
    process = docker.running[container.id]
    assert isinstance(process, EngineProcess)
    return process


async def _start_loaded_engine(docker: SimDockerDaemon, made: LaunchPlan, ready_since: float, requests: int) -> None:
    process = _start_ready_engine(docker, made, ready_since)
    await process.ready.wait()
    process.add_background_load(requests, since=PAST_LOAD_SECONDS)


SCENARIOS: dict[str, Callable[[Sequence[SimDockerDaemon]], Awaitable[None]]] = {
    "empty": run_empty,
    "fresh": run_fresh,
    "two-stacks": run_two_models,
    "speech": run_speech,
    "story": run_demo_story,
    "big-model": run_big_model,
    "trouble": run_node_faults,
}
