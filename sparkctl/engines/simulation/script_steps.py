"""The steps of a simulated engine script. ``after`` is the number of simulated seconds before the step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

# Replaced in every text by the engine's own spelling of the time at which the line is written.
LOG_TIME = "\x01"
LOG_DATETIME = "\x02"  # with the year, as Ray writes it, whatever the engine's own spelling


@dataclass(frozen=True, slots=True)
class LogStep:
    """Write to the log. A progress bar has ``end=""``: Docker holds it back until a newline comes."""

    after: float
    text: str
    stream: str = "stderr"
    end: str = "\n"


@dataclass(frozen=True, slots=True)
class LoadWeightsStep:
    """``done`` of ``total`` weights are on the GPU now; ``size`` bytes came with this step."""

    after: float
    done: int
    total: int
    size: int


@dataclass(frozen=True, slots=True)
class AllocateMemoryStep:
    """Allocate memory: ``gpu`` bytes by CUDA, ``anonymous`` bytes by the processes; ``kv_tokens`` fit into a cache."""

    after: float
    gpu: int = 0
    anonymous: int = 0
    kv_tokens: int = 0


@dataclass(frozen=True, slots=True)
class LeakMemoryStep:
    """The processes allocate ``size`` bytes more than they should, until none is left."""

    after: float
    size: int


@dataclass(frozen=True, slots=True)
class ListenStep:
    """Bind the port; ``ready``: requests are served, otherwise /health answers 503."""

    ready: bool


@dataclass(frozen=True, slots=True)
class OpenGroupStep:
    """Let the other ranks find this head."""


@dataclass(frozen=True, slots=True)
class JoinRanksStep:
    """Wait for the other ranks; ``meanwhile`` is logged until they are there."""

    meanwhile: tuple[LogStep, ...] = ()


@dataclass(frozen=True, slots=True)
class WatchPeersStep:
    """From here on the end of another rank is noticed at once."""


@dataclass(frozen=True, slots=True)
class RankBarrierStep:
    """Wait until all ranks have their weights; from here on the end of another rank is noticed."""


@dataclass(frozen=True, slots=True)
class RankErrorStep:
    """The engine process of this rank ends with an error, which the head receives; its container continues."""

    said: str


@dataclass(frozen=True, slots=True)
class CutCableStep:
    """Cut the cable between the Sparks."""


@dataclass(frozen=True, slots=True)
class FollowHeadStep:
    """A rank that knows nothing of the model does the same as the head."""


@dataclass(frozen=True, slots=True)
class FreeMemoryStep:
    """Free all its memory."""


@dataclass(frozen=True, slots=True)
class HangStep:
    """Hang: nothing more happens, and SIGTERM is ignored."""


@dataclass(frozen=True, slots=True)
class ExitStep:
    """The container ends."""

    code: int
    oom_killed: bool = False


ScriptStep = (
    LogStep
    | LoadWeightsStep
    | AllocateMemoryStep
    | LeakMemoryStep
    | ListenStep
    | OpenGroupStep
    | JoinRanksStep
    | WatchPeersStep
    | RankBarrierStep
    | RankErrorStep
    | CutCableStep
    | FollowHeadStep
    | FreeMemoryStep
    | HangStep
    | ExitStep
)
IMMEDIATE_STEPS = (
    ListenStep,
    OpenGroupStep,
    JoinRanksStep,
    WatchPeersStep,
    RankBarrierStep,
    RankErrorStep,
    CutCableStep,
    FollowHeadStep,
    FreeMemoryStep,
    HangStep,
    ExitStep,
)
Script = Iterator[ScriptStep]


def write_lines(after: float, lines: list[str], stream: str = "stderr") -> Script:
    """Yield several lines, with the pause spread over them."""
    for line in lines:
        yield LogStep(after / len(lines), line, stream)


def format_bar_times(done: int, total: int, seconds: float) -> str:
    """Return the bracket of a progress bar: elapsed, left and pace, as tqdm prints them."""
    if not done:
        return "[00:00<?, ?it/s]"
    spent, left = done * seconds, (total - done) * seconds
    pace = f"{seconds:5.2f}s/it" if seconds >= 1 else f"{1 / seconds:5.2f}it/s"
    return f"[{_format_clock(spent)}<{_format_clock(left)}, {pace}]"


def _format_clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes:02d}:{rest:02d}"


def format_bar(done: int, total: int, width: int = 10) -> str:
    """Return the bar itself."""
    filled = done * width / total
    whole = int(filled)
    part = " ▏▎▍▌▋▊▉"[int((filled - whole) * 8)] if whole < width else ""
    return ("█" * whole + part).ljust(width)
