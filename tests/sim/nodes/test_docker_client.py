"""sparkctl's own Docker layer and engine HTTP against a simulated node, with the plan of a shipped profile."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from sparkctl.errors import ContainerNameInUse, ContainerNotFound, GpuRuntimeMissing, ImageNotFound
from sparkctl.files import shipped_profiles_dir
from sparkctl.model.container import ContainerState
from sparkctl.model.launch_plan import LaunchPlan
from sparkctl.model.node import Node, NodeName
from sparkctl.profiles.launch_planning import build_launch_plan
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.simulator import SimNodeOptions, SimulatedSparks
from sparkctl.transport.docker.docker_client import DockerClient
from sparkctl.transport.node_connection import NodeConnection
from sparkctl.transport.node_session import open_connection
from tests.support import sim_clients


def _make_connection(sparks: SimulatedSparks, name: str) -> NodeConnection:
    words = {"user": "milo", "port": sparks.ports[name], "identity": str(sparks.identity_path)}
    return open_connection(
        Node(name=NodeName(name), host="127.0.0.1", known_hosts=str(sparks.known_hosts_path), **words)
    )


def _make_plan(profile: str = "qwen36") -> LaunchPlan:
    loaded = ProfileLibrary(user=shipped_profiles_dir()).load_profile(profile)
    node = Node(name=NodeName("spark1"), host="127.0.0.1")
    return build_launch_plan(loaded, node, home="/home/milo", operator="t", environ={})


@pytest.fixture
async def docker(sparks: SimulatedSparks) -> AsyncIterator[DockerClient]:
    """spark1's Docker through sparkctl's own layer."""
    link = _make_connection(sparks, "spark1")
    await link.connect()
    opened = DockerClient(link)
    yield opened
    await link.close()


@pytest.mark.parametrize("profile", ["qwen36", "qwen36-ngram", "qwen36-vllm", "orpheus-tts"])
async def test_a_profile_runs_and_ends(profile: str, docker: DockerClient, sparks: SimulatedSparks) -> None:
    wanted = _make_plan(profile)
    made = await docker.create_container(wanted)
    await docker.start_container(made)
    process = sparks.docker["spark1"].running[made]
    await sim_clients.wait_until_true(process.ready.is_set)
    seen = await docker.inspect_container(wanted.container_name)
    assert (seen.id, seen.state, seen.is_managed) == (made, ContainerState.RUNNING, True)
    assert sparks.nodes["spark1"].ports.keys() == {wanted.port}
    assert [one.name for one in await docker.list_containers()] == [wanted.container_name]
    await docker.stop_container(made, 10)
    assert (await docker.inspect_container(made)).state is ContainerState.EXITED
    await docker.remove_container(made)
    assert await docker.list_containers() == ()


async def test_refusals_have_their_classes(docker: DockerClient) -> None:
    with pytest.raises(ImageNotFound):
        await docker.create_container(replace(_make_plan(), image="missing:1"))
    assert await docker.inspect_image("missing:1") is None
    await docker.create_container(_make_plan())
    with pytest.raises(ContainerNameInUse):
        await docker.create_container(_make_plan())
    with pytest.raises(ContainerNotFound):
        await docker.inspect_container("nobody")


async def test_no_gpu_runtime_has_its_class(tmp_path: Path) -> None:
    options = {"spark2": SimNodeOptions(gpu_runtime=False)}
    async with SimulatedSparks(**sim_clients.FAST, options=options) as sparks:
        link = _make_connection(sparks, "spark2")
        await link.connect()
        docker = DockerClient(link)
        made = await docker.create_container(_make_plan())
        with pytest.raises(GpuRuntimeMissing):
            await docker.start_container(made)
        assert (await docker.inspect_container(made)).state is ContainerState.CREATED
        await link.close()
