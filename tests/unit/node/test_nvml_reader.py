"""Our own pynvml, the part of it that travels, on a library that answers as a GB10 does."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from sparkctl.model.sample import GpuProcess, Sample
from sparkctl.node.agent_decoder import decode_agent_line
from tests.unit.node.agent_process import GB10_MEMINFO, build_nvml_stub, list_pythons, run_agent, write_machine_files

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="NVML's stand-in is a Linux library"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc to build NVML's stand-in with"),
]
CONTAINER = "ab" * 32


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(build_nvml_stub(tmp_path / "lib")))


@pytest.mark.usefixtures("stub")
@pytest.mark.parametrize("python", list_pythons())
def test_a_gb10_is_read_as_far_as_it_answers(python: str, tmp_path: Path) -> None:
    stat = "4242 (VLLM::Worker_TP0 (1)) S 4200 0 0 0 0 0 0 0 0 0 250 50 0 0 0 0 0\n"
    root = write_machine_files(tmp_path / "root", {
        "/proc/meminfo": GB10_MEMINFO,
        "/proc/4242/cgroup": f"0::/system.slice/docker-{CONTAINER}.scope\n",
        "/proc/4242/stat": stat,
        "/proc/4242/status": "Name:\tx\nRssAnon:\t    1000 kB\nRssFile:\t 9 kB\nRssShmem:\t      24 kB\n",
        "/proc/4242/comm": "VLLM::Worker_TP0\n",
    })  # fmt: skip
    with run_agent(root=root, python=python, every=0.1) as running:
        running.said()
        running.line()
        running.feed()
        read = decode_agent_line(running.line())
    assert isinstance(read, Sample)
    assert (read.gpu_trouble, read.gpu_silent_for) == (None, None)
    assert read.gpus is not None
    (gpu,) = read.gpus
    assert (gpu.name, gpu.uuid, gpu.busy, gpu.power, gpu.celsius) == ("NVIDIA GB10", "GPU-0", 0.96, 62.4, 71.0)
    assert (gpu.sm_clock, gpu.sm_clock_max, gpu.pstate, gpu.reasons) == (2398, 3003, 0, 0x20)
    assert (gpu.memory_total, gpu.memory_used, gpu.bandwidth_share, gpu.bandwidth_peak) == (None, None, None, None)
    assert gpu.events is not None
    assert gpu.events.sw_thermal is None
    assert gpu.processes == (GpuProcess(4242, 5_000_000_000), GpuProcess(4243, None))
    assert read.gpu_memory is None, "of one process the driver does not say it"
    assert read.get_container_memory(CONTAINER) == 5_000_000_000 + (1024 << 10)
    assert read.processes is not None
    process = next(one for one in read.processes if one.pid == 4242)
    assert (process.name, process.parent, process.container) == ("VLLM::Worker_TP0 (1)", 4200, CONTAINER)


def read_third_sample(tmp_path: Path) -> list[Sample]:
    found = []
    with run_agent(root=write_machine_files(tmp_path / "root", {"/proc/meminfo": GB10_MEMINFO}), every=0.1) as running:
        running.said()
        for _ in range(3):
            read = decode_agent_line(running.line())
            assert isinstance(read, Sample)
            found.append(read)
            running.feed()
    return found


@pytest.mark.usefixtures("stub")
def test_a_driver_that_counts_bandwidth_is_asked_between_two_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB_GPM", "1")
    gpus = [read.gpus[0] for read in read_third_sample(tmp_path) if read.gpus]
    shares = [gpu.bandwidth_share for gpu in gpus]
    assert shares == [None, 0.44, 0.44][-len(shares) :]
    assert shares[-2:] == [0.44, 0.44]
    assert gpus[-1].bandwidth_peak == 2 * 4_266_000_000 * 256 // 8


@pytest.mark.usefixtures("stub")
def test_an_error_that_passes_silences_no_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STUB_STUMBLES", "1")
    powers = [read.gpus[0].power for read in read_third_sample(tmp_path) if read.gpus]
    assert None in powers
    assert powers[-1] == 62.4
