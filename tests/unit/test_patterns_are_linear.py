"""Every regular expression of sparkctl takes time in proportion to the text it is held against, whatever that text is.

The patterns are found in the source, not listed here: whoever adds one has it timed. Each is held against texts made of what
it repeats itself, of its own beginnings and of what nearly matches, some thousand characters long, and a million with
SPARKCTL_LAB_ALL=1; what counts is how the time grows from one length to the next. A pattern that is put together of local
values is named in ``MADE_ELSEWHERE`` with what makes it, and those are timed by what they are made of.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import ModuleType

import pytest

import sparkctl
from sparkctl.engines import engine_names
from sparkctl.engines.log_rules import LogRules
from sparkctl.engines.traps import load_traps
from sparkctl.monitor.kernel_log import load_kernel_rules
from tests.unit.slow_pattern_texts import hostile_pieces

ROOT = Path(sparkctl.__file__).parent
FUNCTIONS = {"compile", "search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer"}
# What makes a pattern of values that are not constants, by file and function, and why it is no danger or where it is timed.
MADE_ELSEWHERE = {
    "model/text/lazy_pattern.py": "what others give it: found where they do",
    "model/text/bounded_pattern.py": "a pattern of the operator's own: bounded there, and timed by its own test",
    "logs/verdict_builder.py": "an escaped path between constants",
    "logs/analyzer.py": "an engine's own ready line: timed below",
    "logs/diagnosis.py": "put together of the engines' signs: timed below",
    "logs/log_file.py": "classes of bounded length at the start of a line, what a log's first lines share",
    "logs/search.py": "an escaped text",
    "logs/line_effects.py": "put together of the engines' signs and of prefixes that are timed; a class of bytes",
    "engines/log_rules.py": "the engines' rules: timed below",
    "engines/traps/profile_traps.py": "the traps' tests of a profile: timed in tests/unit/engines/test_traps.py",
    "views/doctor_view.py": "an escaped name between constants",
    "node/transfer.py": "an escaped name before constants",
    "node/peer_checks.py": "a constant",
    "profiles/importers/recipe_reader.py": "an engine's own image: constants",
    "profiles/importers/profile_importer.py": "an escaped key between constants",
    "profiles/importers/engine_command.py": "one of our own words between constants",
    "profiles/env_references.py": "an escaped character before a constant that is timed",
    "monitor/activity.py": "an escaped name between constants",
    "monitor/findings/node_settings.py": "versions of the traps: timed below",
    "monitor/kernel_log.py": "versions of the traps, lines of kernel_events.json: timed below",
    "tui/panel.py": "an escaped name between constants",
}
WHOLE = bool(os.environ.get("SPARKCTL_LAB_ALL"))  # 64 KiB and 1 MiB take minutes: by hand and nightly
SIZES = (1 << 12, 1 << 16) if WHOLE else (1 << 12, 1 << 14)
LARGE = 1 << 20
PROBES = (1 << 8, 1 << 10)  # of the many rules of engines, the cheap ones are told by these
GROWTH = 60.0  # for 16 times the text: 16 in proportion, 256 where it grows with the square
# Where no name tells it; elsewhere it is searched.
USED_AS = {"profiles/docker_options.py": frozenset(["fullmatch"]), "logs/log_file.py": frozenset(["match"])}
TICK = 0.008  # seconds: CPU time is counted no finer everywhere
TOO_SHORT = GROWTH * TICK  # seconds: less says nothing of growth, and harms nobody
LIMIT = 2.0  # seconds of CPU for one text, where nothing ends by itself


@dataclass(frozen=True)
class FoundPattern:
    """A pattern, the place of it, and how it is used."""

    place: str
    pattern: re.Pattern[str] | re.Pattern[bytes]
    methods: frozenset[str]


@cache
def _read_nodes(path: Path) -> tuple[str, tuple[ast.Assign | ast.Attribute | ast.Call, ...]]:
    """Return a file's text, and what of its tree is looked at."""
    text = path.read_text("utf-8")
    return text, tuple(
        node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Assign | ast.Attribute | ast.Call)
    )


@cache
def _load_module(path: Path) -> ModuleType | None:
    name = ".".join(("sparkctl", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    return None if name.endswith("__main__") else importlib.import_module(name)


def _list_files() -> list[Path]:
    return [
        path
        for path in sorted(ROOT.rglob("*.py"))
        if re.search(r"import (?:re|lazy_pattern)\b", _read_nodes(path)[0])
        and "simul" not in str(path.relative_to(ROOT))
        and path.name != "bootstrap.py"
    ]


@cache
def _list_method_calls() -> tuple[tuple[Path, str, frozenset[tuple[str, str]]], ...]:
    """Return each file, its text, and the methods of patterns in it with the names that they are called on."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        text, nodes = _read_nodes(path)
        calls = set()
        for node in nodes:
            if isinstance(node, ast.Attribute) and node.attr in FUNCTIONS:
                of = node.value
                name = of.id if isinstance(of, ast.Name) else of.attr if isinstance(of, ast.Attribute) else ""
                if name:
                    calls.add((name, node.attr))
        found.append((path, text, frozenset(calls)))
    return tuple(found)


@cache
def _list_pattern_uses(path: Path) -> dict[str, frozenset[str]]:
    """Return by which methods a compiled pattern of each name is used, in its own file and where its name is imported."""
    found: dict[str, set[str]] = {}
    for other, text, calls in _list_method_calls():
        if other == path or path.stem in text:
            for name, method in calls:
                if other == path or not name.startswith("_"):
                    found.setdefault(name, set()).add(method)
    return {name: frozenset(methods) for name, methods in found.items()}


def _find_flags_argument(call: ast.Call) -> ast.expr | None:
    at = {"compile": 1, "sub": 4, "subn": 4, "split": 3}.get(
        call.func.attr if isinstance(call.func, ast.Attribute) else "", 2
    )
    return next(
        (one.value for one in call.keywords if one.arg == "flags"), call.args[at] if len(call.args) > at else None
    )


def _evaluate_node(node: ast.expr, module: ModuleType) -> object:
    return eval(compile(ast.Expression(node), "<pattern>", "eval"), dict(vars(module)))


def _find_in_file(path: Path) -> Iterator[FoundPattern]:
    module, nodes = _load_module(path), _read_nodes(path)[1]
    names = {
        id(node.value): target.id
        for node in nodes
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in nodes:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Tuple)
            and isinstance(node.value, ast.Tuple)
        ):
            names |= {
                id(value): target.id
                for target, value in zip(node.targets[0].elts, node.value.elts, strict=True)
                if isinstance(target, ast.Name)
            }
    place = str(path.relative_to(ROOT))
    for node in nodes:
        if (
            not isinstance(node, ast.Call)
            or not isinstance(node.func, ast.Attribute)
            or node.func.attr not in FUNCTIONS
        ):
            continue
        if not isinstance(node.func.value, ast.Name) or node.func.value.id not in ("re", "lazy_pattern"):
            continue
        where = f"{place}:{node.lineno}"
        try:
            assert module is not None
            pattern, flags = _evaluate_node(node.args[0], module), _find_flags_argument(node)
            compiled = re.compile(pattern, 0 if flags is None else _evaluate_node(flags, module))  # type: ignore[call-overload]
        except (NameError, AttributeError, TypeError):
            yield FoundPattern(where, re.compile(""), frozenset())
            continue
        methods = frozenset([node.func.attr])
        if node.func.attr == "compile":
            of_file = _list_pattern_uses(path)
            methods = (of_file.get(names.get(id(node), "")) or USED_AS.get(place, frozenset())) - {"compile"}
        yield FoundPattern(where, compiled, methods or frozenset(["search"]))


@cache
def _find_patterns(path: Path) -> tuple[FoundPattern, ...]:
    return tuple(_find_in_file(path))


def _find_all_patterns() -> tuple[FoundPattern, ...]:
    return tuple(one for path in _list_files() for one in _find_patterns(path))


def test_every_pattern_is_found_or_named_here() -> None:
    unknown = [
        one.place for one in _find_all_patterns() if not one.methods and not one.place.startswith(tuple(MADE_ELSEWHERE))
    ]
    assert not unknown, (
        "a test cannot know these patterns: make each of constants, or say in MADE_ELSEWHERE what makes it"
    )
    assert len(_find_all_patterns()) > 250


def test_the_test_knows_what_is_not_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "LIMIT", 0.3)  # one of them never ends
    slow = [r"(\w+)\s*=", r"(?:a|b|ab)+$"]
    if WHOLE:  # so quick that their square shows at 64 KiB only
        slow += [r"(\w+\s?)+:", r".*foo", r"[\[(]\s?[\"'][^\])\n]+[\])]"]
    for pattern in slow:
        assert _describe_slowness(FoundPattern("", re.compile(pattern), frozenset(["search"]))), pattern
    for pattern in (r"(?<![\w])(\w++)\s*+=", r"^(?:ab|c)*+$", r"^a.*b"):
        assert not _describe_slowness(FoundPattern("", re.compile(pattern), frozenset(["search"]))), pattern


def test_time_grows_with_the_text() -> None:
    slow = [words for one in _find_all_patterns() if one.methods and (words := _describe_slowness(one))]
    assert not slow


def test_the_rules_of_the_engines_are_no_slower() -> None:
    """They see no more of a line than `_vocabulary` gives them."""
    modules = [importlib.import_module(f"sparkctl.engines.{name}") for name in engine_names()]
    vocabularies = [value for module in modules for value in vars(module).values() if isinstance(value, LogRules)]
    patterns = {rule.pattern for one in vocabularies for rule in (*one.rules, *one.facts)}
    patterns |= {module.ENGINE.signs.marks for module in modules if module.ENGINE.signs.marks}
    patterns |= {module.ENGINE.defaults.ready_line for module in modules if module.ENGINE.defaults.ready_line}
    assert len(patterns) > 200
    every = [FoundPattern("engines", re.compile(one), frozenset(["search"])) for one in sorted(patterns)]
    slow = [words for one in every if (words := _describe_slowness(one, sizes=(*PROBES, SIZES[0])))]
    assert not slow


class _TooLong(Exception):
    pass


def _stop_on_alarm(*_: object) -> None:
    raise _TooLong


def test_time_grows_with_the_line_of_a_kernel() -> None:
    rows = [("kernel_events.json", rule.pattern) for rule in load_kernel_rules()[0]]
    rows += [("traps", re.compile(trap.node.pattern)) for trap in load_traps() if trap.node is not None]
    found = (FoundPattern(f"{file}:{one.pattern}", one, frozenset(["search"])) for file, one in rows)
    assert [words for one in found if (words := _describe_slowness(one))] == []


def _describe_slowness(one: FoundPattern, sizes: tuple[int, ...] = SIZES) -> str:
    """Return where its time grows faster than the text, empty where it does not."""
    costs: list[tuple[float, str, str, str]] = []
    before = signal.signal(
        signal.SIGVTALRM, _stop_on_alarm
    )  # CPU time: the signal that pytest's own limit uses is another
    try:
        for begin, repeated in hostile_pieces(one.pattern.pattern, one.pattern.flags):
            for method in sorted(one.methods):
                for size in sizes:
                    if size < min(4 * len(begin + repeated), sizes[-1]):  # it would hardly be repeated
                        continue
                    # By the clock on the wall: no shorter than CPU time, and finer.
                    took = _measure_seconds(one, method, begin, repeated, size, time.perf_counter)
                    if took > TOO_SHORT and _grows_too_fast(one, method, begin, repeated, size, took):
                        return _describe_growth(one, method, begin, repeated, size, took)
                    if took * (sizes[-1] / size) ** 3 < TOO_SHORT:  # even with its cube the last is too short to tell
                        break
                costs.append((took, begin, repeated, method))
        for _, begin, repeated, method in sorted(costs, reverse=True)[:1] if WHOLE and sizes is SIZES else ():
            took = _measure_seconds(one, method, begin, repeated, LARGE, time.perf_counter)
            if took > TOO_SHORT and _grows_too_fast(one, method, begin, repeated, LARGE, took):
                return _describe_growth(one, method, begin, repeated, LARGE, took)
    except _TooLong:
        return f"{one.place} {one.pattern.pattern!r} does not end on some text"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    return ""


def _grows_too_fast(one: FoundPattern, method: str, begin: str, repeated: str, size: int, took: float) -> bool:
    """Tell whether a text 16 times as long takes much more than 16 times as long, the best of a few of each."""
    long = min(took, _measure_seconds(one, method, begin, repeated, size))
    short = min(_measure_seconds(one, method, begin, repeated, size // 16) for _ in range(3))
    if long <= GROWTH * max(short, TICK):
        return False
    # What is bounded may grow fast until it is at its bound.
    return size * 16 > SIZES[-1] or _measure_seconds(one, method, begin, repeated, size * 16) > GROWTH * long


def _describe_growth(one: FoundPattern, method: str, begin: str, repeated: str, size: int, took: float) -> str:
    return f"{one.place} {one.pattern.pattern!r}.{method}: {took:.3f} s for {size} of {begin!r} and {repeated!r}..."


def _build_text(begin: str, repeated: str, size: int, binary: bool) -> str | bytes:
    text = (begin + repeated * (size // len(repeated) + 1))[:size] + "\0"
    return text.encode("utf-8") if binary else text


def _measure_seconds(
    one: FoundPattern, method: str, begin: str, repeated: str, size: int, clock: Callable[[], float] = time.process_time
) -> float:
    text = _build_text(begin, repeated, size, isinstance(one.pattern.pattern, bytes))
    is_single = method in ("search", "match", "fullmatch")
    run: Callable[[str | bytes], object]
    run = getattr(one.pattern, method) if is_single else partial(one.pattern.sub, text[:0])  # type: ignore[arg-type]
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT)
    began = clock()
    run(text)
    took = clock() - began
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return took
