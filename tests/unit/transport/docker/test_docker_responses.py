"""Docker's answers: what is read out of its JSON, and what its refusals are called."""

from __future__ import annotations

import json

import pytest

from sparkctl import errors
from sparkctl.model.container import ContainerState
from sparkctl.transport.docker import docker_responses
from sparkctl.transport.docker.docker_client import negotiate_api_version
from sparkctl.transport.docker.docker_errors import error_for_response, parse_docker_message


@pytest.mark.parametrize(
    ("status", "said", "kind", "hint"),
    [
        (409, 'Conflict. The container name "/x" is already in use by container "1".', errors.ContainerNameInUse, "docker ps -a"),
        (404, "No such image: a/b:1", errors.ImageNotFound, "docker pull a/b:1"),
        (404, "No such container: x", errors.ContainerNotFound, "docker ps"),
        (409, "can not get logs from container which is dead or marked for removal", errors.ContainerNotFound, "docker ps"),
        (500, 'could not select device driver "" with capabilities: [[gpu]]', errors.GpuRuntimeMissing, "nvidia-ctk"),
        (500, "Bind for 0.0.0.0:80 failed: port is already allocated", errors.PortInUse, "ss -ltnp"),
        (500, "listen tcp4 0.0.0.0:22: bind: address already in use", errors.PortInUse, "ss -ltnp"),
        (500, "write /var/lib/docker/x: no space left on device", errors.DiskFull, "df -h"),
        (400, 'exec /usr/bin/python: exec format error', errors.DockerError, "linux/arm64"),
        (500, "something else", errors.DockerError, ""),
        (502, "", errors.DockerError, ""),
    ],
)  # fmt: skip
def test_a_refusal_has_its_kind_and_its_remedy(
    status: int, said: str, kind: type[errors.DockerError], hint: str
) -> None:
    error = error_for_response("spark1", status, json.dumps({"message": said}))
    assert type(error) is kind
    assert hint in (error.hint or "")
    assert "spark1" in error.message or error.message == said


def test_no_control_byte_of_dockers_words_comes_through() -> None:
    error = error_for_response("spark1", 500, "bad\x1b]0;title\x07\x1b[31m\nnext\r")
    assert error.message == "bad next"


def test_the_older_of_two_api_versions_is_spoken() -> None:
    assert [negotiate_api_version(text) for text in ("1.41", "1.51", "1.99", "1.9", None, "x")] == [
        "1.41", "1.51", "1.51", "1.9", "1.51", "1.51",
    ]  # fmt: skip


INSPECT = {
    "Id": "abc",
    "Name": "/qwen",
    "Created": "2026-11-20T23:13:59.5Z",
    "State": {
        "Status": "exited", "ExitCode": 137, "OOMKilled": True, "Error": "", "Pid": 0,
        "StartedAt": "2026-11-20T23:14:00.123456789Z", "FinishedAt": "2026-11-20T23:15:00Z",
    },
    "Config": {
        "Image": "img:1", "Labels": {"dev.sparkctl.b": "2", "dev.sparkctl.a": "1", "other": "x" * 65536}, "Tty": False,
        "Env": ["HF_TOKEN=hf_secret", "A=b", "X", "NCCL_IB_GID_INDEX=3", "NCCL_DEBUG=INFO"],
    },
    "RestartCount": 4,
    "HostConfig": {"LogConfig": {"Type": "json-file"}},
    "NetworkSettings": {"Ports": {"80/tcp": [{"HostIp": "0.0.0.0", "HostPort": "8080"}], "81/tcp": None}},
}  # fmt: skip


def test_a_container_that_was_killed() -> None:
    container = docker_responses.parse_container(INSPECT)
    assert (container.name, container.image, container.labels) == (
        "qwen",
        "img:1",
        (("dev.sparkctl.a", "1"), ("dev.sparkctl.b", "2")),
    )
    assert (container.exit_code, container.oom_killed, container.error) == (137, True, None)
    assert container.finished is not None
    assert container.started is not None
    assert container.finished - container.started == pytest.approx(59.876543)
    assert (container.ports, container.tty) == ((8080,), False)
    assert (container.restart_count, container.nccl) == (4, (("NCCL_IB_GID_INDEX", "3"),)), "no more of its environment"


def test_a_container_that_never_ran_has_no_times_and_no_exit_code() -> None:
    zero = "0001-01-01T00:00:00Z"
    state = {"Status": "created", "ExitCode": 0, "StartedAt": zero, "FinishedAt": zero}
    container = docker_responses.parse_container({"Id": "a", "State": state})
    assert (container.started, container.finished, container.exit_code, container.oom_killed) == (None,) * 4
    assert container.state is ContainerState.CREATED


def test_secrets_are_found_by_name() -> None:
    assert "hf_secret" in docker_responses.parse_secret_values(INSPECT)
    assert "b" not in docker_responses.parse_secret_values(INSPECT)


def test_secrets_are_found_wherever_a_container_holds_them() -> None:
    config = {
        "Env": ["DATABASE=pg://u:sesame-one@h/db"],
        "Entrypoint": ["serve", "--api-key=sesame-two"],
        "Cmd": ["--tool-server", "http://x/?token=sesame-three", "--db", "redis://:sesame-four@h"],
    }
    host = {"LogConfig": {"Type": "splunk", "Config": {"splunk-token": "sesame-five", "tag": "not-this"}}}
    found = docker_responses.parse_secret_values({"Config": config, "HostConfig": host})
    assert found == {f"sesame-{number}" for number in ("one", "two", "three", "four", "five")}


def test_a_listed_container() -> None:
    container = docker_responses.parse_container_entry(
        {
            "Id": "a", "Names": ["/x"], "Image": "i", "State": "running", "Status": "Up 3 hours", "Created": 5, "Labels": None,
            "Ports": [{"PublicPort": 80}, {"PublicPort": 80}, {"PrivatePort": 1}],
        }
    )  # fmt: skip
    assert (container.name, container.status, container.ports, container.labels) == ("x", "Up 3 hours", (80,), ())
    assert (container.exit_code, container.started) == (None, None)


def test_an_engine_that_says_little_leaves_the_rest_unknown() -> None:
    info = docker_responses.parse_info({"ServerVersion": "28.5.2"}, "1.51")
    assert (info.server_version, info.architecture, info.runtimes) == ("28.5.2", None, ())


LONG = "x" * 60_000


def test_no_name_of_a_container_is_longer_than_a_line() -> None:
    labels = dict.fromkeys(("dev.sparkctl.instance", "dev.sparkctl.operator", "com.example.notes"), LONG)
    entry = {"Id": "a", "Names": [f"/{LONG}"], "Image": LONG, "Status": LONG, "Labels": labels, "State": "running"}
    whole = {"Id": "a", "Name": f"/{LONG}", "Config": {"Image": LONG, "Labels": labels}, "State": {"Error": LONG}}
    for container in (docker_responses.parse_container_entry(entry), docker_responses.parse_container(whole)):
        assert container.is_managed
        assert len(container.name) == 256
        assert container.name.endswith("…")
        assert [key for key, _ in container.labels] == ["dev.sparkctl.instance", "dev.sparkctl.operator"]
        assert sum(len(text) for text in (container.name, container.image, container.status)) < 2000
        assert all(len(value) <= 256 for _, value in container.labels)
        assert len(container.error or "") <= 4096
    assert len(error_for_response("spark1", 500, LONG).message) <= 4096


def test_a_rule_on_a_label_is_whole_up_to_what_a_rule_is() -> None:
    rule = '{"line": "' + "y" * 2000 + '", "health": "/health"}'
    listed = docker_responses.parse_container_entry(
        {"Id": "a", "Labels": {"dev.sparkctl.ready": rule, "dev.sparkctl.nodes": "n" * 4000}}
    )
    assert dict(listed.labels) == {"dev.sparkctl.ready": rule, "dev.sparkctl.nodes": "n" * 4000}


@pytest.mark.parametrize("value", [10**400, -(10**400), 1e400, float("nan"), "7", None, [], True])
def test_a_number_out_of_all_range_is_none(value: object) -> None:
    listed = docker_responses.parse_container_entry({"Id": "a", "Created": value, "Ports": [{"PublicPort": value}]})
    assert (listed.created, listed.ports) == (0.0, ())


def test_a_secret_in_what_docker_says_is_masked() -> None:
    said = parse_docker_message('{"message":"bad env api_key=Hunter2Pass, see https://milo:Hunter2Pass@registry/v2"}')
    assert "Hunter2Pass" not in said
    assert said.startswith("bad env api_key=")
