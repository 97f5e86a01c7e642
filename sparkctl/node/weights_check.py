"""sparkctl-whole 1: check a model's files on a Spark: reads their headers, no weights. Standard library only."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

_MAX_HEADER_BYTES = 100 << 20  # bytes; the limit of safetensors itself
_MAX_FILES = 1000  # files


def find_model_directory(place: Path) -> Path:
    """Return the directory of a model's files: Hugging Face's cache keeps them in a snapshot. Raises PermissionError."""
    snapshots = place / "snapshots"
    if not snapshots.is_dir():
        return place
    try:
        named = snapshots / (place / "refs" / "main").read_text().strip()
        if named != snapshots and named.is_dir():
            return named
    except OSError:
        pass
    return max(snapshots.iterdir(), key=lambda one: one.stat().st_mtime, default=place)


def find_file_fault(path: Path) -> str | None:
    """Return what is wrong with one file, None if its header agrees with its size."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(8)
        if path.suffix == ".gguf":
            return None if head[:4] == b"GGUF" else "it does not begin as a GGUF file does"
        if len(head) < 8:
            return f"it holds {size} bytes: not even a header"
        (length,) = struct.unpack("<Q", head)
        if length > min(size - 8, _MAX_HEADER_BYTES):
            return f"its header is to be {length} bytes long, the file has {size}"
        try:
            tensors = json.loads(file.read(length))
            ends = [one["data_offsets"][1] for name, one in tensors.items() if name != "__metadata__"]
            wanted = 8 + length + max(ends or [0])
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            return "its header cannot be read"
    return f"it is cut off: {size} of {wanted} bytes are there" if wanted > size else None


def find_missing_files(index: Path, names: set[str]) -> list[str]:
    """Return the files that an index lists but that are missing. Raises PermissionError."""
    try:
        wanted = set(json.loads(index.read_text())["weight_map"].values())
    except PermissionError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as wrong:
        return [f"{index.name} cannot be read: {wrong}"]
    return [f"{one} is missing: {index.name} lists it" for one in sorted(wanted - names)]


def check_place(place: str) -> dict[str, object]:
    """Return how many files a place has, what is wrong with them, and which ones this user may not read.

    The container mostly runs as root, so a file that is unreadable here may be fine.
    """
    faults: list[str] = []
    unread: list[str] = []
    there: list[Path] = []
    try:
        base = find_model_directory(Path(place))
        there = sorted(base.iterdir()) if base.is_dir() else [base] if base.is_file() else []
    except PermissionError:
        unread.append(".")
    names = {one.name for one in there}
    paths = [one for one in there if one.suffix in (".safetensors", ".gguf")][:_MAX_FILES]
    for path in [one for one in there if one.name.endswith(".safetensors.index.json")] + paths:
        try:
            if path.suffix == ".json":
                faults += find_missing_files(path, names)
            elif (fault := find_file_fault(path)) is not None:
                faults.append(f"{path.name}: {fault}")
        except PermissionError:
            unread.append(path.name)
        except OSError as wrong:
            faults.append(f"{path.name}: it cannot be read: {wrong.strerror}")
    return {"place": place, "files": len(paths), "faults": faults, "unread": unread}


if __name__ == "__main__":
    for one in sys.argv[1:]:
        sys.stdout.write(f"@@ {json.dumps(check_place(one))}\n")
    sys.stdout.write('@@ "end"\n')
