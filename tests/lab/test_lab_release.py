"""What a stop has to prove, on real parts: shared memory that a killed engine leaves, and a process that nobody looks after."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.bed.node import LabNode
from tests.lab.support.command_outcomes import assert_ended, list_containers, list_own_containers
from tests.lab.support.sparkctl_process import Ran, Sparkctl

OLDER, LEFT = "/dev/shm/psm_lab_older", "/dev/shm/psm_lab_left"
SIZE = 24 << 20
SHARE = f"""
import mmap, os, time
file = os.open("{LEFT}", os.O_RDWR | os.O_CREAT, 0o600)
os.truncate(file, {SIZE})
shared = mmap.mmap(file, {SIZE})
shared.write(b"x" * {SIZE})
os.close(file)
time.sleep(600)
"""


@pytest.fixture
def clean(spark1: LabNode) -> Iterator[LabNode]:
    """spark1 with an older file in /dev/shm, and nothing of this test afterwards."""
    spark1.sh("sh", "-c", f"head -c {SIZE} /dev/zero > {OLDER}")
    yield spark1
    spark1.sh("rm", "-f", OLDER, LEFT)
    spark1.put("/run/lab/gpu-processes", "")
    spark1.signal(9, "VLLM::EngineCore")


def get_release(ran: Ran) -> dict[str, Any]:
    (one,) = [event for event in ran.events if event["event"] == "released"]
    return one


def join_warnings(ran: Ran) -> str:
    return "\n".join(f"{event['message']} | {event['hint']}" for event in ran.events if event["event"] == "warning")


def add_shared_memory(node: LabNode) -> None:
    """Let the engine's container have a process with shared memory, and wait until it has it whole."""
    node.docker("exec", "-d", list_own_containers(node)[0], "python3", "-c", SHARE)
    node.sh(
        "sh",
        "-c",
        f"for i in $(seq 200); do [ $(stat -c %b {LEFT} || echo 0) -ge {SIZE // 512} ] && exit; sleep 0.1; done",
    )


def list_shm_files(node: LabNode) -> list[str]:
    return sorted(node.sh("sh", "-c", "ls /dev/shm/psm_lab* 2>/dev/null", check=False).split())


@pytest.mark.parametrize("user", ["0:0", "1000:1000"], ids=["as root", "as the user"])
def test_what_a_killed_engine_shared_goes_where_it_was_seen_to_be_its_and_is_named_else(
    clean: LabNode, sparkctl: Sparkctl, user: str
) -> None:
    host = {"gpus": "none", "network": "host", "ipc": "host", "options": {"user": user}}
    profile = sparkctl.profile(container=host)
    assert_ended(sparkctl("up", profile, "--node", "spark1", "--json"), 0, "ready")
    add_shared_memory(clean)
    down = sparkctl("down", profile, "--node", "spark1", "--kill", "--json")
    assert list_containers(clean) == []
    if user == "1000:1000":
        assert_ended(down, 0, "done")
        assert get_release(down)["holders"] == []
        assert list_shm_files(clean) == [OLDER]
        return
    assert_ended(down, 5, "unhealthy")
    assert get_release(down)["holders"] == [["psm_lab_left in /dev/shm, not in use", SIZE]]
    assert list_shm_files(clean) == [LEFT, OLDER], "whose it is was not seen: milo may not read what root has mapped"
    assert f"on spark1: sudo rm -- {LEFT}" in join_warnings(down)


def test_an_engine_s_process_that_lost_its_parent_is_named_with_what_it_holds(
    clean: LabNode, sparkctl: Sparkctl
) -> None:
    profile = sparkctl.profile()
    assert_ended(sparkctl("up", profile, "--node", "spark1", "--json"), 0, "ready")
    lost = "(exec -a VLLM::EngineCore sleep 600) >/dev/null 2>&1 & echo $!"
    pid = int(clean.sh("bash", "-c", lost))
    clean.put("/run/lab/gpu-processes", f"{pid}, 11264\n")
    down = sparkctl("down", profile, "--node", "spark1", "--json")
    assert_ended(down, 5, "unhealthy")
    assert list_containers(clean) == []
    ((caller, memory),) = get_release(down)["holders"]
    assert caller == f"process {pid} (VLLM::EngineCore 600), which belongs to no container"
    assert 11 << 30 <= memory < 12 << 30
    assert f"on spark1: sudo kill {pid}" in join_warnings(down)
    assert clean.pids("VLLM::EngineCore"), "it was named, not killed"


def test_a_clean_stop_is_told_with_what_was_there_before(spark1: LabNode, sparkctl: Sparkctl) -> None:
    profile = sparkctl.profile()
    assert_ended(sparkctl("up", profile, "--node", "spark1", "--json"), 0, "ready")
    down = sparkctl("free", "spark1", "--json")
    assert_ended(down, 0, "done")
    one = get_release(down)
    assert (one["holders"], one["missing"]) == ([], 0)
    assert one["before_start"] > 1 << 30
    assert one["available"] > 1 << 30
    assert "available" in down.result["message"]
