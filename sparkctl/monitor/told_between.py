"""What was told of instances between two lists of a node's containers, and for how long that counts. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sparkctl.model.events import ContainersListed, PhaseChanged
from sparkctl.model.phase import Phase

_STOPS_FOR = 180.0  # seconds without a word of it after which a stop that was told is no longer believed
_SILENT_STOP = 5.0  # the same once its container is gone: then there is a word every second or two
_ON_ITS_WAY = (Phase.STARTING, Phase.LOADING, Phase.WARMING)


@dataclass(frozen=True, slots=True)
class ReadySince:
    """Since when (unix seconds) and which container: None until it is listed."""

    since: float
    container: str | None = None


def is_still_stopping(phase: PhaseChanged, listed: ContainersListed) -> bool:
    """Tell whether a stop that was told goes on: its engine answers until it ends, which makes it no ready one."""
    if phase.phase is not Phase.STOPPING:
        return False
    lives = any(one.ours and one.name == phase.instance and one.is_alive for one in listed.instances)
    return listed.ts - phase.ts <= (_STOPS_FOR if lives else _SILENT_STOP)


def track_ready_since(
    known: dict[str, ReadySince], before: ContainersListed | None, listed: ContainersListed
) -> dict[str, ReadySince]:
    """Return since when what is listed as ready is so: as it was told, or by the list before, which had it on its way."""
    phases = {one.container_id: one.phase for one in before.instances} if before is not None else {}
    found: dict[str, ReadySince] = {}
    for one in listed.instances:
        if not one.ours or one.phase is not Phase.READY or one.container_id is None:
            continue
        told = known.get(one.name)
        if told is not None and told.container in (None, one.container_id):
            found[one.name] = replace(told, container=one.container_id)
        elif phases.get(one.container_id) in _ON_ITS_WAY:
            found[one.name] = ReadySince(listed.ts, one.container_id)
    return found
