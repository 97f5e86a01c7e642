"""The profiles that can be started: those that were started last come first, those that cannot be read last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkctl.errors import SparkctlError
from sparkctl.model.profile import Profile
from sparkctl.profiles.library import ProfileLibrary


@dataclass(frozen=True, slots=True)
class ProfileOffer:
    """A profile that can be started; ``profile`` is None for one that cannot be read, and ``trouble`` is why."""

    name: str
    profile: Profile | None
    trouble: str | None = None


def list_startable_profiles(recent: Sequence[str]) -> list[ProfileOffer]:
    """Read every profile there is; ``recent`` are the names of what was started last, the latest first."""
    library = ProfileLibrary()

    def offer(name: str) -> ProfileOffer:
        try:
            return ProfileOffer(name, library.load(name))
        except SparkctlError as error:
            return ProfileOffer(name, None, error.message.splitlines()[0])

    def rank(one: ProfileOffer) -> tuple[bool, int, str]:
        return one.profile is None, recent.index(one.name) if one.name in recent else len(recent), one.name

    return sorted(map(offer, library.names()), key=rank)
