"""What the kernel logged becomes a finding while it matters, with its instance, its remedy and the line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.engines.traps import load_traps
from sparkctl.model.container import ContainerState
from sparkctl.model.finding import Finding, FindingKind, Severity
from sparkctl.model.instance import InstanceView
from sparkctl.model.kernel_event import BootEnd, KernelEvent, KernelLine
from sparkctl.model.sample import MemoryDetail, RdmaLane, Sample
from sparkctl.monitor.findings.host_detectors import KernelEventDetector, list_unclean_boot, rate_kernel_line
from sparkctl.monitor.findings.node_settings import list_setting_findings
from sparkctl.monitor.kernel_log import decode_kernel_line, load_kernel_rules
from sparkctl.node.agent_decoder import AgentHello
from tests.unit.monitor.findings.node_snapshots import BEGIN, ID, NODE, make_snapshot

OOM = "Out of memory: Killed process 41872 (VLLM::EngineCor) total-vm:158493688kB, anon-rss:1000kB"
LOST = "NVRM: Xid (PCI:000f:01:00): 79, GPU has fallen off the bus."
REFUSED = "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned"
HOUR = 3600.0


def make_event(text: str, at: float = 0.0, **more: object) -> KernelEvent:
    event = decode_kernel_line(KernelLine(at=at, text=text), lambda uptime: BEGIN + uptime)
    assert event is not None
    return replace(event, **more)  # type: ignore[arg-type]


def detect(at: float, *events: KernelEvent, instances: tuple[InstanceView, ...] = ()) -> list[Finding]:
    return KernelEventDetector().detect(replace(make_snapshot(at, instances=instances), kernel=events))


def test_an_oom_kill_names_the_instance_and_is_over_after_hours() -> None:
    one = InstanceView(
        name="qwen36", node=NODE, container="sparkctl-qwen36", image="x", state=ContainerState.EXITED, status="", ours=True,
        memory=None, phase=None, container_id=ID,
    )  # fmt: skip
    event = make_event(OOM, at=10.0, container=ID)
    (finding,) = detect(60.0, event, instances=(one,))
    assert (finding.kind, finding.severity, finding.instance) == (FindingKind.KERNEL, Severity.WARNING, "qwen36")
    assert "VLLM::EngineCor" in finding.summary
    assert "(of qwen36)" in finding.summary
    assert finding.since == BEGIN + 10.0
    assert finding.evidence[0].value == OOM
    (unnamed,) = detect(60.0, event)
    assert f"container {ID[:12]}" in unnamed.summary
    assert detect(10.0 + 6 * HOUR + 1, event) == []


def test_a_lost_gpu_is_a_problem_until_the_next_boot() -> None:
    (finding,) = detect(900 * HOUR, make_event(LOST))
    assert finding.severity is Severity.PROBLEM
    assert "Restart" in (finding.remedy or "")


def test_one_refused_allocation_is_common_and_many_are_not() -> None:
    assert detect(60.0, make_event(REFUSED)) == []
    (finding,) = detect(60.0, make_event(REFUSED, count=4), make_event(REFUSED, at=30.0))
    assert finding.severity is Severity.WARNING
    assert "5 times" in finding.summary
    assert detect(2 * HOUR, make_event(REFUSED, count=20)) == []


def test_an_allocation_of_the_driver_that_failed_is_a_warning_at_once() -> None:
    (finding,) = detect(60.0, make_event(REFUSED.replace("NoLog", "")))
    assert (finding.severity, "failed to allocate" in finding.summary) == (Severity.WARNING, True)
    assert detect(60.0, make_event(REFUSED.replace("NVRM: ", "NVRM: GPU0 "))) == []


def test_one_error_of_a_drive_is_over_after_a_day_and_many_are_a_problem() -> None:
    line = "I/O error, dev nvme0n1, sector 1336320 op 0x0:(READ) flags 0x80700 phys_seg 4 prio class 2"
    (one,) = detect(60.0, make_event(line))
    assert one.severity is Severity.WARNING
    assert detect(25 * HOUR, make_event(line)) == []
    (many,) = detect(60.0, make_event(line, count=4), make_event(line, at=30.0))
    assert many.severity is Severity.PROBLEM
    (gone,) = detect(900 * HOUR, make_event("nvme nvme0: Disabling device after reset failure: -19"))
    assert gone.severity is Severity.PROBLEM


def test_an_unclean_end_names_what_stood_before_it() -> None:
    end = BootEnd(
        is_clean=False, ended=BEGIN - 60, last=("dockerd[9]: x",), events=(make_event(REFUSED, at=-65.0, count=9),)
    )
    (finding,) = list_unclean_boot(NODE, end, uptime=40.0)
    assert (finding.kind, finding.severity, finding.since) == (FindingKind.LAST_BOOT, Severity.WARNING, BEGIN - 60)
    assert "NV_ERR_NO_MEMORY" in finding.summary
    (silent,) = list_unclean_boot(NODE, replace(end, events=()), uptime=40.0)
    assert "does not say why" in silent.summary
    assert silent.evidence[0].value == "dockerd[9]: x"
    (old,) = list_unclean_boot(NODE, end, uptime=48 * HOUR)
    assert old.severity is Severity.NOTE


def test_before_an_unclean_end_a_cause_is_named_before_what_follows_from_it() -> None:
    lost = make_event("NVRM: Xid (PCI:000f:01:00): 79, GPU has fallen off the bus.", at=-90.0)
    hung = make_event("INFO: task python3:4242 blocked for more than 120 seconds.", at=-70.0)
    power = make_event(
        "mlx5_core 0000:01:00.0: mlx5_pcie_event:299:(pid 511): Detected insufficient power on the PCIe slot (27W).",
        at=-61.0,
    )
    end = BootEnd(is_clean=False, ended=BEGIN - 60, events=(lost, hung, power))
    (finding,) = list_unclean_boot(NODE, end, uptime=40.0)
    assert "Xid 79" in finding.summary
    assert (finding.remedy or "").startswith("it was restarted since; if it happens again: ")
    (alone,) = list_unclean_boot(NODE, replace(end, events=(power,)), uptime=40.0)
    assert "does not say why" in alone.summary, "Sparks at full speed print it, too"


@pytest.mark.parametrize("end", [None, BootEnd(is_clean=True), BootEnd(trouble="the journal: not readable")])
def test_an_orderly_or_unknown_end_is_no_finding(end: BootEnd | None) -> None:
    assert list_unclean_boot(NODE, end, uptime=40.0) == []


def find_known_bad(kernel: str, sample: Sample) -> list[Finding]:
    found = list_setting_findings(NODE, AgentHello(kernel=kernel), sample)
    return [one for one in found if one.kind is FindingKind.KNOWN_BAD]


def test_a_kernel_with_a_known_fault() -> None:
    cabled = Sample(sequence=1, time=1.0, uptime=1.0, rdma=(RdmaLane(name="rocep1s0f0"),))
    (finding,) = find_known_bad("7.0.0-1019-nvidia", cabled)
    assert "kho=off" in (finding.remedy or "")
    assert finding.evidence[1].value.startswith("https://")
    assert find_known_bad("7.0.0-1019-nvidia", replace(cabled, rdma=())) == []
    mended = replace(cabled, detail=MemoryDetail(cma_total=0, cma_free=0))
    assert find_known_bad("7.0.0-1019-nvidia", mended) == []
    assert find_known_bad("6.17.0-1032-nvidia", cabled) == []


def test_a_driver_that_an_owner_reports_is_a_note() -> None:
    def find(driver: str) -> list[Finding]:
        found = list_setting_findings(NODE, AgentHello(driver=driver), Sample(sequence=1, time=1.0, uptime=1.0))
        return [one for one in found if one.kind is FindingKind.KNOWN_BAD]

    (finding,) = find("590.48.01")
    assert (finding.severity, "590.48.01" in finding.summary) == (Severity.NOTE, True)
    assert find("580.142") == find("610.57.04") == []


def test_each_known_fault_has_a_field_of_the_identity() -> None:
    shown = [trap.node for trap in load_traps() if trap.node is not None]
    assert len(shown) >= 3
    for one in shown:
        assert hasattr(AgentHello(), one.what)
        assert Severity(one.severity) in (Severity.NOTE, Severity.WARNING, Severity.PROBLEM)


def test_a_kernel_line_is_a_problem_until_a_restart_and_a_warning_where_it_is_over() -> None:
    assert rate_kernel_line(Severity.PROBLEM, None) is Severity.PROBLEM
    assert rate_kernel_line(Severity.PROBLEM, 6) is Severity.WARNING
    assert rate_kernel_line(Severity.NOTE, 1) is Severity.NOTE
    rules, _ = load_kernel_rules()
    lasting = [rule for rule in rules if rate_kernel_line(rule.severity, rule.data["hours"]) is Severity.PROBLEM]
    assert {str(rule.kind) for rule in lasting} >= {"gpu-lost", "pcie", "wifi", "hung-task", "disk"}
