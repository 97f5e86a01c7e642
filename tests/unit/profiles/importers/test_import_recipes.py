"""sparkrun's and eugr's recipes, and what people make of them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkctl import engines
from sparkctl.errors import InvalidInput, SparkctlError
from sparkctl.model.profile import FlagValues, JsonValue, Profile
from sparkctl.profiles.importers import recipe_reader
from sparkctl.profiles.importers.profile_draft import KeyOutcome
from tests.unit.profiles.importers.import_text import get_container_argv, import_and_check, import_recipe, list_keys_of

EUGR = """\
recipe_version: "1"
name: My Model AWQ
description: vLLM serving it
model: org/My-Model-AWQ
container: vllm-node-tf5
build_args: [--pre-tf, --rebuild]
mods:
  - mods/fix-it
solo_only: false
cluster_only: true
pull_image: true
defaults:
  port: 8000
  host: 0.0.0.0
  tensor_parallel: 2
  gpu_memory_utilization: 0.70
  idle: 5
env:
  NCCL_IB_DISABLE: 0
  A: x
  LD_LIBRARY_PATH: $A:$LD_LIBRARY_PATH
  B: ${A}y
  EMPTY:
command: |
  vllm serve org/My-Model-AWQ \\
      --port {port} --host {host} \\
      -tp {tensor_parallel} \\
      --gpu-memory-utilization {gpu_memory_utilization} \\
      --speculative-config '{{"method":"mtp","num_speculative_tokens":1}}' \\
      --distributed-executor-backend ray
"""


def test_an_eugr_recipe() -> None:
    written = import_recipe(EUGR)
    profile = written.profile
    assert (profile.name, profile.engine, profile.nodes, profile.port) == ("my-model-awq", "vllm", 2, 8000)
    assert profile.args == (
        ("tensor-parallel-size", "2"), ("gpu-memory-utilization", "0.7"),
        ("speculative-config", JsonValue('{"method":"mtp","num_speculative_tokens":1}')),
        ("distributed-executor-backend", "ray"),
    )  # fmt: skip
    assert profile.env == (("NCCL_IB_DISABLE", "0"), ("A", "x"), ("B", "xy"))
    assert set(list_keys_of(written, KeyOutcome.UNSUPPORTED)) == {"env.LD_LIBRARY_PATH", "env.EMPTY", "pull_image"}
    assert dict(profile.extra) == {
        "build_args": JsonValue('["--pre-tf","--rebuild"]'), "mods": JsonValue('["mods/fix-it"]'), "default idle": JsonValue("5"),
    }  # fmt: skip
    notes = " ".join(remark.text for remark in written.imported.ledger.remarks)
    assert "./build-and-copy.sh -t vllm-node-tf5 --pre-tf --rebuild" in notes
    assert "image=ghcr.io/spark-arena/dgx-vllm-eugr-nightly-tf5:latest" in notes
    assert "fix-it" in notes
    assert profile.mounts == ("~/.cache/huggingface:/root/.cache/huggingface",)


@pytest.mark.parametrize(
    ("more", "nodes"),
    [("", 1), ("defaults: {tensor_parallel: 2}", 2), ("solo_only: true\ndefaults: {tensor_parallel: 2}", 1),
     ("cluster_only: true", 2), ("defaults: {tensor_parallel: 2, pipeline_parallel: 2}", 4), ("defaults: {x: 1}", 1)],
)  # fmt: skip
@pytest.mark.parametrize("kind", ['recipe_version: "1"', 'recipe_version: "2"\nruntime: vllm'])
def test_each_rank_takes_one_node(kind: str, more: str, nodes: int) -> None:
    command = "vllm serve m -tp {tensor_parallel} -pp {pipeline_parallel}" if "parallel" in more else "vllm serve m"
    assert import_recipe(f"{kind}\nmodel: m\ncontainer: x/y:1\n{more}\ncommand: {command}\n").profile.nodes == nodes


SPARKRUN = """\
recipe_version: "2"
sparkrun_version: 0.4.2
model: org/Model
model_revision: abc123
runtime: sglang
container: lmsysorg/sglang:{tag}
min_nodes: 1
max_nodes: 1
metadata: {description: A fine model, model_params: 27B, maintainer: me}
defaults:
  port: 30000
  tag: v1
  served_model_name: fast org/Model
  max_model_len: 32768
  config: '{"a":{"b":1}}'
  draft: org/{suffix}
  suffix: draft
  unused: 1
env: {PORT: '{config.port}', RANK: '{launch.node_rank}', TEXT: "${NOT_OURS}", FLAG: true}
command: |
  python3 -m sglang.launch_server --model-path {model} \\\x20\x20
    --context-length {max_model_len} --port {port} --json '{config}' \\
    --draft {draft} --graph 1 2 --odd {nobody}
executor_config: {user: root, shm_size: 32g, privileged: true, auto_remove: false, memory_limit: 100g, ulimit: [memlock=-1], x: 1}
readiness: {port_timeout_s: 1800, health_timeout_s: 600, inference: false, inference_prompt: Hi, rounds: 2}
pre_exec: [apt-get update]
post_commands: []
volumes: [~/models/x:/model:ro]
mods: [a]
benchmark: {framework: llama-benchy, args: {pp: [2048]}}
something_new: 5
"""


def test_a_sparkrun_recipe() -> None:
    written = import_recipe(SPARKRUN)
    profile = written.profile
    assert (profile.name, profile.title, profile.engine, profile.port) == (
        "some-recipe",
        "A fine model",
        "sglang",
        30000,
    )
    assert (profile.image, profile.model.parameters) == ("lmsysorg/sglang:v1", 27 * 10**9)
    assert profile.command == ("python3", "-m", "sglang.launch_server")
    assert profile.args == (
        ("context-length", "32768"),
        ("json", JsonValue('{"a":{"b":1}}')),
        ("draft", "org/draft"),
        ("graph", FlagValues(("1", "2"))),
        ("odd", "{nobody}"),
        ("served-model-name", FlagValues(("fast", "org/Model"))),
        ("revision", "abc123"),
    )
    assert profile.model.served_name == "fast"
    assert profile.env == (
        ("PORT", "30000"),
        ("RANK", "{launch.node_rank}"),
        ("TEXT", "$${NOT_OURS}"),
        ("FLAG", "true"),
    )
    box = profile.container
    assert (box.shm_size, box.ipc, box.network) == ("32g", "host", "host")
    assert box.options == (("user", "root"), ("memory", "100g"))
    assert box.ulimits == (("memlock", "-1"),)
    start = profile.start
    assert (start.timeouts.loading, start.timeouts.warming, start.probe, start.prompt) == (1800.0, 600.0, "none", "Hi")
    assert profile.mounts == ("~/models/x:/model:ro", "~/.cache/huggingface:/root/.cache/huggingface")
    assert set(list_keys_of(written, KeyOutcome.WITHHELD)) == {"executor_config.privileged", "pre_exec"}
    assert set(list_keys_of(written, KeyOutcome.UNSUPPORTED)) == {
        "command {nobody}",
        "env {launch.node_rank}",
        "readiness.rounds",
    }
    assert {key for key, _ in profile.extra} == {
        "max_nodes", "metadata", "mods", "benchmark", "something_new", "default unused", "x",
    }  # fmt: skip


def test_what_is_withheld_comes_in_when_it_is_allowed() -> None:
    written = import_recipe(SPARKRUN, allow=True)
    assert not list_keys_of(written, KeyOutcome.WITHHELD)
    assert ("privileged", "true") in written.profile.container.options
    assert dict(written.profile.extra)["pre_exec"] == JsonValue('["apt-get update"]')


def test_every_key_of_a_recipe_is_accounted_for() -> None:
    import yaml

    for text in (EUGR, SPARKRUN):
        written = import_recipe(text)
        found = {account.key for account in written.imported.ledger.accounts}
        keys = set(yaml.safe_load(text)) - {"defaults", "metadata", "volumes", "env"}
        assert keys
        assert not {key for key in keys - found if not any(one.startswith((f"{key}.", f"{key}[")) for one in found)}


def test_a_recipe_without_a_command_gets_its_flags_by_the_tools_table() -> None:
    text = "model: o/m\nruntime: {runtime}\ndefaults: {{port: 8000, max_model_len: 8192, gpu_memory_utilization: 0.8, "
    text += "trust_remote_code: true, enforce_eager: false, max_num_seqs: 4, nothing: 1}}\ncontainer: x/y:1\n"
    vllm = import_recipe(text.format(runtime="vllm"))
    assert get_container_argv(vllm.profile) == (
        "vllm", "serve", "o/m", "--host", "0.0.0.0", "--port", "8000", "--trust-remote-code", "--gpu-memory-utilization", "0.8",
        "--max-model-len", "8192", "--max-num-seqs", "4",
    )  # fmt: skip
    assert "makes no flag" in str(list_keys_of(vllm, KeyOutcome.KEPT)["defaults.nothing"])
    assert get_container_argv(import_recipe(text.format(runtime="sglang")).profile)[-6:] == (
        "--mem-fraction-static", "0.8", "--context-length", "8192", "--max-running-requests", "4",
    )  # fmt: skip
    llama = import_recipe(
        "model: o/m-GGUF:Q4_K_M\nruntime: llama-cpp\ndefaults: {port: 8080, ctx_size: 4096, jinja: true}\n"
    )
    assert get_container_argv(llama.profile) == (
        "llama-server", "-hf", "o/m-GGUF:Q4_K_M", "--host", "0.0.0.0", "--port", "8080", "--ctx-size", "4096", "--jinja",
    )  # fmt: skip
    assert llama.profile.image == "scitrera/dgx-spark-llama-cpp:latest"
    assert (llama.profile.engine, llama.profile.start.health) == ("llamacpp", None), "the engine's own"


BASE = "model: o/base\ncontainer: x/base:1\nruntime: vllm\ndefaults: {port: 8000, a: 1}\ncommand: vllm serve {model} --arg {a}\n"


def test_a_base_is_read_below_and_conditions_above() -> None:
    text = (
        "include: '@official/base'\nmodel: o/own\ndefaults: {a: 2, b: 3}\noverrides:\n  - {when: {arch: gb10}, defaults: {a: 4}}\n"
        "  - {when: {nodes: 2}, defaults: {a: 5}}\n  - {when: {moon: full}, defaults: {a: 6}}\n"
    )
    written = import_recipe(text, lookup={"@official/base": BASE}.get)
    assert (written.profile.image, written.profile.model.path) == ("x/base:1", "o/own")
    assert written.profile.args == (("arg", "4"),)
    assert "moon" in str(list_keys_of(written, KeyOutcome.UNSUPPORTED)["overrides[2]"])
    assert "overrides[1]" in list_keys_of(written, KeyOutcome.KEPT)
    alone = import_recipe(text + "container: x/y:1\n")
    assert "was not found" in str(list_keys_of(alone, KeyOutcome.UNSUPPORTED)["include @official/base"])
    with pytest.raises(InvalidInput, match="leads back"):
        import_recipe("include: a\nmodel: m\n", lookup={"a": "include: a\n"}.get)


def test_values_can_be_given_from_outside() -> None:
    written = import_recipe(
        "model: m\ncommand: vllm serve {model} --arg {y}\n", defined={"y": "1", "container": "a/b:2"}
    )
    assert (written.profile.args, written.profile.image) == ((("arg", "1"),), "a/b:2")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain {a} {b}", "plain 1 {b}"),
        ("one {\"x\":{a}}", 'one {"x":1}'),
        ("'{{\"x\":{a}}}' {b}", "'{\"x\":1}' {b}"),
        ("{{a}} {{{a}}}", "{a} {1}"),
        ('{"x":{"y":{a}}}', '{"x":{"y":1}}'),
        ("{n} and {{z}}", '{"p":{"q":1}} and {z}'),
        ("{self}", "{self}"),
        ("a \\  \nb", "a \\\nb"),
    ],
)  # fmt: skip
def test_placeholders_are_filled_in_by_the_tools_rule(text: str, expected: str) -> None:
    values = {"a": "1", "n": '{"p":{"q":1}}', "self": "{self}"}
    assert recipe_reader.fill_sparkrun_placeholders(text, values).text == expected


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(st.from_regex(r"[a-z]{1,3}", fullmatch=True), st.text(max_size=8).filter(lambda t: "{" not in t)),
    st.data(),
)
def test_eugrs_placeholders_are_pythons_own(values: dict[str, str], data: st.DataObject) -> None:
    piece = st.text(alphabet="ab ,:\"'", max_size=5) | st.sampled_from(
        ["{{", "}}", *(f"{{{name}}}" for name in values)]
    )
    text = "".join(data.draw(st.lists(piece, max_size=8)))
    assert recipe_reader.fill_eugr_placeholders(text, values).text == text.format(**values)


SERVE = "command: vllm serve {model} --arg 1\n"
HEAD = "model: o/m\ncontainer: x/y:1\n"
ONE = (("arg", "1"),)
ODD = {
    "bytes of Windows": ("\ufeff" + (HEAD + SERVE).replace("\n", "\r\n"), ONE),
    "tabs": ("model: o/m\ncontainer:\tx/y:1\ndefaults:\n\ta: 1\ncommand: vllm serve {model} --arg {a}\n", ONE),
    "anchors": (f"x: &x {{a: 1}}\n{HEAD}defaults:\n  <<: *x\ncommand: vllm serve {{model}} --arg {{a}}\n", ONE),
    "tags": ("model: !name o/m\ncontainer: x/y:1\ncommand: !!str vllm serve {model} --arg 1\n", ONE),
    "lists for text": (HEAD + "mods: one\nenv: [A=1, B=2]\n" + SERVE, ONE),
    "nulls": (HEAD + "env:\nmods:\ndefaults: null\nmetadata: ~\n" + SERVE, ONE),
    "numbers as text": (HEAD + "min_nodes: '2'\nrecipe_version: 2\n" + SERVE, ONE),
    "documents": ("---\n" + HEAD + SERVE + "---\nother: 1\n", ONE),
    "comments": (HEAD + "command: |\n  # first\n  vllm serve {model} \\\n    --arg 1  # last\n", ONE),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_yaml_is_read(name: str) -> None:
    text, args = ODD[name]
    profile = import_recipe(text).profile
    assert (profile.model.path, profile.image, profile.engine, profile.args) == ("o/m", "x/y:1", "vllm", args)


def test_corrections_are_reported() -> None:
    written = import_recipe("model: a/b\nmodel: c/d\ncontainer: x/y:1\ncommand: vllm serve {model}\n")
    assert written.profile.model.path == "c/d"
    assert "`model` appears twice in line 2" in written.imported.ledger.remarks[0].text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model: [\n", "some-recipe.yaml:2:1"),
        ("- a\n", "neither a recipe"),
        ("framework: x\nargs: {}\n", "none of model, container, command"),
        ("schema: 1\nengine: vllm\nmodel: x\n", "a sparkctl profile already"),
        ("model: m\nruntime: own\n", "names no image"),
        ("a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(f"b{n}: &b{n} [{', '.join([f'*{p}'] * 9)}]\n" for n, p in
         enumerate(["a", *(f"b{m}" for m in range(8))])), "too large for a recipe"),
        ("model: " + "[" * 60 + "]" * 60, "too large for a recipe"),
    ],
)  # fmt: skip
def test_text_that_is_no_recipe_is_refused(text: str, expected: str) -> None:
    with pytest.raises(InvalidInput) as error:
        import_recipe(text)
    assert expected in error.value.message


YAML = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from([
    "model", "container", "command", "defaults", "env", "mods", "build_args", "metadata", "executor_config", "readiness",
    "volumes", "min_nodes", "max_nodes", "cluster_only", "runtime", "include", "overrides", "name", "description",
    "pre_exec", "recipe_version", "model_revision", "benchmark", "services",
])  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(KEYS, YAML, max_size=8))
def test_a_recipe_of_anything_is_read_or_refused(data: dict[str, object]) -> None:
    import yaml

    try:
        written = import_and_check(yaml.safe_dump({"model": "m", "container": "x/y:1", **data}), "x.yaml")
    except SparkctlError:
        return
    assert written.profile.image


def import_pasted_line(line: str) -> Profile:
    return import_and_check(line, "pasted", allow=True).profile


@pytest.mark.parametrize(
    ("words", "engine", "command", "model", "served", "port"),
    [
        (
            "ghcr.io/ggml-org/llama.cpp:server-cuda13 -m /models/m.gguf -a oss --port 8090 --host 0.0.0.0 -ngl 99 --metrics",
            "llamacpp", (), "/models/m.gguf", "oss", 8090,
        ),
        ("x/llama:1 llama-server -hf o/m-GGUF:Q4_K_M --ctx_size 4096", "llamacpp", None, "o/m-GGUF:Q4_K_M", None, None),
        ("x/llama:1 /app/llama-server --model /m.gguf", "llamacpp", ("/app/llama-server",), "/m.gguf", None, None),
        ("x/trt:1 trtllm-serve o/m --port 8355 --max_batch_size 64", "trtllm", None, "o/m", None, 8355),
        (
            "x/trt:1 trtllm-serve serve o/m --trust_remote_code",
            "trtllm", ("trtllm-serve", "serve"), "o/m", None, None,
        ),
        ("x/ollama:1 ollama serve", "container", ("ollama", "serve"), None, None, None),
    ],
)  # fmt: skip
def test_a_line_of_llama_server_or_trtllm_serve_is_their_engines(
    words: str, engine: str, command: tuple[str, ...] | None, model: str | None, served: str | None, port: int | None
) -> None:
    found = import_pasted_line(f"docker run --gpus all {words}")
    assert (found.engine, found.command, found.model.path) == (engine, command, model)
    assert (found.model.served_name, found.port) == (served, port)
    if engine != "container":
        assert found.start.health is None, "the engine's own"
        assert found.container.gpus is None, "the engine's own"


def test_a_file_named_like_a_repository_keeps_its_flag() -> None:
    """`-m o/m` is a file below the working directory; as model.path it would be asked of the hub."""
    found = import_pasted_line("docker run x/llama:1 llama-server -m o/m --jinja")
    assert (found.engine, found.model.path) == ("llamacpp", None)
    assert get_container_argv(found) == ("llama-server", "--host", "0.0.0.0", "--port", "8080", "-m", "o/m", "--jinja")


def test_a_shells_script_that_starts_llama_server_is_its_engine() -> None:
    found = import_pasted_line("docker run x/llama:1 bash -c './llama-server -m /m.gguf --port 8090 | tee /log'")
    assert (found.engine, found.port, found.start.health) == ("llamacpp", 8090, None)
    assert get_container_argv(found)[:2] == ("bash", "-c")


def test_a_server_without_an_engine_of_its_own_keeps_the_model_among_its_words() -> None:
    found = import_and_check(
        "recipe_version: '1'\nmodel: o/m\nruntime: trtllm\ncontainer: x/trt:1\n"
        "defaults: {port: 8000}\ncommand: |\n  trtllm-serve o/m --port {port} --tp_size 1\n",
        "x.yaml",
    ).profile
    argv = engines.load_engine(found.engine).build_command(found)
    assert argv[:2] == ("trtllm-serve", "o/m")
    assert argv.count("o/m") == 1


@pytest.mark.parametrize(
    ("runtime", "command", "engine", "words"),
    [
        ("llama-cpp", "llama-server -hf {model} --port {port} -c 8192", "llamacpp", ["-c", "8192"]),
        ("llama-cpp", "/app/llama-server -hf {model} --port {port} -c 8192", "llamacpp", ["-c", "8192"]),
        ("trtllm", "trtllm-serve {model} --port {port} --tp_size 1", "trtllm", ["--tp_size", "1"]),
        ("trtllm", "trtllm-serve serve --port {port} --tp_size 1 {model}", "trtllm", ["--tp_size", "1"]),
    ],
)
def test_recipes_of_other_servers_are_their_engines(runtime: str, command: str, engine: str, words: list[str]) -> None:
    profile = import_and_check(
        f"recipe_version: '2'\nmodel: o/m\nruntime: {runtime}\ncontainer: x/y:1\ndefaults: {{port: 8123}}\n"
        f"command: |\n  {command}\n",
        "x.yaml",
    ).profile
    assert (profile.engine, profile.model.path, profile.port) == (engine, "o/m", 8123)
    result = list(engines.load_engine(engine).build_command(profile))
    assert result.count("o/m") == 1
    assert result[result.index(words[0]) :][:2] == words


def test_a_recipe_for_more_sparks_than_a_profile_has_says_so() -> None:
    """After a community recipe, kimi-k3-tp16: 16 ranks, cluster_only."""
    text = (
        'recipe_version: "1"\nname: k3-tp16\nmodel: a/K3\ncontainer: x/vllm:0.19.1\ncluster_only: true\n'
        "command: vllm serve a/K3 --tensor-parallel-size 16\n"
    )
    found = import_recipe(text)
    assert found.profile.nodes == 8
    assert any("need 16 GPUs" in remark.text for remark in found.imported.ledger.remarks)


def test_a_recipe_with_commands_of_other_names_says_that_the_start_differs() -> None:
    """After a community recipe, qwen-38-27b-nvfp4-sglang: command_mtp, command_dspark, and no command."""
    version = {"sparkrun": 'recipe_version: "2"\nruntime: sglang\n', "eugr": 'recipe_version: "1"\n'}
    for kind, head in version.items():
        text = (
            f"{head}name: q\nmodel: a/b\ncontainer: x/sglang:0.5.12\n"
            "command_mtp: sglang serve --model-path /models/b --speculative-algorithm NEXTN\n"
        )
        (said,) = [one.text for one in import_recipe(text).imported.ledger.remarks if "command_mtp" in one.text]
        assert "but command_mtp: this profile is none of them" in said, kind
        beside = import_recipe(f"{text}command: sglang serve --model-path /models/b\n").imported.ledger.remarks
        assert [one.text for one in beside if "Its other starts (command_mtp) differ" in one.text], kind
