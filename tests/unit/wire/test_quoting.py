"""A word arrives as it was, whatever shell reads the command line."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkctl.wire.quoting import command_line, quote

SHELLS = ("sh", "dash", "bash", "zsh", "fish")
NASTY = (
    "", " ", "a b", "it's", "\\", "\\\\", "\\'", "'\\''", '"', "$HOME", "${x}", "`id`", "$(id)", "!x", "=ls", "~", "~root",
    "*", "?", "[a]", "{a,b}", "a;b", "a|b", "a&b", "a>b", "#x", "%self", "@x", "\n",
    "a\nb", "\t", "-n", "--", "é", "😀", "\x7f", "^a",
)  # fmt: skip
words = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=12) | st.sampled_from(
    NASTY
)


def read_back(shell: str, argv: list[str]) -> list[str]:
    # NUL-ended words survive any content
    line = command_line(["printf", "%s\\0", *argv])
    done = subprocess.run([shell, "-c", line], capture_output=True, check=True, timeout=20)
    return done.stdout.decode().split("\0")[:-1]


@pytest.mark.parametrize("shell", SHELLS)
def test_nasty_words_arrive_in_every_shell(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    assert read_back(shell, list(NASTY)) == list(NASTY)


@settings(max_examples=60, deadline=None)
@given(st.lists(words, min_size=1, max_size=8))
def test_any_words_arrive_in_sh(argv: list[str]) -> None:
    assert read_back("sh", argv) == argv


@given(words)
def test_no_backslash_stands_in_single_quotes(word: str) -> None:
    inside = False
    double = False
    for char in quote(word):
        if char == "'" and not double:
            inside = not inside
        elif char == '"' and not inside:
            double = not double
        assert not (inside and char == "\\")


def test_plain_words_stay_readable() -> None:
    assert command_line(["docker", "ps", "-a", "/var/run"]) == "docker ps -a /var/run"


def test_what_no_argument_can_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="NUL"):
        quote("a\0b")
    with pytest.raises(ValueError, match="at least one"):
        command_line([])
