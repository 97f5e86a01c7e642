"""What holds for every engine, whoever adds it: the tests find it by its file name."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkctl import engines
from sparkctl.engines.base import Engine, Signal
from sparkctl.engines.lines import LONGEST, LinePreparer
from sparkctl.errors import InvalidInput
from sparkctl.model.phase import Phase
from sparkctl.model.profile import JsonText, Model, Profile, Values

NASTY = "a b;$(reboot)`id`'\"\\*?~|&><\n{}!#"
# Words that reach deep into the rules, mixed with anything at all.
WORDS = st.sampled_from(
    [
        *(
            "Error: ",
            "RuntimeError: ",
            "CUDA out of memory. ",
            "Tried to allocate ",
            "2 GiB",
            "validation error for X: ",
        ),
        *(
            "INFO:     ",
            "Loading shards:  67% Completed | 12/18 [00:01<",
            "[type=",
            "Capture cuda graph failed: ",
            "%",
            "|",
        ),
        *(
            "(EngineCore pid=1) ",
            "[2026-05-01 10:00:00 TP0] ",
            "\r",
            "\x1b[31m",
            ": error: ",
            "unrecognized arguments: --",
        ),
        *(
            "safetensors: ",
            "deserializing header: ",
            "Killed process ",
            "ncclSystemError",
            "attention backend",
            "--a-b",
        ),
        *("server_args={'attention_backend': '", "Using ", " for NVFP4 GEMM", "GPU KV cache size: ", "1,000 tokens"),
        *("To serve at least one request with the model's max seq len (1), (", "died unexpectedly", "exit code -9"),
    ]
)


def profile(engine: str, **fields: object) -> Profile:
    known: dict[str, object] = {"name": "p", "engine": engine, "image": "img", "origin": "p.yaml", "shipped": False}
    return Profile(**{**known, **fields})  # type: ignore[arg-type]


@pytest.fixture(params=engines.names())
def engine(request: pytest.FixtureRequest) -> Engine:
    return engines.load(request.param)


def test_names_are_the_files_and_nothing_else() -> None:
    assert set(engines.names()) >= {"sglang", "vllm", "container"}
    assert not {"base", "lines"} & set(engines.names())
    assert not [name for name in engines.names() if name.startswith("_")]


def test_naming_engines_imports_none_of_them() -> None:
    code = (
        "import sys, sparkctl.engines as e\n"
        "print([name for name in e.names() if 'sparkctl.engines.' + name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["base", "lines", "_launch", "../os", "", "os"])
def test_what_is_no_engine_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput):
        engines.load(name)


def test_a_misspelt_engine_is_guessed() -> None:
    with pytest.raises(InvalidInput) as refused:
        engines.load("sglagn")
    assert refused.value.hint == "Did you mean sglang?"


def test_its_defaults_are_complete(engine: Engine) -> None:
    assert engine.name in engines.names()
    assert engine.title
    assert engine.defaults.probe in {"completions", "chat", "none"}
    assert engine.defaults.health is None or engine.defaults.health.startswith("/")
    assert engine.defaults.port is None or 0 < engine.defaults.port < 65536
    if engine.defaults.command:
        assert engine.defaults.port is not None
        assert engine.defaults.ready_line is not None


STARTS = (
    "INFO:     Waiting for application startup.",
    "INFO:     Application startup complete.",
    "INFO:     Uvicorn running on http://0.0.0.0:8000 (Press CTRL+C to quit)",
    "The server is fired up and ready to roll!",
    'Prompt: "The server is fired up and ready to roll!"',
    "srv  llama_server: listening on http://127.0.0.1:8301",
)


def test_its_ready_line_and_its_ready_signal_are_one(engine: Engine) -> None:
    """One truth in two forms: what the regex finds, classify calls ready, and nothing else."""
    regex = re.compile(engine.defaults.ready_line) if engine.defaults.ready_line is not None else None
    for line in STARTS:
        assert _is_ready(engine.classify(line)) == (regex is not None and regex.search(line) is not None)


@pytest.mark.parametrize(("name", "line"), [("vllm", STARTS[1]), ("sglang", STARTS[3])])
def test_the_ready_line_of(name: str, line: str) -> None:
    ready = engines.load(name).defaults.ready_line
    assert ready is not None
    assert [each for each in STARTS if re.search(ready, each)] == [line]


def _is_ready(signal: Signal | None) -> bool:
    return signal is not None and signal.phase is Phase.READY


@settings(max_examples=150, deadline=None)
@given(raw=st.lists(st.one_of(WORDS, st.text(max_size=40)), max_size=12).map("".join))
def test_no_line_breaks_it(raw: str) -> None:
    engines_all = [engines.load(name) for name in engines.names()]
    for line in LinePreparer().feed(raw):
        assert line.isprintable()
        for each in engines_all:
            signal = each.classify(line)
            if signal is not None and signal.failure is not None:
                assert signal.failure.summary
                assert signal.failure.remedy
                assert "{" not in (signal.failure.field or "")


def test_a_huge_line_is_read_in_bounded_time(engine: Engine) -> None:
    for filler in (
        "Capture ",
        "a.",
        "CUDA out of memory. Tried to allocate 1 G. ",
        "Error: ",
        "x" * 9,
        ": a",
        "'/a",
        "1,",
    ):
        lines = LinePreparer().feed("RuntimeError" + filler * 100_000)
        assert len(lines) == 1
        assert len(lines[0]) <= LONGEST
        engine.classify(lines[0])  # a quadratic pattern over all of it would run into pytest's timeout


# Any text, and then more of any kind of text: each place in the line is tried with each length, the square of it in steps.
QUADRATIC = re.compile(r"\.\*\??\((?:\?:|\?P<\w+>)(?:\\S|\\w|\.|\[[^\]]*\])[+*]")


def test_no_rule_tries_every_place_of_a_line_with_every_length(engine: Engine) -> None:
    """Where the cost hides that a hostile line would show: the rules themselves are looked at, not a clock."""
    rules = sys.modules[type(engine).__module__]._VOCABULARY.rules  # no other way to them
    assert len(rules) > 40
    assert QUADRATIC.search(r"^x.*(?P<path>\S+) is gone")
    assert [rule.pattern.pattern for rule in rules if QUADRATIC.search(rule.pattern.pattern)] == []


def test_args_keep_their_order_and_every_character(engine: Engine) -> None:
    args = (
        ("zeta", NASTY),
        ("flag", True),
        ("off", False),
        ("alpha", ("one", NASTY)),
        ("config", JsonText('{"a": [1, "b c"]}')),
        ("sizes", Values(("1", "2", NASTY))),
        ("q", "1"),
        ("-x", "2"),
        ("--as-is", "3"),
    )
    words = engine.argv(profile(engine.name, args=args, model=Model(path="/m")))
    assert words[-19:] == (
        *("--zeta", NASTY, "--flag", "--alpha", "one", "--alpha", NASTY, "--config", '{"a": [1, "b c"]}'),
        *("--sizes", "1", "2", NASTY),
        *("-q", "1", "-x", "2", "--as-is", "3"),
    )
    assert "--off" not in words


def test_its_key_is_the_one_of_the_args(engine: Engine) -> None:
    assert engine.api_key(profile(engine.name)) is None
    assert engine.api_key(profile(engine.name, args=(("api-key", "k1"),))) == "k1"
    assert engine.api_key(profile(engine.name, args=(("--api_key", ("k2", "k3")),))) == "k2"
    assert engine.api_key(profile(engine.name, args=(("api-key", Values(("k4", "k5"))),))) == "k4"
    assert engine.api_key(profile(engine.name, args=(("api-key", True),))) is None
