"""The state of the profiles screen: the profiles, where they run, and the selected one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from sparkctl.history.operation_history import LastStart
from sparkctl.logs.filter_pattern import FilterPattern
from sparkctl.model.instance import InstanceView
from sparkctl.model.memory_fit import MemoryFit
from sparkctl.model.node import NodeName
from sparkctl.model.profile import Profile
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.profiles.file_issues import FilePosition
from sparkctl.profiles.profile_library import ProfileEntry

if TYPE_CHECKING:
    from sparkctl.profiles.profile_lint import LintResult


class ProfileSort(StrEnum):
    """The order of the list."""

    NAME = "name"
    ENGINE = "engine"
    MODEL = "model"
    RUNS = "where it runs"
    STARTED = "last start"

    @property
    def next_order(self) -> ProfileSort:
        """The order after this one."""
        orders = list(ProfileSort)
        return orders[(orders.index(self) + 1) % len(orders)]


COLUMN_TITLES = ("profile", "engine", "model", "nodes", "check", "fits", "runs on", "last start")
SORT_BY_COLUMN = {
    "profile": ProfileSort.NAME,
    "engine": ProfileSort.ENGINE,
    "model": ProfileSort.MODEL,
    "runs on": ProfileSort.RUNS,
    "last start": ProfileSort.STARTED,
}


def make_sort_key(
    order: ProfileSort, one: ProfileEntry, views: Sequence[NodeTelemetryView], last: Sequence[LastStart]
) -> tuple[bool, float, str]:
    """Return the sort key; broken profiles come last unless sorted by name."""
    profile = one.profile
    if profile is None or order is ProfileSort.NAME:
        return order is not ProfileSort.NAME, 0.0, one.summary.name
    match order:
        case ProfileSort.ENGINE:
            return False, 0.0, f"{profile.engine} {profile.name}"
        case ProfileSort.MODEL:
            return False, 0.0, f"{(get_model_title(profile) or '~').lower()} {profile.name}"
        case ProfileSort.RUNS:
            return False, 0.0 if find_running_instances(profile.name, views) else 1.0, profile.name
        case ProfileSort.STARTED:
            when = max((each.when for each in last if each.profile == profile.name), default=0.0)
            return False, -when, profile.name


def get_model_title(profile: Profile | None) -> str | None:
    """Return the profile's title, else its model."""
    if profile is None:
        return None
    path = profile.model.path
    return profile.title or (path.rstrip("/").rpartition("/")[2] if path else profile.model.served_name)


def find_running_instances(name: str, views: Sequence[NodeTelemetryView]) -> list[InstanceView]:
    """Return sparkctl's instances that were started from a profile, or have its name."""
    return [
        one for view in views for one in view.instances
        if one.ours and one.is_alive and name in (one.profile, one.name)
    ]  # fmt: skip


_DAY_SECONDS = 86400.0


@dataclass(frozen=True, slots=True)
class ProfilePreview:
    """What a start on a node would run: the lines of the command. ``trouble`` is why it would be refused; ``note``
    names parts that were not read from a Spark. With ``trouble`` the lines are incomplete."""

    lines: tuple[str, ...] = ()
    trouble: str | None = None
    hint: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilesScreenModel:
    """The state of the profiles screen. ``entries`` is None before they are read. ``further``: rows scrolled.
    ``found``: the matches of ``pattern``, if known. ``sources``: lines of files that have faults, secrets masked.
    ``checks``: lint results by name; a missing one is not checked yet. ``fits``: memory estimates by name and node;
    None while calculated."""

    entries: tuple[ProfileEntry, ...] | None
    chosen: str | None = None
    views: tuple[NodeTelemetryView, ...] = ()
    names: tuple[NodeName, ...] = ()
    node: NodeName | None = None
    last: tuple[LastStart, ...] = ()
    preview: ProfilePreview = field(default_factory=ProfilePreview)
    warnings: tuple[str, ...] = ()
    checks: Mapping[str, LintResult] = field(default_factory=dict)
    fits: Mapping[tuple[str, NodeName], MemoryFit | None] = field(default_factory=dict)
    sources: Mapping[FilePosition, str] = field(default_factory=dict)
    pattern: FilterPattern | None = None
    found: tuple[ProfileEntry, ...] | None = None
    now: float = 0.0
    further: int = 0
    order: ProfileSort = ProfileSort.NAME

    @property
    def visible_entries(self) -> tuple[ProfileEntry, ...]:
        """The profiles that match the filter."""
        entries = filter_profiles(self.entries or (), self.pattern) if self.found is None else self.found
        return tuple(sorted(entries, key=lambda one: make_sort_key(self.order, one, self.views, self.last)))

    @property
    def selected_index(self) -> int:
        """The position of the selected profile among the visible ones."""
        chosen = self.selected
        return 0 if chosen is None else self.visible_entries.index(chosen)

    @property
    def selected_lint(self) -> LintResult | None:
        """The lint result of the selected profile; None if not known yet."""
        return None if self.selected is None else self.checks.get(self.selected.summary.name)

    @property
    def selected(self) -> ProfileEntry | None:
        """The selected profile, else the first visible one."""
        shown = self.visible_entries
        return next((one for one in shown if one.summary.name == self.chosen), shown[0] if shown else None)


def filter_profiles(entries: tuple[ProfileEntry, ...], pattern: FilterPattern | None) -> tuple[ProfileEntry, ...]:
    """Return the profiles that match a filter."""
    if pattern is None:
        return entries
    return tuple(entries[at] for at in pattern.select_indices([_make_filter_text(one) for one in entries]))


def _make_filter_text(one: ProfileEntry) -> str:
    parts = (one.summary.name, one.summary.engine, one.summary.title, get_model_title(one.profile))
    return sanitize_line(" ".join(part for part in parts if part))


def format_ago(when: float, now: float) -> str:
    """Return how long ago something was."""
    passed = now - when
    if passed < 60:
        return "just now"
    if passed < 3600:
        return f"{int(passed // 60)} min ago"
    return f"{int(passed // 3600)} h ago" if passed < _DAY_SECONDS else f"{int(passed // _DAY_SECONDS)} d ago"
