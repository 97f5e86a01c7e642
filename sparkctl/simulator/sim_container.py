"""A container of the simulated Docker: its settings, its state, its log, and how the API shows it."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

from sparkctl.engines.simulation.simulated_clock import format_rfc3339
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.lazy_dataclass import dataclass

ZERO_TIME = "0001-01-01T00:00:00Z"
JsonBody = dict[str, Any]  # JSON as the Docker API has it
MAX_RECORD_BYTES = 16 << 10  # bytes; a longer line is stored in pieces
READ_BATCH_RECORDS = 256  # records in one HTTP chunk
STREAM_NUMBERS = {"stdout": 1, "stderr": 2}


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A line with its newline, or a piece of a line without one."""

    stamp: int  # unix nanoseconds
    stream: str
    data: bytes

    def encode_frame(self, *, timestamps: bool, tty: bool) -> bytes:
        """Return the record in Docker's stream format: 8 bytes of header (none with a tty), then the text."""
        text = (format_rfc3339(self.stamp).encode() + b" " if timestamps else b"") + self.data
        return text if tty else struct.pack(">BxxxI", STREAM_NUMBERS[self.stream], len(text)) + text


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """A reader's query. ``since`` and ``until``: unix nanoseconds, both inclusive; ``tail``: None means everything."""

    streams: frozenset[str]
    follow: bool = False
    timestamps: bool = False
    since: int = 0
    until: int | None = None
    tail: int | None = None
    tty: bool = False

    def matches(self, record: LogRecord) -> bool:
        return record.stream in self.streams and self.since <= record.stamp and not self.is_past(record)

    def is_past(self, record: LogRecord) -> bool:
        """Tell whether the record, and with it every later one, is too late."""
        return self.until is not None and record.stamp > self.until


def parse_nanoseconds(text: str) -> int:
    """Return unix nanoseconds for ``since``: seconds with up to nine digits of a fraction, read without rounding."""
    whole, _, fraction = text.partition(".")
    return int(whole or 0) * 1_000_000_000 + int(fraction[:9].ljust(9, "0") or 0)


class ContainerLog:
    """Records in order, stamps strictly rising from line to line. A line is stored when its newline arrives."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self._records: list[LogRecord] = []
        self._unfinished = dict.fromkeys(STREAM_NUMBERS, b"")
        self._last = 0
        self._news = asyncio.Event()
        self._open = False

    def open_run(self) -> None:
        """Begin a run of the container: followers wait for more."""
        self._open = True

    def close_run(self) -> None:
        """End the run: text without a newline is stored as it is, followers stop."""
        for stream, rest in self._unfinished.items():
            self._store_records(stream, [rest] if rest else [])
            self._unfinished[stream] = b""
        self._open = False
        self._wake_followers()

    def write(self, text: str | bytes, stream: str = "stderr") -> None:
        """Add what a process wrote, complete lines or not."""
        data = text if isinstance(text, bytes) else text.encode()
        *lines, rest = (self._unfinished[stream] + data).split(b"\n")
        for line in lines:
            self._store_records(stream, _split_into_pieces(line + b"\n"))
        if len(rest) >= MAX_RECORD_BYTES:
            *full, rest = _split_into_pieces(rest)
            self._store_records(stream, full)
        self._unfinished[stream] = rest
        if lines:
            self._wake_followers()

    def _store_records(self, stream: str, pieces: list[bytes]) -> None:
        self._last = max(self._last + 1, self.clock())
        self._records += [LogRecord(self._last, stream, piece) for piece in pieces]

    def _wake_followers(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def read_records(self, wanted: LogQuery) -> AsyncIterator[bytes]:
        """Yield framed records, several at a time; with ``follow``, until the run ends."""
        start = 0
        if wanted.tail is not None:
            ours = [n for n, record in enumerate(self._records) if record.stream in wanted.streams]
            start = (
                ours[-wanted.tail] if 0 < wanted.tail <= len(ours) else (len(self._records) if not wanted.tail else 0)
            )
        while True:
            news, is_open, end = self._news, self._open, len(self._records)
            for first in range(start, end, READ_BATCH_RECORDS):
                batch = self._records[first : min(first + READ_BATCH_RECORDS, end)]
                yield b"".join(
                    record.encode_frame(timestamps=wanted.timestamps, tty=wanted.tty)
                    for record in batch
                    if wanted.matches(record)
                )
                if wanted.is_past(batch[-1]):
                    return
            start = end
            if not (wanted.follow and is_open):
                return
            await news.wait()


def _split_into_pieces(line: bytes) -> list[bytes]:
    return [line[at : at + MAX_RECORD_BYTES] for at in range(0, len(line), MAX_RECORD_BYTES)]


class SimContainer:
    """``body``: the create call's JSON, Config at the top, HostConfig inside. ``clock``: unix nanoseconds."""

    def __init__(self, container_id: str, name: str, body: JsonBody, image_id: str, clock: Callable[[], int]) -> None:
        self.now_ns = clock
        self.image_id = image_id
        self.id = container_id
        self.name = name
        self.body = body
        self.created = clock()
        self.started: int | None = None
        self.finished: int | None = None
        self.state = "created"
        self.exit_code = 0
        self.oom_killed = False
        self.error = ""
        self.pid = 0
        self.restarts = 0
        self.journal = ContainerLog(clock)
        self.ended = asyncio.Event()

    @property
    def image(self) -> str:
        """The image name of the create call."""
        return str(self.body.get("Image", ""))

    @property
    def command(self) -> list[str]:
        """Entrypoint and command as one argv."""
        return [*_to_argv(self.body.get("Entrypoint")), *_to_argv(self.body.get("Cmd"))]

    @property
    def env(self) -> dict[str, str]:
        return dict(entry.partition("=")[::2] for entry in self.body.get("Env") or [])

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.body.get("Labels") or {})

    @property
    def host_config(self) -> JsonBody:
        """The HostConfig it was created with."""
        return dict(self.body.get("HostConfig") or {})

    @property
    def published_ports(self) -> dict[int, int]:
        """The ports of the node that a bridge network maps into it, each with the container's port."""
        bindings = self.host_config.get("PortBindings") or {}
        return {
            int(item["HostPort"]): int(inner.partition("/")[0])
            for inner, items in bindings.items()
            for item in items or []
            if item.get("HostPort")
        }

    @property
    def labelled_port(self) -> int | None:
        """The port in it that its profile names; None where it names none."""
        label = self.labels.get(ContainerLabel.PORT)
        return None if label is None else self.published_ports.get(int(label), int(label))

    @property
    def has_host_network(self) -> bool:
        """Tell whether its ports are the node's."""
        return self.host_config.get("NetworkMode") == "host"

    def find_node_port(self, port: int) -> int | None:
        """Return the node's port that leads to a port in it; None where it is not published."""
        if self.has_host_network:
            return port
        return next((outer for outer, inner in self.published_ports.items() if inner == port), None)

    @property
    def wants_gpu(self) -> bool:
        """Tell whether --gpus was given."""
        return bool(self.host_config.get("DeviceRequests"))

    def mark_started(self, pid: int) -> None:
        self.state, self.pid, self.started = "running", pid, self.now_ns()
        self.exit_code, self.oom_killed, self.error = 0, False, ""
        self.ended = asyncio.Event()
        self.journal.open_run()

    def mark_ended(self, exit_code: int, *, oom_killed: bool) -> None:
        """Mark it as ended; waiters and followers are notified."""
        self.state, self.pid, self.finished = "exited", 0, self.now_ns()
        self.exit_code, self.oom_killed = exit_code, oom_killed
        self.journal.close_run()
        self.ended.set()

    def format_status(self) -> str:
        """Return its status as docker ps shows it."""
        if self.state == "running":
            return f"Up {self._format_age(self.started)}"
        return (
            f"Exited ({self.exit_code}) {self._format_age(self.finished)} ago" if self.state == "exited" else "Created"
        )

    def _format_age(self, nanoseconds: int | None) -> str:
        seconds = 0 if nanoseconds is None else (self.now_ns() - nanoseconds) // 1_000_000_000
        for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
            if seconds >= 2 * size:
                return f"{seconds // size} {unit}"
        return f"{seconds} seconds"

    def to_list_json(self) -> JsonBody:
        """Return its entry in the list call."""
        config = self.host_config
        ports = [
            {"IP": "::", "PrivatePort": inner, "PublicPort": outer, "Type": "tcp"}
            for outer, inner in self.published_ports.items()
        ]
        return {
            "Id": self.id,
            "Names": [f"/{self.name}"],
            "Image": self.image,
            "ImageID": self.image_id,
            "Command": " ".join(self.command),
            "Created": self.created // 1_000_000_000,
            "Ports": ports,
            "Labels": self.labels,
            "State": self.state,
            "Status": self.format_status(),
            "HostConfig": {"NetworkMode": config.get("NetworkMode") or "bridge"},
            "NetworkSettings": {"Networks": {}},
            "Mounts": self._build_mounts_json(),
        }

    def to_inspect_json(self) -> JsonBody:
        argv = self.command or ["sh"]
        config = {"Hostname": self.id[:12], "Tty": False, "Env": [], "Cmd": None, "Entrypoint": None, "Labels": {}}
        config |= {key: value for key, value in self.body.items() if key not in ("HostConfig", "NetworkingConfig")}
        host = {"NetworkMode": "bridge", "LogConfig": {"Type": "json-file", "Config": {}}}
        host |= {key: value for key, value in self.host_config.items() if value is not None}
        return {
            "Id": self.id,
            "Created": format_rfc3339(self.created),
            "Path": argv[0],
            "Args": argv[1:],
            "State": self._build_state_json(),
            "Image": self.image_id,
            "LogPath": f"/var/lib/docker/containers/{self.id}/{self.id}-json.log",
            "Name": f"/{self.name}",
            "RestartCount": self.restarts,
            "Driver": "overlay2",
            "Platform": "linux",
            "HostConfig": host,
            "Config": config,
            "NetworkSettings": {"Ports": {}, "Networks": {}},
            "Mounts": self._build_mounts_json(),
        }

    def _build_state_json(self) -> JsonBody:
        return {
            "Status": self.state,
            "Running": self.state == "running",
            "Paused": False,
            "Restarting": False,
            "OOMKilled": self.oom_killed,
            "Dead": False,
            "Pid": self.pid,
            "ExitCode": self.exit_code,
            "Error": self.error,
            "StartedAt": format_rfc3339(self.started) if self.started else ZERO_TIME,
            "FinishedAt": format_rfc3339(self.finished) if self.finished else ZERO_TIME,
        }

    def _build_mounts_json(self) -> list[JsonBody]:
        mounts = []
        for bind in self.host_config.get("Binds") or []:
            source, target, *mode = bind.split(":")
            mounts.append({"Type": "bind", "Source": source, "Destination": target, "RW": mode != ["ro"]})
        return mounts


def _to_argv(value: object) -> list[str]:
    return [value] if isinstance(value, str) else [str(word) for word in value] if isinstance(value, list) else []
