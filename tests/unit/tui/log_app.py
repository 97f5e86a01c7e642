"""An app with nothing but a log, and lines to put into it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from textual.app import App, ComposeResult
from textual.pilot import Pilot

from sparkctl.logs.buffer import DiskLineBuffer, LogBuffer
from sparkctl.model.text.log_line import LogLine
from sparkctl.tui.log_viewer.log_pane import LogPane, LogStatusLine, format_status_line
from sparkctl.tui.log_viewer.log_view import LogView

BEGIN = datetime(2026, 5, 1, 10, tzinfo=UTC)
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def make_log_lines(texts: Iterable[str], first: int = 1, stream: str = "stdout") -> list[LogLine]:
    """Return log lines, a second apart."""
    return [
        LogLine(
            when=(BEGIN + timedelta(seconds=n)).strftime("%Y-%m-%dT%H:%M:%S.%f000Z"), text=text, number=n, stream=stream
        )
        for n, text in enumerate(texts, first)
    ]


def make_numbered_lines(count: int, first: int = 1, word: str = "line") -> list[LogLine]:
    """Return ``line 1``, ``line 2``, ..."""
    return make_log_lines((f"{word} {number}" for number in range(first, first + count)), first)


class LogApp(App[None]):
    """A `LogPane` over a buffer of these sources."""

    def __init__(
        self,
        directory: Path,
        sources: tuple[str, ...] = ("spark1",),
        *,
        most_lines: int = 1_000_000,
        ansi_color: bool | None = None,
    ) -> None:
        super().__init__(ansi_color=ansi_color)
        self.directory = directory
        self.buffer = LogBuffer(sources, spool=DiskLineBuffer(directory, most_lines=most_lines))
        self.pane = LogPane(self.buffer, instance="qwen36", directory=directory, zone=UTC, now=lambda: NOON)
        self.copied: list[str] = []

    def compose(self) -> ComposeResult:
        yield self.pane

    def on_mount(self) -> None:
        self.view.focus()

    @property
    def view(self) -> LogView:
        return self.pane.view

    def copy_to_clipboard(self, text: str) -> None:
        self.copied.append(text)

    def rows(self) -> list[str]:
        """Return the text of the log's rows as they are on the screen, without the scrollbar."""
        return [self.view.render_line(y).text.rstrip() for y in range(self.view.size.height)]

    def status(self) -> str:
        """Return the text of the status line."""
        status = self.pane.query_one(LogStatusLine)
        return format_status_line(self.view.state, status.size.width).plain


async def wait_until_settled(pilot: Pilot[None]) -> None:
    """Wait until everything that is to be done is done and painted."""
    await pilot.pause()
    await pilot.app.workers.wait_for_complete()
    app = pilot.app
    assert isinstance(app, LogApp)
    while app.view._paint_timer is not None:
        await pilot.pause(0.02)
    await pilot.pause()


async def press_keys(pilot: Pilot[None], *keys: str) -> None:
    """Press keys, one word being that many, and wait."""
    await pilot.press(*(each for key in keys for each in ([key] if len(key) == 1 or key in _NAMED else key)))
    await wait_until_settled(pilot)


_NAMED = frozenset(
    ["enter", "escape", "slash", "ampersand", "pageup", "pagedown", "up", "down", "left", "right", "home", "ctrl+s"]
)
