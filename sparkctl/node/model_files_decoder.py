"""Start `transfer.py` and `weights_check.py` on a node, and decode what they print about a model's
files.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sparkctl.model.decode_step import TensorSizes
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text.sanitize import load_json, sanitize_line
from sparkctl.node.bootstrap import RemoteProgram, build_program
from sparkctl.node.transfer import PART_SUFFIX, is_safe_link, is_safe_name

_LISTING_HEADER = b"@@ survey "


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """A file, or a link with its target. ``name`` is relative; size in bytes, modification time in nanoseconds."""

    name: str
    size: int
    mtime: int
    mode: int
    link: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeSpace:
    """Free space of the filesystem for ``path``; ``there`` is the part of the path that exists. None: not known."""

    path: str
    there: str
    free: int | None
    device: int | None
    is_writable: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileListing:
    """What is at a place: kind dir, file, none or denied. ``denied``: names that may not be read; ``parts``: bytes of
    incomplete files by name; ``unsafe``: names or links that lead out of the place, which are not listed.
    """

    place: str
    kind: str
    base: str
    entries: tuple[ModelFile, ...]
    denied: tuple[str, ...]
    parts: dict[str, int]
    room: FreeSpace
    unsafe: tuple[str, ...] = ()


def build_listing_program(places: Sequence[str], rooms: Sequence[str]) -> RemoteProgram:
    """Return the program that lists the places, and the free space at ``rooms``; it ends by itself."""
    request = json.dumps({"role": "list", "places": list(places), "rooms": list(rooms)}).encode() + b"\n"
    return build_program("sparkctl-survey", ["transfer"], stdin=request)


def build_transfer_program(request: dict[str, Any]) -> RemoteProgram:
    """Return the program for one end of a stream (see `transfer.py`); it ends with its stdin."""
    return build_program("sparkctl-carry", ["transfer"], stdin=json.dumps(request).encode() + b"\n")


def decode_file_listing(answer: bytes) -> tuple[tuple[FileListing, ...], tuple[FreeSpace, ...]]:
    """Return the listings and the free spaces in order. Raises ValueError if the answer is incomplete."""
    line = next((one for one in answer.split(b"\n") if one.startswith(_LISTING_HEADER)), None)
    if line is None:
        raise ValueError("the answer was cut short")
    try:
        data = json.loads(line[len(_LISTING_HEADER) :].decode("utf-8", "surrogateescape"))
        return tuple(_decode_place(one) for one in data["places"]), tuple(
            _decode_free_space(one) for one in data["rooms"]
        )
    except (LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"the answer is not what was asked for ({error})") from error


def _decode_place(data: dict[str, Any]) -> FileListing:
    found = {
        str(name): ModelFile(
            name=str(name),
            size=_check_whole_number(size),
            mtime=_check_whole_number(mtime),
            mode=_check_whole_number(mode) & 0o777,
            link=None if kind == "f" else str(link),
        )
        for name, kind, size, mtime, mode, link in data["entries"]
    }
    entries = tuple(entry for entry in found.values() if _is_safe(entry))
    unsafe = tuple(entry.name for entry in found.values() if not _is_safe(entry))
    parts = {str(name): _check_whole_number(size) for name, size in data["parts"].items()}
    denied = tuple(map(str, data["denied"]))
    return FileListing(
        place=str(data["place"]),
        kind=str(data["kind"]),
        base=str(data["base"]),
        entries=entries,
        denied=denied,
        parts=parts,
        room=_decode_free_space(data),
        unsafe=unsafe,
    )


def _is_safe(entry: ModelFile) -> bool:
    """Tell whether an entry stays below its place: it is created on another machine under this very name."""
    if entry.name.endswith(PART_SUFFIX) or entry.size < 0 or not _is_encodable(entry.name + (entry.link or "")):
        return False
    return is_safe_name(entry.name) if entry.link is None else is_safe_link(entry.name, entry.link)


def _is_encodable(name: str) -> bool:
    """Tell whether a file can have this name: JSON can write surrogates that no filesystem has."""
    try:
        name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _decode_free_space(data: dict[str, Any]) -> FreeSpace:
    free, device = data["free"], data["device"]
    return FreeSpace(
        path=str(data["room"]),
        there=str(data["there"]),
        free=None if free is None else _check_whole_number(free),
        device=None if device is None else _check_whole_number(device),
        is_writable=None if data["writable"] is None else bool(data["writable"]),
    )


def _check_whole_number(value: Any) -> int:
    """Return a number that a filesystem can have. Raises ValueError or TypeError."""
    if type(value) is not int:
        raise TypeError("no whole number")
    if abs(value) >= 1 << 64:
        raise ValueError("a number that is too large")
    return value


WEIGHTS_CHECK_TIMEOUT_SECONDS = 60.0  # seconds: enough for a hundred headers on a busy disk
_WEIGHTS_CHECK_MARK = b"@@ "
_MAX_FAULT_CHARS = 300
_MAX_FAULTS = 20  # maximum faults of one place
_MAX_TENSOR_BYTES = 1 << 50  # more than any model has


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsCheck:
    """The check of one place: how many files were found, and what is wrong with which of them, a sentence each.

    ``unread``: names that this user may not read, ``.`` for the place itself; nothing is known about those.
    ``tensors``: the sizes of the model's parts, None if not every file was read.
    """

    place: str
    files: int
    faults: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    tensors: TensorSizes | None = None


def build_weights_check_command(places: Sequence[str]) -> list[str]:
    """Return the argv that reads the headers in these places; it changes nothing and reads no weights."""
    program = (Path(__file__).parent / "weights_check.py").read_text(encoding="utf-8")
    return ["python3", "-IS", "-c", program, *places]


def decode_weights_check(answer: bytes) -> tuple[WeightsCheck, ...]:
    """Return the result for each place. Raises ValueError if the output is incomplete."""
    found, is_whole = [], False
    for line in answer.splitlines():
        if not line.startswith(_WEIGHTS_CHECK_MARK):
            continue
        data = load_json(line.removeprefix(_WEIGHTS_CHECK_MARK))
        if data == "end":
            is_whole = True
            continue
        faults, unread = (
            tuple(sanitize_line(str(one))[:_MAX_FAULT_CHARS] for one in data[key][:_MAX_FAULTS])
            for key in ("faults", "unread")
        )
        found.append(
            WeightsCheck(
                place=str(data["place"]),
                files=int(data["files"]),
                faults=faults,
                unread=unread,
                tensors=_decode_tensor_sizes(data.get("tensors")),
            )
        )
    if not is_whole:
        raise ValueError("it was cut short")
    return tuple(found)


def _decode_tensor_sizes(data: object) -> TensorSizes | None:
    """Return the sizes of a model's parts, None if they are not what a model has."""
    if not isinstance(data, dict) or not isinstance(data.get("parts"), dict):
        return None
    parts = {str(name): _parse_count(size) for name, size in data["parts"].items()}
    whole, float32 = _parse_count(data.get("whole")), _parse_count(data.get("float32"))
    if not whole or float32 is None or None in parts.values() or sum(size or 0 for size in parts.values()) != whole:
        return None
    return TensorSizes(
        whole=whole,
        float32=float32,
        parts={name: size or 0 for name, size in parts.items()},
        expert_count=_parse_count(data.get("expert_count")) or None,
        experts_per_token=_parse_count(data.get("experts_per_token")) or None,
        is_tied=data.get("tied") if isinstance(data.get("tied"), bool) else None,
        is_quantized=data.get("quantized") is True,
    )


def _parse_count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= _MAX_TENSOR_BYTES else None
