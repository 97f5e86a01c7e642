"""What the guard does when memory falls: on a real process, a real socket to Docker and a /proc that falls."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from sparkctl.model.guard_state import GuardAction, GuardPermissions, GuardRole
from sparkctl.model.text.units import GIB, MIB
from sparkctl.node.guard.guard_memory import ContainerMemory, append_event
from sparkctl.node.guard.kill_requests import ReceiptStore
from tests.unit.node.guard.guard_process import FLOOR, LOADING, SERVING, THIRD, GuardedMachine, run_guard, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, which only Linux has")
HANGING = b"""
import time
class NVMLError(Exception): pass
def nvmlInit(): time.sleep(600)
"""
# What stands in for `sudo -n`: takes `/usr/bin/tee FILE`, says what was written where, and counts as the kernel does.
SUDO = """#!/bin/sh
while read -r word; do
  echo "$word $2" >> {log}
  [ "$2" = /proc/sys/vm/drop_caches ] && [ -n "{counts}" ] && echo "drop_pagecache 4" > {vmstat}
done
"""


def write_fake_sudo(place: Path, counts: bool = True) -> tuple[list[str], Path]:
    """Return the option for a sudo that works, and where it notes what was written."""
    script, log = place / "sudo", place / "written"
    script.write_text(SUDO.format(log=log, vmstat=place / "root/proc/vmstat", counts="yes" if counts else ""))
    log.touch()
    return ["--sudo", f"sh {script}"], log


def test_it_ends_the_instance_that_loads_once_and_leaves_a_receipt(tmp_path: Path) -> None:
    with run_guard(tmp_path) as machine:
        client = machine.client()
        client.watch(SERVING, "serving", instance="chat")
        client.watch(LOADING)
        time.sleep(0.3)
        crossed = machine.proc.set(0.4)
        killed_at, container = machine.killed()[0]
        assert container == LOADING
        assert 0 < killed_at - crossed < 1.0
        machine.proc.set(40.0)
        wait_until("the end of the watch", lambda: [one.instance for one in client.state().watches] == ["chat"])
        wait_until("the kill to be told", lambda: [event.what for event in client.events[-2:]] == ["killed", "ended"])
        killed = client.events[-2]
        assert (killed.instance, killed.container, killed.available) == ("qwen", LOADING, int(0.4 * GIB) >> 10 << 10)
        first = client.receipt()
        assert first is not None
        time.sleep(2.0)
        receipt = client.receipt(LOADING[:12])
        assert receipt is not None
        assert (receipt.did, receipt.answer, receipt.floor) == (GuardAction.KILLED, 204, FLOOR)
        assert receipt.role is GuardRole.LOADING
        assert (receipt.instance, receipt.profile, receipt.operator) == ("qwen", "qwen-fp8", "ann@laptop")
        assert receipt.reaction is not None
        assert 0 < receipt.reaction < 1.0
        assert receipt.samples[0].available == 60 * GIB, "from before"
        assert receipt.samples[-1].available == 40 * GIB, "until after"
        assert len(receipt.samples) > len(first.samples)
        assert {event.what for event in receipt.events} >= {"killed", "ended"}
        assert [one for _, one in machine.docker.kills()] == [LOADING]
        assert client.state().receipts == (LOADING[:12],)


REFUSED = "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned"


def test_refused_allocations_of_the_driver_act_near_the_floor_alone(tmp_path: Path) -> None:
    kmsg = tmp_path / "root/dev/kmsg"
    kmsg.parent.mkdir(parents=True)
    kmsg.write_text(f"3,1,100,-;{REFUSED}\n" * 5)

    with run_guard(tmp_path) as machine:
        client = machine.client()
        client.watch(SERVING, "serving", instance="chat")
        client.watch(LOADING)
        time.sleep(0.3)
        refuse(kmsg, 10)
        wait_until("the warning", lambda: [one.what for one in client.state().events] == ["warned"])
        (warned,) = client.state().events
        assert "driver was refused memory" in warned.why
        assert (warned.instance, [one.level for one in client.state().watches]) == (None, ["calm"] * 2)
        time.sleep(0.3)
        assert machine.docker.kills() == [], "there is memory enough: engines probe for it"
        machine.proc.set(0.9)
        machine.killed()
        receipt = wait_until("the receipt", lambda: client.receipt(LOADING[:12]))
        assert receipt.why.startswith("the GPU's driver was refused memory 3 times in 5 s (NV_ERR_NO_MEMORY)")


def test_refusals_end_no_other_one_while_memory_is_slow_to_come_back(tmp_path: Path) -> None:
    kmsg = tmp_path / "root/dev/kmsg"
    kmsg.parent.mkdir(parents=True)
    kmsg.touch()
    with run_guard(tmp_path) as machine:
        client = machine.client()
        client.watch(SERVING, "serving", instance="chat")
        client.watch(LOADING)
        time.sleep(0.3)
        machine.proc.set(0.9)
        refuse(kmsg, 10)
        machine.killed()
        time.sleep(1.5)
        refuse(kmsg, 20)
        time.sleep(1.5)
        assert [one for _, one in machine.docker.kills()] == [LOADING], "as low as before is not lower"
        machine.proc.set(0.7)
        assert [one for _, one in machine.killed(2)] == [LOADING, SERVING]


def refuse(kmsg: Path, first: int) -> None:
    with kmsg.open("a") as file:
        file.write("".join(f"3,{first + number},200,-;{REFUSED}\n" for number in range(3)))


def test_receipts_outlive_the_guard_until_they_are_collected(tmp_path: Path) -> None:
    with run_guard(tmp_path, options=["--linger", "0.2"]) as machine:
        client = machine.client()
        client.watch()
        machine.proc.set(0.2)
        machine.killed()
        machine.proc.set(60.0)
        client.close()
        wait_until("the guard to end", lambda: not machine.lives)
        old = tmp_path / "g/receipt-0123456789ab.json"
        old.write_text("{}")
        (tmp_path / "g/draft-0123456789ab").touch()
        os.utime(old, (1.0, 1.0))
        machine.options[-1] = "60"
        machine.start()
        client = machine.client()
        assert client.state().receipts == (LOADING[:12],), "a day is enough for one that nobody collects"
        assert not list((tmp_path / "g").glob("draft*"))
        receipt = client.receipt()
        assert receipt is not None
        assert receipt.answer == 204
        client.ask(do="forget", container=LOADING)
        assert client.state().receipts == ()
        assert client.receipt() is None


def test_memory_that_is_slow_to_come_back_ends_no_other_one_and_a_further_fall_does(tmp_path: Path) -> None:
    with run_guard(tmp_path) as machine:
        client = machine.client()
        client.watch(SERVING, "serving", instance="chat")
        client.watch(LOADING)
        machine.proc.set(0.2)
        machine.killed()
        time.sleep(3.5)
        assert [one for _, one in machine.docker.kills()] == [LOADING], "as low as before is not lower"
        for at in range(40):
            machine.proc.set(0.2 + at * 0.005 + at % 2 * 0.003)
            time.sleep(0.05)
        assert [one for _, one in machine.docker.kills()] == [LOADING]
        assert [one.instance for one in client.state().watches] == ["chat"]
        for at in range(10):
            machine.proc.set(0.3 - at * 0.02)
            time.sleep(0.05)
        assert [one for _, one in machine.killed(2)] == [LOADING, SERVING]
        assert wait_until("both receipts", lambda: len(client.state().receipts) == 2)


def test_after_it_has_come_back_the_floor_is_the_floor_again(tmp_path: Path) -> None:
    with run_guard(tmp_path) as machine:
        client = machine.client()
        client.watch(SERVING, "serving", instance="chat")
        client.watch(LOADING)
        machine.proc.set(0.1)
        machine.killed()
        machine.proc.set(20.0)
        time.sleep(0.7)
        machine.proc.set(0.45)
        assert [one for _, one in machine.killed(2)] == [LOADING, SERVING]


def test_an_end_that_takes_its_time_is_waited_for_and_nobody_else_is_ended(tmp_path: Path) -> None:
    with run_guard(tmp_path) as machine:
        client = machine.client()
        client.watch(SERVING, "serving", instance="chat")
        client.watch(LOADING)
        machine.docker.lasts = 5.0
        machine.proc.set(0.2)
        wait_until("the end", lambda: "ended" in client.happened())
        time.sleep(1.5)
        assert {one for _, one in machine.docker.kills()} == {LOADING}
        assert client.happened().count("killed") == 1
        assert client.happened().count("kill-failed") == 1, "that it takes long is told"
        assert client.receipt() is not None


def test_a_floor_that_is_crossed_from_the_beginning_ends_nothing_that_is_steady(tmp_path: Path) -> None:
    with run_guard(tmp_path) as machine:
        client = machine.client()
        machine.proc.set(20.0)
        client.watch(floor=32 * GIB)
        time.sleep(1.0)
        assert machine.docker.kills() == []
        (warned,) = client.state().events
        assert warned.why.startswith("20480 MiB are available, under the floor of 32768 MiB already")
        client.watch(floor=32 * GIB)  # said again as after a lost link
        machine.proc.set(17.0)
        assert [one for _, one in machine.killed()] == [LOADING]


def test_what_grew_on_the_gpu_is_ended_before_what_is_newer(tmp_path: Path) -> None:
    grows = b"""
import types
calls = [0]
class NVMLError(Exception): pass
def nvmlInit(): pass
def nvmlDeviceGetCount(): return 1
def nvmlDeviceGetHandleByIndex(i): return i
def nvmlDeviceGetComputeRunningProcesses(h):
    calls[0] += 1
    return [types.SimpleNamespace(pid=901, usedGpuMemory=calls[0] << 30), types.SimpleNamespace(pid=902, usedGpuMemory=9 << 30)]
NVML_CLOCK_SM = NVML_CLOCK_MEM = NVML_TEMPERATURE_GPU = 0
NVML_GPM_METRICS_GET_VERSION = NVML_GPM_METRIC_DRAM_BW_UTIL = 0
NVML_ERROR_GPU_IS_LOST = NVML_ERROR_UNINITIALIZED = NVML_ERROR_NOT_FOUND = 0
"""
    for pid, container in ((901, LOADING), (902, THIRD)):
        process = tmp_path / f"root/proc/{pid}"
        process.parent.mkdir(parents=True, exist_ok=True)
        process.mkdir()
        (process / "cgroup").write_text(f"0::/system.slice/docker-{container}.scope\n")
        (process / "stat").write_text(f"{pid} (python) S 1 " + "0 " * 40)
        (process / "status").write_text("RssAnon: 100 kB\n")
    with run_guard(tmp_path, nvml=grows) as machine:
        client = machine.client()
        client.watch(LOADING)
        client.watch(THIRD)
        time.sleep(3.5)
        machine.proc.set(0.3)
        assert machine.killed()[0][1] == LOADING


class CollectedEvents:
    """A part whose answers are given by hand."""

    def __init__(self) -> None:
        self.answer: dict[str, Any] = {}
        self.ended = False

    def send_request(self, now: float, words: list[int]) -> bool:
        return True


def test_growth_is_unknown_while_the_driver_is_silent_and_known_of_what_the_list_left_out(tmp_path: Path) -> None:
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/cgroup").write_text(f"0::/system.slice/docker-{LOADING}.scope\n")
    holdings = ContainerMemory(str(tmp_path), None)
    gpu, processes = CollectedEvents(), CollectedEvents()
    holdings.gpu, holdings.processes, holdings.parts = gpu, processes, [gpu, processes]  # type: ignore[assignment]
    small = [{"pid": pid, "container": SERVING, "resident": 1 << 30} for pid in range(100, 148)]
    for at in range(4):
        gpu.answer = {"gpus": [{"processes": [{"pid": 7, "memory": (10 + 10 * at) * GIB}]}]}
        processes.answer = {"processes": small}
        holdings.request_readings(time.monotonic())
    assert holdings.compute_growth(LOADING) == 30 * GIB
    assert holdings.compute_growth(SERVING) == 0
    for _ in range(6):
        processes.answer = {"processes": small}
        holdings.request_readings(time.monotonic())
    assert holdings.compute_growth(LOADING) == 30 * GIB, "an old answer is no new one"
    holdings.container_totals = deque((at - 20, total) for at, total in holdings.container_totals)
    assert holdings.compute_growth(LOADING) is None


def test_drops_push_no_end_out_of_what_is_told_and_files_look_used(tmp_path: Path) -> None:
    events: deque[dict[str, Any]] = deque([{"what": "killed"}], maxlen=5)
    for at in range(20):
        append_event(events, {"what": "dropped", "at": at})
    assert [event["what"] for event in events] == ["killed", *["dropped"] * 4]
    assert events[-1]["at"] == 19
    for name in ("guard.lock", "receipt-0123456789ab.json"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1.0, 1.0))
    ReceiptStore(str(tmp_path), None, None).refresh_mtime()  # type: ignore[arg-type]
    assert (tmp_path / "guard.lock").stat().st_mtime > 1.0
    assert (tmp_path / "receipt-0123456789ab.json").stat().st_mtime == 1.0


def test_no_alarm_at_one_gib_and_at_most_one_warning(tmp_path: Path) -> None:
    with run_guard(tmp_path) as machine:
        client = machine.client()
        client.watch()
        for at in range(160):
            machine.proc.set(max(1.0, 15 - at * 0.12) - (at % 7) * 0.004)
            time.sleep(0.015)
        for left in range(30):  # page cache takes the rest of what is free
            machine.proc.set(1.0, free=max(0.2, 1.0 - left / 10), cache=8.0)
            time.sleep(0.015)
        state = client.state()
        assert [event.what for event in state.events] == ["warned"]
        assert state.watches[0].level == "warned"
        assert machine.docker.kills() == []


def test_a_gpu_that_hangs_and_a_proc_that_cannot_be_read_delay_nothing(tmp_path: Path) -> None:
    with run_guard(tmp_path, nvml=HANGING) as machine:
        client = machine.client()
        client.watch()
        time.sleep(1.5)  # asked by now
        (tmp_path / "root/proc/meminfo").write_text("")
        time.sleep(0.3)
        assert machine.docker.kills() == [], "not known is not low"
        begun = machine.proc.set(0.3)
        assert machine.killed()[0][0] - begun < 1.0


@pytest.mark.parametrize("when", ["idle", "daemon restarted"])
def test_a_connection_to_docker_that_was_lost_is_had_again(when: str, tmp_path: Path) -> None:
    with run_guard(tmp_path) as machine:
        machine.client().watch()
        time.sleep(0.3)
        if when == "idle":
            machine.docker.drop_connections()
        else:
            machine.docker.stop()
            time.sleep(0.2)
            machine.docker.start()
        begun = machine.proc.set(0.3)
        assert machine.killed()[0][0] - begun < 1.0


def test_a_request_whose_connection_breaks_is_sent_once_more_and_then_tells(tmp_path: Path) -> None:
    with run_guard(tmp_path) as machine:
        client = machine.client()
        client.watch()
        machine.docker.cuts = 1
        machine.proc.set(0.3)
        assert [one for _, one in machine.killed(2)] == [LOADING, LOADING]
        machine.proc.set(60.0)
        wait_until("the end", lambda: "ended" in client.happened())
        assert "kill-failed" not in client.happened()
        client.watch(THIRD)
        machine.docker.cuts = 2
        time.sleep(3.1)
        machine.proc.set(0.3)
        wait_until("the failure", lambda: "kill-failed" in client.happened())
        assert [one for _, one in machine.docker.kills()[2:4]] == [THIRD, THIRD]


def test_what_had_ended_already_was_not_ended_by_the_guard(tmp_path: Path) -> None:
    with run_guard(tmp_path) as machine:
        client = machine.client()
        client.watch()
        time.sleep(0.2)
        machine.docker.refuses = 409
        machine.docker.states[LOADING] = {"Status": "exited", "Running": False, "ExitCode": 9}
        machine.proc.set(0.3)
        wait_until("the end", lambda: client.state().watches == ())
        assert client.happened() == ["warned", "ended"]
        assert client.state().events[-1].why == "the container ended with exit code 9"
        assert client.receipt() is None


def test_what_is_being_started_again_stays_watched(tmp_path: Path) -> None:
    with run_guard(tmp_path) as machine:
        client = machine.client()
        client.watch()
        time.sleep(0.2)
        machine.docker.refuses = 409
        machine.docker.states[LOADING] = {"Status": "restarting", "Running": True, "ExitCode": 9}
        machine.proc.set(0.3)
        machine.killed()
        time.sleep(1.0)
        assert len(client.state().watches) == 1
        machine.docker.refuses = None
        machine.docker.runs(LOADING)
        machine.killed(2)
        wait_until("the end", lambda: "killed" in client.happened())


@pytest.mark.parametrize("how", ["refuses", "hangs", "is away"])
def test_a_docker_that_does_not_end_it_is_told_and_asked_again(how: str, tmp_path: Path) -> None:
    with run_guard(tmp_path) as machine:
        client = machine.client()
        client.watch()
        time.sleep(0.2)
        if how == "refuses":
            machine.docker.refuses = 500
        elif how == "hangs":
            machine.docker.hangs = True
        else:
            machine.docker.stop()
        machine.proc.set(0.3)
        wait_until("the failure", lambda: "kill-failed" in client.happened())
        failed = next(event for event in client.state().events if event.what is GuardAction.KILL_FAILED)
        told = {
            "refuses": "Docker answered 500: cannot kill it",
            "hangs": "not answered for 3 s",
            "is away": "takes no",
        }
        assert told[how] in failed.why
        assert "under 512 MiB" in failed.why
        receipt = client.receipt()
        assert (receipt is None) is (how != "hangs"), "one that was sent and has no answer may have ended it"
        assert receipt is None or receipt.answer is None
        machine.docker.refuses, machine.docker.hangs = None, False
        if how == "is away":
            machine.docker.start()
        wait_until("the end", lambda: "ended" in client.happened())
        assert client.state().watches == ()
        wait_until("Docker's answer", lambda: (found := client.receipt()) is not None and found.answer == 204)


def test_page_cache_is_dropped_while_weights_load_and_only_then(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    options, log = write_fake_sudo(tmp_path)
    with run_guard(tmp_path, options=options) as machine:
        client = machine.client()
        assert client.watch().rights == GuardPermissions(True, True)
        machine.proc.set(40.0, free=3.0, cache=38.0)
        time.sleep(0.5)
        assert log.read_text() == "", "no lease, no drop"
        state = client.ask(do="phase", container=LOADING, weights=True)
        assert [watch.weights for watch in state.watches] == [True]  # type: ignore[union-attr]
        wait_until(
            "both writes", lambda: log.read_text() == "3 /proc/sys/vm/drop_caches\n1 /proc/sys/vm/compact_memory\n"
        )
        wait_until("the proof", lambda: client.happened() == ["dropped", "compacted"])
        client.ask(do="phase", container=LOADING, weights=False)
        time.sleep(0.5)
        assert client.state().watches[0].weights is False
        assert client.happened() == ["dropped", "compacted"]


def test_a_profile_that_turned_drops_off_has_none_near_the_floor_either(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    options, log = write_fake_sudo(tmp_path)
    with run_guard(tmp_path, options=options) as machine:
        client = machine.client()
        client.watch(cache_below=0)
        for available in (4.0, 2.0, 1.4, 1.1, 0.9):
            client.ask(do="phase", container=LOADING, weights=True)
            machine.proc.set(available, free=0.2, cache=available)
            time.sleep(1.2)
        wait_until("the warning", lambda: client.happened() == ["warned"])
        time.sleep(0.5)
        assert log.read_text() == ""


def test_a_drop_that_the_kernel_does_not_count_has_failed(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    options, log = write_fake_sudo(tmp_path, counts=False)
    with run_guard(tmp_path, options=options) as machine:
        client = machine.client()
        client.watch(cache_below=20 * GIB)
        machine.proc.set(40.0, free=19.0, cache=21.0)
        client.ask(do="phase", container=LOADING, weights=True)
        wait_until("the failure", lambda: client.happened() == ["drop-failed"])
        assert log.read_text() == "3 /proc/sys/vm/drop_caches\n", "and is not tried for ever"


def test_without_the_right_it_says_so_and_drops_nothing(tmp_path: Path) -> None:
    with run_guard(tmp_path) as machine:
        client = machine.client()
        assert client.state().rights == GuardPermissions(False, False)
        client.watch()
        machine.proc.set(40.0, free=3.0, cache=38.0)
        client.ask(do="phase", container=LOADING, weights=True)
        time.sleep(0.5)
        assert client.happened() == []


def test_a_receipt_is_never_half_a_file_and_is_ours_alone(tmp_path: Path) -> None:
    with run_guard(tmp_path) as machine:
        machine.client().watch()
        assert (tmp_path / f"g/draft-{LOADING[:12]}").stat().st_blocks * 512 >= 60_000, "its room is taken beforehand"
        machine.proc.set(0.3)
        path = tmp_path / f"g/receipt-{LOADING[:12]}.json"
        wait_until("the receipt", path.exists)
        for _ in range(200):
            assert json.loads(path.read_bytes())["container"] == LOADING
            time.sleep(0.01)
        assert path.stat().st_mode & 0o777 == 0o600


def test_its_own_size_is_small(tmp_path: Path) -> None:
    def resident(machine: GuardedMachine) -> int:
        return int(Path(f"/proc/{machine.said.pid}/status").read_text().split("VmRSS:")[1].split()[0]) << 10

    with run_guard(tmp_path) as machine:
        machine.client().watch()
        machine.proc.set(0.7)
        time.sleep(2.0)
        assert resident(machine) < 40 * MIB
