"""The bench screen: the benchmark that this panel runs, cell by cell, and all that were measured from this machine."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import ClassVar

from textual.binding import BindingType

from sparkctl.commands.actions import BENCH, ActionContext, ActionId
from sparkctl.history.bench_store import BenchStore
from sparkctl.logs import search
from sparkctl.model.bench import BenchRun
from sparkctl.tui.screens.base import ActionHandlers, build_bindings
from sparkctl.tui.screens.scroll_screens import ListScreen
from sparkctl.views.bench_screen_view import BenchScreenModel, render_bench_page
from sparkctl.views.text.line_wrap import wrap_text
from sparkctl.views.text.styled_text import make_row, pad_row

_REFRESH_SECONDS = 3.0  # seconds between two reads of the benchmarks


class BenchScreen(ListScreen[int]):
    """Lists benchmarks by number; their files are read in threads, again after each cell."""

    SCREEN_ID = BENCH
    BINDINGS: ClassVar[list[BindingType]] = build_bindings(BENCH)

    def __init__(self) -> None:
        super().__init__()
        self._runs: tuple[BenchRun, ...] | None = None
        self._is_reading = False
        self._read_for: object = None  # what was live when the files were read last
        self._opened = 0.0  # unix seconds

    def on_mount(self) -> None:
        """Read the benchmarks now and at intervals."""
        self._opened = self.panel.displayed_time()
        self.panel.spawn_dialog_task(self._refresh())
        self.set_interval(_REFRESH_SECONDS, self._start_refresh)

    def add_selection(self, now: ActionContext) -> ActionContext:
        """Return the action context with the selected benchmark's instance, and its node where the config has it."""
        run = self._build_bench_model().selected
        if run is None:
            return now
        node = run.nodes[0] if run.nodes and run.nodes[0] in now.names else now.node
        return replace(now, node=node, instance=run.instance, profile=run.setup.profile)

    @property
    def shows_notices(self) -> bool:
        """Whether notices are rows here."""
        return True

    def paint_body(self) -> None:
        """Paint; where another cell was measured, read the files again. The last notice has the lowest rows."""
        model, (columns, lines) = self._build_bench_model(), self.page_size
        rows = [
            pad_row(make_row(" ", *row), columns)
            for words, tone in self.list_styled_notices(self._opened)[-1:]
            for row in wrap_text(words.replace("   try: ", "\n  try: "), columns - 2, tone, 4)
        ][: lines // 3]
        page = render_bench_page(model, columns, lines - len(rows))
        self.show_page(replace(page, rows=(*page.rows, *rows)))
        places = {key: (type(event), event.number) for key, event in model.live.items()}
        if places != self._read_for:
            self._read_for = places
            self._start_refresh()

    def _build_bench_model(self) -> BenchScreenModel:
        controller = self.panel.controller
        model = BenchScreenModel(
            runs=self._runs,
            live={} if controller is None else controller.store.jobs.measuring,
            chosen=self._selected_key,
            pattern=search.parse_filter(self._typed),
            further=self._scroll_offset,
        )
        run = model.selected
        if controller is None or run is None or not run.nodes or run.nodes[0] not in controller.store.nodes:
            return model
        return replace(model, seen=self.build_node_tile(controller, run.nodes[0], run.instance))

    def list_keys(self) -> tuple[tuple[int, ...], int | None]:
        """Return the numbers of the benchmarks and of the selected one."""
        model = self._build_bench_model()
        run = model.selected
        return tuple(one.number for one in model.visible_runs), None if run is None else run.number

    def action_handlers(self) -> ActionHandlers:
        return {**super().action_handlers(), ActionId.BENCH_STOP: self._stop, ActionId.COPY: self._copy_command}

    def already_shows(self, message: str) -> bool:
        """Tell whether the table says it: that a benchmark is kept."""
        return message.startswith("benchmark ")

    def _stop(self) -> None:
        """End the benchmarks of this panel after the request in progress; what was measured is kept."""
        controller = self.panel.controller
        assert controller is not None
        for job in [job for job in controller.store.jobs.running.values() if job.measures]:
            controller.jobs.interrupt_job(job.started.job)
        self.panel.show_toast("the cell in progress ends; what was measured is kept")

    def _copy_command(self) -> None:
        """Copy the command that shows the benchmark in full."""
        run = self._build_bench_model().selected
        if run is not None:
            self.panel.copy_text(f"sparkctl bench show {run.number}", f"sparkctl bench show {run.number}")

    # --- reads in the background ---

    def _start_refresh(self) -> None:
        if not self._is_reading:
            self.panel.spawn_task(self._refresh())

    async def _refresh(self) -> None:
        self._is_reading = True
        try:
            found = await asyncio.to_thread(BenchStore().list_runs)
        finally:
            self._is_reading = False
        if found != self._runs:
            self._runs = found
            if self.is_attached:
                self.repaint()
