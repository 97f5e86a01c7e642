"""What is to be said of a profile's flags before it starts, by the flag catalogue of its engine's version. Pure.

The catalogue decides what is an error; an engine's own file here (``sglang``, ``vllm``) adds what no parser tells.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from sparkctl.engines import command_builder, flag_combinations
from sparkctl.engines.base import Engine
from sparkctl.engines.flags.model import FlagCatalogue
from sparkctl.engines.held import FlagAdvice, FlagSettings, LintContext
from sparkctl.engines.lint.model import LintFix, LintFixKind, LintMessage, LintRule, LintSeverity
from sparkctl.engines.names import check_flag_name
from sparkctl.engines.profile_flags import ProfileFlag, collect_profile_flags, has_ignored_args
from sparkctl.engines.reading import FlagMatch, match_flag
from sparkctl.engines.values import check_flag_value
from sparkctl.model.profile import Profile

__all__ = ["check_flags", "check_flags_by_catalogue", "collect_profile_flags"]

_OWN = frozenset({"sglang", "vllm", "llamacpp", "trtllm"})  # engines with a file of their own here


def check_flags(
    profile: Profile,
    engine: Engine,
    catalogue: FlagCatalogue,
    others: tuple[FlagCatalogue, ...] = (),
    foreign: tuple[tuple[str, FlagCatalogue], ...] = (),
    *,
    is_certain: bool = True,
) -> tuple[LintMessage, ...]:
    """Return what is to be said of a profile's flags.

    ``others``: the engine's other versions; ``foreign``: other engines' flags, by title. ``is_certain``: the catalogue is
    that of the version which runs; else an error is one only where no known version would take the flag, and none where only
    this version is known. A partial catalogue only informs.
    """
    module = _known(engine.name)
    held = LintContext(engine.title, catalogue, others, foreign, module.FLAG_ADVICE if module else FlagAdvice())
    flags = collect_profile_flags(profile)
    found = list(_allow_patched_flags(check_flags_by_catalogue(flags, held), profile, held))
    if not is_certain:
        for other in others:
            rest = (catalogue, *(one for one in others if one is not other))
            there = check_flags_by_catalogue(flags, replace(held, catalogue=other, others=rest))
            refused = {(one.where, one.flag) for one in there if _is_error(one)}
            found = [
                _downgrade_uncertain(one, other, held)
                if _is_error(one) and (one.where, one.flag) not in refused
                else one
                for one in found
            ]
        if not others:
            found = [_warn_unknown_version(one, held) if _is_error(one) else one for one in found]
    if catalogue.partial:
        found = [_downgrade_partial(one) if _is_error(one) else one for one in found]
    readings = _read(flags, catalogue)
    found += flag_combinations.check_repeated_flags(readings, held)
    settings = FlagSettings(readings, catalogue)
    if has_ignored_args(profile):
        found.append(flag_combinations.ignored_args_issue(profile))
    if module:
        found += module.check_engine_flags(profile, settings, held)
    found += flag_combinations.check_port_and_name(profile, settings, engine.defaults.port)
    size = settings.get("--tensor-parallel-size") or settings.get("--pipeline-parallel-size")
    if size is not None:
        found += flag_combinations.check_rank_count(
            profile, engine.read_decoding_settings(engine.build_command(profile)).ranks, size.where
        )
    if has_ignored_args(profile):
        found = [_drop_lost_edit(one) for one in found]
    return tuple(found)


def check_flags_by_catalogue(flags: tuple[ProfileFlag, ...], held: LintContext) -> Iterator[LintMessage]:
    """Yield what the parser alone decides, and what an engine refuses of a value soon after."""
    named: set[object] = set()
    for one, reading in _read(flags, held.catalogue):
        if not one.left_out and one.where[:2] not in named:
            if remark := check_flag_name(one, reading, held):
                yield remark
            if one.in_args:
                named.add(one.where[:2])  # a list repeats the flag, and its name is wrong once
        yield from check_flag_value(one, reading, held)


def _read(flags: tuple[ProfileFlag, ...], catalogue: FlagCatalogue) -> list[tuple[ProfileFlag, FlagMatch]]:
    level = "-O" if catalogue.dotted else None  # vLLM's -O3: the level is a part of the word
    return [(one, match_flag(one.word, catalogue)) for one in flags if level is None or not one.word.startswith(level)]


def _allow_patched_flags(found: Iterable[LintMessage], profile: Profile, held: LintContext) -> Iterator[LintMessage]:
    """Leave alone what the profile says of its image: these flags are the image's own."""
    own = {command_builder.flag_for_key(name).lstrip("-").replace("_", "-") for name in profile.patched_flags}
    said: set[str] = set()
    for one in found:
        name = one.flag.lstrip("-").replace("_", "-")
        if name not in own or not _is_error(one):
            yield one
        elif name not in said:
            said.add(name)
            message = f"{one.flag} is not held against {held}: the profile says that its image has it otherwise"
            yield LintMessage(LintRule.PATCHED_FLAG, LintSeverity.INFO, one.where[:2], message, flag=one.flag)


def _is_error(one: LintMessage) -> bool:
    return one.level is LintSeverity.ERROR


def _downgrade_uncertain(one: LintMessage, other: FlagCatalogue, held: LintContext) -> LintMessage:
    message = f"{one.message}; {held.title} {other.version} takes it, and which one this image has is not known"
    return replace(one, level=LintSeverity.WARNING, message=message, change=None)


def _warn_unknown_version(one: LintMessage, held: LintContext) -> LintMessage:
    """No other version is known that might take it, and the one that runs is not known either."""
    return replace(
        one,
        level=LintSeverity.WARNING,
        message=f"{one.message}; which version of {held.title} this image has is not known",
    )


def _downgrade_partial(one: LintMessage) -> LintMessage:
    message = f"{one.message}; the list of its flags here is partial"
    return replace(one, level=LintSeverity.INFO, message=message, change=None)


def _drop_lost_edit(one: LintMessage) -> LintMessage:
    """A flag that is added to ``args`` would be lost there, too."""
    change: LintFix | None = one.change
    return replace(one, change=None) if change is not None and change.kind is LintFixKind.ADD else one


def _known(engine: str) -> Any:
    """Return the file of an engine, None where there is none: its flags are then judged by their catalogue alone."""
    return importlib.import_module(f"sparkctl.engines.{engine}.lint") if engine in _OWN else None
