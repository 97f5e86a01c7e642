"""Lines read together are kept in columns; what only masks and prints them makes no line of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from sparkctl.cli.event_printers import LogPrinter
from sparkctl.logs.line_patterns import drop_own_requests
from sparkctl.model.events import LogArrived
from sparkctl.model.json_codec import decode_event, encode_event
from sparkctl.model.node import NodeName
from sparkctl.model.text.log_line import LogLine, LogLineBlock
from sparkctl.model.text.secrets import LineMasker
from sparkctl.transport.docker.log_resume import ChunkedBody, LogFragment, LogLineAssembler, MultiplexedParser
from tests.unit.transport.docker.docker_log_daemon import build_chunks, build_frame, format_stamp

TEXTS = ["a", "ü", "\r 1%\r 2%", "last"]
LINES = [
    LogLine(format_stamp(at).decode(), text, 5 + at, "stderr" if at == 1 else "stdout") for at, text in enumerate(TEXTS)
]


class Unread(Sequence[bytes]):
    """A column that nobody may read."""

    def __len__(self) -> int:
        return len(TEXTS)

    def __getitem__(self, at: object) -> bytes:  # type: ignore[override]
        raise AssertionError("a line was made")

    def __iter__(self) -> Iterator[bytes]:
        raise AssertionError("a line was made")


def build_block() -> LogLineBlock:
    return LogLineBlock(
        5, [format_stamp(at) for at in range(4)], "\n".join(TEXTS), ["stdout", "stderr", "stdout", "stdout"]
    )


def build_event(lines: Sequence[LogLine]) -> LogArrived:
    return LogArrived(ts=1.0, node=NodeName("spark1"), instance="qwen36", lines=lines)


def test_a_block_is_the_sequence_of_its_lines() -> None:
    block = build_block()
    assert [*block] == LINES
    assert (len(block), block[0], block[-1], block[1:3]) == (4, LINES[0], LINES[3], tuple(LINES[1:3]))
    assert all(one is other for one, other in zip(block, block, strict=True)), "each is made once"


def test_what_only_masks_and_prints_makes_no_lines(capsys: pytest.CaptureFixture[str]) -> None:
    block = LogLineBlock(5, Unread(), "a\n b\n\nlast", ["stdout"] * 4)
    lines = drop_own_requests(LineMasker({"hunter22"}).mask_batch(block))
    LogPrinter(timestamps=False).print_event(build_event(lines))
    assert capsys.readouterr().out == "a\n b\n\nlast\n"


def test_what_is_not_plain_is_printed_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    LogPrinter(timestamps=False).print_event(build_event(build_block()))
    assert capsys.readouterr().out == "a\nü\n 2%\nlast\n"


def test_a_secret_in_a_block_is_masked() -> None:
    block = LogLineBlock(5, [b""] * 2, "the word is hunter22\nnone", ["stdout"] * 2)
    masked = LineMasker({"hunter22"}).mask_batch(block)
    assert [line.number for line in masked] == [5, 6]
    assert "hunter22" not in "".join(line.text for line in masked)
    assert masked[1].text == "none"


def test_a_block_is_written_as_json_as_its_lines_are() -> None:
    written = encode_event(build_event(build_block()))
    assert written == encode_event(build_event(tuple(LINES)))
    assert decode_event(written) == build_event(tuple(LINES))


def test_whole_lines_stay_in_columns_from_the_chunks_to_the_block() -> None:
    frames = [build_frame(1 + at % 2, at, b"line %d\n" % at) for at in range(300)]
    pieces = MultiplexedParser().feed_chunks(build_chunks(frames, final=False), ChunkedBody())
    lines = LogLineAssembler().add_fragments(pieces)
    assert isinstance(lines, LogLineBlock)
    assert lines[299] == LogLine(format_stamp(299).decode(), "line 299", 300, "stderr")
    assert pieces[299] == LogFragment(2, format_stamp(299), b"line 299", True)
