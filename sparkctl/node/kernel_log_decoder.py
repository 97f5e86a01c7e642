"""Decode what `kernel_log` sends: which event a line means, by the table in kernel_events.json. Data from a node is not
trusted: each line is made printable and bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from sparkctl.model.finding import Severity
from sparkctl.model.json_codec import from_json_data
from sparkctl.model.kernel_event import BootEnd, KernelEvent, KernelEventKind, KernelLine, KernelLog, KernelReading
from sparkctl.model.text.sanitize import load_json, sanitize_line, truncate_text
from sparkctl.node import load_kernel_table
from sparkctl.node.kernel_log import KERNEL_LOG_PROTOCOL

_MAX_TEXT_CHARS = 300
_MAX_OLD_LINES = 64


@dataclass(frozen=True, slots=True)
class KernelRule:
    """A row of the table."""

    kind: KernelEventKind
    severity: Severity
    pattern: re.Pattern[str]
    data: Mapping[str, Any]


@cache
def load_kernel_rules() -> tuple[tuple[KernelRule, ...], Mapping[str, Mapping[str, Any]]]:
    """Return the table: rules in the order in which they are tried, and the meanings of Xid numbers."""
    table = load_kernel_table()
    rules = (
        KernelRule(KernelEventKind(row["kind"]), Severity(row["severity"]), re.compile(row["pattern"]), row)
        for row in table["rules"]
    )
    return tuple(rules), table["xids"]


def decode_kernel_line(line: KernelLine, to_unix: Callable[[float], float]) -> KernelEvent | None:
    """Return the event that a line means, None if it means none. ``to_unix`` turns its time into unix seconds."""
    rules, xids = load_kernel_rules()
    text = truncate_text(sanitize_line(line.text), _MAX_TEXT_CHARS)
    for rule in rules:
        match = rule.pattern.search(text)
        if match is None:
            continue
        named = {name: value for name, value in match.groupdict().items() if value}
        row: dict[str, Any] = {**rule.data, **(xids.get(named.get("xid", ""), {}) if rule.severity != "note" else {})}
        meaning = row["meaning"].format_map(_NamedParts(named))
        if "xid" in named and f"Xid {named['xid']}" not in meaning:
            meaning = f"Xid {named['xid']}: {meaning}"
        return KernelEvent(
            kind=rule.kind,
            severity=Severity(row["severity"]),
            at=to_unix(line.at),
            last=to_unix(line.at if line.last is None else line.last),
            text=text,
            meaning=meaning,
            remedy=row["remedy"].format_map(_NamedParts(named)),
            source=row["source"],
            hours=row["hours"],
            many=row.get("many"),
            count=max(1, line.count or 1),
            container=line.container,
            process=named.get("process"),
            pid=int(named["pid"]) if "pid" in named else None,
            xid=int(named["xid"]) if "xid" in named else None,
            ends_programs=bool(row.get("ends_programs", rule.kind in _ENDING_KINDS)),
        )
    return None


_ENDING_KINDS = (KernelEventKind.OOM_KILL, KernelEventKind.GPU_LOST)


class _NamedParts(dict[str, str]):
    """The named parts of a line, for a sentence; a part that the line lacks is described."""

    def __missing__(self, name: str) -> str:
        return "a process" if name == "process" else f"({name} not named)"


def decode_kernel_lines(lines: Iterable[KernelLine], to_unix: Callable[[float], float]) -> tuple[KernelEvent, ...]:
    """Return the events of lines, in their order."""
    found = (decode_kernel_line(line, to_unix) for line in lines)
    return tuple(event for event in found if event is not None)


def decode_kernel_log(output: bytes) -> KernelLog:
    """Return what the program printed. Raises ValueError if it is not a line of this protocol."""
    line = next((one for one in output.split(b"\n") if b'"kernel_log"' in one), b"")
    try:
        data = load_json(line)
    except (ValueError, RecursionError) as wrong:
        raise ValueError("no line of the kernel's log") from wrong
    if not isinstance(data, dict) or data.get("kernel_log") != KERNEL_LOG_PROTOCOL:
        raise ValueError("not this protocol of the kernel's log")
    reading = from_json_data(KernelReading, data.get("log"), is_strict=False)
    times = from_json_data(_Times, data, is_strict=False)
    if reading is None or times is None:
        raise ValueError("not a whole reading of the kernel's log")
    boot = times.now - times.uptime
    return KernelLog(
        now=times.now,
        events=decode_kernel_lines(reading.lines, lambda at: boot + at),
        source=reading.source,
        trouble=None if reading.trouble is None else truncate_text(sanitize_line(reading.trouble), _MAX_TEXT_CHARS),
        oldest=None if reading.oldest is None else boot + reading.oldest,
        skipped=reading.skipped or 0,
        kernel=None if times.kernel is None else truncate_text(sanitize_line(times.kernel), _MAX_TEXT_CHARS),
        boot_before=_decode_boot_end(data.get("before")),
    )


@dataclass(frozen=True, slots=True)
class _Times:
    now: float
    uptime: float
    kernel: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _BootEndReading:
    clean: bool | None = None
    trouble: str | None = None
    ended: float | None = None
    last: tuple[str, ...] = ()
    lines: tuple[KernelLine, ...] = ()


def _decode_boot_end(data: object) -> BootEnd | None:
    reading = None if data is None else from_json_data(_BootEndReading, data, is_strict=False)
    if reading is None:
        return None
    return BootEnd(
        is_clean=reading.clean,
        trouble=None if reading.trouble is None else truncate_text(sanitize_line(reading.trouble), _MAX_TEXT_CHARS),
        ended=reading.ended,
        last=tuple(truncate_text(sanitize_line(line), _MAX_TEXT_CHARS) for line in reading.last[:_MAX_OLD_LINES]),
        events=decode_kernel_lines(reading.lines[:_MAX_OLD_LINES], lambda at: at),
    )
