"""Words as an engine's parser reads them: argparse itself is the reference, on the flags of every catalogue."""

from __future__ import annotations

import argparse
import contextlib
import io
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkctl.engines import engine_flags
from sparkctl.engines.engine_flags import FlagArity, FlagCatalogue
from sparkctl.engines.lint.profile_flags import FlagMatchKind, match_flag
from sparkctl.engines.lint.profile_flags import collect_profile_flags as flags_of
from sparkctl.model.profile import FlagValues, JsonValue, ModelSpec, Profile

EVERY = [
    (engine, version)
    for engine in engine_flags.list_engines_with_catalogue()
    for version in engine_flags.list_versions(engine)
]


def make_profile(command: tuple[str, ...] | None = None, **args: object) -> Profile:
    known = {"name": "p", "engine": "vllm", "image": "i", "origin": "p.yaml", "shipped": False}
    pairs = tuple((key.replace("_", "-"), value) for key, value in args.items())
    return Profile(**known, model=ModelSpec(path="/m"), command=command, args=pairs)  # type: ignore[arg-type]


@cache
def make_parser(engine: str, version: str) -> argparse.ArgumentParser:
    catalogue = engine_flags.load_catalogue(engine, version)
    made = argparse.ArgumentParser(add_help=False, allow_abbrev=catalogue.abbreviations)
    for flag in catalogue.flags:
        made.add_argument(*flag.spellings, dest=flag.name, action="store_true")
    return made


def parse_with_argparse(engine: str, version: str, word: str) -> tuple[FlagMatchKind, str | None]:
    """Return whether argparse takes a word, and for which flag."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            found, unknown = make_parser(engine, version).parse_known_args([word])
    except SystemExit:
        assert "ambiguous option" in said.getvalue()
        return FlagMatchKind.AMBIGUOUS, None
    if unknown:
        return FlagMatchKind.UNKNOWN, None
    flag = next(name for name, value in vars(found).items() if value)
    exact = word in engine_flags.load_catalogue(engine, version).by_name
    return (FlagMatchKind.EXACT if exact else FlagMatchKind.ABBREVIATED), flag


@cache
def draw_long_name(engine: str, version: str) -> st.SearchStrategy[str]:
    names = engine_flags.load_catalogue(engine, version).by_name
    return st.sampled_from(sorted(name for name in names if name.startswith("--")))


ENDS = st.one_of(st.just(""), st.text("abcdefghijklmnopqrstuvwxyz-", max_size=3))


@pytest.mark.parametrize(("engine", "version"), EVERY)
@given(data=st.data())
def test_a_word_is_read_as_argparse_reads_it(engine: str, version: str, data: st.DataObject) -> None:
    catalogue = engine_flags.load_catalogue(engine, version)
    name = data.draw(draw_long_name(engine, version))
    word = name[: data.draw(st.integers(3, len(name)))] + data.draw(ENDS)
    how, flag = parse_with_argparse(engine, version, word)
    reading = match_flag(word, catalogue)
    assert reading.how is how
    assert (reading.flag and reading.flag.name) == flag


@pytest.mark.parametrize(
    ("engine", "version", "word", "how", "flag"),
    [
        ("sglang", "0.5.12", "--speculative-algo", FlagMatchKind.ABBREVIATED, "--speculative-algorithm"),
        ("sglang", "0.5.12", "--speculative-draft", FlagMatchKind.AMBIGUOUS, None),
        ("sglang", "0.5.12", "--tp", FlagMatchKind.ABBREVIATED, "--tensor-parallel-size"),
        ("sglang", "0.5.12", "--mem_fraction_static", FlagMatchKind.UNKNOWN, None),
        ("sglang", "0.5.23", "--cuda-graph-max-bs", FlagMatchKind.AMBIGUOUS, None),
        ("vllm", "0.19.1", "--gpu_memory_utilization", FlagMatchKind.EXACT, "--gpu-memory-utilization"),
        ("vllm", "0.19.1", "--gpu-memory-util", FlagMatchKind.ABBREVIATED, "--gpu-memory-utilization"),
        ("vllm", "0.19.1", "--tp", FlagMatchKind.UNKNOWN, None),
        ("vllm", "0.19.1", "-tp", FlagMatchKind.EXACT, "--tensor-parallel-size"),
        ("vllm", "0.19.1", "--no-enable-prefix-caching", FlagMatchKind.EXACT, "--enable-prefix-caching"),
        ("vllm", "0.19.1", "--disable-prefix-caching", FlagMatchKind.UNKNOWN, None),
        ("vllm", "0.33.0", "--disable-prefix-caching", FlagMatchKind.EXACT, "--enable-prefix-caching"),
        ("vllm", "0.33.0", "--no-enable-prefix-caching", FlagMatchKind.EXACT, "--enable-prefix-caching"),
    ],
)
def test_names_that_owners_write(engine: str, version: str, word: str, how: FlagMatchKind, flag: str | None) -> None:
    reading = match_flag(word, engine_flags.load_catalogue(engine, version))
    assert (reading.how, reading.flag and reading.flag.name) == (how, flag)


def test_a_dotted_name_sets_one_key() -> None:
    vllm, sglang = engine_flags.load_catalogue("vllm", "0.33.0"), engine_flags.load_catalogue("sglang", "0.5.23")
    for word in ("--compilation-config.mode", "--compilation_config.mode", "-cc.mode"):
        reading = match_flag(word, vllm)
        assert (reading.flag and reading.flag.name, reading.key) == ("--compilation-config", "mode")
    assert match_flag("--cuda-graph-config.mode", sglang).how is FlagMatchKind.UNKNOWN


@given(st.text(max_size=30).map(lambda rest: "-" + rest))
def test_any_word_can_be_read(word: str) -> None:
    for engine, version in EVERY:
        match_flag(word, engine_flags.load_catalogue(engine, version))


def test_args_are_given_as_they_reach_the_command_line() -> None:
    found = flags_of(
        make_profile(
            tp="2",
            trust_remote_code=True,
            enable_x=False,
            sizes=("1", "2"),
            bs=FlagValues(("1", "2")),
            map=JsonValue('{"a":1}'),
        )
    )
    assert [(one.word, one.values, one.where) for one in found] == [
        ("--tp", ("2",), ("args", "tp")),
        ("--trust-remote-code", (), ("args", "trust-remote-code")),
        ("--enable-x", (), ("args", "enable-x")),
        ("--sizes", ("1",), ("args", "sizes", 0)),
        ("--sizes", ("2",), ("args", "sizes", 1)),
        ("--bs", ("1", "2"), ("args", "bs")),
        ("--map", ('{"a":1}',), ("args", "map")),
    ]
    assert [one.left_out for one in found] == [False, False, True, False, False, False, False]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("vllm", "serve", "/m", "--port=8000", "-tp", "2"), [("--port", ("8000",), 3), ("-tp", ("2",), 4)]),
        (("python", "-m", "sglang.launch_server", "--tp", "1"), [("--tp", ("1",), 3)]),
        (("/opt/start.sh", "--port", "1"), []),  # nobody knows what it starts
        (
            ("bash", "-c", "sleep 1; vllm serve /m \\\n --max-model-len 8k && echo --done"),
            [("--max-model-len", ("8k",), 2)],
        ),
        (("bash", "-c", "vllm serve /m --x 'never closed"), []),
        (("bash", "-c", "exec vllm serve /m --seed -1 >> /log --y"), [("--seed", ("-1",), 2)]),
        (
            ("vllm", "serve", "/m", "--speculative-config", '{"method": "mtp"}'),
            [("--speculative-config", ('{"method": "mtp"}',), 3)],
        ),
    ],
)
def test_a_command_is_read_from_its_launch_on(command: tuple[str, ...], expected: list[object]) -> None:
    found = flags_of(make_profile(command))
    assert [(one.word, one.values, one.where[1]) for one in found] == expected


@given(
    st.lists(st.text(max_size=20), max_size=6), st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=8))
)
def test_any_profile_has_its_flags_told(words: list[str], args: dict[str, str]) -> None:
    for command in (tuple(words), ("vllm", "serve", *words), ("bash", "-c", "vllm serve " + " ".join(words))):
        for one in flags_of(make_profile(command, **args)):
            assert one.where[0] in ("args", "command")


def catalogue_words() -> list[FlagCatalogue]:
    return [engine_flags.load_catalogue(engine, version) for engine, version in EVERY]


def test_catalogues_are_whole() -> None:
    sizes = {f"{one.engine} {one.version}": len(one.flags) for one in catalogue_words()}
    assert sizes == {
        "llamacpp 0.5.0": 250,
        "sglang 0.5.12": 388,
        "sglang 0.5.13": 407,
        "sglang 0.5.14": 421,
        "sglang 0.5.15": 438,
        "sglang 0.5.16": 461,
        "sglang 0.5.17": 475,
        "sglang 0.5.18": 489,
        "sglang 0.5.19": 504,
        "sglang 0.5.20": 495,
        "sglang 0.5.21": 513,
        "sglang 0.5.22": 522,
        "sglang 0.5.23": 532,
        "trtllm 1.3.0": 32,
        "vllm 0.19.1": 231,
        "vllm 0.20.2": 240,
        "vllm 0.21.0": 248,
        "vllm 0.22.1": 262,
        "vllm 0.23.0": 262,
        "vllm 0.24.0": 267,
        "vllm 0.25.1": 271,
        "vllm 0.26.0": 275,
        "vllm 0.27.1": 283,
        "vllm 0.28.0": 285,
        "vllm 0.29.0": 293,
        "vllm 0.30.0": 301,
        "vllm 0.31.0": 312,
        "vllm 0.32.0": 317,
        "vllm 0.33.0": 321,
    }
    for one in catalogue_words():
        assert one.origin
        for flag in one.flags:
            assert flag.name.startswith("--")
            assert set(flag.hidden) <= set(flag.aliases)
            assert flag.choices is None or flag.takes is not FlagArity.NONE
            # what a flag is for is told in other people's sentences
            texts = (
                *flag.spellings,
                *(flag.choices or ()),
                *(flag.values or ()),
                flag.default or "",
                flag.replacement or "",
            )
            assert all(text.count(" ") <= 1 for text in texts), flag
