"""The look's sections of processes and /dev/shm: the real script on this machine, and what hostile names make of it."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sparkctl.node import build_script_command, node_inspection, read_node_script

UNLINK = (Path(node_inspection.__file__).parent / "remove_shared_memory.sh").read_bytes()


def run_inspection(*sections: str) -> node_inspection.NodeInspection:
    done = subprocess.run(
        build_script_command(*sections),
        input=read_node_script("node_inspection.sh"),
        capture_output=True,
        timeout=60,
        check=True,
    )
    return node_inspection.decode_inspection(done.stdout)


@pytest.fixture
def shared() -> Path:
    path = Path(f"/dev/shm/psm_sparkctl_test_{os.getpid()}")
    path.write_bytes(b"x" * 100_000)
    yield path
    path.unlink(missing_ok=True)


def test_a_process_is_read_with_its_title_its_birth_and_its_memory() -> None:
    words = [
        sys.executable,
        "-c",
        "import time; a = bytearray(8 << 20); print('up', flush=True); time.sleep(60)\n'''\n@@ end\n'''",
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            found = run_inspection("procs", "processes")
            (own,) = [one for one in found.procs or () if one.pid == process.pid]
        finally:
            process.kill()
    assert own.parent == os.getpid()
    assert own.words[:2] == (sys.executable, "-c")
    assert own.is_alive
    assert own.born is not None
    assert abs(own.born - time.time()) < 60
    assert own.resident is not None
    assert own.resident > 8 << 20


def test_a_file_in_dev_shm_is_read_with_its_users(shared: Path) -> None:
    with shared.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
        (used,) = [one for one in run_inspection("shm").shm or () if one.path == str(shared)]
    (unused,) = [one for one in run_inspection("shm").shm or () if one.path == str(shared)]
    assert (used.users, unused.users) == ({os.getpid()}, frozenset())
    assert used.inode == (shared.stat().st_dev, shared.stat().st_ino)
    assert 100_000 <= used.size <= 200_000
    assert used.born is not None
    assert used.born == pytest.approx(shared.stat().st_ctime, abs=0.1), "in fractions of a second"


def test_a_file_that_is_open_and_not_mapped_is_in_use(shared: Path) -> None:
    with shared.open("rb"):
        (used,) = [one for one in run_inspection("shm").shm or () if one.path == str(shared)]
    assert used.users == {os.getpid()}


def test_only_that_very_file_is_removed(shared: Path) -> None:
    stat = shared.stat()

    def unlink(*words: str) -> None:
        subprocess.run(["sh", "-s", "--", *words], input=UNLINK, check=True, timeout=20)

    unlink(f"{stat.st_dev}:{stat.st_ino + 1}", str(shared))
    unlink(f"{stat.st_dev}:{stat.st_ino}", f"/dev/shm/../shm/{shared.name}")
    assert shared.exists()
    unlink("1:1", "/dev/shm/not-there", f"{stat.st_dev}:{stat.st_ino}", str(shared))
    assert not shared.exists()


def test_names_of_processes_and_files_are_no_syntax() -> None:
    rest = " ".join(["0"] * 17)
    body = f"btime 1000\n7 (a) S 1 (x) R) Z 1 {rest} 250 0\n8 (VLLM::EngineCor) S 1 {rest} 300 0\nnonsense\n"
    found = node_inspection.parse_processes(
        body, "/proc/8/cmdline:VLLM::EngineCore\n/proc/8/cmdline: \ngarbage\n", None
    )
    assert found is not None
    assert [(one.pid, one.is_alive, one.start) for one in found] == [(7, False, 250), (8, True, 300)]
    assert found[1].words == ("VLLM::EngineCore",)
    assert found[1].born == 1003.0
    files = node_inspection.parse_shared_memory(
        "file 27 4 0 8 0 /dev/shm/a b\nfile 27 5 0 8 - /dev/shm/c\nfile 27 6 0 8 0.000000000 /dev/shm/d\nfile x\nopen 27 4 /proc/9/fd/3\n"
    )
    assert files is not None
    assert [(one.path, one.born, one.users) for one in files] == [
        ("/dev/shm/a b", None, {9}),
        ("/dev/shm/c", None, frozenset()),
        ("/dev/shm/d", None, frozenset()),
    ]


def test_a_node_that_did_not_say_is_not_empty() -> None:
    assert node_inspection.parse_processes(None, None, None) is None
    assert node_inspection.parse_shared_memory(None) is None
