"""Escape, told from what begins with it.

A terminal sends escape as the byte with which the codes of other keys begin, and alt with a letter as that byte and the
letter. Hands that type escape and a letter mean both; alt with a letter means nothing here, unless the keymap says so.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable

from textual._xterm_parser import XTermParser
from textual.constants import ESCAPE_DELAY
from textual.message import Message

_ESCAPE = "\x1b[27u"  # escape and nothing else, as kitty's protocol has it
_ALONE = re.compile("\x1b([^\x1b\\[O])", re.DOTALL)  # CSI and SS3 begin with [ and O; a second escape ends the first
# What a terminal sends as one comes in one read, also over SSH; where a line is so bad that it does not, ESCDELAY is for that.
LONE = ESCAPE_DELAY if "ESCDELAY" in os.environ else 0.025  # seconds
_PASTE, _PASTED = "\x1b[200~", "\x1b[201~"
EDITING = frozenset("bf\x7f")  # with alt, what a line's editor knows: a word back, a word on, a word deleted


class EscapeKeyParser(XTermParser):
    """Textual's parser, given escape as a key of its own. ``keeps`` tells which characters alt makes another key of, now."""

    def __init__(
        self, keeps: Callable[[str], bool], debug: bool = False, now: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(debug)
        self._keeps, self._now = keeps, now
        self._since: float | None = None  # an escape is held back: what follows it decides what it is
        self._is_pasting = False

    @property
    def patience(self) -> float | None:
        """Seconds until an escape that is held back is taken as one; None without."""
        return None if self._since is None else max(0.0, self._since + LONE - self._now())

    def feed(self, data: str) -> Iterable[Message]:
        """Return the keys and other messages of what was read; nothing read is the end."""
        if self._since is not None:
            data, self._since = f"\x1b{data}", None
        if data.endswith("\x1b") and not self._is_pasting:
            data, self._since = data[:-1], self._now()
            if not data:
                return []
        return super().feed(self._split_escape(data))

    def tick(self) -> Iterable[Message]:
        """Return escape where nothing followed it: to be called when there is nothing to be read."""
        if self._since is not None and self._now() - self._since >= LONE:
            self._since = None
            return super().feed(_ESCAPE)
        return super().tick()

    def _split_escape(self, data: str) -> str:
        """Return what was read with escape as a code of its own where a key follows it; not within what was pasted."""
        was_pasting = self._is_pasting
        if (began := data.rfind(_PASTE)) >= 0 or _PASTED in data:
            self._is_pasting = began > data.rfind(_PASTED)
            return data
        if was_pasting:
            return data
        return _ALONE.sub(self._meant, data)

    def _meant(self, found: re.Match[str]) -> str:
        """Return the codes of escape and a key, or of alt with that key."""
        key = found[1]
        if not self._keeps(key):
            return _ESCAPE + key
        return found[0] if key in EDITING else f"\x1b[{ord(key)};3u"
