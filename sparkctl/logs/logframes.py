"""What stands before a line in a file and is not the program's: stamps and names of docker, compose, kubectl, journald."""

from __future__ import annotations

import re
from collections.abc import Sequence

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
PREFIX_PATTERN = f"{_NAME}(?:{_STAMP})?+{_REST}"
_FRAME = re.compile(f"{_NAME}(?P<when>{_STAMP})?+{_REST}", re.ASCII)
_QUOTED = re.compile(r"(?:[ \t]{0,3}>[ \t]?)+|(?: {4}|\t)+")
# A colour whose escape character was lost on the way to a forum.
_LOST_COLOUR = re.compile(r"\[\d{1,3}(?:;\d{1,3}){0,3}m")


def split_prefix(line: str) -> tuple[str, str]:
    """Return the stamp, empty where there is none, and the program's own line."""
    if line[:1] == "(":  # vLLM's own, and most of the lines there are
        return "", line
    found = _FRAME.match(line)
    if found is None or not found.end():
        return "", line
    return (found["when"] or "").strip(), line[found.end() :]


def is_quoted(line: str) -> bool:
    """Tell whether a line may be one that somebody quoted or indented as a whole."""
    return _QUOTED.match(line) is not None


def find_common_quoting(lines: Sequence[str]) -> str:
    """Return what all of these lines have before them, as forums and mails quote: ``> ``, or four spaces and more."""
    told = [line for line in lines if line.strip(" \t>\r\n")]
    least, most = (min(told), max(told)) if told else ("", "")  # what these two share, all share
    alike = next((at for at, (one, other) in enumerate(zip(least, most, strict=False)) if one != other), len(least))
    found = _QUOTED.match(least[:alike])
    if found is None or (">" not in found[0] and len(told) < 2):  # one line alone may be a piece of source code
        return ""
    return found[0]


def strip_quoting(line: str, quoting: str) -> str:
    """Return a line without what `shared_quoting` found before every one."""
    if not quoting:
        return line
    return line.removeprefix(quoting) if line.startswith(quoting) else line.removeprefix(quoting.rstrip())


def strip_broken_colour_codes(line: str) -> str:
    """Return a line without what is left of colours (``[0;36m``) where a paste lost the escape characters.

    Whoever colours a part of a line sets the colour back with a code that begins with 0.
    """
    return _LOST_COLOUR.sub("", line) if "[0" in line else line
