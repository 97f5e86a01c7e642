"""The log view under a reader's keys."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import ClassVar

import pytest
from textual.app import App
from textual.binding import BindingType
from textual.events import MouseScrollUp

from sparkctl import engines
from sparkctl.logs.buffer import DiskLineBuffer, LogBuffer
from sparkctl.logs.line_marker import LineMarker
from sparkctl.tui.log_viewer.log_pane import LogPane
from sparkctl.views.text.styled_text import to_ascii
from tests.unit.tui.log_app import LogApp, make_log_lines, make_numbered_lines, press_keys, wait_until_settled

pytestmark = pytest.mark.usefixtures("forwarded_clock")

FATAL = (
    "(EngineCore pid=2) ERROR 11-20 16:26:30 [core.py:1108] EngineCore failed to start.",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB. GPU 0 has 1 GiB of which 1 GiB is free",
)


@pytest.fixture
def app(tmp_path: Path) -> LogApp:
    return LogApp(tmp_path)


async def test_the_log_follows_until_scrolled_up(app: LogApp) -> None:
    async with app.run_test(size=(80, 12)) as pilot:
        app.view.add_lines(0, make_numbered_lines(100))
        await wait_until_settled(pilot)
        assert app.rows()[-1] == "  line 100"
        assert "● following   100 lines" in app.status()
        await press_keys(pilot, "up")
        app.view.add_lines(0, make_numbered_lines(24, 101))
        await wait_until_settled(pilot)
        assert app.rows()[-1] == "  line 99"
        assert "‖ paused +24 new" in app.status()
        await press_keys(pilot, "pagedown")
        assert "+16 new" in app.status(), "what was read is not new any more"
        await press_keys(pilot, "f")
        assert app.rows()[-1] == "  line 124"
        assert "following" in app.status()


async def test_it_shows_its_lines_where_textual_sends_it_no_resize(app: LogApp) -> None:
    async with app.run_test(size=(80, 12)) as pilot:
        await wait_until_settled(pilot)
        second = LogPane(LogBuffer(["spark2"], spool=DiskLineBuffer(app.directory)), instance="second")
        await app.mount(second)
        app.screen._compositor._full_map_invalidated = True
        assert second.view.region.height > 0, "whoever asks for its place is told it before the screen's own round"
        second.view.buffer.add_lines(0, make_numbered_lines(3))
        second.view.apply_new_lines()
        for _ in range(20):
            await pilot.pause(0.02)
        assert second.view.state.total == 3


@pytest.mark.parametrize("keys", [("up",), ("k",), ("pageup",), ("home",), ("g",), ("f",)])
async def test_every_way_up_pauses_and_the_end_follows_again(app: LogApp, keys: tuple[str, ...]) -> None:
    async with app.run_test(size=(80, 12)) as pilot:
        app.view.add_lines(0, make_numbered_lines(100))
        await wait_until_settled(pilot)
        await press_keys(pilot, *keys)
        assert not app.view.is_following
        await press_keys(pilot, "G")
        assert app.view.is_following


async def test_the_wheel_and_the_scrollbar_pause_too(app: LogApp) -> None:
    async with app.run_test(size=(80, 12)) as pilot:
        app.view.add_lines(0, make_numbered_lines(100))
        await wait_until_settled(pilot)
        app.view.post_message(
            MouseScrollUp(app.view, 1, y=1, delta_x=0, delta_y=-1, button=0, shift=False, meta=False, ctrl=False)
        )
        await wait_until_settled(pilot)
        assert app.rows()[-1] == "  line 97"
        app.view.scroll_to(y=20, animate=False, force=True)
        await wait_until_settled(pilot)
        assert app.rows()[0] == "  line 21"
        assert not app.view.is_following


async def test_going_down_at_the_end_follows_again(app: LogApp) -> None:
    async with app.run_test(size=(80, 12)) as pilot:
        app.view.add_lines(0, make_numbered_lines(30))
        await wait_until_settled(pilot)
        await press_keys(pilot, "up", "down")
        assert not app.view.is_following
        await press_keys(pilot, "down")
        assert app.view.is_following


@pytest.mark.parametrize("wrapped", [False, True])
async def test_the_place_is_kept_while_a_thousand_lines_drop(tmp_path: Path, wrapped: bool) -> None:
    app = LogApp(tmp_path, most_lines=2000)
    async with app.run_test(size=(80, 12)) as pilot:
        app.view.add_lines(0, make_numbered_lines(2000))
        await wait_until_settled(pilot)
        if wrapped:
            await press_keys(pilot, "w")
        app.view.position.scroll_to_line((0, 1500))
        app.view.repaint()
        await wait_until_settled(pilot)
        before = app.rows()
        for first in range(2001, 3001, 100):
            app.view.add_lines(0, make_numbered_lines(100, first))
            await pilot.pause()
            assert app.rows() == before
        await wait_until_settled(pilot)
        assert app.rows() == before
        assert app.buffer.spool.first == 1000
        assert "+1,000 new" in app.status()
        for first in range(3001, 5001, 100):
            app.view.add_lines(0, make_numbered_lines(100, first))
        await wait_until_settled(pilot)
        assert app.rows()[0] == "  line 3001", "what is gone cannot be read: the oldest that is there"


async def test_a_filter_while_following(app: LogApp) -> None:
    async with app.run_test(size=(80, 12)) as pilot:
        app.view.add_lines(0, make_numbered_lines(50))
        await wait_until_settled(pilot)
        await press_keys(pilot, "ampersand", "7", "enter")
        assert app.rows()[:5] == ["  line 7", "  line 17", "  line 27", "  line 37", "  line 47"]
        assert "5 of 50" in app.status()
        app.view.add_lines(0, make_numbered_lines(50, 51))
        await wait_until_settled(pilot)
        assert app.rows()[-1] == "  line 97"
        assert "19 of 100" in app.status()
        assert "only 7" in app.status()
        assert app.view.is_following
        await press_keys(pilot, "escape")
        assert app.rows()[-1] == "  line 100"


async def test_a_filter_keeps_the_place_and_gives_it_back(app: LogApp) -> None:
    async with app.run_test(size=(80, 12)) as pilot:
        app.view.add_lines(0, make_numbered_lines(500))
        await wait_until_settled(pilot)
        app.view.position.scroll_to_line((0, 250))
        app.view.repaint()
        await wait_until_settled(pilot)
        before = app.rows()
        await press_keys(pilot, "ampersand", "0", "enter")
        assert app.rows()[0] == "  line 250"
        await press_keys(pilot, "escape")
        assert app.rows() == before


async def test_a_bad_pattern_says_so_and_filters_nothing(app: LogApp) -> None:
    async with app.run_test(size=(80, 12)) as pilot:
        app.view.add_lines(0, make_numbered_lines(50))
        await wait_until_settled(pilot)
        await press_keys(pilot, "ampersand", "slash", "(", "slash")
        assert "filters nothing" in app.status()
        assert app.rows()[-1] == "  line 50"
        await press_keys(pilot, "escape")
        assert "filters nothing" not in app.status()


async def test_a_search_counts_and_goes_round(app: LogApp) -> None:
    async with app.run_test(size=(80, 12)) as pilot:
        app.view.add_lines(0, make_numbered_lines(300))
        await wait_until_settled(pilot)
        await press_keys(pilot, "slash", "line 7", "enter")
        assert "find line 7   11/11" in app.status(), "whoever follows is nearest to the newest match"
        assert "› line 79" in app.rows()
        await press_keys(pilot, "n")
        assert "from the beginning again" in app.status()
        assert "1/11" in app.status()
        assert "› line 7" in app.rows()
        await press_keys(pilot, "n", "n")
        assert "3/11" in app.status()
        await press_keys(pilot, "N", "N", "N")
        assert "11/11" in app.status()
        assert "from the end again" in app.status()
        await press_keys(pilot, "slash", "*" * 3, "enter")
        assert "no match" in app.status()


async def test_escape_in_the_prompt_goes_back_to_where_the_reader_was(app: LogApp) -> None:
    async with app.run_test(size=(80, 12)) as pilot:
        app.view.add_lines(0, make_numbered_lines(300))
        await wait_until_settled(pilot)
        await press_keys(pilot, "home")
        before = app.rows()
        await press_keys(pilot, "slash", "line 25")
        assert app.rows() != before
        await press_keys(pilot, "escape")
        assert app.rows() == before
        assert "find" not in app.status()
        assert app.view.has_focus


async def test_what_is_typed_fast_goes_where_it_is_meant_to(app: LogApp) -> None:
    """All keys are there before the first is handled, as from a paste or a slow connection."""
    async with app.run_test(size=(80, 12)) as pilot:
        app.view.add_lines(0, make_numbered_lines(300))
        await wait_until_settled(pilot)
        for key in "&29":
            app.simulate_key({"&": "ampersand"}.get(key, key))
        app.simulate_key("enter")
        app.simulate_key("k")
        app.simulate_key("w")
        await wait_until_settled(pilot)
        assert "only 29" in app.status()
        assert app.view.state.is_wrapped, "a key behind the enter is for the log again"
        assert not app.view.is_following


async def test_search_and_filter_together(app: LogApp) -> None:
    async with app.run_test(size=(80, 12)) as pilot:
        app.view.add_lines(0, make_numbered_lines(300))
        await wait_until_settled(pilot)
        await press_keys(pilot, "ampersand", "!1", "enter", "slash", "22", "enter")
        assert "10/10" in app.status(), "22, 220, and 222 to 229: what is filtered out is not found"
        await press_keys(pilot, "escape", "escape")
        assert "300 lines" in app.status()


async def test_wrapping_keeps_the_top_line_and_shows_every_character(app: LogApp) -> None:
    texts = [f"{n} " + "word " * 40 for n in range(100)]
    async with app.run_test(size=(60, 12)) as pilot:
        app.view.add_lines(0, make_log_lines(texts))
        await wait_until_settled(pilot)
        app.view.action_scroll_home()
        app.view._move_rows(30)
        assert app.rows()[0].startswith("  30 word")
        assert app.rows()[0].endswith("›")
        await press_keys(pilot, "w")
        rows = app.rows()
        assert rows[0].startswith("  30 word")
        assert rows[1].startswith("    word"), "further rows stand in"
        assert "".join(rows[:4]).replace(" ", "") == texts[30].replace(" ", "")
        assert rows[4].startswith("  31 word")
        await press_keys(pilot, "down", "down")
        assert app.rows()[2].startswith("  31 word")
        await press_keys(pilot, "up", "up", "w")
        assert app.rows()[0].startswith("  30 word")


async def test_a_line_taller_than_the_screen_can_be_read_to_its_end(app: LogApp) -> None:
    text = " ".join(f"word{n}" for n in range(400))
    async with app.run_test(size=(40, 10)) as pilot:
        app.view.add_lines(0, make_log_lines(["before", text, "after"]))
        await wait_until_settled(pilot)
        await press_keys(pilot, "w")
        assert app.rows()[-1] == "  after"
        await press_keys(pilot, "home")
        seen = list(app.rows())
        while not app.view.is_following:
            app.view.action_scroll_down()
            seen += app.rows()[-1:]
        shown = " ".join(seen)
        assert all(f"word{n}" in shown for n in range(400))


async def test_another_size_keeps_the_top_line(app: LogApp) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        app.view.add_lines(0, make_log_lines(f"{n} " + "x" * 150 for n in range(200)))
        await wait_until_settled(pilot)
        await press_keys(pilot, "w", "home", *["pagedown"] * 3, "down")
        top = app.rows()[0].split()[0]
        row = app.view._page[0] if app.view._page else None
        assert row is not None
        for width, height in ((40, 10), (120, 40), (80, 24)):
            await pilot.resize_terminal(width, height)
            await wait_until_settled(pilot)
            assert app.view._page is not None
            assert app.view._page[0].line.number == row.line.number, (width, height)
        assert app.rows()[0].split()[0] == top


async def test_on_a_smaller_screen_the_line_that_was_gone_to_is_still_seen(app: LogApp) -> None:
    async with app.run_test(size=(80, 30)) as pilot:
        app.view.add_lines(0, make_numbered_lines(32))
        await wait_until_settled(pilot)
        await press_keys(pilot, "slash", *"line 30", "enter")
        assert any("line 30" in row for row in app.rows())
        await pilot.resize_terminal(80, 20)
        await wait_until_settled(pilot)
        assert any("line 30" in row for row in app.rows())


async def test_long_lines_scroll_sideways_and_the_gutter_stays(app: LogApp) -> None:
    async with app.run_test(size=(60, 12)) as pilot:
        app.view.add_lines(0, make_log_lines(["0123456789" * 20, "short"]))
        await wait_until_settled(pilot)
        await press_keys(pilot, "t", "right", "right")
        assert app.rows()[0].startswith("  10:00:01 │‹4567890123")
        assert "→ 24" in app.status()
        await press_keys(pilot, *["right"] * 14)
        assert app.rows()[0].endswith("789")
        await press_keys(pilot, *["left"] * 16)
        assert app.rows()[0].startswith("  10:00:01 │ 0123456789")


async def test_a_search_brings_what_is_far_to_the_right_into_view(app: LogApp) -> None:
    async with app.run_test(size=(80, 12)) as pilot:
        app.view.add_lines(0, make_log_lines(["a" * 500 + "needle" + "b" * 500, "other"]))
        await wait_until_settled(pilot)
        await press_keys(pilot, "slash", "needle", "enter")
        assert "needle" in app.rows()[0]
        assert app.rows()[1] == "  other", "the other lines stay"


async def test_sources_are_merged_or_alone(tmp_path: Path) -> None:
    app = LogApp(tmp_path, ("spark1", "spark2"))
    async with app.run_test(size=(80, 12)) as pilot:
        app.view.add_lines(0, make_numbered_lines(3, word="one"))
        app.view.add_lines(1, make_log_lines((f"two {n}" for n in (1, 2, 3)), stream="stderr"))
        await wait_until_settled(pilot)
        assert app.rows()[:4] == ["  spark1 │ one 1", "  spark2 ╎ two 1", "  spark1 │ one 2", "  spark2 ╎ two 2"]
        await press_keys(pilot, "m")
        assert app.rows()[:3] == ["  one 1", "  one 2", "  one 3"]
        assert "spark1" in app.status()
        await press_keys(pilot, "m")
        app.view.add_lines(1, make_numbered_lines(1, 4, "two"))
        await wait_until_settled(pilot)
        assert app.rows()[:4] == ["  two 1", "  two 2", "  two 3", "  two 4"]
        await press_keys(pilot, "m")
        assert len([row for row in app.rows() if row]) == 7


async def test_errors_and_marks_are_a_key_away(tmp_path: Path) -> None:
    vllm = engines.load_engine("vllm")
    app = LogApp(tmp_path)
    marked = LogBuffer(markers=[LineMarker(vllm, vllm.defaults.ready_line)], spool=app.buffer.spool)
    async with app.run_test(size=(100, 12)) as pilot:
        app.view.add_lines(0, make_numbered_lines(50))
        marked.add_lines(0, make_log_lines(FATAL, 51))
        app.view.apply_new_lines()
        app.view.add_lines(0, make_numbered_lines(50, 53))
        marked.add_lines(0, make_log_lines(["INFO:     Application startup complete."], 103))
        app.view.apply_new_lines()
        await wait_until_settled(pilot)
        await press_keys(pilot, "E")
        assert any(row.startswith("✕ (EngineCore pid=2) ERROR") for row in app.rows())
        await press_keys(pilot, "]", "]")
        assert any(row.startswith("● INFO:     Application startup") for row in app.rows())
        app.view.show_evidence(0, 52)
        await wait_until_settled(pilot)
        assert any(row.startswith("✕     52 torch.OutOfMemoryError") for row in app.rows())
        await press_keys(pilot, "ampersand", "startup", "enter")
        app.view.show_evidence(0, 52)
        await wait_until_settled(pilot)
        assert any(row.startswith("✕     52 torch.OutOfMemoryError") for row in app.rows())
        assert "only" not in app.status(), "a filter that hides the proof is taken away"
        app.view.show_evidence(0, 99_999)
        await wait_until_settled(pilot)
        assert "line 99,999 is not in this log any more" in app.status()


async def test_copying(app: LogApp) -> None:
    async with app.run_test(size=(80, 12)) as pilot:
        app.view.add_lines(0, make_numbered_lines(50))
        await wait_until_settled(pilot)
        await press_keys(pilot, "y")
        assert app.copied[-1].splitlines() == [f"line {n}" for n in range(41, 51)]
        assert "10 lines copied" in app.status()
        await press_keys(pilot, "slash", "line 33", "enter", "y")
        assert app.copied[-1] == "line 33"
        await press_keys(pilot, "G")
        top = int(app.rows()[0].split()[1])
        await pilot.mouse_down(app.view, offset=(4, 1))
        await pilot.hover(app.view, offset=(6, 3))
        await pilot.mouse_up(app.view, offset=(6, 3))
        await wait_until_settled(pilot)
        app.view.add_lines(0, make_numbered_lines(500, 51))
        await wait_until_settled(pilot)
        await press_keys(pilot, "y")
        assert app.copied[-1] == f"ne {top + 1}\nline {top + 2}\nline "
        assert "3 lines copied" in app.status()
        assert not app.view.is_following, "lines do not run away under a selection"


async def test_more_than_a_clipboard_takes_is_refused(app: LogApp) -> None:
    async with app.run_test(size=(80, 12)) as pilot:
        app.view.add_lines(0, make_log_lines(["x" * 16_000] * 20))
        await wait_until_settled(pilot)
        await press_keys(pilot, "y")
        assert app.copied == []
        assert "more than a clipboard takes" in app.status()


async def test_saving_what_is_shown(app: LogApp) -> None:
    async with app.run_test(size=(120, 12)) as pilot:
        app.view.add_lines(0, make_numbered_lines(1000))
        await wait_until_settled(pilot)
        await press_keys(pilot, "ampersand", "99", "enter", "ctrl+s")
        path = app.directory / "qwen36-20260501-120000.log"
        assert path.read_text().splitlines()[0] == "2026-05-01T10:01:39.000000000Z line 99"
        assert len(path.read_text().splitlines()) == 19
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert "19 lines in " in app.status()
        await press_keys(pilot, "ctrl+s")
        assert "exists already" in app.status()


async def test_where_nothing_can_be_saved_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    app = LogApp(tmp_path)
    app.pane._directory = None  # where sparkctl was started
    folder.rmdir()
    async with app.run_test(size=(120, 12)) as pilot:
        app.view.add_lines(0, make_numbered_lines(10))
        await wait_until_settled(pilot)
        await press_keys(pilot, "ctrl+s")
        assert "not saved: the directory that sparkctl was started in" in app.status()


async def test_ascii(tmp_path: Path) -> None:
    app = LogApp(tmp_path, ("ä-spark", "b"))
    async with app.run_test(size=(80, 12)) as pilot:
        app.view.add_lines(
            0, make_log_lines(["ERROR 11-20 16:26:30 [core.py:1108] bad", "WARNING 11-20 16:26:30 [c.py:1] so so"])
        )
        app.view.add_lines(1, make_log_lines(["x" * 100]))
        await wait_until_settled(pilot)
        await press_keys(pilot, "t", "up")
        rows = [to_ascii(row) for row in app.rows()]
        assert rows[0].startswith("! 10:00:01.000 ?-spark | ERROR")
        assert rows[1].endswith(">")
        assert to_ascii(app.status()).isascii()
        assert "?" not in to_ascii(app.status())


@pytest.mark.parametrize("ansi", [True, None])
async def test_without_colours_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ansi: bool | None
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = LogApp(tmp_path, ansi_color=ansi)
    async with app.run_test(size=(80, 12)) as pilot:
        assert app.no_color
        app.view.add_lines(0, make_log_lines([*FATAL, "find me here"]))
        await wait_until_settled(pilot)
        await press_keys(pilot, "slash", "me", "enter")
        assert app.rows()[:3] == [
            "▲ (EngineCore pid=2) ERROR 11-20 16:26:30 [core.py:1108] EngineCore failed to ›",
            "  torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB. GPU ›",
            "› find me here",
        ]
        found = [segment for segment in app.view.render_line(2) if segment.text == "me"]
        assert found
        assert found[0].style is not None
        assert found[0].style.underline, "a match is seen without colour"


@pytest.mark.parametrize("size", [(40, 10), (20, 4), (3, 2), (1, 1)])
async def test_small_terminals(tmp_path: Path, size: tuple[int, int]) -> None:
    app = LogApp(tmp_path, ("spark1", "spark2"))
    async with app.run_test(size=size) as pilot:
        app.view.add_lines(0, make_log_lines(["ERROR 11-20 16:26:30 [core.py:1108] " + "宽" * 60] * 30))
        await press_keys(pilot, "t", "w", "up", "w", "right", "slash", "ERR", "enter", "n", "G")
        assert app.is_running
        width = app.view.scrollable_content_region.width
        assert {app.view.render_line(y).cell_length for y in range(app.view.size.height)} <= {max(1, width)}


async def test_escape_is_somebody_else_s_when_there_is_nothing_to_clear(tmp_path: Path) -> None:
    class Outer(LogApp):
        BINDINGS: ClassVar[list[BindingType]] = [*App.BINDINGS, ("escape", "back", "back")]
        went_back = 0

        def action_back(self) -> None:
            self.went_back += 1

    app = Outer(tmp_path)
    async with app.run_test(size=(80, 12)) as pilot:
        app.view.add_lines(0, make_numbered_lines(10))
        await press_keys(pilot, "slash", "1", "enter", "escape")
        assert app.went_back == 0
        await press_keys(pilot, "escape")
        assert app.went_back == 1


async def test_a_disk_that_is_not_there_is_said(tmp_path: Path) -> None:
    app = LogApp(tmp_path / "nowhere")
    async with app.run_test(size=(80, 12)) as pilot:
        app.view.add_lines(0, make_numbered_lines(10))
        await wait_until_settled(pilot)
        assert app.rows()[0] == "  line 1"
        assert "▲ in memory only" in app.status()


async def test_numbers_are_those_of_the_log_itself(app: LogApp) -> None:
    async with app.run_test(size=(80, 12)) as pilot:
        app.view.add_lines(0, make_log_lines(["first", "shards: 1%\rshards: 50%\rshards: 100%\r", "third"]))
        await press_keys(pilot, "#")
        assert app.rows()[:3] == ["       1 first", "       2 shards: 100%", "       3 third"]
        assert "numbers" in app.status()
        await press_keys(pilot, "#")
        assert app.rows()[:2] == ["  first", "  shards: 100%"]


async def test_a_key_goes_further_back_each_time(app: LogApp) -> None:
    """The lines are a second apart; the newest is the 8000th."""
    async with app.run_test(size=(80, 12)) as pilot:
        app.view.add_lines(0, make_numbered_lines(8000))
        await wait_until_settled(pilot)
        for first in (7940, 7700, 7100, 4400, 1):
            await press_keys(pilot, "T")
            assert app.rows()[0] == f"  line {first}"
        assert not app.view.is_following
        await press_keys(pilot, "G", "T")
        assert app.rows()[0] == "  line 7940"


async def test_the_prompt_opens_and_closes_without_a_change_of_the_log_s_place(app: LogApp) -> None:
    async with app.run_test(size=(80, 12)) as pilot:
        app.view.add_lines(0, make_numbered_lines(50))
        await wait_until_settled(pilot)
        region, rows = app.view.region, app.rows()
        await press_keys(pilot, "slash")
        assert (app.view.region, app.rows()) == (region, rows)
        await press_keys(pilot, "escape")
        assert (app.view.region, app.rows()) == (region, rows)
