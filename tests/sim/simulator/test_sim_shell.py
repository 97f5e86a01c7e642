"""What a simulated node does with the commands that sparkctl runs, decoded by sparkctl's own reader of looks."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path

import asyncssh
import docker
import pytest

from sparkctl.node import build_script_command, read_node_script
from sparkctl.node import node_inspection as probe
from sparkctl.simulator import SimNodeOptions, SimulatedSparks, SudoRule
from tests.support import sim_clients
from tests.support.sim_clients import run_in_thread

TEE = ["/usr/bin/tee", "/proc/sys/vm/drop_caches"]


async def _run_inspection(connection: asyncssh.SSHClientConnection, *sections: str) -> probe.NodeInspection:
    done = await connection.run(
        shlex.join(build_script_command(*sections)), input=read_node_script("node_inspection.sh"), encoding=None
    )
    assert done.exit_status == 0
    assert isinstance(done.stdout, bytes)
    return probe.decode_inspection(done.stdout)


async def test_a_look_is_complete(connection: asyncssh.SSHClientConnection) -> None:
    inspection = await _run_inspection(connection, "identity", "memory", "processes", "gpu", "listen", "docker", "sudo", "health",
                       "disk=/home/milo", "path=/home/milo/models")  # fmt: skip
    assert inspection.identity is not None
    assert (inspection.identity.product, inspection.identity.driver, inspection.identity.machine) == (
        "DGX Spark",
        "580.142",
        "aarch64",
    )
    assert inspection.memory is not None
    assert inspection.memory.total == 127600592 * 1024
    assert inspection.memory.free < inspection.memory.available < inspection.memory.total
    assert (inspection.gpu, inspection.pids, inspection.resident) == ({}, {}, {})
    assert inspection.listening == frozenset({22})
    assert inspection.disks[0].free
    assert inspection.paths == (("/home/milo/models", True),)
    assert inspection.docker is not None
    assert inspection.docker.access
    assert inspection.docker.hook
    assert inspection.drop_right == "allowed"
    assert inspection.kernel_settings is not None
    assert inspection.kernel_settings.swappiness == 60


async def test_an_engine_is_seen_with_its_memory_and_port(
    connection: asyncssh.SSHClientConnection, client: docker.DockerClient
) -> None:
    container = await run_in_thread(sim_clients.launch_engine, client)
    await run_in_thread(sim_clients.wait_until_ready, container)
    inspection = await _run_inspection(connection, "processes", "gpu", "listen")
    memory = inspection.get_container_memory(container.id)
    assert memory is not None
    assert memory > 90 << 30
    assert inspection.listening is not None
    assert 8003 in inspection.listening


async def test_a_drop_gives_the_page_cache_back(connection: asyncssh.SSHClientConnection) -> None:
    before = await _run_inspection(connection, "memory")
    done = await connection.run(shlex.join(["sudo", "-n", *TEE]), input="3")
    assert done.exit_status == 0
    after = await _run_inspection(connection, "memory")
    assert before.memory is not None
    assert after.memory is not None
    assert before.memory.page_cache > 35 << 30
    assert after.memory.page_cache < 1 << 30
    assert after.memory.free - before.memory.free == pytest.approx(before.memory.page_cache - after.memory.page_cache)
    assert (before.drops, after.drops) == (0, 1)


@pytest.mark.parametrize(
    ("right", "password", "status"),
    [(SudoRule.PASSWORD, "correct horse", 0), (SudoRule.PASSWORD, "wrong", 1), (SudoRule.DENIED, "correct horse", 1)],
)
async def test_sudo_by_password(right: SudoRule, password: str, status: int) -> None:
    async with (
        SimulatedSparks(options={"spark1": SimNodeOptions(sudo=right)}) as sparks,
        sim_clients.open_ssh(sparks) as connection,
    ):
        refused = await connection.run(shlex.join(["sudo", "-n", *TEE]), input="3")
        assert (refused.exit_status, "a password is required" in str(refused.stderr)) == (1, True)
        done = await connection.run(shlex.join(["sudo", "-S", "-k", "-p", "", *TEE]), input=f"{password}\n3")
        assert done.exit_status == status
        assert (sparks.nodes["spark1"].memory.drops["pagecache"] == 1) is (status == 0)


async def test_the_lock_is_exclusive_and_dies_with_its_channel(connection: asyncssh.SSHClientConnection) -> None:
    about = '{"by": "milo\'s laptop"}'
    line = shlex.join(["sh", "-c", "flock 'quoted \\ script'", "sparkctl-lock", "/run", "/tmp/l", "1", about, "hold"])
    first = await connection.create_process(line)
    assert await asyncio.wait_for(first.stdout.readline(), sim_clients.PATIENCE) == "@@ held\n"
    second = await connection.run(line)
    assert (second.exit_status, second.stdout) == (75, '@@ taken\n{"by": "milo\'s laptop"}\n')
    first.stdin.write_eof()
    await asyncio.wait_for(first.wait(), sim_clients.PATIENCE)
    third = await connection.create_process(line)
    assert await asyncio.wait_for(third.stdout.readline(), sim_clients.PATIENCE) == "@@ held\n"
    third.close()
    await third.wait_closed()


async def test_a_broken_connection_frees_the_lock(sparks: SimulatedSparks) -> None:
    async with sim_clients.open_ssh(sparks) as connection:
        process = await connection.create_process(
            shlex.join(["sh", "-c", "x", "sparkctl-lock", "/run", "/tmp/l", "1", "me", "hold"])
        )
        assert await asyncio.wait_for(process.stdout.readline(), sim_clients.PATIENCE) == "@@ held\n"
        sparks.sshd["spark1"].drop_connections()
        await sim_clients.wait_until_true(lambda: not sparks.nodes["spark1"].locks)


async def test_files_and_everything_else(connection: asyncssh.SSHClientConnection) -> None:
    done = await connection.run("cat /proc/meminfo /nowhere")
    assert str(done.stdout).startswith("MemTotal:       127600592 kB\n")
    assert (done.stderr, done.exit_status) == ("cat: /nowhere: No such file or directory\n", 1)
    odd = await connection.run("reboot 'a'\"'\"'b'")
    assert odd.exit_status == 127
    assert str(odd.stderr).startswith("not simulated: reboot ")


async def test_only_the_written_key_is_let_in(sparks: SimulatedSparks, tmp_path: Path) -> None:
    stranger = asyncssh.generate_private_key("ssh-ed25519")
    for user, key in (("milo", stranger), ("root", str(sparks.identity_path))):
        with pytest.raises(asyncssh.PermissionDenied):
            await asyncssh.connect(
                "127.0.0.1", sparks.ports["spark1"], username=user, client_keys=[key],
                known_hosts=str(sparks.known_hosts_path), config=[],
            )  # fmt: skip
    assert sparks.directory.stat().st_mode & 0o777 == 0o700
