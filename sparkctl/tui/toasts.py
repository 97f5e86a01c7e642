"""What a program says in the corner of its screen, for a few seconds, one thing at a time, and what it copies."""

from __future__ import annotations

from typing import Any

from textual.app import App
from textual.screen import ModalScreen

from sparkctl.errors import SparkctlError

_MAX_TOAST_LINES = 6  # lines of a toast: it lies over what one came to read
_SEVERITIES = ("information", "warning", "error")


def _severity_rank(said: tuple[str, str]) -> tuple[int, str]:
    return _SEVERITIES.index(said[1]), said[1]


class ToastApp(App[tuple[str, ...]]):
    """An app that says what has no other place. ``ascii_only``: in signs that any terminal has."""

    ascii_only = False

    def __init__(self, *args: Any, **words: Any) -> None:
        super().__init__(*args, **words)
        self._unsaid: list[tuple[str, str]] = []

    def show_toast(self, words: str, *, severity: str = "information") -> None:
        """Say something for a few seconds that has no other place; after a dialog where one is open.

        It is data, never markup.
        """
        from sparkctl.model.text.sanitize import sanitize_lines

        if isinstance(self.screen, ModalScreen):
            self._unsaid.append((words, severity))
        else:
            self.call_later(self.clear_notifications)  # one at a time: what is older is overcome, or was read
            said = "\n".join([*sanitize_lines(words)][:_MAX_TOAST_LINES])
            self.notify(said, severity=severity, markup=False)

    def show_pending_toasts(self) -> None:
        """Say what had to wait for a dialog."""
        said, self._unsaid = self._unsaid, []
        if said:
            self.show_toast(
                "\n".join(dict.fromkeys(words for words, _ in said)), severity=max(map(_severity_rank, said))[1]
            )

    def show_error(self, error: SparkctlError) -> None:
        """Say what is wrong, and what to do."""
        self.show_toast(error.message + (f"\n{error.hint}" if error.hint else ""), severity="warning")

    def notify(self, message: str, **more: Any) -> None:
        """Show a toast, in signs that the terminal has."""
        from sparkctl.views.text.state_symbols import to_ascii

        shown = "\n".join(map(to_ascii, message.splitlines())) if self.ascii_only else message
        super().notify(shown, **more)

    def copy_text(self, text: str, what: str) -> None:
        """Give text to the terminal's clipboard, by OSC 52; not every terminal takes it, and that is said."""
        from sparkctl.model.text.sanitize import sanitize_lines

        self.copy_to_clipboard("\n".join(sanitize_lines(text)))
        self.show_toast(f"{what} is copied, if your terminal takes copies (OSC 52)")
