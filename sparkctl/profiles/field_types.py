"""What the kinds of values in a profile are: how each is read, described to an editor, and written back.

The functions that read take the text as written and raise ValueError, which says what is expected.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sparkctl.engines import engine_names
from sparkctl.errors import format_did_you_mean
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.missing_part import parse_build_source, parse_model_source
from sparkctl.model.profile import ArgValue, FlagValues, JsonValue
from sparkctl.model.profile_field import FieldKind
from sparkctl.model.reference import FigureRange
from sparkctl.model.text.bounded_pattern import compile_bounded
from sparkctl.model.text.units import GIB, MIB, parse_duration, parse_size
from sparkctl.profiles.docker_options import (
    BARE_FLAG_VALUE,
    DOCKER_OPTIONS,
    FIELDS_INSTEAD_OF_OPTIONS,
    VALUE_PATTERNS,
    DockerOptionKind,
    is_bare_flag,
)
from sparkctl.profiles.env_references import REFERENCE_PATTERN
from sparkctl.profiles.yaml_reader import YamlValue, quote_source

CONTAINER_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+")
NEED_PATTERN = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{1,63}(?:@[A-Za-z0-9][A-Za-z0-9_.-]{0,62})?")
_REGISTRY_DOMAIN = r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?(?::[0-9]+)?|\[[0-9a-fA-F:]+\](?::[0-9]+)?)"
_IMAGE_NAME_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_IMAGE_REFERENCE = re.compile(
    rf"(?:{_REGISTRY_DOMAIN}/)?{_IMAGE_NAME_PART}(?:/{_IMAGE_NAME_PART})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?"
)
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FLAG_KEY = re.compile(r"-{0,2}[A-Za-z][A-Za-z0-9_.-]*")
_PARAMETER_COUNT = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>[KMBT]?)", re.IGNORECASE)
_MODEL_SIZE = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?:(?P<unit>[KMGT])(?P<binary>i)?B)?", re.IGNORECASE)
_COUNT_UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_ULIMIT_NAMES = (
    "core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc", "rss", "rtprio",
    "rttime", "sigpending", "stack",
)  # fmt: skip
_ULIMIT_VALUE = re.compile(r"(-1|[0-9]+)(:(-1|[0-9]+))?")
_CDI_DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9_.-]+=[A-Za-z0-9_.:-]+")


def check_model_source(text: str) -> str:
    """Where a model can be downloaded, kept as written."""
    parse_model_source(text)
    return text


def check_build_source(text: str) -> str:
    """From what an image is built, kept as written."""
    parse_build_source(text)
    return text


def check_name(text: str) -> str:
    """A profile's or container's name, by Docker's rule."""
    if not CONTAINER_NAME.fullmatch(text) or len(text) > 64:
        raise ValueError(
            f"{quote_source(text)} is not a name; letters, digits, dot, dash and underscore, at least two, a letter or "
            "digit first"
        )
    return text


def check_image(text: str) -> str:
    """An image reference, ``registry/name:tag``."""
    if len(text) > 400 or not _IMAGE_REFERENCE.fullmatch(text):
        raise ValueError(f"{quote_source(text)} is not an image; write for example scitrera/dgx-spark-sglang:0.5.12")
    return text


def parse_engine_size(text: str) -> int:
    """Bytes for a model or an engine: a number without a unit is an error, not 96 bytes."""
    return _parse_large_size(text, "96GiB")


def parse_guard_floor(text: str) -> int:
    """Bytes of MemAvailable below which the guard acts."""
    if text.strip() == "0":
        raise ValueError("`0` is not a floor; write for example 512MiB, or guard: off instead of the map")
    return _parse_large_size(text, "512MiB")


def _parse_large_size(text: str, example: str) -> int:
    try:
        found = parse_docker_size(text)
    except ValueError:
        raise ValueError(f"{quote_source(text)} is not a size; write for example {example}") from None
    if found < MIB:
        raise ValueError(f"{quote_source(text)} is {found} bytes; write for example {example}")
    return found


def parse_weights_size(text: str) -> int:
    """Bytes of weights in the units of model pages: 27GB is 27 x 10^9, 25GiB is binary."""
    match = _MODEL_SIZE.fullmatch(text.strip()) if len(text) <= 40 else None
    if match is None:
        raise ValueError(f"{quote_source(text)} is not a size; write for example 27GB (10^9) or 25GiB (2^30)")
    base, unit = (1024 if match["binary"] else 1000), (match["unit"] or "").upper()
    found = int(float(match["number"]) * base ** ("KMGT".index(unit) + 1 if unit else 0))
    if found < MIB:
        raise ValueError(f"{quote_source(text)} is {found} bytes; write for example 27GB")
    return found


def parse_nonzero_size(text: str) -> int:
    """Bytes, more than 0."""
    found = parse_docker_size(text)
    if found < 1:
        raise ValueError(f"{quote_source(text)} is zero; write for example 64KiB, or leave it out")
    return found


def parse_positive_count(text: str) -> int:
    """A whole number, 1 or more."""
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) >= 1):
        raise ValueError(f"{quote_source(text)} is not a number of experts; write a whole number, 1 to 99999")
    return int(text)


def parse_docker_size(text: str) -> int:
    """Bytes."""
    if len(text) > 40:
        raise ValueError(f"{quote_source(text)} is not a size; write for example 16g, 512m or 4096")
    return parse_size(text)


def check_shm_size(text: str) -> str:
    """A size, kept as written because the docker run line shows it."""
    parse_docker_size(text)
    return text


def parse_duration_field(text: str) -> float:
    """A duration."""
    if len(text) > 40:
        raise ValueError(f"{quote_source(text)} is not a duration; write for example 90s, 20m or 1h30m")
    return parse_duration(text)


def parse_time_limit(text: str) -> float:
    """A duration above zero with its unit: a plain 45 might mean minutes."""
    found = parse_duration_field(text)
    if text.strip().replace(".", "", 1).isdigit() and found > 0:
        raise ValueError(f"{quote_source(text)} has no unit; write {text.strip()}s or {text.strip()}m")
    if found <= 0:
        raise ValueError(f"{quote_source(text)} is zero; write for example 20m")
    return found


def parse_parameter_count(text: str) -> int:
    """A number of parameters: ``27B``, ``350M`` or all its digits."""
    match = _PARAMETER_COUNT.fullmatch(text.strip()) if len(text) <= 40 else None
    if match is None:
        raise ValueError(f"{quote_source(text)} is not a count; write for example 27B or 350M")
    return round(float(match["number"]) * _COUNT_UNITS[match["unit"].lower()])


_FIGURE = re.compile(r"(?P<low>\d{1,9}(?:\.\d{1,6})?)(?: ?[-–] ?(?P<high>\d{1,9}(?:\.\d{1,6})?))?")


def parse_figure(text: str) -> FigureRange:
    """A measured figure above zero, ``12.7``, or the lowest and the highest, ``23-27``."""
    match = _FIGURE.fullmatch(text.strip()) if len(text) <= 40 else None
    if match is None:
        raise ValueError(f"{quote_source(text)} is not a figure; write for example 12.7 or 23-27")
    low = float(match["low"])
    high = float(match["high"] or low)
    if not 0 < low <= high:
        raise ValueError(
            f"{quote_source(text)} is not a range; the lower number comes first and is above zero, as in 23-27"
        )
    return FigureRange(low, high)


def parse_share(text: str) -> FigureRange:
    """A share in per cent, ``20%`` or ``60-70%``."""
    bare = text.strip().removesuffix("%").rstrip()
    if not text.strip().endswith("%"):
        raise ValueError(f"{quote_source(text)} is not a share; write it in per cent, for example 20% or 60-70%")
    found = parse_figure(bare)
    if found.high > 100:
        raise ValueError(f"{quote_source(text)} is too much; a share is at most 100%")
    return FigureRange(found.low / 100, found.high / 100)


def check_mount(text: str) -> str:
    """``source:target`` or ``source:target:ro``; the source is absolute, begins with ``~``, or is a volume's name."""
    parts = text.split(":")
    if len(parts) not in (2, 3) or not all(parts):
        raise ValueError(f"{quote_source(text)} is not a mount; write source:target or source:target:ro")
    if len(parts) == 3 and parts[2] not in ("ro", "rw"):
        raise ValueError(f"{quote_source(text)}: a mount ends with :ro, :rw or nothing, not :{parts[2]}")
    source, target = parts[0], parts[1]
    if not target.startswith("/"):
        raise ValueError(f"{quote_source(text)}: the target is a path in the container and begins with /")
    is_path = source.startswith(("/", "~/")) or source == "~"
    if not is_path and ("/" in source or source.startswith((".", "~")) or not CONTAINER_NAME.fullmatch(source)):
        raise ValueError(
            f"{quote_source(text)}: the source is a path on the node: begin it with / or ~/ (or name a volume)"
        )
    _refuse_misleading(text, source, target)
    return text


def _refuse_misleading(text: str, *paths: str) -> None:
    """Refuse paths with parts such as ``..`` that lead to another place than they seem to."""
    for path in paths:
        if (part := find_misleading_part(path)) is not None:
            raise ValueError(f"{quote_source(text)}: write the real path, without `{part}`")


def check_need(text: str) -> str:
    """A profile's name, with ``@NODE`` where it runs on another node."""
    if not NEED_PATTERN.fullmatch(text):
        raise ValueError(f"{quote_source(text)} is not a profile; write PROFILE or PROFILE@NODE")
    return text


def normalize_version(text: str) -> str:
    """The version of an engine, which decides which flags it knows."""
    if not re.fullmatch(r"v?[0-9]{1,4}(\.[0-9]{1,4}){1,2}[A-Za-z0-9.+-]{0,40}", text):
        raise ValueError(f"{quote_source(text)} is not a version; write it as in 0.5.12")
    return text.removeprefix("v")


def check_ready_regex(text: str) -> str:
    """A regular expression that Python's ``re`` knows, or ``none``."""
    try:
        compile_bounded(text)
    except (re.error, ValueError) as error:
        raise ValueError(f"{quote_source(text)} is not a regular expression: {error}") from error
    return text


def check_http_path(text: str) -> str:
    """A path on the engine's port, or ``none``."""
    if text != "none" and not re.fullmatch(r"/[!-~]*", text):
        raise ValueError(f"{quote_source(text)} is not a path; begin it with /, or write none")
    return text


def check_device(text: str) -> str:
    """A device's path on the node, or its CDI name."""
    if not text.startswith("/") and not _CDI_DEVICE.fullmatch(text):
        raise ValueError(f"{quote_source(text)} is not a device; write for example /dev/infiniband")
    if text.startswith("/"):
        _refuse_misleading(text, *text.split(":"))
    return text


def check_env_value(key: str, value: str) -> str:
    """The value of an environment variable; every ``${`` in it is closed."""
    if not _ENV_NAME.fullmatch(key):
        raise ValueError(f"{quote_source(key)} is not a variable's name")
    if "${" in REFERENCE_PATTERN.sub("", value):
        raise ValueError("a ${ is not a variable: write ${NAME} or ${NAME:-default}, or $${ for the text itself")
    return value


def check_arg_key(key: str) -> str:
    """An engine flag, with or without its dashes."""
    if not _FLAG_KEY.fullmatch(key):
        raise ValueError(f"{quote_source(key)} is not a flag; write it as in mem-fraction-static")
    return key


def check_ulimit(key: str, value: str) -> str:
    """``-1``, ``1024`` or ``1024:2048``."""
    if key not in _ULIMIT_NAMES:
        raise ValueError(f"{quote_source(key)} is not a ulimit{format_did_you_mean(key, _ULIMIT_NAMES)}")
    if not _ULIMIT_VALUE.fullmatch(value):
        raise ValueError(f"{quote_source(value)} is not a limit; write -1, 1024 or 1024:2048 (soft:hard)")
    return value


def find_docker_option_kind(key: str) -> DockerOptionKind:
    """How a further docker run flag takes its value."""
    if kind := DOCKER_OPTIONS.get(key):
        return kind
    bare = key.lstrip("-")
    if reason := FIELDS_INSTEAD_OF_OPTIONS.get(bare):
        raise ValueError(f"{quote_source(key)} cannot be set here: {reason}")
    raise ValueError(
        f"{quote_source(key)} is not a docker run flag that sparkctl can set{format_did_you_mean(bare, DOCKER_OPTIONS)}"
    )


def check_docker_option_value(key: str, value: str) -> str:
    """The value of a further docker run flag."""
    if (wanted := VALUE_PATTERNS.get(key)) and not wanted[0].fullmatch(value):
        raise ValueError(f"{quote_source(value)} cannot be; write for example {wanted[1]}")
    return value


def check_gpus(text: str) -> str:
    """``all``, ``none``, a number, or docker's own ``"device=0,1",capabilities=utility``."""
    if text == "none":
        return text
    for part in next(csv.reader([text.replace("\n", " ")]), []):
        key, given, value = part.partition("=")
        known = key in ("device", "driver", "capabilities") and value
        if not known and not re.fullmatch("all|[0-9]{1,3}", value if given and key == "count" else part):
            raise ValueError(f"{quote_source(text)} cannot be; write all, none, a number or device=0")
    return text


def check_engine_name(text: str) -> str:
    """The name of an engine that sparkctl knows."""
    if text not in engine_names():
        raise ValueError(
            f"there is no engine `{text[:60]}` (there are {', '.join(engine_names())})"
            f"{format_did_you_mean(text, engine_names())}"
        )
    return text


# --- the entries of maps with free keys ---

EntryPairs = list[tuple[str, Any]]


class _MissingValueError(ValueError):
    """The entry has no value."""


def parse_arg_entry(key: str, item: YamlValue) -> EntryPairs:
    """One engine flag with its value as it will be on the command line."""
    check_arg_key(key)
    return [(key, _parse_arg_value(item))]


def _parse_arg_value(item: YamlValue) -> ArgValue:
    if item.value is None:
        raise _MissingValueError("has no value; write true for a bare flag, false to leave it out")
    if isinstance(item.value, bool):
        return item.value
    if isinstance(item.value, dict):
        return JsonValue(item.to_json_text())
    if isinstance(item.value, tuple):
        if len(item.value) == 1 and isinstance(item.value[0].value, tuple):
            return FlagValues(tuple(_parse_repeated_value(each) for each in item.value[0].value))
        return tuple(_parse_repeated_value(each) for each in item.value)
    return item.raw or ""


def _parse_repeated_value(item: YamlValue) -> str:
    if isinstance(item.value, dict):
        return item.to_json_text()
    if isinstance(item.value, tuple) or item.value is None or isinstance(item.value, bool):
        raise ValueError("a list repeats the flag, so each of its entries is text or a number (or a map, as JSON)")
    return item.raw or ""


def parse_env_entry(key: str, item: YamlValue) -> EntryPairs:
    """One environment variable; any scalar by its text."""
    if item.raw is None:
        raise ValueError("must be text")
    if item.value is None and item.raw != "":
        raise _MissingValueError('has no value; write "" for an empty one')
    if item.value is None:
        raise _MissingValueError(f'has no value; write "" for an empty one, ${{{key}}} for your own')
    return [(key, check_env_value(key, item.raw))]


def parse_extra_entry(key: str, item: YamlValue) -> EntryPairs:
    """One value that an import kept, of any type."""
    return [(key, JsonValue(item.to_json_text()))]


def parse_ulimit_entry(key: str, item: YamlValue) -> EntryPairs:
    if item.raw is None:
        raise ValueError("must be a number or soft:hard")
    return [(key, check_ulimit(key, item.raw))]


def parse_docker_option_entry(key: str, item: YamlValue) -> EntryPairs:
    """One docker run flag; a list repeats it."""
    kind = find_docker_option_kind(key)
    if kind is DockerOptionKind.FLAG:
        if not isinstance(item.value, bool):
            raise ValueError("must be true or false")
        return [(key, BARE_FLAG_VALUE)] if item.value else []
    several = item.value if isinstance(item.value, tuple) else (item,)
    if isinstance(item.value, tuple) and kind is not DockerOptionKind.LIST:
        raise ValueError("takes one value, not a list")
    if any(each.raw is None or isinstance(each.value, bool) or not each.raw.strip() for each in several):
        raise ValueError("must be text" if kind is DockerOptionKind.TEXT else "must be text or a list of text")
    return [(key, check_docker_option_value(key, each.raw or "")) for each in several]


# --- and back to text ---

_BINARY_UNITS = ((GIB, "GiB"), (MIB, "MiB"))
_DECIMAL_UNITS = ((10**9, "GB"), (10**6, "MB"))
_COUNT_NAMES = ((10**9, "B"), (10**6, "M"))


def _format_weights_size(count: int) -> str:
    """Bytes in decimal units as model pages have them if that is exact, else binary, else all digits."""
    return _format_in_exact_unit(count, (*_DECIMAL_UNITS, *_BINARY_UNITS))


def _format_binary_size(count: int) -> str:
    return _format_in_exact_unit(count, _BINARY_UNITS)


def _format_parameter_count(count: int) -> str:
    text = _format_in_exact_unit(count, _COUNT_NAMES)
    if count <= 10**5 or text != str(count):
        return text
    short = f"{count / 10**9:.4f}".rstrip("0")
    return f"{short}B" if round(float(short) * 10**9) == count else text


def _format_in_exact_unit(count: int, units: Sequence[tuple[int, str]]) -> str:
    """Return a count in the largest unit that divides it exactly, else all digits."""
    return next((f"{count // unit}{name}" for unit, name in units if count % unit == 0), str(count))


def format_duration(value: float) -> str:
    if value and value % 60 == 0:
        return f"{value / 60:.0f}m"
    text = f"{value:.3f}".rstrip("0").rstrip(".")
    return f"{text}s"


def _format_figure(value: FigureRange) -> str:
    return f"{value.low:.10g}" if value.low == value.high else f"{value.low:.10g}-{value.high:.10g}"


def _format_share(value: FigureRange) -> str:
    return f"{_format_figure(FigureRange(round(value.low * 100, 6), round(value.high * 100, 6)))}%"


@dataclass(frozen=True, slots=True)
class FieldType:
    """A kind of value. ``parse`` takes text that is not blank; ``format`` returns YAML, None: the text itself."""

    parse: Callable[[str], Any]
    schema: Mapping[str, Any]
    format: Callable[[Any], str] | None = None


@dataclass(frozen=True, slots=True)
class MapType:
    """A kind of map with free keys: how an entry is read into pairs, and the rest of its JSON Schema."""

    parse_entry: Callable[[str, YamlValue], EntryPairs]
    schema: Mapping[str, Any]


_TEXT_SCHEMA = {"type": "string"}
_SIZE_SCHEMA = {
    "description": "Bytes, as in 96GiB or 16g; 1GB is 2^30 here, as Docker has it.",
    "type": ["string", "integer"],
}
FIELD_TYPES: dict[FieldKind, FieldType] = {
    FieldKind.TEXT: FieldType(str, _TEXT_SCHEMA),
    FieldKind.WORD: FieldType(str, {"type": ["string", "number"]}),
    FieldKind.BOOLEAN: FieldType(str, {"type": "boolean"}, lambda value: "true" if value else "false"),
    FieldKind.INTEGER: FieldType(int, {"type": "integer"}, str),
    FieldKind.NAME: FieldType(check_name, {"pattern": f"^{CONTAINER_NAME.pattern}$", "type": "string"}),
    FieldKind.NEED: FieldType(check_need, {"examples": ["orpheus-llm", "orpheus-llm@spark1"], "type": "string"}),
    FieldKind.IMAGE: FieldType(check_image, _TEXT_SCHEMA),
    FieldKind.ENGINE: FieldType(check_engine_name, _TEXT_SCHEMA),
    FieldKind.ENGINE_VERSION: FieldType(normalize_version, {"examples": ["0.5.12"], "type": ["string", "number"]}),
    FieldKind.FLAG_NAME: FieldType(
        check_arg_key,
        {"description": "A flag that this image's engine takes and no published version does.", "type": "string"},
    ),
    FieldKind.SIZE: FieldType(parse_engine_size, _SIZE_SCHEMA, _format_binary_size),
    FieldKind.GUARD_FLOOR: FieldType(parse_guard_floor, _SIZE_SCHEMA, _format_binary_size),
    FieldKind.MODEL_SIZE: FieldType(
        parse_weights_size,
        {
            "description": "Bytes, as in 27GB (10^9, as model pages have it) or 25GiB (2^30).",
            "type": ["string", "integer"],
        },
        _format_weights_size,
    ),
    FieldKind.MODEL_SOURCE: FieldType(check_model_source, {"examples": ["hf:Qwen/Qwen3.6-27B-FP8"], "type": "string"}),
    FieldKind.BUILD_SOURCE: FieldType(
        check_build_source, {"examples": ["./images/mine", "https://HOST/NAME.git#v1.2:docker"], "type": "string"}
    ),
    FieldKind.NONZERO_SIZE: FieldType(
        parse_nonzero_size, {"description": "Bytes, as in 64KiB.", "type": ["string", "integer"]}, str
    ),
    FieldKind.SHM_SIZE: FieldType(check_shm_size, _SIZE_SCHEMA),
    FieldKind.POSITIVE_COUNT: FieldType(parse_positive_count, {"minimum": 1, "type": "integer"}, str),
    FieldKind.PARAMETER_COUNT: FieldType(
        parse_parameter_count, {"examples": ["27B", "350M"], "type": ["string", "integer"]}, _format_parameter_count
    ),
    FieldKind.DURATION: FieldType(
        parse_duration_field,
        {"description": "A duration, as in 90s, 20m or 1h30m.", "type": ["string", "number"]},
        format_duration,
    ),
    FieldKind.TIME_LIMIT: FieldType(
        parse_time_limit, {"description": "A duration with its unit, as in 20m.", "type": "string"}, format_duration
    ),
    FieldKind.MOUNT: FieldType(check_mount, {"examples": ["~/models:/models:ro"], "type": "string"}),
    FieldKind.DEVICE: FieldType(check_device, {"examples": ["/dev/infiniband"], "type": "string"}),
    FieldKind.GPUS: FieldType(check_gpus, {"examples": ["all", "none"], "type": ["string", "integer"]}),
    FieldKind.HTTP_PATH: FieldType(check_http_path, {"examples": ["/health", "none"], "type": "string"}),
    FieldKind.REGEX: FieldType(check_ready_regex, {"format": "regex", "type": "string"}),
    FieldKind.FIGURE: FieldType(
        parse_figure, {"examples": ["12.7", "23-27"], "type": ["number", "string"]}, _format_figure
    ),
    FieldKind.SHARE: FieldType(parse_share, {"examples": ["20%", "60-70%"], "type": "string"}, _format_share),
}
MAP_TYPES: dict[FieldKind, MapType] = {
    FieldKind.ARGS: MapType(
        parse_arg_entry,
        {
            "description": "Engine flags without dashes: true is a bare flag, false leaves it out, a list repeats it, "
            "a map becomes JSON, a list in a list is several values for one flag.",
            "additionalProperties": {"type": ["string", "number", "boolean", "array", "object"]},
        },
    ),
    FieldKind.ENV: MapType(
        parse_env_entry,
        {
            "description": "${NAME} is the operator's own.",
            "additionalProperties": {"type": ["string", "number", "boolean"]},
        },
    ),
    FieldKind.EXTRA: MapType(
        parse_extra_entry, {"description": "What an import found but sparkctl does not use; it is only kept."}
    ),
    FieldKind.ULIMITS: MapType(parse_ulimit_entry, {"additionalProperties": {"type": ["string", "integer"]}}),
    FieldKind.DOCKER_OPTIONS: MapType(
        parse_docker_option_entry,
        {
            "description": "Further docker run flags.",
            "additionalProperties": False,
            "properties": {
                key: {"type": "boolean"} if is_bare_flag(key) else {"type": ["string", "number", "array"]}
                for key in DOCKER_OPTIONS
            },
        },
    ),
}


def find_misleading_part(path: str) -> str | None:
    """Return the first part of a path that leads elsewhere than it seems (``..``, ``.``, an empty one before its end), if any."""
    parts = path.removeprefix("/").removesuffix("/").split("/") if path not in ("", "/") else []
    return next((part or "//" for part in parts if part in ("", ".", "..")), None)
