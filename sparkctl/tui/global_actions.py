"""What the keys do that mean the same on every screen: a ``do_`` method by the name of the action's id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkctl.commands.actions import Action

if TYPE_CHECKING:
    from sparkctl.tui.app import PanelApp


class GlobalActions:
    """Of one panel."""

    def __init__(self, panel: PanelApp) -> None:
        self._panel = panel

    def perform_action(self, one: Action) -> None:
        """Do an action that has no method: what is at hand everywhere, what its command line says, or open its screen."""
        from sparkctl.tui.at_hand import HANDLERS

        if one.id in HANDLERS:
            HANDLERS[one.id](self._panel)
        elif one.screen is not None:
            self._panel.open(one.screen)
        elif one.words is not None:
            self._panel.run_command_line(one.words(self._panel.build_action_context()))

    def do_up(self, _: Action) -> None:
        """Ask what to start, and where."""
        self._panel.orders.choose_profile()

    def do_switch(self, _: Action) -> None:
        """Show the switch that goes on; else what one to the selected profile would be, or ask to which."""
        panel = self._panel
        if panel.room is not None and panel.room.switches.running is not None:
            panel.open("switch")
        else:
            panel.orders.switch()

    def do_command(self, _: Action) -> None:
        """Let a line be typed."""
        self._panel.orders.open_command_line()

    def do_palette(self, _: Action) -> None:
        """Let an action be found by its name."""
        from sparkctl.tui.dialogs.command_palette import THEME, ActionPalette, list_palette_entries

        panel = self._panel

        def take(does: str | None) -> None:
            if does is not None and does.startswith(THEME):
                panel.theme = does.removeprefix(THEME)
            elif does is not None:
                panel.perform_action(does)

        panel.push_screen(ActionPalette(list_palette_entries(panel)), take)

    def do_help(self, _: Action) -> None:
        """Show the keys of the screen in front."""
        from sparkctl.tui.dialogs.base import TextDialog
        from sparkctl.tui.key_hints import render_key_help

        panel = self._panel
        screen = panel.front
        actions = panel.actions if screen is None else screen.actions
        crumb = "" if screen is None else screen.breadcrumb
        rows = render_key_help(actions, panel.build_action_context(), panel.ascii_only)
        panel.push_screen(TextDialog(f"keys{f' of {crumb}' if crumb else ''}", [(), *rows, ()]))

    def handle_show_problems(self, _: Action) -> None:
        """Show what is wrong with the selected Spark, and with the config."""
        from sparkctl.tui.dialogs.base import TextDialog
        from sparkctl.views.wrong import render_problems

        panel = self._panel
        assert panel.room is not None
        now = panel.build_action_context()
        name = now.node
        rows = render_problems(panel.node_problems(now), min(96, panel.size.width - 10), panel.ascii_only)
        panel.push_screen(TextDialog(f"{name}: what is wrong" if name else "what is wrong", [(), *rows, ()]))

    def do_next(self, _: Action) -> None:
        """Select the next Spark."""
        self._panel.choose_next(1)

    def do_previous(self, _: Action) -> None:
        """Select the Spark before."""
        self._panel.choose_next(-1)

    def do_first(self, _: Action) -> None:
        """Select the first Spark."""
        self._panel.choose(0)

    def do_last(self, _: Action) -> None:
        """Select the last Spark."""
        self._panel.choose(len(self._panel.names) - 1)

    def handle_next_instance(self, _: Action) -> None:
        """Select the next instance."""
        self._panel.choose_instance(1)

    def handle_previous_instance(self, _: Action) -> None:
        """Select the instance before."""
        self._panel.choose_instance(-1)

    def do_pause(self, _: Action) -> None:
        """Hold the picture, or let it go on."""
        self._panel.pause()

    def do_back(self, _: Action) -> None:
        """Go back; on the overview, forget what was said."""
        panel = self._panel
        panel.clear_notifications()
        if len(panel.screen_stack) > 1:
            panel.pop_screen()
        elif panel.room is not None:
            panel.room.notices.clear()
            panel.repaint_front_screen()

    def do_quit(self, one: Action) -> None:
        """Go back; from the overview, end the panel."""
        if len(self._panel.screen_stack) > 1:
            self.do_back(one)
        else:
            self._panel.ask_to_leave()

    def do_quit_at_once(self, _: Action) -> None:
        """End the panel."""
        self._panel.ask_to_leave()

    def do_reconnect(self, _: Action) -> None:
        """Connect to the selected Spark now."""
        panel = self._panel
        if panel.room is not None and panel.node is not None:
            panel.room.supervisor.reconnect(panel.node)
