"""The catalogue of known traps: each has a case that shows it, none speaks where there is nothing."""

from __future__ import annotations

import copy
import json
import re
import time
from pathlib import Path

import pytest

from sparkctl.engines import engine_names, load_engine
from sparkctl.engines.lint import LintRule, LintSeverity
from sparkctl.engines.log_rules import LogRules
from sparkctl.engines.traps import Trap, build_trap_rules, is_version_within, load_traps, read_traps, shorten_source
from sparkctl.engines.vllm import FACTS
from sparkctl.errors import InvalidInput
from sparkctl.logs.analyzer import LogAnalyzer
from sparkctl.logs.diagnosis import LogDiagnoser
from sparkctl.model.launch_plan import ReadinessRule
from sparkctl.model.text.log_line import LogLine
from sparkctl.profiles import profile_lint
from sparkctl.profiles.profile_library import ProfileLibrary
from tests.unit.engines.numbered_traps import LOG_TRAPS, PROFILE_TRAPS, LogTrap, ProfileTrap
from tests.unit.engines.trap_cases import CALM_PROFILES, HARMLESS_LINES, LOG_CASES, PROFILE_CASES

TRAPS = {one.name: one for one in load_traps()}
LONG_TEXTS = ("a" * 4096, "ab1." * 1024, "x=1," * 1024, "-" * 4096)


def lint_case(tmp_path: Path, engine: str, image: str, model: str, fields: str) -> list[str]:
    spec = f"path: {model}"
    lines = []
    for line in fields.splitlines():
        if line.startswith("model."):
            spec += f", {line.removeprefix('model.')}"
        else:
            lines.append(line)
    ready = ["start: {ready_line: up}"] if engine == "container" else []
    path = tmp_path / "mine.yaml"
    head = ["schema: 1", "name: mine", f"engine: {engine}", f'image: "{image}"', f"model: {{{spec}}}"]
    path.write_text("\n".join([*head, *lines, *ready, ""]))
    checked = profile_lint.lint_profile_file(ProfileLibrary(tmp_path / "none", tmp_path / "none"), path)
    assert not [one for one in checked.diagnostics if one.kind is LintRule.PROFILE], checked.diagnostics
    return [str(one) for one in checked.diagnostics]


def find_trap_lines(trap: Trap, lines: list[str]) -> list[str]:
    """Return the lines that say what this trap means."""
    begins = re.sub(r"\\{\w+\\}", ".*", re.escape(trap.meaning))
    return [line for line in lines if re.search(begins, line)]


def test_every_trap_has_a_case() -> None:
    with_log, with_check = {name for name, *_ in LOG_CASES}, {name for name, *_ in PROFILE_CASES}
    assert {name for name, one in TRAPS.items() if one.log and one.log[0]} == with_log
    assert {name for name, one in TRAPS.items() if one.when} == with_check
    assert len(TRAPS) == len(load_traps()), "a name is given twice"


@pytest.mark.parametrize("trap", load_traps(), ids=lambda one: one.name)
def test_an_entry_is_whole(trap: Trap) -> None:
    assert trap.when or trap.log or trap.node
    assert trap.source.startswith("https://")
    assert set(trap.engines) <= set(engine_names())
    assert trap.level in set(LintSeverity)
    assert trap.rule in set(LintRule)
    assert not trap.meaning.endswith("."), "the sentence goes on with the remedy"
    remedies = [trap.remedy, *(log["remedy"] for log in trap.log if "remedy" in log)]
    marked = {re.sub(r"\W", "", name).lower() for name in re.findall(r"<([^<>:]*)", " ".join(remedies))}
    assert marked <= set(engine_names()) - set(trap.engines)
    assert not marked or trap.node is None, "a node has no engine"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sorce": "x"}, "mine.json, entry 1 (old): there is no key sorce"),
        (
            {"log": {"needle": "x", "cause": "nccl", "patern": "y"}},
            "mine.json, entry 1 (old), log: there is no key patern",
        ),
        ({"log": [{"needle": "x"}]}, "mine.json, entry 1 (old), log: the key cause is missing"),
        ({"check": {"when": {}, "lvl": "info"}}, "mine.json, entry 1 (old), check: there is no key lvl"),
        ({"node": {"what": "kernel", "pattern": "6"}}, "mine.json, entry 1 (old), node: the key severity is missing"),
        ({"engines": ["vlllm"]}, "mine.json, entry 1 (old): there is no engine vlllm"),
        ({"versions": ">=0.19,0.20"}, "mine.json, entry 1 (old): 0.20 is no bound of a version"),
        (
            {"meaning": "{json} is wrong", "check": {"when": {}}},
            "mine.json, entry 1 (old): its meaning holds {json}, which a profile does not fill",
        ),
        (
            {"meaning": "{value} is wrong", "log": {"needle": "wrong", "cause": "nccl"}, "check": {"when": {}}},
            "mine.json, entry 1 (old): its meaning holds {value}, which a log does not fill",
        ),
        (
            {"log": {"needle": "x", "cause": "nccl", "remedy": "lower {it}", "pattern": "(?P<size>x)"}},
            "mine.json, entry 1 (old): its remedy holds {it}, which a log does not fill",
        ),
    ],
)
def test_a_wrong_key_is_named_with_its_file_and_entry(tmp_path: Path, change: dict[str, object], said: str) -> None:
    file = tmp_path / "mine.json"
    entry = {"name": "old", "meaning": "it is old", "remedy": "take a new one", "source": "https://example.org"}
    file.write_text(json.dumps([entry | change]))
    with pytest.raises(InvalidInput) as refused:
        list(read_traps(file))
    assert refused.value.message == said


@pytest.mark.parametrize(("name", "text", "cause"), LOG_CASES, ids=lambda one: one if len(one) < 40 else "")
def test_a_log_shows_its_trap(name: str, text: str, cause: str) -> None:
    diagnoser = LogDiagnoser()
    diagnoser.feed_block(f"{text}\n".encode())
    verdict = diagnoser.build_diagnosis().verdict
    assert verdict is not None
    assert verdict.cause == cause
    assert verdict.remedy.endswith(f"({shorten_source(TRAPS[name].source)}).")
    assert "(not said)" not in verdict.summary


@pytest.mark.parametrize("case", LOG_TRAPS, ids=lambda one: f"{one.number}-{one.cause}")
def test_a_numbered_trap_is_named_with_the_right_advice(case: LogTrap) -> None:
    diagnoser = LogDiagnoser()
    diagnoser.feed_block(f"{case.text.rstrip()}\n".encode())
    verdict = diagnoser.build_diagnosis().verdict
    assert verdict is not None
    assert verdict.cause == case.cause
    assert case.advised in f"{verdict.summary} {verdict.remedy}"
    assert not case.wrong or case.wrong not in verdict.remedy


@pytest.mark.parametrize("case", PROFILE_TRAPS, ids=lambda one: str(one.number))
def test_a_numbered_trap_of_a_profile_is_told(tmp_path: Path, case: ProfileTrap) -> None:
    lines = lint_case(tmp_path, case.engine, case.image, case.model, case.fields)
    assert [line for line in lines if case.advised in line], lines


@pytest.mark.parametrize("line", HARMLESS_LINES)
def test_a_harmless_line_shows_none(line: str) -> None:
    diagnoser = LogDiagnoser()
    diagnoser.feed_block(f"{line}\n".encode())
    assert diagnoser.build_diagnosis().verdict is None


@pytest.mark.parametrize(("name", "engine", "image", "model", "fields"), PROFILE_CASES, ids=lambda one: one[:60])
def test_a_profile_shows_its_trap(tmp_path: Path, name: str, engine: str, image: str, model: str, fields: str) -> None:
    lines = lint_case(tmp_path, engine, image, model, fields)
    (line,) = find_trap_lines(TRAPS[name], lines) or pytest.fail("\n".join(lines))
    assert shorten_source(TRAPS[name].source) in line


@pytest.mark.parametrize(("name", "engine", "image", "model", "fields"), CALM_PROFILES, ids=lambda one: one[:60])
def test_a_profile_without_the_trap_is_left_alone(
    tmp_path: Path, name: str, engine: str, image: str, model: str, fields: str
) -> None:
    assert find_trap_lines(TRAPS[name], lint_case(tmp_path, engine, image, model, fields)) == []


@pytest.mark.parametrize(
    ("mounts", "missing"),
    [
        (["~/.t:/root/.triton"], "/root/.cache/vllm and /root/.cache/flashinfer"),
        (["~/.cache/vllm:/data/foo"], "/root/.cache/vllm, /root/.cache/flashinfer and /root/.triton"),
        (["vol:/root/.cache/vllm:ro"], "/root/.cache/vllm, /root/.cache/flashinfer and /root/.triton"),
        (["vol:/root/.cache/vllm", "~/.triton:/root/.triton"], "/root/.cache/flashinfer"),
    ],
)
def test_each_cache_that_dies_with_the_container_is_named(tmp_path: Path, mounts: list[str], missing: str) -> None:
    (line,) = find_trap_lines(
        TRAPS["jit-caches-vllm"], lint_case(tmp_path, "vllm", "x/vllm:0.19.1", "/m", f"mounts: {mounts}")
    )
    assert f"first start into {missing} dies" in line
    for path in missing.replace(" and ", ", ").split(", "):
        assert f"~{path.removeprefix('/root')}:{path}" in line


def test_what_an_env_file_sets_is_checked(tmp_path: Path) -> None:
    (tmp_path / "my.env").write_text("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\nNCCL_IB_GID_INDEX=3\n")
    lines = lint_case(tmp_path, "vllm", "x/vllm:0.19.1", "/m", "env_file: my.env")
    (line,) = find_trap_lines(TRAPS["expandable-segments"], lines)
    assert "PYTORCH_CUDA_ALLOC_CONF with expandable_segments" in line
    assert find_trap_lines(TRAPS["pinned-gid"], lines)
    assert not find_trap_lines(
        TRAPS["pinned-gid"],
        lint_case(tmp_path, "vllm", "x/vllm:0.19.1", "/m", "env_file: my.env\nenv: {NCCL_IB_GID_INDEX: ''}"),
    )


def test_nobody_is_warned_of_a_quiet_profile(tmp_path: Path) -> None:
    lines = lint_case(tmp_path, "vllm", "x/vllm:0.32.0", "a/m", "args: {gpu-memory-utilization: 0.8}")
    assert [line for line in lines if ": info[" not in line] == []


def test_a_refused_value_that_a_trap_explains_is_said_once(tmp_path: Path) -> None:
    fields = "args: {gpu-memory-utilization: 0.8, quantization: fp4}"
    (line,) = [one for one in lint_case(tmp_path, "vllm", "x/vllm:0.19.1", "/m-NVFP4", fields) if "fp4" in one]
    assert "warning[bad-choice]" in line
    assert "did you mean" not in line
    assert "modelopt_fp4" in line


@pytest.mark.parametrize(
    ("version", "bounds", "is_within"),
    [
        ("0.19.1", ">=0.19,<0.20", True),
        ("0.20.0", ">=0.19,<0.20", False),
        ("0.19", ">=0.19,<0.20", True),
        ("0.27.1", "=0.27", True),
        ("0.5.12", ">0.5.12", False),
        ("0.5.12.post1", "<=0.5.12", True),
        ("0.5.13", "<=0.5.12", False),
    ],
)
def test_versions_are_compared_as_numbers(version: str, bounds: str, is_within: bool) -> None:
    assert is_version_within(version, bounds) is is_within


@pytest.mark.parametrize(
    ("banner", "wanted"),
    [
        ("vLLM API server version 0.19.1", ("certain", "It is old.")),
        ("vLLM API server version 0.33.0", ("certain", "It is older.")),
        ("", ("likely", "It is old.")),
    ],
)
@pytest.mark.parametrize("is_last", [False, True])
def test_a_trap_of_certain_versions_is_found_in_their_logs_alone(
    tmp_path: Path, banner: str, wanted: tuple[str, str], is_last: bool
) -> None:
    file = tmp_path / "mine.json"
    rest = {"remedy": "take a new one", "source": "https://example.org", "log": {"needle": "frob", "cause": "nccl"}}
    old = {"name": "old", "versions": "<0.20", "meaning": "it is old"} | rest
    entries = [old] if is_last else [old, {"name": "older", "meaning": "it is older"} | rest]
    file.write_text(json.dumps(entries))
    engine = copy.copy(load_engine("vllm"))
    rules = build_trap_rules("vllm", read_traps(file))
    engine.log_rules = LogRules(quiet=(), phases=(), bars=(), facts=FACTS, rules=rules)
    log = LogAnalyzer(engine=engine, ready=ReadinessRule(line=None, health=None))
    for number, text in enumerate((banner, "the frob is out of order"), 1):
        log.feed_line(LogLine(when="", text=text, number=number))
    root = log.root_failure
    if is_last and "0.33" in banner:
        assert root is None
    else:
        assert root is not None
        assert root.failure is not None
        assert (root.failure.confidence, root.failure.summary) == wanted


def test_tests_of_a_profile_are_linear() -> None:
    slow = []
    for trap in load_traps():
        for subject, test in (*trap.when.items(), *trap.unless.items()):
            pattern = re.compile(test.removeprefix("!"), re.IGNORECASE)
            is_searched = subject.partition(".")[0] in ("image", "model", "mounts", "command")
            for text in LONG_TEXTS:
                began = time.perf_counter()
                _ = pattern.search(text) if is_searched else pattern.fullmatch(text)
                if time.perf_counter() - began > 0.5:
                    slow.append(f"{trap.name}: {test}")
    assert slow == []


@pytest.mark.parametrize("memory", ["0", "0g", "'0'"])
def test_no_limit_of_memory_is_no_trap(tmp_path: Path, memory: str) -> None:
    lines = lint_case(tmp_path, "vllm", "x/vllm:0.19.1", "/m", f"container: {{options: {{memory: {memory}}}}}")
    assert not find_trap_lines(TRAPS["hard-memory-limit"], lines)
    assert not find_trap_lines(
        TRAPS["hard-memory-limit"],
        lint_case(tmp_path, "container", "x/proxy:1", "/m", "container: {options: {memory: 2g}}"),
    )
