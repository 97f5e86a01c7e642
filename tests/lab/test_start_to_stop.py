"""up, ready, status, logs, down: the whole path on real parts, by the real command."""

from __future__ import annotations

import json
import os
import re
import urllib.request
from pathlib import Path

import pytest

from tests.lab.bed.faults import Faults
from tests.lab.bed.lab import Lab
from tests.lab.bed.names import IMAGE
from tests.lab.bed.node import LabNode
from tests.lab.support.command_outcomes import (
    LOADING,
    assert_ended,
    count_kernel_drops,
    list_containers,
    list_own_containers,
    parse_numbers,
)
from tests.lab.support.sparkctl_process import Sparkctl


@pytest.mark.parametrize("name", ["spark1", "spark2"])
def test_up_status_logs_down(clean_nodes: Lab, sparkctl: Sparkctl, name: str) -> None:
    node = clean_nodes.nodes[name]
    profile = sparkctl.profile(env={"LAB_LINES": "20"})
    up = sparkctl("up", profile, "--node", name, "--json")
    assert_ended(up, 0, "ready")
    endpoint = up.result["endpoint"]
    assert endpoint == f"http://{node.address}:8101"
    with urllib.request.urlopen(f"{endpoint}/health", timeout=5) as answer:
        assert answer.status == 200
    phases = [event["phase"] for event in up.events if "phase" in event]
    assert (
        list(dict.fromkeys(phases)) == ["creating", "starting", "loading", "warming", "ready"] or phases[-1] == "ready"
    )
    assert node.inspect_container(list_own_containers(node)[0])["HostConfig"]["AutoRemove"] is False

    status = sparkctl("status", "--node", name)
    assert status.code == 0, status
    assert "tiny" in status.out
    assert "ready" in status.out or "Up" in status.out, status

    logs = sparkctl("logs", profile, "--node", name)
    assert logs.code == 0, logs
    assert parse_numbers(logs.out) == list(range(1, 21)), logs

    down = sparkctl("down", profile, "--node", name, "--json")
    assert_ended(down, 0, "done")
    assert list_containers(node) == []
    gone = sparkctl("logs", profile, "--node", name)
    assert parse_numbers(gone.out) == list(range(1, 21)), gone  # the saved log of a container that is gone


def test_the_shipped_profile_starts_with_its_real_command(spark1: LabNode, sparkctl: Sparkctl) -> None:
    refused = sparkctl("up", "qwen36", "--node", "spark1", "--json")
    assert_ended(refused, 6, "refused")
    assert "does not fit on spark1" in refused.result["message"], "told before that its model is not there"
    up = sparkctl("up", "qwen36", "--node", "spark1", "--force", "--json")  # this engine needs none
    assert_ended(up, 0, "ready")
    made = spark1.inspect_container("sglang-qwen36")
    assert made["Config"]["Image"] == "scitrera/dgx-spark-sglang:0.5.12"
    assert made["Config"]["Cmd"][:3] == ["python", "-m", "sglang.launch_server"]
    assert made["HostConfig"]["Binds"] == ["/home/milo/models:/models"]
    assert made["HostConfig"]["DeviceRequests"][0]["Capabilities"] == [["gpu"]]
    assert_ended(sparkctl("down", "--all", "--node", "spark1", "--json"), 0, "done")


def test_a_second_up_is_success_at_once(spark1: LabNode, sparkctl: Sparkctl) -> None:
    profile = sparkctl.profile()
    assert_ended(sparkctl("up", profile, "--node", "spark1", "--json"), 0, "ready")
    before = spark1.inspect_container(list_own_containers(spark1)[0])["Id"]
    again = sparkctl("up", profile, "--node", "spark1", "--json")
    assert_ended(again, 0, "ready")
    assert spark1.inspect_container(list_own_containers(spark1)[0])["Id"] == before
    assert not any(event.get("phase") == "creating" for event in again.events), again


def test_another_version_needs_replace(spark1: LabNode, sparkctl: Sparkctl) -> None:
    profile = sparkctl.profile()
    assert_ended(sparkctl("up", profile, "--node", "spark1", "--json"), 0, "ready")
    before = spark1.inspect_container(list_own_containers(spark1)[0])["Id"]
    sparkctl.profile(env={"OTHER": "1"})
    refused = sparkctl("up", profile, "--node", "spark1", "--json")
    assert_ended(refused, 6, "refused")
    assert "--replace" in refused.out + refused.err
    assert spark1.inspect_container(list_own_containers(spark1)[0])["Id"] == before
    assert_ended(sparkctl("up", profile, "--node", "spark1", "--replace", "--json"), 0, "ready")
    assert spark1.inspect_container(list_own_containers(spark1)[0])["Id"] != before


def test_detach_returns_and_the_engine_goes_on(spark1: LabNode, sparkctl: Sparkctl) -> None:
    profile = sparkctl.profile(env={"LAB_LOAD_S": "2"})
    assert_ended(sparkctl("up", profile, "--node", "spark1", "--detach", "--json"), 0, "detached")
    assert spark1.inspect_container(list_own_containers(spark1)[0])["State"]["Status"] == "running"
    assert_ended(sparkctl("up", profile, "--node", "spark1", "--json"), 0, "ready")


def test_a_dry_run_changes_nothing(spark1: LabNode, sparkctl: Sparkctl) -> None:
    line = sparkctl("up", sparkctl.profile(), "--node", "spark1", "--dry-run", "--format", "docker")
    assert line.code == 0, line
    assert line.out.replace("\\\n", "").split()[:4] == ["docker", "run", "-d", "--name"], line
    assert list_containers(spark1) == []


def test_ctrl_c_stops_watching_and_never_the_engine(spark1: LabNode, sparkctl: Sparkctl) -> None:
    profile = sparkctl.profile(env={"LAB_LOAD_S": "4"})
    watching = sparkctl.start("up", profile, "--node", "spark1", "--json")
    watching.await_text(LOADING)
    watching.interrupt()
    ended = watching.end(10)
    assert_ended(ended, 130, "interrupted")
    assert "keeps starting" in ended.out + ended.err
    assert spark1.inspect_container(list_own_containers(spark1)[0])["State"]["Status"] == "running"
    assert_ended(sparkctl("up", profile, "--node", "spark1", "--json"), 0, "ready")
    assert len(list_own_containers(spark1)) == 1


def test_two_operators_at_once_make_one_container(spark1: LabNode, tmp_path: Path, sparkctl: Sparkctl) -> None:
    other = Sparkctl(tmp_path, operator="rosa")
    commands = (sparkctl, other)
    for command in commands:
        command.profile(env={"LAB_LOAD_S": "4"})
    running = [command.start("up", "tiny", "--node", "spark1", "--json") for command in commands]
    ended = [each.end() for each in running]
    assert sorted(ran.code for ran in ended) == [0, 6], ended
    winner, loser = sorted(ended, key=lambda ran: ran.code)
    name = ("milo", "rosa")[ended.index(winner)]
    assert loser.result["outcome"] == "refused"
    assert re.search(rf"{name}@\S+ is starting tiny", loser.result["message"]), loser
    assert len(list_containers(spark1)) == 1


def test_ctrl_c_ends_following_a_log(spark1: LabNode, sparkctl: Sparkctl) -> None:
    profile = sparkctl.profile(env={"LAB_LINES": "5"})
    assert_ended(sparkctl("up", profile, "--node", "spark1", "--json"), 0, "ready")
    following = sparkctl.start("logs", profile, "--node", "spark1", "-f")
    following.await_text("numbered 0000005")
    following.interrupt()
    assert following.end(5).code in (0, 130)


def test_status_lists_foreign_containers_as_foreign(spark1: LabNode, sparkctl: Sparkctl) -> None:
    spark1.docker("run", "-d", "--name", "comfyui", "--network", "host", "-e", "LAB_ALLOC_MB=64", IMAGE)
    assert_ended(sparkctl("up", sparkctl.profile(), "--node", "spark1", "--json"), 0, "ready")
    status = sparkctl("status", "--node", "spark1")
    assert status.code == 0, status
    line = next(line for line in status.out.splitlines() if "comfyui" in line)
    assert "foreign" in line, status
    assert "MiB" in line or "GiB" in line, status
    assert "foreign" not in next(line for line in status.out.splitlines() if "tiny" in line)
    machine = sparkctl("status", "--node", "spark1", "--json")
    assert "comfyui" in json.dumps(machine.events)
    assert_ended(sparkctl("down", "--all", "--node", "spark1", "--json"), 0, "done")
    assert list_containers(spark1) == ["comfyui"]  # not ours to stop


def test_drop_caches_shows_before_and_after(spark1: LabNode, sparkctl: Sparkctl, tmp_path: Path) -> None:
    (tmp_path / "cached").write_bytes(os.urandom(32 << 20))
    before = count_kernel_drops()
    ran = sparkctl("drop-caches", "--node", "spark1", "--json")
    assert_ended(ran, 0, "done")
    assert count_kernel_drops() > before
    dropped = next(event for event in ran.events if "before" in event and "after" in event)
    assert dropped["before"]["page_cache"] > dropped["after"]["page_cache"]
    assert dropped["proven"] is True
    said = sparkctl("drop-caches", "--node", "spark1")
    assert said.code == 0, said
    for figure in ("free", "page cache", "available"):
        assert figure.lower() in (said.out + said.err).lower(), said


SUDOERS = "milo ALL=(root) NOPASSWD: /usr/bin/tee /proc/sys/vm/drop_caches"


@pytest.mark.parametrize("rule", ["none", "password"])
def test_without_the_sudo_rule_up_warns_loudly_and_goes_on(
    spark1: LabNode, sparkctl: Sparkctl, faults: Faults, rule: str
) -> None:
    faults.sudo_rule(spark1, rule)
    refused = sparkctl("drop-caches", "--node", "spark1")
    assert refused.code == 6, refused
    assert SUDOERS in refused.err
    up = sparkctl("up", sparkctl.profile(start={"drop_caches": True}), "--node", "spark1")
    assert up.code == 0, up
    assert SUDOERS in up.err, up
    assert "page cache not dropped" in up.err
