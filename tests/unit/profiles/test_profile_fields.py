"""Every declared field of a profile is read, written back, exported and described: from its declaration alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from sparkctl.engines import engine_names, load_engine
from sparkctl.model.profile import Profile
from sparkctl.profiles.exporters import docker_command
from sparkctl.profiles.exporters.yaml_exporter import build_portable_launch
from sparkctl.profiles.importers.profile_importer import ImportOptions, import_text
from sparkctl.profiles.schema import FileSection, build_json_schema, iter_value_fields, load_file_shape
from sparkctl.profiles.validation import merge_profile_layer, merge_profile_trees, parse_setting, validate_profile
from sparkctl.profiles.yaml_reader import InvalidFile, parse_yaml
from sparkctl.profiles.yaml_writer import render_profile_yaml

EVERY_FIELD = """\
schema: 1
name: every-field
title: All of them
engine: vllm
engine_version: 0.19.1
patched_flags: [some-flag]
image: registry/vllm:1
build: https://example.org/vllm.git#v1:docker
made_by: ./make-it.sh, in a checkout of https://example.org/vllm.git
needs: [orpheus-llm, another@spark1]
model:
  path: /models/m
  served_name: m
  source: hf:acme/m@v1
  include: ["*.safetensors"]
  exclude: [original/*]
  draft_source: hf:acme/m-draft
  tokenizer_source: hf:acme/m-tokenizer
  weights: 27GB
  parameters: 27B
  active_parameters: 3B
  experts: {weights: 20GiB, count: 128, per_token: 8}
  draft_weights: 1500MB
  kv_per_token: 65536
nodes: 2
port: 8000
command: [vllm, serve, 1.10]
args:
  max-model-len: 4096
env:
  A: ${A:-1}
env_file: x.env
api_key: generate
mounts:
  - ~/a:/a
container:
  name: its-name
  gpus: "1"
  shm_size: 16g
  ipc: private
  network: host
  entrypoint: /entry
  ulimits: {memlock: -1}
  devices: [/dev/infiniband]
  options:
    hostname: h
memory:
  expected: 96GiB
  floor: 2GiB
  draft_workspace: before-weights
start:
  drop_caches: false
  ready_line: is up
  health: /health
  probe: chat
  prompt: Hi
  check: full
  timeouts: {creating: 1s, starting: 2s, loading: 30m, warming: 3s}
  expected: 5m
  guard: {floor: 600MiB, cache_below: 2GiB, limit: 45m}
stop:
  grace: 1m
liveness: none
group: a-group
notes: |
  two
  lines
source: here
reference:
  - source: https://example.org/post
    setup: "a sweep: two runs"
    differs: another image
    ready_cold: 9m
    ready_warm: 90s
    generation_cold: 9.3
    context: 8192
    figures:
      - {concurrency: 1, prompt: 512, generated: 128, depth: 4096, task: JSON, generation: 12.7, prefill: 1253, \
ttft: 0.412s, accept_length: 1.65-1.85, accept_rate: 20%}
      - {concurrency: 8, generation: 17-43.1, accept_rate: 60-70%}
# Kept from the imported source; sparkctl does not use it.
extra:
  x: 1.50
"""


def read(text: str) -> Profile:
    return validate_profile(parse_yaml(text.encode(), "every-field.yaml"), Path("every-field.yaml"), shipped=False)


def list_values(section: FileSection, owner: Any) -> list[tuple[str, Any, Any]]:
    """Return path, value and default of each field with an attribute."""
    found: list[tuple[str, Any, Any]] = []
    for key, field in section.fields.items():
        inner = owner if field.name is None else getattr(owner, field.name)
        if field.section is not None and field.is_list:
            inner_values = list_values(field.section, inner[0])
            found += [(f"{key}[].{path}", value, default) for path, value, default in inner_values]
        elif field.section is not None:
            found += [(f"{key}.{path}", value, default) for path, value, default in list_values(field.section, inner)]
        elif field.name is not None:
            found.append((key, inner, field.default))
    return found


def test_the_example_has_every_field_at_another_value_than_its_default() -> None:
    values = list_values(load_file_shape(), read(EVERY_FIELD))
    assert [path for path, value, default in values if value == default] == []
    declared = {path for path, _ in iter_value_fields()}
    assert {path for path, _, _ in values} == declared - {"schema", "extends"}


def test_every_field_is_written_as_it_was_read() -> None:
    assert render_profile_yaml(read(EVERY_FIELD)) == EVERY_FIELD


def test_every_field_survives_an_export_and_an_import() -> None:
    profile = read(EVERY_FIELD)
    lines = docker_command.export_docker_run(build_portable_launch(profile, load_engine("vllm")))
    wishes = ImportOptions(engines=engine_names(), allow=True, is_beside=lambda _: True)
    back = import_text("\n".join(lines), "pasted", wishes).profile
    launch = {"args", "command", "container", "digest", "origin"}  # a docker run may tell them in another way
    for field in dataclasses.fields(Profile):
        if field.name not in launch:
            assert getattr(back, field.name) == getattr(profile, field.name), field.name


def test_every_field_has_words_and_a_schema() -> None:
    assert all(field.spec.help for _, field in iter_value_fields())
    schema = build_json_schema()
    assert list(schema["properties"]) == list(load_file_shape().fields)


@pytest.mark.parametrize("path", [path for path, _ in iter_value_fields() if path not in ("schema", "extra")])
def test_a_value_of_another_shape_is_a_fault_of_that_field(path: str) -> None:
    """A map where a value belongs, text where a map does: the fault names the field and its line."""
    tree = parse_yaml(EVERY_FIELD.encode(), "every-field.yaml")
    is_map = path in ("args", "env", "container.ulimits", "container.options")
    if path in ("name", "extends"):  # --set cannot change them
        tree = merge_profile_trees(tree, parse_yaml(f"{path}: {{a: b}}".encode(), "--set"))
    elif "[]." in path:  # of an entry in a list
        head, *keys = path.split("[].")
        value = "x" if path.endswith("figures") else "[[x]]"
        for key in reversed(keys):
            value = f"[{{{key}: {value}}}]"
        tree = merge_profile_trees(tree, parse_setting(f"{head}={value}"))
        path = path.replace("[]", "[0]")
    else:
        tree = merge_profile_trees(tree, parse_setting(f"{path}={'x' if is_map else '[[x]]'}"))
    with pytest.raises(InvalidFile) as caught:
        validate_profile(tree, Path("every-field.yaml"), shipped=False)
    assert path in caught.value.message
    assert "must be" in caught.value.message


REFERENCE = "schema: 1\nname: a-profile\nengine: vllm\nimage: an:1\nreference:\n"


@pytest.mark.parametrize(
    ("entry", "line", "message"),
    [
        ("  source: x", 6, "reference: must be a list of maps"),
        ("  - just text", 6, "reference[0]: must be a map (source, setup"),
        ("  - {setup: one run}", 6, "reference[0].source: is missing"),
        ("  - source: x\n    figures:\n      - {tokens: 5}", 8, "reference[0].figures[0].tokens: unknown key"),
        ("  - source: x\n    figures:\n      - {generation: fast}", 8, "write for example 12.7 or 23-27"),
        ("  - source: x\n    figures:\n      - {generation: 27-23}", 8, "the lower number comes first"),
        ("  - source: x\n    figures:\n      - {generation: 0}", 8, "above zero"),
        ("  - source: x\n    figures:\n      - {accept_rate: 0.2}", 8, "write it in per cent"),
        ("  - source: x\n    figures:\n      - {accept_rate: 20-120%}", 8, "too much"),
        ("  - source: x\n    figures:\n      - {concurrency: 0}", 8, "reference[0].figures[0].concurrency"),
        ("  - source: x\n    ready_cold: soon", 7, "reference[0].ready_cold"),
    ],
)
def test_a_wrong_reference_is_named_with_line_and_field(entry: str, line: int, message: str) -> None:
    with pytest.raises(InvalidFile) as caught:
        read(REFERENCE + entry + "\n")
    assert message in caught.value.message
    assert caught.value.faults[0].place.line == line


def test_a_reference_does_not_change_the_profile_hash() -> None:
    head = REFERENCE.removesuffix("reference:\n")
    assert read(REFERENCE + "  - {source: x, ready_warm: 90s}\n").digest == read(head).digest


@pytest.mark.parametrize(
    ("top", "differs"),
    [
        ("args: {mem-fraction-static: 0.6}", "another args.mem-fraction-static"),
        ("image: other:2", "another image"),
        ("port: 9000", None),
        ("args: {x: 1}\nreference: [{source: own, ready_warm: 80s}]", None),
    ],
)
def test_a_variant_with_other_settings_compares_nothing_with_the_figures_of_its_base(
    top: str, differs: str | None
) -> None:
    base = parse_yaml((REFERENCE + "  - {source: x, ready_warm: 90s}\n").encode(), "base.yaml")
    tree = merge_profile_layer(base, parse_yaml(top.encode(), "top.yaml"))
    profile = validate_profile(tree, Path("top.yaml"), shipped=False)
    assert [one.differs for one in profile.reference] == [differs]


@pytest.mark.parametrize(
    ("more", "seconds"),
    [
        ("reference: [{source: x, ready_warm: 90s}]", 90.0),
        ("reference: [{source: x, ready_warm: 90s}]\nstart: {expected: 2m}", 120.0),
        ("reference: [{source: x, ready_warm: 90s, differs: another image}]", None),
        ("port: 1", None),
    ],
)
def test_a_first_start_is_expected_to_take_what_the_source_says(more: str, seconds: float | None) -> None:
    assert read(REFERENCE.removesuffix("reference:\n") + more + "\n").expected_start_seconds == seconds
