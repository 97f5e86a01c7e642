"""The panel as its screens, dialogs and actions know it: what is selected, the controller, toasts, and background tasks."""

from __future__ import annotations

import asyncio
import importlib
import re
import signal
import time
from asyncio.subprocess import PIPE
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from textual.app import App
from textual.filter import LineFilter
from textual.reactive import Reactive
from textual.screen import ModalScreen, Screen
from textual.widget import Widget

from sparkctl.commands.actions import (
    ACTIONS,
    OVERVIEW,
    Action,
    ActionContext,
    ActionId,
    list_enabled_actions,
    list_screen_actions,
)
from sparkctl.concurrency import BackgroundTasks, has_pending_input
from sparkctl.errors import InvalidInput, SparkctlError
from sparkctl.model.finding import Finding, Severity, find_same
from sparkctl.model.node import Node, NodeName, NodeState
from sparkctl.model.text.sanitize import sanitize_lines
from sparkctl.tui.key_hints import format_key
from sparkctl.tui.key_queue import KeyQueue
from sparkctl.tui.panel_options import AVAILABLE_SCREENS, SCREENS, PanelOptions
from sparkctl.tui.text_surface import AsciiFilter

if TYPE_CHECKING:
    from rich.style import Style
    from textual import events

    from sparkctl.commands.request import Request, ScreenTarget
    from sparkctl.commands.switch.switch_request import SwitchInstance
    from sparkctl.model.profile import Profile
    from sparkctl.monitor.activity import Notice
    from sparkctl.monitor.switch_progress import SwitchProgress
    from sparkctl.profiles.profile_library import ProfileOffer
    from sparkctl.tui.controller import PanelController
    from sparkctl.views.finding_view import NodeProblems
    from sparkctl.views.text.styled_text import TextStyle

ActionHandlers = Mapping[ActionId, Callable[[], object]]
_SHUTDOWN_SECONDS = 2.0  # seconds that background tasks have to end
_MAX_TOAST_LINES = 6  # a toast covers a part of the screen
_TOAST_SEVERITIES = ("information", "warning", "error")


class StaticFocusScreen(Screen[None]):
    """A screen that is not repainted when the focus moves: the two widgets paint themselves."""

    BLANK = True  # its widgets cover it: what lies below them needs no styling at each paint
    focused: Reactive[Widget | None] = Reactive(None, repaint=False)


class FrontScreen(StaticFocusScreen):
    """A screen as the panel knows it: its actions and its selection. `PanelScreen` paints it.

    Actions without an entry in `action_handlers` are the same on every screen (`global_actions`).
    """

    SCREEN_ID: ClassVar[str]
    HOLDS_FIGURES: ClassVar[bool] = False  # whether it can be paused; what plays a recording is paused on any screen
    frozen_at: float | None = None  # since when the screen is paused, unix seconds; None where it is not

    @property
    def panel(self) -> Panel:
        return self.app  # type: ignore[return-value]

    @property
    def breadcrumb(self) -> str:
        """The text behind the program's name in the header."""
        return ""

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions of this screen, in the order of the help."""
        found = list_screen_actions(self.panel.actions, self.SCREEN_ID)
        if self.HOLDS_FIGURES or self.panel.setup.recording is not None:
            return found
        return tuple(one for one in found if one.id is not ActionId.PAUSE)

    def action_handlers(self) -> ActionHandlers:
        """Return what this screen does itself, by action."""
        return {}

    @property
    def shows_notices(self) -> bool:
        """Whether notices are rows of this screen, so that no toast covers the rest."""
        return self.SCREEN_ID == OVERVIEW

    def already_shows(self, message: str) -> bool:
        """Tell whether this screen shows the message already, so that it needs no toast."""
        return False

    def add_selection(self, now: ActionContext) -> ActionContext:
        """Return the action context with this screen's selection."""
        return now

    def toggle_freeze(self) -> None:
        """Pause this screen, or continue it. Other screens are not affected."""
        self.frozen_at = self.panel.displayed_time() if self.frozen_at is None else None

    def repaint(self) -> None:
        """Paint the screen in its current state."""
        raise NotImplementedError


class Dispatcher(Protocol):
    """What the panel and its screens use of `CommandDispatcher`, which opens screens, and so knows them."""

    def dispatch_line(self, words: Sequence[str], confirms: Action | None = None) -> None: ...
    def dispatch_request(self, request: Request | ScreenTarget) -> None: ...
    def build_switch(self, profile: Profile, typed: str, nodes: Sequence[NodeName]) -> SwitchInstance: ...
    def plan_selected_switch(self) -> None: ...
    def open_profile_picker(self) -> None: ...
    def show_profile_picker(self, offers: Sequence[ProfileOffer], title: str) -> None: ...
    def open_command_line(self) -> None: ...


_ASCII_FILTER = AsciiFilter()


@lru_cache(2)  # each paint asks several times
def _list_actions(keys: tuple[tuple[str, tuple[str, ...]], ...], *, readonly: bool) -> tuple[Action, ...]:
    return list_enabled_actions(ActionContext(readonly=readonly, screens=AVAILABLE_SCREENS), keys)


class Panel(App[tuple[str, ...]]):
    """The app without its life: `PanelApp` adds start, keys and exit. ``pasted``: the text of an import that was cancelled.

    ``config_fault``: of the config file as it is now; the config read before stays in use.
    """

    dispatcher: Dispatcher
    perform_global_action: Callable[[Action], None]  # for what the screen in front does not do itself
    confirm_exit: Callable[[SwitchProgress], None]
    tones: Mapping[TextStyle, Style]

    def __init__(self, setup: PanelOptions, **options: Any) -> None:
        super().__init__(**options)
        self.setup = setup
        self.ascii_only = setup.ascii_only
        self.pasted = ""
        self.config_fault: SparkctlError | None = None
        self.controller: PanelController | None = None  # before the first paint
        self.controller_ready = asyncio.Event()
        self.keyboard = KeyQueue(self, self.spawn_task, self.deliver_key_event)
        has_pending_input.set(self.keyboard.has_pending_key)
        self._current_nodes = setup.nodes
        self._selected_index = 0
        self._chosen_instances: dict[NodeName, str] = {}
        self._chosen_finding: Finding | None = None
        self._pending_toasts: list[tuple[str, str]] = []
        self.is_leaving = False
        self._tasks = BackgroundTasks(self.stop_on_defect)

    # --- what is shown ---

    @property
    def node_names(self) -> tuple[NodeName, ...]:
        """The nodes, in the operator's order."""
        if self.setup.recording is not None:
            return () if self.controller is None else self.controller.store.nodes
        return tuple(node.name for node in self._current_nodes)

    @property
    def selected_index(self) -> int:
        """The index of the selected node; 0 where there is none."""
        return max(0, min(self._selected_index, len(self.node_names) - 1))

    @property
    def selected_node(self) -> NodeName | None:
        """The selected node; None where there is none."""
        names = self.node_names
        return names[self.selected_index] if names else None

    @property
    def chosen_instances(self) -> Mapping[NodeName, str]:
        """The instance that the operator chose on each node; it may be gone."""
        return self._chosen_instances

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions of this panel, with the operator's keys."""
        return _list_actions(self.setup.keys, readonly=self.setup.readonly)

    def displayed_time(self) -> float:
        """Return the displayed time in unix seconds; a recording has its own."""
        return time.time() if self.controller is None else self.controller.displayed_time()

    @property
    def header_badge(self) -> str:
        """The header's word for a recording or a simulation; empty for live nodes."""
        if self.setup.recording is not None:
            player = None if self.controller is None else self.controller.player
            return "recording" if player is None else player.progress.description
        return "" if self.setup.badge is None else self.setup.badge()

    @property
    def progress_summary(self) -> str:
        """The running switch or transfer in a few words, for screens other than the overview; empty where none runs."""
        if self.controller is None:
            return ""
        from sparkctl.views.event_text import format_transfer_short

        progress, going = self.controller.store.switches.running, self.controller.store.jobs.running_transfers
        words = [] if progress is None or progress.current_step is None else [f"switch: {progress.current_step}"]
        return ", ".join([*words, *(format_transfer_short(one) for one in going[:1])])

    @property
    def start_key(self) -> str | None:
        """The key that starts a profile; None where nothing can be started, as in a recording."""
        return None if self.setup.recording is not None else self.format_action_key(ActionId.UP)

    def format_action_key(self, action: ActionId) -> str | None:
        """Return the key of an action; None where this panel does not have it."""
        keys = (one.keys[0] for one in self.actions if one.id is action and one.keys)
        return next((format_key(key) for key in keys), None)

    @property
    def config_nodes(self) -> tuple[Node, ...]:
        """The nodes of the config; none in a recording."""
        return () if self.setup.recording is not None else self._current_nodes

    @property
    def front_screen(self) -> FrontScreen | None:
        """The screen in front, or behind the open dialog."""
        return next((one for one in reversed(self.screen_stack) if isinstance(one, FrontScreen)), None)

    def build_action_context(self) -> ActionContext:
        """Return the state that the actions depend on."""
        names, controller = self.node_names, self.controller
        now = ActionContext(
            names=names,
            config_nodes=self.config_nodes,
            node=self.selected_node,
            readonly=self.setup.readonly,
            replaying=self.setup.recording is not None,
            screens=AVAILABLE_SCREENS,
        )
        if controller is not None:
            now = replace(
                now,
                views=controller.store.get_views(names),
                instance=self._find_selected_instance(),
                finding=self.chosen_finding,
                switch_left=controller.store.switches.is_abandoned,
                journal=controller.store.switches.abandoned_journal,
                own=controller.own_switch,
                is_measuring=any(job.measures for job in controller.store.jobs.running.values()),
            )
        now = now if self.front_screen is None else self.front_screen.add_selection(now)
        return (
            now if controller is None else replace(now, is_troubled=self.collect_node_problems(now).has_other_problems)
        )

    def list_notices(self) -> list[Notice]:
        """Return the notices that hold now, the latest last."""
        return [] if self.controller is None else self.controller.store.notices.list_current(self.displayed_time())

    def collect_node_problems(self, now: ActionContext) -> NodeProblems:
        """Return the problems of the selected node and of the config."""
        from sparkctl.views.event_log_view import style_notice
        from sparkctl.views.finding_view import NodeProblems

        assert self.controller is not None
        name, view, store, fault = now.node, now.node_view, self.controller.store, self.config_fault
        word = re.compile(rf"(?<![\w-]){re.escape(name or '')}(?![\w-])")
        return NodeProblems(
            view=view,
            now=view.sample.time if view is not None and view.sample is not None else self.displayed_time(),
            ends={} if name is None else store.get_start_results(name),
            happened=tuple(store.event_log.entries),
            notices=[style_notice(one) for one in self.list_notices() if name is not None and word.search(one.text)],
            fault=None if fault is None else fault.message,
            hint=None if fault is None else fault.hint,
        )

    def list_guarded_instances(self) -> dict[NodeName, tuple[str, ...] | None]:
        """Return what the guard watches on each node; None where that is not known."""
        if self.controller is None:
            return dict.fromkeys(self.node_names)
        store = self.controller.store
        return {name: store.get_record(name).guarded if name in store.nodes else None for name in self.node_names}

    def list_findings(self) -> tuple[Finding, ...]:
        """Return what is wrong with the selected node; nothing where it does not answer."""
        if self.controller is None or self.selected_node not in self.controller.store.nodes:
            return ()
        view = self.controller.store.get_last_known_view(self.selected_node)
        return view.findings if self.controller.store.get_record(view.name).state.state is NodeState.OK else ()

    @property
    def chosen_finding(self) -> Finding | None:
        """The finding that the operator selected on the selected node, as it is now; None when it is over."""
        return find_same(self.list_findings(), self._chosen_finding)

    def _list_instance_names(self) -> list[str]:
        """Return the names of the instances on the selected node, in the order of its tile."""
        from sparkctl.views.overview.tile_model import sort_by_urgency

        name, controller = self.selected_node, self.controller
        if controller is None or name is None or name not in controller.store.nodes:
            return []
        return [one.name for one in sort_by_urgency(controller.store.get_last_known_view(name))]

    def _find_selected_instance(self) -> str | None:
        """Return the selected instance of the selected node: the chosen one, else the first, which is the most urgent."""
        there = self._list_instance_names()
        chosen = None if self.selected_node is None else self._chosen_instances.get(self.selected_node)
        return chosen if chosen in there else next(iter(there), None)

    def already_shows(self, message: str) -> bool:
        return self.front_screen is not None and self.front_screen.already_shows(message)

    def is_operator_active(self, seconds: float) -> bool:
        """Tell whether a dialog is open, or a key was pressed within so many seconds."""
        return isinstance(self.screen, ModalScreen) or not self.keyboard.is_idle_for(seconds)

    def repaint_unless_frozen(self) -> None:
        """Paint the front screen unless it is paused."""
        if self.is_running and (self.front_screen is None or self.front_screen.frozen_at is None):
            self.repaint_front_screen()

    def repaint_front_screen(self) -> None:
        """Paint the front screen, even while paused: the operator sees a key's result. A covered one is painted when it is visible."""
        if self.front_screen is not None:
            self.front_screen.repaint()

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
        handlers = {} if front is None else front.action_handlers()
        if one.id in handlers:
            handlers[one.id]()
        else:
            self.perform_global_action(one)

    def action_act(self, name: str) -> None:
        """Run an action from a key binding."""
        self.perform_action(name)

    def select_node(self, index: int) -> None:
        self._selected_index = max(0, min(index, len(self.node_names) - 1))
        self._chosen_finding = None
        self.repaint_front_screen()

    def move_node_selection(self, by: int) -> None:
        """Move the selection by so many nodes; after the last comes the first."""
        self.select_node((self.selected_index + by) % len(self.node_names))

    def select_instance(self, node: NodeName, instance: str) -> None:
        self._chosen_instances[node] = instance
        self._chosen_finding = None

    def move_instance_selection(self, by: int) -> None:
        """Move the selection by so many instances of the selected node; on the overview its findings come after them."""
        names, node = self._list_instance_names(), self.selected_node
        findings = self.list_findings() if self.front_screen and self.front_screen.SCREEN_ID == OVERVIEW else ()
        if node is None or not (names or findings):
            return
        if (chosen := self.chosen_finding) is not None and chosen in findings:
            at = len(names) + findings.index(chosen) + by
        elif names:
            at = names.index(self._find_selected_instance() or names[0]) + by
        else:
            at = 0
        at = max(0, min(len(names) + len(findings) - 1, at))
        if at < len(names):
            self.select_instance(node, names[at])
        else:
            self._chosen_finding = findings[at - len(names)]
        self.repaint_front_screen()

    def toggle_pause(self) -> None:
        """Pause the front screen or the recording, or continue it."""
        if self.controller is not None and self.controller.player is not None:
            self.controller.player.toggle_pause()
        elif self.front_screen is not None:
            self.front_screen.toggle_freeze()
        self.repaint_front_screen()

    # --- screens, command lines and background tasks ---

    def open_screen(self, name: str, now: ActionContext | None = None) -> None:
        """Open a screen, or return to it where it is open. ``now`` defaults to the current action context."""
        places = [getattr(screen, "SCREEN_ID", None) for screen in self.screen_stack]
        if name not in places:
            module, kind = SCREENS[name]
            screen = getattr(importlib.import_module(f"sparkctl.tui.screens.{module}"), kind)
            self.keyboard.hold_until_mounted(self.push_screen(screen.create(now or self.build_action_context())))
            return
        for _ in places[places.index(name) + 1 :]:
            self.pop_screen()

    def run_command_line(self, words: Sequence[str], confirms: Action | None = None) -> None:
        """Carry out a command line, after a question as before this action; show the error where it is refused."""
        try:
            self.dispatcher.dispatch_line(words, confirms)
        except SparkctlError as error:
            self.show_error(error)

    def run_request(self, build_request: Callable[[], Request | ScreenTarget]) -> None:
        """Carry out a request; show the error where it cannot be made or is refused."""
        try:
            self.dispatcher.dispatch_request(build_request())
        except SparkctlError as error:
            self.show_error(error)

    @property
    def is_idle(self) -> bool:
        """Whether no task of `spawn_task` runs and no memory estimate is computed."""
        return self._tasks.is_idle and (self.controller is None or self.controller.fits.is_idle)

    def spawn_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a task in the background; a defect in it ends the panel."""
        return self._tasks.start_task(work)

    def stop_on_defect(self, defect: BaseException) -> None:
        """End the panel on a defect in sparkctl; the caller of the panel prints it on the terminal."""
        self._handle_exception(defect)  # type: ignore[arg-type]

    def spawn_dialog_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task that opens a dialog; the dialog gets the keys typed until then."""
        self.keyboard.hold_until_done(self.spawn_task(work))

    def spawn_terminal_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task that gives the terminal to another program; keys typed until then are dropped."""
        self.keyboard.suspend_until(self.spawn_task(work))

    async def deliver_key_event(self, event: events.Key | events.Paste) -> None:
        await super().on_event(event)

    async def run_external_program(self, words: Sequence[str], hint: str, *, listen: bool = False) -> tuple[int, str]:
        """Run a program to its end; return its exit status and, with ``listen``, its stderr.

        The nodes are followed meanwhile; nothing is painted. Raises `InvalidInput` with ``hint`` where it cannot be run.
        """
        loop = asyncio.get_running_loop()
        with self.batch_update(), nullcontext() if self.is_headless else self.suspend():
            with suppress(NotImplementedError, ValueError, RuntimeError):  # not the main thread
                loop.add_signal_handler(signal.SIGINT, lambda: None)  # Ctrl-C is for the program
            try:
                process = await asyncio.create_subprocess_exec(*words, stderr=PIPE if listen else None)
                _, stderr = await process.communicate()
            except OSError as error:
                raise InvalidInput(f"{words[0]} cannot be run: {error.strerror}", hint) from error
            finally:
                self.keyboard.resume_input()
                with suppress(NotImplementedError, ValueError, RuntimeError):
                    loop.remove_signal_handler(signal.SIGINT)
        self.refresh(layout=True)
        return process.returncode or 0, (stderr or b"").decode(errors="replace")

    # --- exit ---

    def find_own_switch(self) -> SwitchProgress | None:
        """Return the switch that this panel runs now."""
        return None if self.controller is None else self.controller.own_switch

    def exit_panel(self) -> None:
        """End the panel; engines keep running."""
        if not self.is_leaving:
            self.is_leaving = True
            self.spawn_task(self._exit_with_summary())

    def request_exit(self) -> None:
        """End the panel; while it runs a switch ask first. A second request in that dialog confirms it."""
        if (progress := self.find_own_switch()) is None:
            self.exit_panel()
        else:
            self.confirm_exit(progress)

    async def _exit_with_summary(self) -> None:
        summary = () if self.controller is None else self.controller.build_exit_summary()
        self.exit(summary + await self.stop_background_work())

    async def stop_background_work(self) -> tuple[str, ...]:
        """End the background tasks, then the controller; return its sentences for the exit."""
        self.is_leaving = True
        self.keyboard.close()
        await self._tasks.aclose(_SHUTDOWN_SECONDS)
        return () if self.controller is None else await self.controller.aclose()

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return the filters of painted lines, among them that for ASCII where the terminal has nothing else."""
        return [*super().get_line_filters(), *([_ASCII_FILTER] if self.ascii_only else ())]

    # --- toasts and the clipboard ---

    def announce_notice(self, words: str, severity: Severity, *, is_shown: bool) -> None:
        """Show a new notice as a toast where it is no row of the screen in front, unless ``is_shown``."""
        front = self.front_screen
        if front is not None and front.frozen_at is not None:
            self.call_later(self.repaint_front_screen)
        if not is_shown and front is not None and not front.shows_notices:
            toasts = {Severity.GOOD: "information", Severity.NOTE: "information", Severity.WARNING: "warning"}
            self.show_toast(words, severity=toasts.get(severity, "error"))

    def show_toast(self, words: str, *, severity: str = "information") -> None:
        """Show a message for some seconds; while a dialog is open, after it. The text is data, never markup."""
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
                "\n".join(dict.fromkeys(words for words, _ in toasts)),
                severity=max((severity for _, severity in toasts), key=_TOAST_SEVERITIES.index),
            )

    def show_error(self, error: SparkctlError, *, severity: str = "warning") -> None:
        self.show_toast(error.message + (f"\n{error.hint}" if error.hint else ""), severity=severity)

    def copy_text(self, text: str, what: str) -> None:
        """Copy text to the terminal's clipboard by OSC 52, which not every terminal accepts."""
        self.copy_to_clipboard("\n".join(sanitize_lines(text)))
        self.show_toast(f"{what} is copied, if your terminal takes copies (OSC 52)")
