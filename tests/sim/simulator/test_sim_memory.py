"""The one memory of a simulated GB10 adds up, makes room, and refuses without harm."""

from __future__ import annotations

import pytest

from sparkctl.engines.simulation.unified_memory import KERNEL_RESERVE_BYTES, UnifiedMemory
from sparkctl.model.node import TOTAL_BYTES
from sparkctl.model.text.units import GIB, KIB
from sparkctl.node.node_inspection import parse_meminfo


def test_meminfo_reads_as_what_the_model_holds() -> None:
    memory = UnifiedMemory(page_cache=38 * GIB)
    memory.allocate(7, gpu=20 * GIB, anonymous=2 * GIB)
    read = parse_meminfo(memory.format_meminfo())
    assert read is not None
    assert (read.total, read.free // KIB, read.available // KIB) == (
        TOTAL_BYTES,
        memory.free_bytes // KIB,
        memory.available_bytes // KIB,
    )
    assert read.page_cache == pytest.approx(38 * GIB, rel=0.03)
    assert read.used > 22 * GIB


def test_cuda_memory_is_missing_from_free_and_named_nowhere() -> None:
    memory = UnifiedMemory(page_cache=GIB)
    before = memory.format_meminfo()
    memory.allocate(7, gpu=30 * GIB)
    changed = {
        old.split(":")[0]
        for old, new in zip(before.splitlines(), memory.format_meminfo().splitlines(), strict=True)
        if old != new
    }
    assert changed == {"MemFree", "MemAvailable"}


def test_page_cache_makes_room() -> None:
    memory = UnifiedMemory(page_cache=100 * GIB)
    memory.allocate(7, gpu=60 * GIB)
    assert memory.free_bytes >= KERNEL_RESERVE_BYTES
    assert memory.file_cache_bytes < 60 * GIB


def test_what_does_not_fit_changes_nothing() -> None:
    memory = UnifiedMemory(page_cache=40 * GIB)
    before = memory.format_meminfo()
    with pytest.raises(MemoryError):
        memory.allocate(7, gpu=125 * GIB)
    assert memory.format_meminfo() == before


def test_reading_weights_fills_the_cache_as_far_as_there_is_room() -> None:
    memory = UnifiedMemory(page_cache=0)
    memory.read_file("/models/a", 30 * GIB)
    assert memory.files["/models/a"] == 30 * GIB
    memory.read_file("/models/b", 200 * GIB)
    assert memory.free_bytes == pytest.approx(KERNEL_RESERVE_BYTES, abs=GIB)
    memory.drop_caches(3)
    assert memory.file_cache_bytes < GIB
    assert memory.drops == {"pagecache": 1, "slab": 1}
