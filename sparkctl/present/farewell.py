"""What an owner who leaves is told of a node: what goes on running there."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sparkctl.core.store import LoadView
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeState

_LATELY = 20 * 3600.0  # seconds in which an hour names a moment


def farewell(view: LoadView, instances: Sequence[InstanceView], now: float) -> str | None:
    """Return it as a sentence, None where nothing is to be said; ``view`` with what was known last, ``now`` unix seconds."""
    running = [one.name for one in instances if one.ours and one.is_alive]
    if not running:
        return None
    names = " and ".join(running)
    if view.state is NodeState.OK:
        return f"{names} {'goes' if len(running) == 1 else 'go'} on running on {view.name}"
    if view.instances_seen is None:
        return None
    form = "%H:%M" if now - view.instances_seen < _LATELY else "%Y-%m-%d %H:%M"
    when = time.strftime(form, time.localtime(view.instances_seen))
    return f"{view.name} did not answer; {names} ran there at {when}"
