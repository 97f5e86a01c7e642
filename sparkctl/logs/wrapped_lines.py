"""Puts lines together again that a terminal, ``fold`` or a paste cut at one width. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, pairwise

from sparkctl.engines.log_rules import DIGITS_TO_ZERO
from sparkctl.logs.line_effects import split_raw_line
from sparkctl.logs.log_file import BLOCK_BYTES, hold_sample

_MIN_WIDTH, _MAX_WIDTH = 40, 400  # columns of a terminal or a paste
_MIN_CUTS = 3  # different lines of exactly that length, with the next one, that go on there
_CUT_SHARE = 0.5  # of the lines of that length
_NEAR = 4  # columns: few lines end by chance as close to the width, where lines are cut
_SAME_START = 8  # characters, digits aside, by which the next line is one more of its kind and not its rest
_FILLING = " " * 12  # behind a text, up to the width
_RULE_CHARS = 3  # different ones, at most, of a line between two parts
_MIN_PREFIX = 4  # characters: less is a quote or a mark, where not each piece has it
_MAX_PIECES = 1000  # of one line
_FRAMES = tuple("|+│┃║")  # on both sides of tables, whose lines have one length by themselves
_EDGES = tuple("─━═╭╰┌└┏┗├┣╔╚╠")  # the upper or lower edge of a frame


def join_wrapped_lines(blocks: Iterable[bytes], read_header: Callable[[str], str | None]) -> Iterator[bytes]:
    """Yield the blocks with the lines whole that were cut at one width, and an empty line for each piece that was put to one
    before it: the lines keep their numbers.

    Lines are joined only where the log's beginning shows the width: several different lines have it and go on in the next
    line, and none is longer. Nothing is joined from the first longer line on. ``read_header``: see `strip_wrapping`.
    """
    rest = iter(blocks)
    held = hold_sample(rest)
    sample = b"".join(held)[:BLOCK_BYTES].decode("utf-8", "replace").split("\n")[:-1]
    joiner = _find_width([line.removesuffix("\r") for line in sample], read_header)
    if joiner is None:
        yield from held
        yield from rest
        return
    for block in chain(held, rest):
        yield joiner.join_block(block)
    yield joiner.take_line()


def _find_width(lines: Sequence[str], read_header: Callable[[str], str | None]) -> _Joiner | None:
    width = max(map(len, lines), default=0)
    full = {(line, after) for line, after in pairwise(lines) if _is_full(line, width)}
    near = {line.translate(DIGITS_TO_ZERO) for line in lines if width - _NEAR <= len(line) < width}
    if not _MIN_WIDTH <= width <= _MAX_WIDTH or len(full) < _MIN_CUTS or len(near) >= len(full):
        return None
    for has_prefix in (False, True):
        joiner = _Joiner(width, has_prefix, read_header)
        cuts = sum(joiner.find_rest(line, line, after) is not None for line, after in full)
        if cuts >= max(_MIN_CUTS, len(full) * _CUT_SHARE):
            return joiner
    return None


def _is_full(line: str, width: int) -> bool:
    """Tell whether a line may have been cut: it has the width, and no table's frame, rule or filling made it so."""
    if len(line) != width or line.endswith(_FILLING) or len(set(line)) <= _RULE_CHARS:
        return False
    return not line.startswith(_EDGES) and not (line.startswith(_FRAMES) and line.endswith(_FRAMES))


class _Joiner:
    """Joins lines of ``width`` characters and what follows. ``has_prefix``: each piece has the prefix of its collector, such as
    a time; else the first one alone."""

    def __init__(self, width: int, has_prefix: bool, read_header: Callable[[str], str | None]) -> None:
        self._width = width
        self._has_prefix = has_prefix
        self._read_header = read_header
        self._pieces: list[str] = []  # of the line that may go on
        self._last = ""  # the line of the file that holds the last piece

    def join_block(self, block: bytes) -> bytes:
        """Return the block's lines joined, without its last line if that may go on, and after the one that was kept."""
        found: list[bytes] = []
        for raw in block.split(b"\n")[:-1]:
            line = raw.decode("utf-8", "surrogateescape").removesuffix("\r")
            if len(line) > self._width:
                self._width = 0  # it was not cut there
            after = self.find_rest(self._pieces[0], self._last, line) if self._pieces else None
            if after is None:
                found.append(self.take_line())
                self._pieces = [line]
            else:
                self._pieces.append(after)
            self._last = line
            if not self._goes_on(line):
                found.append(self.take_line())
        return b"".join(found)

    def take_line(self) -> bytes:
        """Return the line that was kept, with an empty one for each further piece, and forget it."""
        pieces, self._pieces = self._pieces, []
        text = "".join(pieces) + "\n" * len(pieces)
        return text.encode("utf-8", "surrogateescape")

    def _goes_on(self, line: str) -> bool:
        return len(self._pieces) < _MAX_PIECES and _is_full(line, self._width)

    def find_rest(self, first: str, last: str, after: str) -> str | None:
        """Return what the line ``after`` adds to one that began with ``first`` and reached its full width with ``last``, None if
        it is a line of its own."""
        if not after.strip() or after.startswith(_EDGES):
            return None
        text = split_raw_line(after)[1]
        prefix = min(len(after) - len(text), len(first) - len(split_raw_line(first)[1]))
        if prefix < 1 if self._has_prefix else prefix >= _MIN_PREFIX:
            return None
        rest = after[prefix:] if self._has_prefix else after
        if self._read_header(rest) is not None or rest.lstrip().startswith('File "'):
            return None
        starts = (split_raw_line(one)[1][:_SAME_START].translate(DIGITS_TO_ZERO) for one in (first, last))
        return None if text[:_SAME_START].translate(DIGITS_TO_ZERO) in starts else rest
