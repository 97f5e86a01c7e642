"""The free maps of a profile: engine flags, environment, ulimits and docker options, each entry checked in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sparkctl.core import profile_fields as kinds
from sparkctl.core.faults import Fault
from sparkctl.core.yamlfile import Entry, Item
from sparkctl.model.docker_options import BARE, OptionKind
from sparkctl.model.profile import ArgValue, JsonText, Values

Path_ = tuple[str, ...]
Pairs = list[tuple[str, Any]]


class _Nothing(ValueError):
    """The entry has no value."""


def args(key: str, item: Item) -> Pairs:
    """One engine flag, its value as it will stand on the command line."""
    kinds.arg_name(key)
    return [(key, _arg_value(item))]


def _arg_value(item: Item) -> ArgValue:
    if item.value is None:
        raise _Nothing("has no value; write true for a bare flag, false to leave it out")
    if isinstance(item.value, bool):
        return item.value
    if isinstance(item.value, dict):
        return JsonText(item.json())
    if isinstance(item.value, tuple):
        if len(item.value) == 1 and isinstance(item.value[0].value, tuple):
            return Values(tuple(_repeated(each) for each in item.value[0].value))
        return tuple(_repeated(each) for each in item.value)
    return item.raw or ""


def _repeated(item: Item) -> str:
    if isinstance(item.value, dict):
        return item.json()
    if isinstance(item.value, tuple) or item.value is None or isinstance(item.value, bool):
        raise ValueError("a list repeats the flag, so each of its entries is text or a number (or a map, as JSON)")
    return item.raw or ""


def env(key: str, item: Item) -> Pairs:
    """One environment variable, any scalar by its text."""
    if item.raw is None:
        raise ValueError("must be text")
    if item.value is None and item.raw != "":
        raise _Nothing('has no value; write "" for an empty one')
    if item.value is None:
        raise _Nothing(f'has no value; write "" for an empty one, ${{{key}}} for your own')
    return [(key, kinds.env_pair(key, item.raw))]


def extra(key: str, item: Item) -> Pairs:
    """One thing that an import kept: anything at all."""
    return [(key, JsonText(item.json()))]


def ulimits(key: str, item: Item) -> Pairs:
    """One ulimit."""
    if item.raw is None:
        raise ValueError("must be a number or soft:hard")
    return [(key, kinds.ulimit(key, item.raw))]


def options(key: str, item: Item) -> Pairs:
    """One docker run flag; a list repeats it."""
    kind = kinds.docker_option(key)
    if kind is OptionKind.FLAG:
        if not isinstance(item.value, bool):
            raise ValueError("must be true or false")
        return [(key, BARE)] if item.value else []
    several = item.value if isinstance(item.value, tuple) else (item,)
    if isinstance(item.value, tuple) and kind is not OptionKind.LIST:
        raise ValueError("takes one value, not a list")
    if any(each.raw is None or isinstance(each.value, bool) or not each.raw.strip() for each in several):
        raise ValueError("must be text" if kind is OptionKind.TEXT else "must be text or a list of text")
    return [(key, kinds.option_value(key, each.raw or "")) for each in several]


MAPS: dict[Path_, Callable[[str, Item], Pairs]] = {
    ("args",): args,
    ("env",): env,
    ("extra",): extra,
    ("container", "ulimits"): ulimits,
    ("container", "options"): options,
}


def pairs(path: Path_, entries: dict[str, Entry], faults: list[Fault]) -> tuple[tuple[str, Any], ...]:
    """Return a free map as pairs in the order of the file, the faults of its entries noted."""
    rule = MAPS[path]
    found: Pairs = []
    for key, entry in entries.items():
        try:
            found += rule(key, entry.item)
        except ValueError as error:
            # What is wrong with the key itself is shown at the key.
            place = entry.item.place if entry.item.value is not None else entry.place
            faults.append(Fault(place, f"{'.'.join((*path, key))}: {error}"))
    return tuple(found)
