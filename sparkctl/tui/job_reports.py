"""What the panel shows when a job ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkctl.commands.actions import DOCTOR, SWITCH
from sparkctl.model.events import CommandEnded, Outcome
from sparkctl.monitor.activity import Job
from sparkctl.tui.dialogs.base import TextDialog, wrap_paragraph
from sparkctl.views.command_result_view import describe_command_result, render_refused_start
from sparkctl.views.profiles.launch_plan_view import format_launch_plan
from sparkctl.views.text.styled_text import TextRow, TextStyle, make_row, sanitize_span

if TYPE_CHECKING:
    from sparkctl.tui.controller import PanelController
    from sparkctl.tui.panel import Panel

_SWITCH_VERBS = ("switch", "resume", "abort")  # the switch screen shows how they end
_MAX_DIALOG_COLUMNS = 96


def report_job_end(controller: PanelController, panel: Panel, job: Job, defect: BaseException | None) -> None:
    """Show how a command ended: as a notice, and in a dialog where there is more to read."""
    started, ended = job.started, job.ended
    if defect is not None:
        words, tone = f"a defect in sparkctl: {type(defect).__name__}: {defect}", TextStyle.BAD
    elif ended is not None:
        nodes = [ended.node] if ended.node else list(started.nodes)
        words, tone = describe_command_result(started.verb, ended, nodes, job.caches, panel.ascii_only)
    else:
        return
    if started.verb == "doctor" and ended is not None and not ended.message:
        return  # the findings are the report
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
        return [each for line in (ended.message or "").splitlines() for each in wrap_paragraph(line, columns=columns)]
    return []
