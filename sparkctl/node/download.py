"""Runs in a container on a Spark: downloads a model from the Hugging Face Hub with the Hub's own client, proves each file
by the Hub's size and checksum, and gives the directory its name only when it is whole.

Its argument is one JSON object. It prints JSON lines: what is to come, how far it is, and how it ended. The token is read
from a file in memory, which is removed at once. Python 3.8 or newer, and `huggingface_hub` of the image.
"""

from __future__ import annotations

import contextlib
import ctypes
import fnmatch
import hashlib
import importlib
import json
import os
import platform
import re
import shutil
import sys
import threading
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would cost the node a megabyte
    from collections.abc import Iterator
    from typing import Any

    Json = dict[str, Any]

PART_SUFFIX = ".sparkctl-part"  # of the directory that is not whole yet
REPORT_SECONDS = 1.0  # seconds between two reports
_GGUF_PART = re.compile(r"-0000[2-9]-of-|-000[1-9]\d-of-")  # of a model in several files, all but the first
_READ_BYTES = 8 << 20
_IDLE_IO_CLASS = 3 << 13  # ioprio_set: only when nobody else wants the disk
_IOPRIO_SET_CALLS = {"aarch64": 30, "x86_64": 251}
_OUTPUT_LOCK = threading.Lock()


class DownloadError(Exception):
    """The download cannot go on. ``kind`` is a word for the operator's machine."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def send_message(**message: object) -> None:
    """Print one line."""
    with _OUTPUT_LOCK:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def lower_priority() -> None:
    """Let everybody else go first, on the processor and on the disk."""
    with contextlib.suppress(OSError):
        os.nice(10)
    number = _IOPRIO_SET_CALLS.get(platform.machine())
    if number is not None:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).syscall(number, 1, 0, _IDLE_IO_CLASS)


def read_token(path: str | None) -> str | None:
    """Return the token and remove its file; None without a file, so that the client looks nowhere else."""
    if path is None:
        return None
    file = Path(path)
    token = file.read_text().strip()
    with contextlib.suppress(OSError):
        file.unlink()
    return token or None


class WantedFile:
    """A file of the repository: name, bytes, and the checksum that the Hub has of it."""

    def __init__(self, name: str, size: int | None, sha256: str | None, blob_id: str | None) -> None:
        self.name, self.size, self.sha256, self.blob_id = name, size, sha256, blob_id

    def describe_fault(self, path: Path) -> str | None:
        """Return what is wrong with the file at a path, None if it is the Hub's; its pages leave the page cache."""
        try:
            found = path.stat().st_size
        except OSError:
            return "it is not there"
        if self.size is not None and found != self.size:
            return f"it has {found} bytes, the Hub's has {self.size}"
        if self.sha256 is not None:
            total, wanted = hashlib.sha256(), self.sha256
        elif self.blob_id is not None and len(self.blob_id) == 40:
            total, wanted = hashlib.sha1(b"blob %d\0" % found), self.blob_id  # noqa: S324 - git's own checksum
        else:
            return None
        with path.open("rb") as file:
            while True:
                data = file.read(_READ_BYTES)
                if not data:
                    break
                total.update(data)
            with contextlib.suppress(OSError):
                os.fdatasync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return None if total.hexdigest() == wanted else "its checksum is not the Hub's"


def choose_files(siblings: list[Any], include: list[str], exclude: list[str]) -> list[WantedFile]:
    """Return the files to download; without patterns those of the root that an engine reads."""
    names = [one.rfilename for one in siblings]
    if not include:
        several = sorted(name for name in names if name.endswith(".gguf") and not _GGUF_PART.search(name))
        if len(several) > 1:
            raise DownloadError("nothing", "it has several quantisations, name one: " + ", ".join(several[:12]))
        kinds = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt", "*.py", "*.tiktoken")
        include = list(kinds) if any(fnmatch.fnmatch(name, "*.safetensors") for name in names) else ["*"]
        exclude = [*exclude, "*/*", "consolidated*"]
    found = []
    for one in siblings:
        name = one.rfilename
        if not any(fnmatch.fnmatch(name, each) for each in include) or any(
            fnmatch.fnmatch(name, each) for each in exclude
        ):
            continue
        if name.startswith(("/", "../")) or "/../" in name or name.endswith(PART_SUFFIX):
            raise DownloadError("refused", f"the repository has a file named {name!r}")
        lfs = one.lfs
        sha256 = None if lfs is None else (lfs.get("sha256") if isinstance(lfs, dict) else getattr(lfs, "sha256", None))
        found.append(WantedFile(name, one.size, sha256, one.blob_id))
    if not found:
        raise DownloadError("nothing", f"no file of the repository is wanted (it has {', '.join(names[:5])})")
    return found


def list_incomplete_bytes(place: Path) -> int:
    """Return the bytes of files that the client has begun below a directory."""
    total = 0
    for one in place.rglob("*.incomplete"):
        with contextlib.suppress(OSError):
            total += one.stat().st_blocks * 512
    return total


class ProgressReporter:
    """Reports the bytes that have arrived, every second while it is entered."""

    def __init__(self, place: Path) -> None:
        self.done, self._place = 0, place
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ProgressReporter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(REPORT_SECONDS):
            send_message(at=self.done + list_incomplete_bytes(self._place))


def check_free_space(place: Path, missing: int, kept_free: int) -> None:
    """Refuse before a byte is fetched where the disk cannot hold it."""
    while not place.is_dir():
        place = place.parent
    found = os.statvfs(place)
    free = found.f_bavail * found.f_frsize
    if free < missing + kept_free:
        raise DownloadError("disk-full", json.dumps({"free": free, "missing": missing, "place": str(place)}))


@contextlib.contextmanager
def explain_errors(hub: Any, repo: str) -> Iterator[None]:
    """Turn the client's exceptions into `DownloadError`."""
    errors = importlib.import_module(f"{hub.__name__}.utils")
    try:
        yield
    except errors.GatedRepoError as error:
        raise DownloadError("gated", str(error)) from error
    except errors.RevisionNotFoundError as error:
        raise DownloadError("no-revision", str(error)) from error
    except errors.RepositoryNotFoundError as error:
        raise DownloadError("no-repository", str(error)) from error
    except OSError as error:  # the client's errors of HTTP and of connections are such, too
        if error.errno == 28:
            raise DownloadError("disk-full", str(error)) from error
        status = getattr(getattr(error, "response", None), "status_code", None)
        raise DownloadError("unauthorized" if status in (401, 403) else "broken", str(error) or repo) from error


def download(request: Json) -> None:
    """Download what the request wants; raises `DownloadError`."""
    token = read_token(request.get("token_file"))
    try:
        import huggingface_hub as hub
    except ImportError:
        raise DownloadError("no-client", "the image has no huggingface_hub") from None
    repo, revision, target = request["repo"], request.get("revision") or "main", Path(request["target"])
    is_cache = bool(request.get("is_cache"))
    with explain_errors(hub, repo):
        found = hub.HfApi(token=token or False).model_info(repo, revision=revision, files_metadata=True)
    files = choose_files(list(found.siblings or ()), request.get("include") or [], request.get("exclude") or [])
    part = target if is_cache else target.with_name(target.name + PART_SUFFIX)
    whole = [] if is_cache else [one for one in files if one.describe_fault(target / one.name) is None]
    left = [one for one in files if one not in whole]
    total = sum(one.size or 0 for one in files)
    have = sum(one.size or 0 for one in whole)
    begun = list_incomplete_bytes(part) + (0 if is_cache else _sum_sizes(part, left))
    check_free_space(part.parent, max(0, total - have - begun), request.get("kept_free") or 0)
    send_message(files=len(files), total=total, have=have, revision=found.sha)
    part.mkdir(parents=True, exist_ok=True)
    with ProgressReporter(part) as progress:
        progress.done = have
        for one in left:
            _fetch_file(
                hub, one, repo, revision if is_cache else str(found.sha), part=part, token=token, is_cache=is_cache
            )
            progress.done += one.size or 0
    if not is_cache:
        _move_into_place(part, target, left)
    send_message(done=True, files=len(files), total=total, revision=found.sha)


def _sum_sizes(part: Path, files: list[WantedFile]) -> int:
    total = 0
    for one in files:
        with contextlib.suppress(OSError):
            total += (part / one.name).stat().st_size
    return total


def _fetch_file(
    hub: Any, one: WantedFile, repo: str, revision: str, *, part: Path, token: str | None, is_cache: bool
) -> None:
    where = {"cache_dir": part.parent} if is_cache else {"local_dir": part}
    fault = None
    for is_again in (False, True):
        with explain_errors(hub, repo):
            path = hub.hf_hub_download(
                repo, one.name, revision=revision, token=token or False, force_download=is_again, **where
            )
        send_message(verifying=one.name)
        fault = one.describe_fault(Path(path))
        if fault is None:
            return
    raise DownloadError("damaged", f"{one.name}: {fault}, twice")


def _move_into_place(part: Path, target: Path, files: list[WantedFile]) -> None:
    """Give what is whole its name: the directory at once, or into one that exists file by file, what names the weights last."""
    shutil.rmtree(part / ".cache", ignore_errors=True)
    if not (target.exists() or target.is_symlink()):
        part.rename(target)
        return
    for one in sorted(files, key=lambda each: each.name.endswith((".index.json", "config.json"))):
        goal = target / one.name
        goal.parent.mkdir(parents=True, exist_ok=True)
        (part / one.name).replace(goal)
    shutil.rmtree(part, ignore_errors=True)


def main(words: list[str]) -> int:
    """Run; the exit status is 0, or 1 after an error message."""
    lower_priority()
    try:
        download(json.loads(words[0]))
    except DownloadError as error:
        send_message(error=error.kind, message=str(error)[:2000])
        return 1
    except OSError as error:
        send_message(error="disk-full" if error.errno == 28 else "broken", message=str(error)[:2000])
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
