"""Dialogs with the results of `plan` (memory estimates) and `diagnose` (what an instance's log tells)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from sparkctl.commands.actions import INSTANCE, retarget_context
from sparkctl.errors import InvalidInput, SparkctlError
from sparkctl.model.events import CommandEnded, Event, MemoryFitEvaluated, WarningEmitted
from sparkctl.model.finding import Severity
from sparkctl.model.phase import Phase
from sparkctl.tui.dialogs.base import TextDialog
from sparkctl.views.diagnosis_view import format_diagnosis
from sparkctl.views.profiles.memory_estimate_view import format_estimate, format_estimate_notes, format_estimate_summary
from sparkctl.views.text.line_wrap import wrap_text
from sparkctl.views.text.styled_text import TextRow, TextStyle, get_state_symbol, make_row, sanitize_span

if TYPE_CHECKING:
    from sparkctl.commands.diagnose_file import DiagnosisReport
    from sparkctl.commands.request import ScreenTarget
    from sparkctl.commands.start.check_fit import CheckFit
    from sparkctl.tui.panel import Panel
    from sparkctl.tui.panel_options import PreparedCommand

_MAX_COLUMNS = 104
_HANGING_INDENT = 10  # columns, below the labels of a diagnosis


def show_memory_estimate(panel: Panel, request: CheckFit) -> None:
    """Show whether a profile fits, as ``plan`` does."""
    assert panel.controller is not None
    panel.spawn_dialog_task(_show_fit(panel, panel.controller.prepare_command(request)))


async def _show_fit(panel: Panel, started: PreparedCommand) -> None:
    received: list[Event] = []
    try:
        async with aclosing(started.events()) as events:
            async for event in events:
                received.append(event)
    except SparkctlError as error:
        panel.show_error(error)
        return
    name = started.words[1]
    rows = render_estimate_result(received, _get_dialog_columns(panel))
    panel.push_screen(TextDialog(f"does {name} fit", [(), *rows, ()]))


def render_estimate_result(received: Sequence[Event], columns: int) -> list[TextRow]:
    """Return the result of ``plan``: the summary, the estimate of each node, the next commands, and errors."""
    judged = [one for one in received if isinstance(one, MemoryFitEvaluated)]
    rows = wrap_text("\n".join(format_estimate_summary([one.fit for one in judged])), columns, TextStyle.STRONG, 2)
    for at, one in enumerate(judged):
        before = [other.fit for other in judged[:at]]
        rows += [()] if rows else []
        rows += wrap_text(one.fit.summary_sentence, columns, TextStyle.STRONG)
        lines = (*format_estimate(one.fit, columns, before), *format_estimate_notes(one.fit, columns, before))
        rows += [make_row(sanitize_span(line, TextStyle.LABEL)) for line in lines]
    commands = dict.fromkeys(each for one in judged for each in one.commands)
    rows += [()] if commands else []
    rows += [row for each in commands for row in wrap_text(f"then: {each}", columns, hang=6)]
    sign = get_state_symbol(Severity.WARNING)
    for event in received:
        if isinstance(event, WarningEmitted):
            where = f"{event.node}: " if event.node else ""
            rows += _render_error(f"{sign} {where}{event.message}", event.hint, columns)
        elif isinstance(event, CommandEnded) and event.message:
            rows += _render_error(event.message, event.hint, columns)
    return rows


def _render_error(message: str, hint: str | None, columns: int) -> list[TextRow]:
    lines = [*message.splitlines(), *(f"try: {line}" for line in (hint or "").splitlines())]
    return wrap_text("\n".join(lines), columns, TextStyle.ATTENTION, 2)


def show_diagnosis(panel: Panel, target: ScreenTarget) -> None:
    """Open the screen of a failed instance, which shows its verdict; show a diagnosis of the log of any other.

    Raises `InvalidInput` for a node that the panel does not have.
    """
    if unknown := [node for node in target.nodes if node not in panel.node_names]:
        raise InvalidInput(f"no node is called {unknown[0]}", f"there are: {', '.join(panel.node_names)}")
    now = retarget_context(panel.build_action_context(), target.name, next(iter(target.nodes), None))
    if now.selected_instance is not None and now.selected_instance.ours and now.selected_instance.phase is Phase.FAILED:
        panel.open_screen(INSTANCE, now)
    else:
        panel.spawn_dialog_task(_show_diagnosis(panel, str(target.name), target.nodes))


async def _show_diagnosis(panel: Panel, name: str, nodes: Sequence[str]) -> None:
    from sparkctl.commands.diagnose_log import diagnose_instance

    assert panel.controller is not None
    targets = [node for node in panel.config_nodes if not nodes or node.name in nodes]
    try:
        found = await diagnose_instance(panel.controller.non_interactive_context, name, targets, None)
    except SparkctlError as error:
        panel.show_error(error)
        return
    rows = render_diagnosis_result(found, _get_dialog_columns(panel))
    panel.push_screen(TextDialog(f"what the log of {name} shows", [(), *rows, ()]))


def render_diagnosis_result(found: DiagnosisReport, columns: int) -> list[TextRow]:
    """Return the source of the log and the diagnosis."""
    from sparkctl.engines import load_engine

    lines = format_diagnosis(found.diagnosis, lambda name: load_engine(name).title, found.instance)
    rows = [make_row(sanitize_span(found.source, TextStyle.LABEL)), ()]
    rows += [row for line in lines for row in (wrap_text(line, columns, hang=_HANGING_INDENT) or [()])]
    for where, error in found.silent:
        rows += _render_error(f"{where}: {error.message}", error.hint, columns)
    return rows


def _get_dialog_columns(panel: Panel) -> int:
    return max(20, min(_MAX_COLUMNS, panel.size.width - 10))
