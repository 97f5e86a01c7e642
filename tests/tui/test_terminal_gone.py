"""A terminal that is gone ends the panel, and holds nothing up on the way."""

from __future__ import annotations

import errno
import io

from textual.drivers._writer_thread import MAX_QUEUED_WRITES, WriterThread

from sparkctl.tui.terminal_driver import SafeStdout, StdoutDriver, join_style_codes


class ClosedTerminal(io.StringIO):
    """As the kernel answers for a terminal whose window was closed."""

    def write(self, text: str) -> int:
        raise OSError(errno.EIO, "Input/output error")

    def flush(self) -> None:
        raise OSError(errno.EIO, "Input/output error")


def test_whoever_paints_waits_for_no_terminal_that_is_gone() -> None:
    writer = WriterThread(SafeStdout(ClosedTerminal()))  # type: ignore[arg-type]
    writer.start()
    for _ in range(3 * MAX_QUEUED_WRITES):
        assert writer.is_alive(), "else what is written next waits for ever once the queue is full"
        writer.write("a picture")
    writer.stop()
    assert not writer.is_alive()


def test_a_terminal_that_is_there_gets_all() -> None:
    there = io.StringIO()
    writer = WriterThread(SafeStdout(there))  # type: ignore[arg-type]
    writer.start()
    for at in range(3):
        writer.write(str(at))
    writer.stop()
    assert there.getvalue() == "012"


def test_what_is_painted_once_the_writer_has_ended_goes_nowhere_and_waits_for_nobody() -> None:
    there = io.StringIO()
    terminal = object.__new__(StdoutDriver)  # without a terminal: of the driver only what it writes with
    terminal._writer_thread = WriterThread(there)
    terminal._writer_thread.start()
    terminal.write("seen")
    terminal._writer_thread.stop()
    for _ in range(3 * MAX_QUEUED_WRITES):
        terminal.write("not seen")
    assert there.getvalue() == "seen"


def test_a_style_begins_where_the_one_before_ends() -> None:
    assert join_style_codes("\x1b[1mA\x1b[0m\x1b[38;5;9mB\x1b[0m") == "\x1b[1mA\x1b[0;38;5;9mB\x1b[0m"
    assert join_style_codes("\x1b[0;1mA\x1b[0m\x1b[1mB\x1b[0m\x1b[2;1HC") == "\x1b[0;1mAB\x1b[0m\x1b[2;1HC"
    for same in ("\x1b[0m\x1b[2;1H", "\x1b[0m B", "\x1b[0m\x1b[?25l", "\x1b[0m\x1b[K"):
        assert join_style_codes(same) == same
