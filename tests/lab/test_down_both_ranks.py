"""`down` and `free` of a model over both nodes: all ranks, or a plain word of what is not known yet."""

from __future__ import annotations

from tests.lab.bed.faults import Faults
from tests.lab.bed.names import IMAGE
from tests.lab.bed.node import LabNode
from tests.lab.bed.shell import await_true
from tests.lab.support.command_outcomes import assert_ended, list_containers, list_own_containers
from tests.lab.support.rank_containers import write_two_node_profile
from tests.lab.support.sparkctl_process import Sparkctl


def test_down_on_one_node_takes_the_other_rank_with_it_and_free_leaves_what_is_not_ours(
    spark1: LabNode, spark2: LabNode, sparkctl: Sparkctl
) -> None:
    spark2.docker("run", "-d", "--name", "comfyui", "--network", "host", IMAGE)
    assert_ended(sparkctl("up", write_two_node_profile(sparkctl, env={"LAB_ALLOC_MB": 600}), "--json"), 0, "ready")
    ran = sparkctl("free", "spark2", "--json")
    assert_ended(ran, 0, "done")
    assert list_containers(spark1) == []
    assert list_containers(spark2) == ["comfyui"]
    assert "comfyui" in ran.out, ran
    released = {event["node"]: event for event in ran.events if event["event"] == "released"}
    assert sorted(released) == ["spark1", "spark2"], ran
    assert [event["holders"] for event in released.values()] == [[], []]
    freed = [event["freed"] for event in released.values()]
    assert sum(freed) > 500 << 20, "of one memory: which node's stop is measured first sees more of it"


def test_a_worker_that_cannot_be_reached_is_unknown_and_finished_at_the_next_contact(
    spark1: LabNode, spark2: LabNode, sparkctl: Sparkctl, faults: Faults
) -> None:
    assert_ended(sparkctl("up", write_two_node_profile(sparkctl), "--json"), 0, "ready")
    faults.unplug(spark2)
    ran = sparkctl("down", "pair", "--json")
    assert ran.code == 3, ran
    assert ran.result["node"] == "spark2", ran
    assert "stopped at the next contact with spark2" in ran.out, ran
    assert list_containers(spark1) == [], "what can be done is done"
    assert list_own_containers(spark2) == ["sglang-pair"]
    faults.plug(spark2)
    await_true("the link", spark2.ssh_answers)
    sparkctl.profile("other", port=8102)
    assert_ended(sparkctl("up", "other", "--node", "spark2", "--json"), 0, "ready")
    assert list_containers(spark2) == ["sglang-other"], "the next contact has finished it"
