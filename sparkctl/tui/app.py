"""The Textual app of the panel: it owns the screens, the key bindings, the selection and the background tasks."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events
from textual.binding import BindingType
from textual.screen import Screen

from sparkctl.commands.actions import DOCTOR, SWITCH, ActionId, assign_keys, parse_key
from sparkctl.errors import SparkctlError
from sparkctl.tui.command_dispatcher import CommandDispatcher
from sparkctl.tui.global_actions import perform_global_action
from sparkctl.tui.panel import Panel
from sparkctl.tui.panel_options import PanelOptions
from sparkctl.tui.screens.base import PanelScreen, build_bindings
from sparkctl.tui.screens.overview_screen import OverviewScreen
from sparkctl.tui.terminal_driver import StdoutDriver, freeze_gc, keep_changed_cells, trim_render_caches
from sparkctl.tui.theme import DARK_THEME, LIGHT_THEME, build_theme_styles, has_few_colours
from sparkctl.views.text.styled_text import TextRow, TextStyle, make_row, sanitize_span

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.style import Style

    from sparkctl.config import Config
    from sparkctl.monitor.activity import Job
    from sparkctl.monitor.switch_progress import SwitchProgress
    from sparkctl.tui.dialogs.base import ChoiceDialog, TextDialog


CSS = """
Toast { max-width: 70; padding: 0 1; }
App.-plain Toast { border: ascii $foreground !important; }
ToastRack { margin-bottom: 2; }
ModalScreen ToastRack { display: none; }
Dialog { align: center middle; background: $background 60%; }
App.-plain Dialog { background: transparent; }
Dialog Input { border: none; height: 1; padding: 0; }
CommandLineDialog { align: left bottom; background: transparent; }
CommandLineDialog TextSurface { height: 1; background: $surface; }
CommandLineDialog Horizontal { height: 1; }
CommandLineDialog #colon { width: 2; }
CommandLineDialog Input { width: 1fr; height: 1; border: none; padding: 0; background: $surface; }
PanelScreen { layout: vertical; overflow: hidden; }
PanelScreen > #head, PanelScreen > #foot { height: 1; }
PanelScreen > #small { display: none; height: 1fr; }
PanelScreen > .body { height: 1fr; }
PanelScreen.-tiny > * { display: none; }
PanelScreen.-tiny > #small { display: block; }
"""


def reload_config(panel: PanelApp) -> None:
    """Apply the config if its file has changed; show its errors and keep the old config until they are fixed."""
    if panel.setup.reload is None:
        return
    try:
        config = panel.setup.reload()
    except SparkctlError as error:
        panel.config_fault = error
        hint = f"\n{error.hint}" if error.hint else ""
        panel.show_toast(f"the config is not taken in:\n{error.message}{hint}", severity="error")
        panel.repaint_unless_frozen()
        return
    if config is not None:
        panel.apply_config(config)
        panel.show_toast("the config was read again")
        panel.repaint_unless_frozen()


_TICK_SECONDS = 1.0
_FIRST_PAINT_SECONDS = 0.5  # seconds after which the controller starts even without a first paint


_SWITCH_VERBS = ("switch", "resume", "abort")  # the switch screen shows how they end
_MAX_DIALOG_COLUMNS = 96
_QUEUE_FLAG = "--queue"  # a refusal names it where the start may wait
_QUEUE_CHOICES = (("close", "close"), ("queue", "start once that has ended"))
_SECOND_INTERRUPT_SECONDS = 3.0  # seconds in which a second ctrl+c ends the panel


def _build_job_dialog(job: Job, *, by_hand: bool) -> TextDialog | ChoiceDialog | None:
    """Return a dialog with the details of an ended job; None where one line is enough."""
    from sparkctl.model.events import Outcome
    from sparkctl.tui.dialogs.base import ChoiceDialog, TextDialog
    from sparkctl.views.event_log_view import render_refused_start
    from sparkctl.views.profiles.launch_plan_view import format_launch_plan
    from sparkctl.views.text.line_wrap import wrap_text

    verb, ended, plan = job.started.verb, job.ended, job.plan
    if ended is None or not (by_hand or ended.outcome is Outcome.PLANNED):
        return None
    if verb == "up" and ended.outcome is Outcome.REFUSED and ended.message:

        def build_refusal(columns: int) -> list[TextRow]:
            return render_refused_start(job.started.words, ended, min(_MAX_DIALOG_COLUMNS, columns))

        if _QUEUE_FLAG in (ended.hint or ""):
            return ChoiceDialog("not started", build_refusal, _QUEUE_CHOICES, TextStyle.ATTENTION)
        return TextDialog("not started", lambda columns: [(), *build_refusal(columns), ()], TextStyle.ATTENTION)
    if ended.outcome is not Outcome.PLANNED or (plan is None and not (verb in ("down", "free") and ended.message)):
        return None

    def build_rows(columns: int) -> list[TextRow]:
        wide = min(_MAX_DIALOG_COLUMNS, columns)
        if plan is None:
            return [(), *wrap_text(ended.message or "", wide), ()]
        return [(), *(make_row(sanitize_span(line)) for line in format_launch_plan(plan.plan, wide)), ()]

    return TextDialog("a dry run: nothing was changed", build_rows)


class PanelApp(Panel):
    """The panel. ``run`` returns sentences about what keeps running after the exit."""

    TITLE = "sparkctl"
    BINDINGS: ClassVar[list[BindingType]] = build_bindings(None)
    ENABLE_COMMAND_PALETTE = False  # `ActionPalette` takes its place
    NOTIFICATION_TIMEOUT = 5.0
    CSS = CSS

    def __init__(self, setup: PanelOptions) -> None:
        colourless = bool(os.environ.get("NO_COLOR"))
        few = has_few_colours()
        super().__init__(setup, driver_class=StdoutDriver, ansi_color=True if colourless or few else None)
        self.register_theme(DARK_THEME)
        self.register_theme(LIGHT_THEME)
        self.defect: BaseException | None = None
        self._colourless = colourless
        self.set_class(colourless or few or setup.ascii_only, "-plain")  # what has no ground of its own needs an edge
        self.perform_global_action = partial(perform_global_action, self)
        self.dispatcher = CommandDispatcher(self)
        self.confirm_exit = self._confirm_exit
        self._has_begun = False
        self._interrupted = -_SECOND_INTERRUPT_SECONDS  # when ctrl+c was pressed last
        self.theme = setup.theme if setup.theme in self.available_themes else DARK_THEME.name
        self.tones = self._build_tones()

    # --- life ---

    def get_default_screen(self) -> Screen[Any]:
        """Return the overview as the first screen, so that Textual mounts no empty one below it."""
        return OverviewScreen()

    def on_mount(self) -> None:
        """Set up keys, theme and signals; the controller starts after the first paint."""
        if self.setup.keys:
            self._map_keys()
        self.theme_changed_signal.subscribe(self, self._apply_theme_change)
        # After ctrl+z and `fg` the terminal is empty.
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        for number in (signal.SIGTERM, signal.SIGHUP):
            with suppress(NotImplementedError, ValueError, RuntimeError):  # not the main thread: a test
                asyncio.get_running_loop().add_signal_handler(number, self.exit_panel)
        self.call_after_refresh(self._start_after_first_paint)
        # A key may cover the first screen before its first paint is reported.
        self.set_timer(_FIRST_PAINT_SECONDS, self._start_after_first_paint)

    def _start_after_first_paint(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self.spawn_task(self._start_controller())

    async def _start_controller(self) -> None:
        """Import the controller in a thread, so that keys are handled meanwhile, and start it."""
        from sparkctl.tui.dialogs.prompts import DialogPrompter

        module = await asyncio.to_thread(importlib.import_module, "sparkctl.tui.controller")
        prompter = DialogPrompter(self)
        self.controller = module.PanelController(self, self.setup.make_context(prompter), prompter)
        self.controller.start_monitoring(self._current_nodes)
        self.controller_ready.set()
        self.set_interval(_TICK_SECONDS, self._run_periodic_work)
        if not self.is_headless:  # in a test process the garbage collector stays as it is
            freeze_gc()
        self.repaint_unless_frozen()

    def _run_periodic_work(self) -> None:
        trim_render_caches()
        if self.controller is not None and not self.is_leaving:
            self.controller.schedule_repaint()
            reload_config(self)

    def apply_config(self, config: Config) -> None:
        """Use another config: its nodes, its keys and its read-only setting."""
        assert self.controller is not None
        self.config_fault = None
        self._current_nodes = config.nodes
        self.setup = replace(self.setup, nodes=config.nodes, keys=config.keys, readonly=config.readonly)
        self._map_keys()
        self.controller.add_nodes(self.node_names)
        self.controller.supervisor.follow_nodes(config.nodes)

    def _map_keys(self) -> None:
        keymap = assign_keys(self.setup.keys)
        self.set_keymap({str(one): ",".join(map(parse_key, keys)) or f"none-{one}" for one, keys in keymap.items()})

    def refresh_css(self, animate: bool = True) -> None:
        """Apply the theme's colours. Before the first screen there is nothing to style anew, and all rules come again."""
        if self.screen_stack:
            super().refresh_css(animate=animate)
        else:
            self.stylesheet.set_variables(self.get_css_variables())

    def _fatal_error(self) -> None:
        """Close without a traceback; the caller of the panel reports the defect.

        Textual 8.2 calls this at an exception of a handler and has no public place for it, nor for the exception itself.
        """
        self.defect = self._exception
        self._close_messages_no_wait()

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        """Write the changed cells alone. Textual 8.2 has no public place for this."""
        super()._display(screen, keep_changed_cells(renderable))

    def _build_tones(self) -> dict[TextStyle, Style]:
        return build_theme_styles(
            self.current_theme, colourless=self._colourless, colour_system=self.console.color_system
        )

    def _apply_theme_change(self, _: object) -> None:
        self.tones = self._build_tones()
        if self.setup.keep_theme is not None and self.controller is not None:
            self.setup.keep_theme(self.theme)
        for screen in self.screen_stack:
            if isinstance(screen, PanelScreen):
                screen.apply_theme_styles()

    def report_job_end(self, job: Job, defect: BaseException | None) -> None:
        """Show how a command ended: as a notice, and in a dialog where there is more to read."""
        from sparkctl.views.event_log_view import describe_command_result

        controller, started, ended = self.controller, job.started, job.ended
        assert controller is not None
        if defect is not None:
            words, tone = f"a defect in sparkctl: {type(defect).__name__}: {defect}", TextStyle.BAD
        elif ended is not None:
            nodes = [ended.node] if ended.node else list(started.nodes)
            words, tone = describe_command_result(started.verb, ended, nodes, job.caches)
        else:
            return
        if started.verb == "doctor" and ended is not None and not ended.message:
            return  # the findings are the report
        place = None if self.front_screen is None else self.front_screen.SCREEN_ID
        if place == DOCTOR:  # checks whether the problem is fixed
            controller.run_doctor([node for node in self.config_nodes if node.name in started.nodes])
        details = _build_job_dialog(job, by_hand=controller.is_taken_over)
        is_seen = details is not None or (place == SWITCH and started.verb in _SWITCH_VERBS)
        controller.show_notice(words, tone, is_shown=is_seen)
        if details is not None:
            self.push_screen(details, lambda answer: self._queue_start(job) if answer == "queue" else None)

    def _queue_start(self, job: Job) -> None:
        """Start what was refused once the other operation has ended."""
        assert self.controller is not None
        self.controller.start_command(self.controller.parse_command((*job.started.words, _QUEUE_FLAG)))

    def _confirm_exit(self, progress: SwitchProgress) -> None:
        from sparkctl.tui.dialogs.prompts import confirm_exit

        confirm_exit(self, progress)

    async def on_unmount(self) -> None:
        """End all background work, whatever ended the panel."""
        await self.stop_background_work()

    def action_help_quit(self) -> None:
        """End the panel at the second ctrl+c in a row; the first tells that, and what stays."""
        now = time.monotonic()
        if now - self._interrupted < _SECOND_INTERRUPT_SECONDS:
            self.request_exit()
            return
        self._interrupted = now
        progress = self.find_own_switch()
        left = "engines go on running" if progress is None else f"its switch to {progress.instance} is left where it is"
        self.show_toast(f"ctrl+c again ends the panel, as q does; {left}")

    async def action_quit(self) -> None:
        """Handle Textual's own quit action."""
        self.request_exit()

    # --- keys ---

    @property
    def _quit_keys(self) -> tuple[str, ...]:
        """The keys that end the panel from anywhere."""
        return next(tuple(map(parse_key, one.keys)) for one in self.actions if one.id is ActionId.QUIT_AT_ONCE)

    async def on_event(self, event: events.Event) -> None:
        """Queue keys; drop clicks while a dialog opens, since they were meant for the screen below."""
        if isinstance(event, events.Key) and not event.is_printable and event.key in self._quit_keys:
            self.request_exit()  # before a palette or an input field takes the key
        elif isinstance(event, (events.Key, events.Paste)) and not event.is_forwarded:
            self.keyboard.put_event(event)
        elif not (isinstance(event, events.MouseEvent) and (self.keyboard.is_opening or self.is_leaving)):
            await super().on_event(event)
