"""What is to be said of a profile's flags before it starts, by the flag catalogue of its engine's version. Pure.

The catalogue decides what is an error; an engine's own file here (``sglang``, ``vllm``) adds what no parser tells.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from sparkctl.engines import _launch
from sparkctl.engines.base import Engine
from sparkctl.engines.lint import together
from sparkctl.engines.lint.given import Given, given, loses_args
from sparkctl.engines.lint.held import Held, Lore, Settings
from sparkctl.engines.lint.names import name_remark
from sparkctl.engines.lint.reading import Reading, read
from sparkctl.engines.lint.values import value_remarks
from sparkctl.model.flags import FlagCatalogue
from sparkctl.model.lint import Change, ChangeKind, Level, Lint, Remark
from sparkctl.model.profile import Profile

__all__ = ["by_catalogue", "check", "given"]

_OWN = frozenset({"sglang", "vllm", "llamacpp", "trtllm"})  # engines with a file of their own here


def check(
    profile: Profile,
    engine: Engine,
    catalogue: FlagCatalogue,
    others: tuple[FlagCatalogue, ...] = (),
    foreign: tuple[tuple[str, FlagCatalogue], ...] = (),
    *,
    is_certain: bool = True,
) -> tuple[Remark, ...]:
    """Return what is to be said of a profile's flags.

    ``others``: the engine's other versions; ``foreign``: other engines' flags, by title. ``is_certain``: the catalogue is
    that of the version which runs; else an error is one only where no known version would take the flag, and none where only
    this version is known. A partial catalogue only informs.
    """
    module = _known(engine.name)
    held = Held(engine.title, catalogue, others, foreign, module.LORE if module else Lore())
    flags = given(profile)
    found = list(_patched(by_catalogue(flags, held), profile, held))
    if not is_certain:
        for other in others:
            rest = (catalogue, *(one for one in others if one is not other))
            there = by_catalogue(flags, replace(held, catalogue=other, others=rest))
            refused = {(one.where, one.flag) for one in there if _is_error(one)}
            found = [
                _doubted(one, other, held) if _is_error(one) and (one.where, one.flag) not in refused else one
                for one in found
            ]
        if not others:
            found = [_unsure(one, held) if _is_error(one) else one for one in found]
    if catalogue.partial:
        found = [_informing(one) if _is_error(one) else one for one in found]
    readings = _read(flags, catalogue)
    found += together.repeated(readings, held)
    settings = Settings(readings, catalogue)
    if loses_args(profile):
        found.append(together.lost(profile))
    if module:
        found += module.rules(profile, settings, held)
    found += together.asked_elsewhere(profile, settings, engine.defaults.port)
    size = settings.get("--tensor-parallel-size") or settings.get("--pipeline-parallel-size")
    if size is not None:
        found += together.too_many_ranks(profile, engine.decoding(engine.argv(profile)).ranks, size.where)
    if loses_args(profile):
        found = [_without_added(one) for one in found]
    return tuple(found)


def by_catalogue(flags: tuple[Given, ...], held: Held) -> Iterator[Remark]:
    """Yield what the parser alone decides, and what an engine refuses of a value soon after."""
    named: set[object] = set()
    for one, reading in _read(flags, held.catalogue):
        if not one.left_out and one.where[:2] not in named:
            if remark := name_remark(one, reading, held):
                yield remark
            if one.in_args:
                named.add(one.where[:2])  # a list repeats the flag, and its name is wrong once
        yield from value_remarks(one, reading, held)


def _read(flags: tuple[Given, ...], catalogue: FlagCatalogue) -> list[tuple[Given, Reading]]:
    level = "-O" if catalogue.dotted else None  # vLLM's -O3: the level is a part of the word
    return [(one, read(one.word, catalogue)) for one in flags if level is None or not one.word.startswith(level)]


def _patched(found: Iterable[Remark], profile: Profile, held: Held) -> Iterator[Remark]:
    """Leave alone what the profile says of its image: these flags are the image's own."""
    own = {_launch.flag(name).lstrip("-").replace("_", "-") for name in profile.patched_flags}
    said: set[str] = set()
    for one in found:
        name = one.flag.lstrip("-").replace("_", "-")
        if name not in own or not _is_error(one):
            yield one
        elif name not in said:
            said.add(name)
            message = f"{one.flag} is not held against {held}: the profile says that its image has it otherwise"
            yield Remark(Lint.PATCHED_FLAG, Level.INFO, one.where[:2], message, flag=one.flag)


def _is_error(one: Remark) -> bool:
    return one.level is Level.ERROR


def _doubted(one: Remark, other: FlagCatalogue, held: Held) -> Remark:
    message = f"{one.message}; {held.title} {other.version} takes it, and which one this image has is not known"
    return replace(one, level=Level.WARNING, message=message, change=None)


def _unsure(one: Remark, held: Held) -> Remark:
    """No other version is known that might take it, and the one that runs is not known either."""
    return replace(
        one, level=Level.WARNING, message=f"{one.message}; which version of {held.title} this image has is not known"
    )


def _informing(one: Remark) -> Remark:
    message = f"{one.message}; the list of its flags here is partial"
    return replace(one, level=Level.INFO, message=message, change=None)


def _without_added(one: Remark) -> Remark:
    """A flag that is added to ``args`` would be lost there, too."""
    change: Change | None = one.change
    return replace(one, change=None) if change is not None and change.kind is ChangeKind.ADD else one


def _known(engine: str) -> Any:
    """Return the file of an engine, None where there is none: its flags are then judged by their catalogue alone."""
    return importlib.import_module(f"{__name__}.{engine}") if engine in _OWN else None
