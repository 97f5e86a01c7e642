"""What the panel shows when a job ends, and what it prints when it exits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkctl.commands.actions import DOCTOR, SWITCH
from sparkctl.model.events import CommandEnded, Outcome
from sparkctl.model.node import NodeName
from sparkctl.model.switch_plan import SwitchStep
from sparkctl.tui.dialogs.base import TextDialog
from sparkctl.tui.job_runner import Job
from sparkctl.views.command_result_view import (
    describe_command_result,
    describe_running_instances,
    describe_stopped_models,
    render_refused_start,
)
from sparkctl.views.profiles.launch_plan_view import format_launch_plan
from sparkctl.views.text.line_wrap import wrap_text
from sparkctl.views.text.styled_text import TextRow, TextStyle, make_row, sanitize_span

if TYPE_CHECKING:
    from sparkctl.tui.panel_interface import Controller, Panel

_SWITCH_VERBS = ("switch", "resume", "abort")  # the switch screen shows how they end
_MAX_DIALOG_COLUMNS = 96


def report_job_end(controller: Controller, panel: Panel, job: Job, defect: BaseException | None) -> None:
    """Show how a command ended: as a notice, and in a dialog where there is more to read."""
    started, ended = job.started, job.ended
    if defect is not None:
        words, tone = f"a defect in sparkctl: {type(defect).__name__}: {defect}", TextStyle.BAD
    elif ended is not None:
        nodes = [ended.node] if ended.node else list(started.nodes)
        words, tone = describe_command_result(started.verb, ended, nodes, job.caches)
    else:
        return
    if started.verb == "doctor" and ended is not None and not ended.message:
        return  # the findings are the report
    if started.verb == "sync":
        controller.moves.clear(ended)
    if panel.front_screen is not None and panel.front_screen.SCREEN_ID == DOCTOR:
        controller.run_doctor(
            [node for node in panel.config_nodes if node.name in started.nodes]
        )  # checks whether the problem is fixed
    details = _build_details_dialog(
        job, min(_MAX_DIALOG_COLUMNS, panel.size.width - 10), by_hand=controller.is_taken_over
    )
    is_seen = (
        panel.front_screen is not None and panel.front_screen.SCREEN_ID == SWITCH and started.verb in _SWITCH_VERBS
    )
    controller.show_notice(words, tone, is_shown=details is not None or is_seen)
    if details is not None:
        panel.push_screen(details)


def build_exit_summary(controller: Controller, names: Sequence[NodeName]) -> tuple[str, ...]:
    """Return a sentence for each node with running instances and for each model that the panel's own switch stops.

    Of a node that does not answer, the last known instances count.
    """
    if controller.is_replaying:
        return ()
    watched, own = (
        {job.instance for job in controller.jobs.running_jobs},
        controller.own_switch,
    )  # their own reports mention these
    if own is not None and own.current_step is not SwitchStep.CHECKING:
        watched |= {own.instance, *own.stops}
    views = [controller.bridge.store.get_last_known_view(view.name) for view in controller.list_node_views(names)]
    sentences = (
        describe_running_instances(
            view, [one for one in view.instances if one.name not in watched], controller.displayed_time()
        )
        for view in views
    )
    return (*(one for one in sentences if one is not None), *(() if own is None else describe_stopped_models(own)))


def _build_details_dialog(job: Job, columns: int, *, by_hand: bool) -> TextDialog | None:
    """Return a dialog with the details of a job; None where one line is enough."""
    ended = job.ended
    if ended is None:
        return None
    if by_hand and job.started.verb == "up" and ended.outcome is Outcome.REFUSED and ended.message:
        return TextDialog(
            "not started", [(), *render_refused_start(job.started.words, ended, columns), ()], TextStyle.ATTENTION
        )
    if ended.outcome is Outcome.PLANNED and (rows := _render_dry_run(job, ended, columns)):
        return TextDialog("a dry run: nothing was changed", [(), *rows, ()])
    return None


def _render_dry_run(job: Job, ended: CommandEnded, columns: int) -> list[TextRow]:
    if job.plan is not None:
        return [make_row(sanitize_span(line)) for line in format_launch_plan(job.plan.plan, columns)]
    if job.started.verb in ("down", "free"):
        return wrap_text(ended.message or "", columns)
    return []
