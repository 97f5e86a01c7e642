"""Sanitise text from a node before it is shown: the one gate for it.

A log line, a container name, an error of a foreign program: all of it is data. It is never markup, and none of its
control characters reaches a terminal: no colour, title, clipboard write or bidi override.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

# CSI; OSC, DCS, SOS, PM and APC strings (ended by BEL, ST or the end of the line); other escapes. 7 and 8 bit forms.
ESCAPE_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)


def sanitize_line(text: str) -> str:
    """Return ``text`` as one printable line: escape sequences removed, tabs as spaces, other controls visible.

    Controls, bidi overrides, zero-width and unassigned characters become U+FFFD, so that they are not hidden. Joiners
    inside emoji are lost. Idempotent.
    """
    if text.isprintable():
        return text
    text = ESCAPE_SEQUENCE.sub("", text).replace("\t", "    ").rstrip("\r\n")
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else (" " if unicodedata.category(char) == "Zs" else "\N{REPLACEMENT CHARACTER}")
        for char in text
    )


def sanitize_lines(text: str) -> list[str]:
    """Return the printable lines of a longer text, split at newlines (carriage returns count as newlines)."""
    return [sanitize_line(line) for line in re.split(r"\r\n|[\r\n]", text)]


def truncate_text(text: str, width: int) -> str:
    """Return ``text`` cut to ``width`` characters, with an ellipsis at the cut."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


_SURROGATE_PATTERN = re.compile(r"\\u[dD][89a-fA-F]")


def load_json(text: str | bytes) -> Any:
    """Return JSON that a node wrote. A lone surrogate, which no terminal, file or URL can hold, becomes a question
    mark.

    Raises ValueError if it is not JSON, or is nested too deeply.
    """
    if isinstance(text, bytes):
        text = text.decode()
    try:
        data = json.loads(text)
        if _SURROGATE_PATTERN.search(text):
            data = json.loads(json.dumps(data, ensure_ascii=False).encode("utf-8", "replace"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return data


def load_json_map(text: str | bytes | None) -> dict[str, Any] | None:
    """Return a JSON object that anybody may have written, None for anything else; see `load_json`."""
    try:
        found = load_json(text or "")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
