"""The lab itself: it is what the other tests believe it is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.lab.bed.faults import Faults
from tests.lab.bed.lab import KEYS, Lab, format_known_hosts
from tests.lab.bed.names import ADDRESSES, BRIDGE, CLEAN_ENV, IMAGE, USER
from tests.lab.bed.node import LabNode
from tests.lab.bed.shell import await_true

ROOT = Path(__file__).parents[2]


@pytest.fixture
def ssh(clean_nodes: Lab, tmp_path: Path) -> list[str]:
    (tmp_path / "known_hosts").write_text(format_known_hosts())
    options = ["-o", f"UserKnownHostsFile={tmp_path / 'known_hosts'}", "-o", "BatchMode=yes"]
    return ["ssh", "-i", str(KEYS / "client"), *options]


def run_as_milo(ssh: list[str], node: LabNode, command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ssh, f"{USER}@{node.address}", command], capture_output=True, text=True, timeout=30, env=CLEAN_ENV
    )


def test_milo_may_use_docker_and_one_line_of_sudo(ssh: list[str], spark1: LabNode, spark2: LabNode) -> None:
    for node in (spark1, spark2):
        assert run_as_milo(ssh, node, "docker images -q").stdout.strip()
        assert run_as_milo(ssh, node, "echo 3 | sudo -n /usr/bin/tee /proc/sys/vm/drop_caches").stdout == "3\n"
        refused = run_as_milo(ssh, node, "echo 3 | sudo -n /usr/bin/tee /proc/sys/vm/overcommit_memory")
        assert (refused.returncode, "password is required" in refused.stderr) == (1, True)


def test_gpus_are_accepted_on_spark1_and_refused_on_spark2(spark1: LabNode, spark2: LabNode) -> None:
    spark1.docker("run", "--rm", "--gpus", "all", IMAGE, "true")
    spark2.docker("run", "--name", "refused", "--gpus", "all", IMAGE, "true", check=False)
    state = json.loads(spark2.docker("inspect", "refused"))[0]["State"]
    assert state["Status"] == "created"  # Docker leaves the body behind
    assert "could not select device driver" in state["Error"]


def test_a_memory_limit_kills_for_real(spark1: LabNode) -> None:
    spark1.docker("run", "--name", "eater", "-m", "64m", "-e", "LAB_ALLOC_MB=200", IMAGE, check=False)
    assert spark1.docker("inspect", "-f", "{{.State.OOMKilled}} {{.State.ExitCode}}", "eater") == "true 137"


def test_limits_the_machine_cannot_grant_are_clamped(spark2: LabNode) -> None:
    spark2.docker("run", "--name", "locked", "--ulimit", "memlock=-1", IMAGE, "true")
    assert json.loads(spark2.docker("inspect", "locked"))[0]["HostConfig"]["Ulimits"][0]["Hard"] == -1


def test_the_nodes_see_each_other_over_lan_and_fabric_and_the_host_only_over_lan(
    spark1: LabNode, spark2: LabNode
) -> None:
    connect = "import socket,sys; socket.create_connection((sys.argv[1], 22), 2).close()"
    for address in ADDRESSES["spark2"]:
        spark1.sh("/usr/bin/python3", "-c", connect, address)
    assert spark2.ssh_answers()
    assert (
        BRIDGE
        not in subprocess.run(["ip", "route", "get", ADDRESSES["spark2"][1]], capture_output=True, text=True).stdout
    )


SGLANG = ("python", "-m", "sglang.launch_server", "--port", "8101", "--host", "0.0.0.0", "--dist-init-addr", "{}:25000")
VLLM = ("vllm", "serve", "/models/tiny", "--port", "8101", "--host", "0.0.0.0", "--master-addr", "{}")


def start_rank(node: LabNode, engine: tuple[str, ...], index: int, head: str, *more: str) -> None:
    """Start one of two ranks by hand, named after its index."""
    words = (word.format(head) for word in engine)
    place = ("--nnodes", "2", "--node-rank", str(index), *(("--headless",) if engine is VLLM and index else ()))
    node.docker("run", "-d", "--name", f"rank{index}", "--network", "host", *more, IMAGE, *words, *place)


def request_health(node: LabNode) -> int:
    try:
        with urllib.request.urlopen(f"http://{node.address}:8101/health", timeout=2) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def wait_for_end(node: LabNode, rank: str) -> tuple[int, str]:
    """Return a rank's exit code and log, once it has ended."""
    await_true(f"the end of {rank}", lambda: node.inspect_container(rank)["State"]["Status"] == "exited")
    code = int(node.inspect_container(rank)["State"]["ExitCode"])
    return code, node.read_container_log(rank)


@pytest.mark.parametrize("engine", [SGLANG, VLLM], ids=["sglang", "vllm"])
def test_two_ranks_are_ready_only_together_and_end_together(
    spark1: LabNode, spark2: LabNode, engine: tuple[str, ...]
) -> None:
    head = ADDRESSES["spark1"][1]
    start_rank(spark1, engine, 0, head)
    await_true("the head to wait", lambda: head in spark1.sh("ss", "-ltn"))
    assert request_health(spark1) in (0, 503)
    start_rank(spark2, engine, 1, head)
    await_true("the head to be ready", lambda: request_health(spark1) == 200)
    assert ADDRESSES["spark2"][1] in spark1.sh("ss", "-tnH", "state", "established"), "they talk over the second link"
    assert request_health(spark2) == (200 if engine is SGLANG else 0), (
        "SGLang's worker answers whoever asks, vLLM's nobody"
    )
    spark2.docker("kill", "rank1")
    code, log = wait_for_end(spark1, "rank0")
    assert f"Connection closed by peer [{ADDRESSES['spark2'][1]}]" in log
    assert code == (137 if engine is SGLANG else 0), "a serving vLLM ends with code 0"


def test_a_cut_cable_is_silence_and_a_short_one_nothing(spark1: LabNode, spark2: LabNode, faults: Faults) -> None:
    head = ADDRESSES["spark1"][1]
    for index, node in enumerate((spark1, spark2)):
        start_rank(node, VLLM, index, head, "-e", "LAB_LOAD_S=60", "-e", "LAB_SILENCE_S=2.5")
    await_true("both to load", lambda: "Starting to load" in spark2.read_container_log("rank1"))
    faults.cut_fabric(spark2)
    time.sleep(0.5)
    faults.mend_fabric(spark2)
    time.sleep(2.5)
    assert spark1.docker("inspect", "-f", "{{.State.Status}}", "rank0") == "running"
    faults.cut_fabric(spark2)
    for node, rank in ((spark1, "rank0"), (spark2, "rank1")):
        assert "Watchdog caught collective operation timeout: WorkNCCL(" in wait_for_end(node, rank)[1]


def test_a_rank_without_the_others_gives_up_in_the_words_of_torch(spark1: LabNode, spark2: LabNode) -> None:
    head = ADDRESSES["spark1"][1]
    start_rank(spark1, SGLANG, 0, head, "-e", "LAB_JOIN_S=1")
    assert "Timed out after 1 seconds waiting for clients. 1/2 clients joined." in wait_for_end(spark1, "rank0")[1]
    start_rank(spark2, VLLM, 1, head, "-e", "LAB_JOIN_S=1")
    assert f"while trying to connect to ({head}, 29501)" in wait_for_end(spark2, "rank1")[1]


def test_both_nodes_have_the_same_image_until_one_has_another(spark1: LabNode, spark2: LabNode, faults: Faults) -> None:
    def image(node: LabNode) -> str:
        return node.docker("images", "-q", "--no-trunc", IMAGE)

    assert image(spark1) == image(spark2)
    faults.another_image(spark2, IMAGE)
    assert image(spark1) != image(spark2)
    faults.undo()
    assert image(spark1) == image(spark2)


def test_faults_break_and_mend(spark1: LabNode, faults: Faults) -> None:
    faults.kill_sshd(spark1)
    assert not spark1.ssh_answers()
    faults.undo()
    assert spark1.ssh_answers()
    faults.unplug(spark1)
    assert not spark1.ssh_answers()
    faults.undo()
    await_true("the link", spark1.ssh_answers)
    faults.kill_docker(spark1)
    assert not spark1.docker_answers()
    faults.undo()
    assert spark1.docker_answers()


def test_a_full_disk_is_full_and_gets_room_again(spark2: LabNode, faults: Faults) -> None:
    write = ("dd", "if=/dev/zero", "of=/var/lib/docker/filler", "bs=64k", "count=16")
    faults.fill_disk(spark2)
    spark2.sh(*write, check=False)
    assert int(spark2.sh("stat", "-c", "%s", "/var/lib/docker/filler")) < 16 * 65536
    spark2.sh("rm", "/var/lib/docker/filler")
    faults.undo()
    spark2.sh(*write)
    spark2.sh("rm", "/var/lib/docker/filler")


def test_live_restore_keeps_a_container_over_a_restart(spark1: LabNode, faults: Faults) -> None:
    faults.live_restore(spark1)
    spark1.docker("run", "-d", "--name", "survivor", "--network", "host", "-e", "LAB_END=hang", IMAGE)
    faults.stop_docker(spark1)
    faults.start_docker(spark1)
    assert spark1.docker("inspect", "-f", "{{.State.Status}}", "survivor") == "running"


def test_in_ci_a_lab_that_cannot_run_fails_instead_of_skipping(tmp_path: Path) -> None:
    """A pytest that finds no dockerd: skipped with the reason here, an error in CI."""
    hide = "mount --bind /dev/null $(command -v dockerd) && exec"
    words = f"{sys.executable} -m pytest -q -p no:cacheprovider tests/lab/test_lab_itself.py -k memory_limit"
    base = {key: value for key, value in os.environ.items() if key != "CI"}
    base["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # their imports are most of what it takes

    def outcome(**env: str) -> tuple[int, str]:
        command = ["unshare", "--mount", "sh", "-c", f"{hide} {words}"]
        done = subprocess.run(command, capture_output=True, text=True, env=base | env, cwd=ROOT)
        return done.returncode, done.stdout + done.stderr

    code, text = outcome()
    assert (code, "the lab needs dockerd" in text, "1 skipped" in text) == (0, True, True), text
    code, text = outcome(CI="true")
    assert (code, "the lab cannot run: the lab needs dockerd" in text, "skipped" in text) == (1, True, False), text


def test_an_interrupted_run_is_recovered_and_down_leaves_nothing(lab: Lab) -> None:
    """Takes the lab down and brings it up again for whoever comes next."""
    try:
        for node in lab.nodes.values():
            if pid := node.pid1:
                os.kill(pid, signal.SIGKILL)
                await_true(f"the first process of {node.name} to end", lambda node=node: node.pid1 is None, 30.0)
        lab.up()
        assert all(node.answers() for node in lab.nodes.values())
        lab.down()
        assert lab.remains() == []
    finally:
        lab.up()
