"""Reads and writes the rows of the history's tables. An unreadable field is not known; the rest of the row counts."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from sparkctl.history.expected_durations import decode_durations, encode_durations, is_duration
from sparkctl.history.model import REQUEST_FIGURES, NodeResult, OperationKind, OperationRecord, StepRecord
from sparkctl.model.json_codec import from_json_data, to_json_data
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName
from sparkctl.model.phase import ExpectedDurations
from sparkctl.model.verdict import Verdict

_MAX_OPERATIONS = 3000  # operations; the oldest go
_MAX_START_RESULTS = 500  # starts that `list_start_results` returns
_MAX_RATED_PULLS = 5
_MIN_RATED_BYTES, _MIN_RATED_SECONDS = 16 << 20, 1.0  # of a pull whose rate says something

_PLAIN_COLUMNS = ("profile", "instance", "hash", "text", "engine", "image", "alike", "command", "ended", "seconds", "outcome",
          "exit_code", "why", "hint")  # fmt: skip
# another process may have written them: the first end counts
_END_COLUMNS = ("ended", "outcome", "exit_code", "why")
_SHARE_COLUMNS = tuple(one.name for one in fields(NodeResult) if one.name not in ("node", "instance", "parts"))


@dataclass(frozen=True, slots=True)
class StoredOperation:
    """An operation as it is stored, and the process that did it."""

    operation: OperationRecord
    host: str | None
    pid: int | None


def write_operation(
    file: sqlite3.Connection, key: str, parent: str | None, where: tuple[str, int], one: OperationRecord, now: float
) -> int:
    """Insert or update an operation with all its shares; return its number.

    ``where``: host and process that do it. ``now``: when new ends of starts became known.
    """
    columns = {
        "key": key, "parent": parent, "kind": str(one.kind), "began": one.began, "operator": one.operator,
        "host": where[0], "pid": where[1], "nodes": json.dumps(one.nodes), "verdict": _encode_json(one.verdict),
        "usual": one.usual.seconds, "usual_parts": _encode_json(encode_durations(one.usual.parts)) if one.usual.parts else None,
        "moments": _encode_json(one.moments) if one.moments else None,
    } | {name: getattr(one, name) for name in _PLAIN_COLUMNS}  # fmt: skip
    there = file.execute("SELECT rowid AS number, * FROM operations WHERE key = ?", (key,)).fetchone()
    if there is not None and there["outcome"] is not None:
        columns = {name: value for name, value in columns.items() if name not in _END_COLUMNS or there[name] is None}
    number = _write_row(file, "operations", there, columns)
    if there is None:
        delete_oldest(file)
    for share in one.shares:
        _write_node_result(file, number, share, now)
    return number


def _write_row(file: sqlite3.Connection, table: str, there: sqlite3.Row | None, columns: Mapping[str, object]) -> int:
    """Insert a row, or update the columns that differ from it: SQLite writes the index of each column that is named."""
    if there is None:  # no "ON CONFLICT": it would use up a number each time
        names, marks = ", ".join(columns), ", ".join("?" * len(columns))
        done = file.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(columns.values()))  # noqa: S608
        return int(done.lastrowid or 0)
    number = int(there["number"])
    if changed := {name: value for name, value in columns.items() if value != there[name]}:
        changes = ", ".join(f"{name} = ?" for name in changed)
        file.execute(f"UPDATE {table} SET {changes} WHERE rowid = ?", (*changed.values(), number))  # noqa: S608
    return number


def _write_node_result(file: sqlite3.Connection, number: int, one: NodeResult, now: float) -> None:
    place: dict[str, object] = {"operation": number, "node": one.node, "instance": one.instance}
    columns = {name: getattr(one, name) for name in _SHARE_COLUMNS}
    columns["parts"] = _encode_json(encode_durations(one.parts)) if one.parts else None
    there = file.execute(
        "SELECT rowid AS number, * FROM shares WHERE operation = ? AND node = ? AND instance = ?", tuple(place.values())
    ).fetchone()
    known = {name: value for name, value in columns.items() if value is not None}  # others may have added values
    _write_row(file, "shares", there, place | known)
    if one.seconds is not None or one.cause is not None:
        mark_start_ended(file, number, one.node, one.instance, now)


def mark_start_ended(file: sqlite3.Connection, number: int, node: str, instance: str, now: float) -> None:
    """Number the ends of starts in the order in which they became known, independent of clocks."""
    file.execute(
        "UPDATE shares SET told = (SELECT coalesce(max(told), 0) + 1 FROM shares), told_at = ? "
        "WHERE operation = ? AND node = ? AND instance = ? AND told IS NULL",
        (now, number, node, instance),
    )


def add_failure_cause(file: sqlite3.Connection, profile: str, share: NodeResult, now: float) -> bool:
    """Add a failure's cause to the row of its container's start; return False if there is no row, or if it succeeded."""
    if not share.container:
        return False
    row = file.execute(
        "SELECT operation, instance, seconds FROM shares WHERE container LIKE ? || '%' AND node = ? "
        "AND operation IN (SELECT id FROM operations WHERE kind = 'start' AND profile = ?) ORDER BY operation DESC LIMIT 1",
        (share.container, share.node, profile),
    ).fetchone()
    if row is None or row["seconds"] is not None:
        return False
    file.execute(
        "UPDATE shares SET cause = coalesce(cause, ?) WHERE operation = ? AND node = ? AND instance = ?",
        (share.cause, row["operation"], share.node, row["instance"]),
    )
    mark_start_ended(file, row["operation"], share.node, row["instance"], now)
    return True


def write_accept_length(file: sqlite3.Connection, container: str, length: float) -> None:
    """Store the measured accept length with the start of its container."""
    file.execute(
        "UPDATE shares SET accept_length = ? "
        "WHERE container LIKE ? || '%' AND operation IN (SELECT id FROM operations WHERE kind = 'start')",
        (length, container),
    )


def delete_oldest(file: sqlite3.Connection) -> None:
    """Delete the oldest operations if there are too many."""
    oldest = "(SELECT id FROM operations ORDER BY id DESC LIMIT 1 OFFSET ?)"
    file.execute(f"DELETE FROM shares WHERE operation <= {oldest}", (_MAX_OPERATIONS,))  # noqa: S608
    file.execute(f"DELETE FROM operations WHERE id <= {oldest}", (_MAX_OPERATIONS,))  # noqa: S608


def delete_operation(file: sqlite3.Connection, key: str) -> None:
    """Delete an operation in which nothing was done."""
    file.execute("DELETE FROM shares WHERE operation = (SELECT id FROM operations WHERE key = ?)", (key,))
    file.execute("DELETE FROM operations WHERE key = ?", (key,))


def close_operation(file: sqlite3.Connection, key: str, why: str, now: float) -> None:
    """Record the end of an operation that another process finished, and of its parts without an end or left running in the
    background. Clears the hint, which no longer applies."""
    file.execute(
        "UPDATE operations SET outcome = 'interrupted', ended = coalesce(ended, ?), hint = NULL, why = ? "
        "WHERE parent = ? AND (outcome IS NULL OR (kind = 'start' AND outcome = 'interrupted'))",
        (now, why, key),
    )
    file.execute(
        "UPDATE operations SET outcome = coalesce(outcome, 'interrupted'), ended = coalesce(ended, ?), hint = NULL, "
        "why = coalesce(why || '; ', '') || ? WHERE key = ?",
        (now, why, key),
    )


def list_finished_switches(file: sqlite3.Connection) -> list[dict[str, Any]]:
    """Return each profile's last switch that ended ready: number, end and nodes. The last one has the highest number, as a clock
    may have been set back."""
    found = file.execute(
        "SELECT profile, max(id) AS operation, ended AS ts, nodes FROM operations "
        "WHERE kind = 'switch' AND outcome = 'ready' AND profile IS NOT NULL AND ended IS NOT NULL GROUP BY profile"
    ).fetchall()
    return [dict(row) | {"nodes": _decode_json(row["nodes"])} for row in found]


def list_start_results(file: sqlite3.Connection) -> list[dict[str, Any]]:
    """Return how the last starts ended, in the order in which that became known. A model over several Sparks has one row for
    each rank, all with its ``nodes``, the head's first."""
    found = file.execute(
        "SELECT told_at AS ts, o.profile, o.hash, o.alike AS kind, s.node, s.seconds, s.parts, s.peak, s.estimated, "
        "s.available_before, s.has_joined AS joined, s.cause AS failed, s.container, o.nodes, o.id AS operation "
        "FROM shares s JOIN operations o ON o.id = s.operation "
        "WHERE s.told IS NOT NULL AND o.kind = 'start' ORDER BY s.told DESC LIMIT ?",
        (_MAX_START_RESULTS,),
    ).fetchall()
    return [
        dict(row) | {"parts": _decode_json(row["parts"]), "nodes": _decode_json(row["nodes"])}
        for row in reversed(found)
    ]


def read_pull_rates(file: sqlite3.Connection, node: str, *, is_image: bool) -> list[float]:
    """Return the bytes per second of the last images, or of the last models, that came onto a node."""
    rows = file.execute(
        "SELECT s.received / s.seconds AS rate FROM shares s JOIN operations o ON o.id = s.operation "
        "WHERE o.kind = 'pull' AND s.node = ? AND s.received >= ? AND s.seconds >= ? AND s.has_joined IS NULL "
        "AND (s.image_digest IS NOT NULL) = ? ORDER BY o.id DESC LIMIT ?",
        (node, _MIN_RATED_BYTES, _MIN_RATED_SECONDS, is_image, _MAX_RATED_PULLS),
    ).fetchall()
    return [float(row["rate"]) for row in rows]


def query_operations(
    file: sqlite3.Connection, *, profile: str | None = None, node: str | None = None, most: int = 100,
    number: int | None = None, before: int | None = None, parent: int | None = None,
) -> list[StoredOperation]:  # fmt: skip
    """Return operations, newest first, with host and process; filtered by profile or instance, by node or by number."""
    of_profile = (
        "(o.profile = :profile OR o.instance = :profile "
        "OR EXISTS (SELECT 1 FROM shares s WHERE s.operation = o.id AND s.instance = :profile))"
    )
    nodes = "CASE WHEN json_valid(o.nodes) THEN o.nodes ELSE '[]' END"
    on_node = f"EXISTS (SELECT 1 FROM json_each({nodes}) WHERE value = :node)"  # noqa: S608
    conditions = (
        (of_profile, profile),
        (on_node, node),
        ("o.id = :number", number),
        ("o.id < :before", before),
        ("o.parent = (SELECT key FROM operations WHERE id = :parent)", parent),
    )
    where = " AND ".join(condition for condition, value in conditions if value is not None) or "1"
    rows = file.execute(
        "SELECT o.*, (SELECT id FROM operations p WHERE p.key = o.parent) AS parent_id FROM operations o "  # noqa: S608
        f"WHERE {where} ORDER BY o.id DESC LIMIT :most",
        {"profile": profile, "node": node, "number": number, "before": before, "parent": parent, "most": most},
    ).fetchall()
    shares = _read_node_results(file, [row["id"] for row in rows])
    return [
        StoredOperation(
            _build_operation_record(row, shares.get(row["id"], ())), _as_text(row["host"]), _as_count(row["pid"])
        )
        for row in rows
    ]


def _read_node_results(file: sqlite3.Connection, numbers: Sequence[int]) -> dict[int, tuple[NodeResult, ...]]:
    found: dict[int, tuple[NodeResult, ...]] = {}
    query = "SELECT * FROM shares WHERE operation BETWEEN ? AND ? ORDER BY rowid"
    for row in file.execute(query, (min(numbers, default=0), max(numbers, default=-1))):
        found[row["operation"]] = (*found.get(row["operation"], ()), read_node_result(row))
    return found


def read_node_result(row: sqlite3.Row) -> NodeResult:
    """Return a row of ``shares``."""
    whole = ("available_before", "peak", "settled", "estimated", "available_after", "freed", "missing", "received")
    figures = ("seconds", "accept_length", "tokens_per_second", *REQUEST_FIGURES)
    values: dict[str, Any] = {
        name: _as_text(row[name]) for name in _SHARE_COLUMNS if name not in (*whole, *figures, "has_joined")
    }
    values |= {name: _as_count(row[name]) for name in whole}
    values |= {name: float(row[name]) if is_duration(row[name]) else None for name in figures}
    # What an older sparkctl stored here is a mean over idle seconds and several requests: no speed of a request.
    values["tokens_per_second"] = values["warm_tokens_per_second"]
    joined = None if row["has_joined"] is None else bool(row["has_joined"])
    node, instance = NodeName(str(row["node"])), str(row["instance"])
    return NodeResult(
        node=node, instance=instance, has_joined=joined, parts=decode_durations(_decode_json(row["parts"])), **values
    )


def _build_operation_record(row: sqlite3.Row, shares: tuple[NodeResult, ...]) -> OperationRecord:
    usual = float(row["usual"]) if is_duration(row["usual"]) else None
    texts = ("profile", "instance", "hash", "text", "engine", "image", "alike", "command", "outcome", "why", "hint")
    nodes = _decode_json(row["nodes"])
    values: dict[str, Any] = {name: _as_text(row[name]) for name in texts}
    return OperationRecord(
        id=int(row["id"]),
        kind=OperationKind(row["kind"]) if row["kind"] in list(OperationKind) else str(row["kind"]),
        began=_as_unix_time(row["began"]) or 0.0,
        operator=str(row["operator"]),
        nodes=tuple(NodeName(str(one)) for one in nodes) if isinstance(nodes, list) else (),
        parent=_as_count(row["parent_id"]),
        ended=_as_unix_time(row["ended"]),
        seconds=float(row["seconds"]) if is_duration(row["seconds"]) else None,
        exit_code=_as_count(row["exit_code"]),
        verdict=_decode_verdict(_decode_json(row["verdict"])),
        usual=ExpectedDurations(usual, decode_durations(_decode_json(row["usual_parts"]))),
        moments=_decode_step_records(_decode_json(row["moments"])),
        shares=shares,
        **values,
    )


def _decode_verdict(data: object) -> Verdict | None:
    try:
        return from_json_data(Verdict, data)
    except (ValueError, RecursionError):
        return None


def _decode_step_records(data: object) -> tuple[StepRecord, ...]:
    try:
        return tuple(from_json_data(StepRecord, one) for one in data) if isinstance(data, list) else ()
    except ValueError:
        return ()


def _encode_json(value: object) -> str | None:
    return None if value is None else json.dumps(to_json_data(value), ensure_ascii=False)


def _decode_json(text: object) -> object:
    try:
        return json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None


def _as_text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _as_count(value: object) -> int | None:
    return value if isinstance(value, int) and 0 <= value < 1 << 60 else None


def _as_unix_time(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e12 else None


def import_legacy_starts(
    file: sqlite3.Connection, records: Sequence[Mapping[str, Any]], content_hash: str, now: float
) -> None:
    """Import the starts of an earlier sparkctl's file once, in one transaction; ``content_hash`` tells files apart."""
    file.execute("BEGIN IMMEDIATE")
    known = file.execute("SELECT 1 FROM taken_over WHERE content = ?", (content_hash,)).fetchone()
    if known is None:
        file.execute("INSERT INTO taken_over (content, at) VALUES (?, ?)", (content_hash, now))
        for number, record in enumerate(records):
            _import_legacy_start(file, f"{content_hash}-{number}", record)
    file.execute("COMMIT")


def _import_legacy_start(file: sqlite3.Connection, key: str, one: Mapping[str, Any]) -> None:
    profile, node, seconds, failed = (one.get(name) for name in ("profile", "node", "seconds", "failed"))
    is_good = is_duration(seconds)
    if not isinstance(profile, str) or not isinstance(node, str) or not (is_good or isinstance(failed, str)):
        return
    when = _as_unix_time(one.get("ts"))
    peak, estimated = _as_count(one.get("peak")), _as_count(one.get("estimated"))
    share = NodeResult(
        node=NodeName(node), instance=profile, container=_as_text(one.get("container")), peak=peak, estimated=estimated,
        seconds=float(seconds or 0.0) if is_good else None, cause=None if is_good else _as_text(failed),
        has_joined=True if one.get("joined") else None, parts=decode_durations(one.get("parts")),
    )  # fmt: skip
    took = share.seconds or 0.0
    write_operation(file, key, None, ("", 0), OperationRecord(
        id=0, kind=OperationKind.START, began=max(0.0, (when or 0.0) - took), operator="", nodes=(NodeName(node),), profile=profile,
        instance=profile, hash=_as_text(one.get("hash")), alike=_as_text(one.get("kind")), ended=when, seconds=share.seconds,
        outcome="ready" if is_good else "failed", shares=(share,),
    ), when if when is not None else -1.0)  # fmt: skip
