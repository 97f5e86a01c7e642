"""What stands in the way is found before anything is changed: exit 6, the reason, what to do, and no remains."""

from __future__ import annotations

import pytest

from tests.lab.bed.faults import Faults
from tests.lab.bed.names import IMAGE
from tests.lab.bed.node import LabNode
from tests.lab.support.command_outcomes import assert_ended, list_containers
from tests.lab.support.sparkctl_process import Ran, Sparkctl


def assert_refused(ran: Ran, *words: str) -> None:
    """It was refused, and says these words."""
    assert_ended(ran, 6, "refused")
    for word in words:
        assert word in ran.result["message"] + (ran.result["hint"] or ""), ran
    assert "Traceback" not in ran.err, ran


def test_name_taken_by_a_foreign_container(spark1: LabNode, sparkctl: Sparkctl) -> None:
    spark1.docker("run", "-d", "--name", "mine", "--network", "host", "-e", "LAB_END=hang", IMAGE)
    before = spark1.inspect_container("mine")
    profile = sparkctl.profile(container={"gpus": "none", "network": "host", "name": "mine"})
    assert_refused(sparkctl("up", profile, "--node", "spark1", "--json"), "mine")
    after = spark1.inspect_container("mine")
    assert (before["Id"], before["State"]["Pid"]) == (after["Id"], after["State"]["Pid"])
    assert_refused(sparkctl("up", profile, "--node", "spark1", "--replace", "--json"), "mine")
    assert list_containers(spark1) == ["mine"]


def test_port_busy(spark1: LabNode, sparkctl: Sparkctl) -> None:
    command = ("python", "-m", "standin", "--port", "8101")
    spark1.docker("run", "-d", "--name", "squatter", "--network", "host", IMAGE, *command)
    listening = "import socket,time\nwhile socket.socket().connect_ex(('127.0.0.1', 8101)): time.sleep(0.05)"
    spark1.sh("/usr/bin/python3", "-c", listening)
    assert_refused(sparkctl("up", sparkctl.profile(), "--node", "spark1", "--json"), "8101", "--set port=")
    assert list_containers(spark1) == ["squatter"]
    assert_ended(sparkctl("up", "tiny", "--node", "spark1", "--set", "port=8102", "--json"), 0, "ready")


def test_image_missing(spark1: LabNode, sparkctl: Sparkctl) -> None:
    profile = sparkctl.profile(image="nobody/has-this:1")
    assert_refused(sparkctl("up", profile, "--node", "spark1", "--json"), "--pull")
    assert list_containers(spark1) == []


def test_disk_full(spark2: LabNode, sparkctl: Sparkctl, faults: Faults) -> None:
    faults.fill_disk(spark2)
    assert_refused(sparkctl("up", sparkctl.profile(), "--node", "spark2", "--json"), "full", "docker system df")
    assert list_containers(spark2) == []


GPU = {"gpus": "all", "network": "host"}


@pytest.mark.parametrize("trace", [False, True])
def test_no_gpu_on_spark2(spark2: LabNode, sparkctl: Sparkctl, faults: Faults, trace: bool) -> None:
    """With a trace of the toolkit only Docker's own refusal tells, and that leaves a body behind: ours to remove."""
    if trace:
        faults.claims_a_gpu(spark2)
    assert_refused(
        sparkctl("up", sparkctl.profile(container=GPU), "--node", "spark2", "--json"), "NVIDIA", "nvidia-ctk"
    )
    assert list_containers(spark2) == []


def test_the_gpu_is_given_on_spark1(spark1: LabNode, sparkctl: Sparkctl) -> None:
    assert_ended(sparkctl("up", sparkctl.profile(container=GPU), "--node", "spark1", "--json"), 0, "ready")
    assert "NVIDIA_VISIBLE_DEVICES=all" in (spark1.shared / "gpu-hook.log").read_text()


def test_dockerd_not_running(spark1: LabNode, sparkctl: Sparkctl, faults: Faults) -> None:
    faults.kill_docker(spark1)
    ran = sparkctl("up", sparkctl.profile(), "--node", "spark1", "--json")
    assert ran.code == 3, ran
    assert "docker" in ran.result["message"].lower()


def test_an_unknown_profile_or_node_is_a_matter_of_usage(sparkctl: Sparkctl) -> None:
    assert sparkctl("up", "no-such-profile", "--node", "spark1").code == 2
    assert sparkctl("up", sparkctl.profile(), "--node", "spark9").code == 2
