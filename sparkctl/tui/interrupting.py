"""What is asked before the panel's own switch is left in the middle: by its key, or by leaving the panel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkctl.core.switch_course import SwitchCourse
from sparkctl.operations.switching.journal import step_number
from sparkctl.present.farewell import of_old
from sparkctl.present.spans import Row, Tone
from sparkctl.tui.dialogs import Choice, paragraph

if TYPE_CHECKING:
    from sparkctl.tui.app import Panel

LEAVE = "leave"


def _body(course: SwitchCourse, asked: str, way_on: str) -> list[Row]:
    at = "" if course.step is None else f" It is at {step_number(course.step)}."
    body = paragraph(f"{asked}{at}", Tone.STRONG)
    body += [row for words in of_old(course) for row in paragraph(f"{words}.", Tone.ATTENTION)]
    return [*body, *paragraph(way_on)]


class Parting(Choice):
    """Gives `LEAVE` for a yes: the panel ends in the middle of its switch."""

    def __init__(self, course: SwitchCourse) -> None:
        way_on = "Nobody goes on with it then, until sparkctl resume does, or sparkctl abort undoes it."
        body = _body(course, f"Leave the switch to {course.instance} in the middle?", way_on)
        super().__init__("leave", body, (("", "stay"), (LEAVE, "leave it, and the panel")), Tone.ATTENTION)


def ask_to_leave(panel: Panel, course: SwitchCourse) -> None:
    """Ask, and end the panel where that is wanted; who asks for it again where that is asked has said so."""
    if isinstance(panel.screen, Parting):
        panel.leave()
    else:
        opened = panel.push_screen(Parting(course), lambda answer: panel.leave() if answer else None)
        panel.keyboard.hold_for(opened)


def interruption(course: SwitchCourse) -> Choice:
    """Return the question before it is interrupted from its own screen."""
    body = _body(
        course,
        f"Interrupt the switch to {course.instance}?",
        "It can be gone on with then, or undone, from here as well.",
    )
    return Choice("interrupt", body, (("", "let it go on"), (LEAVE, "interrupt it")), Tone.ATTENTION)
