"""Prepare a container's log line for the engines: remove escapes and prefixes, one progress bar state per line."""

from __future__ import annotations

import re
from functools import lru_cache

from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text import lazy_pattern
from sparkctl.model.text.sanitize import sanitize_line

# SGLang writes 9,000 characters of draft settings into its settings line; nothing beyond this limit is recognised. The
# whole line is shown and saved; only the reading stops here.
MAX_LINE_LENGTH = 12_288
_KNOWN_TEXTS = 4096  # an engine that restarts again and again repeats its lines

VALIDATION_MESSAGES = ("  Value error, ", "  Assertion failed, ")  # pydantic's, below the name of what is not valid
_LOG_PREFIX = lazy_pattern.compile(
    # vLLM: (APIServer pid=1), (Worker_TP0 pid=7), formerly (VllmWorker rank=0 pid=7); Ray adds the address
    r"\((?:[\w-]{1,40} ){0,3}(?:\w++=[\w.:]++,? ?)++\) ?"
    r"|\((?:EngineCore|APIServer|Worker)(?:_\w{1,12}){0,2}\) (?=[A-Z])"  # where a paste left the number out
    r"|(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \[?[^\[\]\s]+:\d+\[?\] ?"
    r"|(?P<undated>DEBUG|INFO|WARNING|ERROR|CRITICAL) \[[\w./-]{1,120}\.py:\d+\] ?"  # the same, where a paste left the date out
    # Python's logging with a date: 2024-12-19 21:40:35 ERROR 56542 [engine.py:64], 2025-01-01 10:00:00,123 - name - ERROR -
    r"|\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)? {1,5}(?:- [\w.]+ - )?(?P<dated>DEBUG|INFO|WARNING|ERROR|CRITICAL)"
    r"(?: -)? (?: {1,8}(?=\[))?(?:\d+ )?(?:\[[^\[\]\s]+:\d+\] ?|[\w.]{1,60}:\d+ -- )?"
    # Ray's command line has a tab after the time, and short names of levels
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\s{1,8}(?P<short>ERR|SUCC|WARN|PANIC|VINFO) [\w.]{1,60}:\d+ -- "
    # loguru and its like: 2026-01-18 23:16:55.275 | INFO     | name:function:46 - text, 05:57:22 | ERROR | stderr | text
    r"|(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d(?:[.,]\d+)? \| (?P<barred>DEBUG|INFO|WARNING|ERROR|CRITICAL) {1,8}\| "
    r"(?:[\w.<>]{1,120}:[\w.<>]{1,80}:\d+ - |[\w.]{1,40} \| ?)?"
    # TensorFlow: 2023-10-31 10:09:35.485444: W tensorflow/core/x.cc:64], Ray: [2023-07-11 15:20:41,680 E 42067 42067] logging.cc:97:
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{1,9}: (?P<flow>[IWEF]) [\w./+-]{1,200}:\d+\] ?"
    r"|\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (?P<ray>[IWEF]) \d+ \d+\] (?:\([\w.-]{1,40}\) )?[\w./+-]{1,200}:\d+: ?"
    r"|!!! Exception during processing ?!!! "  # ComfyUI
    # the time of day alone
    r"|\d\d:\d\d:\d\d(?:[.,]\d{1,6})? (?:[AP]M(?:\s{1,40}+(?=[\w.]{1,80}Error: )|[ \t]?))?(?:(?P<clocked>DEBUG|INFO|WARNING|ERROR|CRITICAL) )?"
    # Docker's own panel, a panel that names level and stream
    r"|\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:\s{1,8}(?:(?:debug|info|warn|error) {1,4})?std(?:out|err)(?:\s|$)| (?:\| )?(?!- ))"
    r"|(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{1,9} )?\[(?P<onnx>[VIWEF]):onnxruntime:[^\]]{0,120}\] ?"  # ONNX Runtime
    # Python's logging with the logger's name: ERROR (uvicorn.error): text, ERROR:root:text
    r"|(?P<named>DEBUG|INFO|WARNING|ERROR|CRITICAL)(?: \([\w.]{1,80}\):|:[A-Za-z_][\w.]{0,80}:(?=\S)) *"
    # Google's log, as of torch, Ray and NVIDIA's runtime: [W516 12:46:57.499 Store.cpp:12], I1202 15:15:34.408 26518 nvc.c:395]
    r"|\[?(?P<glog>[IWEF])\d{3,4} \d\d:\d\d:\d\d\.\d+ +(?:\d+ )?[\w.+-]+:\d+\] ?"
    # [INFO ] thread-name LOGGER - text, [Error] (Router) text
    r"|\[(?P<boxed>DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL|Debug|Info|Warn(?:ing)?|Error|Critical|Fatal) {0,3}\] "
    r"(?:(?:[\w.-]{1,80} ){0,3}- ?|\(\w{1,40}\) )"
    r"|\[default\d+\]: ?"  # torchrun
    r"|\[shutdown\] "  # vLLM 0.32 and later adds a tag to some records
    r"|\[\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d(?:\.\d+)?)?(?: [A-Z_]+\d+)*\] ?"  # SGLang: [2026-05-01 10:00:00 DP1 TP0]; ComfyUI
    r"|\[rank\d+\]: ?"  # torch, with several ranks
    r"|\[(?:(?:DP|TP|PP|EP|CP)\d+ ?){1,5}\] "  # SGLang's ranks, where a paste lost the time
    r"|\[\d{4}-\d\d-\d\d\|\d\d:\d\d:\d\d\|\w+\] (?P<piped>[A-Z]+) +"
    # Rust's tracing: ERROR server: text_embeddings_backend: backends/src/lib.rs:567: text, INFO sglang_router::server: text
    r"|(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z {1,3})?(?P<traced>TRACE|DEBUG|INFO|WARN|ERROR) {1,3}"
    r"(?:[\w-]{1,60}(?:\{[^{}]{0,200}\})?:{1,2} ?){0,8}"
    r"(?:[\w./-]{1,120}\.rs:\d{1,6}: |(?<=::)\w{1,60}: )"
    r"|\d+\.\d\d\.\d{3}\.\d{3} (?P<letter>[DIWE]) "  # llama-server: 0.24.777.216 I
    # TensorRT-LLM: [12/20/2025-04:21:10] [TRT-LLM] [I] from its Python, [TensorRT-LLM][INFO] from its C++
    r"|(?:\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] )?\[TRT(?:-LLM)?\] (?:\[RANK \d+\] )?\[(?P<mark>[DEFITVW])\] (?:\[RANK \d+\] )?"
    r"|\[TensorRT-LLM\]\[(?P<word>DEBUG|INFO|WARNING|ERROR)\] (?:\[RANK \d+\] )?"
)
# What a launcher writes before the record of the program that it started: "vLLM: ", "[worker-1] stdout: ".
_INNER_NAME_PATTERN = (
    r"(?:\[?[A-Za-z][\w./-]{0,40}\]?:? ){1,3}(?=\((?:[\w-]{1,40} ){0,3}(?:pid|rank|ip)=|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)(?::\s| \d\d-\d\d )"
    r"|\[\d{4}-\d\d-\d\d \d\d:)"
)
_INNER_NAME = lazy_pattern.compile(_INNER_NAME_PATTERN)
_LAUNCHER_CHARS = 40
_COLON_TOO_MUCH = lazy_pattern.compile(r"(?<=[.:]): ")  # a part that is joined ends with a mark of its own
_LAUNCHER = lazy_pattern.compile(
    r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})? - (?:DEBUG|INFO|WARNING|ERROR|CRITICAL) - "
    + _INNER_NAME_PATTERN
)
_PREFIX_STARTS = frozenset("(DIWEC[!0123456789")
_LEVELS_BY_LETTER = {
    "D": "DEBUG",
    "V": "DEBUG",
    "T": "DEBUG",
    "I": "INFO",
    "W": "WARNING",
    "E": "ERROR",
    "F": "CRITICAL",
}


_LEVELS_BY_WORD = {
    "TRACE": "DEBUG",
    "DEBUG": "DEBUG",
    "INFO": "INFO",
    "WARN": "WARNING",
    "WARNING": "WARNING",
    "ERROR": "ERROR",
    "ERR": "ERROR",
    "SUCC": "INFO",
    "VINFO": "INFO",
} | dict.fromkeys(("CRITICAL", "FATAL", "PANIC"), "CRITICAL")


_TRACEBACK_HEADER, _BOXED_HEADER = "Traceback (most recent call last):", "─ Traceback (most recent call last) ─"


def find_launcher(line: str) -> re.Match[str] | None:
    """Return what a launcher wrote before another program's record in this line, None if it wrote nothing."""
    return _LAUNCHER.match(line) if " - " in line[:_LAUNCHER_CHARS] else None


def strip_log_prefix(line: str) -> tuple[str | None, str]:
    """Return the log level, if the line has one, and the line without process prefixes and log header.

    Prefixes are removed repeatedly: two vLLM workers that write at once put two of them on one line.
    """
    level: str | None = None
    if line[:1] == " " and (bare := line.lstrip(" "))[:1] in _PREFIX_STARTS and _LOG_PREFIX.match(bare):
        line = bare  # a paste indented it: source code has no header
    launcher = find_launcher(line)
    start = launcher.end() if launcher is not None else 0
    while start < len(line) and line[start] in _PREFIX_STARTS and (found := _LOG_PREFIX.match(line, start)):
        word = found["level"] or found["word"] or found["dated"] or found["piped"] or found["named"] or found["undated"]
        word = word or found["barred"] or found["clocked"]
        word = word or _LEVELS_BY_WORD.get((found["boxed"] or found["traced"] or found["short"] or "").upper())
        word = word or _LEVELS_BY_LETTER.get(
            found["letter"] or found["mark"] or found["glog"] or found["flow"] or found["ray"] or found["onnx"] or ""
        )
        level = word or level  # of a record within another one's, its own
        start = found.end()
        if (found["dated"] or found["named"] or found["boxed"]) and (
            name := _INNER_NAME.match(line, start)
        ) is not None:
            start = name.end()
    return level, line[start:] if start else line


@lru_cache(_KNOWN_TEXTS)
def prepare_text(raw: str) -> tuple[str | None, str]:
    """Return the log level of a line as the log has it, and the line in printable characters without prefixes and header. The header
    of a traceback in a box (Rich's) becomes Python's own."""
    level, line = strip_log_prefix(sanitize_line(raw))
    return level, _TRACEBACK_HEADER if line.startswith("╭") and _BOXED_HEADER in line else line


def split_carriage_returns(raw: str) -> list[str]:
    """Return the states of a line that was rewritten in place, in order, without bare prefixes.

    The last one is what a terminal shows in the end. Never empty.
    """
    if "\r" not in raw:
        return [raw]
    found = raw.rstrip("\r\n").split("\r")
    return [state for state in found if strip_log_prefix(sanitize_line(state))[1].strip()] or found[-1:]


class LinePreparer:
    """Turns the lines of one log into what engines read. Keeps state between lines, so one preparer per log.

    A pydantic error takes several lines (model, setting, message). When it is complete it is returned once more as a
    single line ``1 validation error for CacheConfig: gpu_memory_utilization: Input should be ...``.
    """

    _MAX_VALIDATION_LINES = 40  # maximum lines of one validation error; a longer one is not joined

    def __init__(self) -> None:
        self.joining: list[str] | None = None  # the lines so far of an error that takes several

    def prepare_lines(self, raw: str) -> list[str]:
        """Return the readable lines of ``raw`` (one line of the log without its newline), oldest first.

        Empty for a line without text. Every state of a progress bar that was rewritten in place is a line.
        """
        if "\r" not in raw:
            return self._prepare_state(raw)
        return [line for state in raw.split("\r") if state for line in self._prepare_state(state)]

    def take_cut_message(self) -> str | None:
        """Return the error that takes several lines as far as it was read, and forget it; None if there is none."""
        parts, self.joining = self.joining, None
        return None if parts is None else _COLON_TOO_MUCH.sub(" ", ": ".join(parts))[:MAX_LINE_LENGTH]

    def _prepare_state(self, raw: str) -> list[str]:
        _, line = prepare_text(raw if len(raw) <= MAX_LINE_LENGTH else raw[:MAX_LINE_LENGTH])
        if not line or line.isspace():
            return []
        if self.joining is None and "validation error" not in line:
            # Its own header is not in the excerpt.
            is_rest = line.startswith(VALIDATION_MESSAGES)
            return [line, f"1 validation error for Settings: {line.strip()}"] if is_rest else [line]
        joined = self._join_validation_error(line)
        return [line, joined] if joined else [line]

    def _join_validation_error(self, line: str) -> str | None:
        parts = self.joining
        if (at := line.find("validation error")) >= 0 and " for " in line[at:]:
            self.joining = [line[max(0, at - 2) :].strip()]
        elif parts is None or len(parts) > self._MAX_VALIDATION_LINES:
            self.joining = None
        elif "For further information visit" in line:
            return self.take_cut_message()
        else:
            parts.append(line.strip())
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressBarState:
    """One state of a progress bar. ``done``/``total`` are counts, None for bars that count bytes (``1.2G/4.0G``). ``rest``: what
    another process wrote behind it, on the same line."""

    title: str
    fraction: float
    done: int | None = None
    total: int | None = None
    rest: str = ""


_PROGRESS_BAR = lazy_pattern.compile(
    r"(?P<title>[^|%]{0,200}?):\s+(?P<percent>\d{1,3})%(?: Completed \| |\|[^|]{0,400}\| )"
    r"(?P<done>[\d.]+[kMGTP]?)/(?P<total>[\d.]+[kMGTP]?) \[(?:[^\[\]]{0,120}\] ?)?"
)


def parse_progress_bar(line: str) -> ProgressBarState | None:
    """Return the state of a tqdm bar (or a weight loader's ``67% Completed | 12/18``), None for any other line."""
    if "%" not in line or "|" not in line:
        return None
    found = _PROGRESS_BAR.match(line)
    if found is None:
        return None
    fraction = min(1.0, int(found["percent"]) / 100)
    done, total, rest = found["done"], found["total"], line[found.end() :]
    if not (done.isdecimal() and total.isdecimal() and len(done) <= 15 and len(total) <= 15):
        return ProgressBarState(title=found["title"].strip(), fraction=fraction, rest=rest)
    return ProgressBarState(
        title=found["title"].strip(), fraction=fraction, done=int(done), total=int(total), rest=rest
    )
