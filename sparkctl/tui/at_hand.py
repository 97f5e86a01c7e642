"""What keys do that mean the same on every screen and are not the panel's own life: a shell, a picture, an address."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sparkctl.core.actions import ActionId
from sparkctl.core.shell_words import inside_words, shell_words
from sparkctl.errors import DockerError, InvalidInput, NodeError

if TYPE_CHECKING:
    from sparkctl.model.node import Node
    from sparkctl.tui.app import Panel
    from sparkctl.tui.player import Player

RATES = (0.5, 1.0, 2.0, 5.0, 10.0)  # seconds between two samples; the probe's own cost was measured at 1 Hz
NEAR, FAR = 10.0, 60.0  # seconds of a recording
_LIGHT = {"#292929": "#ffffff", "#c5c8c6": "#1c1c1c", "#868887": "#5f5f5f"}  # what Rich takes for a terminal's own
_SIMULATED = "simulated: there is no shell"
_NO_CONNECTION = 255  # what ssh ends with where it is ssh that failed
_NOT_RUN = (126, 127)  # what `docker exec` ends with where there is nothing to run


def edit_its(panel: Panel, field: str | None = None) -> None:
    """Open the profile of the selected instance in the editor, at a field where one is to blame."""
    from sparkctl.tui.edit_profile import edit_profile

    one = panel.situation().selected
    if one is not None and one.profile is not None:
        panel.away(edit_profile(panel, one.profile, field))


def _copy_address(panel: Panel) -> None:
    one = panel.situation().selected
    if one is not None and one.endpoint is not None:
        panel.copy(one.endpoint, one.endpoint)


def _shell(panel: Panel) -> None:
    name = panel.situation().node
    node = next((node for node in panel.sparks if node.name == name), None)
    if panel.setup.badge is not None:
        panel.say(_SIMULATED)
    elif node is not None:
        panel.away(_open_shell(panel, node))


async def _open_shell(panel: Panel, node: Node) -> None:
    """ssh says on stderr what is wrong with the connection, and that would be painted over: it is said again."""
    from sparkctl.tui.outside import outside

    words = shell_words(node, os.environ)
    try:
        status, said = await outside(panel, words, "install OpenSSH", listen=not node.is_local)
    except InvalidInput as error:
        panel.say(f"{error.message}\n{error.hint}", severity="error")
        return
    if status == _NO_CONNECTION and not node.is_local:
        lines = [line for line in said.splitlines() if line.strip()]
        panel.say("\n".join(lines[-3:]) or f"ssh to {node.name} ended with {status}", severity="error")


def _shell_inside(panel: Panel) -> None:
    now = panel.situation()
    node = next((node for node in panel.sparks if node.name == now.node), None)
    if panel.setup.badge is not None:
        panel.say(_SIMULATED)
    elif node is not None and now.selected is not None:
        panel.away(_open_shell_inside(panel, node, now.selected.container))


async def _open_shell_inside(panel: Panel, node: Node, container: str) -> None:
    """The end of a shell is that of its last command: only where none was opened is it said."""
    from sparkctl.tui.outside import outside

    try:
        status, said = await outside(
            panel, inside_words(node, container), "install OpenSSH, or Docker where this machine is the Spark",
            listen=not node.is_local,
        )  # fmt: skip
    except InvalidInput as error:
        panel.say(f"{error.message}\n{error.hint}", severity="error")
        return
    if status in (*_NOT_RUN, _NO_CONNECTION):
        lines = [line for line in said.splitlines() if line.strip() and not line.startswith("Connection to ")]
        panel.say(
            "\n".join([f"no shell inside of {container} on {node.name} (exit {status})", *lines[-3:]]),
            severity="error",
        )


def _plan_of(panel: Panel) -> None:
    panel.opening(_show_plan(panel))


async def _show_plan(panel: Panel) -> None:
    from sparkctl.operations.starting.launched import launched
    from sparkctl.present.instance_parts import plan_rows
    from sparkctl.tui.dialogs import Reader

    one, room = panel.situation().selected, panel.room
    node = None if one is None or room is None else room.crew.node(one.node)
    if one is None or room is None or node is None or one.container_id is None:
        return
    try:
        run = await launched(room.unasked, node, one.container_id)
    except (NodeError, DockerError) as error:
        panel.say(f"not known: {error.message}", severity="error")
        return
    rows = plan_rows(run, min(110, panel.size.width - 10))
    panel.push_screen(Reader(f"{one.name} on {one.node} runs with", [(), *rows, ()]))


def picture(panel: Panel) -> str:
    """Return the screen as an SVG; of a terminal's own colours, where they are light, on a light ground."""
    svg = panel.export_screenshot(title="sparkctl")
    theme = panel.current_theme
    if theme.ansi and not theme.dark:
        for default, light in _LIGHT.items():
            svg = svg.replace(default, light)
    return svg


def _save_screen(panel: Panel) -> None:
    """The picture is taken now; what is said of it is not on it."""
    panel.spawn(_save(panel, picture(panel)))


async def _save(panel: Panel, picture: str) -> None:
    name = f"sparkctl-{time.strftime('%Y%m%d-%H%M%S')}.svg"

    def write() -> Path:
        path = Path.cwd() / name
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
            out.write(picture)
        return path

    try:
        path = await asyncio.to_thread(write)
    except OSError as error:
        panel.say(f"not saved: {name}: {error.strerror or error}", severity="error")
    else:
        panel.say(f"the screen is in {path}")


def _faster(panel: Panel) -> None:
    _read(panel, max((rate for rate in RATES if panel.room and rate < panel.room.crew.every), default=None))


def _slower(panel: Panel) -> None:
    _read(panel, min((rate for rate in RATES if panel.room and rate > panel.room.crew.every), default=None))


def _read(panel: Panel, every: float | None) -> None:
    from sparkctl.core.sampler import WHILE_LOADING

    if panel.room is None:
        return
    now = panel.room.crew.every if every is None else every
    panel.room.crew.read_every(now)
    loading = "; every second while something loads" if now > WHILE_LOADING else ""
    words = ("every second" if now == 1 else f"every {now:g} s") + loading
    panel.say(f"the Sparks are read {words}" + ("" if every else ", and there is nothing beyond that"))


def _play(do: Callable[[Player], None]) -> Callable[[Panel], None]:
    def play(panel: Panel) -> None:
        if panel.room is not None and panel.room.player is not None:
            do(panel.room.player)
            panel.repaint()

    return play


def _background(panel: Panel) -> None:
    panel.action_suspend_process()


DO: dict[ActionId, Callable[[Panel], None]] = {
    ActionId.EDIT_ITS: edit_its,
    ActionId.COPY_ADDRESS: _copy_address,
    ActionId.SHELL: _shell,
    ActionId.SHELL_INSIDE: _shell_inside,
    ActionId.PLAN_OF: _plan_of,
    ActionId.SAVE_SCREEN: _save_screen,
    ActionId.FASTER: _faster,
    ActionId.SLOWER: _slower,
    ActionId.PLAY_FASTER: _play(lambda player: player.hurry(1)),
    ActionId.PLAY_SLOWER: _play(lambda player: player.hurry(-1)),
    ActionId.PLAY_ON: _play(lambda player: player.jump(NEAR)),
    ActionId.PLAY_BACK: _play(lambda player: player.jump(-NEAR)),
    ActionId.PLAY_FAR_ON: _play(lambda player: player.jump(FAR)),
    ActionId.PLAY_FAR_BACK: _play(lambda player: player.jump(-FAR)),
    ActionId.BACKGROUND: _background,
}
