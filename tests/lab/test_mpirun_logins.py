"""Ranks that mpirun starts need a login from one Spark at the other: it is tried on the cable before anything changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.bed.lab import Lab
from tests.lab.bed.node import LabNode
from tests.lab.support.command_outcomes import assert_ended, list_containers
from tests.lab.support.rank_containers import exchange_keys, remove_keys, write_two_node_profile
from tests.lab.support.sparkctl_process import Sparkctl


@pytest.fixture
def keys(clean_nodes: Lab, spark1: LabNode, spark2: LabNode) -> Iterator[None]:
    exchange_keys(spark1, spark2)
    yield
    remove_keys(spark1, spark2)


@pytest.mark.usefixtures("clean_nodes")
def test_without_keys_it_is_refused_with_the_remedy(spark1: LabNode, spark2: LabNode, sparkctl: Sparkctl) -> None:
    name = write_two_node_profile(sparkctl, engine="trtllm", args={"tp_size": 2})
    for more in ((), ("--dry-run",)):
        ran = sparkctl("up", name, "--json", *more)
        assert_ended(ran, 6, "refused")
        assert f"spark1 cannot log in at spark2 ({spark2.fabric_address}) without a password" in ran.result["message"]
        assert "Permission denied (publickey" in ran.result["message"]
        assert f"ssh-copy-id milo@{spark2.fabric_address}" in ran.result["hint"]
    assert list_containers(spark1) == list_containers(spark2) == []
    # What needs no login is not asked for one.
    assert sparkctl("up", write_two_node_profile(sparkctl, "other"), "--dry-run").code == 0


@pytest.mark.usefixtures("clean_nodes")
def test_setup_lets_the_sparks_log_in_and_undo_gives_everything_back(
    spark1: LabNode, spark2: LabNode, sparkctl: Sparkctl
) -> None:
    def read_files() -> list[str]:
        return [node.sh("sh", "-c", "cd /home/milo/.ssh && ls -lA && cat *") for node in (spark1, spark2)]

    name, before = write_two_node_profile(sparkctl, engine="trtllm", args={"tp_size": 2}), read_files()
    spark2.sh("sh", "-c", "printf %s '# no end of line' >>/home/milo/.ssh/authorized_keys")
    uneven = read_files()
    try:
        shown = sparkctl("setup", "--ssh", "--dry-run")
        assert (shown.code, read_files()) == (0, uneven), shown
        assert "(a new key without a passphrase, made on the node)" in shown.out
        done = sparkctl("setup", "--ssh", "--yes")
        assert done.code == 0, done
        assert "PRIVATE" not in done.out + done.err
        for node, peer in ((spark1, "spark2"), (spark2, "spark1")):
            assert node.sh("stat", "-c", "%a %U", "/home/milo/.ssh/id_ed25519").split() == ["600", "milo"]
            assert node.sh("cat", "/home/milo/.ssh/authorized_keys").endswith(f" sparkctl {peer}\n")
        assert sparkctl("up", name, "--dry-run").code == 0
        again = sparkctl("setup", "--ssh", "--yes")
        assert (again.code, again.err.strip()) == (0, "nothing to do"), again
        spark1.sh("sh", "-c", "echo '# mine' >>/home/milo/.ssh/authorized_keys")
        undone = sparkctl("setup", "--undo", "--yes")
        assert undone.code == 0, undone
        assert "has changed since" in undone.err
        assert spark1.sh("tail", "-n", "1", "/home/milo/.ssh/authorized_keys") == "# mine\n"
        spark1.sh("sed", "-i", "$d", "/home/milo/.ssh/authorized_keys")
        assert read_files()[1] == uneven[1]
        assert "sparkctl spark2" not in read_files()[0]
        assert "id_ed25519" not in read_files()[0]
        assert sparkctl("up", name, "--dry-run").code == 6
    finally:
        sparkctl("setup", "--undo", "--yes")
        spark2.sh("sed", "-i", "s/# no end of line$//", "/home/milo/.ssh/authorized_keys")
    assert spark2.sh("cat", "/home/milo/.ssh/authorized_keys") in before[1]


@pytest.mark.usefixtures("keys")
def test_with_keys_a_dry_run_shows_what_is_mounted(sparkctl: Sparkctl) -> None:
    ran = sparkctl(
        "up", write_two_node_profile(sparkctl, engine="trtllm", args={"tp_size": 2}), "--dry-run", "--format", "docker"
    )
    assert ran.code == 0, ran
    assert ran.out.count("/home/milo/.ssh:/tmp/.ssh:ro") == 1
    assert ran.out.count("/home/milo/.ssh/authorized_keys:/tmp/.ssh/authorized_keys:ro") == 1


@pytest.mark.usefixtures("keys")
def test_a_worker_without_the_list_of_keys_is_refused(spark2: LabNode, sparkctl: Sparkctl) -> None:
    # It may be elsewhere for the node's own sshd; the container's is given this one.
    held = "/home/milo/.ssh/authorized_keys"
    spark2.sh("cp", held, f"{held}2")
    spark2.sh("chown", "milo:", f"{held}2")
    spark2.sh("rm", held)
    try:
        ran = sparkctl(
            "up", write_two_node_profile(sparkctl, engine="trtllm", args={"tp_size": 2}), "--dry-run", "--json"
        )
        assert_ended(ran, 6, "refused")
        assert "milo on spark2 has no ~/.ssh/authorized_keys" in ran.result["message"]
    finally:
        spark2.sh("mv", f"{held}2", held)
