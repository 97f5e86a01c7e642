"""Lines that are typed by nobody: what the demo does of its own accord, until somebody takes over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkctl.tui.panel_options import DemoStep
from sparkctl.views.text.styled_text import TextStyle

if TYPE_CHECKING:
    from sparkctl.tui.controller import PanelController

_LOOK = 1.0  # seconds between two looks whether a verb is over
_HANDS_OFF = 5.0  # of our seconds after a key: whoever presses one may be about to do something


async def run_demo_steps(room: PanelController, story: Sequence[DemoStep]) -> None:
    """Say and do one thing after the other; a verb is waited for, and so are a visitor's dialog and keys. Somebody who
    starts something himself ends it."""
    for one in story:
        await room.clock.sleep(one.after)
        while room.is_operator_active(_HANDS_OFF) and not room.is_taken_over:
            await room.clock.sleep(_LOOK)
        if room.is_taken_over:
            room.notice("from here on the demo is yours: it starts nothing more by itself", TextStyle.ACCENT)
            return
        if one.says:
            room.notice(one.says, TextStyle.ACCENT)
        if one.words:
            room.start_command(one.words, by_hand=False)
            while room.jobs.running:
                await room.clock.sleep(_LOOK)
