"""Plans a transfer: which model files must be copied, from the listings of both nodes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from sparkctl.model.text.units import GIB, MIB
from sparkctl.node.model_files_decoder import FileListing, FreeSpace, ModelFile

RESERVED_BYTES = 64 * MIB  # stays free on the disk of the target
_PART_SUFFIX = ".sparkctl-part"
_CONTENT_NAME_PATTERN = re.compile(r"(?:^|/)blobs/(?:[0-9a-f]{40}|[0-9a-f]{64})$")  # in Hugging Face's cache
_NANOSECONDS_PER_SECOND = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTransfer:
    """A file with its source and target: ``name`` below ``base``. ``have``: bytes that an earlier transfer left
    there.
    """

    number: int
    name: str
    source: str
    base: str
    size: int
    mtime: int
    mode: int
    have: int = 0

    @property
    def target_path(self) -> str:
        """The path of the target."""
        return f"{self.base.rstrip('/')}/{self.name}"

    @property
    def part_file_name(self) -> str:
        """The name of the incomplete file, next to the final one."""
        return part_name(self.name, self.size, self.mtime)


@dataclass(frozen=True, slots=True)
class SymbolicLink:
    """A symbolic link to make: ``name`` below ``base``, and its target."""

    base: str
    name: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferPlan:
    """What a transfer does.

    ``send``: files that differ. ``doubtful``: same size but another time, so checksums decide. ``touch``: files where
    only the time differs. ``same``: number of files that are equal already.
    """

    send: tuple[FileTransfer, ...] = ()
    doubtful: tuple[FileTransfer, ...] = ()
    links: tuple[SymbolicLink, ...] = ()
    touch: tuple[FileTransfer, ...] = ()
    same: int = 0

    @property
    def total_bytes(self) -> int:
        """The bytes of the files to send, including those that have arrived already."""
        return sum(one.size for one in self.send)

    @property
    def present_bytes(self) -> int:
        """The bytes that an earlier transfer left."""
        return sum(one.have for one in self.send)

    @property
    def missing_bytes(self) -> int:
        """The bytes still to send."""
        return self.total_bytes - self.present_bytes

    @property
    def is_done(self) -> bool:
        """Tell whether nothing is left to do."""
        return not (self.send or self.doubtful or self.links or self.touch)


def part_name(name: str, size: int, mtime: int) -> str:
    """Return the name of a file's incomplete copy, relative as the file's; it contains the size and time of the
    version that it belongs to.
    """
    path = PurePosixPath(name)
    return str(path.with_name(f".{path.name}.{size}-{mtime // _NANOSECONDS_PER_SECOND}{_PART_SUFFIX}"))


def plan_transfer(pairs: Iterable[tuple[FileListing, FileListing]]) -> TransferPlan:
    """Return the plan for each (source, target) pair of the same place."""
    send: list[FileTransfer] = []
    doubtful: list[FileTransfer] = []
    links: list[SymbolicLink] = []
    same = 0
    for source, target in pairs:
        there = {entry.name: entry for entry in target.entries}
        for entry in source.entries:
            found = there.get(entry.name)
            if entry.link is not None:
                if found is None or found.link != entry.link:
                    links.append(SymbolicLink(target.base, entry.name, entry.link))
                else:
                    same += 1
                continue
            if _is_same_file(entry, found):
                same += 1
                continue
            have = min(entry.size, target.parts.get(part_name(entry.name, entry.size, entry.mtime), 0))
            origin = f"{source.base.rstrip('/')}/{entry.name}"
            number = len(send) + len(doubtful)
            one = FileTransfer(
                number=number,
                name=entry.name,
                source=origin,
                base=target.base,
                size=entry.size,
                mtime=entry.mtime,
                mode=entry.mode,
                have=have,
            )
            (doubtful if found is not None and found.link is None and found.size == entry.size else send).append(one)
    return TransferPlan(send=tuple(send), doubtful=tuple(doubtful), links=tuple(links), touch=(), same=same)


def _is_same_file(entry: ModelFile, found: ModelFile | None) -> bool:
    if found is None or found.link is not None or found.size != entry.size:
        return False
    return (
        found.mtime // _NANOSECONDS_PER_SECOND == entry.mtime // _NANOSECONDS_PER_SECOND
        or _CONTENT_NAME_PATTERN.search(entry.name) is not None
    )


def resolve_doubtful_files(one: TransferPlan, equal: Mapping[int, bool]) -> TransferPlan:
    """Return the plan after the checksums of the doubtful files are known: those that differ are sent."""
    differing = tuple(each for each in one.doubtful if not equal.get(each.number, False))
    touch = tuple(each for each in one.doubtful if equal.get(each.number, False))
    return TransferPlan(
        send=(*one.send, *differing), doubtful=(), links=one.links, touch=touch, same=one.same + len(touch)
    )


@dataclass(frozen=True, slots=True)
class SpaceNeed:
    """Bytes that ``what`` needs on a disk."""

    what: str
    size: int
    room: FreeSpace


def find_disk_shortage(needs: Sequence[SpaceNeed]) -> list[tuple[SpaceNeed, int]]:
    """Return what does not fit and the missing bytes; items on one filesystem share its free space."""
    left: dict[object, int] = {}
    lacking = []
    for need in needs:
        if need.room.free is None or not need.size:
            continue
        key = need.room.device if need.room.device is not None else need.room.path
        free = left.get(key, need.room.free - RESERVED_BYTES)
        left[key] = free - need.size
        if left[key] < 0:
            lacking.append((need, -left[key]))
    return lacking


@dataclass(slots=True)
class TransferRate:
    """The rate of the last seconds and the time until the end."""

    total: int | None
    seen: list[tuple[float, int]]
    window: float = 6.0

    def add_sample(self, now: float, done: int) -> tuple[float | None, float | None]:
        """Return bytes per second and the remaining seconds; None where not known yet."""
        self.seen.append((now, done))
        while len(self.seen) > 2 and now - self.seen[0][0] > self.window:
            del self.seen[0]
        first, before = self.seen[0]
        if now - first < 0.5 or done <= before:
            return None, None
        rate = (done - before) / (now - first)
        return rate, None if self.total is None else max(0.0, self.total - done) / rate


def format_file_count(count: int, size: int) -> str:
    """Return for example ``14 files, 34.2 GiB``."""
    amount = f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / MIB:.1f} MiB"
    return f"{count} file{'' if count == 1 else 's'}, {amount}"
