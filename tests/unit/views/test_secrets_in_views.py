"""A secret that went into a plan or a profile comes out of nothing that is shown."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkctl.model.events import LaunchPlanned
from sparkctl.model.json_codec import decode_event, encode_event
from sparkctl.model.launch_plan import LaunchPlan
from sparkctl.model.node import Node, NodeName
from sparkctl.model.profile import ArgValue, FlagValues, JsonValue, Profile
from sparkctl.model.text.secrets import MASK
from sparkctl.profiles.exporters.docker_command import format_docker_run
from sparkctl.profiles.launch_planning import build_launch_plan
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.views.profiles.launch_plan_view import format_launch_plan
from sparkctl.views.profiles.profile_view import build_profile_json, render_profile
from sparkctl.views.text.styled_text import join_text

CANARY = "Canary+7/yellow"
NODE = Node(name=NodeName("spark1"), host="h")
# Where a secret may stand: each changes a profile so that the canary is in it, or comes in from the environment.
ENV: list[tuple[str, str]] = [
    ("HF_TOKEN", CANARY), ("DB_PASS", CANARY), ("MYSQL_PWD", f"x{CANARY}"), ("HF_TOKENS", f"a,{CANARY}"),
    ("API_KEY", "${MY_TOKEN}"), ("PLAIN", "before ${MY_TOKEN} after"), ("URL", f"postgres://u:{CANARY.replace('/', '')}@h/db"),
    ("API_KEY", f"${{UNSET:-{CANARY}}}"), ("HEADERS", f"authorization=Bearer {CANARY},x=1"), ("LEFT", f"${{A_TOKEN:-{CANARY}}}"),
    ("PEM_PRIVATE_KEY", f"-----BEGIN-----\n{CANARY}\n-----END-----"), ("COPY", "${MY_TOKEN}${MY_TOKEN}"),
]  # fmt: skip
ARGS: list[tuple[str, ArgValue]] = [
    ("api-key", CANARY), ("api-key", (CANARY, "${MY_TOKEN}")), ("--admin_api_key", f"${{X_KEY:-{CANARY}}}"),
    ("tool-server", "http://x/?key=${MY_TOKEN}"), ("tool-server", f"http://x/?a=b&token={CANARY}"),
    ("path", "http://x/${MY_TOKEN}/y"), ("list", ("a", "${MY_TOKEN}")), ("lora", JsonValue(json.dumps({"auth": [CANARY]}))),
    ("config", JsonValue(json.dumps({"a": {"hub_token": CANARY}}))), ("api-key", FlagValues(("${MY_TOKEN}", CANARY))),
]  # fmt: skip
OPTIONS = [
    ("log-opt", f"splunk-token={CANARY}"),
    ("log-opt", f"fluentd-address=tcp://me:{CANARY.replace('/', '')}@h"),
    ("add-host", f"password={CANARY}"),
]
COMMANDS = [("bash", "-c", f"HF_TOKEN={CANARY} serve --api-key {CANARY}; sleep 1"), ("serve", "--api-key", "a", CANARY)]
FILES = [f"HF_TOKEN={CANARY}\n", f"URL=redis://:{CANARY.replace('/', '')}@h\nPLAIN=1\n"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    folder = tmp_path_factory.mktemp("profiles")
    path = folder / "mine.yaml"
    path.write_text("schema: 1\nname: mine\nengine: container\nimage: x/y:1\nport: 8000\n")
    return ProfileLibrary(folder / "u", folder / "s").load_profile(str(path))


def plan_profile(profile: Profile) -> LaunchPlan:
    environ = {"MY_TOKEN": CANARY}
    return build_launch_plan(profile, NODE, home="/h", operator="o", environ=environ)


def render_everything(profile: Profile, made: LaunchPlan) -> str:
    """Everything that is printed of a plan and its profile, in every form; a shell's quotes are taken off."""
    line = format_docker_run(made)
    texts: Iterable[str] = [
        json.dumps(encode_event(LaunchPlanned(1.0, NODE.name, made))),
        line,
        *shlex.split(line.replace("\\\n", "")),
        *format_launch_plan(made, width=None),
        *map(join_text, render_profile(profile)),
        json.dumps(build_profile_json(profile), default=str),
        repr(made.secrets == ()),
    ]
    return "\n".join(texts)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    env=st.lists(st.sampled_from(ENV), max_size=3),
    args=st.lists(st.sampled_from(ARGS), max_size=3),
    options=st.lists(st.sampled_from(OPTIONS), max_size=2),
    command=st.sampled_from([None, *COMMANDS]),
    file=st.sampled_from([None, *FILES]),
)
def test_the_canary_is_in_no_output(
    base: Profile,
    env: list[tuple[str, str]],
    args: list[tuple[str, ArgValue]],
    options: list[tuple[str, str]],
    command: tuple[str, ...] | None,
    file: str | None,
) -> None:
    if file is not None:
        Path(base.origin).with_name("s.env").write_text(file)
    profile = replace(
        base, env=tuple(env), args=tuple(args), command=command, env_file=file and "s.env",
        container=replace(base.container, options=tuple(options)),
    )  # fmt: skip
    made = plan_profile(profile)
    text = render_everything(profile, made)
    assert CANARY not in text
    assert CANARY.replace("/", "") not in text


@pytest.mark.parametrize("where", [*ENV, *ARGS, *OPTIONS])
def test_the_canary_is_known_and_never_written(base: Profile, where: tuple[str, ArgValue]) -> None:
    if where in OPTIONS:
        profile = replace(base, container=replace(base.container, options=(where,)))  # type: ignore[arg-type]
    else:
        profile = replace(base, **{"env" if where in ENV else "args": (where,)})  # type: ignore[arg-type]
    made = plan_profile(profile)
    known = made.secret_values
    assert any(CANARY in secret or CANARY.replace("/", "") in secret for secret in known)
    back = decode_event(json.loads(json.dumps(encode_event(LaunchPlanned(1.0, NODE.name, made)))))
    assert isinstance(back, LaunchPlanned)
    assert back.plan.secrets == ()


def test_references_stay_readable_in_a_profile(base: Profile) -> None:
    env = (("HF_TOKEN", "${HF_TOKEN}"), ("B_TOKEN", "${B:-}"), ("C_TOKEN", "${C:-real-one}"), ("D", "pg://u:${PW}@h"))
    args: tuple[tuple[str, ArgValue], ...] = (("api-key", ("${A}", "real-one")), ("tp", "2"), ("q", True))
    lines = list(map(join_text, render_profile(replace(base, env=env, args=args))))
    assert [line.split(maxsplit=1)[1] for line in lines if line.startswith(("env", "arg"))] == [
        "HF_TOKEN=${HF_TOKEN}", "B_TOKEN=${B:-}", f"C_TOKEN=${{C:-{MASK}}}", "D=pg://u:${PW}@h",
        f"api-key: ['${{A}}', '{MASK}']", "tp: 2", "q: true",
    ]  # fmt: skip


def test_a_profile_of_nothing_secret_is_shown_as_it_is(base: Profile) -> None:
    profile = replace(
        base, args=(("max-num-batched-tokens", "8192"), ("served-model-name", "qwen")), env=(("A", "b=c"),)
    )
    made = plan_profile(profile)
    assert made.secret_values == frozenset()
    assert MASK not in render_everything(profile, made)


def test_what_an_import_kept_is_masked_too(base: Profile) -> None:
    extra = (("hub", JsonValue(json.dumps({"hub_token": CANARY}))), ("api_key", JsonValue(json.dumps(CANARY))))
    profile = replace(base, extra=extra)
    text = "\n".join([*map(join_text, render_profile(profile)), json.dumps(build_profile_json(profile), default=str)])
    assert CANARY not in text
    assert "hub_token" in text
