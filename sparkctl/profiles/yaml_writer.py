"""Write a `Profile` as YAML the way a person would: fixed order, no default values, comments."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sparkctl.model.launch_plan import GuardRule, PhaseTimeouts
from sparkctl.model.profile import ArgValue, FlagValues, JsonValue, ModelSpec, Profile
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import GIB, MIB
from sparkctl.profiles.docker_options import DOCKER_OPTIONS, DockerOptionKind
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
        body = list(self._render_body())
        left = [text for path, texts in self.words.items() if path not in self.said for text in texts]
        return [*_render_comment_lines(left, 0), *body]

    def _render_body(self) -> Iterator[str]:
        one = self.profile
        yield from self._render_pair("schema", "1")
        yield from self._render_text("name", one.name)
        yield from self._render_text("title", one.title)
        yield from self._render_text("engine", one.engine)
        yield from self._render_text("engine_version", one.engine_version)
        yield from self._render_text("image", one.image)
        if one.patched_flags:
            yield from self._render_pair(
                "patched_flags", _format_flow_list([_format_scalar(flag, flow=True) for flag in one.patched_flags])
            )
        yield from self._render_map("model", _format_model_fields(one.model))
        yield from self._render_pair("nodes", str(one.nodes) if one.nodes != 1 else None)
        yield from self._render_pair("port", None if one.port is None else str(one.port))
        yield from self._render_word_list("command", one.command)
        yield from self._render_entries("args", [(key, _format_arg_value(value)) for key, value in one.args])
        yield from self._render_entries("env", [(key, _format_scalar(value, words=True)) for key, value in one.env])
        yield from self._render_text("env_file", one.env_file)
        yield from self._render_list("mounts", one.mounts)
        yield from self._render_container()
        memory = {"expected": _format_binary_size(one.expected_memory), "floor": _format_binary_size(one.floor_memory)}
        yield from self._render_map("memory", memory | {"draft_workspace": one.draft_workspace})
        yield from self._render_start()
        yield from self._render_map(
            "stop", {} if one.stop_grace == 30.0 else {"grace": _format_duration(one.stop_grace)}
        )
        yield from self._render_text("liveness", one.liveness)
        yield from self._render_text("group", one.group)
        yield from self._render_block("notes", one.notes)
        yield from self._render_text("source", one.source)
        yield from self._render_extra()

    def _render_comments(self, path: str, indent: int = 0) -> Iterator[str]:
        self.said.add(path)
        yield from _render_comment_lines(self.words.get(path, []), indent)

    def _render_pair(self, key: str, text: str | None) -> Iterator[str]:
        if text is not None:
            yield from self._render_comments(key)
            yield f"{key}: {text}"

    def _render_text(self, key: str, text: str | None) -> Iterator[str]:
        yield from self._render_pair(key, None if text is None else _format_scalar(text))

    def _render_map(self, key: str, values: Mapping[str, str | None]) -> Iterator[str]:
        yield from self._render_entries(key, [(name, value) for name, value in values.items() if value is not None])

    def _render_entries(self, key: str, pairs: Sequence[tuple[str, str]]) -> Iterator[str]:
        if not pairs:
            return
        yield from self._render_comments(key)
        yield f"{key}:"
        for name, value in pairs:
            yield from self._render_comments(f"{key}.{name}", 2)
            yield f"  {_format_key(name)}: {value}"

    def _render_word_list(self, key: str, words: tuple[str, ...] | None) -> Iterator[str]:
        if words is None:
            return
        yield from self._render_comments(key)
        flow = ", ".join(_format_scalar(word, flow=True, words=True) for word in words)
        if len(flow) < LINE_WIDTH and not any("\n" in word for word in words):
            yield f"{key}: [{flow}]"
            return
        yield f"{key}:"
        for word in words:
            yield from _render_list_item(word)

    def _render_list(self, key: str, items: Sequence[str]) -> Iterator[str]:
        if items:
            yield from self._render_comments(key)
            yield f"{key}:"
            for item in items:
                yield f"  - {_format_scalar(item)}"

    def _render_container(self) -> Iterator[str]:
        box = self.profile.container
        plain = {"name": box.name, "gpus": box.gpus, "shm_size": box.shm_size, "ipc": box.ipc, "network": box.network,
                 "entrypoint": box.entrypoint}  # fmt: skip
        lines = [(key, _format_scalar(value)) for key, value in plain.items() if value is not None]
        if box.ulimits:
            lines.append(
                (
                    "ulimits",
                    _format_flow_map(
                        [(key, _format_scalar(value, flow=True, words=True)) for key, value in box.ulimits]
                    ),
                )
            )
        if box.devices:
            lines.append(("devices", _format_flow_list([_format_scalar(device, flow=True) for device in box.devices])))
        if not lines and not box.options:
            return
        yield from self._render_comments("container")
        yield "container:"
        for key, text in lines:
            yield from self._render_comments(f"container.{key}", 2)
            yield f"  {key}: {text}"
        if box.options:
            yield "  options:"
        for name in dict.fromkeys(name for name, _ in box.options):
            values = [value for option, value in box.options if option == name]
            if DOCKER_OPTIONS.get(name) is DockerOptionKind.FLAG:
                text = values[0]
            else:
                several = [_format_scalar(value, flow=len(values) > 1, words=True) for value in values]
                text = several[0] if len(several) == 1 else _format_flow_list(several)
            yield from self._render_comments(f"container.options.{name}", 4)
            yield f"    {name}: {text}"

    def _render_start(self) -> Iterator[str]:
        rules = self.profile.start
        values: dict[str, str | None] = {
            "drop_caches": None if rules.drop_caches else "false",
            "ready_line": None if rules.ready_line is None else _format_scalar(rules.ready_line),
            "health": None if rules.health is None else _format_scalar(rules.health),
            "probe": rules.probe,
            "prompt": None if rules.prompt is None else _format_scalar(rules.prompt),
            "timeouts": _format_timeouts(rules.timeouts),
            "expected": None if rules.expected is None else _format_duration(rules.expected),
            "guard": _format_guard(rules.guard),
        }
        yield from self._render_map("start", values)

    def _render_block(self, key: str, text: str | None) -> Iterator[str]:
        if text is not None and "\n" in text:
            yield from self._render_comments(key)
            yield from _render_literal_block(f"{key}:", text)
        else:
            yield from self._render_text(key, text)

    def _render_extra(self) -> Iterator[str]:
        if not self.profile.extra:
            return
        above = list(self._render_comments("extra"))
        yield from above or ["# Kept from the imported source; sparkctl does not use it."]
        yield "extra:"
        for key, kept in self.profile.extra:
            yield from self._render_comments(f"extra.{key}", 2)
            yield from _render_data(key, _load_json_numbers_as_text(kept.text), 2)


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


def _format_model_fields(model: ModelSpec) -> dict[str, str | None]:
    experts = model.experts
    return {
        "path": None if model.path is None else _format_scalar(model.path),
        "served_name": None if model.served_name is None else _format_scalar(model.served_name),
        "weights": _format_weights_size(model.weights),
        "parameters": _format_parameter_count(model.parameters),
        "active_parameters": _format_parameter_count(model.active_parameters),
        "experts": None
        if experts is None
        else f"{{weights: {_format_weights_size(experts.weights)}, count: {experts.count}, per_token: {experts.per_token}}}",
        "draft_weights": _format_weights_size(model.draft_weights),
        "kv_per_token": None if model.kv_per_token is None else str(model.kv_per_token),
    }


_BINARY_UNITS = ((GIB, "GiB"), (MIB, "MiB"))
_DECIMAL_UNITS = ((10**9, "GB"), (10**6, "MB"))
_COUNT_UNITS = ((10**9, "B"), (10**6, "M"))


def _format_weights_size(count: int | None) -> str | None:
    """Bytes in decimal units as model pages have them if that is exact, else binary, else all digits."""
    return _format_in_exact_unit(count, (*_DECIMAL_UNITS, *_BINARY_UNITS))


def _format_binary_size(count: int | None) -> str | None:
    return _format_in_exact_unit(count, _BINARY_UNITS)


def _format_parameter_count(count: int | None) -> str | None:
    text = _format_in_exact_unit(count, _COUNT_UNITS)
    if count is None or count <= 10**5 or text != str(count):
        return text
    short = f"{count / 10**9:.4f}".rstrip("0")
    return f"{short}B" if round(float(short) * 10**9) == count else text


def _format_in_exact_unit(count: int | None, units: Sequence[tuple[int, str]]) -> str | None:
    """Return a count in the largest unit that divides it exactly, else all digits."""
    if count is None:
        return None
    return next((f"{count // unit}{name}" for unit, name in units if count % unit == 0), str(count))


def _format_duration(value: float) -> str:
    if value and value % 60 == 0:
        return f"{value / 60:.0f}m"
    text = f"{value:.3f}".rstrip("0").rstrip(".")
    return f"{text}s"


def _format_timeouts(limits: PhaseTimeouts) -> str | None:
    usual = PhaseTimeouts()
    changed = [
        (name, _format_duration(getattr(limits, name)))
        for name in ("creating", "starting", "loading", "warming")
        if getattr(limits, name) != getattr(usual, name)
    ]
    return _format_flow_map(changed) if changed else None


def _format_guard(rule: GuardRule | None) -> str | None:
    if rule is None:
        return "off"
    usual = GuardRule()
    changed: list[tuple[str, str]] = []
    if rule.floor != usual.floor:
        changed.append(("floor", _format_binary_size(rule.floor) or ""))
    if rule.cache_below is not None:
        changed.append(("cache_below", _format_binary_size(rule.cache_below) or ""))
    if rule.limit is not None:
        changed.append(("limit", _format_duration(rule.limit)))
    return _format_flow_map(changed) if changed else None
