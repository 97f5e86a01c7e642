"""What an operator's hands do on a terminal: a password typed, a host key confirmed, Ctrl-C pressed twice."""

from __future__ import annotations

import signal

import pytest

from tests.lab.bed.faults import Faults
from tests.lab.bed.lab import known_hosts
from tests.lab.bed.names import PASSWORD
from tests.lab.bed.node import LabNode
from tests.lab.command import Sparkctl
from tests.lab.outcomes import assert_ended, containers


def drops(node: LabNode) -> int:
    """The kernel's count of page cache drops."""
    return int(node.sh("awk", "/^drop_pagecache/ {print $2}", "/proc/vmstat"))


def test_the_sudo_password_is_asked_for_used_once_and_shown_nowhere(
    spark1: LabNode, sparkctl: Sparkctl, faults: Faults
) -> None:
    faults.sudo_rule(spark1, "password")
    before = drops(spark1)
    code, seen = sparkctl.on_terminal(
        "drop-caches", "--node", "spark1", answers={b"password on spark1:": PASSWORD.encode() + b"\n"}
    )
    assert code == 0, seen
    assert drops(spark1) > before
    assert PASSWORD.encode() not in seen
    assert not any(PASSWORD in path.read_text(errors="replace") for path in sparkctl.home.rglob("*") if path.is_file())


def test_no_password_is_no_drop_but_a_start_goes_on(spark1: LabNode, sparkctl: Sparkctl, faults: Faults) -> None:
    faults.sudo_rule(spark1, "password")
    profile = sparkctl.profile(start={"drop_caches": True})
    code, seen = sparkctl.on_terminal("up", profile, "--node", "spark1", answers={b"password on spark1:": b"\n"})
    assert code == 0, seen
    assert b"page cache not dropped" in seen
    assert b"NOPASSWD: /usr/bin/tee" in seen


@pytest.mark.parametrize(("answer", "code"), [(b"yes\n", 0), (b"no\n", 3), (b"y\n", 3)])
def test_a_host_key_is_remembered_only_for_a_written_yes(
    spark1: LabNode, sparkctl: Sparkctl, answer: bytes, code: int
) -> None:
    sparkctl.know("")
    got, seen = sparkctl.on_terminal("status", "--node", "spark1", answers={b"[yes/no]": answer})
    assert got == code, seen
    assert b"SHA256:" in seen
    remembered = (sparkctl.home / ".ssh/known_hosts").read_text()
    assert (known_hosts().split()[2] in remembered) is (code == 0)
    again, seen = sparkctl.on_terminal("status", "--node", "spark1", timeout=20)
    assert (again == 0 and b"[yes/no]" not in seen) is (code == 0)


def test_a_second_ctrl_c_while_docker_creates_takes_it_back(spark1: LabNode, sparkctl: Sparkctl) -> None:
    profile = sparkctl.profile(start={"drop_caches": True})
    up = sparkctl.start("up", profile, "--node", "spark1", "--json")
    up.await_text('"phase":"dropping-caches"')
    spark1.signal(signal.SIGSTOP, "dockerd")
    try:
        up.await_text('"phase":"creating"')
        up.interrupt()
        up.interrupt()
    finally:
        spark1.signal(signal.SIGCONT, "dockerd")
    ran = up.end()
    assert_ended(ran, 130, "interrupted")
    assert containers(spark1) == []


def test_the_first_ctrl_c_while_docker_creates_lets_it_finish(spark1: LabNode, sparkctl: Sparkctl) -> None:
    profile = sparkctl.profile(start={"drop_caches": True}, env={"LAB_END": "hang"})
    up = sparkctl.start("up", profile, "--node", "spark1", "--json")
    up.await_text('"phase":"dropping-caches"')
    spark1.signal(signal.SIGSTOP, "dockerd")
    try:
        up.await_text('"phase":"creating"')
        up.interrupt()
    finally:
        spark1.signal(signal.SIGCONT, "dockerd")
    ran = up.end()
    assert_ended(ran, 130, "interrupted")
    assert "still starting" in ran.result["message"]
    assert len(containers(spark1)) == 1


@pytest.mark.parametrize("profile", ["qwen36-ngram", "qwen36-vllm"])
def test_the_other_shipped_profiles_on_real_parts(spark1: LabNode, sparkctl: Sparkctl, profile: str) -> None:
    assert_ended(sparkctl("up", profile, "--node", "spark1", "--json"), 0, "ready")
    assert_ended(sparkctl("down", profile, "--node", "spark1", "--json"), 0, "done")
