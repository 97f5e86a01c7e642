"""What the words of a line give away, whatever engine wrote it: requests, stops, durations, and what sounds bad."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sparkctl.model.verdict import FailureCause

# What engines print of every good start: optional models they lack, and their settings with words like "error" in them.
_HARMLESS_LINE = re.compile(r"^(?:Ignore import error|server_args=|non-default args|Initializing a V1)")
_ERROR_WORDS = ("error", "exception", "fatal", "failed", "cannot", "could not", "no such", "denied", "killed")
# Matched at the start of a line: Python's warnings, and the warnings of log formats that no engine uses.
_WARNING_LINE = re.compile(
    r"(?:[^\s:]{1,300}:\d{1,7}: )?\w{0,40}Warning: "
    r"|(?:(?!rror|RROR|atal|ATAL).){0,60}?(?<![\w-])(?:WARN|WARNING|[Ww]arning(?=:))(?![\w-])"
    r"|\[[\d ,:.-]{10,40} W [\d ]{1,20}\]"
    r"|(?:\[\w{1,16}\]:? ?)?\[?W ?\d{3,4} \d\d:"
    r"|.{0,40}?\[W\]"
)
_ERROR_WORD_PATTERN = re.compile(r"\b(?:" + "|".join(_ERROR_WORDS) + r")\b", re.IGNORECASE)
DURATION_PATTERN = re.compile(
    r"(?P<what>.{3,120}?)[ ,.]{1,20}+(?:took|takes|elapsed|finished in)[ =:]+(?P<seconds>\d+(?:\.\d+)?) ?s"
)
# uvicorn's word on a request. A path is a client's text: nothing is looked for in it.
# Answered well, and nobody but a client of an engine at work asks for that:
_USED_REQUEST = r"POST /v1/[^ \"]* HTTP/[0-9.]+\" 200"
_REQUEST_PREFIX = 'INFO: +[^ ]{1,64} - "'
INFERENCE_REQUEST = _REQUEST_PREFIX + _USED_REQUEST
# By anybody, us and Prometheus among them:
OTHER_REQUEST = rf"{_REQUEST_PREFIX}(?!{_USED_REQUEST})[A-Z]{{3,7}} [^\"]* HTTP/[0-9.]+\" [0-9]{{3}}"
ACCESS_LINE = re.compile(f"(?P<used>{INFERENCE_REQUEST})|{OTHER_REQUEST}")
# Printed only after a request to stop, at any time: vLLM's, SGLang's and Python's own words.
STOP_REQUESTS = (
    *("API server: shutdown triggered", "SIGTERM received", "Signal SIGTERM received", "Received SIGTERM"),
    *("KeyboardInterrupt", "Received KeyboardInterrupt"),
)
# Printed at an orderly stop. Before it is ready, a server prints some of these after a failure, too.
SHUTDOWN_PHRASES = (
    *("Shutting down FastAPI HTTP server", "Shutdown initiated", "Application shutdown complete"),
    *("INFO:     Shutting down", "INFO:     Application shutdown complete"),
    "srv    operator(): operator(): cleaning up before exit",
)
REFUSED_REQUEST = re.compile(r"validation errors? for \w*(?:Request|Params?|Message)\b")  # a client's
TRACEBACK_STARTS = ("Traceback (most recent call last)", "usage: ")
# What only a start can say: after readiness it is of a start that came later.
STARTUP_ONLY_CAUSES = frozenset(
    (
        FailureCause.UNKNOWN_FLAG,
        FailureCause.BAD_VALUE,
        FailureCause.MODEL_NOT_FOUND,
        FailureCause.MODEL_FILES,
        FailureCause.MODEL_UNSUPPORTED,
        FailureCause.MODEL_GATED,
        FailureCause.HUB_UNREACHABLE,
        FailureCause.TRUST_REMOTE_CODE,
        FailureCause.TRUNCATED_WEIGHTS,
        FailureCause.IMAGE_MISSING,
        FailureCause.STARTUP_MEMORY_CHECK,
        FailureCause.WEIGHTS_DO_NOT_FIT,
        FailureCause.MEMORY_CHANGED_DURING_START,
        FailureCause.IMAGE_ARCH,
        FailureCause.GPU_RUNTIME_MISSING,
        FailureCause.DRIVER_MISMATCH,
    )
)
ERROR_LEVELS = frozenset({"ERROR", "CRITICAL"})
_LEVELS_BELOW_ERROR = frozenset({"DEBUG", "INFO", "WARNING"})
_SOURCE_CODE_PREFIXES = ("    ", '  File "')  # a traceback shows source code, which quotes what was never said


def may_hold_duration(text: str) -> bool:
    """Tell cheaply whether `DURATION_PATTERN` may match."""
    return " took " in text or "elapsed" in text or " takes " in text or "finished in " in text


def is_below_error(level: str | None) -> bool:
    """Tell whether a program calls a line something less than an error by its ``level``."""
    return level in _LEVELS_BELOW_ERROR


def looks_like_error(text: str) -> bool:
    """Tell whether a line that no rule knows may be an error; what calls itself a warning is none.

    Cheap for most: a pattern that ignores case takes ten times as long as looking for the words.
    """
    low = text.lower()
    for word in _ERROR_WORDS:
        if word in low:
            if text.startswith(_SOURCE_CODE_PREFIXES) or _HARMLESS_LINE.match(text) or _WARNING_LINE.match(text):
                return False
            return _ERROR_WORD_PATTERN.search(text) is not None
    return False


_SOURCE_NAME = (
    r"(?:\[[a-z]+/[\w.-]{1,99}/[\w.-]{1,99}\] "  # kubectl --prefix: [pod/NAME/CONTAINER]
    r"|\w[\w.-]{0,63} +\| "  # compose: engine-1  | text
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]{1,64} [\w./@-]{1,64}(?:\[\d+\])?: "  # journald, syslog
    r")?+"
)
_TIMESTAMP = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d) "
_STREAM_NAME = (
    r"(?:std(?:out|err) (?:[FP] )?|[\w.-]{1,64} [\w./@-]{1,64}\[\d+\]: )?+"  # kubernetes' stream, journald short-iso
)
# In this order, each at most once. All of it is ASCII, so that the same words find it in bytes.
PREFIX_PATTERN = f"{_SOURCE_NAME}(?:{_TIMESTAMP})?+{_STREAM_NAME}"
_PREFIX_MATCHER = re.compile(f"{_SOURCE_NAME}(?P<when>{_TIMESTAMP})?+{_STREAM_NAME}", re.ASCII)
_QUOTING_PATTERN = re.compile(r"(?:[ \t]{0,3}>[ \t]?)+|(?: {4}|\t)+")
# A colour whose escape character was lost on the way to a forum.
_BROKEN_COLOUR_CODE = re.compile(r"\[\d{1,3}(?:;\d{1,3}){0,3}m")


def split_prefix(line: str) -> tuple[str, str]:
    """Return the stamp, empty where there is none, and the program's own line."""
    if line[:1] == "(":  # vLLM's own, and most of the lines there are
        return "", line
    found = _PREFIX_MATCHER.match(line)
    if found is None or not found.end():
        return "", line
    return (found["when"] or "").strip(), line[found.end() :]


def is_quoted(line: str) -> bool:
    """Tell whether a line may be one that somebody quoted or indented as a whole."""
    return _QUOTING_PATTERN.match(line) is not None


def find_common_quoting(lines: Sequence[str]) -> str:
    """Return what all of these lines have before them, as forums and mails quote: ``> ``, or four spaces and more."""
    told = [line for line in lines if line.strip(" \t>\r\n")]
    least, most = (min(told), max(told)) if told else ("", "")  # what these two share, all share
    alike = next((at for at, (one, other) in enumerate(zip(least, most, strict=False)) if one != other), len(least))
    found = _QUOTING_PATTERN.match(least[:alike])
    if found is None or (">" not in found[0] and len(told) < 2):  # one line alone may be a piece of source code
        return ""
    return found[0]


def strip_quoting(line: str, quoting: str) -> str:
    """Return a line without what `find_common_quoting` found before every one."""
    if not quoting:
        return line
    return line.removeprefix(quoting) if line.startswith(quoting) else line.removeprefix(quoting.rstrip())


def strip_broken_colour_codes(line: str) -> str:
    """Return a line without what is left of colours (``[0;36m``) where a paste lost the escape characters.

    Whoever colours a part of a line sets the colour back with a code that begins with 0.
    """
    return _BROKEN_COLOUR_CODE.sub("", line) if "[0" in line else line
