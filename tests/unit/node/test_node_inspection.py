"""The look: the real script on this machine, and the meaning of what it says."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sparkctl.model.fabric_route import FabricLane
from sparkctl.model.sample import MemoryReading
from sparkctl.model.text.units import GIB, KIB, MIB
from sparkctl.node import agent, build_script_command, read_node_script
from sparkctl.node.node_inspection import (
    LaneReadings,
    decode_inspection,
    parse_meminfo,
)
from tests.unit.node.agent_process import GB10_MEMINFO

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, which only Linux has")
CONTAINER = "ab" * 32


def test_memory_is_read_as_the_agent_reads_it() -> None:
    found, _ = agent.parse_meminfo(GB10_MEMINFO.encode())
    assert found is not None
    assert parse_meminfo(GB10_MEMINFO) == MemoryReading(**found)
    for missing in ("MemTotal", "MemFree", "MemAvailable"):
        assert parse_meminfo(GB10_MEMINFO.replace(missing, "Other")) is None
    with pytest.raises(ValueError, match="out of all range"):
        parse_meminfo(GB10_MEMINFO.replace("MemFree: ", f"MemFree: {10**16} kB\nOther: "))


@linux
@pytest.mark.parametrize("shell", ["sh", "bash", "busybox sh"])
def test_the_script_reads_this_machine(shell: str, tmp_path: Path) -> None:
    words = shell.split()
    if subprocess.run(["which", words[0]], capture_output=True).returncode:
        pytest.skip(f"no {words[0]} here")
    odd = tmp_path / "a 'quoted' name; $(id)"
    odd.mkdir()
    sections = ["identity", "memory", "processes", "gpu", "listen", f"disk={odd}", f"path={odd}", "path=/no/such",
                "docker", "sudo", "health", "fabric"]  # fmt: skip
    done = subprocess.run(
        [*words, *build_script_command(*sections)[1:]],
        input=read_node_script("node_inspection.sh"),
        capture_output=True,
        timeout=30,
    )
    inspection = decode_inspection(b"a greeting from .bashrc\n" + done.stdout)
    assert inspection.identity is not None
    assert inspection.identity.home == os.environ["HOME"]
    assert inspection.memory is not None
    total = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    assert inspection.memory.total == int(total.split()[1]) * KIB
    assert inspection.disks[0].free is not None
    assert inspection.disks[0].path == str(odd)
    assert inspection.paths == ((str(odd), True), ("/no/such", False))
    assert inspection.listening is not None
    assert inspection.docker is not None
    assert inspection.kernel_settings is not None


@linux
@pytest.mark.parametrize("has_ss", [True, False])
def test_ports_are_found_with_ss_and_without(tmp_path: Path, has_ss: bool) -> None:
    (tmp_path / "ss").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "ss").chmod(0o755)
    if has_ss and not shutil.which("ss"):
        pytest.skip("no ss here")
    path = os.environ["PATH"] if has_ss else f"{tmp_path}:{os.environ['PATH']}"
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        done = subprocess.run(
            build_script_command("listen"),
            input=read_node_script("node_inspection.sh"),
            capture_output=True,
            timeout=30,
            env={**os.environ, "PATH": path},
        )
        found = decode_inspection(done.stdout).listening
        assert found is not None
        assert server.getsockname()[1] in found
        assert client.getsockname()[1] not in found, "it talks, and does not listen"
    assert (b"LISTEN" in done.stdout) is has_ss


def test_addresses_of_ss_are_read_in_each_form() -> None:
    lines = (
        "LISTEN 0 4096 127.0.0.53%lo:53 0.0.0.0:*",
        "LISTEN 0 128 [::]:22 [::]:*",
        "LISTEN   0   5   *:8101   *:* ",
    )
    assert decode_inspection("\n".join(("@@ listen", *lines, "@@ end")).encode()).listening == {53, 22, 8101}


@linux
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may see less")
@pytest.mark.parametrize("shell", ["sh", "bash", "busybox sh"])
def test_what_lies_in_a_folder_that_may_not_be_searched_is_not_missing(shell: str, public_path: Path) -> None:
    words = shell.split()
    if subprocess.run(["which", words[0]], capture_output=True).returncode:
        pytest.skip(f"no {words[0]} here")
    home = public_path / "root"
    (home / "models" / "m").mkdir(parents=True)
    (public_path / "to-hidden").symlink_to(home / "models")
    (public_path / "relative").symlink_to("root/models/m")
    (public_path / "dangling").symlink_to(public_path / "gone")
    (public_path / "circle").symlink_to(public_path / "circle")
    (public_path / "file").write_text("")
    home.chmod(0o700)
    wanted = {
        str(home): True,
        str(home / "models"): None,
        str(home / "models" / "m"): None,
        str(home / "never" / "was"): None,
        str(public_path / "to-hidden" / "m"): None,
        str(public_path / "relative"): None,
        str(public_path / "file"): True,
        str(public_path / "file" / "below"): False,
        str(public_path / "dangling"): False,
        str(public_path / "dangling" / "below"): False,
        str(public_path / "circle"): False,
        str(public_path / "gone" / "below"): False,
        "/no/such": False,
    }
    argv = [*words, *build_script_command(*(f"path={path}" for path in wanted))[1:]]
    done = subprocess.run(
        argv, input=read_node_script("node_inspection.sh"), capture_output=True, timeout=30, user=65534, group=65534,
        extra_groups=[], cwd="/",
    )  # fmt: skip
    assert dict(decode_inspection(done.stdout).paths) == wanted


def test_a_look_that_was_cut_is_no_look() -> None:
    with pytest.raises(ValueError, match="cut short"):
        decode_inspection(b"@@ memory\nMemTotal: 5 kB\n")


def test_what_was_not_asked_is_not_known() -> None:
    inspection = decode_inspection(b"@@ end\n")
    assert inspection.memory is None
    assert inspection.gpu is None
    assert inspection.listening is None
    assert inspection.get_container_memory(CONTAINER) is None


def test_memory_is_the_kernels_in_bytes() -> None:
    inspection = decode_inspection(
        b"@@ memory\nMemTotal:  127600592 kB\nMemFree: 9000000 kB\nMemAvailable: 24000000 kB\nBuffers: 100 kB\n"
        b"Cached: 15000000 kB\nShmem: 500 kB\nSReclaimable: 400 kB\nSwapTotal: 100 kB\nSwapFree: 40 kB\n"
        b"drop_pagecache 3\n@@ end\n"
    )
    assert inspection.memory is not None
    assert inspection.memory.total == 127600592 * KIB
    assert inspection.memory.page_cache == 15000000 * KIB
    assert inspection.memory.used == (127600592 - 24000000) * KIB
    assert inspection.memory.swap_used == 60 * KIB
    assert inspection.drops == 3


def test_a_container_holds_its_anonymous_its_shared_and_its_gpu_memory() -> None:
    inspection = decode_inspection(
        f"@@ cgroups\n/proc/10/cgroup:{CONTAINER}\n/proc/11/cgroup:{CONTAINER}\n"
        "@@ resident\n/proc/10/status:RssAnon:\t 1024 kB\n/proc/10/status:RssShmem:\t 2048 kB\n"
        "/proc/11/status:RssAnon:\t 1024 kB\n/proc/11/status:RssShmem:\t 1024 kB\n/proc/1/status:RssAnon:\t 9 kB\n"
        "@@ gpu\n10, 1024\n10, 512\n999, 7\nstatus 0\n@@ end\n".encode()
    )
    assert inspection.get_container_memory(CONTAINER) == 4 * MIB + GIB
    assert inspection.gpu == {10: GIB, 999: 7 * MIB}


def test_a_gpu_that_did_not_answer_is_not_known() -> None:
    assert decode_inspection(b"@@ gpu\nstatus 124\n@@ end\n").gpu is None
    assert decode_inspection(b"@@ gpu\nstatus 0\n@@ end\n").gpu == {}


def test_a_disk_that_df_cannot_read_is_not_known() -> None:
    inspection = decode_inspection(b"@@ disk /models\ndf: /models: No such file or directory\n@@ end\n")
    assert inspection.disks[0].free is None


def test_the_lanes_of_a_node_are_read_with_their_devices_and_indices() -> None:
    body = "\n".join(
        [
            "devices yes",
            "link enp1s0f0np0 9000 200000",
            "link wlP9s9 1500 -",
            "address lo 127.0.0.1/8",
            "address enp1s0f0np0 192.168.200.11/24",
            "address enP2p1s0f0np0 192.168.201.11/24",
            "address wlP9s9 nonsense",
            "address wlP9s9 10.1.2.3/22",
            "device rocep1s0f0 enp1s0f0np0",
            "gid rocep1s0f0 1 fe80:0000:0000:0000:4abb:feff:fe12:3456",
            "gid rocep1s0f0 3 0000:0000:0000:0000:0000:ffff:c0a8:c80b",
        ]
    )
    lanes = decode_inspection(f"@@ fabric\n{body}\n@@ end\n".encode()).lanes
    assert lanes == LaneReadings(
        (
            FabricLane(
                interface="enp1s0f0np0",
                address="192.168.200.11",
                network="192.168.200.0/24",
                device="rocep1s0f0",
                gid_index=3,
                mtu=9000,
                speed=200_000,
            ),
            FabricLane(
                interface="wlP9s9",
                address="10.1.2.3",
                network="10.1.0.0/22",
                device=None,
                gid_index=None,
                mtu=1500,
                speed=None,
            ),
        ),
        has_devices=True,
    )


@linux
def test_a_download_on_the_node_itself_is_seen_while_its_process_lives() -> None:
    """The real script and a real process with the program's name; a folder whose process is gone is no download."""
    name, gone = f"sparkctl-pull-test{os.getpid()}", f"sparkctl-pull-gone{os.getpid()}"
    places = [Path("/dev/shm", one) for one in (name, gone)]
    for one in places:
        one.mkdir(mode=0o700)
        (one / "profile").write_text("mine")
        (one / "log").write_text('{"files": 1, "total": 90, "have": 10}\nnoise\n' + '{"at": 20}\n' * 9 + '{"at": 30}\n')
    process = subprocess.Popen([sys.executable, "-c", "input()", f"{places[0]}/program.py"], stdin=subprocess.PIPE)
    try:
        for one in places:
            (one / "pid").write_text(str(process.pid))
        done = subprocess.run(
            build_script_command("downloads"),
            input=read_node_script("node_inspection.sh"),
            capture_output=True,
            timeout=30,
        )
        found = {one.name: one for one in decode_inspection(done.stdout).downloads}
        assert gone not in found
        assert found[name].profile == "mine"
        assert found[name].messages[0] == '{"files": 1, "total": 90, "have": 10}'
        assert found[name].messages[-1] == '{"at": 30}'
    finally:
        process.communicate(b"\n")
        for one in places:
            shutil.rmtree(one)


def test_gpu_memory_that_the_driver_does_not_tell_is_not_zero() -> None:
    """On unified memory it may print [N/A] for a process: then the sum of its container is not known, of another it is."""
    one, other = "a" * 64, "b" * 64
    inspection = decode_inspection(
        f"@@ cgroups\n/proc/10/cgroup:{one}\n/proc/20/cgroup:{other}\n"
        "@@ resident\n/proc/10/status:RssAnon:\t 1024 kB\n/proc/20/status:RssAnon:\t 1024 kB\n"
        "@@ gpu\n10, [N/A]\n10, 512\n20, 7\nstatus 0\n@@ end\n".encode()
    )
    assert inspection.gpu == {10: None, 20: 7 * MIB}
    assert inspection.get_container_memory(one) is None
    assert inspection.get_container_memory(other) == 8 * MIB
    assert inspection.everybody is None
