"""The shape of every event: what ``--json`` prints, and a recording holds, line by line."""

from __future__ import annotations

import json
import typing

from sparkctl.model.events import Event
from sparkctl.model.json_codec import decode_event, encode_event
from sparkctl.model.switch_plan import SwitchJournal
from sparkctl.monitor import switch_journal_io
from tests.golden.comparison import assert_golden
from tests.golden.samples import make_samples
from tests.golden.shapes import FREE_TEXT, shape_of, write_shape


def test_events_are_unchanged() -> None:
    """Every kind of event, with each field filled, each empty, and each word of a closed set."""
    sections = {}
    for kind in typing.get_args(Event):
        words: set[str] = set()
        lines = [json.loads(json.dumps(encode_event(one))) for one in make_samples(kind, words)]  # type: ignore[arg-type]
        names = {line.pop("event") for line in lines}
        sections[" ".join(names)] = write_shape(shape_of(lines, words - {FREE_TEXT}))
    text = "\n\n".join(f"== {name}\n{shape}" for name, shape in sorted(sections.items()))
    assert_golden("json/events.txt", text)


def test_every_event_is_read_back() -> None:
    for kind in typing.get_args(Event):
        for one in make_samples(kind, set()):
            line = encode_event(one)  # type: ignore[arg-type]
            assert encode_event(decode_event(line)) == line


def test_journal_of_a_switch_is_unchanged() -> None:
    words: set[str] = set()
    lines = [
        json.loads(switch_journal_io.encode_switch_journal(one))
        for one in make_samples(SwitchJournal, words)
        if isinstance(one, SwitchJournal)
    ]
    assert_golden("json/switch-journal.txt", write_shape(shape_of(lines, words)))
