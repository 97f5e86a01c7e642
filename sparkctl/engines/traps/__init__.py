"""The catalogue of known traps: what shows one, what it means, what to do about it on a Spark, and who reported it.

A trap is an entry in a JSON file of this folder, and is written once: `build_trap_rules` makes log rules of it for `diagnose`,
`profile_traps.check_traps` holds a profile against it for `check`, `plan` and `up`, and `doctor` and the findings hold a node's
versions against it. docs/traps.md tells the keys of an entry. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkctl.engines import engine_names
from sparkctl.engines.base import FailureWeight
from sparkctl.engines.remedies import adapt_remedy
from sparkctl.errors import InvalidInput
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.verdict import ChangeDirection, FailureCause

if TYPE_CHECKING:
    from sparkctl.engines.log_rules import FailureRule

_URL_SCHEME = re.compile(r"^https?://")
_VERSION_BOUND = re.compile(r"(?P<sign>[<>]=?|=)(?P<version>\d+(?:\.\d+)*)")
_VERSION_PARTS = re.compile(r"\d+")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_PATTERN_GROUP = re.compile(r"\(\?P<(\w+)>")
_SAID_BY_PROFILE = frozenset({"name", "value", "missing", "mounts"})
_SAID_BY_LOG = frozenset({"gpu_trace", "gpu_report"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeVersion:
    """A version of something on a node that has a trap: all of what the node reports under ``what`` matches ``pattern``.

    ``needs``: what the node must have for it (``rdma``); ``unless``: what saves it (``kho-off``).
    """

    what: str
    pattern: str
    severity: str
    needs: str | None = None
    unless: str | None = None


@dataclass(frozen=True, slots=True)
class EngineCache:
    """A folder of compiled kernels in a container whose user is root. ``moved_by``: the variables that put it elsewhere."""

    path: str
    moved_by: tuple[str, ...]

    @property
    def tail(self) -> str:
        """Its path below any home."""
        return self.path.removeprefix("/root")

    @property
    def mount(self) -> str:
        """What keeps it."""
        home = f"~{self.tail}" if self.tail != self.path else f"~/.cache/{self.path.rpartition('/')[2]}"
        return f"{home}:{self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trap:
    """``engines``: empty for all. ``versions``: bounds such as ``>=0.19,<0.20``, None for all. ``when``: what a profile that
    has this trap holds, by subject; ``unless``: what saves it; ``caches``: of these folders one at least dies with the container.
    ``setting``: the ``field=value`` that avoids it.
    ``node``: what a node that has this trap reports, None if a node does not show it.
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
    caches: tuple[EngineCache, ...]
    level: str
    rule: str
    setting: str | None
    node: NodeVersion | None

    def concerns_engine(self, engine: str) -> bool:
        """Tell whether this engine has the trap."""
        return not self.engines or engine in self.engines


def is_version_within(version: str, bounds: str) -> bool:
    """Tell whether a version lies within bounds such as ``>=0.19,<0.20`` (``=0.19`` is every 0.19.x)."""
    have = tuple(int(part) for part in _VERSION_PARTS.findall(version)[:3])
    for bound in bounds.split(","):
        found = _VERSION_BOUND.fullmatch(bound.strip())
        if found is None:
            raise ValueError(f"no bound of a version: {bound}")
        limit = tuple(int(part) for part in found["version"].split("."))
        same = have[: len(limit)]
        if not {"<": have < limit, "<=": same <= limit, ">": same > limit, ">=": have >= limit, "=": same == limit}[
            found["sign"]
        ]:
            return False
    return True


@cache
def load_traps() -> tuple[Trap, ...]:
    """Return all traps, those of one file after those of another, by the files' names."""
    return tuple(trap for file in _list_files() for trap in read_traps(file))


@cache
def load_node_traps() -> tuple[tuple[Trap, NodeVersion], ...]:
    """Return the traps that a node shows. A file without any is not parsed: all of them take a hundredth of `status`."""
    some = (file for file in _list_files() if '"node":' in file.read_text("utf-8"))
    return tuple((trap, trap.node) for file in some for trap in read_traps(file) if trap.node is not None)


def _list_files() -> list[Path]:
    return sorted(Path(__file__).parent.glob("*.json"))


def read_traps(file: Path) -> Iterator[Trap]:
    """Yield the traps of one file. Raises `InvalidInput` where an entry has a key that none has, or lacks one, and where it names
    an engine, a version or a part of its sentence that there is not."""
    for at, entry in enumerate(json.loads(file.read_text("utf-8")), 1):
        where = f"{file.name}, entry {at} ({entry.get('name', 'without a name')})"
        _check_keys(where, entry, _ENTRY_KEYS, _REQUIRED_KEYS)
        check, node = entry.get("check"), entry.get("node")
        logs = entry.get("log", [])
        logs = logs if isinstance(logs, list) else [logs]
        for log in logs:
            _check_keys(f"{where}, log", log, _LOG_KEYS, frozenset({"needle", "cause"}))
        if check is not None:
            _check_keys(f"{where}, check", check, _CHECK_KEYS, frozenset({"when"}))
        if node is not None:
            _check_keys(f"{where}, node", node, _NODE_KEYS, frozenset({"what", "pattern", "severity"}))
        _check_names(where, entry, logs)
        check = check or {}
        yield Trap(
            name=entry["name"],
            engines=tuple(entry.get("engines", ())),
            versions=entry.get("versions"),
            meaning=entry["meaning"],
            remedy=entry["remedy"],
            source=entry["source"],
            log=tuple(logs),
            when=check.get("when", {}),
            unless=check.get("unless", {}),
            caches=tuple(EngineCache(path, tuple(names)) for path, names in check.get("caches", {}).items()),
            level=check.get("level", "warning"),
            rule=check.get("rule", "known-trap"),
            setting=check.get("set"),
            node=None if node is None else NodeVersion(**node),
        )


_REQUIRED_KEYS = frozenset({"name", "meaning", "remedy", "source"})
_ENTRY_KEYS = _REQUIRED_KEYS | {"engines", "versions", "log", "check", "node"}
_LOG_KEYS = frozenset(
    {"needle", "pattern", "cause", "field", "value", "change", "fatal", "weight", "exception", "at_any_level"}
    | {"meaning", "remedy"}
)
_CHECK_KEYS = frozenset({"when", "unless", "caches", "level", "rule", "set"})
_NODE_KEYS = frozenset(one.name for one in fields(NodeVersion))


def _check_keys(where: str, entry: Mapping[str, Any], known: frozenset[str], required: frozenset[str]) -> None:
    if unknown := sorted(entry.keys() - known):
        raise InvalidInput(f"{where}: there is no key {unknown[0]}", f"the keys are {', '.join(sorted(known))}")
    if missing := sorted(required - entry.keys()):
        raise InvalidInput(f"{where}: the key {missing[0]} is missing", "docs/traps.md explains the keys")


def _check_names(where: str, entry: Mapping[str, Any], logs: list[Mapping[str, Any]]) -> None:
    for engine in entry.get("engines", ()):
        if engine not in engine_names():
            raise InvalidInput(f"{where}: there is no engine {engine}", f"the engines are {', '.join(engine_names())}")
    for bound in entry.get("versions", "=0").split(","):
        if not _VERSION_BOUND.fullmatch(bound.strip()):
            raise InvalidInput(f"{where}: {bound.strip()} is no bound of a version", "write it as in >=0.19,<0.20")
    # who fills a sentence: what the profile says, the groups of the log's pattern, the node's version
    fills = [("log", one, _SAID_BY_LOG | set(_PATTERN_GROUP.findall(one.get("pattern", "")))) for one in logs if one]
    fills += [("profile", {}, _SAID_BY_PROFILE)] if "check" in entry else []
    fills += [("node", {}, frozenset({"version"}))] if "node" in entry else []
    for reader, own, filled in fills:
        for key in ("meaning", "remedy"):
            for name in _PLACEHOLDER.findall(own.get(key, entry[key])):
                if name not in filled:
                    raise InvalidInput(
                        f"{where}: its {key} holds {{{name}}}, which a {reader} does not fill",
                        "a profile fills {name} and {value}, a log the groups of its pattern, a node {version}",
                    )


def build_trap_rules(engine: str, traps: Iterable[Trap] | None = None) -> tuple[FailureRule, ...]:
    """Return the log rules of an engine's traps; they stand before other rules, since they are more exact. ``traps``: None for all."""
    some = load_traps() if traps is None else traps
    return tuple(
        _build_rule(trap, log, engine) for trap in some if trap.concerns_engine(engine) for log in trap.log if log
    )


def _build_rule(trap: Trap, log: Mapping[str, Any], engine: str) -> FailureRule:
    from sparkctl.engines.log_rules import failure_rule  # not for the traps of nodes and profiles

    needles = (log["needle"],) if isinstance(log["needle"], str) else tuple(log["needle"])
    pattern = log.get("pattern") or "|".join(map(re.escape, needles))
    return failure_rule(
        pattern,
        FailureCause(log["cause"]),
        f"{_begin_sentence(log.get('meaning', trap.meaning))}.",
        f"{_begin_sentence(adapt_remedy(log.get('remedy', trap.remedy), engine).rstrip('.'))} ({shorten_source(trap.source)}).",
        needle=needles,
        on=log.get("field"),
        to=log.get("value"),
        change=ChangeDirection(log["change"]) if "change" in log else None,
        fatal=log.get("fatal", False),
        weight=FailureWeight[log.get("weight", "concrete").upper()],
        exception=log.get("exception", False),
        at_any_level=log.get("at_any_level", False),
        versions=trap.versions,
    )


def _begin_sentence(text: str) -> str:
    """Return a text with its first letter large, unless it begins with a program's name."""
    word = text.partition(" ")[0]
    return (
        text[:1].upper() + text[1:] if word.isalpha() and word not in ("mpirun", "ulimit") and word.islower() else text
    )


def shorten_source(source: str) -> str:
    return _URL_SCHEME.sub("", source)
