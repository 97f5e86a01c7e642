"""Base classes of the dialogs: questions with choices, questions with a typed answer, and texts to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Input

from sparkctl.tui.key_hints import press_hint_key
from sparkctl.tui.text_surface import TextSurface
from sparkctl.views.text.frame_layout import draw_frame, pad_screen
from sparkctl.views.text.line_wrap import wrap_rows
from sparkctl.views.text.styled_text import (
    Span,
    TextRow,
    TextStyle,
    find_span,
    join_text,
    make_row,
    measure_row,
    sanitize_span,
)

if TYPE_CHECKING:
    from sparkctl.tui.panel import Panel

T = TypeVar("T")
# The rows of a dialog, or what makes them for so many columns; rows in columns or with a hanging indent need the latter.
DialogBody = Sequence[TextRow] | Callable[[int], Sequence[TextRow]]
_SENTENCE_COLUMNS = 70  # columns of a sentence that is easy to read
REFRESH_SECONDS = 1.0  # seconds between two updates of a question
_WHEEL_ROWS = 2  # rows for a notch of the wheel
_MIN_FRAMED_SIZE = 16, 6  # columns and rows of the smallest terminal with a frame
_MIN_PADDED_SIZE = 60, 20  # and of the smallest with space around the frame


def render_sentence(words: str, tone: TextStyle = TextStyle.PLAIN) -> list[TextRow]:
    """Return a sentence, which may quote a node, as a row that the dialog wraps."""
    return [make_row(sanitize_span(words, tone))]


def build_body_rows(body: DialogBody, columns: int) -> Sequence[TextRow]:
    return body(columns) if callable(body) else body


class Dialog(ModalScreen[T], Generic[T]):
    """A dialog in the middle, framed where there is room; escape cancels. It never shrinks, so that nothing moves while one types."""

    WRAPS: ClassVar[bool] = False  # rows are sentences and may be wrapped
    hint = ""  # below the rows
    BELOW: ClassVar[int] = 0  # rows of an input field: in the frame, or below the text without a frame

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", show=False),
        Binding("ctrl+q", "app.quit", show=False),
    ]

    def __init__(self, title: str, tone: TextStyle = TextStyle.ACCENT) -> None:
        super().__init__()
        self._heading = title
        self._tone = tone
        self._shown: Sequence[TextRow] = ()  # the rows within the frame
        self._hint_count = 0  # of them at the end, which are of the footer
        self._drawn_in = 0, 0  # the terminal in which it was drawn
        self._reached = 0, 0  # columns and rows within the frame that it had there

    @property
    def panel(self) -> Panel:
        return self.app  # type: ignore[return-value]

    @property
    def is_framed(self) -> bool:
        """Whether the terminal is large enough for a frame."""
        return self.app.size.width >= _MIN_FRAMED_SIZE[0] and self.app.size.height - self.BELOW >= _MIN_FRAMED_SIZE[1]

    @property
    def inner_size(self) -> tuple[int, int]:
        """The maximum columns and rows within the frame."""
        wide, high = self.app.size.width, self.app.size.height - self.BELOW
        if self.is_framed:
            wide -= 8 if wide >= _MIN_PADDED_SIZE[0] else 4
            high -= 4 if high >= _MIN_PADDED_SIZE[1] else 2
        return max(1, wide), max(1, high)

    def render_rows(self) -> Sequence[TextRow]:
        """Return the rows within the frame."""
        raise NotImplementedError

    def render_footer_rows(self) -> Sequence[TextRow]:
        """Return the rows below; they stay visible where the terminal is too small for all rows."""
        return [make_row(Span(self.hint, TextStyle.LABEL))] if self.hint else ()

    def compose(self) -> ComposeResult:
        """Create the text surface."""
        yield TextSurface(self.panel.tones)

    def on_mount(self) -> None:
        self.draw_dialog()

    def on_resize(self, event: events.Resize) -> None:
        """Draw the dialog in its new size."""
        self.draw_dialog()

    def draw_dialog(self) -> None:
        """Show the rows in a frame that is as large as they need; nothing while the dialog has no surface: as it opens or closes."""
        surface = self.query_one_optional(TextSurface)
        if surface is None:
            return
        most, high = self.inner_size
        rows = self.render_rows()
        if self.WRAPS:  # rows of one span are sentences; rows of several are bars or tables
            rows = [
                part
                for one in rows
                for part in wrap_rows([one], min(most, _SENTENCE_COLUMNS) if len(one) == 1 else most)
            ]
        answers = [*wrap_rows(self.render_footer_rows(), most), *self.reserved_rows()]
        rows = _fit_rows(rows, high - len(answers))
        if self._drawn_in != (size := (self.app.size.width, self.app.size.height)):
            self._drawn_in, self._reached = size, (0, 0)
        blank: list[TextRow] = [()] * (self._reached[1] - len(rows) - len(answers))
        shown = self._shown = [*rows, *blank, *answers][-high:]
        self._hint_count = len(answers)
        if not self.is_framed:
            surface.styles.width, surface.styles.height = most, len(shown)
            surface.set_rows(pad_screen(shown, most, len(shown)))
            self._place_field(most, 0)
            return
        title = make_row(sanitize_span(self._heading, self._tone))
        inner = min(most, max([*map(measure_row, shown), measure_row(title) + 4, self._reached[0]]))
        self._reached = inner, len(shown)
        made = draw_frame(title, shown, inner + 4, len(shown) + 2)
        surface.styles.width, surface.styles.height = inner + 4, len(made)
        surface.set_rows(made)
        self._place_field(inner, self.field_row(len(made)) - len(made))

    def reserved_rows(self) -> Sequence[TextRow]:
        """Return empty rows that an input field covers."""
        return ()

    def field_row(self, rows: int) -> int:
        """Return the row of the field among ``rows`` rows, frame included."""
        return rows - 2

    def _place_field(self, columns: int, up: int) -> None:
        """Move the field, which is mounted below the text surface, into the frame."""
        for field in self.query(Input):
            field.styles.width, field.styles.offset = columns, ((2, up) if self.is_framed else (0, 0))

    def on_click(self, event: events.Click) -> None:
        """Hand a click on to what is drawn under the pointer."""
        region, (left, top) = self.query_one(TextSurface).region, (2, 1) if self.is_framed else (0, 0)
        at = event.screen_y - region.y - top
        if not region.contains(event.screen_x, event.screen_y):
            self.click_outside()
        elif 0 <= at < len(self._shown):
            row, x = self._shown[at], event.screen_x - region.x - left
            for field in self.query(Input):  # which the click has left
                field.focus()
            is_hint = at >= len(self._shown) - self._hint_count
            if not (is_hint and press_hint_key(self.app, join_text(row), x)):
                self.click_row(row, x, twice=event.chain > 1)

    def click_row(self, row: TextRow, x: int, *, twice: bool) -> None:
        """Handle a click on column ``x`` of a row; the row is the object that was rendered, unless it was wrapped."""

    def click_outside(self) -> None:
        """Handle a click beside the dialog."""

    def action_cancel(self) -> None:
        """Close the dialog without an answer."""
        self.dismiss(None)


def _fit_rows(rows: Sequence[TextRow], most: int) -> Sequence[TextRow]:
    """Return at most so many rows; leave out empty ones where not all fit, and say how many more are left out."""
    if len(rows) <= most:
        return rows
    full = [one for one in rows if one]
    if len(full) <= most or most < 1:
        return full[: max(0, most)]
    cut = make_row(Span(f"… {len(full) - most + 1} more rows: make the window taller", TextStyle.STALE))
    return [*full[: most - 1], cut]


class RefreshingDialog(Dialog[str]):
    """A question whose text may be updated while it is open."""

    _body: DialogBody = ()
    _anew: Callable[[], RefreshingDialog] | None = None

    def set_refresh_source(self, anew: Callable[[], RefreshingDialog]) -> None:
        """Update the text every second from a dialog built for the current state; the answers stay the same."""
        self._anew = anew

    def on_mount(self) -> None:
        if self._anew is not None:
            self.set_interval(REFRESH_SECONDS, self._refresh_body)

    def _refresh_body(self) -> None:
        assert self._anew is not None
        body, columns = self._anew()._body, self.inner_size[0]
        if build_body_rows(body, columns) != build_body_rows(self._body, columns):
            self._body = body
            self.draw_dialog()

    def render_rows(self) -> Sequence[TextRow]:
        return [(), *build_body_rows(self._body, self.inner_size[0]), ()]


class ChoiceDialog(RefreshingDialog):
    """A question with choices. Enter takes the first one, so pass the harmless choice first; of two, `y` takes the other."""

    WRAPS = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,tab,l,down", "move(1)", show=False),
        Binding("left,shift+tab,h,up", "move(-1)", show=False),
        Binding("enter,space", "take", show=False),
        Binding("q,n", "cancel", show=False),
        Binding("y", "agree", show=False),
    ]

    def __init__(
        self,
        title: str,
        body: DialogBody,
        choices: Sequence[tuple[str, str]],
        tone: TextStyle = TextStyle.ACCENT,
    ) -> None:
        super().__init__(title, tone)
        self._body = body
        self._choices = choices
        self._at = 0
        self._buttons: Sequence[Span] = ()  # of the choices

    def render_footer_rows(self) -> Sequence[TextRow]:
        """Return the choices, the current one in brackets; one per row where a single row is too narrow."""
        spans = [
            Span(f"[ {name} ]", TextStyle.KEY) if at == self._at else Span(f"  {name}  ", TextStyle.LABEL)
            for at, (_, name) in enumerate(self._choices)
        ]
        if len(self._choices) == 2:
            spans.append(Span("n / y", TextStyle.LABEL))
        joined = tuple(span for each in spans for span in (each, Span("   ")))[:-1]
        self._buttons = spans[: len(self._choices)]
        return [joined] if measure_row(joined) <= self.inner_size[0] else [(each,) for each in spans]

    def click_row(self, row: TextRow, x: int, *, twice: bool) -> None:
        clicked = find_span(row, x)
        for at, button in enumerate(self._buttons):
            if clicked is not None and row[clicked] is button:
                self.dismiss(self._choices[at][0])
                return

    def action_move(self, by: int) -> None:
        self._at = (self._at + by) % len(self._choices)
        self.draw_dialog()

    def action_agree(self) -> None:
        """Answer yes, where the question has one yes."""
        if len(self._choices) == 2:
            self.dismiss(self._choices[1][0])

    def action_take(self) -> None:
        self.dismiss(self._choices[self._at][0])


class InputDialog(RefreshingDialog):
    """A question with a typed answer; a password is not shown. An empty answer is None, unless it ``may_be_empty``."""

    WRAPS = True
    hint = "enter confirms, esc continues without"
    BELOW = 1

    def __init__(self, title: str, body: DialogBody, *, password: bool = False, may_be_empty: bool = False) -> None:
        super().__init__(title, TextStyle.ATTENTION)
        self._body = body
        self._password = password
        self._may_be_empty = may_be_empty

    def compose(self) -> ComposeResult:
        yield from super().compose()
        yield Input(password=self._password, compact=True)

    def reserved_rows(self) -> Sequence[TextRow]:
        return [()] if self.is_framed else ()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Return the answer and clear the field, which may hold a password."""
        answer = event.value
        self.query_one(Input).clear()
        self.dismiss(answer if self._may_be_empty else answer or None)


class TextDialog(Dialog[None]):
    """A text that can be scrolled. A click beside it closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,q,space,question_mark,f1", "cancel", show=False),
        Binding("down,j", "scroll(1)", show=False),
        Binding("up,k", "scroll(-1)", show=False),
        Binding("pagedown", "scroll(10)", show=False),
        Binding("pageup", "scroll(-10)", show=False),
        Binding("home,g", "scroll(-9999)", show=False),
        Binding("end,G", "scroll(9999)", show=False),
    ]

    def __init__(self, title: str, body: DialogBody, tone: TextStyle = TextStyle.ACCENT) -> None:
        super().__init__(title, tone)
        self._body = body
        self._from = 0
        self._laid_out: tuple[int, Sequence[TextRow]] | None = None  # the columns and rows of the last drawing

    def render_rows(self) -> Sequence[TextRow]:
        wide, high = self.inner_size
        if self._laid_out is None or self._laid_out[0] != wide:
            self._laid_out = wide, wrap_rows(build_body_rows(self._body, wide), wide)
        body = self._laid_out[1]
        shown = max(1, high - 1)
        self._from = max(0, min(self._from, len(body) - shown))
        more = len(body) - shown - self._from
        place = "" if len(body) <= shown else f"{more} more below   " if more else "the end   "
        self.hint = f"{place}esc goes back"
        return body[self._from : self._from + shown]

    def set_body(self, body: DialogBody) -> None:
        """Show another text, from the same row on."""
        self._body, self._laid_out = body, None
        self.draw_dialog()

    def click_outside(self) -> None:
        self.dismiss(None)

    def on_mouse_scroll_down(self) -> None:
        self.action_scroll(_WHEEL_ROWS)

    def on_mouse_scroll_up(self) -> None:
        self.action_scroll(-_WHEEL_ROWS)

    def action_scroll(self, by: int) -> None:
        """Scroll by so many rows."""
        self._from = max(0, self._from + by)
        self.draw_dialog()


MAX_TYPED = 40  # characters of a filter


class TypedFilter(Dialog[T]):
    """A dialog in which typed characters filter what is shown; escape erases them, and then closes it."""

    IGNORED: ClassVar[str] = ""  # characters with another meaning
    _typed = ""

    def apply_filter(self, typed: str) -> None:
        """Show what matches the typed text."""
        raise NotImplementedError

    def on_key(self, event: events.Key) -> None:
        """Add a typed character to the filter."""
        character = event.character if event.is_printable else None
        if character and character not in self.IGNORED and len(self._typed) < MAX_TYPED:
            event.stop()
            event.prevent_default()
            self.apply_filter(self._typed + character)

    def action_erase(self) -> None:
        """Erase the last typed character."""
        self.apply_filter(self._typed[:-1])

    def action_cancel(self) -> None:
        """Erase the filter; without one close the dialog."""
        if self._typed:
            self.apply_filter("")
        else:
            self.dismiss(None)


class FilterTextDialog(TypedFilter[None], TextDialog, inherit_bindings=False):
    """A text that is searched as one types; arrows and pages scroll."""

    IGNORED = "?/"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", show=False),
        Binding("enter,question_mark,f1", "dismiss", show=False),
        Binding("ctrl+q", "app.quit", show=False),
        Binding("down", "scroll(1)", show=False),
        Binding("up", "scroll(-1)", show=False),
        Binding("pagedown", "scroll(10)", show=False),
        Binding("pageup", "scroll(-10)", show=False),
        Binding("home", "scroll(-9999)", show=False),
        Binding("end", "scroll(9999)", show=False),
        Binding("backspace", "erase", show=False),
    ]

    def __init__(self, title: str, find_rows: Callable[[str, int], Sequence[TextRow]]) -> None:
        """``find_rows`` returns the rows that match a text, for so many columns."""
        super().__init__(title, lambda columns: find_rows(self._typed, columns))

    def render_footer_rows(self) -> Sequence[TextRow]:
        """Return what was typed, or that typing searches; and the key that closes the dialog."""
        if not self._typed:
            return [make_row(Span(f"{self.hint}   type to search", TextStyle.LABEL))]
        search = Span("/ ", TextStyle.KEY), sanitize_span(self._typed, TextStyle.STRONG), Span("▏   ", TextStyle.ACCENT)
        return [make_row(*search, Span(self.hint, TextStyle.LABEL))]

    def apply_filter(self, typed: str) -> None:
        """Show the rows that match, from the first on."""
        self._typed, self._from, self._laid_out = typed.lstrip(), 0, None
        self.draw_dialog()
