"""One model over two Sparks: two ranks that really meet over the second link, started, broken and stopped as one."""

from __future__ import annotations

import signal
import urllib.request

import pytest

from tests.lab.bed.faults import Faults
from tests.lab.bed.lab import Lab
from tests.lab.bed.names import FABRIC, IMAGE
from tests.lab.bed.node import LabNode
from tests.lab.bed.shell import await_true
from tests.lab.command import Sparkctl
from tests.lab.outcomes import LOADING, assert_ended, containers, inspect, ours, verdict
from tests.lab.ranks import await_log, ids, label, over_two, state, talk_over_the_cable

LONG = {"LAB_LOAD_S": 30}


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_up_and_down_over_the_second_link(
    clean_nodes: Lab, spark1: LabNode, spark2: LabNode, sparkctl: Sparkctl, engine: str
) -> None:
    up = sparkctl("up", over_two(sparkctl, engine=engine), "--json")
    assert_ended(up, 0, "ready")
    assert up.result["endpoint"] == f"http://{spark1.address}:8101", "the head's, at its address for clients"
    with urllib.request.urlopen(f"{up.result['endpoint']}/health", timeout=5) as answer:
        assert answer.status == 200
    assert ours(spark1) == ours(spark2) == [f"{engine}-pair"]
    assert [label(node, "rank") for node in (spark1, spark2)] == ["0/2", "1/2"]
    assert label(spark1, "run") == label(spark2, "run")
    assert label(spark1, "nodes") == label(spark2, "nodes") == "spark1,spark2"
    assert talk_over_the_cable(spark1)
    for node in (spark1, spark2):
        env = inspect(node, ours(node)[0])["Config"]["Env"]
        assert f"NCCL_SOCKET_IFNAME={FABRIC}" in env
        assert f"GLOO_SOCKET_IFNAME={FABRIC}" in env
    before = ids(clean_nodes)
    assert_ended(sparkctl("up", "pair", "--json"), 0, "ready")
    assert ids(clean_nodes) == before, "what runs already is success at once"
    status = sparkctl("status")
    assert status.code == 0, status
    assert status.out.count("pair") >= 2, status
    assert_ended(sparkctl("down", "pair", "--json"), 0, "done")
    assert containers(spark1) == containers(spark2) == []


def test_a_dry_run_shows_what_each_rank_is_told(spark1: LabNode, spark2: LabNode, sparkctl: Sparkctl) -> None:
    ran = sparkctl("up", over_two(sparkctl), "--dry-run", "--format", "docker")
    assert ran.code == 0, ran
    text = ran.out.replace("\\\n", "")
    assert text.count("docker run") == 2
    assert text.count("--dist-init-addr 10.80.0.11:25000") == 2
    assert "--node-rank 0" in text
    assert "--node-rank 1" in text
    assert f"NCCL_SOCKET_IFNAME={FABRIC}" in text
    assert containers(spark1) == containers(spark2) == []


def test_the_rank_that_failed_first_is_named_and_ends_the_other(
    spark1: LabNode, spark2: LabNode, sparkctl: Sparkctl
) -> None:
    """The head loses its peer a moment later and says so in an error of its own: that is not the reason."""
    env = {"LAB_RANK1_END": "cuda-oom", "LAB_RANK0_LOAD_S": 20}
    ran = sparkctl("up", over_two(sparkctl, env=env), "--json")
    assert_ended(ran, 1, "failed")
    found = verdict(ran)
    assert found["cause"] == "cuda-out-of-memory"
    assert "spark2" in found["summary"]
    assert [state(each) for each in (spark1, spark2)] == ["exited", "exited"]
    assert_ended(sparkctl("down", "pair", "--json"), 0, "done")
    assert containers(spark1) == containers(spark2) == []


@pytest.mark.parametrize("victim", ["spark2", "spark1"], ids=["worker", "head"])
def test_a_rank_killed_while_loading_ends_the_start_and_the_other_rank(
    clean_nodes: Lab, sparkctl: Sparkctl, victim: str
) -> None:
    up = sparkctl.start("up", over_two(sparkctl, env=LONG), "--json")
    up.await_text(LOADING)
    nodes = clean_nodes.nodes
    for node in nodes.values():
        await_log(node, "Load weight begin")
    nodes[victim].docker("kill", ours(nodes[victim])[0])
    ran = up.end()
    assert_ended(ran, 1, "failed")
    assert victim in verdict(ran)["summary"], ran
    assert [state(node) for node in nodes.values()] == ["exited", "exited"]


def test_a_worker_that_does_not_come_in_time_leaves_nobody_waiting(
    spark1: LabNode, spark2: LabNode, sparkctl: Sparkctl
) -> None:
    env = {"LAB_RANK0_JOIN_S": 2, "LAB_RANK1_JOIN_AFTER_S": 40}
    ran = sparkctl("up", over_two(sparkctl, env=env), "--json", timeout=35)
    assert_ended(ran, 1, "failed")
    assert any("1/2 clients joined" in line["text"] for line in verdict(ran)["evidence"]), ran
    assert [state(node) for node in (spark1, spark2)] == ["exited", "exited"]


def test_the_cable_cut_while_loading(spark1: LabNode, spark2: LabNode, sparkctl: Sparkctl, faults: Faults) -> None:
    up = sparkctl.start("up", over_two(sparkctl, env={**LONG, "LAB_SILENCE_S": 2}), "--json")
    for node in (spark1, spark2):
        await_log(node, "Load weight begin")
    faults.cut_fabric(spark2)
    ran = up.end()
    assert_ended(ran, 1, "failed")
    found = verdict(ran)
    assert found["cause"] == "nccl", found
    assert [state(node) for node in (spark1, spark2)] == ["exited", "exited"]


def test_a_cable_that_is_out_is_told_before_anything_is_changed(
    spark1: LabNode, spark2: LabNode, sparkctl: Sparkctl, faults: Faults
) -> None:
    profile = over_two(sparkctl)
    faults.cut_fabric(spark2)
    ran = sparkctl("up", profile, "--json")
    assert_ended(ran, 6, "refused")
    assert FABRIC in ran.result["message"], ran
    assert containers(spark1) == containers(spark2) == []


def test_another_image_under_the_same_name_is_refused(
    spark1: LabNode, spark2: LabNode, sparkctl: Sparkctl, faults: Faults
) -> None:
    profile = over_two(sparkctl)
    faults.another_image(spark2, IMAGE)
    ran = sparkctl("up", profile, "--json")
    assert_ended(ran, 6, "refused")
    assert "spark2" in ran.result["message"], ran
    assert "sparkctl sync pair --from spark1 --to spark2" in ran.result["hint"], ran
    assert containers(spark1) == containers(spark2) == []


def test_ctrl_c_stops_watching_and_neither_rank(clean_nodes: Lab, sparkctl: Sparkctl) -> None:
    up = sparkctl.start("up", over_two(sparkctl, env={"LAB_LOAD_S": 4}), "--json")
    for node in clean_nodes.nodes.values():
        await_log(node, "Load weight begin")
    up.interrupt()
    assert_ended(up.end(15), 130, "interrupted")
    before = ids(clean_nodes)
    assert sorted(before) == ["spark1", "spark2"]
    assert_ended(sparkctl("up", "pair", "--json"), 0, "ready")
    assert ids(clean_nodes) == before


def test_both_ranks_are_watched_through_a_lost_connection_to_the_worker(
    spark1: LabNode, spark2: LabNode, sparkctl: Sparkctl, faults: Faults
) -> None:
    up = sparkctl.start("up", over_two(sparkctl, env={"LAB_LOAD_S": 4}), "--json")
    for node in (spark1, spark2):
        await_log(node, "Load weight begin")
    faults.kill_sessions(spark2)
    assert_ended(up.end(), 0, "ready")


def test_a_worker_killed_while_serving_is_told_by_status(spark1: LabNode, spark2: LabNode, sparkctl: Sparkctl) -> None:
    assert_ended(sparkctl("up", over_two(sparkctl), "--json"), 0, "ready")
    spark2.signal(signal.SIGKILL, "python")
    await_true("the head to end as well", lambda: state(spark1) == "exited")
    status = sparkctl("status", "--check")
    assert status.code == 5, status
