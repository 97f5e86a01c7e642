"""The reader of the kernel's log: bounded, counting what it skips, and honest where it may not read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sparkctl.monitor.kernel_log import decode_kernel_log
from sparkctl.node import bootstrap, kernel_log
from tests.unit.node.agent_process import list_pythons

CONTAINER = "5e" * 32
OOM_TASK = (
    "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
    f"task_memcg=/system.slice/docker-{CONTAINER}.scope,task=VLLM::EngineCor,pid=41872,uid=0"
)
OOM_KILL = "Out of memory: Killed process 41872 (VLLM::EngineCor) total-vm:158493688kB, anon-rss:1000kB"
REFUSED = (
    "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from "
    "_memdescAllocInternal(pMemDesc) @ mem_desc.c:1359"
)


class KmsgOnDisk:
    """A file in the place of /dev/kmsg."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / "dev" / "kmsg"
        self.path.parent.mkdir(parents=True)
        self.path.touch()
        self.sequence = 0

    def log(self, text: str, at: float = 1.0) -> None:
        with self.path.open("a") as file:
            file.write(f"6,{self.sequence},{int(at * 1e6)},-;{text}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:00:00.0\n")
        self.sequence += 1


@pytest.fixture
def kmsg(tmp_path: Path) -> KmsgOnDisk:
    return KmsgOnDisk(tmp_path)


def collect(reader: kernel_log.KernelLogReader) -> list[dict[str, object]]:
    reader.collect(lambda _: None)
    lines = reader.build_message()["lines"]
    reader.forget_sent()
    return list(lines)


def test_only_lines_that_matter_are_kept_once(kmsg: KmsgOnDisk) -> None:
    kmsg.log("eth0: link becomes ready", 1.0)
    kmsg.log(REFUSED, 2.5)
    reader = kernel_log.open_kernel_log(str(kmsg.root))
    (line,) = collect(reader)
    assert (line["at"], line["text"], line["count"]) == (2.5, REFUSED, 1)
    assert collect(reader) == []
    kmsg.log("pcieport 0000:00:00.0: AER: Uncorrectable (Fatal) error message received from 0000:00:00.0", 3.0)
    assert [line["at"] for line in collect(reader)] == [3.0]


def test_an_oom_kill_gets_the_container_of_its_victim(kmsg: KmsgOnDisk) -> None:
    kmsg.log(OOM_TASK, 7.0)
    kmsg.log(OOM_KILL, 7.1)
    (line,) = collect(kernel_log.open_kernel_log(str(kmsg.root)))
    assert line["container"] == CONTAINER
    assert line["text"] == OOM_KILL


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:000f:01:00): 31, pid=2512125, name=python3.10, Ch 00000008, intr 00000000. MMU Fault",
        "VLLM::EngineCor[2512125]: segfault at 10 ip 00007f1b sp 00007ffd error 4 in libcuda.so.580.95.05[7f1b+2a]",
    ],
)
def test_a_process_that_a_line_names_is_looked_up(kmsg: KmsgOnDisk, line: str) -> None:
    kmsg.log(line)
    reader = kernel_log.open_kernel_log(str(kmsg.root))
    reader.collect(lambda pid: CONTAINER if pid == 2512125 else None)
    assert reader.build_message()["lines"][0]["container"] == CONTAINER


def test_lines_that_differ_in_figures_alone_are_counted(kmsg: KmsgOnDisk) -> None:
    for number in range(300):
        kmsg.log(f"pcieport 0000:00:1d.0: AER: Corrected error received: 0000:07:00.{number % 8}", number)
    (line,) = collect(kernel_log.open_kernel_log(str(kmsg.root)))
    assert (line["count"], line["at"], line["last"]) == (300, 0.0, 299.0)


def test_addresses_are_figures_too(kmsg: KmsgOnDisk) -> None:
    for number in range(4):
        fault = f"NVRM: Xid (PCI:000f:01:00): 31, MMU Fault: ENGINE GRAPHICS faulted @ 0x7fab_12cd{number}e0f"
        kmsg.log(fault.replace("_", ""), number)
    (line,) = collect(kernel_log.open_kernel_log(str(kmsg.root)))
    assert line["count"] == 4


def test_a_flood_is_skipped_and_counted(kmsg: KmsgOnDisk) -> None:
    reader = kernel_log.open_kernel_log(str(kmsg.root))
    kmsg.log("first")
    collect(reader)
    sent = 20 * kernel_log.READ_BYTES // 60
    for number in range(sent):
        kmsg.log(f"usb 1-1: device descriptor read/64, error {number}")
    seen = len(reader.read_new())
    assert kernel_log.MAX_RECORDS <= seen < sent
    kmsg.log(REFUSED)
    reader.collect(lambda _: None)
    message = reader.build_message()
    assert [line["text"] for line in message["lines"]] == [REFUSED]
    assert message["skipped"] == sent - seen


def test_of_a_flood_the_worst_lines_are_kept(kmsg: KmsgOnDisk) -> None:
    reader = kernel_log.open_kernel_log(str(kmsg.root))
    kmsg.log("first")
    collect(reader)
    for number in range(4000):
        kmsg.log(REFUSED if number == 3000 else f"pcieport 0000:00:00.0: AER: Corrected error received: {number}", 2.0)
    kmsg.log("last")
    reader.collect(lambda _: None)
    message = reader.build_message()
    counts = [line["count"] for line in message["lines"]]
    assert message["lines"][1]["text"] == REFUSED
    assert len(counts) == 2
    assert message["skipped"] <= 4000 - sum(counts)
    kmsg.log("later")
    reader.collect(lambda _: None)
    assert reader.build_message()["skipped"] == 4000 - sum(counts) + 1, "the last one of the flood was not kept, either"


def test_a_pci_device_is_told_with_its_class_and_driver(kmsg: KmsgOnDisk) -> None:
    place = kmsg.root / "sys/bus/pci/devices"
    for address, number, driver in (("0000:01:00.0", "0x020000", "mlx5_core"), ("0004:01:00.0", "0x010802", None)):
        (place / address).mkdir(parents=True)
        (place / address / "class").write_text(f"{number}\n")
        if driver is not None:
            (place / address / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
    kmsg.log("pcieport 0000:00:00.0: AER: Uncorrectable (Fatal) error message received from 0000:01:00.0", 1.0)
    kmsg.log("nvme 0004:01:00.0: AER: can't recover (no error_detected callback)", 2.0)
    program = bootstrap.build_kernel_log_program(
        root=str(kmsg.root), python=sys.executable, boot_before=False, is_local=False
    )
    done = subprocess.run(program.argv, input=program.stdin, capture_output=True, check=True, timeout=60)
    lines = json.loads(done.stdout)["log"]["lines"]
    assert [line["devices"] for line in lines] == [["0000:01:00.0 0x020000 mlx5_core"], ["0004:01:00.0 0x010802"]]
    (event, *_) = decode_kernel_log(done.stdout).events
    assert event.meaning == "the PCIe device 0000:01:00.0 (the ConnectX) failed for good (fatal AER error)"


def test_what_waits_is_bounded(kmsg: KmsgOnDisk) -> None:
    names = [chr(97 + number // 26) + chr(97 + number % 26) for number in range(100)]
    for name in names:
        kmsg.log(f"EXT4-fs error (device {name}): " + "x" * 5000)
    reader = kernel_log.open_kernel_log(str(kmsg.root))
    reader.collect(lambda _: None)
    message = reader.build_message()
    assert len(message["lines"]) == kernel_log.MAX_WAITING_LINES
    assert message["skipped"] == 100 - kernel_log.MAX_WAITING_LINES
    assert max(len(line["text"]) for line in message["lines"]) == kernel_log.MAX_LINE_CHARS


def test_records_that_the_kernel_overwrote_are_counted(kmsg: KmsgOnDisk) -> None:
    kmsg.log("one")
    reader = kernel_log.open_kernel_log(str(kmsg.root))
    collect(reader)
    kmsg.sequence += 41
    kmsg.log("two")
    reader.collect(lambda _: None)
    assert reader.build_message()["skipped"] == 41


def test_without_history_only_new_lines_count(kmsg: KmsgOnDisk) -> None:
    kmsg.log(REFUSED)
    reader = kernel_log.open_kernel_log(str(kmsg.root), history=False)
    kmsg.log(
        "NVRM: _iovaspaceCreateMappingDataFromMemDesc: failed to allocate 0x176028 bytes for IOVA mapping metadata"
    )
    assert [kernel_log.DRIVER_REFUSAL_PATTERN.search(text) is not None for _, text in reader.read_new()] == [True]


@pytest.mark.parametrize("drift", [0.5, 1.0, 2.0])
def test_where_only_dmesg_works_the_guard_reads_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drift: float
) -> None:
    """Whatever the kernel's clock says. It prints two lines that were there, then a third; the guard reads late, all at once."""
    now = time.monotonic() * drift
    said = [f"echo '<4>[{now + second:.6f}] {REFUSED}'" for second in (1, 2, 3)]
    program = tmp_path / "dmesg"
    program.write_text(
        f"#!/bin/sh\ncd {tmp_path}; test ! -e stop || exit 1\n{said[0]}\n{said[1]}\ntest ! -e 2 || {said[2]}\n"
        "test ! -e 1 || touch 2; touch 1\n",
        "utf-8",
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(kernel_log, "DMESG_PAUSE_SECONDS", 0.05)
    for history, count in ((False, 1), (True, 3)):
        reader = kernel_log.KernelLogReader(kernel_log.open_dmesg(history, follows=True), None)
        found, deadline = [], time.monotonic() + 20.0
        while len(found) < count and time.monotonic() < deadline:
            time.sleep(0.5)
            found += reader.read_new()
        (tmp_path / "stop").touch()
        while reader.source is not None and time.monotonic() < deadline:
            time.sleep(0.05)
            found += reader.read_new()
        assert len(found) == count
        for name in ("1", "2", "stop"):
            (tmp_path / name).unlink()


def test_a_log_that_may_not_be_read_says_why(tmp_path: Path) -> None:
    reader = kernel_log.open_kernel_log(str(tmp_path))
    reader.collect(lambda _: None)
    message = reader.build_message()
    assert message["source"] is None
    assert message["trouble"] == "/dev/kmsg: No such file or directory"


JOURNAL = """\
-- Boot 9c5a2d1b4e6f --
[  812.402110] spark-2a60 kernel: {refused}
[  812.402115] kernel: NVRM: GPU 000f:01:00.0: RmInitAdapter failed! (0x62:0x1a:2631)
                                continuation
[  813.000001] dockerd[911]: Out of memory in some log
"""


def test_the_journal_is_read_in_the_place_of_the_device() -> None:
    text = JOURNAL.format(refused=REFUSED)
    pipe = kernel_log.LogPipe("journal", ["printf", "%s", text], kernel_log.JOURNAL_PATTERN, follows=False)
    reader = kernel_log.KernelLogReader(pipe, None)
    kernel_log.read_everything(reader)
    message = reader.build_message()
    assert [line["at"] for line in message["lines"]] == [812.40211, 812.402115]
    assert (message["source"], message["trouble"], message["oldest"]) == ("journal", None, 812.40211)


def test_a_program_that_must_go_on_and_ends_is_told() -> None:
    pipe = kernel_log.LogPipe("journal", ["true"], kernel_log.JOURNAL_PATTERN)
    reader = kernel_log.KernelLogReader(pipe, None)
    kernel_log.read_everything(reader)
    assert reader.build_message()["source"] is None
    assert reader.build_message()["trouble"] in ("journal ended", "journal: it printed nothing")


def test_a_journal_without_a_line_is_not_a_quiet_kernel() -> None:
    pipe = kernel_log.LogPipe("journal", ["true"], kernel_log.JOURNAL_PATTERN, follows=False)
    reader = kernel_log.KernelLogReader(pipe, None)
    kernel_log.read_everything(reader)
    assert reader.build_message()["trouble"] == "journal: it printed nothing"


def test_dmesg_that_prints_everything_again_repeats_nothing() -> None:
    line = f"<4>[ 812.402110] {REFUSED}\\n"
    later = "<4>[ 900.000000] EXT4-fs (nvme0n1p2): Remounting filesystem read-only\\n"
    script = f"printf '{line}--\\n'; printf '{line}{later}--\\n'"
    pipe = kernel_log.LogPipe("dmesg", ["sh", "-c", script], kernel_log.DMESG_PATTERN, repeats=True, follows=False)
    reader = kernel_log.KernelLogReader(pipe, None)
    kernel_log.read_everything(reader)
    found = [(line["at"], line["count"]) for line in reader.build_message()["lines"]]
    assert found == [(812.40211, 1), (900.0, 1)], "also where both prints are read at once"


ORDERLY = [
    b"1768000001.100000 systemd[1]: Reached target reboot.target - System Reboot.",
    b"1768000001.200000 systemd-shutdown[1]: Sending SIGTERM to remaining processes...",
    b"1768000001.300000 systemd-journald[412]: Journal stopped",
]
POWER_CUT = [
    b"1768000000.100000 dockerd[911]: health check failed",
    b"1768000001.300000 kernel: NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY]",
]


def test_the_end_of_the_boot_before() -> None:
    assert kernel_log.summarize_boot_end(ORDERLY, None)["clean"] is True
    unclean = kernel_log.summarize_boot_end(POWER_CUT, None)
    assert unclean["clean"] is False
    assert unclean["ended"] == 1768000001.3
    assert unclean["last"][-1].startswith("kernel: NVRM")
    assert [line["at"] for line in kernel_log.read_old_kernel_lines(POWER_CUT)] == [1768000001.3]
    unknown = kernel_log.summarize_boot_end([b"-- No entries --"], None)
    assert unknown["clean"] is None
    assert "nothing of the previous boot" in unknown["trouble"]


@pytest.mark.parametrize("python", list_pythons())
def test_the_program_prints_the_log_of_a_machine(kmsg: KmsgOnDisk, python: str) -> None:
    kmsg.log(OOM_TASK, 7.0)
    kmsg.log(OOM_KILL, 7.1)
    program = bootstrap.build_kernel_log_program(root=str(kmsg.root), python=python, boot_before=False, is_local=False)
    done = subprocess.run(program.argv, input=program.stdin, capture_output=True, check=True, timeout=60)
    log = decode_kernel_log(b"Welcome to this machine\n" + done.stdout)
    assert [(one.kind, one.container, one.pid) for one in log.events] == [("oom-kill", CONTAINER, 41872)]
    assert log.source == "kmsg"
    assert log.kernel == os.uname().release


@pytest.mark.parametrize("output", [b"", b"{}", b'{"kernel_log": 9}', b'{"kernel_log": 1, "log": 3}', b"\xff\n[]"])
def test_another_answer_is_refused(output: bytes) -> None:
    with pytest.raises(ValueError, match="kernel's log"):
        decode_kernel_log(output)


def test_no_text_of_a_node_reaches_the_screen_as_it_is(kmsg: KmsgOnDisk) -> None:
    message = {
        "kernel_log": 1, "now": 100.0, "uptime": 10.0, "kernel": "6.17.0\x1b[31m",
        "log": {"source": "kmsg", "oldest": 1.0, "lines": [{"at": 5.0, "text": "EXT4-fs error (device sda1): \x1b]0;x\x07\x9b" + "y" * 900}]},
    }  # fmt: skip
    log = decode_kernel_log(json.dumps(message).encode())
    (event,) = log.events
    assert event.at == 95.0
    assert event.text.isprintable()
    assert len(event.text) <= 300
    assert log.kernel == "6.17.0"


def test_the_agent_sends_the_lines_with_a_sample(kmsg: KmsgOnDisk) -> None:
    kmsg.log(REFUSED, 3.0)
    program = bootstrap.build_agent_program(0.2, root=str(kmsg.root), nvml=b"", python=sys.executable)
    with subprocess.Popen(program.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write(program.stdin)
        running.stdin.flush()
        assert json.loads(running.stdout.readline())["kind"] == "hello"
        first, second = (json.loads(running.stdout.readline())["kernel"] for _ in range(2))
        running.stdin.close()
    assert [line["text"] for line in first["lines"]] == [REFUSED]
    assert second["lines"] == []
    assert second["source"] == "kmsg"
