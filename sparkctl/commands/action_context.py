"""The state that decides which actions are available, and the reasons why an action is disabled. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkctl.errors import InvalidInput
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import Node, NodeName, NodeState
from sparkctl.model.phase import Phase

if TYPE_CHECKING:  # the first frame is painted without them
    from sparkctl.model.finding import Finding
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
        config_nodes: the nodes of the config; none in a recording.
        profile, remedy: what the current screen has selected.
        deed: the sparkctl command line that carries out ``remedy``; None where it is no sparkctl command.
        has_verdict: the selected instance's start failed and the reason is known.
        proof: number of the log line that proves the verdict.
        has_change: the verdict proposes a change that may fix the start.
        finding: the finding that is selected on the overview.
        process: the number of the process that is selected on the node screen.
        is_troubled: the selected node or the config has a problem that is not a finding.
        switch_trouble: why the displayed switch cannot run now.
        switch_left: True: an unfinished switch was found on these Sparks; False: a switch is running there; None: no
            switch is known.
        journal: the journal of that switch, where it can be read.
        own: the switch that this panel is running now.
        is_measuring: a benchmark of this panel runs.
    """

    names: tuple[NodeName, ...] = ()
    config_nodes: tuple[Node, ...] = ()
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
    finding: Finding | None = None
    process: int | None = None
    is_troubled: bool = False
    switch_trouble: str | None = None
    switch_left: bool | None = None
    journal: SwitchJournal | None = None
    own: SwitchProgress | None = None
    is_measuring: bool = False

    @property
    def node_view(self) -> NodeTelemetryView | None:
        """The view of the selected node; None without nodes."""
        return next((view for view in self.views if view.name == self.node), None)

    def find_nodes(self, *names: NodeName | None) -> tuple[Node, ...]:
        """Return the nodes of the config with these names, in their order. Raises `InvalidInput` for another name."""
        by_name = {node.name: node for node in self.config_nodes}
        if unknown := [name for name in names if name not in by_name]:
            raise InvalidInput(f"no node is called {unknown[0]}", f"there are: {', '.join(by_name)}")
        return tuple(by_name[name] for name in names if name is not None)

    @property
    def selected_instance(self) -> InstanceView | None:
        view = self.node_view
        return None if view is None else next((one for one in view.instances if one.name == self.instance), None)


def reason_no_node(context: ActionContext) -> str | None:
    return reason_recording(context) or reason_no_view(context)


def reason_no_view(context: ActionContext) -> str | None:
    if context.node is None:
        return "no Spark is configured"
    return f"no data from {context.node} yet" if context.node_view is None else None


def reason_recording(context: ActionContext) -> str | None:
    """A recording cannot be changed and has a fixed sampling rate."""
    return "this is a recording" if context.replaying else None


def reason_no_recording(context: ActionContext) -> str | None:
    """Only a recording can be wound forward or back."""
    return None if context.replaying else "this is not a recording: the data is live"


def reason_node_silent(context: ActionContext) -> str | None:
    if why := reason_no_node(context):
        return why
    assert context.node_view is not None
    return (
        None
        if context.node_view.state is NodeState.OK
        else f"{context.node} does not answer: {context.node_view.state}"
    )


def reason_cannot_start(context: ActionContext) -> str | None:
    """A node without an answer yet may be chosen: choosing a profile takes longer than the answer."""
    if context.replaying or context.node is None:
        return reason_no_node(context)
    return None if context.node_view is None or is_state_unknown(context.node_view) else reason_node_silent(context)


def is_state_unknown(view: NodeTelemetryView) -> bool:
    """Tell whether a node has given neither an answer nor an error yet."""
    return view.state is NodeState.UNKNOWN and not view.detail


def reason_no_instance(context: ActionContext) -> str | None:
    if context.node_view is None:
        return "no Spark is configured" if context.node is None else f"no data from {context.node} yet"
    if context.selected_instance is not None:
        return None
    if context.node_view.instances_seen is None and not context.node_view.instances and context.instance is None:
        return f"what runs on {context.node} is not known yet"
    return (
        f"nothing runs on {context.node}"
        if context.instance is None
        else f"{context.instance} is not running on {context.node}"
    )


def reason_nothing_to_open(context: ActionContext) -> str | None:
    """Without an instance the worst finding is opened."""
    view = context.node_view
    return None if context.finding or (view is not None and view.findings) else reason_no_instance(context)


def reason_no_log(context: ActionContext) -> str | None:
    """An instance that is gone still has its saved log."""
    return None if context.instance is not None else reason_no_instance(context)


def reason_no_diagnosis(context: ActionContext) -> str | None:
    """A recording holds the diagnosis of its time, but no log to read again."""
    return reason_recording(context) or reason_no_log(context)


def reason_no_address(context: ActionContext) -> str | None:
    """The address is known once the port is known."""
    one = context.selected_instance
    return reason_no_instance(context) or (
        None if one is None or one.endpoint else f"the address of {one.name} is not known"
    )


def reason_no_verdict_or_address(context: ActionContext) -> str | None:
    """A verdict exists only for a failed start that this panel watched."""
    return None if context.has_verdict else reason_no_address(context)


def reason_no_proof(context: ActionContext) -> str | None:
    """A verdict from another source than the log has no line there."""
    return _reason_not_failed(context) or (
        None if context.proof is not None else "no line of its log proves why it failed"
    )


def reason_no_change(context: ActionContext) -> str | None:
    """The change starts the instance at once; a recording has nothing to start."""
    return (
        reason_recording(context)
        or _reason_not_failed(context)
        or (None if context.has_change else "no change is known that would fix it")
    )


def _reason_not_failed(context: ActionContext) -> str | None:
    one = context.selected_instance
    has_failed = context.has_verdict or one is None or one.phase is Phase.FAILED
    return None if has_failed or one is None else f"{one.name} has not failed"


def reason_no_plan(context: ActionContext) -> str | None:
    """The launch plan is read back from the container."""
    return "it is not in this recording" if context.replaying else reason_no_instance(context)


def reason_no_instance_profile(context: ActionContext) -> str | None:
    """A foreign container has no profile."""
    one = context.selected_instance
    return (
        reason_recording(context)
        or reason_no_instance(context)
        or (None if one is None or one.profile else f"{one.name} was not started from a profile")
    )


def reason_no_shell(context: ActionContext) -> str | None:
    """A node that does not answer is allowed: ssh itself reports the reason best."""
    return reason_recording(context) or ("no Spark is configured" if context.node is None else None)


def reason_no_container_shell(context: ActionContext) -> str | None:
    """A foreign container is allowed: a shell looks into it and does not stop it."""
    one = context.selected_instance
    return (
        reason_no_shell(context)
        or reason_no_instance(context)
        or (None if one is None or (one.is_alive and one.container) else f"{one.name} is not running now")
    )


def reason_cannot_stop(context: ActionContext) -> str | None:
    one = context.selected_instance
    if (why := reason_node_silent(context) or reason_no_instance(context)) or one is None:
        return why
    if context.own is not None and context.own.affects_instance(one.name):
        return f"this panel's switch to {context.own.instance} is still changing it; interrupt it on the switch screen"
    return None if one.ours else f"{one.name} was not started by sparkctl and is left alone"


def reason_cannot_end_process(context: ActionContext) -> str | None:
    return reason_node_silent(context) or ("no process is selected" if context.process is None else None)


def reason_nothing_measured(context: ActionContext) -> str | None:
    return reason_recording(context) or (None if context.is_measuring else "this panel measures nothing now")


def reason_cannot_measure(context: ActionContext) -> str | None:
    """A profile that does not run is started for it."""
    if why := reason_node_silent(context):
        return why
    one = context.selected_instance
    if context.profile is not None and (one is None or not one.is_alive):
        return None
    if (why := reason_no_instance(context)) or one is None:
        return why
    if not one.ours:
        return f"{one.name} was not started by sparkctl"
    if one.phase is not Phase.READY:
        return f"{one.name} is not ready"
    from sparkctl.model.launch_plan import explain_no_tokens  # imported late: the first picture needs none of it

    return explain_no_tokens(one.name, one.probe)


def reason_cannot_free(context: ActionContext) -> str | None:
    """Containers that others started are left alone."""
    view = context.node_view
    return reason_node_silent(context) or (
        None
        if view is None or any(one.ours for one in view.instances)
        else f"sparkctl started nothing on {context.node}"
    )


def reason_cannot_check_fit(context: ActionContext) -> str | None:
    return (
        reason_no_node(context) or reason_recording(context) or (None if context.profile else "no profile is selected")
    )


def reason_cannot_restart(context: ActionContext) -> str | None:
    one = context.selected_instance
    if (why := reason_cannot_stop(context)) or one is None:
        return why
    return None if one.profile else f"the labels of {one.name} do not name its profile"


def reason_cannot_drop_caches(context: ActionContext) -> str | None:
    if why := reason_node_silent(context):
        return why
    assert context.node_view is not None
    loading = [one.name for one in context.node_view.instances if one.phase in _LOADING_PHASES]
    return f"{loading[0]} is loading from the page cache on {context.node}" if loading else None


def reason_no_problems(context: ActionContext) -> str | None:
    if context.is_troubled:
        return None
    if context.node_view is None:
        return "no data from any Spark yet"
    if any(one.findings for one in context.views):
        return None
    return f"no problems found on {context.node}" if len(context.views) < 2 else "no problems found on any Spark"


def reason_already_connected(context: ActionContext) -> str | None:
    if why := reason_no_node(context):
        return why
    assert context.node_view is not None
    return f"{context.node} answers" if context.node_view.state is NodeState.OK else None


def reason_single_node(context: ActionContext) -> str | None:
    return None if len(context.names) > 1 else "there is only one Spark" if context.names else "no Spark is configured"


def reason_no_profile(context: ActionContext) -> str | None:
    """The operator's profiles are not written from a recording."""
    return reason_recording(context) or (None if context.profile is not None else "no profile is selected")


def reason_nothing_to_copy(context: ActionContext) -> str | None:
    return None if context.remedy or context.profile else "there is nothing to copy"


def reason_cannot_apply_remedy(context: ActionContext) -> str | None:
    if context.remedy is None:
        return "no finding with a remedy is selected"
    return None if context.deed is not None else "sparkctl cannot run this; y copies it"


def reason_no_switch_to_show(context: ActionContext) -> str | None:
    """Show the running switch, also that of a recording; otherwise plan a new one."""
    return None if context.replaying and context.switch_left is False else reason_cannot_start(context)


def reason_cannot_switch(context: ActionContext) -> str | None:
    return reason_recording(context) or context.switch_trouble


def reason_cannot_sync(context: ActionContext) -> str | None:
    """A transfer brings the files of the selected profile."""
    return reason_no_profile(context) or reason_single_node(context)


def reason_no_switch_left(context: ActionContext) -> str | None:
    """A switch that is still running belongs to its operator."""
    if context.replaying:
        return "this is a recording"
    if context.own is not None:
        return "this panel's own switch is still running; interrupt it on its screen"
    if context.switch_left is None:
        return "there is no unfinished switch on these Sparks"
    return None if context.switch_left else "the switch is still running; only its operator can end it"


def reason_cannot_interrupt(context: ActionContext) -> str | None:
    """Another operator's switch can only be interrupted where it was started."""
    return reason_recording(context) or (None if context.own is not None else "this panel runs no switch")
