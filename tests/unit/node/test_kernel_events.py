"""The table of the kernel's lines: each row has real lines, their source, and sentences that an owner can follow."""

from __future__ import annotations

import pytest

from sparkctl.model.finding import Severity
from sparkctl.model.kernel_event import KernelEvent, KernelEventKind, KernelLine
from sparkctl.monitor.kernel_log import decode_kernel_line, load_kernel_rules
from sparkctl.node.kernel_log import NEEDLE_PATTERN

RULES, XIDS = load_kernel_rules()
EXAMPLES = [(number, text) for number, rule in enumerate(RULES) for text in rule.data["examples"]]
# Lines of machines in order: drivers that load, links that come up, filesystems that are mounted.
HEALTHY_LINES = """\
NVRM: loading NVIDIA UNIX Open Kernel Module for aarch64  580.126.09  Release Build  (dvs-builder@U22-I3-AF01-16-3)
NVRM: testIfDsmSubFunctionEnabled: GPS ACPI DSM called before _acpiDsmSupportedFuncCacheInit subfunction = 11.
nvidia-modeset: Loading NVIDIA UNIX Open Kernel Mode Setting Driver for aarch64  580.126.09
pcieport 0000:00:00.0: AER: enabled with IRQ 61
mlx5_core 0000:01:00.0: firmware version: 28.45.4028
mlx5_core 0000:01:00.0: 126.028 Gb/s available PCIe bandwidth (32.0 GT/s PCIe x4 link)
mlx5_core 0000:01:00.0: Port module event: module 0, Cable plugged
mlx5_core 0000:01:00.0 enp1s0f0np0: Link up
mlx5_core 0000:01:00.0: mlx5_pcie_event:299:(pid 511): Detected insufficient power on the PCIe slot (27W).
infiniband rocep1s0f0: device registered
nvme nvme0: pci function 0004:01:00.0
nvme nvme0: 20/0/0 default/read/poll queues
EXT4-fs (nvme0n1p2): mounted filesystem fc7a1f9e-4967-4f41-a1f5-1b5927e6c5f9 ro with ordered data mode. Quota mode: none.
EXT4-fs (nvme0n1p2): re-mounted fc7a1f9e-4967-4f41-a1f5-1b5927e6c5f9 r/w. Quota mode: none.
VFS: Mounted root (ext4 filesystem) readonly on device 259:2.
mt7925e 0009:01:00.0: ASIC revision: 79250000
mt7925e 0009:01:00.0: HW/SW Version: 0x8a108a10, Build Time: 20250721232852a
thermal_sys: Registered thermal governor 'step_wise'
thermal thermal_zone0: Emergency shutdown is not enabled
Write protecting the kernel read-only data: 26624k
tee (4794): drop_caches: 3
I/O error, dev sr0, sector 0 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2
arm-smmu-v3 arm-smmu-v3.0.auto: ias 48-bit, oas 48-bit (features 0x041e1fff)
arm-smmu-v3 arm-smmu-v3.0.auto: allocated 65536 entries for evtq
gnome-shell[2217]: segfault at 0 ip 00007f1b2c3d4e5f sp 00007ffd1234 error 4 in libglib-2.0.so.0.8000.0[7f1b2c000000+2a000]
oom_reaper: reaped process 4254 (python3), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB
rcu: Preemptible hierarchical RCU implementation.
""".splitlines()


def decode(text: str, **more: object) -> KernelEvent | None:
    return decode_kernel_line(KernelLine(at=1.0, text=text, **more), lambda at: at)  # type: ignore[arg-type]


@pytest.mark.parametrize(("number", "text"), EXAMPLES)
def test_each_real_line_is_known_by_its_own_row(number: int, text: str) -> None:
    assert NEEDLE_PATTERN.search(text.encode()), "the node would not send it"
    event = decode(text)
    assert event is not None
    assert (event.kind, event.source) == (RULES[number].kind, RULES[number].data["source"])
    assert "{" not in event.meaning + event.remedy


@pytest.mark.parametrize("text", HEALTHY_LINES)
def test_a_healthy_line_is_no_warning(text: str) -> None:
    event = decode(text)
    assert event is None or (event.severity is Severity.NOTE and event.many is None)


@pytest.mark.parametrize("kind", list(KernelEventKind))
def test_each_kind_has_a_row(kind: KernelEventKind) -> None:
    assert any(rule.kind is kind for rule in RULES)


@pytest.mark.parametrize("number", sorted(XIDS, key=int))
def test_each_xid_says_what_it_means_and_what_to_do(number: str) -> None:
    event = decode(f"NVRM: Xid (PCI:000f:01:00): {number}, pid=4242, name=python3, Ch 00000008")
    assert event is not None
    assert (event.xid, event.pid) == (int(number), 4242)
    assert event.process == "python3"
    assert event.meaning == f"Xid {number}: {XIDS[number]['meaning']}"
    assert event.remedy


@pytest.mark.parametrize("number", [13, 31, 43, 45, 48, 61, 62, 63, 64, 74, 79, 119, 120, 154])
def test_the_common_xids_are_in_the_table(number: int) -> None:
    assert str(number) in XIDS


def test_an_xid_without_a_meaning_is_a_warning_all_the_same() -> None:
    event = decode("NVRM: Xid (PCI:000f:01:00): 9999, something new")
    assert event is not None
    assert event.severity is Severity.WARNING
    assert event.meaning == "the GPU's driver reported Xid 9999"


def test_a_gpu_that_needs_nothing_any_more_is_no_warning() -> None:
    event = decode(
        "NVRM: Xid (PCI:000f:01:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    )
    assert event is not None
    assert event.severity is Severity.NOTE
    assert not event.ends_programs


def test_a_lost_gpu_matters_until_the_next_boot() -> None:
    event = decode("NVRM: Xid (PCI:0000:03:00): 79, GPU has fallen off the bus.")
    assert event is not None
    assert (event.severity, event.hours, event.ends_programs) == (Severity.PROBLEM, None, True)


@pytest.mark.parametrize(
    ("text", "severity", "hours"),
    [
        ("rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 0-... } 6 jiffies", Severity.WARNING, 1),
        ("rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:", Severity.PROBLEM, None),
        ("rcu: INFO: rcu_preempt self-detected stall on CPU", Severity.PROBLEM, None),
        ("{37}[Hardware Error]: event severity: corrected", Severity.NOTE, 1),
        ("{3}[Hardware Error]: event severity: fatal", Severity.PROBLEM, 6),
    ],
)
def test_one_short_stall_is_no_hung_core(text: str, severity: Severity, hours: int | None) -> None:
    event = decode(text)
    assert event is not None
    assert (event.severity, event.hours) == (severity, hours)


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("pcieport 0000:00:00.0: AER: Uncorrectable (Fatal) error message received from 0000:01:00.0", "0000:01:00.0"),
        ("pcieport 0002:00:00.0: AER: Multiple Uncorrectable (Non-Fatal) error message received from 0002:01:00.0", "0002:01:00.0"),
        ("pcieport 0000:00:1d.0: AER: Corrected error received: 0000:07:00.0", "0000:07:00.0"),
        ("mlx5_core 0000:01:00.1: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Transaction Layer", "0000:01:00.1"),
        ("pcieport 0000:00:1c.0: AER: Uncorrected (Fatal) error received: id=00e0", "0000:00:1c.0"),
    ],
)  # fmt: skip
def test_a_port_that_reports_an_error_is_not_the_device_that_had_it(text: str, device: str) -> None:
    event = decode(text)
    assert event is not None
    assert f"PCIe device {device} " in event.meaning
