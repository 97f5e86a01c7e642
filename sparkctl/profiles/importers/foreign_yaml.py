"""Read YAML written for other tools, the way those tools read it, with limits; corrections are reported."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator
from typing import Any

from sparkctl.errors import InvalidInput
from sparkctl.profiles.yaml_reader import explain_parser_error

MAX_BYTES = 512 * 1024
MAX_ALIASES = 200
MAX_ITEMS = 50_000
MAX_DEPTH = 40
_MAX_COMPOSED_DEPTH = 200  # of nodes, before anything else is known of them
_ALIAS_PATTERN = re.compile(r"(?<![\w\"'&*])\*[A-Za-z0-9_-]+")
_CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ufffe\uffff]")


def load_foreign_yaml(text: str, name: str, *, as_written: bool = False) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the first map of a YAML text, and what had to be corrected.

    ``as_written``: numbers keep their text (compose); else scalars follow YAML 1.1, as Python's tools read it. Raises
    `InvalidInput` with file, line and column.
    """
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise InvalidInput(f"{name}: larger than {MAX_BYTES // 1024} KiB: too large for a recipe")
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    mended: list[str] = []
    if _CONTROL_CHARACTERS.search(text):
        text = _CONTROL_CHARACTERS.sub(" ", text)
        mended.append("control characters were read as blanks")
    if len(_ALIAS_PATTERN.findall(text)) > MAX_ALIASES:
        raise InvalidInput(f"{name}: more than {MAX_ALIASES} aliases: too large for a recipe")
    documents, twice = _load_documents(text, name, mended, as_written)
    mended += [f"`{key}` appears twice in line {line}; the last one counts" for key, line in twice]
    found = [one for one in documents if isinstance(one, dict)]
    if not found:
        raise InvalidInput(
            f"{name}: this is neither a recipe nor a command line that starts an engine",
            "a recipe begins with keys such as `model:`, a line with docker run, vllm serve, python -m or launch-cluster.sh",
        )
    if len(documents) > 1:
        mended.append(f"{len(documents)} documents in one file; the first is read")
    data = found[0]
    _check_alias_size(data, name)
    return {str(key): value for key, value in data.items()}, tuple(mended)


def _load_documents(
    text: str, name: str, mended: list[str], as_written: bool
) -> tuple[list[Any], list[tuple[str, int]]]:
    import yaml

    try:
        return _parse_documents(text, as_written)
    except yaml.YAMLError as first:
        if "\t" not in text:
            raise InvalidInput(_format_yaml_error(name, first)) from first
        try:
            found = _parse_documents(text.expandtabs(2), as_written)
        except yaml.YAMLError:
            raise InvalidInput(_format_yaml_error(name, first)) from first
        mended.append("tabs were read as two blanks")
        return found
    except RecursionError as deep:
        line, column = _find_deepest_place(text)
        raise InvalidInput(f"{name}:{line}:{column}: nested deeper than a recipe can be") from deep
    except ValueError as error:
        raise InvalidInput(f"{name}: this cannot be read: {error}") from error


def _find_deepest_place(text: str) -> tuple[int, int]:
    """Return line and column at which brackets, or else indentation, are deepest; both count from 1."""
    depth, deepest, place = 0, 0, (1, 1)
    for number, line in enumerate(text.splitlines(), 1):
        indent = len(line) - len(line.lstrip(" "))
        for column, sign in enumerate(line, 1):
            depth = max(0, depth + (sign in "[{") - (sign in "]}"))
            if depth + indent > deepest:
                deepest, place = depth + indent, (number, column)
    return place


def _parse_documents(text: str, as_written: bool) -> tuple[list[Any], list[tuple[str, int]]]:
    import yaml

    twice: list[tuple[str, int]] = []
    nodes = []

    class Loader(yaml.SafeLoader):
        """Plain data only; an unknown tag is ignored and its value is read."""

        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            self.depth += 1
            # Long before Python's own limit: time grows with the square of the depth.
            if self.depth > _MAX_COMPOSED_DEPTH:
                raise RecursionError
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

    Loader.add_multi_constructor("", _ignore_tag)
    Loader.add_multi_constructor("!", _ignore_tag)
    if as_written:
        for tag in ("int", "float", "timestamp"):
            Loader.add_constructor(f"tag:yaml.org,2002:{tag}", _construct_text)
        Loader.add_constructor("tag:yaml.org,2002:bool", _construct_bool)
    loader = Loader(text)
    try:
        while loader.check_node():
            nodes.append(loader.get_node())
        for node in nodes:
            _find_duplicate_keys(node, twice)
            _check_merge_size(node)
        return [loader.construct_document(node) for node in nodes], twice
    finally:
        loader.dispose()


def _ignore_tag(loader: Any, suffix: str, node: Any) -> Any:
    import yaml

    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return loader.construct_scalar(node)


def _construct_text(loader: Any, node: Any) -> str:
    return str(node.value)


def _construct_bool(loader: Any, node: Any) -> object:
    """YAML 1.2: only true and false are booleans; yes and on are text."""
    return {"true": True, "false": False}.get(str(node.value).lower(), node.value)


def _iter_nodes(root: Any) -> Iterator[Any]:
    """Yield each node below ``root`` once, including itself; with aliases one node appears in several places."""
    import yaml

    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            waiting += [value for _, value in node.value]


def _find_duplicate_keys(root: Any, twice: list[tuple[str, int]]) -> None:
    import yaml

    for node in _iter_nodes(root):
        keys: set[str] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode):
                if key.value in keys and key.value != "<<":
                    twice.append((key.value, key.start_mark.line + 1))
                keys.add(key.value)


def _check_merge_size(root: Any) -> None:
    """Refuse merge keys (``<<``) that expand to more than any recipe holds: they are copied, not shared."""
    import yaml

    sizes: dict[int, int] = {}

    def count_merged_entries(node: Any) -> int:
        if not isinstance(node, yaml.MappingNode):
            return 0
        if id(node) not in sizes:
            sizes[id(node)] = 0  # one that merges itself
            total = len(node.value)
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value == "<<":
                    total += sum(
                        map(count_merged_entries, value.value if isinstance(value, yaml.SequenceNode) else [value])
                    )
            if total > MAX_ITEMS:
                raise ValueError("its merge keys unfold to more than any recipe holds")
            sizes[id(node)] = total
        return sizes[id(node)]

    for node in _iter_nodes(root):
        count_merged_entries(node)


def _check_alias_size(value: object, name: str) -> None:
    """Count the values with aliases expanded. Raises `InvalidInput` if there are more than any recipe holds."""
    count = 0
    waiting: list[tuple[object, int]] = [(value, 0)]
    while waiting:
        one, depth = waiting.pop()
        count += 1
        if count > MAX_ITEMS or depth > MAX_DEPTH:
            raise InvalidInput(
                f"{name}: more than {MAX_ITEMS} values, or nested deeper than {MAX_DEPTH}: too large for a recipe"
            )
        inner = one.values() if isinstance(one, dict) else one if isinstance(one, list | tuple | set) else ()
        waiting += [(each, depth + 1) for each in inner]


def _format_yaml_error(name: str, error: Exception) -> str:
    mark, what = explain_parser_error(error)
    return f"{name}:{mark.line + 1}:{mark.column + 1}: {what}" if mark else f"{name}: {what}"


# Characters that no profile may hold: controls except tab and line end, and half surrogates.
FORBIDDEN_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def scalar_text(value: object) -> str | None:
    """Return a scalar's text as YAML means it (true, not True), None for null, lists and maps."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    return value.isoformat() if isinstance(value, datetime.date) else None


def scalar_texts(value: object) -> list[str]:
    """Return a list's scalars, or one scalar as a list."""
    values = value if isinstance(value, list | tuple) else [value]
    return [found for one in values if (found := scalar_text(one)) is not None]


def as_mapping(value: object) -> dict[str, Any]:
    """Return a map with text keys; a list of maps merged; ``K=V`` words of a list as pairs; else an empty map."""
    if isinstance(value, dict):
        return {key: one for raw, one in value.items() if (key := scalar_text(raw)) is not None}
    found: dict[str, Any] = {}
    for one in value if isinstance(value, list | tuple) else []:
        if isinstance(one, dict):
            found |= as_mapping(one)
        elif (word := scalar_text(one)) is not None:
            name, equals, rest = word.partition("=")
            found[name.strip()] = rest if equals else None
    return found


def parse_whole_number(value: object) -> int | None:
    """Return a whole number, also from text or from 2.0; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str | int | float):
        try:
            found = float(str(value).strip())
        except ValueError:
            return None
        return int(found) if found == found and abs(found) < 1e15 and found == int(found) else None
    return None


def is_truthy(value: object) -> bool:
    """Tell whether a value means "on"."""
    return str(value).strip().lower() in ("true", "yes", "on", "1") if value is not None else False


def to_json_data(value: object) -> object:
    """Return JSON data; types that JSON lacks (dates, sets, keys that are not text) become text."""
    if isinstance(value, dict):
        return {
            FORBIDDEN_CHARACTERS.sub(" ", scalar_text(key) or str(key)): to_json_data(one) for key, one in value.items()
        }
    if isinstance(value, list | tuple | set):
        return [to_json_data(one) for one in value]
    if isinstance(value, str):
        return FORBIDDEN_CHARACTERS.sub(" ", value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    return scalar_text(value) or str(value)


def describe_kind(value: object) -> str:
    """Return the kind of a value in words."""
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list | tuple):
        return "a list of such things"
    return f"`{(scalar_text(value) or str(value))[:40]}`"


def is_empty_value(value: object) -> bool:
    """Tell whether a key has no content: null, an empty text, list or map."""
    return value is None or value == "" or value == [] or value == {}


def to_compact_json(value: object) -> str:
    return json.dumps(to_json_data(value), ensure_ascii=False, separators=(",", ":"))
