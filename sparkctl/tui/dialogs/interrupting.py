"""What is asked before the panel's own switch is left in the middle: by its key, or by leaving the panel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkctl.monitor.switch_journal import format_step_number
from sparkctl.monitor.switch_progress import SwitchProgress
from sparkctl.tui.dialogs.base import ChoiceDialog, wrap_paragraph
from sparkctl.views.farewell import describe_stopped_models
from sparkctl.views.text.styled_text import TextRow, TextStyle

if TYPE_CHECKING:
    from sparkctl.tui.app import PanelApp

LEAVE = "leave"


def _body(course: SwitchProgress, asked: str, way_on: str) -> list[TextRow]:
    at = "" if course.step is None else f" It is at {format_step_number(course.step)}."
    body = wrap_paragraph(f"{asked}{at}", TextStyle.STRONG)
    body += [
        row for words in describe_stopped_models(course) for row in wrap_paragraph(f"{words}.", TextStyle.ATTENTION)
    ]
    return [*body, *wrap_paragraph(way_on)]


class LeaveSwitchDialog(ChoiceDialog):
    """Gives `LEAVE` for a yes: the panel ends in the middle of its switch."""

    def __init__(self, course: SwitchProgress) -> None:
        way_on = "Nobody goes on with it then, until sparkctl resume does, or sparkctl abort undoes it."
        body = _body(course, f"Leave the switch to {course.instance} in the middle?", way_on)
        super().__init__("leave", body, (("", "stay"), (LEAVE, "leave it, and the panel")), TextStyle.ATTENTION)


def confirm_leave(panel: PanelApp, course: SwitchProgress) -> None:
    """Ask, and end the panel where that is wanted; who asks for it again where that is asked has said so."""
    if isinstance(panel.screen, LeaveSwitchDialog):
        panel.leave()
    else:
        opened = panel.push_screen(LeaveSwitchDialog(course), lambda answer: panel.leave() if answer else None)
        panel.keyboard.hold_until_mounted(opened)


def build_interrupt_dialog(course: SwitchProgress) -> ChoiceDialog:
    """Return the question before it is interrupted from its own screen."""
    body = _body(
        course,
        f"Interrupt the switch to {course.instance}?",
        "It can be gone on with then, or undone, from here as well.",
    )
    return ChoiceDialog("interrupt", body, (("", "let it go on"), (LEAVE, "interrupt it")), TextStyle.ATTENTION)
