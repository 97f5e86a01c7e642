"""Reading a log of which nobody said whose it is: line by line, or a block of bytes at a time, with the same result. Pure."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from functools import cache

from sparkctl.engines import engine_names, load_engine
from sparkctl.engines.base import Engine
from sparkctl.engines.line_preparer import LOG_PREFIX_PATTERN
from sparkctl.logs import verdict_builder
from sparkctl.logs.analyzer import LogAnalyzer, LogDiagnosis
from sparkctl.logs.line_patterns import (
    PREFIX_PATTERN,
    find_common_quoting,
    is_quoted,
    split_prefix,
    strip_broken_colour_codes,
    strip_quoting,
)
from sparkctl.logs.own_requests import is_own_request
from sparkctl.model.engine_metrics import EngineFactName
from sparkctl.model.launch_plan import LaunchPlan, ReadinessRule
from sparkctl.model.log_line import LogLine
from sparkctl.model.phase import Phase
from sparkctl.model.sanitize import ESCAPE_SEQUENCE, sanitize_line
from sparkctl.model.verdict import FailureCause, Verdict

UNKNOWN_ENGINE = "container"  # reads what every program may say
_ANYTHING_READY = r"^INFO: +Application startup complete\."
_UNDECIDED = 20_000  # lines after which it is nobody's log
_HELD = 12  # of the first lines, by which it is seen whether each is quoted
_RECENT = 40  # lines among which the banner of an engine that begins is looked for
_HEAD = 240  # characters of a line in which an engine's mark is looked for


class LogDiagnoser:
    """Takes in the lines of a log, of ``engine`` (None: of whichever shows itself), and says what they tell.

    ``ready``: the instance's own rule, None: the engine's. While no line has named the engine every one of them reads.
    """

    def __init__(self, engine: str | None = None, ready: ReadinessRule | None = None) -> None:
        self._ready = ready
        self._engine = engine
        self._readers = {name: self._reader(name) for name in ((engine,) if engine else engine_names())}
        self._hints: dict[str, int] = {}
        self._may_change = engine is None
        self._recent: deque[LogLine] = deque(maxlen=_RECENT)
        self._held: list[str] | None = []  # the first lines of a paste, None once it is known what stands before each
        self._quoting = ""
        self.lines = 0

    def feed(self, raw: str) -> None:
        """Take in the next line, as a file has it."""
        if self._held is not None:
            if not self._held and raw.strip() and not is_quoted(raw):
                self._held = None
            else:
                self._held.append(raw)
                if len(self._held) >= _HELD:
                    self._release()
                return
        self._feed(strip_quoting(raw, self._quoting) if self._quoting else raw)

    def _release(self) -> None:
        held, self._held = self._held, None
        if held:
            self._quoting = find_common_quoting(held)
            for raw in held:
                self._feed(strip_quoting(raw, self._quoting))

    def _feed(self, raw: str) -> None:
        plain = raw if raw.isprintable() else ESCAPE_SEQUENCE.sub("", raw)
        when, text = split_prefix(strip_broken_colour_codes(plain))
        self.feed_line(LogLine(when, text, self.lines + 1))

    def feed_line(self, line: LogLine) -> None:
        """Take in the next line, as Docker has it."""
        self.lines += 1
        if self._engine is None and self.lines <= _UNDECIDED:
            self._look_for_engine(line.text)
        elif self._may_change and self._engine is not None:
            self._look_for_another(line)
        for reader in self._readers.values():
            reader.feed_line(line)

    def feed_block(self, block: bytes) -> None:
        """Take in whole lines, the last one ended too. What tells nothing is passed over without being looked at singly.

        A line of nothing but printable ASCII is what `feed` makes of it: nothing is cleaned from it.
        """
        block = _without_colours(block.replace(b"\r\n", b"\n") if b"\r" in block else block)
        at, end = 0, len(block)
        while at < end:
            if (passed := self._pass_over(block, at)) > at:
                at = passed
                continue
            newline = block.find(b"\n", at)
            self.feed(block[at:newline].decode("utf-8", "replace"))
            at = newline + 1

    def _pass_over(self, block: bytes, at: int) -> int:
        if self._engine is None:
            return at
        reader = self._readers[self._engine]
        wanted = reader.ignorable_patterns
        if not wanted:
            return at
        found = _run_of(wanted)(block, at)
        if found is None or found.end() == at:
            return at
        end = found.end()
        self._recent.clear()
        self.lines += block.count(b"\n", at, end)
        stop, number = end, self.lines
        while stop > at:  # the last of them that is not our own question
            begins = max(at, block.rfind(b"\n", at, stop - 1) + 1)
            when, text = split_prefix(strip_broken_colour_codes(block[begins : stop - 1].decode("ascii")))
            if not is_own_request(text):
                reader.pass_over(LogLine(when, text, number))
                break
            stop, number = begins, number - 1
        return end

    def build_diagnosis(self, plan: LaunchPlan | None = None) -> LogDiagnosis:
        """Return what the lines tell so far. ``plan``: what was started, for a value to try."""
        self._release()
        name, reader = self._name, self.reader
        facts = {fact: one for fact, one in reader.facts.items() if fact is not EngineFactName.ENGINE_VERSION}
        version = reader.facts.get(EngineFactName.ENGINE_VERSION)
        return LogDiagnosis(
            engine=name,
            version=None if version is None else sanitize_line(version.value),
            phase=Phase.READY if reader.was_ready else reader.phase,
            step=None if reader.was_ready or reader.step is None else reader.step.name,
            ready=reader.was_ready,
            verdict=_verdict(reader, name, plan),
            facts=tuple(facts.values()),
            parts=reader.parts,
            took=tuple(reader.took),
            lines=self.lines,
            runs=reader.runs,
            run_began=reader.run_began,
            before=None if reader.before is None else verdict_builder.build_verdict_from_line(reader.before),
            is_stopped=reader.stopped is not None,
            sounds_like_an_engine=name is not None or bool(reader.failures),
        )

    @property
    def reader(self) -> LogAnalyzer:
        """The one that reads for the engine, or for anything at all."""
        return (self._readers.get(self._name or UNKNOWN_ENGINE) or self._readers[UNKNOWN_ENGINE]).for_last_run()

    @property
    def _name(self) -> str | None:
        return self._engine or max(self._hints, key=lambda one: self._hints[one], default=None)

    def _reader(self, name: str) -> LogAnalyzer:
        engine = load_engine(name)
        rule = ReadinessRule(engine.defaults.ready_line or _ANYTHING_READY, None)
        return LogAnalyzer(engine, self._ready or rule, whole=True)

    def _look_for_another(self, line: LogLine) -> None:
        """Go over to another engine where one begins: a log may hold what ran one after the other."""
        self._recent.append(line)
        text = line.text[:_HEAD]
        for word in _opening_words():
            if word in text:
                break
        else:
            if not text.startswith("usage: "):
                return
        for name, opens in _engine_start_patterns():
            if name == self._engine or not opens(sanitize_line(text)):
                continue
            old = self._readers[str(self._engine)].for_last_run()
            fresh = self._reader(name)
            is_second = bool(old.failures) or old.was_ready or old.has_begun
            fresh.runs, fresh.before = (old.runs + 1, old.find_end_cause) if is_second else (1, None)
            is_mark = next(mark for one, mark, _ in _engine_marks() if one == name)
            first = [line]
            for one in list(self._recent)[-2::-1]:
                if is_mark is None or not is_mark(sanitize_line(one.text[:_HEAD])):
                    break
                first.insert(0, one)
            fresh.run_began = first[0].number if is_second else 1
            for one in first[:-1]:
                fresh.feed_line(one)
            self._engine, self._readers = name, {name: fresh}
            self._recent.clear()
            return

    def _look_for_engine(self, text: str) -> None:
        head = sanitize_line(text[:_HEAD])
        for name, is_mark, hints in _engine_marks():
            if is_mark is not None and is_mark(head):
                self._engine = name
                self._readers = {name: self._readers.get(name) or self._reader(name)}
                return
            if any(hint in head for hint in hints):
                self._hints[name] = self._hints.get(name, 0) + 1
        if self.lines == _UNDECIDED:
            self._readers = {UNKNOWN_ENGINE: self._readers[UNKNOWN_ENGINE]}


def _verdict(reader: LogAnalyzer, name: str | None, plan: LaunchPlan | None) -> Verdict | None:
    if verdict_builder.proves_failure(reader):
        return verdict_builder.build_verdict(reader, plan)
    if name is not None and (last := reader.unnamed_error) is not None:
        return Verdict(
            FailureCause.CRASHED,
            "It never became ready, and its log ends on an error that sparkctl has no name for.",
            verdict_builder.line_evidence(last),
            "Read the log around this line.",
        )
    if name is None and reader.last_error is not None and not reader.was_ready:
        return Verdict(
            FailureCause.CRASHED,
            "No engine is known by this log; its last line that sounds like an error is the proof.",
            verdict_builder.line_evidence(reader.last_error),
            "Read the log around this line; --engine says whose it is.",
        )
    return None


@cache
def _engine_marks() -> tuple[tuple[str, Callable[[str], object] | None, tuple[str, ...]], ...]:
    every: tuple[Engine, ...] = tuple(load_engine(name) for name in engine_names() if name != UNKNOWN_ENGINE)
    return tuple(
        (one.name, re.compile(one.signs.marks).search if one.signs.marks else None, one.signs.hints) for one in every
    )


_PREFIXED = rf"^(?:{LOG_PREFIX_PATTERN})*+"


@cache
def _opening_words() -> tuple[str, ...]:
    """Return what a line holds that `_openings` may know: cheap for the others."""
    engines = (load_engine(name) for name in engine_names())
    begins = [begin for one in engines if one.signs.marks for begin in one.signs.begins]
    return (*begins, ": error: ", "error: invalid argument: ")


@cache
def _engine_start_patterns() -> tuple[tuple[str, Callable[[str], object]], ...]:
    """Return for each engine what a line matches with which it begins: how it begins a run, and a mark of its own as well;
    or the refusal of its command line."""
    found = []
    for name in engine_names():
        signs = load_engine(name).signs
        if not signs.marks or not signs.begins:
            continue
        begins = re.compile(_PREFIXED + "(?:" + "|".join(re.escape(one) for one in signs.begins) + ")").match
        marks = re.compile(signs.marks).search
        refusal = re.compile(signs.marks).match
        found.append((name, _both(begins, marks, refusal)))
    return tuple(found)


def _both(
    begins: Callable[[str], object], marks: Callable[[str], object], refusal: Callable[[str], object]
) -> Callable[[str], bool]:
    def opens(text: str) -> bool:
        if begins(text):
            return bool(marks(text))
        is_refused = ": error: " in text or text.startswith(("usage: ", "error: invalid argument: "))
        return is_refused and bool(refusal(text))

    return opens


@cache
def _run_of(wanted: tuple[str, ...]) -> Callable[[bytes, int], re.Match[bytes] | None]:
    """Return what matches a run of ordinary lines: printable ASCII, framed and prefixed as `unframe` and `peel` take it off."""
    line = f"{PREFIX_PATTERN}(?:{LOG_PREFIX_PATTERN})*+(?:{'|'.join(wanted)})[\\x20-\\x7e]*+\\n"
    return re.compile(f"(?:{line})*+".encode("ascii")).match


# Never more than the escape itself, and only where the bytes around it cannot become a character of their own.
_COLOUR = re.compile(rb"(?>\x1b\[[0-?]*[ -/]*[@-~]?)(?![\x80-\xbf])")
_EIGHT_BIT = re.compile(rb"\xc2[\x80-\x9f]")


def _without_colours(block: bytes) -> bytes:
    """Return a block without colours, so that its lines may be passed over; as it is where other escapes are in it."""
    if b"\x1b" not in block or _EIGHT_BIT.search(block):
        return block
    plain = _COLOUR.sub(b"", block)
    return block if b"\x1b" in plain else plain
