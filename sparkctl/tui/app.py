"""The Textual app of the panel: it owns the screens, the key bindings, the selection and the background tasks."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events
from textual.binding import BindingType
from textual.screen import Screen

from sparkctl.commands.actions import ACTIONS, Action, ActionContext, ActionId, list_enabled_actions, parse_key
from sparkctl.concurrency import cancel_and_wait, has_pending_input
from sparkctl.errors import SparkctlError
from sparkctl.tui.command_dispatcher import CommandDispatcher
from sparkctl.tui.global_actions import perform_global_action
from sparkctl.tui.key_queue import KeyQueue
from sparkctl.tui.node_selection import NodeSelection
from sparkctl.tui.panel_interface import Panel
from sparkctl.tui.panel_options import PanelOptions
from sparkctl.tui.screens import registry
from sparkctl.tui.screens.base import PanelScreen, build_bindings
from sparkctl.tui.screens.overview_screen import OverviewScreen
from sparkctl.tui.terminal_driver import StdoutDriver, freeze_gc, trim_render_caches
from sparkctl.tui.theme import DARK_THEME, LIGHT_THEME, build_theme_styles

if TYPE_CHECKING:
    from sparkctl.commands.request import Request, ScreenTarget
    from sparkctl.config import Config
    from sparkctl.model.node import Node, NodeName
    from sparkctl.monitor.switch_progress import SwitchProgress
    from sparkctl.tui.controller import PanelController
    from sparkctl.views.finding_view import NodeProblems
    from sparkctl.views.overview.overview_view import OverviewScreenModel


CSS = """
Toast { max-width: 70; padding: 0 1; }
ToastRack { margin-bottom: 2; }
ModalScreen ToastRack { display: none; }
PanelApp.-ascii Toast.-information { border-left: ascii $success; }
PanelApp.-ascii Toast.-warning { border-left: ascii $warning; }
PanelApp.-ascii Toast.-error { border-left: ascii $error; }
Dialog { align: center middle; background: $background 60%; }
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


_TICK_SECONDS = 1.0  # seconds
_SHUTDOWN_SECONDS = 2.0  # seconds that background tasks have to end
_FIRST_PAINT_SECONDS = 0.5  # seconds after which the controller starts even without a first paint


class PanelApp(Panel):
    """The panel. ``run`` returns sentences about what keeps running after the exit."""

    TITLE = "sparkctl"
    BINDINGS: ClassVar[list[BindingType]] = build_bindings(None)
    ENABLE_COMMAND_PALETTE = False  # `ActionPalette` takes its place
    NOTIFICATION_TIMEOUT = 5.0
    CSS = CSS

    def __init__(self, setup: PanelOptions) -> None:
        colourless = bool(os.environ.get("NO_COLOR"))
        super().__init__(driver_class=StdoutDriver, ansi_color=True if colourless else None)
        self.register_theme(DARK_THEME)
        self.register_theme(LIGHT_THEME)
        self.setup = setup
        self.ascii_only = setup.ascii_only
        self.pasted = ""  # the text of an import that was cancelled
        self.defect: BaseException | None = None
        self.config_fault: SparkctlError | None = (
            None  # of the config file as it is now; the config read before stays in use
        )
        self._colourless = colourless
        self._current_nodes = setup.nodes
        self._selection = NodeSelection()
        self._controller: PanelController | None = None
        self.keyboard = KeyQueue(self)
        has_pending_input.set(self.keyboard.has_pending_key)
        self.orders = CommandDispatcher(self)
        self._leaving = False
        self._has_begun = False
        self.controller_ready = asyncio.Event()
        self._background_tasks: set[asyncio.Task[None]] = set()
        self.theme = setup.theme if setup.theme in self.available_themes else DARK_THEME.name
        self.tones = build_theme_styles(self.current_theme, colourless=colourless)

    # --- what is shown ---

    @property
    def node_names(self) -> tuple[NodeName, ...]:
        """The nodes, in the operator's order."""
        if self.setup.recording is not None:
            return () if self._controller is None else self._controller.bridge.store.nodes
        return tuple(node.name for node in self._current_nodes)

    @property
    def selected_node(self) -> NodeName | None:
        """The selected node; None where there is none."""
        return self._selection.selected_node(self.node_names)

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions of this panel, with the operator's keys."""
        return list_enabled_actions(
            ActionContext(readonly=self.setup.readonly, screens=registry.AVAILABLE_SCREENS), self.setup.keys
        )

    def displayed_time(self) -> float:
        """Return the displayed time in unix seconds; a recording has its own."""
        return time.time() if self._controller is None else self._controller.displayed_time()

    @property
    def header_badge(self) -> str:
        """The header's word for a recording or a simulation; empty for live nodes."""
        if self.setup.recording is not None:
            player = None if self._controller is None else self._controller.player
            return "recording" if player is None else player.progress.description
        return "" if self.setup.badge is None else self.setup.badge()

    @property
    def progress_summary(self) -> str:
        """The running switch or transfer in a few words; empty where none runs."""
        return "" if self._controller is None else self._controller.progress_summary

    @property
    def controller(self) -> PanelController | None:
        """The controller; None before the first paint."""
        return self._controller

    @property
    def config_nodes(self) -> tuple[Node, ...]:
        """The nodes of the config; none in a recording."""
        return () if self.setup.recording is not None else self._current_nodes

    @property
    def front_screen(self) -> PanelScreen | None:
        """The screen in front, or behind the open dialog."""
        return next((one for one in reversed(self.screen_stack) if isinstance(one, PanelScreen)), None)

    def build_action_context(self) -> ActionContext:
        """Return the state that the actions depend on."""
        names = self.node_names
        views = () if self._controller is None else self._controller.list_node_views(names)
        now = ActionContext(
            names=names,
            config_nodes=self.config_nodes,
            views=views,
            node=self.selected_node,
            instance=self._find_selected_instance(),
            readonly=self.setup.readonly,
            replaying=self.setup.recording is not None,
            screens=registry.AVAILABLE_SCREENS,
            switch_left=None if self._controller is None else self._controller.abandoned_switch_state,
            journal=None if self._controller is None else self._controller.journals.abandoned_journal,
            own=self._own_switch,
        )
        now = now if self.front_screen is None else self.front_screen.add_selection(now)
        return (
            now
            if self._controller is None
            else replace(now, is_troubled=self.collect_node_problems(now).has_other_problems)
        )

    def collect_node_problems(self, now: ActionContext) -> NodeProblems:
        """Return the problems of the selected node and of the config."""
        assert self._controller is not None
        return self._controller.collect_node_problems(now.node, now.node_view, self.config_fault)

    def list_guarded_instances(self) -> dict[NodeName, tuple[str, ...] | None]:
        """Return what the guard watches on each node; None where that is not known."""
        if self._controller is None:
            return dict.fromkeys(self.node_names)
        store = self._controller.bridge.store
        return {name: store.get_guarded_instances(name) if name in store.nodes else None for name in self.node_names}

    def build_overview_model(self, held: OverviewScreenModel | None = None) -> OverviewScreenModel | None:
        """Return the content of the overview; None before anything is known.

        ``held`` is the model of a paused screen: only its selection and its notices are updated.
        """
        if self._controller is None:
            return None
        if held is not None:
            glances = tuple(replace(one, chosen=self._selection.chosen_instances.get(one.name)) for one in held.glances)
            at = self._selection.selected_index(len(glances))
            return replace(held, glances=glances, chosen=at, notices=self._controller.notices.current_notices)
        at = self._selection.selected_index(len(self.node_names))
        return self._controller.build_overview_model(
            self.node_names, at, self._selection.chosen_instances, self._current_nodes, self.ascii_only
        )

    def _find_selected_instance(self) -> str | None:
        """Return the selected instance of the selected node."""
        if self._controller is None or self.selected_node is None:
            return None
        return self._selection.selected_instance(
            self.selected_node, self._controller.list_instance_names(self.selected_node)
        )

    def repaint_unless_frozen(self) -> None:
        """Paint the front screen unless it is paused."""
        if self.is_running and (self.front_screen is None or self.front_screen.frozen_at is None):
            self.repaint_front_screen()

    def repaint_front_screen(self) -> None:
        """Paint the front screen, even while it is paused: the operator sees the result of a key.

        Dialogs are left out; a covered screen is painted when it is visible again.
        """
        if self.front_screen is not None:
            self.front_screen.repaint()

    # --- life ---

    def get_default_screen(self) -> Screen[Any]:
        """Return the overview as the first screen, so that Textual mounts no empty one below it."""
        return OverviewScreen()

    def on_mount(self) -> None:
        """Set up keys, theme and signals; the controller starts after the first paint."""
        self.set_class(self.ascii_only, "-ascii")
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
        module = await asyncio.to_thread(importlib.import_module, "sparkctl.tui.controller")
        self._controller = module.PanelController(self)
        self._controller.start_monitoring(self._current_nodes)
        self.controller_ready.set()
        self.set_interval(_TICK_SECONDS, self._run_periodic_work)
        if not self.is_headless:  # in a test process the garbage collector stays as it is
            freeze_gc()
        self.repaint_unless_frozen()

    def stop_on_task_error(self, task: asyncio.Task[None]) -> None:
        """End the panel on a defect in sparkctl; the caller of the panel prints it on the terminal."""
        if not task.cancelled() and (defect := task.exception()) is not None:
            self._handle_exception(defect)  # type: ignore[arg-type]

    def _run_periodic_work(self) -> None:
        trim_render_caches()
        if self._controller is not None and not self._leaving:
            self._controller.bridge.schedule_repaint()
            reload_config(self)

    def apply_config(self, config: Config) -> None:
        """Use another config: its nodes, its keys and its read-only setting."""
        assert self._controller is not None
        self.config_fault = None
        self._current_nodes = config.nodes
        self.setup = replace(self.setup, nodes=config.nodes, keys=config.keys, readonly=config.readonly)
        self._map_keys()
        self._controller.bridge.add_nodes(self.node_names)
        self._controller.supervisor.follow_nodes(config.nodes)

    def _map_keys(self) -> None:
        own = {str(one.id): one.keys for one in ACTIONS} | dict(self.setup.keys)
        self.set_keymap({name: ",".join(map(parse_key, keys)) for name, keys in own.items() if keys})

    def _fatal_error(self) -> None:
        """Close without a traceback; the caller of the panel reports the defect.

        Textual 8.2 calls this at an exception of a handler and has no public place for it, nor for the exception itself.
        """
        self.defect = self._exception
        self._close_messages_no_wait()

    def _apply_theme_change(self, _: object) -> None:
        self.tones = build_theme_styles(self.current_theme, colourless=self._colourless)
        if self.setup.keep_theme is not None and self._controller is not None:
            self.setup.keep_theme(self.theme)
        for screen in self.screen_stack:
            if isinstance(screen, PanelScreen):
                screen.apply_theme_styles()

    @property
    def _own_switch(self) -> SwitchProgress | None:
        """The switch that this panel runs now."""
        return None if self._controller is None else self._controller.own_switch

    def exit_panel(self) -> None:
        """End the panel; engines keep running."""
        if not self._leaving:
            self._leaving = True
            self.spawn_task(self._exit_with_summary())

    def request_exit(self) -> None:
        """End the panel; while it runs a switch ask first. A second request in that dialog confirms it."""
        if (course := self._own_switch) is None:
            self.exit_panel()
        else:
            from sparkctl.tui.dialogs.confirmations import confirm_exit

            confirm_exit(self, course)

    async def _exit_with_summary(self) -> None:
        from sparkctl.tui.job_reports import build_exit_summary  # imports much, so only here

        said = () if self._controller is None else build_exit_summary(self._controller, self.node_names)
        self.exit(said + await self._stop_background_work())

    async def _stop_background_work(self) -> tuple[str, ...]:
        """End the background tasks, then the controller; return its sentences for the exit."""
        self._leaving = True
        self.keyboard.close()
        await cancel_and_wait(self._background_tasks - {asyncio.current_task()}, _SHUTDOWN_SECONDS)
        return () if self._controller is None else await self._controller.aclose()

    async def on_unmount(self) -> None:
        """End all background work, whatever ended the panel."""
        await self._stop_background_work()

    def action_help_quit(self) -> None:
        """Tell on ctrl+c which key ends the panel."""
        course, key = self._own_switch, self._quit_keys[0] if self._quit_keys else "q"
        left = "engines go on running" if course is None else f"its switch to {course.instance} is left where it is"
        self.show_toast(f"{key} ends the panel; {left}")

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
        elif not (isinstance(event, events.MouseEvent) and (self.keyboard.is_opening or self._leaving)):
            await super().on_event(event)

    async def deliver_key_event(self, event: events.Key | events.Paste) -> None:
        """Handle a key now."""
        await super().on_event(event)

    # --- actions ---

    def perform_action(self, name: str) -> None:
        """Run an action, or say why it is not possible now."""
        front = self.front_screen
        one = next((one for one in (self.actions if front is None else front.actions) if one.id == name), None)
        if one is None:
            if self.setup.readonly and any(each.id == name and each.changes for each in ACTIONS):
                self.show_toast("this panel is read-only: it changes nothing on any Spark")
            return
        if why := one.why_not(self.build_action_context()):
            self.show_toast(why)
            return
        own = {} if front is None else front.action_handlers()
        if one.id in own:
            own[one.id]()
        else:
            perform_global_action(self, one)

    def action_act(self, name: str) -> None:
        """Run an action from a key binding."""
        self.perform_action(name)

    def select_node(self, index: int) -> None:
        """Select a node."""
        self._selection.select_node(index, len(self.node_names))
        self.repaint_front_screen()

    def move_node_selection(self, by: int) -> None:
        """Move the selection by so many nodes; after the last comes the first."""
        self.select_node((self._selection.selected_index(len(self.node_names)) + by) % len(self.node_names))

    def move_instance_selection(self, by: int) -> None:
        """Move the selection by so many instances of the selected node."""
        names = (
            []
            if self._controller is None or self.selected_node is None
            else self._controller.list_instance_names(self.selected_node)
        )
        if names and self.selected_node is not None:
            self._selection.move_instance(self.selected_node, names, by)
            self.repaint_front_screen()

    def toggle_pause(self) -> None:
        """Pause the front screen or the recording, or continue it."""
        if self._controller is not None and self._controller.player is not None:
            self._controller.player.toggle_pause()
        elif self.front_screen is not None:
            self.front_screen.toggle_freeze()
        self.repaint_front_screen()

    def select_instance(self, node: NodeName, instance: str) -> None:
        """Select an instance of a node."""
        self._selection.select_instance(node, instance)

    # --- screens, command lines and background tasks ---

    def open_screen(self, name: str, now: ActionContext | None = None) -> None:
        """Open a screen, or return to it where it is open. ``now`` defaults to the current action context."""
        places = [screen.SCREEN_ID if isinstance(screen, PanelScreen) else None for screen in self.screen_stack]
        if name not in places:
            self.keyboard.hold_until_mounted(
                self.push_screen(registry.create_screen(name, now or self.build_action_context()))
            )
            return
        for _ in places[places.index(name) + 1 :]:
            self.pop_screen()

    def run_command_line(self, words: Sequence[str], confirms: Action | None = None) -> None:
        """Carry out a command line, after a question as before this action; show the error where it is refused."""
        try:
            self.orders.dispatch_line(words, confirms)
        except SparkctlError as error:
            self.show_error(error)

    def run_request(self, build_request: Callable[[], Request | ScreenTarget]) -> None:
        """Carry out a request; show the error where it cannot be made or is refused."""
        try:
            self.orders.dispatch_request(build_request())
        except SparkctlError as error:
            self.show_error(error)

    def spawn_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a task in the background; a defect in it ends the panel."""
        task = asyncio.create_task(work)
        self._background_tasks.add(task)
        task.add_done_callback(self._background_tasks.discard)
        task.add_done_callback(self.stop_on_task_error)
        return task

    def spawn_dialog_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task that opens a dialog; the dialog gets the keys typed until then."""
        self.keyboard.hold_until_done(self.spawn_task(work))

    def spawn_terminal_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task that gives the terminal to another program; keys typed until then are dropped."""
        self.keyboard.suspend_until(self.spawn_task(work))
