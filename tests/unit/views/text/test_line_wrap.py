"""Narrow terminals: words stay whole, commands stay copyable, colour takes no room."""

from __future__ import annotations

import shlex

import pytest

from sparkctl.views.text.line_wrap import (
    find_command,
    limit_height,
    wrap_cells,
    wrap_line,
    wrap_row,
)
from sparkctl.views.text.styled_text import Span, join_text, measure_text


def wrap_for_screen(line: str, width: int, hang: int | None = None) -> list[str]:
    return [join_text(row) for row in wrap_row((Span(line),), width, hang)]


HINT = "  try: sparkctl up qwen36 --node spark1 --set args.speculative-num-draft-tokens=6"


def test_a_line_that_fits_and_a_pipe_are_left_alone() -> None:
    assert wrap_line(HINT, None) == [HINT]
    assert wrap_line(HINT, len(HINT)) == [HINT]


def test_words_stay_whole_and_hang_below_the_first() -> None:
    lines = wrap_line("  proof   line 13: CUDA out of memory. Tried to allocate 2.25 GiB.", 30, 10)
    assert lines == ["  proof   line 13: CUDA out of", "          memory. Tried to", "          allocate 2.25 GiB."]


def test_a_long_word_that_needs_part_of_the_indent_is_whole_on_a_line_of_its_own() -> None:
    address = "https://example.org/" + "a" * 30
    assert wrap_line(f"      see {address} there", 52, 6) == ["      see", f"  {address}", "      there"]
    assert wrap_line(f"      see {address}", 40, 6) == [f"      see {address}"], "nothing would help"


@pytest.mark.parametrize("width", [20, 40, 60, 79])
def test_a_command_is_never_broken(width: int) -> None:
    assert wrap_line(HINT, width, 4) == ["  try:", "    " + HINT.removeprefix("  try: ")]
    talk = "see why: sparkctl logs qwen36 --node spark1; start it again after: sparkctl down qwen36"
    whole = wrap_line(talk, width)
    assert any("sparkctl logs qwen36 --node spark1" in line for line in whole)
    assert any("sparkctl down qwen36" in line for line in whole)
    assert " ".join(line.strip() for line in whole) == talk


@pytest.mark.parametrize("width", [48, 60, 79])
def test_where_lines_are_cut_a_command_goes_on_below_a_backslash(width: int) -> None:
    command = "sparkctl switch qwen36 --node spark1 --set args.speculative-num-draft-tokens=20 --title 'two words here'"
    lines = wrap_for_screen(command, width, 0)
    assert all(measure_text(line) <= width for line in lines)
    assert all(line.endswith(" \\") for line in lines[:-1])
    assert shlex.split("\n".join(lines).replace(" \\\n", " ")) == shlex.split(command), "a shell reads it as it was"
    words = "words that are no command and longer than that"
    assert wrap_for_screen(words, 20) == wrap_line(words, 20)
    lines = wrap_for_screen("log: /home/milo/.local/state/sparkctl/logs/a.log", 20)
    assert "".join(lines) == "log: /home/milo/.local/state/sparkctl/logs/a.log"
    assert all(measure_text(line) <= 20 for line in lines)


def test_the_first_command_of_an_advice_ends_where_the_advice_goes_on() -> None:
    assert find_command("sparkctl switch a --set x=2, or start b in its place") == "sparkctl switch a --set x=2"
    assert find_command("see why: sparkctl logs a; start it again after: sparkctl down a") == "sparkctl logs a"
    assert find_command("start b in its place") is None


def test_a_command_ends_at_a_gap() -> None:
    lines = wrap_line("  try: sparkctl down other   or elsewhere: sparkctl up qwen36 --set port=8004", 40, 4)
    assert lines == ["  try: sparkctl down other   or", "    elsewhere:", "    sparkctl up qwen36 --set port=8004"]


def test_a_path_that_fits_nowhere_stays_beside_its_label() -> None:
    line = "  log     /home/milo/.local/state/sparkctl/logs/qwen36/spark1/20261121.log"
    assert wrap_line(line, 40, 10) == [line]


def test_cells_stay_whole_and_hang_below_the_first() -> None:
    cells = ["96 %", "2398 of 3003 MHz", "62 W", "held back by power cap"]
    assert wrap_cells("  GPU  ", cells, None) == ["  GPU  96 %   2398 of 3003 MHz   62 W   held back by power cap"]
    assert wrap_cells("  GPU  ", cells, 40) == [
        "  GPU  96 %   2398 of 3003 MHz   62 W",
        "       held back by power cap",
    ]
    assert wrap_cells("  GPU  ", cells, 23) == [
        "  GPU  96 %", "       2398 of 3003 MHz", "       62 W", "       held back by", "       power cap"
    ]  # fmt: skip
    assert wrap_cells("      ", ["a", "b", "c"], 11, " · ") == ["      a · b", "      c"]
    assert wrap_cells("  x  ", [], 80) == ["  x"]


def test_what_a_terminal_has_no_room_for_is_counted() -> None:
    lines = ["a", "b", "c", "d"]
    assert limit_height(lines, 4) == lines
    assert limit_height(lines, 3) == ["a", "b", "(2 more lines: make the window taller, or choose with --node)"]
    assert len(limit_height(lines, 1)) == 1


def test_words_between_two_quoted_commands_are_no_command() -> None:
    assert wrap_line("`top` asks for one token; so does `status NAME`, once", 20) == [
        "`top` asks for one",
        "  token; so does",
        "  `status NAME`,",
        "  once",
    ]
