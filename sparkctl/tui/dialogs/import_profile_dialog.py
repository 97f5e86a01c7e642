"""Imports a profile from pasted text: a `docker run` line, a compose file or a recipe, with a live preview."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widgets import Input, TextArea

from sparkctl.commands import import_profile
from sparkctl.commands.import_profile import ImportedProfile, ImportProfile
from sparkctl.errors import InvalidInput, OperationRefused, SparkctlError
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text.sanitize import sanitize_lines
from sparkctl.profiles import field_types
from sparkctl.profiles.importers.profile_draft import KeyOutcome
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.tui.dialogs.base import ChoiceDialog, Dialog, render_sentence
from sparkctl.tui.text_surface import TextSurface
from sparkctl.views.profiles.profile_view import render_import_preview
from sparkctl.views.text.frame_layout import draw_frame, pad_screen
from sparkctl.views.text.line_wrap import wrap_rows, wrap_text
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, make_row, scroll_rows

_MAX_INPUT_CHARACTERS = 256 * 1024  # characters; longer input is cut
_IDLE_SECONDS = 0.15  # seconds without a key before the text is parsed
_LABEL_COLUMNS = 6  # columns of the label before the field
_OVERWRITE_ANSWER = "over"
_EMPTY_HINT = (
    "The path of such a file works, too. You see here what happens to every key before anything is saved; "
    "secrets are not saved."
)


class PasteArea(TextArea):
    """A text area that accepts pasted text of any source and removes non-printable characters."""

    def on_paste(self, event: events.Paste) -> None:
        """Change the pasted text before Textual calls the handler of the base class, which inserts it."""
        event.text = "\n".join(sanitize_lines(event.text[:_MAX_INPUT_CHARACTERS]))


@dataclass(frozen=True, slots=True)
class _ImportInput:
    """The text to import, the name of the profile, and whether dangerous options are allowed."""

    source: str
    name: str
    allow: bool


def _import_text(request: _ImportInput) -> ImportedProfile | SparkctlError | None:
    """Return the imported profile, or the error; None where there is no text."""
    if not request.source.strip():
        return None
    try:
        named = field_types.check_name(request.name) if request.name else None
    except ValueError as wrong:
        return InvalidInput(f"name: {wrong}")
    try:
        return import_profile.import_from_source(
            request.source, ImportProfile(name=named, allow=request.allow, directory=ProfileLibrary().user)
        )
    except SparkctlError as error:
        return error


class ImportProfileDialog(Dialog[str]):
    """Returns the name of the saved profile. It begins with the text of a cancelled import, and keeps its own when cancelled."""

    CSS = """
    ImportProfileDialog > #box > * { position: absolute; }
    ImportProfileDialog PasteArea { border: none; padding: 0; background: $foreground 6%; }
    ImportProfileDialog PasteArea:focus { border: none; background: $foreground 10%; }
    ImportProfileDialog PasteArea .text-area--cursor-line { background: transparent; }
    ImportProfileDialog Input { background: $foreground 6%; }
    ImportProfileDialog Input:focus { background: $foreground 10%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "save", show=False, priority=True),
        Binding("ctrl+t", "allow", show=False, priority=True),
        Binding("ctrl+down", "scroll(3)", show=False, priority=True),
        Binding("ctrl+up", "scroll(-3)", show=False, priority=True),
    ]

    def __init__(self) -> None:
        super().__init__("import a profile")
        self._import_input = _ImportInput("", "", allow=False)
        self._read: _ImportInput | None = None  # the input of the current answer
        self._answer: ImportedProfile | SparkctlError | None = None
        self._reading: asyncio.Task[None] | None = None
        self._from = 0

    def compose(self) -> ComposeResult:
        """Create the frame, and on it the text area and the field for the name."""
        with Container(id="box"):
            yield TextSurface(self.panel.tones)
            text = PasteArea(self.panel.pasted, soft_wrap=True, show_line_numbers=True, compact=True)
            yield text
            yield Input(compact=True)

    def on_mount(self) -> None:
        """Draw the dialog and focus the text area."""
        self.draw_dialog()
        self.set_focus(self.query_one(PasteArea))
        if self.panel.pasted:
            self._schedule_import(self._import_input.allow)

    def action_cancel(self) -> None:
        """Save nothing, but keep the text for the next time."""
        self.panel.pasted = self.query_one(PasteArea).text
        super().action_cancel()

    def draw_dialog(self) -> None:
        """Draw everything in the largest possible size."""
        if not self.is_mounted:
            return
        wide, high = self.inner_size
        framed_by, left = (2, 2) if self.is_framed else (0, 0)
        typed = max(1, min(12, high // 3))
        answers = wrap_rows(self.render_footer_rows(), wide)
        gap = [()] if high >= 16 else []
        head = wrap_rows([make_row(Span(self._render_intro(wide), TextStyle.LABEL))], wide)[: 1 if high < 12 else 2]
        above: list[TextRow] = [
            *head,
            *[()] * typed,
            make_row(Span(f"{'name':<{_LABEL_COLUMNS}}", TextStyle.LABEL)),
            *gap,
        ]
        preview = self._render_import_result(wide)
        page = scroll_rows(
            preview,
            self._from,
            max(0, high - len(above) - len(answers) - len(gap)),
            _SCROLL_KEYS,
        )
        self._from = page.further
        empty: list[TextRow] = [()] * (high - len(above) - len(answers) - len(page.rows))
        rows = [*above, *page.rows, *empty, *answers]
        self._arrange_widgets(rows, wide, high=high, at=len(head), typed=typed, left=left, top=framed_by // 2)

    def _arrange_widgets(
        self, rows: list[TextRow], wide: int, high: int, at: int, typed: int, left: int, top: int
    ) -> None:
        box = self.query_one("#box")
        surface, text, name = self.query_one(TextSurface), self.query_one(PasteArea), self.query_one(Input)
        made = (
            draw_frame(make_row(Span(self._heading, self._tone)), rows, wide + 4, high + 2)
            if top
            else pad_screen(rows, wide, high)
        )
        box.styles.width = surface.styles.width = wide + 2 * left
        box.styles.height = surface.styles.height = len(made)
        surface.set_rows(made)
        text.styles.offset, text.styles.width, text.styles.height = (left, top + at), wide, typed
        name.styles.offset, name.styles.width = (
            (left + _LABEL_COLUMNS, top + at + typed),
            max(1, min(40, wide - _LABEL_COLUMNS)),
        )
        name.styles.height = 1

    def _render_intro(self, columns: int) -> str:
        short = "Paste a docker run line, compose file or recipe."
        return f"{short} Nothing in it is run." if columns >= 70 else short

    def _render_import_result(self, columns: int) -> list[TextRow]:
        if isinstance(self._answer, SparkctlError):
            return render_import_preview(None, self._answer, columns)
        if self._answer is None and self._import_input.source.strip():
            return [make_row(Span("reading ...", TextStyle.STALE))]
        rows = render_import_preview(self._answer, None, columns)
        return rows or wrap_text(_EMPTY_HINT, columns, TextStyle.STALE)

    def render_footer_rows(self) -> list[TextRow]:
        keys = [("ctrl+s", "saves it")] if isinstance(self._answer, ImportedProfile) else []
        if self._import_input.allow or (
            isinstance(self._answer, ImportedProfile)
            and self._answer.imported.ledger.list_keys_by_outcome(KeyOutcome.WITHHELD)
        ):
            keys.append(("ctrl+t", "withholds it again" if self._import_input.allow else "allows what is withheld"))
        keys += [("tab", "name"), ("esc", "leaves")]
        spans = [
            span for key, does in keys for span in (Span(key, TextStyle.KEY), Span(f" {does}   ", TextStyle.LABEL))
        ]
        return [tuple(spans)]

    # --- the input ---

    @on(TextArea.Changed)
    @on(Input.Changed)
    def _handle_text_change(self) -> None:
        self._schedule_import(self._import_input.allow)

    def action_allow(self) -> None:
        """Allow dangerous options, or withhold them again."""
        self._schedule_import(not self._import_input.allow)

    def action_scroll(self, by: int) -> None:
        self._from = max(0, self._from + by)
        self.draw_dialog()

    def _schedule_import(self, allow: bool) -> None:
        name = self.query_one(Input)
        request = _ImportInput(self.query_one(PasteArea).text[:_MAX_INPUT_CHARACTERS], name.value.strip(), allow)
        if request == self._import_input:
            return
        self._import_input = request
        if self._reading is None or self._reading.done():
            self._reading = self.panel.spawn_task(self._import_latest_input())

    async def _import_latest_input(self) -> None:
        """Import the text in a thread once it has not changed for a moment; repeat while it changes."""
        while self._read != self._import_input and self.is_running:
            while (request := self._import_input) != (await self._wait_until_idle()):
                pass
            answer = await asyncio.to_thread(_import_text, request)
            self._read, self._answer = request, answer
            if not self.is_running:
                return
            name = self.query_one(Input)
            name.placeholder = answer.profile.name if isinstance(answer, ImportedProfile) else ""
            self._from = 0
            self.draw_dialog()

    async def _wait_until_idle(self) -> _ImportInput:
        await asyncio.sleep(_IDLE_SECONDS)
        return self._import_input

    # --- saving ---

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Save the profile on enter in the name field."""
        event.stop()
        self.action_save()

    def action_save(self) -> None:
        """Save the profile in the operator's directory; ask before it overwrites another."""
        self.panel.spawn_task(self._save_profile())

    async def _save_profile(self) -> None:
        if self._reading is not None:
            await asyncio.wait([self._reading])
        if not isinstance(found := self._answer, ImportedProfile):
            return
        save, library = import_profile.save_to_library, ProfileLibrary()
        try:
            try:
                done = await asyncio.to_thread(save, found, library, force=False)
            except OperationRefused as refused:
                if not await self._ask_to_overwrite(found, refused):
                    return
                done = await asyncio.to_thread(save, found, library, force=True)
        except SparkctlError as error:
            self._answer = error
            self.draw_dialog()
            return
        over = "; it takes precedence over the shipped one" if done.over_shipped else ""
        self.panel.show_toast(f"{done.profile.name} is in {done.path}{over}")
        self.panel.pasted = ""
        self.dismiss(done.profile.name)

    async def _ask_to_overwrite(self, found: ImportedProfile, refused: OperationRefused) -> bool:
        body = [
            *render_sentence(f"Overwrite your profile {found.profile.name}?", TextStyle.STRONG),
            (),
            *render_sentence(refused.message, TextStyle.ATTENTION),
        ]
        choices = (("cancel", "Cancel"), (_OVERWRITE_ANSWER, "overwrite it"))
        dialog = ChoiceDialog("this profile exists already", body, choices, TextStyle.ATTENTION)
        await self.panel.controller_ready.wait()
        assert self.panel.controller is not None
        return await self.panel.controller.dialogs.show_dialog(dialog) == _OVERWRITE_ANSWER


_SCROLL_KEYS = ("ctrl+up", "ctrl+down")
