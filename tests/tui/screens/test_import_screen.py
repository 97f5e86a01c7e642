"""A profile out of what is pasted, as a person does it in the panel."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual import events
from textual.widgets import Input, TextArea

from sparkctl import files
from tests.tui.panel_driver import (
    Driver,
    build_panel_options,
    open_panel,
    read_screen,
    read_toasts,
    wait_for_text,
    wait_until_true,
)

LINE = """docker run -d --gpus all --ipc=host -p 8000:8000 \\
  -v ~/models:/models -e HF_TOKEN=hf_canary4711canary4711 \\
  --device-cgroup-rule 'c 1:1 r' --privileged \\
  vllm/vllm-openai:v0.19.1 --model /models/Qwen3-8B --gpu-memory-utilization 0.6 --max-model-len 32768"""


@pytest.fixture(autouse=True)
def mine(_operator: None) -> Path:
    """Where the operator's own profiles are: nobody has any yet."""
    return files.user_profiles_dir()


def list_written_profiles(mine: Path) -> dict[str, str]:
    """The operator's own profiles."""
    return {path.stem: path.read_text() for path in mine.glob("*.yaml")}


async def open_and_paste(pilot: Driver, text: str) -> None:
    await pilot.press("p")
    await wait_for_text(pilot, "last")
    await pilot.press("I")
    await wait_for_text(pilot, "Paste a docker run line")
    pilot.app.post_message(events.Paste(text))


async def test_a_pasted_line_is_told_of_key_by_key_and_saved_under_its_name(tmp_path: Path, mine: Path) -> None:
    async with open_panel(build_panel_options((), tmp_path)) as pilot:
        await open_and_paste(pilot, LINE)
        shown = await wait_for_text(pilot, "qwen3-8b from docker: 8 mapped, 1 kept under extra, 1 withheld")
        assert pilot.app.screen.query_one(TextArea).text == LINE, "once, and on as many lines"
        assert "vLLM   :8000   /models/Qwen3-8B   vllm/vllm-openai:v0.19.1" in shown
        assert "withheld  --privileged" in shown
        assert "kept      --device-cgroup-rule" in shown
        assert "canary" not in shown
        await pilot.press("ctrl+t")
        await wait_for_text(pilot, "9 mapped, 1 kept under extra")
        await pilot.press("ctrl+t")
        await wait_for_text(pilot, "1 withheld")
        await pilot.press("tab", *"mine")
        await wait_for_text(pilot, "mine from docker")
        assert not list_written_profiles(mine), "nothing is written before it is asked for"
        await pilot.press("enter")
        await wait_for_text(pilot, "▸ mine ")
        saved = list_written_profiles(mine)["mine"]
        assert "engine: vllm" in saved
        assert "canary" not in saved
        assert "privileged" not in saved
        assert any("mine is in" in one for one in read_toasts(pilot))


async def test_what_would_run_is_told_whole_on_as_many_rows_as_it_takes(tmp_path: Path, mine: Path) -> None:
    async with open_panel(build_panel_options((), tmp_path), (80, 24)) as pilot:
        await open_and_paste(pilot, LINE.replace("Qwen3-8B", "Qwen3-8B-with-a-rather-long-name"))
        shown = await wait_for_text(pilot, "withheld")
        runs = shown[shown.index("runs  ") :]
        assert "/models/Qwen3-8B-with-a-rather-long-name" in runs
        assert "vllm/vllm-openai:v0.19.1" in runs[: runs.index("withheld")]


@pytest.fixture
def taken(mine: Path) -> None:
    """One of the name that the line gives is there."""
    mine.mkdir(parents=True)
    (mine / "qwen3-8b.yaml").write_text("schema: 1\nname: qwen3-8b\nextends: qwen36\n")


async def test_nothing_is_written_over_without_a_word(tmp_path: Path, mine: Path, taken: None) -> None:
    async with open_panel(build_panel_options((), tmp_path)) as pilot:
        await open_and_paste(pilot, LINE)
        await wait_for_text(pilot, "qwen3-8b from docker")
        await pilot.press("ctrl+s")
        await wait_for_text(pilot, "Overwrite your profile qwen3-8b?")
        await pilot.press("enter")
        await wait_for_text(pilot, "qwen3-8b from docker")
        assert "extends" in list_written_profiles(mine)["qwen3-8b"]
        await pilot.press("ctrl+s")
        await wait_for_text(pilot, "Overwrite your profile qwen3-8b?")
        await pilot.press("tab", "enter")
        await wait_for_text(pilot, "▸ qwen3-8b ")
        assert "extends" not in list_written_profiles(mine)["qwen3-8b"]


async def test_what_was_pasted_and_left_is_there_the_next_time(tmp_path: Path, mine: Path) -> None:
    async with open_panel(build_panel_options((), tmp_path)) as pilot:
        await open_and_paste(pilot, LINE)
        await wait_for_text(pilot, "qwen3-8b from docker")
        await pilot.press("escape", "I")
        await wait_for_text(pilot, "qwen3-8b from docker: 8 mapped")
        assert pilot.app.screen.query_one(TextArea).text == LINE
        await pilot.press("ctrl+s")
        await wait_for_text(pilot, "▸ qwen3-8b ")
        await pilot.press("I")
        await wait_for_text(pilot, "Paste a docker run line")
        assert not pilot.app.screen.query_one(TextArea).text, "it is saved"
        assert set(list_written_profiles(mine)) == {"qwen3-8b"}


async def test_a_fault_has_its_line_and_whatever_is_pasted_is_text(tmp_path: Path, mine: Path) -> None:
    hostile = "model: [a\r\nfoo: bar\n\x1b]52;c;aGk=\x07[/INST] [bold]x\x9b31m\u202e\x00\n" + "\x1b[2J" * 2000
    async with open_panel(build_panel_options((), tmp_path)) as pilot:
        await open_and_paste(pilot, hostile)
        await wait_for_text(pilot, "pasted:1:8: the [ that begins here has no end")
        text = pilot.app.screen.query_one(TextArea).text
        assert all(char.isprintable() or char == "\n" for char in text)
        assert "[/INST] [bold]x" in text
        await pilot.press("ctrl+s")
        await pilot.pause(0.1)
        assert "pasted:1:8" in read_screen(pilot), "what is no profile is not saved"
        await pilot.press("tab")
        pilot.app.screen.query_one(Input).value = "no name"
        await wait_for_text(pilot, "name: `no name` is not a name")
        await pilot.press("escape")
        await wait_for_text(pilot, lambda text: "▸ " in text and "Paste" not in text)
        assert not list_written_profiles(mine)


@pytest.mark.parametrize("size", [(60, 15), (50, 12), (40, 10)])
async def test_the_import_screen_works_on_a_tiny_terminal(tmp_path: Path, mine: Path, size: tuple[int, int]) -> None:
    async with open_panel(build_panel_options((), tmp_path), size) as pilot:
        if size[0] < 50:
            await pilot.press("p", "I")
            await wait_until_true(pilot, lambda: pilot.app.screen.query(TextArea))
            pilot.app.post_message(events.Paste(LINE))
        else:
            await open_and_paste(pilot, LINE)
        await wait_for_text(pilot, "8 mapped")
        await pilot.press("ctrl+down", "ctrl+down", "ctrl+up")
        await pilot.resize_terminal(120, 40)
        await wait_for_text(pilot, "withheld  --privileged: a privileged container is root on the node")
        await pilot.resize_terminal(*size)
        await pilot.press("ctrl+s")
        await wait_until_true(pilot, lambda: list_written_profiles(mine))


async def test_a_panel_that_only_reads_has_no_such_key(tmp_path: Path) -> None:
    async with open_panel(build_panel_options((), tmp_path, readonly=True)) as pilot:
        await pilot.press("p")
        shown = await wait_for_text(pilot, "▸ ")
        assert "I import" not in shown
        await pilot.press("I")
        await pilot.pause(0.1)
        assert not pilot.app.screen.query(TextArea)


async def test_ascii_alone_is_painted_where_that_is_all_there_is(tmp_path: Path) -> None:
    async with open_panel(build_panel_options((), tmp_path, ascii_only=True)) as pilot:
        await open_and_paste(pilot, LINE + "\n# Größe – ✓")
        await wait_for_text(pilot, lambda text: "mapped" in text or "pasted" in text)
        strips = pilot.app.screen._compositor.render_strips()
        assert all(segment.text.isascii() for strip in strips for segment in strip)
