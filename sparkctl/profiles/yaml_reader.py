"""Read YAML with the position of every key and value, and report the issues of such a file, all of them at once.

Built on the parser's events, not on its constructors: no tag creates an object, and limits are checked while reading.
Scalars follow the YAML 1.2 core schema in decimal, so ``no``, ``22:22`` and ``1_000`` stay text, and the source text of
every scalar is kept.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from sparkctl.errors import InvalidInput
from sparkctl.files import advise_on_refused_file, open_regular_file
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text import lazy_pattern
from sparkctl.model.text.sanitize import sanitize_line, truncate_text

_MAX_BYTES = 1 << 20  # bytes of a file that are read to show a line of it
_NAME_WORD = lazy_pattern.compile(r"[A-Za-z][A-Za-z0-9_-]*")


class FilePosition(NamedTuple):  # a file makes hundreds; a frozen dataclass takes three times as long to make
    """A position in a file, lines and columns counted from 1; without a line it is a flag (``--set port=x``)."""

    file: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class FileIssue:
    """One issue. As text: ``file:line:column: what; did you mean ...``, one printable line."""

    place: FilePosition
    message: str

    def __str__(self) -> str:
        from sparkctl.model.text.secrets import redact  # imported late: a good file needs no masking

        return redact(sanitize_line(f"{self.place}: {self.message}"))


class InvalidFile(InvalidInput):
    """A file, or a flag that changes its content, has issues. The message has one line for each."""

    def __init__(self, faults: Iterable[FileIssue], hint: str | None = None) -> None:
        self.faults = sort_issues(faults)
        super().__init__("\n".join(map(str, self.faults)), hint)


def sort_issues(faults: Iterable[FileIssue]) -> tuple[FileIssue, ...]:
    """Return the issues without duplicates: files in the order given, positions from top to bottom."""
    unique = list(dict.fromkeys(faults))
    files = {fault.place.file: index for index, fault in reversed(list(enumerate(unique)))}
    return tuple(
        sorted(unique, key=lambda f: (files[f.place.file], f.place.line or 0, f.place.column or 0)),
    )


def read_source_lines(places: Iterable[FilePosition]) -> dict[FilePosition, str]:
    """Return the source line of each position that has one; a tab counts as one space so that columns match.

    A line with a secret's name is left out, and anything else that looks like a secret is masked.
    """
    from sparkctl.model.text.secrets import is_secret_name, redact

    found: dict[FilePosition, str] = {}
    files: dict[str, list[str]] = {}
    for place in places:
        if place.line is None:
            continue
        if place.file not in files:
            try:
                with open_regular_file(place.file) as file:
                    files[place.file] = file.read(_MAX_BYTES).decode("utf-8", "replace").splitlines()
            except OSError:
                files[place.file] = []
        lines = files[place.file]
        if place.line <= len(lines) and not any(map(is_secret_name, _NAME_WORD.findall(lines[place.line - 1]))):
            found[place] = sanitize_line(redact(lines[place.line - 1].replace("\t", " ")))
    return found


def quote_source(text: object) -> str:
    """Return a piece of the file for a message: printable, short, secrets masked, in backticks."""
    from sparkctl.model.text.secrets import redact

    return f"`{redact(truncate_text(sanitize_line(str(text)), 60))}`"


def describe_value(item: YamlValue) -> str:
    """Return what is in the file for a message that something else must be there."""
    if isinstance(item.value, dict):
        return "a map"
    return "a list" if isinstance(item.value, tuple) else quote_source(item.raw)


EMPTY_FILE_TEXT = "the file is empty"
MAX_BYTES = 64 * 1024
MAX_DEPTH = 20
MAX_ALIASES = 32
MAX_ITEMS = 10_000  # counted with aliases expanded

YamlScalar = str | int | float | bool | None
YamlPath = tuple[str | int, ...]

_INT = lazy_pattern.compile(r"[-+]?[0-9]{1,18}")
_FLOAT = lazy_pattern.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_JSON_NUMBER = lazy_pattern.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORDS = dict.fromkeys(("", "~", "null", "Null", "NULL")) | {
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False
}  # fmt: skip
# Control characters are not allowed in a launch; surrogates cannot be encoded.
_FORBIDDEN_CHARACTERS = lazy_pattern.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_make = tuple.__new__  # what a named tuple's constructor does, in half the time
_STR_TAG = "tag:yaml.org,2002:str"


class YamlValue(NamedTuple):
    """One value: a scalar with its text in ``raw``, a map of `YamlEntry` by key, or a tuple of values."""

    place: FilePosition
    value: YamlScalar | dict[str, YamlEntry] | tuple[YamlValue, ...]
    raw: str | None = None

    @property
    def entries(self) -> dict[str, YamlEntry]:
        """The map's entries; an empty map for anything else."""
        return self.value if isinstance(self.value, dict) else {}

    def to_plain_data(self) -> Any:
        """Return plain dicts, lists and scalars. The tree is at most ``MAX_DEPTH`` deep."""
        if isinstance(self.value, dict):
            return {key: entry.item.to_plain_data() for key, entry in self.value.items()}
        if isinstance(self.value, tuple):
            return [item.to_plain_data() for item in self.value]
        return self.value

    def to_json_text(self) -> str:
        """Return compact JSON; numbers keep their spelling if JSON allows it."""
        if isinstance(self.value, dict):
            pairs = (f"{_dump_json_scalar(key)}:{entry.item.to_json_text()}" for key, entry in self.value.items())
            return "{" + ",".join(pairs) + "}"
        if isinstance(self.value, tuple):
            return "[" + ",".join(item.to_json_text() for item in self.value) + "]"
        if isinstance(self.value, int | float) and self.raw is not None and _JSON_NUMBER.fullmatch(self.raw):
            return self.raw
        return _dump_json_scalar(self.value)


class YamlEntry(NamedTuple):
    """A key of a map, its position, and its value."""

    place: FilePosition
    item: YamlValue


def find_value(root: YamlValue, path: YamlPath) -> YamlValue | None:
    """Return the value at a path such as ``("nodes", 0, "port")``, None if there is none."""
    steps = list(_walk_path(root, path))
    return steps[-1].item if len(steps) == len(path) + 1 else None


def find_position(root: YamlValue, path: YamlPath, *, key: bool = False) -> FilePosition:
    """Return the position of the value (or key) at ``path``, or of the nearest existing value around it."""
    steps = list(_walk_path(root, path))
    return steps[-1].place if key and len(steps) == len(path) + 1 else steps[-1].item.place


def _walk_path(root: YamlValue, path: YamlPath) -> Iterator[YamlEntry]:
    item = root
    yield YamlEntry(root.place, root)
    for step in path:
        if isinstance(item.value, dict) and step in item.value:
            entry = item.value[str(step)]
        elif isinstance(item.value, tuple) and isinstance(step, int) and 0 <= step < len(item.value):
            entry = YamlEntry(item.value[step].place, item.value[step])
        else:
            return
        yield entry
        item = entry.item


def read_yaml(path: Path) -> YamlValue:
    """Read one file. Raises `InvalidFile` with every fault and its position, `InvalidInput` if it cannot be read."""
    try:
        with open_regular_file(path) as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InvalidInput(f"{path}: cannot be read: {reason}", advise_on_refused_file(path, error)) from error
    except ValueError as error:  # a NUL in the path
        raise InvalidInput(f"{quote_source(path)} is not a path") from error
    return parse_yaml(raw, str(path))


@lru_cache(maxsize=64)  # the panel and a switch read the same profiles again and again; nobody changes a tree
def parse_yaml(raw: bytes, file: str) -> YamlValue:
    """Parse the bytes of one document; ``file`` is its name in faults. Raises `InvalidFile`."""
    reader = _YamlTreeReader(file)
    text = reader.decode_text(raw)
    root = reader.build_tree(text) if not reader.faults else None
    if reader.faults or root is None:
        raise InvalidFile(reader.faults or [FileIssue(FilePosition(file, 1, 1), EMPTY_FILE_TEXT)])
    return root


def resolve_scalar(text: str) -> YamlScalar:
    """Return the meaning of an unquoted scalar: YAML 1.2 core schema in decimal; anything else is text."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    if _INT.fullmatch(text):
        return int(text)
    if len(text) <= 40 and _FLOAT.fullmatch(text) and math.isfinite(number := float(text)):
        return number
    return text


def find_forbidden_character(text: str) -> re.Match[str] | None:
    """Return the first character that no file may contain: a control other than tab and line end, or half a surrogate."""
    return _FORBIDDEN_CHARACTERS.search(text)


class _AbortReadingError(Exception):
    """Reading cannot continue; the fault is already recorded."""


class _YamlTreeReader:
    """Builds the tree from parser events. It calls itself for what is inside a collection, ``MAX_DEPTH`` deep at most."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.faults: list[FileIssue] = []
        # each with its size and height; None: its collection is still open
        self.anchors: dict[str, tuple[YamlValue, int, int] | None] = {}
        self.aliases = 0
        self.items = 0
        self.deepest = 0  # depth of the innermost collection inside the one that is being read

    def decode_text(self, raw: bytes) -> str:
        """Return the text; an empty one if it cannot be decoded, with the fault recorded."""
        start = FilePosition(self.file, 1, 1)
        if len(raw) > MAX_BYTES:
            self.faults.append(FileIssue(start, f"the file is larger than {MAX_BYTES // 1024} KiB"))
            return ""
        if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
            self.faults.append(FileIssue(start, "the file is UTF-16; save it as UTF-8"))
            return ""
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            before = error.object[: error.start].decode("utf-8", "replace")
            self.faults.append(FileIssue(self._position_after(before), "this is not UTF-8 text"))
            return ""
        if bad := find_forbidden_character(text.replace("\r\n", " \n")):
            place = self._position_after(text.replace("\r\n", " \n")[: bad.start()])
            self.faults.append(FileIssue(place, f"a control character (U+{ord(bad[0]):04X}) is not allowed here"))
            return ""
        return text

    def build_tree(self, text: str) -> YamlValue | None:
        """Return the document's value, None if there is none, with the faults recorded."""
        import yaml

        loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        root: YamlValue | None = None
        try:
            get_event = loader(text).get_event
            while (event := get_event()) is not None:
                if isinstance(event, yaml.NodeEvent):
                    root = self._read_value(get_event, event, 0)
                elif isinstance(event, yaml.DocumentStartEvent) and root is not None:
                    self._abort_reading(self._find_place(event), "a second document begins here; a file holds one")
        except yaml.YAMLError as error:
            mark, what = explain_parser_error(error)
            self.faults.append(FileIssue(self._mark_to_position(mark, text), what))
        except _AbortReadingError:
            pass
        return root

    def _read_value(self, get_event: Callable[[], Any], event: Any, depth: int) -> YamlValue:
        """Return the value that begins with this event; ``depth`` collections are open around it."""
        kind, place = event.__class__.__name__, self._find_place(event)
        if kind == "ScalarEvent":
            text = self._read_text(event, place)
            plain = event.tag is None and event.implicit[0]
            item: YamlValue = _make(YamlValue, (place, resolve_scalar(text) if plain else text, text))
            if event.anchor:
                self.anchors[event.anchor] = (item, 1, 0)
            return item
        if kind == "AliasEvent":
            return self._read_alias(event.anchor, place, depth)
        self._check_depth(place, depth + 1)
        if event.tag is not None:
            self.faults.append(FileIssue(place, f"the tag {quote_source(event.tag)} is not supported here"))
        if event.anchor:
            self.anchors[event.anchor] = None
        before, beside, self.deepest = self.items, self.deepest, depth + 1
        read = self._read_map if kind == "MappingStartEvent" else self._read_list
        item = YamlValue(place, read(get_event, depth + 1))
        self._count_items(place, 1)
        if event.anchor:
            self.anchors[event.anchor] = (item, self.items - before, self.deepest - depth)
        self.deepest = max(self.deepest, beside)
        return item

    def _read_map(self, get_event: Callable[[], Any], depth: int) -> dict[str, YamlEntry]:
        found: dict[str, YamlEntry] = {}
        while (kind := (event := get_event()).__class__.__name__) != "MappingEndEvent":
            place, key = self._find_place(event), None
            if kind == "ScalarEvent" and not event.anchor:
                key = self._read_text(event, place)
            elif kind in ("ScalarEvent", "AliasEvent"):
                key = self._read_value(get_event, event, depth).raw
            else:
                self._check_depth(place, depth + 1)
            if key is None:
                self._abort_reading(place, "a key must be plain text")
            if key in found:
                first = found[key].place.line
                self.faults.append(FileIssue(place, f"{quote_source(key)} appears twice, first in line {first}"))
            item = self._read_value(get_event, get_event(), depth)
            found.setdefault(key, _make(YamlEntry, (place, item)))
        return found

    def _read_list(self, get_event: Callable[[], Any], depth: int) -> tuple[YamlValue, ...]:
        found = []
        while (event := get_event()).__class__.__name__ != "SequenceEndEvent":
            found.append(self._read_value(get_event, event, depth))
        return tuple(found)

    def _read_text(self, event: Any, place: FilePosition) -> str:
        text: str = event.value
        if event.style == '"' and (bad := find_forbidden_character(text)):  # by an escape; `decode_text` saw the others
            self.faults.append(FileIssue(place, f"a control character (U+{ord(bad[0]):04X}) is not allowed here"))
        if event.tag is not None and event.tag not in (_STR_TAG, "!"):
            self.faults.append(FileIssue(place, f"the tag {quote_source(event.tag)} is not supported here"))
        self._count_items(place, 1)
        return text

    def _read_alias(self, name: str, place: FilePosition, depth: int) -> YamlValue:
        self.aliases += 1
        if self.aliases > MAX_ALIASES:
            self._abort_reading(place, f"more than {MAX_ALIASES} aliases")
        if name not in self.anchors:
            self._abort_reading(place, f"the alias {quote_source(name)} has no anchor above it")
        target = self.anchors[name]
        if target is None:
            self._abort_reading(place, f"the alias {quote_source(name)} is inside its own anchor")
        item, size, height = target
        self._count_items(place, size)
        self._check_depth(place, depth + height)
        self.deepest = max(self.deepest, depth + height)
        return item

    def _count_items(self, place: FilePosition, more: int) -> None:
        self.items += more
        if self.items > MAX_ITEMS:
            self._abort_reading(place, f"more than {MAX_ITEMS} values")

    def _check_depth(self, place: FilePosition, depth: int) -> None:
        if depth > MAX_DEPTH:
            self._abort_reading(place, f"nested deeper than {MAX_DEPTH}")

    def _find_place(self, event: Any) -> FilePosition:
        mark = event.start_mark
        place: FilePosition = _make(FilePosition, (self.file, mark.line + 1, mark.column + 1))
        return place

    def _abort_reading(self, place: FilePosition, message: str) -> NoReturn:
        self.faults.append(FileIssue(place, message))
        raise _AbortReadingError

    def _mark_to_position(self, mark: Any, text: str) -> FilePosition:
        """Return a parser's mark as a position; one behind the end of the file becomes the end."""
        if mark is None:
            return FilePosition(self.file, 1, 1)
        there, end = FilePosition(self.file, mark.line + 1, mark.column + 1), self._position_after(text)
        return min(there, end, key=lambda place: (place.line or 0, place.column or 0))

    def _position_after(self, before: str) -> FilePosition:
        return FilePosition(self.file, before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)


def _dump_json_scalar(value: object) -> str:
    import json  # a config needs none of it

    return json.dumps(value, ensure_ascii=False)


# What the parser says, by a part of its words, the first that it holds counts; libyaml and the parser in Python say it differently.
_PARSER_PROBLEMS = (
    ("nesting depth", f"nested deeper than {MAX_DEPTH}"),  # libyaml has a bound of its own, and reads ahead
    ("start any token", "no value begins like this: indent with spaces, and quote text that begins with @, `, % or a tab"),
    ("mapping values", "no `: ` can stand here: is this line, or the one above it, indented too far? If not, quote text that holds ': '"),
    ("tab character", "a tab stands here: indent with spaces"),
    ("simple key", "this line is no `key: value`: is its `:` missing, or is it indented differently from the ones around it?"),
    ("unexpected end of stream", "the quote that begins here has no end: add it"),
    ("unexpected document", "the quote that begins here has no end: add it"),
    ("quoted scalar", "this \\ begins no character that YAML knows: write \\\\ for a backslash, or take '...' for \"...\""),
    ("flow sequence", "the [ that begins here has no end: add `]`, or a missing `,` between its items"),
    ("flow mapping", "the { that begins here has no end: add `}`, or a missing `,` between its keys"),
    ("node content", "a value, or the end of [ or {, is missing here: add it, or quote text that begins with `,`, `]` or `}`"),
    ("block collection", "this is no item of the list above: begin it with `- `, and indent it as the others"),
    ("block mapping", "this is no key of the map above: is it indented differently from the ones around it, or does a quote end too early?"),
    ("sequence entries", "no list can begin here: write each `- ` on a line of its own, below its key"),
    ("block scalar", "only the lines below belong to the text that | or > begins: move this there"),
    ("scanning an a", "no name stands behind this * or &: quote text that begins with it"),  # an alias, an anchor
    ("undefined alias", "no & with this name stands above: quote text that begins with *"),
    ("directive", "no line can begin with %: quote it"),
    ("tag", "quote text that begins with !"),
)  # fmt: skip
_UNKNOWN_PROBLEM = "this is not YAML: compare it with the lines around it"
# What is looked for at the place where it begins, not where the parser gave up.
_OPENING_PROBLEMS = ("simple key", "unexpected end of stream", "unexpected document", "flow sequence", "flow mapping")


def explain_parser_error(error: Exception) -> tuple[Any, str]:
    """Return where it is, as the parser's mark, and what is wrong and what to do, for an owner who never saw a YAML parser."""
    marks = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
    problem = f"{getattr(error, 'context', None)} {getattr(error, 'problem', None) or error}"
    what = next((words for part, words in _PARSER_PROBLEMS if part in problem), _UNKNOWN_PROBLEM)
    is_opening = any(part in problem for part in _OPENING_PROBLEMS)
    return (marks[1] or marks[0] if is_opening else marks[0] or marks[1]), what
