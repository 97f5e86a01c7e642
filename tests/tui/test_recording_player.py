"""A recording that is played: rests, goes faster, jumps, ends and stays."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sparkctl.model.events import Event, NodeStateChanged
from sparkctl.model.node import NodeName, NodeState
from sparkctl.monitor.recording import RecordingPlayer
from tests.tui.panel_driver import build_panel_options, open_panel, read_toasts, wait_for_text


class SteppedClock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.at = 0.0
        self._moved = asyncio.Event()

    def unix_time(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        due = self.at + seconds
        while self.at < due:
            await self._moved.wait()

    async def go(self, seconds: float) -> None:
        self.at += seconds
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()
        for _ in range(200):
            await asyncio.sleep(0)


def make_story(*stamps: float) -> tuple[Event, ...]:
    return tuple(
        NodeStateChanged(ts=stamp, node=NodeName("spark1"), state=NodeState.OK, detail=str(stamp)) for stamp in stamps
    )


class Watched:
    """A player, and what it has shown since it began."""

    def __init__(self, *stamps: float) -> None:
        self.clock = SteppedClock()
        self.seen: list[float] = []
        events = make_story(*stamps)
        self.player = RecordingPlayer(
            self.clock, events, 1.0, lambda event: self.seen.append(event.ts), self.seen.clear
        )
        self.task = asyncio.create_task(self.player.run())

    @classmethod
    async def begun(cls, *stamps: float) -> Watched:
        one = cls(*stamps)
        await one.clock.go(0)
        return one

    @property
    def says(self) -> str:
        return self.player.progress.description


async def test_the_player_follows_the_clock_and_stops_at_the_end() -> None:
    one = await Watched.begun(100, 101, 105, 165)
    await one.clock.go(0)
    assert (one.seen, one.says) == ([100], "recording 0:00 of 0:35 ×1")  # the pause of a minute takes half of one
    await one.clock.go(3)
    assert (one.seen, one.says) == ([100, 101], "recording 0:03 of 0:35 ×1")
    await one.clock.go(40)
    await one.clock.go(0)
    assert (one.seen, one.says) == ([100, 101, 105, 165], "recording 0:35, its end")
    assert not one.task.done()
    one.task.cancel()


async def test_the_player_pauses_and_resumes() -> None:
    one = await Watched.begun(0, 10, 20)
    await one.clock.go(4)
    one.player.toggle_pause()
    await one.clock.go(500)
    assert (one.seen, one.says) == ([0], "recording 0:04 of 0:20 paused")
    one.player.toggle_pause()
    await one.clock.go(5)
    assert one.seen == [0]
    await one.clock.go(1)
    assert one.seen == [0, 10]
    one.task.cancel()


async def test_it_goes_faster_and_slower_from_where_it_is() -> None:
    one = await Watched.begun(0, 10, 20)
    await one.clock.go(4)
    one.player.change_speed(1)
    await one.clock.go(2.9)
    assert (one.seen, one.says) == ([0], "recording 0:09 of 0:20 ×2")
    await one.clock.go(0.2)
    assert one.seen == [0, 10]
    for _ in range(9):
        one.player.change_speed(-1)
    assert one.says.endswith("×0.25")
    one.task.cancel()


@pytest.mark.parametrize("paused", [False, True])
async def test_the_player_jumps_both_ways(paused: bool) -> None:
    one = await Watched.begun(0, 10, 20, 30)
    await one.clock.go(12)
    if paused:
        one.player.toggle_pause()
    one.player.seek(10)
    assert one.seen == [0, 10, 20]
    one.player.seek(-15)
    assert one.seen == [0], "it begins anew, up to there"
    await one.clock.go(4)
    assert one.seen == ([0] if paused else [0, 10])
    one.player.seek(1000)
    assert (one.seen, one.says) == ([0, 10, 20, 30], "recording 0:30, its end")
    one.player.seek(-5)
    assert one.seen == [0, 10, 20]
    one.task.cancel()


async def test_space_rests_a_recording_in_the_panel(tmp_path: Path) -> None:
    events = make_story(1000.0, 1000.1, 1500.0, 1520.0)
    async with open_panel(build_panel_options((), tmp_path, recording=(events, 1.0)), (120, 24)) as pilot:
        await wait_for_text(pilot, "recording 0:00 of 0:50 ×1")
        await pilot.press("space")
        await wait_for_text(pilot, " paused")
        await pilot.press("space")
        await wait_for_text(pilot, " ×1")


async def test_keys_hurry_a_recording_and_jump_in_it(tmp_path: Path) -> None:
    """In a live panel they say why they do nothing."""
    events = make_story(1000.0, 1025.0, 1050.0, 1075.0, 1100.0)
    async with open_panel(build_panel_options((), tmp_path, recording=(events, 1.0)), (120, 24)) as pilot:
        await wait_for_text(pilot, "recording 0:00 of 1:40 ×1")
        await pilot.press("greater_than_sign", "greater_than_sign")
        await wait_for_text(pilot, " ×4")
        await pilot.press(*["less_than_sign"] * 4, "space")
        await wait_for_text(pilot, " paused")
        await pilot.press("shift+left", "shift+right", "full_stop")
        await wait_for_text(pilot, "recording 1:10 of 1:40 paused")
        await pilot.press("comma", "comma")
        await wait_for_text(pilot, "recording 0:50 of 1:40 paused")
        await pilot.press("shift+left")
        await wait_for_text(pilot, "recording 0:00 of 1:40 paused")
        await pilot.press("space")
        await wait_for_text(pilot, " ×0.25")
    async with open_panel(build_panel_options((), tmp_path), (120, 24)) as pilot:
        await pilot.press("comma")
        assert read_toasts(pilot) == ["this is not a recording: the data is live"]


async def test_before_its_first_node_a_recording_is_being_read_and_nobody_is_told_to_configure_one(
    tmp_path: Path,
) -> None:
    async with open_panel(build_panel_options((), tmp_path, recording=((), 1.0))) as pilot:
        shown = await wait_for_text(pilot, "reading the recording ...")
        assert "sparkctl init" not in shown
