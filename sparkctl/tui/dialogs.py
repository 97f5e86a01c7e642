"""Dialogs: a question with its choices, a question with an answer to type, and something to read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Input

from sparkctl.present.fold import fold
from sparkctl.present.frame import framed
from sparkctl.present.spans import Row, Span, Tone, row, said, width
from sparkctl.tui.sheet import Sheet

if TYPE_CHECKING:
    from sparkctl.tui.app import Panel

T = TypeVar("T")
_WIDEST = 76
_NOTCH = 2  # rows for a notch of the wheel


def paragraph(words: str, tone: Tone = Tone.PLAIN, columns: int = _WIDEST - 6) -> list[Row]:
    """Return a sentence as rows; it may quote a node."""
    return [row(said(line, tone)) for line in fold(said(words).text, columns, 0)]


class Dialog(ModalScreen[T], Generic[T]):
    """A frame in the middle. Escape is always the harmless way out."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", show=False),
        Binding("ctrl+q", "app.quit", show=False),
    ]

    def __init__(self, title: str, tone: Tone = Tone.ACCENT) -> None:
        super().__init__()
        self._words = title
        self._tone = tone

    @property
    def panel(self) -> Panel:
        """The app, by its own type."""
        return self.app  # type: ignore[return-value]

    @property
    def room(self) -> tuple[int, int]:
        """Columns and lines within the frame, at most."""
        return max(10, self.app.size.width - 8), max(3, self.app.size.height - 4)

    def rows(self) -> Sequence[Row]:
        """Return what is within the frame."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        """One sheet."""
        yield Sheet(self.panel.tones)

    def on_mount(self) -> None:
        """Paint."""
        self.draw()

    def on_resize(self, event: events.Resize) -> None:
        """Fit."""
        self.draw()

    def draw(self) -> None:
        """Show the rows in their frame, as large as they need."""
        rows = list(self.rows())
        most, high = self.room
        inner = min(most, max([width(each) for each in rows] + [len(self._words) + 4]))
        lines = min(high, len(rows))
        sheet = self.query_one(Sheet)
        title = row(said(self._words, self._tone))
        made = framed(title, rows, inner + 4, lines + 2, chosen=False, ascii_only=self.panel.ascii_only)
        sheet.styles.width, sheet.styles.height = inner + 4, lines + 2
        sheet.show(made)

    def action_cancel(self) -> None:
        """Do nothing of what was asked."""
        self.dismiss(None)


class Choice(Dialog[str]):
    """A question with choices. The first is what Enter does: give the harmless one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,tab,l,down", "move(1)", show=False),
        Binding("left,shift+tab,h,up", "move(-1)", show=False),
        Binding("enter,space", "take", show=False),
        Binding("q,n", "cancel", show=False),
    ]

    def __init__(
        self, title: str, body: Sequence[Row], choices: Sequence[tuple[str, str]], tone: Tone = Tone.ACCENT
    ) -> None:
        super().__init__(title, tone)
        self._body = body
        self._choices = choices
        self._at = 0

    def rows(self) -> Sequence[Row]:
        """Return the question, and under it the choices: the one that Enter takes stands in brackets."""
        spans: list[Span] = []
        for at, (_, name) in enumerate(self._choices):
            mine = at == self._at
            spans.append(Span(f"[ {name} ]" if mine else f"  {name}  ", Tone.KEY if mine else Tone.LABEL))
            spans.append(Span("   "))
        return [(), *self._body, (), tuple(spans)]

    def action_move(self, by: int) -> None:
        """Go to another choice."""
        self._at = (self._at + by) % len(self._choices)
        self.draw()

    def action_take(self) -> None:
        """Take this one."""
        self.dismiss(self._choices[self._at][0])


class Question(Dialog[str]):
    """A question whose answer is typed; a password is not shown. An empty answer means no."""

    def __init__(self, title: str, body: Sequence[Row], *, password: bool = False) -> None:
        super().__init__(title, Tone.ATTENTION)
        self._body = body
        self._password = password

    def rows(self) -> Sequence[Row]:
        """Return the question."""
        return [(), *self._body, (), row(Span("enter gives it, esc goes on without", Tone.LABEL))]

    def compose(self) -> ComposeResult:
        """The sheet and, below it, where the answer is typed."""
        yield from super().compose()
        yield Input(password=self._password, compact=True)

    def draw(self) -> None:
        """Show both equally wide."""
        super().draw()
        self.query_one(Input).styles.width = self.query_one(Sheet).styles.width

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Give the answer; it stays nowhere here."""
        answer = event.value
        self.query_one(Input).clear()
        self.dismiss(answer or None)


class Reader(Dialog[None]):
    """Something to read, with a way to scroll."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,q,space,question_mark,f1", "cancel", show=False),
        Binding("down,j", "scroll(1)", show=False),
        Binding("up,k", "scroll(-1)", show=False),
        Binding("pagedown", "scroll(10)", show=False),
        Binding("pageup", "scroll(-10)", show=False),
        Binding("home,g", "scroll(-9999)", show=False),
        Binding("end,G", "scroll(9999)", show=False),
    ]

    def __init__(self, title: str, body: Sequence[Row], tone: Tone = Tone.ACCENT) -> None:
        super().__init__(title, tone)
        self._body = body
        self._from = 0

    def rows(self) -> Sequence[Row]:
        """Return as much as there is room for; what is above and below is said."""
        _, high = self.room
        if len(self._body) + 1 <= high:
            return [*self._body, row(Span("esc goes back", Tone.LABEL))]
        shown = high - 1
        self._from = max(0, min(self._from, len(self._body) - shown))
        more = len(self._body) - shown - self._from
        says = f"{more} more below" if more else "the end"
        return [*self._body[self._from : self._from + shown], row(Span(f"{says}   esc goes back", Tone.LABEL))]

    def on_mouse_scroll_down(self) -> None:
        """Go on by the wheel."""
        self.action_scroll(_NOTCH)

    def on_mouse_scroll_up(self) -> None:
        """Go back by the wheel."""
        self.action_scroll(-_NOTCH)

    def action_scroll(self, by: int) -> None:
        """Go on, or back."""
        self._from = max(0, self._from + by)
        self.draw()
