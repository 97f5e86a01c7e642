"""Expressions that somebody else wrote end on every line, or are refused."""

from __future__ import annotations

import json
import time

import pytest

from sparkctl.engines import engine_names, load_engine
from sparkctl.logs.search import parse_filter
from sparkctl.model.container import Container, ContainerState
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.text.bounded_pattern import compile_bounded
from sparkctl.profiles.container_labels import parse_ready_rule_label
from sparkctl.profiles.field_types import check_ready_regex

ENDLESS = [
    r"(a|a)+$",
    r"(a+)+$",
    r"(\w+\s?)*:",
    r"(.*,)*x",
    r"((ab)*)*c",
    r"(a|ab|b)+$",
    r"(a?){40}b",
    r"(x{1,30}){1,30}y",
]
USUAL = [
    r"Uvicorn running on .*:\d+", r"^INFO:\s+Application startup complete\.(?!\s*\w)", r"listening on \S+", "ready",
    r"(?i)server (?:is )?(?:ready|started)", r"^\S+ \S+ \[\w+\] .* ready in [\d.]+ s$", r"\d+(\.\d+)? tokens", ".*Engine.*ready.*",
]  # fmt: skip


@pytest.mark.parametrize("pattern", ENDLESS)
def test_what_may_take_for_ever_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="can take extremely long"):
        compile_bounded(pattern)
    with pytest.raises(ValueError, match="can take extremely long"):
        check_ready_regex(pattern)
    typed = parse_filter(f"/{pattern}/")
    assert typed is not None
    assert typed.fault
    assert "can take extremely long" in typed.fault


@pytest.mark.parametrize("pattern", USUAL)
def test_what_people_write_is_taken_and_ends(pattern: str) -> None:
    found = compile_bounded(pattern)
    assert found.longest >= 256
    for piece in ("a", " ", "0", "x.", "ready ", "Engine ", "[a] "):
        began = time.process_time()
        found.search(piece * (300_000 // len(piece)))
        assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("pattern", "units"),
    [
        (r".*\w+: ready", ("a", "a ")),
        (r".*?\w+:", ("a",)),
        (r".*[^\]]+\] ready", ("a", "[a")),
        (r"a*a*b", ("a",)),
        (r"INFO.*\d+%", ("0", "INFO0")),
        (r"\d+(\.\d+)? tokens", ("0", "0.")),
        (r"(\w+) took (\d+(?:\.\d+)?) s", ("a", "a took 5")),
        (r"(?i)[a-z]+A[a-z]+B", ("a", "ab")),
        (r"(?:\w+,)*x", ("a", "a,")),
        (r"(a|b)*c", ("ab",)),
        (r"(?=.*a)(?=.*b).*c", ("ab",)),
    ],
)
def test_one_line_never_holds_the_panel_up(pattern: str, units: tuple[str, ...]) -> None:
    found = compile_bounded(pattern)
    for unit in units:
        began = time.process_time()
        found.search(unit * (16_384 // len(unit)))
        assert time.process_time() - began < 2


def test_many_optional_characters_are_refused() -> None:
    with pytest.raises(ValueError, match="can take extremely long"):
        compile_bounded("a?" * 20 + "b")


@pytest.mark.parametrize(
    ("pattern", "least"),
    [
        (r".*Engine.*ready.*", 4096),
        (r"Uvicorn running on .*:\d+", 4096),
        (r"(\w+) took (\d+(?:\.\d+)?) s", 2048),
        (r"[\w./-]+:\d+", 2048),
        (r"a.*b.*c.*ready$", 128),
        ("error|failed|Traceback", 16_384),
    ],
)
def test_what_is_quick_is_searched_in_long_lines(pattern: str, least: int) -> None:
    assert compile_bounded(pattern).longest >= least


def test_a_beginning_of_anything_matches_as_without_the_limit() -> None:
    for pattern in (r".*a.*b", r".+b", r".*a|x", r".*?a", r".*"):
        found = compile_bounded(pattern)
        for text in ("", "xxaxxb", "b", "aab aab x", "x"):
            wanted = [one.span() for one in found.expression.finditer(text)]
            assert [one.span() for one in found.finditer(text) if one.group()] == [
                one for one in wanted if one[0] < one[1]
            ]
            assert (found.search(text) is None) is (found.expression.search(text) is None)


def test_the_engines_own_lines_are_taken() -> None:
    lines = [line for name in engine_names() if (line := load_engine(name).defaults.ready_line)]
    assert len(lines) >= 4
    assert all(compile_bounded(line).longest >= 1024 for line in lines)


def test_the_end_of_a_cut_line_is_no_end() -> None:
    found = compile_bounded(r"a.*b.*c.*ready$")
    text = "abc" + " " * (found.longest - 8) + "ready"
    assert found.search(text) is not None
    assert found.search(text + " or not") is None


def _make_container(engine: str, line: object, health: str | None = "/health", profile: str = "not-here") -> Container:
    labels = (
        (ContainerLabel.ENGINE, engine), (ContainerLabel.PROFILE, profile),
        (ContainerLabel.READY, json.dumps({"line": line, "health": health, "probe": "none"})),
    )  # fmt: skip
    return Container(
        id="a" * 64, name="n", image="i", state=ContainerState.RUNNING, status="Up", created=0.0, labels=labels
    )


@pytest.mark.parametrize("line", [*ENDLESS, ".*.*.*.*.*x", "(a|b)c", "[ab]+", 7, ["x"]])
def test_an_expression_from_a_label_is_not_used(line: object) -> None:
    rule = parse_ready_rule_label(_make_container("vllm", line))
    assert rule is None or rule.line == load_engine("vllm").defaults.ready_line
    other = parse_ready_rule_label(_make_container("container", line))
    assert other is None or other.line is None
    assert (
        parse_ready_rule_label(_make_container("container", line, None)) is None
    )  # nothing is left by which it could be ready


@pytest.mark.parametrize("line", [load_engine("vllm").defaults.ready_line, "Server is up", r"^all done\.", None])
def test_a_label_with_the_engines_own_line_or_plain_text_is_believed(line: str | None) -> None:
    rule = parse_ready_rule_label(_make_container("vllm", line))
    assert rule is not None
    assert rule.line == line


def test_the_line_of_the_profile_here_is_believed(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    from sparkctl.profiles.profile_library import ProfileLibrary

    home = ProfileLibrary().user
    home.mkdir(parents=True)
    (home / "mine.yaml").write_text(
        "schema: 1\nname: mine\nengine: container\nimage: a/b:1\nstart:\n  ready_line: 'up in \\d+ s'\n"
    )
    rule = parse_ready_rule_label(_make_container("container", r"up in \d+ s", None, "mine"))
    assert rule is not None
    assert rule.line == r"up in \d+ s"
    assert parse_ready_rule_label(_make_container("container", r"up in \d+ m", None, "mine")) is None
