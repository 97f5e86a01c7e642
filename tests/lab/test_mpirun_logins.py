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
    path = "/home/milo/.ssh/authorized_keys"
    spark2.sh("cp", path, f"{path}2")
    spark2.sh("chown", "milo:", f"{path}2")
    spark2.sh("rm", path)
    try:
        ran = sparkctl(
            "up", write_two_node_profile(sparkctl, engine="trtllm", args={"tp_size": 2}), "--dry-run", "--json"
        )
        assert_ended(ran, 6, "refused")
        assert "milo on spark2 has no ~/.ssh/authorized_keys" in ran.result["message"]
    finally:
        spark2.sh("mv", f"{path}2", path)
