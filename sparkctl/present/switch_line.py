"""A switch in one line of the overview: the one that this panel does, and what lies on the Sparks of another's. Pure."""

from __future__ import annotations

from sparkctl.core.switch_course import SwitchCourse
from sparkctl.model.finding import Severity
from sparkctl.model.phase import Phase
from sparkctl.model.switch import SwitchStep
from sparkctl.model.units import clock
from sparkctl.present.spans import Row, Span, Tone, row, said
from sparkctl.present.switch_screen import WAY, step_words
from sparkctl.present.symbols import symbol


def course_line(course: SwitchCourse, now: float, key: str | None, ascii_only: bool = False) -> Row:
    """Return how far a switch is that goes on; ``key`` shows it."""
    step = course.step
    tone = Tone.BAD if course.is_going_back else Tone.ATTENTION
    words = "beginning" if step is None else step_words(step, course, False)
    which = _number(step)
    shows = () if key is None else (Span(f"   {key}", Tone.KEY), Span(" shows it", Tone.LABEL))
    return row(
        Span(f"{symbol(Phase.STARTING, ascii_only)} ", tone), said(f"switch to {course.instance}: ", Tone.STRONG),
        said(f"{words}{which} · {clock(max(0.0, now - course.began))}", tone), *shows,
    )  # fmt: skip


def _number(step: SwitchStep | None) -> str:
    return f", step {WAY.index(step) + 1} of {len(WAY)}" if step in WAY else ""


def left_line(words: str, keys: tuple[tuple[str, str], ...], *, is_held: bool, ascii_only: bool = False) -> Row:
    """Return a switch of somebody else's, or one that was left: ``words`` say who, which step, since when; ``keys`` what
    can be done, each with its word."""
    sign = symbol(Phase.STARTING if is_held else Severity.WARNING, ascii_only)
    shown = [span for key, does in keys for span in (Span(f"   {key}", Tone.KEY), Span(f" {does}", Tone.LABEL))]
    return row(Span(f"{sign} ", Tone.ATTENTION), said(words, Tone.ATTENTION), *shown)
