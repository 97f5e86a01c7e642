"""Starts that cannot be watched, that somebody pauses, whose log nobody can read, whose guard hangs; and stops that do not end."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import pytest

from tests.lab.bed.faults import Faults
from tests.lab.bed.lab import Lab
from tests.lab.bed.names import JOURNAL
from tests.lab.bed.node import LabNode
from tests.lab.support.command_outcomes import (
    LOADING,
    assert_ended,
    get_verdict,
    list_containers,
    list_own_containers,
)
from tests.lab.support.sparkctl_process import Ran, Sparkctl

GUARD = "sparkctl-guard"
OTHER = {"path": "/models/other", "served_name": "other"}


@pytest.fixture(autouse=True)
def _no_guard_left(clean_nodes: Lab) -> Iterator[None]:
    yield
    for node in clean_nodes.nodes.values():
        node.signal(signal.SIGKILL, GUARD)
        node.sh("sh", "-c", "rm -rf /tmp/sparkctl-guard-*")


def join_warnings(ran: Ran) -> str:
    return "\n".join(event["message"] for event in ran.events if event["event"] == "warning")


@pytest.mark.parametrize(("name", "value"), [("AllowTcpForwarding", "no"), ("PermitOpen", "127.0.0.1:9999")])
def test_without_a_way_to_the_port_nothing_is_made_and_what_serves_goes_on(
    spark1: LabNode, sparkctl: Sparkctl, faults: Faults, name: str, value: str
) -> None:
    sparkctl.profile("other", model=OTHER)
    assert_ended(sparkctl("up", sparkctl.profile(), "--node", "spark1", "--json"), 0, "ready")
    before = spark1.inspect_container(list_own_containers(spark1)[0])
    faults.sshd_option(spark1, name, value)
    ran = sparkctl("switch", "other", "--node", "spark1", "--json")
    assert_ended(ran, 6, "refused")
    assert "does not forward TCP connections to 127.0.0.1:8101" in ran.result["message"]
    assert "AllowTcpForwarding yes" in ran.result["hint"]
    after = spark1.inspect_container(list_own_containers(spark1)[0])
    assert (after["Id"], after["State"]["StartedAt"]) == (before["Id"], before["State"]["StartedAt"])
    assert spark1.sh("ls", JOURNAL, check=False) == ""
    ran = sparkctl("up", "tiny", "--node", "spark1", "--json")
    assert_ended(ran, 0, "ready")
    assert "already runs" in ran.result["message"], "what serves is asked in a session"
    assert '"phase":"ready"' in sparkctl("status", "--node", "spark1", "--json").out
    assert_ended(sparkctl("down", "tiny", "--node", "spark1", "--json"), 0, "done")
    assert_ended(sparkctl("up", "tiny", "--node", "spark1", "--json"), 6, "refused")
    assert list_containers(spark1) == []


def test_abort_brings_back_what_serves_though_its_port_cannot_be_forwarded(
    spark1: LabNode, sparkctl: Sparkctl, faults: Faults
) -> None:
    sparkctl.profile("other", model=OTHER, env={"LAB_END": "hang"})
    assert_ended(sparkctl("up", sparkctl.profile(), "--node", "spark1", "--json"), 0, "ready")
    running = sparkctl.start("switch", "other", "--node", "spark1", "--json")
    running.await_text(r'"instance": ?"other", "phase": ?"loading"|' + LOADING)
    running.kill()
    faults.sshd_option(spark1, "AllowTcpForwarding", "no")
    faults.kill_sessions(spark1)
    assert_ended(sparkctl("abort", "--node", "spark1", "--json"), 0, "done")
    assert list_containers(spark1) == ["sglang-tiny"]
    assert spark1.sh("ls", JOURNAL, check=False) == ""


def test_a_stop_that_waited_does_not_stop_what_was_asked_for_later(
    spark1: LabNode, sparkctl: Sparkctl, faults: Faults
) -> None:
    sparkctl.profile("other", model=OTHER, port=8102)
    assert_ended(sparkctl("up", sparkctl.profile(), "--node", "spark1", "--json"), 0, "ready")
    spark1.signal(signal.SIGSTOP, "dockerd")
    try:
        ran = sparkctl("down", "tiny", "--node", "spark1", "--json")
    finally:
        spark1.signal(signal.SIGCONT, "dockerd")
    assert_ended(ran, 3, "unreachable")
    assert "is stopped at the next contact" in join_warnings(ran)
    ran = sparkctl("up", "tiny", "--node", "spark1", "--json")
    assert_ended(ran, 0, "ready")
    assert "a new start was asked for" in join_warnings(ran)
    assert_ended(sparkctl("up", "other", "--node", "spark1", "--json"), 0, "ready")
    assert list_own_containers(spark1) == ["sglang-other", "sglang-tiny"]
    assert spark1.inspect_container("sglang-tiny")["State"]["Status"] == "running"


def test_a_paused_container_is_named_everywhere_and_can_be_stopped(spark1: LabNode, sparkctl: Sparkctl) -> None:
    start = {"drop_caches": False, "timeouts": {"loading": 12}}
    sparkctl.profile(env={"LAB_LOAD_S": "8"}, start=start)
    running = sparkctl.start("up", "tiny", "--node", "spark1", "--json")
    running.await_text(LOADING)
    spark1.docker("pause", "sglang-tiny")
    running.await_text("tiny is paused")  # at once, not when time is over
    assert "paused (docker pause)" in sparkctl("status", "--node", "spark1").out
    shown = sparkctl("diagnose", "tiny", "--node", "spark1")
    assert "is paused" in shown.out + shown.err, shown
    again = sparkctl("up", "tiny", "--node", "spark1", "--json")
    assert again.code == 6
    ran = running.end()
    assert_ended(ran, 4, "timed-out")
    assert "tiny is paused on spark1" in get_verdict(ran)["summary"]
    assert "docker unpause sglang-tiny" in get_verdict(ran)["remedy"]
    ran = sparkctl("up", "tiny", "--node", "spark1", "--json")
    assert_ended(ran, 6, "refused")
    assert "docker unpause sglang-tiny" in ran.result["hint"]
    assert_ended(sparkctl("down", "tiny", "--node", "spark1", "--grace=1s", "--json"), 0, "done")
    assert list_containers(spark1) == []


def test_a_switch_takes_a_paused_model_away(spark1: LabNode, sparkctl: Sparkctl) -> None:
    sparkctl.profile("other", model=OTHER)
    assert_ended(sparkctl("up", sparkctl.profile(), "--node", "spark1", "--json"), 0, "ready")
    spark1.docker("pause", "sglang-tiny")
    assert_ended(sparkctl("switch", "other", "--node", "spark1", "--json"), 0, "ready")
    assert list_containers(spark1) == ["sglang-other"]


NO_LOG = {"gpus": "none", "network": "host", "options": {"log-driver": "none"}}


def test_a_start_without_a_log_is_judged_by_its_answers(spark1: LabNode, sparkctl: Sparkctl) -> None:
    ran = sparkctl("up", sparkctl.profile(container=NO_LOG), "--node", "spark1", "--json")
    assert_ended(ran, 0, "ready")
    assert "cannot read the log" in join_warnings(ran)
    ran = sparkctl("logs", "tiny", "--node", "spark1")
    assert ran.code == 1
    assert "does not support reading" in ran.err
    assert "log-driver: json-file" in ran.err
    assert "ready" in sparkctl("status", "--node", "spark1").out
    assert_ended(sparkctl("down", "tiny", "--node", "spark1", "--json"), 0, "done")


def test_one_that_fails_without_a_log_is_judged_by_its_exit_code(spark1: LabNode, sparkctl: Sparkctl) -> None:
    ran = sparkctl("up", sparkctl.profile(container=NO_LOG, env={"LAB_END": "exit:3"}), "--node", "spark1", "--json")
    assert_ended(ran, 1, "failed")
    assert "exit code 3" in get_verdict(ran)["summary"]
    assert "log-driver" in get_verdict(ran)["remedy"]
    ran = sparkctl("diagnose", "tiny", "--node", "spark1")
    assert "exit code 3" in ran.out + ran.err, ran


def test_a_guard_that_is_stopped_is_said_while_it_loads(spark1: LabNode, sparkctl: Sparkctl) -> None:
    sparkctl.profile(env={"LAB_LOAD_S": "14"})
    running = sparkctl.start("up", "tiny", "--node", "spark1", "--json")
    running.await_text(LOADING)
    spark1.signal(signal.SIGSTOP, GUARD)
    running.await_text("the guard on spark1 did not answer within 4 s", timeout=12)
    ran = sparkctl("guard", "status", "--node", "spark1")
    assert ran.code == 3, ran
    assert "a guard runs, but does not answer" in ran.out
    assert "no guard runs" not in ran.out
    ran = running.end()
    assert_ended(ran, 0, "ready")
    assert ran.result["guard"] == "partly"
    spark1.signal(signal.SIGKILL, GUARD)
    ran = sparkctl("guard", "status", "--node", "spark1", "--json")
    assert ran.code == 0
    assert json.loads(ran.out)["nodes"][0]["answer"] == "none"


def test_a_guard_that_is_killed_is_replaced_and_said(spark1: LabNode, sparkctl: Sparkctl) -> None:
    sparkctl.profile(env={"LAB_LOAD_S": "6"})
    running = sparkctl.start("up", "tiny", "--node", "spark1", "--json")
    running.await_text(LOADING)
    spark1.signal(signal.SIGKILL, GUARD)
    running.await_text("had ended; a new one watches now", timeout=5)
    ran = running.end()
    assert_ended(ran, 0, "ready")
    assert ran.result["guard"] == "partly"


def test_under_a_forced_command_no_guard_is_called_absent(spark1: LabNode, sparkctl: Sparkctl, faults: Faults) -> None:
    faults.sshd_option(spark1, "ForceCommand", "echo this account is for backups only")
    ran = sparkctl("guard", "status", "--node", "spark1")
    assert ran.code == 3, ran
    assert "no guard runs" not in ran.out
    assert "did not run our command" in ran.out


def test_a_container_that_does_not_end_is_called_so(spark1: LabNode, sparkctl: Sparkctl, faults: Faults) -> None:
    assert_ended(sparkctl("up", sparkctl.profile(), "--node", "spark1", "--json"), 0, "ready")
    faults.freeze_shims(spark1)
    ran = sparkctl("down", "tiny", "--node", "spark1", "--grace=1s", "--json")
    assert_ended(ran, 5, "unhealthy")
    assert "could not end the container" in ran.result["message"]
    assert "state D" in ran.result["hint"]
    faults.undo()
    assert_ended(sparkctl("down", "tiny", "--node", "spark1", "--grace=1s", "--json"), 0, "done")
    assert list_containers(spark1) == []
