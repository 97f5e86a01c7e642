"""The catalogue of known traps: what shows one, what it means, what to do about it on a Spark, and who reported it.

A trap is an entry in a JSON file of this folder, and is written once: `build_trap_rules` makes log rules of it for `diagnose`,
and `profile_traps.check_traps` holds a profile against it for `check`, `plan` and `up`. docs/traps.md tells the keys of an entry. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from sparkctl.engines.base import FailureWeight
from sparkctl.engines.log_rules import FailureRule, failure_rule
from sparkctl.model.verdict import ChangeDirection, FailureCause

_URL_SCHEME = re.compile(r"^https?://")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trap:
    """``engines``: empty for all. ``versions``: bounds such as ``>=0.19,<0.20``, None for all. ``when``: what a profile that
    has this trap holds, by subject; ``unless``: what saves it. ``setting``: the ``field=value`` that avoids it.
    """

    name: str
    engines: tuple[str, ...]
    versions: str | None
    meaning: str
    remedy: str
    source: str
    log: tuple[Mapping[str, Any], ...]
    when: Mapping[str, str]
    unless: Mapping[str, str]
    level: str
    rule: str
    setting: str | None

    def concerns_engine(self, engine: str) -> bool:
        """Tell whether this engine has the trap."""
        return not self.engines or engine in self.engines


@cache
def load_traps() -> tuple[Trap, ...]:
    """Return all traps, those of one file after those of another, by the files' names."""
    found = []
    for file in sorted(Path(__file__).parent.glob("*.json")):
        for entry in json.loads(file.read_text("utf-8")):
            log, check = entry.get("log", ()), entry.get("check", {})
            found.append(
                Trap(
                    name=entry["name"],
                    engines=tuple(entry.get("engines", ())),
                    versions=entry.get("versions"),
                    meaning=entry["meaning"],
                    remedy=entry["remedy"],
                    source=entry["source"],
                    log=tuple(log) if isinstance(log, list) else (log,),
                    when=check.get("when", {}),
                    unless=check.get("unless", {}),
                    level=check.get("level", "warning"),
                    rule=check.get("rule", "known-trap"),
                    setting=check.get("set"),
                )
            )
    return tuple(found)


# What a program says that does without the thing that failed: no failure, whatever else is in the line.
_GOES_ON = r"(?<![\s\S])(?!.{0,2000}(?:[Ff]all(?:s|ing|en)?[ -]?back|[Rr]etrying|, using \w|[Uu]sing \w{1,40} instead|NCCL INFO))[\s\S]{0,4000}?"


def build_trap_rules(engine: str) -> tuple[FailureRule, ...]:
    """Return the log rules of the traps of one engine. They stand before its other rules: a trap is more exact."""
    return tuple(
        _build_rule(trap, log) for trap in load_traps() if trap.concerns_engine(engine) for log in trap.log if log
    )


def _build_rule(trap: Trap, log: Mapping[str, Any]) -> FailureRule:
    needles = (log["needle"],) if isinstance(log["needle"], str) else tuple(log["needle"])
    pattern = log.get("pattern") or "|".join(map(re.escape, needles))
    return failure_rule(
        pattern if log.get("exception") or log.get("fatal") else f"{_GOES_ON}(?:{pattern})",
        FailureCause(log["cause"]),
        f"{_begin_sentence(log.get('meaning', trap.meaning))}.",
        f"{_begin_sentence(log.get('remedy', trap.remedy))} ({shorten_source(trap.source)}).",
        needle=needles,
        on=log.get("field"),
        to=log.get("value"),
        change=ChangeDirection(log["change"]) if "change" in log else None,
        fatal=log.get("fatal", False),
        weight=FailureWeight[log.get("weight", "concrete").upper()],
        exception=log.get("exception", False),
    )


def _begin_sentence(text: str) -> str:
    """Return a text with its first letter large, unless it begins with a program's name."""
    word = text.partition(" ")[0]
    return (
        text[:1].upper() + text[1:] if word.isalpha() and word not in ("mpirun", "ulimit") and word.islower() else text
    )


def shorten_source(source: str) -> str:
    """Return a source for the end of a sentence."""
    return _URL_SCHEME.sub("", source)
