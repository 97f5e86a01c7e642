"""The columns of the profiles, and what they can be sorted by. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from sparkctl.history.operation_history import LastStart
from sparkctl.model.instance import InstanceView
from sparkctl.model.profile import Profile
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.profiles.library import ProfileEntry


class ProfileSort(StrEnum):
    """What the list is sorted by."""

    NAME = "name"
    ENGINE = "engine"
    MODEL = "model"
    RUNS = "where it runs"
    STARTED = "last start"

    @property
    def next(self) -> ProfileSort:
        """What is sorted by after this."""
        orders = list(ProfileSort)
        return orders[(orders.index(self) + 1) % len(orders)]


COLUMNS = ("profile", "engine", "model", "nodes", "check", "fits", "runs on", "last start")
SORT_BY_COLUMN = {
    "profile": ProfileSort.NAME,
    "engine": ProfileSort.ENGINE,
    "model": ProfileSort.MODEL,
    "runs on": ProfileSort.RUNS,
    "last start": ProfileSort.STARTED,
}


def sort_key(
    order: ProfileSort, one: ProfileEntry, views: Sequence[NodeTelemetryView], last: Sequence[LastStart]
) -> tuple[bool, float, str]:
    """Return what is compared: by anything but the name, those that cannot be read stand last."""
    profile = one.profile
    if profile is None or order is ProfileSort.NAME:
        return order is not ProfileSort.NAME, 0.0, one.summary.name
    match order:
        case ProfileSort.ENGINE:
            return False, 0.0, f"{profile.engine} {profile.name}"
        case ProfileSort.MODEL:
            return False, 0.0, f"{(model_title(profile) or '~').lower()} {profile.name}"
        case ProfileSort.RUNS:
            return False, 0.0 if find_running_instances(profile.name, views) else 1.0, profile.name
        case ProfileSort.STARTED:
            when = max((each.when for each in last if each.profile == profile.name), default=0.0)
            return False, -when, profile.name


def model_title(profile: Profile | None) -> str | None:
    """Return what a profile is called by people: its title, else its model."""
    if profile is None:
        return None
    path = profile.model.path
    return profile.title or (path.rstrip("/").rpartition("/")[2] if path else profile.model.served_name)


def find_running_instances(name: str, views: Sequence[NodeTelemetryView]) -> list[InstanceView]:
    """Return the instances of ours that were started from a profile, or are called like it."""
    return [
        one for view in views for one in view.instances
        if one.ours and one.is_alive and name in (one.profile, one.name)
    ]  # fmt: skip
