"""Books: lines of one source and of several, and what is looked at of them, against plain lists."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from sparkctl import engines
from sparkctl.logs import search
from sparkctl.logs.buffer import MAX_LINE_CHARS, BufferedLine, DiskLineBuffer, LogBuffer
from sparkctl.logs.line_marker import LineMark, LineMarker, LogLevel
from sparkctl.logs.search import LogFilter, find_next_line
from sparkctl.model.text.log_line import LogLine
from sparkctl.model.text.sanitize import sanitize_line

BEGIN = datetime(2026, 5, 1, 10, tzinfo=UTC)
NASTY = st.binary(max_size=60).map(lambda raw: raw.decode("utf-8", "replace"))


def make_log_line(seconds: float, text: str, number: int = 1, stream: str = "stdout") -> LogLine:
    when = (BEGIN + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%f") + "123Z"
    return LogLine(when=when, text=text, number=number, stream=stream)


def read_whole_buffer(buffer: LogBuffer) -> list[BufferedLine]:
    return [
        buffer.read_lines(number, number + 1)[0] for _, number in map(buffer.order.get_key, range(len(buffer.order)))
    ]


def run_filter_to_end(log_filter: LogFilter) -> LogFilter:
    while log_filter.run_for(1.0):
        pass
    return log_filter


def list_shown_texts(log_filter: LogFilter) -> list[str]:
    numbers = (log_filter.rows.get_key(index)[1] for index in range(len(log_filter.rows)))
    return [line.text for number in numbers if (line := log_filter.buffer.get_line(number)) is not None]


@settings(deadline=None)
@given(st.lists(st.tuples(NASTY, st.booleans()), max_size=50))
def test_lines_are_sanitized_in_the_buffer(said: list[tuple[str, bool]]) -> None:
    buffer = LogBuffer()
    buffer.add_lines(
        0, [make_log_line(n, text, n + 1, "stderr" if bad else "stdout") for n, (text, bad) in enumerate(said)]
    )
    found = read_whole_buffer(buffer)
    assert all(line.text.isprintable() for line in found)
    for number, (text, is_stderr) in enumerate(said, 1):
        mine = found[number - 1]
        assert (mine.line, mine.is_stderr) == (number, is_stderr)
        if "\r" not in text:
            assert mine.text == sanitize_line(text)
    assert len(found) == len(said)
    buffer.close()


def test_a_progress_bar_is_one_line_as_it_was_left() -> None:
    buffer = LogBuffer()
    buffer.add_lines(0, [make_log_line(0, "(EngineCore pid=7) \rshards: 50%\rshards: 100%\r", 9)])
    assert [(line.text, line.line) for line in read_whole_buffer(buffer)] == [("shards: 100%", 9)]


def test_a_failure_that_was_written_over_is_not_lost() -> None:
    vllm = engines.load_engine("vllm")
    buffer = LogBuffer(markers=[LineMarker(vllm, vllm.defaults.ready_line)])
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB. GPU 0 has a total capacity of 1 GiB"
    buffer.add_lines(0, [make_log_line(0, f"shards: 10%\r{oom}\rshards: 20%", 4)])
    (line,) = read_whole_buffer(buffer)
    assert (line.text, line.mark, line.level) == (f"{oom}  shards: 20%", LineMark.FAILURE, LogLevel.ERROR)


def test_a_very_long_line_keeps_head_and_tail_and_tells_what_is_missing() -> None:
    buffer = LogBuffer()
    buffer.add_lines(0, [LogLine(when="", text="a" * 20_000 + "z" * 20_000, number=1, cut=5)])
    text = read_whole_buffer(buffer)[0].text
    assert text.startswith("a" * 12_288)
    assert text.endswith("z" * 4096)
    assert f"{40_000 - MAX_LINE_CHARS + 5:,} characters left out" in text


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.lists(st.integers(0, 40), min_size=1, max_size=6)), min_size=1, max_size=25
    )
)
def test_several_sources_are_merged_by_time_and_each_keeps_its_order(batches: list[tuple[int, list[int]]]) -> None:
    buffer = LogBuffer(("a", "b", "c"))
    model: list[tuple[int, int, int, int]] = []  # latest of its source, arrival, source, number
    latest = {0: -1, 1: -1, 2: -1}
    counts = {0: 0, 1: 0, 2: 0}
    for source, stamps in batches:
        lines = []
        for stamp in stamps:
            counts[source] += 1
            latest[source] = max(latest[source], stamp)
            lines.append(make_log_line(stamp, f"{source}:{counts[source]}", counts[source]))
            model.append((latest[source], len(model), source, counts[source]))
        buffer.add_lines(source, lines)
    found = [(line.source, line.line) for line in read_whole_buffer(buffer)]
    assert found == [(source, number) for _, _, source, number in sorted(model)]


def test_a_stamp_that_is_none_stays_where_its_source_is() -> None:
    buffer = LogBuffer(("a", "b"))
    buffer.add_lines(
        0,
        [
            make_log_line(5, "one"),
            LogLine(when="", text="two", number=2),
            LogLine(when="yesterday", text="three", number=3),
        ],
    )
    buffer.add_lines(1, [make_log_line(1, "first"), make_log_line(9, "last")])
    assert [line.text for line in read_whole_buffer(buffer)] == ["first", "one", "two", "three", "last"]


def test_lines_of_a_month_later_are_still_in_order() -> None:
    buffer = LogBuffer(("a", "b"))
    month = 30 * 86400
    for source, name in enumerate("ab"):
        late = [make_log_line(month + 2 * at + source, f"{name}{2 * at + source}", at + 2) for at in range(3)]
        buffer.add_lines(source, [make_log_line(source, f"{name} starts"), *late])
    assert [line.text for line in read_whole_buffer(buffer)] == [
        "a starts",
        "b starts",
        "a0",
        "b1",
        "a2",
        "b3",
        "a4",
        "b5",
    ]


def test_merged_lines_drop_with_the_spool(tmp_path: Path) -> None:
    buffer = LogBuffer(("a", "b"), spool=DiskLineBuffer(tmp_path, most_lines=10))
    buffer.add_lines(0, [make_log_line(2 * n, f"a{n}") for n in range(10)])
    buffer.add_lines(1, [make_log_line(2 * n + 1, f"b{n}") for n in range(6)])
    kept = [line.text for line in read_whole_buffer(buffer)]
    assert kept == ["b0", "b1", "b2", "b3", "b4", "b5", "a6", "a7", "a8", "a9"]
    assert len(buffer.order) == 10


def test_an_engine_s_knowledge_marks_its_lines() -> None:
    vllm = engines.load_engine("vllm")
    buffer = LogBuffer(markers=[LineMarker(vllm, vllm.defaults.ready_line)])
    said = (
        "(APIServer pid=1) WARNING 11-20 15:53:55 [system_utils.py:289] Found ulimit of 20000",
        "(EngineCore pid=2) ERROR 11-20 16:26:30 [core.py:1108] Traceback (most recent call last):",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB. GPU 0 has a total capacity of 1 GiB",
        "(APIServer pid=1) INFO:     Application startup complete.",
        "W1120 16:25:16.286000 3678 torch/utils/cpp_extension.py:118] No CUDA runtime is found",
        "nothing to see",
    )
    buffer.add_lines(0, [make_log_line(0, text) for text in said])
    assert [(line.level, line.mark) for line in read_whole_buffer(buffer)] == [
        (LogLevel.WARNING, None),
        (LogLevel.ERROR, None),
        (LogLevel.ERROR, LineMark.FAILURE),
        (LogLevel.INFO, LineMark.READY),
        (LogLevel.WARNING, None),
        (None, None),
    ]
    log_filter = LogFilter(buffer)
    seen: list[int] = []
    for select in (search.select_errors, search.select_marks, search.select_evidence_line(0, 1)):
        log_filter.search_once(select, lambda rows: seen.append(rows.get_key(0)[1]), everywhere=True)
        run_filter_to_end(log_filter)
    assert seen == [1, 2, 0]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from(["Apple", "pear", "apple pie", ""])), max_size=80),
    st.sampled_from(["", "apple", "Apple", "!apple", "/^p/", "!/e$/", "[", "/[/"]),
    st.sampled_from([None, 0, 1]),
    st.integers(0, 80),
)
def test_the_buffer_keeps_what_a_list_keeps(
    said: list[tuple[int, str]], typed: str, source: int | None, later: int
) -> None:
    """Some lines are there when the filter is typed, the others come after it."""
    buffer = LogBuffer(("a", "b"))
    log_filter = LogFilter(buffer)
    for number, (each, text) in enumerate(said[:later]):
        buffer.add_lines(each, [make_log_line(number, text)])
    log_filter.select_source(source)
    log_filter.set_filter(typed)
    run_filter_to_end(log_filter)
    for number, (each, text) in enumerate(said[later:], len(said[:later])):
        buffer.add_lines(each, [make_log_line(number, text)])
        log_filter.catch_up()

    def passes(text: str) -> bool:
        return {
            "apple": "apple" in text.lower(),
            "Apple": "Apple" in text,
            "!apple": "apple" not in text.lower(),
            "/^p/": text.startswith("p"),
            "!/e$/": not text.endswith("e"),
            "[": "[" in text,
        }.get(typed, True)

    assert list_shown_texts(log_filter) == [text for each, text in said if passes(text) and source in (None, each)]
    assert (log_filter.fault is not None) is (typed == "/[/")


def test_work_is_done_in_turns_and_the_old_rows_stay_meanwhile() -> None:
    buffer = LogBuffer()
    buffer.add_lines(0, [make_log_line(0, f"line {number}") for number in range(5000)])
    ticks = iter(range(10_000))
    log_filter = LogFilter(buffer, clock=lambda: float(next(ticks)))
    log_filter.set_filter("9")
    assert log_filter.run_for(2.0)
    assert log_filter.rows is buffer.order
    assert log_filter.filter_progress is not None
    assert 0 < log_filter.filter_progress < 1
    log_filter.set_filter("")
    assert not log_filter.run_for(2.0), "an emptied filter ends its work"
    log_filter.set_filter("999")
    run_filter_to_end(log_filter)
    assert list_shown_texts(log_filter) == ["line 999", "line 1999", "line 2999", "line 3999", "line 4999"]


def test_finding_goes_round() -> None:
    buffer = LogBuffer()
    buffer.add_lines(0, [make_log_line(0, text) for text in ("a hit", "no", "another hit", "no")])
    log_filter = LogFilter(buffer)
    log_filter.set_search("hit")
    rows = run_filter_to_end(log_filter).found_rows
    assert rows is not None
    assert find_next_line(rows, (0, 0), backwards=False) == ((0, 2), False)
    assert find_next_line(rows, (0, 2), backwards=False) == ((0, 0), True)
    assert find_next_line(rows, (0, 0), backwards=True) == ((0, 2), True)
    assert find_next_line(rows, (0, 3), backwards=True) == ((0, 2), False)
