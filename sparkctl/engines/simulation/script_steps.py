"""What a scripted engine does, one step after the other. ``after`` is the simulated seconds before the step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

# Replaced in every text by the engine's own spelling of the time at which the line is written.
LOG_TIME = "\x01"
LOG_DATETIME = "\x02"  # with the year, as Ray writes it, whatever the engine's own spelling


@dataclass(frozen=True, slots=True)
class LogStep:
    """Write to the log. A progress bar has ``end=""``: Docker keeps it back until a newline comes."""

    after: float
    text: str
    stream: str = "stderr"
    end: str = "\n"


@dataclass(frozen=True, slots=True)
class LoadWeightsStep:
    """Weights ``done`` of ``total`` are on the GPU now; ``size`` bytes came with this step."""

    after: float
    done: int
    total: int
    size: int


@dataclass(frozen=True, slots=True)
class AllocateMemoryStep:
    """Memory is taken: ``gpu`` bytes by CUDA, ``anonymous`` bytes by the processes; ``kv_tokens`` fit into a cache."""

    after: float
    gpu: int = 0
    anonymous: int = 0
    kv_tokens: int = 0


@dataclass(frozen=True, slots=True)
class LeakMemoryStep:
    """The processes take memory that nobody asked them to take, ``size`` bytes, until there is none."""

    after: float
    size: int


@dataclass(frozen=True, slots=True)
class ListenStep:
    """The port is bound; ``ready``: requests are served, else /health says 503."""

    ready: bool


@dataclass(frozen=True, slots=True)
class OpenGroupStep:
    """The others find this head from here on."""


@dataclass(frozen=True, slots=True)
class JoinRanksStep:
    """The other ranks are waited for; ``meanwhile`` is said until they are there."""

    meanwhile: tuple[LogStep, ...] = ()


@dataclass(frozen=True, slots=True)
class WatchPeersStep:
    """From here on the end of another rank is felt at once; before, it is not noticed."""


@dataclass(frozen=True, slots=True)
class RankBarrierStep:
    """Its weights are there: it waits until those of all ranks are, and feels from here on when one is gone."""


@dataclass(frozen=True, slots=True)
class RankErrorStep:
    """Its process of the engine ended with an error, of which the head is told; its container goes on."""

    said: str


@dataclass(frozen=True, slots=True)
class CutCableStep:
    """Somebody pulls the cable between the Sparks."""


@dataclass(frozen=True, slots=True)
class FollowHeadStep:
    """A rank that knows nothing of the model does as the head does."""


@dataclass(frozen=True, slots=True)
class FreeMemoryStep:
    """All memory that it holds is given back."""


@dataclass(frozen=True, slots=True)
class HangStep:
    """Nothing more happens, and SIGTERM is not heard."""


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
    """Yield several lines, the pause spread over them."""
    for line in lines:
        yield LogStep(after / len(lines), line, stream)


def format_bar_times(done: int, total: int, seconds: float) -> str:
    """Return the bracket of a progress bar: elapsed, left and pace, as tqdm writes them."""
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
