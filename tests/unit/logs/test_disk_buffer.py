"""The spool against a plain list of the newest lines."""

from __future__ import annotations

import os
import resource
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkctl.logs.buffer import DiskLineBuffer

LINES = st.lists(st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")), max_size=40), max_size=150)


@settings(max_examples=60, deadline=None)
@given(st.lists(LINES, max_size=12), st.integers(1, 400))
def test_the_buffer_holds_the_newest_lines(batches: list[list[str]], most: int) -> None:
    spool = DiskLineBuffer(most_lines=most)
    whole: list[str] = []
    for batch in batches:
        spool.append(batch)
        whole += batch
        assert (spool.end, spool.first) == (len(whole), max(0, len(whole) - most))
        assert spool.read(0, len(whole)) == whole[-most:]
        middle = (spool.first + spool.end) // 2
        assert spool.read(middle, middle + 3) == whole[middle : middle + 3]
    spool.close()
    assert spool.read(0, len(whole)) == []


def test_nothing_is_left_in_the_directory_and_the_file_is_private(tmp_path: Path) -> None:
    spool = DiskLineBuffer(tmp_path)
    spool.append(["a line"])
    assert list(tmp_path.iterdir()) == []
    mine = [info for info in map(_stat_of, _open_files()) if info and info.st_size == len("a line\n")]
    assert [(info.st_mode & 0o777, info.st_nlink) for info in mine] == [(0o600, 0)]
    spool.close()


def _open_files() -> list[int]:
    return [int(path.name) for path in Path("/proc/self/fd").iterdir()]


def _stat_of(number: int) -> os.stat_result | None:
    try:
        return os.fstat(number)
    except OSError:
        return None


def test_old_parts_leave_the_disk(tmp_path: Path) -> None:
    spool = DiskLineBuffer(tmp_path, most_lines=800)
    before = len(_open_files())
    for start in range(0, 20_000, 100):
        spool.append([f"line {number}" for number in range(start, start + 100)])
    assert len(_open_files()) - before <= 9
    assert spool.read(spool.first, spool.first + 1) == ["line 19200"]


def test_bytes_are_bounded_too(tmp_path: Path) -> None:
    spool = DiskLineBuffer(tmp_path, most_bytes=1 << 20)
    for _ in range(40):
        spool.append(["x" * 1000] * 100)
    assert 700 <= len(spool) <= 1300
    assert spool.read(0, spool.end) == ["x" * 1000] * len(spool)


def test_a_full_disk_keeps_the_newest_lines_in_memory(tmp_path: Path) -> None:
    """The kernel's file size limit refuses writes as a full disk does: in the middle, and part of them."""
    spool = DiskLineBuffer(tmp_path, in_memory=1 << 20)
    wrote = [f"line {number} " + "x" * 90 for number in range(40_000)]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_001, hard))
    try:
        for start in range(0, 4000, 500):
            spool.append(wrote[start : start + 500])
        assert spool.write_error is not None
        assert "only the newest 1 MiB" in spool.write_error
        assert spool.read(0, 4000) == wrote[:4000], "nothing is lost at the moment of the fall"
        for start in range(4000, 40_000, 500):
            spool.append(wrote[start : start + 500])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert spool.end == 40_000
    assert 5_000 < len(spool) < 20_000
    assert spool.read(0, 40_000) == wrote[spool.first :]


def test_a_directory_that_is_not_there_is_no_error(tmp_path: Path) -> None:
    spool = DiskLineBuffer(tmp_path / "nowhere")
    spool.append(["one", "two"])
    assert spool.read(0, 2) == ["one", "two"]
    assert spool.write_error is not None
    assert "No such file" in spool.write_error


@pytest.mark.parametrize("lines", [200_000])
def test_lines_are_not_in_memory(lines: int) -> None:
    spool = DiskLineBuffer()
    spool.append(["warm"])
    tracemalloc.start()
    try:
        for _ in range(lines // 500):
            spool.append(["x" * 150] * 500)
        memory, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert memory < lines, f"{memory / lines:.2f} bytes a line"
