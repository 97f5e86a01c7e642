"""What an owner who leaves is told: of a node what goes on running there, of a switch in the middle what stands still."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.switch_plan import SwitchStep
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.monitor.switch_progress import SwitchProgress
from sparkctl.views.switch_words import join_names

_GONE = (Phase.STOPPING, Phase.STOPPED, Phase.FAILED)
_OLD_STOPPED = (SwitchStep.RELEASING, SwitchStep.STARTING, SwitchStep.UNDOING, SwitchStep.LEFT)
_LATELY = 20 * 3600.0  # seconds in which an hour names a moment


def describe_running_instances(view: NodeTelemetryView, instances: Sequence[InstanceView], now: float) -> str | None:
    """Return it as a sentence, None where nothing is to be said; ``view`` with what was known last, ``now`` unix seconds."""
    running = [one.name for one in instances if one.ours and one.is_alive and one.phase not in _GONE]
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


def describe_stopped_models(course: SwitchProgress) -> tuple[str, ...]:
    """Return how it stands with what a switch stops, by the switch's own events: a sentence, none while nothing was touched."""
    old, step = join_names(course.stops) or "what was there", course.steps[-1] if course.steps else None
    is_one = len(course.stops) <= 1
    verb = "is" if is_one else "are"
    if step is None:
        return ()
    if step.step in _OLD_STOPPED or (step.step is SwitchStep.STOPPING and step.ended is not None):
        return (f"{old} {verb} stopped; {'its' if is_one else 'their'} containers are kept",)
    if step.step is SwitchStep.STOPPING:
        return (f"{old} {verb} being stopped; {'its' if is_one else 'their'} containers are kept",)
    return (f"{old} {verb} being started again",) if step.step is SwitchStep.RESTORING else ()


def describe_unfinished_switch(course: SwitchProgress, at: str) -> tuple[str, ...]:
    """Return what is to be said of a switch that had no time left to say where it was left; ``at``: as ``step 4 of 6``."""
    return (
        f"the switch to {course.instance} was left {'' if at.startswith('on ') else 'at '}{at}",
        "  try: finish it: sparkctl resume", "  try: undo it: sparkctl abort",
    )  # fmt: skip
