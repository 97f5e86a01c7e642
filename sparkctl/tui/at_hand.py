"""What keys do that mean the same on every screen and are not the panel's own life: a shell, a picture, an address."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sparkctl.commands.actions import ActionId
from sparkctl.errors import DockerError, InvalidInput, NodeError
from sparkctl.tui.shell_words import build_container_shell_command, build_ssh_command

if TYPE_CHECKING:
    from sparkctl.model.node import Node
    from sparkctl.monitor.recording_player import RecordingPlayer
    from sparkctl.tui.app import PanelApp

RATES = (0.5, 1.0, 2.0, 5.0, 10.0)  # seconds between two samples; the probe's own cost was measured at 1 Hz
NEAR, FAR = 10.0, 60.0  # seconds of a recording
_LIGHT = {"#292929": "#ffffff", "#c5c8c6": "#1c1c1c", "#868887": "#5f5f5f"}  # what Rich takes for a terminal's own
_SIMULATED = "simulated: there is no shell"
_NO_CONNECTION = 255  # what ssh ends with where it is ssh that failed
_NOT_RUN = (126, 127)  # what `docker exec` ends with where there is nothing to run


def edit_selected_profile(panel: PanelApp, field: str | None = None) -> None:
    """Open the profile of the selected instance in the editor, at a field where one is to blame."""
    from sparkctl.tui.profile_editor import edit_profile

    one = panel.build_action_context().selected
    if one is not None and one.profile is not None:
        panel.spawn_terminal_task(edit_profile(panel, one.profile, field))


def _copy_address(panel: PanelApp) -> None:
    one = panel.build_action_context().selected
    if one is not None and one.endpoint is not None:
        panel.copy_text(one.endpoint, one.endpoint)


def open_node_shell(panel: PanelApp) -> None:
    name = panel.build_action_context().node
    node = next((node for node in panel.sparks if node.name == name), None)
    if panel.setup.badge is not None:
        panel.show_toast(_SIMULATED)
    elif node is not None:
        panel.spawn_terminal_task(_open_shell(panel, node))


async def _open_shell(panel: PanelApp, node: Node) -> None:
    """ssh says on stderr what is wrong with the connection, and that would be painted over: it is said again."""
    from sparkctl.tui.external_program import run_external_program

    words = build_ssh_command(node, os.environ)
    try:
        status, said = await run_external_program(panel, words, "install OpenSSH", listen=not node.is_local)
    except InvalidInput as error:
        panel.show_toast(f"{error.message}\n{error.hint}", severity="error")
        return
    if status == _NO_CONNECTION and not node.is_local:
        lines = [line for line in said.splitlines() if line.strip()]
        panel.show_toast("\n".join(lines[-3:]) or f"ssh to {node.name} ended with {status}", severity="error")


def open_container_shell(panel: PanelApp) -> None:
    now = panel.build_action_context()
    node = next((node for node in panel.sparks if node.name == now.node), None)
    if panel.setup.badge is not None:
        panel.show_toast(_SIMULATED)
    elif node is not None and now.selected is not None:
        panel.spawn_terminal_task(_open_shell_inside(panel, node, now.selected.container))


async def _open_shell_inside(panel: PanelApp, node: Node, container: str) -> None:
    """The end of a shell is that of its last command: only where none was opened is it said."""
    from sparkctl.tui.external_program import run_external_program

    try:
        status, said = await run_external_program(
            panel, build_container_shell_command(node, container), "install OpenSSH, or Docker where this machine is the Spark",
            listen=not node.is_local,
        )  # fmt: skip
    except InvalidInput as error:
        panel.show_toast(f"{error.message}\n{error.hint}", severity="error")
        return
    if status in (*_NOT_RUN, _NO_CONNECTION):
        lines = [line for line in said.splitlines() if line.strip() and not line.startswith("Connection to ")]
        panel.show_toast(
            "\n".join([f"no shell inside of {container} on {node.name} (exit {status})", *lines[-3:]]),
            severity="error",
        )


def show_launch_plan(panel: PanelApp) -> None:
    panel.spawn_dialog_task(_show_plan(panel))


async def _show_plan(panel: PanelApp) -> None:
    from sparkctl.commands.start.launched import read_container_launch
    from sparkctl.tui.dialogs.base import TextDialog
    from sparkctl.views.instance_rows import render_launched_plan

    one, room = panel.build_action_context().selected, panel.room
    node = None if one is None or room is None else room.supervisor.node(one.node)
    if one is None or room is None or node is None or one.container_id is None:
        return
    try:
        run = await read_container_launch(room.non_interactive_context, node, one.container_id)
    except (NodeError, DockerError) as error:
        panel.show_toast(f"not known: {error.message}", severity="error")
        return
    rows = render_launched_plan(run, min(110, panel.size.width - 10))
    panel.push_screen(TextDialog(f"{one.name} on {one.node} runs with", [(), *rows, ()]))


def export_screenshot_svg(panel: PanelApp) -> str:
    """Return the screen as an SVG; of a terminal's own colours, where they are light, on a light ground."""
    svg = panel.export_screenshot(title="sparkctl")
    theme = panel.current_theme
    if theme.ansi and not theme.dark:
        for default, light in _LIGHT.items():
            svg = svg.replace(default, light)
    return svg


def _save_screen(panel: PanelApp) -> None:
    """The picture is taken now; what is said of it is not on it."""
    panel.spawn(_save(panel, export_screenshot_svg(panel)))


async def _save(panel: PanelApp, picture: str) -> None:
    name = f"sparkctl-{time.strftime('%Y%m%d-%H%M%S')}.svg"

    def write() -> Path:
        path = Path.cwd() / name
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
            out.write(picture)
        return path

    try:
        path = await asyncio.to_thread(write)
    except OSError as error:
        panel.show_toast(f"not saved: {name}: {error.strerror or error}", severity="error")
    else:
        panel.show_toast(f"the screen is in {path}")


def increase_sample_rate(panel: PanelApp) -> None:
    set_sample_interval(
        panel, max((rate for rate in RATES if panel.room and rate < panel.room.supervisor.every), default=None)
    )


def decrease_sample_rate(panel: PanelApp) -> None:
    set_sample_interval(
        panel, min((rate for rate in RATES if panel.room and rate > panel.room.supervisor.every), default=None)
    )


def set_sample_interval(panel: PanelApp, every: float | None) -> None:
    from sparkctl.monitor.sampler import LOADING_INTERVAL

    if panel.room is None:
        return
    now = panel.room.supervisor.every if every is None else every
    panel.room.supervisor.set_sample_interval(now)
    loading = "; every second while something loads" if now > LOADING_INTERVAL else ""
    words = ("every second" if now == 1 else f"every {now:g} s") + loading
    panel.show_toast(f"the Sparks are read {words}" + ("" if every else ", and there is nothing beyond that"))


def playback_handler(do: Callable[[RecordingPlayer], None]) -> Callable[[PanelApp], None]:
    def play(panel: PanelApp) -> None:
        if panel.room is not None and panel.room.player is not None:
            do(panel.room.player)
            panel.repaint()

    return play


def _background(panel: PanelApp) -> None:
    panel.action_suspend_process()


HANDLERS: dict[ActionId, Callable[[PanelApp], None]] = {
    ActionId.EDIT_ITS: edit_selected_profile,
    ActionId.COPY_ADDRESS: _copy_address,
    ActionId.SHELL: open_node_shell,
    ActionId.SHELL_INSIDE: open_container_shell,
    ActionId.PLAN_OF: show_launch_plan,
    ActionId.SAVE_SCREEN: _save_screen,
    ActionId.FASTER: increase_sample_rate,
    ActionId.SLOWER: decrease_sample_rate,
    ActionId.PLAY_FASTER: playback_handler(lambda player: player.change_speed(1)),
    ActionId.PLAY_SLOWER: playback_handler(lambda player: player.change_speed(-1)),
    ActionId.PLAY_ON: playback_handler(lambda player: player.seek(NEAR)),
    ActionId.PLAY_BACK: playback_handler(lambda player: player.seek(-NEAR)),
    ActionId.PLAY_FAR_ON: playback_handler(lambda player: player.seek(FAR)),
    ActionId.PLAY_FAR_BACK: playback_handler(lambda player: player.seek(-FAR)),
    ActionId.BACKGROUND: _background,
}
