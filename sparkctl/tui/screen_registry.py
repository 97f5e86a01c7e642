"""The table of screens other than the overview: the name and the module, which is imported when the screen opens.

A screen needs an entry here: its key, its help and its palette entry depend on it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from textual.screen import Screen

    from sparkctl.commands.actions import ActionContext

# name: (module of `screens`, function that creates the screen for an action context)
SCREENS: dict[str, tuple[str, str]] = {
    "instance": ("instance_screen", "create_instance_screen"),
    "logs": ("log_screen", "create_log_screen"),
    "profiles": ("profiles_screen", "create_profiles_screen"),
    "doctor": ("doctor_screen", "create_doctor_screen"),
    "switch": ("switch_screen", "create_switch_screen"),
    "history": ("history_screen", "create_history_screen"),
}
AVAILABLE_SCREENS = frozenset(SCREENS)


def create_screen(name: str, now: ActionContext) -> Screen[None]:
    """Create a screen by its name. Raises KeyError where there is none."""
    module, function = SCREENS[name]
    screen: Screen[None] = getattr(importlib.import_module(f"sparkctl.tui.screens.{module}"), function)(now)
    return screen
