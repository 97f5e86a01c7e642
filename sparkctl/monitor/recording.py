"""Recordings, one JSON line for each event: written, read, and played as if they happened now, with position, speed and pause.

The ``--json`` output of `up` can be read, too. No node is contacted.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import zlib
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext, suppress
from io import BufferedReader, FileIO
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Self

from sparkctl.clock import Clock
from sparkctl.concurrency import run_in_background
from sparkctl.errors import InvalidInput
from sparkctl.files import open_user_file
from sparkctl.model.events import Event
from sparkctl.model.json_codec import decode_event, encode_event
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.secrets import redact
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.monitor.store import Store

if TYPE_CHECKING:
    from gzip import GzipFile


_MAX_LINE_BYTES = 16 << 20  # bytes of a line: a batch of log lines has a hundredth of that
_MAX_UNIX_TIME = 1e11  # unix seconds, year 5138: later times have no calendar date
_GZIP_MAGIC = b"\x1f\x8b"  # first bytes of a gzip file
_RECORDING_HINT = "a recording is what `sparkctl top --record FILE` writes"
_DAMAGED_LINE_HINT = f"{_RECORDING_HINT}; a damaged line can be taken out with an editor"


class EventRecorder:
    """Writes events to a file that only the operator can read, each line completely or not at all.

    A full disk ends the recording, never the command: ``on_failure`` gets the reason, once. Raises `InvalidInput` if
    the file cannot be created, or exists and ``force`` does not allow replacing it.
    """

    def __init__(self, path: Path, on_failure: Callable[[str], None], *, force: bool = False) -> None:
        self.path = path
        self._on_failure = on_failure
        self._whole = 0  # bytes of complete lines
        self._fd: int | None = _create_recording_file(path, force)
        self.failed = False  # whether a write failed

    def write(self, event: Event) -> None:
        """Write one event; does nothing once writing has failed."""
        if self._fd is None:
            return
        line = json.dumps(_redact_strings(encode_event(event)), separators=(",", ":")).encode() + b"\n"
        try:
            left = memoryview(line)
            while left:
                left = left[os.write(self._fd, left) :]
            self._whole += len(line)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._fd, self._whole)
            self.close()
            self.failed = True
            self._on_failure(f"the recording {self.path} ends here: {error.strerror or error}")

    def close(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            with suppress(OSError):
                os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _create_recording_file(path: Path, force: bool) -> int:
    try:
        if not force:
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
        os.set_blocking(fd, True)  # a FIFO without a reader is refused, and does not block the command
        if stat.S_ISREG(os.fstat(fd).st_mode):
            os.fchmod(fd, 0o600)  # it may have existed, readable by everybody
    except FileExistsError:
        raise InvalidInput(f"{path} already exists", "another name, or --overwrite") from None
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror or error}", "another place for --record") from error
    return fd


def _redact_strings(value: object) -> object:
    """Return plain data with tokens and passwords in URLs masked."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {key: _redact_strings(item) for key, item in value.items()}
    return [_redact_strings(item) for item in value] if isinstance(value, list) else value


def read_recording(path: Path, on_cut: Callable[[str], None] | None = None) -> Iterator[Event]:
    """Yield the events of a recording; a cut last line is left out and reported to ``on_cut``.

    Raises `InvalidInput` for a file that cannot be read, and, with the line number, for a line that is no event.
    """
    number = 0
    try:
        with BufferedReader(open_user_file(path)) as raw, _open_unpacked(raw) as file:
            while line := file.readline(_MAX_LINE_BYTES):
                number += 1
                if len(line) == _MAX_LINE_BYTES:
                    _refuse_line(path, number, f"longer than {_MAX_LINE_BYTES >> 20} MiB")
                if (event := _parse_event_line(path, number, line)) is not None:
                    yield event
                elif line.strip() and on_cut is not None:
                    on_cut(f"the recording {path} ends in the middle of line {number}, which is left out")
    except EOFError:
        if on_cut is not None:
            on_cut(
                f"the recording {path} is compressed, and its end is missing: what comes after line {number} is left out"
            )
    except zlib.error as error:
        raise InvalidInput(f"cannot unpack {path} after line {number}: {error}", _RECORDING_HINT) from error
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror or error}", _RECORDING_HINT) from error
    if number == 0:
        raise InvalidInput(f"{path} is empty", _RECORDING_HINT)


def _open_unpacked(raw: BufferedReader[FileIO]) -> AbstractContextManager[BufferedReader[FileIO] | GzipFile]:
    """Return the file, unpacked if it is a gzip file."""
    if not raw.peek(len(_GZIP_MAGIC)).startswith(_GZIP_MAGIC):
        return nullcontext(raw)
    import gzip

    return gzip.open(raw)


def _parse_event_line(path: Path, number: int, line: bytes) -> Event | None:
    if not line.strip():
        return None
    try:
        data = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        if line.endswith(b"\n") or number == 1:
            _refuse_line(path, number, "no JSON")
        return None
    if not isinstance(data, dict):
        _refuse_line(path, number, "no event")
    try:
        event = decode_event(data)
    except ValueError as wrong:
        _refuse_line(path, number, str(wrong))
    if not 0 <= event.ts < _MAX_UNIX_TIME:
        _refuse_line(path, number, "ts is not a valid time")
    return event


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number")


def _refuse_line(path: Path, number: int, what: str) -> NoReturn:
    raise InvalidInput(redact(sanitize_line(f"{path}:{number}: {what}")), _DAMAGED_LINE_HINT)


MAX_PAUSE_SECONDS = 30.0  # seconds of the recording: longer pauses are cut
SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaybackProgress:
    """Position and length in seconds of the recording; ``is_over``: its last event was shown."""

    at: float
    whole: float
    speed: float
    is_paused: bool
    is_over: bool

    @property
    def description(self) -> str:
        """The text for the header."""
        if self.is_over:
            return f"recording {_format_clock(self.whole)}, its end"
        return f"recording {_format_clock(self.at)} of {_format_clock(self.whole)} {'paused' if self.is_paused else f'×{self.speed:g}'}"


class RecordingPlayer:
    """Plays events: ``emit`` gets every event in order, ``rewound`` is called before they begin again.

    Pauses over half a minute, and clocks that were set back, are skipped.
    """

    def __init__(
        self, clock: Clock, events: Sequence[Event], speed: float, emit: Callable[[Event], None], rewound: Callable[[], None]
    ) -> None:  # fmt: skip
        self.speed = speed
        self.is_paused = False
        self._clock, self._events, self._emit, self._rewound = clock, events, emit, rewound
        gaps = (min(MAX_PAUSE_SECONDS, max(0.0, after.ts - before.ts)) for before, after in pairwise(events))
        self._due = tuple(accumulate(gaps, initial=0.0)) if events else ()  # for each event, seconds from the beginning
        self._next = 0  # index of the next event
        self._at = 0.0  # position at the last reading of the clock
        self._looked: float | None = None  # when that was; None while paused
        self._wakeup = asyncio.Event()
        self._is_changed = False  # by a control, since the last event

    @property
    def progress(self) -> PlaybackProgress:
        whole = self._due[-1] if self._due else 0.0
        over = self._next >= len(self._events)
        return PlaybackProgress(
            at=whole if over else min(self._current_position(), whole),
            whole=whole,
            speed=self.speed,
            is_paused=self.is_paused,
            is_over=over,
        )

    async def run(self) -> None:
        """Play; at the end, wait for a seek back."""
        while True:
            self._wakeup.clear()
            self._is_changed = False
            self._at, self._looked = self._current_position(), None if self.is_paused else self._clock.monotonic()
            if self._next >= len(self._events) or self.is_paused:
                await self._wakeup.wait()
                continue
            left = self._due[self._next] - self._at
            if left > 0 and await self._wait_for_control(left / self.speed):
                continue
            self._at = max(self._current_position(), self._due[self._next])
            self._looked = self._clock.monotonic()
            self._emit_until(self._next + 1)
            await asyncio.sleep(0)

    def toggle_pause(self) -> None:
        self.is_paused = not self.is_paused
        self._update_position()
        self._apply_control()

    def change_speed(self, by: int) -> None:
        """Change the speed by ``by`` steps, faster or slower."""
        self._update_position()
        near = min(range(len(SPEEDS)), key=lambda at: abs(SPEEDS[at] - self.speed))
        self.speed = SPEEDS[max(0, min(len(SPEEDS) - 1, near + by))]
        self._apply_control()

    def seek(self, seconds: float) -> None:
        """Move forward or back by seconds of the recording."""
        if not self._due:
            return
        wanted = max(0.0, min(self.progress.at + seconds, self._due[-1]))
        if seconds < 0:
            self._next = 0
            self._rewound()
        self._emit_until(max(1, bisect_right(self._due, wanted)))
        self._at, self._looked = wanted, None if self.is_paused else self._clock.monotonic()
        self._apply_control()

    def _apply_control(self) -> None:
        self._is_changed = True
        self._wakeup.set()

    def _emit_until(self, end: int) -> None:
        while self._next < min(end, len(self._events)):
            self._next += 1
            self._emit(self._events[self._next - 1])

    def _current_position(self) -> float:
        return self._at if self._looked is None else self._at + (self._clock.monotonic() - self._looked) * self.speed

    def _update_position(self) -> None:
        self._at = min(self._current_position(), self._due[min(self._next, len(self._due) - 1)] if self._due else 0.0)
        self._looked = None if self.is_paused else self._clock.monotonic()

    async def _wait_for_control(self, seconds: float) -> bool:
        """Wait for ``seconds``, or until a control changes; return whether one has."""

        async def end_wait() -> None:
            await self._clock.sleep(seconds)
            self._wakeup.set()

        async with run_in_background(end_wait()):
            await self._wakeup.wait()
        return self._is_changed


def _format_clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


async def replay_recording(
    clock: Clock, events: Iterable[Event], names: Sequence[str] = (), speed: float = 1.0
) -> AsyncGenerator[tuple[NodeTelemetryView, ...], None]:
    """Yield all nodes, or the named ones, whenever one of them changes, ``speed`` times as fast as it happened.

    Pauses over half a minute, and clocks that were set back, are skipped. Raises `InvalidInput` as `read_recording` does,
    and for a name that is not in the recording.
    """
    store = Store()
    async with aclosing(pace_events(clock, events, speed)) as due:
        async for event in due:
            if any(topic.node is not None for topic in store.apply_event(event)):
                yield _select_views(store, names)
    _refuse_unknown_nodes(store, names)


async def pace_events(clock: Clock, events: Iterable[Event], speed: float) -> AsyncGenerator[Event, None]:
    """Yield events ``speed`` times as fast as they happened; skip long pauses and clocks that were set back."""
    before = None
    for event in events:
        if before is not None and event.ts > before:
            await clock.sleep(min(event.ts - before, MAX_PAUSE_SECONDS) / speed)
        before = event.ts
        yield event


def load_final_views(events: Iterable[Event], names: Sequence[str]) -> tuple[NodeTelemetryView, ...]:
    """Return all nodes, or the named ones, as they were at the end of a recording. Raises as `replay_recording` does."""
    store = Store()
    for event in events:
        store.apply_event(event)
    _refuse_unknown_nodes(store, names)
    return _select_views(store, names)


def _select_views(store: Store, names: Sequence[str]) -> tuple[NodeTelemetryView, ...]:
    return tuple(view for view in store.get_views() if not names or view.name in names)


def _refuse_unknown_nodes(store: Store, names: Sequence[str]) -> None:
    for name in names:
        if name not in store.nodes:
            known = ", ".join(store.nodes) or "no node"
            raise InvalidInput(f"{name} is not in the recording", f"it has {known}")
