"""The collector, really run on this machine: it reads what there is, says what there is not, and waits for nobody for long."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sparkctl.commands import doctor_bundle
from sparkctl.commands.doctor_bundle import CollectedReading, ReadingCollector
from sparkctl.node import bootstrap
from tests.unit.node.agent_process import GB10_MEMINFO, build_nvml_stub, list_pythons, write_machine_files

SOURCE = Path(bootstrap.__file__).with_name("collect.py").read_text()
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, which only Linux has")


def run_collector(start: bootstrap.RemoteProgram, env: dict[str, str] | None = None) -> dict[str, CollectedReading]:
    ran = subprocess.run(
        start.argv, input=start.stdin, capture_output=True, timeout=60, env={**os.environ, **(env or {})}, check=True
    )
    gathered = ReadingCollector()
    for line in ran.stdout.splitlines():
        assert len(line) < 60_000  # what a pipe's reader takes
        gathered.add_line(line)
    assert gathered.whole
    assert ran.stderr == b""
    return {reading.name: reading for reading in gathered.list_readings()}


def test_it_is_written_for_python_3_8_and_needs_nothing_but_it() -> None:
    tree = ast.parse(SOURCE, feature_version=(3, 8))
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert imported <= set(sys.stdlib_module_names)
    beside = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert beside <= {"__future__", "typing", "collections.abc", "sparkctl.node.agent"}, "the agent comes along"
    assert "shell=True" not in SOURCE


@linux
@pytest.mark.parametrize("python", list_pythons())
def test_a_machine_made_of_files_is_read_whole(python: str, tmp_path: Path) -> None:
    root = write_machine_files(tmp_path / "root", {
        "/proc/meminfo": GB10_MEMINFO,
        "/proc/cpuinfo": "".join(f"processor\t: {n}\nCPU part\t: {0xD85 if n > 2 else 0xD87:#x}\n\n" for n in range(6)),
        "/sys/class/thermal/thermal_zone0/type": "acpitz\n",
        "/sys/class/thermal/thermal_zone0/temp": "54000\n",
        "/sys/class/infiniband/rocep1s0f0/ports/1/counters/port_rcv_data": "812\n",
        "/sys/class/infiniband/rocep1s0f0/ports/1/counters/dear_to_read": "1\n",
        "/proc/sys/vm/swappiness": "60\n",
    })  # fmt: skip
    found = run_collector(doctor_bundle.build_collect_program(root, nvml=b"", python=python))
    assert found["proc/meminfo"] == CollectedReading("proc/meminfo", GB10_MEMINFO)
    assert found["proc/vmstat"] == CollectedReading("proc/vmstat", "", "No such file or directory")
    assert found["proc/cpuinfo"].text.count(" x\n") == 2
    assert found["thermal"].text == (
        "/sys/class/thermal/thermal_zone0/type: acpitz\n/sys/class/thermal/thermal_zone0/temp: 54000\n"
    )
    assert found["rdma"].text == "/sys/class/infiniband/rocep1s0f0/ports/1/counters/port_rcv_data: 812\n"
    assert found["sysctl"].text == "/proc/sys/vm/swappiness: 60\n"
    assert not [name for name in found if name.startswith("commands/")]  # they would be about this machine


@linux
def test_this_machine_and_a_command_that_hangs_and_one_that_never_stops_talking(tmp_path: Path) -> None:
    for name, body in (("nvidia-smi", "echo begun; exec sleep 100"), ("dmesg", "exec yes kernel"), ("df", "exit 3")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    start = doctor_bundle.build_collect_program(nvml=b"")
    quick = start.stdin.replace(b"ANSWER_TIMEOUT_SECONDS = 10.0", b"ANSWER_TIMEOUT_SECONDS = 01.0")
    began = time.monotonic()
    found = run_collector(bootstrap.RemoteProgram(start.argv, quick), {"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert time.monotonic() - began < 40
    assert found["commands/uname"].text.startswith("Linux")
    smi = found["commands/nvidia-smi"]
    assert (smi.text, smi.why) == ("begun\n", "did not end within 1 s")
    assert (len(found["commands/dmesg"].text), found["commands/dmesg"].cut) == (256 * 1024, True)
    assert found["commands/df"].why == "exit status 3"
    assert found["nvml"].text == "no pynvml came along\n"


@linux
@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc to build NVML's stand-in with")
def test_every_call_of_nvml_is_told_with_its_code(tmp_path: Path) -> None:
    library = str(build_nvml_stub(tmp_path / "lib"))
    lines = run_collector(doctor_bundle.build_collect_program(), {"LD_LIBRARY_PATH": library})["nvml"].text.splitlines()
    assert "nvmlDeviceGetName(gpu 0): 'NVIDIA GB10'" in lines
    assert "nvmlDeviceGetMemoryInfo(gpu 0): error 3 (Not Supported)" in lines
    assert any(line.startswith("nvmlDeviceGetUtilizationRates(gpu 0): {gpu: 96") for line in lines)
    assert any(line.startswith("nvmlDeviceGetVbiosVersion(gpu 0): error 13") for line in lines)  # not in the stand-in


def test_what_a_node_sends_is_not_trusted() -> None:
    gathered = ReadingCollector()
    for line in (
        b"Welcome to spark1!", b"[]", b'{"name": "../../etc/passwd", "text": "x"}', b'{"name": "/etc/passwd", "text": "x"}',
        b'{"name": "a\\u0000b", "text": "x"}', b'{"name": 5}', b"\xff\xfe", b'{"name": "a/./b", "text": "x"}',
        b'{"name": "fine", "text": 7}', b'{"name": "fine", "text": "x", "end": 1}', b"[" * 100_000,
    ):  # fmt: skip
        gathered.add_line(line)
    assert gathered.list_readings() == (CollectedReading("fine", "x", "the node went silent in the middle of it"),)
    assert not gathered.whole
    for n in range(2000):
        gathered.add_line(b'{"name": "n%d", "text": "x"}' % n)
    for _ in range(300):
        gathered.add_line(b'{"name": "fine", "text": "%s"}' % (b"y" * 8000))
    assert len(gathered.list_readings()) == 500
    assert len(gathered.list_readings()[0].text) <= 1 << 20
