"""What bites about a node's settings, and what two nodes do not have in common."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.model.finding import Finding, FindingKind, Severity
from sparkctl.model.node import NodeName
from sparkctl.model.sample import MemoryDetail, MemoryReading, Sample
from sparkctl.model.text.units import GIB, KIB
from sparkctl.monitor.findings.node_settings import compare_node_versions, list_setting_findings, list_setting_problems
from sparkctl.node.agent_decoder import AgentHello, EarlyoomStatus, SwapDevice, SysctlSetting

NODE, OTHER = NodeName("spark1"), NodeName("spark2")
WHO = AgentHello(
    host="spark1", kernel="6.14.0-1015-nvidia", driver="580.142", os="7.3.1", docker="29.2.1", toolkit="1.19.0",
    python="3.12.3", up=3 * 86400.0, sysctl=(("swappiness", 60), ("min_free_kbytes", 45056), ("overcommit_memory", None)),
    swaps=(SwapDevice("/swap.img", "file", 16 * GIB, 0),),
)  # fmt: skip
MEMORY = MemoryReading(
    total=120 * GIB, available=40 * GIB, free=10 * GIB, page_cache=30 * GIB, swap_total=16 * GIB, swap_free=16 * GIB
)
SAMPLE = Sample(
    sequence=1,
    time=1.0,
    uptime=1.0,
    memory=MEMORY,
    detail=MemoryDetail(anonymous=2 * GIB, cma_total=64 * KIB, cma_free=KIB),
)


def find_findings(check: str, caller: AgentHello, sample: Sample = SAMPLE) -> list[Finding]:
    return [one for one in list_setting_findings(NODE, caller, sample) if one.kind == check]


def test_a_node_in_good_order() -> None:
    found = list(list_setting_findings(NODE, WHO, SAMPLE))
    assert {one.severity for one in found} == {Severity.GOOD}
    versions, settings = found
    assert "driver 580.142, Docker 29.2.1, container toolkit 1.19.0, Python 3.12.3, up 3 days" in versions.summary
    assert settings.summary == "swap /swap.img 16.0 GiB (0.0 GiB used), swappiness 60, min_free_kbytes 45056"


def test_unknown_settings_make_no_finding() -> None:
    assert [
        one.summary for one in list_setting_findings(NODE, AgentHello(), Sample(sequence=1, time=1.0, uptime=1.0))
    ] == [""]


def test_a_landmine_in_a_file_is_told_with_the_file() -> None:
    mine = SysctlSetting("min_free_kbytes", 5242880, "/etc/sysctl.d/90-tune.conf")
    same, unknown = SysctlSetting("swappiness", 60, "/x"), SysctlSetting("overcommit_memory", 1, "/x")
    found = find_findings("settings", replace(WHO, configured=(mine, same, unknown)))[1:]
    assert [one.severity for one in found] == [Severity.WARNING]
    assert "is 45056 and /etc/sysctl.d/90-tune.conf says 5242880" in found[0].summary
    assert "5.0 GiB" in found[0].summary


@pytest.mark.parametrize(
    ("arguments", "version", "swap", "severity", "words"),
    [
        ("-r 3600", "1.7", 16, Severity.WARNING, "both must be true"),
        ("-r 3600", "1.7", 0, Severity.WARNING, "below 12.0 GiB available (`-r 3600`): a healthy engine"),
        ("-m 2 -s 80", "1.7", 16, Severity.GOOD, "below 2.4 GiB available and 80 % of swap free"),
        ("-m 2 -s 80", "1.8.2", 16, Severity.WARNING, "CUDA memory is in neither"),
        ("-m 2 -s 80", None, 16, Severity.NOTE, "a limit that is not known"),
        ("-m 2 -s 80 --dryrun", "1.7", 16, Severity.NOTE, "pretends"),
        ("--strange", "1.7", 16, Severity.UNKNOWN, "does not understand"),
    ],
)
def test_earlyoom_as_it_runs(arguments: str, version: str | None, swap: int, severity: Severity, words: str) -> None:
    hello = replace(WHO, earlyoom=EarlyoomStatus(version, ("/usr/bin/earlyoom", *arguments.split()), None))
    (found,) = find_findings("earlyoom", hello, replace(SAMPLE, memory=replace(MEMORY, swap_total=swap * GIB)))
    assert found.severity is severity
    assert words in found.summary


@pytest.mark.parametrize(
    ("configured", "expected"), [('"-m 2 -s 80"', False), ("'-m 2 -s 80'", False), ('"-m 9"', True), ('"-m 2', False)]
)
def test_a_file_that_earlyoom_has_not_read_yet(configured: str, expected: bool) -> None:
    found = find_findings(
        "earlyoom", replace(WHO, earlyoom=EarlyoomStatus("1.7", ("earlyoom", "-m", "2", "-s", "80"), configured))
    )
    assert (len(found) == 2) is expected


def test_earlyoom_that_does_not_run() -> None:
    (found,) = find_findings("earlyoom", replace(WHO, earlyoom=EarlyoomStatus("1.7", None, '"-m 2"')))
    assert found.severity is Severity.NOTE


def test_memory_that_a_kernel_with_kho_keeps() -> None:
    (found,) = find_findings("kho", WHO, replace(SAMPLE, detail=MemoryDetail(cma_total=0, cma_free=9 * GIB)))
    assert (found.severity, "kho=off" in (found.remedy or "")) == (Severity.PROBLEM, True)
    assert find_findings("kho", WHO, replace(SAMPLE, detail=MemoryDetail(cma_total=0, cma_free=0))) == []


def test_two_nodes_are_held_against_each_other() -> None:
    other = replace(WHO, driver="580.95.05", toolkit=None, docker="28.5.2", up=5.0)
    (found,) = compare_node_versions({NODE: WHO, OTHER: other})
    assert (found.node, found.kind) == (OTHER, FindingKind.DIFFERENCE)
    assert found.summary.startswith("driver 580.95.05 here, 580.142 on spark1; Docker 28.5.2 here, 29.2.1 on spark1:")
    assert list(compare_node_versions({NODE: WHO, OTHER: WHO})) == []
    firmware = replace(WHO, nic_firmware="28.45.4028", bios="5.36_0ACUM018")
    (found,) = compare_node_versions({NODE: firmware, OTHER: replace(firmware, nic_firmware="28.42.1000", bios="0104")})
    assert found.summary.startswith("ConnectX firmware 28.42.1000 here, 28.45.4028 on spark1: two Sparks")
    assert "fwupdmgr upgrade" in (found.remedy or "")
    assert list(compare_node_versions({NODE: WHO})) == []
    assert list(compare_node_versions({})) == []


def test_settings_that_bite_now() -> None:
    five = replace(WHO, sysctl=(("min_free_kbytes", 5 * 1024 * 1024), ("swappiness", 100)))
    found = [*find_findings("min_free_kbytes", five), *find_findings("swappiness", five)]
    assert [one.severity for one in found] == [Severity.WARNING, Severity.NOTE]
    assert "5.0 GiB" in found[0].summary
    unknown = replace(WHO, sysctl=(("min_free_kbytes", None), ("swappiness", None)))
    assert not [
        *find_findings("min_free_kbytes", WHO),
        *find_findings("swappiness", WHO),
        *find_findings("swappiness", unknown),
    ]


def test_several_of_a_kind_are_one_trouble() -> None:
    mines = (
        SysctlSetting("min_free_kbytes", 5242880, "/etc/sysctl.d/90-tune.conf"),
        SysctlSetting("swappiness", 1, "/etc/sysctl.conf"),
    )
    (found,) = list_setting_problems(NODE, replace(WHO, configured=mines), SAMPLE)
    assert (found.kind, found.severity) == (FindingKind.SETTINGS, Severity.WARNING)
    assert "90-tune.conf" in found.summary
    assert "/etc/sysctl.conf" in found.summary
    assert not list(list_setting_problems(NODE, WHO, SAMPLE))
