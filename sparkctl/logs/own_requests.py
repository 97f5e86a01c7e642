"""Marks our own requests to an engine with a query, and recognizes them in the access lines of its log.

Polling an engine's health, metrics and tokens fills the log that is read here. Addresses do not identify a client (a
Prometheus on the Spark comes from 127.0.0.1, too), so every path that we request ends in ``by=sparkctl``; all known engines
ignore an unused query.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sparkctl.model.text.log_line import LogLine
from sparkctl.model.text.sanitize import sanitize_line

REQUEST_MARK = "by=sparkctl"
_REQUEST_TARGET = rf"/[^\s\"?]*\?(?:[^\s\"]*&)?{REQUEST_MARK}"
_CLIENT_ADDRESS = r"[0-9A-Za-z.:\[\]%_-]*"
_OWN_ACCESS_LINE = re.compile(
    rf"(?:INFO:\s+)?{_CLIENT_ADDRESS} - (?:- \[[^\]]*\] )?\"(?:GET|POST) {_REQUEST_TARGET} HTTP/\d(?:\.\d)?\" \d{{3}}\b"  # uvicorn; NCSA
    rf"|\[GIN\] [^\"]*\| (?:GET|POST) +\"{_REQUEST_TARGET}\"\s*$"  # Ollama
)


def mark_request_path(path: str) -> str:
    """Return the path as we ask for it."""
    return f"{path}{'&' if '?' in path else '?'}{REQUEST_MARK}"


def is_own_request(text: str) -> bool:
    """Tell whether a line (as the log has it, or prepared) is the access line of a question of ours, and nothing else."""
    if REQUEST_MARK not in text:
        return False
    from sparkctl.engines.line_preparer import strip_log_prefix

    return _OWN_ACCESS_LINE.match(strip_log_prefix(sanitize_line(text).lstrip())[1]) is not None


def drop_own_requests(lines: Sequence[LogLine]) -> tuple[LogLine, ...]:
    """Return the lines without those of our own questions; the numbers stay the log's own."""
    if not any(REQUEST_MARK in line.text for line in lines):
        return tuple(lines)
    return tuple(line for line in lines if not is_own_request(line.text))
