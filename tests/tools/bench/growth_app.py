"""The panel that `tests.tools.bench.growth` looks at: ``python -m tests.tools.bench.growth_app logs|replay CONFIG UNTIL REPORT``.

It is the panel as it is, with a look at its own memory ten times a second beside it. What it saw, pairs of how far it has
come and MiB, is written to the file REPORT when it has come as far as UNTIL: lines in the opened log, or seconds of a
recording.
"""

from __future__ import annotations

import gc
import gzip
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from sparkctl.config import load_config
from sparkctl.context import CommandContext
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.events import Event, SampleArrived
from sparkctl.model.phase import Phase
from sparkctl.model.questions import Prompter
from sparkctl.monitor.recording import read_recording
from sparkctl.tui.app import PanelApp
from sparkctl.tui.panel_options import PanelOptions
from sparkctl.tui.screens.log_screen import LogScreen

EVERY = 0.1
SPEED = 80.0
_RECORDING = Path(__file__).parents[1] / "pictures/recordings/evening.jsonl.gz"


def read_resident_mib() -> float:
    """Return the process' resident memory, in MiB."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) / 1024


class WatchedPanel(PanelApp):
    """Ends when it has come as far as ``until``."""

    def __init__(self, setup: PanelOptions, until: float, report: Path) -> None:
        super().__init__(setup)
        self._until, self._report = until, report
        self._seen: list[tuple[float, float]] = []

    def on_mount(self) -> None:
        """Look, beside everything else."""
        super().on_mount()
        self.set_interval(EVERY, self._look)

    def _look(self) -> None:
        come = self._come()
        if come is None:
            return
        self._seen.append((come, read_resident_mib()))
        if come >= self._until:
            gc.collect()
            self._seen.append((come, read_resident_mib()))
            self._report.write_text(json.dumps(self._seen))
            self.exit_panel()

    def _come(self) -> float | None:
        raise NotImplementedError


class LogReadingPanel(WatchedPanel):
    """Opens the log of the first instance that is ready."""

    def _come(self) -> float | None:
        if not isinstance(self.screen, LogScreen):
            now = self.build_action_context()
            if now.selected_instance is not None and now.selected_instance.phase is Phase.READY:
                self.open_screen("logs")
            return None
        pane = self.screen._pane
        return None if pane is None else float(pane.view.buffer.spool.end)


class ReplayingPanel(WatchedPanel):
    """Plays a recording."""

    def _come(self) -> float | None:
        if self.controller is None or self.controller._shown is None:
            return None
        return self.controller._shown[0] - self.controller.recorded[0].ts


def make_hour_recording(until: float) -> Iterator[Event]:
    """Yield an evening's recording again and again, until it has been so many seconds."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "evening.jsonl"
        path.write_bytes(gzip.decompress(_RECORDING.read_bytes()))
        events = tuple(read_recording(path))
    begun, span = events[0].ts, events[-1].ts - events[0].ts + 1.0
    shift = 0.0
    while shift <= until:
        for event in events:
            later = replace(event, ts=event.ts + shift)
            if isinstance(later, SampleArrived):
                sample = later.sample
                later = replace(later, sample=replace(sample, time=sample.time + shift, uptime=sample.uptime + shift))
            yield later
            if later.ts - begun > until:
                return
        shift += span


def main(which: str, config: str, until: float, report: Path) -> None:
    """Be the panel."""
    state = tempfile.mkdtemp(prefix="sparkctl-bench-", dir=report.parent)

    def context(prompter: Prompter) -> CommandContext:
        return CommandContext(history=OperationHistory(Path(state)), operator="bench", prompter=prompter)

    if which == "logs":
        LogReadingPanel(PanelOptions(nodes=load_config(Path(config)).nodes, make_context=context), until, report).run()
        return
    events = tuple(make_hour_recording(until + 5.0))
    ReplayingPanel(PanelOptions(nodes=(), make_context=context, recording=(events, SPEED)), until, report).run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), Path(sys.argv[4]))
