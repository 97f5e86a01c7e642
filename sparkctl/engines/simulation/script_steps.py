"""What a scripted engine does, one step after the other. ``after`` is the simulated seconds before the step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

# Replaced in every text by the engine's own spelling of the time at which the line is written.
NOW = "\x01"
STAMP = "\x02"  # with the year, as Ray writes it, whatever the engine's own spelling


@dataclass(frozen=True, slots=True)
class Say:
    """Write to the log. A progress bar has ``end=""``: Docker keeps it back until a newline comes."""

    after: float
    text: str
    stream: str = "stderr"
    end: str = "\n"


@dataclass(frozen=True, slots=True)
class Load:
    """Weights ``done`` of ``total`` are on the GPU now; ``size`` bytes came with this step."""

    after: float
    done: int
    total: int
    size: int


@dataclass(frozen=True, slots=True)
class Grow:
    """Memory is taken: ``gpu`` bytes by CUDA, ``anonymous`` bytes by the processes; ``kv_tokens`` fit into a cache."""

    after: float
    gpu: int = 0
    anonymous: int = 0
    kv_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Leak:
    """The processes take memory that nobody asked them to take, ``size`` bytes, until there is none."""

    after: float
    size: int


@dataclass(frozen=True, slots=True)
class Listen:
    """The port is bound; ``ready``: requests are served, else /health says 503."""

    ready: bool


@dataclass(frozen=True, slots=True)
class Open:
    """The others find this head from here on."""


@dataclass(frozen=True, slots=True)
class Join:
    """The other ranks are waited for; ``meanwhile`` is said until they are there."""

    meanwhile: tuple[Say, ...] = ()


@dataclass(frozen=True, slots=True)
class Depend:
    """From here on the end of another rank is felt at once; before, it is not noticed."""


@dataclass(frozen=True, slots=True)
class Gather:
    """Its weights are there: it waits until those of all ranks are, and feels from here on when one is gone."""


@dataclass(frozen=True, slots=True)
class Raise:
    """Its process of the engine ended with an error, of which the head is told; its container goes on."""

    said: str


@dataclass(frozen=True, slots=True)
class Cut:
    """Somebody pulls the cable between the Sparks."""


@dataclass(frozen=True, slots=True)
class Follow:
    """A rank that knows nothing of the model does as the head does."""


@dataclass(frozen=True, slots=True)
class Free:
    """All memory that it holds is given back."""


@dataclass(frozen=True, slots=True)
class Hang:
    """Nothing more happens, and SIGTERM is not heard."""


@dataclass(frozen=True, slots=True)
class Exit:
    """The container ends."""

    code: int
    oom_killed: bool = False


ScriptStep = (
    Say | Load | Grow | Leak | Listen | Open | Join | Depend | Gather | Raise | Cut | Follow | Free | Hang | Exit
)
AT_ONCE = (Listen, Open, Join, Depend, Gather, Raise, Cut, Follow, Free, Hang, Exit)
Script = Iterator[ScriptStep]


def write_lines(after: float, lines: list[str], stream: str = "stderr") -> Script:
    """Yield several lines, the pause spread over them."""
    for line in lines:
        yield Say(after / len(lines), line, stream)


def format_bar_times(done: int, total: int, seconds: float) -> str:
    """Return the bracket of a progress bar: elapsed, left and pace, as tqdm writes them."""
    if not done:
        return "[00:00<?, ?it/s]"
    spent, left = done * seconds, (total - done) * seconds
    pace = f"{seconds:5.2f}s/it" if seconds >= 1 else f"{1 / seconds:5.2f}it/s"
    return f"[{_clock(spent)}<{_clock(left)}, {pace}]"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes:02d}:{rest:02d}"


def format_bar(done: int, total: int, width: int = 10) -> str:
    """Return the bar itself."""
    filled = done * width / total
    whole = int(filled)
    part = " ▏▎▍▌▋▊▉"[int((filled - whole) * 8)] if whole < width else ""
    return ("█" * whole + part).ljust(width)
