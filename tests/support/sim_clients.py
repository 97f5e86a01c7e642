"""Ways into a simulated node that use none of sparkctl: plain asyncssh and the real docker SDK."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncssh
import docker

from sparkctl.simulator import SimulatedSparks

PATIENCE = 60.0  # seconds: a test that passes never waits so long, however slow the machine
# A start in a fifth of a second. Tokens come less fast: every step of decoding is computed, and its log lines go through Docker,
# SSH and what reads them, for each second that a test's clock is forwarded.
FAST = {"speed": 50.0, "decode_speed": 20.0}
INSPECTION_SCRIPT = (Path(__file__).parents[2] / "sparkctl/node/node_inspection.sh").read_bytes()
SGLANG_IMAGE = "scitrera/dgx-spark-sglang:0.5.12"
SGLANG = shlex.split(
    "python -m sglang.launch_server --model-path /models/Qwen3.6-27B-FP8 --host 0.0.0.0 --port 8003 --tp 1 "
    "--served-model-name qwen3.6-27b --speculative-algorithm NEXTN --speculative-num-steps 5 "
    "--mem-fraction-static 0.82 --enable-metrics"
)
VLLM_IMAGE = "vllm/vllm-openai:v0.19.1"
VLLM = shlex.split(
    "vllm serve /models/Qwen3.6-27B-NVFP4 --port 8000 --served-model-name q --gpu-memory-utilization 0.8"
)
READY = {"sglang": b"The server is fired up and ready to roll!", "vllm": b"Application startup complete."}
GPUS = [docker.types.DeviceRequest(count=-1, capabilities=[["gpu"]])]


@asynccontextmanager
async def open_ssh(sparks: SimulatedSparks, node: str = "spark1") -> AsyncIterator[asyncssh.SSHClientConnection]:
    """A connection that trusts the written known_hosts and nothing else."""
    async with asyncssh.connect(
        "127.0.0.1",
        sparks.ports[node],
        username="milo",
        client_keys=[str(sparks.identity_path)],
        known_hosts=str(sparks.known_hosts_path),
        config=[],
    ) as connection:
        yield connection


@asynccontextmanager
async def open_docker_sdk(
    connection: asyncssh.SSHClientConnection, directory: Path
) -> AsyncIterator[docker.DockerClient]:
    """The docker SDK over a forwarded socket; use it in threads."""
    path = str(directory / "docker.sock")
    async with connection.forward_local_path(path, "/var/run/docker.sock"):
        client = await asyncio.to_thread(docker.DockerClient, base_url=f"unix://{path}", timeout=PATIENCE)
        try:
            yield client
        finally:
            await asyncio.to_thread(client.close)


async def run_in_thread(work: Any, *args: Any, **words: Any) -> Any:
    """Run an SDK call in a thread."""
    return await asyncio.wait_for(asyncio.to_thread(work, *args, **words), PATIENCE)


def launch_engine(client: docker.DockerClient, engine: str = "sglang", **more: Any) -> Any:
    """Create and start an engine."""
    image, command = (SGLANG_IMAGE, SGLANG) if engine == "sglang" else (VLLM_IMAGE, VLLM)
    if "ports" not in more:
        more["network_mode"] = "host"
    container = client.containers.create(image, command, name=f"{engine}-test", device_requests=GPUS, **more)
    container.start()
    return container


def wait_until_ready(container: Any, engine: str = "sglang") -> bytes:
    """Follow the log up to the ready line, or to its end."""
    seen = b""
    for line in container.logs(stream=True, follow=True):
        seen += line
        if READY[engine] in line:
            break
    return seen


async def request_from_node(
    connection: asyncssh.SSHClientConnection, port: int, path: str, body: object = None
) -> tuple[int, bytes]:
    """One request to the engine from the node itself; the connection is closed after it."""
    reader, writer = await connection.open_connection("127.0.0.1", port, encoding=None)
    data = b"" if body is None else json.dumps(body).encode()
    verb = "GET" if body is None else "POST"
    head = f"{verb} {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)
    answer = await asyncio.wait_for(reader.read(), PATIENCE)
    first, _, content = answer.partition(b"\r\n\r\n")
    return int(first.split()[1]), content


async def wait_until_true(claim: Callable[[], bool]) -> None:
    """Wait until a claim holds."""
    async with asyncio.timeout(PATIENCE):
        while not claim():  # noqa: ASYNC110  the simulation has no event for each of its claims
            await asyncio.sleep(0.01)
