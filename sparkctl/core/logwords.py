"""What the words of a line give away, whatever engine wrote it: requests, stops, durations, and what sounds bad."""

from __future__ import annotations

import re

from sparkctl.model.verdict import Cause

# What engines print of every good start: optional models they lack, and their settings with words like "error" in them.
_HARMLESS = re.compile(r"^(?:Ignore import error|server_args=|non-default args|Initializing a V1)")
_BAD = ("error", "exception", "fatal", "failed", "cannot", "could not", "no such", "denied", "killed")
_SOUNDS_BAD = re.compile(r"\b(?:" + "|".join(_BAD) + r")\b", re.IGNORECASE)
TOOK = re.compile(
    r"(?P<what>.{3,120}?)[ ,.]{1,20}+(?:took|takes|elapsed|finished in)[ =:]+(?P<seconds>\d+(?:\.\d+)?) ?s"
)
# uvicorn's word on a request. A path is a client's text: nothing is looked for in it.
# Answered well, and nobody but a client of an engine at work asks for that:
_USED = r"POST /v1/[^ \"]* HTTP/[0-9.]+\" 200"
_REQUEST = 'INFO: +[^ ]{1,64} - "'
USED = _REQUEST + _USED
# By anybody, us and Prometheus among them:
ASKED = rf"{_REQUEST}(?!{_USED})[A-Z]{{3,7}} [^\"]* HTTP/[0-9.]+\" [0-9]{{3}}"
ANSWERED = re.compile(f"(?P<used>{USED})|{ASKED}")
# How a server ends that was told to: uvicorn's words and the engines' own.
STOPS = (
    *("Shutting down FastAPI HTTP server", "Shutdown initiated", "SIGTERM received", "Application shutdown complete"),
    *("INFO:     Shutting down", "INFO:     Application shutdown complete", "Received SIGTERM"),
)
REFUSED_REQUEST = re.compile(r"validation errors? for \w*(?:Request|Params?|Message)\b")  # a client's
OPENS = ("Traceback (most recent call last)", "usage: ")
# What only a start can say: after readiness it is of a start that came later.
OF_A_START = frozenset((
    Cause.UNKNOWN_FLAG, Cause.BAD_VALUE, Cause.MODEL_NOT_FOUND, Cause.MODEL_FILES, Cause.MODEL_UNSUPPORTED, Cause.MODEL_GATED,
    Cause.HUB_UNREACHABLE, Cause.TRUST_REMOTE_CODE, Cause.TRUNCATED_WEIGHTS, Cause.IMAGE_MISSING, Cause.STARTUP_MEMORY_CHECK,
    Cause.WEIGHTS_DO_NOT_FIT, Cause.MEMORY_CHANGED_DURING_START, Cause.IMAGE_ARCH, Cause.GPU_RUNTIME_MISSING,
    Cause.DRIVER_MISMATCH,
))  # fmt: skip
ERRORS = frozenset({"ERROR", "CRITICAL"})


def tells_time(text: str) -> bool:
    """Tell cheaply whether `TOOK` may match."""
    return " took " in text or "elapsed" in text or " takes " in text or "finished in " in text


def sounds_bad(text: str) -> bool:
    """Tell whether a line that no rule knows may be an error.

    Cheap for most: a pattern that ignores case takes ten times as long as looking for the words.
    """
    low = text.lower()
    for word in _BAD:
        if word in low:
            return _SOUNDS_BAD.search(text) is not None and not _HARMLESS.match(text)
    return False
