"""Check a profile's flags before a start: what a diagnostic says. The rule, its severity, the position, and the fix."""

from __future__ import annotations

from enum import StrEnum

from sparkctl.model.lazy_dataclass import dataclass

# A position in a profile: keys and indices, as in ("args", "tp") or ("command", 3).
FieldPath = tuple[str | int, ...]


class LintSeverity(StrEnum):
    """Error: the engine refuses to start. Warning: it may fail. Info: good to know."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class LintRule(StrEnum):
    """A closed set, documented in docs/profiles.md."""

    PROFILE = "profile"  # the file itself: YAML, keys, values
    UNKNOWN_FLAG = "unknown-flag"
    REMOVED_FLAG = "removed-flag"
    AMBIGUOUS_FLAG = "ambiguous-flag"
    ABBREVIATED_FLAG = "abbreviated-flag"
    DEPRECATED_FLAG = "deprecated-flag"
    BAD_CHOICE = "bad-choice"
    BAD_VALUE = "bad-value"
    BAD_KEY = "bad-key"
    MISSING_VALUE = "missing-value"
    UNWANTED_VALUE = "unwanted-value"
    REPEATED_FLAG = "repeated-flag"
    STAYS_ON = "stays-on"
    LOST_FLAGS = "lost-flags"
    MISSING_FLAG = "missing-flag"
    BAD_COMBINATION = "bad-combination"
    KNOWN_TRAP = "known-trap"
    FAMILY_MISMATCH = "family-mismatch"
    MEMORY_SHARE = "memory-share"
    LONG_CONTEXT = "long-context"
    SLOW_DRAFTS = "slow-drafts"
    NO_METRICS = "no-metrics"
    CONTAINER_SETTING = "container-setting"
    TIME_LIMIT = "time-limit"
    PATCHED_FLAG = "patched-flag"
    ENGINE_VERSION = "engine-version"


class LintFixKind(StrEnum):
    """How a fix edits a file."""

    RENAME = "rename"  # the key at ``where`` becomes ``text``
    REPLACE = "replace"  # the scalar at ``where`` becomes ``text``
    ADD = "add"  # the entry ``where`` is added with the value ``text``


@dataclass(frozen=True, slots=True)
class LintFix:
    """One edit that changes only what is wrong."""

    kind: LintFixKind
    where: FieldPath
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LintMessage:
    """``on_key``: it is about the key at ``where``, otherwise about its value. ``flag``: as written, empty if it is
    about no flag. ``ends_start``: as an error of the very version that runs, its parser ends at it: nothing but another
    build of the engine takes it.

    ``setting``: the ``field=value`` that fixes it for one start. ``change``: the edit that fixes the file, if one is
    safe.
    """

    kind: LintRule
    level: LintSeverity
    where: FieldPath
    message: str
    on_key: bool = True
    flag: str = ""
    ends_start: bool = False
    setting: str | None = None
    change: LintFix | None = None
