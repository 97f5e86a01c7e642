"""Docker's log stream is taken apart alike, wherever the reads cut it."""

from __future__ import annotations

import pytest

from sparkctl.transport.docker.log_resume import (
    ChunkedBody,
    DaemonError,
    FragmentParser,
    InvalidLogStream,
    LogFragment,
    MultiplexedParser,
    RawStreamParser,
)
from tests.unit.transport.docker.docker_log_daemon import build_chunks, build_frame, format_stamp

LOOKS_LIKE_TWO_CHUNKS = b"a\n\r\n29\r\n\x01\0\0\0\0\0\0\x21" + format_stamp(7) + b" b"
LINES = [(1, b"hello"), (2, b"oh \xff no"), (1, b""), (1, b"\r 10%\r 20%"), (2, b"x" * 40), (1, LOOKS_LIKE_TWO_CHUNKS)]
FRAMES = [build_frame(stream, index, text + b"\n") for index, (stream, text) in enumerate(LINES)]
EXPECTED = [LogFragment(stream, format_stamp(index), text, True) for index, (stream, text) in enumerate(LINES)]


def parse_reads(reads: list[bytes], parser: FragmentParser) -> tuple[list[LogFragment], bool]:
    decoder = ChunkedBody()
    pieces: list[LogFragment] = []
    for data in reads:
        pieces += parser.feed_chunks(data, decoder)
    return pieces + (parser.finish() if decoder.done else []), decoder.done


@pytest.mark.parametrize("per_chunk", [1, 2, 5])
def test_every_cut_gives_the_same_pieces(per_chunk: int) -> None:
    groups = [b"".join(FRAMES[i : i + per_chunk]) for i in range(0, len(FRAMES), per_chunk)]
    raw = build_chunks(groups)
    for cut in range(len(raw) + 1):
        assert parse_reads([raw[:cut], raw[cut:]], MultiplexedParser()) == (EXPECTED, True), cut


def test_without_stamps_every_cut_gives_the_same_pieces() -> None:
    texts = [(stream, text + b"\n") for stream, text in [*LINES, (1, b" begins with a space"), (2, b"")]]
    raw = build_chunks([bytes([stream, 0, 0, 0]) + len(text).to_bytes(4, "big") + text for stream, text in texts])
    expected = [LogFragment(stream, b"", text[:-1], True) for stream, text in texts]
    for cut in range(len(raw) + 1):
        assert parse_reads([raw[:cut], raw[cut:]], MultiplexedParser(stamped=False)) == (expected, True), cut


def test_single_bytes_give_the_same_pieces() -> None:
    raw = build_chunks(FRAMES)
    assert parse_reads([raw[i : i + 1] for i in range(len(raw))], MultiplexedParser()) == (EXPECTED, True)


def test_a_chunk_may_end_inside_a_frame() -> None:
    whole = b"".join(FRAMES)
    assert parse_reads([build_chunks([whole[:13], whole[13:14], whole[14:]])], MultiplexedParser()) == (EXPECTED, True)


def test_the_frames_of_the_read_with_the_final_chunk_are_given_out() -> None:
    decoder, parser = ChunkedBody(), MultiplexedParser()
    assert parser.feed(decoder.feed(build_chunks(FRAMES))) == EXPECTED
    assert decoder.done


def test_a_cut_stream_is_not_done() -> None:
    pieces, done = parse_reads([build_chunks(FRAMES, final=False)], MultiplexedParser())
    assert (pieces, done) == (EXPECTED, False)


def test_a_piece_without_newline_is_not_whole() -> None:
    assert MultiplexedParser().feed(build_frame(1, 7, b"part")) == [LogFragment(1, format_stamp(7), b"part", False)]


def test_the_daemons_own_error_comes_after_the_lines_before_it() -> None:
    parser = MultiplexedParser()
    broken = bytes([3, 0, 0, 0, 0, 0, 0, 3]) + b"bad"
    assert parser.feed(FRAMES[0] + broken) == EXPECTED[:1]
    with pytest.raises(DaemonError, match="bad"):
        parser.finish()
    decoder, parser = ChunkedBody(), MultiplexedParser()
    assert parser.feed_chunks(build_chunks([FRAMES[0], broken]), decoder) == EXPECTED[:1]
    with pytest.raises(DaemonError, match="bad"):
        parser.finish()


@pytest.mark.parametrize("junk", [b"HTTP/1.1", bytes([1, 0, 0, 0, 255, 255, 255, 255])])
def test_what_is_no_frame_is_refused(junk: bytes) -> None:
    with pytest.raises(InvalidLogStream):
        MultiplexedParser().feed(junk)


@pytest.mark.parametrize("junk", [b"zz\r\n", b"-5\r\n", b"ffffffffff\r\n"])
def test_what_is_no_chunk_is_refused(junk: bytes) -> None:
    with pytest.raises(InvalidLogStream):
        ChunkedBody().feed(junk)


def test_a_terminals_stream_has_no_frames() -> None:
    long = b"y" * 16384
    pieces = [(0, b"one", True), (1, b"", True), (2, long, False), (3, b"rest", True), (4, b"last words", False)]
    raw = b"".join(format_stamp(i) + b" " + text + (b"\r\n" if whole else b"") for i, text, whole in pieces)
    expected = [LogFragment(1, format_stamp(i), text, whole) for i, text, whole in pieces]
    for cut in (*range(120), *range(len(raw) - 120, len(raw))):
        parser = RawStreamParser()
        assert parser.feed(raw[:cut]) + parser.feed(raw[cut:]) + parser.finish() == expected, cut
