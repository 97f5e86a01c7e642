"""The app that `tests.tools.bench.logview` looks at: ``python -m tests.tools.bench.logview_app ours|log|empty RATE LINES REPORT``.

It takes LINES at once, then RATE lines a second until it is told to quit; ``x`` counts up a label at the top. What it
held and how much it took is written to the file REPORT when it quits. To ``ours`` keys come as they do in the panel, one
at a time; ``empty`` is the label and nothing else.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import sparkctl.tui  # noqa: F401 - before Textual, as in the panel: it says how often may be painted

# isort: split
from textual import events
from textual.app import App, ComposeResult
from textual.screen import Screen
from textual.widgets import Label, Log

from sparkctl import engines
from sparkctl.concurrency import has_pending_input, yield_to_input
from sparkctl.logs.buffer import LogBuffer
from sparkctl.logs.line_marker import LineMarker
from sparkctl.model.text.log_line import LogLine
from sparkctl.tui.key_queue import KeyQueue
from sparkctl.tui.log_viewer.log_pane import LogPane
from sparkctl.tui.log_viewer.log_subscription import MAX_LINES_AT_ONCE
from sparkctl.tui.screens.base import StaticFocusScreen
from sparkctl.tui.terminal_driver import StdoutDriver, freeze_gc

SAMPLES = (
    "(EngineCore_DP0 pid=152) INFO 11-20 15:59:12 [loggers.py:248] Engine 000: Avg prompt throughput: 11.1 tokens/s, "
    "Avg generation throughput: 23.3 tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 3.1%",
    '(APIServer pid=1) INFO:     127.0.0.1:58862 - "POST /v1/completions HTTP/1.1" 200 OK',
    "(APIServer pid=1) WARNING 11-20 15:53:55 [system_utils.py:289] Found ulimit of 20000 and failed to increase it",
    "\x1b[32m[2026-05-01 10:00:00] Decode batch, #running-req: 2, #token: 4312, token usage: 0.02, accept len: 1.75\x1b[0m",
)
TICK = 0.01


def read_anonymous_mib() -> float:
    """Return the process' own memory, in MiB."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon:")) / 1024


class Keys(StdoutDriver):
    """Reads keys as the panel does; nobody has given alt with a letter a meaning."""

    def _keeps_alt(self, character: str) -> bool:
        return False


class Bench(App[None]):
    """A label that counts key presses, and a log under it."""

    BINDINGS = [("x", "count", "count"), ("q", "quit", "quit"), ("s", "search", "search")]  # noqa: RUF012
    DEFAULT_CSS = "Label { height: 1; width: 100%; }"

    def __init__(self, which: str, rate: int, lines: int, report: Path) -> None:
        super().__init__(driver_class=Keys if which == "ours" else None)
        vllm = engines.load_engine("vllm")
        self.pane = LogPane(LogBuffer(markers=[LineMarker(vllm, vllm.defaults.ready_line)]))
        self.log_widget = Log()
        self.is_ours, self.has_no_log = which == "ours", which == "empty"
        self.beside: set[asyncio.Task[None]] = set()
        self.keyboard = KeyQueue(self, self.spawn, self.hand_over)
        if self.is_ours:
            has_pending_input.set(self.keyboard.has_pending_key)
        self.rate, self.lines, self.report = rate, lines, report
        self.label = Label("mark 0;")
        self.count = self.taken = 0
        self.figures: dict[str, float] = {}

    def get_default_screen(self) -> Screen[Any]:
        """Return a screen like the panel's."""
        return StaticFocusScreen() if self.is_ours else Screen()

    def compose(self) -> ComposeResult:
        """The label first."""
        yield self.label
        if not self.has_no_log:
            yield self.pane if self.is_ours else self.log_widget

    def on_ready(self) -> None:
        """Begin."""
        freeze_gc()
        if self.has_no_log:
            self.label.update("mark 0; full")
            return
        (self.pane.view if self.is_ours else self.log_widget).focus()
        self.run_worker(self.feed())

    async def on_event(self, event: events.Event) -> None:
        """Take keys as the panel does."""
        if self.is_ours and isinstance(event, (events.Key, events.Paste)) and not event.is_forwarded:
            self.keyboard.put_event(event)
        else:
            await super().on_event(event)

    async def hand_over(self, event: events.Key | events.Paste) -> None:
        """Let a key do what it does now."""
        await super().on_event(event)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Let something go on beside the keys; a defect in it ends the app."""
        task = asyncio.create_task(work)
        self.beside.add(task)
        task.add_done_callback(self.beside.discard)
        task.add_done_callback(self._minded)
        return task

    def _minded(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (defect := task.exception()) is not None:
            self._handle_exception(defect)  # type: ignore[arg-type]

    def take(self, count: int) -> None:
        """Give the log ``count`` lines, all different objects as they are when they come from a node."""
        texts = [f"{SAMPLES[n % len(SAMPLES)]} {n}" for n in range(self.taken, self.taken + count)]
        self.taken += count
        if self.is_ours:
            self.pane.view.add_lines(
                0, [LogLine(when="2026-05-01T10:00:00.123456789Z", text=text, number=n) for n, text in enumerate(texts)]
            )
        else:
            self.log_widget.write_lines(texts)

    async def feed(self) -> None:
        """Fill, then keep the rate."""
        self.take(2000)
        await asyncio.sleep(0.5)
        before = read_anonymous_mib()
        while self.taken < self.lines:
            self.take(500)
            await asyncio.sleep(0)
        if self.lines:
            await asyncio.sleep(1.0)
            self.figures["held"] = read_anonymous_mib() - before
            if self.is_ours:
                self.figures["page"] = self.pages()
        begun, start = time.monotonic(), self.taken
        self.label.update("mark 0; full")
        while True:
            await asyncio.sleep(TICK)
            due = start + int(self.rate * (time.monotonic() - begun))
            while self.taken < due:
                self.take(min(due - self.taken, MAX_LINES_AT_ONCE))
                await yield_to_input()
            self.figures["rate"] = (self.taken - start) / (time.monotonic() - begun)

    def pages(self) -> float:
        """Return the milliseconds that a page anywhere in the log takes, the slowest of a hundred."""
        layout, chosen = self.pane.view.position.layout, random.Random(1)
        worst = 0.0
        for _ in range(100):
            place = (chosen.randrange(self.taken), 0)
            layout._lines.clear()  # as if none of them had been read before
            begun = time.perf_counter()
            if not layout.build_page(place):
                raise RuntimeError(f"no page at {place}")
            worst = max(worst, time.perf_counter() - begun)
        return worst * 1000

    def action_count(self) -> None:
        """Show that a key arrived."""
        self.count += 1
        self.label.update(f"mark {self.count};")

    def action_search(self) -> None:
        """Look through everything for what is not there, again and again."""
        if self.is_ours:
            self.pane.view.set_search("/no such w[o0]rd/")

    async def action_quit(self) -> None:
        """Report and end."""
        self.report.write_text(json.dumps(self.figures))
        self.exit()


if __name__ == "__main__":
    Bench(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])).run()
