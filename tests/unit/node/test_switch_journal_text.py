"""The journal of a switch as text."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkctl.model.node import NodeName
from sparkctl.model.switch_plan import SwitchJournal, SwitchStep
from sparkctl.monitor.switch_journal_io import decode_switch_journal, encode_switch_journal

ONE = SwitchJournal(
    id="0" * 32,
    operator="milo@laptop",
    since=1e9,
    step=SwitchStep.RELEASING,
    instance="qwen36",
    words=("qwen36", "--set", "port=1"),
    profile_hash="feedfacecafe",
    nodes=(NodeName("spark1"),),
    stops=("big",),
    old=((NodeName("spark1"), "a" * 64), (NodeName("spark2"), "b" * 64)),
    rolls_back=False,
    guarded=False,
    timeout=90.0,
    keep_going=True,
    need_nodes=(NodeName("spark3"),),
    ran_before=("c" * 64,),
)


def test_a_journal_is_one_line_and_reads_back_the_same() -> None:
    assert decode_switch_journal(encode_switch_journal(ONE)) == ONE
    assert "\n" not in encode_switch_journal(ONE)
    assert ONE.affected_nodes == ("spark1", "spark2", "spark3")


def test_one_of_an_older_version_is_read_as_one_without() -> None:
    said = json.loads(encode_switch_journal(ONE))
    for name in ("keep_going", "need_nodes", "ran_before"):
        del said[name]
    assert decode_switch_journal(json.dumps(said)) == replace(ONE, keep_going=False, need_nodes=(), ran_before=())


@pytest.mark.parametrize(
    "wrong",
    [
        {"schema": 2},
        {"id": "../../x"},
        {"step": "dancing"},
        {"since": "today"},
        {"since": float("inf")},
        {"nodes": "spark1"},
        {"old": [["spark1", "$(reboot)"]]},
        {"old": [["spark1"]]},
        {"operator": "milo\x1b[2J"},
        {"words": [1]},
        {"rolls_back": "no"},
        {"guarded": 1},
        {"keep_going": None},
        {"timeout": "soon"},
        {"timeout": -1},
        {"nodes": ["n"] * 1000},
        {"need_nodes": ["spark\x1b[2J"]},
        {"ran_before": ["$(reboot)"]},
    ],
)
def test_damaged_or_hostile_text_is_no_journal(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        decode_switch_journal(json.dumps({**json.loads(encode_switch_journal(ONE)), **wrong}))


@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")))
def test_anything_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        decode_switch_journal(text)


@given(st.integers(0, len(encode_switch_journal(ONE)) - 1))
def test_a_cut_journal_is_refused(at: int) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        decode_switch_journal(encode_switch_journal(ONE)[:at])
