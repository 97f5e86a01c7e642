"""The screens beside the overview: a name and the module that has it, imported when it is opened.

A screen that is not here does not exist for anybody: its key, its help and its place in the palette come with its line.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkctl.commands.actions import ActionContext
    from sparkctl.tui.screens.base import PanelScreen

# name: (module of this folder, function that returns the screen for a situation)
SCREENS: dict[str, tuple[str, str]] = {
    "instance": ("instance_screen", "create_instance_screen"),
    "logs": ("log_screen", "create_log_screen"),
    "profiles": ("profiles_screen", "create_profiles_screen"),
    "doctor": ("doctor_screen", "create_doctor_screen"),
    "switch": ("switch_screen", "create_switch_screen"),
    "history": ("history_screen", "create_history_screen"),
}
AVAILABLE_SCREENS = frozenset(SCREENS)


def create_screen(name: str, now: ActionContext) -> PanelScreen:
    """Return a screen. Raises KeyError for one that there is not."""
    module, function = SCREENS[name]
    screen: PanelScreen = getattr(importlib.import_module(f"sparkctl.tui.screens.{module}"), function)(now)
    return screen
