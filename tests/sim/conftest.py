"""Simulated Sparks for the tests of the simulation itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import asyncssh
import docker
import pytest

from sparkctl.simulator import SimulatedSparks
from tests.sim import sim_clients


@pytest.fixture
async def sparks() -> AsyncIterator[SimulatedSparks]:
    """Two empty nodes, fast."""
    async with SimulatedSparks(**sim_clients.FAST) as opened:
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
