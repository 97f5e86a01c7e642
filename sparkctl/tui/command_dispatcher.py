"""Carries out command lines, whether they come from a key, the palette, a dialog or the `:` line."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkctl.commands.action_context import is_state_unknown
from sparkctl.commands.actions import ACTIONS, PANEL_VERBS, Action, ActionId, retarget_context
from sparkctl.commands.stop.stop_impact import parse_names_and_nodes
from sparkctl.errors import InvalidInput, SparkctlError
from sparkctl.model.node import NodeState
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.tui.panel_options import AVAILABLE_SCREENS

if TYPE_CHECKING:
    from sparkctl.model.memory_fit import MemoryFit
    from sparkctl.model.node import NodeName
    from sparkctl.model.profile import Profile
    from sparkctl.monitor.node_views import NodeTelemetryView
    from sparkctl.profiles.profile_library import ProfileOffer
    from sparkctl.tui.panel import Panel

_VERB_ALIASES = {"q": "quit", "q!": "quit", "exit": "quit", "h": "help"}  # habits from other programs
_HELP_FLAGS = frozenset(("--help", "-h"))
_MAX_TYPED_LINES = 50
_LEFT_SWITCH_ACTIONS = (ActionId.RESUME, ActionId.ABORT)
_USAGE_BY_ACTION = {  # without arguments these act on the selection
    ActionId.FREE: "free NODE", ActionId.FIT: "plan PROFILE", ActionId.DIAGNOSE: "diagnose INSTANCE [--node NODE]",
}  # fmt: skip


class CommandDispatcher:
    """Carries out command lines and opens the dialogs that lead to them."""

    def __init__(self, panel: Panel) -> None:
        self._panel = panel
        self._typed: list[str] = []

    def dispatch(self, words: Sequence[str]) -> None:
        """Carry out a command line; ask first where it is dangerous. Raises `SparkctlError` where it is refused."""
        panel = self._panel
        if words and words[0] in _VERB_ALIASES:
            words = (_VERB_ALIASES[words[0]], *words[1:])
        if len(words) == 2 and words[0] == "help":
            words = (words[1], "--help")
        if len(words) == 1 and words[0] in PANEL_VERBS:
            panel.perform_action(next(each.id for each in ACTIONS if each.verb == words[0]))
            return
        one = next((each for each in ACTIONS if words and each.verb == words[0]), None)
        if one is not None and one.changes and panel.setup.readonly:
            raise InvalidInput(f"this panel is read-only: `{words[0]}` is not possible here")
        if (
            one is not None
            and one.id is ActionId.SWITCH
            and not _HELP_FLAGS.intersection(words)
            and not panel.build_action_context().replaying
        ):
            self.plan_switch(tuple(words)) if len(words) > 1 else self.plan_selected_switch()
        elif one is not None and one.id is ActionId.HISTORY and not _HELP_FLAGS.intersection(words):
            self._show_history(words[1:])
        elif one is not None and one.screen in AVAILABLE_SCREENS and (len(words) == 1 or one.words is not None):
            target = (
                words
                if len(words) == 1 or panel.setup.commands is None
                else panel.setup.commands.parse_screen_target(words)
            )
            panel.open_screen(str(one.screen), retarget_context(panel.build_action_context(), target))
        elif panel.controller is None:
            raise InvalidInput("one moment: no node was read yet")
        elif panel.setup.recording is not None:
            raise InvalidInput("this is a recording: commands are not possible here")
        elif one is not None and not _HELP_FLAGS.intersection(words):
            self._run_action_command(one, self._add_selected_target(one, words))
        else:
            panel.controller.start_command(words)

    def _add_selected_target(self, one: Action, words: Sequence[str]) -> Sequence[str]:
        """Return the line with the selected target added, where it is a bare verb that needs one."""
        if len(words) > 1 or one.id not in _USAGE_BY_ACTION or one.words is None:
            return words
        now = self._panel.build_action_context()
        if why := one.why_not(now):
            raise InvalidInput(why, f"or name it: {_USAGE_BY_ACTION[one.id]}")
        return one.words(now)

    def _run_action_command(self, one: Action, words: Sequence[str]) -> None:
        from sparkctl.tui.dialogs.confirmations import needs_confirmation
        from sparkctl.tui.dialogs.result_dialogs import show_diagnosis, show_memory_estimate

        panel = self._panel
        assert panel.controller is not None
        if (
            one.id in _LEFT_SWITCH_ACTIONS
            and len(words) == 1
            and (why := one.why_not(panel.build_action_context())) is not None
        ):
            raise InvalidInput(why)  # the same reason as for its key: there is nothing to confirm
        if one.id is ActionId.FIT:
            show_memory_estimate(panel, words)
        elif one.id is ActionId.DIAGNOSE:
            show_diagnosis(panel, words)
        elif "--dry-run" not in words and needs_confirmation(one, words, panel.build_action_context()):
            panel.controller.parse_command(words)  # an invalid line fails before the question
            self.confirm_and_run(one, words)
        else:
            panel.controller.start_command(words)

    def confirm_and_run(self, one: Action, words: Sequence[str]) -> None:
        """Carry out a command line after the operator has confirmed it; the default is no."""
        self._panel.spawn_task(self._confirm_and_start(one, words))

    async def _confirm_and_start(self, one: Action, words: Sequence[str]) -> None:
        from sparkctl.tui.dialogs.confirmations import CONFIRM_ANSWER, build_confirmation

        panel = self._panel
        assert panel.controller is not None
        dialog = build_confirmation(one, words, panel.build_action_context())
        dialog.set_refresh_source(lambda: build_confirmation(one, words, panel.build_action_context()))
        if await panel.controller.dialogs.show_dialog(dialog) != CONFIRM_ANSWER:
            return
        try:
            panel.controller.start_command(words)
        except SparkctlError as error:
            panel.show_error(error)

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
        self._panel.run_command_line(
            ("switch", profile, *node_options_for_ranks(found, self._panel.node_names, self._panel.selected_node))
        )

    def plan_switch(self, words: tuple[str, ...]) -> None:
        """Show the plan of a switch. Raises `SparkctlError` where the line is not valid."""
        from sparkctl.tui.screens.switch_screen import SwitchScreen

        panel = self._panel
        if panel.controller is None:
            raise InvalidInput("one moment: no node was read yet")
        if panel.controller.store.switches.running is not None:
            panel.open_screen("switch")
            panel.show_toast("this switch is still running: plan another when it has ended", severity="warning")
            return
        words = self._add_node_options(words)
        panel.controller.parse_command(words if "--dry-run" in words else (*words, "--dry-run"))
        there = next((one for one in panel.screen_stack if isinstance(one, SwitchScreen)), None)
        if there is None:
            panel.keyboard.hold_until_mounted(panel.push_screen(SwitchScreen(words)))
        else:
            panel.open_screen("switch")
            there.set_command(words)

    def _add_node_options(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """Return the line with ``--node`` added where it names no node: the selected one, and the next for further ranks."""
        from sparkctl.profiles.profile_library import ProfileLibrary

        names, nodes = parse_names_and_nodes(words[1:])
        if nodes or len(names) != 1 or len(self._panel.node_names) < 2 or any("nodes=" in word for word in words):
            return words
        try:
            profile = ProfileLibrary().load_profile(names[0])
        except SparkctlError:
            return words  # the command parser reports the error
        return (*words, *node_options_for_ranks(profile, self._panel.node_names, self._panel.selected_node))

    def _show_history(self, words: Sequence[str]) -> None:
        """Show the history: all of it, that of a profile, or one operation as in ``history show 12``."""
        from sparkctl.tui.screens.history_screen import HistoryScreen

        panel = self._panel
        shown = words[1:2] if words[:1] == ("show",) or words[:1] == ["show"] else ()
        number = int(shown[0]) if shown and shown[0].isdecimal() else None
        profile = "" if shown or not words or words[0].startswith("-") else words[0]
        there = next((each for each in panel.screen_stack if isinstance(each, HistoryScreen)), None)
        if there is None:
            panel.keyboard.hold_until_mounted(panel.push_screen(HistoryScreen(profile, number)))
        else:
            panel.open_screen("history")
            there.set_filter(profile, number)

    def open_profile_picker(self) -> None:
        """Ask which of all profiles to start."""
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

        def run_chosen_command(words: tuple[str, ...] | None) -> None:
            if words:
                panel.run_command_line(words)

        controller = panel.controller
        assert controller is not None
        fits, profiles = controller.fits, [one.profile for one in offers if one.profile is not None]

        def look_up_fit(profile: Profile, node: NodeName) -> MemoryFit | None:
            fits.request_estimates(profiles)
            return fits.get_estimate(profile, node)

        panel.push_screen(
            ProfilePicker(offers, list_answering_views, panel.selected_node, title, look_up_fit, to_switch=to_switch),
            run_chosen_command,
        )

    def open_command_line(self, begun: str = "", refused: SparkctlError | None = None) -> None:
        """Open the command line and carry out what is typed; a refused line opens again with its error."""
        from sparkctl.tui.dialogs.command_line import CommandLineDialog

        panel = self._panel
        if panel.setup.commands is None:
            return

        def dispatch_typed_line(line: str | None) -> None:
            if not line:
                return
            self._typed = [*(one for one in self._typed[-_MAX_TYPED_LINES:] if one != line), line]
            try:
                self.dispatch(_split_command_line(line))
            except SparkctlError as error:
                self.open_command_line(line, error)

        panel.push_screen(
            CommandLineDialog(panel.setup.commands, tuple(self._typed), begun, refused, self._list_instance_names),
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


def node_options_for_ranks(profile: Profile, names: Sequence[NodeName], first: NodeName | None) -> tuple[str, ...]:
    """Return ``--node`` for each rank of a profile: the selected node and the next ones, as many as there are."""
    at = names.index(first) if first is not None and first in names else 0
    chosen = [names[(at + each) % len(names)] for each in range(min(profile.nodes, len(names)))]
    return tuple(word for name in chosen for word in ("--node", str(name)))


def _split_command_line(line: str) -> list[str]:
    """Return the words of a line. Raises `InvalidInput` for an unclosed quote."""
    try:
        return shlex.split(line)
    except ValueError as wrong:
        raise InvalidInput(f"cannot read this line: {wrong}") from wrong
