"""Rows of styled text, without a terminal library. A style says what a text means; the theme chooses the colour."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from sparkctl.model.finding import Severity
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.text import lazy_pattern
from sparkctl.model.text.sanitize import sanitize_line


class TextStyle(StrEnum):
    """The meaning of a text: one accent, three states, grey, the parts of the memory bar, and a hue a quantity."""

    PLAIN = "plain"
    LABEL = "label"  # dim: names of figures
    VALUE = "value"  # bright: the figures
    UNIT = "unit"  # dim: their units
    STRONG = "strong"
    ACCENT = "accent"
    GOOD = "good"
    ATTENTION = "attention"
    BAD = "bad"
    STALE = "stale"  # no longer sure
    FRAME = "frame"
    CHOSEN = "chosen"  # the frame of what is selected
    KEY = "key"
    TITLE = "title"
    GPU = "gpu"  # the four parts of the memory bar
    OTHER = "other"
    CACHE = "cache"
    FREE = "free"
    RATE = "rate"  # the hue of tokens; memory has that of its bar's first part
    POWER = "power"  # the hue of what the machine does and takes: load, power, heat
    LINK = "link"  # the hue of what goes over a cable
    MEMORY_WARM = "memory-warm"  # between a hue and a warning, where the height of a curve means danger
    POWER_WARM = "power-warm"
    HOT = "hot"  # between a warning and a problem
    BODY = "body"  # what lies under a curve of each hue
    MEMORY_BODY = "memory-body"
    RATE_BODY = "rate-body"
    POWER_BODY = "power-body"
    LINK_BODY = "link-body"
    MEMORY_WARM_BODY = "memory-warm-body"
    POWER_WARM_BODY = "power-warm-body"
    ATTENTION_BODY = "attention-body"
    HOT_BODY = "hot-body"
    BAD_BODY = "bad-body"


AREA_BODIES = tuple(one for one in TextStyle if one is TextStyle.BODY or one.value.endswith("-body"))


class Span(NamedTuple):
    """A piece of text in one style. Text from a node must pass `sanitize_span` first. A tuple, as each picture makes thousands."""

    text: str
    tone: TextStyle = TextStyle.PLAIN


TextRow = tuple[Span, ...]


def sanitize_span(text: str, tone: TextStyle = TextStyle.PLAIN) -> Span:
    """Return sanitised text from a node or an error as a span."""
    return Span(sanitize_line(text), tone)


def make_row(*parts: Span | str) -> TextRow:
    """Return a row of spans; a plain string becomes an unstyled span and must be sparkctl's own text."""
    return tuple(Span(part) if isinstance(part, str) else part for part in parts)


# Characters of one column by Rich's table (a test holds that), among them all of sparkctl's own symbols: with them alone
# a text needs no table, and `status` need not import Rich.
_NARROW_PATTERN = lazy_pattern.compile("[ -~°·×–—‖‹›…•←-↓−≈─-◼✓✕⠀-⣿]*")


def measure_text(text: str) -> int:
    """Return the columns that a printable text takes, by the rule of Rich's ``cell_len``, by which Textual paints."""
    return len(text) if text.isascii() else _measure_cells(text)


@lru_cache(1024)
def _measure_cells(text: str) -> int:
    if _NARROW_PATTERN.fullmatch(text):
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def find_span(row: TextRow, x: int) -> int | None:
    """Return which span of a row stands at column ``x``, None beside them."""
    end = 0
    for at, span in enumerate(row):
        end += measure_row((span,))
        if 0 <= x < end:
            return at
    return None


def measure_row(spans: Iterable[Span]) -> int:
    """Return the columns that a row takes."""
    taken = 0
    for piece, _ in spans:  # called for hundreds of rows per frame
        taken += len(piece) if piece.isascii() else _measure_cells(piece)
    return taken


def split_graphemes(text: str) -> list[str]:
    """Return the characters as a reader counts them, with marks and joined parts; their columns add up to the text's."""
    if text.isascii() or _NARROW_PATTERN.fullmatch(text):
        return list(text)
    parts: list[str] = []
    for char in text:
        is_flag = "\U0001f1e6" <= char <= "\U0001f1ff"
        if parts and (
            not _measure_cells(char) or parts[-1].endswith("\u200d") or (is_flag and _is_half_flag(parts[-1]))
        ):
            parts[-1] += char
        else:
            parts.append(char)
    return parts


def _is_half_flag(part: str) -> bool:
    return len(part) == 1 and "\U0001f1e6" <= part <= "\U0001f1ff"


def join_text(spans: Iterable[Span]) -> str:
    """Return the text of a row without styles."""
    return "".join([span.text for span in spans])


def truncate_text(piece: str, columns: int) -> str:
    """Return as much of a text as fits in this many columns, without a mark; no grapheme is split."""
    if piece.isascii():
        return piece[: max(0, columns)]
    kept = ""
    for part in split_graphemes(piece):
        columns -= measure_text(part)
        if columns < 0:
            break
        kept += part
    return kept


def pad_text(text: str, columns: int) -> str:
    """Return a text with blanks up to this many columns; a wider one is unchanged."""
    return text + " " * (columns - measure_text(text))


def truncate_row(spans: TextRow, columns: int, mark: str = "…") -> TextRow:
    """Return a row of at most ``columns``; a cut is marked."""
    return spans if measure_row(spans) <= columns else _cut_row(spans, columns, mark)


def _cut_row(spans: TextRow, columns: int, mark: str) -> TextRow:
    kept: list[Span] = []
    left = columns - measure_text(mark)
    for span in spans:
        wide = measure_text(span.text)
        if wide > left:
            kept.append(Span(truncate_text(span.text, left) + (mark if columns > 0 else ""), span.tone))
            break
        kept.append(span)
        left -= wide
    return tuple(kept)


def pad_row(spans: TextRow, columns: int, mark: str = "…") -> TextRow:
    """Return a row of exactly ``columns``."""
    missing = columns - measure_row(spans)
    if missing < 0:
        spans = _cut_row(spans, columns, mark)
        missing = columns - measure_row(spans)
    return (*spans, Span(" " * missing)) if missing > 0 else spans


def justify_row(left: TextRow, right: TextRow, columns: int) -> TextRow:
    """Return a row with ``right`` at its end; if both do not fit, the right part stays whole."""
    right = truncate_row(right, columns)
    room = columns - measure_row(right)
    if room < 4:
        return pad_row(right, columns)
    return (*pad_row(truncate_row(left, room - 1), room), *right)


def restyle_row(spans: TextRow, tone: TextStyle) -> TextRow:
    """Return a row in one style, for example to fade old values."""
    return tuple(Span(span.text, tone) for span in spans)


_ASCII_SYMBOLS = str.maketrans({
    "·": ".", "•": "*", "°": "o", "×": "x", "…": "~", "≈": "~", "△": "~", "▽": "v", "—": "-", "–": "-", "−": "-", "✓": "+", "✕": "x",
    "←": "<", "→": ">", "↑": "^", "↓": "v", "‹": "<", "›": ">", "▸": ">", "▶": ">", "●": "+", "○": "o", "◐": "*", "◌": "?",
    "◍": "!", "▲": "!", "‖": "=", "─": "-", "━": "=", "╸": "-", "═": "=", "│": "|", "┃": "#", "╎": ":", "╭": "+", "╮": "+",
    "╰": "+", "╯": "+", "┏": "#", "┓": "#", "┗": "#", "┛": "#", "█": "#", "▓": "=", "▒": "-", "░": ".", "▐": "|",
    "▕": "[", "▏": "]", "▎": "-", "▍": "-", "▌": "-", "▋": "#", "▊": "#", "▉": "#",
    "▁": " ", "▂": " ", "▃": " ", "▄": " ", "▅": " ", "▆": " ", "▇": " ",  # the ends of a scrollbar
})  # fmt: skip
_ASCII_STEPS = "_.-~=+*#"
_DOT_LEVELS = ((0x40, 0), (0x80, 0), (0x04, 1), (0x20, 1), (0x02, 2), (0x10, 2), (0x01, 3), (0x08, 3))  # braille dots


def to_ascii(text: str) -> str:
    """Return a text of equal width for a terminal with only ASCII; other characters, as in a node's text, become ``?``.

    The front ends call it when they print or paint; what builds rows knows only one set of symbols.
    """
    if text.isascii():
        return text
    text = text.translate(_ASCII_SYMBOLS)
    return text if text.isascii() else "".join(map(_to_ascii_grapheme, split_graphemes(text)))


def _to_ascii_grapheme(part: str) -> str:
    dots = ord(part[0]) - 0x2800
    if not 0 < dots < 0x100:
        return part if part.isascii() else " " if dots == 0 else "?" * measure_text(part)
    # The height of a curve in a cell: the mean of the highest dots of its two columns.
    tops = [max((level for bit, level in _DOT_LEVELS[side::2] if dots & bit), default=None) for side in (0, 1)]
    known = [top for top in tops if top is not None]
    return _ASCII_STEPS[-1] if dots == 0xFF else _ASCII_STEPS[sum(known) * 2 // len(known)]


_STATE_SYMBOLS: dict[Phase | NodeState | Severity, str] = {
    Phase.PLANNED: "○", Phase.PULLING: "◐", Phase.DROPPING_CACHES: "◐", Phase.CREATING: "◐", Phase.STARTING: "◐", Phase.LOADING: "◐",
    Phase.WARMING: "◐", Phase.UNPROVED: "▲", Phase.READY: "●", Phase.FAILED: "✕", Phase.STOPPING: "◐", Phase.STOPPED: "○", Phase.UNKNOWN: "◌",
}  # fmt: skip
_STATE_SYMBOLS |= {
    NodeState.OK: "●",
    NodeState.STARVED: "◍",
    NodeState.UNREACHABLE: "◌",
    NodeState.UNTRUSTED: "✕",
    NodeState.REFUSED: "✕",
    NodeState.UNKNOWN: "◌",
}
_STATE_SYMBOLS |= {
    Severity.GOOD: "●",
    Severity.NOTE: "·",
    Severity.WARNING: "▲",
    Severity.PROBLEM: "✕",
    Severity.UNKNOWN: "◌",
}


def get_state_symbol(state: Phase | NodeState | Severity) -> str:
    """Return the one-character symbol of a state."""
    return _STATE_SYMBOLS[state]


_SEVERITY_STYLES = {
    Severity.GOOD: TextStyle.GOOD,
    Severity.WARNING: TextStyle.ATTENTION,
    Severity.PROBLEM: TextStyle.BAD,
}


def get_severity_style(severity: Severity) -> TextStyle:
    return _SEVERITY_STYLES.get(severity, TextStyle.LABEL)


_SYMBOL_STYLES = {"●": TextStyle.GOOD, "✓": TextStyle.GOOD, "◐": TextStyle.ATTENTION, "▲": TextStyle.ATTENTION, "△": TextStyle.ATTENTION,
                  "◍": TextStyle.BAD, "✕": TextStyle.BAD, "◌": TextStyle.ATTENTION}  # fmt: skip
# what is painted in a line of text: the symbols of states, the parts of a bar, the words before a command or a source, and
# the level of a diagnostic
_PAINTED_PATTERN = lazy_pattern.compile(
    rf"(?P<symbol>[{''.join(_SYMBOL_STYLES)}])(?= )|(?P<accent>█+)|(?P<label>▒+|░+|^ *(?:then|try|source):|(?<=: )info(?=\[))"
    r"|(?P<bad>(?<=: )error(?=\[))|(?P<attention>(?<=: )warning(?=\[))"
)


def get_state_style(state: Phase | NodeState | Severity) -> TextStyle:
    return _SYMBOL_STYLES.get(get_state_symbol(state), TextStyle.LABEL)


def paint_line(line: str) -> TextRow:
    """Return a line of text as a row in the command line's palette."""
    spans, at = [], 0
    for found in _PAINTED_PATTERN.finditer(line):
        style = _SYMBOL_STYLES[found[0]] if found["symbol"] else TextStyle(found.lastgroup or "plain")
        spans += [Span(line[at : found.start()]), Span(found[0], style)]
        at = found.end()
    return (*spans, Span(line[at:]))


def render_severity(severity: Severity) -> Span:
    """Return the symbol of a severity and a blank, in its style."""
    return Span(f"{get_state_symbol(severity)} ", get_severity_style(severity))


_PROGRESS_BAR_CELLS = 10


def format_progress_bar(fraction: float) -> str:
    """Return a progress bar of ten cells for a share 0..1, in eighths of a cell."""
    eighths = round(min(1.0, max(0.0, fraction)) * _PROGRESS_BAR_CELLS * 8)
    partial = " ▎▎▍▌▋▊▉"[eighths % 8] if eighths % 8 else ""
    return "▕" + ("█" * (eighths // 8) + partial).ljust(_PROGRESS_BAR_CELLS) + "▏"


@dataclass(frozen=True, slots=True)
class ScrollPage:
    """Rows, and the row from which the scrollable part is shown. For a list, its ``entries`` start in row ``top``."""

    rows: tuple[TextRow, ...]
    further: int = 0
    top: int = 0
    entries: range = range(0)

    def entry_at(self, y: int) -> int | None:
        """Return the number of the list entry in a row."""
        return self.entries[y - self.top] if 0 <= y - self.top < len(self.entries) else None


def compute_visible_range(count: int, at: int, lines: int) -> range:
    """Return which of ``count`` entries are visible, with the one at ``at`` near the middle if possible."""
    first = max(0, min(at - lines // 2, count - lines))
    return range(first, min(count, first + lines))


def scroll_rows(
    rows: Sequence[TextRow], further: int, lines: int, by: tuple[str, str] = ("pgup", "pgdn")
) -> ScrollPage:
    """Return the rows from ``further`` on; if not all fit, the last row names the rest and the keys ``by`` that scroll."""
    if len(rows) <= lines or lines < 2:
        return ScrollPage(tuple(rows[: max(0, lines)]))
    shown = lines - 1
    first = max(0, min(further, len(rows) - shown))
    below = len(rows) - first - shown
    words = [f"↑ {first}"] if first else []
    words += [f"↓ {below} more"] if below else ["the end"]
    keys = " and ".join([*([by[0]] if first else []), *([by[1]] if below else [])])
    says = make_row(Span("   ".join(words), TextStyle.LABEL), Span(f"   {keys}", TextStyle.KEY))
    return ScrollPage((*rows[first : first + shown], says), first)
