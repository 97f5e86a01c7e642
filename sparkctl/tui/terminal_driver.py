"""The terminal that the panel is painted on: stdout, as for any program; stderr may well go to a file."""

from __future__ import annotations

import codecs
import gc
import os
import re
import selectors
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

from rich.cells import cached_cell_len
from rich.console import COLOR_SYSTEMS, Console, RenderableType
from textual._compositor import ChopsUpdate
from textual._xterm_parser import XTermParser
from textual.app import App, ScreenStackError
from textual.constants import ESCAPE_DELAY
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widgets import Input

if TYPE_CHECKING:
    from rich.color import ColorSystem

    from sparkctl.tui.panel import Panel


_ESCAPE_CODE = "\x1b[27u"  # escape alone, in kitty's keyboard protocol
_ESCAPED_KEY_PATTERN = re.compile(
    "\x1b([^\x1b\\[O])", re.DOTALL
)  # CSI and SS3 begin with [ and O; a second escape ends the first
# An escape sequence arrives in one read, also over SSH; set ESCDELAY for connections where it does not.
LONE_ESCAPE_SECONDS = ESCAPE_DELAY if "ESCDELAY" in os.environ else 0.025
_PASTE_START, _PASTE_END = "\x1b[200~", "\x1b[201~"
EDITING_KEYS = frozenset("bf\x7f")  # alt keys of the input field: word left, word right, delete word


class EscapeKeyParser(XTermParser):
    """Textual's parser, with the escape key told apart from alt. ``keeps`` tells for which characters alt is a modifier now.

    Textual 8.2 takes every key that follows an escape for alt with that key. It has the parser only in a private module.
    """

    def __init__(
        self, keeps: Callable[[str], bool], debug: bool = False, now: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(debug)
        self._keeps, self._now = keeps, now
        self._since: float | None = None  # when a pending escape was read; the next input decides its meaning
        self._is_pasting = False

    @property
    def escape_wait_seconds(self) -> float | None:
        """Seconds until a pending escape counts as the escape key; None where none is pending."""
        return None if self._since is None else max(0.0, self._since + LONE_ESCAPE_SECONDS - self._now())

    def feed(self, data: str) -> Iterable[Message]:
        """Return the keys and other messages of the input; empty input means its end."""
        if self._since is not None:
            data, self._since = f"\x1b{data}", None
        if data.endswith("\x1b") and not self._is_pasting:
            data, self._since = data[:-1], self._now()
            if not data:
                return []
        return super().feed(self._split_escape(data))

    def tick(self) -> Iterable[Message]:
        """Return the escape key where nothing followed it. Call this when there is no input."""
        if self._since is not None and self._now() - self._since >= LONE_ESCAPE_SECONDS:
            self._since = None
            return super().feed(_ESCAPE_CODE)
        return super().tick()

    def _split_escape(self, data: str) -> str:
        """Return the input with escape as a code of its own before a key, except in pasted text."""
        was_pasting = self._is_pasting
        if (began := data.rfind(_PASTE_START)) >= 0 or _PASTE_END in data:
            self._is_pasting = began > data.rfind(_PASTE_END)
            return data
        if was_pasting:
            return data
        return _ESCAPED_KEY_PATTERN.sub(self._replace_escaped_key, data)

    def _replace_escaped_key(self, found: re.Match[str]) -> str:
        """Return the codes of escape and a key, or of alt with that key."""
        key = found[1]
        if not self._keeps(key):
            return _ESCAPE_CODE + key
        return found[0] if key in EDITING_KEYS else f"\x1b[{ord(key)};3u"


_EXIT_POLL_SECONDS = 0.1  # seconds between two checks whether the panel has ended
GC_THRESHOLDS = (3000, 10, 10)  # still short collections while the panel runs, but a quarter as many as by default
MAX_CACHE_ENTRIES = 512
RENDER_CACHES = (
    Strip.render_ansi, cached_cell_len, Region.intersection, Region.overlaps, Region.translate, Region.union
)  # fmt: skip


class ChangedCells(ChopsUpdate):
    """A partial update that writes the changed cells alone. Textual 8.2 writes each line of it from the widget's left edge on:
    ``ChopsUpdate.render_segments`` crops only the end."""

    def __init__(self, update: ChopsUpdate) -> None:
        super().__init__(update.chops, update.spans, update.chop_ends)

    def render_segments(self, console: Console) -> str:
        parts: list[str] = []
        colours = COLOR_SYSTEMS[console.color_system or "truecolor"]
        for y, first, last in self.spans:
            for end, (begin, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                start, stop = max(begin, first), min(end, last)
                if strip is None or start >= stop:
                    continue
                parts += f"\x1b[{y + 1};{start + 1}H", _render_cells(strip, start - begin, stop - begin, colours)
        return "".join(parts)


def _render_cells(strip: Strip, start: int, stop: int, colours: ColorSystem) -> str:
    """Return the text of some cells with its codes: `Strip.crop` makes a strip, with seven caches that are never used."""
    parts, at = [], 0
    for segment in strip:
        end = at + segment.cell_length
        if end > start:
            if end > stop:
                segment = segment.split_cells(stop - at)[0]
            if at < start:
                segment = segment.split_cells(start - at)[1]
            text, style, _ = segment
            parts.append(text if style is None else Strip.render_style(style, text, colours))
        if end >= stop:
            break
        at = end
    return "".join(parts)


def keep_changed_cells(renderable: RenderableType | None) -> RenderableType | None:
    """Return what Textual paints: of a partial update the changed cells alone."""
    return ChangedCells(renderable) if isinstance(renderable, ChopsUpdate) else renderable


class SafeStdout:
    """Stdout that ignores errors of a lost terminal: an error would end Textual's writer thread, and each later paint would hang."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, text: str) -> int:
        """Write text; ignore a terminal that is gone."""
        with suppress(OSError):
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush; ignore a terminal that is gone."""
        with suppress(OSError):
            self._file.flush()

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of the file."""
        return getattr(self._file, name)


_STYLE_AFTER_RESET = re.compile("\x1b\\[0m\x1b\\[(?=[0-9;]+m)")
_SAME_STYLE = re.compile("(\x1b\\[0;[0-9;]+m)([^\x1b]*)\\1")


def join_style_codes(text: str) -> str:
    """Join the end of each style with the next begin; equal ones get no code: over SSH each byte counts."""
    return _SAME_STYLE.sub(r"\1\2", _STYLE_AFTER_RESET.sub("\x1b[0;", text))


class StdoutDriver(LinuxDriver):
    """Textual's driver, but it paints on stdout instead of stderr, and tells the escape key from alt.

    Textual 8.2 has no public way to name the driver's file, nor to know whether its writer thread lives: `_file` and
    `_writer_thread` are its own. tests/unit/test_private_names.py fails where a version has other names.
    """

    def __init__(self, app: App[Any], *, debug: bool = False, **options: Any) -> None:
        super().__init__(app, debug=debug, **options)
        self._textual_app, self._is_debugging = app, debug
        assert sys.__stdout__ is not None
        self._file: Any = SafeStdout(sys.__stdout__)

    def write(self, data: str) -> None:
        """Write to the terminal while the writer thread runs; a full queue without a reader would block forever."""
        if self._writer_thread is not None and self._writer_thread.is_alive():
            super().write(join_style_codes(data))

    def run_input_thread(self) -> None:
        """Read keys until the panel ends. A terminal that is gone ends the panel; invalid UTF-8 is replaced."""
        parser = EscapeKeyParser(self._keeps_alt, self._is_debugging)
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                if selector.select(
                    _EXIT_POLL_SECONDS if parser.escape_wait_seconds is None else parser.escape_wait_seconds
                ):
                    try:
                        read = os.read(self.fileno, 1 << 12)
                    except OSError:
                        read = b""
                    if not read:
                        self._textual_app.call_later(self._panel.exit_panel)
                        break
                    self._panel.keyboard.expect_key()
                    for message in parser.feed(decode(read)):
                        self.process_message(message)
                    self._panel.keyboard.expect_key(parser.escape_wait_seconds)
                else:  # no input waits, however late this thread runs
                    self._panel.keyboard.expect_key()
                    for message in parser.tick():
                        self.process_message(message)

    @property
    def _panel(self) -> Panel:
        return self._textual_app  # type: ignore[return-value]

    def _keeps_alt(self, character: str) -> bool:
        """Tell whether alt with this character means something: in the operator's keymap, or in the focused input field."""
        with suppress(ScreenStackError):  # before the first paint
            if character in EDITING_KEYS and isinstance(self._textual_app.focused, Input):
                return True
        return any(key == f"alt+{character}" for _, keys in self._panel.setup.keys for key in keys)


def freeze_gc() -> None:
    """Turn garbage collection on, for objects made from now on: those of the program itself are never collected.

    Otherwise each collection visits them while log lines pour in, and keys wait.
    """
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()


def trim_render_caches() -> None:
    """Clear the render caches of Textual and Rich once they are large.

    A moving chart never shows the same text twice, and each line of a selectable log has its own styles. The caches would keep
    thousands of such entries (10 MiB and more) that are never used again.
    """
    for remembered in RENDER_CACHES:
        if remembered.cache_info().currsize > MAX_CACHE_ENTRIES:
            remembered.cache_clear()
