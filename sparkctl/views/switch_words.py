"""What a switch comes to and what each of its steps does, in words: the same on the command line and in the panel. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sparkctl.model.switch_plan import SwitchConflict, SwitchPlan, SwitchStep, distinguish_names

_WHY = {
    SwitchConflict.MEMORY: "no room for both",
    SwitchConflict.PORT: "the same port",
    SwitchConflict.GROUP: "of the same exclusive group",
    SwitchConflict.INSTANCE: "another version of the same",
    SwitchConflict.PLACES: "the same, its ranks placed otherwise",
    SwitchConflict.PART: "the same, and not all of it runs",
    SwitchConflict.NAME: "the same container name",
    SwitchConflict.NODES: "no half of it is left behind",
}


def join_names(names: Sequence[str]) -> str:
    """Return ``spark1 and spark2``."""
    return " and ".join(names)


def describe_conflicts(conflicts: Iterable[SwitchConflict]) -> str:
    """Return why something stops."""
    return ", ".join(_WHY[one] for one in conflicts)


def summarize_switch_plan(plan: SwitchPlan) -> str:
    """Return in a sentence what a plan comes to."""
    where = join_names(plan.nodes)
    if plan.is_there:
        return f"{plan.instance} already stands on {where}: nothing is switched"
    if plan.obstacles:
        return f"{plan.instance} cannot be switched to on {where} as things are"
    free = [one.node for one in plan.changes if one.is_free_after]
    left = f", and {join_names(free)} {'is' if len(free) == 1 else 'are'} free" if free else ""
    if not plan.stops:
        return f"{plan.instance} starts on {where}; nothing has to stop{left}"
    new, old = distinguish_names(plan.instance, plan.stops)
    stops = f"{join_names(old)} {'stops' if len(old) == 1 else 'stop'}"
    return f"{stops}, {new} starts on {where}{left}"


def describe_rollback_window(plan: SwitchPlan) -> str | None:
    """Return until when what stops can come back, or that it does not; None where nothing stops, or nothing is switched."""
    if not plan.stops or plan.obstacles or plan.is_there:
        return None
    new, old = distinguish_names(plan.instance, plan.stops)
    if plan.halves:
        return (
            f"there is no way back if {new} fails: not all ranks of {join_names(plan.halves)} are seen to run, and "
            "half a model is not started again"
        )
    if not plan.rolls_back:
        return (
            f"the containers of {join_names(old)} are kept until {new} has answered with a token; if it does "
            "not, it is left as it failed, and they stay stopped until sparkctl abort (--no-rollback)"
        )
    return (
        f"the containers of {join_names(old)} are kept until {new} has answered with a token, and started "
        "again if it does not"
    )


def describe_switch_step(step: SwitchStep, instance: str, stops: Sequence[str] = (), *, is_done: bool = False) -> str:
    """Return what a step does, or has done; ``stops`` are the names of what goes, none where that was not told."""
    instance, names = distinguish_names(instance, stops)
    old = join_names(names) or "what was there"
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
