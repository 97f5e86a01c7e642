"""The script of a simulated engine: a text file in its folder, and what plays it.

``[section]`` begins a section, ``name = text`` before the first one defines a text. A line of a section is one of these,
where SECONDS are simulated ones before the step (a number or a name); lines below are indented::

    SECONDS | text            write it to stderr; ``>`` to stdout, ``|-`` without a newline, as a progress bar does
    allocate SECONDS gpu=SIZE anonymous=SIZE kv_tokens=NAME      by CUDA, by the processes; a SIZE is a name or 2.6GiB
    each COUNT SECONDS [N]    the lines below, COUNT times; a bar counts N for each
    load                      a part of the weights is on the GPU, SECONDS of ``each`` after the one before
    if NAME, unless NAME      the lines below, if that is true or not
    do SECTION, compute NAME  another section; a method ``compute_NAME`` of the engine
    join                      wait for the other ranks; the lines below are written meanwhile
    listen, ready             bind the port, and answer 503; serve
    fail TEXT                 an error that the head receives
    exit CODE                 and each `ScriptAction`

``{name}`` in a text is a definition, a value of the step, an attribute of the engine or one of its launch, with a format
as Python has it; ``\\r``, ``\\t``, ``\\n`` and ``\\s`` (a space at the end) are escapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text.units import GIB

# Replaced in every text by the engine's own spelling of the time at which the line is written.
LOG_TIME = "\x01"
LOG_DATETIME = "\x02"  # with the year, as Ray writes it, whatever the engine's own spelling


@dataclass(frozen=True, slots=True)
class LogStep:
    """Write to the log. A progress bar has ``end=""``: Docker holds it back until a newline comes."""

    after: float
    text: str
    stream: str
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
class JoinRanksStep:
    """Wait for the other ranks; ``meanwhile`` is logged until they are there."""

    meanwhile: tuple[LogStep, ...]


@dataclass(frozen=True, slots=True)
class RankErrorStep:
    """The process of a rank raises an error that the head receives; its container lives on."""

    said: str


@dataclass(frozen=True, slots=True)
class ExitStep:
    """The container ends."""

    code: int
    oom_killed: bool = False


class ScriptAction(StrEnum):
    """Steps without a value."""

    OPEN_GROUP = "open"  # let the other ranks find this head
    WATCH_PEERS = "watch"  # from here on the end of another rank is noticed at once
    WAIT_FOR_RANKS = "barrier"  # wait until all ranks have loaded
    FOLLOW_HEAD = "follow"  # a rank that knows nothing of the model does the same as the head
    FREE_MEMORY = "free"
    CUT_CABLE = "cut"  # the one between the Sparks
    HANG = "hang"  # nothing more happens, and SIGTERM is ignored


TimedStep = LogStep | LoadWeightsStep | AllocateMemoryStep | LeakMemoryStep
ScriptStep = TimedStep | ListenStep | JoinRanksStep | RankErrorStep | ExitStep | ScriptAction
Script = Iterator[ScriptStep]
_STREAMS = {"|": ("stderr", "\n"), ">": ("stdout", "\n"), "|-": ("stderr", "")}
_ESCAPES = {"\\r": "\r", "\\t": "\t", "\\n": "\n", "\\s": " "}


@dataclass(frozen=True, slots=True)
class ScriptLine:
    """A line as its words, and its text if it has one."""

    words: tuple[str, ...]
    text: str
    below: list[ScriptLine] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ScriptFile:
    """``definitions``: texts by name."""

    definitions: dict[str, str]
    sections: dict[str, list[ScriptLine]]


@cache
def read_script(path: Path) -> ScriptFile:
    script = ScriptFile({}, {})
    open_lists: list[list[ScriptLine]] = []
    for raw in path.read_text("utf-8").split("\n"):
        line = raw.lstrip(" ")
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            open_lists = [script.sections.setdefault(line.strip("[]"), [])]
        elif not open_lists:
            name, _, text = line.partition(" = ")
            script.definitions[name] = _unescape(text)
        else:
            del open_lists[(len(raw) - len(line)) // 2 + 1 :]
            parsed = _parse_line(line)
            open_lists[-1].append(parsed)
            open_lists.append(parsed.below)
    return script


def _parse_line(line: str) -> ScriptLine:
    first, _, rest = line.partition(" ")
    mark, _, text = rest.partition(" ")
    if mark in _STREAMS:
        return ScriptLine((first, mark), _unescape(text))
    return ScriptLine((first, *rest.split()), _unescape(rest))


def _unescape(text: str) -> str:
    for mark, character in _ESCAPES.items():
        text = text.replace(mark, character)
    return text


class ScriptPlayer:
    """Plays the sections of a script file. A subclass gives the values of the names in it."""

    def __init__(self, path: Path, fallback: object) -> None:
        self._script = read_script(path)
        self._fallback = fallback
        self._given: dict[str, Any] = {"time": LOG_TIME, "datetime": LOG_DATETIME}
        self._pace, self._items = 0.0, 1  # of the innermost loop
        self.done = self.total = 0  # of the same, in what its bar counts

    def has_section(self, name: str) -> bool:
        return name in self._script.sections

    def play_section(self, name: str, **given: Any) -> Script:
        """Yield the steps of a section, each as late as possible; ``given``: values of names in it."""
        self._given |= given
        yield from self._play_lines(self._script.sections[name])

    def __getitem__(self, name: str) -> Any:
        if name in self._script.definitions:
            return self._format(self._script.definitions[name])
        if name in self._given:
            return self._given[name]
        is_own = hasattr(type(self), name) or name in vars(self)
        return getattr(self if is_own else self._fallback, name)

    def _format(self, text: str) -> str:
        return text.format_map(self)

    def _read_number(self, word: str) -> float:
        return float(word) if word[0].isdigit() else float(self[word])

    def _read_size(self, word: str) -> int:
        if word.endswith("GiB"):
            return int(float(word.removesuffix("GiB")) * GIB)
        return int(word) if word.isdigit() else int(self[word])

    def _play_lines(self, lines: list[ScriptLine]) -> Script:
        for line in lines:
            match line.words:
                case (seconds, mark) if mark in _STREAMS:
                    yield LogStep(self._read_number(seconds), self._format(line.text), *_STREAMS[mark])
                case ("if" | "unless" as word, name):
                    if bool(self[name]) is (word == "if"):
                        yield from self._play_lines(line.below)
                case ("each", count, seconds, *items):
                    yield from self._repeat_lines(line.below, self._read_size(count), float(seconds), items)
                case ("do", section):
                    yield from self._play_lines(self._script.sections[section])
                case ("compute", name):
                    getattr(self, f"compute_{name}")()
                case ("load",):
                    done, total = self.done // self._items, self.total // self._items
                    yield LoadWeightsStep(self._pace, done, total, self["weights"] // total)
                case ("allocate", seconds, *sizes):
                    found = {name: self._read_size(size) for name, _, size in (one.partition("=") for one in sizes)}
                    yield AllocateMemoryStep(self._read_number(seconds), **found)
                case ("join",):
                    yield JoinRanksStep(tuple(one for one in self._play_lines(line.below) if isinstance(one, LogStep)))
                case ("listen" | "ready" as word,):
                    yield ListenStep(word == "ready")
                case ("fail", *_):
                    yield RankErrorStep(self._format(line.text))
                case ("exit", code):
                    yield ExitStep(int(code))
                case (word,):
                    yield ScriptAction(word)
                case _:
                    raise ValueError(f"{' '.join(line.words)} is not a line of a script")

    def _repeat_lines(self, lines: list[ScriptLine], count: int, seconds: float, items: list[str]) -> Script:
        self._pace, self._items = seconds, int(items[0]) if items else 1
        self.total = count * self._items
        for done in range(1, count + 1):
            self.done = done * self._items
            yield from self._play_lines(lines)
        self.done = 0

    @property
    def percent(self) -> int:
        """How much of a loop is done."""
        return self.done * 100 // self.total

    @property
    def bar(self) -> str:
        """The bar itself, ten characters wide."""
        filled = self.done * 10 / self.total
        whole = int(filled)
        part = " ▏▎▍▌▋▊▉"[int((filled - whole) * 8)] if whole < 10 else ""
        return ("█" * whole + part).ljust(10)

    @property
    def bar_times(self) -> str:
        """The bracket of a progress bar: elapsed, left and pace, as tqdm prints them."""
        seconds = self._pace / self._items
        spent, left = self.done * seconds, (self.total - self.done) * seconds
        pace = f"{seconds:5.2f}s/it" if seconds >= 1 else f"{1 / seconds:5.2f}it/s"
        return f"[{_format_clock(spent)}<{_format_clock(left)}, {pace}]"


def _format_clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes:02d}:{rest:02d}"
