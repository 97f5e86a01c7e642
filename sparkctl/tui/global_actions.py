"""The actions that are the same on every screen: the table `HANDLERS`."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sparkctl.commands.actions import Action, ActionId, find_action
from sparkctl.errors import DockerError, InvalidInput, NodeError, SparkctlError
from sparkctl.model.node import Node, NodeState
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, make_row, sanitize_span

if TYPE_CHECKING:
    from sparkctl.model.finding import Finding
    from sparkctl.monitor.recording import RecordingPlayer
    from sparkctl.tui.panel import Panel


def perform_global_action(panel: Panel, one: Action) -> None:
    """Run an action that the screen in front does not handle itself: its handler, its screen or its request."""
    if one.id in HANDLERS:
        HANDLERS[one.id](panel)
    elif one.screen is not None:
        panel.open_screen(one.screen)
    elif one.build_request is not None:
        panel.run_request(partial(one.build_request, panel.build_action_context()))


def _show_or_plan_switch(panel: Panel) -> None:
    """Show the running switch; else plan one to the selected profile, or ask for a profile."""
    if panel.controller is not None and panel.controller.store.switches.running is not None:
        panel.open_screen("switch")
    else:
        panel.dispatcher.plan_selected_switch()


def _open_palette(panel: Panel) -> None:
    from sparkctl.tui.dialogs.command_palette import THEME_PREFIX, ActionPalette, list_palette_entries

    def run_chosen_entry(does: str | None) -> None:
        if does is not None and does.startswith(THEME_PREFIX):
            panel.theme = does.removeprefix(THEME_PREFIX)
        elif does is not None:
            panel.perform_action(does)

    panel.push_screen(ActionPalette(list_palette_entries(panel)), run_chosen_entry)


def _show_key_help(panel: Panel) -> None:
    """Show the keys in columns; what is typed searches the full sentences."""
    from sparkctl.tui.dialogs.base import FilterTextDialog
    from sparkctl.tui.key_hints import render_key_columns, render_key_help

    screen = panel.front_screen
    actions = panel.actions if screen is None else screen.actions
    crumb = "" if screen is None else screen.breadcrumb

    def find_rows(words: str, columns: int) -> list[TextRow]:
        now = panel.build_action_context()
        if words:
            return render_key_help(actions, now, words, columns) or [make_row(Span("no key has that", TextStyle.STALE))]
        return [(), *render_key_columns(actions, now, columns), ()]

    panel.push_screen(FilterTextDialog(f"keys{f' of {crumb}' if crumb else ''}", find_rows))


def _show_problems(panel: Panel) -> None:
    """Show the problems of the selected node and of the config."""
    from sparkctl.tui.dialogs.base import TextDialog
    from sparkctl.views.finding_view import render_findings_elsewhere, render_problems

    assert panel.controller is not None
    now = panel.build_action_context()
    problems = panel.collect_node_problems(now)
    others = [one for one in now.views if one.name != now.node and one.state is NodeState.OK and one.findings]
    title = f"{now.node}: what is wrong" if now.node and not others else "what is wrong"
    own = [make_row(sanitize_span(now.node, TextStyle.TITLE))] if now.node and others else []

    def build_rows(columns: int) -> list[TextRow]:
        wide = min(96, columns)
        return [(), *own, *render_problems(problems, wide), *render_findings_elsewhere(others, wide), ()]

    panel.push_screen(TextDialog(title, build_rows))


def show_finding(panel: Panel, found: Finding) -> None:
    """Show one finding: what is wrong, since when, why it matters, and what to do."""
    from sparkctl.model.events import FindingReported
    from sparkctl.tui.dialogs.base import TextDialog
    from sparkctl.views.finding_view import format_since, render_finding
    from sparkctl.views.overview.tile_model import build_finding_badge

    view = next((one for one in panel.build_action_context().views if one.name == found.node), None)
    now = view.sample.time if view is not None and view.sample is not None else panel.displayed_time()
    badge = build_finding_badge(found)
    keys = [(ActionId.WRONG, "shows all that is wrong here"), (ActionId.DOCTOR, "examines the Spark")]
    hints = [
        (Span(key, TextStyle.KEY), Span(f" {words}   ", TextStyle.LABEL))
        for action, words in keys
        if (key := panel.format_action_key(action)) is not None
    ]
    event, seen = FindingReported.from_finding(now, found), f"now, {format_since(found.since, now)}"

    def build_rows(columns: int) -> list[TextRow]:
        rows = render_finding(event, seen, min(90, columns))
        return [(), *rows, *([(), tuple(span for spans in hints for span in spans)] if hints else []), ()]

    panel.push_screen(TextDialog(f"{badge.sign} {found.node}: {badge.word}", build_rows, badge.tone))


def _go_back(panel: Panel) -> None:
    """Close the front screen; on the overview, clear the notices."""
    panel.clear_notifications()
    if len(panel.screen_stack) > 1:
        panel.pop_screen()
    elif panel.controller is not None:
        panel.controller.clear_notices()
        panel.repaint_front_screen()


def _quit(panel: Panel) -> None:
    """Close the front screen; on the overview, end the panel."""
    if len(panel.screen_stack) > 1:
        _go_back(panel)
    else:
        panel.request_exit()


def _toggle_tunnel(panel: Panel) -> None:
    """End the tunnel to the selected instance; open one where there is none."""
    now = panel.build_action_context()
    if panel.controller is not None:
        for number, job in panel.controller.store.jobs.running.items():
            if job.started.words[:2] == ("tunnel", now.instance):
                panel.controller.jobs.interrupt_job(number)
                return
    opening = find_action(ActionId.TUNNEL).build_request
    assert opening is not None
    panel.run_request(partial(opening, now))


def _measure_selected(panel: Panel) -> None:
    """Measure the selected instance, or profile, as the `:` line does; that asks first."""
    now = panel.build_action_context()
    one, name = now.selected_instance, now.profile or now.instance
    is_running = one is not None and one.is_alive and name in (one.name, one.profile)
    words = ["bench", str(one.name if is_running and one is not None else name)]
    if now.node is not None and (is_running or _needs_one_node(str(name))):
        words += ["--node", str(now.node)]
    panel.run_command_line(words)


def _needs_one_node(profile: str) -> bool:
    from sparkctl.profiles.profile_library import ProfileLibrary

    try:
        return ProfileLibrary().load_profile(profile).nodes == 1
    except SparkctlError:
        return True  # the command line says what is wrong with it


def _reconnect(panel: Panel) -> None:
    if panel.controller is not None and panel.selected_node is not None:
        panel.controller.supervisor.reconnect_node(panel.selected_node)


_MAX_TOAST_FINDINGS = 2  # findings in a toast; the profiles screen shows all
SAMPLE_INTERVALS = (0.5, 1.0, 2.0, 5.0, 10.0)  # seconds between two samples; the cost of the probe was measured at 1 Hz
SHORT_SEEK_SECONDS, LONG_SEEK_SECONDS = 10.0, 60.0  # seconds of a recording
_LIGHT_COLOURS = {
    "#292929": "#ffffff",
    "#c5c8c6": "#1c1c1c",
    "#868887": "#5f5f5f",
}  # Rich's defaults for the terminal's own colours, by what replaces them on a light ground
_NO_SHELL_MESSAGE = "simulated: there is no shell"
_SSH_FAILED_STATUS = 255  # exit status of ssh where the connection failed
_EXEC_FAILED_STATUSES = (126, 127)  # exit statuses of `docker exec` where no shell was found


def edit_selected_profile(panel: Panel, field: str | None = None) -> None:
    """Open the profile of the selected instance in the editor, at a field where one is given."""
    one = panel.build_action_context().selected_instance
    if one is not None and one.profile is not None:
        panel.spawn_terminal_task(edit_profile(panel, one.profile, field))


async def edit_profile(panel: Panel, name: str, field: str | None = None) -> None:
    """Open a profile in the editor, at its first error, else at ``field``, and show what the check finds afterwards."""
    from sparkctl.engines.lint import LintSeverity
    from sparkctl.profiles.profile_editor import ProfileEdit
    from sparkctl.views.profiles.lint_view import summarize_lint

    try:
        edit = await asyncio.to_thread(ProfileEdit.begin, name, field)
        try:
            status, _ = await panel.run_external_program(edit.argv, "set $EDITOR to your editor")
        finally:
            is_same = edit.end()
        checked, notes = await asyncio.to_thread(edit.check), edit.describe_end(status, is_same=is_same)
    except (SparkctlError, OSError) as error:
        _show_edit_error(panel, name, error)
        return
    errors, is_gone = checked.list_by_level(LintSeverity.ERROR), not (is_same or edit.path.exists())
    worst = [*errors, *checked.list_by_level(LintSeverity.WARNING)][:_MAX_TOAST_FINDINGS]
    if is_gone or (is_same and not errors):
        worst = []
    else:
        notes = [*notes, f"{name}: {summarize_lint(checked)}", *map(str, worst)]
    severity = "error" if worst and errors else "warning" if worst or status or is_gone else "information"
    panel.show_toast("\n".join(notes), severity=severity)


async def fix_profile(panel: Panel, name: str) -> None:
    """Apply the fixes of `profiles check --fix` and show them; a shipped profile is copied first."""
    from sparkctl.profiles.profile_editor import describe_copy, fix_own_profile
    from sparkctl.views.profiles.lint_view import summarize_lint

    try:
        checked, done, is_copy = await asyncio.to_thread(fix_own_profile, name)
    except (SparkctlError, OSError) as error:
        _show_edit_error(panel, name, error)
    else:
        if not done:
            panel.show_toast(f"{name}: nothing here can be fixed safely; e edits it")
            return
        where = [describe_copy(checked.path)] if is_copy else []
        panel.show_toast(
            "\n".join([*(f"fixed: {one.message}" for one in done), f"{name}: {summarize_lint(checked)}", *where])
        )


def _show_edit_error(panel: Panel, name: str, error: SparkctlError | OSError) -> None:
    if isinstance(error, OSError):
        panel.show_toast(f"{error.filename or name}: {error.strerror or error}", severity="error")
    else:
        panel.show_error(error, severity="error")


def _copy_address(panel: Panel) -> None:
    one = panel.build_action_context().selected_instance
    if one is not None and one.endpoint is not None:
        panel.copy_text(one.endpoint, one.endpoint)


def open_shell(panel: Panel, *, is_inside: bool) -> None:
    """Open a shell on the selected node, or in the container of the selected instance."""
    now = panel.build_action_context()
    node = next((node for node in panel.config_nodes if node.name == now.node), None)
    one = now.selected_instance if is_inside else None
    if panel.setup.badge is not None:
        panel.show_toast(_NO_SHELL_MESSAGE)
    elif node is not None and (one is not None or not is_inside):
        panel.spawn_terminal_task(_run_shell(panel, node, None if one is None else one.container))


async def _run_shell(panel: Panel, node: Node, container: str | None) -> None:
    """Run a shell; show as a toast why none was opened, because the panel paints over what ssh and Docker print."""
    from sparkctl.transport.node_connection import build_container_command, build_ssh_command, suggest_install

    try:
        words = build_ssh_command(node, os.environ) if container is None else build_container_command(node, container)
        status, message = await panel.run_external_program(words, suggest_install(words[0]), listen=not node.is_local)
    except InvalidInput as error:
        panel.show_error(error, severity="error")
        return
    lines = [line for line in message.splitlines() if line.strip()]
    if container is not None and status in (*_EXEC_FAILED_STATUSES, _SSH_FAILED_STATUS):
        lines = [line for line in lines if not line.startswith("Connection to ")][-3:]
        why = f"no shell inside of {container} on {node.name} (exit {status})"
        panel.show_toast("\n".join([why, *lines]), severity="error")
    elif container is None and status == _SSH_FAILED_STATUS and not node.is_local:
        panel.show_toast("\n".join(lines[-3:]) or f"ssh to {node.name} ended with {status}", severity="error")


def show_launch_plan(panel: Panel) -> None:
    """Show the launch plan that the selected instance runs with."""
    panel.spawn_dialog_task(_show_plan(panel))


async def _show_plan(panel: Panel) -> None:
    from sparkctl.commands.start.launch_plans import read_container_launch
    from sparkctl.tui.dialogs.base import TextDialog
    from sparkctl.views.instance_view import render_launched_plan

    one, controller = panel.build_action_context().selected_instance, panel.controller
    node = None if one is None or controller is None else controller.supervisor.get_node(one.node)
    if one is None or controller is None or node is None or one.container_id is None:
        return
    try:
        run = await read_container_launch(controller.non_interactive_context, node, one.container_id)
    except (NodeError, DockerError) as error:
        panel.show_toast(f"not known: {error.message}", severity="error")
        return
    panel.push_screen(
        TextDialog(
            f"{one.name} on {one.node} runs with",
            lambda columns: [(), *render_launched_plan(run, min(110, columns)), ()],
        )
    )


def export_screenshot_svg(panel: Panel) -> str:
    """Return the screen as an SVG, with a light background for light terminal themes."""
    svg = panel.export_screenshot(title="sparkctl")
    theme = panel.current_theme
    if theme.ansi and not theme.dark:
        for default, light in _LIGHT_COLOURS.items():
            svg = svg.replace(default, light)
    return svg


def _save_screenshot(panel: Panel) -> None:
    """Take the screenshot now, before the toast about it is shown."""
    panel.spawn_task(_write_screenshot(panel, export_screenshot_svg(panel)))


async def _write_screenshot(panel: Panel, picture: str) -> None:
    name = f"sparkctl-{time.strftime('%Y%m%d-%H%M%S')}.svg"

    def create_svg_file() -> Path:
        path = Path.cwd() / name
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
            out.write(picture)
        return path

    try:
        path = await asyncio.to_thread(create_svg_file)
    except OSError as error:
        panel.show_toast(f"not saved: {name}: {error.strerror or error}", severity="error")
    else:
        panel.show_toast(f"the screen is in {path}")


def step_sample_rate(panel: Panel, *, faster: bool) -> None:
    """Use the next shorter sample interval, or the next longer one."""
    if panel.controller is not None:
        now = panel.controller.supervisor.sample_interval
        rates = [rate for rate in SAMPLE_INTERVALS if (rate < now if faster else rate > now)]
        set_sample_interval(panel, (rates[-1] if faster else rates[0]) if rates else None)


def set_sample_interval(panel: Panel, every: float | None) -> None:
    """Set the sample interval in seconds and show it; None keeps the current one, which is the limit."""
    from sparkctl.monitor.sampler import LOADING_INTERVAL

    if panel.controller is None:
        return
    now = panel.controller.supervisor.sample_interval if every is None else every
    panel.controller.supervisor.set_sample_interval(now)
    loading = "; every second while something loads" if now > LOADING_INTERVAL else ""
    words = ("every second" if now == 1 else f"every {now:g} s") + loading
    panel.show_toast(f"the Sparks are read {words}" + ("" if every else ", and there is nothing beyond that"))


def make_playback_handler(do: Callable[[RecordingPlayer], None]) -> Callable[[Panel], None]:
    def control_player(panel: Panel) -> None:
        if panel.controller is not None and panel.controller.player is not None:
            do(panel.controller.player)
            panel.repaint_unless_frozen()

    return control_player


HANDLERS: dict[ActionId, Callable[[Panel], None]] = {
    ActionId.UP: lambda panel: panel.dispatcher.open_profile_picker(),
    ActionId.SWITCH: _show_or_plan_switch,
    ActionId.COMMAND: lambda panel: panel.dispatcher.open_command_line(),
    ActionId.PALETTE: _open_palette,
    ActionId.HELP: _show_key_help,
    ActionId.WRONG: _show_problems,
    ActionId.NEXT: lambda panel: panel.move_node_selection(1),
    ActionId.PREVIOUS: lambda panel: panel.move_node_selection(-1),
    ActionId.FIRST: lambda panel: panel.select_node(0),
    ActionId.LAST: lambda panel: panel.select_node(len(panel.node_names) - 1),
    ActionId.LOWER: lambda panel: panel.move_instance_selection(1),
    ActionId.UPPER: lambda panel: panel.move_instance_selection(-1),
    ActionId.PAUSE: lambda panel: panel.toggle_pause(),
    ActionId.BACK: _go_back,
    ActionId.QUIT: _quit,
    ActionId.QUIT_AT_ONCE: lambda panel: panel.request_exit(),
    ActionId.RECONNECT: _reconnect,
    ActionId.BENCH_RUN: _measure_selected,
    ActionId.EDIT_ITS: edit_selected_profile,
    ActionId.COPY_ADDRESS: _copy_address,
    ActionId.TUNNEL: _toggle_tunnel,
    ActionId.SHELL: lambda panel: open_shell(panel, is_inside=False),
    ActionId.SHELL_INSIDE: lambda panel: open_shell(panel, is_inside=True),
    ActionId.PLAN_OF: show_launch_plan,
    ActionId.SAVE_SCREEN: _save_screenshot,
    ActionId.FASTER: lambda panel: step_sample_rate(panel, faster=True),
    ActionId.SLOWER: lambda panel: step_sample_rate(panel, faster=False),
    ActionId.PLAY_FASTER: make_playback_handler(lambda player: player.change_speed(1)),
    ActionId.PLAY_SLOWER: make_playback_handler(lambda player: player.change_speed(-1)),
    ActionId.PLAY_ON: make_playback_handler(lambda player: player.seek(SHORT_SEEK_SECONDS)),
    ActionId.PLAY_BACK: make_playback_handler(lambda player: player.seek(-SHORT_SEEK_SECONDS)),
    ActionId.PLAY_FAR_ON: make_playback_handler(lambda player: player.seek(LONG_SEEK_SECONDS)),
    ActionId.PLAY_FAR_BACK: make_playback_handler(lambda player: player.seek(-LONG_SEEK_SECONDS)),
    ActionId.BACKGROUND: lambda panel: panel.action_suspend_process(),
}
