"""Log lines without secrets, before anything else is done with them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace

from sparkctl.model.log_line import LogLine
from sparkctl.model.secrets import MASK, is_key_line, may_hold_secret, redact

_PIECE = 64 << 10  # characters that are masked at once
_LONGEST_KEY = 200  # lines of a private key whose end does not come


def mask_log_lines(lines: Sequence[LogLine], secrets: Collection[str]) -> tuple[LogLine, ...]:
    """Return the lines with secrets masked. A batch is looked through as a whole: nearly all have none."""
    if not may_hold_secret("\n".join([line.text for line in lines]), secrets):
        return tuple(lines)
    return tuple(_masked(line, secrets) for line in lines)


class LineMasker:
    """Masks the lines of one log in their order: a private key goes over many of them, and over batches."""

    def __init__(self, secrets: Collection[str]) -> None:
        self._secrets = secrets
        self._key_lines = 0  # how many lines of a private key are still to be masked, at most

    async def mask(self, lines: Sequence[LogLine]) -> tuple[LogLine, ...]:
        """Return the lines with secrets masked. Others have their turn between pieces of a long batch."""
        found: list[LogLine] = []
        piece: list[LogLine] = []
        size = 0
        for line in lines:
            piece.append(line)
            size += len(line.text)
            if size >= _PIECE:
                found += self._mask_piece(piece)
                piece, size = [], 0
                await asyncio.sleep(0)
        return (*found, *self._mask_piece(piece))

    def _mask_piece(self, lines: Sequence[LogLine]) -> tuple[LogLine, ...]:
        if not self._key_lines and not any("PRIVATE KEY-----" in line.text for line in lines):
            return mask_log_lines(lines, self._secrets)
        found: list[LogLine] = []
        for line in lines:
            if not self._key_lines and "-----END " in line.text and "-----BEGIN " not in line.text:
                self._mask_headless_key(found)
            found.append(self._mask_one(line))
        return tuple(found)

    def _mask_headless_key(self, found: list[LogLine]) -> None:
        """Mask the last lines as far as they are of a private key, of which the log was asked for the end only."""
        for at in range(len(found) - 1, -1, -1):
            if not is_key_line(found[at].text):
                return
            found[at] = replace(found[at], text=MASK)

    def _mask_one(self, line: LogLine) -> LogLine:
        if self._key_lines:
            word = line.text.rpartition(" ")[2].strip()
            is_of_key = "-----END " in line.text or word == line.text.strip() or (len(word) >= 40 and "." not in word)
            self._key_lines = self._key_lines - 1 if is_of_key and "-----END " not in line.text else 0
            if is_of_key:
                return replace(line, text=MASK)
        begins = line.text.rpartition("-----BEGIN ")[2]
        if "PRIVATE KEY" in begins and begins != line.text and "-----END " not in begins:
            self._key_lines = _LONGEST_KEY
        return _masked(line, self._secrets)


def _masked(line: LogLine, secrets: Collection[str]) -> LogLine:
    return replace(line, text=redact(line.text, secrets))
