"""The columns of the profiles, and what they can be sorted by. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from sparkctl.core.history import LastStart
from sparkctl.core.profiles import ProfileEntry
from sparkctl.core.store import LoadView
from sparkctl.model.instance import InstanceView
from sparkctl.model.profile import Profile


class Order(StrEnum):
    """What the list is sorted by."""

    NAME = "name"
    ENGINE = "engine"
    MODEL = "model"
    RUNS = "where it runs"
    STARTED = "last start"

    @property
    def next(self) -> Order:
        """What is sorted by after this."""
        orders = list(Order)
        return orders[(orders.index(self) + 1) % len(orders)]


HEADS = ("profile", "engine", "model", "nodes", "check", "fits", "runs on", "last start")
ORDERS = {
    "profile": Order.NAME,
    "engine": Order.ENGINE,
    "model": Order.MODEL,
    "runs on": Order.RUNS,
    "last start": Order.STARTED,
}


def rank(
    order: Order, one: ProfileEntry, views: Sequence[LoadView], last: Sequence[LastStart]
) -> tuple[bool, float, str]:
    """Return what is compared: by anything but the name, those that cannot be read stand last."""
    profile = one.profile
    if profile is None or order is Order.NAME:
        return order is not Order.NAME, 0.0, one.summary.name
    match order:
        case Order.ENGINE:
            return False, 0.0, f"{profile.engine} {profile.name}"
        case Order.MODEL:
            return False, 0.0, f"{(model_words(profile) or '~').lower()} {profile.name}"
        case Order.RUNS:
            return False, 0.0 if running_of(profile.name, views) else 1.0, profile.name
        case Order.STARTED:
            when = max((each.when for each in last if each.profile == profile.name), default=0.0)
            return False, -when, profile.name


def model_words(profile: Profile | None) -> str | None:
    """Return what a profile is called by people: its title, else its model."""
    if profile is None:
        return None
    path = profile.model.path
    return profile.title or (path.rstrip("/").rpartition("/")[2] if path else profile.model.served_name)


def running_of(name: str, views: Sequence[LoadView]) -> list[InstanceView]:
    """Return the instances of ours that were started from a profile, or are called like it."""
    return [
        one for view in views for one in view.instances
        if one.ours and one.is_alive and name in (one.profile, one.name)
    ]  # fmt: skip
