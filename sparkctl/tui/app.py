"""The panel. It paints what the store knows and starts what an operator asks for; nothing of either is its own."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import time
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events
from textual.binding import BindingType
from textual.screen import Screen

from sparkctl.commands.actions import ACTIONS, Action, ActionContext, ActionId, list_enabled_actions, parse_key
from sparkctl.concurrency import cancel_and_wait
from sparkctl.errors import SparkctlError
from sparkctl.tui.command_dispatcher import CommandDispatcher
from sparkctl.tui.global_actions import GlobalActions
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
    """Take in a config that was saved meanwhile; its faults are said, until it is good again."""
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
_SHUTDOWN_SECONDS = 2.0  # seconds for what goes on beside the keys to end
_FIRST_PAINT_SECONDS = 0.5  # seconds after which the first picture is there, or another in its place


class PanelApp(Panel):
    """``run`` returns what goes on running, as sentences."""

    TITLE = "sparkctl"
    BINDINGS: ClassVar[list[BindingType]] = build_bindings(None)
    ENABLE_COMMAND_PALETTE = False  # the panel has its own: plain, framed, of its actions alone
    NOTIFICATION_TIMEOUT = 5.0
    CSS = CSS

    def __init__(self, setup: PanelOptions) -> None:
        colourless = bool(os.environ.get("NO_COLOR"))
        super().__init__(driver_class=StdoutDriver, ansi_color=True if colourless else None)
        self.register_theme(DARK_THEME)
        self.register_theme(LIGHT_THEME)
        self.setup = setup
        self.ascii_only = setup.ascii_only
        self.pasted = ""  # what is to be imported, and was left
        self.defect: BaseException | None = None
        self.config_fault: SparkctlError | None = None  # of the file as it is now; what was read before it stays
        self._colourless = colourless
        self._sparks = setup.nodes
        self._selection = NodeSelection()
        self._room: PanelController | None = None
        self.keyboard = KeyQueue(self)
        self._deeds = GlobalActions(self)
        self.orders = CommandDispatcher(self)
        self._leaving = False
        self._has_begun = False
        self.room_made = asyncio.Event()
        self._beside: set[asyncio.Task[None]] = set()
        self.theme = setup.theme if setup.theme in self.available_themes else DARK_THEME.name
        self.tones = build_theme_styles(self.current_theme, colourless=colourless)

    # --- what is shown ---

    @property
    def node_names(self) -> tuple[NodeName, ...]:
        """The Sparks, in the operator's order."""
        if self.setup.recording is not None:
            return () if self._room is None else self._room.bridge.store.nodes
        return tuple(node.name for node in self._sparks)

    @property
    def selected_node(self) -> NodeName | None:
        """The selected one."""
        return self._selection.selected_node(self.node_names)

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions of this panel, with the operator's keys."""
        return list_enabled_actions(
            ActionContext(readonly=self.setup.readonly, screens=registry.AVAILABLE_SCREENS), self.setup.keys
        )

    def displayed_time(self) -> float:
        """Return the moment that is shown, unix seconds: in a recording its own."""
        return time.time() if self._room is None else self._room.displayed_time()

    @property
    def header_badge(self) -> str:
        """What the header says of whose time this is: a recording's, or a simulation's."""
        if self.setup.recording is not None:
            player = None if self._room is None else self._room.player
            return "recording" if player is None else player.progress.description
        return "" if self.setup.badge is None else self.setup.badge()

    @property
    def progress_summary(self) -> str:
        """What goes on, a switch or a transfer, in a few words; empty where nothing does."""
        return "" if self._room is None else self._room.progress_summary

    @property
    def controller(self) -> PanelController | None:
        """What knows the nodes; None before the first picture."""
        return self._room

    @property
    def config_nodes(self) -> tuple[Node, ...]:
        """The Sparks of the config; none in a recording."""
        return () if self.setup.recording is not None else self._sparks

    @property
    def front_screen(self) -> PanelScreen | None:
        """The screen that is seen, or that a dialog stands before."""
        return next((one for one in reversed(self.screen_stack) if isinstance(one, PanelScreen)), None)

    def build_action_context(self) -> ActionContext:
        """Return what the actions depend on."""
        names = self.node_names
        views = () if self._room is None else self._room.list_node_views(names)
        now = ActionContext(
            names=names,
            views=views,
            node=self.selected_node,
            instance=self._find_selected_instance(),
            readonly=self.setup.readonly,
            replaying=self.setup.recording is not None,
            screens=registry.AVAILABLE_SCREENS,
            switch_left=None if self._room is None else self._room.abandoned_switch_state,
            journal=None if self._room is None else self._room.journals.abandoned_journal,
            own=self._own_switch,
        )
        now = now if self.front_screen is None else self.front_screen.add_selection(now)
        return (
            now if self._room is None else replace(now, is_troubled=self.collect_node_problems(now).has_other_problems)
        )

    def collect_node_problems(self, now: ActionContext) -> NodeProblems:
        """Return what is wrong with the selected Spark, and with the config."""
        assert self._room is not None
        return self._room.collect_node_problems(now.node, now.node_view, self.config_fault)

    def list_guarded_instances(self) -> dict[NodeName, tuple[str, ...] | None]:
        """Return what a guard watches on each Spark; None where that is not known."""
        if self._room is None:
            return dict.fromkeys(self.node_names)
        store = self._room.bridge.store
        return {name: store.get_guarded_instances(name) if name in store.nodes else None for name in self.node_names}

    def build_overview_model(self, held: OverviewScreenModel | None = None) -> OverviewScreenModel | None:
        """Return the overview's content, None before anything can be known; a held one with what is chosen now."""
        if self._room is None:
            return None
        if held is not None:
            glances = tuple(replace(one, chosen=self._selection.chosen_instances.get(one.name)) for one in held.glances)
            at = self._selection.selected_index(len(glances))
            return replace(held, glances=glances, chosen=at, notices=self._room.notices.current_notices)
        at = self._selection.selected_index(len(self.node_names))
        return self._room.build_overview_model(
            self.node_names, at, self._selection.chosen_instances, self._sparks, self.ascii_only
        )

    def _find_selected_instance(self) -> str | None:
        """Return the selected instance of the selected node."""
        if self._room is None or self.selected_node is None:
            return None
        return self._selection.selected_instance(self.selected_node, self._room.list_instance_names(self.selected_node))

    def repaint_unless_frozen(self) -> None:
        """Show the state as it is now, on the screen that can be seen, unless that is held."""
        if self.is_running and (self.front_screen is None or self.front_screen.frozen_at is None):
            self.repaint_front_screen()

    def repaint_front_screen(self) -> None:
        """Paint the screen in front, a held one, too: the operator has done something, and sees it. Dialogs are left out: what
        is covered is up to date when it is seen again."""
        if self.front_screen is not None:
            self.front_screen.repaint()

    # --- life ---

    def get_default_screen(self) -> Screen[Any]:
        """Return the overview: nothing is mounted only to be covered."""
        return OverviewScreen()

    def on_mount(self) -> None:
        """Paint first; ask the nodes when that is done."""
        self.set_class(self.ascii_only, "-ascii")
        if self.setup.keys:
            self._map_keys()
        self.theme_changed_signal.subscribe(self, self._apply_theme_change)
        # From ctrl+z: nothing is painted yet.
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        for number in (signal.SIGTERM, signal.SIGHUP):
            with suppress(NotImplementedError, ValueError, RuntimeError):  # not the main thread: a test
                asyncio.get_running_loop().add_signal_handler(number, self.exit_panel)
        self.call_after_refresh(self._start_after_first_paint)
        # A key may cover the first screen before it says that it is painted.
        self.set_timer(_FIRST_PAINT_SECONDS, self._start_after_first_paint)

    def _start_after_first_paint(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self.spawn_task(self._start_controller())

    async def _start_controller(self) -> None:
        """Load what asks nodes, beside the loop so that keys are answered meanwhile, and begin."""
        room = await asyncio.to_thread(importlib.import_module, "sparkctl.tui.controller")
        self._room = room.PanelController(self)
        self._room.start_monitoring(self._sparks)
        self.room_made.set()
        self.set_interval(_TICK_SECONDS, self._run_periodic_work)
        if not self.is_headless:  # of a process that is not the panel's alone, nothing is to be kept for good
            freeze_gc()
        self.repaint_unless_frozen()

    def stop_on_task_error(self, task: asyncio.Task[None]) -> None:
        """A defect of ours ends the panel and is said on the terminal afterwards, by whoever opened it."""
        if not task.cancelled() and (defect := task.exception()) is not None:
            self._handle_exception(defect)  # type: ignore[arg-type]

    def _run_periodic_work(self) -> None:
        trim_render_caches()
        if self._room is not None and not self._leaving:
            self._room.bridge.schedule_repaint()
            reload_config(self)

    def apply_config(self, config: Config) -> None:
        """Show the Sparks of another config, with its keys."""
        assert self._room is not None
        self.config_fault = None
        self._sparks = config.nodes
        self.setup = replace(self.setup, nodes=config.nodes, keys=config.keys, readonly=config.readonly)
        self._map_keys()
        self._room.bridge.add_nodes(self.node_names)
        self._room.supervisor.follow_nodes(config.nodes)

    def _map_keys(self) -> None:
        own = {str(one.id): one.keys for one in ACTIONS} | dict(self.setup.keys)
        self.set_keymap({name: ",".join(map(parse_key, keys)) for name, keys in own.items() if keys})

    def _fatal_error(self) -> None:
        """Close without a traceback: what it was is told as any defect is."""
        self.defect = self._exception
        self._close_messages_no_wait()

    def _apply_theme_change(self, _: object) -> None:
        self.tones = build_theme_styles(self.current_theme, colourless=self._colourless)
        if self.setup.keep_theme is not None and self._room is not None:
            self.setup.keep_theme(self.theme)
        for screen in self.screen_stack:
            if isinstance(screen, PanelScreen):
                screen.apply_theme_styles()

    @property
    def _own_switch(self) -> SwitchProgress | None:
        """The switch that this panel does now."""
        return None if self._room is None else self._room.own_switch

    def exit_panel(self) -> None:
        """End the panel. No engine is stopped by that."""
        if not self._leaving:
            self._leaving = True
            self.spawn_task(self._exit_with_summary())

    def request_exit(self) -> None:
        """End the panel; in the middle of its own switch ask first. Who means it again where that is asked has said so."""
        if (course := self._own_switch) is None:
            self.exit_panel()
        else:
            from sparkctl.tui.dialogs.confirmations import confirm_exit

            confirm_exit(self, course)

    async def _exit_with_summary(self) -> None:
        from sparkctl.tui.job_reports import build_exit_summary  # it knows nodes, as the room does

        said = () if self._room is None else build_exit_summary(self._room, self.node_names)
        self.exit(said + await self._stop_background_work())

    async def _stop_background_work(self) -> tuple[str, ...]:
        """End what goes on beside the keys, what starts something first; return what is left to be said."""
        self._leaving = True
        self.keyboard.close()
        await cancel_and_wait(self._beside - {asyncio.current_task()}, _SHUTDOWN_SECONDS)
        return () if self._room is None else await self._room.aclose()

    async def on_unmount(self) -> None:
        """Let nothing outlive the panel, whatever ended it."""
        await self._stop_background_work()

    def action_help_quit(self) -> None:
        """Say on ctrl+c, which ends nothing here, what does."""
        course, key = self._own_switch, self._quit_keys[0] if self._quit_keys else "q"
        left = "engines go on running" if course is None else f"its switch to {course.instance} is left where it is"
        self.show_toast(f"{key} ends the panel; {left}")

    async def action_quit(self) -> None:
        """Be Textual's own way out, too."""
        self.request_exit()

    # --- keys ---

    @property
    def _quit_keys(self) -> tuple[str, ...]:
        """The keys that end the panel from anywhere."""
        return next(tuple(map(parse_key, one.keys)) for one in self.actions if one.id is ActionId.QUIT_AT_ONCE)

    async def on_event(self, event: events.Event) -> None:
        """Take keys one at a time; a click is for what is seen, and not for a dialog that is still to come."""
        if isinstance(event, events.Key) and not event.is_printable and event.key in self._quit_keys:
            self.request_exit()  # also where a palette or a field would keep the key for itself
        elif isinstance(event, (events.Key, events.Paste)) and not event.is_forwarded:
            self.keyboard.put_event(event)
        elif not (isinstance(event, events.MouseEvent) and (self.keyboard.is_opening or self._leaving)):
            await super().on_event(event)

    async def deliver_key_event(self, event: events.Key | events.Paste) -> None:
        """Let a key do what it does now."""
        await super().on_event(event)

    # --- actions ---

    def perform_action(self, name: str) -> None:
        """Do an action, or say why it cannot be done now."""
        front = self.front_screen
        one = next((one for one in (self.actions if front is None else front.actions) if one.id == name), None)
        if one is None:
            if self.setup.readonly and any(each.id == name and each.changes for each in ACTIONS):
                self.show_toast("this panel is read-only: it changes nothing on any Spark")
            return
        if why := one.why_not(self.build_action_context()):
            self.show_toast(why)
            return
        what = one.id.name.lower()
        getattr(front, f"do_{what}", getattr(self._deeds, f"do_{what}", self._deeds.perform_action))(one)

    def action_act(self, name: str) -> None:
        """Be called by keys."""
        self.perform_action(name)

    def select_node(self, index: int) -> None:
        """Select a Spark."""
        self._selection.select_node(index, len(self.node_names))
        self.repaint_front_screen()

    def move_node_selection(self, by: int) -> None:
        """Select another Spark; after the last comes the first."""
        self.select_node((self._selection.selected_index(len(self.node_names)) + by) % len(self.node_names))

    def move_instance_selection(self, by: int) -> None:
        """Select another instance of the selected Spark."""
        names = (
            []
            if self._room is None or self.selected_node is None
            else self._room.list_instance_names(self.selected_node)
        )
        if names and self.selected_node is not None:
            self._selection.move_instance(self.selected_node, names, by)
            self.repaint_front_screen()

    def toggle_pause(self) -> None:
        """Hold the picture that is seen, or let it go on."""
        if self._room is not None and self._room.player is not None:
            self._room.player.toggle_pause()
        elif self.front_screen is not None:
            self.front_screen.toggle_freeze()
        self.repaint_front_screen()

    def select_instance(self, node: NodeName, instance: str) -> None:
        """Let this instance be the one that is selected on its node."""
        self._selection.select_instance(node, instance)

    # --- what it is told to do ---

    def open_screen(self, name: str, now: ActionContext | None = None) -> None:
        """Open a screen for a situation, this one unless given, or go back to it where it is open."""
        places = [screen.SCREEN_ID if isinstance(screen, PanelScreen) else None for screen in self.screen_stack]
        if name not in places:
            self.keyboard.hold_until_mounted(
                self.push_screen(registry.create_screen(name, now or self.build_action_context()))
            )
            return
        for _ in places[places.index(name) + 1 :]:
            self.pop_screen()

    def run_command_line(self, words: Sequence[str]) -> None:
        """Do what a command line says; why it cannot be done is said."""
        try:
            self.orders.dispatch(words)
        except SparkctlError as error:
            self.show_error(error)

    def spawn_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Let something go on beside the keys; a defect in it is the panel's."""
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
        task.add_done_callback(self.stop_on_task_error)
        return task

    def spawn_dialog_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Let something go on that opens a dialog at its end: what is typed meanwhile is for that."""
        self.keyboard.hold_until_done(self.spawn_task(work))

    def spawn_terminal_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Let something go on that gives the terminal to another program: what is typed until then is nobody's."""
        self.keyboard.suspend_until(self.spawn_task(work))
