"""Write a `Profile` as YAML the way a person would: fixed order, no default values, comments."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from sparkctl.model.profile import ArgValue, FlagValues, JsonValue, Profile
from sparkctl.model.profile_field import FieldKind, ProfileField
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.profiles.docker_options import is_bare_flag
from sparkctl.profiles.field_types import FIELD_TYPES, MAP_TYPES
from sparkctl.profiles.schema import FileField, FileSection, load_file_shape
from sparkctl.profiles.yaml_reader import resolve_scalar

LINE_WIDTH = 110
_PLAIN_SCALAR = re.compile(r"(?:[A-Za-z0-9_./~${(+]|-[A-Za-z0-9-])[^\n]*")
_UNSAFE_IN_PLAIN = re.compile(r": |:$| #|[\t\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff]|^[-?] ")
# Text that other tools read as another type: the booleans of YAML 1.1, and its numbers with colons and underscores.
_AMBIGUOUS_SCALAR = re.compile(
    r"(?i:yes|no|on|off|true|false)|[-+]?[0-9][0-9_]*+(?::[0-5]?[0-9])++(?:\.[0-9_]*+)?|[-+]?[0-9]++_[0-9_]*+"
)
_FLOW_CHARACTERS = re.compile(r"[,\[\]{}]")
_PLAIN_KEY = re.compile(r"[A-Za-z_./-][A-Za-z0-9_./ -]*")


def render_profile_yaml(profile: Profile, comments: Sequence[tuple[str, str]] = ()) -> str:
    """Return the file's text. ``comments``: dotted fields and the comment above each."""
    return "\n".join(_ProfileWriter(profile, comments).render_lines()) + "\n"


class _ProfileWriter:
    def __init__(self, profile: Profile, comments: Sequence[tuple[str, str]]) -> None:
        self.profile = profile
        self.words: dict[str, list[str]] = {}
        for path, text in comments:
            self.words.setdefault(path, []).append(text)
        self.said: set[str] = set()

    def render_lines(self) -> list[str]:
        body = ["schema: 1", *self._render_fields(load_file_shape(), self.profile, "")]
        left = [text for path, texts in self.words.items() if path not in self.said for text in texts]
        return [*_render_comment_lines(left, 0), *body]

    def _render_fields(self, section: FileSection, owner: Any, above: str) -> Iterator[str]:
        """Yield the lines of the fields that differ from their default."""
        for key, field in section.fields.items():
            path = f"{above}{key}"
            if field.name is None:
                lines = [] if field.section is None else self._render_section(key, field.section, owner)
            elif (value := getattr(owner, field.name)) == field.default:
                continue
            elif field.section is not None and field.is_list:
                lines = list(_render_section_list(field, field.section, value))
            elif field.section is not None and not above:
                lines = self._render_section(key, field.section, value)
            elif field.spec.kind in (FieldKind.ARGS, FieldKind.ENV, FieldKind.EXTRA, FieldKind.DOCKER_OPTIONS):
                lines = list(self._render_map(path, field.spec.kind, value))
            else:
                lines = _render_value(field, value, in_section=bool(above))
            if lines:
                yield from self._render_comments(path, 2 if above else 0)
                if field.spec.kind is FieldKind.EXTRA and path not in self.words:
                    yield "# Kept from the imported source; sparkctl does not use it."
                yield from (f"  {line}" if above and line else line for line in lines)

    def _render_section(self, key: str, section: FileSection, owner: Any) -> list[str]:
        lines = list(self._render_fields(section, owner, f"{key}."))
        return [f"{key}:", *lines] if lines else []

    def _render_map(self, path: str, kind: FieldKind, pairs: Sequence[tuple[str, Any]]) -> Iterator[str]:
        yield f"{path.rpartition('.')[2]}:"
        for name in dict.fromkeys(name for name, _ in pairs):
            yield from self._render_comments(f"{path}.{name}", 2)
            yield from _render_entry(kind, name, [value for key, value in pairs if key == name])

    def _render_comments(self, path: str, indent: int) -> Iterator[str]:
        self.said.add(path)
        yield from _render_comment_lines(self.words.get(path, []), indent)


def _render_entry(kind: FieldKind, name: str, values: Sequence[Any]) -> Iterator[str]:
    """Yield an entry of a map with free keys, indented below it. Only a `docker run` flag has several values."""
    if kind is FieldKind.EXTRA:
        yield from _render_data(name, _load_json_numbers_as_text(values[0].text), 2)
        return
    if kind is FieldKind.ARGS:
        texts = [_format_arg_value(value) for value in values]
    elif kind is FieldKind.DOCKER_OPTIONS and is_bare_flag(name):
        texts = [values[0]]
    else:
        texts = [_format_scalar(value, flow=len(values) > 1, words=True) for value in values]
    yield f"  {_format_key(name)}: {texts[0] if len(texts) == 1 else _format_flow_list(texts)}"


def _render_section_list(field: FileField, section: FileSection, items: Sequence[Any]) -> Iterator[str]:
    """Yield a list of maps: each as a block, the lists of maps in it with a line for each map."""
    yield f"{field.key}:"
    for item in items:
        mark = "  - "
        for own in section.fields.values():
            value = getattr(item, own.name or "")
            if value == own.default:
                continue
            if own.is_list and own.section is not None:
                flows = (f"  - {_format_flow_section(own.section, one)}" for one in value)
                lines = [f"{own.key}:", *flows]
            else:
                lines = _render_value(own, value, in_section=True)
            for line in lines:
                yield mark + line
                mark = "    "


def _render_value(field: FileField, value: Any, *, in_section: bool) -> list[str]:
    """Return the lines of a field: in a section always one, elsewhere as a block where that reads better."""
    if field.spec.kind is FieldKind.WORD:
        is_short = len(_format_flow_field(field, value)) < LINE_WIDTH + 2 and not any("\n" in word for word in value)
        if not is_short:
            return [f"{field.key}:", *(line for word in value for line in _render_list_item(word))]
    elif field.spec.kind is FieldKind.MOUNT:
        return [f"{field.key}:", *(f"  - {_format_scalar(item)}" for item in value)]
    elif field.spec.kind is FieldKind.TEXT and "\n" in value and not in_section:
        return list(_render_literal_block(f"{field.key}:", value))
    is_flow = field.is_collection or field.section is not None
    text = _format_flow_field(field, value) if is_flow else _format_field_scalar(field.spec, value, flow=False)
    return [f"{field.key}: {text}"]


def _format_flow_field(field: FileField, value: Any) -> str:
    """Return a field's value on one line, as it may stand inside a map or list."""
    if value is None:
        return "off"
    if field.section is not None:
        return _format_flow_section(field.section, value)
    if field.spec.kind in MAP_TYPES:
        return _format_flow_map([(key, _format_scalar(text, flow=True, words=True)) for key, text in value])
    if field.is_list:
        return _format_flow_list([_format_field_scalar(field.spec, one, flow=True) for one in value])
    return _format_field_scalar(field.spec, value, flow=True)


def _format_flow_section(section: FileSection, value: Any) -> str:
    inner = ((key, one, getattr(value, one.name or "")) for key, one in section.fields.items())
    return _format_flow_map([(key, _format_flow_field(one, own)) for key, one, own in inner if own != one.default])


def _format_field_scalar(spec: ProfileField, value: Any, *, flow: bool) -> str:
    known = FIELD_TYPES.get(spec.kind)
    if known is not None and known.format is not None:
        return known.format(value)
    return _format_scalar(value, flow=flow, words=spec.kind is FieldKind.WORD)


class _JsonNumber(str):
    """A number in a JSON text, as it was written."""

    __slots__ = ()


def _load_json_numbers_as_text(text: str) -> Any:
    return json.loads(text, parse_int=_JsonNumber, parse_float=_JsonNumber, parse_constant=str)


def _render_data(key: str, value: Any, indent: int) -> Iterator[str]:
    """Yield a key with its value, on one line if it fits."""
    blank = " " * indent
    flow = _format_flow_value(value)
    if isinstance(value, str) and not isinstance(value, _JsonNumber) and "\n" in value:
        yield from (f"{blank}{line}" for line in _render_literal_block(f"{_format_key(key)}:", value))
    elif not isinstance(value, dict | list) or len(flow) + len(key) + indent < LINE_WIDTH or not value:
        yield f"{blank}{_format_key(key)}: {flow}"
    elif isinstance(value, dict):
        yield f"{blank}{_format_key(key)}:"
        for name, one in value.items():
            yield from _render_data(name, one, indent + 2)
    else:
        yield f"{blank}{_format_key(key)}:"
        for one in value:
            yield f"{blank}  - {_format_flow_value(one)}"


def _format_flow_value(value: Any) -> str:
    if isinstance(value, _JsonNumber):
        return str(value)
    if isinstance(value, dict):
        return _format_flow_map([(key, _format_flow_value(one)) for key, one in value.items()])
    if isinstance(value, list):
        return _format_flow_list([_format_flow_value(one) for one in value])
    if isinstance(value, str):
        return _format_scalar(value, flow=True)
    return {True: "true", False: "false", None: "null"}[value]


def _format_flow_map(pairs: Sequence[tuple[str, str]]) -> str:
    return "{" + ", ".join(f"{_format_key(key, flow=True)}: {value}" for key, value in pairs) + "}"


def _format_flow_list(items: Sequence[str]) -> str:
    return "[" + ", ".join(items) + "]"


def _format_arg_value(value: ArgValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, JsonValue):
        return _format_flow_value(_load_json_numbers_as_text(value.text))
    if isinstance(value, FlagValues):
        return f"[{_format_flow_list([_format_scalar(word, flow=True, words=True) for word in value.words])}]"
    if isinstance(value, tuple):
        return _format_flow_list([_format_scalar(word, flow=True, words=True) for word in value])
    return _format_scalar(value, words=True)


def _format_scalar(text: str, *, flow: bool = False, words: bool = False) -> str:
    """Return a scalar that is read back as this text. ``words``: numbers keep their spelling here."""
    seen = resolve_scalar(text)
    number = words and isinstance(seen, int | float) and not isinstance(seen, bool)
    if (isinstance(seen, str) or number) and _is_plain(text, flow=flow):
        return text
    if "'" not in text and text.isprintable() and '"' in text:
        return f"'{text}'"
    return _quote_text(text)


def _is_plain(text: str, *, flow: bool) -> bool:
    if _AMBIGUOUS_SCALAR.fullmatch(text):
        return False
    if (
        not text
        or text != text.strip()
        or not _PLAIN_SCALAR.fullmatch(text)
        or _UNSAFE_IN_PLAIN.search(text)
        or text[0] in "{"
    ):
        return False
    return not (flow and (_FLOW_CHARACTERS.search(text) or text.endswith(":")))


def _format_key(text: str, *, flow: bool = False) -> str:
    plain = (
        _PLAIN_KEY.fullmatch(text)
        and not _AMBIGUOUS_SCALAR.fullmatch(text)
        and text == text.strip()
        and not text.startswith(("- ", "---"))
        and text != "-"
    )
    return text if plain and isinstance(resolve_scalar(text), str) else _quote_text(text)


def _render_list_item(word: str) -> Iterator[str]:
    if "\n" in word:
        yield from (f"  {line}" for line in _render_literal_block("-", word))
    else:
        yield f"  - {_format_scalar(word, words=True)}"


def _render_literal_block(head: str, text: str) -> Iterator[str]:
    """Yield a text of several lines as a block, or in quotes if a block would change it."""
    lines = text.split("\n")
    ending = {False: "-", True: ""}[text.endswith("\n")]
    body = lines[:-1] if text.endswith("\n") else lines
    odd = (
        text.endswith("\n\n")
        or not body
        or body[0][:1] in (" ", "\t", "")
        or _has_controls(text)
        or not body[-1].strip()
    )
    if odd:
        yield f"{head} {_quote_text(text)}"
        return
    yield f"{head} |{ending}"
    yield from (f"  {line}" if line else "" for line in body)


def _quote_text(text: str) -> str:
    """Return a text in double quotes, with unprintable characters escaped as in YAML."""
    escaped = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"}
    return (
        '"'
        + "".join(escaped.get(char) or (char if char.isprintable() else _escape_character(char)) for char in text)
        + '"'
    )


def _escape_character(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def _has_controls(text: str) -> bool:
    return re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff]", text) is not None


def _render_comment_lines(texts: Sequence[str], indent: int) -> Iterator[str]:
    for text in texts:
        for line in textwrap.wrap(
            " ".join(sanitize_line(text).split()),
            LINE_WIDTH - indent - 2,
            break_long_words=False,
            break_on_hyphens=False,
        ):
            yield f"{' ' * indent}# {line}"
