"""What all dialogs do: clicks work where something is drawn, rows fit the terminal as it is now, what is cut is said."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from textual.widgets import Input

from sparkctl.profiles.profile_library import list_startable_profiles
from sparkctl.tui.dialogs.base import ChoiceDialog, Dialog, TextDialog, render_sentence
from sparkctl.tui.dialogs.command_line import CommandLineDialog
from sparkctl.tui.dialogs.command_palette import ActionPalette, PaletteEntry
from sparkctl.tui.dialogs.profile_picker import ProfilePicker
from sparkctl.tui.key_hints import find_hint_key
from sparkctl.tui.text_surface import TextSurface
from sparkctl.views.text.line_wrap import wrap_text
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, make_row
from tests.tools.pictures.panel_scenes import Driver, build_panel, enact_scene, when_there_are
from tests.tui.panel_driver import wait_until_true

CHOICES = (("no", "Cancel"), ("yes", "switch"))
LABEL = make_row(Span("do    ", TextStyle.LABEL))


@asynccontextmanager
async def open_dialog(
    dialog: Dialog[str] | Dialog[None], tmp_path: Path, size: tuple[int, int] = (80, 24)
) -> AsyncIterator[tuple[Driver, list[object]]]:
    """A panel with a dialog; what it answers is collected."""
    answers: list[object] = []
    panel = build_panel(when_there_are()["overview"], tmp_path)
    async with panel.run_test(size=size) as pilot:
        await pilot.pause()
        panel.push_screen(dialog, answers.append)  # type: ignore[arg-type]
        await pilot.pause()
        yield pilot, answers


def find_place(pilot: Driver, words: str) -> tuple[int, int]:
    """Return where on the screen a text of the dialog begins."""
    surface = pilot.app.screen.query_one(TextSurface)
    for y, line in enumerate(surface.plain_lines):
        if words in line:
            return surface.region.x + line.index(words), surface.region.y + y
    raise AssertionError(f"{words} is not in {surface.plain_lines}")


def read_dialog(pilot: Driver) -> str:
    return "\n".join(pilot.app.screen.query_one(TextSurface).plain_lines)


async def test_a_click_on_a_button_is_its_answer_and_one_beside_it_is_none(tmp_path: Path) -> None:
    for size in ((80, 24), (30, 12)):  # beside each other, and below each other
        question = ChoiceDialog("switch", render_sentence("Do it?"), (*CHOICES, ("later", "some other time")))
        async with open_dialog(question, tmp_path, size) as (pilot, answers):
            await pilot.click(offset=find_place(pilot, "Do it"))
            await pilot.click(offset=(0, 0))
            await pilot.pause()
            assert answers == []
            x, y = find_place(pilot, "switch  " if size[0] == 80 else "  switch")
            await pilot.click(offset=(x + 3, y))
            await pilot.pause()
            assert answers == ["yes"]


async def test_a_click_in_the_palette_runs_what_is_seen_there_and_one_outside_closes_it(tmp_path: Path) -> None:
    entries = [PaletteEntry(does=f"action-{at}", title=f"title {at:02}") for at in range(30)]
    async with open_dialog(ActionPalette(entries), tmp_path) as (pilot, answers):
        x, y = find_place(pilot, "title 02")
        await pilot.click(offset=find_place(pilot, "more"))
        await pilot.pause()
        assert answers == [], "the row of hints is no entry"
        await pilot.click(offset=(x, y))
        await pilot.pause()
        assert answers == ["action-2"]
    async with open_dialog(ActionPalette(entries), tmp_path) as (pilot, answers):
        await pilot.click(offset=(0, find_place(pilot, "title 02")[1]))
        await pilot.pause()
        assert answers == [None]


def build_columns(columns: int) -> Sequence[TextRow]:
    words = "remove what is not needed any more, the oldest first, until there is space again " * 2
    return wrap_text(words, columns, TextStyle.VALUE, head=LABEL)


async def test_rows_are_made_for_the_terminal_as_it_is_and_keep_their_hanging_indent(tmp_path: Path) -> None:
    for dialog in (TextDialog("finding", build_columns), ChoiceDialog("finding", build_columns, CHOICES)):
        async with open_dialog(dialog, tmp_path, (120, 40)) as (pilot, _):
            for columns in (120, 50, 90):
                await pilot.resize_terminal(columns, 24)
                await pilot.pause()
                shown = read_dialog(pilot)
                lines = [line for line in shown.splitlines() if "remove" in line or "oldest" in line or "space" in line]
                first, *others = [line.strip("│").removeprefix(" ") for line in lines]
                assert first.startswith("do    remove")
                assert all(one.startswith(" " * 6) and one[6] != " " for one in others)
                assert all(len(line) <= columns for line in shown.splitlines())


async def test_what_does_not_fit_is_said_to_be_missing(tmp_path: Path) -> None:
    body = [row for at in range(12) for row in render_sentence(f"Sentence {at}.")]
    async with open_dialog(ChoiceDialog("question", body, CHOICES), tmp_path, (50, 12)) as (pilot, _):
        shown = read_dialog(pilot)
        assert "Sentence 7." in shown
        assert "… 4 more rows: make the window taller" in shown
        assert "Sentence 8." not in shown
        await pilot.resize_terminal(50, 20)
        await pilot.pause()
        assert "more rows" not in read_dialog(pilot)


class Growing(Dialog[None]):
    """A dialog of so many rows and columns as it is told."""

    wanted = (40, 8)

    def render_rows(self) -> Sequence[TextRow]:
        return [make_row(Span("x" * self.wanted[0]))] * self.wanted[1]


async def test_a_dialog_does_not_shrink_while_it_is_open(tmp_path: Path) -> None:
    dialog = Growing("list")
    async with open_dialog(dialog, tmp_path) as (pilot, _):
        sizes = []
        for dialog.wanted in ((40, 8), (10, 2), (50, 9)):
            dialog.draw_dialog()
            lines = read_dialog(pilot).splitlines()
            sizes.append((max(map(len, lines)), len(lines)))
        assert sizes == [(44, 10), (44, 10), (54, 11)]


async def test_a_click_in_the_picker_selects_a_profile_or_a_spark(tmp_path: Path) -> None:
    scene = when_there_are()["overview"]
    panel = build_panel(scene, tmp_path)
    async with panel.run_test(size=(120, 40)) as pilot:
        await enact_scene(pilot, scene)
        offers = list_startable_profiles(())
        views = panel.build_action_context().views
        picker = ProfilePicker(offers, lambda: views, "spark1", to_switch=True, title="start a profile")
        answers: list[object] = []
        panel.push_screen(picker, answers.append)
        await pilot.pause()
        name = offers[2].name
        await pilot.click(offset=find_place(pilot, f"  {name} "))
        await pilot.pause()
        assert f"▸ {name} " in read_dialog(pilot)
        assert answers == []
        await pilot.click(offset=find_place(pilot, "spark2"))
        await pilot.pause()
        assert "[ spark2 ]" in read_dialog(pilot)
        before = read_dialog(pilot).splitlines()
        await pilot.press(*"zzz")
        await pilot.pause()
        after = read_dialog(pilot).splitlines()
        assert "no profile matches" in "\n".join(after)
        assert [len(line) for line in after] == [len(line) for line in before], "it neither shrinks nor jumps"


async def test_a_click_on_a_hint_is_its_key(tmp_path: Path) -> None:
    async with open_dialog(TextDialog("text", render_sentence("To read.")), tmp_path) as (pilot, answers):
        await pilot.click(offset=find_place(pilot, "goes back"))
        await wait_until_true(pilot, lambda: answers == [None])
    entries = [PaletteEntry(does=f"action-{at}", title=f"title {at:02}") for at in range(30)]
    async with open_dialog(ActionPalette(entries), tmp_path) as (pilot, answers):
        await pilot.click(offset=find_place(pilot, "does it"))
        await wait_until_true(pilot, lambda: answers == ["action-0"])
    assert find_hint_key("5 more below   esc goes back   type to search", 20) == "escape"
    assert find_hint_key("5 more below   esc goes back   type to search", 35) is None


async def test_a_text_that_comes_before_its_dialog_opens_or_after_it_closed_is_not_drawn(tmp_path: Path) -> None:
    dialog = TextDialog("text", render_sentence("First."))
    dialog.set_body(render_sentence("Second."))
    async with open_dialog(dialog, tmp_path) as (pilot, answers):
        assert "Second." in read_dialog(pilot)
        await pilot.press("escape")
        await wait_until_true(pilot, lambda: answers == [None] and not dialog.query(TextSurface))
        dialog.set_body(render_sentence("Third."))


async def test_a_click_on_a_completion_takes_it(tmp_path: Path) -> None:
    class Verbs:
        verbs = ("pull", "plan", "profiles")

        def complete_line(self, line: str, instances: object = None) -> tuple[str, ...]:
            return tuple(verb for verb in self.verbs if verb.startswith(line))

    dialog = CommandLineDialog(Verbs(), (), "p", refused=None)  # type: ignore[arg-type]
    async with open_dialog(dialog, tmp_path) as (pilot, answers):  # type: ignore[arg-type]
        found = dialog.query_one("#found", TextSurface)
        x = found.plain_lines[0].index("plan")
        await pilot.click(offset=(found.region.x + x + 1, found.region.y))
        await pilot.pause()
        assert dialog.query_one(Input).value == "plan"
        await pilot.click(offset=(found.region.x + x - 2, found.region.y))
        await pilot.press("enter")
        assert answers == ["plan"]
