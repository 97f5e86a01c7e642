"""One model over two Sparks: two ranks that really meet over the second link, started, broken and stopped as one."""

from __future__ import annotations

import signal
import urllib.request

import pytest

from tests.lab.bed.faults import Faults
from tests.lab.bed.lab import Lab
from tests.lab.bed.names import ADDRESSES, FABRIC, IMAGE
from tests.lab.bed.node import LabNode
from tests.lab.bed.shell import await_true
from tests.lab.support.command_outcomes import (
    LOADING,
    assert_ended,
    get_verdict,
    list_containers,
    list_own_containers,
)
from tests.lab.support.rank_containers import (
    await_log,
    can_talk_over_cable,
    list_container_ids,
    read_label,
    read_state,
    write_two_node_profile,
)
from tests.lab.support.sparkctl_process import Sparkctl

LONG = {"LAB_LOAD_S": 30}


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_up_and_down_over_the_second_link(
    clean_nodes: Lab, spark1: LabNode, spark2: LabNode, sparkctl: Sparkctl, engine: str
) -> None:
    args = {"gpu-memory-utilization": 0.3} if engine == "vllm" else {}  # its own default is 0.92 of the lab's machine
    up = sparkctl("up", write_two_node_profile(sparkctl, engine=engine, args=args), "--json")
    assert_ended(up, 0, "ready")
    assert up.result["endpoint"] == f"http://{spark1.address}:8101", "the head's, at its address for clients"
    with urllib.request.urlopen(f"{up.result['endpoint']}/health", timeout=5) as answer:
        assert answer.status == 200
    assert list_own_containers(spark1) == list_own_containers(spark2) == [f"{engine}-pair"]
    assert [read_label(node, "rank") for node in (spark1, spark2)] == ["0/2", "1/2"]
    assert read_label(spark1, "run") == read_label(spark2, "run")
    assert read_label(spark1, "nodes") == read_label(spark2, "nodes") == "spark1,spark2"
    assert can_talk_over_cable(spark1)
    for node in (spark1, spark2):
        env = node.inspect_container(list_own_containers(node)[0])["Config"]["Env"]
        assert f"NCCL_SOCKET_IFNAME={FABRIC}" in env
        assert f"GLOO_SOCKET_IFNAME={FABRIC}" in env
    before = list_container_ids(clean_nodes)
    assert_ended(sparkctl("up", "pair", "--json"), 0, "ready")
    assert list_container_ids(clean_nodes) == before, "what runs already is success at once"
    status = sparkctl("status")
    assert status.code == 0, status
    assert status.out.count("pair") >= 2, status
    assert_ended(sparkctl("down", "pair", "--json"), 0, "done")
    assert list_containers(spark1) == list_containers(spark2) == []


def test_a_dry_run_shows_what_each_rank_is_told(spark1: LabNode, spark2: LabNode, sparkctl: Sparkctl) -> None:
    ran = sparkctl("up", write_two_node_profile(sparkctl), "--dry-run", "--format", "docker")
    assert ran.code == 0, ran
    text = ran.out.replace("\\\n", "")
    assert text.count("docker run") == 2
    assert text.count(f"--dist-init-addr {ADDRESSES['spark1'][1]}:25000") == 2
    assert "--node-rank 0" in text
    assert "--node-rank 1" in text
    assert f"NCCL_SOCKET_IFNAME={FABRIC}" in text
    assert list_containers(spark1) == list_containers(spark2) == []


def test_the_rank_that_failed_first_is_named_and_ends_the_other(
    spark1: LabNode, spark2: LabNode, sparkctl: Sparkctl
) -> None:
    """The head loses its peer a moment later and says so in an error of its own: that is not the reason."""
    env = {"LAB_RANK1_END": "cuda-oom", "LAB_RANK0_LOAD_S": 20}
    ran = sparkctl("up", write_two_node_profile(sparkctl, env=env), "--json")
    assert_ended(ran, 1, "failed")
    found = get_verdict(ran)
    assert found["cause"] == "cuda-out-of-memory"
    assert "spark2" in found["summary"]
    assert [read_state(each) for each in (spark1, spark2)] == ["exited", "exited"]
    assert_ended(sparkctl("down", "pair", "--json"), 0, "done")
    assert list_containers(spark1) == list_containers(spark2) == []


@pytest.mark.parametrize("victim", ["spark2", "spark1"], ids=["worker", "head"])
def test_a_rank_killed_while_loading_ends_the_start_and_the_other_rank(
    clean_nodes: Lab, sparkctl: Sparkctl, victim: str
) -> None:
    up = sparkctl.start("up", write_two_node_profile(sparkctl, env=LONG), "--json")
    up.await_text(LOADING)
    nodes = clean_nodes.nodes
    for node in nodes.values():
        await_log(node, "Load weight begin")
    nodes[victim].docker("kill", list_own_containers(nodes[victim])[0])
    ran = up.end()
    assert_ended(ran, 1, "failed")
    assert victim in get_verdict(ran)["summary"], ran
    assert [read_state(node) for node in nodes.values()] == ["exited", "exited"]


def test_a_worker_that_does_not_come_in_time_leaves_nobody_waiting(
    spark1: LabNode, spark2: LabNode, sparkctl: Sparkctl
) -> None:
    env = {"LAB_RANK0_JOIN_S": 2, "LAB_RANK1_JOIN_AFTER_S": 40}
    ran = sparkctl("up", write_two_node_profile(sparkctl, env=env), "--json", timeout=35)
    assert_ended(ran, 1, "failed")
    assert any("1/2 clients joined" in line["text"] for line in get_verdict(ran)["evidence"]), ran
    assert [read_state(node) for node in (spark1, spark2)] == ["exited", "exited"]


def test_the_cable_cut_while_loading(spark1: LabNode, spark2: LabNode, sparkctl: Sparkctl, faults: Faults) -> None:
    up = sparkctl.start("up", write_two_node_profile(sparkctl, env={**LONG, "LAB_SILENCE_S": 2}), "--json")
    for node in (spark1, spark2):
        await_log(node, "Load weight begin")
    faults.cut_fabric(spark2)
    ran = up.end()
    assert_ended(ran, 1, "failed")
    found = get_verdict(ran)
    assert found["cause"] == "nccl", found
    assert [read_state(node) for node in (spark1, spark2)] == ["exited", "exited"]


def test_a_cable_that_is_out_is_told_before_anything_is_changed(
    spark1: LabNode, spark2: LabNode, sparkctl: Sparkctl, faults: Faults
) -> None:
    profile = write_two_node_profile(sparkctl)
    faults.cut_fabric(spark2)
    ran = sparkctl("up", profile, "--json")
    assert_ended(ran, 6, "refused")
    assert FABRIC in ran.result["message"], ran
    assert list_containers(spark1) == list_containers(spark2) == []


def test_another_image_under_the_same_name_is_refused(
    spark1: LabNode, spark2: LabNode, sparkctl: Sparkctl, faults: Faults
) -> None:
    profile = write_two_node_profile(sparkctl)
    faults.another_image(spark2, IMAGE)
    ran = sparkctl("up", profile, "--json")
    assert_ended(ran, 6, "refused")
    assert "spark2" in ran.result["message"], ran
    assert "sparkctl sync pair --from spark1 --to spark2" in ran.result["hint"], ran
    assert list_containers(spark1) == list_containers(spark2) == []


def test_ctrl_c_stops_watching_and_neither_rank(clean_nodes: Lab, sparkctl: Sparkctl) -> None:
    up = sparkctl.start("up", write_two_node_profile(sparkctl, env={"LAB_LOAD_S": 4}), "--json")
    for node in clean_nodes.nodes.values():
        await_log(node, "Load weight begin")
    up.interrupt()
    assert_ended(up.end(15), 130, "interrupted")
    before = list_container_ids(clean_nodes)
    assert sorted(before) == ["spark1", "spark2"]
    assert_ended(sparkctl("up", "pair", "--json"), 0, "ready")
    assert list_container_ids(clean_nodes) == before


def test_both_ranks_are_watched_through_a_lost_connection_to_the_worker(
    spark1: LabNode, spark2: LabNode, sparkctl: Sparkctl, faults: Faults
) -> None:
    up = sparkctl.start("up", write_two_node_profile(sparkctl, env={"LAB_LOAD_S": 4}), "--json")
    for node in (spark1, spark2):
        await_log(node, "Load weight begin")
    faults.kill_sessions(spark2)
    assert_ended(up.end(), 0, "ready")


def test_a_worker_killed_while_serving_is_told_by_status(spark1: LabNode, spark2: LabNode, sparkctl: Sparkctl) -> None:
    assert_ended(sparkctl("up", write_two_node_profile(sparkctl), "--json"), 0, "ready")
    spark2.signal(signal.SIGKILL, "python")
    await_true("the head to end as well", lambda: read_state(spark1) == "exited")
    status = sparkctl("status", "--check")
    assert status.code == 5, status
