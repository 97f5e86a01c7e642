"""psutil where the node has it, /proc and /sys where it has not: the same figures; a psutil that is broken is left alone."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
import time
import types
from collections import namedtuple
from contextlib import aclosing
from pathlib import Path
from typing import Any

import psutil
import pytest

from sparkctl.model.events import SampleArrived
from sparkctl.model.node import Node, NodeName
from sparkctl.model.sample import Sample
from sparkctl.monitor.sampler import NodeSampler
from sparkctl.node import agent, bootstrap
from sparkctl.node.agent_decoder import decode_agent_line
from sparkctl.transport.node_session import NodeSession
from tests.unit.node.agent_process import build_nvml_stub, run_agent, write_machine_files

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, which only Linux has")
BUSY = "import os\nheld = bytearray(40 << 20)\nprint(flush=True)\nwhile True: os.getpid()"
Reading = namedtuple("Reading", "label current high critical")


def make_devices(psutil_too: bool, **options: Any) -> agent.DeviceReader:
    return agent.DeviceReader(options.get("root", ""), options.get("disks", ["/"]), psutil=psutil_too)


def test_both_readings_of_one_machine_are_the_same() -> None:
    readers = [make_devices(True), make_devices(False)]
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as busy:
        try:
            assert busy.stdout is not None
            busy.stdout.readline()
            for reader in readers:
                reader.read([busy.pid])
                reader.cached.clear()
            time.sleep(0.5)
            said = [reader.read([busy.pid]) for reader in readers]
        finally:
            busy.kill()
    assert [one["psutil"] for one in said] == [psutil.__version__, None]
    ours, theirs = [next(p for p in one["processes"] if p["pid"] == busy.pid) for one in said]
    assert ours["rss"] == pytest.approx(theirs["rss"], abs=1 << 20)
    assert ours["rss"] > ours["resident"] > 40 << 20
    assert ours["resident"] == pytest.approx(theirs["resident"], abs=1 << 20)
    assert ours["cpu"] == pytest.approx(theirs["cpu"], abs=0.15)
    assert 0 < ours["cpu"] < 1.2
    rooms = [one["disks"][0] for one in said]
    assert rooms[0]["total"] == rooms[1]["total"]
    assert rooms[0]["free"] == pytest.approx(rooms[1]["free"], abs=256 << 20)
    assert said[0]["temperatures"] == [
        dict(one, celsius=pytest.approx(one["celsius"], abs=3)) for one in said[1]["temperatures"]
    ]


CHIPS = {
    "/sys/class/hwmon/hwmon0/name": "mlx5\n",
    "/sys/class/hwmon/hwmon0/temp1_input": "61000\n",
    "/sys/class/hwmon/hwmon1/name": "mlx5\n",
    "/sys/class/hwmon/hwmon1/temp1_input": "62000\n",
    "/sys/class/hwmon/hwmon2/name": "nvme\n",
    "/sys/class/hwmon/hwmon2/temp1_input": "44000\n",
}


def make_fake_psutil(**functions: Any) -> Any:
    module = types.ModuleType("psutil")
    vars(module).update({"__version__": "1.0", "Error": psutil.Error, **functions})
    return module


def test_sensors_keep_whose_they_are(tmp_path: Path) -> None:
    said = {"mlx5": [Reading("", 71.0, None, 105.0), Reading("", 72.0, None, 105.0)], "nvme": []}
    reader = make_devices(False, root=write_machine_files(tmp_path, CHIPS), disks=[])
    reader.psutil = agent.PsutilModule(make_fake_psutil(sensors_temperatures=lambda: said))
    for number in (0, 1):
        (tmp_path / f"sys/class/hwmon/hwmon{number}/device").symlink_to(f"../../../0000:0{number}:00.0")
    found = [(one["chip"], one["device"], one["celsius"]) for one in reader.read([])["temperatures"]]
    assert found == [("mlx5", "0000:00:00.0", 71.0), ("mlx5", "0000:01:00.0", 72.0), ("nvme", None, 44.0)]


def test_a_psutil_that_raises_is_left_alone(tmp_path: Path) -> None:
    asked = []

    def broken(*words: object) -> None:
        asked.append(words)
        raise SystemError("a build for another Python")

    reader = make_devices(False, root=write_machine_files(tmp_path, CHIPS))
    reader.psutil = agent.PsutilModule(make_fake_psutil(sensors_temperatures=broken, disk_usage=broken))
    said = reader.read([])
    assert [one["celsius"] for one in said["temperatures"]] == [61.0, 62.0, 44.0]
    assert said["disks"][0]["free"] > 0
    assert (len(asked), said["psutil"]) == (1, None)


def test_a_process_that_has_gone_is_no_reason_to_leave_it_alone() -> None:
    found = agent.PsutilModule(psutil)
    assert found.call_psutil(lambda module: module.Process(1 << 22)) is None
    assert found.call_psutil(lambda module: module.disk_usage("/no such place")) is None
    assert found.version == psutil.__version__


@pytest.mark.parametrize("source", ["raise SystemError('broken')", "import no_such_module_of_it", "syntax error"])
def test_a_psutil_that_cannot_be_imported(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "psutil.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "psutil")
    before = list(sys.path)
    assert agent.PsutilModule.import_installed().version is None
    assert sys.path == before


async def test_this_machine_is_read_with_what_is_installed_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # where it is started
    (tmp_path / "psutil.py").write_text("raise SystemError('not this one')")
    assert bootstrap.build_local_agent_program(1.0).stdin == b""
    if shutil.which("gcc"):
        monkeypatch.setenv("LD_LIBRARY_PATH", str(build_nvml_stub(tmp_path / "lib")))
    read = await read_first_sample(Node(name=NodeName("here"), host="local"))
    assert read.psutil == importlib.import_module("psutil").__version__
    assert read.memory is not None
    assert read.memory.total == psutil.virtual_memory().total
    if shutil.which("gcc"):
        assert read.gpus is not None
        assert [gpu.name for gpu in read.gpus] == ["NVIDIA GB10"]
    else:
        assert read.gpu_trouble is not None


async def read_first_sample(node: Node) -> Sample:
    async with NodeSession(node) as session, aclosing(NodeSampler(session, every=0.2).stream_samples()) as events:
        async for event in events:
            # its own thread imports psutil, which takes longer than two readings where much runs beside
            if isinstance(event, SampleArrived) and event.sample.sequence >= 2 and event.sample.psutil is not None:
                return event.sample
    raise AssertionError("no sample")


@pytest.mark.skipif(
    not Path(agent.DISTRIBUTION_PACKAGES_DIR, "psutil").is_dir(),
    reason="the distribution's python3-psutil is not installed here",
)
def test_the_distributions_own_is_found_without_site() -> None:
    with run_agent(python="/usr/bin/python3", nvml=b"") as running:
        running.line()
        samples = (decode_agent_line(running.line()) for _ in range(20))
        read = next((one for one in samples if isinstance(one, Sample) and one.psutil is not None), None)
    assert read is not None


def test_ten_sensors_of_a_chip_are_told_in_psutils_order(tmp_path: Path) -> None:
    files = {"/sys/class/hwmon/hwmon0/name": "coretemp\n"}
    for number in range(1, 13):
        files[f"/sys/class/hwmon/hwmon0/temp{number}_input"] = f"{number}000\n"
        files[f"/sys/class/hwmon/hwmon0/temp{number}_label"] = f"core {number}\n"
    in_order = sorted(range(1, 13), key=lambda number: f"temp{number}")  # as psutil sorts what it found
    said = {"coretemp": [Reading(f"core {number}", float(number), None, None) for number in in_order]}
    reader = make_devices(False, root=write_machine_files(tmp_path, files), disks=[])
    reader.psutil = agent.PsutilModule(make_fake_psutil(sensors_temperatures=lambda: said))
    found = {one["label"]: one["celsius"] for one in reader.read([])["temperatures"]}
    assert found == {f"core {number}": float(number) for number in range(1, 13)}
