"""The state that decides which actions are available, and the reasons why an action is disabled. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase

if TYPE_CHECKING:  # the first frame is painted without them
    from sparkctl.model.instance import InstanceView
    from sparkctl.model.switch_plan import SwitchJournal
    from sparkctl.monitor.node_views import NodeTelemetryView
    from sparkctl.monitor.switch_progress import SwitchProgress

_LOADING_PHASES = (Phase.CREATING, Phase.STARTING, Phase.LOADING, Phase.WARMING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionContext:
    """The state that decides which actions are available.

    Attributes:
        screens: the screens that this panel has.
        profile, remedy: what the current screen has selected.
        deed: the sparkctl command line that carries out ``remedy``; None where it is no sparkctl command.
        has_verdict: the selected instance's start failed and the reason is known.
        proof: number of the log line that proves the verdict.
        has_change: the verdict proposes a change that may fix the start.
        is_troubled: the selected node or the config has a problem that is not a finding.
        switch_trouble: why the displayed switch cannot run now.
        switch_left: True: an unfinished switch was found on these Sparks; False: a switch is running there; None: no
            switch is known.
        journal: the journal of that switch, where it can be read.
        own: the switch that this panel is running now.
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
        """The view of the selected node; None without nodes."""
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
    return f"no data from {now.node} yet" if now.node_view is None else None


def reason_recording(now: ActionContext) -> str | None:
    """A recording cannot be changed and has a fixed sampling rate."""
    return "this is a recording" if now.replaying else None


def reason_no_recording(now: ActionContext) -> str | None:
    """Only a recording can be wound forward or back."""
    return None if now.replaying else "this is not a recording: the data is live"


def reason_node_silent(now: ActionContext) -> str | None:
    if why := reason_no_node(now):
        return why
    assert now.node_view is not None
    return None if now.node_view.state is NodeState.OK else f"{now.node} does not answer: {now.node_view.state}"


def reason_cannot_start(now: ActionContext) -> str | None:
    """A node without an answer yet may be chosen: choosing a profile takes longer than the answer."""
    if now.replaying or now.node is None:
        return reason_no_node(now)
    return None if now.node_view is None or is_state_unknown(now.node_view) else reason_node_silent(now)


def is_state_unknown(view: NodeTelemetryView) -> bool:
    """Tell whether a node has given neither an answer nor an error yet."""
    return view.state is NodeState.UNKNOWN and not view.detail


def reason_no_instance(now: ActionContext) -> str | None:
    if now.node_view is None:
        return "no Spark is configured" if now.node is None else f"no data from {now.node} yet"
    if now.selected_instance is not None:
        return None
    return f"nothing runs on {now.node}" if now.instance is None else f"{now.instance} does not run on {now.node}"


def reason_no_log(now: ActionContext) -> str | None:
    """An instance that is gone still has its saved log."""
    return None if now.instance is not None else reason_no_instance(now)


def reason_no_diagnosis(now: ActionContext) -> str | None:
    """A recording holds the diagnosis of its time, but no log to read again."""
    return reason_recording(now) or reason_no_log(now)


def reason_no_address(now: ActionContext) -> str | None:
    """The address is known once the port is known."""
    if why := reason_no_instance(now):
        return why
    assert now.selected_instance is not None
    return None if now.selected_instance.endpoint else f"it is not known where {now.selected_instance.name} answers"


def reason_no_verdict_or_address(now: ActionContext) -> str | None:
    """A verdict exists only for a failed start that this panel watched."""
    return None if now.has_verdict else reason_no_address(now)


def reason_no_proof(now: ActionContext) -> str | None:
    """A verdict from another source than the log has no line there."""
    return _reason_not_failed(now) or (None if now.proof is not None else "no line of its log proves why it failed")


def reason_no_change(now: ActionContext) -> str | None:
    """The change starts the instance at once; a recording has nothing to start."""
    if now.replaying:
        return "this is a recording"
    return _reason_not_failed(now) or (None if now.has_change else "no change is known that would fix it")


def _reason_not_failed(now: ActionContext) -> str | None:
    one = now.selected_instance
    has_failed = now.has_verdict or one is None or one.phase is Phase.FAILED
    return None if has_failed or one is None else f"{one.name} has not failed"


def reason_no_plan(now: ActionContext) -> str | None:
    """The launch plan is read back from the container."""
    return "this recording does not hold it" if now.replaying else reason_no_instance(now)


def reason_no_instance_profile(now: ActionContext) -> str | None:
    """A foreign container has no profile."""
    if now.replaying:
        return "this is a recording"
    if why := reason_no_instance(now):
        return why
    assert now.selected_instance is not None
    return None if now.selected_instance.profile else f"{now.selected_instance.name} was not started from a profile"


def reason_no_shell(now: ActionContext) -> str | None:
    """A node that does not answer is allowed: ssh itself reports the reason best."""
    if now.replaying:
        return "this is a recording"
    return "no Spark is configured" if now.node is None else None


def reason_no_container_shell(now: ActionContext) -> str | None:
    """A foreign container is allowed: a shell looks into it and does not stop it."""
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
        return f"this panel's switch to {now.own.instance} is still changing it; interrupt it on the switch screen"
    return (
        None
        if now.selected_instance.ours
        else f"{now.selected_instance.name} was not started by sparkctl and is left alone"
    )


def reason_cannot_free(now: ActionContext) -> str | None:
    """Containers that others started are left alone."""
    if why := reason_node_silent(now):
        return why
    assert now.node_view is not None
    return None if any(one.ours for one in now.node_view.instances) else f"sparkctl started nothing on {now.node}"


def reason_cannot_check_fit(now: ActionContext) -> str | None:
    return reason_no_node(now) or reason_recording(now) or (None if now.profile else "no profile is selected")


def reason_cannot_restart(now: ActionContext) -> str | None:
    if why := reason_cannot_stop(now):
        return why
    assert now.selected_instance is not None
    if now.selected_instance.phase not in (Phase.FAILED, Phase.STOPPED):
        return f"{now.selected_instance.name} has not ended"
    return (
        None if now.selected_instance.profile else f"the labels of {now.selected_instance.name} do not name its profile"
    )


def reason_cannot_drop_caches(now: ActionContext) -> str | None:
    if why := reason_node_silent(now):
        return why
    assert now.node_view is not None
    loading = [one.name for one in now.node_view.instances if one.phase in _LOADING_PHASES]
    return f"{loading[0]} is loading from the page cache on {now.node}" if loading else None


def reason_no_problems(now: ActionContext) -> str | None:
    if now.is_troubled:
        return None
    if now.node_view is None:
        return "no data from any Spark yet"
    return None if now.node_view.findings else f"no problems found on {now.node}"


def reason_already_connected(now: ActionContext) -> str | None:
    if why := reason_no_node(now):
        return why
    assert now.node_view is not None
    return f"{now.node} answers" if now.node_view.state is NodeState.OK else None


def reason_single_node(now: ActionContext) -> str | None:
    return None if len(now.names) > 1 else "there is only one Spark" if now.names else "no Spark is configured"


def reason_no_profile(now: ActionContext) -> str | None:
    """The operator's profiles are not written from a recording."""
    if now.replaying:
        return "this is a recording"
    return None if now.profile is not None else "no profile is selected"


def reason_nothing_to_copy(now: ActionContext) -> str | None:
    return None if now.remedy or now.profile else "there is nothing to copy"


def reason_cannot_apply_remedy(now: ActionContext) -> str | None:
    if now.remedy is None:
        return "no finding with a remedy is selected"
    return None if now.deed is not None else "sparkctl cannot do this; y copies it"


def reason_no_switch_to_show(now: ActionContext) -> str | None:
    """Show the running switch, also that of a recording; otherwise plan a new one."""
    return None if now.replaying and now.switch_left is False else reason_cannot_start(now)


def reason_cannot_switch(now: ActionContext) -> str | None:
    return "this is a recording" if now.replaying else now.switch_trouble


def reason_cannot_sync(now: ActionContext) -> str | None:
    """A transfer brings the files of the selected profile."""
    return reason_no_profile(now) or reason_single_node(now)


def reason_no_switch_left(now: ActionContext) -> str | None:
    """A switch that is still running belongs to its operator."""
    if now.replaying:
        return "this is a recording"
    if now.own is not None:
        return "this panel's own switch is still running; interrupt it on its screen"
    if now.switch_left is None:
        return "there is no unfinished switch on these Sparks"
    return None if now.switch_left else "the switch is still running; only its operator can end it"


def reason_cannot_interrupt(now: ActionContext) -> str | None:
    """Another operator's switch can only be interrupted where it was started."""
    return reason_recording(now) or (None if now.own is not None else "this panel runs no switch")
