"""What is exported and imported again means the same: the same container, counted ready and stopped by the same rules."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkctl import engines
from sparkctl.errors import InvalidInput
from sparkctl.model.node import Node, NodeName
from sparkctl.model.profile import ArgValue, ContainerOptions, FlagValues, JsonValue, ModelSpec, Profile
from sparkctl.model.text.secrets import Redactor, redact
from sparkctl.profiles.exporters import docker_command, yaml_exporter
from sparkctl.profiles.exporters.yaml_exporter import build_portable_launch
from sparkctl.profiles.launch_planning import build_launch_plan
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.transport.docker.create_request import build_create_request
from tests.tools.nightly.recipes import _count_flags
from tests.unit.profiles.importers.import_text import import_and_check
from tests.unit.profiles.test_yaml_writer import (
    BOXES,
    JSON_TEXT,
    KEYS,
    LINE,
    MODELS,
    PHASES,
    PROFILES,
    VARIABLES,
    draw_pairs,
)

FORMS = {
    "docker": (docker_command.export_docker_run, "pasted"),
    "systemd": (docker_command.export_systemd_unit, "pasted"),
    "compose": (yaml_exporter.export_compose, "x.yaml"),
    "sparkrun": (yaml_exporter.export_sparkrun, "x.yaml"),
}
REST = ("name", "engine", "engine_version", "title", "nodes", "expected_memory", "floor_memory", "start", "stop_grace",
        "liveness", "group", "notes", "source", "env_file", "extra")  # fmt: skip
SAFE = LINE.filter(lambda text: "\n" not in text and not text.startswith("-") and text.isascii())
ODD = ["$HOME", "$${X}", "${MINE}", "a ${MINE:-b c} d", "100%", "a=b,c", "'", '"', "\\", "~/x", "{a}", "{{b}}"]
VALUE = SAFE | st.sampled_from(ODD)


def _has_no_secret(one: JsonValue) -> bool:
    """Tell whether nothing in a value is masked: an export leaves secrets out, such as a COOKIE, by their names, too."""
    value = json.loads(one.text)
    return redact(one.text) == one.text and not _SECRET_KEY.search(one.text) and Redactor().redact_json(value) == value


_SECRET_KEY = re.compile(r"(?i)key|secret|token|passw")  # a strategy may take the words of the code itself
OPEN_JSON = JSON_TEXT.filter(_has_no_secret)
ARG: st.SearchStrategy[ArgValue] = st.one_of(
    VALUE, st.just(True), OPEN_JSON, st.lists(VALUE, min_size=2, max_size=3).map(lambda words: FlagValues(tuple(words))),
    st.lists(VALUE, min_size=2, max_size=3).map(tuple),
)  # fmt: skip
COMMANDS = st.sampled_from(
    [
        None,
        ("bash", "-c", "pip install x && vllm serve m --port 1 | tee 'a b' # $HOME"),
        ("python3", "-m", "mine"),
        ("prog",),
    ]
)
REALISTIC = st.builds(
    replace, PROFILES, command=COMMANDS, args=draw_pairs(KEYS, ARG), env=draw_pairs(VARIABLES, VALUE),  # type: ignore[arg-type]
    model=st.builds(replace, MODELS, path=st.sampled_from([None, "o/m", "/models/a b"]), served_name=st.sampled_from([None, "n"])),
    container=st.builds(replace, BOXES, network=st.sampled_from([None, "host", "bridge"]), entrypoint=st.sampled_from([None, "e"])),
    mounts=st.lists(st.sampled_from(["~/m:/m", "/a b/models:/b:ro", "vol:/v", "~:/h"]), max_size=3, unique=True).map(tuple),
    env_file=st.sampled_from([None, "x.env"]), extra=draw_pairs(st.from_regex(r"[a-z]{1,8}", fullmatch=True), OPEN_JSON),
)  # fmt: skip


def export_and_import(profile: Profile, form: str) -> Profile:
    """Return a profile exported and imported again."""
    write, origin = FORMS[form]
    text = "\n".join(write(build_portable_launch(profile, engines.load_engine(profile.engine)))) + "\n"
    return import_and_check(text, origin, allow=True).profile


def build_docker_body(profile: Profile) -> dict[str, object]:
    """Return what Docker is asked for, in no order where order means nothing."""
    made = build_launch_plan(
        replace(profile, env_file=None), Node(name=NodeName("s"), host="h"), home="/home/me", operator="o",
        environ={"MINE": "mine's own"},
    )  # fmt: skip
    found = build_create_request(made)
    words = [*([made.entrypoint] if made.entrypoint else []), *made.command]
    host = dict(found["HostConfig"])  # type: ignore[call-overload]
    host["Binds"] = sorted(host["Binds"])
    if made.network == "host":  # where nothing is published, whatever is asked for
        host.pop("PortBindings", None)
        found.pop("ExposedPorts", None)
    return found | {
        "Cmd": _count_flags(words), "Entrypoint": made.entrypoint, "Env": Counter(found["Env"]), "Labels": None, "HostConfig": host,  # type: ignore[arg-type]
        "port": made.port, "api_key": made.api_key,
    }  # fmt: skip


def assert_round_trip(profile: Profile, form: str) -> None:
    found = export_and_import(profile, form)
    assert {key: getattr(found, key) for key in REST} == {key: getattr(profile, key) for key in REST}
    assert build_docker_body(found) == build_docker_body(profile)
    figures = ("weights", "parameters", "experts", "draft_weights", "kv_per_token", "active_parameters")
    assert [getattr(found.model, key) for key in figures] == [getattr(profile.model, key) for key in figures]


@pytest.mark.parametrize("form", ["docker", "systemd", "compose"])
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)
@given(profile=REALISTIC)
def test_an_exported_line_imports_the_same(form: str, profile: Profile) -> None:
    assert_round_trip(profile, form)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)
@given(profile=REALISTIC.filter(lambda one: one.engine != "container" and one.model.path is not None))
def test_an_exported_recipe_imports_the_same(profile: Profile) -> None:
    assert_round_trip(profile, "sparkrun")


@pytest.mark.parametrize("form", FORMS)
def test_shipped_profiles_export_and_import_the_same(form: str) -> None:
    library = ProfileLibrary()
    for name in library.list_names():
        profile = library.load_profile(name)
        if form == "sparkrun" and profile.engine == "container":
            with pytest.raises(InvalidInput, match="no engine for"):
                export_and_import(profile, form)
        else:
            assert_round_trip(profile, form)


PLAIN = Profile(
    name="mine", engine="vllm", image="x/y:1", origin="x.yaml", shipped=False, title="Mine", model=ModelSpec(path="o/m", served_name="m"), port=8000,
    args=(("tensor-parallel-size", "1"), ("api-key", "${MY_KEY}"), ("spec", JsonValue('{"a":{"b":1}}'))),
    env=(("HF_TOKEN", "${HF_TOKEN}"), ("A", "b c")), mounts=("~/models:/models",), container=ContainerOptions(shm_size="16g"),
)  # fmt: skip


def test_a_docker_line_has_one_flag_a_line() -> None:
    lines = docker_command.export_docker_run(build_portable_launch(PLAIN, engines.load_engine("vllm")))
    assert lines[0] == "# Mine"
    assert [line.removesuffix(" \\").strip() for line in lines[2:]] == [
        "docker run -d", "--name vllm-mine", "--gpus all", "--shm-size 16g", "--network host", "-v ~/models:/models",
        "-e HF_TOKEN", "-e 'A=b c'", "x/y:1", "vllm serve o/m", "--host 0.0.0.0", "--port 8000", "--served-model-name m",
        "--tensor-parallel-size 1", '--api-key "${MY_KEY}"', "--spec '{\"a\":{\"b\":1}}'",
    ]  # fmt: skip


def test_a_shell_reads_the_line_as_docker_is_meant_to() -> None:
    profile = replace(
        PLAIN, args=(("xx", "a$b`c\"d'e\\ !f"), ("y", '${MINE:-$ "q"}z'), ("json", JsonValue('{"a":"${K}"}')))
    )
    lines = "\n".join(docker_command.export_docker_run(build_portable_launch(profile, engines.load_engine("vllm"))))
    script = f"docker() {{ printf '%s\\0' \"$@\"; }}\n{lines}\n"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env={"HOME": "/h", "MY_KEY": "k"}, check=True
    )
    words = done.stdout.split("\0")
    assert words[words.index("-v") + 1] == "/h/models:/models"
    assert words[words.index("--xx") + 1] == "a$b`c\"d'e\\ !f"
    assert words[words.index("--json") + 1] == '{"a":"${K}"}'


def test_a_recipe_has_placeholders_for_what_people_change() -> None:
    text = "\n".join(yaml_exporter.export_sparkrun(build_portable_launch(PLAIN, engines.load_engine("vllm"))))
    assert "vllm serve {model} \\\n    --host {host} \\\n    --port {port}" in text
    assert "-tensor-parallel-size {tensor_parallel}" in text
    assert '{{"a":{{"b":1}}}}' in text
    assert "# HF_TOKEN comes from your own environment" in text
    assert "-o env_MY_KEY=VALUE" in text


def test_a_secret_in_a_profile_is_not_exported() -> None:
    profile = replace(PLAIN, env=(("DB_PASSWORD", "hunter22"),), args=(("api-key", "sekret12"),))
    for write, _ in FORMS.values():
        one = build_portable_launch(profile, engines.load_engine("vllm"))
        text = "\n".join(write(one))
        assert "hunter22" not in text
        assert "sekret12" not in text
        assert len(one.remarks) == 2


def test_a_title_of_several_lines_is_a_comment_of_one() -> None:
    profile = replace(PLAIN, title="Mine\nrm -rf ~")
    for form, (write, _) in FORMS.items():
        text = "\n".join(write(build_portable_launch(profile, engines.load_engine("vllm"))))
        if form != "sparkrun":  # the title is a key's text there
            assert not any(line.startswith("rm -rf") for line in text.splitlines())
        assert export_and_import(profile, form).title == profile.title
