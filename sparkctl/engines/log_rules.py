"""Rules for reading an engine's log lines, and their fast matching at a few hundred thousand lines a second."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import cache, cached_property, lru_cache

from sparkctl.engines.base import Failure, FailureRefinement, FailureWeight, LineSignal
from sparkctl.engines.line_preparer import parse_progress_bar, strip_log_prefix
from sparkctl.model.engine_metrics import EngineFact, EngineFactName
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.phase import Phase, Step
from sparkctl.model.text import lazy_pattern
from sparkctl.model.text.sanitize import truncate_text
from sparkctl.model.verdict import ChangeDirection, FailureCause

# The end of a traceback, or the one-line form of a validation error (see engines.line_preparer): the exception's name
# begins the line, or follows as the reason in another line. A message that is only quoted does not match.
EXCEPTION_WITHOUT_ERROR = (
    r"[A-Za-z_]\w*\.[\w.]*(?:Timeout|Failed|Expired|Unsupported|error)"  # these classes have a module before their name
)
_WRAPPING_NAME = r"(?:[\w.]+: {1,8})?"
EXCEPTION_PREFIX = (
    rf"^{_WRAPPING_NAME}(?:CUDA [Ee]rror: |(?:[A-Za-z_][\w.]*)?(?:Error|Exception)(?:(?:\([\w.]+\))?: |\([\"'])|"
    rf"{EXCEPTION_WITHOUT_ERROR}: |"
    r"\d+ validation errors? for \w+: (?:[\w.]+: )?(?:Value error, )?)(?:\[address=[\w.:-]{1,80}, pid=\d{1,9}\] )?"
)

# An exception, alone or in a list of attempts; what the dynamic linker, a shell or C++ says in its place.
EXCEPTION_LINE = (
    rf"{EXCEPTION_PREFIX}|[*-] \w*Error: |\S{{1,200}}: (?:error while loading shared libraries|symbol lookup error): "
    r"|\S{1,200}: \S{1,200}: version [`'](?:GLIBC|CXXABI)"
    r"|(?:\S{1,200}/)?python[\d.]{0,8}: No module |terminate called|\s*what\(\): |(?:CUDA|ROCm|HIP|MUSA) [Ee]rror: "
    r"|cudaError\w{1,60}+: |(?:[A-Za-z_]\w*+\.)*+[A-Z]\w{1,99}+: "
)
# The characters of a needle by which it is looked for in a line (a gram); every needle has as many.
_GRAM_CHARS = 4
# Words with which messages of all kinds begin, and how many characters more show a certain one.
_ANY_FAILURE = lazy_pattern.compile(
    r"^.{0,6}?(?:ailed to|ould not|annot|nable to|rror|\bnot|nsupported)\b:? ?", re.IGNORECASE
)
_MIN_OWN_CHARS = 8
_MIN_CUT_NEEDLE_CHARS, _MAX_NEEDLE_CHARS = 12, 80  # by which a needle is known whose rest is cut off with the line
_REPEATED_START = "future: <Task "  # asyncio, before the traceback of a task that failed
_OF_ONE_PROGRAM = (
    FailureCause.BAD_VALUE,
    FailureCause.UNKNOWN_FLAG,
)  # another program's settings are not the profile's
_COMMON_LETTERS = " etaoinsrldcumpfg"  # of English log lines: a gram of others is in fewer lines
_CPP_MESSAGE = "what(): "  # of an exception that ended a program in C++; indented
_DRIVER_MESSAGE = "NVRM: "  # the next line of a message of the GPU's driver in the kernel's log; indented
_TABLE_ROWS = ("Warning  ", "Reason:  ", "Exit Code:  ", "traceback : Signal ")  # of `kubectl describe`, and torchrun
_STATE_KEYS = ('"OOMKilled":', '"ExitCode":')  # of `docker inspect`
_CRASH_FRAME = lazy_pattern.compile(
    r"File \"[^\"]{1,300}/pynccl_wrapper\.py\", line \d+ in "
)  # not of a traceback: Python's at a signal
_MESSAGE_STARTS = (_CPP_MESSAGE, _DRIVER_MESSAGE, "ptxas ", *_TABLE_ROWS, *_STATE_KEYS)
_MAX_KNOWN_LINES = 4096
_MAX_PREFIXES = 8  # of the last lines: all rules look at one line, then at the next
_NOT_KNOWN = LineSignal()
_OPTIONAL_PART = lazy_pattern.compile(r"\[([^\[\]]*)\]")
_MAX_GROUP_CHARS = 400  # characters of a captured group that fit into a sentence
_GROUP_NAME = lazy_pattern.compile(r"\{(\w+)\}")
_TWO_PERIODS = lazy_pattern.compile(r"(?<=[\w)'\"])\.\.(?=\s|$)")  # a line's own, and the sentence's
# An error that is told by another one: by C++, Go, a script, the cell of a table. It is read where no rule knows the line itself.
_TELLS_ERROR = lazy_pattern.compile(
    r"(?:what\(\): +|thread '[^']{0,80}' .{0,12}panicked at (?:'|\S{1,300}:\d{1,9}:\d{1,9}: )"
    r"|future: <Task |(?:\[\w{1,20}\])?\[(?:ERROR|FATAL)\] |Assertion failed: "
    r"|time=\S{1,40} level=ERROR .{0,300}?\berr(?:or)?=\"?|[\w.-]{1,60} +\| +\d{1,6} +\| +UNAVAILABLE: |[\[(]? ?(?:[Ee]rror|ERROR|[Ff]atal"
    r"|FATAL|CRITICAL|[Pp]anic"
    r"|[Ee]xception|[Ff]ailed|[Ff]ailure|[Cc]aused by|[Rr]eason|[Cc]annot|[Cc]ould not|[Uu]nable|[Uu]nexpected|[Ii]gnored"
    r"|[Ee]ncountered|[Uu]nhandled|[Uu]ncaught)\b)(?P<what>.*)"
)
# Wrappers that pass an error on, each with some words ("launcher: the engine exited: OSError: x"); a sentence is a model's own text.
_MAY_TELL_CLASS = ("Error: ", "Exception: ")
_WRAPPERS = lazy_pattern.compile(
    r"(?:[\w./@\[\]-]{1,60}(?: [\w./-]{1,30}){0,3}: {1,4}){1,3}(?=(?:[A-Za-z_]\w{0,60}\.){0,6}[A-Z]\w{1,60}(?:Error|Exception): \S)"
)
_ONLY_TRIED = lazy_pattern.compile(r"(?i:warn|ignor|skip|retry|fall|optional|disabl)")
_TOLD_CLASS = lazy_pattern.compile(r"(?<![\w.'\"])(?:[A-Za-z_]\w{0,60}\.){0,6}[A-Z]\w{1,60}(?:Error|Exception): \S.*")
_TOLD_REPR = lazy_pattern.compile(
    r"(?P<name>\b[A-Z]\w{1,60}(?:Error|Exception))\((?P<mark>['\"])(?P<what>.{1,1000}?)(?P=mark)"
)
_MAX_MATCHED_CHARS = 4096  # characters in which a line says what is wrong; the rest lists the valid values
# In a pattern: a class of characters, what stands for any digit or counts, and a certain digit.
_PATTERN_DIGITS = lazy_pattern.compile(
    r"(?P<set>\[\^?\]?(?:\\.|[^\]\\]){0,200}\])|(?P<any>\\.|\{\d{0,9},?\d{0,9}\})|\d"
)
_PATTERN_MARKS = lazy_pattern.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\]){0,200}+\]|[|()]")
_CLASS_DIGITS = lazy_pattern.compile(r"(?P<any>\\.|0-9)|\d-\d|\d")
_GROUPED_NUMBER = lazy_pattern.compile(r"\d{1,3}(?:,\d{3})+")  # 1,806,336
_MORE_WORDS = lazy_pattern.compile(r"\s*\w")

MatchGroups = Mapping[str, str]
# A line's shape: every digit is a 0, so that lines that differ in their figures have the same.
DIGITS_TO_ZERO = str.maketrans("123456789", "000000000")
DIGITS_TO_ZERO_BYTES = bytes.maketrans(b"123456789", b"000000000")
Search = Callable[[str], re.Match[str] | None]


@cache
def _compile_search(pattern: str) -> Search:
    """Return a search for a pattern. An engine has hundreds of them, and most lines need none: each is compiled at its first use.

    The alternatives that begin with `EXCEPTION_PREFIX` share one compiled prefix: it takes longer to compile than what follows.
    """
    if EXCEPTION_PREFIX not in pattern:
        return re.compile(pattern).search
    parts = [part.removeprefix(EXCEPTION_PREFIX) for part in _split_alternatives(pattern)]
    after = [part for part, whole in zip(parts, _split_alternatives(pattern), strict=True) if part != whole]
    if not after:
        return re.compile(pattern).search
    plain = "|".join(part for part in parts if part not in after)
    search = re.compile(plain).search if plain else None

    def find(line: str) -> re.Match[str] | None:
        for end in _list_prefix_ends(line):
            for part in after:
                if (found := _compile_match(part)(line, end)) is not None:
                    return found
        return None if search is None else search(line)

    return find


@cache
def _split_alternatives(pattern: str) -> tuple[str, ...]:
    """Split a pattern at each ``|`` that is outside of groups and classes."""
    parts, depth, start = list[str](), 0, 0
    for found in _PATTERN_MARKS.finditer(pattern):
        if found[0] == "|" and not depth:
            parts.append(pattern[start : found.start()])
            start = found.end()
        depth += (found[0] == "(") - (found[0] == ")")
    return (*parts, pattern[start:])


@cache
def _compile_match(pattern: str) -> Callable[..., re.Match[str] | None]:
    """Return a matcher of a pattern; beside the line it may be told where to begin."""
    return re.compile(pattern).match


@lru_cache(_MAX_PREFIXES)
def _list_prefix_ends(line: str) -> tuple[int, ...]:
    """Return where `EXCEPTION_PREFIX` may end in a line: of "A: CUDA error: x", the second name may belong to the message."""
    found = (_compile_match(one)(line) for one in (EXCEPTION_PREFIX, EXCEPTION_PREFIX.replace(_WRAPPING_NAME, "", 1)))
    return tuple(dict.fromkeys(one.end() for one in found if one is not None))


@lru_cache(_MAX_PREFIXES)
def _is_exception(line: str) -> bool:
    return _compile_match(EXCEPTION_LINE)(line) is not None


# How a fault of the GPU is traced, and where its driver reports it, for NVIDIA's runtime and for the others.
_CUDA_TOOLS = {"gpu_trace": "env.CUDA_LAUNCH_BLOCKING: 1", "gpu_report": "the driver's Xid"}
_OTHER_GPU_TOOLS = {
    "gpu_trace": "the runtime's own variable for it (HIP: env.AMD_SERIALIZE_KERNEL: 3)",
    "gpu_report": "what the driver says",
}
_OTHER_RUNTIME = lazy_pattern.compile(
    r"HIP|hip[EA]|/hip/|ROCm|roc[bd]|HSA_|GPU node-|NRT_|Neuron|NPU|ACL |MUSA|XPU|UR_RESULT|ZE_RESULT|PI_ERROR|vk::|VK_ERROR|Vulkan"
    r"|model status=\d{3,5} message="
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRule:
    """A rule for a failure line. Every such line contains one of the ``needles``, and ``pattern`` is searched only then.

    ``exception``: the line must be the last one of a traceback, or a loader's error. ``at_any_level``: it is a failure even if the
    program logs it as a warning or less. ``warning``: the program may go on after it.
    ``summary``, ``remedy``, ``field`` and ``value`` may name the pattern's groups in braces, and values from
    ``worked_out``; of a fault of the GPU also ``{gpu_trace}`` and ``{gpu_report}``. A part in square brackets is left out
    if one of its groups is empty, and so is a ``field`` or ``value`` that needs it.
    """

    needles: tuple[str, ...]
    pattern: str
    cause: FailureCause
    summary: str
    remedy: str
    field: str | None
    fatal: bool
    weight: int
    value: str | None
    change: ChangeDirection | None
    worked_out: Callable[[MatchGroups], MatchGroups] | None
    needs: EngineFactName | None
    during: str | None
    refine: FailureRefinement | None
    exception: bool
    at_any_level: bool
    warning: bool
    versions: str | None

    def match_failure(self, line: str) -> Failure | None:
        """Return the failure that this line reports, None if it reports none."""
        needle = next((one for one in self.needles if one in line), None)
        if needle is None:
            return None
        if self.exception and not _is_exception(line):
            return None
        if (found := _compile_search(self.pattern)(line)) is None:
            return None
        groups = {
            name: truncate_text(value.strip(), _MAX_GROUP_CHARS) for name, value in found.groupdict().items() if value
        }
        if self.cause is FailureCause.GPU_FAULT:
            groups |= _OTHER_GPU_TOOLS if _OTHER_RUNTIME.search(line) else _CUDA_TOOLS
        if self.worked_out is not None:
            groups |= self.worked_out(groups)
        value = _fill_complete_template(self.value, groups)
        return Failure(
            cause=self.cause,
            summary=_fill_template(self.summary, groups),
            remedy=_fill_template(self.remedy, groups),
            field=_fill_complete_template(self.field, groups),
            fatal=self.fatal,
            weight=self.weight,
            value=value,
            change=self.change if value is None else ChangeDirection.SET,
            needs=self.needs,
            during=self.during,
            refine=self.refine,
            rule=needle,
            is_told_at_any_level=self.at_any_level,
            is_warning=self.warning,
            versions=self.versions,
        )


def failure_rule(
    pattern: str,
    cause: FailureCause,
    summary: str,
    remedy: str,
    *,
    needle: str | tuple[str, ...],
    on: str | None = None,
    fatal: bool = False,
    weight: int = FailureWeight.CONCRETE,
    to: str | None = None,
    change: ChangeDirection | None = None,
    worked_out: Callable[[MatchGroups], MatchGroups] | None = None,
    needs: EngineFactName | None = None,
    during: str | None = None,
    refine: FailureRefinement | None = None,
    exception: bool = False,
    at_any_level: bool = False,
    warning: bool = False,
    versions: str | None = None,
) -> FailureRule:
    """Return a `FailureRule`. ``needle``: a text that is in every such line, or several of which one is.

    ``on``: the profile field to change, ``to``: the value to set, ``change``: the direction if there is no value;
    ``needs``, ``during``, ``refine`` and ``versions`` as in `Failure`.
    """
    return FailureRule(
        needles=(needle,) if isinstance(needle, str) else needle,
        pattern=pattern,
        cause=cause,
        summary=summary,
        remedy=remedy,
        field=on,
        fatal=fatal,
        weight=weight,
        value=to,
        change=change,
        worked_out=worked_out,
        needs=needs,
        during=during,
        refine=refine,
        exception=exception,
        at_any_level=at_any_level,
        warning=warning,
        versions=versions,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FactRule:
    """A rule for a line that reports a fact: its beginning, and a pattern whose groups ``says`` may name in braces."""

    start: str
    pattern: str
    name: EngineFactName
    says: str
    is_fallback: bool
    is_guess: bool

    def match_fact(self, line: str) -> EngineFact | None:
        """Return the fact, None if the line does not report it."""
        if not line.startswith(self.start) or (found := _compile_search(self.pattern)(line)) is None:
            return None
        groups = {
            name: truncate_text(value.strip(), _MAX_GROUP_CHARS) for name, value in found.groupdict().items() if value
        }
        filled = _fill_template(self.says, groups)
        value = filled.replace(",", "") if _GROUPED_NUMBER.fullmatch(filled) else filled
        return EngineFact(self.name, value, is_fallback=self.is_fallback, is_guess=self.is_guess)


def fact_rule(
    start: str,
    pattern: str,
    name: EngineFactName,
    says: str = "{it}",
    *,
    is_fallback: bool = False,
    is_guess: bool = False,
) -> FactRule:
    """Return a `FactRule`; ``{it}`` is the pattern's group of that name."""
    return FactRule(start=start, pattern=pattern, name=name, says=says, is_fallback=is_fallback, is_guess=is_guess)


def version_facts(package: str) -> tuple[FactRule, ...]:
    """Return the rules for what else tells an engine's version: pip, and a print of ``__version__``."""
    number = r"v?(?P<it>\d[\w.+-]*)"
    return (
        fact_rule(
            "Successfully installed ", rf" {package}-{number}(?= |$)", EngineFactName.ENGINE_VERSION, is_guess=True
        ),
        fact_rule(f"{package}==", rf"^{package}=={number}", EngineFactName.ENGINE_VERSION, is_guess=True),
        fact_rule(
            f"{package}.__version__", rf"__version__\W{{1,5}}{number}", EngineFactName.ENGINE_VERSION, is_guess=True
        ),
        fact_rule(f"{package} version: ", rf"version: {number}", EngineFactName.ENGINE_VERSION, is_guess=True),
        fact_rule(  # `pip show`, two lines
            f"Name: {package} Version: ", rf"Version: {number}", EngineFactName.ENGINE_VERSION, is_guess=True
        ),
        fact_rule(  # `pip list`, or alone
            f"{package} ", rf"^{package} {{1,80}}{number}\s*$", EngineFactName.ENGINE_VERSION, is_guess=True
        ),
        fact_rule(
            f"Requirement already satisfied: {package}",
            rf"^[\w ]{{1,40}}: {package}(?:==| in .{{1,300}} \(){number}",
            EngineFactName.ENGINE_VERSION,
            is_guess=True,
        ),
    )


def _has_template_groups(template: str, groups: MatchGroups) -> bool:
    return all(name in groups for name in _GROUP_NAME.findall(template))


def _fill_complete_template(template: str | None, groups: MatchGroups) -> str | None:
    return _fill_template(template, groups) if template and _has_template_groups(template, groups) else None


def _fill_template(template: str, groups: MatchGroups) -> str:
    text = _OPTIONAL_PART.sub(lambda part: part[1] if _has_template_groups(part[1], groups) else "", template)
    return _TWO_PERIODS.sub(".", _GROUP_NAME.sub(lambda name: groups.get(name[1], "(not said)"), text))


@cache
def _generalize_digits(pattern: str) -> str | None:
    """Return a pattern that accepts any digit in the place of a certain one; None if it holds none."""

    def generalize(found: re.Match[str]) -> str:
        if (characters := found["set"]) is None:
            return found["any"] or r"\d"
        general = _CLASS_DIGITS.sub(lambda one: one["any"] or r"\d", characters)
        return r"[\s\S]" if characters.startswith("[^") and general != characters else general

    general = _PATTERN_DIGITS.sub(generalize, pattern)
    return None if general == pattern else general


class RuleFinder:
    """Finds the rules that may match a line, by their needles; made of them at its first use."""

    def __init__(self, rules: tuple[FailureRule, ...]) -> None:
        self._rules = rules
        self._latest: tuple[str, list[FailureRule]] = ("", [])  # a line is judged, then classified

    def depends_on_digits(self, line: str, shape: str) -> bool:
        """Tell whether some lines of this shape may match, and others not; ``line`` is one of them."""
        if "0" not in shape:
            return False
        rules = self.find_candidates(line)
        by_digits = self._rules_by_digits
        others = (rule for needle in filter(shape.__contains__, by_digits) for rule in by_digits[needle])
        return any(self._matches_with_any_digits(rule, line) for each in (rules, others) for rule in each)

    def _matches_with_any_digits(self, rule: FailureRule, line: str) -> bool:
        if (general := _generalize_digits(rule.pattern)) is None:
            return False
        if rule.exception and not _is_exception(line):
            return False
        return _compile_search(general)(line) is not None

    @cached_property
    def _rules_by_digits(self) -> dict[str, list[FailureRule]]:
        """The rules by those of their needles, as shapes, that hold a digit: a line may have another one there."""
        found: dict[str, list[FailureRule]] = {}
        for rule in self._rules:
            for needle in rule.needles:
                if "0" in (shape := needle.translate(DIGITS_TO_ZERO)):
                    found.setdefault(shape, []).append(rule)
        return found

    def find_candidates(self, line: str) -> list[FailureRule]:
        """Return the rules with a needle in this line, in their order."""
        if self._latest[0] != line:
            self._latest = line, self._find_candidates(line)
        return self._latest[1]

    def _find_candidates(self, line: str) -> list[FailureRule]:
        places = self._places
        found = {place for needle in _find_needles(line) for place in places.get(needle, ())}
        return [self._rules[place] for place in sorted(found)]

    def list_completions(self, line: str) -> list[str]:
        """Return a line whose end is cut with what may have followed: the rest of each needle that begins at its end, the longest
        beginning first."""
        found = list[str]()
        for start in range(max(0, len(line) - _MAX_NEEDLE_CHARS), len(line) - _MIN_CUT_NEEDLE_CHARS + 1):
            begun = line[start:]
            if len(_ANY_FAILURE.sub("", begun)) < _MIN_OWN_CHARS:
                break
            place = bisect_left(self._sorted_needles, begun)
            while place < len(self._sorted_needles) and self._sorted_needles[place].startswith(begun):
                if self._sorted_needles[place] != begun:
                    found.append(line[:start] + self._sorted_needles[place])
                place += 1
        return found

    @cached_property
    def _sorted_needles(self) -> list[str]:
        return sorted(self._places)

    @cached_property
    def _places(self) -> dict[str, list[int]]:
        """By needle: the places of its rules."""
        places: dict[str, list[int]] = {}
        for place, rule in enumerate(self._rules):
            for needle in rule.needles:
                places.setdefault(needle, []).append(place)
        _add_needles(places)
        return places


# Of the rules of all engines that have read a line so far: most are common to all, and all read the first lines of a log.
_needles_by_gram: dict[int, list[str]] = {}
_short_needles: list[str] = []  # of one gram
_known_needles: set[str] = set()


def _add_needles(needles: Iterable[str]) -> None:
    """Index needles by two grams side by side: at an even place of a line stands one of them, or the line has no such needle."""
    new = [needle for needle in needles if needle not in _known_needles]
    _known_needles.update(new)
    for needle in new:
        if len(needle) == _GRAM_CHARS:
            _short_needles.append(needle)
            continue
        for gram in _choose_grams(needle):
            _needles_by_gram.setdefault(gram, []).append(needle)
    _find_needles.cache_clear()


@lru_cache(_MAX_PREFIXES)
def _find_needles(line: str) -> list[str]:
    """Return the needles in a line, some of them twice."""
    data = line.encode("latin-1", "replace")
    grams = {gram for start in (0, 2) for gram in filter(_needles_by_gram.__contains__, _read_grams(data, start))}
    found = [needle for gram in grams for needle in _needles_by_gram[gram] if needle in line]
    return [*found, *filter(line.__contains__, _short_needles)]


def _read_grams(data: bytes, start: int) -> array[int]:
    """Return the runs of `_GRAM_CHARS` characters that follow each other from a place on, each as the number that its bytes make; a
    character beyond Latin-1 counts as a question mark."""
    return array("I", data[start : len(data) - (len(data) - start) % _GRAM_CHARS])


def _choose_grams(needle: str) -> Iterable[int]:
    """Return two rare grams of a needle, the second one a character behind the first."""
    data, last = needle.encode("latin-1", "replace"), len(needle) - _GRAM_CHARS - 1
    costs = data.translate(_LETTER_COSTS)
    places = (0, last // 3, last * 2 // 3, last)  # to weigh every place takes longer than it gains
    place = min(places, key=lambda at: sum(costs[at : at + _GRAM_CHARS + 1]))
    return array("I", data[place : place + _GRAM_CHARS] + data[place + 1 : place + 1 + _GRAM_CHARS])


_LETTER_COSTS = bytes(
    len(_COMMON_LETTERS) - at if (at := _COMMON_LETTERS.find(chr(code))) >= 0 else 0 for code in range(256)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRules:
    """The rules of one engine. ``quiet``: beginnings of lines that never have a meaning here.

    ``phases``: beginning of a line → signal. ``bars``: word in a bar's title → step. ``rules``: the first match counts.
    ``facts``: all matches count; a line that tells a fact is never a failure. ``retold``: a process reports
    another one's error, whose text is the group ``what``: if a rule matches that text, it is the failure.
    """

    quiet: tuple[str, ...]
    phases: tuple[tuple[str, LineSignal], ...]
    bars: tuple[tuple[str, str], ...]
    rules: tuple[FailureRule, ...]
    facts: tuple[FactRule, ...] = ()
    retold: re.Pattern[str] | None = None
    _phase_starts: tuple[str, ...] = field(init=False)
    _signal_starts: tuple[str, ...] = field(init=False)  # of lines that tell a phase or a fact
    _signal_shapes: tuple[str, ...] = field(init=False)  # those with a digit, as shapes
    _finder: RuleFinder = field(init=False)
    _known: dict[str, LineSignal | None] = field(
        init=False, default_factory=dict
    )  # an engine that restarts repeats itself

    def __post_init__(self) -> None:
        starts = tuple(start for start, _ in self.phases)
        object.__setattr__(self, "_finder", RuleFinder(self.rules))
        object.__setattr__(self, "_phase_starts", starts)
        object.__setattr__(self, "_signal_starts", starts + tuple({each.start: None for each in self.facts}))
        digits = (one.translate(DIGITS_TO_ZERO) for one in self._signal_starts)
        object.__setattr__(self, "_signal_shapes", tuple(one for one in digits if "0" in one))

    def classify_line(self, line: str) -> LineSignal | None:
        """Return what a prepared line says, None for nothing."""
        known = self._known.get(line, _NOT_KNOWN)
        if known is not _NOT_KNOWN:
            return known
        signal = self._classify_new_line(line)
        if len(self._known) >= _MAX_KNOWN_LINES:
            self._known.clear()
        self._known[line] = signal
        return signal

    def _classify_new_line(self, line: str) -> LineSignal | None:
        if line.startswith(self.quiet):
            return None
        if line.startswith(self._signal_starts):
            return self._read_known_start(line)
        if "%" in line and (seen := parse_progress_bar(line)) is not None:
            if seen.rest and (failure := self._find_failure(strip_log_prefix(seen.rest)[1])) is not None:
                return LineSignal(failure=failure)
            title = seen.title
            name = next((step for word, step in self.bars if word in title), None)
            if name is None:
                return None
            return LineSignal(Phase.LOADING, Step(name, seen.done, seen.total, seen.fraction))
        failure = self._find_failure(line)
        return None if failure is None else LineSignal(failure=failure)

    def classify_cut_line(self, line: str) -> Failure | None:
        """Return the failure that a line whose end is cut may have told: that of the rule whose words its end begins. None if there is no
        such rule, or if several name different causes."""
        failures = list[Failure]()
        for whole in self._finder.list_completions(line):
            failure = self._find_failure(whole)
            if failure is not None and failure.weight > FailureWeight.EXCEPTION:
                failures.append(failure)
        return replace(failures[0], is_inferred=True) if len({one.cause for one in failures}) == 1 else None

    def depends_on_digits(self, line: str, shape: str) -> bool:
        """Tell whether some lines of this shape (a prepared line with each digit as 0) may say something, and others not."""
        if self._signal_shapes and shape.startswith(self._signal_shapes):
            return True
        if line[:1].isspace():
            if (stripped := _strip_indentation(line)) is None:
                return False
            line, shape = stripped, shape.lstrip()
        errors = list_quoted_errors(line[:_MAX_MATCHED_CHARS])
        if errors and any(self._finder.depends_on_digits(one, one.translate(DIGITS_TO_ZERO)) for one in errors):
            return True
        return self._finder.depends_on_digits(line[:_MAX_MATCHED_CHARS], shape[:_MAX_MATCHED_CHARS])

    def _read_known_start(self, line: str) -> LineSignal | None:
        facts = tuple(found for each in self.facts if (found := each.match_fact(line)) is not None)
        if not line.startswith(self._phase_starts):
            if facts:
                return LineSignal(facts=facts)
            failure = self._find_failure(line)
            return None if failure is None else LineSignal(failure=failure)
        start, signal = next(pair for pair in self.phases if line.startswith(pair[0]))
        # "ready" followed by more words is a quotation: a prompt, or a model's own text.
        if signal.phase is Phase.READY and _MORE_WORDS.match(line, len(start)):
            return None
        return LineSignal(signal.phase, signal.step, signal.failure or self._find_failure(line), facts)

    def _find_failure(self, line: str) -> Failure | None:
        if line[:1].isspace():
            if (stripped := _strip_indentation(line)) is None:
                return None
            line = stripped
        text = line[:_MAX_MATCHED_CHARS]
        if self.retold is not None and (quoted := self.retold.search(text)) is not None:
            failure = self._match_first_rule(f"RuntimeError: {quoted['what']}")
            if failure is not None and failure.weight > FailureWeight.EXCEPTION:
                return replace(failure, fatal=True)
        is_repeated = text.startswith(_REPEATED_START)  # its traceback follows
        failure = None if is_repeated else self._match_first_rule(text)
        if failure is None or failure.weight <= FailureWeight.DEATH:
            other = self._find_quoted_failure(text)
            return other if other is not None and (failure is None or other.weight > failure.weight) else failure
        return failure

    def _find_quoted_failure(self, text: str) -> Failure | None:
        """Return the failure that a line tells of another program, or of a part of its own; it weighs less than the same at first hand."""
        for error in list_quoted_errors(text):
            failure = self._match_first_rule(error)
            if (
                failure is not None
                and failure.weight > FailureWeight.EXCEPTION
                and failure.cause not in _OF_ONE_PROGRAM
            ):
                return replace(failure, weight=failure.weight - 1)
        return None

    def _match_first_rule(self, text: str) -> Failure | None:
        rules = iter(self._finder.find_candidates(text))
        return self._match_next_rule(rules, text)

    def _match_next_rule(self, rules: Iterator[FailureRule], text: str) -> Failure | None:
        failure = next((found for rule in rules if (found := rule.match_failure(text)) is not None), None)
        if failure is None or failure.versions is None:
            return failure
        return replace(failure, otherwise=self._match_next_rule(rules, text))


@lru_cache(_MAX_PREFIXES)
def list_quoted_errors(line: str) -> tuple[str, ...]:
    """Return the errors that a line may tell of others, each as the last line of a traceback; empty if it tells none."""
    found = _TELLS_ERROR.match(line)
    if found is None:
        if not any(map(line.__contains__, _MAY_TELL_CLASS)) or _ONLY_TRIED.search(line):
            return ()
        passed_on = _WRAPPERS.match(line)
        return () if passed_on is None else (line[passed_on.end() :],)
    named, quoted = _TOLD_CLASS.search(line), _TOLD_REPR.search(line)
    errors = [] if named is None else [named[0]]
    if quoted is not None:
        errors.append(f"{quoted['name']}: {quoted['what']}")
    return (*errors, f"RuntimeError: {found['what'].lstrip(' :])').rstrip(' |')}")


def _strip_indentation(line: str) -> str | None:
    """Return an indented line without its indentation; None if it is source code, as in a traceback: that holds messages which
    were never printed. Source is indented by two spaces and more."""
    stripped = line.lstrip()
    is_source = line.startswith(("  ", "\t")) and not stripped.startswith(_MESSAGE_STARTS)
    return None if is_source and _CRASH_FRAME.match(stripped) is None else stripped


def loading_signal(step: str) -> LineSignal:
    """Return the signal of a line that begins a part of loading."""
    return LineSignal(Phase.LOADING, Step(step))
