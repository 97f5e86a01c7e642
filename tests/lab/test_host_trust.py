"""Who is on the other side, and may we: host keys, groups, a server that is too busy to speak, strange login shells."""

from __future__ import annotations

import re

from tests.lab.bed.faults import Faults
from tests.lab.bed.lab import KEYS, format_known_hosts
from tests.lab.bed.node import LabNode
from tests.lab.bed.shell import run
from tests.lab.support.command_outcomes import assert_ended, list_containers, list_own_containers
from tests.lab.support.sparkctl_process import Sparkctl


def read_fingerprint(kind: str) -> str:
    return run("ssh-keygen", "-lf", str(KEYS / f"{kind}-spark1.pub")).split()[1]


def test_a_changed_host_key_is_refused_with_both_fingerprints(
    spark1: LabNode, sparkctl: Sparkctl, faults: Faults
) -> None:
    profile = sparkctl.profile()
    faults.swap_host_key(spark1)
    ran = sparkctl("up", profile, "--node", "spark1", "--json")
    assert ran.code == 3, ran
    assert ran.result["exit_code"] == 3
    said = ran.out + ran.err
    assert read_fingerprint("host") in said, ran
    assert read_fingerprint("other-host") in said, ran
    assert "ssh-keygen -R" in said, ran
    assert list_containers(spark1) == []


def test_an_unknown_host_key_without_a_terminal_is_refused_with_the_command(
    spark1: LabNode, sparkctl: Sparkctl
) -> None:
    sparkctl.know("")
    ran = sparkctl("up", sparkctl.profile(), "--node", "spark1")
    assert ran.code == 3, ran
    assert read_fingerprint("host") in ran.err, ran
    assert "known_hosts" in ran.err or "ssh " in ran.err, ran
    assert (sparkctl.home / ".ssh/known_hosts").read_text() == ""
    assert list_containers(spark1) == []


def test_unknown_and_changed_do_not_look_the_same(spark1: LabNode, sparkctl: Sparkctl) -> None:
    sparkctl.know("")
    unknown = sparkctl("status", "--node", "spark1")
    sparkctl.know(format_known_hosts("other-host"))
    changed = sparkctl("status", "--node", "spark1")
    words = [re.sub(r"SHA256:\S+", "", ran.out + ran.err) for ran in (unknown, changed)]
    assert "changed" in words[1].lower(), changed
    assert "changed" not in words[0].lower(), unknown


def test_a_key_the_node_does_not_know_is_tried_once(spark1: LabNode, sparkctl: Sparkctl) -> None:
    sparkctl.configure(identity=str(KEYS / "stranger"))
    log = spark1.shared / "sshd.log"
    before = len(log.read_text())
    ran = sparkctl("up", sparkctl.profile(), "--node", "spark1")
    assert ran.code == 3, ran
    assert log.read_text()[before:].count("Connection from") <= 2


def test_a_server_that_does_not_speak_is_starved_not_offline(
    spark1: LabNode, sparkctl: Sparkctl, faults: Faults
) -> None:
    faults.freeze_sshd(spark1)
    ran = sparkctl("up", sparkctl.profile(), "--node", "spark1")
    assert ran.code == 3, ran
    assert re.search(r"out of memory|starved", ran.err), ran


def test_not_in_group_docker(spark1: LabNode, sparkctl: Sparkctl, faults: Faults) -> None:
    faults.leave_docker_group(spark1)
    ran = sparkctl("up", sparkctl.profile(), "--node", "spark1")
    assert ran.code == 6, ran
    assert "usermod -aG docker milo" in ran.err, ran


def test_a_shell_that_greets_changes_nothing(spark1: LabNode, sparkctl: Sparkctl, faults: Faults) -> None:
    faults.noisy_login(spark1)
    ran = sparkctl("up", sparkctl.profile(start={"drop_caches": True}), "--node", "spark1", "--json")
    assert_ended(ran, 0, "ready")
    assert len(list_own_containers(spark1)) == 1
    assert "Welcome to DGX" not in ran.out + ran.err
