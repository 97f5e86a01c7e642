"""Several logs as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from sparkctl.commands.show_log import merge_by_time
from sparkctl.model.node import NodeName
from sparkctl.model.text.log_line import LogLine

ONE, TWO = NodeName("spark1"), NodeName("spark2")
BEGAN = datetime(2026, 3, 1, 12, tzinfo=UTC)


def make_log_line(seconds: float, text: str, number: int = 1) -> LogLine:
    return LogLine(
        when=(BEGAN + timedelta(seconds=seconds)).isoformat(timespec="microseconds"), text=text, number=number
    )


async def make_batches(lines: Sequence[LogLine], size: int = 2) -> AsyncGenerator[tuple[LogLine, ...], None]:
    for at in range(0, len(lines), size):
        await asyncio.sleep(0)
        yield tuple(lines[at : at + size])


def merge_sources(
    sources: dict[NodeName, Sequence[LogLine]], ahead: dict[NodeName, float] | None = None
) -> list[tuple[NodeName, list[str]]]:
    async def read() -> list[tuple[NodeName, list[str]]]:
        made = {name: make_batches(lines) for name, lines in sources.items()}
        return [(name, [one.text for one in lines]) async for name, lines in merge_by_time(made, ahead or {})]

    return asyncio.run(read())


def test_lines_stand_as_they_were_written_and_those_of_one_together() -> None:
    first, second = (
        [make_log_line(0, "a"), make_log_line(1, "b"), make_log_line(5, "e")],
        [make_log_line(2, "c"), make_log_line(3, "d"), make_log_line(9, "f")],
    )
    found = merge_sources({ONE: first, TWO: second})
    assert found == [(ONE, ["a", "b"]), (TWO, ["c", "d"]), (ONE, ["e"]), (TWO, ["f"])]


def test_a_clock_that_is_ahead_is_set_right_and_one_that_was_set_back_keeps_its_order() -> None:
    first, second = [make_log_line(0, "a"), make_log_line(2, "c")], [make_log_line(301, "b"), make_log_line(303, "d")]
    assert [text for _, texts in merge_sources({ONE: first, TWO: second}, {TWO: 300.0}) for text in texts] == list(
        "abcd"
    )
    back = [make_log_line(10, "1"), make_log_line(4, "2"), LogLine(when="", text="3", number=3), make_log_line(11, "4")]
    result = [
        text
        for _, texts in merge_sources({ONE: back, TWO: [make_log_line(5, "x"), make_log_line(10.5, "y")]})
        for text in texts
    ]
    assert result == ["x", "1", "2", "3", "y", "4"]


times = st.lists(st.integers(0, 40).map(float), max_size=12).map(sorted)


@given(times, times)
def test_merged_lines_are_complete_and_in_order(first: list[float], second: list[float]) -> None:
    sources = {name: [make_log_line(at, f"{at}") for at in result] for name, result in ((ONE, first), (TWO, second))}
    result = merge_sources(sources)
    assert [float(text) for _, texts in result for text in texts] == sorted([*first, *second])
    for name, lines in sources.items():
        assert [text for where, texts in result if where == name for text in texts] == [one.text for one in lines]
