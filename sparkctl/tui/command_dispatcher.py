"""Carries out requests, whether they come from a key, the palette, a dialog or the `:` line."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkctl.commands.action_context import is_state_unknown
from sparkctl.commands.actions import (
    INSTANCE,
    NODE,
    OVERVIEW,
    PANEL_VERBS,
    Action,
    ActionId,
    find_verb_action,
    retarget_context,
)
from sparkctl.errors import InvalidInput, SparkctlError
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.tui.panel_options import AVAILABLE_SCREENS

if TYPE_CHECKING:
    from sparkctl.commands.request import Request, ScreenTarget
    from sparkctl.commands.switch.switch_request import SwitchInstance
    from sparkctl.model.memory_fit import MemoryFit
    from sparkctl.model.profile import Profile
    from sparkctl.monitor.node_views import NodeTelemetryView
    from sparkctl.profiles.profile_library import ProfileOffer
    from sparkctl.tui.dialogs.profile_picker import PickedStart
    from sparkctl.tui.panel import Panel

_VERB_ALIASES = {"q": "quit", "q!": "quit", "exit": "quit", "h": "help"}  # habits from other programs
_HELP_FLAGS = frozenset(("--help", "-h"))
_MAX_TYPED_LINES = 50
_SCREEN_VERBS = ("logs", "history")  # of a recording, too
_LEFT_SWITCH_ACTIONS = (ActionId.RESUME, ActionId.ABORT)
_USAGE_BY_ACTION = {  # without arguments these act on the selection
    ActionId.FREE: "free NODE",
    ActionId.FIT: "plan PROFILE",
    ActionId.DIAGNOSE: "diagnose INSTANCE [--node NODE]",
    ActionId.RESTART_RUNNING: "restart INSTANCE",
}


class CommandDispatcher:
    """Carries out requests and command lines, and opens the dialogs that lead to them."""

    def __init__(self, panel: Panel) -> None:
        self._panel = panel
        self._typed: list[str] = []

    def dispatch_line(self, words: Sequence[str], confirms: Action | None = None) -> None:
        """Carry out a command line; ``confirms``: an action that asks before. Raises `SparkctlError` where it is not valid, or refused."""
        from sparkctl.commands.request import Request

        panel = self._panel
        if words and words[0] in _VERB_ALIASES:
            words = (_VERB_ALIASES[words[0]], *words[1:])
        if len(words) == 2 and words[0] == "help":
            words = (words[1], "--help")
        one = find_verb_action(words[0]) if words else None
        is_bare = len(words) == 1
        if is_bare and one is not None and words[0] in PANEL_VERBS:
            panel.perform_action(one.id)
            return
        self._refuse_change(one)
        if is_bare and one is not None and confirms is None and self._do_bare_verb(one):
            return
        if panel.setup.load_commands is None:
            raise InvalidInput("this panel has no commands")
        try:
            request = panel.setup.load_commands().parse_request(words, self._list_nearest_nodes())
        except SparkctlError:
            if not words or (words[0] not in _SCREEN_VERBS and not _HELP_FLAGS.intersection(words)):
                self._refuse_if_not_ready()  # that is the first thing to know
            raise
        if confirms is not None and isinstance(request, Request):
            panel.spawn_task(self._confirm_and_start(request, confirms))
        else:
            self.dispatch_request(request)

    def _do_bare_verb(self, one: Action) -> bool:
        """Do what a verb without arguments means on the selection; tell whether it means anything there."""
        from sparkctl.commands.request import ScreenTarget

        panel, now = self._panel, self._panel.build_action_context()
        if one.id is ActionId.SWITCH and not now.replaying:
            self.plan_selected_switch()
        elif one.id is ActionId.BENCH_RUN:
            panel.open_screen("bench")
        elif one.id is ActionId.HISTORY:
            self._show_history(ScreenTarget(verb="history"))
        elif one.screen in AVAILABLE_SCREENS:
            panel.open_screen(str(one.screen), retarget_context(now, None, None))
        elif one.id in _USAGE_BY_ACTION and one.build_request is not None:
            self._refuse_if_not_ready()
            if why := one.why_not(now):
                raise InvalidInput(why, f"or name it: {_USAGE_BY_ACTION[one.id]}")
            self.dispatch_request(one.build_request(now))
        else:
            return False
        return True

    def dispatch_request(self, request: Request | ScreenTarget) -> None:
        """Carry out a request; ask first where it is dangerous. Raises `SparkctlError` where it is refused."""
        from sparkctl.commands.request import ScreenTarget

        if isinstance(request, ScreenTarget):
            self._show_target(request)
            return
        panel, one = self._panel, find_verb_action(request.verb)
        assert one is not None
        self._refuse_change(one)
        self._refuse_if_not_ready()
        assert panel.controller is not None
        from sparkctl.commands.start.check_fit import CheckFit
        from sparkctl.commands.switch.switch_request import SwitchInstance

        now = panel.build_action_context()
        if isinstance(request, SwitchInstance) and not request.from_up:
            self.plan_switch(request)
        elif isinstance(request, CheckFit):
            from sparkctl.tui.dialogs.prompts import show_memory_estimate

            show_memory_estimate(panel, request)
        elif one.id in _LEFT_SWITCH_ACTIONS and len(request.format_as_command()) == 1 and (why := one.why_not(now)):
            raise InvalidInput(why)  # the same reason as for its key: there is nothing to confirm
        elif request.preview(now).is_required:
            panel.spawn_task(self._confirm_and_start(request, one))
        else:
            panel.controller.start_command(request)

    def _refuse_change(self, one: Action | None) -> None:
        if one is not None and one.changes and self._panel.setup.readonly:
            raise InvalidInput(f"this panel is read-only: `{one.verb}` is not possible here")

    def _refuse_if_not_ready(self) -> None:
        if self._panel.controller is None:
            raise InvalidInput("one moment: no node was read yet")
        if self._panel.setup.recording is not None:
            raise InvalidInput("this is a recording: commands are not possible here")

    def _list_nearest_nodes(self) -> tuple[NodeName, ...]:
        """Return the nodes from the selected one on; none where there is no choice."""
        names, first = self._panel.node_names, self._panel.selected_node
        at = names.index(first) if first is not None and first in names else 0
        return (*names[at:], *names[:at]) if len(names) > 1 else ()

    def _show_target(self, target: ScreenTarget) -> None:
        if target.verb == "history":
            self._show_history(target)
        elif target.verb == "diagnose":
            from sparkctl.tui.dialogs.prompts import show_diagnosis

            self._refuse_if_not_ready()
            show_diagnosis(self._panel, target)
        elif target.words:
            from sparkctl.tui.dialogs.prompts import show_printed_text

            self._refuse_if_not_ready()
            show_printed_text(self._panel, target.words)
        elif target.verb in ("status", "top"):
            self._show_place(target)
        else:
            now = retarget_context(self._panel.build_action_context(), target.name, next(iter(target.nodes), None))
            self._panel.open_screen(target.verb, now)

    def _show_place(self, target: ScreenTarget) -> None:
        """Show an instance, the page of a node, or all nodes. Raises `InvalidInput` for a name that is not there."""
        panel, now = self._panel, self._panel.build_action_context()
        for node in target.nodes:
            if node not in panel.node_names:
                raise InvalidInput(f"no node is called {node}", f"there are: {', '.join(panel.node_names)}")
            panel.select_node(panel.node_names.index(node))
        if target.name is not None:
            now = retarget_context(panel.build_action_context(), target.name, next(iter(target.nodes), None))
            if now.selected_instance is None:
                raise InvalidInput(f"no instance is called {target.name}", ", ".join(self._list_instance_names("down")))
            panel.open_screen(INSTANCE, now)
        else:
            panel.open_screen(OVERVIEW if target.verb == "status" else NODE)

    async def _confirm_and_start(self, request: Request, one: Action) -> None:
        """Carry out a request after the operator has confirmed it; the default is no."""
        from sparkctl.tui.dialogs.prompts import CONFIRM_ANSWER, build_confirmation

        panel = self._panel
        assert panel.controller is not None
        dialog = build_confirmation(request, one, panel.build_action_context())
        dialog.set_refresh_source(lambda: build_confirmation(request, one, panel.build_action_context()))
        if await panel.controller.dialogs.show_dialog(dialog) == CONFIRM_ANSWER:
            panel.controller.start_command(request)

    def plan_selected_switch(self) -> None:
        """Plan a switch to the selected profile; where none is selected, ask for one."""
        now = self._panel.build_action_context()
        if now.profile is None:
            self._panel.spawn_dialog_task(self._load_and_show_offers(to_switch=True))
        else:
            self._panel.spawn_dialog_task(self._plan_switch_to_profile(now.profile))

    async def _plan_switch_to_profile(self, profile: str) -> None:
        await self._panel.controller_ready.wait()
        assert self._panel.controller is not None
        offers = [
            one
            for one in await self._panel.controller.load_profile_offers()
            if one.name == profile and one.profile is not None
        ]
        if not offers:
            self._panel.show_toast("this profile cannot be read", severity="warning")
            return
        found = offers[0].profile
        assert found is not None
        names = self._list_nearest_nodes() or self._panel.node_names
        self._panel.run_request(lambda: self.build_switch(found, profile, names[: found.nodes]))

    def build_switch(self, profile: Profile, typed: str, nodes: Sequence[NodeName]) -> SwitchInstance:
        """Return the request to switch to a profile on these nodes; ``typed``: the name under which it was found."""
        from sparkctl.commands.start.start_request import build_start_request
        from sparkctl.commands.switch.switch_request import SwitchInstance

        now = self._panel.build_action_context()
        return SwitchInstance.from_start(
            build_start_request(profile, now.find_nodes(*nodes), typed, now.config_nodes), now.config_nodes
        )

    def plan_switch(self, request: SwitchInstance) -> None:
        from sparkctl.tui.screens.switch_screen import SwitchScreen

        panel = self._panel
        assert panel.controller is not None
        if panel.controller.store.switches.running is not None:
            panel.open_screen("switch")
            panel.show_toast("this switch is still running: plan another when it has ended", severity="warning")
            return
        there = next((one for one in panel.screen_stack if isinstance(one, SwitchScreen)), None)
        if there is None:
            panel.keyboard.hold_until_mounted(panel.push_screen(SwitchScreen(request)))
        else:
            panel.open_screen("switch")
            there.set_request(request)

    def _show_history(self, target: ScreenTarget) -> None:
        """Show the history: all of it, that of a profile, or one operation as in ``history show 12``."""
        from sparkctl.tui.screens.history_screen import HistoryScreen

        panel = self._panel
        there = next((each for each in panel.screen_stack if isinstance(each, HistoryScreen)), None)
        if there is None:
            panel.keyboard.hold_until_mounted(panel.push_screen(HistoryScreen(target.name or "", target.operation)))
        else:
            panel.open_screen("history")
            there.set_filter(target.name or "", target.operation)

    def open_profile_picker(self) -> None:
        self._panel.spawn_dialog_task(self._load_and_show_offers())

    async def _load_and_show_offers(self, *, to_switch: bool = False) -> None:
        await self._panel.controller_ready.wait()
        assert self._panel.controller is not None
        title = "switch to a profile" if to_switch else "start a profile"
        self.show_profile_picker(await self._panel.controller.load_profile_offers(), title, to_switch=to_switch)

    def show_profile_picker(
        self, offers: Sequence[ProfileOffer], title: str = "start a profile", *, to_switch: bool = False
    ) -> None:
        """Ask which of these profiles to start or to switch to, and where; then do it."""
        from sparkctl.tui.dialogs.profile_picker import ProfilePicker

        panel = self._panel

        def list_answering_views() -> list[NodeTelemetryView]:
            return [
                one for one in panel.build_action_context().views if one.state is NodeState.OK or is_state_unknown(one)
            ]

        if not offers or not list_answering_views():
            panel.show_toast(
                "there is no profile yet: sparkctl profiles list" if list_answering_views() else "no Spark answers"
            )
            return

        def run_picked(picked: PickedStart | None) -> None:
            if picked is not None:
                panel.run_request(lambda: self._build_picked_request(picked))

        controller = panel.controller
        assert controller is not None
        fits, profiles = controller.fits, [one.profile for one in offers if one.profile is not None]

        def look_up_fit(profile: Profile, node: NodeName) -> MemoryFit | None:
            fits.request_estimates(profiles)
            return fits.get_estimate(profile, node)

        panel.push_screen(
            ProfilePicker(
                offers,
                list_answering_views,
                panel.selected_node,
                title,
                look_up_fit,
                controller.list_missing,
                to_switch=to_switch,
            ),
            run_picked,
        )

    def _build_picked_request(self, picked: PickedStart) -> Request:
        from sparkctl.commands.start.start_request import build_start_request
        from sparkctl.commands.switch.switch_request import SwitchInstance

        now = self._panel.build_action_context()
        start = build_start_request(picked.profile, now.find_nodes(*picked.nodes), picked.name, now.config_nodes)
        if not (picked.switches or picked.replaces):
            return start
        return SwitchInstance.from_start(start, now.config_nodes, from_up=picked.replaces)

    def open_command_line(self, begun: str = "", refused: SparkctlError | None = None) -> None:
        """Open the command line and carry out what is typed; a refused line opens again with its error."""
        from sparkctl.tui.dialogs.command_line import CommandLineDialog

        panel = self._panel
        if panel.setup.load_commands is None:
            return
        commands = panel.setup.load_commands()

        def dispatch_typed_line(line: str | None) -> None:
            if not line:
                return
            self._typed = [*(one for one in self._typed[-_MAX_TYPED_LINES:] if one != line), line]
            try:
                self.dispatch_line(_split_command_line(line))
            except SparkctlError as error:
                self.open_command_line(line, error)

        panel.push_screen(
            CommandLineDialog(commands, tuple(self._typed), begun, refused, self._list_instance_names),
            dispatch_typed_line,
        )

    def _list_instance_names(self, verb: str) -> tuple[str, ...]:
        """Return the instance names that a verb may take, the selected one first; for ``logs`` also those with saved logs."""
        now = self._panel.build_action_context()
        there = [one for view in now.views for one in view.instances if one.ours or verb == "logs"]
        names = sorted((one.name for one in there), key=lambda name: name != now.instance)
        if verb != "down" and self._panel.controller is not None and not now.replaying:
            names += self._panel.controller.context.history.list_instances_with_logs()
        # No name with control characters: the input field writes its text to the terminal unchanged.
        return tuple(dict.fromkeys(name for name in names if sanitize_line(name) == name))


def _split_command_line(line: str) -> list[str]:
    """Return the words of a line. Raises `InvalidInput` for an unclosed quote."""
    try:
        return shlex.split(line)
    except ValueError as wrong:
        raise InvalidInput(f"cannot read this line: {wrong}") from wrong
