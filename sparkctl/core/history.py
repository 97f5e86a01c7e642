"""What the laptop keeps: what was done, the logs of containers that are gone, the guard's receipts. Never the state.

All files are the operator's alone (0600 in a 0700 directory); secrets are masked before anything is written.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from sparkctl.core.expectation import expectation, is_duration
from sparkctl.core.history_file import HistoryFile, Unusable, make_private
from sparkctl.core.record import plain, rebuilt
from sparkctl.model.fit import Seen
from sparkctl.model.history import Kind, Operation, Share
from sparkctl.model.log import LogLine
from sparkctl.model.memory import BeforeStart
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Expectation, PartTime
from sparkctl.model.secrets import redact
from sparkctl.model.verdict import Verdict, present_name

if TYPE_CHECKING:
    import sqlite3

    from sparkctl.core.clock import Clock
    from sparkctl.core.history_entry import Entry
    from sparkctl.core.history_tables import Kept

_KEPT_LOGS = 20  # per instance and node
_LOG_NAME = re.compile(r"\d{8}-\d{6}-[0-9a-f]{12}\.log")
_UNFINISHED = ".new"  # beside the file that it is to replace; nothing reads it
_RECEIPT = ".guard.json"
_VERDICT = ".verdict.json"
_COMMAND = ".start.txt"  # the command that started it
_BEFORE = ".before.json"  # what the node had before it was started
_FORGOTTEN = 86400.0  # seconds after which nobody writes an unfinished file any more


@dataclass(frozen=True, slots=True)
class SavedLog:
    """A log on the operator's disk; ``saved`` is unix seconds, ``container`` the first 12 digits of its id."""

    path: Path
    instance: str
    node: str
    saved: float

    @property
    def container(self) -> str:
        """Return the beginning of the container's id."""
        return self.path.stem.rpartition("-")[2]


@dataclass(frozen=True, slots=True)
class LastStart:
    """How a profile's last start ended, at unix time ``when``: ``seconds`` to ready, or the cause why it ``failed``."""

    profile: str
    node: str
    when: float
    seconds: float | None = None
    failed: str | None = None


class LogWriter:
    """Writes one container's log as it arrives, each line as ``STAMP TEXT``; secrets are masked on the way.

    A file that is there already is not touched: a new one grows beside it, and `close` decides which of them stays.
    A full disk costs the log, never the work: ``failed`` says why nothing more is written. Opening raises OSError.
    """

    def __init__(self, path: Path, secrets: Iterable[str]) -> None:
        self.path = path
        self.failed: OSError | None = None
        self._secrets = tuple(secrets)
        make_private(path.parent)
        if path.exists():
            handle, name = tempfile.mkstemp(_UNFINISHED, f"{path.name}.", path.parent)  # 0600
            self._beside: Path | None = Path(name)
        else:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            self._beside = None
        self._file: IO[str] = os.fdopen(handle, "w", encoding="utf-8", errors="replace", newline="\n")

    def write(self, lines: Iterable[LogLine]) -> None:
        """Append lines; does nothing once it has failed."""
        if self.failed is not None:
            return
        try:
            self._file.writelines(f"{line.when} {redact(line.text, self._secrets)}\n" for line in lines)
            self._file.flush()  # a full disk shows here, not at the end
        except OSError as error:
            self._fail(error)

    def close(self, whole: bool = False) -> None:
        """Close; ``whole`` tells that this is all there is. A part replaces only what is shorter."""
        try:
            self._file.close()
            if self._beside is not None:
                self._settle(self._beside, whole and self.failed is None)
        except OSError as error:
            self._fail(error)

    def _settle(self, beside: Path, whole: bool) -> None:
        self._beside = None
        if whole or beside.stat().st_size > _size(self.path):
            beside.replace(self.path)
        else:
            beside.unlink(missing_ok=True)

    def _fail(self, error: OSError) -> None:
        self.failed = self.failed or error
        with suppress(OSError):  # what is still in the buffer has no place to go; the descriptor is closed all the same
            self._file.close()


class History:
    """The state directory. A file that is damaged or in the way costs its own content, never the verb."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._file = HistoryFile(directory, self._take_over)

    def log_writer(self, instance: str, node: str, container_id: str, secrets: Iterable[str]) -> LogWriter:
        """Open the file for this run of a container: always the same one; files of old runs are pruned."""
        folder = self._log_folder(instance, node)
        same = sorted(folder.glob(f"*-{container_id[:12]}.log"))
        if same:
            return LogWriter(same[-1], secrets)  # the operator may have been told this name already
        _prune(folder)
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        return LogWriter(folder / f"{stamp}-{container_id[:12]}.log", secrets)

    def saved_logs(self, instance: str, nodes: Collection[str] | None = None) -> list[SavedLog]:
        """Return the saved logs of an instance, newest first: of these nodes, or with None of whatever node.

        A node that was not given is named as its folder is.
        """
        names = None if nodes is None else {_safe(node): node for node in nodes}
        found = []
        for path in (self.directory / "logs" / _safe(instance)).glob("*/*.log"):
            node = path.parent.name if names is None else names.get(path.parent.name)
            if node is not None and _LOG_NAME.fullmatch(path.name):
                with suppress(FileNotFoundError):  # pruned by another sparkctl just now
                    found.append(SavedLog(path, instance, node, path.stat().st_mtime))
        return sorted(found, key=lambda log: log.saved, reverse=True)

    def instances_with_logs(self) -> list[str]:
        """Return the names that `saved_logs` knows, for completion and errors."""
        base = self.directory / "logs"
        return sorted(path.name for path in base.iterdir()) if base.is_dir() else []

    def remember_start(
        self,
        profile: str,
        digest: str,
        node: str,
        seconds: float,
        when: float | None = None,
        *,
        kind: str = "",
        parts: Sequence[PartTime] = (),
        has_joined: bool = False,
        peak: int | None = None,
        estimated: int | None = None,
    ) -> None:
        """Note that a start reached ready after ``seconds``, now or at unix time ``when``.

        ``kind`` is what `expectation.kind_of` gives. Of a start that was joined while it ran already, the seconds are
        not its own: nothing is expected of it. ``peak``: bytes that it took, ``estimated`` what its sum had said.
        """
        share = Share(
            NodeName(node), profile, seconds=seconds, parts=tuple(parts), peak=peak or None,
            estimated=estimated if peak else None, has_joined=has_joined or None,
        )  # fmt: skip
        self._put(profile, digest, kind or None, share, time.time() if when is None else when)

    def remember_failure(self, profile: str, digest: str, node: str, cause: str, container: str, when: float) -> None:
        """Note that a start failed at unix time ``when``. The same container twice counts once."""
        share = Share(NodeName(node), profile, container=container[:12], cause=cause)
        self._put(profile, digest, None, share, when)

    def _put(self, profile: str, digest: str, alike: str | None, share: Share, when: float) -> None:
        """Keep a start of which nothing else is known; a failed one beside what is known of its container."""
        from sparkctl.core import history_tables

        def keep(file: sqlite3.Connection) -> None:
            if share.cause is None or not history_tables.add_cause(file, profile, share, when):
                one = Operation(
                    0, Kind.START, max(0.0, when - (share.seconds or 0.0)), "", (share.node,), profile, profile, digest or None,
                    alike=alike, ended=when, seconds=share.seconds, shares=(share,),
                    outcome="ready" if share.cause is None else "failed",
                )  # fmt: skip
                history_tables.put(file, secrets.token_hex(12), None, ("", 0), one, when)
                history_tables.prune(file)

        self._write(keep)

    def failures_since_ready(self, profile: str, node: str, earliest: float) -> tuple[tuple[float, str], ...]:
        """Return (unix seconds, cause) of the starts that failed on a node after its last good one, oldest first; of a model
        over several Sparks, whichever rank it was that failed."""
        found: dict[str, tuple[float, str]] = {}
        for record in self._records():
            is_there = node == record.get("node") or node in _nodes(record)
            if record.get("profile") != profile or not is_there or not _is_time(record.get("ts")):
                continue
            if is_duration(record.get("seconds")):
                found.clear()
            elif isinstance(record.get("failed"), str) and record["ts"] >= earliest:
                cause = present_name(record["failed"])
                found.setdefault(str(record.get("container")), (float(record["ts"]), cause))
        return tuple(sorted(found.values()))

    def seen(self, digest: str, node: str) -> Seen | None:
        """Return what the last start of this very profile took: on this node, else on another."""
        good = [one for one in self._start_records() if one.get("hash") == digest and _is_size(one.get("peak"))]
        last = ([one for one in good if one.get("node") == node] or good)[-1:]
        if not last:
            return None
        said = last[0].get("estimated")
        return Seen(int(last[0]["peak"]), said if _is_size(said) else None)

    def was_ready(self, digest: str) -> bool:
        """Tell whether a start of this very profile went well, wherever."""
        return any(one.get("hash") == digest for one in self._start_records())

    def failed_for(self, digest: str, cause: str) -> bool:
        """Tell whether the last start of this very profile, wherever, ended for this cause."""
        last = [one for one in self._records() if one.get("hash") == digest][-1:]
        return bool(last) and last[0].get("failed") == cause

    def receipt_path(self, instance: str, node: str, container_id: str) -> Path | None:
        """Return where the guard's receipt of this container is kept, None where there is none."""
        return next(iter(self._log_folder(instance, node).glob(f"*-{container_id[:12]}{_RECEIPT}")), None)

    def keep_receipt(self, instance: str, node: str, container_id: str, text: str) -> Path:
        """Write the guard's receipt beside the container's log, whole or not at all. Raises OSError."""
        return self._keep(instance, node, container_id, _RECEIPT, text)

    def _keep(self, instance: str, node: str, container_id: str, suffix: str, text: str) -> Path:
        folder = self._log_folder(instance, node)
        make_private(folder)
        logs = sorted(folder.glob(f"*-{container_id[:12]}.log"))
        stem = logs[-1].stem if logs else f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{container_id[:12]}"
        earlier = next(iter(folder.glob(f"*-{container_id[:12]}{suffix}")), None)
        path = earlier or folder / f"{stem}{suffix}"
        handle, name = tempfile.mkstemp(_UNFINISHED, f"{path.name}.", folder)  # 0600
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
        return path

    def keep_verdict(self, instance: str, node: str, container_id: str, verdict: Verdict) -> Path:
        """Write why a start failed beside the container's log, whole or not at all. Raises OSError."""
        return self._keep(instance, node, container_id, _VERDICT, json.dumps(plain(verdict), ensure_ascii=False) + "\n")

    def keep_start(self, instance: str, node: str, container_id: str, command: str) -> None:
        """Write by which command a container was started, secrets in it masked. Raises OSError."""
        self._keep(instance, node, container_id, _COMMAND, command + "\n")

    def start_of(self, instance: str, node: str, container_id: str) -> str | None:
        """Return the command that started a container, None where that was not from here or is long ago."""
        kept = next(iter(self._log_folder(instance, node).glob(f"*-{container_id[:12]}{_COMMAND}")), None)
        try:
            return None if kept is None else kept.read_text("utf-8").strip() or None
        except (OSError, ValueError):
            return None

    def keep_before(self, instance: str, node: str, container_id: str, before: BeforeStart) -> None:
        """Write what a node had just before this container was started. Raises OSError.

        A stop is measured by it, so it lies beside the log: a history that is locked or was deleted changes no verdict.
        """
        self._keep(instance, node, container_id, _BEFORE, json.dumps(plain(before)) + "\n")

    def before_start(self, instance: str, node: str, container_id: str) -> BeforeStart | None:
        """Return what a node had just before this container was started, None where that is not known here."""
        kept = next(iter(self._log_folder(instance, node).glob(f"*-{container_id[:12]}{_BEFORE}")), None)
        try:
            before = None if kept is None else rebuilt(BeforeStart, json.loads(kept.read_text("utf-8")))
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            return None
        return before if before is not None and _is_size(before.available) else None

    def kept_verdict(self, saved: SavedLog) -> Verdict | None:
        """Return why the start of this log failed, None where that was not kept or cannot be read any more."""
        try:
            return rebuilt(Verdict, json.loads(saved.path.with_suffix(_VERDICT).read_text("utf-8")))
        except (OSError, ValueError, AttributeError, RecursionError):
            return None

    def expected(self, profile: str, digest: str, node: str, kind: str = "") -> Expectation:
        """Return how long a start usually takes, and each of its parts; see `expectation`."""
        return expectation(self._records(), profile, digest, node, kind)

    def recent_profiles(self, most: int) -> tuple[str, ...]:
        """Return the names of the profiles that were started last, the latest first."""
        names = [str(record.get("profile")) for record in reversed(self._start_records()) if record.get("profile")]
        return tuple(dict.fromkeys(names))[:most]

    def last_starts(self) -> tuple[LastStart, ...]:
        """Return how the last start of each profile ended, wherever that was; one line for each that was ever started."""
        last: dict[str, LastStart] = {}
        for record in self._records():
            profile, when, failed = record.get("profile"), record.get("ts"), record.get("failed")
            if not isinstance(profile, str) or not isinstance(when, int | float) or not _is_time(when):
                continue
            node = str(record.get("node"))
            if is_duration(record.get("seconds")) and node not in _nodes(record)[1:]:  # the head's counts
                last[profile] = LastStart(profile, node, float(when), seconds=float(record["seconds"]))
            elif isinstance(failed, str):
                last[profile] = LastStart(profile, node, float(when), failed=failed)
        return tuple(last.values())

    # operations

    def begin(
        self,
        kind: Kind,
        clock: Clock,
        operator: str,
        nodes: Sequence[NodeName],
        parent: Entry | None = None,
        **facts: Any,
    ) -> Entry:
        """Begin a row: ``facts`` are fields of `Operation`. Whoever does the work ends it. Never raises."""
        from sparkctl.core.history_entry import Entry

        operation = Operation(0, kind, clock.now(), operator, tuple(nodes), **facts)
        return Entry(self._file, clock, operation, parent)

    def settle(self, key: str, why: str, now: float) -> None:
        """Note that somebody else finished the operation of this key, where it was begun from here. Never raises."""
        from sparkctl.core import history_tables

        with suppress(Unusable):
            self._file.write(lambda file: history_tables.settle(file, key, "interrupted", why, now))

    def word(self) -> str | None:
        """Return what is wrong with the history's file and was not said yet."""
        return self._file.word()

    @property
    def is_unreadable(self) -> bool:
        """Tell whether what was read last could not be read."""
        return self._file.is_unreadable

    def operations(
        self, profile: str | None = None, node: str | None = None, *, failed: bool = False, most: int = 50
    ) -> tuple[Operation, ...]:
        """Return what was done, the latest first: of a profile or an instance, on a node, only what did not go well; at
        ``most`` so many, or with -1 all."""
        from sparkctl.core import history_tables

        nothing: list[Kept] = []
        found = self._file.read(
            lambda file: history_tables.operations(file, profile=profile, node=node, most=-1 if failed else most),
            nothing,
        )
        told = (_alive(one) for one in found)
        wanted = [one for one in told if one.has_failed or not failed]
        return tuple(wanted if most < 0 else wanted[:most])

    def operation(self, number: int) -> Operation | None:
        """Return the operation of this number, None where there is none."""
        from sparkctl.core import history_tables

        nothing: list[Kept] = []
        found = self._file.read(lambda file: history_tables.operations(file, number=number), nothing)
        return next((_alive(one) for one in found), None)

    def parts_of(self, one: Operation) -> tuple[Operation, ...]:
        """Return the starts and stops that a switch was made of, the first one first."""
        from sparkctl.core import history_tables

        nothing: list[Kept] = []
        found = self._file.read(lambda file: history_tables.operations(file, parent=one.id), nothing)
        return tuple(_alive(each) for each in reversed(found))

    def worked_before(self, one: Operation) -> Operation | None:
        """Return the last start before this operation that went well: of the same instance, on the same nodes if there was
        one there, else wherever; None where there was none."""
        from sparkctl.core import history_tables

        nothing: list[Kept] = []
        found = self._file.read(
            lambda file: history_tables.operations(file, profile=one.instance or one.profile, before=one.id, most=-1),
            nothing,
        )
        starts = [_alive(each) for each in found if each.operation.kind is Kind.START]
        good = [each for each in starts if each.outcome == "ready"]
        return next((each for each in good if set(each.nodes) == set(one.nodes)), good[0] if good else None)

    def saw(self, container: str, accept_length: float | None, tokens_per_second: float | None) -> None:
        """Keep with its start what was seen of an engine while it ran. Never raises."""
        from sparkctl.core import history_tables

        if not self._file.path.exists():
            return  # of no start that was done from here
        with suppress(Unusable):
            self._file.write(lambda file: history_tables.saw(file, container[:12], accept_length, tokens_per_second))

    def _write(self, work: Callable[[sqlite3.Connection], None]) -> None:
        try:
            self._file.write(work)
        except Unusable as error:
            raise OSError(str(error)) from error

    def _take_over(self, file: sqlite3.Connection) -> None:
        """Take over what an earlier sparkctl kept, once, and keep its file under another name."""
        from sparkctl.core import history_tables
        from sparkctl.core.starts import content_of, migrated, records

        path = self.directory / "starts.jsonl"
        history_tables.take_over(file, records(path), content_of(path), time.time())
        migrated(path)

    def _start_records(self) -> list[dict[str, Any]]:
        return [record for record in self._records() if is_duration(record.get("seconds"))]

    def _records(self) -> list[dict[str, Any]]:
        from sparkctl.core import history_tables

        return self._file.read(history_tables.told, [])

    def _log_folder(self, instance: str, node: str) -> Path:
        return self.directory / "logs" / _safe(instance) / _safe(node)


def _prune(folder: Path) -> None:
    """Make room for one more log, and clear away what a crash left unfinished."""
    for old in sorted(folder.glob("*.log"))[: -_KEPT_LOGS + 1]:
        old.unlink(missing_ok=True)
    for suffix in (_RECEIPT, _VERDICT, _COMMAND, _BEFORE):
        for beside in sorted(folder.glob(f"*{suffix}"))[:-_KEPT_LOGS]:
            beside.unlink(missing_ok=True)
    for left in folder.glob(f"*{_UNFINISHED}"):
        with suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > _FORGOTTEN:
                left.unlink()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 50


def _nodes(record: Mapping[str, Any]) -> list[str]:
    nodes = record.get("nodes")
    return nodes if isinstance(nodes, list) else []


def _alive(kept: Kept) -> Operation:
    """Return an operation with whether it still goes on; None stays where another machine began it."""
    one = kept.operation
    if one.outcome is not None:
        return replace(one, is_running=False)
    if kept.host != socket.gethostname() or kept.pid is None:
        return one
    import psutil  # only where a row has no end

    try:
        return replace(one, is_running=psutil.Process(kept.pid).create_time() <= one.began + 1.0)
    except psutil.Error:
        return replace(one, is_running=False)


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < 1e12


def _safe(name: str) -> str:
    """Return a file name for a name that may hold anything (an ad hoc node is user@host)."""
    return re.sub(r"[^A-Za-z0-9_.@-]", "_", name).lstrip(".") or "_"
