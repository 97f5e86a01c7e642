"""Saved logs of containers on this machine, also of removed ones. Beside each log: the guard's receipt, the verdict, the
command that started the container, and the node's memory before the start.

Only the operator can read the files (0600 in a 0700 directory); secrets are masked before anything is written.
"""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from sparkctl.files import (
    MAX_STATE_FILE_BYTES,
    load_state_file,
    plain_file_name,
    read_regular_file,
    safe_file_name,
    write_private_file,
)
from sparkctl.history.database import make_private_directory
from sparkctl.history.expected_durations import is_byte_count
from sparkctl.model.container import shorten_id
from sparkctl.model.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from sparkctl.model.sample import MemoryBeforeStart
    from sparkctl.model.text.log_line import LogLine
    from sparkctl.model.verdict import Verdict

_MAX_LOGS = 20  # per instance and node
_LOG_NAME = re.compile(r"\d{8}-\d{6}-[0-9a-f]{12}\.log")
_STAMPED_NAME = re.compile(r"[0-8]\d{7}-\d{6}-")
_STAMP_CHARS, _STAMP_FORMAT = 15, "%Y%m%d-%H%M%S"
_UNFINISHED_SUFFIX = ".new"  # beside the file that it is to replace; nothing reads it
_RECEIPT_SUFFIX = ".guard.json"
_VERDICT_SUFFIX = ".verdict.json"
_COMMAND_SUFFIX = ".start.txt"  # the command that started it
_MEMORY_BEFORE_SUFFIX = ".before.json"  # what the node had before it was started
_STALE_SECONDS = 86400.0  # seconds after which nobody writes an unfinished file any more


@dataclass(frozen=True, slots=True)
class SavedLog:
    """A saved log; ``saved`` is unix seconds, ``container`` the first 12 digits of the container's id."""

    path: Path
    instance: str
    node: str
    saved: float

    @property
    def short_container_id(self) -> str:
        """The first digits of the container's id."""
        return self.path.stem.rpartition("-")[2]


class SavedLogWriter:
    """Writes one container's log as it arrives, each line as ``STAMP TEXT``; secrets are masked on the way.

    An existing file is not touched: a new one grows beside it, and `close` decides which of them stays, also where two
    write the log of one container at the same time.
    A full disk ends the log, never the command: ``failed`` says why nothing more is written. Opening raises OSError.
    """

    def __init__(self, path: Path, secrets: Iterable[str]) -> None:
        self.path = path
        self.failed: OSError | None = None
        self._secrets = tuple(secrets)
        make_private_directory(path.parent)
        self._beside: Path | None = None
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            handle, self._beside = self._open_beside()
        self._file: IO[str] = os.fdopen(handle, "w", encoding="utf-8", errors="replace", newline="\n")

    def write(self, lines: Iterable[LogLine]) -> None:
        """Append lines; does nothing once it has failed."""
        from sparkctl.model.text.secrets import redact

        if self.failed is not None:
            return
        try:
            self._file.writelines(f"{line.when} {redact(line.text, self._secrets)}\n" for line in lines)
            self._file.flush()  # a full disk shows here, not at the end
        except OSError as error:
            self._mark_failed(error)

    def close(self, whole: bool = False) -> None:
        """Close the file; ``whole``: the log is complete. An incomplete log replaces only a shorter one."""
        try:
            if self._beside is None and not self._file.closed:
                self._beside = self._copy_if_replaced()
            self._file.close()
            if self._beside is not None:
                self._replace_or_discard(self._beside, whole and self.failed is None)
        except OSError as error:
            self._mark_failed(error)

    def _open_beside(self) -> tuple[int, Path]:
        handle, name = tempfile.mkstemp(_UNFINISHED_SUFFIX, f"{self.path.name}.", self.path.parent)  # 0600
        return handle, Path(name)

    def _copy_if_replaced(self) -> Path | None:
        """Return a copy of what was written here if another writer's file took the place meanwhile, None else."""
        self._file.flush()
        own = self._file.fileno()
        if not self.path.exists() or os.path.samestat(os.fstat(own), self.path.stat()):
            return None
        handle, temporary = self._open_beside()
        with os.fdopen(handle, "wb") as copy, os.fdopen(os.dup(own), "rb") as written:
            written.seek(0)
            shutil.copyfileobj(written, copy)
        return temporary

    def _replace_or_discard(self, temporary: Path, whole: bool) -> None:
        self._beside = None
        if whole or temporary.stat().st_size > (self.path.stat().st_size if self.path.exists() else 0):
            temporary.replace(self.path)
        else:
            temporary.unlink(missing_ok=True)

    def _mark_failed(self, error: OSError) -> None:
        self.failed = self.failed or error
        with suppress(OSError):  # what is still in the buffer has no place to go; the descriptor is closed all the same
            self._file.close()


class LogArchive:
    """The folders of saved logs, one for each instance and node."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def open_log_writer(self, instance: str, node: str, container_id: str, secrets: Iterable[str]) -> SavedLogWriter:
        """Open the file for this run of a container: always the same one; files of old runs are pruned."""
        if same := self._find_files(instance, node, f"*-{shorten_id(container_id)}.log"):
            return SavedLogWriter(same[-1], secrets)  # the operator may have seen this name already
        folder = self._log_folder(instance, node)
        _prune_folder(folder)
        return SavedLogWriter(folder / f"{_next_stamp(folder)}-{shorten_id(container_id)}.log", secrets)

    def list_saved_logs(self, instance: str, nodes: Collection[str] | None = None) -> list[SavedLog]:
        """Return the saved logs of an instance, newest first: of these nodes, or with None of all nodes.

        With None, nodes have the names of their folders.
        """
        names = (
            None
            if nodes is None
            else {name(node): node for name in (plain_file_name, safe_file_name) for node in nodes}
        )
        found = []
        for path in self._find_files(instance, None, "*.log"):
            node = path.parent.name if names is None else names.get(path.parent.name)
            if node is not None and _LOG_NAME.fullmatch(path.name):
                with suppress(FileNotFoundError):  # pruned by another sparkctl just now
                    found.append(SavedLog(path, instance, node, path.stat().st_mtime))
        return _sort_newest_first(found)

    def list_instances_with_logs(self) -> list[str]:
        """Return the names of all instances with saved logs, for completion and errors."""
        base = self.directory / "logs"
        try:
            return sorted(path.name for path in base.iterdir())
        except OSError:
            return []

    def find_receipt(self, instance: str, node: str, container_id: str) -> Path | None:
        """Return the path of the guard's receipt for this container, None if there is none."""
        return self._find_beside_log(instance, node, container_id, _RECEIPT_SUFFIX)

    def save_receipt(self, instance: str, node: str, container_id: str, text: str) -> Path:
        """Write the guard's receipt beside the container's log, whole or not at all. Raises OSError."""
        return self._write_beside_log(instance, node, container_id, _RECEIPT_SUFFIX, text)

    def _write_beside_log(self, instance: str, node: str, container_id: str, suffix: str, text: str) -> Path:
        folder = self._log_folder(instance, node)
        make_private_directory(folder)
        logs = self._find_files(instance, node, f"*-{shorten_id(container_id)}.log")
        path = self._find_beside_log(instance, node, container_id, suffix) or (
            logs[-1].with_suffix(suffix)
            if logs
            else folder / f"{_next_stamp(folder)}-{shorten_id(container_id)}{suffix}"
        )
        write_private_file(path, text, _UNFINISHED_SUFFIX)
        return path

    def save_verdict(self, instance: str, node: str, container_id: str, verdict: Verdict) -> Path:
        """Write why a start failed beside the container's log, whole or not at all. Raises OSError."""
        from sparkctl.model.json_codec import to_json_data

        return self._write_beside_log(
            instance, node, container_id, _VERDICT_SUFFIX, json.dumps(to_json_data(verdict), ensure_ascii=False) + "\n"
        )

    def save_start_command(self, instance: str, node: str, container_id: str, command: str) -> None:
        """Write the command that started a container, with secrets masked. Raises OSError."""
        self._write_beside_log(instance, node, container_id, _COMMAND_SUFFIX, command + "\n")

    def load_start_command(self, instance: str, node: str, container_id: str) -> str | None:
        """Return the command that started a container, None if it was not started from here or the file is pruned."""
        kept = self._find_beside_log(instance, node, container_id, _COMMAND_SUFFIX)
        try:
            return (
                None if kept is None else read_regular_file(kept, MAX_STATE_FILE_BYTES).decode("utf-8").strip() or None
            )
        except (OSError, ValueError):
            return None

    def save_memory_before(self, instance: str, node: str, container_id: str, before: MemoryBeforeStart) -> None:
        """Write a node's memory just before this container was started. Raises OSError.

        A stop is measured against it. It is a file of its own, so that a locked or deleted history changes no verdict.
        """
        from sparkctl.model.json_codec import to_json_data

        self._write_beside_log(
            instance, node, container_id, _MEMORY_BEFORE_SUFFIX, json.dumps(to_json_data(before)) + "\n"
        )

    def load_memory_before(self, instance: str, node: str, container_id: str) -> MemoryBeforeStart | None:
        """Return a node's memory just before this container was started, None if not known here."""
        from sparkctl.model.sample import MemoryBeforeStart  # imported late: `history` needs none of the node's samples

        kept = self._find_beside_log(instance, node, container_id, _MEMORY_BEFORE_SUFFIX)
        before = load_state_file(kept, MemoryBeforeStart)
        return before if before is not None and is_byte_count(before.available) else None

    def load_verdict(self, saved: SavedLog) -> Verdict | None:
        """Return why the start of this log failed, None if that was not saved or cannot be read."""
        from sparkctl.model.verdict import Verdict

        return load_state_file(saved.path.with_suffix(_VERDICT_SUFFIX), Verdict)

    def note_awaited_token(self, node: str, container_id: str) -> None:
        """Note that no token of this container's model was seen yet, whatever becomes of the start. Raises OSError."""
        folder = self._awaited_folder(node)
        make_private_directory(folder)
        for old in sorted(folder.iterdir(), key=_read_modification_time)[: -_MAX_LOGS + 1]:
            old.unlink(missing_ok=True)
        (folder / shorten_id(container_id)).touch(0o600)

    def list_awaited_tokens(self, node: str) -> frozenset[str]:
        """Return the containers, by the first 12 digits of their ids, whose starts from here saw no token: a start is under
        way, was left, or failed.
        """
        try:
            return frozenset(os.listdir(self._awaited_folder(node)))  # noqa: PTH208  # at each look at a node
        except OSError:
            return frozenset()

    def note_token(self, instance: str, node: str, container_id: str) -> None:
        """Note that a token was seen: a verdict that says there was none is deleted, too."""
        awaited = self._awaited_folder(node) / shorten_id(container_id)
        with suppress(OSError):
            awaited.unlink()
            if (verdict := self._find_beside_log(instance, node, container_id, _VERDICT_SUFFIX)) is not None:
                verdict.unlink()

    def _awaited_folder(self, node: str) -> Path:
        """Return the folder of one node's marks: one listing answers for all of its containers."""
        return self.directory / "awaited" / safe_file_name(node)

    def _find_beside_log(self, instance: str, node: str, container_id: str, suffix: str) -> Path | None:
        return next(iter(self._find_files(instance, node, f"*-{shorten_id(container_id)}{suffix}")), None)

    def _find_files(self, instance: str, node: str | None, pattern: str) -> list[Path]:
        """Return the files of an instance on a node, or on all of them, by their names; also those in folders that an earlier
        version named."""
        found: set[Path] = set()
        for name in (safe_file_name, plain_file_name):
            of_node = "*" if node is None else glob.escape(name(node))
            found.update((self.directory / "logs" / name(instance)).glob(f"{of_node}/{pattern}"))
        return sorted(found, key=lambda path: path.name)

    def _log_folder(self, instance: str, node: str) -> Path:
        return self.directory / "logs" / safe_file_name(instance) / safe_file_name(node)


def _prune_folder(folder: Path) -> None:
    """Delete the oldest logs to make room for one more, and unfinished files of a crash."""
    for old in sorted(folder.glob("*.log"))[: -_MAX_LOGS + 1]:
        old.unlink(missing_ok=True)
    for suffix in (_RECEIPT_SUFFIX, _VERDICT_SUFFIX, _COMMAND_SUFFIX, _MEMORY_BEFORE_SUFFIX):
        for temporary in sorted(folder.glob(f"*{suffix}"))[:-_MAX_LOGS]:
            temporary.unlink(missing_ok=True)
    for left in folder.glob(f"*{_UNFINISHED_SUFFIX}"):
        with suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > _STALE_SECONDS:
                left.unlink()


def _next_stamp(folder: Path) -> str:
    """Return the time for a new file's name: later than that of every other file, even if the clock was set back."""
    import calendar  # with locale, 10 ms

    now = int(time.time())
    latest = max((path.name[:_STAMP_CHARS] for path in folder.glob("*") if _STAMPED_NAME.match(path.name)), default="")
    with suppress(ValueError, OverflowError):
        now = max(now, calendar.timegm(time.strptime(latest, _STAMP_FORMAT)) + 1)
    return time.strftime(_STAMP_FORMAT, time.gmtime(now))


def _sort_newest_first(logs: Iterable[SavedLog]) -> list[SavedLog]:
    """Return logs by the time they were saved, the newest first; those of one folder always in the order of their names, in
    which they were begun: the times of files are by a clock that may have been set back."""
    found = sorted(logs, key=lambda log: log.saved, reverse=True)
    by_folder: dict[Path, list[SavedLog]] = {}
    for log in sorted(found, key=lambda log: log.path.name):
        by_folder.setdefault(log.path.parent, []).append(log)
    return [by_folder[log.path.parent].pop() for log in found]


def _read_modification_time(path: Path) -> float:
    """Return when a file was changed, in unix seconds; 0 where another process has just deleted it."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
