"""Simulated Sparks, a context and a node for the tests on them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncssh
import docker
import pytest

from sparkctl.config import load_config
from sparkctl.context import CommandContext
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.node import Node
from sparkctl.simulator import SimulatedSparks
from tests.support import sim_clients
from tests.support.fast_forward import forward_clock
from tests.support.switch_scene import SwitchScene, open_two_rank_model


@pytest.fixture(autouse=True)
def _forwarded_clock() -> Iterator[None]:
    with forward_clock():
        yield


@pytest.fixture
async def sparks(request: pytest.FixtureRequest) -> AsyncIterator[SimulatedSparks]:
    """Two Sparks as the mark `simulation` has them (the arguments of `SimulatedSparks`), else empty and fast."""
    mark = request.node.get_closest_marker("simulation")
    opened = SimulatedSparks(**sim_clients.FAST) if mark is None else SimulatedSparks(*mark.args, **mark.kwargs)
    async with opened:
        yield opened


@pytest.fixture
def ctx(tmp_path: Path) -> CommandContext:
    """A context with a history of its own, below `tmp_path / "state"`."""
    return CommandContext(history=OperationHistory(tmp_path / "state"), operator="milo@desk")


@pytest.fixture
def node(sparks: SimulatedSparks) -> Node:
    """spark1."""
    return load_config(sparks.config_path).nodes[0]


@pytest.fixture
def own_profiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Give the test a directory of profiles of its own: `resume` loads the profile that the journal names."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[SwitchScene]:
    """Two Sparks that share one model."""
    async with open_two_rank_model(tmp_path / "state") as opened:
        yield opened


@pytest.fixture
async def connection(sparks: SimulatedSparks) -> AsyncIterator[asyncssh.SSHClientConnection]:
    """A login on spark1."""
    async with sim_clients.open_ssh(sparks) as opened:
        yield opened


@pytest.fixture
async def client(connection: asyncssh.SSHClientConnection, tmp_path: Path) -> AsyncIterator[docker.DockerClient]:
    """spark1's Docker."""
    async with sim_clients.open_docker_sdk(connection, tmp_path) as opened:
        yield opened
