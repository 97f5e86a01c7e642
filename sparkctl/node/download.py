"""Runs in a container on a Spark: gets a model from the Hugging Face Hub with the Hub's own client, from a web server, or
from another directory; proves each file by the size and checksum that its source tells, and gives the directory its name
only when it is whole.

Its argument is one JSON object. It prints JSON lines: what is to come, how far it is, and how it ended. The token is read
from a file in memory, which is removed at once. Python 3.8 or newer; for the Hub, `huggingface_hub` of the image.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fnmatch
import hashlib
import importlib
import json
import os
import platform
import posixpath
import re
import shutil
import signal
import sys
import threading
import time
import traceback
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would cost the node a megabyte
    from collections.abc import Iterator
    from typing import Any

    Json = dict[str, Any]

PART_SUFFIX = ".sparkctl-part"  # of the directory that is not whole yet
SOURCE_FILE = ".sparkctl-source"  # in a model's directory: where sparkctl got it
# In the Hub's cache the client itself gives a file its name, before it is proved: until all are, this says so. By its ending
# everybody counts it as an unfinished file.
UNPROVED_FILE = "blobs/sparkctl-unproved.incomplete"
REPORT_SECONDS = 1.0  # seconds between two reports
_RETRY_SECONDS = 3.0  # until a file that broke off is tried once more; the client itself tries several times before
_GGUF_PART = re.compile(r"-0000[2-9]-of-|-000[1-9]\d-of-")  # of a model in several files, all but the first
_OTHER_FRAMEWORKS = ("*.h5", "*.msgpack", "*.onnx*", "*.ot", "*.tflite")  # the same weights, for no engine here
_READ_BYTES = 8 << 20
_SUM_BYTES = 256 << 10  # read at once for a checksum: what stays in the processor's own cache
_FORGET_BYTES = 64 << 20  # bytes after which written pages are given back
_FILE_POLL_SECONDS = 0.1  # between two looks at a file that grows
_IDLE_IO_CLASS = 3 << 13  # ioprio_set: only when nobody else wants the disk
_IOPRIO_SET_CALLS = {"aarch64": 30, "x86_64": 251}
_HOLD_SIGNAL = signal.SIGUSR1  # whoever has an engine load its weights here sends it, again and again
_HOLD_SECONDS = 15.0  # seconds that one counts: nobody holds a download back for good
_MARK_SECONDS = 2.0  # between two looks at the mark that the guard touches while an engine loads here
_PR_SET_PDEATHSIG = 1
_OUTPUT_LOCK = threading.Lock()
_BAD_TOKEN_WORDS = ("credentials in authorization header", "access token")  # not of a repository that is not there
_FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
# where a client has no number for it
_FULL_DISK_WORDS = ("no space left on device", "os error 28", "disk quota exceeded")
_BAD_PLACE = (
    errno.EROFS, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.EXDEV, errno.ENAMETOOLONG,
    errno.EIO, errno.ELOOP,
)  # fmt: skip


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
            return f"it has {found} bytes, its source has {self.size}"
        if self.sha256 is not None:
            total, wanted = hashlib.sha256(), self.sha256
        elif self.blob_id is not None and len(self.blob_id) == 40:
            total, wanted = hashlib.sha1(b"blob %d\0" % found), self.blob_id  # noqa: S324 - git's own checksum
        else:
            with path.open("rb") as file:
                forget_pages(file.fileno())
            return None
        with path.open("rb", buffering=0) as file:
            for data in read_pieces(file):
                total.update(data)
            forget_pages(file.fileno())
        return None if total.hexdigest() == wanted else "its checksum is not its source's"


def read_pieces(file: Any, most: int | None = None) -> Iterator[memoryview]:
    """Yield what a file has from here on, at most so many bytes, each piece until the next is asked for."""
    space = memoryview(bytearray(_SUM_BYTES))
    while most is None or most > 0:
        size = file.readinto(space if most is None else space[:most])
        if not size:
            return
        most = None if most is None else most - size
        yield space[:size]


def count_written(file: int, begin: int) -> int:
    """Return how many bytes from ``begin`` on are certainly written: to the first hole, as parts may come in any order, less
    what may be half a page.
    """
    try:
        hole = os.lseek(file, begin, os.SEEK_HOLE)
    except OSError:  # there is nothing yet
        return 0
    os.lseek(file, begin, os.SEEK_SET)
    return max(0, hole - begin - _SUM_BYTES)


class GrowingChecksum:
    """The SHA-256 of a file, taken while it arrives: the proof of the last byte costs no second reading.

    Enter it before the fetch, leave it after. What it has read leaves the page cache: a file of 60 GB must not stay in
    memory until it is whole.
    """

    def __init__(self, one: WantedFile, place: Path) -> None:
        self._one, self._place = one, place
        self._sum, self.size = hashlib.sha256(), 0
        self._kept = 0  # bytes in the page cache
        self._file: Any = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> GrowingChecksum:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._file is not None:
            self._file.close()

    def proves(self, path: Path) -> bool:
        """Tell whether the file at a path is the one that was read, whole, and the source's. Ask before leaving it."""
        self._ended.set()
        self._thread.join()
        if self._file is None or self.size != self._one.size or self._sum.hexdigest() != self._one.sha256:
            return False
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), path.stat())
        except OSError:
            return False

    def _run(self) -> None:
        is_over = False
        with contextlib.suppress(OSError):  # then it proves nothing, and the file is read again
            while not is_over:
                is_over = self._ended.wait(_FILE_POLL_SECONDS)  # before it reads: nothing comes after that
                self._file = self._file or self._open()
                if self._file is not None:
                    self._read_more(is_over)

    def _read_more(self, is_over: bool) -> None:
        most = None if is_over else count_written(self._file.fileno(), self.size)
        for data in read_pieces(self._file, most):
            self._sum.update(data)
            self.size += len(data)
            self._kept += len(data)
            if self._kept >= _FORGET_BYTES:
                forget_pages(self._file.fileno())
                self._kept = 0
        if is_over:
            forget_pages(self._file.fileno())

    def _open(self) -> Any:
        """Open the file that is begun, under the name that the client gives it; None without one."""
        if self._one.sha256 is None:
            return None
        there = [path for path in self._place.rglob("*.incomplete") if self._one.sha256 in path.name]
        return max(there, key=lambda path: path.stat().st_mtime).open("rb", buffering=0) if there else None


def choose_files(siblings: list[Any], include: list[str], exclude: list[str]) -> list[WantedFile]:
    """Return the files to download; without patterns those of the root that an engine reads."""
    names = [one.rfilename for one in siblings]
    if not include:
        tensors = [name for name in names if name.endswith(".safetensors") and "/" not in name]
        several = sorted(
            name
            for name in names
            if name.endswith(".gguf") and not _GGUF_PART.search(name) and "mmproj" not in name.lower()
        )
        if len(several) > 1 and not tensors:
            raise DownloadError("nothing", "it has several quantizations, name one: " + ", ".join(several[:12]))
        kinds = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt", "*.py", "*.tiktoken")
        include = list(kinds) if tensors else ["*"]
        exclude = [*exclude, "*/*", *_OTHER_FRAMEWORKS]
        if not tensors or not all(name.startswith("consolidated") for name in tensors):
            exclude.append("consolidated*")  # the same weights once more, in Mistral's or Meta's own format
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


def list_incomplete_bytes(place: Path, files: list[WantedFile]) -> int:
    """Return the bytes of these files that the client has begun below a directory; it names them by their checksum."""
    marks = [mark for one in files if (mark := one.sha256 or one.blob_id)]
    total = 0
    for one in place.rglob("*.incomplete"):
        if any(mark in one.name for mark in marks):
            with contextlib.suppress(OSError):
                total += one.stat().st_blocks * 512
    return total


class ProgressReporter:
    """Reports the bytes that have arrived, every second while it is entered."""

    def __init__(self, place: Path, arrived: dict[WantedFile, int], total: int | None) -> None:
        self._place, self._total = place, total
        self._arrived = arrived  # bytes of each file that is there, begun ones apart
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ProgressReporter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        at = 0
        while not self._ended.wait(REPORT_SECONDS):
            arrived = sum(self._arrived.values())  # first: a file that ends meanwhile must not count twice
            at = max(at, arrived + list_incomplete_bytes(self._place, list(self._arrived)))
            send_message(at=at, total=self._total)  # whoever asks how far it is reads the last lines only


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
        raise DownloadError("gated", read_hub_message(error) or str(error)) from error
    except errors.RevisionNotFoundError as error:
        raise DownloadError("no-revision", str(error)) from error
    except errors.RepositoryNotFoundError as error:
        raise DownloadError(classify_refusal(401, read_hub_message(error)) or "no-repository", str(error)) from error
    except OSError as error:  # the client's errors of HTTP and of connections are such, too
        status = getattr(getattr(error, "response", None), "status_code", None)
        kind = classify_refusal(status, read_hub_message(error)) or classify_os_error(error)
        raise DownloadError(
            kind or ("unauthorized" if status in (401, 403) else "broken"), str(error) or repo
        ) from error
    except Exception as error:
        # Errors of httpx's connections and of Xet are no OSError, those of Xet's own program are RuntimeError. While one
        # thread reports one of httpx, the client closes what all share.
        made_by = type(error).__module__.partition(".")[0]
        if not (made_by.startswith("httpx") or made_by in (hub.__name__, "hf_xet") or type(error) is RuntimeError):
            raise
        kind = "disk-full" if any(words in str(error).lower() for words in _FULL_DISK_WORDS) else "broken"
        raise DownloadError(kind, f"{type(error).__name__}: {error}") from error


def read_hub_message(error: Exception) -> str:
    """Return what the Hub itself says of a refusal, empty if it says nothing."""
    headers = getattr(getattr(error, "response", None), "headers", None)
    return str((headers.get("X-Error-Message") if headers is not None else None) or "")


def classify_refusal(status: int | None, message: str) -> str | None:
    """Return the kind of an HTTP error that has a cause of its own: a token that is no longer valid, or too many requests."""
    if status == 401 and any(words in message.lower() for words in _BAD_TOKEN_WORDS):
        return "bad-token"
    return "too-many" if status == 429 else None


def classify_os_error(error: OSError) -> str | None:
    """Return the kind of an error of the disk: it is full, or nothing can be written there; None for any other."""
    return "disk-full" if error.errno in _FULL_DISK else "place" if error.errno in _BAD_PLACE else None


class HubOrigin:
    """A repository of the Hub, fetched by the Hub's own client."""

    fetches_at_once = 8  # as many as the client's own command

    def __init__(self, request: Json) -> None:
        self._token = read_token(request.get("token_file"))
        try:
            import huggingface_hub as hub
        except ImportError:
            raise DownloadError("no-client", "the image has no huggingface_hub") from None
        self._hub: Any = hub
        self._repo = str(request["repo"])
        revision, is_cache, target = (
            request.get("revision") or "main",
            bool(request.get("is_cache")),
            Path(request["target"]),
        )
        with explain_errors(hub, self._repo):
            found = hub.HfApi(token=self._token or False).model_info(self._repo, revision=revision, files_metadata=True)
        self.files = choose_files(
            list(found.siblings or ()), request.get("include") or [], request.get("exclude") or []
        )
        self.revision = str(found.sha)
        self.name = f"hf:{self._repo}@{self.revision}"
        self._wanted_revision = revision if is_cache else self.revision
        self._where = {"cache_dir": target.parent} if is_cache else {}

    def fetch(self, one: WantedFile, part: Path, *, is_again: bool) -> Path:
        """Fetch a file, once more where its connection broke; return where it is."""
        try:
            return self._fetch(one, part, is_again=is_again)
        except DownloadError as error:
            if error.kind != "broken":
                raise
        time.sleep(_RETRY_SECONDS)
        return self._fetch(one, part, is_again=is_again)

    def _fetch(self, one: WantedFile, part: Path, *, is_again: bool) -> Path:
        where = self._where or {"local_dir": part}
        with explain_errors(self._hub, self._repo):
            return Path(
                self._hub.hf_hub_download(
                    self._repo,
                    one.name,
                    revision=self._wanted_revision,
                    token=self._token or False,
                    force_download=is_again,
                    **where,
                )
            )


class UrlOrigin:
    """One file of a web server; it is resumed where the server can."""

    fetches_at_once = 1

    def __init__(self, request: Json) -> None:
        self._url = str(request["url"])
        self.name, self.revision = self._url, None
        with self._open({}, "HEAD") as answer:
            length, tag = answer.headers.get("Content-Length"), answer.headers.get("ETag") or ""
        size = int(length) if length and length.isdigit() else None
        sha256 = request.get("sha256")
        mark = sha256 or hashlib.sha256(f"{self._url} {tag} {size}".encode()).hexdigest()[:16]
        name = posixpath.basename(urllib.parse.unquote(urllib.parse.urlsplit(self._url).path))
        if name in ("", ".", "..") or "/" in name:
            raise DownloadError("nothing", "the address names no file")
        self.files = [WantedFile(name, size, sha256, mark)]

    def _open(self, headers: dict[str, str], method: str = "GET") -> Any:
        try:
            request = urllib.request.Request(self._url, headers={"User-Agent": "sparkctl", **headers}, method=method)  # noqa: S310
            answer = urllib.request.urlopen(request, timeout=30)  # noqa: S310
        except urllib.error.HTTPError as error:
            if error.code == 416:  # nothing is left from there on, or the file has become shorter
                raise DownloadError("no-range", str(error)) from error
            raise DownloadError("unauthorized" if error.code in (401, 403, 404) else "broken", str(error)) from error
        except (OSError, ValueError) as error:
            raise DownloadError("broken", str(error)) from error
        if self._url.startswith("https:") and not answer.geturl().startswith("https:"):
            raise DownloadError("refused", "the server sends on to an address without TLS")
        return answer

    def fetch(self, one: WantedFile, part: Path, *, is_again: bool) -> Path:
        """Fetch the file; return where it is."""
        begun, goal = part / f"{one.name}.{one.sha256 or one.blob_id}.incomplete", part / one.name
        if goal.exists() and not is_again:
            return goal
        at = begun.stat().st_size if begun.exists() and not is_again else 0
        if at == 0 or at != one.size:
            try:
                answer = self._open({"Range": f"bytes={at}-"} if at else {})
            except DownloadError as error:
                if error.kind != "no-range":
                    raise
                answer = self._open({})  # whether what is here is whole cannot be told: from the start
            with answer, begun.open("ab") as file:
                if answer.status != 206:
                    file.truncate(0)
                copy_and_forget(answer, file)
        if one.size is not None and begun.stat().st_size < one.size:
            raise DownloadError("broken", "the server ended the connection early")
        begun.replace(goal)
        return goal


class DirectoryOrigin:
    """A model that lies in another directory of the node, for example on a mounted NAS."""

    fetches_at_once = 2  # a file is proved while the next one arrives

    def __init__(self, request: Json) -> None:
        target, is_cache = Path(request["target"]), bool(request.get("is_cache"))
        place = find_source_directory(Path(request["directory"]), target.name, str(request.get("repo") or ""))
        if is_cache and not (place / "snapshots").is_dir():
            raise DownloadError("nothing", f"{place} is not of the Hub's cache: name its path in model.path")
        self.revision, self.links = None, {}
        self.name = f"file:{place}"
        self._base = place
        if (place / "snapshots").is_dir() and not is_cache:
            self._base = find_snapshot(place, request.get("revision"))
            self.revision = self._base.name
            self.name = f"file:{self._base}"
        elif is_cache and request.get("revision"):
            self.revision = find_snapshot(place, request["revision"]).name
        if self._base.is_file():
            self._base = self._base.parent
        found = []
        for folder, _, names in os.walk(str(self._base)):
            for name in names:
                path = Path(folder, name)
                relative = path.relative_to(self._base).as_posix()
                if path.is_symlink() and is_cache:
                    self.links[relative] = os.readlink(str(path))  # noqa: PTH115 - Python 3.8
                elif path.is_file():
                    found.append(self._describe(path, relative, is_cache=is_cache))
        include = request.get("include") or ["*"]
        exclude = request.get("exclude") or []
        self.files = [
            one
            for one in found
            if is_cache
            or (
                any(fnmatch.fnmatch(one.name, each) for each in include)
                and not any(fnmatch.fnmatch(one.name, each) for each in (*exclude, ".*", "*.incomplete", "original/*"))
            )
        ]
        if not self.files:
            raise DownloadError("nothing", f"{self._base} has no file that is wanted")

    @staticmethod
    def _describe(path: Path, relative: str, *, is_cache: bool) -> WantedFile:
        state = path.stat()
        blob = (
            path.name
            if is_cache and path.parent.name == "blobs"
            else os.path.realpath(str(path)).rpartition("/blobs/")[2]
        )
        sha256 = blob if re.fullmatch(r"[0-9a-f]{64}", blob) else None  # so the Hub's cache names a large file
        return WantedFile(relative, state.st_size, sha256, f"{state.st_mtime_ns:x}-{state.st_size:x}")

    def fetch(self, one: WantedFile, part: Path, *, is_again: bool) -> Path:
        """Copy a file; return where it is."""
        goal = part / one.name
        begun = goal.with_name(f"{goal.name}.{one.sha256 or one.blob_id}.incomplete")
        if goal.exists() and not is_again and goal.stat().st_size == one.size:
            return goal
        goal.parent.mkdir(parents=True, exist_ok=True)
        at = begun.stat().st_size if begun.exists() and not is_again else 0
        with (self._base / one.name).open("rb") as source, begun.open("ab") as file:
            if is_again:
                file.truncate(0)
            source.seek(at)
            copy_and_forget(source, file)
        begun.replace(goal)
        return goal


def find_snapshot(place: Path, revision: str | None) -> Path:
    """Return the directory of a revision in the Hub's cache: a branch by its note, main where none is asked for."""
    there = sorted(one.name for one in (place / "snapshots").iterdir() if one.is_dir())
    for name in [revision] if revision else ["main", *(there if len(there) == 1 else [])]:
        note = place / "refs" / name
        commit = note.read_text().strip() if note.is_file() else name
        if commit in there or (len(commit) >= 7 and len([one for one in there if one.startswith(commit)]) == 1):
            return place / "snapshots" / next(one for one in there if one.startswith(commit))
    raise DownloadError(
        "nothing", f"{place} has no revision {revision or 'main'} (it has {', '.join(there[:5]) or 'none'})"
    )


def find_source_directory(base: Path, name: str, repo: str) -> Path:
    """Return where a model is: the directory itself, or below it by its name or the name of its repository."""
    cached = f"models--{repo.replace('/', '--')}"
    places = [base / name, base / cached, base / "hub" / cached, base / repo, base / repo.rpartition("/")[2]]
    for place in [base, *(one for one in places if one != base)]:
        if (
            place.is_file()
            or (place / "snapshots").is_dir()
            or (place.is_dir() and any(one.suffix in (".safetensors", ".gguf") for one in place.iterdir()))
        ):
            return place
    raise DownloadError("nothing", f"{base} on this node has no model {name}" + (f" or {repo}" if repo else ""))


def copy_and_forget(source: Any, file: Any) -> None:
    """Copy to the end; what is written and read leaves the page cache, which is the GPU's memory, too."""
    forgotten = 0
    while True:
        data = source.read(_READ_BYTES)
        if data:
            file.write(data)
        forgotten += len(data)
        if not data or forgotten >= _FORGET_BYTES:
            file.flush()
            forget_pages(file.fileno())
            with contextlib.suppress(OSError, AttributeError):
                os.posix_fadvise(source.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            forgotten = 0
        if not data:
            return


def forget_pages(file: int) -> None:
    """Write a file's pages to the disk and give their memory back."""
    with contextlib.suppress(OSError):
        os.fdatasync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)


def download(request: Json) -> None:
    """Download what the request wants; raises `DownloadError`."""
    kind = UrlOrigin if "url" in request else DirectoryOrigin if "directory" in request else HubOrigin
    origin: Any = kind(request)
    is_cache = bool(request.get("is_cache")) and kind is HubOrigin
    files, target = origin.files, find_real_place(Path(request["target"]), is_cache=is_cache)
    refuse_taken_names(target, [] if is_cache else origin.files)
    part = target if is_cache else target.with_name(target.name + PART_SUFFIX)
    whole = [] if is_cache else [one for one in files if one.describe_fault(target / one.name) is None]
    left = [one for one in files if one not in whole]
    arrived = {one: one.size or (target / one.name).stat().st_size for one in whole}
    arrived.update((one, _measure_arrived(one, part, is_cache=is_cache)) for one in left)
    have = sum(arrived.values())
    # the size of a file that the source does not tell is not known, and so is the sum; what is known must have room
    total = None if any(one.size is None for one in files) else sum(one.size or 0 for one in files)
    missing = sum(max(0, (one.size or 0) - arrived[one]) for one in left) - list_incomplete_bytes(part, left)
    check_free_space(part.parent, max(0, missing), request.get("kept_free") or 0)
    send_message(files=len(files), total=total, have=have, revision=origin.revision)
    part.mkdir(parents=True, exist_ok=True)
    if is_cache:
        (part / "blobs").mkdir(exist_ok=True)
        (part / UNPROVED_FILE).touch()
    pool = ThreadPoolExecutor(origin.fetches_at_once)
    with ProgressReporter(part, arrived, total):

        def fetch_one(one: WantedFile) -> None:
            with GrowingChecksum(one, part) as checksum:
                path = origin.fetch(one, part, is_again=False)
                arrived[one] = path.stat().st_size
                is_proved = checksum.proves(path)
            if not is_proved and one.describe_fault(path) is not None:  # fetched again, once
                arrived[one] = 0
                path = origin.fetch(one, part, is_again=True)
                arrived[one] = path.stat().st_size
                if (fault := one.describe_fault(path)) is not None:
                    for each in (os.path.realpath(str(path)), str(path)):  # the Hub's cache links to it
                        with contextlib.suppress(OSError):
                            os.unlink(each)  # noqa: PTH108 - Python 3.8
                    raise DownloadError("damaged", f"{one.name}: {fault}, twice")

        fetching = [pool.submit(fetch_one, one) for one in left]
        try:
            for ended in as_completed(fetching):
                ended.result()
        finally:
            for fetch in fetching:
                fetch.cancel()
            pool.shutdown(wait=False)
    if is_cache:
        for one in files:  # what an interrupted client began under a name that no later one takes up
            for left_over in (part / "blobs").glob(f"{one.sha256 or one.blob_id}.*incomplete"):
                left_over.unlink()
        (part / UNPROVED_FILE).unlink()
    else:
        _move_into_place(part, target, left)
        for name, goal in getattr(origin, "links", {}).items():
            link = target / name
            link.parent.mkdir(parents=True, exist_ok=True)
            if not os.path.lexists(str(link)):
                link.symlink_to(goal)
        (target / SOURCE_FILE).write_text(f"{origin.name}\n")
    send_message(done=True, files=len(files), total=sum(arrived.values()), revision=origin.revision)


def find_real_place(target: Path, *, is_cache: bool) -> Path:
    """Return the directory that a model gets, behind a link; raises `DownloadError` before a byte is fetched where it cannot."""
    if target.is_symlink() and not target.is_dir():
        raise DownloadError("place", f"{target} is a link to {os.readlink(str(target))}, which is not there for it")  # noqa: PTH115
    if target.exists() and not target.is_dir():
        raise DownloadError("place", f"{target} is a file")
    return target if is_cache else target.resolve()  # the Hub's client makes the name in its cache itself


def refuse_taken_names(target: Path, files: list[WantedFile]) -> None:
    """Raise `DownloadError` where a directory has the name of a file of the model, or a file that of a directory."""
    for one in files:
        path = target / one.name
        between = [each for each in path.parents if target in each.parents]
        if path.is_dir() or any(each.exists() and not each.is_dir() for each in between):
            raise DownloadError("place", f"{path} is in the way: the model has a file of that name")


def _measure_arrived(one: WantedFile, part: Path, *, is_cache: bool) -> int:
    """Return the bytes of a file that an earlier download brought whole; the Hub's cache names it by its checksum."""
    try:
        size = (part / "blobs" / str(one.sha256 or one.blob_id) if is_cache else part / one.name).stat().st_size
    except OSError:
        return 0
    return size if one.size in (None, size) else 0


def _move_into_place(part: Path, target: Path, files: list[WantedFile]) -> None:
    """Give what is whole its name: the directory at once, or into one that exists file by file, what names the weights last.

    What an interrupted download of another revision left there goes: it is no part of this model.
    """
    shutil.rmtree(part / ".cache", ignore_errors=True)
    names = {one.name for one in files}
    for stray in [one for one in part.rglob("*") if not one.is_dir() and one.relative_to(part).as_posix() not in names]:
        stray.unlink()
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
        send_message(error=classify_os_error(error) or "broken", message=str(error)[:2000])
        return 1
    except Exception as error:  # noqa: BLE001  # else the interpreter waits for all files that still arrive
        traceback.print_exc()
        send_message(error="broken", message=f"{type(error).__name__}: {error}"[:2000])
        return 1
    return 0


def read_mark(path: str | None) -> int | None:
    """Return when a file was last touched, by whichever clock; None without one."""
    try:
        return None if path is None else os.stat(path).st_mtime_ns  # noqa: PTH116
    except OSError:
        return None


def run_held_back(words: list[str]) -> int:
    """Run in a process of its own, which stands still while an engine loads its weights: both need the disk and the memory.

    Returns its exit status. It ends with this one.
    """
    watched = {_HOLD_SIGNAL, signal.SIGCHLD}
    mark = json.loads(words[0]).get("loading_mark")
    seen = read_mark(mark)
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    parent, child = os.getpid(), os.fork()
    if child == 0:
        signal.signal(_HOLD_SIGNAL, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, watched)
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os._exit(main(words) if os.getppid() == parent else 1)  # see below
    until: float | None = None
    while True:
        left = None if until is None else max(0.0, until - time.monotonic())
        if mark is not None:
            left = _MARK_SECONDS if left is None else min(left, _MARK_SECONDS)
        came = signal.sigwaitinfo(watched) if left is None else signal.sigtimedwait(watched, left)
        before, seen = seen, read_mark(mark)
        if (came is not None and came.si_signo == _HOLD_SIGNAL) or seen not in (None, before):
            if until is None:
                os.kill(child, signal.SIGSTOP)
                send_message(held=True)
            until = time.monotonic() + _HOLD_SECONDS
        elif until is not None and time.monotonic() >= until:
            os.kill(child, signal.SIGCONT)
            send_message(held=False)
            until = None
        if came is not None and came.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


if __name__ == "__main__":
    run = main if json.loads(sys.argv[1]).get("is_forced") else run_held_back
    if run is main:
        signal.signal(_HOLD_SIGNAL, signal.SIG_IGN)  # else it would end it
    os._exit(run(sys.argv[1:]))  # after an error, files that still arrive are not waited for; what came is kept
