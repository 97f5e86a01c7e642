"""Confirmations of dangerous commands. Cancel is the default; to stop a serving instance, its name has to be typed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.widgets import Input

from sparkctl.commands.actions import Action, ActionContext
from sparkctl.commands.request import Request
from sparkctl.monitor.switch_journal_io import format_step_number
from sparkctl.monitor.switch_progress import SwitchProgress
from sparkctl.tui.dialogs.base import ChoiceDialog, InputDialog, RefreshingDialog, render_sentence
from sparkctl.views.command_result_view import describe_stopped_models
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, make_row, sanitize_span

if TYPE_CHECKING:
    from sparkctl.tui.panel import Panel

CONFIRM_ANSWER = "do"  # the answer of both dialogs that confirms


def build_confirmation(request: Request, one: Action, now: ActionContext) -> RefreshingDialog:
    """Return the dialog that asks before an action; `CONFIRM_ANSWER` is its yes."""
    preview = request.preview(now)
    body: list[TextRow] = []
    for section in preview.sections:
        body += [row for text, tone in section for row in render_sentence(text, TextStyle(tone))]
        body += [()]
    body += render_sentence(f"sparkctl {' '.join(request.format_as_command())}", TextStyle.LABEL)
    title = preview.title or one.short
    if preview.wanted is not None:
        return TypeNameDialog(title, body, preview.wanted)
    choices = (("cancel", "Cancel"), (CONFIRM_ANSWER, preview.accept or one.short))
    return ChoiceDialog(title, body, choices, TextStyle.ATTENTION)


class TypeNameDialog(InputDialog):
    """A question that only the full name answers; anything else shows an error."""

    def __init__(self, title: str, body: Sequence[TextRow], wanted: str) -> None:
        super().__init__(title, body)
        self._wanted = wanted
        self._refusal = ""  # why the last answer was refused

    def render_footer_rows(self) -> Sequence[TextRow]:
        """Return the name to type, or why the last answer was refused."""
        hint = (
            make_row(sanitize_span(f"{self._refusal}; esc leaves it running.", TextStyle.BAD))
            if self._refusal
            else make_row(
                Span("Type ", TextStyle.LABEL),
                sanitize_span(self._wanted, TextStyle.KEY),
                Span(" to do it; esc leaves it running.", TextStyle.LABEL),
            )
        )
        return [hint]

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Accept the name. Nothing else closes the dialog, so that no key reaches the screen below."""
        event.prevent_default()  # Textual calls the handler of every base class, too
        if event.value.strip() == self._wanted:
            self.dismiss(CONFIRM_ANSWER)
            return
        self._refusal = f"That is not {self._wanted}" if event.value.strip() else f"Type {self._wanted} to confirm"
        self.query_one(Input).clear()
        self.draw_dialog()


LEAVE_ANSWER = "leave"


def _render_switch_question(course: SwitchProgress, question: str, way_on: str) -> list[TextRow]:
    at = "" if course.current_step is None else f" It is at {format_step_number(course.current_step)}."
    body = render_sentence(f"{question}{at}", TextStyle.STRONG)
    body += [
        row for words in describe_stopped_models(course) for row in render_sentence(f"{words}.", TextStyle.ATTENTION)
    ]
    return [*body, *render_sentence(way_on)]


class LeaveSwitchDialog(ChoiceDialog):
    """Asks before the panel ends in the middle of its switch; `LEAVE_ANSWER` is its yes."""

    def __init__(self, course: SwitchProgress) -> None:
        way_on = "It then stays as it is until sparkctl resume continues it or sparkctl abort undoes it."
        body = _render_switch_question(course, f"Leave the switch to {course.instance} in the middle?", way_on)
        super().__init__("leave", body, (("", "stay"), (LEAVE_ANSWER, "leave it, and the panel")), TextStyle.ATTENTION)


def confirm_exit(panel: Panel, course: SwitchProgress) -> None:
    """Ask before the panel ends during its switch; a second request in the open dialog ends it."""
    if isinstance(panel.screen, LeaveSwitchDialog):
        panel.exit_panel()
    else:
        opened = panel.push_screen(LeaveSwitchDialog(course), lambda answer: panel.exit_panel() if answer else None)
        panel.keyboard.hold_until_mounted(opened)


def build_interrupt_dialog(course: SwitchProgress) -> ChoiceDialog:
    """Return the question before the switch screen interrupts its switch."""
    body = _render_switch_question(
        course,
        f"Interrupt the switch to {course.instance}?",
        "You can continue or undo it later, also from this screen.",
    )
    return ChoiceDialog("interrupt", body, (("", "let it go on"), (LEAVE_ANSWER, "interrupt it")), TextStyle.ATTENTION)
