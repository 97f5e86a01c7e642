"""The free maps of a profile: engine flags, environment, ulimits and docker options, each entry checked in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sparkctl.model.profile import ArgValue, FlagValues, JsonValue
from sparkctl.profiles import field_types as kinds
from sparkctl.profiles.docker_options import BARE_FLAG_VALUE, DockerOptionKind
from sparkctl.profiles.file_issues import FileIssue
from sparkctl.profiles.yaml_reader import YamlEntry, YamlValue

Path_ = tuple[str, ...]
Pairs = list[tuple[str, Any]]


class _Nothing(ValueError):
    """The entry has no value."""


def args(key: str, item: YamlValue) -> Pairs:
    """One engine flag, its value as it will stand on the command line."""
    kinds.arg_name(key)
    return [(key, _arg_value(item))]


def _arg_value(item: YamlValue) -> ArgValue:
    if item.value is None:
        raise _Nothing("has no value; write true for a bare flag, false to leave it out")
    if isinstance(item.value, bool):
        return item.value
    if isinstance(item.value, dict):
        return JsonValue(item.json())
    if isinstance(item.value, tuple):
        if len(item.value) == 1 and isinstance(item.value[0].value, tuple):
            return FlagValues(tuple(_repeated(each) for each in item.value[0].value))
        return tuple(_repeated(each) for each in item.value)
    return item.raw or ""


def _repeated(item: YamlValue) -> str:
    if isinstance(item.value, dict):
        return item.json()
    if isinstance(item.value, tuple) or item.value is None or isinstance(item.value, bool):
        raise ValueError("a list repeats the flag, so each of its entries is text or a number (or a map, as JSON)")
    return item.raw or ""


def env(key: str, item: YamlValue) -> Pairs:
    """One environment variable, any scalar by its text."""
    if item.raw is None:
        raise ValueError("must be text")
    if item.value is None and item.raw != "":
        raise _Nothing('has no value; write "" for an empty one')
    if item.value is None:
        raise _Nothing(f'has no value; write "" for an empty one, ${{{key}}} for your own')
    return [(key, kinds.env_pair(key, item.raw))]


def extra(key: str, item: YamlValue) -> Pairs:
    """One thing that an import kept: anything at all."""
    return [(key, JsonValue(item.json()))]


def ulimits(key: str, item: YamlValue) -> Pairs:
    """One ulimit."""
    if item.raw is None:
        raise ValueError("must be a number or soft:hard")
    return [(key, kinds.parse_ulimit(key, item.raw))]


def options(key: str, item: YamlValue) -> Pairs:
    """One docker run flag; a list repeats it."""
    kind = kinds.docker_option(key)
    if kind is DockerOptionKind.FLAG:
        if not isinstance(item.value, bool):
            raise ValueError("must be true or false")
        return [(key, BARE_FLAG_VALUE)] if item.value else []
    several = item.value if isinstance(item.value, tuple) else (item,)
    if isinstance(item.value, tuple) and kind is not DockerOptionKind.LIST:
        raise ValueError("takes one value, not a list")
    if any(each.raw is None or isinstance(each.value, bool) or not each.raw.strip() for each in several):
        raise ValueError("must be text" if kind is DockerOptionKind.TEXT else "must be text or a list of text")
    return [(key, kinds.option_value(key, each.raw or "")) for each in several]


ENTRY_PARSERS: dict[Path_, Callable[[str, YamlValue], Pairs]] = {
    ("args",): args,
    ("env",): env,
    ("extra",): extra,
    ("container", "ulimits"): ulimits,
    ("container", "options"): options,
}


def parse_map_entries(
    path: Path_, entries: dict[str, YamlEntry], faults: list[FileIssue]
) -> tuple[tuple[str, Any], ...]:
    """Return a free map as pairs in the order of the file, the faults of its entries noted."""
    rule = ENTRY_PARSERS[path]
    found: Pairs = []
    for key, entry in entries.items():
        try:
            found += rule(key, entry.item)
        except ValueError as error:
            # What is wrong with the key itself is shown at the key.
            place = entry.item.place if entry.item.value is not None else entry.place
            faults.append(FileIssue(place, f"{'.'.join((*path, key))}: {error}"))
    return tuple(found)
