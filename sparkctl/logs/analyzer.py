"""Analyzes an engine's log line by line: phase, step, facts, failures, and the root failure. Pure.

`up`, `diagnose` and everything else that explains a failure use this analyzer. The way of a line: `LogAnalyzer.feed_line`
prepares it, follows tracebacks, asks the engine's `LogRules.classify_line` what it says, and keeps phase, facts and failures.
What all lines together prove is built afterwards: by `verdict_builder` from the log alone, by `start_verdict` with what is known
of a start and its container, by `rank_verdict` from the logs of several ranks. Marks for the log screen: `line_marker`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from functools import cache, lru_cache

from sparkctl.engines.base import (
    Engine,
    Failure,
    FailureWeight,
    LineSignal,
    build_unnamed_failure,
    name_refused_settings,
    name_split_fault,
    name_stage_fault,
    name_what_helps,
    refine_failure,
)
from sparkctl.engines.line_preparer import MAX_LINE_LENGTH, LinePreparer, prepare_text
from sparkctl.engines.traps import is_version_within
from sparkctl.logs.line_effects import (
    LineEffect,
    TracebackPrefix,
    list_run_starts,
    list_turning_points,
    prepare_raw_line,
)
from sparkctl.logs.line_patterns import (
    ACCESS_LINE,
    ACCESS_LINE_STARTS,
    CAUSES_HEADER,
    CHAIN_STARTS,
    DURATION_PATTERN,
    ERROR_LEVELS,
    FORCED_STOP,
    FRAME_START,
    LOGGING_ERROR,
    PACKAGE_NAME,
    PACKAGE_VERSION,
    PRINTED_VERSION,
    QUOTED_WORDS,
    REFUSED_REQUEST,
    REQUEST_ERROR,
    REQUEST_HANDLER,
    SELF_KILLS,
    SHUTDOWN_PHRASES,
    STARTUP_ONLY_CAUSES,
    STOP_REQUESTS,
    TRACEBACK_HEADER,
    TRACEBACK_STARTS,
    TWO_WRITERS,
    VERSION_PRINT,
    LogTime,
    TracebackReader,
    find_own_writer,
    find_stated_level,
    find_writer,
    gives_advice,
    has_usual_name,
    is_below_error,
    is_group_of_exceptions,
    is_harmless,
    is_kernel_or_test_line,
    is_own_request,
    is_warning,
    looks_like_error,
    may_hold_duration,
    parse_log_time,
    says_it_ends,
    says_it_goes_on,
    says_it_is_done,
    says_it_listens,
    says_it_tries_again,
    strip_group_frame,
    tells_broken_connection,
    tells_exit_status,
)
from sparkctl.model.engine_metrics import EngineFact, EngineFactName, StatsLineKind
from sparkctl.model.launch_plan import REQUEST_MARK, ReadinessRule
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.phase import Phase, PhaseDuration, Step
from sparkctl.model.text import lazy_pattern
from sparkctl.model.text.bounded_pattern import compile_bounded
from sparkctl.model.text.log_line import LogLine
from sparkctl.model.text.sanitize import sanitize_line, truncate_text
from sparkctl.model.text.secrets import redact
from sparkctl.model.verdict import FailureCause, Verdict

_MAX_PARTS = 64  # parts


@dataclass(slots=True)
class LogPhaseTimer:
    """Measures the phases of a start by its lines. A line without a timestamp gets the time of the last line that has one."""

    _began: list[tuple[Phase, str | None, LogTime | None]] = field(default_factory=list)
    _latest: LogTime | None = None
    _ready: LogTime | None = None

    def advance_time(self, line: LogLine) -> LogTime | None:
        """Advance to the time of this line; return that time, None if no line had a timestamp yet."""
        self._latest = parse_log_time(line.when, line.text) or self._latest
        return self._latest

    def start_phase(self, phase: Phase, step: str | None, line: LogLine) -> None:
        """Record that a part began with this line."""
        now = self.advance_time(line)
        if len(self._began) < _MAX_PARTS:
            self._began.append((phase, step, now))

    def shorten_part(self, step: str, seconds: float, line: LogLine) -> None:
        """Correct the beginning of the last part, if it is ``step``: with this line the engine says how long it took, and nothing dated
        may have told that it began."""
        now = self.advance_time(line)
        if now is None or not self._began or self._began[-1][1] != step:
            return
        phase, _, at = self._began[-1]
        first = self._began[-2][2] if at == now and len(self._began) > 1 else at
        began = replace(now, seconds=now.seconds - seconds)
        self._began[-1] = phase, step, began if first is None or began.seconds_since(first) is not None else first

    def mark_ready(self, line: LogLine) -> None:
        """Record that the last part ended with this line."""
        self._ready = parse_log_time(line.when, line.text) or self._latest

    def has_step(self, step: str) -> bool:
        """Tell whether there was a part of that name."""
        return any(name == step for _, name, _ in self._began)

    @property
    def has_loaded(self) -> bool:
        """Whether there was a part of an engine: any program may start an HTTP server."""
        return any(name not in (None, "http") for _, name, _ in self._began)

    @property
    def phase_durations(self) -> tuple[PhaseDuration, ...]:
        """The duration of each part, as far as the timestamps show it."""
        ends = [*(at for _, _, at in self._began[1:]), self._ready or self._latest][: len(self._began)]
        taken = ((p, s, end.seconds_since(began)) for (p, s, began), end in zip(self._began, ends, strict=True) if end)
        return tuple(PhaseDuration(phase, step, seconds) for phase, step, seconds in taken if seconds is not None)


_MAX_FAILURES = 64  # failures stored at most
_SECOND_LOAD_STEPS = ("profiling", "kv-cache")  # of a draft model


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceLine:
    """A line that may be evidence. ``serving``: the engine was ready by then. ``life``, ``moves`` and ``made`` count the
    lines before it that showed the engine at work, its progress, and generated tokens; ``ordinary``: see `LogAnalyzer`. ``raw``: the
    line's beginning as the log
    has it; ``is_of_request``: it stands in the traceback of a request that failed; ``is_handled``: an exception that was handled
    when another one came up, ``is_context``: and its cause is known; ``is_uncaught``: nothing caught this exception, so its program ended;
    ``is_logged``: its program caught it, for it logged the traceback.
    ``answered`` counts the requests that were answered before it; ``is_refused``: the next request after it was refused, so it may be of
    that request alone."""

    number: int
    text: str
    failure: Failure | None = None
    serving: bool = False
    life: int = 0
    moves: int = 0
    made: int = 0
    ordinary: int = 0
    raw: str = ""
    is_of_request: bool = False
    is_handled: bool = False
    is_context: bool = False
    is_uncaught: bool = False
    is_logged: bool = False
    answered: int = 0
    is_refused: bool = False


def _may_end_program(seen: EvidenceLine) -> bool:
    """Tell whether a program that ends may have printed this line: it is no record of a log, and of no request."""
    head, found, _ = seen.raw.partition(seen.text[:_MIN_TEXT_CHARS])
    is_bare = not found or not head.strip() or (head.rstrip().endswith(")") and bool(find_writer(head)))
    return is_bare and not seen.is_of_request and not seen.is_logged


def failure_weight(seen: EvidenceLine) -> int:
    """Return how concrete a failure is: see `FailureWeight`."""
    return seen.failure.weight if seen.failure else 0


def pick_most_specific(some: Iterable[EvidenceLine]) -> EvidenceLine | None:
    """Return the most concrete failure, among equals the first; None if there is none. Of lines that only say that something
    failed before, one that says that the engine ended counts more."""
    return max(some, key=_rank_failure, default=None)


def _rank_failure(seen: EvidenceLine) -> tuple[int, bool]:
    weight = failure_weight(seen)
    return weight, weight <= FailureWeight.AFTERMATH and seen.failure is not None and seen.failure.fatal


def _is_death(seen: EvidenceLine) -> bool:
    """Tell whether a part of an engine that served says that it ends."""
    failure = seen.failure
    return seen.serving and failure is not None and failure.fatal and failure.weight <= FailureWeight.DEATH


def _ends_process(failure: Failure) -> bool:
    return failure.fatal or failure.cause in (FailureCause.KILLED, FailureCause.HOST_OOM_KILL)


def make_room_for_failure(failures: list[EvidenceLine], failure: Failure) -> bool:
    """Tell whether to store one more failure. If there are too many (a client with bad requests for days, a compiler that refuses
    each file), the weakest one is removed for a heavier one, and one that only says what others say for one of another kind."""
    if len(failures) < _MAX_FAILURES:
        return True
    weakest = min(failures, key=lambda seen: (failure_weight(seen), -seen.number))
    if failure.weight > failure_weight(weakest):
        failures.remove(weakest)
        return True
    kinds = [_get_kind(seen.failure) for seen in failures]
    repeated = next((at for at in reversed(range(len(kinds))) if kinds.count(kinds[at]) > 1), None)
    if repeated is None or _get_kind(failure) in kinds:
        return False
    del failures[repeated]
    return True


def _get_kind(failure: Failure | None) -> tuple[FailureCause, int] | None:
    return None if failure is None else (failure.cause, failure.weight)


def has_consequences(of: EvidenceLine, failures: Iterable[EvidenceLine]) -> bool:
    """Tell whether another part of the engine reports its end as well."""
    return of.failure is not None and (
        of.failure.weight <= FailureWeight.DEATH
        or any(
            one.serving and one.failure is not None and one.failure.fatal and one.failure.weight <= FailureWeight.DEATH
            for one in failures
        )
    )


# Nobody changes it; it is not frozen because one is made for each new line (see `LogLine`).
@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class LineContent:
    """What a line says, whatever stands around it. ``text``: as the engines read it; ``plain``: without the frame of an
    ``ExceptionGroup``; ``level``: its own; ``is_answer``: the code that answers a single request wrote it;
    ``is_request_error``: the server says that a request failed, or its logging that a record did; ``is_usage``: a client used
    the engine; ``has_served``: it had been ready before this line; ``is_version``: the version of what the line before
    it names; ``says_ready``: an engine says that it is; ``is_plain``: it is none of these, and no failure: facts and
    progress, as most lines of a start.
    """

    text: str
    plain: str
    level: str | None
    is_turning_point: bool
    is_serving: bool
    is_request: bool
    is_usage: bool
    has_served: bool
    is_answer: bool
    is_request_error: bool
    is_standstill: bool
    may_be_traceback: bool
    is_error: bool
    may_be_duration: bool
    listens: bool
    tries_again: bool
    is_done: bool
    is_plain: bool
    is_version: bool
    says_ready: bool
    signal: LineSignal | None


@dataclass(frozen=True, slots=True)
class ReportedDuration:
    """A duration in seconds that the engine itself logged for a part."""

    what: str
    seconds: float
    line: int


@dataclass(frozen=True, slots=True)
class TracebackBlock:
    """A traceback: its first and last line, and the exception at its end."""

    first: int
    last: int
    exception: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureCandidate:
    """A line that a rule took for a failure. ``rule``: the words by which the rule knew it; ``survived``: the engine went on;
    ``is_handled``: an exception that was handled when another one came up."""

    line: int
    cause: FailureCause
    weight: int
    rule: str | None
    survived: bool
    is_handled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReading:
    """How a log was read. ``engine_line``: the number and text of the line by which its engine was recognised, None if no single
    line told; ``version_line``: the number of the line with its version; ``root``: that of the candidate that explains the others;
    ``is_turned``: the newest line stands first, and the lines were read from the last to the first.
    """

    engine_line: tuple[int, str] | None
    version_line: int | None
    tracebacks: tuple[TracebackBlock, ...]
    candidates: tuple[FailureCandidate, ...]
    root: int | None
    is_turned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDiagnosis:
    """The result of reading a log. ``engine`` None: no engine's log; ``ready``: the last run became ready at some time;
    ``verdict`` None: no failure that the engine did not survive. ``parts``: duration of each part by the lines' timestamps.

    If the log has several ``runs``, all this is about the last, which began at line ``run_began``; ``before`` is why the run
    before it ended. ``lines`` counts all lines. ``stopped_at``: the line at which a requested stop begins;
    ``sounds_like_an_engine``: some line is one that an engine prints. ``unproved``: why it is not known that a running engine
    works, where no answer of it was seen; its log does not tell that.
    """

    engine: str | None
    version: str | None
    phase: Phase
    step: str | None
    ready: bool
    verdict: Verdict | None
    facts: tuple[EngineFact, ...]
    parts: tuple[PhaseDuration, ...]
    took: tuple[ReportedDuration, ...]
    lines: int
    runs: int
    run_began: int
    before: Verdict | None
    stopped_at: int | None
    sounds_like_an_engine: bool
    reading: LogReading | None
    unproved: str | None = None


_MAX_REPORTED_DURATIONS = 64
# Lines of an engine at work after a failure that it survived: a dying one prints hardly any.
SURVIVED_LINES, _SURVIVED_LINES_FATAL = 3, 50
# Lines with generated tokens since: a dying engine's front end prints at most one, for the seconds before.
_SURVIVED_TOKEN_LINES = 2
# Requests that it answered after one that it refused: those of an engine that ends are all refused, but for a stream that had begun.
_SURVIVED_ANSWERS = 2
# Ordinary lines after a failure of a program that went on, and after one that ends it (its parts may load to their end before it
# does), and how many such lines count as much as one record of a log: what is posted with a failure has some text after it, but
# hardly any records.
_WENT_ON_LINES, _WENT_ON_LINES_FATAL, _RECORD_LINES = 40, 200, 4
_SERVED_ON_LINES = 3 * _RECORD_LINES
_AT_WORK_LINES = 8  # after the one with which an unknown program began to take requests
_MAX_BANNER_LINES = 40  # lines between an engine's name with its version and its settings, at most
_MAX_FORGIVEN_LINES = 8  # lines in which a program may say what failed before it says that it tries again
_BARE_FRAMES = (f"  {FRAME_START}", FRAME_START)  # nothing stands before them
_MAX_HEAD_CHARS = 200  # of a line as the log has it, in which its prefixes stand
_MIN_TEXT_CHARS = 20  # by which the end of the prefixes is found
# Rust: a cause of an error, below the header of all of them.
_CAUSE = lazy_pattern.compile(r"(?: {2,}|\t) {0,20}(?:\d{1,3}: {1,4})?(?P<what>\S.{0,2000})")
_MINUTE_HEADER = lazy_pattern.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d\] ")  # ComfyUI's
_ANSWERED = lazy_pattern.compile(r"HTTP/[\d.]{1,4}\" 2\d\d\b")  # an access line
_REFUSED = lazy_pattern.compile(r"\"POST /v\d/\S{1,200} HTTP/[\d.]{1,4}\" [45]\d\d\b")
_PORT, _NUMBER = lazy_pattern.compile(r":(\d{2,5})\b"), lazy_pattern.compile(r"\b\d{2,5}\b")
_MAX_PORTS = 64
_MAX_CHAIN_LINES = 6  # lines from one exception to the next traceback of the same error
# In the name of a process: a later stage of pipeline parallelism, and one of the ranks that share each tensor.
_LATER_STAGE, _ONE_OF_RANKS = (
    lazy_pattern.compile(r"(?<![A-Za-z])PP[1-9]"),
    lazy_pattern.compile(r"(?<![A-Za-z])(?:TP[1-9]|rank=\d)|Worker_TP\d"),
)
# What stands where an excerpt was cut.
_CUT_MARK = lazy_pattern.compile(
    r"[\s.…]{0,20}+(?:[\[(<]{0,2}(?:\.{2,3}|…)? ?(?:[Tt]runcated|TRUNCATED|snip|cut|omitted)\b[^\])>]{0,60}[\])>]{0,2})?[\s.…]{0,20}$"
)
# What programs try on purpose: a module, a file, a key that need not be there.
_TRIED = lazy_pattern.compile(r"(?:ModuleNotFound|Import|FileNotFound|Key|Attribute)Error\b")
_NO_MESSAGE = lazy_pattern.compile(r"[\w.]{1,200}: *$")  # an exception's class alone
_MAX_BANNER_TAIL_LINES = 12  # lines of an image's banner after its warning
_MAX_TAIL_LINES = 6  # lines of cleanup that may follow the last error
_MAX_MESSAGE_CHARS = 2048
_MAX_TRACEBACKS = 32
_MAX_EXCEPTION_CHARS = 200
_MAX_KNOWN_LINES = 4096
_MAX_KNOWN_LONG_LINES = 64  # of more than these characters: a request with its prompt has up to 256 KiB
_MAX_KNOWN_CHARS = 1000
_MAX_KNOWN_TEXTS = 256  # of errors that take several lines
_STANDSTILL_LINES = 3  # in a row: one or two are said during a long compilation, too
_STANDSTILL = Failure(
    cause=FailureCause.WEDGED,
    summary="The engine hangs: its processes wait for each other, and log nothing else.",
    remedy="Look at the logs of the other ranks, and at the link between the nodes; then down, and up again.",
    fatal=False,
    weight=FailureWeight.DEATH,
)
# Before it is ready, workers whose log is not shown here (Ray without its log monitor) may load for ten minutes.
_SILENT_START = replace(
    _STANDSTILL,
    summary="The engine's processes wait for each other, and log nothing else: it hangs, or its workers still load or compile.",
    remedy="Look at the workers before you stop it: at their own logs (Ray: /tmp/ray/session_latest/logs in the container), and whether they "
    "are at work (top on each node). While they are, wait: a new start begins from nothing. If they are idle, look at the link between the "
    "nodes.",
)
# Said once or twice, while requests run and get nothing. A kernel that a request needs first may be compiled meanwhile.
_STOOD_WITH_REQUESTS = replace(
    _STANDSTILL,
    summary="Requests run and get nothing, and the engine's processes wait for each other: it hangs, or it compiles for minutes.",
    remedy=f"If it answers again soon, it compiled. If not: {_STANDSTILL.remedy[0].lower()}{_STANDSTILL.remedy[1:]}",
)


@dataclass(slots=True, kw_only=True)
class LogAnalyzer:
    """Reads one log. A phase is never left backwards: draft models load weights after graphs were captured.

    ``whole``: the log is complete and not followed. It may hold several runs, of which the last counts, and lines that only
    an engine at work prints prove that it was ready, even if the ready line is lost. ``is_unknown``: no line has shown yet whose log
    this is; then ordinary lines, which are counted, show that the program went on after a failure.
    """

    engine: Engine
    ready: ReadinessRule
    whole: bool = False
    is_unknown: bool = False
    phase: Phase = Phase.STARTING
    step: Step | None = None
    ready_line_seen: bool = False
    has_served: bool = False
    failures: list[EvidenceLine] = field(default_factory=list)
    last_error: EvidenceLine | None = None
    facts: dict[EngineFactName, EngineFact] = field(default_factory=dict)
    took: list[ReportedDuration] = field(default_factory=list)
    runs: int = 1
    run_began: int = 1  # the line at which the last run began
    before: EvidenceLine | None = None  # the root of the run before
    tracebacks: list[TracebackBlock] = field(default_factory=list)  # the first ones
    version_line: int | None = None
    _read_last: int = 0  # the last line that was not skipped
    stopped: EvidenceLine | None = None  # the first line of a requested stop
    _life: int = 0
    _made: int = 0
    _answered: int = 0
    _ordinary: int = 0
    _lived_at: int = 0  # the last line of an engine at work
    _opened_at: int | None = None  # the first line since then of a traceback or a usage message
    _joined_from: int = 0
    _level_error: EvidenceLine | None = None
    _banner: tuple[int, EngineFact] | None = None
    _has_old_version: bool = False
    _moves: int = 0
    _times: LogPhaseTimer = field(default_factory=LogPhaseTimer)
    _begun: set[str] = field(default_factory=set)
    _preparer: LinePreparer = field(default_factory=LinePreparer)
    is_ready_line: Callable[[str], object] | None = None
    _has_own_ready_line: bool = True
    _latest: tuple[int, str | bytes] | None = None  # bytes: a line that was skipped
    _traceback: TracebackReader = field(default_factory=TracebackReader)
    _prefix: TracebackPrefix = field(default_factory=TracebackPrefix)
    # An exception that no rule named, the lines of its message so far, and the weight of the first.
    _unnamed: tuple[LogLine, str, int, str | None] | None = None
    _causes: list[int] | None = None  # the lines of an error and of its causes so far; None outside of such a list
    _standstills: int = 0  # in a row
    _standing: tuple[LogLine, str] | None = None  # the last line of a standstill
    _request_error: int = -_MAX_CHAIN_LINES  # the last line of what says that a request failed: its tracebacks follow
    _is_request_traceback: bool = False
    _ends_itself: bool = False
    _ready_at: int = 0  # the line with which it became ready
    _listens_at: int = 0  # the line with which an unknown program began to take requests
    _listened_at: int = 0  # the last line with which it began to
    _ports: dict[str, int] = field(default_factory=dict)  # on which servers have listened: the last line that said so

    def __post_init__(self) -> None:
        # An engine's rules tell its own ready line from quoted text; a profile's is trusted.
        self._has_own_ready_line = self.ready.line == self.engine.defaults.ready_line
        is_own = self._has_own_ready_line
        self.is_ready_line = _compile_ready_line(self.ready.line, is_own=is_own) if self.ready.line else None
        self.ready_line_seen = self.ready.line is None

    def feed_lines(self, lines: Iterable[LogLine]) -> bool:
        """Read lines; return whether phase or step changed."""
        before = (self.phase, self.step, self.ready_line_seen)
        for line in lines:
            self.feed_line(line)
        return (self.phase, self.step, self.ready_line_seen) != before

    def feed_line(self, line: LogLine) -> None:
        """Read one line."""
        self._read_last, raw = line.number, line.text
        if self._prefix.pattern is not None or (FRAME_START in raw and not raw.startswith(_BARE_FRAMES)):
            text = self._prefix.strip_line(raw)
            if text is not raw:
                line, raw = replace(line, text=text), text
        was_joining = self._preparer.joining is not None
        read = _read_short_line if len(raw) <= _MAX_KNOWN_CHARS else _read_long_line
        if not was_joining and (contents := read(self.engine, raw)) is not None:  # most lines
            for content in contents:
                self._process_content(line, content)
            return
        texts = self._preparer.prepare_lines(raw)
        is_joined = was_joining and self._preparer.joining is None and len(texts) == 2
        if self._preparer.joining is not None and "validation error" in line.text:
            self._joined_from = line.number
        for at, text in enumerate(texts):
            if _is_older_state(texts, at):
                continue
            if is_joined and at:  # an error over several lines counts at its first line
                latest = self._latest
                self._process_text(replace(line, number=self._joined_from or line.number), text)
                self._latest = latest
            else:
                self._process_text(line, text)

    def read_traceback_end(self, lines: Iterable[LogLine]) -> None:
        """Read the end of a traceback that the log's end cuts: its frames were skipped, though a line after them was read (the
        fence of a paste). ``lines``: the log's last ones."""
        for line in lines if self._traceback.is_open else ():
            if line.number > self._traceback.first_line:
                level, text = prepare_text(line.text)
                self._traceback.read_line(line.number, text, line.text, level)
                self._read_last = line.number

    def read_cut_message(self) -> None:
        """Read an error over several lines that the log's end cuts."""
        if (text := self._preparer.take_cut_message()) is not None:
            latest = self._latest
            self._process_text(LogLine(when="", text=text, number=self._joined_from or self._read_last), text)
            self._latest = latest

    @property
    def latest_line(self) -> EvidenceLine | None:
        """The last line with text."""
        if self._latest is None:
            return None
        number, text = self._latest
        return EvidenceLine(number=number, text=prepare_raw_line(text) if isinstance(text, bytes) else text)

    @property
    def fatal_line(self) -> EvidenceLine | None:
        """The first line after which the engine cannot become ready, even if its process still runs."""
        return next((seen for seen in self.open_failures if seen.failure and seen.failure.fatal), None)

    @property
    def was_ready(self) -> bool:
        """Whether the last run became ready at some time, as far as the log shows."""
        return self.has_served or (self.ready_line_seen and self.ready.line is not None)

    @property
    def skippable_effect(self) -> LineEffect | None:
        """The largest effect of lines that `skip_lines` may skip from here on; None: each may belong to the one before."""
        if (
            self.phase is Phase.STARTING
            or self._preparer.joining is not None
            or self._unnamed is not None
            or self._causes is not None
            or self._standstills
            or self._traceback.is_in_statement
            or self._prefix.pattern is not None
        ):
            return None
        if self.is_unknown and self.failures and self._ordinary - self.failures[-1].ordinary < _WENT_ON_LINES_FATAL:
            return LineEffect.INVISIBLE  # each line counts
        if not self.whole or not (self.ready_line_seen or self.has_served):
            return LineEffect.REMEMBERED
        if not self.has_served or (self.failures and self._life - self.failures[-1].life < _SURVIVED_LINES_FATAL):
            return LineEffect.REQUEST
        return LineEffect.WORK

    @property
    def is_in_traceback(self) -> bool:
        """Whether the next line may be one of a traceback."""
        return self._traceback.is_open

    def skip_lines(self, latest: tuple[int, bytes] | None, activity: int | None) -> None:
        """Skip lines that change nothing else: ``latest`` is the last one with text and its number, ``activity`` the number of
        the last one that shows a server or an engine at work."""
        self._latest = latest or self._latest
        if activity is not None:
            self._note_activity(activity)

    @property
    def open_failures(self) -> list[EvidenceLine]:
        """The failures that the engine did not survive, in the order of the log."""
        return [
            seen for seen in self.failures if seen.failure is not None and not self._has_survived(seen, seen.failure)
        ]

    @property
    def root_failure(self) -> EvidenceLine | None:
        """The failure that explains the others: the most concrete, among equals the first."""
        return self._find_root(self.open_failures)

    def _find_root(self, open_failures: Sequence[EvidenceLine]) -> EvidenceLine | None:
        found = pick_most_specific(open_failures)
        if found is None or failure_weight(found) > FailureWeight.LOST:
            return found
        # Only its death is left: a failure that another of its processes survived may be the reason.
        return pick_most_specific(
            [seen for seen in self.failures if seen.serving is found.serving and seen.life == found.life]
        )

    @property
    def has_begun(self) -> bool:
        """Whether the beginning or any progress of this run was seen."""
        return bool(self._begun) or self._moves > 1

    @property
    def end_cause(self) -> EvidenceLine | None:
        """The root failure, if it is more than a healthy server prints for a client's bad request or a stop: for an
        exception without a rule, some part of the engine must report that it ends because of it."""
        if not self.failures:
            return None
        open_failures = self.open_failures
        root = self._find_root(open_failures)
        if (
            root is None
            or root.failure is None
            or all(seen.failure and seen.failure.is_warning for seen in open_failures)
        ):
            return None
        if (
            root.failure.weight == FailureWeight.EXCEPTION
            and not _may_end_program(root)
            and self._is_error_at_work(root)
        ):
            return None
        ends_script = root.is_uncaught and self._ends_soon_after(root)
        is_stopped = self.stopped is not None and self.stopped.number > root.number
        if root.serving and is_stopped and not self._has_died and not ends_script:
            return None  # it served on until it was asked to stop
        is_the_end = (
            not root.serving or ends_script or any(seen.failure and seen.failure.fatal for seen in open_failures)
        )
        if root.failure.weight >= FailureWeight.DEATH and root.failure.cause not in STARTUP_ONLY_CAUSES:
            is_the_end = True  # what only a start can say ends no engine at work: a client's picture or adapter
        return root if is_the_end else None

    def _ends_soon_after(self, seen: EvidenceLine) -> bool:
        """Tell whether nothing was served after this line, and a stop or the log's end is near: a script that starts an engine stops it
        where it fails itself."""
        end = self._latest[0] if self._latest is not None and self.stopped is None else 0
        end = self.stopped.number if self.stopped is not None else end
        return self._life == seen.life and 0 <= end - seen.number <= _MAX_BANNER_TAIL_LINES

    @property
    def cut_line(self) -> EvidenceLine | None:
        """The last error of a log that breaks off within it, with the failure of which its end has the first words; None if there is no
        such line."""
        root, latest = self.root_failure, self.latest_line
        for seen in (self.last_error, self._level_error, root):
            if (
                seen is None
                or latest is None
                or self.stopped is not None
                or latest.number - seen.number > _MAX_TAIL_LINES
            ):
                continue
            is_named = seen.failure is not None and seen.failure.weight != FailureWeight.EXCEPTION
            if is_named or (root is not None and seen.number < root.number):
                continue
            text = _CUT_MARK.sub("", seen.text)
            failure = self.engine.log_rules.classify_cut_line(text)
            if failure is not None:
                return replace(seen, failure=self._refine_failure(failure, text, is_serving=False))
        return None

    @property
    def closing_warning(self) -> EvidenceLine | None:
        """The warning with which the log ends, if a rule knows it as what may have ended the program and nothing else failed."""
        root, latest = self.root_failure, self.latest_line
        if root is None or latest is None or self.end_cause is not None:
            return None
        if FailureWeight.DYING < failure_weight(root) < FailureWeight.CONCRETE:
            return None
        return root if latest.number - root.number <= _MAX_BANNER_TAIL_LINES and not self.was_ready else None

    @property
    def final_error(self) -> EvidenceLine | None:
        """The error at the end of the log, with or without a rule; not one after which the engine went on."""
        seen = self.last_error
        if seen is None or self.stopped is not None or self._latest is None or self._moves > seen.moves:
            return None
        return seen if self._latest[0] - seen.number <= _MAX_TAIL_LINES else None

    @property
    def last_words(self) -> EvidenceLine | None:
        """The line that looks like an error and with which the log ends, but for lines of the same message, or one that tells an
        exit status; None if a program that is no engine goes on after it."""
        seen, latest = self.final_error, self.latest_line
        if seen is None or latest is None:
            return None
        if self._is_error_at_work(seen) or is_kernel_or_test_line(seen.text):
            return None
        if not seen.text.startswith('{"') and not looks_like_error(QUOTED_WORDS.sub("", seen.text)):
            return None
        is_rest = latest.text[:1].isspace() or looks_like_error(latest.text) or gives_advice(latest.text)
        return seen if latest.number == seen.number or is_rest or tells_exit_status(seen.text) else None

    def _is_error_at_work(self, seen: EvidenceLine) -> bool:
        """Tell whether an unknown program had taken requests for a while when it wrote this line, which does not say that it ends."""
        is_up = 0 < self._listens_at <= seen.number - _AT_WORK_LINES
        return is_up and not says_it_ends(seen.text)

    @property
    def unnamed_error(self) -> EvidenceLine | None:
        """The error without a rule at the end of a log whose engine never became ready."""
        seen = self._level_error
        if (
            seen is None
            or self.stopped is not None
            or self.was_ready
            or self._latest is None
            or self._moves > seen.moves
        ):
            return None
        return seen if self._latest[0] - seen.number <= _MAX_TAIL_LINES else None

    def get_last_run_analyzer(self) -> LogAnalyzer:
        """Return the analyzer of the last run: a line that only a start prints, after readiness, belongs to a new start."""
        opens = (
            next((seen for seen in self.open_failures if self._belongs_to_start(seen)), None) if self.whole else None
        )
        if opens is None:
            return self
        fresh = LogAnalyzer(engine=self.engine, ready=self.ready, whole=self.whole, is_unknown=self.is_unknown)
        fresh._ordinary = self._ordinary
        fresh.runs, fresh._latest, fresh._moves = self.runs + 1, self._latest, 1
        fresh.run_began = min(self._opened_at or opens.number, opens.number)
        earlier = [seen for seen in self.open_failures if seen.number < fresh.run_began]
        if any(seen.failure is not None and seen.failure.fatal for seen in earlier):
            fresh.run_began, fresh.before = opens.number, pick_most_specific(earlier)
        for seen in self.failures:
            if seen.number >= fresh.run_began:
                fresh.failures.append(replace(seen, serving=False, life=0, moves=1, made=0))
        fresh.tracebacks = [one for one in self.tracebacks if one.last >= fresh.run_began]
        version = self.facts.get(EngineFactName.ENGINE_VERSION)
        if version is not None:
            fresh.facts[EngineFactName.ENGINE_VERSION], fresh.version_line = version, self.version_line
        return fresh

    def describe_reading(self, engine_line: tuple[int, str] | None) -> LogReading:
        """Return how this log was read; ``engine_line``: by which line its engine was recognised."""
        return LogReading(
            engine_line=engine_line,
            version_line=self.version_line,
            tracebacks=tuple(replace(one, exception=_shorten_exception(one.exception)) for one in self.tracebacks),
            candidates=tuple(
                FailureCandidate(
                    line=seen.number,
                    cause=seen.failure.cause,
                    weight=seen.failure.weight,
                    rule=seen.failure.rule,
                    survived=self._has_survived(seen, seen.failure),
                    is_handled=seen.is_handled,
                )
                for seen in self.failures
                if seen.failure is not None
            ),
            root=None if self.end_cause is None else self.end_cause.number,
        )

    @property
    def contributing_failures(self) -> tuple[EvidenceLine, ...]:
        """Other concrete causes besides the root that are no consequences, each once."""
        root = self.root_failure
        found: dict[FailureCause, EvidenceLine] = {}
        for seen in self.open_failures:
            if (
                root is None
                or seen.failure is None
                or root.failure is None
                or (seen.failure.weight < FailureWeight.LIKELY and not seen.is_context)
                # what had failed was waited for
                or (seen.failure.cause is FailureCause.TIMED_OUT and seen.number > root.number)
            ):
                continue
            if seen.failure.cause is not root.failure.cause:
                found.setdefault(seen.failure.cause, seen)
        return tuple(found.values())

    @property
    def phase_durations(self) -> tuple[PhaseDuration, ...]:
        """The duration of each part of the start, as far as its lines have timestamps. Of an excerpt without a start there is none; where
        the ready line is missing, the last part has no end."""
        if self.whole and (self.is_unknown or not self.has_begun):
            return ()
        parts = self._times.phase_durations
        return parts[:-1] if self.has_served and not self.ready_line_seen else parts

    def _has_survived(self, seen: EvidenceLine, failure: Failure) -> bool:
        since = self._life - seen.life
        needed = _WENT_ON_LINES_FATAL if failure.fatal else _WENT_ON_LINES
        if failure.weight == FailureWeight.EXCEPTION and 0 < self._listens_at < seen.number and not seen.is_uncaught:
            needed = _SERVED_ON_LINES  # its program takes requests, and caught what one of them met
        if self.is_unknown and (self._ordinary - seen.ordinary >= needed or seen.number < self._listened_at):
            return True
        stood = self._standing
        if stood and failure.cause is FailureCause.WEDGED and not seen.serving and seen is self.failures[-1]:
            return self._latest is not None and self._latest[0] - stood[0].number >= _WENT_ON_LINES
        # Without the ready line, requests that were answered show that it was ready: of streams, some after the death.
        if self.whole and self.was_ready and not seen.serving and (self.ready_line_seen or since >= SURVIVED_LINES):
            return True
        if self.whole and seen.serving and failure.cause in STARTUP_ONLY_CAUSES and self._lived_at > seen.number:
            return True  # a client's adapter, template or picture: the engine went on
        if not failure.fatal and seen.serving and (death := self._find_death_after(seen)) is not None:
            is_at_work = self._made - death.made >= _SURVIVED_TOKEN_LINES
            return is_at_work or death.failure is None or self._has_survived(death, death.failure)
        if failure.weight == FailureWeight.AFTERMATH and seen.serving and self._lived_at > seen.number:
            # what came before it, and only that: a client's request for a model or an adapter that cannot be had
            same = [one.failure for one in self.failures if one.life == seen.life and one.number < seen.number]
            if same and all(one is not None and one.cause in STARTUP_ONLY_CAUSES for one in same):
                return True
        served_on = seen.is_refused and self._answered - seen.answered >= _SURVIVED_ANSWERS
        if self.whole and served_on and not has_consequences(seen, self.failures):
            return True  # what a request was refused for, and only that
        if failure.fatal:
            if since >= _SURVIVED_LINES_FATAL:
                return True
            # A model's output may quote an error. A real one is reported by another part of the engine as well.
            return (
                seen.serving
                and self._made - seen.made >= _SURVIVED_TOKEN_LINES
                and not has_consequences(seen, self.failures)
            )
        return since >= SURVIVED_LINES or self._moves > seen.moves

    @property
    def _has_died(self) -> bool:
        return any((one.failure is not None and one.failure.fatal) or _is_death(one) for one in self.failures)

    def _find_death_after(self, seen: EvidenceLine) -> EvidenceLine | None:
        """Return the line right after this one by which a part of the engine says that it ends: what serves may answer on."""
        if not self.whole:
            return None
        return next(
            (
                one
                for one in self.failures
                if one.number >= seen.number and one.life - seen.life < SURVIVED_LINES and _is_death(one)
            ),
            None,
        )

    def _belongs_to_start(self, seen: EvidenceLine) -> bool:
        failure = seen.failure
        if (
            failure is None
            or not seen.serving
            or failure.cause not in STARTUP_ONLY_CAUSES
            or failure.weight < FailureWeight.CONCRETE
            or any(map(seen.text.__contains__, self.engine.signs.own_checks))
        ):
            return False
        if failure.cause is FailureCause.UNKNOWN_FLAG:
            return True
        return _may_end_program(seen) and (self.stopped is not None or seen is self.root_failure)

    def _note_activity(self, number: int) -> None:
        self._lived_at, self._opened_at = number, None

    def _process_text(self, line: LogLine, text: str) -> None:
        read = _read_short_text if len(line.text) <= _MAX_KNOWN_CHARS else _read_content
        if (content := read(self.engine, line.text, text)) is not None:
            self._process_content(line, content)

    def _process_content(self, line: LogLine, content: LineContent) -> None:
        text = content.text
        if content.listens:
            self._note_listening(line, text)
        if (
            content.is_plain
            and self._unnamed is None
            and self._causes is None
            and not self._traceback.is_open
            and self.phase is not Phase.STARTING
        ):
            self._latest, self._standstills = (line.number, text), 0
            if self.is_unknown:
                self._count_ordinary_line(line, content)
            if not self.ready_line_seen and (content.says_ready or not self._has_own_ready_line):
                self._note_readiness(line, text)
            if (signal := content.signal) is not None:
                if signal.facts:
                    self._apply_signal(signal, line, content.plain)
                elif signal.step is not self.step or signal.phase is not self.phase:
                    self._follow_progress(signal, line)
            return
        if content.is_turning_point:
            self._note_turning_point(line, text)
        if content.is_turning_point and text.rstrip() == CAUSES_HEADER and not self._traceback.is_open:
            self._causes = [] if self._latest is None else [self._latest[0]]
            return
        before = self.latest_line if content.is_version else None
        self._latest = line.number, text
        if self.phase is Phase.STARTING:
            self._change_phase(Phase.LOADING, None, line)
        if not self.ready_line_seen and (content.says_ready or not self._has_own_ready_line):
            self._note_readiness(line, text)
        if content.has_served and self.whole and not self.was_ready:
            self._note_service()
        if content.is_serving or content.is_request:
            self._note_work(line, content)
            self._count_ordinary_line(line, content)
            return
        text, traceback = content.plain, self._traceback
        if self._causes is not None and self._note_cause(line, text):
            return
        is_exception = False
        if traceback.is_open or content.may_be_traceback:
            is_exception = traceback.read_line(line.number, text, line.text, content.level)
            if traceback.mistaken is not None:
                self._forget_exception(traceback.mistaken)
        if content.is_request_error or (is_exception and self._is_request_traceback):
            self._request_error = line.number
        elif traceback.first_line == line.number:
            self._is_request_traceback = line.number - self._request_error <= _MAX_CHAIN_LINES
        signal = self._apply_versions(content.signal)
        if before is not None and before.text.startswith(PACKAGE_NAME):
            signal = self._classify_line(f"{before.text} {text}")
        elif before is not None and (printed := VERSION_PRINT.search(before.text)) is not None:
            signal = self._classify_line(f"{printed['name']}: {text}")
        is_answer = content.is_answer or (self._is_request_traceback and is_exception)
        if signal is not None and signal.failure is not None:
            is_late = is_answer and (self.was_ready or self._life > 0)
            signal = _drop_harmless_failure(
                signal, signal.failure, content, is_exception=is_exception, is_answer=is_late
            )
        if is_answer and (signal is None or signal.failure is None):
            traceback.close()
            return
        if is_exception:
            signal = self._note_exception(line, text, signal)
        elif content.is_done:
            self._forgive_failures(line, 1)
        elif content.tries_again and (signal is None or signal.failure is None):
            self._forgive_failures(line, line.number - _MAX_FORGIVEN_LINES)
        if self._unnamed is not None or (signal is not None and signal.failure is not None):
            self._join_message(line, text, content.level, signal)
        if content.is_standstill:
            self._count_standstill(line, text)
        else:
            self._standstills = 0
        if signal is not None:
            self._apply_signal(signal, line, text)
        elif content.is_error:
            self.last_error = self._note_error(line, text, self.last_error)
        elif not is_exception and not traceback.is_open and not content.is_standstill:
            self._count_ordinary_line(line, content)
        if content.level in ERROR_LEVELS:
            self._track_level_error(signal, line, text)
        if content.may_be_duration and not self.ready_line_seen:
            self._note_duration(line, text)

    def _count_ordinary_line(self, line: LogLine, content: LineContent) -> None:
        """Count a line that tells neither a failure nor a part of one, if it may matter that the program goes on."""
        if (
            not self.is_unknown
            or not self.failures
            or content.level in ERROR_LEVELS
            or content.text[:1].isspace()
            or is_harmless(content.text)
        ):
            return
        is_record = (
            content.level is not None
            or parse_log_time(line.when, line.text) is not None
            or _MINUTE_HEADER.match(line.text) is not None
        )
        self._ordinary += _RECORD_LINES if is_record else 1

    def _note_listening(self, line: LogLine, text: str) -> None:
        """Note that a server takes requests. A port that was in use before is its own now; one on which a server listened before
        shows that it was started again, after what went wrong before."""
        if self.is_unknown:
            self._listens_at, self._listened_at = self._listens_at or line.number, line.number
        ports = set(_PORT.findall(text))
        # Flask names each address of one start.
        is_again = any(line.number - self._ports.get(port, line.number) > _MAX_TAIL_LINES for port in ports)
        if len(self._ports) < _MAX_PORTS:
            self._ports |= dict.fromkeys(ports, line.number)
        self._drop_failures(
            lambda failure, its_text: (
                failure.cause is FailureCause.PORT_IN_USE and not ports.isdisjoint(_NUMBER.findall(its_text))
            )
        )
        if is_again:
            self.stopped = None
            self._drop_failures(lambda failure, _: not failure.fatal)

    def _drop_failures(self, is_overtaken: Callable[[Failure, str], bool]) -> None:
        """Forget the failures after which the program works, by themselves and their texts."""
        self.failures = [
            seen for seen in self.failures if seen.failure is None or not is_overtaken(seen.failure, seen.text)
        ]

    def _note_readiness(self, line: LogLine, text: str) -> None:
        if self.is_ready_line is not None and self.is_ready_line(text):
            self.ready_line_seen, self._ready_at = True, line.number
            self._times.mark_ready(line)
            self._change_phase(Phase.WARMING, Step("first token"), line)

    def _note_service(self) -> None:
        """Note that the engine had been ready, though the log begins later: what failed since then failed while it served."""
        self.has_served = True
        self.failures = [replace(seen, serving=True) for seen in self.failures]

    def _note_work(self, line: LogLine, content: LineContent) -> None:
        """Note a line of an engine at work, or a request that a server answered."""
        if content.is_request and self.failures:
            self._note_answer(content)
        self._note_activity(line.number)
        if self.is_unknown and self.failures and _ANSWERED.search(content.text):
            self._drop_failures(lambda failure, _: failure.cause is FailureCause.PORT_IN_USE)
        if content.is_usage:
            self._life += 1
            self.has_served = self.has_served or self.whole
        if not content.is_serving or (any(map(_is_death, self.failures)) and not self._is_busy(content.text)):
            return  # what serves may count the requests of an engine that ended
        if self._standstills and self._is_busy(content.text):
            self._standstills = 0
        self._life += 1
        self.has_served = self.has_served or (self.whole and self._is_at_work(content.text))
        if (
            self.failures
            and self._life - self.failures[-1].life <= _SURVIVED_LINES_FATAL
            and self._makes_tokens(content.text)
        ):
            self._made += 1

    def _note_answer(self, content: LineContent) -> None:
        """Note whether a request after a failure was answered or refused; of health checks a dying server answers some, too."""
        if content.is_usage:
            self._answered += 1
        elif _REFUSED.search(content.text):
            for at, seen in enumerate(self.failures):
                if seen.serving and seen.number > self._lived_at:
                    self.failures[at] = replace(seen, is_refused=True)

    def _note_exception(self, line: LogLine, text: str, signal: LineSignal | None) -> LineSignal:
        """Note the last line of a traceback; return what it says."""
        traceback = self._traceback
        if len(self.tracebacks) < _MAX_TRACEBACKS:
            self.tracebacks.append(TracebackBlock(traceback.first_line, line.number, text))
        if signal is None or signal.failure is None or traceback.assertion:
            signal = self._classify_exception(text, signal)
        if traceback.refuses_settings and signal.failure is not None and not self.was_ready:
            signal = replace(signal, failure=name_refused_settings(signal.failure))
        if traceback.handled and (signal.failure is None or signal.failure.weight >= FailureWeight.EXCEPTION):
            is_named = signal.failure is not None and signal.failure.weight > FailureWeight.EXCEPTION
            self._mark_handled(traceback.handled, text, is_named=is_named)
        return signal

    def _mark_handled(self, numbers: tuple[int, ...], text: str, *, is_named: bool) -> None:
        """Note that the exceptions of these lines were handled when that of ``text`` came up: they explain no end, unless its
        message is that it retells one of theirs, or no rule names it: what cleans up after a known cause may fail, too."""
        for at, seen in enumerate(self.failures):
            if seen.failure is None or seen.number not in numbers:
                continue
            if not is_named and seen.failure.weight >= FailureWeight.LIKELY and not _TRIED.match(seen.text):
                continue
            message = seen.text.partition(": ")[2]
            if len(message) < _MIN_TEXT_CHARS or message not in text:
                weight = min(seen.failure.weight, FailureWeight.LOST)
                handled = replace(seen.failure, weight=weight, fatal=False, is_inferred=True)
                is_context = seen.failure.weight >= FailureWeight.LIKELY
                self.failures[at] = replace(seen, failure=handled, is_handled=True, is_context=is_context)

    def _forget_exception(self, number: int) -> None:
        """Forget what was taken for an exception at this line by its place alone: the traceback goes on after it."""
        self.failures = [
            seen
            for seen in self.failures
            if seen.number != number or seen.failure is None or seen.failure.weight != FailureWeight.EXCEPTION
        ]
        self.tracebacks = [one for one in self.tracebacks if one.last != number]

    def _forgive_failures(self, line: LogLine, first: int) -> None:
        """Forget what the process that wrote this line said from the ``first`` line on of a failure: it says that it goes on, or that it
        has done its work. After a fatal one it does not, and of another process it tells nothing."""
        writer = find_writer(line.text[:_MAX_HEAD_CHARS])
        chain = self._traceback.get_chain(writer)
        if chain and chain[-1] >= first:
            first = min(first, chain[0])

        def is_forgiven(seen: EvidenceLine) -> bool:
            is_fatal = seen.failure is not None and seen.failure.fatal
            return seen.number >= first and not is_fatal and find_own_writer(seen.raw, seen.text) == writer

        self.failures = [seen for seen in self.failures if not is_forgiven(seen)]
        for name in ("last_error", "_level_error"):
            if (seen := getattr(self, name)) is not None and is_forgiven(seen):
                setattr(self, name, None)

    def _note_duration(self, line: LogLine, text: str) -> None:
        if len(self.took) >= _MAX_REPORTED_DURATIONS or (found := DURATION_PATTERN.match(text)) is None:
            return
        what, seconds = truncate_text(found["what"].strip(), 80), float(found["seconds"])
        if TWO_WRITERS.search(what):
            return
        self.took.append(ReportedDuration(what, seconds, line.number))
        for name, step in self.engine.signs.reported_steps:
            if name == what:
                self._times.shorten_part(step, seconds, line)

    def _note_turning_point(self, line: LogLine, text: str) -> None:
        """Note that a run, a stop, a traceback or a usage message begins."""
        begins = list_run_starts(self.engine)
        # Ollama, which has no such ready line, loads one model after another.
        if self._ready_at and text.startswith(self.engine.signs.loads):
            begins = self.engine.signs.loads
        if text.startswith(begins):
            if self.whole:
                self._begin_run(line, next(begin for begin in begins if text.startswith(begin)))
            else:
                self.stopped = None  # a new run begins
        if text.startswith(SELF_KILLS):
            self._ends_itself = True
        elif text.startswith(TRACEBACK_STARTS):
            self._opened_at = self._opened_at or line.number
        elif self.stopped is None and self._begins_stop(text):
            self.stopped = EvidenceLine(number=line.number, text=sanitize_line(text))
            self._note_activity(line.number)

    def _classify_line(self, text: str) -> LineSignal | None:
        return self._apply_versions(self.engine.classify_line(text))

    def _apply_versions(self, signal: LineSignal | None) -> LineSignal | None:
        """Return what a line says in the engine's version, which the log has told before. In one that is not known, words that mean
        something in certain versions only may mean it."""
        if signal is None or signal.failure is None or signal.failure.versions is None:
            return signal
        failure, bounds = signal.failure, signal.failure.versions
        known = self.facts.get(EngineFactName.ENGINE_VERSION)
        version = None if known is None else known.value
        if version is None:
            weight = min(failure.weight, FailureWeight.LIKELY)
            return replace(signal, failure=replace(failure, versions=None, is_inferred=True, weight=weight))
        if is_version_within(version, bounds):
            return signal
        other = self._apply_versions(replace(signal, failure=failure.otherwise))
        return None if other == LineSignal() else other

    def _classify_exception(self, text: str, signal: LineSignal | None) -> LineSignal:
        """Return the signal of a traceback's last line that no rule knows. A bare ``AssertionError`` says what it asserted only
        above; an unusual class may have a message that a rule knows; a group of exceptions says nothing, those in it do."""
        if self._traceback.assertion is None:
            unnamed = build_unnamed_failure(text)
            if is_group_of_exceptions(text):
                return LineSignal(failure=replace(unnamed, weight=FailureWeight.DYING))
            rest = text.partition(": ")[2]
            own = self._classify_line(f"RuntimeError: {rest}") if rest and not has_usual_name(text) else None
            named = None if own is None else own.failure
            return LineSignal(failure=unnamed if named is None or named.weight <= FailureWeight.EXCEPTION else named)
        message = f"{text}: {self._traceback.assertion}"
        joined = self._classify_line(message)
        failure = None if joined is None else joined.failure
        if joined is not None and failure is not None and failure.weight > FailureWeight.EXCEPTION:
            return joined
        bare = None if signal is None else signal.failure
        is_unnamed = bare is None or (bare.cause is FailureCause.CRASHED and bare.weight == FailureWeight.EXCEPTION)
        return LineSignal(failure=build_unnamed_failure(message)) if signal is None or is_unnamed else signal

    def _join_message(self, line: LogLine, text: str, level: str | None, signal: LineSignal | None) -> None:
        """Join the lines of the message of an exception that no rule named, which may be cut by a terminal's width, or begin on the
        line after (Rust's panic). If a rule knows more of the whole message, the exception is recorded by that rule."""
        failure = None if signal is None else signal.failure
        if self._traceback.is_open and self._traceback.first_line == line.number:
            self._unnamed = None  # source code follows, not the rest of a message
        elif failure is not None and failure.weight <= FailureWeight.EXCEPTION and "validation error" not in text:
            announces = failure.weight <= FailureWeight.DYING  # another error, which comes with its own words
            self._unnamed = line, text, FailureWeight.EXCEPTION if announces else failure.weight, level
        elif (
            failure is not None
            or signal is not None
            or self._unnamed is None
            or not self._may_continue(line, self._unnamed[0])
            or not _is_continuation(text, level, self._unnamed[3])
        ):
            self._unnamed = None
        else:
            first, begin, weight, first_level = self._unnamed
            message = f"{begin.rstrip()} {text.strip()}"
            joined = self._classify_line(message)
            if joined is not None and joined.failure is not None and joined.failure.weight > weight:
                self._unnamed = None
                self._apply_signal(joined, first, message)
            else:
                if _NO_MESSAGE.match(begin) and text.strip(" =-*#"):
                    self._complete_exception(first.number, message)
                self._unnamed = (first, message, weight, first_level) if len(message) < _MAX_MESSAGE_CHARS else None

    def _note_cause(self, line: LogLine, text: str) -> bool:
        """Note a cause of the error before it, if this line is one: it explains more than those before it. Return whether it is."""
        found, causes = _CAUSE.match(text), self._causes
        if found is None or causes is None:
            self._causes = None
            return False
        message = f"Error: {found['what']}"
        signal = self._classify_line(message)
        failure = None if signal is None else signal.failure
        if failure is None or failure.weight < FailureWeight.EXCEPTION:
            failure = build_unnamed_failure(message)
        is_named = failure.cause is not FailureCause.CRASHED

        def explains_less(seen: EvidenceLine) -> bool:
            is_unnamed = seen.failure is None or seen.failure.cause is FailureCause.CRASHED
            return failure_weight(seen) <= failure.weight and (is_named or is_unnamed)

        self.failures = [seen for seen in self.failures if seen.number not in causes or not explains_less(seen)]
        causes.append(line.number)
        self._apply_signal(LineSignal(failure=failure), line, message)
        return True

    def _may_continue(self, line: LogLine, first: LogLine) -> bool:
        """Tell whether a line may be of the process that wrote the first line of a message: its prefix names no other one."""
        writer = find_writer(line.text[:_MAX_HEAD_CHARS])
        return not writer or writer == find_writer(first.text[:_MAX_HEAD_CHARS])

    def _complete_exception(self, number: int, text: str) -> None:
        """Show an exception whose message begins on the line after it, and that no rule names, with the message."""
        for at, seen in enumerate(self.failures):
            if seen.number == number and seen.failure is not None and seen.failure.weight == FailureWeight.EXCEPTION:
                named = replace(seen.failure, summary=build_unnamed_failure(text).summary)
                self.failures[at] = replace(seen, failure=named, text=sanitize_line(text))
        self.tracebacks = [replace(one, exception=text) if one.last == number else one for one in self.tracebacks]

    def _count_standstill(self, line: LogLine, text: str) -> None:
        """Record that the engine stands still, once it has said so several times and nothing else."""
        self._standstills += 1
        self._standing = line, text
        if self._standstills == _STANDSTILL_LINES:
            self._record_standstill(_STANDSTILL if self.was_ready else _SILENT_START)

    @property
    def unproved_standstill(self) -> int | None:
        """The line by which a serving engine said that it stands still, too seldom to prove it; None where it has made something since."""
        is_unproved = self.was_ready and 0 < self._standstills < _STANDSTILL_LINES
        return self._standing[0].number if is_unproved and self._standing is not None else None

    def prove_standstill(self) -> None:
        """Record that the engine stands still while requests run, as its figures say."""
        self._standstills = _STANDSTILL_LINES
        self._record_standstill(_STOOD_WITH_REQUESTS)

    def _record_standstill(self, failure: Failure) -> None:
        if self._standing is not None:
            line, text = self._standing
            facts = {name: fact.value for name, fact in self.facts.items()}
            self._record_failure(refine_failure(failure, text, None, facts, is_serving=self.was_ready), line, text)

    @property
    def cut_failure(self) -> EvidenceLine | None:
        """The failure of a traceback that the log's end cuts, by its ``raise`` statement; None if there is none."""
        message, number = self._traceback.cut_exception, self._traceback.raise_line
        if message is None or number is None:
            return None
        signal = self._classify_line(message)
        failure = None if signal is None else signal.failure
        return EvidenceLine(
            number=number,
            text=sanitize_line(message),
            failure=failure or build_unnamed_failure(message),
            moves=self._moves,
        )

    def _begins_stop(self, text: str) -> bool:
        """Tell whether an orderly stop begins here. If there was a failure before, the failure is the reason."""
        if text.startswith(STOP_REQUESTS):
            return self.fatal_line is None and FORCED_STOP not in text
        is_up = self.was_ready or (not self.whole and self._life > 0)  # the tail of a log may lack the ready line
        return is_up and text.startswith(SHUTDOWN_PHRASES) and self.fatal_line is None

    def _track_level_error(self, signal: LineSignal | None, line: LogLine, text: str) -> None:
        """Store the last line with an error level that no rule knows, while the engine is not ready."""
        if self.was_ready or text[:1].isspace() or is_harmless(text):
            return
        if (
            not text.startswith("usage: ")
            and TRACEBACK_HEADER not in text
            and (signal is None or signal.failure is None)
        ):
            self._level_error = self._note_error(line, text, self._level_error)

    def _note_error(self, line: LogLine, text: str, before: EvidenceLine | None) -> EvidenceLine:
        """Return an error of which no rule knows more; the one right ``before`` it, if this only says that the program ends."""
        if before is not None and line.number - before.number == 1 and says_it_ends(text) and ": " not in text:
            return before
        return EvidenceLine(
            number=line.number, text=sanitize_line(text), moves=self._moves, raw=line.text[:_MAX_HEAD_CHARS]
        )

    def _makes_tokens(self, text: str) -> bool:
        stats = self.engine.parse_stats_line(text)
        return stats is not None and bool(stats.generation_rate)

    def _is_at_work(self, text: str) -> bool:
        stats = self.engine.parse_stats_line(text)
        if stats is None or stats.kind is StatsLineKind.HEALTH:
            return False
        # A warm-up has only prompts, and no request beside its own.
        return stats.kind is not StatsLineKind.PREFILL or bool(stats.running or stats.waiting)

    def _is_busy(self, text: str) -> bool:
        stats = self.engine.parse_stats_line(text)
        return stats is None or bool(stats.generation_rate or stats.prompt_rate)

    def _begin_run(self, line: LogLine, begin: str) -> None:
        """Begin a new run. If one began before, everything read so far belongs to an earlier run."""
        if begin in self._begun or (self._begun and self.failures) or self._has_run_before:
            version, banner = self.facts.get(EngineFactName.ENGINE_VERSION), self._banner
            if banner is not None and line.number - banner[0] > _MAX_BANNER_LINES:
                banner = None
            if banner is not None:
                version = banner[1]
            ended = self.get_last_run_analyzer()
            LogAnalyzer.__init__(  # in place: others hold this object
                self,
                engine=self.engine,
                ready=self.ready,
                whole=self.whole,
                is_unknown=self.is_unknown,
                runs=ended.runs + 1,
                run_began=line.number if banner is None else banner[0],
                before=ended.end_cause,
                facts={} if version is None else {EngineFactName.ENGINE_VERSION: version},
                version_line=None if version is None else self.version_line,
                _has_old_version=banner is None,
                _preparer=self._preparer,
                _joined_from=self._joined_from,
                _latest=self._latest,
            )
        self._begun.add(begin)

    @property
    def _has_run_before(self) -> bool:
        """Whether the lines before the first of a run are another run's. What an image's banner or the program itself says before
        its settings is of this run: it ended nothing, and loaded nothing."""
        if self._begun:
            return self._moves > 1 and self.was_ready
        return (
            self.was_ready
            or self._times.has_loaded
            or any(
                seen.is_uncaught or (seen.failure and _ends_process(seen.failure)) or has_usual_name(seen.text)
                for seen in self.failures
            )
        )

    def _refine_failure(
        self, failure: Failure, text: str, raised_in: str | None = None, *, is_serving: bool
    ) -> Failure:
        """Return the failure of a line as this start has it: by its step, and by what it has told. ``raised_in``: the step by its traceback."""
        step = None if self.step is None else self.step.name
        if step != "draft":
            step = raised_in or step
        facts = {name: fact.value for name, fact in self.facts.items()}
        refined = refine_failure(failure, text, step, facts, is_serving=is_serving)
        return refined if is_serving else name_what_helps(refined, raised_in)

    def _apply_signal(self, signal: LineSignal, line: LogLine, text: str) -> None:
        for fact in signal.facts:
            if fact.name is EngineFactName.ENGINE_VERSION:
                if signal.phase is None and (self.failures or self.was_ready or self._moves > 1):
                    self._banner = line.number, fact  # probably of the run that begins here
                if self._has_old_version:
                    self.facts[fact.name], self._has_old_version = fact, False
            earlier = self.facts.get(fact.name)
            if earlier is None or _is_worth_more(fact, earlier):
                self.facts[fact.name] = fact
                if fact.name is EngineFactName.ENGINE_VERSION:
                    self.version_line = line.number
        if (failure := signal.failure) is not None:
            writer = find_writer(line.text[:_MAX_HEAD_CHARS])
            if not writer and self.tracebacks and self.tracebacks[-1].last == line.number:
                writer = self._traceback.opener  # a record of several lines has its header on the first
            if _LATER_STAGE.search(writer):
                failure = name_stage_fault(failure, text)
            if _ONE_OF_RANKS.search(writer) and (split := name_split_fault(failure, text)) is not failure:
                failure = split
                self._name_split_faults()  # the first rank's name alone does not tell that there are others
            step = self._traceback.find_step(line.number)
            self._record_failure(self._refine_failure(failure, text, step, is_serving=self.was_ready), line, text)
        self._follow_progress(signal, line)

    def _follow_progress(self, signal: LineSignal, line: LogLine) -> None:
        step, current, is_same_phase = signal.step, self.step, signal.phase is self.phase
        if step and current and is_same_phase and step.fraction is not None and step.name == current.name:
            self.step = step  # the same bar goes on, as most lines with a step tell
            return
        if signal.phase is Phase.READY and 0 < self._ready_at < line.number and any(map(_is_death, self.failures)):
            self.failures.clear()  # it was started again
        # The engine's own ready message does not decide: the rule's line, the health path and a token do.
        phase = Phase.WARMING if signal.phase is Phase.READY else signal.phase
        if step is not None:
            if step.fraction is not None and self._is_late_progress(step, step.fraction):
                return
            step = self._rename_draft_step(step)
        if phase is not None and (phase is self.phase or phase.order > self.phase.order):
            self._change_phase(phase, step or (self.step if phase is self.phase else None), line)
        elif step is not None and phase is None:
            self.step = step

    def _name_split_faults(self) -> None:
        """Name the same fault of the ranks before: it is one of each rank."""
        for at, seen in enumerate(self.failures):
            if seen.failure is not None:
                self.failures[at] = replace(seen, failure=name_split_fault(seen.failure, seen.text))

    def _rename_draft_step(self, step: Step) -> Step:
        """Return what loads a second model, once the first one has its KV cache, as a step of the draft model."""
        is_in_draft = self.step is not None and self.step.name == "draft"
        if step.name == "weights":
            is_of_draft = is_in_draft or (step.fraction is None and self._times.has_step("kv-cache"))
        else:
            is_of_draft = is_in_draft and step.name in _SECOND_LOAD_STEPS and self._times.has_step("kv-cache")
        return replace(step, name="draft") if is_of_draft else step

    def _is_late_progress(self, step: Step, fraction: float) -> bool:
        """Tell whether a progress bar belongs to a finished part: stderr and stdout are not synchronous."""
        if self.step is not None and step.name == self.step.name:
            return False
        if self.fatal_line is not None and not self.was_ready:
            return True
        return fraction >= 1 and self._times.has_step(step.name)

    def _record_failure(self, failure: Failure, line: LogLine, text: str) -> None:
        """Store a failure; repetitions are skipped, unless the engine survived the first one."""
        now = self.was_ready and self.whole
        if self._ends_itself and failure.cause is FailureCause.KILLED:
            failure = replace(failure, weight=FailureWeight.AFTERMATH)
        if self._follows_exception(failure, line.number, is_serving=now):
            is_end = failure.fatal or failure.cause is FailureCause.KILLED
            failure = replace(failure, weight=FailureWeight.LOST, fatal=is_end)
        if self.stopped is not None and failure.weight < FailureWeight.LIKELY:
            return  # messages of a server's parts about each other during a stop
        refused = REFUSED_REQUEST.search(text) if "validation error" in text else None
        if refused is not None and (now or not refused["may_be_settings"]):
            return
        self._times.advance_time(line)
        for at, seen in enumerate(self.failures):
            if (
                seen.failure is not None
                and (seen.failure.cause, seen.failure.weight, seen.failure.fatal)
                == (failure.cause, failure.weight, failure.fatal)
                and self._has_survived(seen, seen.failure)
            ):
                del self.failures[at]
                break
        if not make_room_for_failure(self.failures, failure):
            return
        self.failures.append(
            EvidenceLine(
                number=line.number,
                text=sanitize_line(text),
                failure=failure,
                serving=now,
                life=self._life,
                moves=self._moves,
                made=self._made,
                answered=self._answered,
                ordinary=self._ordinary,
                raw=line.text[:_MAX_HEAD_CHARS],
                is_of_request=self._is_request_traceback,
                is_uncaught=self._traceback.is_uncaught,
                is_logged=self._traceback.is_logged,
            )
        )

    def _follows_exception(self, failure: Failure, number: int, *, is_serving: bool) -> bool:
        """Tell whether a crash, a kill or the loss of another process follows an exception that no rule names: a program that ends may
        crash in a library's cleanup, an engine that ends may kill its own processes, and its ranks lose each other."""
        if failure.weight != FailureWeight.DEATH:
            return False
        if failure.cause is FailureCause.KILLED:
            is_right_after = bool(self.tracebacks) and number - self.tracebacks[-1].last <= _MAX_CHAIN_LINES
            is_last_word = self.fatal_line is not None or (is_right_after and not self._is_request_traceback)
        else:
            is_last_word = failure.cause in (FailureCause.CRASHED, FailureCause.WORKER_LOST) and not is_serving
        return is_last_word and any(failure_weight(seen) == FailureWeight.EXCEPTION for seen in self.open_failures)

    def _change_phase(self, phase: Phase, step: Step | None, line: LogLine) -> None:
        name = None if step is None else step.name
        is_new = phase is not self.phase or name != (None if self.step is None else self.step.name)
        self.phase, self.step = phase, step
        if not is_new:
            return
        self._moves += 1
        if self.ready_line_seen and self.ready.line:
            self._times.advance_time(line)
        else:
            self._times.start_phase(phase, name, line)


def _read_contents(engine: Engine, raw: str) -> tuple[LineContent, ...] | None:
    """Return what a line says: nothing, or more than one thing if it was rewritten in place; None if it begins an error that
    takes several lines."""
    if "validation error" in raw:
        return None
    texts = LinePreparer().prepare_lines(raw)
    found = (_read_content(engine, raw, text) for at, text in enumerate(texts) if not _is_older_state(texts, at))
    return tuple(content for content in found if content is not None)


# An engine that restarts again and again repeats its lines.
_read_short_line = lru_cache(_MAX_KNOWN_LINES)(_read_contents)
_read_long_line = lru_cache(_MAX_KNOWN_LONG_LINES)(_read_contents)


def _read_content(engine: Engine, raw: str, text: str) -> LineContent | None:
    """Return what a line says, ``text`` being ``raw`` as the engines read it; None for a question of ours."""
    if REQUEST_MARK in text and is_own_request(text):
        return None
    is_serving = text.startswith(engine.signs.serving)
    answered = None if is_serving or not text.startswith(ACCESS_LINE_STARTS) else ACCESS_LINE.match(text)
    plain = strip_group_frame(text)
    level = prepare_text(raw[:200])[0] or find_stated_level(plain)
    signal = None if is_serving or answered else engine.classify_line(plain)
    is_turning_point = text.startswith(list_turning_points(engine))
    has_served = text.startswith(engine.signs.served) or (answered is not None and bool(answered["failed"]))
    is_answer = _answers_request(raw)
    is_request_error = REQUEST_ERROR in plain or LOGGING_ERROR in plain or tells_broken_connection(plain)
    is_standstill = plain.startswith(engine.signs.standstill)
    has_header = TRACEBACK_HEADER in plain  # what follows is the error
    may_be_traceback = plain.startswith((" ", FRAME_START, *CHAIN_STARTS)) or has_header
    is_error = signal is None and not has_header and looks_like_error(plain) and not is_below_error(level)
    may_be_duration, tries_again, is_done = may_hold_duration(plain), says_it_tries_again(plain), says_it_is_done(plain)
    is_special = any(
        (is_turning_point, is_serving, answered, has_served, is_answer, is_request_error, is_standstill,
         may_be_traceback, is_error, may_be_duration, tries_again, is_done)
    )  # fmt: skip
    is_version = text.startswith(PACKAGE_VERSION) or PRINTED_VERSION.match(text) is not None
    is_failure = level in ERROR_LEVELS or (signal is not None and signal.failure is not None)
    return LineContent(
        text=text,
        plain=plain,
        level=level,
        is_turning_point=is_turning_point,
        is_serving=is_serving,
        is_request=answered is not None,
        is_usage=answered is not None and bool(answered["used"]),
        has_served=has_served,
        is_answer=is_answer,
        is_request_error=is_request_error,
        is_standstill=is_standstill,
        may_be_traceback=may_be_traceback,
        is_error=is_error,
        may_be_duration=may_be_duration,
        listens=says_it_listens(plain),
        tries_again=tries_again,
        is_done=is_done,
        is_plain=not is_special and not is_failure and not is_version,
        is_version=is_version,
        says_ready=signal is not None and signal.phase is Phase.READY,
        signal=signal,
    )


_read_short_text = lru_cache(_MAX_KNOWN_TEXTS)(_read_content)


# What a request may fail by, whatever it names (a picture's address, a file): not a word on the engine's processes.
_REQUEST_WEIGHTS = (FailureWeight.EXCEPTION, FailureWeight.LIKELY, FailureWeight.CONCRETE)


def _drop_harmless_failure(
    signal: LineSignal, failure: Failure, content: LineContent, *, is_exception: bool, is_answer: bool
) -> LineSignal:
    """Return a signal without the failure of a line that its program does not call an error, or that refuses a request.
    ``is_answer``: code that answers a single request wrote it, and the engine was ready."""
    if content.tries_again and not is_exception:
        return replace(signal, failure=None)
    if failure.fatal:
        return signal
    is_exception_of_answer = content.is_answer and failure.weight == FailureWeight.EXCEPTION
    is_of_request = is_answer and failure.weight in _REQUEST_WEIGHTS
    is_warning = not is_exception and (
        (is_below_error(content.level) and not failure.is_told_at_any_level)
        or says_it_goes_on(content.plain, content.level)
    )
    return replace(signal, failure=None) if is_exception_of_answer or is_of_request or is_warning else signal


_COMMAND_STARTS = ("export ", "$ ")  # of a shell


def _is_continuation(text: str, level: str | None, first_level: str | None) -> bool:
    """Tell whether a line may go on with the message before it: it has no header of its own, but for that which each line of the
    message has, and begins no other thing, such as a command of a shell."""
    begins = (
        text.startswith(TRACEBACK_STARTS) or text.startswith(_COMMAND_STARTS) or text.endswith("\\") or is_warning(text)
    )
    return not begins and not is_below_error(level) and level in (None, first_level)


@cache
def _compile_ready_line(pattern: str, *, is_own: bool) -> Callable[[str], object]:
    """Return a search for a ready line. ``is_own``: it is the engine's, not a profile's, whose running time has to be limited."""
    if is_own:
        return lru_cache(_MAX_KNOWN_LINES)(lazy_pattern.compile(pattern).search)
    found = compile_bounded(pattern)
    return lru_cache(_MAX_KNOWN_LINES)(found.searched.search if found.longest >= MAX_LINE_LENGTH else found.search)


def _is_worth_more(fact: EngineFact, earlier: EngineFact) -> bool:
    """Tell whether a fact replaces the one that was told first: a slower path does, and an engine's own word a guess."""
    if earlier.is_guess or fact.name is EngineFactName.ENGINE_VERSION:
        return earlier.is_guess and not fact.is_guess
    return fact.is_fallback and not earlier.is_fallback


def _shorten_exception(text: str) -> str:
    return truncate_text(redact(sanitize_line(text)), _MAX_EXCEPTION_CHARS)


def _is_older_state(texts: list[str], at: int) -> bool:
    """Tell whether a text is a state of a progress bar that the next one rewrote in place: of these the last one counts."""
    return at + 1 < len(texts) and "%" in texts[at] and _is_same_bar(texts[at], texts[at + 1])


def _is_same_bar(state: str, later: str) -> bool:
    """Tell whether two texts may be states of one progress bar: the same title before the percentage."""
    title = state.partition("%")[0].rstrip("0123456789 ")
    return title.endswith(":") and later.startswith(title) and "|" in state and "|" in later


def _answers_request(raw: str) -> bool:
    """Tell whether the code that answers a single request wrote this line."""
    return ("serving" in raw[:200] or "_parser.py" in raw[:200]) and REQUEST_HANDLER.match(raw) is not None
