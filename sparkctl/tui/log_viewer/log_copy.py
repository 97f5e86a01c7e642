"""Log lines for a clipboard or a file."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from textual.selection import Selection

from sparkctl.logs.buffer import BufferedLine, LogBuffer
from sparkctl.logs.logorder import LineOrder
from sparkctl.tui.log_viewer.line_layout import LogLayout

CLIPBOARD = 74_994  # bytes: as base64 just below the 100,000 at which terminals give up
_SLICE = 256


def extract_selected_text(layout: LogLayout, selection: Selection) -> tuple[str, bool]:
    """Return the selected text and whether it is all of it; a clipboard takes only so much.

    The selection's rows are the serial numbers of shown lines, its columns characters of their text.
    """
    rows = layout.rows
    first = 0 if selection.start is None else max(0, selection.start.y - rows.dropped)
    last = len(rows) - 1 if selection.end is None else min(len(rows) - 1, selection.end.y - rows.dropped)
    parts: list[str] = []
    size = 0
    for index in range(first, last + 1):
        line = layout.lines(index, 1)[0]
        span = selection.get_span(rows.dropped + index)
        start, stop = span if span is not None else (0, -1)
        parts.append(line.text[start:] if stop < 0 else line.text[start:stop])
        size += len(parts[-1].encode()) + 1
        if size > CLIPBOARD:
            return "\n".join(parts[:-1]), False
    return "\n".join(parts), True


async def save_lines(book: LogBuffer, rows: LineOrder, path: Path) -> str:
    """Write the lines to a file that is not there yet, as ``TIME [SOURCE] TEXT``; return in words how that went."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return f"not saved: {path.name} is there already"
    except OSError as broken:
        return f"not saved: {path}: {broken.strerror or broken}"
    count = 0
    try:
        with os.fdopen(file, "w", encoding="utf-8") as out:
            key, last = (rows.key(0), rows.key(len(rows) - 1)) if len(rows) else ((0, 0), (0, -1))
            while key <= last and (index := rows.index(key)) < len(rows):
                keys = [rows.key(at) for at in range(index, min(len(rows), index + _SLICE))]
                lines = [line for each in keys if each <= last and (line := book.line(each[1])) is not None]
                out.writelines(f"{_format_saved_line(book, line)}\n" for line in lines)
                count += len(lines)
                key = keys[-1][0], keys[-1][1] + 1
                await asyncio.sleep(0)
    except OSError as broken:
        return f"only the first lines are in {path}: {broken.strerror or broken}"
    return f"{count:,} {'line' if count == 1 else 'lines'} in {path}"


def _format_saved_line(book: LogBuffer, line: BufferedLine) -> str:
    source = f"{book.sources[line.source]} " if len(book.sources) > 1 else ""
    return f"{line.when} {source}{line.text}"
