"""Profiles: faults in their place, variants over bases, ``--set`` over both, and a hash that means the content."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkctl.errors import InvalidInput
from sparkctl.model.decode_step import RoutedExperts
from sparkctl.model.profile import FlagValues, JsonValue
from sparkctl.profiles.profile_library import ProfileLibrary, profile_json_schema
from sparkctl.profiles.validation import compute_profile_hash
from sparkctl.profiles.yaml_reader import FileIssue, InvalidFile

HEAD = "schema: 1\nname: mine\nengine: sglang\nimage: x/y:1\n"


@pytest.fixture
def library(tmp_path: Path) -> ProfileLibrary:
    for name in ("user", "shipped"):
        (tmp_path / name).mkdir()
    return ProfileLibrary(tmp_path / "user", tmp_path / "shipped")


def find_issues(library: ProfileLibrary, path: Path) -> tuple[FileIssue, ...]:
    try:
        library.load_profile(str(path))
    except InvalidFile as error:
        return error.faults
    return ()


def list_faults(library: ProfileLibrary, text: str) -> list[str]:
    path = library.user.parent / "mine.yaml"
    path.write_text(text)
    return [str(fault).removeprefix(str(path) + ":") for fault in find_issues(library, path)]


TOKEN = "hf_" + "a" * 30


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("prot: 8003\nport: eighty\nargs: [1, 2]\n", [
            "5:1: prot: unknown key; did you mean `port`?",
            "6:7: port: must be a whole number, not `eighty`",
            "7:7: args: must be a map, not a list",
        ]),
        ("port: 70000\n", ["5:7: port: must be 1 to 65535, not `70000`"]),
        ("port: 8003.0\n", ["5:7: port: must be a whole number, not `8003.0`"]),
        ("shm_size: 16g\n", ["5:1: shm_size: unknown key; it belongs under `container`"]),
        ("container: {shm-size: 16g}\n", ["5:13: container.shm-size: unknown key; did you mean `shm_size`?"]),
        ("container: {port: 1}\n", ["5:13: container.port: unknown key; it belongs at the top level"]),
        ("container: {shm_size: big}\n", ["5:23: container.shm_size: 'big' is not a size"]),
        ("container: {name: -x}\n", ["5:19: container.name: `-x` is not a name"]),
        ("container: {options: {rm: true}}\n", [
            "5:27: container.options.rm: `rm` cannot be set here: sparkctl keeps a container",
        ]),
        ("container: {options: {memroy: 1g}}\n", [
            "5:31: container.options.memroy: `memroy` is not a docker run flag that sparkctl can set; did you mean `memory`?",
        ]),
        ("container: {gpus: al}\n", ["5:19: container.gpus: `al` cannot be"]),
        ("container: {options: {oom-score-adj: high}}\n", ["5:38: container.options.oom-score-adj: `high` cannot be"]),
        ("container: {options: {publish: [80, '8000:x']}}\n", ["5:32: container.options.publish: `8000:x` cannot be"]),
        ("container: {options: {init: 1}}\n", ["5:29: container.options.init: must be true or false"]),
        ("container: {options: {memory: [1g, 2g]}}\n", ["5:31: container.options.memory: takes one value"]),
        ("container: {ulimits: {memlok: -1, nofile: lots}}\n", [
            "5:31: container.ulimits.memlok: `memlok` is not a ulimit; did you mean `memlock`?",
            "5:43: container.ulimits.nofile: `lots` is not a limit",
        ]),
        ("container: {devices: [infiniband]}\n", ["5:23: container.devices[0]: `infiniband` is not a device"]),
        ("mounts: [models:/m, ./x:/m, /a:b, /a:/b:rx, ~/m:/m, vol:/v:ro, ~joe/x:/m]\n", [
            "5:21: mounts[1]: `./x:/m`: the source is a path on the node",
            "5:29: mounts[2]: `/a:b`: the target is a path in the container",
            "5:35: mounts[3]: `/a:/b:rx`: a mount ends with",
            "5:64: mounts[6]: `~joe/x:/m`: the source is a path on the node",
        ]),
        ("start: {probe: completion, health: health, ready_line: '(', drop_caches: 1}\n", [
            "5:16: start.probe: must be completions, chat, speech, embeddings, rerank, http or none, not `completion`; did you mean `completions`?",
            "5:36: start.health: `health` is not a path",
            "5:56: start.ready_line: `(` is not a regular expression",
            "5:74: start.drop_caches: must be true or false, not `1`",
        ]),
        ("start: {timeouts: {loading: soon}}\n", ["5:29: start.timeouts.loading: 'soon' is not a duration"]),
        ("start: {guard: on}\n", ["5:16: start.guard: must be a map (floor, cache_below, limit) or off, not `on`"]),
        ("start:\n  guard: {floor: 2, cache-below: 8g, limit: soon}\n", [
            "6:18: start.guard.floor: `2` is 2 bytes; write for example 512MiB",
            "6:21: start.guard.cache-below: unknown key; did you mean `cache_below`?",
            "6:45: start.guard.limit: 'soon' is not a duration",
        ]),
        ("start: {guard: {floor: -1GiB, cache_below: 4 GiG, limit: 0s}}\n", [
            "5:24: start.guard.floor: `-1GiB` is not a size; write for example 512MiB",
            "5:44: start.guard.cache_below: `4 GiG` is not a size; write for example 96GiB",
            "5:58: start.guard.limit: `0s` is zero; write for example 20m",
        ]),
        ("start: {guard: {floor: 0, limit: 45}}\n", [
            "5:24: start.guard.floor: `0` is not a floor; write for example 512MiB, or guard: off",
            "5:34: start.guard.limit: `45` has no unit; write 45s or 45m",
        ]),
        ("liveness: off\n", ["5:11: liveness: must be none, not `off`"]),
        ("stop: 30s\n", ["5:7: stop: must be a map, not `30s`"]),
        ("args:\n  trust-remote-code:\n  a b: 1\n  x: [[1], [2]]\n", [
            "6:3: args.trust-remote-code: has no value; write true for a bare flag",
            "7:8: args.a b: `a b` is not a flag",
            "8:6: args.x: a list repeats the flag",
        ]),
        ("env:\n  A-B: 1\n  C: [1]\n  D: ${\n  E:\n", [
            "6:8: env.A-B: `A-B` is not a variable's name",
            "7:6: env.C: must be text",
            "8:6: env.D: a ${ is not a variable",
            "9:3: env.E: has no value",
        ]),
        ("command: python -m x\n", ["5:10: command: must be a list, not `python -m x`"]),
        ("command: [python, true]\n", ["5:19: command[1]: must be text, not `true`; put it in quotes"]),
        ("model: {weights: 27, draft_weights: 2g, kv_per_token: 0, experts: {count: 8, per_tokn: 2}}\n", [
            "5:18: model.weights: `27` is 27 bytes; write for example 27GB",
            "5:37: model.draft_weights: `2g` is not a size",
            "5:55: model.kv_per_token: `0` is zero",
            "5:67: model.experts.weights: is missing",
            "5:67: model.experts.per_token: is missing",
            "5:78: model.experts.per_tokn: unknown key; did you mean `per_token`?",
        ]),
        ("model: {weights: 30GB, parameters: 30B, active_parameters: 31B,\n"
         "  experts: {weights: 31GB, count: 128, per_token: 129}}\n", [
            "5:60: model.active_parameters: 31000000000 parameters are active, but the model has only 30000000000",
            "6:51: model.experts.per_token: a token uses 129 experts, but there are only 128",
        ]),
        ("model: {weights: 30GB, experts: {weights: 31GB, count: 128, per_token: 8}}\n", [
            "5:33: model.experts: the experts' weights (31000000000) are larger than the model's (30000000000)",
        ]),
        ("model: {served_name: true, weights: heavy, active_parameters: many}\n", [
            "5:22: model.served_name: must be text",
            "5:37: model.weights: `heavy` is not a size; write for example 27GB (10^9) or 25GiB (2^30)",
            "5:63: model.active_parameters: `many` is not a count",
        ]),
        ("nodes: 0\n", ["5:8: nodes: must be 1 to 8, not `0`"]),
        (f"env: {{A: {TOKEN}}}\n", ["5:10: env.A: this is a token"]),
        (f"args:\n  x: [a, '{TOKEN}']\n", ["6:10: args.x[1]: this is a token"]),
    ],
)  # fmt: skip
def test_faults_are_in_their_place(library: ProfileLibrary, body: str, expected: list[str]) -> None:
    found = list_faults(library, HEAD + body)
    assert len(found) == len(expected), found
    for line, beginning in zip(found, expected, strict=True):
        assert line.startswith(beginning)
        assert TOKEN not in line


def test_faults_of_the_head(library: ProfileLibrary) -> None:
    text = "schema: 2\nname: mine it\nengine: sglagn\nimage: UPPER CASE\n"
    assert [line.split(": ")[0] + ": " + line.split(": ")[1] for line in list_faults(library, text)] == [
        "1:9: schema",
        "2:7: name",
        "3:9: engine",
        "4:8: image",
    ]
    assert "did you mean `sglang`?" in list_faults(library, text)[2]
    assert list_faults(library, "a: 1\n")[:3] == [
        "1:1: schema: is missing; add `schema: 1` as the first line",
        "1:1: name: is missing",
        "1:1: engine: is missing",
    ]
    assert list_faults(library, "- 1\n") == ["1:1: a profile is a map that begins with `schema: 1`"]


def test_weights_are_decimal_as_model_pages_have_them(library: ProfileLibrary) -> None:
    text = "model: {weights: 62.5GB, draft_weights: 850 MB, kv_per_token: 64KiB, parameters: 30B, "
    (library.user / "mine.yaml").write_text(HEAD + text + "experts: {weights: 54GiB, count: 128, per_token: 8}}\n")
    model = library.load_profile("mine").model
    assert (model.weights, model.draft_weights, model.kv_per_token) == (62_500_000_000, 850_000_000, 65536)
    assert (model.parameters, model.experts) == (30 * 10**9, RoutedExperts(54 << 30, 128, 8))


def test_every_value_reaches_the_profile_as_written(library: ProfileLibrary) -> None:
    (library.user / "mine.yaml").write_text(
        HEAD
        + "args:\n  mem-fraction-static: 0.820\n  lr: 1e-5\n  on: true\n  off: false\n  time: 22:22\n"
        + "  conf: {b: 1.10, a: [x, ~]}\n  header: [a b, 1.0, {k: 1}]\n  sizes: [[1, 2.0, x]]\n"
        + "env: {A: 1.10, B: no, C: true, D: '', E: '${HF_TOKEN}'}\n"
        + "container: {shm_size: 1073741824, ulimits: {memlock: -1}, options: {cap-add: [A, B], init: true, read-only: false}}\n"
        + "model: {weights: 27 GiB, active_parameters: 3.5B}\nmemory: {expected: 96GiB, floor: 1g}\n"
        + "start: {timeouts: {loading: 1h30m}, expected: 250, ready_line: none}\nstop: {grace: 5s}\ncommand: [a, '', 1.0]\n"
        + "extra: {mods: [a], benchmark: {tg: [128]}}\n"
    )
    profile = library.load_profile("mine")
    assert profile.args == (
        ("mem-fraction-static", "0.820"),
        ("lr", "1e-5"),
        ("on", True),
        ("off", False),
        ("time", "22:22"),
        ("conf", JsonValue('{"b":1.10,"a":["x",null]}')),
        ("header", ("a b", "1.0", '{"k":1}')),
        ("sizes", FlagValues(("1", "2.0", "x"))),
    )
    assert profile.extra == (("mods", JsonValue('["a"]')), ("benchmark", JsonValue('{"tg":[128]}')))
    assert profile.env == (("A", "1.10"), ("B", "no"), ("C", "true"), ("D", ""), ("E", "${HF_TOKEN}"))
    assert profile.container.shm_size == "1073741824"
    assert profile.container.ulimits == (("memlock", "-1"),)
    assert profile.container.options == (("cap-add", "A"), ("cap-add", "B"), ("init", "true"))
    assert profile.model.weights == 27 << 30
    assert profile.model.active_parameters == 3_500_000_000
    assert (profile.expected_memory, profile.floor_memory) == (96 << 30, 1 << 30)
    assert (profile.start.timeouts.loading, profile.start.timeouts.creating) == (5400.0, 120.0)
    assert (profile.start.expected, profile.stop_grace) == (250.0, 5.0)
    assert profile.command == ("a", "", "1.0")
    assert not profile.shipped


def write_profile(directory: Path, name: str, body: str) -> Path:
    path = directory / f"{name}.yaml"
    path.write_text(f"schema: 1\nname: {name}\n{body}")
    return path


BASE = "engine: sglang\nimage: x/y:1\nport: 8003\nargs: {a: 1, b: 2, c: {x: 1, y: 2}}\nmounts: [~/a:/a]\n"


def test_a_variant_merges_maps_replaces_lists_and_removes_with_null(library: ProfileLibrary) -> None:
    write_profile(library.shipped, "base", BASE)
    write_profile(
        library.user, "variant", "extends: base\nargs: {b: null, a: 9, c: {y: 3}, d: 4}\nmounts: [/b:/b]\nport: null\n"
    )
    profile = library.load_profile("variant")
    assert profile.args == (("a", "9"), ("c", JsonValue('{"x":1,"y":3}')), ("d", "4"))
    assert profile.mounts == ("/b:/b",)
    assert profile.port is None
    assert (profile.name, profile.engine, profile.image) == ("variant", "sglang", "x/y:1")
    assert profile.digest != library.load_profile("base").digest


def test_faults_of_a_base_are_in_the_base(library: ProfileLibrary) -> None:
    base = write_profile(library.shipped, "base", BASE + "prot: 1\n")
    variant = write_profile(library.user, "variant", "extends: base\nport: x\n")
    lines = [str(fault) for fault in find_issues(library, variant)]
    assert lines == [
        f"{variant}:4:7: port: must be a whole number, not `x`",
        f"{base}:8:1: prot: unknown key; did you mean `port`?",
    ] or lines == [
        f"{base}:8:1: prot: unknown key; did you mean `port`?",
        f"{variant}:4:7: port: must be a whole number, not `x`",
    ]


def test_a_users_profile_wins_and_may_extend_the_shipped_one_of_its_name(library: ProfileLibrary) -> None:
    write_profile(library.shipped, "base", BASE)
    write_profile(library.user, "base", "extends: base\nport: 9000\n")
    profile = library.load_profile("base")
    assert (profile.port, profile.shipped, profile.image) == (9000, False, "x/y:1")
    (summary,) = library.list_summaries()
    assert (summary.overrides_shipped, summary.shipped, summary.engine) == (True, False, "sglang")


def test_circles_strangers_and_long_chains_are_faults(library: ProfileLibrary) -> None:
    first = write_profile(library.user, "first", "extends: second\n")
    write_profile(library.user, "second", "extends: first\n")
    assert "`first` leads back to here" in str(find_issues(library, first)[0])
    itself = write_profile(library.user, "itself", "extends: itself\n")
    assert str(find_issues(library, itself)[0]).endswith("3:10: extends: `itself` is this profile itself")
    stranger = write_profile(library.user, "stranger", "extends: frist\n")
    assert str(find_issues(library, stranger)[0]).endswith(
        "3:10: extends: no profile is called `frist`; did you mean `first`?"
    )
    for number in range(10):
        write_profile(library.user, f"long{number}", f"extends: long{number + 1}\n")
    assert "more than 8" in str(find_issues(library, library.user / "long0.yaml")[0])
    assert all(summary.faults for summary in library.list_summaries())


def test_a_profile_is_called_as_its_file(library: ProfileLibrary) -> None:
    (library.user / "other.yaml").write_text(HEAD)
    assert str(find_issues(library, library.user / "other.yaml")[0]).endswith(
        "2:7: name: must be `other`, like the file"
    )
    with pytest.raises(InvalidFile):
        library.load_profile("other")
    assert library.list_names() == ("other",)


def test_an_unknown_name_suggests(library: ProfileLibrary) -> None:
    write_profile(library.shipped, "qwen36", BASE)
    with pytest.raises(InvalidInput, match="did you mean `qwen36`") as caught:
        library.load_profile("qwen63")
    assert caught.value.hint == "sparkctl profiles list"


def test_overrides_are_laid_over_and_checked(library: ProfileLibrary) -> None:
    path = write_profile(library.shipped, "base", BASE + "env: {K: v}\n")
    overrides = (
        "args.a=0.70", "args.b=null", "args.c.y=5", "args.t=true", "args.l=[1.0, x]", "args.text=a: b # c",
        "env.FOO=bar: baz", "env.EMPTY=", "port=8004", "container.options.init=true", 'model.path="a b"',
    )  # fmt: skip
    profile = library.load_profile("base", overrides)
    assert profile.args == (
        ("a", "0.70"),
        ("c", JsonValue('{"x":1,"y":5}')),
        ("t", True),
        ("l", ("1.0", "x")),
        ("text", "a: b # c"),
    )
    assert profile.env == (("K", "v"), ("FOO", "bar: baz"), ("EMPTY", ""))
    assert (profile.port, profile.model.path) == (8004, "a b")
    assert library.load_profile(str(path), overrides).digest == profile.digest != library.load_profile("base").digest


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("port=x", "--set port=x: port: must be a whole number, not `x`"),
        ("arg.x=1", "--set arg.x=1: arg: unknown key; did you mean `args`?"),
        ("foo=2", "--set foo=2: foo: unknown key; a flag of the engine belongs under `args`"),
        ("args.x=[", "--set args.x=[: a value, or the end of [ or {, is missing here"),
        ("args..x=1", "--set args..x=1: write --set field=value"),
        ("port", "--set port: write --set field=value"),
        ("name=x", "--set name=x: `name` cannot be set here"),
        ("args=1", "--set args=1: args: must be a map, not `1`"),
        ("args.x=\x1b[2J", "args.x=: a control character (U+001B) is not allowed here"),
        ("image=null", "base.yaml:1:1: image: is missing"),
    ],
)
def test_a_faulty_override_is_named(library: ProfileLibrary, override: str, message: str) -> None:
    write_profile(library.shipped, "base", BASE)
    with pytest.raises(InvalidFile) as caught:
        library.load_profile("base", (override, "nodes=1"))
    assert len(caught.value.faults) == 1
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.parameters=1B", "model.active_parameters: 2000000000 parameters are active"),
        ("model.active_parameters=4B", "model.active_parameters: 4000000000 parameters are active"),
        ("model.weights=1GB", "model.experts: the experts' weights"),
        ("model.experts.count=1", "model.experts.per_token: a token uses 2 experts"),
    ],
)
def test_what_does_not_go_with_an_override_is_the_overrides_fault(
    library: ProfileLibrary, override: str, message: str
) -> None:
    experts = "{count: 8, per_token: 2, weights: 2GB}"
    model = f"model: {{weights: 3GB, parameters: 3B, active_parameters: 2B, experts: {experts}}}"
    write_profile(library.shipped, "base", BASE + model + "\n")
    library.load_profile("base")
    with pytest.raises(InvalidFile) as caught:
        library.load_profile("base", (override,))
    assert caught.value.message.startswith(f"--set {override}: {message}")


def test_a_token_in_an_override_is_neither_taken_nor_shown(library: ProfileLibrary) -> None:
    write_profile(library.shipped, "base", BASE)
    with pytest.raises(InvalidFile) as caught:
        library.load_profile("base", (f"env.HF_TOKEN={TOKEN}",))
    assert "this is a token" in caught.value.message
    assert TOKEN not in caught.value.message


def test_the_hash_is_of_the_content_alone(library: ProfileLibrary, tmp_path: Path) -> None:
    write_profile(library.shipped, "base", BASE)
    first = library.load_profile("base").digest
    write_profile(
        library.user,
        "base",
        "# other words\n" + BASE.replace("mounts: [~/a:/a]", "mounts:\n  - ~/a:/a") + "title: T\nnotes: N\nsource: S\n",
    )
    assert library.load_profile("base").digest == first
    assert first == compute_profile_hash(library.load_profile("base"))
    assert len(first) == 12
    write_profile(library.user, "base", BASE.replace("a: 1, b: 2", "b: 2, a: 1"))
    assert library.load_profile("base").digest != first  # the order of flags can matter to an engine


def test_the_hash_does_not_drift() -> None:
    library = ProfileLibrary(Path("/nonexistent"))
    code = (
        "from sparkctl.profiles.profile_library import ProfileLibrary; from pathlib import Path;"
        "print(ProfileLibrary(Path('/nonexistent')).load_profile('qwen36').digest)"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == library.load_profile("qwen36").digest


def test_names_cost_no_parser() -> None:
    code = (
        "import sys; from sparkctl.profiles.profile_library import ProfileLibrary; assert 'qwen36' in ProfileLibrary().list_names();"
        "print([m for m in ('yaml', 'pydantic', 'difflib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_json_schema_knows_every_field() -> None:
    schema = profile_json_schema()
    assert schema["required"] == ["schema", "name"]
    assert {"engine", "args", "container", "start", "extends"} <= set(schema["properties"])
    assert schema["additionalProperties"] is False
    guard = schema["$defs"]["GuardSection"]["anyOf"]
    assert set(guard[0]["properties"]) == {"floor", "cache_below", "limit"}
    assert guard[1] == {"enum": ["off", False]}


KEYS = st.sampled_from(
    ["schema", "name", "engine", "image", "port", "args", "env", "mounts", "container", "start", "x"]
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)


@settings(max_examples=60 if settings.default.derandomize else 300, deadline=None)
@given(st.dictionaries(KEYS, VALUES))
def test_any_map_is_a_profile_or_has_located_faults(
    tmp_path_factory: pytest.TempPathFactory, data: dict[str, object]
) -> None:
    import json

    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(json.dumps({"schema": 1, "name": "any", "engine": "vllm", "image": "x", **data}))
    for fault in find_issues(ProfileLibrary(path.parent / "none", path.parent / "none"), path):
        assert fault.place.line is not None
        assert str(fault).isprintable()


@given(st.data())
@settings(max_examples=60 if settings.default.derandomize else 300, deadline=None)
def test_what_a_profile_lets_through_docker_can_be_asked(data: st.DataObject) -> None:
    """Every option value that passes is one that the create request can be made of."""
    from dataclasses import replace as with_

    from sparkctl.model.node import Node, NodeName
    from sparkctl.profiles.docker_options import DOCKER_OPTIONS, VALUE_PATTERNS, DockerOptionKind
    from sparkctl.profiles.field_types import check_docker_option_value, check_gpus
    from sparkctl.profiles.launch_planning import build_launch_plan
    from sparkctl.transport.docker.create_request import build_create_request

    key = data.draw(
        st.sampled_from([name for name, kind in DOCKER_OPTIONS.items() if kind is not DockerOptionKind.FLAG])
    )
    text = st.from_regex(VALUE_PATTERNS[key][0], fullmatch=True) if key in VALUE_PATTERNS else st.text(min_size=1)
    value = check_docker_option_value(key, data.draw(text))
    cards = check_gpus(
        data.draw(st.sampled_from(["all", "1", "device=0", "count=2", '"device=0,1",capabilities=utility']))
    )
    profile = ProfileLibrary(Path("/nonexistent")).load_profile("qwen36")
    made = build_launch_plan(
        profile,
        Node(name=NodeName("n"), host="h"),
        home="/h",
        operator="o",
        environ={},
    )
    body = build_create_request(with_(made, options=((key, value),), gpus=cards))
    assert body["Image"] == profile.image


def test_the_operators_own_file_is_a_copy_of_the_shipped_one_once(tmp_path: Path) -> None:
    library = ProfileLibrary(user=tmp_path / "not" / "there")
    before = library.get_modification_times()
    path, is_new = library.get_or_copy_user_file("qwen36")
    assert is_new
    assert path == tmp_path / "not" / "there" / "qwen36.yaml"
    assert path.read_bytes() == (library.shipped / "qwen36.yaml").read_bytes()
    assert library.get_or_copy_user_file("qwen36") == (path, False)
    assert library.load_profile("qwen36").shipped is False
    assert library.get_modification_times() != before
    with pytest.raises(InvalidInput, match="no profile is called"):
        library.get_or_copy_user_file("qwen")
