"""The history of starts, stops and switches: writing it, and questions about earlier starts."""

from __future__ import annotations

import hashlib
import json
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkctl.files import open_regular_file
from sparkctl.history.database import DatabaseUnavailable, HistoryDatabase, find_unused_path
from sparkctl.history.expected_durations import (
    compute_model_key,
    estimate_durations,
    find_longest_phases,
    find_longest_start,
    is_byte_count,
    is_duration,
)
from sparkctl.history.log_archive import LogArchive
from sparkctl.model.container import shorten_id
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName

if TYPE_CHECKING:
    import sqlite3

    from sparkctl.clock import Clock
    from sparkctl.history.model import NodeResult, OperationKind, OperationRecord
    from sparkctl.history.operation_recorder import OperationRecorder
    from sparkctl.history.tables import StoredOperation
    from sparkctl.model.memory_fit import MeasuredPeak
    from sparkctl.model.phase import ExpectedDurations, Phase, PhaseDuration
    from sparkctl.model.profile import Profile


_ID_LENGTH = 12  # digits of a container's id in the history
_MAX_LEGACY_FILE_BYTES = 16 << 20  # bytes: that sparkctl let it grow to half a MiB


def read_legacy_starts(path: Path) -> tuple[str, list[dict[str, Any]]]:
    """Return the hash of the file's content and its records, the oldest first, both of one read. Skips damaged lines.

    Raises OSError, FileNotFoundError where another sparkctl has imported and renamed the file.
    """
    with open_regular_file(path) as file:
        content = file.read(_MAX_LEGACY_FILE_BYTES)
    found = []
    for line in content.splitlines():
        try:
            record = json.loads(line.decode(errors="replace"))
        except (ValueError, RecursionError):
            continue  # a line that a crash cut in half
        if isinstance(record, dict):
            found.append(record)
    return hashlib.sha256(content).hexdigest(), found


def archive_legacy_file(path: Path) -> None:
    """Rename an imported file to an unused name; a file that cannot be renamed stays and is known by its content."""
    with suppress(OSError):
        path.rename(find_unused_path(path.with_name(f"{path.name}.migrated")))


@dataclass(frozen=True, slots=True, kw_only=True)
class LastStart:
    """How a profile's last start ended, at unix time ``when``: ``seconds`` to ready, or the cause why it ``failed``. Both are None
    if the start was seen ready by somebody who had not begun it."""

    profile: str
    node: str
    when: float
    seconds: float | None = None
    failed: str | None = None


class OperationHistory(LogArchive):
    """The history in the state directory. A damaged file loses its own content, but never stops a command."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._file = HistoryDatabase(directory, self._import_legacy_starts)

    def record_start(
        self,
        profile: str,
        digest: str,
        node: str,
        seconds: float,
        when: float | None = None,
        *,
        kind: str = "",
        parts: Sequence[PhaseDuration] = (),
        has_joined: bool = False,
        peak: int | None = None,
        estimated: int | None = None,
        workers: Sequence[str] = (),
    ) -> None:
        """Record that a start reached ready after ``seconds``, now or at unix time ``when``; ``workers``: the nodes of its other ranks.

        ``kind`` is the result of `compute_model_key`. ``has_joined``: the start was already running, so its seconds do
        not count for expected durations. ``peak``: bytes that it took, ``estimated``: the memory estimate.
        """
        from sparkctl.history.model import NodeResult

        share = NodeResult(
            node=NodeName(node), instance=profile, seconds=seconds, parts=tuple(parts), peak=peak or None,
            estimated=estimated if peak else None, has_joined=has_joined or None,
        )  # fmt: skip
        self._record_single_start(profile, digest, kind or None, share, time.time() if when is None else when, workers)

    def record_failure(self, profile: str, digest: str, node: str, cause: str, container: str, when: float) -> None:
        """Record that a start failed at unix time ``when``. The same container counts once; a start without one each time."""
        from sparkctl.history.model import NodeResult

        share = NodeResult(node=NodeName(node), instance=profile, container=shorten_id(container) or None, cause=cause)
        self._record_single_start(profile, digest, None, share, when)

    def _record_single_start(
        self, profile: str, digest: str, alike: str | None, share: NodeResult, when: float, workers: Sequence[str] = ()
    ) -> None:
        """Store a start of which nothing else is known; add a failure to the row of its container, if there is one."""
        from sparkctl.history import tables
        from sparkctl.history.model import OperationKind, OperationRecord

        def store_start(file: sqlite3.Connection) -> None:
            if share.cause is None or not tables.add_failure_cause(file, profile, share, when):
                one = OperationRecord(
                    id=0,
                    kind=OperationKind.START,
                    began=max(0.0, when - (share.seconds or 0.0)),
                    operator="",
                    nodes=(share.node, *map(NodeName, workers)),
                    profile=profile,
                    instance=profile,
                    hash=digest or None,
                    alike=alike,
                    ended=when,
                    seconds=share.seconds,
                    shares=(share,),
                    outcome="ready" if share.cause is None else "failed",
                )
                tables.write_operation(file, secrets.token_hex(12), None, ("", 0), one, when)

        self._write_or_raise(store_start)

    def get_failures_since_ready(self, profile: str, node: str, earliest: float) -> tuple[tuple[float, str], ...]:
        """Return (unix seconds, cause) of the starts that failed on a node after its last good one, oldest first. For a model
        over several Sparks, a failure of any rank counts."""
        from sparkctl.model.verdict import normalize_cause_name

        found: dict[str, tuple[float, str]] = {}
        for record in self._load_start_results():
            is_there = node == record.get("node") or node in _get_record_nodes(record)
            if record.get("profile") != profile or not is_there or not _is_unix_time(record.get("ts")):
                continue
            if is_duration(record.get("seconds")):
                found.clear()
            elif isinstance(record.get("failed"), str) and record["ts"] >= earliest:
                cause = normalize_cause_name(record["failed"])
                found.setdefault(
                    str(record.get("container") or f"of operation {record['operation']}"), (float(record["ts"]), cause)
                )
        return tuple(found.values())

    def get_measured_peak(self, digest: str, node: str) -> MeasuredPeak | None:
        """Return the peak memory of the last start of this exact profile: on this node, else on another."""
        from sparkctl.model.memory_fit import MeasuredPeak

        good = [
            one for one in self._load_ready_starts() if one.get("hash") == digest and is_byte_count(one.get("peak"))
        ]
        last = ([one for one in good if one.get("node") == node] or good)[-1:]
        if not last:
            return None
        claim, before = last[0].get("estimated"), last[0].get("available_before")
        return MeasuredPeak(
            int(last[0]["peak"]), claim if is_byte_count(claim) else None, before if is_byte_count(before) else None
        )

    def was_ready(self, digest: str) -> bool:
        """Tell whether a start of this exact profile succeeded on any node."""
        return any(one.get("hash") == digest for one in self._load_ready_starts())

    def last_start_failed_for(self, digest: str, cause: str) -> bool:
        """Tell whether the last start of this exact profile, on any node, failed for this cause."""
        last = [one for one in self._load_start_results() if one.get("hash") == digest][-1:]
        return bool(last) and last[0].get("failed") == cause

    def get_expected_durations(self, profile: str, digest: str, node: str, kind: str = "") -> ExpectedDurations:
        """Return how long a start usually takes, and each of its parts; see `estimate_durations`."""
        return estimate_durations(self._load_start_results(), profile, digest, node, kind)

    def find_longest_phases(self, profile: Profile, node: str = "") -> dict[Phase, float]:
        """Return the longest time that each phase of such a start took on a node, "" for any, as far as it was measured."""
        kind = compute_model_key(profile.image, profile.model.path)
        return find_longest_phases(self._load_start_results(), profile.name, profile.digest, node, kind)

    def find_longest_start(self, profile: Profile, node: str = "") -> float | None:
        """Return the longest seconds of such starts, None where none was measured."""
        kind = compute_model_key(profile.image, profile.model.path)
        return find_longest_start(self._load_start_results(), profile.name, profile.digest, node, kind)

    def get_recent_profiles(self, most: int) -> tuple[str, ...]:
        """Return the names of the profiles that were started last, the latest first."""
        names = [str(record.get("profile")) for record in reversed(self._load_ready_starts()) if record.get("profile")]
        return tuple(dict.fromkeys(names))[:most]

    def get_last_starts(self) -> tuple[LastStart, ...]:
        """Return how the last start of each profile ended, on any node."""
        from sparkctl.history import tables

        last: dict[str, LastStart] = {}
        # of the operations: what was begun later has the higher one, whatever the clock says
        numbers: dict[str, int] = {}
        for record in self._load_start_results():
            profile, when, failed = record.get("profile"), record.get("ts"), record.get("failed")
            if not isinstance(profile, str) or not isinstance(when, int | float) or not _is_unix_time(when):
                continue
            node = str(record.get("node"))
            if is_duration(record.get("seconds")) and node not in _get_record_nodes(record)[1:]:  # the head's counts
                last[profile] = LastStart(
                    profile=profile, node=node, when=float(when), seconds=float(record["seconds"])
                )
            elif isinstance(failed, str):
                last[profile] = LastStart(profile=profile, node=node, when=float(when), failed=failed)
            numbers[profile] = max(numbers.get(profile, 0), int(record["operation"]))
        nothing: list[dict[str, Any]] = []
        for record in self._file.read_transaction(tables.list_finished_switches, nothing):
            profile, when, nodes = str(record["profile"]), record["ts"], _get_record_nodes(record)
            is_later = numbers.get(profile, 0) < int(record["operation"])
            if nodes and _is_unix_time(when) and is_later:  # a start that was left, and then finished
                last[profile] = LastStart(profile=profile, node=str(nodes[0]), when=float(when))
        return tuple(last.values())

    # operations

    def begin_operation(
        self,
        kind: OperationKind,
        clock: Clock,
        operator: str,
        nodes: Sequence[NodeName],
        parent: OperationRecorder | None = None,
        **facts: Any,
    ) -> OperationRecorder:
        """Begin a row: ``facts`` are fields of `OperationRecord`. The caller records its end. Never raises."""
        from sparkctl.history.model import OperationRecord
        from sparkctl.history.operation_recorder import OperationRecorder

        operation = OperationRecord(
            id=0, kind=kind, began=clock.unix_time(), operator=operator, nodes=tuple(nodes), **facts
        )
        return OperationRecorder(self._file, clock, operation, parent)

    def close_operation(self, key: str, why: str, now: float) -> None:
        """Record that another process finished the operation of this key, if it was begun from here. Never raises."""
        from sparkctl.history import tables

        with suppress(DatabaseUnavailable):
            self._file.write_transaction(lambda file: tables.close_operation(file, key, why, now))

    def take_warning(self) -> str | None:
        """Return a problem with the history file that was not reported yet, None if there is none."""
        return self._file.take_warning()

    @property
    def is_unreadable(self) -> bool:
        """Tell whether the last read failed."""
        return self._file.is_unreadable

    def list_operations(
        self,
        profile: str | None = None,
        node: str | None = None,
        *,
        failed: bool = False,
        refused: bool = False,
        most: int = 50,
    ) -> tuple[OperationRecord, ...]:
        """Return operations, the latest first: of a profile or an instance, on a node, with ``failed`` or ``refused`` only
        such ones; at most ``most`` of them, -1 for all."""
        records = self._query_operations(profile=profile, node=node, most=-1 if failed or refused else most)
        if failed or refused:
            records = [one for one in records if one.has_failed and (refused if one.is_refusal else failed)]
        return tuple(records if most < 0 else records[:most])

    def estimate_pull_seconds(self, node: str, size: int, *, is_image: bool) -> float | None:
        """Return how long so many bytes of an image or of a model take at the rate of earlier pulls onto a node, the median
        of the last ones; None: there were none."""
        from sparkctl.history import tables

        nothing: list[float] = []
        rates = self._file.read_transaction(lambda file: tables.read_pull_rates(file, node, is_image=is_image), nothing)
        if not rates:
            return None
        import statistics  # imported late: it takes 10 ms

        return size / statistics.median(rates)

    def get_operation(self, number: int) -> OperationRecord | None:
        """Return the operation of this number, None where there is none."""
        return next(iter(self._query_operations(number=number)), None)

    def list_switch_parts(self, one: OperationRecord) -> tuple[OperationRecord, ...]:
        """Return the starts and stops of a switch, oldest first."""
        return tuple(reversed(self._query_operations(parent=one.id)))

    def _query_operations(self, **which: Any) -> list[OperationRecord]:
        """Return what `tables.query_operations` finds, the latest first."""
        from sparkctl.history import tables

        nothing: list[StoredOperation] = []
        found = self._file.read_transaction(lambda file: tables.query_operations(file, **which), nothing)
        return [_resolve_running_state(one) for one in found]

    def find_start_of(self, name: str, container: str | None) -> OperationRecord | None:
        """Return the start that made a container of an instance, with its command; None where the history has none."""
        from sparkctl.history.model import OperationKind

        wanted = (container or "")[:_ID_LENGTH]
        for one in self.list_operations(name, most=-1):
            ids = {(share.container or "")[:_ID_LENGTH] for share in one.shares}
            if one.kind is OperationKind.START and one.command and wanted and wanted in ids:
                return one
        return None

    def find_last_good_start(self, one: OperationRecord) -> OperationRecord | None:
        """Return the last successful start of the same instance before this operation: on the same nodes if there was one,
        else on any; None if there was none."""
        from sparkctl.history.model import OperationKind

        found = self._query_operations(profile=one.instance or one.profile, before=one.id, most=-1)
        good = [each for each in found if each.kind is OperationKind.START and each.outcome == "ready"]
        return next((each for each in good if set(each.nodes) == set(one.nodes)), good[0] if good else None)

    def record_accept_length(self, container: str, length: float) -> None:
        """Store the measured accept length of an engine with its start. Never raises."""
        from sparkctl.history import tables

        if not self._file.path.exists():
            return  # nothing was ever started from here
        with suppress(DatabaseUnavailable):
            self._file.write_transaction(lambda file: tables.write_accept_length(file, shorten_id(container), length))

    def _write_or_raise(self, work: Callable[[sqlite3.Connection], None]) -> None:
        try:
            self._file.write_transaction(work)
        except DatabaseUnavailable as error:
            raise OSError(str(error)) from error

    def _import_legacy_starts(self, file: sqlite3.Connection) -> None:
        """Import the file of an earlier sparkctl once, and keep it under another name.

        Two processes may do this at the same moment. The content's hash marks what is imported, in the same transaction.
        """
        from sparkctl.history import tables

        path = self.directory / "starts.jsonl"
        try:
            content_hash, records = read_legacy_starts(path)
        except FileNotFoundError:
            return  # another sparkctl has just imported it
        tables.import_legacy_starts(file, records, content_hash, time.time())
        archive_legacy_file(path)

    def _load_ready_starts(self) -> list[dict[str, Any]]:
        return [record for record in self._load_start_results() if is_duration(record.get("seconds"))]

    def _load_start_results(self) -> list[dict[str, Any]]:
        from sparkctl.history import tables

        return self._file.read_transaction(tables.list_start_results, [])


def _get_record_nodes(record: Mapping[str, Any]) -> list[str]:
    nodes = record.get("nodes")
    return nodes if isinstance(nodes, list) else []


def _resolve_running_state(kept: StoredOperation) -> OperationRecord:
    """Return an operation with ``is_running`` set; it stays None for an operation of another machine."""
    one = kept.operation
    if one.outcome is not None:
        return replace(one, is_running=False)
    if kept.host != socket.gethostname() or kept.pid is None:
        return one
    import psutil  # imported late: only unfinished rows need it

    try:
        return replace(one, is_running=psutil.Process(kept.pid).create_time() <= one.began + 1.0)
    except psutil.Error:
        return replace(one, is_running=False)


def _is_unix_time(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < 1e12
