"""What runs on the simulated Sparks when they are switched on."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence

from sparkctl.model.plan import Label
from sparkctl.sim.container import Body
from sparkctl.sim.dockerd import Dockerd
from sparkctl.sim.node import HOME

HOURS = 3600.0
SGLANG_IMAGE = "scitrera/dgx-spark-sglang:0.5.12"
VLLM_IMAGE = "vllm/vllm-openai:v0.19.1-aarch64"
SGLANG_READY = "The server is fired up and ready to roll!"
VLLM_READY = r"Application startup complete\."


async def empty(_nodes: Sequence[Dockerd]) -> None:
    """Nothing runs; the page cache is full of the last model."""


async def two_stacks(nodes: Sequence[Dockerd]) -> None:
    """One model under two engines, both at work: SGLang with FP8 on the first Spark, vLLM with NVFP4 on the second."""
    sglang = """python -m sglang.launch_server --model-path /models/Qwen3.6-27B-FP8 --port 8003
        --served-model-name qwen3.6-27b --tp 1 --speculative-algorithm NGRAM --mem-fraction-static 0.78 --enable-metrics
        --trust-remote-code"""
    vllm = """vllm serve /models/Qwen3.6-27B-NVFP4 --port 8000 --served-model-name qwen3.6-27b
        --max-model-len 8192 --gpu-memory-utilization 0.8
        --speculative-config {"method":"mtp","num_speculative_tokens":3}"""
    await _run(nodes[0], _body("qwen36-ngram", "sglang", SGLANG_IMAGE, sglang.split(), 8003), 5.2 * HOURS, requests=2)
    if len(nodes) > 1:
        await _run(nodes[1], _body("qwen36-vllm", "vllm", VLLM_IMAGE, vllm.split(), 8000), 3.1 * HOURS, requests=3)


async def big_model(nodes: Sequence[Dockerd]) -> None:
    """One model too big for one Spark: a container on each, the first is the head."""
    for rank, docker in enumerate(nodes):
        command = f"""python -m sglang.launch_server --model-path /models/Qwen3-235B-A22B-NVFP4 --port 8010
            --served-model-name qwen3-235b --tp 2 --nnodes 2 --node-rank {rank} --dist-init-addr 192.168.100.11:20000
            --mem-fraction-static 0.85 --enable-metrics"""
        body = _body("qwen3-235b", "sglang", SGLANG_IMAGE, command.split(), 8010)
        await _run(docker, body, 26 * HOURS, requests=1 if rank == 0 else 0)


def _body(profile: str, engine: str, image: str, command: list[str], port: int) -> Body:
    ready = {"line": SGLANG_READY if engine == "sglang" else VLLM_READY, "health": "/health", "probe": "completions"}
    labels = {
        Label.PROFILE: profile,
        Label.HASH: "5e0d2a91c7b4",
        Label.INSTANCE: profile,
        Label.ENGINE: engine,
        Label.OPERATOR: "milo@desk",
        Label.PORT: str(port),
        Label.READY: json.dumps(ready),
        Label.VERSION: "0.1.0",
    }
    gpus = [{"Driver": "", "Count": -1, "DeviceIDs": None, "Capabilities": [["gpu"]], "Options": {}}]
    host = {"NetworkMode": "host", "ShmSize": 16 << 30, "DeviceRequests": gpus, "Binds": [f"{HOME}/models:/models"]}
    return {"Image": image, "Cmd": command, "Env": [], "Labels": labels, "HostConfig": host}


async def _run(docker: Dockerd, body: Body, ready_since: float, requests: int) -> None:
    labels = body["Labels"]
    container = docker.create(f"{labels[Label.ENGINE]}-{labels[Label.INSTANCE]}", body)
    docker.start(container, ready_since=ready_since)
    process = docker.running[container.id]
    await process.ready.wait()
    process.decoding.background = requests


SCENARIOS: dict[str, Callable[[Sequence[Dockerd]], Awaitable[None]]] = {
    "empty": empty,
    "two-stacks": two_stacks,
    "big-model": big_model,
}
