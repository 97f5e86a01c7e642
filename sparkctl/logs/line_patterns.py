"""Patterns of log lines that are common to all engines: requests, stops, durations, errors, prefixes, and
the exceptions at the end of tracebacks; and our own requests, which carry a mark.

Polling an engine's health, metrics and tokens fills the log that is read here. Addresses do not identify a client (a
Prometheus on the Spark comes from 127.0.0.1, too), so every path that we request ends in ``by=sparkctl``; all known engines
ignore an unused query.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field
from datetime import UTC, datetime
from functools import lru_cache

from sparkctl.model.launch_plan import REQUEST_MARK
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text import lazy_pattern
from sparkctl.model.text.log_line import LogLine, join_texts
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.verdict import FailureCause

# Lines of every good start: missing optional models, and settings with words like "error" in them.
_HARMLESS_LINE = lazy_pattern.compile(
    r"^(?:Traceback |frame #\d+: "
    r"|The above exception was|During handling of the above|Ignore import error|server_args=|non-default args|Initializing a V1"
    r"|\[ {0,8}\d{1,7}\.\d{1,6}\] "  # the kernel's: no program ended by what no rule knows
    r"|fatal: not a git repository"
    r"|--- Logging error ---|(?:error: )?XDG_RUNTIME_DIR |bash: (?:cannot set terminal process group|no job control)"  # a shell without a terminal
    r"|(?:ggml_backend_load_best|load_backend): |\[c10d\] The client socket cannot be initialized"  # what they try one by one
    r"|(?:[Ff]ailed|[Ee]rror(?:ed|s)?) (?:requests?|rate|prompts?|samples|count)\b[^:=]{0,30}[:=] {0,60}[\d.,]{1,20} ?%?\s*$"  # a benchmark's table
    # a request that TGI's or TEI's router refused
    r"|(?:\d{4}-\d\d-\d\dT[\d:.]{8,18}Z {1,3})?(?:ERROR )?"
    r"(?:(?:compat_)?generate(?:_stream)?|(?:chat_)?completions|embed(?:_\w{1,8})?|rerank|predict)\{\w{1,30}="
    r"|Error (?:retrieving safetensors: |parsing tool call|in extracting tool call))"
)
_KNOWN_TEXTS = 4096  # an engine that restarts again and again repeats its lines
_ERROR_WORDS = ("error", "exception", "fatal", "failed", "cannot", "could not", "no such", "denied", "killed")
# Matched at the start of a line: Python's warnings, and the warnings of log formats that no engine uses.
_WARNING_LINE = lazy_pattern.compile(
    r"(?:[^\s:]{1,300}:\d{1,7}: )?\w{0,40}Warning: "
    r"|(?:(?!rror|RROR|atal|ATAL).){0,60}?(?<![\w-])(?:WARN|WARNING|[Ww]arning(?=:))(?![\w-])"
    r"|\[[\d ,:.-]{10,40} W [\d ]{1,20}\]"
    r"|(?:\[\w{1,16}\]:? ?)?\[?W ?\d{3,4} \d\d:"
    r"|.{0,40}?\[(?:W|warn|notice)\]"
    r"|\S{1,80}:\d{1,9}:\d{1,9} \[\d{1,3}\] NCCL INFO "
)
_ERROR_WORD_PATTERN = lazy_pattern.compile(r"\b(?:" + "|".join(_ERROR_WORDS) + r")\b", re.IGNORECASE)
# A count of none, as benchmarks print: "Failed requests:    0", "0 errors", "errors=0, killed=0". Words after it are a message.
_NO_ERRORS_PATTERN = lazy_pattern.compile(
    r"\b(?:failed|errors|exceptions|killed)\b[^:=\d]{0,40}[:=] {0,60}0\s*(?:$|[,;)|])"
    r"|\b(?:error|exception)(?: counts?| rate)?[:=] {0,60}0\s*$"
    r"|^[^:]{0,60}\b(?:0|no) (?:failed|errors|exceptions)\b|\b0 (?:failed|errors|exceptions)\b|^\W{0,9}no (?:error|exception)s?\b",
    re.IGNORECASE,
)
DURATION_PATTERN = lazy_pattern.compile(
    r"(?P<what>.{3,120}?)[ ,.]{1,20}+(?:took|takes|elapsed|finished in)[ =:]+(?P<seconds>\d+(?:\.\d+)?) ?s"
)
TWO_WRITERS = lazy_pattern.compile(r"\bpid=|\b(?:INFO|WARNING|ERROR) \d")  # what two processes wrote into one line
DURATION_WORDS = (" took ", "elapsed", " takes ", "finished in ")
# uvicorn's access line. The path is a client's text: nothing is searched in it.
# Successful, and only clients of an engine at work send these:
_USED_REQUEST = r"POST /v1/[^ \"]* HTTP/[0-9.]+\" 200"
_REQUEST_PREFIX = 'INFO: +[^ ]{1,64} - "'
INFERENCE_REQUEST = _REQUEST_PREFIX + _USED_REQUEST
# By anybody, including us and Prometheus:
OTHER_REQUEST = rf"{_REQUEST_PREFIX}(?!{_USED_REQUEST})[A-Z]{{3,7}} [^\"]* HTTP/[0-9.]+\" [0-9]{{3}}"
# Answered with an error of the server's own: it was up before.
_FAILED_REQUEST = r"POST /v1/[^ \"]* HTTP/[0-9.]+\" 50[0-4]"
# gin's access line, of servers in Go (Ollama): [GIN] 2025/04/16 - 00:47:10 | 200 |  3.68s | 127.0.0.1 | POST "/api/chat"
_GIN_REQUEST = (
    r"\[GIN\] [\d/]{10} - [\d:]{8} \| 200 \|[^|]{1,40}\|[^|]{1,60}\| POST {1,8}\"/(?:v1/|api/(?:generate|chat|embed))"
)
ACCESS_LINE_STARTS = ("INFO: ", "[GIN] ")
ACCESS_LINE = lazy_pattern.compile(
    f"(?P<used>{INFERENCE_REQUEST}|{_GIN_REQUEST})|(?P<failed>{_REQUEST_PREFIX}{_FAILED_REQUEST})|{OTHER_REQUEST}"
)
# Printed only after a request to stop, at any time: lines of vLLM, SGLang and Python.
STOP_REQUESTS = (
    *("API server: shutdown triggered", "SIGTERM received", "Signal SIGTERM received", "Received SIGTERM"),
    *("KeyboardInterrupt", "Received KeyboardInterrupt", "slurmstepd: error: *** JOB ", "slurmstepd: error: *** STEP "),
    "Received second interrupt, terminating immediately",  # llama.cpp's
)
FORCED_STOP = " DUE TO "  # of Slurm's: a time limit, a node that failed, another job; without it somebody asked for it
# uvicorn starts its program again, after an edit.
RELOADS = ("WARNING:  StatReload detected ", "WARNING:  WatchFiles detected ")
# Printed at an orderly stop. Before it is ready, a server prints some of these after a failure, too.
SHUTDOWN_PHRASES = (
    *("Shutting down FastAPI HTTP server", "Shutdown initiated", "Application shutdown complete"),
    *("INFO:     Shutting down", "INFO:     Application shutdown complete"),
    "srv    operator(): operator(): cleaning up before exit",
)
# A server says that it ends its own processes because one failed: the shell's word for that is no reason.
SELF_KILLS = (
    "SIGQUIT received.",
    "Received sigquit from a child proces",
    "kill_process_tree called",
    "Got fatal signal from worker",
)
# A client's request, or an answer to one; settings have other names.
REFUSED_REQUEST = lazy_pattern.compile(
    r"validation errors? for \w*(?:Request|Response|Message|(?P<may_be_settings>Params?))\b"
)
# The header of a line by vLLM's code that answers one request: "ERROR 07-03 03:19:15 [serving_chat.py:200]", or that reads the
# model's answer: "hermes_tool_parser.py:108".
REQUEST_HANDLER = lazy_pattern.compile(
    r"(?:\[[^\[\]]{1,60}\]:? ){0,2}[^\[\]]{0,120}?(?:ERROR|WARNING) [\d :.-]{5,40}\[?(?:serving(?:_\w{1,40}+)?|\w{1,40}_parser)\.py:\d"
)
# uvicorn's, before the traceback of a request that failed: the server goes on.
REQUEST_ERROR = "Exception in ASGI application"
# asyncio's, before the traceback of a connection that a client broke off.
_BROKEN_CONNECTION = lazy_pattern.compile(r"Exception in callback _\w{1,40}Transport\.")
# Python's logging, before the traceback of a record that could not be written: the program goes on, always.
LOGGING_ERROR = "--- Logging error ---"
PACKAGE_NAME, PACKAGE_VERSION = "Name: ", "Version: "  # the first two lines of `pip show`: they are read as one
# What a shell or Python shows on two lines: the command that prints a version, and the version.
VERSION_PRINT = lazy_pattern.compile(r"(?P<name>\w{1,40}\.__version__)\)?[\"']?\s*$")
PRINTED_VERSION = lazy_pattern.compile(r"\d{1,4}\.\d{1,4}\.\d[\w.+-]{0,60}\s*$")
# Rust's, above the causes of an error: each on an indented line of its own, the innermost last.
CAUSES_HEADER = "Caused by:"
TRACEBACK_STARTS = ("Traceback (most recent call last)", "usage: ")
# Lines that only a start prints: after readiness they belong to a later start.
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
_SOURCE_CODE_PREFIXES = (
    "    ",
    '  File "',
)  # a traceback shows source code, which may quote messages that were never printed


_GOES_ON_PATTERN = lazy_pattern.compile(
    # the last two: ComfyUI goes on without a module that it cannot import, and after a prompt for which memory ran out
    r"(?P<again>\b[Ff](?:alls? ?back|alling back|allen back)|\b[Rr]etrying\b|^Cannot import .{1,300} module for custom nodes: "
    r"|^Got an OOM, unloading all loaded models"
    r"|\b[Aa]ttempt \d{1,3}(?: of \d{1,3}|/\d{1,3})? succeeded|\bsucceeded (?:on|at|after) attempt \d)"
    r"|(?P<weak>, using \w)|[Uu]sing \w{1,40} instead|[Uu]sing internal "
    r"|[.,] [Uu]sing (?:the )?default\b|, ignor(?:ed|ing)\b| - skipping$|Skipping tactic |NCCL INFO"
)
# Every match has one of these; they are found in a tenth of the time.
_GOES_ON_WORDS = (
    "back",
    "etrying",
    "ttempt ",
    "for custom nodes: ",
    "sing ",
    ", ignor",
    " - skipping",
    "Skipping tactic ",
    "NCCL INFO",
)


# The process that a prefix names: (EngineCore_DP0 pid=7), (VllmWorker rank=0 pid=7), [2026-05-01 10:00:00 DP1 TP0], [rank1]:
_WRITER_PATTERN = lazy_pattern.compile(
    r"\((?:[\w-]{1,40} ){0,3}(?:\w{1,20}=[\w.:]{1,80},? ?){1,4}\)|[\[ ](?P<ranks>(?:(?:DP|TP|PP|EP|CP|rank)\d{1,4} ?){1,5})\]"
)


@lru_cache(_KNOWN_TEXTS)
def find_writer(raw: str) -> str:
    """Return which process of the engine wrote a line, as its prefix names it; empty if it names none. ``raw``: its beginning."""
    found = _WRITER_PATTERN.search(raw)
    return "" if found is None else found["ranks"] or found[0]


def find_own_writer(raw: str, text: str) -> str:
    """Return which process wrote a line, as its prefix names it and not its ``text``."""
    if raw.startswith(text):
        return ""
    head, found, _ = raw[:_MAX_HEAD_CHARS].partition(text[:_HEAD_END_CHARS])
    return find_writer(head if found else raw[:_MAX_HEAD_CHARS])


def is_harmless(text: str) -> bool:
    """Tell whether a line is one of a good start, whatever words and level it has."""
    return _HARMLESS_LINE.match(text) is not None


_CALLED_FATAL = lazy_pattern.compile(r"\b(?:fatal|FATAL)\b|^\W{0,3}(?:ERROR|[Ee]rror)\b|\bCUDA error\b")


def says_it_goes_on(text: str, level: str | None = None) -> bool:
    """Tell whether a program says in this line that it does without the thing that failed: no failure, whatever else it says. In
    a line that it calls an error (also by its ``level``), "using" may only name what it used."""
    if not any(map(text.__contains__, _GOES_ON_WORDS)) or (found := _GOES_ON_PATTERN.search(text)) is None:
        return False
    return found["weak"] is None or (level not in ERROR_LEVELS and _CALLED_FATAL.search(text) is None)


# As the pattern above has it.
_FALLS_BACK = ("all back", "alls back", "alling back", "allen back", "allback", "allsback")


def says_it_tries_again(text: str) -> bool:
    """Tell whether a program says in this line that it goes on in another way, or once more, after what it said before."""
    may_go_on = "etrying" in text or "for custom nodes" in text or "Got an OOM, " in text or "ttempt " in text
    if not may_go_on and not ("back" in text and any(words in text for words in _FALLS_BACK)):
        return False
    found = _GOES_ON_PATTERN.search(text)
    return found is not None and found["again"] is not None


# pip and Docker after a build; trainers with their last figures (trl and transformers, verl); Ray, which calls each attempt an error.
_DONE_STARTS = ("Successfully built ", "Successfully tagged ", "Successfully installed ", "{'train_runtime': ")
_DONE_WORDS = ("inal validation metrics: ", "Ray runtime started.", "Connected to Ray cluster.")


def says_it_is_done(text: str) -> bool:
    """Tell whether a program says in this line that its work, a build, a training or joining a cluster, ended well, whatever it said before."""
    return text.startswith(_DONE_STARTS) or any(words in text for words in _DONE_WORDS)


_EXIT_STATUS = lazy_pattern.compile(r"\bexit(?:ed)? (?:with )?(?:status|code)[ :=]{1,3}-?[1-9]")


def tells_exit_status(text: str) -> bool:
    """Tell whether a line says that a program ended with a status that is not 0."""
    return _EXIT_STATUS.search(text) is not None


_FAILS = lazy_pattern.compile(r"(?:Error|ERROR|error|Fatal|FATAL|fatal)\b(?: error)?: \S")


def says_it_fails(text: str) -> bool:
    """Tell whether a program begins a line with the word for a failure of its own, or says that one ended with a status."""
    return _FAILS.match(text) is not None or tells_exit_status(text)


def is_kernel_or_test_line(text: str) -> bool:
    """Tell whether the kernel or a test runner wrote this line: its word for a failure is not that of the program that a log is of."""
    return _KERNEL_LINE.match(text) is not None or _TEST_SUMMARY.match(text) is not None


_ADVICE_STARTS = ("Please ", "See ", "Try ", "Run ", "Use ", "For more ", "To fix ", "hint: ", "Hint: ", "HINT: ")


def gives_advice(text: str) -> bool:
    """Tell whether a program says in this line what to do after the error before it."""
    return text.startswith(_ADVICE_STARTS)


_LISTENS = re.compile(
    r"\b[Ll]istening (?:on|at)\b|\b[Rr]unning on (?:local URL\b|https?:|all addresses|\S{1,80}:\d{2,5}\b)|\bGUI go to: http"
)
_ENDS = re.compile(
    r"\b(?:exit|abort|kill|terminat|crash|shut|fatal|panic|core dump|segmentation|unrecoverable|giving up|gave up|died|dying|stopp"
    r"|(?:cannot|could not|can't|unable to|failed to|failure to) (?:start|listen|bind|launch|boot|init))",
    re.IGNORECASE,
)


def says_it_listens(text: str) -> bool:
    """Tell whether a server of any kind says in this line that it takes requests."""
    may_say = "istening " in text or "unning on " in text or "GUI go to" in text
    return may_say and _LISTENS.search(text) is not None


@lru_cache(_KNOWN_TEXTS)
def says_it_ends(text: str) -> bool:
    """Tell whether a program says in this line that it, or a process of its own, ends or did not begin."""
    return _ENDS.search(text) is not None


def may_hold_duration(text: str) -> bool:
    """Tell whether `DURATION_PATTERN` may match, at low cost."""
    return " took " in text or "elapsed" in text or " takes " in text or "finished in " in text


_LOGFMT_LEVEL = lazy_pattern.compile(
    r"(?:(?:time|ts|t)=(?:\"[^\"]{1,60}\"|\S{1,60}) )?(?:level|lvl)=\"?(?P<level>[A-Za-z]{1,12})\b"
)
_LEVELS_OF_LOGFMT = {
    "trace": "DEBUG",
    "debug": "DEBUG",
    "info": "INFO",
    "notice": "INFO",
    "warn": "WARNING",
    "warning": "WARNING",
}


# Of a record without a header, as uvicorn writes them, and of a program's own words.
_LEVELS_BY_START = {f"{level}: ": level for level in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")} | {
    "Warning: ": "WARNING"
}
_LEVEL_STARTS = tuple(_LEVELS_BY_START)


def find_stated_level(text: str) -> str | None:
    """Return the level that a line states by its first word, or in the form ``time=… level=warning msg=…`` if it is below error."""
    if text.startswith(_LEVEL_STARTS):
        return _LEVELS_BY_START[f"{text.partition(':')[0]}: "]
    if not text.startswith(("time=", "ts=", "t=", "level=", "lvl=")):
        return None
    found = _LOGFMT_LEVEL.match(text)
    return None if found is None else _LEVELS_OF_LOGFMT.get(found["level"].lower())


def is_below_error(level: str | None) -> bool:
    """Tell whether a line's ``level`` is lower than error."""
    return level in _LEVELS_BELOW_ERROR


def tells_broken_connection(text: str) -> bool:
    """Tell whether asyncio says in this line that a connection of a client could not be closed."""
    return "Exception in callback _" in text and _BROKEN_CONNECTION.search(text) is not None


@lru_cache(_KNOWN_TEXTS)
def is_warning(text: str) -> bool:
    """Tell whether a line calls itself a warning, in the form of any program."""
    return _WARNING_LINE.match(text) is not None


@lru_cache(_KNOWN_TEXTS)
def looks_like_error(text: str) -> bool:
    """Tell whether a line without a rule may be an error; a warning is none.

    Searching the words first is cheap: a pattern that ignores case takes ten times as long.
    """
    low = text.lower()
    for word in _ERROR_WORDS:
        if word in low:
            if text.startswith(_SOURCE_CODE_PREFIXES) or is_harmless(text) or is_warning(text):
                return False
            return (
                not says_it_goes_on(text)
                and _ERROR_WORD_PATTERN.search(text) is not None
                and not _NO_ERRORS_PATTERN.search(text)
            )
    return False


# What a program only quotes, such as the text that it reads out.
QUOTED_WORDS = lazy_pattern.compile(r"(?<!\w)(?:\"[^\"]{1,2000}\"|'(?:[^']|(?<=\w)'(?=\w)){1,2000}+'(?!\w))")
CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"  # a time of day
ZONE_OFFSET = r"[+-]\d\d:?\d\d"
_TIMESTAMP = rf"\[?\d{{4}}-\d\d-\d\d[T ]{CLOCK}(?:Z|{ZONE_OFFSET})\]? "
_SOURCE_NAME = (
    rf"(?:(?={_TIMESTAMP})"  # none: of what follows, nothing begins like a time, which is on each line where it is
    r"| {0,4}\| "  # buildkite
    r"|(?:[ \t]{0,8}[*+-] {1,3})?`{1,3}(?=[^\s`])"  # Markdown: a list of lines, each as code
    r"|(?:\[[\w.-]{1,40}\]|[\w.-]{1,40}:) (?=\[GIN\] \d{4}/)"  # a program that starts a server in Go
    r"|>>> (?=[\[/]|time=)"  # the prompt of a program in the same terminal
    r"|[^\x00-~]{1,3} {1,2}(?=[(\[A-Z])"  # the frame of a terminal's window (k9s), a symbol before the text
    r"|[ \t]{0,8}Line \d{1,7}: |\d{1,7}[:-](?=[(\[]|(?:INFO|WARNING|ERROR|Traceback)\b)"  # what numbers the lines: an editor, grep -n
    r"|\[[A-Za-z][\w -]{1,30}\] (?=\((?:[\w-]{1,40} ){0,3}(?:pid|rank)=)"  # a program's name for what another one prints
    r"|\[[a-z]+/[\w.-]{1,99}/[\w.-]{1,99}\] "  # kubectl --prefix: [pod/NAME/CONTAINER]
    r"|\w[\w.-]{0,63}(?:@[\w.-]{1,63})? +\| "  # a swarm: llm_vllm.1.ID@NODE  | text; compose: engine-1  | text
    r"|\[[\w.-]{1,63} std(?:out|err)\] (?:\[\d{1,9}\] )?"  # a program's router: [llamacpp-router stdout] [52717]
    r"|[A-Z][a-z]{2} \d{1,2}, \d{4} @ \d\d:\d\d:\d\d\.\d{3} {1,8}"  # Kibana
    r"|\[\d\d:\d\d:\d\d\] \w{1,32}/[A-Z]{1,16} {1,8}"  # [16:10:33] stdout/INFO
    # journald, syslog; a month in another language has letters that are not ASCII
    r"|(?:[A-Z][a-z]{2} [ \d]\d|\d{1,2}[^ -~]{1,9} [ \d]?\d) \d\d:\d\d:\d\d [\w.-]{1,64} (?!kernel: )[\w./@-]{1,64}(?:\[\d+\])?: "
    r")?+"
)
_STREAM_NAME = r"(?:std(?:out|err) (?:[FP] )?|[\w.-]{1,99} >> |[\w.-]{1,64} [\w./@-]{1,64}\[\d+\]: )?+"  # kubernetes' stream, journald short-iso
_KERNEL_LINE = lazy_pattern.compile(
    rf"(?:<\d+>|[a-z]{{2,8}} {{0,3}}:[a-z]{{2,8}} {{0,3}}: )?\[ {{0,5}}\d{{1,8}}\.\d{{6}}\] "
    rf"|\[[A-Z][a-z]{{2}} [A-Z][a-z]{{2}} [ \d]\d {CLOCK} \d{{4}}\] |(?:(?:.{{1,40}} )?[\w.-]{{1,64}} )?kernel: "
)
# pytest, unittest, cargo, go, mocha and jest, TAP: how tests went says nothing of a server.
_TEST_SUMMARY = lazy_pattern.compile(
    r"=+ .{0,200}?\b\d+ (?:failed|passed|errors?)\b.{0,200}? in [\d.]+s|(?:FAILED|ERROR) \S+::|FAILED \((?:failures|errors)=|test result: FAILED"
    r"|error: test failed|(?:--- )?FAIL\b|Tests?(?: Suites)?: +\d+ failed|not ok \d+|\d+ (?:failing|failed|tests? failed)\b"
)
# In this order, each at most once.
_PREFIX_MATCHER = lazy_pattern.compile(f"{_SOURCE_NAME}(?P<when>{_TIMESTAMP})?+{_STREAM_NAME}", re.ASCII)
_QUOTING_PATTERN = lazy_pattern.compile(r"(?:[ \t]{0,3}>[ \t]?)+|#{1,2} | {2,}|\t+")
# A colour code whose escape character was lost in a paste.
_BROKEN_COLOUR_CODE = lazy_pattern.compile(r"\[\d{1,3}(?:;\d{1,3}){0,3}m")


# A colour, or the end of a line, as other programs write control characters: `cat -v`, rsyslog, a string in quotes.
_WRITTEN_CONTROL = lazy_pattern.compile(
    r"(?:\^\[|#033|\\(?:x1[bB]|0?33|u001[bB]|e))\[\d{0,3}(?:;\d{1,3}){0,4}m|(?:\^M|#015)(?=\s*$)"
)


_MAX_NAME_CHARS = 120
_CONTAINER_NAME = lazy_pattern.compile(
    r"(?!(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)\b)[a-z][\w.-]{0,63} {1,50}\| "
)


def split_prefix(line: str) -> tuple[str, str]:
    """Return the timestamp, empty if there is none, and the program's own line."""
    if line[:1] == "(":  # vLLM's prefix, on most lines
        return "", line
    found = _PREFIX_MATCHER.match(line)
    if found is None or not found.end():
        return "", line
    text = line[found.end() :]
    is_collected = bool(found["when"]) or line[0].isalnum()
    if is_collected and " | " in text[:_MAX_NAME_CHARS] and (name := _CONTAINER_NAME.match(text)) is not None:
        text = text[name.end() :]  # a collector, such as systemd's journal, wrote what compose printed
    if not line[:1].isascii():
        text = text.rstrip(f"{line[0]} ")  # the frame's other side
    return (found["when"] or "").strip("[] "), text


def is_quoted(line: str) -> bool:
    """Tell whether a line may be quoted or indented."""
    return _QUOTING_PATTERN.match(line) is not None


def find_common_quoting(lines: Sequence[str]) -> str:
    """Return the common quoting of these lines, as in forums and mails: ``> ``, or three spaces and more."""
    texts = [line for line in lines if line.strip(" \t>\r\n")]
    least, most = (min(texts), max(texts)) if texts else ("", "")  # the common prefix of these two is common to all
    alike = next((at for at, (one, other) in enumerate(zip(least, most, strict=False)) if one != other), len(least))
    found = _QUOTING_PATTERN.match(least[:alike])
    if found is None or (len(found[0]) == _FRAME_INDENTATION and any(FRAME_PATTERN.match(line) for line in texts)):
        return ""  # an excerpt that begins within a traceback
    return found[0]


def strip_quoting(line: str, quoting: str) -> str:
    """Return a line without the quoting that `find_common_quoting` found."""
    if not quoting:
        return line
    return line.removeprefix(quoting) if line.startswith(quoting) else line.removeprefix(quoting.rstrip())


def strip_broken_colour_codes(line: str) -> str:
    """Return a line without the rest of colour codes (``[0;36m``) whose escape characters a paste lost.

    A program that colours a part of a line resets the colour with a code that begins with 0.
    """
    if "^" in line or "#0" in line or "\\" in line:
        line = _WRITTEN_CONTROL.sub("", line).replace("^M", "\r")
    return _BROKEN_COLOUR_CODE.sub("", line) if "[0" in line else line


# Used for lines without a year; a leap year has every day.
_DEFAULT_YEAR = 2000
_DAY_SECONDS = 86400.0
_YEAR_SECONDS = 366 * _DAY_SECONDS  # of that year
_LEAP_DAY = datetime(_DEFAULT_YEAR, 2, 29, tzinfo=UTC).timestamp()
_HEADER_PATTERN = lazy_pattern.compile(
    r"\[(?P<date>\d{4}-\d\d-\d\d) (?P<time>\d\d:\d\d:\d\d(?:\.\d+)?)[ \]]"  # SGLang
    r"|(?:\((?:[\w-]+ )?(?:rank=\d+ )?pid=\d+[^)]{0,40}\) ?){0,3}(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) "
    r"(?P<day>\d\d-\d\d) (?P<clock>\d\d:\d\d:\d\d(?:\.\d+)?) \["  # vLLM, without a year
    r"|\[(?P<us>\d\d/\d\d/\d{4})-(?P<hour>\d\d:\d\d:\d\d)\]"  # TensorRT-LLM
    r"|(?P<minutes>\d+)\.(?P<seconds>\d\d)\.(?P<ms>\d{3})\.\d{3} [DIWE] "  # llama-server: since its start
)


@dataclass(frozen=True, slots=True)
class LogTime:
    """``seconds`` of one ``clock``; times of different clocks cannot be compared."""

    clock: str  # docker | engine | yearless | start
    seconds: float

    def seconds_since(self, earlier: LogTime | None) -> float | None:
        """Return the seconds between the two, None if not known."""
        if earlier is None or earlier.clock != self.clock:
            return None
        passed = self.seconds - earlier.seconds
        if self.clock == "yearless" and passed < -_YEAR_SECONDS / 2:  # a new year began between them
            passed += _YEAR_SECONDS
        elif self.clock == "yearless" and earlier.seconds < _LEAP_DAY <= self.seconds - _DAY_SECONDS:
            passed -= _DAY_SECONDS  # most years have no such day, and no part of a start lasts for one
        return passed if passed >= 0 else None


@lru_cache(_KNOWN_TEXTS)
def parse_log_time(when: str, text: str) -> LogTime | None:
    """Return when a line was written. ``when``: Docker's timestamp, empty if there is none; ``text``: the raw line."""
    if when:
        return _parse_timestamp("docker", when)
    found = _HEADER_PATTERN.match(text)
    if found is None:
        return None
    if found["date"]:
        return _parse_timestamp("engine", f"{found['date']}T{found['time']}")
    if found["day"]:
        return _parse_timestamp("yearless", f"{_DEFAULT_YEAR}-{found['day']}T{found['clock']}")
    if found["us"]:
        month, day, year = found["us"].split("/")
        return _parse_timestamp("engine", f"{year}-{month}-{day}T{found['hour']}")
    return LogTime("start", int(found["minutes"]) * 60 + int(found["seconds"]) + int(found["ms"]) / 1000)


def _parse_timestamp(clock: str, text: str) -> LogTime | None:
    try:
        stamp = datetime.fromisoformat(text.replace(",", "."))
        return LogTime(clock, (stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError, OSError):
        return None


TRACEBACK_HEADER = "Traceback (most recent call last):"
_HANDLED_START = "During handling of the above exception"
# What stands between two exceptions of one traceback: the first was handled when the second came up, or it caused the second.
CHAIN_STARTS = (_HANDLED_START, "The above exception was the direct cause")
# A class with a module ("triton.runtime.errors.OutOfResources", "zlib.error", "x.make.<locals>.Bad"), or a bare one that is written
# as classes are ("TimeoutError", "OutOfResources", "custom_error"): not a log level, not a file, not a word of a sentence.
_EXCEPTION = lazy_pattern.compile(
    r"(?P<name>(?:[^\W\d]\w*+\.(?:<locals>\.)?)++(?!(?:json|jsonl|py|txt|safetensors|gguf|ya?ml|toml|bin|so|cc|cpp|cuh?|hpp|log|sh|md"
    r"|jinja|pth?|whl)\b)[^\W\d]\w{0,99}+|[A-Z]\w{1,99}+|[a-z_]\w{0,60}(?:error|exception|timeout|failure|failed|bad)\w{0,20}+)"
    r"(?:\([\w.]{1,120}\))?(?:: |:?$)"
)
_BAR_STATE = lazy_pattern.compile(r"\d%(?:\|| Completed \|)|\d(?:it)? \[\d\d:\d\d")  # of a progress bar
_GROUP_END = lazy_pattern.compile(r"\(\d{1,6} sub-exceptions?\)$")
_USUAL_NAME = lazy_pattern.compile(r"[\w.<>]*(?:Error|Exception)\b")
_MAX_MESSAGE_LINES = 3  # between what looked like an exception and the next frame of the same traceback
_RAISED = lazy_pattern.compile(r"raise (?P<name>(?:[A-Za-z_]\w*+\.)*+[A-Z]\w++)\(")
_FRAME_INDENTATION = 2
FRAME_START = 'File "'  # a paste may have lost the indentation before it
_BOX_STARTS = ("│", "╰")  # what Rich draws around the frames; the exception stands below
FRAME_PATTERN = lazy_pattern.compile(r"\s*File \"[^\"]+\", line \d+, in ")
_STRING = lazy_pattern.compile(
    r"""[rRfFbB]{0,2}(?:"(?P<double>(?:[^"\\]|\\.){0,500}+)"|'(?P<single>(?:[^'\\]|\\.){0,500}+)')"""
)
_MARKERS = lazy_pattern.compile(r"[\s~^]*+$")  # the line below a source line that points at the expression
# The frame that Python draws around an ExceptionGroup; what it frames has its own indentation.
_GROUP_EDGE = lazy_pattern.compile(r"\s*+(?:\| ?|\+ (?!-)|[+-]++(?: \d{1,4} -++)?\s*+)")
ASSERTION_START = "assert "
MODEL_CONFIG_READ = ".architectures"  # source that reads what a model's config has to name
_STATEMENT_STARTS = ("raise ", ASSERTION_START)
# Exceptions that do not name what could not be read; and the files whose frames tell: NVML's binding, what reads a model's files, and
# what reads the command line.
_NAMES_NO_FILE = ("JSONDecodeError: ", "UnicodeDecodeError: ", "ValueError: not enough values to unpack")
_READER_WORDS = (
    *("nvml", "configuration_", "tokenization_", "processing_", "modeling_utils", "weight_utils", "loader"),
    *("transformers_utils", "argparse", "arg_utils", "server_args", "torch_compile_cache"),
)
_READER_FRAME = lazy_pattern.compile(
    rf"File \"[^\"]{{0,300}}?(?P<file>[^/\"]{{0,40}}(?:{'|'.join(_READER_WORDS)})[^/\"]{{0,40}}|transformers_utils/[^/\"]{{1,40}}"
    r"|torch_compile_cache/[^\"]{1,200})\.py\", line \d+, in (?P<function>[\w<>]{1,80})"
)
# The frame of code that checks the settings of a program before anything is loaded, and what such code raises on purpose.
_SETTINGS_WORDS = ("arg", "/config/", "/platforms/")
_SETTINGS_FRAME = lazy_pattern.compile(
    r"File \"[^\"]{0,300}?(?:/(?:config|arg_groups|platforms)/[^/\"]{1,60}|/(?:\w{0,20}arg_?utils|argparse_utils|server_args|cli_args"
    r"|llm_args|engine_args))\.py\", line \d+, in "
)
# What runs in a step of the start, which lines before it may not tell.
_RUNNER_FOLDERS = ("/worker/", "/model_executor/")
_STEPS_BY_FUNCTION = {
    "load_model": "weights",
    "profile_run": "profiling",
    "determine_available_memory": "profiling",
    "determine_num_available_blocks": "profiling",
    "initialize_kv_cache": "kv-cache",
    "init_memory_pool": "kv-cache",
    "capture_model": "graphs",
    "_dummy_sampler_run": "warm-up",
    "kernel_warmup": "warm-up",
}
# The frame of the code that turns a kernel into a GPU's instructions.
_COMPILER_FRAME = lazy_pattern.compile(
    r"File \"[^\"]{0,300}?/triton/(?:backends/\w{1,20}/compiler|compiler/(?:compiler|code_generator))\.py\", line \d+, in "
    r"(?P<stage>make_\w{1,40}|optimize_\w{1,40}|\w{1,40}_to_\w{1,40}|compile|<lambda>)"
)

_MODULE_FRAME_ENDS = (", in <module>", ", in _run_module_as_main")


@lru_cache(_KNOWN_TEXTS)  # the same frames come from each rank, and from each start
def match_reader_frame(source: str) -> re.Match[str] | None:
    """Return the file and the function of a traceback's frame in code that reads what an exception may not name, None for others."""
    return _READER_FRAME.match(source) if any(map(source.__contains__, _READER_WORDS)) else None


@lru_cache(_KNOWN_TEXTS)
def is_settings_frame(source: str) -> bool:
    """Tell whether a traceback's frame is in code that checks settings."""
    return any(map(source.__contains__, _SETTINGS_WORDS)) and _SETTINGS_FRAME.match(source) is not None


def is_module_frame(source: str) -> bool:
    """Tell whether a traceback's frame is a program's outermost one: where it is the first, nothing caught the exception."""
    return source.endswith(_MODULE_FRAME_ENDS)


def find_frame_step(source: str) -> str | None:
    """Return the step of a start that a frame in an engine's code for a GPU's part of a model runs, None of other frames."""
    return (
        _STEPS_BY_FUNCTION.get(source.rpartition(", in ")[2])
        if any(map(source.__contains__, _RUNNER_FOLDERS))
        else None
    )


def match_compiler_frame(source: str) -> re.Match[str] | None:
    """Return the stage of a traceback's frame in code that turns a kernel into a GPU's instructions, None for others."""
    return _COMPILER_FRAME.match(source) if "/triton/" in source else None


_MAX_FRAME_LINES = 3  # lines of the innermost frame of a traceback: file, source, markers
_REFUSAL = lazy_pattern.compile(
    r"(?:[\w.]+\.)?(?:(?:Value|NotImplemented|Assertion|Runtime)Error|\w*ValidationError|Exception)(?:: |\s*$)"
)
_MAX_HEAD_CHARS = 200  # of a line as the log has it, in which its prefixes stand
_HEAD_END_CHARS = 20  # of a line's text, by which the end of its prefixes is found
_MAX_WRITERS = 64
_MAX_FOREIGN_LINES = 20  # lines of other processes within a traceback
_MAX_SOURCE_LINES = 12  # lines of one raise statement


@dataclass(slots=True, kw_only=True)
class TracebackReader:
    """Reads prepared lines one by one. ``raise_line``: number of the last ``raise`` statement that a traceback showed.
    ``assertion``: the ``assert`` statement above the last line, if this is a bare ``AssertionError``,
    or what read the model's config, or who read or compiled what the exception does not name. ``first_line``: the number of
    the traceback's first line; ``is_open``: it began, and its exception was not read yet. ``handled``: the lines of the exceptions
    that were handled when the last line's came up; ``mistaken``: the line that was taken for an exception before the last line
    showed that its traceback goes on; ``refuses_settings``: code that checks settings raised it on purpose; ``is_uncaught``: nothing
    caught it; ``is_logged``: its traceback began in a record of a log, so its program caught it."""

    is_open: bool = False
    raise_line: int | None = None
    assertion: str | None = None
    first_line: int = 0
    handled: tuple[int, ...] = ()
    mistaken: int | None = None
    refuses_settings: bool = False
    is_uncaught: bool = False
    is_logged: bool = False
    opener: str = ""  # the process that wrote the traceback's first line
    _has_told: bool = False  # something of the last line alone
    _foreign: int = 0
    _level: str | None = None
    _statement: list[str] = field(default_factory=list)
    _reader: str = ""  # the last frame of `match_reader_frame`
    _settings_frame: int = -_MAX_FRAME_LINES  # the number of the last `is_settings_frame`
    _compiler_frame: int = -_MAX_FRAME_LINES  # the same of `match_compiler_frame`
    _compiler_stage: str = ""
    _step: str | None = None  # the last one of `find_frame_step`
    _exception: int = 0  # the number of the last line that ended a traceback
    _begins_at_module: bool = False
    _writers: set[str] = field(default_factory=set)  # of the tracebacks that are open: ranks write at once
    _unusual: int | None = None  # the last line that was taken for an exception by nothing but its place
    _chains: dict[str, list[int]] = field(default_factory=dict)  # by writer: the lines of a chain's exceptions so far
    _links: dict[str, str] = field(default_factory=dict)  # by writer: what joins the next exception to its chain

    def read_line(self, number: int, text: str, raw: str = "", level: str | None = None) -> bool:
        """Return whether this line is the last line of a traceback: the exception. ``raw``: the line as the log has it,
        ``level``: its own."""
        if self._has_told:
            self.assertion, self.handled, self.mistaken, self._has_told = None, (), None, False
            self.refuses_settings = self.is_uncaught = self.is_logged = False
        if TRACEBACK_HEADER in text and rf"{TRACEBACK_HEADER}\n" not in text:  # not a text of a program's in quotes
            self._open(number, find_own_writer(raw, text), level)
            return False
        if self.is_open:
            if not text[:1].isspace() and not text.startswith((FRAME_START, *_BOX_STARTS)):
                return self._reads_exception(number, text, raw, level)
            self._read_frame_line(number, text)
        elif FRAME_PATTERN.match(text):  # the excerpt begins within a traceback, or one goes on
            if self._unusual is not None and number - self._unusual <= _MAX_MESSAGE_LINES:
                self.mistaken, self._has_told = self._unusual, True
                self._chains.clear()
            self._open(number, find_own_writer(raw, text), level)
            self._read_frame_line(number, text)
        elif text.startswith(CHAIN_STARTS):
            self._links[find_own_writer(raw, text)] = _HANDLED_START if text.startswith(_HANDLED_START) else text
        return False

    def _reads_exception(self, number: int, text: str, raw: str, level: str | None) -> bool:
        found = _EXCEPTION.match(text)
        if found and not found["name"].isupper():
            writer = find_own_writer(raw, text)
            if not self._is_foreign(text, writer, level):
                if self._statement and (
                    (text.rstrip() == "AssertionError" and self._statement[0].startswith(ASSERTION_START))
                    or MODEL_CONFIG_READ in self._statement[0]
                ):
                    self.assertion, self._has_told = " ".join(self._statement), True
                elif number - self._compiler_frame <= _MAX_FRAME_LINES and not text.startswith("triton."):
                    self.assertion, self._has_told = f"raised by Triton's compiler ({self._compiler_stage})", True
                elif self._reader and text.removeprefix("json.decoder.").startswith(_NAMES_NO_FILE):
                    self.assertion, self._has_told = f"read by {self._reader}", True
                if self._begins_at_module:
                    self.is_uncaught = self._has_told = True
                if self._level is not None:
                    self.is_logged = self._has_told = True
                if number - self._settings_frame <= _MAX_FRAME_LINES and _REFUSAL.match(text):
                    self.refuses_settings = self._has_told = True
                self._end_traceback(number, writer)
                self._unusual = None if _USUAL_NAME.match(text) else number
                return True
        if text:  # not the frame of a group
            self._foreign += 1
        if self._foreign > _MAX_FOREIGN_LINES:
            self.close()
        return False

    def _open(self, number: int, writer: str, level: str | None) -> None:
        if not self.is_open:
            self._writers.clear()
            self._step = None
        self._writers.add(writer)
        self.is_open, self.first_line, self._level, self.opener = True, number, level, writer
        self._foreign, self.raise_line, self._statement, self._unusual, self._reader = 0, None, [], None, ""
        self._begins_at_module = False

    def _is_foreign(self, text: str, writer: str, level: str | None) -> bool:
        """Tell whether a line within a traceback is not of it: of another process, a record of a log, or a progress bar."""
        is_of_other = bool(writer) and "" not in self._writers and writer not in self._writers
        is_record = level != self._level and is_below_error(level)
        return is_of_other or is_record or _BAR_STATE.search(text) is not None

    def find_step(self, number: int) -> str | None:
        """Return the step of the start in which the exception of this line was raised, None if no frame tells it."""
        return self._step if number == self._exception else None

    def _end_traceback(self, number: int, writer: str) -> None:
        self._exception = number
        if len(self._chains) >= _MAX_WRITERS:
            self._chains.clear()
            self._links.clear()
        link = self._links.pop(writer, None)
        chain = self._chains.setdefault(writer, [])
        if link is None:
            chain.clear()
        elif link is _HANDLED_START:
            self.handled, self._has_told = tuple(chain), True
        chain.append(number)
        self._writers.discard(writer)
        if writer and self._writers - {""}:  # another rank's is open still
            self.raise_line, self._statement = None, []
        else:
            self.close()

    def get_chain(self, writer: str) -> Sequence[int]:
        """Return the lines of the exceptions of the last chain that this process wrote, the first one first."""
        return self._chains.get(writer, ())

    @property
    def is_in_statement(self) -> bool:
        """Whether the next line may go on with a ``raise`` or ``assert`` statement."""
        return self.is_open and bool(self._statement)

    def close(self) -> None:
        """Forget the traceback that is open."""
        self.is_open, self.raise_line, self._statement = False, None, []

    @property
    def cut_exception(self) -> str | None:
        """The exception of a traceback whose last line is missing, as its ``raise`` statement has it; None if there is none."""
        if not self.is_open or not self._statement:
            return None
        source = " ".join(self._statement)
        raised = _RAISED.match(source)
        message = "".join(found["double"] or found["single"] or "" for found in _STRING.finditer(source))
        if raised is None:
            return None
        return f"{raised['name']}: {message}" if message else str(raised["name"])

    def _read_frame_line(self, number: int, text: str) -> None:
        source = text.strip()
        if source.startswith(_STATEMENT_STARTS) or MODEL_CONFIG_READ in source:
            self.raise_line, self._statement = number, [source]
        elif source.startswith(FRAME_START):
            self.raise_line, self._statement = None, []
            if number == self.first_line + 1:
                self._begins_at_module = is_module_frame(source)
            if is_settings_frame(source):
                self._settings_frame = number
            self._step = find_frame_step(source) or self._step
            if (found := match_compiler_frame(source)) is not None:
                self._compiler_frame, self._compiler_stage = number, found["stage"]
            if (found := match_reader_frame(source)) is not None:
                self._reader = f"{found['file']} ({found['function']})"
        elif self._statement and len(self._statement) < _MAX_SOURCE_LINES and not _MARKERS.match(source):
            self._statement.append(source)


def has_usual_name(exception: str) -> bool:
    """Tell whether the class of a traceback's last line is called an error or an exception: rules read such a line."""
    return _USUAL_NAME.match(exception) is not None


def is_group_of_exceptions(exception: str) -> bool:
    """Tell whether a traceback's last line is that of an ``ExceptionGroup``: the exceptions in it follow."""
    return "ExceptionGroup: " in exception and _GROUP_END.search(exception) is not None


def strip_group_frame(text: str) -> str:
    """Return a line without the frame that Python draws around an ``ExceptionGroup`` (``  | ValueError: x``)."""
    if "|" not in text and "+" not in text:
        return text
    stripped = text.lstrip()
    if not stripped.startswith(("|", "+ ", "+-")):
        return text
    found = _GROUP_EDGE.match(text)
    return text[found.end() :] if found else text


_REQUEST_TARGET = rf"/[^\s\"?]*\?(?:[^\s\"]*&)?{REQUEST_MARK}"
_CLIENT_ADDRESS = r"[0-9A-Za-z.:\[\]%_-]*"
_OWN_ACCESS_LINE = lazy_pattern.compile(
    rf"(?:INFO:\s+)?{_CLIENT_ADDRESS} - (?:- \[[^\]]*\] )?\"(?:GET|POST) {_REQUEST_TARGET} HTTP/\d(?:\.\d)?\" \d{{3}}\b"  # uvicorn; NCSA
    rf"|\[GIN\] [^\"]*\| (?:GET|POST) +\"{_REQUEST_TARGET}\"\s*$"  # Ollama
)


def is_own_request(text: str) -> bool:
    """Tell whether a line (as the log has it, or prepared) is the access line of a question of ours, and nothing else."""
    if REQUEST_MARK not in text:
        return False
    from sparkctl.engines.line_preparer import strip_log_prefix

    return _OWN_ACCESS_LINE.match(strip_log_prefix(sanitize_line(text).lstrip())[1]) is not None


def drop_own_requests(lines: Sequence[LogLine]) -> Sequence[LogLine]:
    """Return the lines without those of our own questions; the numbers stay the log's own."""
    if REQUEST_MARK not in join_texts(lines):  # five times as fast as a look at each
        return lines
    return tuple(line for line in lines if not is_own_request(line.text))
