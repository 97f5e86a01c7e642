"""Lines from a node on stdout: the quick look at the whole write lets no control character pass, and changes no line."""

from __future__ import annotations

import pytest

from sparkctl.cli import stdout
from sparkctl.model.text.sanitize import sanitize_line

CONTROLS = [chr(code) for code in (*range(32), 127, 0x9B, 0x202E)]


@pytest.mark.parametrize("beside", [[], ["plain"], ["naïve"], ["", "plain", ""]])
@pytest.mark.parametrize("control", CONTROLS)
def test_every_control_character_is_taken_out(
    control: str, beside: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [*beside, f"a{control}b", *beside]
    stdout.print_sanitized_lines(lines)
    printed = capsys.readouterr().out
    assert printed == "".join(f"{sanitize_line(line)}\n" for line in lines)
    assert control == "\n" or control not in printed


@pytest.mark.parametrize("lines", [[], [""], ["one"], ["", ""], ["ü"], ["\x1b[31mü"], ["one", "two ~"]])
def test_each_line_is_printed_once(lines: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    stdout.print_sanitized_lines(lines)
    assert capsys.readouterr().out == "".join(f"{sanitize_line(line)}\n" for line in lines)
