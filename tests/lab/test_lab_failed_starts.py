"""Starts that fail for real: the exit code, the cause, its evidence, and a log that is kept."""

from __future__ import annotations

import time

import pytest

from tests.lab.bed.node import LabNode
from tests.lab.support.command_outcomes import (
    LOADING,
    assert_ended,
    get_verdict,
    list_own_containers,
    parse_numbers,
    read_saved_log,
)
from tests.lab.support.sparkctl_process import Sparkctl


def test_killed_by_its_memory_limit_while_loading(spark1: LabNode, sparkctl: Sparkctl) -> None:
    options = {"gpus": "none", "network": "host", "options": {"memory": "96m"}}
    profile = sparkctl.profile(container=options, env={"LAB_ALLOC_MB": "400", "LAB_LOAD_S": "2"})
    ran = sparkctl("up", profile, "--node", "spark1", "--json")
    assert_ended(ran, 1, "failed")
    found = get_verdict(ran)
    assert found["cause"] == "host-oom-kill"
    assert "96m" in found["summary"]
    assert any("OOMKilled=true" in evidence["text"] for evidence in found["evidence"])
    assert spark1.inspect_container(list_own_containers(spark1)[0])["State"]["OOMKilled"] is True  # kept, with its log
    assert "Load weight begin" in read_saved_log(sparkctl)


def test_cuda_out_of_memory_names_the_line(spark1: LabNode, sparkctl: Sparkctl) -> None:
    ran = sparkctl("up", sparkctl.profile(env={"LAB_END": "cuda-oom"}), "--node", "spark1", "--json")
    assert_ended(ran, 1, "failed")
    found = get_verdict(ran)
    assert found["cause"] == "cuda-out-of-memory"
    lines = [evidence["text"] for evidence in found["evidence"] if evidence["origin"] == "log"]
    assert lines[0].startswith("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"), found
    assert "torch.OutOfMemoryError" in read_saved_log(sparkctl)
    shown = sparkctl("up", "tiny", "--node", "spark1")
    assert shown.code == 1, shown
    assert "CUDA out of memory" in shown.err


def test_the_last_error_line_is_the_evidence_of_a_crash(spark1: LabNode, sparkctl: Sparkctl) -> None:
    profile = sparkctl.profile(env={"LAB_END": "exit:3", "LAB_SAY": "ValueError: the lab has no such weights"})
    ran = sparkctl("up", profile, "--node", "spark1", "--json")
    assert_ended(ran, 1, "failed")
    assert any("exit code 3" in evidence["text"] for evidence in get_verdict(ran)["evidence"]), ran


def test_a_hang_times_out_with_its_phase(spark1: LabNode, sparkctl: Sparkctl) -> None:
    start = {"drop_caches": False, "timeouts": {"loading": 3}}
    profile = sparkctl.profile(env={"LAB_END": "hang", "LAB_LINES": "5"}, start=start)
    ran = sparkctl("up", profile, "--node", "spark1", "--json")
    assert_ended(ran, 4, "timed-out")
    found = get_verdict(ran)
    assert found["cause"] == "timed-out"
    assert "loading" in found["summary"]
    assert (
        spark1.inspect_container(list_own_containers(spark1)[0])["State"]["Status"] == "running"
    )  # watching ends, the engine does not
    assert parse_numbers(sparkctl("logs", profile, "--node", "spark1").out) == [1, 2, 3, 4, 5]


def test_the_whole_start_has_a_time_of_its_own(spark1: LabNode, sparkctl: Sparkctl) -> None:
    ran = sparkctl("up", sparkctl.profile(env={"LAB_END": "hang"}), "--node", "spark1", "--timeout", "8s", "--json")
    assert_ended(ran, 4, "timed-out")
    assert "loading" in get_verdict(ran)["summary"]


def test_a_start_after_a_failed_one_keeps_the_old_log(spark1: LabNode, sparkctl: Sparkctl) -> None:
    profile = sparkctl.profile(env={"LAB_END": "exit:3", "LAB_LINES": "3"})
    assert_ended(sparkctl("up", profile, "--node", "spark1", "--json"), 1, "failed")
    failed = {path for path in sparkctl.saved() if path.suffix == ".log"}
    sparkctl.profile(env={"LAB_LINES": "3"})
    assert_ended(sparkctl("up", profile, "--node", "spark1", "--json"), 0, "ready")
    assert len(list_own_containers(spark1)) == 1
    kept = [path for path in sparkctl.saved() if path.suffix == ".log"]
    assert len(kept) == 2
    assert failed <= set(kept)


def test_a_container_removed_by_somebody_else_is_said_so(spark1: LabNode, sparkctl: Sparkctl) -> None:
    watching = sparkctl.start("up", sparkctl.profile(env={"LAB_END": "hang"}), "--node", "spark1", "--json")
    watching.await_text(r'"phase": ?"loading"')
    spark1.docker("rm", "-f", list_own_containers(spark1)[0])
    ended = watching.end()
    assert_ended(ended, 1, "failed")
    assert get_verdict(ended)["cause"] in ("stopped-by-others", "killed")


@pytest.mark.parametrize(
    ("how", "cause", "said"),
    [
        ("kill", "stopped-by-others", "asked to send it SIGKILL"),
        ("stop", "stopped-by-others", "asked to send it SIGTERM"),
        ("kill -9", "killed", "nobody asked Docker to end it"),
    ],
)
def test_who_ended_it_is_told_by_dockers_own_events(
    spark1: LabNode, sparkctl: Sparkctl, how: str, cause: str, said: str
) -> None:
    watching = sparkctl.start("up", sparkctl.profile(env={"LAB_END": "hang"}), "--node", "spark1", "--json")
    watching.await_text(LOADING)
    container = list_own_containers(spark1)[0]
    if how == "kill -9":
        spark1.sh("kill", "-9", str(spark1.inspect_container(container)["State"]["Pid"]))
    else:
        spark1.docker(how, *(("-t", "1") if how == "stop" else ()), container)
    ended = watching.end()
    assert_ended(ended, 1, "failed")
    found = get_verdict(ended)
    assert found["cause"] == cause, found
    assert any(said in one["text"] for one in found["evidence"] if one["origin"] == "docker"), found
    again = sparkctl("diagnose", "tiny", "--node", "spark1", "--json")
    assert f'"{cause}"' in again.out, again


def test_what_stood_before_an_unclean_end_of_the_last_boot_is_told(spark1: LabNode, sparkctl: Sparkctl) -> None:
    """A lab node has no journal: a journalctl of its own prints what one would hold."""
    began = time.time() - time.monotonic() - 600
    last = f"{began:.6f} kernel: NVRM: Xid (PCI:000f:01:00): 79, GPU has fallen off the bus.\n{began + 1:.6f} dockerd[911]: x"
    spark1.put(
        "/usr/local/bin/journalctl",
        f"#!/bin/sh\ncase \"$*\" in\n*'-b -1'*) echo '{last}' ;;\n*) echo '[    1.000000] kernel: Linux' ;;\nesac\n",
    )
    spark1.sh("chmod", "755", "/usr/local/bin/journalctl")
    spark1.sh("sh", "-c", "mkdir -p /run/log/journal/lab && : >/run/log/journal/lab/system.journal")
    try:
        told = sparkctl("doctor", "--node", "spark1").out
        spark1.sh("chmod", "600", "/run/log/journal/lab/system.journal")
        barred = sparkctl("doctor", "--node", "spark1").out
    finally:
        spark1.sh("rm", "-r", "/usr/local/bin/journalctl", "/run/log/journal/lab")
    assert "the previous boot ended without a shutdown" in told, told
    assert "before that Xid 79" in told
    assert "it was restarted since; if it happens again" in told
    assert "last-boot" not in barred
    assert "usermod -aG adm" in barred


def test_the_kernel_says_who_was_killed_and_where_it_may_not_be_asked_that_is_said(
    spark1: LabNode, sparkctl: Sparkctl
) -> None:
    """A lab node has no /dev/kmsg: what the kernel would log lies in a file in its place."""
    watching = sparkctl.start("up", sparkctl.profile(env={"LAB_END": "hang"}), "--node", "spark1", "--json")
    watching.await_text(LOADING)
    container = list_own_containers(spark1)[0]
    state = spark1.inspect_container(container)
    whole, pid = state["Id"], state["State"]["Pid"]
    now = int(time.monotonic() * 1e6)
    lines = (
        f"oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
        f"task_memcg=/system.slice/docker-{whole}.scope,task=python,pid={pid},uid=0",
        f"Out of memory: Killed process {pid} (python) total-vm:158493688kB, anon-rss:1000kB, file-rss:0kB",
    )
    spark1.put("/dev/kmsg", "".join(f"3,{7 + number},{now},-;{line}\n" for number, line in enumerate(lines)))
    try:
        spark1.sh("kill", "-9", str(pid))
        ended = watching.end()
        assert_ended(ended, 1, "failed")
        found = get_verdict(ended)
        assert found["cause"] == "host-oom-kill", found
        assert found["evidence"][0] == {"text": lines[1], "origin": "kernel", "line": None}
        assert '"host-oom-kill"' in sparkctl("diagnose", "tiny", "--node", "spark1", "--json").out
        assert "OOM killer ended python" in sparkctl("status", "--node", "spark1").out
        doctor = sparkctl("doctor", "--node", "spark1", "--json")
        assert "OOM killer ended python" in doctor.out, doctor
    finally:
        spark1.sh("rm", "/dev/kmsg")
    unread = sparkctl("diagnose", "tiny", "--node", "spark1", "--json")
    assert '"killed"' in unread.out, unread
    assert "what the kernel did is not known" in unread.out, unread
