"""Diagnoses a log of an unknown engine: line by line, or by blocks of bytes, with the same result. Pure."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, lru_cache
from itertools import chain, islice

from sparkctl.engines import FALLBACK_ENGINE, engine_names, load_engine
from sparkctl.engines.base import UNNAMED_REMEDY, Engine, FailureWeight
from sparkctl.engines.line_preparer import find_launcher, prepare_text
from sparkctl.engines.log_rules import fact_rule
from sparkctl.logs import verdict_builder
from sparkctl.logs.analyzer import EvidenceLine, LogAnalyzer, LogDiagnosis, failure_weight, has_consequences
from sparkctl.logs.line_effects import (
    EffectTable,
    LineEffect,
    choose_effects,
    compile_effect_run,
    decode_line,
    get_shapes,
    list_opening_words,
    prepare_raw_line,
    split_raw_bytes,
    split_raw_line,
)
from sparkctl.logs.line_patterns import TRACEBACK_STARTS, find_common_quoting, is_quoted, says_it_fails, strip_quoting
from sparkctl.model.engine_metrics import EngineFact, EngineFactName
from sparkctl.model.launch_plan import LaunchPlan, ReadinessRule
from sparkctl.model.phase import Phase
from sparkctl.model.text.log_line import LogLine
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.secrets import redact
from sparkctl.model.verdict import Confidence, FailureCause, Verdict

# Python's last words where a process left semaphores behind.
_RESOURCE_TRACKER = "resource_tracker: There appear to be "
_DEFAULT_READY_LINE = r"^INFO: +Application startup complete\."
_RESTART_LOOP_RUNS = 3  # of which the last is not read to its end: the one before tells why it restarts
_MAX_UNDECIDED_LINES = 20_000  # lines after which no engine is expected
_QUOTE_SAMPLE_LINES = 12  # first lines that show whether every line is quoted
_RECENT_LINES = 40  # lines among which the banner of a starting engine is searched
_MAX_ACCEPTANCE_LINES = 30  # the last ones: one alone may be of a few tokens
_ACCEPTANCE_MARKS = ("SpecDecoding metrics: ", "accept len: ")  # in lines that tell how many drafts were accepted
_SOCKET_MARK = "NCCL INFO Using network Socket"  # where it uses RDMA, it says IB
# As integers, which compare in half the time.
_REMEMBERED, _REQUEST, _MATTERS, _OPENS, _UNKNOWN = map(
    int, (LineEffect.REMEMBERED, LineEffect.REQUEST, LineEffect.MATTERS, LineEffect.OPENS, LineEffect.UNKNOWN)
)
# What the last lines of a ready engine say of its requests: of each fact the latest line counts.
_LATE_FACTS = (
    fact_rule("", r'"POST (?P<it>/\S{1,80}) HTTP/1\.\d" 404\b', EngineFactName.REFUSED_REQUEST, "{it}: 404"),
    fact_rule(
        "",
        r'got exception: \{"error":\{"code":(?P<code>4\d\d),"message":"'
        r'(?:[^\n]{0,4000}Jinja Exception: )?(?P<it>(?:[^"\\]|\\"){1,200})',
        EngineFactName.REFUSED_REQUEST,
        "{code}: {it}",
    ),
    fact_rule("", "default chat template is no longer allowed", EngineFactName.CHAT_TEMPLATE, "the model brings none"),
    fact_rule(
        "",
        "Can only get item pairs from a mapping",
        EngineFactName.CHAT_TEMPLATE,
        "it takes a tool call's arguments as an object only, and got text",
    ),
    fact_rule(
        "",
        "forcing full prompt re-processing due to lack of cache data",
        EngineFactName.PREFIX_CACHE,
        "not used: a prompt was read again from its beginning",
    ),
)
_ACCEPTANCE_BYTES = tuple(mark.encode() for mark in _ACCEPTANCE_MARKS)
_SOCKET_BYTES = _SOCKET_MARK.encode()
_KNOWN_STARTS = 1024  # lines; an engine that restarts again and again repeats them
_HEAD_CHARS = 240  # characters of a line in which an engine's mark is searched


class LogDiagnoser:
    """Reads the lines of a log of ``engine`` (None: detect it), and builds the diagnosis.

    ``ready``: the instance's own rule, None: the engine's. Until a line shows the engine, the analyzers of all engines read.
    """

    def __init__(self, engine: str | None = None, ready: ReadinessRule | None = None) -> None:
        self._ready = ready
        self._engine = engine
        self._analyzers = {name: self._create_analyzer(name) for name in ((engine,) if engine else engine_names())}
        self._hints: dict[str, int] = {}
        self._engine_line: tuple[int, str] | None = None  # by which the engine was recognised
        self._may_change = engine is None
        self._recent: deque[LogLine | tuple[int, bytes]] = deque(maxlen=_RECENT_LINES)  # before the block that is read
        self._block: list[bytes] = []
        self._block_start = 0  # the lines before this block
        self._may_open = True  # whether an engine may begin with the line that is read
        self._opening_line = 0  # the line at which the engine that reads now began
        self._effect_tables: dict[str, EffectTable] = {}
        self._held: list[str] | None = []  # the first lines of a paste, None once their common quoting is known
        self._quoting = ""
        # the last lines, or blocks of lines, with one about drafts, and the number of the first of each
        self._acceptance: deque[tuple[int, bytes]] = deque(maxlen=_MAX_ACCEPTANCE_LINES)
        self._socket_line = 0  # the number of the last line in which NCCL says that it uses sockets
        self.lines = 0

    def feed_raw_line(self, raw: str) -> None:
        """Read the next line of a file."""
        if self._held is not None:
            if not self._held and raw.strip() and not is_quoted(raw):
                self._held = None
            else:
                self._held.append(raw)
                if len(self._held) >= _QUOTE_SAMPLE_LINES:
                    self._feed_held_lines()
                return
        self._feed_unquoted_line(strip_quoting(raw, self._quoting) if self._quoting else raw)

    def _feed_held_lines(self) -> None:
        lines, self._held = self._held, None
        if lines:
            self._quoting = find_common_quoting(lines)
            for raw in lines:
                self._feed_unquoted_line(strip_quoting(raw, self._quoting))

    def _feed_unquoted_line(self, raw: str) -> None:
        when, text = split_raw_line(raw)
        self.feed_line(LogLine(when=when, text=text, number=self.lines + 1))

    def feed_line(self, line: LogLine) -> None:
        """Read the next line from Docker."""
        self.lines += 1
        if self._engine is None and self.lines <= _MAX_UNDECIDED_LINES:
            self._detect_engine(line)
        elif self._may_change and self._may_open and self._engine is not None:
            self._detect_engine_change(line)
        if not self._block:
            self._recent.append(line)
            if any(mark in line.text for mark in _ACCEPTANCE_MARKS):
                self._acceptance.append((line.number, line.text.encode()))
            if _SOCKET_MARK in line.text:
                self._socket_line = line.number
        for analyzer in self._analyzers.values():
            analyzer.feed_line(line)

    def feed_block(self, block: bytes) -> None:
        """Read complete lines, the last one with its newline. Lines that change nothing are skipped, with the same result as
        `feed_raw_line` has."""
        block = _strip_colours(block)
        self._block, self._block_start = block.split(b"\n")[:-1], self.lines + len(self._held or ())
        shapes, effects = get_shapes(block), dict[EffectTable, bytes]()
        at, end = 0, len(self._block)
        while at < end:
            analyzer = self._only_analyzer
            if analyzer is None or self._held is not None or self._quoting:
                self._may_open = True
                self.feed_raw_line(decode_line(self._block[at]))
                at += 1
            else:
                at = self._read_effective_lines(analyzer, shapes, effects, at)
        self._note_marks(block)
        last = max(0, end - _RECENT_LINES)
        self._recent.extend(enumerate(self._block[last:], self._block_start + last + 1))
        self._block, self._may_open = [], True

    def _note_marks(self, block: bytes) -> None:
        """Note the last lines of the block about drafts and about NCCL's network, as far as they belong to its last run."""
        before = 0 if self._only_analyzer is None else max(0, self._only_analyzer.run_began - 1 - self._block_start)
        if before:
            block = b"\n".join(self._block[before:])
        # ``in`` is several times as fast as ``rfind``.
        if any(mark in block for mark in _ACCEPTANCE_BYTES):
            self._acceptance.append((self._block_start + before + 1, block))
        if _SOCKET_BYTES in block:
            self._socket_line = self._block_start + before + block.count(b"\n", 0, block.rfind(_SOCKET_BYTES)) + 1

    def _read_effective_lines(
        self, analyzer: LogAnalyzer, shapes: list[bytes], effects: dict[EffectTable, bytes], at: int
    ) -> int:
        """Read the lines of the block that change something, until another analyzer may read alone; return the next line's index."""
        end, table, known, is_in_traceback = len(shapes), self._get_effect_table(analyzer), b"", None
        if table not in effects:
            effects[table] = bytes(at) + table.list_effects(shapes[at:])
        while at < end:
            if analyzer.is_in_traceback is not is_in_traceback:
                is_in_traceback = analyzer.is_in_traceback
                known = choose_effects(effects[table], in_traceback=is_in_traceback)
            effect = known[at]
            if effect < _MATTERS or effect == _UNKNOWN:
                most = analyzer.skippable_effect
                if most is not None and (effect <= most or effect == _UNKNOWN):
                    at, effect = self._skip_lines(analyzer, shapes, table, known, at, most)
                    if at == end:
                        break
            line = _read_block_line(self.lines + 1, self._block[at])
            at += 1
            if effect >= _OPENS or self._engine is None:
                self._may_open = True
                self.feed_line(line)
                if self._only_analyzer is not analyzer:
                    break
            else:
                self.lines += 1
                analyzer.feed_line(line)
        return at

    def _skip_lines(
        self, analyzer: LogAnalyzer, shapes: list[bytes], table: EffectTable, known: bytes, at: int, most: LineEffect
    ) -> tuple[int, int]:
        """Skip lines of the block that change no more than ``most``; return the index of the first one to read, and its effect."""
        start, skip_run, latest, activity, effect = at, compile_effect_run(most), -1, -1, known[at]
        while effect <= most or effect == _UNKNOWN:
            if effect != _UNKNOWN and (found := skip_run(known, at)) is not None:
                end = found.end()
                if (last := _find_last_effect(known, at, end, _REMEMBERED)) >= 0:
                    latest = last
                if most >= _REQUEST and (last := _find_last_effect(known, at, end, _REQUEST)) >= 0:
                    activity = last
                at = end
            else:
                effect = table.find_effect(shapes[at], self._block[at], in_traceback=analyzer.is_in_traceback)
                if effect > most:
                    break
                latest = at if effect >= _REMEMBERED else latest
                activity = at if effect >= _REQUEST else activity
                at += 1
            if at == len(shapes):
                break
            effect = known[at]
        if at > start:
            first = self._block_start + 1
            self.lines += at - start
            analyzer.skip_lines(
                None if latest < 0 else (first + latest, self._block[latest]),
                None if activity < 0 else first + activity,
            )
        return at, effect

    @property
    def _only_analyzer(self) -> LogAnalyzer | None:
        """The analyzer that alone reads from here on; None while it is open whose log it is."""
        if self._engine is not None:
            return self._analyzers[self._engine]
        return self._analyzers[FALLBACK_ENGINE] if self.lines >= _MAX_UNDECIDED_LINES else None

    def _get_effect_table(self, analyzer: LogAnalyzer) -> EffectTable:
        name = analyzer.engine.name
        if name not in self._effect_tables:
            self._effect_tables[name] = EffectTable(analyzer.engine, analyzer.is_ready_line)
        return self._effect_tables[name]

    def _list_lines_before(self, number: int) -> Iterator[LogLine]:
        """Yield the last lines before this one that belong to the engine that reads now, the latest first."""
        end = number - 1 - self._block_start if self._block else 0
        own = ((self._block_start + at + 1, self._block[at]) for at in reversed(range(end)))
        for one in islice(chain(own, reversed(self._recent)), _RECENT_LINES):
            line = one if isinstance(one, LogLine) else _read_block_line(*one)
            if line.number <= self._opening_line:
                return
            yield line

    def build_diagnosis(self, plan: LaunchPlan | None = None) -> LogDiagnosis:
        """Return the diagnosis so far. ``plan``: what was started, for a value to try."""
        self._feed_held_lines()
        if self._only_analyzer is not None:
            self._only_analyzer.read_traceback_end(reversed([*self._list_lines_before(self.lines + 1)]))
        for one in self._analyzers.values():
            one.read_cut_message()
        name, analyzer = self._engine_name, self.analyzer
        if analyzer.unproved_standstill is not None and self._stood_while_requests_ran(analyzer):
            analyzer.prove_standstill()
        facts = {fact: one for fact, one in analyzer.facts.items() if fact is not EngineFactName.ENGINE_VERSION}
        version = analyzer.facts.get(EngineFactName.ENGINE_VERSION)
        verdict = _judge_log(analyzer, name, plan)
        phase = Phase.READY if analyzer.was_ready else analyzer.phase
        if phase is Phase.LOADING and analyzer.step is None and verdict and verdict.cause in _REFUSED_SETTINGS:
            phase = Phase.STARTING  # it printed lines, and loaded nothing
        return LogDiagnosis(
            engine=name,
            version=None if version is None else sanitize_line(version.value),
            phase=phase,
            step=None if analyzer.was_ready or analyzer.step is None else analyzer.step.name,
            ready=analyzer.was_ready,
            verdict=verdict,
            facts=(
                *facts.values(),
                *self._find_acceptance(analyzer),
                *self._find_network(analyzer),
                *self._find_late_facts(analyzer),
            ),
            parts=analyzer.phase_durations,
            took=tuple(analyzer.took),
            lines=self.lines,
            runs=analyzer.runs,
            run_began=analyzer.run_began,
            before=None if analyzer.before is None else verdict_builder.build_verdict_from_line(analyzer.before),
            stopped_at=None if analyzer.stopped is None else analyzer.stopped.number,
            sounds_like_an_engine=name is not None or bool(analyzer.failures),
            reading=analyzer.describe_reading(self._describe_engine_line()),
        )

    def _find_acceptance(self, analyzer: LogAnalyzer) -> Iterator[EngineFact]:
        """Yield how many drafts the model accepted, as the last lines of its run tell: an interval with many drafts counts more."""
        first = max(analyzer.run_began, self._opening_line)
        lines = (
            raw
            for start, block in self._acceptance
            for number, raw in enumerate(block.split(b"\n"), start)
            if number >= first and any(mark in raw for mark in _ACCEPTANCE_BYTES)
        )
        read = (analyzer.engine.parse_stats_line(prepare_raw_line(raw)) for raw in deque(lines, _MAX_ACCEPTANCE_LINES))
        told = [
            (1.0 if one.drafted is None else one.drafted, one) for one in read if one and one.accept_length is not None
        ]
        drafted = sum(weight for weight, _ in told)
        if not drafted:
            return
        length = sum(weight * (one.accept_length or 0) for weight, one in told) / drafted
        rates = [weight * one.accept_rate for weight, one in told if one.accept_rate is not None]
        rate = sum(rates) / drafted if len(rates) == len(told) else None
        accepted = "" if rate is None else f", {rate:.0%} of the drafts accepted"
        yield EngineFact(EngineFactName.DRAFT_ACCEPTANCE, f"{length:.2f} tokens a step{accepted}", share=rate)

    def _find_network(self, analyzer: LogAnalyzer) -> Iterator[EngineFact]:
        """Yield that the ranks of its run talk over sockets, which is slow and no error."""
        if self._socket_line and self._socket_line >= analyzer.run_began:
            yield EngineFact(EngineFactName.NETWORK, "plain sockets, not RDMA")

    def _find_late_facts(self, analyzer: LogAnalyzer) -> Iterator[EngineFact]:
        """Yield what the last lines say of requests: that one was refused, or waits while none runs."""
        found: dict[EngineFactName, EngineFact] = {}
        stats = None
        for line in self._list_lines_before(self.lines + 1) if analyzer.was_ready else ():
            if stats is None or stats.running is None:
                stats = analyzer.engine.parse_stats_line(prepare_raw_line(line.text.encode()))
            for rule in _LATE_FACTS:
                if rule.name not in found and (fact := rule.match_fact(line.text)) is not None:
                    found[rule.name] = fact
        if stats is not None and stats.running == 0 and stats.waiting:
            yield EngineFact(EngineFactName.WAITING_REQUESTS, f"{stats.waiting:.0f}, and none runs")
        yield from (fact for name, fact in found.items() if name not in analyzer.facts)

    def _stood_while_requests_ran(self, analyzer: LogAnalyzer) -> bool:
        """Tell whether requests ran and got nothing by the last figures before an engine said that it stands still. It prints them
        once: vLLM leaves out those that say the same again."""
        stood_at = analyzer.unproved_standstill or 0
        for line in self._list_lines_before(self.lines + 1):
            stats = analyzer.engine.parse_stats_line(prepare_raw_line(line.text.encode()))
            if line.number < stood_at and stats is not None and stats.running is not None:
                return stats.running > 0 and stats.generation_rate == 0 and not stats.prompt_rate
        return False

    def _describe_engine_line(self) -> tuple[int, str] | None:
        if self._engine_line is None:
            return None
        number, text = self._engine_line
        return number, redact(sanitize_line(text))

    @property
    def analyzer(self) -> LogAnalyzer:
        """The analyzer of the engine; of no engine's log the one whose rules name the failure best."""
        if self._engine_name is None:
            own = self._analyzers[FALLBACK_ENGINE].get_last_run_analyzer()
            others = [
                analyzer.get_last_run_analyzer()
                for name, analyzer in self._analyzers.items()
                if name != FALLBACK_ENGINE
            ]
            best = max((own, *others), key=lambda one: failure_weight(one.end_cause) if one.end_cause else 0)
            if best.end_cause is not None and failure_weight(best.end_cause) > FailureWeight.EXCEPTION:
                return own if _name_the_same(own, best) else best
            return next((one for one in others if _names_more(one, own)), own)
        return (
            self._analyzers.get(self._engine_name or FALLBACK_ENGINE) or self._analyzers[FALLBACK_ENGINE]
        ).get_last_run_analyzer()

    @property
    def _engine_name(self) -> str | None:
        return self._engine or max(self._hints, key=lambda one: self._hints[one], default=None)

    def _create_analyzer(self, name: str) -> LogAnalyzer:
        engine = load_engine(name)
        rule = ReadinessRule(line=engine.defaults.ready_line or _DEFAULT_READY_LINE, health=None)
        return LogAnalyzer(engine=engine, ready=self._ready or rule, whole=True, is_unknown=self._engine is None)

    def _detect_engine_change(self, line: LogLine) -> None:
        """Change to another engine where one starts: a log may hold several engines, one after the other."""
        text = line.text[:_HEAD_CHARS]
        for name in _find_opening_engines(text):
            if name == self._engine:
                continue
            old = self._analyzers[str(self._engine)].get_last_run_analyzer()
            fresh = self._create_analyzer(name)
            is_second = bool(old.failures) or old.was_ready or old.has_begun
            fresh.runs, fresh.before = (old.runs + 1, old.end_cause) if is_second else (1, None)
            is_mark = next(mark for one, mark, _ in _load_engine_marks() if one == name)
            first = [line]
            for one in self._list_lines_before(line.number):
                if is_mark is None or not is_mark(sanitize_line(one.text[:_HEAD_CHARS])):
                    break
                first.insert(0, one)
            fresh.run_began = first[0].number if is_second else 1
            for one in first[:-1]:
                fresh.feed_line(one)
            self._engine, self._analyzers = name, {name: fresh}
            self._engine_line = line.number, text
            self._opening_line = line.number
            return

    def _detect_engine(self, line: LogLine) -> None:
        head = sanitize_line(line.text[:_HEAD_CHARS])
        for name, is_mark, hints in _load_engine_marks():
            if is_mark is not None and is_mark(head):
                self._engine, self._engine_line = name, (line.number, head)
                self._analyzers = {name: self._analyzers.get(name) or self._create_analyzer(name)}
                self._analyzers[name].is_unknown = False
                return
            if any(hint in head for hint in hints):
                self._hints[name] = self._hints.get(name, 0) + 1
        if self.lines == _MAX_UNDECIDED_LINES:
            self._analyzers = {FALLBACK_ENGINE: self._analyzers[FALLBACK_ENGINE]}


_REFUSED_SETTINGS = (FailureCause.UNKNOWN_FLAG, FailureCause.BAD_VALUE)


def _may_serve_on(analyzer: LogAnalyzer) -> bool:
    """Tell whether the engine was ready, and no part of it says that it ended: a part that does not serve may have failed."""
    root = analyzer.end_cause
    if root is None or root.failure is None or not root.serving or root.failure.fatal:
        return False
    return root.failure.cause is FailureCause.DISK_FULL and not has_consequences(root, analyzer.failures)


def _names_more(other: LogAnalyzer, own: LogAnalyzer) -> bool:
    """Tell whether an engine's rules name the line of which the common ones say only that it is an error."""
    causes = _get_causes_of_one_line(own, other)
    return causes is not None and causes[0] is FailureCause.CRASHED and causes[1] is not FailureCause.CRASHED


def _name_the_same(own: LogAnalyzer, other: LogAnalyzer) -> bool:
    """Tell whether the common rules know the same failure by the same line: an engine's own advice is for that engine only."""
    causes = _get_causes_of_one_line(own, other)
    return causes is not None and causes[0] is causes[1]


def _get_causes_of_one_line(own: LogAnalyzer, other: LogAnalyzer) -> tuple[FailureCause, FailureCause] | None:
    """Return what each of the two takes for the cause, None where that is not the same line."""
    ours, theirs = own.end_cause, other.end_cause
    if ours is None or ours.failure is None or theirs is None or theirs.failure is None:
        return None
    return (ours.failure.cause, theirs.failure.cause) if ours.number == theirs.number else None


def _judge_log(analyzer: LogAnalyzer, name: str | None, plan: LaunchPlan | None) -> Verdict | None:
    root = analyzer.end_cause
    if root is None or failure_weight(root) <= FailureWeight.EXCEPTION:
        cut = analyzer.cut_failure or (None if analyzer.was_ready else analyzer.cut_line)
        if cut is not None:
            return _build_likely_verdict_from_line(cut, plan)
    if verdict_builder.proves_failure(analyzer):
        found = verdict_builder.build_verdict(analyzer, plan)
        return replace(found, confidence=Confidence.LIKELY) if found is not None and _may_serve_on(analyzer) else found
    if name is not None and (unnamed := analyzer.unnamed_error) is not None:
        return _build_likely_verdict(
            FailureCause.CRASHED,
            "It never became ready, and its log ends on an error that sparkctl has no name for.",
            unnamed,
            UNNAMED_REMEDY,
        )
    if analyzer.was_ready:
        return None
    if analyzer.before is not None and analyzer.runs >= _RESTART_LOOP_RUNS and analyzer.stopped is None:
        return _build_likely_verdict_from_line(analyzer.before, plan)
    last = analyzer.latest_line
    if name is not None and analyzer.stopped is None and last is not None and _RESOURCE_TRACKER in last.text:
        return _build_likely_verdict(
            FailureCause.KILLED,
            "It ended before it was ready and without a message, as a killed process does; Python cleaned up after it.",
            last,
            "Most often the machine ran out of memory: look at dmesg -T | grep -i oom on the node.",
        )
    if name is None and (warned := analyzer.closing_warning) is not None:
        return _build_likely_verdict_from_line(warned, plan)
    last_words, is_known = analyzer.last_words, name is not None
    if last_words is not None and (not is_known or says_it_fails(last_words.text)):
        return _build_likely_verdict(
            FailureCause.CRASHED,
            f"{'It never became ready' if is_known else 'No known engine wrote this log'}; this is its last line that looks like an error.",
            last_words,
            f"{UNNAMED_REMEDY}{'' if is_known else ' --engine names the engine.'}",
        )
    return None


def _build_likely_verdict_from_line(line: EvidenceLine, plan: LaunchPlan | None) -> Verdict:
    return replace(verdict_builder.build_verdict_from_line(line, plan), confidence=Confidence.LIKELY)


def _build_likely_verdict(cause: FailureCause, summary: str, proof: EvidenceLine, remedy: str) -> Verdict:
    return Verdict(
        cause=cause,
        summary=summary,
        evidence=verdict_builder.build_line_evidence(proof),
        remedy=remedy,
        confidence=Confidence.LIKELY,
    )


@cache
def _load_engine_marks() -> tuple[tuple[str, Callable[[str], object] | None, tuple[str, ...]], ...]:
    every: tuple[Engine, ...] = tuple(load_engine(name) for name in engine_names() if name != FALLBACK_ENGINE)
    return tuple(
        (one.name, re.compile(one.signs.marks).search if one.signs.marks else None, one.signs.hints) for one in every
    )


def read_line_header(raw: str) -> str | None:
    """Return what follows the header of a line of a file, which names its level or process, None where it has none and does not
    begin with an engine's own words or a traceback either. What `split_raw_line` removes may stand before the header."""
    text = split_raw_line(raw)[1][:_HEAD_CHARS]
    if find_launcher(text) is not None:
        return None
    level, line = prepare_text(text)
    if level is not None or line.startswith(TRACEBACK_STARTS) or (text[:1] in "([" and line != sanitize_line(text)):
        return line
    return line if any(is_mark(line) for is_mark in _load_line_starts()) else None


def has_engine_mark(raw: str) -> bool:
    """Tell whether a line of a file is one by which an engine is recognised."""
    head = sanitize_line(split_raw_line(raw)[1][:_HEAD_CHARS])
    return any(is_mark is not None and is_mark(head) for _, is_mark, _ in _load_engine_marks())


@cache
def _load_line_starts() -> tuple[Callable[[str], object], ...]:
    signs = [load_engine(name).signs for name in engine_names() if name != FALLBACK_ENGINE]
    return tuple(re.compile(one.marks).match for one in signs if one.marks)


@cache
def _load_starts() -> tuple[tuple[str, tuple[str, ...], Callable[[str], object], Callable[[str], object]], ...]:
    """Return for each engine how a run of it begins, a search for its marks, and a matcher of them."""
    signs = [(name, load_engine(name).signs) for name in engine_names()]
    return tuple(
        (name, one.begins, re.compile(one.marks).search, re.compile(one.marks).match)
        for name, one in signs
        if one.marks and one.begins
    )


@lru_cache(_KNOWN_STARTS)
def _find_opening_engines(head: str) -> tuple[str, ...]:
    """Return the engines of which a line that begins so may be the first: the beginning of a run with a mark of the engine, or the
    refusal of its command line."""
    if not any(map(head.__contains__, list_opening_words())) and not head.startswith("usage: "):
        return ()
    text = sanitize_line(head)
    line = prepare_text(text)[1]
    is_refused = ": error: " in text or text.startswith(("usage: ", "error: invalid argument: "))
    return tuple(
        name
        for name, begins, has_mark, starts_with_mark in _load_starts()
        if (has_mark(text) if line.startswith(begins) else is_refused and starts_with_mark(text))
    )


def _read_block_line(number: int, raw: bytes) -> LogLine:
    when, text = split_raw_bytes(raw)
    return LogLine(when, text, number)


_LESSER_EFFECTS = {int(least): bytes(range(LineEffect.INVISIBLE, least)) for least in LineEffect}


def _find_last_effect(effects: bytes, start: int, end: int, least: int) -> int:
    """Return the index of the last effect within these bounds that is at least this one, -1 if none is."""
    if effects[end - 1] >= least:
        return end - 1
    found = len(effects[start:end].rstrip(_LESSER_EFFECTS[least]))
    return start + found - 1 if found else -1


# Removes the escape alone, and only if the bytes around it cannot join into another character.
# A group around it, even an atomic one, would hide from `re` that it begins with an escape.
_COLOUR_CODE = re.compile(rb"\x1b\[[0-?]*+[ -/]*+[@-~]?+(?![\x80-\xbf])")
_EIGHT_BIT_CONTROL = re.compile(rb"\xc2[\x80-\x9f]")


def _strip_colours(block: bytes) -> bytes:
    """Return a block without colours, so that its lines can be skipped; unchanged if it has other escapes."""
    if b"\x1b" not in block or _EIGHT_BIT_CONTROL.search(block):
        return block
    plain = _COLOUR_CODE.sub(b"", block)
    return block if b"\x1b" in plain else plain
