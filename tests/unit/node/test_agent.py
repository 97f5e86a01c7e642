"""The travelling probe, run for real: what it reads, what it leaves out, when it ends."""

from __future__ import annotations

import ast
import importlib
import os
import re
import resource
import select
import shutil
import signal
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

from sparkctl.model.sample import DiskSpace, RdmaGid, Sample
from sparkctl.model.text.units import KIB
from sparkctl.node import agent, bootstrap
from sparkctl.node.agent_decoder import AgentHello, decode_agent_line
from sparkctl.node.kernel_log import open_kernel_log
from tests.unit.node.agent_process import GB10_MEMINFO, RunningAgent, list_pythons, run_agent, write_machine_files

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, which only Linux has")
SOURCE = Path(agent.__file__).read_text()
ROUTES = (  # as on a little-endian machine, which a Spark is, and this one
    "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
    "enP7s7\t00000000\t0102A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
    "enp1s0f1np1\t00C8A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
    "docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
)
NO_GPU = b"class NVMLError(Exception): pass\ndef nvmlInit(): raise NVMLError('Shared Library Not Found')\n"
HANGING = b"""
import time
class NVMLError(Exception): pass
def nvmlInit(): time.sleep(600)
"""


def read_hello(running: RunningAgent) -> AgentHello:
    found = decode_agent_line(running.line())
    assert isinstance(found, AgentHello)
    return found


def read_sample(running: RunningAgent) -> Sample:
    found = decode_agent_line(running.line())
    assert isinstance(found, Sample)
    running.feed()
    return found


def read_disks(running: RunningAgent) -> tuple[DiskSpace, ...]:
    """Return what the first sample that tells of the disks says: on a busy machine their reader takes its time."""
    for _ in range(50):
        if (disks := read_sample(running).disks) is not None:
            return disks
    raise AssertionError("no sample told of the disks")


@pytest.mark.parametrize("name", sorted(bootstrap.GUARD_MODULES))
def test_what_travels_is_python_3_8_and_imports_the_standard_library_alone(name: str) -> None:
    source = Path(agent.__file__).parent.joinpath(f"{name.replace('.', '/')}.py").read_text()
    tree = ast.parse(source, feature_version=(3, 8))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""])
    }
    own = set() if name == "kernel_log" else {"sparkctl"}
    assert imported <= sys.stdlib_module_names | own
    assert "subprocess" not in imported


@pytest.mark.parametrize("python", list_pythons())
def test_the_agent_reads_this_machine(python: str) -> None:
    with run_agent(python=python, disks=["/", "~"], nvml=NO_GPU) as running:
        hello = read_hello(running)
        assert hello.kernel == os.uname().release
        first, second = read_sample(running), read_sample(running)
        disks = second.disks or read_disks(running)
    assert first.memory is not None
    assert first.memory.total > first.memory.available
    assert (first.sequence, second.sequence) == (1, 2)
    assert second.uptime > first.uptime
    assert second.cpu is not None
    assert len(second.cpu.cores) == psutil.cpu_count()
    assert (second.gpus, second.gpu_trouble, second.gpu_silent_for) == (None, "NVML: Shared Library Not Found", None)
    assert [disk.path for disk in disks] == ["/", "~"]
    assert all(disk.free for disk in disks)


@pytest.mark.parametrize("shell", ["sh", "bash", "rbash", "zsh", "fish", "tcsh", "busybox sh"])
def test_it_starts_from_any_login_shell(shell: str) -> None:
    words = shell.split()
    if shutil.which(words[0]) is None:
        pytest.skip(f"no {words[0]} here")
    odd = "/a 'quoted' \\ name"
    with run_agent(disks=[odd], nvml=b"", shell=[*words, "-c"]) as running:
        read_hello(running)
        disks = read_disks(running)
    assert [disk.path for disk in disks] == [odd]


def test_the_agent_reads_what_psutil_reads() -> None:
    with run_agent(nvml=b"") as running:
        read_hello(running)
        before = psutil.virtual_memory()
        read = read_sample(running)
        after = psutil.virtual_memory()
    memory = read.memory
    assert memory is not None
    assert memory.total == before.total
    for name in ("available", "free"):
        ends = sorted((getattr(before, name), getattr(after, name)))
        assert ends[0] - (64 << 20) < getattr(memory, name) < ends[1] + (64 << 20)
    assert memory.swap_total == psutil.swap_memory().total
    net = psutil.net_io_counters(pernic=True)
    for link in read.links or ():
        assert link.received == pytest.approx(net[link.name].bytes_recv, rel=0.01, abs=1 << 20)
        assert link.mtu == psutil.net_if_stats()[link.name].mtu


def test_another_machine_under_root(tmp_path: Path) -> None:
    root = write_machine_files(tmp_path, {
        "/proc/meminfo": GB10_MEMINFO,
        "/proc/vmstat": "nr_free_pages 1\ndrop_pagecache 7\ndrop_slab 6\noom_kill 0\n",
        "/proc/buddyinfo": "Node 0, zone   Normal " + " ".join(["1"] * 11) + " 2 0 3 0\n",
        "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.142  Release\n",
        "/etc/dgx-release": 'DGX_NAME="DGX Spark"\nDGX_SWBUILD_VERSION="7.3.1"\n',
        "/sys/class/dmi/id/product_family": "DGX Spark\n",
        "/sys/devices/system/cpu/cpu0/cpu_capacity": "718\n",
        "/sys/devices/system/cpu/cpu1/cpu_capacity": "1024\n",
        "/proc/stat": "cpu  0 0 0 0\ncpu0 10 0 10 80 0 0 0 0 0 0\ncpu1 50 0 0 50 0 0 0 0 0 0\n",
        "/sys/class/hwmon/hwmon0/name": "acpitz\n",
        "/sys/class/hwmon/hwmon0/temp1_input": "57800\n",
        "/sys/class/hwmon/hwmon2/name": "mlx5\n",
        "/sys/class/hwmon/hwmon2/temp1_input": "62000\n",
        "/sys/class/hwmon/hwmon2/temp1_label": "asic\n",
        "/sys/class/thermal/thermal_zone0/type": "acpitz\n",
        "/sys/class/thermal/thermal_zone0/temp": "57800\n",
        "/sys/class/net/enp1s0f1np1/carrier": "1\n",
        "/sys/class/net/enp1s0f1np1/operstate": "up\n",
        "/sys/class/net/enp1s0f1np1/speed": "200000\n",
        "/sys/class/net/enp1s0f1np1/mtu": "9000\n",
        "/sys/class/net/wlP9s9/speed": "-1\n",
        "/sys/class/net/docker0/mtu": "1500\n",
        "/proc/net/dev": "Inter-|   Receive\n face |bytes\n"
        "enp1s0f1np1: 5647020   38909    0    0    0     0          0      1973 37496464   50127    0    2    0     0   0   0\n",
        "/sys/class/infiniband/rocep1s0f1/ports/1/state": "4: ACTIVE\n",
        "/sys/class/infiniband/rocep1s0f1/ports/1/rate": "200 Gb/sec (2X NDR)\n",
        "/sys/class/infiniband/rocep1s0f1/ports/1/counters/port_rcv_data": "81408901908\n",
        "/sys/class/infiniband/rocep1s0f1/ports/1/hw_counters/np_cnp_sent": "7\n",
        "/sys/class/infiniband/rocep1s0f1/device/net/enp1s0f1np1/mtu": "9000\n",
        "/sys/class/infiniband/rocep1s0f1/ports/1/gids/0": "fe80:0000:0000:0000:4abb:feff:fe12:3456\n",
        "/sys/class/infiniband/rocep1s0f1/ports/1/gid_attrs/types/0": "IB/RoCE v1\n",
        "/sys/class/infiniband/rocep1s0f1/ports/1/gids/1": "0000:0000:0000:0000:0000:0000:0000:0000\n",
        "/sys/class/infiniband/rocep1s0f1/ports/1/gids/5": "0000:0000:0000:0000:0000:ffff:c0a8:c80b\n",
        "/sys/class/infiniband/rocep1s0f1/ports/1/gid_attrs/types/5": "RoCE v2\n",
        "/proc/net/route": ROUTES,
    })  # fmt: skip
    with run_agent(root=root, nvml=b"") as running:
        hello, read = read_hello(running), read_sample(running)
    assert (hello.product, hello.driver, hello.os) == ("DGX Spark", "580.142", "7.3.1")
    assert read.memory is not None
    assert read.memory.page_cache == (20448480 + 77328 + 231480 - 755460) * KIB
    assert read.memory.swap_used == (16777212 - 16723228) * KIB
    detail = read.detail
    assert detail is not None
    assert (detail.drop_pagecache, detail.drop_slab, detail.oom_kill, detail.pswpin) == (7, 6, 0, None)
    assert (detail.huge_total, detail.huge_free, detail.writeback) == (4 << 20, 2 << 20, None)
    assert (detail.cma_total, detail.cma_free) == (0, 940604 * KIB)
    assert detail.pressure is None
    assert detail.blocks is not None
    assert detail.blocks[13] == 3
    assert read.cpu is not None
    assert [(c.capacity, c.cores) for c in read.cpu.clusters] == [(1024, (1,)), (718, (0,))]
    assert read.temperatures is not None
    assert [(t.chip, t.label, t.celsius) for t in read.temperatures] == [("acpitz", None, 57.8), ("mlx5", "asic", 62.0)]
    assert read.links is not None
    assert [(one.name, one.speed, one.carrier) for one in read.links] == [
        ("enp1s0f1np1", 200000, True),
        ("wlP9s9", None, None),
    ]
    assert (read.links[0].received, read.links[0].sent) == (5647020, 37496464)
    assert read.rdma is not None
    assert (read.rdma[0].received, read.rdma[0].sent, read.rdma[0].interface) == (325635607632, None, "enp1s0f1np1")
    assert dict(read.rdma[0].errors)["np_cnp_sent"] == 7
    assert dict(read.rdma[0].errors)["symbol_error"] is None
    assert read.rdma[0].gids == (
        RdmaGid(0, "IB/RoCE v1", "fe80:0000:0000:0000:4abb:feff:fe12:3456"),
        RdmaGid(5, "RoCE v2", "192.168.200.11"),
    )
    assert [one.networks for one in read.links] == [("192.168.200.0/24",), ()]


def test_a_machine_without_anything_is_unknown_and_not_zero(tmp_path: Path) -> None:
    with run_agent(root=str(tmp_path), disks=["/models"], nvml=b"") as running:
        read_hello(running)
        read = read_sample(running)
        disks = read.disks or read_disks(running)
    assert (read.memory, read.gpus, read.gpu_memory) == (None, None, None)
    assert read.detail is not None
    assert (read.detail.pressure, read.detail.blocks, read.detail.dirty) == (None, None, None)
    assert read.cpu is not None
    assert (read.cpu.busy, read.cpu.load) == (None, None)
    assert disks[0].free is None
    assert (read.links, read.rdma, read.temperatures) == ((), (), ())


def test_networks_are_those_without_a_gateway() -> None:
    assert agent.parse_routes(ROUTES.encode()) == {"enp1s0f1np1": ["192.168.200.0/24"], "docker0": ["172.17.0.0/16"]}
    assert agent.parse_routes(None) is None


def test_a_process_outside_of_containers_is_in_a_service_or_a_session(tmp_path: Path) -> None:
    paths = {
        "1": "/system.slice/ollama.service",
        "2": "/user.slice/user-1000.slice/session-12.scope",
        "3": "/user.slice/user-1000.slice/user@1000.service/app.slice/llama.service",
        "4": "/",
    }
    root = write_machine_files(tmp_path, {f"/proc/{pid}/cgroup": f"0::{path}\n" for pid, path in paths.items()})
    assert [agent.find_systemd_unit(root, int(pid)) for pid in paths] == [
        "ollama.service", "session-12.scope", "llama.service", None,
    ]  # fmt: skip


def test_cores_are_busy_as_the_ticks_say() -> None:
    cores = agent.CpuUsage()
    assert cores.compute_shares(b"cpu0 10 0 10 80 0 0 0 0 0 0\ncpu1 0 0 0 9 1 0 0 0 0 0\n") == {0: None, 1: None}
    assert cores.compute_shares(b"cpu0 40 0 10 150 0 0 0 0 0 0\ncpu1 0 0 0 9 1 0 0 0 0 0\n") == {0: 0.3, 1: None}


def test_it_ends_with_stdin_and_takes_its_child_along() -> None:
    with run_agent(nvml=HANGING) as running:
        read_hello(running)
        read_sample(running)
        (child,) = running.children()
        assert running.process.stdin is not None
        running.process.stdin.close()
        assert running.process.wait(5) == 0
        _wait_for(lambda: _is_gone(child))


def test_the_agent_ends_without_keepalive() -> None:
    with run_agent(nvml=b"", fed=0.4) as running:
        began = time.monotonic()
        assert running.process.wait(10) == 0
        assert 0.3 < time.monotonic() - began < 5


def test_the_agent_ends_when_nobody_reads() -> None:
    with run_agent(nvml=b"", every=0.05, fed=1.0, disks=["/"] * 200) as running:  # the pipe is full within a second
        assert running.process.wait(10) == 0


def test_keepalive_keeps_the_agent_running() -> None:
    with run_agent(nvml=b"", every=0.1, fed=0.5) as running:
        read_hello(running)
        reads = [read_sample(running) for _ in range(12)]
    assert reads[-1].uptime - reads[0].uptime > 0.6


STOPPING = """#!{python}
import os, select, signal, sys
real = select.select
def stops(*words):
    found = real(*words)
    if os.path.exists({flag!r}):
        os.unlink({flag!r})
        os.kill(os.getpid(), signal.SIGSTOP)
    return found
select.select = stops
boot, sys.argv = sys.argv[3], ["-c", *sys.argv[4:]]
exec(boot)
"""


@pytest.mark.parametrize("is_fed", [True, False])
def test_one_that_was_stopped_goes_on_if_it_was_fed_meanwhile(is_fed: bool, tmp_path: Path) -> None:
    wrapper, flag = tmp_path / "python3", tmp_path / "stop"
    wrapper.write_text(STOPPING.format(python=sys.executable, flag=str(flag)))
    wrapper.chmod(0o755)
    with run_agent(python=str(wrapper), nvml=b"", every=0.1, fed=0.5) as running:
        read_hello(running)
        stat = Path(f"/proc/{running.process.pid}/stat")
        flag.touch()
        _wait_for(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")
        if is_fed:
            running.feed()
        time.sleep(0.8)
        running.process.send_signal(signal.SIGCONT)
        if is_fed:
            for _ in range(8):
                read_sample(running)
        else:
            assert running.process.wait(10) == 0


def test_a_driver_that_hangs_does_not_stop_the_samples_of_memory() -> None:
    with run_agent(nvml=HANGING, every=0.1) as running:
        read_hello(running)
        reads = [read_sample(running) for _ in range(9)]
    assert all(read.memory is not None and read.gpus is None for read in reads)
    silent = [read.gpu_silent_for for read in reads]
    assert None not in silent
    assert silent[-1] > silent[0]  # type: ignore[operator]
    late = [after.uptime - before.uptime for before, after in pairwise(reads[1:])]
    waited = [gap for gap in late if gap >= agent.DEVICE_WAIT_SECONDS]  # a busy machine delays one or two, too
    assert len(waited) < 3, "only the first sample waits for a driver that is silent"


def test_an_agent_that_was_suspended_catches_nothing_up() -> None:
    with run_agent(nvml=HANGING, every=0.2) as running:
        read_hello(running)
        read_sample(running)
        reads = [read_sample(running)]
        for _ in range(3):
            os.kill(running.process.pid, signal.SIGSTOP)
            time.sleep(0.5)
            os.kill(running.process.pid, signal.SIGCONT)
            reads += [read_sample(running) for _ in range(3)]
    gaps = [after.uptime - before.uptime for before, after in pairwise(reads)]
    at_once = [gap for gap in gaps if gap < 0.05]  # a busy machine, too, delays a sample until shortly before the next
    assert len(at_once) < 3, "no two samples at once after a suspension, of which there were three"


def test_a_reader_of_the_gpu_that_is_stopped_is_silence_and_its_return_is_news() -> None:
    with run_agent(nvml=NO_GPU, every=0.05) as running:
        read_hello(running)
        assert read_sample(running).gpu_trouble
        (child,) = running.children()
        os.kill(child, signal.SIGSTOP)
        _wait_for(lambda: (read_sample(running).gpu_silent_for or 0) > 0.3)
        os.kill(child, signal.SIGCONT)
        _wait_for(lambda: read_sample(running).gpu_silent_for is None)
        os.kill(child, signal.SIGKILL)
        _wait_for(lambda: read_sample(running).gpu_trouble == "the process that asks the driver has ended")


JUMPING = """#!{python}
import itertools, sys, time
ahead, real = itertools.cycle((0, 86400, -86400)), time.time
time.time = lambda: real() + next(ahead)
boot, sys.argv = sys.argv[3], ["-c", *sys.argv[4:]]
exec(boot)
"""


def test_a_wall_clock_that_jumps_moves_the_time_of_a_sample_and_nothing_else(tmp_path: Path) -> None:
    wrapper = tmp_path / "python3"
    wrapper.write_text(JUMPING.format(python=sys.executable))
    wrapper.chmod(0o755)
    with run_agent(python=str(wrapper), nvml=b"", every=0.1, fed=1.0) as running:
        read_hello(running)
        reads = [read_sample(running) for _ in range(13)]
    times, ups = [read.time for read in reads], [read.uptime for read in reads]
    assert max(times) - min(times) > 2 * 86_400 - 60
    assert [read.sequence for read in reads] == list(range(1, 14))
    assert all(0 < after - before < 1 for before, after in pairwise(ups))
    rates = [link.receive_rate for read in reads[2:] for link in read.links or ()]
    assert None not in rates


def test_the_rate_is_changed_by_a_line() -> None:
    with run_agent(nvml=b"", every=60) as running:
        read_hello(running)
        read_sample(running)
        running.write(b"nonsense\nevery x\nevery 0.05\n")
        read_sample(running)
        assert read_sample(running).sequence == 3


def test_the_part_of_pynvml_that_travels_has_all_that_the_probe_calls() -> None:
    module = agent.load_module("pynvml_part", bootstrap.read_pynvml_source(program="agent"))
    whole = vars(importlib.import_module("pynvml"))
    used = whole.keys() & set(re.findall(r"\w+", SOURCE))
    assert len(used) > 20
    assert {name for name in used if not hasattr(module, name)} == set()
    assert len(bootstrap.read_pynvml_source(program="agent")) < 60_000
    assert b"ctypes.util" not in bootstrap.read_pynvml_source(program="agent"), (
        "it would cost the node 2.5 MiB, and nothing of it is called"
    )
    with pytest.raises(module.NVMLError):
        module.nvmlInit()


def _is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def _wait_for(claim: object) -> None:
    deadline = time.monotonic() + 5
    while not claim():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def make_small_agent(tmp_path: Path, **files: str) -> agent.NodeAgent:
    """A probe in this process, without a GPU, that is not run."""
    root = write_machine_files(tmp_path, {f"/proc/{name}": text for name, text in files.items()})
    return agent.NodeAgent(
        root,
        1.0,
        None,
        agent.start_reader_thread(agent.DeviceReader(root, [], psutil=False).read),
        open_kernel_log(root),
    )


def feed_agent(probe: agent.NodeAgent, now: float) -> None:
    probe.request_readings(now)
    _wait_for(lambda: select.select([probe.devices.answers], [], [], 0.01)[0])
    probe.devices.receive_answer()


def test_devices_that_owe_an_answer_are_not_shown_as_of_now(tmp_path: Path) -> None:
    probe, gate = make_small_agent(tmp_path), threading.Event()
    gate.set()

    def read(_: list[int]) -> dict[str, Any]:
        gate.wait(20)
        return {"links": [{"name": "eth0"}], "temperatures": [], "processes": [{"pid": 1}], "psutil": "7.0"}

    probe.devices = agent.start_reader_thread(read)
    probe.parts = [probe.devices]
    feed_agent(probe, 100.0)
    gate.clear()
    assert probe.build_sample(100.1)["links"] == [{"name": "eth0"}]
    probe.request_readings(102.0)
    late = probe.build_sample(103.0)
    assert late["devices_silent_for"] == 1.0
    assert "links" not in late, "a rate is of its moment"
    assert late["processes"] == [{"pid": 1, "gpu_memory": None}], "read every five seconds anyway"
    later = probe.build_sample(116.0)
    assert (later["devices_silent_for"], later["processes"], later.get("temperatures")) == (14.0, None, None)
    gate.set()
    _wait_for(lambda: select.select([probe.devices.answers], [], [], 0.01)[0])
    probe.devices.receive_answer()
    assert probe.build_sample(117.0)["links"] == [{"name": "eth0"}]


def test_devices_that_cannot_be_read_say_why_and_are_read_again(tmp_path: Path) -> None:
    probe, answers = make_small_agent(tmp_path), iter([ValueError("not hex"), None])

    def read(_: list[int]) -> dict[str, Any]:
        if (wrong := next(answers)) is not None:
            raise wrong
        return {"links": []}

    probe.devices = agent.start_reader_thread(read)
    probe.parts = [probe.devices]
    feed_agent(probe, 1.0)
    first = probe.build_sample(1.1)
    assert (first["devices_trouble"], first.get("links")) == ("ValueError: not hex", None)
    feed_agent(probe, 2.0)
    second = probe.build_sample(2.1)
    assert (second.get("devices_trouble"), second["links"]) == (None, [])


def test_the_essentials_are_read_again_at_once_after_a_failure(tmp_path: Path) -> None:
    probe = make_small_agent(tmp_path)
    assert probe.build_sample(1.0)["memory"] is None
    write_machine_files(tmp_path, {"/proc/meminfo": GB10_MEMINFO, "/proc/vmstat": "oom_kill 3\n"})
    found = probe.build_sample(2.0)
    assert found["memory"]["total"] == 127535224 * KIB
    assert found["detail"]["oom_kill"] == 3


def test_a_process_of_the_gpu_is_never_left_out(tmp_path: Path) -> None:
    files = {}
    for pid in (*range(100, 170), 4242):
        small_one = pid == 4242
        files[f"/proc/{pid}/cgroup"] = f"0::/system.slice/docker-{'ab' * 32}.scope\n"
        files[f"/proc/{pid}/stat"] = f"{pid} (x) S 1 0 0 0 0 0 0 0 0 0 250 50 0 0 0 0 0\n"
        files[f"/proc/{pid}/status"] = f"RssAnon:\t {1 if small_one else pid * 1000} kB\n"
    found = agent.ProcessReader(write_machine_files(tmp_path, files)).read([4242])
    assert len(found) == agent.MAX_LISTED_ITEMS
    assert found[-1]["pid"] == 4242
    assert [one["pid"] for one in found[:3]] == [169, 168, 167]


def test_a_process_that_has_ended_and_was_not_asked_for_holds_nothing(tmp_path: Path) -> None:
    files = {"/proc/7/stat": "7 (x) Z 1 0 0 0 0 0 0 0 0 0 250 50 0 0 0 0 0\n", "/proc/7/status": "State:\tZ\n"}
    (found,) = agent.ProcessReader(write_machine_files(tmp_path, files)).read([7])
    assert found["resident"] == 0


def test_who_adopted_a_process_of_the_gpu_is_told(tmp_path: Path) -> None:
    files = {
        "/proc/7/stat": "7 (VLLM::EngineCor) S 2100 0 0 0 0 0 0 0 0 0 250 50 0 0 0 0 0\n",
        "/proc/7/cgroup": "0::/user.slice/user-1000.slice/user@1000.service/app.slice/vte-spawn-3f.scope\n",
        "/proc/2100/comm": "systemd\n",
    }
    (found,) = agent.ProcessReader(write_machine_files(tmp_path, files)).read([7])
    assert (found["parent"], found["parent_name"], found["unit"]) == (2100, "systemd", "vte-spawn-3f.scope")


def _count_open_files(under: Path) -> int:
    links = list(Path("/proc/self/fd").iterdir())
    return sum(str(under) in str(link.readlink()) for link in links if link.is_symlink())


def test_looking_for_devices_again_keeps_no_file_of_the_look_before(tmp_path: Path) -> None:
    port = "/sys/class/infiniband/rocep1s0f1/ports/1"
    root = write_machine_files(
        tmp_path,
        {f"/sys/class/hwmon/hwmon{chip}/temp{at}_input": "50000" for chip in range(3) for at in range(1, 5)}
        | {f"{port}/counters/{name}": "4" for name in ("port_rcv_data", "port_xmit_data", "link_downed")}
        | {f"{port}/state": "4: ACTIVE", f"{port}/rate": "200 Gb/sec", f"{port}/hw_counters/np_cnp_sent": "7"},
    )
    reader = agent.DeviceReader(root, [], psutil=False)
    assert len(reader.read([])["temperatures"]) == 12
    before = _count_open_files(tmp_path)
    assert before == 12 + 6
    for _ in range(3):
        reader.found_at = -agent.ABSENT_RETRY_SECONDS
        reader.cached.clear()
        assert len(reader.read([])["temperatures"]) == 12
    assert _count_open_files(tmp_path) == before
    shutil.rmtree(tmp_path / "sys/class/infiniband/rocep1s0f1")
    reader.found_at = -agent.ABSENT_RETRY_SECONDS
    assert reader.read([])["rdma"] == []
    assert _count_open_files(tmp_path / "sys/class/infiniband") == 0


def test_devices_that_cannot_be_listed_are_an_error_and_not_absent(tmp_path: Path) -> None:
    root = write_machine_files(tmp_path, {"/sys/class/hwmon/hwmon0/temp1_input": "50000"})
    reader = agent.DeviceReader(root, [], psutil=False)
    assert agent.list_directory(f"{root}/absent") == []
    assert agent.list_directory(f"{root}/sys/class/hwmon/hwmon0/temp1_input") == []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            reader.read([])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(reader.read([])["temperatures"]) == 1, "not only a minute later"
