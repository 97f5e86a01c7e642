"""What is carried between Sparks is asked for, and told as it goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkctl.model.events import Event, NodeStateChanged, TransferProgressed
from sparkctl.model.node import NodeName, NodeState
from sparkctl.simulator import SimulatedSparks
from tests.support.sim_clients import FAST
from tests.tui.panel_driver import build_panel_options, open_demo_panel, open_panel, wait_for_text

WHEN = 1777672000.0
ONE, OTHER = NodeName("spark1"), NodeName("spark2")
G = 10**9


async def test_how_far_it_is_stands_on_the_overview_with_rate_and_time_and_shortly_elsewhere(tmp_path: Path) -> None:
    events: tuple[Event, ...] = (
        NodeStateChanged(ts=WHEN, node=ONE, state=NodeState.OK), NodeStateChanged(ts=WHEN, node=OTHER, state=NodeState.OK),
        TransferProgressed(ts=WHEN + 5, node=OTHER, source=ONE, what="files of qwen36", done=9 * G, total=36 * G, rate=1.5 * G, left=18.0),
        TransferProgressed(ts=WHEN + 25, node=OTHER, source=ONE, what="files of qwen36", done=36 * G, total=36 * G, rate=1.5 * G, left=0.0),
    )  # fmt: skip
    async with open_panel(build_panel_options((), tmp_path, recording=(events, 1.0)), (80, 24)) as pilot:
        await wait_for_text(pilot, "recording 0:0")
        await pilot.press("space", "full_stop")
        shown = await wait_for_text(pilot, "spark1 → spark2")
        assert "25 %  1.50 GB/s  0:18 left" in shown
        assert "━" in shown
        await pilot.press("exclamation_mark")
        await wait_for_text(pilot, "to spark2: 25 %, 0:18 left")
        await pilot.press("escape", "shift+right")
        await wait_for_text(pilot, lambda text: "spark1 → spark2" not in text)


async def test_the_way_is_asked_from_the_selected_spark_and_cancel_is_what_enter_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("empty", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=(120, 40)) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("○ nothing runs") == 2)
        await pilot.press("tab", "p", "slash", *"orpheus", "enter", "j")
        await wait_for_text(pilot, "▸ orpheus-tts")
        await pilot.press("Y")
        shown = await wait_for_text(pilot, "Bring what orpheus-tts needs")
        assert "[ Cancel ]" in shown
        assert shown.index("spark2 → spark1") < shown.index("spark1 → spark2")
        await pilot.press("enter")
        await wait_for_text(pilot, "▸ orpheus-tts")
        await pilot.press("colon", *"sync orpheus-tts --from spark1", "enter")
        await wait_for_text(pilot, "Missing option '--to'")
