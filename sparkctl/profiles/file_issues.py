"""Issues in a file that the operator wrote: the position of each, all of them at once."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from sparkctl.errors import InvalidInput
from sparkctl.files import open_regular_file
from sparkctl.model.text.sanitize import sanitize_line, truncate_text

_MAX_BYTES = 1 << 20  # bytes of a file that are read to show a line of it
_NAME_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True, order=True)
class FilePosition:
    """A position in a file, lines and columns counted from 1; without a line it is a flag (``--set port=x``)."""

    file: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class FileIssue:
    """One issue. As text: ``file:line:column: what; did you mean ...``, one printable line."""

    place: FilePosition
    message: str

    def __str__(self) -> str:
        from sparkctl.model.text.secrets import redact  # imported late: a good file needs no masking

        return redact(sanitize_line(f"{self.place}: {self.message}"))


class InvalidFile(InvalidInput):
    """A file, or a flag that changes its content, has issues. The message has one line for each."""

    def __init__(self, faults: Iterable[FileIssue], hint: str | None = None) -> None:
        self.faults = sort_issues(faults)
        super().__init__("\n".join(map(str, self.faults)), hint)


def sort_issues(faults: Iterable[FileIssue]) -> tuple[FileIssue, ...]:
    """Return the issues without duplicates: files in the order given, positions from top to bottom."""
    unique = list(dict.fromkeys(faults))
    files = {fault.place.file: index for index, fault in reversed(list(enumerate(unique)))}
    return tuple(
        sorted(unique, key=lambda f: (files[f.place.file], f.place.line or 0, f.place.column or 0)),
    )


def read_source_lines(places: Iterable[FilePosition]) -> dict[FilePosition, str]:
    """Return the source line of each position that has one; a tab counts as one space so that columns match.

    A line with a secret's name is left out, and anything else that looks like a secret is masked.
    """
    from sparkctl.model.text.secrets import is_secret_name, redact

    found: dict[FilePosition, str] = {}
    files: dict[str, list[str]] = {}
    for place in places:
        if place.line is None:
            continue
        if place.file not in files:
            try:
                with open_regular_file(place.file) as file:
                    files[place.file] = file.read(_MAX_BYTES).decode("utf-8", "replace").splitlines()
            except OSError:
                files[place.file] = []
        lines = files[place.file]
        if place.line <= len(lines) and not any(map(is_secret_name, _NAME_WORD.findall(lines[place.line - 1]))):
            found[place] = sanitize_line(redact(lines[place.line - 1].replace("\t", " ")))
    return found


def quote_source(text: object) -> str:
    """Return a piece of the file for a message: printable, short, secrets masked, in backticks."""
    from sparkctl.model.text.secrets import redact

    return f"`{redact(truncate_text(sanitize_line(str(text)), 60))}`"
