"""What runs on the simulated Sparks when they are switched on."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, replace

from sparkctl import __version__, engines
from sparkctl.core.paths import shipped_profiles_dir
from sparkctl.core.planning import plan
from sparkctl.core.profiles import ProfileLibrary
from sparkctl.model.node import Node, NodeName
from sparkctl.model.plan import Label, ReadyRule
from sparkctl.sim.container import Body
from sparkctl.sim.dockerd import Dockerd
from sparkctl.sim.memory import GIB
from sparkctl.sim.node import HOME, Trouble

HOURS = 3600.0
LOGGED = 600.0  # seconds of work that log and counters tell of
LOST_PID = 2811  # of an engine whose parent has died
OPERATOR = "milo@desk"
SGLANG_IMAGE = "scitrera/dgx-spark-sglang:0.5.12"
WEIGHTS = 146 * 10**9  # of Qwen3-235B-A22B in the simulation's NVFP4
HEAD_READY = ReadyRule("The server is fired up and ready to roll!", "/health")
WORKER_READY = ReadyRule("Dummy health check server started", None, probe="none")


async def empty(_nodes: Sequence[Dockerd]) -> None:
    """Nothing runs; the page cache is full of the last model."""


async def two_stacks(nodes: Sequence[Dockerd]) -> None:
    """One model under two engines, both at work: SGLang with FP8 on the first Spark, vLLM with NVFP4 on the second."""
    await _run(nodes[0], _shipped("qwen36-ngram"), 5.2 * HOURS, requests=1)
    if len(nodes) > 1:
        await _run(nodes[1], _shipped("qwen36-vllm"), 3.1 * HOURS, requests=1)


async def story(nodes: Sequence[Dockerd]) -> None:
    """What comes before the two stacks: the first of them is at work, the second Spark is free."""
    await two_stacks(nodes[:1])


async def trouble(nodes: Sequence[Dockerd]) -> None:
    """The big model again, and everything that `top` can find: a stuck clock, heat, half a fabric, a full disk, a lost engine."""
    ill = (
        {Trouble.STUCK_CLOCK, Trouble.IDLE_FUNCTION, Trouble.FULL_DISK},
        {Trouble.HOT, Trouble.IDLE_FUNCTION, Trouble.OTHER_GID, Trouble.ORPHAN},
    )
    for docker, troubles in zip(nodes, ill, strict=False):
        docker.node.options = replace(docker.node.options, troubles=frozenset(troubles))
        if Trouble.ORPHAN in troubles:
            docker.node.memory.allocate(LOST_PID, gpu=11 * GIB)
    await big_model(nodes, env=["NCCL_IB_HCA=rocep1s0f0,roceP2p1s0f0", "NCCL_IB_GID_INDEX=3"])


async def big_model(nodes: Sequence[Dockerd], env: Sequence[str] = ()) -> None:
    """One model too big for one Spark: a container on each, the first is the head; both compute every token."""
    for rank, docker in enumerate(nodes):
        command = f"""python -m sglang.launch_server --model-path /models/Qwen3-235B-A22B-NVFP4 --port 8010
            --served-model-name qwen3-235b --tp 2 --nnodes 2 --node-rank {rank} --dist-init-addr 192.168.100.11:20000
            --mem-fraction-static 0.85 --enable-metrics"""
        ready = WORKER_READY if rank else HEAD_READY
        body = _body(
            SGLANG_IMAGE, command.split(), _big_labels(ready, serves=not rank), [f"{HOME}/models:/models"], list(env)
        )
        await _run(docker, body, 26 * HOURS, requests=1)


def _big_labels(ready: ReadyRule, *, serves: bool) -> dict[str, str]:
    port = {Label.PORT: "8010"} if serves else {}  # only the head answers anybody
    return {
        Label.PROFILE: "qwen3-235b",
        Label.HASH: "5e0d2a91c7b4",
        Label.INSTANCE: "qwen3-235b",
        Label.ENGINE: "sglang",
        Label.OPERATOR: OPERATOR,
        **port,
        Label.READY: json.dumps(asdict(ready)),
        Label.PER_STEP: json.dumps(
            {"weights": WEIGHTS, "parameters": 235 * 10**9, "active_parameters": 22 * 10**9, "ranks": 2}
        ),
        Label.VERSION: __version__,
    }


def _shipped(name: str) -> Body:
    """Return what `sparkctl up NAME` asks of Docker for a shipped profile: the same command, labels and hash."""
    library = ProfileLibrary(user=shipped_profiles_dir())
    profile = library.load(name)
    node = Node(NodeName("simulated"), "127.0.0.1")
    made = plan(profile, node, home=HOME, operator=OPERATOR, environ={}, engine=engines.load(profile.engine))
    env = [f"{key}={value}" for key, value in made.env]
    return _body(made.image, list(made.command), dict(made.labels), [str(mount) for mount in made.mounts], env)


def _body(image: str, command: list[str], labels: dict[str, str], binds: list[str], env: list[str]) -> Body:
    gpus = [{"Driver": "", "Count": -1, "DeviceIDs": None, "Capabilities": [["gpu"]], "Options": {}}]
    host = {"NetworkMode": "host", "ShmSize": 16 << 30, "DeviceRequests": gpus, "Binds": binds}
    return {"Image": image, "Cmd": command, "Env": env, "Labels": labels, "HostConfig": host}


async def _run(docker: Dockerd, body: Body, ready_since: float, requests: int) -> None:
    labels = body["Labels"]
    container = docker.create(f"{labels[Label.ENGINE]}-{labels[Label.INSTANCE]}", body)
    docker.start(container, ready_since=ready_since)
    process = docker.running[container.id]
    await process.ready.wait()
    process.work(requests, since=LOGGED)


SCENARIOS: dict[str, Callable[[Sequence[Dockerd]], Awaitable[None]]] = {
    "empty": empty,
    "two-stacks": two_stacks,
    "story": story,
    "big-model": big_model,
    "trouble": trouble,
}
