"""The guard on real parts: real memory taken by a real container, a real kill through Docker's socket, a real drop of a
real page cache; with the operator watching, and with nobody there at all."""

from __future__ import annotations

import json
import os
import signal
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.lab.bed.faults import Faults
from tests.lab.bed.lab import Lab
from tests.lab.bed.names import IMAGE
from tests.lab.bed.node import LabNode
from tests.lab.bed.shell import await_true
from tests.lab.support.clear_nodes import GUARD, end_guards
from tests.lab.support.command_outcomes import (
    LOADING,
    assert_ended,
    count_kernel_drops,
    get_verdict,
    list_own_containers,
)
from tests.lab.support.sparkctl_process import Ran, Sparkctl

GIB = 1 << 30
ROOM = int(1.5 * GIB)  # what may be taken before the floor is reached
TAKES = {"LAB_ALLOC_MB": "2100"}  # nine times an eighth of it: 2.3 GiB
pytestmark = pytest.mark.usefixtures("no_guard_left")


@pytest.fixture
def no_guard_left(clean_nodes: Lab) -> Iterator[None]:
    """No guard of an earlier test, and none after: they linger for a minute."""
    end_guards(clean_nodes)
    yield
    end_guards(clean_nodes)


def read_meminfo(name: str) -> int:
    """Return a line of the machine's memory in bytes: the lab's nodes share it."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    raise LookupError(name)


def build_floor_flags(room: int = ROOM) -> list[str]:
    """Return the words that put the floor so far under what is available now. A start then needs --force: SGLang's own share does not
    fit above such a floor."""
    if read_meminfo("MemAvailable") < room + 6 * GIB:
        pytest.skip("the machine has too little memory free to take some of it")
    return ["--set", f"start.guard.floor={read_meminfo('MemAvailable') - room}"]


def list_guard_events(ran: Ran, what: str) -> list[dict[str, Any]]:
    """Return the guard's events of one kind."""
    return [event for event in ran.events if event["event"] == "guard" and event["what"] == what]


def read_guard_status(sparkctl: Sparkctl, node: str = "spark1") -> dict[str, Any]:
    """Return what ``guard status`` says of a node."""
    ran = sparkctl("guard", "status", "--node", node, "--json")
    assert ran.code == 0, ran
    found: dict[str, Any] = json.loads(ran.out)["nodes"][0]
    return found


def read_container_status(node: LabNode, name: str) -> str:
    return str(node.inspect_container(name)["State"]["Status"])


def test_what_grows_past_the_floor_is_stopped_with_the_curve_as_proof(spark1: LabNode, sparkctl: Sparkctl) -> None:
    profile = sparkctl.profile(env={**TAKES, "LAB_LOAD_S": "3"})
    ran = sparkctl("up", profile, "--node", "spark1", "--force", "--json", *build_floor_flags())
    assert_ended(ran, 1, "failed")
    found = get_verdict(ran)
    assert found["cause"] == "guard-stopped"
    assert found["evidence"][0]["origin"] == "guard"
    assert found["evidence"][0]["text"].startswith("MemAvailable fell from "), found
    assert found["field"] == "start.guard.floor", "the lab sets it high"
    assert list_guard_events(ran, "warned"), ran
    (killed,) = list_guard_events(ran, "killed")
    assert killed["instance"] == "tiny"
    state = spark1.inspect_container(list_own_containers(spark1)[0])["State"]
    assert (state["Status"], state["ExitCode"], state["OOMKilled"]) == ("exited", 137, False)
    # kept beside the log, whole, for the operator alone
    receipt = Path(ran.result["log"]).with_suffix(".guard.json")
    assert stat.S_IMODE(receipt.stat().st_mode) == 0o600
    kept = json.loads(receipt.read_text())
    assert (kept["instance"], kept["operator"].split("@")[0], kept["answer"]) == ("tiny", "milo", 204)
    assert 0 <= kept["reaction"] < 0.2
    assert any(sample["at"] > kept["at"] for sample in kept["samples"])


def test_the_guard_acts_while_nobody_is_connected_and_the_next_one_is_told(
    spark1: LabNode, sparkctl: Sparkctl, faults: Faults
) -> None:
    profile = sparkctl.profile(env={**TAKES, "LAB_LOAD_S": "8"})
    watching = sparkctl.start("up", profile, "--node", "spark1", "--force", "--json", *build_floor_flags())
    watching.await_text(LOADING)
    faults.kill_sshd(spark1)
    watching.kill()  # the laptop has gone as well
    (name,) = list_own_containers(spark1)
    assert read_container_status(spark1, name) == "running"
    await_true("the guard to stop it", lambda: read_container_status(spark1, name) == "exited", 60.0)
    faults.start_sshd(spark1)
    shown = sparkctl("guard", "status", "--node", "spark1")
    assert "stopped tiny: MemAvailable fell from " in shown.out, shown
    assert "stopped by the guard" in sparkctl("status", "--node", "spark1").out
    assert "the guard stopped tiny" in sparkctl("logs", "tiny", "--node", "spark1").err
    assert [path.name for path in sparkctl.saved() if path.name.endswith(".guard.json")]
    # another laptop finds it, too
    other = Sparkctl(sparkctl.home.parent, "anna")
    again = other("up", other.profile(env={"LAB_LOAD_S": "0.2"}), "--node", "spark1", "--json")
    assert_ended(again, 0, "ready")
    warnings = [event["message"] for event in again.events if event["event"] == "warning"]
    assert any(text.startswith("the guard stopped tiny at ") for text in warnings), warnings


def test_the_guard_goes_on_through_a_broken_connection(spark1: LabNode, sparkctl: Sparkctl, faults: Faults) -> None:
    profile = sparkctl.profile(env={"LAB_LOAD_S": "5"})
    watching = sparkctl.start("up", profile, "--node", "spark1", "--json")
    watching.await_text(LOADING)
    faults.kill_sessions(spark1)
    ran = watching.end()
    assert_ended(ran, 0, "ready")
    assert not [e for e in ran.events if e["event"] == "warning" and "guard" in e["message"]], ran
    events = read_guard_status(sparkctl)["guard"]["events"]
    assert [event["why"] for event in events if event["what"] == "ended"] == ["ready"]


def test_a_guard_that_is_killed_is_replaced(spark1: LabNode, sparkctl: Sparkctl) -> None:
    watching = sparkctl.start("up", sparkctl.profile(env={"LAB_LOAD_S": "5"}), "--node", "spark1", "--json")
    watching.await_text(LOADING)
    spark1.signal(signal.SIGKILL, GUARD)
    watching.await_text("a new one watches now")
    ran = watching.end()
    assert_ended(ran, 0, "ready")
    assert [event["why"] for event in list_guard_events(ran, "ended")] in ([], ["ready"])
    assert [event["why"] for event in read_guard_status(sparkctl)["guard"]["events"]] == ["ready"]


def test_a_guard_that_is_stopped_costs_the_start_a_warning(spark1: LabNode, sparkctl: Sparkctl) -> None:
    profile = sparkctl.profile()
    assert_ended(sparkctl("up", profile, "--node", "spark1", "--json"), 0, "ready")
    sparkctl("down", profile, "--node", "spark1")
    spark1.signal(signal.SIGSTOP, GUARD)
    ran = sparkctl("up", profile, "--node", "spark1", "--json")
    assert_ended(ran, 0, "ready")
    (warning,) = [e["message"] for e in ran.events if e["event"] == "warning" and "guard" in e["message"]]
    assert "did not answer within 10 s" in warning


def test_at_ready_nothing_is_watched_any_more(spark1: LabNode, sparkctl: Sparkctl) -> None:
    ran = sparkctl("up", sparkctl.profile(), "--node", "spark1", "--json")
    assert_ended(ran, 0, "ready")
    found = read_guard_status(sparkctl)
    assert found["guard"]["watches"] == []
    assert [event["why"] for event in found["guard"]["events"]] == ["ready"]
    assert found["guard"]["docker"] is True
    assert found["guard"]["rights"]["drop"] is True


def test_a_detached_start_stays_guarded_until_it_is_ready(spark1: LabNode, sparkctl: Sparkctl) -> None:
    ran = sparkctl("up", sparkctl.profile(env={"LAB_LOAD_S": "3"}), "--node", "spark1", "--detach", "--json")
    assert_ended(ran, 0, "detached")
    found = read_guard_status(sparkctl)["guard"]
    assert [(watch["instance"], watch["role"]) for watch in found["watches"]] == [("tiny", "loading")]
    await_true(
        "the guard to see that it is ready", lambda: not read_guard_status(sparkctl)["guard"]["watches"], 30.0, 2.0
    )
    whys = [event["why"] for event in read_guard_status(sparkctl)["guard"]["events"]]
    assert whys == ["it is ready, and nobody is attached"]


def test_page_cache_is_really_dropped_while_weights_load(spark1: LabNode, sparkctl: Sparkctl, tmp_path: Path) -> None:
    start = {"drop_caches": False, "guard": {"cache_below": "1000g"}}  # whatever is free, it is too little
    profile = sparkctl.profile(
        start=start, env={"LAB_LOAD_S": "20"}
    )  # the guard takes seconds to come on a busy machine
    weights = tmp_path / "weights"
    with weights.open("wb") as file:
        for _ in range(1536):
            file.write(b"\1" * (1 << 20))
        file.flush()
        os.fsync(file.fileno())  # what is not written back cannot be dropped
    before, cached = count_kernel_drops(), read_meminfo("Cached")
    assert cached > GIB
    ran = sparkctl("up", profile, "--node", "spark1", "--json")
    assert_ended(ran, 0, "ready")
    (dropped, *_) = list_guard_events(ran, "dropped")
    assert count_kernel_drops() > before
    assert read_meminfo("Cached") < cached - GIB
    steps = [e["step"]["name"] for e in ran.events if e["event"] == "phase" and e["step"] and e["ts"] <= dropped["ts"]]
    assert steps[-1] == "weights"


def test_at_its_limit_the_guard_ends_and_the_start_does_not(spark1: LabNode, sparkctl: Sparkctl) -> None:
    start = {"drop_caches": False, "guard": {"limit": "2s"}}
    ran = sparkctl("up", sparkctl.profile(start=start, env={"LAB_LOAD_S": "5"}), "--node", "spark1", "--json")
    assert_ended(ran, 0, "ready")
    assert [event["why"] for event in list_guard_events(ran, "ended")] == ["its time limit of 2 s"]
    warnings = [event["message"] for event in ran.events if event["event"] == "warning"]
    assert any("no longer guarded" in text for text in warnings), ran


def test_a_node_that_forwards_no_sockets_starts_without_a_guard_and_says_why(
    spark1: LabNode, sparkctl: Sparkctl
) -> None:
    config = spark1.sh("cat", "/etc/ssh/sshd_config")
    listener = spark1.sh("cat", "/run/sshd.pid").strip()
    spark1.put("/etc/ssh/sshd_config", config.replace("StreamLocalForwarding yes", "StreamLocalForwarding no") + "\n")
    spark1.sh("kill", "-HUP", listener)
    try:
        await_true("sshd to be back", spark1.ssh_answers)
        ran = sparkctl("up", sparkctl.profile(), "--node", "spark1", "--json")
    finally:
        spark1.put("/etc/ssh/sshd_config", config + "\n")
        spark1.sh("kill", "-HUP", spark1.sh("cat", "/run/sshd.pid").strip())
        await_true("sshd to be back", spark1.ssh_answers)
    assert_ended(ran, 0, "ready")
    (warning,) = [e for e in ran.events if e["event"] == "warning" and "guard" in e["message"]]
    assert "AllowStreamLocalForwarding yes" in warning["hint"]


def test_a_third_start_is_asked_about(spark1: LabNode, sparkctl: Sparkctl) -> None:
    profile = sparkctl.profile(env={"LAB_END": "exit:3", "LAB_LOAD_S": "0.1"})
    for _ in range(2):
        assert_ended(sparkctl("up", profile, "--node", "spark1", "--json"), 1, "failed")
    refused = sparkctl("up", profile, "--node", "spark1", "--json")
    assert_ended(refused, 6, "refused")
    assert "--again" in refused.result["hint"]
    code, screen = sparkctl.on_terminal("up", profile, "--node", "spark1", answers={b"[y/N] ": b"n\n"})
    assert code == 6, screen
    assert b"failed on spark1 the last 2 times" in screen
    code, screen = sparkctl.on_terminal("up", profile, "--node", "spark1", answers={b"[y/N] ": b"y\n"})
    assert code == 1, screen
    sparkctl.profile()
    assert_ended(sparkctl("up", profile, "--node", "spark1", "--again", "--json"), 0, "ready")


@pytest.fixture
def machine(spark1: LabNode) -> Iterator[Machine]:
    """A node whose kernel's log and memory are files: a lab has no /dev/kmsg, and no GPU's driver."""
    spark1.put("/run/lab/meminfo", "")
    spark1.sh("mount", "--bind", "/run/lab/meminfo", "/proc/meminfo")
    written = Machine(spark1)
    written.set_available(100_000)
    written.log(REFUSED, REFUSED, REFUSED)
    spark1.sh("chmod", "644", "/dev/kmsg")
    yield written
    spark1.sh("umount", "-l", "/proc/meminfo")  # the guard keeps it open
    spark1.sh("rm", "/dev/kmsg")


REFUSED = (
    "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from "
    "_memdescAllocInternal(pMemDesc) @ mem_desc.c:1359"
)


@dataclass
class Machine:
    """What the files of the kernel of a node say."""

    node: LabNode
    sequence: int = 7

    def log(self, *texts: str) -> None:
        """Add lines to the kernel's log."""
        lines = [f"3,{self.sequence + at},{int(time.monotonic() * 1e6)},-;{text}\n" for at, text in enumerate(texts)]
        self.sequence += len(texts)
        self.node.sh("tee", "-a", "/dev/kmsg", stdin="".join(lines))

    def set_available(self, mebibytes: int) -> None:
        """Let so much memory be free, and available; written in place, because the guard keeps the file open."""
        fields = {"MemTotal": 124_546, "MemFree": mebibytes, "MemAvailable": mebibytes, "Cached": 0, "SwapFree": 0}
        self.node.put(
            "/run/lab/meminfo", "".join(f"{name + ':':16}{size << 10:12} kB\n" for name, size in fields.items())
        )


def test_a_driver_that_is_refused_memory_costs_one_instance_where_memory_is_short_too(
    spark1: LabNode, sparkctl: Sparkctl, machine: Machine
) -> None:
    assert_ended(sparkctl("up", sparkctl.profile("other", port=8102), "--node", "spark1", "--json"), 0, "ready")
    assert_ended(sparkctl("guard", "arm", "other", "--node", "spark1", "--json"), 0, "done")
    watching = sparkctl.start(
        "up", sparkctl.profile(env={"LAB_END": "hang"}), "--node", "spark1", "--json", "--timeout", "60s"
    )
    watching.await_text(LOADING)
    told = [one["what"] for one in read_guard_status(sparkctl)["guard"]["events"]]
    assert "warned" not in told, "what was logged before the guard came is no reason"
    machine.log(*[REFUSED] * 3)
    watching.await_text("97.7 GiB are available, so nothing is stopped")
    machine.set_available(900)
    time.sleep(1.0)
    machine.log(REFUSED, REFUSED)
    ran = watching.end()
    assert_ended(ran, 1, "failed")
    assert get_verdict(ran)["cause"] == "guard-stopped"
    assert "refused memory" in get_verdict(ran)["evidence"][1]["text"]
    assert [one["instance"] for one in list_guard_events(ran, "warned")].count(None) == 1, "not once for each watch"
    machine.log(REFUSED, REFUSED)
    time.sleep(2.0)
    assert read_container_status(spark1, "sglang-other") == "running", "memory comes back slowly"
    machine.set_available(100_000)
    assert "the GPU's driver was refused memory" in sparkctl("status", "--node", "spark1").out
    assert "The guard stopped tiny" in sparkctl("history").out


def test_what_is_armed_by_hand_is_stopped_and_what_does_not_grow_is_not(spark1: LabNode, sparkctl: Sparkctl) -> None:
    assert_ended(sparkctl("up", sparkctl.profile(), "--node", "spark1", "--json"), 0, "ready")
    room = build_floor_flags()[1].partition("=")[2]
    hog = (
        "import mmap,time;time.sleep(4);held=[]\n"
        "for _ in range(9):\n m=mmap.mmap(-1,256<<20);held.append(m)\n"
        " for at in range(0,256<<20,4096): m[at]=1\n time.sleep(0.3)\n"
        "time.sleep(60)"
    )
    spark1.docker("run", "-d", "--network", "host", "--name", "hog", "--entrypoint", "python3", IMAGE, "-c", hog)
    armed = sparkctl("guard", "arm", "tiny", "--foreign", "hog", "--floor", room, "--node", "spark1", "--json")
    assert_ended(armed, 0, "done")
    await_true("the guard to stop it", lambda: read_container_status(spark1, "hog") == "exited", 60.0)
    assert read_container_status(spark1, list_own_containers(spark1)[0]) == "running"
    found = read_guard_status(sparkctl)["guard"]
    assert [watch["instance"] for watch in found["watches"]] == ["tiny"]
    disarmed = sparkctl("guard", "disarm", "--node", "spark1", "--json")
    assert_ended(disarmed, 0, "done")
    assert read_guard_status(sparkctl)["guard"]["watches"] == []
    # a serving container that was stopped is no failed start
    assert_ended(sparkctl("up", "tiny", "--node", "spark1", "--json"), 0, "ready")
