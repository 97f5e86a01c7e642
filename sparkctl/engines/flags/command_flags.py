"""Read flags from a command line, whatever launches it. Pure."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparkctl.model.profile import Profile

_SHELL_NAMES = ("sh", "bash", "dash", "zsh", "ash")


def find_shell_script(words: Sequence[str]) -> int | None:
    """Return the index of SCRIPT in ``bash -lc SCRIPT`` or ``bash -c -i SCRIPT``, None for any other command.

    Words after it are arguments of the script (``$0``, ``$1``): flags added to such a command have no effect.
    """
    if len(words) < 3 or words[0].rpartition("/")[2] not in _SHELL_NAMES:
        return None
    at, has_script = 1, False
    while at < len(words) and words[at].startswith("-") and not words[at].startswith("--"):
        has_script = has_script or "c" in words[at]  # more options may follow: bash -c -i SCRIPT
        at += 2 if words[at] == "-o" else 1
    return at if has_script and at < len(words) else None


def find_profile_script(profile: Profile) -> int | None:
    """Return the index of the script in a profile's command, whose shell may be its entry point; None if it has none."""
    command = profile.command or ()
    if (at := find_shell_script(command)) is None and profile.container.entrypoint:
        at = find_shell_script((profile.container.entrypoint, *command))
        return None if at is None else at - 1
    return at


_MAX_COUNT = 1 << 50


class CommandFlags:
    """The words of a launch; for a shell with a script, the words of the script."""

    def __init__(self, command: Sequence[str], entrypoint: str | None = None) -> None:
        is_shell = entrypoint is not None and find_shell_script((entrypoint, *command)) is not None
        self._words = _unwrap_script_words((entrypoint, *command) if entrypoint and is_shell else command)

    @property
    def all_words(self) -> tuple[str, ...]:
        """Every word, as the engine gets it."""
        return self._words

    def get_value(self, *flags: str) -> str | None:
        """Return the last value of these flags (names without dashes); "" for a bare flag, None if none is given."""
        wanted, found = {flag.replace("_", "-") for flag in flags}, None
        for at, word in enumerate(self._words):
            name, given, own = word.partition("=")
            if not _is_flag(name) or name.lstrip("-").replace("_", "-") not in wanted:
                continue
            following = self._words[at + 1] if at + 1 < len(self._words) else "--"
            found = own if given else "" if _is_flag(following) else following
        return found

    def has_flag(self, *flags: str) -> bool:
        """Tell whether one of these flags is given, with a value or bare."""
        return self.get_value(*flags) is not None

    def get_count(self, *flags: str) -> int | None:
        """Return a whole number, with the ``k`` and ``K`` that engines accept (8k is 8000, 8K is 8192); None for
        anything else.
        """
        text = self.get_value(*flags) or ""
        factor = {"k": 1000, "K": 1024}.get(text[-1:], 1)
        digits = text[:-1] if factor != 1 else text
        return int(digits) * factor if digits.isascii() and digits.isdigit() and len(digits) <= 15 else None

    def get_fraction(self, *flags: str) -> float | None:
        """Return a share above 0 and at most 1; None for anything else."""
        try:
            value = float(self.get_value(*flags) or "")
        except ValueError:
            return None
        return value if math.isfinite(value) and 0 < value <= 1 else None

    def get_json(self, *flags: str) -> Mapping[str, Any]:
        """Return a flag's JSON map, an empty one if there is none."""
        try:
            value = json.loads(self.get_value(*flags) or "")
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}

    def get_served_model(self) -> str | None:
        """Return the model after ``serve``, if it is given without a flag."""
        for at, word in enumerate(self._words[:-1]):
            if (
                (word == "serve" or word.endswith("-serve"))
                and not _is_flag(self._words[at + 1])
                and self._words[at + 1] != "serve"
            ):
                return self._words[at + 1]
        return None


def _is_flag(word: str) -> bool:
    return word.startswith("-") and word[1:2] not in ("", *"0123456789.")


def _unwrap_script_words(command: Sequence[str]) -> tuple[str, ...]:
    script = find_shell_script(command)
    if script is None:
        return tuple(command)
    try:
        words = shlex.split(command[script], comments=True)
    except ValueError:
        words = command[script].split()
    behind = tuple(command[script + 2 :])  # after the script comes its $0, and then its arguments
    return tuple(each for word in words for each in (behind if word == "$@" else (word,)))


def parse_positive_int(value: object) -> int | None:
    """Return a number from untrusted JSON as a count: above 0, and within a plausible limit."""
    known = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MAX_COUNT
    return value if known and isinstance(value, int) else None
