"""Toasts, which show a message for some seconds, the notice board of the overview, and the clipboard."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.segment import Segment
from textual.app import App
from textual.color import Color
from textual.filter import LineFilter
from textual.screen import ModalScreen

from sparkctl.errors import SparkctlError
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.views.text.styled_text import TextStyle, to_ascii

_MAX_TOAST_LINES = 6  # a toast covers a part of the screen
_SEVERITIES: tuple[str, ...] = ("information", "warning", "error")


def _severity_rank(toast: tuple[str, str]) -> tuple[int, str]:
    return _SEVERITIES.index(toast[1]), toast[1]


class AsciiFilter(LineFilter):
    """Paints every widget in ASCII, of equal width, for a terminal that has nothing else."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments of a line in ASCII."""
        del background
        return [Segment(to_ascii(text), style, control) for text, style, control in segments]


_ASCII_FILTER = AsciiFilter()


class ToastApp(App[tuple[str, ...]]):
    """An app with toasts, one at a time. ``ascii_only``: only ASCII characters."""

    ascii_only = False

    def __init__(self, *args: Any, **words: Any) -> None:
        super().__init__(*args, **words)
        self._pending_toasts: list[tuple[str, str]] = []

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return the filters of painted lines, among them that for ASCII where it is on."""
        return [*super().get_line_filters(), *([_ASCII_FILTER] if self.ascii_only else ())]

    def show_toast(self, words: str, *, severity: str = "information") -> None:
        """Show a message for some seconds; while a dialog is open, after it. The text is data, never markup."""
        from sparkctl.model.text.sanitize import sanitize_lines

        if isinstance(self.screen, ModalScreen):
            self._pending_toasts.append((words, severity))
        else:
            self.call_later(self.clear_notifications)  # one at a time
            message = "\n".join([*sanitize_lines(words)][:_MAX_TOAST_LINES])
            self.notify(message, severity=severity, markup=False)  # type: ignore[arg-type]

    def show_pending_toasts(self) -> None:
        """Show the toasts that waited for a dialog to close."""
        toasts, self._pending_toasts = self._pending_toasts, []
        if toasts:
            self.show_toast(
                "\n".join(dict.fromkeys(words for words, _ in toasts)), severity=max(map(_severity_rank, toasts))[1]
            )

    def show_error(self, error: SparkctlError) -> None:
        """Show an error and its hint."""
        self.show_toast(error.message + (f"\n{error.hint}" if error.hint else ""), severity="warning")

    def copy_text(self, text: str, what: str) -> None:
        """Copy text to the terminal's clipboard by OSC 52, which not every terminal accepts."""
        from sparkctl.model.text.sanitize import sanitize_lines

        self.copy_to_clipboard("\n".join(sanitize_lines(text)))
        self.show_toast(f"{what} is copied, if your terminal takes copies (OSC 52)")


_MAX_NOTICES = 3
_GOOD_NEWS_SECONDS = 60.0  # seconds for which good news without an instance is shown
_GONE_PHASES = (Phase.STOPPING, Phase.STOPPED, Phase.FAILED)

InstanceKey = tuple[NodeName, str]
"""A node and an instance on it."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice of ``when`` (unix seconds); it holds while the instances in ``rests`` serve."""

    words: str
    tone: TextStyle
    rests: frozenset[InstanceKey]
    when: float


class NoticeBoard:
    """Keeps the last notices. ``view`` returns the current view of a node or None; ``now`` returns unix seconds."""

    def __init__(self, view: Callable[[NodeName], NodeTelemetryView | None], now: Callable[[], float]) -> None:
        self._view, self._now = view, now
        self._kept: list[Notice] = []

    def add_notice(self, words: str, tone: TextStyle, views: Sequence[NodeTelemetryView] = ()) -> None:
        """Add a notice. Good news depends on the ready instances in ``views`` that it names."""
        text = sanitize_line(words.replace("\n", " "))
        rests = frozenset(
            (view.name, one.name)
            for view in views if tone is TextStyle.GOOD
            for one in view.instances
            if one.ours and one.phase is Phase.READY and re.search(rf"(?<![\w.-]){re.escape(one.name)}(?![\w-])", text)
        )  # fmt: skip
        self._kept[:] = [*self._kept[1 - _MAX_NOTICES :], Notice(text, tone, rests, self._now())]

    @property
    def current_notices(self) -> tuple[tuple[str, TextStyle], ...]:
        """The notices that still hold, the latest last."""
        self._kept[:] = [
            one for one in self._kept if not any(map(self._is_outdated, one.rests)) and not self._is_old(one)
        ]
        return tuple((one.words, one.tone) for one in self._kept)

    def clear(self) -> None:
        """Remove all notices."""
        self._kept.clear()

    def _is_old(self, one: Notice) -> bool:
        """Tell whether it is good news without an instance that is too old to show."""
        return one.tone is TextStyle.GOOD and not one.rests and self._now() - one.when > _GOOD_NEWS_SECONDS

    def _is_outdated(self, serving: InstanceKey) -> bool:
        node, name = serving
        view = self._view(node)
        if view is None or view.state is not NodeState.OK or not view.docker_known:
            return False  # not known
        return all(one.phase in _GONE_PHASES for one in view.instances if one.name == name)
