"""Profiles as files: what is written is read back the same, and as a person would have written it."""

from __future__ import annotations

import json
import re
import string
from dataclasses import replace

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sparkctl.model.decode_step import RoutedExperts
from sparkctl.model.launch_plan import GuardRule, PhaseTimeouts
from sparkctl.model.profile import ArgValue, ContainerOptions, FlagValues, JsonValue, ModelSpec, Profile, StartOptions
from sparkctl.profiles.profile_library import ProfileLibrary
from tests.unit.profiles.importers.import_text import import_and_check, write_and_read

WORD = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn"], exclude_characters="\ufffe\uffff$"), max_size=20
)
NAME = st.from_regex(r"[a-z][a-z0-9_.-]{1,12}", fullmatch=True)
TEXT = st.one_of(
    WORD,
    st.sampled_from(
        ["yes", "null", "~", "1.10", "0x1f", "- a", "a: b", "a #b", "[x", "{x}", "'", '"', "a\nb", "1e5", "true"]
    ),
)
LINE = TEXT.filter(lambda text: text.strip())
JSON = st.dictionaries(st.text(max_size=5), st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**12) | st.floats(allow_nan=False, allow_infinity=False) | WORD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORD, inner, max_size=3), max_leaves=5), max_size=4)  # fmt: skip


def dump_compact_json(value: object) -> JsonValue:
    return JsonValue(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def has_no_line_break(value: object) -> bool:
    """Tell whether no text in JSON data has a character that a profile may not hold."""
    if isinstance(value, dict):
        return all(has_no_line_break(key) and has_no_line_break(one) for key, one in value.items())
    if isinstance(value, list):
        return all(map(has_no_line_break, value))
    return not isinstance(value, str) or re.search("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]", value) is None


JSON_TEXT = JSON.filter(has_no_line_break).map(dump_compact_json)
ARG: st.SearchStrategy[ArgValue] = st.one_of(
    TEXT, st.booleans(), JSON_TEXT, st.lists(TEXT, max_size=3).map(lambda words: FlagValues(tuple(words))),
    st.lists(TEXT, max_size=3).map(tuple),
)  # fmt: skip
GIB = 1 << 30
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)  # making so large an example smaller takes minutes
COUNTS = st.none() | st.integers(1, 10**9)


SECONDS = st.integers(1, 9000).map(float)
KEYS = st.from_regex(r"[A-Za-z][A-Za-z0-9_.-]{0,10}", fullmatch=True)
VARIABLES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
SOME = st.none() | LINE


def draw_pairs(
    keys: st.SearchStrategy[str], values: st.SearchStrategy[object]
) -> st.SearchStrategy[tuple[object, ...]]:
    return st.dictionaries(keys, values, max_size=3).map(lambda found: tuple(found.items()))


MODELS = st.builds(
    ModelSpec, path=SOME, served_name=SOME, weights=st.none() | st.integers(10**9, 10**12), parameters=COUNTS,
    active_parameters=st.none(), draft_weights=st.none() | st.integers(1 << 20, GIB), kv_per_token=COUNTS,
    experts=st.none(),
)  # fmt: skip
OPTIONS = (("init", "true"), ("cap-add", "A"), ("cap-add", "B"), ("publish", "80:80"), ("user", "1"))
BOXES = st.builds(
    ContainerOptions, name=st.none() | NAME, gpus=st.sampled_from([None, "all", "none", '"device=0,1"', "2"]),
    shm_size=st.sampled_from([None, "16g"]), ipc=st.sampled_from([None, "host"]), network=SOME, entrypoint=SOME,
    ulimits=st.sampled_from([(), (("memlock", "-1"), ("nofile", "1:2"))]),
    devices=st.sampled_from([(), ("/dev/infiniband", "nvidia.com/gpu=all")]), options=st.sampled_from([(), OPTIONS]),
)  # fmt: skip
STARTS = st.builds(
    StartOptions, drop_caches=st.booleans(), ready_line=st.sampled_from([None, r"a\.b .*: #", "none"]),
    health=st.sampled_from([None, "/health", "none"]), probe=st.sampled_from([None, "chat", "none"]), prompt=SOME,
    timeouts=st.builds(PhaseTimeouts, SECONDS, SECONDS, SECONDS, SECONDS), expected=st.none() | SECONDS,
    guard=st.sampled_from([None, GuardRule(), GuardRule(2 * GIB, 3 * GIB, 90.0)]),
)  # fmt: skip
PROFILES = st.builds(
    Profile, name=NAME, engine=st.sampled_from(["sglang", "vllm", "container"]), image=st.just("x/y:1"), origin=st.just("x.yaml"),
    shipped=st.just(False), title=SOME, model=MODELS, nodes=st.integers(1, 8), port=st.none() | st.integers(1, 65535),
    command=st.none() | st.lists(TEXT, max_size=4).map(tuple), args=draw_pairs(KEYS, ARG), env=draw_pairs(VARIABLES, TEXT), env_file=SOME,
    mounts=st.lists(st.sampled_from(["~/m:/m", "/a b:/b:ro", "vol:/v", "~:/h"]), max_size=3).map(tuple), container=BOXES,
    expected_memory=st.none() | st.integers(1 << 20, 1 << 40), floor_memory=st.sampled_from([None, GIB]), start=STARTS,
    stop_grace=SECONDS, liveness=st.sampled_from([None, "none"]),
    group=st.sampled_from([None, "llm", "tts-1"]), notes=SOME, source=SOME,
    extra=draw_pairs(LINE.filter(lambda text: "\n" not in text), JSON_TEXT), digest=st.just(""),
)  # fmt: skip


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)
@given(PROFILES)
def test_what_is_written_is_read_back_the_same(profile: Profile) -> None:
    assert replace(write_and_read(profile), digest="") == profile


def test_shipped_profiles_are_written_and_read_the_same() -> None:
    library = ProfileLibrary()
    names = [name for name in library.list_names() if library.find_profile_file(name).parent == library.shipped]
    assert len(names) >= 4
    for name in names:
        profile = library.load_profile(name)
        assert write_and_read(profile) == profile


def test_routed_experts_are_written_and_read() -> None:
    profile = Profile(
        name="aa",
        engine="vllm",
        image="x/y:1",
        origin="x.yaml",
        shipped=False,
        model=ModelSpec(weights=10**9, experts=RoutedExperts(10**8, 8, 2)),
    )
    assert write_and_read(profile).model == profile.model


def test_a_file_looks_as_a_person_would_write_it() -> None:
    written = import_and_check(
        "model: o/Some-Model\nname: some\ncontainer: x/y:1\nruntime: vllm\nmods: [m]\ndefaults: {port: 8000}\n"
        'command: vllm serve {model} --port {port} --dtype auto --enable-x --spec \'{"method":"mtp","n":3}\'\n',
        "some.yaml",
    )
    lines = written.text.splitlines()
    assert lines[:13] == [
        "schema: 1", "name: some", "engine: vllm", "image: x/y:1", "model:", "  path: o/Some-Model", "port: 8000", "args:",
        "  dtype: auto", "  enable-x: true", "  spec: {method: mtp, n: 3}", "mounts:",
        "  - ~/.cache/huggingface:/root/.cache/huggingface",
    ]  # fmt: skip
    assert 'source: "A sparkrun recipe: some.yaml"' in lines
    assert lines[-1] == "  mods: [m]"
    assert lines[-2].startswith("  # ")
    assert not any(len(line) > 115 for line in lines)
    assert set(written.text) <= set(string.printable)


@pytest.mark.parametrize("text", ["on", "off", "Yes", "no", "22:22", "1:30", "1_000", "true"])
def test_other_tools_read_the_same_text(text: str) -> None:
    written = import_and_check(
        f"docker run -e X={text} x/llama:1 llama-server -m /m.gguf --flash-attn {text} --on {text}"
    )
    data = yaml.safe_load(written.text)
    assert data["args"]["flash-attn"] == data["env"]["X"] == text
    assert data["args"].get("on") == text
