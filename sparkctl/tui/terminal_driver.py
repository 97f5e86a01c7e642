"""The terminal that the panel is painted on: stdout, as for any program; stderr may well go to a file."""

from __future__ import annotations

import codecs
import gc
import os
import selectors
import sys
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

from rich.cells import cached_cell_len
from textual.app import ScreenStackError
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Region
from textual.strip import Strip
from textual.widgets import Input

from sparkctl.tui.escape import EDITING, EscapeKeyParser

if TYPE_CHECKING:
    from sparkctl.tui.app import PanelApp

_LOOK = 0.1  # seconds between two looks whether the panel has ended
GC_THRESHOLDS = (
    700,
    10,
    10,
)  # the thresholds that CPython begins with: while it runs, the panel collects often and little
CACHE_LIMIT = 512
RENDER_CACHES = (
    Strip.render_ansi, cached_cell_len, Region.intersection, Region.overlaps, Region.translate, Region.union
)  # fmt: skip


class SafeStdout:
    """What is painted on. Once the terminal is gone it goes nowhere: Textual's writer would die of the error, and whoever
    paints would wait for it for ever, the panel on its way out as well."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, text: str) -> int:
        """Write, where there still is a terminal."""
        with suppress(OSError):
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        """Let it be seen, where there still is a terminal."""
        with suppress(OSError):
            self._file.flush()

    def __getattr__(self, name: str) -> Any:
        """Be the file in everything else."""
        return getattr(self._file, name)


class StdoutDriver(LinuxDriver):
    """Textual's driver, painting on stdout in place of stderr, and reading keys as hands mean them."""

    def __init__(self, *args: Any, **words: Any) -> None:
        super().__init__(*args, **words)
        assert sys.__stdout__ is not None
        self._file: Any = SafeStdout(sys.__stdout__)

    def write(self, data: str) -> None:
        """Paint, where there still is who does it: a writer that has ended takes nothing more, and once its queue is full
        whoever gives it something would wait for ever."""
        if self._writer_thread is not None and self._writer_thread.is_alive():
            super().write(data)

    def run_input_thread(self) -> None:
        """Read until the panel ends. A terminal that is gone ends it; bytes that are no text are a sign for just that."""
        parser = EscapeKeyParser(self._keeps_alt, self._debug)
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                if selector.select(_LOOK if parser.patience is None else parser.patience):
                    try:
                        read = os.read(self.fileno, 1 << 12)
                    except OSError:
                        read = b""
                    if not read:
                        self._app.call_later(self._panel.leave)
                        break
                    self._panel.keyboard.expect_key()
                    for message in parser.feed(decode(read)):
                        self.process_message(message)
                    self._panel.keyboard.expect_key(parser.patience)
                else:  # what waits to be read decides, however late this thread comes to it
                    self._panel.keyboard.expect_key()
                    for message in parser.tick():
                        self.process_message(message)

    @property
    def _panel(self) -> PanelApp:
        return self._app  # type: ignore[return-value]

    def _keeps_alt(self, character: str) -> bool:
        """Tell whether alt with a character is a key of the operator's own, or of the line that is being typed."""
        with suppress(ScreenStackError):  # before the first picture
            if character in EDITING and isinstance(self._app.focused, Input):
                return True
        return any(key == f"alt+{character}" for _, keys in self._panel.setup.keys for key in keys)


def freeze_gc() -> None:
    """Spare the garbage collector all that is there now: the program itself, which stays.

    Else it looks through that again and again while log lines pour in, and no key is answered meanwhile.
    """
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def trim_render_caches() -> None:
    """Empty what Textual and Rich remember of text, styles and places once it is much.

    A curve moves on, so that its text of a second ago never comes again; text that can be selected has its place in its
    style, so that each line of a log has styles that no other line has. Of all that they would keep thousands, for 10 MiB
    and more, to no use.
    """
    for remembered in RENDER_CACHES:
        if remembered.cache_info().currsize > CACHE_LIMIT:
            remembered.cache_clear()
