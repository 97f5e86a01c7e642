"""Check the text of a profile's fields. Each error says what is expected.

Every function takes the text as written and raises ValueError. None of them knows pydantic.
"""

from __future__ import annotations

import csv
import re

from sparkctl.model.text.bounded_pattern import compile_bounded
from sparkctl.model.text.node_paths import find_misleading_part
from sparkctl.model.text.suggestions import format_did_you_mean
from sparkctl.model.text.units import MIB, parse_duration, parse_size
from sparkctl.profiles.docker_options import DOCKER_OPTIONS, FIELDS_INSTEAD_OF_OPTIONS, VALUE_PATTERNS, DockerOptionKind
from sparkctl.profiles.env_references import REFERENCE_PATTERN
from sparkctl.profiles.file_issues import quote_source

CONTAINER_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+")
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
        raise ValueError(f"{quote_source(text)} is nothing; write for example 64KiB, or leave it out")
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
        raise ValueError(f"{quote_source(text)} is no time at all; write for example 20m")
    return found


def parse_parameter_count(text: str) -> int:
    """A number of parameters: ``27B``, ``350M`` or all its digits."""
    match = _PARAMETER_COUNT.fullmatch(text.strip()) if len(text) <= 40 else None
    if match is None:
        raise ValueError(f"{quote_source(text)} is not a count; write for example 27B or 350M")
    return round(float(match["number"]) * _COUNT_UNITS[match["unit"].lower()])


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
