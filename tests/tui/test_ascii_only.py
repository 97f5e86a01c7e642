"""With ``--ascii``, every cell that is painted is ASCII: screens, dialogs, toasts, scrollbars, what Textual brings along."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sparkctl.simulator import SimulatedSparks
from tests.support.sim_clients import FAST
from tests.tui.panel_driver import Driver, open_demo_panel, wait_for_text


def list_painted_rows(pilot: Driver) -> list[str]:
    """Every row of the terminal, whoever painted it."""
    return ["".join(part.text for part in strip) for strip in pilot.app.screen._compositor.render_strips()]


async def assert_only_ascii(pilot: Driver, where: str) -> None:
    """Hold that nothing but ASCII is painted now, nor a moment later."""
    for _ in range(2):
        await pilot.pause(0.05)
        odd = [line for line in list_painted_rows(pilot) if not line.isascii()]
        assert not odd, f"{where}:\n" + "\n".join(odd)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_every_screen_is_ascii(size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        SimulatedSparks("two-stacks", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=size, ascii_only=True) as pilot,
    ):
        await assert_only_ascii(pilot, "the first picture")
        await wait_for_text(pilot, lambda text: text.count("+ ready") == 2 and "tok/s" in text)
        await assert_only_ascii(pilot, "the overview")
        for opens, shows in (
            ("question_mark", "esc goes back"),
            ("u", "start a profile"),
            ("x", "Stop qwen36-ngram"),
            ("d", "runs with"),
            ("colon", ""),
            ("i", ""),
        ):
            await pilot.press(opens)
            await wait_for_text(pilot, shows)
            await assert_only_ascii(pilot, opens)
            await pilot.press("escape")
            await wait_for_text(pilot, "+ ready")
        pilot.app.notify("12 °C · 5 → 6 × — … ≈ Grüße", severity="warning")  # as anything else that is said
        await assert_only_ascii(pilot, "a toast")
        toast = [line for line in list_painted_rows(pilot) if "12 oC" in line]
        assert toast
        assert all(re.search(r"\| 12 oC .* \|", line) for line in toast), "it has an edge"
        await pilot.press("2")
        await wait_for_text(pilot, "docker run line" if size[0] >= 110 else "model   ")
        await assert_only_ascii(pilot, "the instance")
        await pilot.press("l")
        await wait_for_text(pilot, "follow")
        await pilot.pause(0.5)
        await assert_only_ascii(pilot, "the log")
        for key in ("slash", "t", "n", "E"):
            await pilot.press(*(("slash", "e", "enter") if key == "slash" else (key,)))
            await assert_only_ascii(pilot, f"the log after {key}")
        await pilot.press("p")
        await wait_for_text(pilot, "> ")
        for _ in range(3):
            await assert_only_ascii(pilot, "the profiles")
            await pilot.press("down")
        await pilot.press("exclamation_mark")
        await wait_for_text(pilot, "again")
        await pilot.pause(0.5)
        await assert_only_ascii(pilot, "the doctor")
