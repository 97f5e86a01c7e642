"""What an action's availability depends on, and the reasons why something cannot be done now. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase

if TYPE_CHECKING:  # the first picture is painted without them
    from sparkctl.model.instance import InstanceView
    from sparkctl.model.switch_plan import SwitchJournal
    from sparkctl.monitor.node_views import NodeTelemetryView
    from sparkctl.monitor.switch_progress import SwitchProgress

_LOADING_PHASES = (Phase.CREATING, Phase.STARTING, Phase.LOADING, Phase.WARMING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionContext:
    """What an action's availability depends on. ``screens`` are those that there are.

    What the screen in front has selected: ``profile``; a finding's ``remedy``, and the command line that is its ``deed``
    where it is one of ours. Of an instance whose start failed: whether it ``has_verdict``, the line of its log that is the
    ``proof``, and whether it ``has_change`` that may mend it. ``is_troubled``: something is wrong with the selected node that
    is no finding, or with the config. ``switch_trouble``: why the switch that is shown cannot be done now.
    ``switch_left``: whether one was left on these Sparks; False: one goes on there; None: there is none that is known;
    ``journal``: that one, where it can be read; ``own``: the one that this panel does now.
    """

    names: tuple[NodeName, ...] = ()
    views: tuple[NodeTelemetryView, ...] = ()
    node: NodeName | None = None
    instance: str | None = None
    readonly: bool = False
    replaying: bool = False
    screens: frozenset[str] = frozenset()
    profile: str | None = None
    remedy: str | None = None
    deed: tuple[str, ...] | None = None
    has_verdict: bool = False
    proof: int | None = None
    has_change: bool = False
    is_troubled: bool = False
    switch_trouble: str | None = None
    switch_left: bool | None = None
    journal: SwitchJournal | None = None
    own: SwitchProgress | None = None

    @property
    def node_view(self) -> NodeTelemetryView | None:
        """The selected node's, None without nodes."""
        return next((view for view in self.views if view.name == self.node), None)

    @property
    def selected_instance(self) -> InstanceView | None:
        """The selected instance."""
        view = self.node_view
        return None if view is None else next((one for one in view.instances if one.name == self.instance), None)


def reason_no_node(now: ActionContext) -> str | None:
    if now.replaying:
        return "this is a recording"
    if now.node is None:
        return "no Spark is configured"
    return f"{now.node} was not looked at yet" if now.node_view is None else None


def reason_recording(now: ActionContext) -> str | None:
    """A recording was made at the rate at which it was made."""
    return "this is a recording" if now.replaying else None


def reason_no_recording(now: ActionContext) -> str | None:
    """What happens now goes on by itself."""
    return None if now.replaying else "this is no recording: what you see happens now"


def reason_node_silent(now: ActionContext) -> str | None:
    if why := reason_no_node(now):
        return why
    assert now.node_view is not None
    return None if now.node_view.state is NodeState.OK else f"{now.node} does not answer: {now.node_view.state}"


def reason_cannot_start(now: ActionContext) -> str | None:
    """A Spark that is still being asked may be chosen already: what is to be started takes a moment to choose."""
    if now.replaying or now.node is None:
        return reason_no_node(now)
    return None if now.node_view is None or is_state_unknown(now.node_view) else reason_node_silent(now)


def is_state_unknown(view: NodeTelemetryView) -> bool:
    """Tell whether a node was not heard of yet, neither good nor bad."""
    return view.state is NodeState.UNKNOWN and not view.detail


def reason_no_instance(now: ActionContext) -> str | None:
    if now.node_view is None:
        return "no Spark is configured" if now.node is None else f"{now.node} was not looked at yet"
    if now.selected_instance is not None:
        return None
    return f"nothing runs on {now.node}" if now.instance is None else f"{now.instance} does not run on {now.node}"


def reason_no_log(now: ActionContext) -> str | None:
    """An instance that is gone has a log, too: the one that was saved."""
    return None if now.instance is not None else reason_no_instance(now)


def reason_no_diagnosis(now: ActionContext) -> str | None:
    """A recording holds what was told of it, and no log to be read anew."""
    return reason_recording(now) or reason_no_log(now)


def reason_no_address(now: ActionContext) -> str | None:
    """It has one once its port is known."""
    if why := reason_no_instance(now):
        return why
    assert now.selected_instance is not None
    return None if now.selected_instance.endpoint else f"it is not known where {now.selected_instance.name} answers"


def reason_no_verdict_or_address(now: ActionContext) -> str | None:
    """The first is of a start that was watched here and has failed."""
    return None if now.has_verdict else reason_no_address(now)


def reason_no_proof(now: ActionContext) -> str | None:
    """A verdict that another source than the log gave has none there."""
    return _reason_not_failed(now) or (None if now.proof is not None else "no line of its log proves why it failed")


def reason_no_change(now: ActionContext) -> str | None:
    """A change is started at once: of a recording there is nothing to start."""
    if now.replaying:
        return "this is a recording"
    return _reason_not_failed(now) or (None if now.has_change else "no change is known that would mend it")


def _reason_not_failed(now: ActionContext) -> str | None:
    one = now.selected_instance
    has_failed = now.has_verdict or one is None or one.phase is Phase.FAILED
    return None if has_failed or one is None else f"{one.name} has not failed"


def reason_no_plan(now: ActionContext) -> str | None:
    """It is read back from the container."""
    return "this recording does not hold it" if now.replaying else reason_no_instance(now)


def reason_no_instance_profile(now: ActionContext) -> str | None:
    """A container of somebody else's has none."""
    if now.replaying:
        return "this is a recording"
    if why := reason_no_instance(now):
        return why
    assert now.selected_instance is not None
    return None if now.selected_instance.profile else f"{now.selected_instance.name} was not started from a profile"


def reason_no_shell(now: ActionContext) -> str | None:
    """Of a node that does not answer, ssh says best why."""
    if now.replaying:
        return "this is a recording"
    return "no Spark is configured" if now.node is None else None


def reason_no_container_shell(now: ActionContext) -> str | None:
    """A foreign container lets one in as well: it is looked at, and not ended."""
    if why := reason_no_shell(now) or reason_no_instance(now):
        return why
    assert now.selected_instance is not None
    return (
        None
        if now.selected_instance.is_alive and now.selected_instance.container
        else f"{now.selected_instance.name} does not run now"
    )


def reason_cannot_stop(now: ActionContext) -> str | None:
    if why := reason_node_silent(now) or reason_no_instance(now):
        return why
    assert now.selected_instance is not None
    if now.own is not None and now.own.affects_instance(now.selected_instance.name):
        return f"this panel's switch to {now.own.instance} goes on with it: its own screen interrupts it"
    return (
        None
        if now.selected_instance.ours
        else f"{now.selected_instance.name} was not started by sparkctl and is left alone"
    )


def reason_cannot_free(now: ActionContext) -> str | None:
    """What others started is left alone."""
    if why := reason_node_silent(now):
        return why
    assert now.node_view is not None
    return None if any(one.ours for one in now.node_view.instances) else f"nothing of sparkctl's is on {now.node}"


def reason_cannot_check_fit(now: ActionContext) -> str | None:
    return reason_no_node(now) or reason_recording(now) or (None if now.profile else "no profile is selected")


def reason_cannot_restart(now: ActionContext) -> str | None:
    if why := reason_cannot_stop(now):
        return why
    assert now.selected_instance is not None
    if now.selected_instance.phase not in (Phase.FAILED, Phase.STOPPED):
        return f"{now.selected_instance.name} has not ended"
    return (
        None
        if now.selected_instance.profile
        else f"of which profile {now.selected_instance.name} is, its labels do not say"
    )


def reason_cannot_drop_caches(now: ActionContext) -> str | None:
    if why := reason_node_silent(now):
        return why
    assert now.node_view is not None
    loading = [one.name for one in now.node_view.instances if one.phase in _LOADING_PHASES]
    return f"{loading[0]} is loading on {now.node}, out of the page cache" if loading else None


def reason_no_problems(now: ActionContext) -> str | None:
    if now.is_troubled:
        return None
    if now.node_view is None:
        return "no Spark was looked at yet"
    return None if now.node_view.findings else f"nothing is found wrong with {now.node}"


def reason_already_connected(now: ActionContext) -> str | None:
    if why := reason_no_node(now):
        return why
    assert now.node_view is not None
    return f"{now.node} answers" if now.node_view.state is NodeState.OK else None


def reason_single_node(now: ActionContext) -> str | None:
    return None if len(now.names) > 1 else "there is one Spark" if now.names else "no Spark is configured"


def reason_no_profile(now: ActionContext) -> str | None:
    """A recording is no place to write the operator's profiles from."""
    if now.replaying:
        return "this is a recording"
    return None if now.profile is not None else "no profile is selected"


def reason_nothing_to_copy(now: ActionContext) -> str | None:
    return None if now.remedy or now.profile else "there is nothing to copy"


def reason_cannot_apply_remedy(now: ActionContext) -> str | None:
    if now.remedy is None:
        return "no finding with a remedy is selected"
    return None if now.deed is not None else "this is for your own hands: y copies it"


def reason_no_switch_to_show(now: ActionContext) -> str | None:
    """The one that goes on is shown, that of a recording too; else one is planned."""
    return None if now.replaying and now.switch_left is False else reason_cannot_start(now)


def reason_cannot_switch(now: ActionContext) -> str | None:
    return "this is a recording" if now.replaying else now.switch_trouble


def reason_cannot_sync(now: ActionContext) -> str | None:
    """What is carried is the selected profile's."""
    return reason_no_profile(now) or reason_single_node(now)


def reason_no_switch_left(now: ActionContext) -> str | None:
    """One that goes on is its operator's."""
    if now.replaying:
        return "this is a recording"
    if now.own is not None:
        return "this panel's own switch goes on: its screen interrupts it"
    if now.switch_left is None:
        return "no switch was left on these Sparks"
    return None if now.switch_left else "the switch goes on: who does it ends it"


def reason_cannot_interrupt(now: ActionContext) -> str | None:
    """Somebody else's is interrupted where it was begun."""
    return reason_recording(now) or (None if now.own is not None else "no switch of this panel's goes on")
