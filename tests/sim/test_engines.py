"""Scripted engines: what they say is what sparkctl's own engines read, what they serve is what an engine serves."""

from __future__ import annotations

import json
import re

import asyncssh
import docker
import pytest

from sparkctl import engines
from sparkctl.engines.line_preparer import LinePreparer
from sparkctl.model.phase import Phase
from sparkctl.model.verdict import FailureCause
from sparkctl.simulator import SimulatedSparks
from tests.sim import clients
from tests.sim.clients import in_thread

PORTS = {"sglang": 8003, "vllm": 8000}


def _read(engine: str, log: bytes) -> tuple[list[Phase], list[FailureCause], set[str]]:
    """Return phases in order of appearance, causes of failures, and names of steps."""
    preparer, known = LinePreparer(), engines.load_engine(engine)
    phases: list[Phase] = []
    causes: list[FailureCause] = []
    steps: set[str] = set()
    for raw in log.decode().split("\n"):
        for line in preparer.prepare_lines(raw):
            signal = known.classify_line(line)
            if signal is None:
                continue
            if signal.phase is not None and signal.phase not in phases:
                phases.append(signal.phase)
            causes += [signal.failure.cause] if signal.failure else []
            steps |= {signal.step.name} if signal.step else set()
    return phases, causes, steps


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
async def test_a_start_reads_as_one(engine: str, client: docker.DockerClient) -> None:
    container = await in_thread(clients.launch, client, engine)
    log = await in_thread(clients.until_ready, container, engine)
    phases, causes, steps = _read(engine, log)
    ready = re.compile(engines.load_engine(engine).defaults.ready_line or "never")
    assert phases[0] is Phase.LOADING
    assert Phase.READY in phases or ready.search(log.decode())
    assert causes == []
    assert "weights" in steps


@pytest.mark.parametrize(
    ("fault", "engine", "code", "oom_killed", "cause"),
    [
        ("cuda-oom", "sglang", 1, False, FailureCause.CUDA_OUT_OF_MEMORY),
        ("cuda-oom", "vllm", 1, False, FailureCause.CUDA_OUT_OF_MEMORY),
        ("oom-killed", "sglang", 137, True, None),
        ("exit0", "vllm", 0, False, None),
        ("bad-flag", "sglang", 2, False, FailureCause.UNKNOWN_FLAG),
        ("bad-flag", "vllm", 2, False, FailureCause.UNKNOWN_FLAG),
    ],
)
async def test_faults(
    fault: str, engine: str, code: int, oom_killed: bool, cause: FailureCause | None, client: docker.DockerClient
) -> None:
    container = await in_thread(clients.launch, client, engine, environment={"SIM_FAULT": fault})
    assert (await in_thread(container.wait))["StatusCode"] == code
    await in_thread(container.reload)
    assert container.attrs["State"]["OOMKilled"] is oom_killed
    _, causes, _ = _read(engine, await in_thread(container.logs))
    assert (cause in causes) if cause else not causes


async def test_a_hang_is_deaf_to_sigterm(client: docker.DockerClient, sparks: SimulatedSparks) -> None:
    container = await in_thread(clients.launch, client, environment={"SIM_FAULT": "hang"})
    process = sparks.docker["spark1"].running[container.id]
    await clients.eventually(lambda: process.deaf)
    await in_thread(container.stop, timeout=5)
    await in_thread(container.reload)
    assert container.attrs["State"]["ExitCode"] == 137
    assert b"fired up" not in await in_thread(container.logs)


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
async def test_serving(engine: str, connection: asyncssh.SSHClientConnection, client: docker.DockerClient) -> None:
    container = await in_thread(clients.launch, client, engine)
    await in_thread(clients.until_ready, container, engine)
    port = PORTS[engine]
    assert await clients.http(connection, port, "/health") == (200, b"")
    status, models = await clients.http(connection, port, "/v1/models")
    served = json.loads(models)["data"][0]["id"]
    assert (status, served) == (200, {"sglang": "qwen3.6-27b", "vllm": "q"}[engine])
    status, answer = await clients.http(
        connection, port, "/v1/completions", {"model": served, "prompt": "The capital of France is", "max_tokens": 3}
    )
    assert (status, json.loads(answer)["usage"]["completion_tokens"]) == (200, 3)
    assert json.loads(answer)["choices"][0]["text"] == " Paris, a"
    chat = {"model": served, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, "stream": True}
    status, answer = await clients.http(connection, port, "/v1/chat/completions", chat)
    assert status == 200
    assert answer.count(b'"delta"') == 2
    assert b"data: [DONE]" in answer
    status, metrics = await clients.http(connection, port, "/metrics")
    assert status == 200
    assert re.search(rf"^{engine}:generation_tokens_total\{{[^}}]*\}} 5\.0$".encode(), metrics, re.MULTILINE)


async def test_no_token(connection: asyncssh.SSHClientConnection, client: docker.DockerClient) -> None:
    container = await in_thread(clients.launch, client, "vllm", environment={"SIM_FAULT": "no-token"})
    await in_thread(clients.until_ready, container, "vllm")
    assert (await clients.http(connection, 8000, "/health"))[0] == 200
    assert (await clients.http(connection, 8000, "/v1/completions", {"prompt": "x", "max_tokens": 1}))[0] == 500


async def test_nobody_listens_before_and_after(
    connection: asyncssh.SSHClientConnection, client: docker.DockerClient
) -> None:
    with pytest.raises(asyncssh.ChannelOpenError, match="Connection refused"):
        await connection.open_connection("127.0.0.1", 8003)
    container = await in_thread(clients.launch, client)
    await in_thread(clients.until_ready, container)
    await in_thread(container.stop)
    with pytest.raises(asyncssh.ChannelOpenError, match="Connection refused"):
        await connection.open_connection("127.0.0.1", 8003)


async def test_a_second_model_finds_no_memory(client: docker.DockerClient) -> None:
    first = await in_thread(clients.launch, client, "sglang")
    await in_thread(clients.until_ready, first)
    second = await in_thread(clients.launch, client, "vllm")
    assert (await in_thread(second.wait))["StatusCode"] == 1
    assert b"is less than desired GPU memory utilization" in await in_thread(second.logs)
