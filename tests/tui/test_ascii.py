"""With ``--ascii``, every cell that is painted is ASCII: screens, dialogs, toasts, scrollbars, what Textual brings along."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkctl.simulator import SimulatedSparks
from tests.sim.clients import FAST
from tests.tui.driving import Driver, on_sparks, until


def painted(pilot: Driver) -> list[str]:
    """Every row of the terminal, whoever painted it."""
    return ["".join(part.text for part in strip) for strip in pilot.app.screen._compositor.render_strips()]


async def plain(pilot: Driver, where: str) -> None:
    """Hold that nothing but ASCII is painted now, nor a moment later."""
    for _ in range(2):
        await pilot.pause(0.05)
        odd = [line for line in painted(pilot) if not line.isascii()]
        assert not odd, f"{where}:\n" + "\n".join(odd)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_every_screen_is_ascii(size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        SimulatedSparks("two-stacks", **FAST) as sparks,
        on_sparks(sparks, tmp_path, monkeypatch, size=size, ascii_only=True) as pilot,
    ):
        await plain(pilot, "the first picture")
        await until(pilot, lambda text: text.count("+ ready") == 2 and "tok/s" in text)
        await plain(pilot, "the overview")
        for opens, shows in (
            ("question_mark", "esc goes back"),
            ("u", "start a profile"),
            ("x", "Stop qwen36-ngram"),
            ("d", "runs with"),
            ("colon", ""),
            ("i", ""),
        ):
            await pilot.press(opens)
            await until(pilot, shows)
            await plain(pilot, opens)
            await pilot.press("escape")
            await until(pilot, "+ ready")
        pilot.app.notify("12 °C · 5 → 6 × — … ≈ Grüße", severity="warning")  # as anything else that is said
        await plain(pilot, "a toast")
        await pilot.press("2")
        await until(pilot, "runs with" if size[0] >= 110 else "holds")
        await plain(pilot, "the instance")
        await pilot.press("l")
        await until(pilot, "follow")
        await pilot.pause(0.5)
        await plain(pilot, "the log")
        for key in ("slash", "t", "n", "E"):
            await pilot.press(*(("slash", "e", "enter") if key == "slash" else (key,)))
            await plain(pilot, f"the log after {key}")
        await pilot.press("p")
        await until(pilot, "> ")
        for _ in range(3):
            await plain(pilot, "the profiles")
            await pilot.press("down")
        await pilot.press("exclamation_mark")
        await until(pilot, "again")
        await pilot.pause(0.5)
        await plain(pilot, "the doctor")
