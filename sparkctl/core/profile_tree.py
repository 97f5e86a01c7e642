"""Profiles as trees, before they are checked: a variant over its base, ``--set`` over both, places kept."""

from __future__ import annotations

from sparkctl.core.faults import Fault, InvalidFile, Place, quoted
from sparkctl.core.yamlfile import Entry, Item, parse_yaml, resolve, unwelcome
from sparkctl.model.secrets import is_token, redact

FIXED = ("schema", "name", "extends")  # what --set cannot change


def overlay(base: Item, top: Item) -> Item:
    """Return ``top`` over ``base``: maps merge, lists and scalars replace, null removes what the base has."""
    if not isinstance(base.value, dict) or not isinstance(top.value, dict):
        return top
    merged = dict(base.value)
    for key, entry in top.value.items():
        below = merged.get(key)
        if below is not None and entry.item.value is None:
            del merged[key]
        else:
            merged[key] = Entry(entry.place, overlay(below.item, entry.item)) if below else entry
    return Item(top.place if top.place.line else base.place, merged)  # a flag is no place for what is missing


def inheritable(item: Item) -> Item:
    """Return what a variant takes over from its base: everything but its name and its own base."""
    return Item(item.place, {key: entry for key, entry in item.entries.items() if key not in ("name", "extends")})


def token_faults(item: Item, path: str = "") -> list[Fault]:
    """Return a fault for every scalar or key that is a token by its shape. Its text is not repeated."""
    if isinstance(item.value, dict):
        found = []
        for key, entry in item.value.items():
            below = f"{path}.{redact(key)}" if path else redact(key)
            found += [Fault(entry.place, "a key holds a token")] if is_token(key) else []
            found += token_faults(entry.item, below)
        return found
    if isinstance(item.value, tuple):
        return [fault for index, each in enumerate(item.value) for fault in token_faults(each, f"{path}[{index}]")]
    if item.raw is None or not is_token(item.raw):
        return []
    return [
        Fault(
            item.place,
            f"{path}: this is a token; a profile is no place for one: write ${{HF_TOKEN}} under env (your own "
            "environment's), or name an env_file",
        )
    ]


def override_tree(text: str) -> Item:
    """Return ``args.mem-fraction-static=0.7`` as the tree that is laid over the profile. Raises `InvalidFile`."""
    place = Place(f"--set {redact(text)}")
    if bad := unwelcome(text):
        raise InvalidFile([Fault(place, f"a control character (U+{ord(bad[0]):04X}) is not allowed here")])
    path, equals, value = text.partition("=")
    steps = path.strip().split(".")
    if not equals or not all(steps):
        raise InvalidFile([Fault(place, "write --set field=value, as in --set args.mem-fraction-static=0.7")])
    if steps[0] in FIXED:
        raise InvalidFile(
            [Fault(place, f"{quoted(steps[0])} cannot be set here; write a profile that extends this one")]
        )
    if steps[0] == "env" and len(steps) > 2:
        steps = ["env", ".".join(steps[1:])]
    item = _value(value, place, is_text=steps[0] == "env")
    for step in reversed(steps):
        item = Item(place, {step: Entry(place, item)})
    return item


def _value(text: str, place: Place, *, is_text: bool) -> Item:
    """Return an override's value: a scalar as YAML means it, or a list or map in brackets."""
    if is_text:
        return Item(place, text, text)
    stripped = text.strip()
    if not stripped.startswith(("[", "{", '"', "'")):
        return Item(place, resolve(stripped), stripped)
    try:
        return _placed(parse_yaml(stripped.encode("utf-8", "replace"), place.file).root, place)
    except InvalidFile as error:
        raise InvalidFile(Fault(place, fault.message) for fault in error.faults) from None


def _placed(item: Item, place: Place) -> Item:
    """Return the same tree with one place for all of it: inside a flag, lines and columns say nothing."""
    if isinstance(item.value, dict):
        return Item(place, {k: Entry(place, _placed(entry.item, place)) for k, entry in item.value.items()})
    if isinstance(item.value, tuple):
        return Item(place, tuple(_placed(each, place) for each in item.value))
    return Item(place, item.value, item.raw)
