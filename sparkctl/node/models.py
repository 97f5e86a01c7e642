"""Runs on a Spark: lists the models that lie there, drops their pages from the page cache, removes one.

It reads one JSON object from stdin and prints one line. Python 3.8 or newer, standard library alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
from pathlib import Path

from sparkctl.node.weights_check import check_place, find_model_directory

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would cost the node a megabyte
    from collections.abc import Iterator
    from typing import Any

    Json = dict[str, Any]

ANSWER_MARK = "@@ models "
PART_SUFFIXES = (".sparkctl-part", ".sparkctl-removed")
BROUGHT_MARK = ".sparkctl-source"  # the file that `download.py` leaves in a model's directory
_WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt")
_MODEL_FILES = (*_WEIGHTS, ".json", ".jinja", ".txt", ".md", ".py", ".model", ".tiktoken", ".png")
# how names begin, in small letters
_MODEL_NAMES = ("license", "notice", "readme", ".git", ".sparkctl", "use_policy", "mmproj")
_SHARD_PATTERN = re.compile(r"-\d{5}-of-\d{5}$")
_MIN_WEIGHTS_BYTES = 1 << 20  # of a file that counts as weights
_MAX_ENTRIES = 2000


def list_entries(roots: list[str], places: list[str]) -> list[Path]:
    """Return where models lie: the places that are there, and what has weights one or two levels below the roots."""
    bases = [Path(root) for root in roots]
    found = dict.fromkeys(find_entry(Path(place), bases) for place in places if os.path.lexists(place))
    for base in bases:
        for child in _list_directory(base):
            if _is_model(child):
                found[child] = None
            elif child.is_dir() and not child.is_symlink() and not child.name.startswith("."):
                found.update(dict.fromkeys(one for one in _list_directory(child) if _is_model(one) and one.is_dir()))
    return list(found)[:_MAX_ENTRIES]


def find_entry(place: Path, bases: list[Path]) -> Path:
    """Return the model that a path belongs to: of a GGUF file its directory, unless that holds all models."""
    return place.parent if place.suffix == ".gguf" and place.parent not in bases else place


def _list_directory(place: Path) -> list[Path]:
    try:
        return sorted(place.iterdir())[:_MAX_ENTRIES]
    except OSError:
        return []


def _is_model(place: Path) -> bool:
    if place.name.endswith(PART_SUFFIXES):
        return True
    if place.name.startswith("models--"):
        return place.is_dir()
    if not place.is_dir():
        return place.suffix == ".gguf" and place.is_file()
    return any(one.name.endswith(_WEIGHTS) and _measure(one) >= _MIN_WEIGHTS_BYTES for one in _list_directory(place))


def _measure(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def walk_files(place: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files of a model with their state, each once; links are not followed."""
    paths = [str(place)]
    if place.is_dir():
        paths = [f"{folder}/{name}" for folder, _, names in os.walk(str(place)) for name in names]
    seen = set()
    for path in paths:
        with contextlib.suppress(OSError):
            state = os.lstat(path)
            if state.st_mode & 0o170000 == 0o100000 and (state.st_dev, state.st_ino) not in seen:
                seen.add((state.st_dev, state.st_ino))
                yield path, state


def describe_entry(place: Path, *, needs_weights: bool) -> Json:
    """Return what is known of one model: bytes on the disk, when its weights were last read, what is wrong with it."""
    size, used = 0, 0.0
    begun = place.name.endswith(PART_SUFFIXES)
    for path, state in walk_files(place):
        size += state.st_size
        begun = begun or path.endswith(".incomplete") or path.endswith(PART_SUFFIXES)
        if state.st_size >= _MIN_WEIGHTS_BYTES:
            used = max(used, state.st_atime, state.st_mtime)
    checked = check_place(str(place))
    faults = ["a download has not ended"] if begun else []
    faults += [str(one) for one in checked["faults"][:5]]  # type: ignore[index]
    if needs_weights and not checked["files"] and not checked["unread"] and not begun:
        faults.append("it has no weights")
    brought = find_model_directory(place) / BROUGHT_MARK if place.is_dir() else place
    return {
        "place": str(place), "size": size, "used": used or None, "faults": faults, "unread": bool(checked["unread"]),
        "brought": brought.name == BROUGHT_MARK and brought.is_file(), "link": place.is_symlink(),
    }  # fmt: skip


def list_strangers(place: Path) -> list[str]:
    """Return what lies in a model's directory and is not of a model, or of another GGUF: it would go with the directory."""
    if not place.is_dir() or place.name.startswith("models--") or place.name.endswith(PART_SUFFIXES):
        return []
    top = _list_directory(place)
    stems = {_SHARD_PATTERN.sub("", one.stem) for one in top if one.suffix == ".gguf" and not _is_of_model(one.name)}
    found = [f"{stem}.gguf" for stem in sorted(stems)] if len(stems) > 1 else []
    for folder, _, names in os.walk(str(place)):
        inside = os.path.relpath(folder, str(place))
        if not any(part.startswith(".cache") for part in Path(inside).parts):  # the Hub's own notes of a download
            where = "" if inside == "." else f"{inside}/"
            found += [
                f"{where}{name}"
                for name in names
                if not name.lower().endswith((*_MODEL_FILES, *PART_SUFFIXES)) and not _is_of_model(name)
            ]
    return found


def _is_of_model(name: str) -> bool:
    return name.lower().startswith(_MODEL_NAMES)


def find_users(place: Path) -> list[str]:
    """Return the processes of this user that have a file of a model open or mapped."""
    prefix, found = f"{os.path.realpath(str(place))}", []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        open_files: list[str] = []
        with contextlib.suppress(OSError):
            open_files += [os.readlink(str(one)) for one in (entry / "fd").iterdir()]  # noqa: PTH115 - Python 3.8
        with contextlib.suppress(OSError):
            open_files += [
                line.split(None, 5)[-1] for line in (entry / "maps").read_text(errors="replace").splitlines()
            ]
        if any(one == prefix or one.startswith(prefix + "/") for one in open_files):
            with contextlib.suppress(OSError):
                found.append(f"{(entry / 'comm').read_text().strip()} ({entry.name})")
    return found


def drop_pages(entries: list[Path]) -> Json:
    """Remove the models' files from the page cache, as far as this user may read them; needs no right."""
    count = 0
    for place in entries:
        for path, state in walk_files(place):
            if state.st_size < _MIN_WEIGHTS_BYTES:
                continue
            with contextlib.suppress(OSError, AttributeError):
                file = os.open(path, os.O_RDONLY)
                try:
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                    count += 1
                finally:
                    os.close(file)
    return {"files": count}


def remove_entry(place: Path, entries: list[Path]) -> Json:
    """Remove one of the listed models and what was begun beside it; what is half removed has another name."""
    if place not in entries or place.is_symlink():
        return {"error": "it is a link" if place.is_symlink() else "it is not one of the models there"}
    if strangers := list_strangers(place):
        named = ", ".join(strangers[:5]) + (" and more" if len(strangers) > 5 else "")
        return {"error": f"it also holds {named}: move those elsewhere, or remove what you want by hand"}
    users = find_users(place) + find_users(place.with_name(place.name + PART_SUFFIXES[0]))
    if users:
        return {"error": f"it is in use by {', '.join(users[:5])}"}
    gone = place.with_name(place.name + PART_SUFFIXES[1])
    try:
        for one in (gone, place.with_name(place.name + PART_SUFFIXES[0])):
            if one.is_dir() and not one.is_symlink():
                shutil.rmtree(str(one))
        place.rename(gone)
        if gone.is_dir():
            shutil.rmtree(str(gone))
        else:
            gone.unlink()
    except OSError as error:
        return {"error": f"{error.strerror}: {error.filename}"}
    return {}


def main(_words: list[str]) -> int:
    """Answer one request."""
    request: Json = json.loads(sys.stdin.readline())
    entries = list_entries(request["roots"], request["places"])
    answer: Json
    if request["role"] == "drop":
        answer = drop_pages(entries)
    elif request["role"] == "remove":
        answer = remove_entry(Path(request["place"]), entries)
    else:
        bases = [Path(root) for root in request["roots"]]
        answer = {
            "models": [
                describe_entry(one, needs_weights=str(one) not in request.get("tokenizers", ())) for one in entries
            ],
            "entries": {place: str(find_entry(Path(place), bases)) for place in request["places"]},
        }
    sys.stdout.write(ANSWER_MARK + json.dumps(answer) + "\n")
    sys.stdout.flush()
    return 0
