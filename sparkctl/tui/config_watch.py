"""The config while the panel is open: one that was saved is taken in; with faults in it, the one that was stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkctl.errors import SparkctlError

if TYPE_CHECKING:
    from sparkctl.tui.app import PanelApp


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
        panel.repaint()
        return
    if config is not None:
        panel.take_config(config)
        panel.show_toast("the config was read again")
        panel.repaint()
