"""Builds a verdict from an analyzed log: the root failure, contributing ones, and the change to try. Pure."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sparkctl.engines import FALLBACK_ENGINE
from sparkctl.engines.base import Failure, FailureWeight
from sparkctl.engines.engine_flags import parse_scaled_count
from sparkctl.logs.analyzer import EvidenceLine, LogAnalyzer
from sparkctl.model.engine_metrics import EngineFactName
from sparkctl.model.launch_plan import DEFAULT_FLOOR_BYTES, LaunchPlan
from sparkctl.model.text.sanitize import sanitize_line, truncate_text
from sparkctl.model.text.secrets import redact
from sparkctl.model.text.units import GIB, format_size, parse_size
from sparkctl.model.verdict import (
    DROP_CACHES_REMEDY,
    LAST_LINE_ORIGIN,
    MAX_EVIDENCE_CHARS,
    ChangeDirection,
    Evidence,
    FailureCause,
    FieldChange,
    Verdict,
)

if TYPE_CHECKING:
    from sparkctl.model.memory_fit import MemoryHolder

_MODEL_FLAGS = frozenset({"model", "model-path", "m", "served-model-name", "alias"})
_FILE_FLAG_PATTERN = re.compile("model|draft|spec|token|lora|adapter|mmproj|config|template")  # in a flag's name
_MIN_PATH_CHARS = 3  # characters: shorter values appear in lines by chance


def find_flag_with_path(command: Sequence[str], text: str) -> str | None:
    """Return the flag, without dashes, whose value appears in ``text``; None if there is none, or if it is the model itself."""
    named: list[tuple[int, bool, str | None]] = []
    for flag, value in _iterate_flag_values(command):
        is_model = flag is None or flag in _MODEL_FLAGS
        has_files = is_model or _FILE_FLAG_PATTERN.search(flag or "") is not None
        for path in _iterate_paths(value):
            if _line_names_path(text, path, with_files=has_files):
                named.append((len(path.rstrip("/")), is_model, None if is_model else flag))
    return max(named, key=lambda one: one[:2], default=(0, True, None))[2]


def _iterate_flag_values(command: Sequence[str]) -> Iterator[tuple[str | None, str]]:
    """Yield each value of a command with its flag, None for values before the first flag."""
    flag: str | None = None
    for word in command:
        if word.startswith("-") and len(word) > 1:
            name, equals, value = word.partition("=")
            flag = name.lstrip("-").replace("_", "-")
            if equals:
                yield flag, value
                flag = None
        else:
            yield flag, word


def _iterate_paths(value: str) -> Iterator[str]:
    """Yield the paths that a value may name: itself, each text inside JSON, and the path of NAME=PATH."""
    try:
        content = json.loads(value) if value[:1] in "{[" else value
    except (ValueError, RecursionError):
        content = value
    several = [content]
    while several:
        one = several.pop()
        if isinstance(one, dict):
            several += one.values()
        elif isinstance(one, list):
            several += one
        elif isinstance(one, str) and len(one) >= _MIN_PATH_CHARS and "/" in one:
            yield one
            if "=" in one:
                yield one.partition("=")[2]


def _line_names_path(text: str, path: str, *, with_files: bool) -> bool:
    """Tell whether a line names exactly this path, or ``with_files`` a file in it."""
    below = "" if with_files else r"|/(?!['\"\s]|$)"
    return re.search(rf"(?<![\w./-]){re.escape(path.rstrip('/'))}(?![\w-]|\.\w{below})", text) is not None


# Limits for a guessed share of memory. As the desktop and the page cache use the same memory, more than the upper one is not
# safe, whatever the engine says; with less than the lower one, another model is the better advice.
_MIN_MEMORY_SHARE, _MAX_MEMORY_SHARE = 0.3, 0.85
_MEMORY_SHARE_STEP = 0.08
# A flag with one of these in its name holds a share of the memory: 1 is all of it, no count.
_SHARE_NAME_PATTERN = re.compile("utilization|fraction|ratio")


def suggest_field_change(
    plan: LaunchPlan, field: str | None, change: ChangeDirection | None, value: str | None = None
) -> FieldChange | None:
    """Return the change to try, None if no value is known.

    ``value`` is the engine's own suggestion; without it, ``change`` and the plan's current value give a first try.
    """
    if field is None:
        return None
    was = get_current_value(plan, field)
    if change is ChangeDirection.REMOVE:
        return FieldChange(field, "null", was)
    if value is not None:
        return None if value == was else FieldChange(field, value, was)
    found = _next_value(field, was, change)
    return None if found is None or found == was else FieldChange(field, found, was, is_first_try=True)


def get_current_value(plan: LaunchPlan, field: str) -> str | None:
    """Return the failed start's value of this field, None if the plan does not have it."""
    section, _, name = field.partition(".")
    match section:
        case "args":
            return plan.get_flag_value(name)
        case "port":
            return None if plan.port is None else str(plan.port)
        case "container" if name == "shm_size":
            return plan.shm_size
        case "container" if name.startswith("options."):
            return dict(plan.options).get(name.removeprefix("options."))
        case "start" if name.startswith("timeouts."):
            seconds = getattr(plan.timeouts, name.removeprefix("timeouts."), None)
            return None if seconds is None else f"{seconds:g}s"
        case "start" if name == "guard.floor" and plan.guard is not None:
            return str(plan.guard.floor)
        case _:
            return None


def _next_value(field: str, was: str | None, change: ChangeDirection | None) -> str | None:
    if field == "start.guard.floor":
        return f"{DEFAULT_FLOOR_BYTES >> 20}m"
    if field == "container.shm_size":
        return "16g" if was is None else f"{max(1, 2 * _parse_gigabytes(was))}g"
    if was is None:
        return None
    if field == "port":
        return str(int(was) + 1) if int(was) < 65535 else str(int(was) - 1)
    if field.startswith("start.timeouts."):
        return f"{2 * float(was.removesuffix('s')):g}s"
    return _change_number(was, change, is_share=_SHARE_NAME_PATTERN.search(field) is not None)


def _change_number(was: str, change: ChangeDirection | None, *, is_share: bool) -> str | None:
    """Return a share changed by one step, or a count (also 32k) halved or doubled; None if it is neither or cannot change further."""
    if change not in (ChangeDirection.LOWER, ChangeDirection.RAISE):
        return None
    if not is_share and (now := parse_scaled_count(was)) is not None:
        count = now // 2 if change is ChangeDirection.LOWER else now * 2
        return str(count) if count >= 1 else None
    try:
        share = float(was)
    except ValueError:
        return None
    if not 0 < share <= 1:
        return None
    moved = min(
        _MAX_MEMORY_SHARE,
        max(
            _MIN_MEMORY_SHARE,
            share - _MEMORY_SHARE_STEP if change is ChangeDirection.LOWER else share + _MEMORY_SHARE_STEP,
        ),
    )
    is_right_way = moved < share if change is ChangeDirection.LOWER else moved > share
    return f"{moved:.2f}".rstrip("0") if is_right_way else None


def _parse_gigabytes(text: str) -> int:
    try:
        return -(-parse_size(text) // (1 << 30))
    except ValueError:
        return 8


_HEAD_CHARS = 80  # of them its beginning, if what it says stands far behind
_MAX_CONTRIBUTING = 4
_MAX_FIGURE_LINES = 4  # lines from the one with a figure to the one that says what it was for
_MEMORY_CAUSES = frozenset(
    (FailureCause.CUDA_OUT_OF_MEMORY, FailureCause.WEIGHTS_DO_NOT_FIT, FailureCause.KV_CACHE_TOO_SMALL)
)
# What stops where the node has too little memory, whoever holds it.
OUT_OF_MEMORY_CAUSES = _MEMORY_CAUSES | {
    FailureCause.STARTUP_MEMORY_CHECK,
    FailureCause.HOST_OOM_KILL,
    FailureCause.HOST_MEMORY,
    FailureCause.GUARD_STOPPED,
}
_STOP_OTHERS_PATTERN = re.compile(
    r"Stop what(?:ever)? else holds memory on the node(?: \([^()]*\))?(?:\. ?|, (?:or )?(?P<next>\w))"
)
_MIN_HOLDER_BYTES = GIB  # what holds less is not worth a stop
_MAX_HOLDERS = 4
_LATER_LINES_TEXT = "The lines after this one name"  # the remedy of a line that announces an error
_MODEL_PATH_FIELD = "model.path"


def build_verdict(log: LogAnalyzer, plan: LaunchPlan | None, more: tuple[Evidence, ...] = ()) -> Verdict | None:
    """Return the verdict by the log's own lines, None if no line shows a failure that the engine did not survive. ``plan``:
    what was started, for a value to try; ``more``: evidence from elsewhere."""
    root = log.root_failure
    if root is None or root.failure is None:
        return None
    contributing = [build_verdict_from_line(seen, plan) for seen in log.contributing_failures[:_MAX_CONTRIBUTING]]
    verdict = build_verdict_from_line(root, plan, (*_list_figures(log, root), *more))
    if root.failure.weight <= FailureWeight.DYING and verdict.remedy.startswith(_LATER_LINES_TEXT):
        last = log.latest_line if log.is_in_traceback else None
        where = ", or was cut" if last is None else f" in a traceback, at line {last.number}"
        verdict = replace(
            verdict, remedy=f"No later line names the reason: the log breaks off{where}. Look at the whole log."
        )
    return replace(
        verdict, remedy=verdict.remedy + _suggest_flag(log, root.failure, plan), contributing=tuple(contributing)
    )


def build_verdict_from_line(
    seen: EvidenceLine, plan: LaunchPlan | None = None, more: tuple[Evidence, ...] = ()
) -> Verdict:
    """Return the verdict for one failure line."""
    failure = seen.failure
    assert failure is not None
    failure = _without_foreign_flag(_with_named_flag(failure, seen.text, plan), plan)
    return Verdict(
        cause=failure.cause,
        summary=_redact_text(_format_summary(seen, failure)),
        evidence=(*build_line_evidence(seen), *more),
        remedy=_redact_text(_format_remedy(failure, plan)),
        field=failure.field,
        edit=_suggest_edit(failure, plan),
        confidence=failure.confidence,
    )


def _list_figures(log: LogAnalyzer, root: EvidenceLine) -> Iterator[Evidence]:
    """Yield the lines right before the root that say how much memory was asked for, if memory is what failed."""
    if root.failure is None or root.failure.cause not in _MEMORY_CAUSES:
        return
    causes = _MEMORY_CAUSES - {root.failure.cause}
    for seen in log.open_failures:
        if (
            seen.failure is not None
            and seen.failure.cause in causes
            and 0 < root.number - seen.number <= _MAX_FIGURE_LINES
        ):
            yield from build_line_evidence(seen)


def add_memory_holders(verdict: Verdict, holders: Sequence[MemoryHolder], total: int) -> Verdict:
    """Return the verdict on memory that ran out with what else holds it on the node, of ``total`` bytes; the largest first.

    If the others hold most of it, their stop comes first, and no other value for this start's own share is offered.
    """
    large = sorted((one for one in holders if (one.held or 0) >= _MIN_HOLDER_BYTES), key=lambda one: -(one.held or 0))
    if verdict.cause not in OUT_OF_MEMORY_CAUSES or not large:
        return verdict
    shown = large[:_MAX_HOLDERS]
    evidence = tuple(Evidence(f"{one.name} holds {format_size(one.held or 0)}", "node") for one in shown)
    ours = [f"sparkctl down {shlex.quote(one.name)}" for one in shown if one.ours]
    names = [one.name for one in shown if not one.ours]
    stop = "; ".join(
        [*ours, *([f"and {', '.join(names)} by what started it" if ours else ", ".join(names)] if names else [])]
    )
    verdict = replace(verdict, evidence=(*verdict.evidence, *evidence))
    if 2 * sum(one.held or 0 for one in large) <= total:
        return replace(verdict, remedy=f"{verdict.remedy} You can also stop what else holds memory there: {stop}.")
    own = _STOP_OTHERS_PATTERN.sub(
        lambda match: (match["next"] or "").upper(), verdict.remedy
    ).strip()  # they were just named
    rest = f"Else: {own}" if own else ""
    rest = f"If they must stay, lower {verdict.field}." if verdict.field else rest
    remedy = (
        f"Most of the memory is held by others. Stop what can be spared, then start this again: {stop}. {rest}".rstrip()
    )
    return replace(verdict, remedy=remedy, edit=None, again=None)


def build_line_evidence(seen: EvidenceLine | None) -> tuple[Evidence, ...]:
    """Return a line of the log as evidence; empty for None."""
    return () if seen is None else (Evidence(_cut_line(_redact_text(seen.text), seen.failure), "log", seen.number),)


def _cut_line(text: str, failure: Failure | None) -> str:
    """Return a line as evidence shows it: cut at its end, or around the words by which a rule knew it."""
    at = -1 if failure is None or failure.rule is None else text.find(failure.rule)
    if len(text) <= MAX_EVIDENCE_CHARS or at < MAX_EVIDENCE_CHARS // 2:
        return truncate_text(text, MAX_EVIDENCE_CHARS)
    shown = MAX_EVIDENCE_CHARS - _HEAD_CHARS - len(" … ")
    return f"{text[:_HEAD_CHARS]} … {truncate_text(text[at - shown // 4 :], shown)}"


def build_last_line_evidence(seen: EvidenceLine | None) -> tuple[Evidence, ...]:
    """Return the last line of a log as evidence, whatever it says; empty for None."""
    return tuple(replace(one, origin=LAST_LINE_ORIGIN) for one in build_line_evidence(seen))


def proves_failure(log: LogAnalyzer) -> bool:
    """Tell whether the root is more than a healthy server prints for a client's bad request or a stop."""
    return log.end_cause is not None


def is_consequence(log: LogAnalyzer, verdict: Verdict) -> bool:
    """Tell whether a verdict comes from the log, and the log only says that something else failed before."""
    failure = None if log.root_failure is None else log.root_failure.failure
    return failure is not None and failure.weight <= FailureWeight.AFTERMATH and failure.cause is verdict.cause


def _suggest_flag(log: LogAnalyzer, failure: Failure, plan: LaunchPlan | None) -> str:
    """Return a suggestion for a refused flag; empty for other failures."""
    if failure.cause is not FailureCause.UNKNOWN_FLAG or not (failure.field or "").startswith("args."):
        return ""
    from sparkctl.profiles.profile_lint import suggest_flag_name

    known_version = log.facts.get(EngineFactName.ENGINE_VERSION)
    version = None if known_version is None else known_version.value
    if plan is not None and plan.engine_version is not None and (version is None or " " in version):
        version = plan.engine_version  # the log has no version, or only a similar one
    flag = (failure.field or "").removeprefix("args.")
    suggestion = suggest_flag_name(log.engine.name, flag, version, "" if plan is None else plan.image)
    return f" ({_redact_text(suggestion)})" if suggestion else ""


def _with_named_flag(failure: Failure, text: str, plan: LaunchPlan | None) -> Failure:
    """Return a failure of model files with the flag to change, if the line names a model that a flag loads (a draft model, a
    tokenizer, an adapter) and not the model itself."""
    if plan is None or failure.field != _MODEL_PATH_FIELD:
        return failure
    flag = find_flag_with_path(plan.command, text)
    if flag is None:
        return failure
    field = f"args.{flag}"
    return replace(failure, field=field, remedy=failure.remedy.replace(_MODEL_PATH_FIELD, field))


def _without_foreign_flag(failure: Failure, plan: LaunchPlan | None) -> Failure:
    """Return a failure without its field, where that is an engine's flag and a program of no known engine was not given it."""
    if plan is None or plan.engine != FALLBACK_ENGINE or not (failure.field or "").startswith("args."):
        return failure
    given = {word.partition("=")[0].lstrip("-").replace("_", "-") for word in plan.command}
    is_given = (failure.field or "").removeprefix("args.").replace("_", "-") in given
    return failure if is_given else replace(failure, field=None, value=None, change=None)


def _format_summary(seen: EvidenceLine, failure: Failure) -> str:
    is_said = failure.summary.startswith("While serving")
    # uvicorn says that its start is complete before it binds the port
    is_serving = seen.serving and failure.cause is not FailureCause.PORT_IN_USE
    if seen.is_uncaught and failure.cause is FailureCause.BROKEN_IMAGE:
        is_serving = False  # what a program lacks at its start: another one, or a later run
    return f"While serving: {failure.summary}" if is_serving and not is_said else failure.summary


def _format_remedy(failure: Failure, plan: LaunchPlan | None) -> str:
    """Return what to do, without what the start did already."""
    if plan is None or not plan.drop_caches:
        return failure.remedy
    return " ".join(failure.remedy.replace(DROP_CACHES_REMEDY, "").split())


def _suggest_edit(failure: Failure, plan: LaunchPlan | None) -> FieldChange | None:
    """Return the change to try; without a plan, only if the engine itself names the value."""
    if plan is not None:
        return suggest_field_change(plan, failure.field, failure.change, failure.value)
    return None if failure.field is None or failure.value is None else FieldChange(failure.field, failure.value)


def _redact_text(text: str) -> str:
    """Return text of a log with secrets masked."""
    return redact(sanitize_line(text))
