"""The status line below a log: mode, number of lines, search, filter and settings."""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len
from textual.content import Content
from textual.widget import Widget

from sparkctl.model.text.sanitize import truncate_text


@dataclass(frozen=True, slots=True, kw_only=True)
class LogViewState:
    """What the status line shows.

    ``shown`` of ``total`` lines pass the filter and the choice of source; ``new`` arrived since the reader paused;
    ``hidden`` lines are requests of sparkctl itself, which the view leaves out.

    ``found`` is the number of matches, None without a search; ``at`` counts them from 1 and is None before the first jump.
    ``finding`` and ``narrowing`` are the progress (0 to 1) of search and filter, None when done. ``fault`` is the error of
    a pattern, ``note`` a short message. ``was_waited_for``: the first lines had enough time to arrive.
    """

    is_following: bool = True
    new: int = 0
    total: int = 0
    hidden: int = 0
    shown: int = 0
    find: str = ""
    found: int | None = None
    at: int | None = None
    finding: float | None = None
    only: str = ""
    narrowing: float | None = None
    fault: str | None = None
    is_wrapped: bool = False
    has_times: bool = False
    has_numbers: bool = False
    left: int = 0
    source: str | None = None
    sources: int = 1
    trouble: str | None = None
    note: str | None = None
    was_waited_for: bool = False


_MAX_PATTERN_COLUMNS = 24
_GAP = "   "


@dataclass(frozen=True, slots=True)
class StatusSegment:
    """A part of the line. The parts of the highest ``rank`` are left out first where the line is too narrow."""

    text: str
    style: str = ""
    rank: int = 0


def build_mode_segments(state: LogViewState, *, ascii_only: bool = False) -> list[StatusSegment]:
    """Return the mode and the number of lines, which are always shown."""
    if state.is_following:
        mode = [StatusSegment("> following" if ascii_only else "● following", "$text-success")]
    else:
        new = f" +{state.new:,} new" if state.new else ""
        mode = [StatusSegment(("= paused" if ascii_only else "‖ paused") + new, "bold $text-warning")]
    if not state.total:
        count = "no line yet" if state.was_waited_for else "reading ..."
    elif state.hidden and state.shown == state.total:
        count = f"{state.total:,} of {state.total + state.hidden:,}, own questions hidden"
    elif state.shown == state.total:
        count = f"{state.total:,} {'line' if state.total == 1 else 'lines'}"
    else:
        count = f"{state.shown:,} of {state.total:,}"
    return [*mode, StatusSegment(count, "$foreground 75%", rank=4)]


def build_setting_segments(state: LogViewState, *, ascii_only: bool = False) -> list[StatusSegment]:
    """Return the search, the filter, the source and the settings."""
    found: list[StatusSegment] = []
    if state.find:
        found.append(
            StatusSegment(f"find {truncate_text(state.find, _MAX_PATTERN_COLUMNS)}", "$foreground 75%", rank=5)
        )
        if state.found is not None:
            found.append(StatusSegment(_format_match_count(state), "bold $text-primary", rank=1))
    if state.only:
        share = "" if state.narrowing is None else f" {state.narrowing:.0%}"
        found.append(
            StatusSegment(f"only {truncate_text(state.only, _MAX_PATTERN_COLUMNS)}{share}", "$text-primary", rank=2)
        )
    if state.source is not None:
        found.append(StatusSegment(state.source, "$text-primary", rank=3))
    elif state.sources > 1:
        found.append(StatusSegment(f"{state.sources} by time", "$foreground 75%", rank=6))
    if state.left:
        found.append(StatusSegment(f"{'>' if ascii_only else '→'} {state.left}", "$foreground 75%", rank=6))
    set_to = (("wrap", state.is_wrapped), ("times", state.has_times), ("numbers", state.has_numbers))
    settings = [name for name, is_on in set_to if is_on]
    found += [StatusSegment(name, "$foreground 75%", rank=7) for name in settings]
    if state.trouble is not None:
        found.append(StatusSegment("! in memory only" if ascii_only else "▲ in memory only", "$text-warning", rank=2))
    return found


def _format_match_count(state: LogViewState) -> str:
    share = "" if state.finding is None else f" {state.finding:.0%}"
    if not state.found:
        return f"no match{share}" if not share else share.strip()
    return f"{state.at if state.at is not None else '—'}/{state.found:,}{share}"


def format_status_line(state: LogViewState, width: int, *, ascii_only: bool = False) -> Content:
    """Return the whole line; a note, or the error of a pattern, takes the place of the settings."""
    left = build_mode_segments(state, ascii_only=ascii_only)
    right = build_setting_segments(state, ascii_only=ascii_only)
    if state.fault is not None:
        right = [StatusSegment(f"{'!' if ascii_only else '▲'} {state.fault}: filters nothing", "$text-error")]
    elif state.note is not None:
        right = [StatusSegment(state.note, "bold"), *(piece for piece in right if piece.text != state.note)]
    room = width - 2
    while _measure_segments(left) + _measure_segments(right) + len(_GAP) > room:
        least = max((piece for piece in (*left, *right)), key=lambda piece: piece.rank)
        if least.rank == 0:
            break
        (left if least in left else right).remove(least)
    over = _measure_segments(left) + _measure_segments(right) + len(_GAP) - room
    if right and right[0].rank == 0 and over > 0:  # a note or an error
        right[0] = StatusSegment(truncate_text(right[0].text, max(1, len(right[0].text) - over)), right[0].style)
    space = " " * max(1, room - _measure_segments(left) - _measure_segments(right))
    return Content.assemble(" ", *_join_segments(left), space, *_join_segments(right), " ")


def _measure_segments(pieces: list[StatusSegment]) -> int:
    return sum(cell_len(piece.text) for piece in pieces) + len(_GAP) * max(0, len(pieces) - 1)


def _join_segments(pieces: list[StatusSegment]) -> list[str | tuple[str, str]]:
    found: list[str | tuple[str, str]] = []
    for piece in pieces:
        found += [_GAP] if found else []
        found.append((piece.text, piece.style))
    return found


class LogStatusLine(Widget):
    """Shows a `LogViewState` on one line."""

    DEFAULT_CSS = """
    LogStatusLine { height: 1; width: 1fr; background: $foreground 6%; }
    """

    def __init__(self, *, ascii_only: bool = False, id: str | None = None) -> None:
        super().__init__(id=id)
        self._ascii_only = ascii_only
        self._state = LogViewState()

    def show_state(self, state: LogViewState) -> None:
        """Show another state."""
        if state != self._state:
            self._state = state
            self.refresh()

    def render(self) -> Content:
        """Return the line."""
        return format_status_line(self._state, self.size.width, ascii_only=self._ascii_only)
