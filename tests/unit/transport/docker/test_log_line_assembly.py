"""Lines are put together from pieces, and a reading that is cut anywhere goes on without losing or doubling one."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparkctl.model.text.log_line import LogLine
from sparkctl.model.text.secrets import mask_log_lines
from sparkctl.transport.docker.log_resume import MAX_LINE_BYTES, LogFragment, LogLineAssembler, parse_timestamp_ns
from tests.unit.transport.docker.docker_log_daemon import DaemonLog, format_stamp

SECOND = 1_000_000_000
# what a container does next: (stream, pieces of the line, pause before it, how far the stamp lags behind the clock)
lines = st.tuples(
    st.sampled_from([1, 2]),
    st.integers(1, 4),
    st.sampled_from([0, 0, 0, 1, 500, 10_000_000, 400_000_000, 3 * SECOND, 90 * SECOND]),
    st.sampled_from([0, 0, 0, 300, 5_000]),
    st.booleans(),
)


def build_fragments(script: list[tuple[int, int, int, int, bool]]) -> tuple[LogFragment, ...]:
    """Play a script: pieces of a long line share its first stamp; the other stream may cut in between them."""
    now = 10 * SECOND
    pieces: list[LogFragment] = []
    for number, (stream, parts, pause, lag, crossing) in enumerate(script):
        now += pause
        mark = format_stamp(max(0, now - lag))
        for part in range(parts):
            pieces.append(LogFragment(stream, mark, b"%d.%d " % (number, part), part == parts - 1))
            if crossing and part == 0 and parts > 1:
                now += pause
                pieces.append(LogFragment(3 - stream, format_stamp(now), b"%d crossing" % number, True))
    return tuple(pieces)


def read_with_cuts(log: DaemonLog, cuts: list[int], size: int) -> tuple[list[LogLine], bool]:
    """Read ``size`` pieces at a time; the n-th connection breaks after ``cuts[n]`` pieces."""
    joiner = LogLineAssembler()
    got: list[LogLine] = []
    for cut in [*cuts, 10**9]:
        anchor = joiner.position.anchor or None if joiner.position is not None else None
        if joiner.position is not None:
            joiner = LogLineAssembler(position=joiner.position)
        stream = log.since(anchor)[:cut]
        for start in range(0, len(stream), size):
            got += joiner.add_fragments(stream[start : start + size])
    got += joiner.finish()
    return got, joiner.gap


@settings(max_examples=300, deadline=None)
@given(st.lists(lines, max_size=40), st.lists(st.integers(0, 60), max_size=5), st.integers(1, 9), st.booleans())
@example([(1, 4, 0, 0, True)] * 3, [1, 2, 3, 4], 1, True)
def test_a_log_cut_anywhere_reads_the_same(
    script: list[tuple[int, int, int, int, bool]], cuts: list[int], size: int, filters: bool
) -> None:
    log = DaemonLog(build_fragments(script), filters)
    whole, _ = read_with_cuts(log, [], 1000)
    assert read_with_cuts(log, cuts, size) == (whole, False)
    assert [line.number for line in whole] == list(range(1, len(whole) + 1))


def test_a_long_reading_repeats_only_the_last_second_or_so() -> None:
    pieces = [LogFragment(1, format_stamp(i * 1_000_000), b"x", True) for i in range(60_000)]
    joiner = LogLineAssembler()
    for start in range(0, len(pieces), 100):
        joiner.add_fragments(pieces[start : start + 100])
    assert joiner.position is not None
    assert joiner.position.seen <= 3_000
    assert joiner.position.lines == 60_000


def test_an_open_line_holds_the_anchor() -> None:
    joiner = LogLineAssembler()
    joiner.add_fragments([LogFragment(2, format_stamp(0), b"0% ", True)])
    joiner.add_fragments([LogFragment(2, format_stamp(SECOND), b"10% ", False)])
    for i in range(2, 100):
        joiner.add_fragments([LogFragment(1, format_stamp(i * SECOND), b"tick", True)])
    assert joiner.position is not None
    assert joiner.position.anchor <= format_stamp(SECOND)
    assert joiner.add_fragments([LogFragment(2, format_stamp(SECOND), b"100%", True)])[0].text == "10% 100%"


def test_a_rotated_log_is_a_gap_and_no_line_comes_twice() -> None:
    pieces = [LogFragment(1, format_stamp(i * SECOND), b"%d" % i, True) for i in range(20)]
    joiner = LogLineAssembler()
    joiner.add_fragments(pieces[:8])
    assert joiner.position is not None
    kept = LogLineAssembler(position=joiner.position)
    assert [line.text for line in kept.add_fragments(pieces[7:])] == [str(i) for i in range(8, 20)]
    assert not kept.gap
    lost = LogLineAssembler(position=joiner.position)
    assert [(line.text, line.number) for line in lost.add_fragments(pieces[12:])] == [
        (str(i), i - 3) for i in range(12, 20)
    ]
    assert lost.gap


def test_a_line_that_docker_repeats_as_it_rotates_comes_once_and_none_is_skipped_after_a_break() -> None:
    """Docker 20.10 gives the last line before a rotation twice while it is followed; read anew it is there once."""
    kept = [LogFragment(1, format_stamp(i * 50_000_000), b"%d" % i, True) for i in range(100)]
    for size, repeated in itertools.product((1, 7, 1000), (1, 2, 5)):
        followed = [one for i in range(0, 100, 10) for one in (*kept[i : i + 10], *kept[i + 10 - repeated : i + 10])]
        joiner = LogLineAssembler()
        cut = followed[:75]
        first = [line.text for at in range(0, 75, size) for line in joiner.add_fragments(cut[at : at + size])]
        position = joiner.position
        assert position is not None
        again = LogLineAssembler(position=position)
        rest = [line.text for line in again.add_fragments([piece for piece in kept if piece.stamp >= position.anchor])]
        assert first + rest == [str(i) for i in range(100)], size


def test_equal_lines_and_equal_parts_of_a_long_line_all_count() -> None:
    joiner = LogLineAssembler()
    equal = [LogFragment(1, format_stamp(i), b"tick", True) for i in range(3)]
    assert [line.text for line in joiner.add_fragments(equal)] == ["tick"] * 3
    parts = [LogFragment(1, format_stamp(9), b"x" * 16, False)] * 3 + [LogFragment(1, format_stamp(9), b"", True)]
    assert [line.text for line in joiner.add_fragments(parts)] == ["x" * 48]
    assert [
        line.stream
        for line in joiner.add_fragments(
            [LogFragment(1, format_stamp(20), b"a", True), LogFragment(2, format_stamp(20), b"a", True)]
        )
    ] == [
        "stdout",
        "stderr",
    ]


def test_a_line_of_a_megabyte_keeps_head_and_tail() -> None:
    joiner = LogLineAssembler()
    text = "".join(f"{i:07d} " for i in range(131_072))
    raw = text.encode()
    parts = [raw[i : i + 16384] for i in range(0, len(raw), 16384)]
    got = joiner.add_fragments(
        [LogFragment(1, format_stamp(5), part, i == len(parts) - 1) for i, part in enumerate(parts)]
    )
    (line,) = got
    half = MAX_LINE_BYTES // 2
    assert line.text == text[:half] + "…" + text[-half + 7 :]  # what begins at a cut may be half a word
    assert line.cut == len(text) - MAX_LINE_BYTES + 7


@pytest.mark.parametrize("secret", ["hf_" + "aB3d" * 8, "correct horse staple".replace(" ", "-")])
@pytest.mark.parametrize("side", [0, 1])
def test_a_secret_at_the_cut_of_a_long_line_does_not_show_by_half(secret: str, side: int) -> None:
    half = MAX_LINE_BYTES // 2
    for shown in (1, len(secret) // 2, len(secret) - 1):
        filler = "word " * 80_000
        text = (
            filler[: half - shown - 1] + " " + secret + " " + filler
            if side == 0
            else filler + " " + secret + " " + filler[: half - shown - 1]
        )
        raw = text.encode()
        parts = [raw[at : at + 16384] for at in range(0, len(raw), 16384)]
        (line,) = LogLineAssembler().add_fragments(
            [LogFragment(1, format_stamp(5), part, at == len(parts) - 1) for at, part in enumerate(parts)]
        )
        (line,) = mask_log_lines([line], [secret])
        assert line.cut > 0
        is_shown = secret[:2] in line.text or secret[-3:] in line.text
        assert not is_shown, shown


def test_the_last_words_without_newline_are_a_line() -> None:
    joiner = LogLineAssembler()
    assert joiner.add_fragments([LogFragment(1, format_stamp(1), b"bye", False)]) == ()
    assert [(line.text, line.stream) for line in joiner.finish()] == [("bye", "stdout")]
    assert joiner.finish() == ()


def test_invalid_utf_8_and_carriage_returns_are_kept_visible() -> None:
    (line,) = LogLineAssembler().add_fragments([LogFragment(2, format_stamp(1), b"a\r\xffb", True)])
    assert (line.text, line.stream, line.when) == ("a\r\N{REPLACEMENT CHARACTER}b", "stderr", format_stamp(1).decode())


def test_a_stamp_is_nanoseconds() -> None:
    assert parse_timestamp_ns(b"2026-11-20T23:13:59.123456789Z") == 1795216439123456789
    assert parse_timestamp_ns(b"nonsense") == 0
