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
from tests.support import sim_clients
from tests.support.sim_clients import run_in_thread

PORTS = {"sglang": 8003, "vllm": 8000}


def _read_engine_log(engine: str, log: bytes) -> tuple[list[Phase], list[FailureCause], set[str]]:
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
    container = await run_in_thread(sim_clients.launch_engine, client, engine)
    log = await run_in_thread(sim_clients.wait_until_ready, container, engine)
    phases, causes, steps = _read_engine_log(engine, log)
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
async def test_each_fault_is_read_as_its_cause(
    fault: str, engine: str, code: int, oom_killed: bool, cause: FailureCause | None, client: docker.DockerClient
) -> None:
    container = await run_in_thread(sim_clients.launch_engine, client, engine, environment={"SIM_FAULT": fault})
    assert (await run_in_thread(container.wait))["StatusCode"] == code
    await run_in_thread(container.reload)
    assert container.attrs["State"]["OOMKilled"] is oom_killed
    _, causes, _ = _read_engine_log(engine, await run_in_thread(container.logs))
    assert (cause in causes) if cause else not causes


async def test_a_hang_is_deaf_to_sigterm(client: docker.DockerClient, sparks: SimulatedSparks) -> None:
    container = await run_in_thread(sim_clients.launch_engine, client, environment={"SIM_FAULT": "hang"})
    process = sparks.docker["spark1"].running[container.id]
    await sim_clients.wait_until_true(lambda: process.deaf)
    await run_in_thread(container.stop, timeout=5)
    await run_in_thread(container.reload)
    assert container.attrs["State"]["ExitCode"] == 137
    assert b"fired up" not in await run_in_thread(container.logs)


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
async def test_a_ready_engine_serves_requests(
    engine: str, connection: asyncssh.SSHClientConnection, client: docker.DockerClient
) -> None:
    container = await run_in_thread(sim_clients.launch_engine, client, engine)
    await run_in_thread(sim_clients.wait_until_ready, container, engine)
    port = PORTS[engine]
    assert await sim_clients.request_from_node(connection, port, "/health") == (200, b"")
    status, models = await sim_clients.request_from_node(connection, port, "/v1/models")
    served = json.loads(models)["data"][0]["id"]
    assert (status, served) == (200, {"sglang": "qwen3.6-27b", "vllm": "q"}[engine])
    status, answer = await sim_clients.request_from_node(
        connection, port, "/v1/completions", {"model": served, "prompt": "The capital of France is", "max_tokens": 3}
    )
    assert (status, json.loads(answer)["usage"]["completion_tokens"]) == (200, 3)
    assert json.loads(answer)["choices"][0]["text"] == " Paris, a"
    chat = {"model": served, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, "stream": True}
    status, answer = await sim_clients.request_from_node(connection, port, "/v1/chat/completions", chat)
    assert status == 200
    assert answer.count(b'"delta"') == 2
    assert b"data: [DONE]" in answer
    status, metrics = await sim_clients.request_from_node(connection, port, "/metrics")
    assert status == 200
    assert re.search(rf"^{engine}:generation_tokens_total\{{[^}}]*\}} 5\.0$".encode(), metrics, re.MULTILINE)


async def test_on_a_bridge_an_engine_answers_on_its_published_port_alone(
    connection: asyncssh.SSHClientConnection, client: docker.DockerClient
) -> None:
    container = await run_in_thread(sim_clients.launch_engine, client, "vllm", ports={"8000/tcp": 8001})
    await run_in_thread(sim_clients.wait_until_ready, container, "vllm")
    assert await sim_clients.request_from_node(connection, 8001, "/health") == (200, b"")
    with pytest.raises(asyncssh.ChannelOpenError):
        await sim_clients.request_from_node(connection, 8000, "/health")


async def test_an_engine_without_tokens_answers_health_only(
    connection: asyncssh.SSHClientConnection, client: docker.DockerClient
) -> None:
    container = await run_in_thread(sim_clients.launch_engine, client, "vllm", environment={"SIM_FAULT": "no-token"})
    await run_in_thread(sim_clients.wait_until_ready, container, "vllm")
    assert (await sim_clients.request_from_node(connection, 8000, "/health"))[0] == 200
    assert (await sim_clients.request_from_node(connection, 8000, "/v1/completions", {"prompt": "x", "max_tokens": 1}))[
        0
    ] == 500


async def test_nobody_listens_before_and_after(
    connection: asyncssh.SSHClientConnection, client: docker.DockerClient
) -> None:
    with pytest.raises(asyncssh.ChannelOpenError, match="Connection refused"):
        await connection.open_connection("127.0.0.1", 8003)
    container = await run_in_thread(sim_clients.launch_engine, client)
    await run_in_thread(sim_clients.wait_until_ready, container)
    await run_in_thread(container.stop)
    with pytest.raises(asyncssh.ChannelOpenError, match="Connection refused"):
        await connection.open_connection("127.0.0.1", 8003)


async def test_a_second_model_finds_no_memory(client: docker.DockerClient) -> None:
    first = await run_in_thread(sim_clients.launch_engine, client, "sglang")
    await run_in_thread(sim_clients.wait_until_ready, first)
    second = await run_in_thread(sim_clients.launch_engine, client, "vllm")
    assert (await run_in_thread(second.wait))["StatusCode"] == 1
    assert b"is less than desired GPU memory utilization" in await run_in_thread(second.logs)
