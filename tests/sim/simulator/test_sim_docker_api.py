"""The docker SDK against the simulated Engine: its life of a container, and its refusals word for word."""

from __future__ import annotations

from pathlib import Path

import asyncssh
import docker
import pytest
from docker.errors import APIError, ImageNotFound, NotFound

from sparkctl.simulator import SimNodeOptions, SimulatedSparks
from tests.support import sim_clients
from tests.support.sim_clients import run_in_thread


async def test_a_container_lives_and_goes(client: docker.DockerClient, sparks: SimulatedSparks) -> None:
    container = await run_in_thread(sim_clients.launch_engine, client, labels={"dev.sparkctl.instance": "x"})
    seen = await run_in_thread(sim_clients.wait_until_ready, container)
    assert seen.endswith(b"The server is fired up and ready to roll!\n")
    await run_in_thread(container.reload)
    state = container.attrs["State"]
    assert (state["Status"], state["Running"]) == ("running", True)
    assert state["Pid"] in sparks.nodes["spark1"].processes
    listed = await run_in_thread(client.containers.list, filters={"label": "dev.sparkctl.instance"})
    assert [one.name for one in listed] == ["sglang-test"]
    await run_in_thread(container.stop, timeout=10)
    await run_in_thread(container.reload)
    assert (container.status, container.attrs["State"]["ExitCode"]) == ("exited", 137)
    assert await run_in_thread(container.wait) == {"StatusCode": 137, "Error": None}
    await run_in_thread(container.remove)
    assert await run_in_thread(client.containers.list, all=True) == []


async def test_the_engine_introduces_itself(client: docker.DockerClient) -> None:
    assert client.api.api_version == "1.51"
    info = await run_in_thread(client.info)
    assert (info["Architecture"], info["MemTotal"]) == ("aarch64", 127600592 * 1024)
    assert "nvidia" in info["Runtimes"]
    image = await run_in_thread(client.images.get, "scitrera/dgx-spark-sglang:0.5.12")
    assert image.attrs["Architecture"] == "arm64"


async def test_refusals_are_dockers(client: docker.DockerClient) -> None:
    with pytest.raises(ImageNotFound, match="No such image: missing:1"):
        await run_in_thread(client.containers.create, "missing:1", "x")
    with pytest.raises(NotFound, match="No such container: nobody"):
        await run_in_thread(client.containers.get, "nobody")
    await run_in_thread(sim_clients.launch_engine, client)
    with pytest.raises(APIError, match='The container name "/sglang-test" is already in use') as taken:
        await run_in_thread(sim_clients.launch_engine, client)
    assert taken.value.status_code == 409
    with pytest.raises(APIError, match="container is running") as running:
        await run_in_thread(client.api.remove_container, "sglang-test")
    assert running.value.status_code == 409


async def test_no_gpu_runtime_leaves_a_created_container(tmp_path: Path) -> None:
    options = {"spark1": SimNodeOptions(gpu_runtime=False)}
    async with (
        SimulatedSparks(**sim_clients.FAST, options=options) as sparks,
        sim_clients.open_ssh(sparks) as connection,
        sim_clients.open_docker_sdk(connection, tmp_path) as client,
    ):
        with pytest.raises(APIError, match=r"could not select device driver \"\" with capabilities: \[\[gpu\]\]"):
            await run_in_thread(sim_clients.launch_engine, client)
        left = (await run_in_thread(client.containers.list, all=True))[0]
        await run_in_thread(left.reload)
        assert left.status == "created"
        assert "[[gpu]]" in left.attrs["State"]["Error"]


async def test_a_published_port_is_given_once(client: docker.DockerClient, sparks: SimulatedSparks) -> None:
    first = await run_in_thread(sim_clients.launch_engine, client)
    await run_in_thread(sim_clients.wait_until_ready, first)
    other = await run_in_thread(client.containers.create, "x", "x", ports={"80/tcp": 8003})
    with pytest.raises(APIError, match="port is already allocated"):
        await run_in_thread(other.start)


async def test_memory_comes_back_after_a_stop(client: docker.DockerClient, sparks: SimulatedSparks) -> None:
    memory = sparks.nodes["spark1"].memory
    container = await run_in_thread(sim_clients.launch_engine, client)
    await run_in_thread(sim_clients.wait_until_ready, container)
    assert memory.engine_bytes > 90 << 30
    await run_in_thread(container.kill)
    await sim_clients.wait_until_true(lambda: memory.engine_bytes == 0)


async def test_the_socket_is_for_the_docker_group(tmp_path: Path) -> None:
    options = {"spark1": SimNodeOptions(docker_member=False)}
    async with SimulatedSparks(options=options) as sparks, sim_clients.open_ssh(sparks) as connection:
        with pytest.raises(asyncssh.ChannelOpenError):
            await connection.open_unix_connection("/var/run/docker.sock", encoding=None)
