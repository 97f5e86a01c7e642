"""Escape and what is typed right behind it, as a terminal sends them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from textual import events
from textual.message import Message

from sparkctl.tui.terminal_driver import LONE_ESCAPE_SECONDS, EscapeKeyParser

KEYS = {
    "x": "x", "X": "X", ":": "colon", "/": "slash", "\r": "enter", "\t": "tab", "é": "é", "\x1b[B": "down",
    "\x1bOP": "f1", "\x1b[Z": "shift+tab", "\x1b[1;3B": "alt+down", "\x1b[120;3u": "alt+x", "\x1b": "escape",
}  # fmt: skip


def list_key_names(messages: Iterable[Message]) -> list[str]:
    return [one.key for one in messages if isinstance(one, events.Key)]


def make_parser(keeps: str = "") -> tuple[EscapeKeyParser, list[float]]:
    now = [100.0]
    return EscapeKeyParser(lambda character: character in keeps, now=lambda: now[0]), now


@pytest.mark.parametrize("sent", [sent for sent in KEYS if sent[0] != "\x1b"])
def test_escape_and_a_key_typed_at_once_are_both(sent: str) -> None:
    parse, _ = make_parser()
    assert list_key_names(parse.feed(f"\x1b{sent}")) == ["escape", KEYS[sent]]


def test_escape_alone_is_escape_once_nothing_follows_it() -> None:
    parse, now = make_parser()
    assert list_key_names(parse.feed("\x1b")) == []
    assert list_key_names(parse.tick()) == []
    assert parse.escape_wait_seconds == pytest.approx(LONE_ESCAPE_SECONDS)
    now[0] += 2 * LONE_ESCAPE_SECONDS
    assert parse.escape_wait_seconds == 0
    assert list_key_names(parse.tick()) == ["escape"]
    assert parse.escape_wait_seconds is None
    assert list_key_names(parse.feed("x")) == ["x"]


def test_alt_is_kept_where_it_is_a_key() -> None:
    parse, _ = make_parser(keeps="xb")
    assert list_key_names(parse.feed("\x1bx\x1bb")) == ["alt+x", "ctrl+left"]


def test_what_is_pasted_is_pasted() -> None:
    parse, _ = make_parser()
    pasted = [one.text for one in parse.feed("\x1b[200~up qwen36\x1b[201~") if isinstance(one, events.Paste)]
    assert pasted == ["up qwen36"]
    assert list_key_names(parse.feed("\x1bx")) == ["escape", "x"]


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)  # the machine may be busy
@given(st.lists(st.sampled_from(list(KEYS)), max_size=12), st.data())
def test_how_keys_are_cut_into_reads_changes_nothing(sent: list[str], data: st.DataObject) -> None:
    text = "".join(sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    parse, now = make_parser()
    got: list[str] = []
    for start, stop in zip([0, *cuts], [*cuts, len(text)], strict=True):
        if start < stop:
            got += list_key_names(parse.feed(text[start:stop]))
            got += list_key_names(parse.tick())
    now[0] += 2 * LONE_ESCAPE_SECONDS
    got += list_key_names(parse.tick())
    assert got == [KEYS[one] for one in sent]
