"""What stands before a line in a file and is not the program's: stamps and names of docker, compose, kubectl, journald."""

from __future__ import annotations

import re

_NAME = (
    r"(?:\[[a-z]+/[\w.-]{1,99}/[\w.-]{1,99}\] "  # kubectl --prefix: [pod/NAME/CONTAINER]
    r"|\w[\w.-]{0,63} +\| "  # compose: engine-1  | text
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]{1,64} [\w./@-]{1,64}(?:\[\d+\])?: "  # journald, syslog
    r")?+"
)
_STAMP = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d) "
_REST = (
    r"(?:std(?:out|err) (?:[FP] )?|[\w.-]{1,64} [\w./@-]{1,64}\[\d+\]: )?+"  # kubernetes' stream, journald short-iso
)
# In this order, each at most once. All of it is ASCII, so that the same words find it in bytes.
FRAME = f"{_NAME}(?:{_STAMP})?+{_REST}"
_FRAME = re.compile(f"{_NAME}(?P<when>{_STAMP})?+{_REST}", re.ASCII)
# A colour whose escape character was lost on the way to a forum.
_LOST_COLOUR = re.compile(r"\[\d{1,3}(?:;\d{1,3}){0,3}m")


def unframe(line: str) -> tuple[str, str]:
    """Return the stamp, empty where there is none, and the program's own line."""
    if line[:1] == "(":  # vLLM's own, and most of the lines there are
        return "", line
    found = _FRAME.match(line)
    if found is None or not found.end():
        return "", line
    return (found["when"] or "").strip(), line[found.end() :]


def without_lost_colours(line: str) -> str:
    """Return a line without what is left of colours (``[0;36m``) where a paste lost the escape characters.

    Whoever colours a part of a line sets the colour back with a code that begins with 0.
    """
    return _LOST_COLOUR.sub("", line) if "[0" in line else line
