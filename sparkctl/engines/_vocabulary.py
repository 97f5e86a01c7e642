"""How an engine's knowledge of its own log lines is written down, and read at a few hundred thousand lines a second."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from sparkctl.engines.base import Failure, Signal, Weight
from sparkctl.engines.lines import bar
from sparkctl.model.phase import Phase, Step
from sparkctl.model.text import shorten
from sparkctl.model.verdict import Cause

# A line that tells of a failure holds at least one of these. Most lines hold none, and cost no regex.
_SUSPECT = (
    *(
        "rror",
        "xception",
        "emory",
        "ailed",
        "died",
        "crash",
        "exited",
        "atal",
        "SIGQUIT",
        "sigquit",
        "timeout",
        "Timed out",
    ),
    *(
        "timed out",
        "hit an",
        "leaves no",
        "didn't",
        "couldn't",
        "No module",
        "No space",
        "driver",
        "bad_alloc",
        "by peer",
    ),
)
_OPTIONAL = re.compile(r"\[([^\[\]]*)\]")
_LONGEST = 400  # characters of a captured part that a sentence can bear
_NAME = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Rule:
    """A failure line. ``needle`` is a substring every such line holds, ``pattern`` is searched only then.

    ``summary``, ``remedy`` and ``field`` may name the pattern's groups in braces; a part in square brackets is left out
    when one of its groups found nothing, and so is a ``field`` that needs it.
    """

    needle: str
    pattern: re.Pattern[str]
    cause: Cause
    summary: str
    remedy: str
    field: str | None = None
    fatal: bool = False
    weight: int = Weight.CONCRETE

    def read(self, line: str) -> Failure | None:
        """Return the failure this line tells of, None if it tells of something else."""
        if self.needle not in line or (found := self.pattern.search(line)) is None:
            return None
        groups = {name: shorten(value.strip(), _LONGEST) for name, value in found.groupdict().items() if value}
        return Failure(
            cause=self.cause,
            summary=_fill(self.summary, groups),
            remedy=_fill(self.remedy, groups),
            field=_fill(self.field, groups) if self.field and _known(self.field, groups) else None,
            fatal=self.fatal,
            weight=self.weight,
        )


def rule(
    pattern: str,
    cause: Cause,
    summary: str,
    remedy: str,
    *,
    needle: str,
    on: str | None = None,
    fatal: bool = False,
    weight: int = Weight.CONCRETE,
) -> Rule:
    """Return a Rule; ``on`` is the profile field to change."""
    return Rule(needle, re.compile(pattern), cause, summary, remedy, on, fatal, weight)


def _known(template: str, groups: dict[str, str]) -> bool:
    return all(name in groups for name in _NAME.findall(template))


def _fill(template: str, groups: dict[str, str]) -> str:
    text = _OPTIONAL.sub(lambda part: part[1] if _known(part[1], groups) else "", template)
    return _NAME.sub(lambda name: groups.get(name[1], "(not said)"), text)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What one engine says. ``quiet``: beginnings of lines that never mean anything here, however they go on.
    ``phases``: beginning of a line → signal. ``bars``: word in a bar's title → step. ``rules``: first match counts."""

    quiet: tuple[str, ...]
    phases: tuple[tuple[str, Signal], ...]
    bars: tuple[tuple[str, str], ...]
    rules: tuple[Rule, ...]
    _beginnings: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_beginnings", tuple(start for start, _ in self.phases))

    def read(self, line: str) -> Signal | None:
        """Return what a prepared line says, None for nothing."""
        if line.startswith(self.quiet):
            return None
        if line.startswith(self._beginnings):
            return next(signal for start, signal in self.phases if line.startswith(start))
        if "%" in line and (seen := bar(line)) is not None:
            title = seen.title
            name = next((step for word, step in self.bars if word in title), None)
            if name is None:
                return None
            return Signal(Phase.LOADING, Step(name, seen.done, seen.total, seen.fraction))
        return self._failure(line)

    def _failure(self, line: str) -> Signal | None:
        # Indented lines are source code in a traceback: they quote messages that were never said.
        if line[:1].isspace():
            return None
        for word in _SUSPECT:
            if word in line:
                break
        else:
            return None
        for each in self.rules:
            if (failure := each.read(line)) is not None:
                return Signal(failure=failure)
        return None


def loading(step: str) -> Signal:
    """Return the signal of a line that begins a part of the load."""
    return Signal(Phase.LOADING, Step(step))
