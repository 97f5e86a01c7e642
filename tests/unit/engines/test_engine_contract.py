"""What holds for every engine, whoever adds it: the tests find it by its file name."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkctl import engines
from sparkctl.engines import engine_flags
from sparkctl.engines.base import DecodingSettings, Engine, LineSignal
from sparkctl.engines.line_preparer import MAX_LINE_LENGTH, LinePreparer
from sparkctl.errors import InvalidInput
from sparkctl.model.engine_metrics import EngineMetrics
from sparkctl.model.phase import Phase
from sparkctl.model.profile import FlagValues, JsonValue, ModelSpec, Profile
from sparkctl.model.verdict import FailureCause
from tests.unit.engines.engine_log_reading import read_engine_log

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


def make_profile(engine: str, **fields: object) -> Profile:
    known: dict[str, object] = {"name": "p", "engine": engine, "image": "img", "origin": "p.yaml", "shipped": False}
    return Profile(**{**known, **fields})  # type: ignore[arg-type]


@pytest.fixture(params=engines.engine_names())
def engine(request: pytest.FixtureRequest) -> Engine:
    return engines.load_engine(request.param)


def test_every_engine_folder_is_named_and_nothing_else() -> None:
    assert {"sglang", "vllm", "llamacpp", "trtllm", "container"} <= set(engines.engine_names())
    assert all(isinstance(engines.load_engine(name), Engine) for name in engines.engine_names())
    assert not {"base", "failures", "flags", "lint", "memory", "simulation"} & set(engines.engine_names())
    assert not [name for name in engines.engine_names() if name.startswith("_")]


def test_naming_engines_imports_none_of_them() -> None:
    code = (
        "import sys, sparkctl.engines as e\n"
        "print([name for name in e.engine_names() if 'sparkctl.engines.' + name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["base", "lint", "engine_flags", "../os", "", "os"])
def test_what_is_no_engine_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput):
        engines.load_engine(name)


def test_a_misspelt_engine_is_guessed() -> None:
    with pytest.raises(InvalidInput) as refused:
        engines.load_engine("sglagn")
    assert refused.value.hint == "Did you mean sglang?"


def test_its_defaults_are_complete(engine: Engine) -> None:
    assert engine.name in engines.engine_names()
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
    "srv          main: listening on http://127.0.0.1:8301",
    "main: server is listening on http://127.0.0.1:8301 - starting the main loop",
    "slot print_timing: srv  llama_server: listening on http://127.0.0.1:8301",
)


def test_its_ready_line_and_its_ready_signal_are_one(engine: Engine) -> None:
    """One truth in two forms: what the regex finds, classify calls ready, and nothing else."""
    regex = re.compile(engine.defaults.ready_line) if engine.defaults.ready_line is not None else None
    for line in STARTS:
        assert _is_ready(engine.classify_line(line)) == (regex is not None and regex.search(line) is not None)


@pytest.mark.parametrize(
    ("name", "lines"),
    [("vllm", STARTS[1:2]), ("trtllm", STARTS[1:2]), ("sglang", STARTS[3:4]), ("llamacpp", STARTS[5:8])],
)
def test_the_ready_line_of(name: str, lines: tuple[str, ...]) -> None:
    ready = engines.load_engine(name).defaults.ready_line
    assert ready is not None
    assert [each for each in STARTS if re.search(ready, each)] == list(lines)


def test_a_container_is_ready_by_its_profile_alone() -> None:
    own = engines.load_engine("container").defaults
    assert (own.ready_line, own.health, own.probe, own.port, own.gpus) == (None, None, "none", None, None)


# What every engine reads of machine, Docker and model hub, whoever words it.
COMMON_ENDS = (
    ("exec /usr/bin/serve: exec format error", FailureCause.IMAGE_ARCH),
    ("OSError: [Errno 98] Address already in use", FailureCause.PORT_IN_USE),
    ("OSError: [Errno 28] No space left on device", FailureCause.DISK_FULL),
    (
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        FailureCause.KERNEL_UNSUPPORTED,
    ),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", FailureCause.CUDA_OUT_OF_MEMORY),
    ("huggingface_hub.errors.GatedRepoError: 403 Client Error.", FailureCause.MODEL_GATED),
)


@pytest.mark.parametrize(("line", "cause"), COMMON_ENDS, ids=[cause.value for _, cause in COMMON_ENDS])
def test_common_failures_are_found_for_each_engine(engine: Engine, line: str, cause: FailureCause) -> None:
    reading = read_engine_log(engine.name, f"one line\n{line}\n")
    assert (reading.root.cause, reading.root_line) == (cause, 2)
    assert reading.root.summary
    assert reading.root.remedy


def test_metrics_have_a_path_and_a_flag(engine: Engine) -> None:
    assert engine.metrics_path is None or engine.metrics_path.startswith("/")
    assert engine.metrics_setting is None or engine.metrics_path is not None
    assert engine.memory_setting is None or engine.memory_setting.startswith("args.")


def test_engine_with_launch_words_has_a_catalogue(engine: Engine) -> None:
    assert bool(engine.defaults.command) == (engine.name in engine_flags.list_engines_with_catalogue())
    if engine.memory_setting is not None:
        flag = "--" + engine.memory_setting.removeprefix("args.")
        newest = engine_flags.load_catalogue(engine.name, engine_flags.list_versions(engine.name)[-1])
        assert flag in newest.by_name, "what it claims memory by is a flag of its own"


def test_launch_words_are_known_flags(engine: Engine) -> None:
    """Host, port, model and name, as argv says them, are known to its newest catalogue."""
    if not engine_flags.list_versions(engine.name):
        return
    newest = engine_flags.load_catalogue(engine.name, engine_flags.list_versions(engine.name)[-1])
    words = engine.build_command(make_profile(engine.name, model=ModelSpec(path="/m", served_name="n"), port=1234))
    behind = words[len(engine.defaults.command) :]
    assert [word for word in behind if word.startswith("-") and word not in newest.by_name] == []
    assert "1234" in behind
    assert "0.0.0.0" in behind


def test_a_shell_script_gets_no_launch_words(engine: Engine) -> None:
    command = ("bash", "-c", "serve --port 1")
    assert engine.build_command(make_profile(engine.name, command=command, model=ModelSpec(path="/m"))) == command


def test_the_way_a_line_was_written_changes_nothing(engine: Engine) -> None:
    """A terminal's escapes, carriage returns and the states of a bar are taken off before it reads."""
    bar = "Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01]"
    plain = [engine.classify_line(line) for line in LinePreparer().prepare_lines(bar)]
    for form in (f"\r{bar}", f"{bar}\r", f"\x1b[32m{bar}\x1b[0m", f"\r\x1b[2K{bar}\r\n".rstrip("\n")):
        assert [engine.classify_line(line) for line in LinePreparer().prepare_lines(form)] == plain


def test_empty_input_gives_nothing(engine: Engine) -> None:
    assert engine.classify_line("") is None
    assert engine.parse_stats_line("") is None
    said = engine.parse_metrics("")
    assert said == EngineMetrics(
        at_request_end=said.at_request_end,
        in_strides=said.in_strides,
        counts_prefill_apart=said.counts_prefill_apart,
        health_tokens=said.health_tokens,
    )
    assert engine.read_decoding_settings(()) == DecodingSettings()


def _is_ready(signal: LineSignal | None) -> bool:
    return signal is not None and signal.phase is Phase.READY


@settings(max_examples=150, deadline=None)
@given(raw=st.lists(st.one_of(WORDS, st.text(max_size=40)), max_size=12).map("".join))
def test_no_line_breaks_it(raw: str) -> None:
    engines_all = [engines.load_engine(name) for name in engines.engine_names()]
    for line in LinePreparer().prepare_lines(raw):
        assert line.isprintable()
        for each in engines_all:
            signal = each.classify_line(line)
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
        lines = LinePreparer().prepare_lines("RuntimeError" + filler * 100_000)
        assert len(lines) == 1
        assert len(lines[0]) <= MAX_LINE_LENGTH
        engine.classify_line(lines[0])  # a quadratic pattern over all of it would run into pytest's timeout


# Any text, and then more of any kind of text: each place in the line is tried with each length, the square of it in steps.
QUADRATIC = re.compile(r"\.\*\??\((?:\?:|\?P<\w+>)(?:\\S|\\w|\.|\[[^\]]*\])[+*]")


def test_no_rule_tries_every_place_of_a_line_with_every_length(engine: Engine) -> None:
    """Where the cost hides that a hostile line would show: the rules themselves are looked at, not a clock."""
    rules = sys.modules[type(engine).__module__]._LOG_RULES.rules  # no other way to them
    assert len(rules) > 40
    assert QUADRATIC.search(r"^x.*(?P<path>\S+) is gone")
    assert [rule.pattern for rule in rules if QUADRATIC.search(rule.pattern)] == []


def test_every_pattern_can_be_compiled(engine: Engine) -> None:
    """They are compiled when they are first searched for: a bad one would be found out at the owner's."""
    vocabulary = sys.modules[type(engine).__module__]._LOG_RULES
    for one in (*vocabulary.rules, *vocabulary.facts):
        assert re.compile(one.pattern).groups >= 0


def test_args_keep_their_order_and_every_character(engine: Engine) -> None:
    args = (
        ("zeta", NASTY),
        ("flag", True),
        ("off", False),
        ("alpha", ("one", NASTY)),
        ("config", JsonValue('{"a": [1, "b c"]}')),
        ("sizes", FlagValues(("1", "2", NASTY))),
        ("q", "1"),
        ("-x", "2"),
        ("--as-is", "3"),
    )
    words = engine.build_command(make_profile(engine.name, args=args, model=ModelSpec(path="/m")))
    assert words[-19:] == (
        *("--zeta", NASTY, "--flag", "--alpha", "one", "--alpha", NASTY, "--config", '{"a": [1, "b c"]}'),
        *("--sizes", "1", "2", NASTY),
        *("-q", "1", "-x", "2", "--as-is", "3"),
    )
    assert "--off" not in words


def test_api_key_is_read_from_the_args(engine: Engine) -> None:
    assert engine.find_api_key(make_profile(engine.name)) is None
    assert engine.find_api_key(make_profile(engine.name, args=(("api-key", "k1"),))) == "k1"
    assert engine.find_api_key(make_profile(engine.name, args=(("--api_key", ("k2", "k3")),))) == "k2"
    assert engine.find_api_key(make_profile(engine.name, args=(("api-key", FlagValues(("k4", "k5"))),))) == "k4"
    assert engine.find_api_key(make_profile(engine.name, args=(("api-key", True),))) is None
