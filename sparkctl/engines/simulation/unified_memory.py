"""The unified memory of a GB10: weights, page cache and everything else in one pool."""

from __future__ import annotations

from collections.abc import Callable, Collection

from sparkctl.model.node import TOTAL_BYTES
from sparkctl.model.text.units import KIB

SWAP_TOTAL_BYTES = 16_777_212 * KIB
KERNEL_RESERVE_BYTES = 1_350_000 * KIB  # the kernel frees page cache rather than let MemFree fall below this
LOW_WATERMARK_BYTES = 112_640 * KIB
MAPPED_FILE_BYTES = 412_000 * KIB  # in use, so no drop frees them


class UnifiedMemory:
    """All sizes in bytes. CUDA memory is in no line of meminfo: it is only missing from MemFree."""

    def __init__(self, page_cache: int, offset: int = 0) -> None:
        self.gpu: dict[int, int] = {}  # by pid
        self.anonymous: dict[int, int] = {}  # by pid, the engines' share
        self.files: dict[str, int] = {"": page_cache}  # cached file contents; "" is everything without a name
        self.dirty = 0  # bytes of it that are not written to the disk yet, which no drop frees
        self.buffers = 164_000 * KIB
        self.slab_reclaimable = 402_000 * KIB
        self.shmem = 108_204 * KIB
        self.system = 2_412_340 * KIB + offset
        self.slab_fixed = 611_200 * KIB
        self.driver = 2_930_000 * KIB
        self.page_tables = 58_364 * KIB
        self.kernel_stack = 21_536 * KIB
        self.drops = {"pagecache": 0, "slab": 0}
        self.on_change: Callable[[], None] | None = None

    @property
    def file_cache_bytes(self) -> int:
        """Page cache of files, without shared memory."""
        return sum(self.files.values()) + MAPPED_FILE_BYTES

    @property
    def engine_bytes(self) -> int:
        """Memory of the engines, on both sides of the unified memory."""
        return sum(self.gpu.values()) + sum(self.anonymous.values())

    @property
    def free_bytes(self) -> int:
        """MemFree."""
        fixed = self.system + self.slab_fixed + self.driver + self.page_tables + self.kernel_stack
        cache = self.file_cache_bytes + self.buffers + self.slab_reclaimable + self.shmem
        return TOTAL_BYTES - fixed - cache - self.engine_bytes

    @property
    def available_bytes(self) -> int:
        """MemAvailable, by the kernel's rule: half of the reclaimable, at most a watermark of it, is not counted."""
        total = self.free_bytes - LOW_WATERMARK_BYTES
        for part in (self.file_cache_bytes + self.buffers, self.slab_reclaimable):
            total += part - min(part // 2, LOW_WATERMARK_BYTES)
        return max(0, total)

    @property
    def cuda_available_bytes(self) -> int:
        """What CUDA can still allocate, and reports as free: the kernel keeps some."""
        return max(0, min(self.free_bytes, self.available_bytes - KERNEL_RESERVE_BYTES))

    def allocate(self, pid: int, *, gpu: int = 0, anonymous: int = 0) -> None:
        """Give memory to a process; page cache makes room. Raises MemoryError, and gives nothing, if that is too little."""
        need = gpu + anonymous
        if need > self.available_bytes - KERNEL_RESERVE_BYTES:
            raise MemoryError(need)
        self._evict_page_cache(need - (self.free_bytes - KERNEL_RESERVE_BYTES))
        self.gpu[pid] = self.gpu.get(pid, 0) + gpu
        self.anonymous[pid] = self.anonymous.get(pid, 0) + anonymous
        self._notify_change()

    def allocate_until_full(self, pid: int, size: int) -> int:
        """Let a process allocate anonymous memory to the last byte, as the kernel does. Returns what it got."""
        got = min(size, self.available_bytes)
        self._evict_page_cache(got - self.free_bytes)
        self.anonymous[pid] = self.anonymous.get(pid, 0) + got
        self._notify_change()
        return got

    def read_file(self, path: str, size: int) -> None:
        """Add ``size`` bytes of a file to the page cache, as far as there is room."""
        room = self.free_bytes - KERNEL_RESERVE_BYTES
        if size > room:
            self._evict_page_cache(size - room, spare=path)
        self.files[path] = self.files.get(path, 0) + max(0, min(size, self.free_bytes - KERNEL_RESERVE_BYTES))
        self._notify_change()

    def release(self, pid: int, share: float = 1.0) -> None:
        """Free a share (0..1) of what a process still holds."""
        for holding in (self.gpu, self.anonymous):
            left = int(holding.get(pid, 0) * (1 - share))
            if left:
                holding[pid] = left
            else:
                holding.pop(pid, None)
        self._notify_change()

    def drop_caches(self, what: int) -> None:
        """Do what a write to /proc/sys/vm/drop_caches does: bit 1 page cache, bit 2 slab; the counters rise."""
        if what & 1:
            self.files = {"": 38_000 * KIB + self.dirty}
            self.buffers = 2_100 * KIB
            self.drops["pagecache"] += 1
        if what & 2:
            self.slab_reclaimable = 141_000 * KIB
            self.drops["slab"] += 1
        self._notify_change()

    def drop_model_files(self, names: Collection[str]) -> int:
        """Do what the kernel does when it is told to forget the files of these models; return how many models had pages."""
        found = [path for path in self.files if path.rpartition("/")[2] in names]
        for path in found:
            del self.files[path]
        self._notify_change()
        return len(found)

    def _notify_change(self) -> None:
        if self.on_change is not None:
            self.on_change()

    def _evict_page_cache(self, size: int, spare: str | None = None) -> None:
        for path in sorted(self.files, key=lambda name: (name == spare, name)):
            if size <= 0:
                return
            taken = min(size, self.files[path])
            self.files[path] -= taken
            size -= taken

    def format_meminfo(self) -> str:
        anonymous = self.system + sum(self.anonymous.values())
        slab = self.slab_reclaimable + self.slab_fixed
        rows: dict[str, int] = {
            "MemTotal": TOTAL_BYTES,
            "MemFree": self.free_bytes,
            "MemAvailable": self.available_bytes,
            "Buffers": self.buffers,
            "Cached": self.file_cache_bytes + self.shmem,
            "SwapCached": 0,
            "Active": anonymous // 3 + self.file_cache_bytes // 4,
            "Inactive": anonymous * 2 // 3 + self.file_cache_bytes * 3 // 4,
            "Unevictable": 30_180 * KIB,
            "Mlocked": 30_180 * KIB,
            "SwapTotal": SWAP_TOTAL_BYTES,
            "SwapFree": SWAP_TOTAL_BYTES,
            "Dirty": 312 * KIB,
            "Writeback": 0,
            "AnonPages": anonymous,
            "Mapped": MAPPED_FILE_BYTES,
            "Shmem": self.shmem,
            "KReclaimable": self.slab_reclaimable,
            "Slab": slab,
            "SReclaimable": self.slab_reclaimable,
            "SUnreclaim": self.slab_fixed,
            "KernelStack": self.kernel_stack,
            "PageTables": self.page_tables,
            "CommitLimit": SWAP_TOTAL_BYTES + TOTAL_BYTES // 2,
            "Committed_AS": anonymous * 2,
            "VmallocTotal": 135_288_315_904 * KIB,
            "VmallocUsed": 212_000 * KIB,
            "Percpu": 11_840 * KIB,
            "CmaTotal": 65_536 * KIB,
            "CmaFree": 57_088 * KIB,
        }
        lines = [f"{name + ':':<16}{size // KIB:>8} kB" for name, size in rows.items()]
        return "\n".join(
            [*lines, "HugePages_Total:       0", "HugePages_Free:        0", "Hugepagesize:       2048 kB", ""]
        )
