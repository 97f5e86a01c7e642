"""Which flag of a command names a path or a model that a line of its log is about. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

_MODEL_FLAGS = frozenset({"model", "model-path", "m", "served-model-name", "alias"})
_FILE_FLAG_PATTERN = re.compile("model|draft|spec|token|lora|adapter|mmproj|config|template")  # in a flag's name
_MIN_PATH_CHARS = 3  # characters: a shorter value stands in a line by chance


def find_flag_with_path(command: Sequence[str], text: str) -> str | None:
    """Return the flag, without dashes, whose value ``text`` names; None where it names none, or the model itself."""
    named: list[tuple[int, bool, str | None]] = []
    for flag, value in _iterate_flag_values(command):
        is_model = flag is None or flag in _MODEL_FLAGS
        has_files = is_model or _FILE_FLAG_PATTERN.search(flag or "") is not None
        for path in _iterate_paths(value):
            if _line_names_path(text, path, with_files=has_files):
                named.append((len(path.rstrip("/")), is_model, None if is_model else flag))
    return max(named, key=lambda one: one[:2], default=(0, True, None))[2]


def _iterate_flag_values(command: Sequence[str]) -> Iterator[tuple[str | None, str]]:
    """Yield each value of a command with its flag, None for what stands before any."""
    flag: str | None = None
    for word in command:
        if word.startswith("-") and len(word) > 1:
            name, equals, value = word.partition("=")
            flag = name.lstrip("-").replace("_", "-")
            if equals:
                yield flag, value
                flag = None
        else:
            yield flag, word


def _iterate_paths(value: str) -> Iterator[str]:
    """Yield what a value may name: itself, and each text in it where it is JSON; of NAME=PATH the path, too."""
    try:
        said = json.loads(value) if value[:1] in "{[" else value
    except (ValueError, RecursionError):
        said = value
    several = [said]
    while several:
        one = several.pop()
        if isinstance(one, dict):
            several += one.values()
        elif isinstance(one, list):
            several += one
        elif isinstance(one, str) and len(one) >= _MIN_PATH_CHARS and "/" in one:
            yield one
            if "=" in one:
                yield one.partition("=")[2]


def _line_names_path(text: str, path: str, *, with_files: bool) -> bool:
    """Tell whether a line names exactly this, or ``with_files`` something in it."""
    below = "" if with_files else r"|/(?!['\"\s]|$)"
    return re.search(rf"(?<![\w./-]){re.escape(path.rstrip('/'))}(?![\w-]|\.\w{below})", text) is not None
