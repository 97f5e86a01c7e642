"""Runs on a Spark, from stdin: print what is at the places of a model: files with sizes and times, links, free space.

Standard library only, Python 3.8 or newer. The request is one line of JSON: ``{"places": [...], "rooms": [...]}``.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would cost the node a megabyte
    from typing import Any

    Entry = list[Any]  # [name, kind f|l, size, mtime in ns, mode, target of a link]

PARTIAL_SUFFIX = ".sparkctl-part"  # suffix of a file that is not complete yet
MAX_ENTRIES = 50_000  # maximum entries of one place
_SKIPPED_SUFFIXES = (".incomplete", ".lock", PARTIAL_SUFFIX)
_GGUF_PART_PATTERN = re.compile(r"^(.*)-\d{5}-of-(\d{5}\.gguf)$")


def list_place(place: str) -> dict[str, Any]:
    """Return the entries of a place. ``base``: the directory that their names are relative to."""
    found: dict[str, Any] = {"place": place, "kind": "none", "base": place, "entries": [], "denied": [], "parts": {}}
    try:
        is_dir = stat.S_ISDIR(os.stat(place).st_mode)
        found["kind"] = "dir" if is_dir else "file"
    except PermissionError:
        found["kind"] = "denied"
    except OSError:
        pass
    if found["kind"] == "dir":
        _add_directory(place, os.path.realpath(place), "", set(), found)
    elif found["kind"] == "file" or place.endswith(".gguf"):
        found["base"] = os.path.dirname(place)
        _add_gguf_parts(place, found)
    found.update(read_disk_space(found["base"]))
    return found


def read_disk_space(path: str) -> dict[str, Any]:
    """Return the free bytes for ``path``, its filesystem's number, and whether it is writable: of its nearest existing
    parent.
    """
    there = path or "/"
    while not os.path.lexists(there) and there != "/":
        there = os.path.dirname(there)
    try:
        numbers = os.statvfs(there)
        device = os.stat(there).st_dev
    except OSError:
        return {"room": path, "there": there, "free": None, "device": None, "writable": None}
    writable = os.path.isdir(there) and os.access(there, os.W_OK | os.X_OK)
    return {
        "room": path,
        "there": there,
        "free": numbers.f_bavail * numbers.f_frsize,
        "device": device,
        "writable": writable,
    }


def _add_gguf_parts(place: str, found: dict[str, Any]) -> None:
    """Add all parts of a GGUF file in parts."""
    base, own = os.path.split(place)
    split = _GGUF_PART_PATTERN.match(own)
    try:
        names = sorted(os.listdir(base))
    except OSError:
        return
    for name in names:
        if name == own or (
            split and _GGUF_PART_PATTERN.match(name) and _GGUF_PART_PATTERN.sub(r"\1\2", name) == split[1] + split[2]
        ):
            _add_file(os.path.join(base, name), name, found)
        elif name.endswith(PARTIAL_SUFFIX):
            _add_partial(os.path.join(base, name), name, found)


def _add_directory(directory: str, root: str, below: str, seen: set[str], found: dict[str, Any]) -> None:
    real = os.path.realpath(directory)
    if real in seen or len(found["entries"]) > MAX_ENTRIES:
        return
    seen = seen | {real}  # on the path down to here only: a directory with two names is listed under both
    is_own = real == os.path.normpath(os.path.join(root, below))  # elsewhere a link would lead to another place
    try:
        with os.scandir(directory) as listed:
            entries = sorted(listed, key=lambda one: one.name)
    except OSError:
        found["denied"].append(below or ".")
        return
    for entry in entries:
        name = os.path.join(below, entry.name)
        if entry.name.endswith(PARTIAL_SUFFIX):
            _add_partial(entry.path, name, found)
        elif entry.name.endswith(_SKIPPED_SUFFIXES) or entry.name == ".locks":
            continue
        elif entry.is_symlink():
            target = os.path.realpath(entry.path)
            if is_own and target.startswith(root + os.sep) and os.path.exists(target):
                found["entries"].append([name, "l", 0, 0, 0, os.path.relpath(target, real)])
            elif os.path.isdir(target):
                _add_directory(entry.path, root, name, seen, found)
            else:
                _add_file(entry.path, name, found)
        elif entry.is_dir():
            _add_directory(entry.path, root, name, seen, found)
        else:
            _add_file(entry.path, name, found)


def _add_file(path: str, name: str, found: dict[str, Any]) -> None:
    """Add a file; a link that leads out of the tree counts as the file that it leads to."""
    try:
        about = os.stat(path)
    except OSError:
        found["denied"].append(name)  # also a link to nothing
        return
    if stat.S_ISREG(about.st_mode):
        if not os.access(path, os.R_OK):
            found["denied"].append(name)
        found["entries"].append([name, "f", about.st_size, about.st_mtime_ns, about.st_mode & 0o777, None])


def _add_partial(path: str, name: str, found: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        found["parts"][name] = os.stat(path).st_size


def main(_words: list[str]) -> None:
    """Answer one request."""
    request = json.loads(sys.stdin.buffer.readline())
    answer = {
        "places": [list_place(one) for one in request["places"]],
        "rooms": [read_disk_space(one) for one in request["rooms"]],
    }
    sys.stdout.write("@@ survey " + json.dumps(answer) + "\n")
