"""What a switch comes to and what each of its steps does, in words: the same on the command line and in the panel. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sparkctl.model.switch import Conflict, SwitchPlan, SwitchStep, apart

_WHY = {
    Conflict.MEMORY: "no room for both",
    Conflict.PORT: "the same port",
    Conflict.GROUP: "of the same exclusive group",
    Conflict.INSTANCE: "another version of the same",
    Conflict.PLACES: "the same, its ranks placed otherwise",
    Conflict.PART: "the same, and not all of it runs",
    Conflict.NAME: "the same container name",
    Conflict.NODES: "no half of it is left behind",
}


def all_of(names: Sequence[str]) -> str:
    """Return ``spark1 and spark2``."""
    return " and ".join(names)


def why_words(conflicts: Iterable[Conflict]) -> str:
    """Return why something stops."""
    return ", ".join(_WHY[one] for one in conflicts)


def summary(plan: SwitchPlan) -> str:
    """Return in a sentence what a plan comes to."""
    where = all_of(plan.nodes)
    if plan.is_there:
        return f"{plan.instance} already stands on {where}: nothing is switched"
    if plan.obstacles:
        return f"{plan.instance} cannot be switched to on {where} as things are"
    free = [one.node for one in plan.changes if one.is_free_after]
    left = f", and {all_of(free)} {'is' if len(free) == 1 else 'are'} free" if free else ""
    if not plan.stops:
        return f"{plan.instance} starts on {where}; nothing has to stop{left}"
    new, old = apart(plan.instance, plan.stops)
    stops = f"{all_of(old)} {'stops' if len(old) == 1 else 'stop'}"
    return f"{stops}, {new} starts on {where}{left}"


def kept(plan: SwitchPlan) -> str | None:
    """Return until when what stops can come back, or that it does not; None where nothing stops, or nothing is switched."""
    if not plan.stops or plan.obstacles or plan.is_there:
        return None
    new, old = apart(plan.instance, plan.stops)
    if plan.halves:
        return (
            f"there is no way back if {new} fails: not all ranks of {all_of(plan.halves)} are seen to run, and "
            "half a model is not started again"
        )
    if not plan.rolls_back:
        return (
            f"the containers of {all_of(old)} are kept until {new} has answered with a token; if it does "
            "not, it is left as it failed, and they stay stopped until sparkctl abort (--no-rollback)"
        )
    return (
        f"the containers of {all_of(old)} are kept until {new} has answered with a token, and started "
        "again if it does not"
    )


def step_words(step: SwitchStep, instance: str, stops: Sequence[str] = (), *, is_done: bool = False) -> str:
    """Return what a step does, or has done; ``stops`` are the names of what goes, none where that was not told."""
    instance, names = apart(instance, stops)
    old = all_of(names) or "what was there"
    going, done = {
        SwitchStep.CHECKING: (f"checking what can fail, while {old} serves", "checked what can fail"),
        SwitchStep.STOPPING: (f"stopping {old}; its containers are kept", f"{old} stopped; its containers are kept"),
        SwitchStep.RELEASING: ("waiting for its memory to be back", "its memory is back"),
        SwitchStep.STARTING: (f"starting {instance}", f"{instance} started"),
        SwitchStep.CLEARING: (f"removing the containers of {old}", f"the containers of {old} removed"),
        SwitchStep.DONE: ("done", "done"),
        SwitchStep.UNDOING: (f"taking {instance} back: keeping its log, removing its containers",
                             f"{instance} is taken back: its log is kept, its containers are gone"),
        SwitchStep.RESTORING: (f"starting {old} again", f"{old} started again"),
        SwitchStep.RESTORED: (f"{old} serves again", f"{old} serves again"),
        SwitchStep.LEFT: (f"{instance} is left as it failed", f"{instance} is left as it failed"),
    }[step]  # fmt: skip
    return done if is_done else going
