"""Files of state that were cut or garbled, at every byte: read as what they were, or as damaged; never an error of another kind."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkctl.commands.stop.pending_stops import PendingStop, PendingStopFiles
from sparkctl.context import CommandContext
from sparkctl.model.guard_state import GuardAction, GuardEvent, GuardMemoryReading, GuardReceipt, GuardRole
from sparkctl.model.json_codec import to_json_data
from sparkctl.model.node import NodeName
from sparkctl.model.switch_plan import JournalPresence, SwitchJournal, SwitchStep
from sparkctl.monitor import guard_client
from sparkctl.monitor.switch_journal_io import build_journal_view, decode_switch_journal, encode_switch_journal
from sparkctl.node.guard.kill_requests import ReceiptStore
from sparkctl.node.node_inspection import JournalFile

NODE = NodeName("spark1")
JOURNAL = SwitchJournal(
    id="0" * 32,
    operator="milo@laptop",
    since=1e9,
    step=SwitchStep.RELEASING,
    instance="qwen36",
    words=("qwen36", "--set", "port=1"),
    profile_hash="feedfacecafe",
    nodes=(NODE,),
    stops=("big",),
    old=((NODE, "a" * 64),),
    rolls_back=True,
    guarded=True,
    timeout=90.0,
    keep_going=False,
)
RECEIPT = GuardReceipt(
    container="ab" * 32,
    at=1e9,
    did=GuardAction.KILLED,
    why="MemAvailable fell",
    available=5,
    floor=9,
    instance="qwen36",
    profile="qwen36",
    operator="milo@laptop",
    role=GuardRole.LOADING,
    rate=1.0,
    to_zero=2.0,
    reaction=0.01,
    answer=204,
    samples=(GuardMemoryReading(at=1.0, available=2, free=3, page_cache=4, swap_free=5),),
    events=(GuardEvent(at=1.0, what=GuardAction.WARNED, why="low"),),
)
OWED = PendingStop(node=NODE, instance="big", since=1e9, containers=("a" * 12,), run="run-1")
DEEP = "[" * 100_000


def damage_text(whole: str) -> Iterator[tuple[str, bytes]]:
    """Yield a text cut at every length, and with every byte of it replaced by several others."""
    data = whole.encode()
    for at in range(len(data)):
        yield f"cut at {at}", data[:at]
        for byte in (0x00, 0x1B, ord('"'), ord("{"), ord("9"), 0xFF, data[at] ^ 1):
            yield f"byte {at} is {byte}", data[:at] + bytes([byte]) + data[at + 1 :]
        yield f"zeros from {at}", data[:at] + b"\0" * (len(data) - at)
    yield "deep", DEEP.encode()


def test_a_damaged_journal_is_unreadable_or_says_the_same_of_everything_else() -> None:
    whole = asdict(JOURNAL)
    for what, data in damage_text(encode_switch_journal(JOURNAL)):
        view = build_journal_view(JournalFile("ours", data.decode("utf-8", "replace"), False))
        if what.startswith(("cut", "zeros")):
            assert view.found is JournalPresence.UNREADABLE, what
        assert (view.journal is None) == (view.found is JournalPresence.UNREADABLE), what
        if view.journal is not None:
            differ = [key for key, value in asdict(view.journal).items() if value != whole[key]]
            assert len(differ) <= 1, f"{what}: one byte changed {differ}"
        else:
            assert view.why, what


def test_a_journal_that_is_cut_never_reads_as_another_one() -> None:
    text = encode_switch_journal(JOURNAL)
    for at in range(len(text)):
        with pytest.raises(ValueError, match=r"\w"):
            decode_switch_journal(text[:at])


def test_a_damaged_receipt_is_none_for_the_guard_and_for_the_operator(tmp_path: Path) -> None:
    text = json.dumps(to_json_data(RECEIPT))
    guard = ReceiptStore(str(tmp_path), cast("Any", None), cast("Any", None))
    short = RECEIPT.container[:12]
    path = tmp_path / f"receipt-{short}.json"
    history = SimpleNamespace(find_receipt=lambda *_: path)
    ctx = cast("CommandContext", SimpleNamespace(history=history))
    path.write_text(text)
    assert guard_client.load_saved_receipt(ctx, "qwen36", NODE, RECEIPT.container) == RECEIPT
    assert guard.read(short) == json.loads(text)
    for what, data in damage_text(text):
        path.write_bytes(data)
        found = guard.read(short)
        assert found is None or isinstance(found, dict), what
        kept = guard_client.load_saved_receipt(ctx, "qwen36", NODE, RECEIPT.container)
        assert kept is None or isinstance(kept, GuardReceipt), what
        if what.startswith(("cut", "zeros")):
            assert found is None, what
            assert kept is None, what
        with contextlib.suppress(IndexError):
            shown = guard_client._decode_receipt(data.splitlines()[0])
            assert shown is None or isinstance(shown, GuardReceipt), what


def test_a_damaged_stop_that_is_owed_is_none(tmp_path: Path) -> None:
    kept = PendingStopFiles(tmp_path)
    kept.save_stop(OWED)
    (path,) = (tmp_path / "unfinished-stops").iterdir()
    for what, data in damage_text(path.read_text()):
        path.write_bytes(data)
        for one in kept.list_all(1e9):
            assert isinstance(one, PendingStop), what
            assert not what.startswith(("cut", "zeros")) or one == OWED, what
        if not path.exists():  # its time reads as long ago: it is forgotten
            kept.save_stop(OWED)
