"""The gate for text from a node, and what counts as a secret."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkctl.model.secrets import MASK, is_secret_name, redact, secret_arguments, secret_values
from sparkctl.model.text import clean, clean_lines, shorten

HOSTILE = {
    "colour": "\x1b[31mred\x1b[0m",
    "clear the screen": "\x1b[2J\x1b[H",
    "title": "\x1b]0;owned\x07",
    "clipboard, ended by ST": "\x1b]52;c;aGVsbG8=\x1b\\",
    "clipboard, never ended": "\x1b]52;c;aGVsbG8=",
    "cursor report": "\x1b[6n",
    "device control string": "\x1bP$q q\x1b\\",
    "eight-bit CSI": "\x9b31mred",
    "eight-bit OSC": "\x9d0;owned\x9c",
    "bidi override": "user\u202egnp.exe",
    "bell, backspace, NUL, DEL": "a\x07b\x08c\x00d\x7f",
    "zero width": "pass\u200bword",
    "lone surrogate": "a\udc80b",
    "line separators": "a\u2028b\u2029c\x85d",
}


def shows_nothing_but_text(text: str) -> bool:
    return all(unicodedata.category(char)[0] not in "C" and char not in "\u2028\u2029" for char in text)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_no_control_byte_passes(text: str) -> None:
    cleaned = clean(f"before {text} after")
    assert shows_nothing_but_text(cleaned), ascii(cleaned)
    assert cleaned.startswith("before ")


def test_escape_sequences_leave_no_trace_and_text_stays() -> None:
    assert clean("\x1b[0;36m(APIServer pid=9134)\x1b[0;0m \x1b[32mINFO\x1b[0m ok") == "(APIServer pid=9134) INFO ok"
    assert clean("Loading ▕█████▋ 67 % größer 日本 🔥") == "Loading ▕█████▋ 67 % größer 日本 🔥"
    assert clean("a\tb") == "a    b"


@given(st.text())
def test_the_gate_holds_for_any_text_and_twice_is_once(text: str) -> None:
    once = clean(text)
    assert shows_nothing_but_text(once)
    assert clean(once) == once


@given(st.text())
def test_lines_are_lines(text: str) -> None:
    assert all(shows_nothing_but_text(line) for line in clean_lines(text))


def test_shorten_marks_its_cut() -> None:
    assert shorten("abcdef", 4) == "abc…"
    assert shorten("abc", 3) == "abc"


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "OPENAI_API_KEY", "--api-key", "DB_PASSWORD", "api-key", "SECRET_SAUCE"],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "speculative-num-draft-tokens",
        "MAX_TOKENS",
        "tokenizer-path",
        "NCCL_IB_HCA",
        "KEYBOARD",
        "max-num-batched-tokens",
    ],
)
def test_names_that_only_look_like_it(name: str) -> None:
    assert not is_secret_name(name)


def test_secrets_are_masked_by_value_and_by_shape() -> None:
    secrets = secret_values({"HF_TOKEN": "sesame-open", "A": "b"}) | secret_arguments(
        ["serve", "--api-key", "xyzzy-123", "--x=1"]
    )
    assert secrets == {"sesame-open", "xyzzy-123"}
    assert redact("token=sesame-open key xyzzy-123", secrets) == f"token={MASK} key {MASK}"
    assert "hf_" not in redact("see hf_abcdefghijklmnopqrstuvwxyz")
    assert secret_arguments(["--api-key=open-sesame"]) == {"open-sesame"}
