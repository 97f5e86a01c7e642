"""What the laptop keeps: how long starts took, and the logs of containers that are gone. Never the state.

All files are the operator's alone (0600 in a 0700 directory); secrets are masked before anything is written.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from sparkctl.model.log import LogLine
from sparkctl.model.secrets import redact

_KEPT_LOGS = 20  # per instance and node
_LOG_NAME = re.compile(r"\d{8}-\d{6}-[0-9a-f]{12}\.log")


@dataclass(frozen=True, slots=True)
class SavedLog:
    """A log on the operator's disk; ``saved`` is unix seconds."""

    path: Path
    instance: str
    node: str
    saved: float


class LogWriter:
    """Writes one container's log as it arrives, each line as ``STAMP TEXT``; secrets are masked on the way."""

    def __init__(self, path: Path, secrets: Iterable[str]) -> None:
        self.path = path
        self._secrets = tuple(secrets)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file: IO[str] = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", newline="\n")

    def write(self, lines: Iterable[LogLine]) -> None:
        """Append lines."""
        self._file.writelines(f"{line.when} {redact(line.text, self._secrets)}\n" for line in lines)

    def close(self) -> None:
        """Flush and close."""
        self._file.close()


class History:
    """The state directory. A file that is damaged or in the way costs its own content, never the verb."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def log_writer(self, instance: str, node: str, container_id: str, secrets: Iterable[str]) -> LogWriter:
        """Open the file for this run of a container: always the same one; files of old runs are pruned."""
        folder = self._log_folder(instance, node)
        same = sorted(folder.glob(f"*-{container_id[:12]}.log"))
        if same:
            return LogWriter(same[-1], secrets)  # the operator may have been told this name already
        for old in sorted(folder.glob("*.log"))[: -_KEPT_LOGS + 1]:
            old.unlink(missing_ok=True)
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        return LogWriter(folder / f"{stamp}-{container_id[:12]}.log", secrets)

    def saved_logs(self, instance: str) -> list[SavedLog]:
        """Return the saved logs of an instance, newest first, on whatever node."""
        base = self.directory / "logs" / _safe(instance)
        found = [
            SavedLog(path, instance, path.parent.name, path.stat().st_mtime)
            for path in base.glob("*/*.log")
            if _LOG_NAME.fullmatch(path.name)
        ]
        return sorted(found, key=lambda log: log.saved, reverse=True)

    def instances_with_logs(self) -> list[str]:
        """Return the names that `saved_logs` knows, for completion and errors."""
        base = self.directory / "logs"
        return sorted(path.name for path in base.iterdir()) if base.is_dir() else []

    def remember_start(self, profile: str, digest: str, node: str, seconds: float) -> None:
        """Note that a start reached ready after ``seconds``."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        record = {"ts": round(time.time()), "profile": profile, "hash": digest, "node": node, "seconds": seconds}
        with os.fdopen(os.open(self._starts, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a") as file:
            file.write(json.dumps(record) + "\n")

    def expected_start(self, profile: str, digest: str, node: str) -> float | None:
        """Return the median seconds of the last five starts: of this very profile on this node, else of its name."""
        records = self._start_records()
        same = [r["seconds"] for r in records if r.get("hash") == digest and r.get("node") == node]
        named = [r["seconds"] for r in records if r.get("profile") == profile]
        chosen: list[float] = (same or named)[-5:]
        if not chosen:
            return None
        import statistics  # 4 ms, and most verbs never ask

        return statistics.median(chosen)

    @property
    def _starts(self) -> Path:
        return self.directory / "starts.jsonl"

    def _start_records(self) -> list[dict[str, Any]]:
        try:
            lines = self._starts.read_text(errors="replace").splitlines()[-500:]
        except OSError:
            return []
        records = []
        for line in lines:
            try:
                record = json.loads(line)
            except ValueError:
                continue  # a line that a crash cut in half
            if isinstance(record, dict) and isinstance(record.get("seconds"), int | float):
                records.append(record)
        return records

    def _log_folder(self, instance: str, node: str) -> Path:
        return self.directory / "logs" / _safe(instance) / _safe(node)


def _safe(name: str) -> str:
    """Return a file name for a name that may hold anything (an ad hoc node is user@host)."""
    return re.sub(r"[^A-Za-z0-9_.@-]", "_", name).lstrip(".") or "_"
