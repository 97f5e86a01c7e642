"""What a program says in the corner of its screen, for a few seconds, one thing at a time, and what it copies."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from textual.app import App
from textual.screen import ModalScreen

from sparkctl.errors import SparkctlError
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.views.text.styled_text import TextStyle

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


_MAX_NOTICES = 3
_GOOD_NEWS_SECONDS = 60.0  # seconds in which good news that rests on nothing is news
_GONE_PHASES = (Phase.STOPPING, Phase.STOPPED, Phase.FAILED)

InstanceKey = tuple[NodeName, str]
"""An instance, and on which Spark."""


@dataclass(frozen=True, slots=True)
class Notice:
    """What was said ``when`` (unix seconds), and on what it ``rests``."""

    words: str
    tone: TextStyle
    rests: frozenset[InstanceKey]
    when: float


class NoticeBoard:
    """The last few. ``view`` gives what is known of a node now, None where nothing is; ``now`` the moment, unix seconds."""

    def __init__(self, view: Callable[[NodeName], NodeTelemetryView | None], now: Callable[[], float]) -> None:
        self._view, self._now = view, now
        self._kept: list[Notice] = []

    def add_notice(self, words: str, tone: TextStyle, views: Sequence[NodeTelemetryView] = ()) -> None:
        """Keep one. Of a good one what it names and what is ready in these views is what it rests on."""
        said = sanitize_line(words.replace("\n", " "))
        rests = frozenset(
            (view.name, one.name)
            for view in views if tone is TextStyle.GOOD
            for one in view.instances
            if one.ours and one.phase is Phase.READY and re.search(rf"(?<![\w.-]){re.escape(one.name)}(?![\w-])", said)
        )  # fmt: skip
        self._kept[:] = [*self._kept[1 - _MAX_NOTICES :], Notice(said, tone, rests, self._now())]

    @property
    def current_notices(self) -> tuple[tuple[str, TextStyle], ...]:
        """What still holds, the latest last."""
        self._kept[:] = [
            one for one in self._kept if not any(map(self._is_outdated, one.rests)) and not self._is_old(one)
        ]
        return tuple((one.words, one.tone) for one in self._kept)

    def clear(self) -> None:
        """Forget all."""
        self._kept.clear()

    def _is_old(self, one: Notice) -> bool:
        """Tell whether it is good news of a moment that is past: what was done goes on to be true, what it left does not."""
        return one.tone is TextStyle.GOOD and not one.rests and self._now() - one.when > _GOOD_NEWS_SECONDS

    def _is_outdated(self, serving: InstanceKey) -> bool:
        node, name = serving
        view = self._view(node)
        if view is None or view.state is not NodeState.OK or not view.docker_known:
            return False  # not known
        return all(one.phase in _GONE_PHASES for one in view.instances if one.name == name)
