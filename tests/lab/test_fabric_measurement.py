"""What is asked and measured of the second link: real packets, a real firewall, a real MTU that does not carry."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.bed.lab import Lab
from tests.lab.bed.names import FABRIC
from tests.lab.bed.netns import get_namespace_name
from tests.lab.bed.node import LabNode
from tests.lab.bed.shell import await_true, ip, run
from tests.lab.support.command_outcomes import assert_ended
from tests.lab.support.sparkctl_process import Ran, Sparkctl

BOTH = ("doctor", "--fabric", "--json")


@pytest.fixture
def measured(clean_nodes: Lab, sparkctl: Sparkctl) -> Lab:
    """The lab, with the second link named in the config: it has no RDMA here."""
    sparkctl.configure(fabric=FABRIC)
    return clean_nodes


def list_findings(ran: Ran, severity: str) -> list[dict[str, Any]]:
    return [event for event in ran.events if event["event"] == "finding" and event["severity"] == severity]


def list_remaining_pids(node: LabNode) -> list[int]:
    return node.pids_with("python3", b"sparkctl-carry")


@pytest.fixture
def one_gigabit(measured: Lab) -> Iterator[Lab]:
    """The second link at 1 Gb/s each way: as fast as it goes, it takes both cores of a small machine for seconds."""
    for node in measured.nodes.values():
        limit_rate(node, "1gbit", "1mb")
    yield measured
    for node in measured.nodes.values():
        run("tc", "-n", get_namespace_name(node.name), "qdisc", "del", "dev", FABRIC, "root")


def limit_rate(node: LabNode, rate: str, burst: str) -> None:
    run("tc", "-n", get_namespace_name(node.name), "qdisc", "replace", "dev", FABRIC, "root", "tbf", "rate", rate, "burst", burst, "latency", "50ms")  # fmt: skip


def test_each_way_is_measured_and_nothing_is_left(one_gigabit: Lab, sparkctl: Sparkctl) -> None:
    done = sparkctl(*BOTH)
    assert_ended(done, 0, "done")
    said = [one["message"] for one in list_findings(done, "note")]
    assert any("2 measurements of 2 s at most follow, 4.0 GiB at most" in words for words in said)
    rates = {
        one["message"].split(" over ")[0]: float(figure["value"])
        for one in done.events
        if one["event"] == "finding"
        for figure in one["evidence"]
        if figure["name"] == "rate"
    }
    assert rates.keys() == {"spark1 to spark2", "spark2 to spark1"}
    assert all(0.5 < rate < 1.1 for rate in rates.values()), rates
    for node in one_gigabit.nodes.values():
        await_true("its end to be gone", lambda node=node: not list_remaining_pids(node))  # type: ignore[misc]
    words = sparkctl("doctor", "--fabric")
    assert words.code == 0, words
    assert "Gb/s by TCP, round trip" in " ".join(words.out.split())


@pytest.mark.skipif(shutil.which("ping") is None, reason="there is no ping on this machine")
def test_packets_that_get_lost_though_both_ends_take_them(measured: Lab, sparkctl: Sparkctl) -> None:
    two = measured.nodes["spark2"]
    two.sh("iptables", "-I", "INPUT", "-i", FABRIC, "-m", "length", "--length", "2000:65535", "-j", "DROP")
    try:
        lost = sparkctl(*BOTH)
    finally:
        two.sh("iptables", "-D", "INPUT", "-i", FABRIC, "-m", "length", "--length", "2000:65535", "-j", "DROP")
    assert_ended(lost, 5, "unhealthy")
    assert "packets of 9000 bytes are lost" in list_findings(lost, "problem")[0]["message"]


def test_an_end_that_nobody_reaches(measured: Lab, sparkctl: Sparkctl) -> None:
    two = measured.nodes["spark2"]
    two.sh("iptables", "-I", "INPUT", "-i", FABRIC, "-j", "DROP")
    try:
        silent = sparkctl(*BOTH)
    finally:
        two.sh("iptables", "-D", "INPUT", "-i", FABRIC, "-j", "DROP")
    assert_ended(silent, 5, "unhealthy")
    assert "cannot reach each other" in list_findings(silent, "problem")[0]["message"]
    ip(f"link set {FABRIC} down", netns=get_namespace_name("spark2"))
    try:
        down = sparkctl(*BOTH)
    finally:
        ip(f"link set {FABRIC} up", netns=get_namespace_name("spark2"))
    assert_ended(down, 5, "unhealthy")
    assert f"no interface {FABRIC} with a carrier" in list_findings(down, "problem")[0]["message"]


def test_ctrl_c_ends_both_ends(measured: Lab, sparkctl: Sparkctl) -> None:
    limit_rate(measured.nodes["spark1"], "20mbit", "64kb")
    try:
        running = sparkctl.start(*BOTH)
        running.await_text("measurements of")
        await_true("an end to be at work", lambda: bool(list_remaining_pids(measured.nodes["spark1"])))
        running.interrupt()
        assert_ended(running.end(20), 130, "interrupted")
    finally:
        run("tc", "-n", get_namespace_name("spark1"), "qdisc", "del", "dev", FABRIC, "root")
    for node in measured.nodes.values():
        await_true("its end to be gone", lambda node=node: not list_remaining_pids(node))  # type: ignore[misc]
