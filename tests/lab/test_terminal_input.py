"""What an operator's hands do on a terminal: a password typed, a host key confirmed, Ctrl-C pressed twice."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.lab.bed.faults import Faults
from tests.lab.bed.lab import format_known_hosts
from tests.lab.bed.names import IMAGE, PASSWORD
from tests.lab.bed.node import LabNode
from tests.lab.support.command_outcomes import assert_ended, count_cache_drops, count_kernel_drops, list_containers
from tests.lab.support.sparkctl_process import Sparkctl

MADE_UP = (
    ("port", "²"),
    ("port", "99999999999999999999"),
    ("ready", '{"line":"(","health":null}'),
    ("ready", '{"line":5,"health":7,"probe":[]}'),
    ("grace", "inf"),
)


def test_the_sudo_password_is_asked_for_used_once_and_shown_nowhere(
    spark1: LabNode, sparkctl: Sparkctl, faults: Faults
) -> None:
    faults.sudo_rule(spark1, "password")
    before, machine = count_cache_drops(spark1), count_kernel_drops()
    code, seen = sparkctl.on_terminal(
        "drop-caches", "--node", "spark1", answers={b"password on spark1:": PASSWORD.encode() + b"\n"}
    )
    assert code == 0, seen
    assert count_cache_drops(spark1) == before + 1
    assert count_kernel_drops() > machine
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
    got, seen = sparkctl.on_terminal(
        "status", "--node", "spark1", answers={b"[yes/no]": answer, b"type yes or no:": b"no\n"}
    )
    assert got == code, seen
    assert b"SHA256:" in seen
    remembered = (sparkctl.home / ".ssh/known_hosts").read_text()
    assert (format_known_hosts().split()[2] in remembered) is (code == 0)
    again, seen = sparkctl.on_terminal("status", "--node", "spark1", answers={b"[yes/no]": b"no\n"})
    assert (again, b"[yes/no]" in seen) == (code, code != 0), seen


def test_ctrl_c_at_a_question_ends_it_at_once(spark1: LabNode, sparkctl: Sparkctl, faults: Faults) -> None:
    faults.sudo_rule(spark1, "password")
    code, seen = sparkctl.on_terminal("drop-caches", "--node", "spark1", answers={b"password on": b"\x03"}, timeout=15)
    assert code == 130, seen
    sparkctl.know("")
    for verb in ("status", "doctor"):
        code, seen = sparkctl.on_terminal(verb, "--node", "spark1", answers={b"[yes/no]": b"\x03"}, timeout=15)
        assert code == 130, seen


def test_a_second_ctrl_c_while_docker_creates_takes_it_back(spark1: LabNode, sparkctl: Sparkctl) -> None:
    profile = sparkctl.profile(start={"drop_caches": True})
    up = sparkctl.start("up", profile, "--node", "spark1")
    up.await_text("dropping caches")
    spark1.signal(signal.SIGSTOP, "dockerd")
    try:
        up.await_text("creating")
        up.interrupt()
        up.await_text("no longer watching")  # two signals at once would be one
        up.interrupt()
        up.await_text("heard; it ends as soon as nothing is half done")
    finally:
        spark1.signal(signal.SIGCONT, "dockerd")
    ran = up.end()
    assert ran.code == 130, ran
    assert "removed again" in ran.err
    assert list_containers(spark1) == []


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
    assert "keeps starting" in ran.result["message"]
    assert len(list_containers(spark1)) == 1


@pytest.mark.parametrize("profile", ["qwen36-ngram", "qwen36-vllm"])
def test_the_other_shipped_profiles_on_real_parts(spark1: LabNode, sparkctl: Sparkctl, profile: str) -> None:
    assert_ended(sparkctl("up", profile, "--node", "spark1", "--force", "--json"), 0, "ready")  # no model there
    assert_ended(sparkctl("down", profile, "--node", "spark1", "--json"), 0, "done")


def test_a_laptop_that_falls_asleep_frees_the_lock(spark1: LabNode, tmp_path: Path, sparkctl: Sparkctl) -> None:
    """Its connection is open as ever, only nothing is heard of it: half a minute later somebody else may work."""
    up = sparkctl.start("up", sparkctl.profile(env={"LAB_END": "hang"}), "--node", "spark1", "--json")
    up.await_text('"phase":"loading"')
    up.process.send_signal(signal.SIGSTOP)
    rosa = Sparkctl(tmp_path, operator="rosa")
    rosa.profile("other", port=8102)
    try:
        refused = rosa("up", "other", "--node", "spark1", "--json")
        assert_ended(refused, 6, "refused")
        assert "milo@" in refused.result["message"]
        spark1.sh("flock", "-w", "45", "/tmp/sparkctl.lock", "true")
        assert_ended(rosa("up", "other", "--node", "spark1", "--json"), 0, "ready")
    finally:
        up.process.send_signal(signal.SIGCONT)
    up.kill()


def test_the_lock_comes_back_after_a_break(spark1: LabNode, tmp_path: Path, sparkctl: Sparkctl, faults: Faults) -> None:
    up = sparkctl.start("up", sparkctl.profile(env={"LAB_END": "hang"}), "--node", "spark1", "--json")
    up.await_text('"phase":"loading"')
    faults.kill_sessions(spark1)
    up.await_text('"state":"unreachable"')
    rosa = Sparkctl(tmp_path, operator="rosa")
    rosa.profile("other", port=8102)
    spark1.sh("sh", "-c", "for i in $(seq 300); do flock -n /tmp/sparkctl.lock true || exit 0; sleep 0.1; done; exit 1")
    refused = rosa("up", "other", "--node", "spark1", "--json")
    assert_ended(refused, 6, "refused")
    up.interrupt()
    assert up.end().code == 130


def test_ctrl_c_before_the_old_one_is_stopped_leaves_it_running(spark1: LabNode, sparkctl: Sparkctl) -> None:
    profile = sparkctl.profile()
    assert_ended(sparkctl("up", profile, "--node", "spark1", "--json"), 0, "ready")
    before = list_containers(spark1)
    again = sparkctl.start("up", profile, "--node", "spark1", "--set", "args.x=1", "--replace", "--json")
    again.await_text('"event":"switch-plan"')
    again.interrupt()
    ran = again.end()
    if '"phase":"stopping"' not in ran.out:  # pressed in time, as it nearly always is
        assert_ended(ran, 130, "interrupted")
        assert spark1.docker("ps", "-q", "--no-trunc").split() != []
        assert list_containers(spark1) == before


def test_labels_that_somebody_made_up_do_not_blind_status(spark1: LabNode, sparkctl: Sparkctl) -> None:
    for number, (label, value) in enumerate(MADE_UP):
        spark1.docker(
            "run", "-d", "--name", f"evil{number}", "--network", "host", "-e", "LAB_END=hang",
            "--label", f"dev.sparkctl.instance=evil{number}", "--label", "dev.sparkctl.engine=sglang",
            "--label", f"dev.sparkctl.{label}={value}", IMAGE,
        )  # fmt: skip
    ran = sparkctl("status", "--node", "spark1")
    assert ran.code == 0, ran
    assert all(f"evil{number}" in ran.out for number in range(len(MADE_UP)))
    assert_ended(sparkctl("down", "--all", "--node", "spark1", "--grace", "1s", "--json"), 0, "done")
