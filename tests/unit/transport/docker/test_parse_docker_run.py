"""What Docker tells of a container, read back: the same `docker run` line, and nothing that its image gave it."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkctl.commands.start.launch_plans import rebuild_launch_plan
from sparkctl.model.container import Container, ContainerState
from sparkctl.model.launch_plan import ContainerLabel, DockerRunSpec, LaunchPlan
from sparkctl.model.node import Node, NodeName
from sparkctl.profiles.docker_options import DOCKER_OPTIONS, DockerOptionKind
from sparkctl.profiles.exporters.docker_command import format_docker_run
from sparkctl.transport.docker.create_request import build_create_request, parse_docker_run
from tests.unit.transport.docker.test_create_request import PLAN

OF_IMAGE: dict[str, Any] = {
    "Entrypoint": ["/entry.sh"], "Cmd": ["serve"], "Env": ["PATH=/bin", "CUDA=13"], "Labels": {"maintainer": "x"},
    "WorkingDir": "/app",
}  # fmt: skip


def build_inspect_answer(plan: LaunchPlan, own: dict[str, Any] = OF_IMAGE) -> dict[str, Any]:
    """What Docker's inspect says of a container that was created from a plan: its image's settings are merged in."""
    body: dict[str, Any] = build_create_request(plan)
    host = {
        "NetworkMode": "bridge", "IpcMode": "private", "ShmSize": 67108864, "Runtime": "runc", "Memory": 0, "NanoCpus": 0,
        "CpusetCpus": "", "OomScoreAdj": 0, "PidMode": "", "PidsLimit": None, "Privileged": False, "Init": None,
        "LogConfig": {"Type": "json-file", "Config": {}}, **body.pop("HostConfig"),
    }  # fmt: skip
    config = {"Hostname": "0123456789ab", **body}
    config["Env"] = [*body["Env"], *own["Env"]]
    config["Labels"] = {**own["Labels"], **body["Labels"]}
    config["WorkingDir"] = body.get("WorkingDir") or own["WorkingDir"]
    if "Entrypoint" not in body:
        config["Entrypoint"] = own["Entrypoint"]
        config["Cmd"] = body["Cmd"] or own["Cmd"]
    return {
        "Id": "0123456789ab" + "0" * 52,
        "Name": f"/{plan.container_name}",
        "Image": "sha256:1",
        "Config": config,
        "HostConfig": host,
    }


def rebuild_plan(plan: LaunchPlan, image: dict[str, Any] | None = OF_IMAGE) -> LaunchPlan:
    run = parse_docker_run(build_inspect_answer(plan), None if image is None else {"Config": image})
    same = {one.name: getattr(run, one.name) for one in fields(DockerRunSpec) if one.name != "name"}
    return replace(plan, container_name=run.name, **same)


def test_a_whole_plan_comes_back_as_the_same_line() -> None:
    assert format_docker_run(rebuild_plan(PLAN), mask=False) == format_docker_run(PLAN, mask=False)


_VALUES = {
    "memory": "100g", "memory-swap": "200g", "cpus": "1.5", "oom-score-adj": "500", "pids-limit": "100",
    "add-host": "a:10.0.0.1", "tmpfs": "/run:size=1g", "publish": "127.0.0.1:8000:80", "log-opt": "max-size=10m",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(DOCKER_OPTIONS))
def test_each_option_comes_back(name: str) -> None:
    value = "true" if DOCKER_OPTIONS[name] is DockerOptionKind.FLAG else _VALUES.get(name, "some")
    plan = replace(PLAN, network=None, options=((name, value),))
    assert rebuild_plan(plan).options == ((name, value),)


def test_devices_gpus_and_an_entrypoint_come_back() -> None:
    plan = replace(
        PLAN, gpus='"device=0,1"', devices=("/dev/a:/dev/b:r", "nvidia.com/gpu=all"), entrypoint="python", ipc=None, network=None
    )  # fmt: skip
    assert format_docker_run(rebuild_plan(plan), mask=False) == format_docker_run(plan, mask=False)
    assert rebuild_plan(replace(PLAN, command=())).command == (), "the image's own command was not asked for"


def test_of_an_image_that_is_gone_its_settings_are_shown_too() -> None:
    assert ("CUDA", "13") in rebuild_plan(PLAN, image=None).env


def test_what_is_shown_has_no_secret() -> None:
    plan = replace(
        PLAN, env=(("HF_TOKEN", "hf_abcdefghijklmnopqrstuvwxyz"),), command=("serve", "--api-key", "s3cret-key")
    )
    container = Container(
        id="0123",
        name="sglang-qwen",
        image="img:1",
        state=ContainerState.RUNNING,
        status="Up",
        created=0.0,
        labels=((ContainerLabel.INSTANCE, "qwen"), (ContainerLabel.EXPECTED, "42")),
    )
    found = rebuild_launch_plan(
        Node(name=NodeName("spark1"), host="h"),
        container,
        parse_docker_run(build_inspect_answer(plan), {"Config": OF_IMAGE}),
    )
    assert "hf_abc" not in repr(found)
    assert "s3cret" not in repr(found)
    assert "-e HF_TOKEN " in format_docker_run(found.plan)
    assert found.plan.expected_memory == 42
    assert found.ready is None, "its labels have no usable rule"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_KEYS = st.sampled_from(("Env", "Cmd", "Entrypoint", "Labels", "Image", "User", "Binds", "ShmSize", "Ulimits", "Devices",
    "DeviceRequests", "PortBindings", "LogConfig", "Tmpfs", "CapAdd", "Memory", "NanoCpus", "NetworkMode"))  # fmt: skip


@given(st.dictionaries(_KEYS, JSON), st.dictionaries(_KEYS, JSON), JSON)
def test_whatever_docker_says_it_is_read(config: dict[str, Any], host: dict[str, Any], image: object) -> None:
    parse_docker_run({"Config": config, "HostConfig": host, "Name": image, "Id": image}, {"Config": image})
