"""What a `docker run`, a compose file or a recipe has no word for, carried beside it as JSON by our own exports.

A launch itself (image, command, environment, mounts) is always read from the form: what somebody edits there counts.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from sparkctl.model.command import script_at
from sparkctl.model.per_step import RoutedExperts
from sparkctl.model.plan import GuardRule, Timeouts
from sparkctl.model.profile import ArgValue, JsonText, Model, Profile, StartRules, Values
from sparkctl.recipes.draft import Draft, Imported

_PLAIN = (
    "title",
    "nodes",
    "engine_version",
    "expected_memory",
    "floor_memory",
    "draft_workspace",
    "stop_grace",
    "liveness",
    "group",
    "notes",
    "source",
)
_FIGURES = ("weights", "active_parameters", "parameters", "draft_weights", "kv_per_token")
_START = ("drop_caches", "ready_line", "health", "probe", "prompt", "expected")


def beside(profile: Profile, **more: object) -> str:
    """Return what an import of the exported form could not find out again, as JSON of one line."""
    model, rules, box = profile.model, profile.start, profile.container
    limits, guard, experts = rules.timeouts, rules.guard, model.experts
    said: dict[str, Any] = {"name": profile.name, "engine": profile.engine, "port": profile.port}
    said |= {key: getattr(profile, key) for key in _PLAIN}
    said["model"] = _said({key: getattr(model, key) for key in ("path", "served_name", *_FIGURES)}) | _said(
        {"experts": experts and [experts.weights, experts.count, experts.per_token]}
    )
    said["start"] = _said({key: getattr(rules, key) for key in _START})
    if limits != Timeouts():
        said["start"]["timeouts"] = [limits.creating, limits.starting, limits.loading, limits.warming]
    if guard != GuardRule():
        said["start"]["guard"] = guard and [guard.floor, guard.cache_below, guard.limit]
    said["container"] = _said({"name": box.name, "gpus": box.gpus, "network": box.network})
    said["patched_flags"] = list(profile.patched_flags)
    said["extra"] = [[key, kept.text] for key, kept in profile.extra]
    return json.dumps(_said(said) | more, ensure_ascii=True, separators=(",", ":"))


def _said(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value not in (None, [], {})}


def read(draft: Draft) -> dict[str, Any] | None:
    """Return what stands beside a source, None where nothing does; what cannot be read is said."""
    if draft.beside is None:
        return None
    try:
        said = json.loads(draft.beside)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict) or not isinstance(said.get("engine"), str):
        draft.ledger.unsupported("sparkctl:", "what an export of sparkctl wrote beside it cannot be read")
        return None
    return said


def restored(imported: Imported, said: dict[str, Any]) -> Imported:
    """Return an import with what stands beside it."""
    try:
        return replace(imported, profile=_restored(imported.profile, said))
    except (ValueError, TypeError, KeyError, AttributeError, IndexError):
        imported.ledger.unsupported("sparkctl:", "what an export of sparkctl wrote beside it cannot be read")
        return imported


def _restored(one: Profile, said: dict[str, Any]) -> Profile:
    model, box = said.get("model", {}), said.get("container", {})
    # A container, or a shell with its script: the form does not say these by flags of the engine's.
    own = one.engine == "container" or script_at(one.command or ()) is not None
    path, name, experts = model.get("path"), model.get("served_name"), model.get("experts")
    if one.command and one.model.path is None and one.command[-1] == path and not own:
        one = replace(one, command=one.command[:-1])  # launch words of somebody's own, with the model behind them
    placeholders = dict(said.get("placeholders", {}))
    unsaid = said.get("unsaid", [])
    plain: dict[str, Any] = {key: said.get(key) for key in _PLAIN}
    return replace(
        one, **plain, patched_flags=tuple(said.get("patched_flags", [])),
        port=said.get("port") if own else one.port,
        args=tuple((key, _referred(value, placeholders)) for key, value in one.args),
        env=(*one.env, *((name, text) for name, text in said.get("env", []) if name not in dict(one.env))),
        env_file=one.env_file or said.get("env_file"), mounts=tuple(said["mounts"]) if "mounts" in said else one.mounts,
        model=Model(
            path=path if own else one.model.path or path, served_name=name if own else one.model.served_name or name,
            experts=RoutedExperts(*experts) if experts else None, **{key: model.get(key) for key in _FIGURES},
        ),
        container=replace(
            one.container, name=box.get("name"), gpus=box.get("gpus"), network=box.get("network"),
            ipc=None if "ipc" in unsaid else one.container.ipc,
            shm_size=None if "shm_size" in unsaid else one.container.shm_size,
        ),
        start=_start(said.get("start", {})),
        extra=tuple((key, JsonText(text)) for key, text in said.get("extra", [])),
    )  # fmt: skip


def _start(rules: dict[str, Any]) -> StartRules:
    guard: GuardRule | None = GuardRule()
    if "guard" in rules:
        guard = GuardRule(*rules["guard"]) if rules["guard"] else None
    plain: dict[str, Any] = {key: rules.get(key) for key in _START}
    return StartRules(timeouts=Timeouts(*rules.get("timeouts", [])), guard=guard, **plain)


def _referred(value: ArgValue, placeholders: dict[str, str]) -> ArgValue:
    """Return a flag's value with the references that a recipe has only placeholders for."""
    if isinstance(value, str):
        for name, text in placeholders.items():
            value = value.replace(f"{{{name}}}", text)
        return value
    if isinstance(value, Values):
        return Values(tuple(str(_referred(word, placeholders)) for word in value.words))
    return tuple(str(_referred(word, placeholders)) for word in value) if isinstance(value, tuple) else value
