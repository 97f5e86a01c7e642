"""Recordings: whatever happens can be written and read back, and nothing secret or half gets into the file."""

from __future__ import annotations

import gzip
import json
import stat
import types
import typing
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkctl.errors import InvalidInput
from sparkctl.model import events
from sparkctl.model.json_codec import decode_event, encode_event, redact_launch_plan
from sparkctl.model.node import NodeName, NodeState
from sparkctl.monitor.recording import EventRecorder, load_final_views, read_recording
from tests.unit.model.test_event_json import NODE, PLAN, SAMPLES

TOKEN = "hf_canarycanarycanarycanary"


@cache
def _draw_dataclass(hint: type) -> st.SearchStrategy[object]:
    """Values of a dataclass, which may hold others of its own kind."""
    kinds = typing.get_type_hints(hint)
    return st.deferred(lambda: st.builds(hint, **{each.name: draw_value(kinds[each.name]) for each in fields(hint)}))


def draw_value(hint: object) -> st.SearchStrategy[object]:
    """Values of a field's type; numbers as the record keeps them, to six places."""
    parts = typing.get_args(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return st.one_of([draw_value(part) for part in parts])
    if typing.get_origin(hint) is Sequence:
        return st.lists(draw_value(typing.get_args(hint)[0]), max_size=2).map(tuple)
    if typing.get_origin(hint) is tuple:
        if parts[-1] is Ellipsis:
            return st.lists(draw_value(parts[0]), max_size=2).map(tuple)
        return st.tuples(*(draw_value(part) for part in parts))
    if isinstance(hint, typing.NewType):
        return draw_value(hint.__supertype__)
    if is_dataclass(hint) and isinstance(hint, type):
        return _draw_dataclass(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(hint)
    plain: dict[object, st.SearchStrategy[object]] = {
        float: st.integers(-(10**12), 10**12).map(lambda whole: whole / 1000),
        int: st.integers(),
        str: st.text(max_size=8),
        bool: st.booleans(),
        type(None): st.none(),
    }
    return plain[hint]


@pytest.mark.parametrize("kind", typing.get_args(events.Event), ids=lambda kind: kind.__name__)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_every_event_comes_back_whatever_it_holds(kind: type, data: st.DataObject) -> None:
    event = typing.cast("events.Event", data.draw(draw_value(kind)))
    back = decode_event(json.loads(json.dumps(encode_event(event), allow_nan=False)))
    if isinstance(event, events.LaunchPlanned):
        event = events.LaunchPlanned(event.ts, event.plan.node, redact_launch_plan(event.plan))
        assert isinstance(back, events.LaunchPlanned)
        back = events.LaunchPlanned(back.ts, back.plan.node, back.plan)
    assert back == event


def record_events(path: Path, *some: events.Event) -> list[str]:
    failures: list[str] = []
    with EventRecorder(path, failures.append) as recorder:
        for event in some:
            recorder.write(event)
    return failures


def test_a_file_of_events_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert record_events(tmp_path / "r", *SAMPLES) == []
    assert list(read_recording(tmp_path / "r")) == SAMPLES
    assert stat.S_IMODE((tmp_path / "r").stat().st_mode) == 0o600


def test_one_that_gzip_has_packed_is_read_as_it_was(tmp_path: Path) -> None:
    record_events(tmp_path / "r", *SAMPLES)
    packed = gzip.compress((tmp_path / "r").read_bytes())
    (tmp_path / "r.jsonl.gz").write_bytes(packed)
    assert list(read_recording(tmp_path / "r.jsonl.gz")) == SAMPLES
    cut: list[str] = []
    (tmp_path / "r.jsonl.gz").write_bytes(packed[:-9])
    assert len(list(read_recording(tmp_path / "r.jsonl.gz", cut.append))) <= len(SAMPLES)
    assert len(cut) == 1
    (tmp_path / "r.jsonl.gz").write_bytes(packed[:12] + b"\xff" * 40)
    with pytest.raises(InvalidInput, match=r"cannot (unpack|read)"):
        list(read_recording(tmp_path / "r.jsonl.gz"))


def test_what_is_there_is_not_written_over_unless_asked_to(tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.write_text("mine")
    path.chmod(0o644)
    with pytest.raises(InvalidInput, match="already exists"):
        EventRecorder(path, print)
    assert path.read_text() == "mine"
    EventRecorder(path, print, force=True).close()
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("", 0o600)


@pytest.mark.parametrize("name", ["no/such/directory", "."])
def test_where_nothing_can_be_written_it_says_so(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match=r"cannot write|already exists"):
        EventRecorder(tmp_path / name, print)


def test_no_secret_gets_into_it(tmp_path: Path) -> None:
    said = events.WarningEmitted(1.0, NODE, f"pulling with {TOKEN} failed", "see https://me:sesame-open@host/x")
    record_events(tmp_path / "r", events.LaunchPlanned(1.0, NODE, PLAN), said)
    text = (tmp_path / "r").read_text()
    assert TOKEN not in text
    assert "sesame-open" not in text
    assert [type(event) for event in read_recording(tmp_path / "r")] == [events.LaunchPlanned, events.WarningEmitted]


def test_a_full_disk_is_told_once_and_ends_the_recording_alone() -> None:
    failures: list[str] = []
    recorder = EventRecorder(Path("/dev/full"), failures.append, force=True)
    recorder.write(SAMPLES[0])
    recorder.write(SAMPLES[1])
    assert failures == ["the recording /dev/full ends here: No space left on device"]


def test_a_last_line_that_was_cut_is_left_out(tmp_path: Path) -> None:
    record_events(tmp_path / "r", *SAMPLES[:3])
    whole = (tmp_path / "r").read_bytes()
    for end in (whole[:-1], whole[:-20], whole + b'{"ts":1'):
        (tmp_path / "r").write_bytes(end)
        assert len(list(read_recording(tmp_path / "r"))) == (2 if end == whole[:-20] else 3)


DAMAGED = [
    ("{", "no JSON"),
    ("[]", "no event"),
    ("\x00\xff", "no JSON"),
    ('{"event": "node"}', "not a whole node event: ts is missing"),
    ('{"event": "party"}', "no such event: 'party'"),
    ('{"event": "node", "ts": 1, "node": "a", "state": "fine"}', "state: 'fine' is not a valid NodeState"),
    ('{"event": "node", "ts": 1e300, "node": "a", "state": "ok"}', "ts is not a valid time"),
    ('{"event": "node", "ts": "now", "node": "a", "state": "ok"}', "ts: a str where float belongs"),
    ('{"event": "node", "ts": NaN, "node": "a", "state": "ok"}', "no JSON"),
    ('{"event": "sample", "ts": 1, "node": "a", "sample": {"sequence": true}}', "sample: sequence: a bool where int"),
    ('{"event": "log", "ts": 1, "node": "a", "instance": "i", "lines": 3}', "lines: a int where Sequence belongs"),
    ("[" * 100_000, "no JSON"),
    ('{"event": "\\u001b]0;x\\u0007"}', "no such event"),
]


@pytest.mark.parametrize(("line", "message"), DAMAGED)
def test_a_damaged_line_is_told_with_its_number(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "r"
    record_events(path, SAMPLES[0])
    with path.open("ab") as file:
        file.write(line.encode("latin-1") + b"\n")
        file.write(json.dumps(encode_event(SAMPLES[1])).encode() + b"\n")
    with pytest.raises(InvalidInput) as refused:
        list(read_recording(path))
    assert str(refused.value).startswith(f"{path}:2: ")
    assert message in str(refused.value)
    assert "\x1b" not in str(refused.value)


LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
NAMES = st.sampled_from(["ts", "node", "sample", "event"]) | st.text()
KINDS = ["node", "sample", "containers", "numbers", "plan", "phase", "log", "result", "caches"]


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner)),
    st.sampled_from(KINDS),
)
def test_no_line_whatever_it_says_is_more_than_an_event_or_refused(value: object, kind: str) -> None:
    data = (
        value if isinstance(value, dict) else {"ts": 1.0, "node": "a", "sample": value, "state": value, "lines": value}
    )
    try:
        event = decode_event({**data, "event": kind})
    except ValueError:
        return
    assert decode_event(encode_event(event)) == decode_event(encode_event(event))


@pytest.mark.parametrize("content", [b"", b"{", b"not a recording"])
def test_what_is_no_recording_at_all_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "r").write_bytes(content)
    with pytest.raises(InvalidInput, match=r"is empty|no JSON"):
        list(read_recording(tmp_path / "r"))
    with pytest.raises(InvalidInput, match="cannot read"):
        list(read_recording(tmp_path / "absent"))


def test_a_name_that_is_not_in_the_recording_is_refused() -> None:
    seen = [events.NodeStateChanged(ts=1.0, node=NodeName(name), state=NodeState.OK) for name in ("a", "b")]
    assert [view.name for view in load_final_views(seen, ["b"])] == ["b"]
    with pytest.raises(InvalidInput, match="c is not in the recording"):
        load_final_views(seen, ["c"])
