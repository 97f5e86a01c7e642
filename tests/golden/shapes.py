"""The shape of JSON: its key paths with the types that occur there, without values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

Shape = dict[str, set[str]]

FREE_TEXT = "text"  # a string that stands for any other


def add_shape(shape: Shape, value: object, path: str = "", words: Collection[str] = ()) -> None:
    """Add what one value shows to a shape.

    Args:
        shape: Key paths and their types, changed here. ``[]`` is an item of a list.
        value: What was read from JSON.
        path: Where the value stands.
        words: Strings that are written as they are: those of a closed set.
    """
    name = path or "(root)"
    if isinstance(value, Mapping):
        shape[name].add("object")
        for key, item in value.items():
            add_shape(shape, item, f"{path}.{key}" if path else str(key), words)
    elif isinstance(value, list | tuple):
        shape[name].add("array")
        for item in value:
            add_shape(shape, item, f"{path}[]", words)
    else:
        shape[name].add(_name_type(value, words))


def _name_type(value: object, words: Collection[str]) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return repr(value) if value in words else "string"
        case _:
            raise TypeError(f"{value!r} is not JSON")


def shape_of(values: Iterable[object], words: Collection[str] = ()) -> Shape:
    """Return the merged shape of several values."""
    shape: Shape = defaultdict(set)
    for value in values:
        add_shape(shape, value, words=words)
    return shape


def write_shape(shape: Shape) -> str:
    """Return a shape as text, a line for each path."""
    return "\n".join(f"{path}  {' | '.join(sorted(types))}" for path, types in sorted(shape.items()))


def read_shape(text: str) -> Shape:
    """Return the shape that a text holds."""
    lines = (line.partition("  ") for line in text.splitlines() if line.strip())
    return defaultdict(set, {path: set(types.split(" | ")) for path, _, types in lines})


def find_misfits(seen: Shape, golden: Shape) -> list[str]:
    """Return what a seen shape has that the golden one does not allow, and the keys that it lacks.

    What was never seen is allowed: null, which stands for what is not known, and what the golden shape knows only as null or
    as an empty list. A key is lacking where its object was seen.
    """
    found = []
    for path, types in seen.items():
        known = golden.get(path, set())
        extra = {one for one in types - known if one != "null" and not (one == "string" and _has_words(known))}
        if extra and not _is_unknown(path, golden):
            found.append(f"+{path}  {' | '.join(sorted(extra))}")
    for path in golden.keys() - seen.keys():
        parent = path.rpartition(".")[0] or "(root)"
        if not path.endswith("[]") and path != "(root)" and "object" in seen.get(parent, set()):
            found.append(f"-{path}  {' | '.join(sorted(golden[path]))}")
    return sorted(found, key=lambda line: line[1:])


def _has_words(types: Collection[str]) -> bool:
    return any(one.startswith("'") for one in types)


def _is_unknown(path: str, golden: Shape) -> bool:
    """Return whether the golden shape knows a path, or what it is in, only as null or as an empty list."""
    ends = [at for at, sign in enumerate(path) if sign == "." or path.startswith("[]", at)]
    for above in (*(path[:end] for end in ends), path):
        if golden.get(above) == {"null"}:
            return True
        if path.startswith(f"{above}[]") and "array" in golden.get(above, ()) and f"{above}[]" not in golden:
            return True
    return False
