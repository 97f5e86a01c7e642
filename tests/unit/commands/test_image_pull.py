"""Which login a config.json of Docker holds for a registry, and how far a download of layers is."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from pathlib import Path

import pytest

from sparkctl.commands.pull.image_pull import LayerProgress, explain_pull_error
from sparkctl.commands.start import image_registry
from sparkctl.commands.start.image_registry import find_login, get_registry, read_own_login, split_image_name
from sparkctl.errors import DiskFull, ImageNotFound, NodeError, OperationRefused
from sparkctl.transport.docker.docker_errors import error_for_response
from sparkctl.transport.docker.docker_responses import parse_info

LOGIN = base64.b64encode(b"milo:pass:word").decode()
EXPECTED = {"username": "milo", "password": "pass:word"}


async def ask_nobody(helper: str, key: str) -> bytes | None:
    return None


async def answer_helper(helper: str, key: str) -> bytes | None:
    return json.dumps({"Username": "<token>", "Secret": f"{helper} {key}"}).encode()


@pytest.mark.parametrize(
    ("config", "registry", "expected"),
    [
        ({"auths": {"ghcr.io": {"auth": LOGIN}}}, "ghcr.io", EXPECTED),
        ({"auths": {"https://index.docker.io/v1/": {"auth": LOGIN}}}, "docker.io", EXPECTED),
        ({"auths": {"ghcr.io": {"auth": LOGIN}}}, "quay.io", None),
        ({"auths": {"ghcr.io": {"auth": "%%"}}}, "ghcr.io", None), ({"auths": []}, "ghcr.io", None), ([], "ghcr.io", None),
        ({"auths": {"ghcr.io": {"identitytoken": "t"}}}, "ghcr.io", {"identitytoken": "t"}),
    ],
)  # fmt: skip
async def test_the_login_for_a_registry(config: object, registry: str, expected: dict[str, str] | None) -> None:
    assert await find_login(json.dumps(config).encode(), registry, ask_nobody) == expected


async def test_a_helper_answers_before_the_file_and_only_under_a_plain_name() -> None:
    config = {"credHelpers": {"ghcr.io": "pass"}, "auths": {"ghcr.io": {"auth": LOGIN}}}
    assert await find_login(json.dumps(config).encode(), "ghcr.io", answer_helper) == {"identitytoken": "pass ghcr.io"}
    odd = {**config, "credHelpers": {"ghcr.io": "../../bin/x"}}
    assert await find_login(json.dumps(odd).encode(), "ghcr.io", answer_helper) == EXPECTED


async def test_without_a_login_of_ones_own_the_pull_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OperationRefused, match=r"no login for the registry ghcr\.io"):
        await read_own_login({"DOCKER_CONFIG": str(tmp_path)}, get_registry("ghcr.io/acme/vllm:1"))


def test_the_bytes_of_layers_and_a_total_when_all_have_begun() -> None:
    layers = LayerProgress(size=None)
    for name in ("a", "b", "c"):
        layers.update({"id": name, "status": "Pulling fs layer", "progressDetail": {}})
    layers.update({"id": "c", "status": "Already exists", "progressDetail": {}})
    layers.update({"id": "a", "status": "Downloading", "progressDetail": {"current": 40, "total": 100}})
    assert (layers.done, layers.total) == (40, None)
    layers.update({"id": "b", "status": "Downloading", "progressDetail": {"current": 5, "total": 10}})
    assert (layers.done, layers.total) == (45, 110)
    layers.update({"id": "a", "status": "Extracting", "progressDetail": {"current": 3, "total": 700}})
    assert (layers.done, layers.total) == (105, 110)
    assert [(one.name, one.state) for one in layers.unfinished] == [("a", "Extracting"), ("b", "Downloading")]
    layers.update({"id": "a", "status": "Pull complete", "progressDetail": {}})
    assert [one.name for one in layers.unfinished] == ["b"]


async def test_a_helper_here_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may wait for a passphrase that nobody types; Ctrl-C, and the time limit, leave no process behind."""
    helper, pid = tmp_path / "docker-credential-hung", tmp_path / "pid"
    helper.write_text(f"#!/bin/sh\necho $$ >{pid}.new; mv {pid}.new {pid}; exec sleep 600\n")
    helper.chmod(0o755)
    (tmp_path / "config.json").write_text('{"credsStore": "hung"}')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    asking = asyncio.create_task(read_own_login({"DOCKER_CONFIG": str(tmp_path)}, "ghcr.io"))
    async with asyncio.timeout(20):
        while not pid.exists():  # noqa: ASYNC110 - a file of another process
            await asyncio.sleep(0.01)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    monkeypatch.setattr(image_registry, "_OWN_LOGIN_TIMEOUT_SECONDS", 0.3)
    with pytest.raises(OperationRefused, match="no login for the registry"):
        await read_own_login({"DOCKER_CONFIG": str(tmp_path)}, "ghcr.io")


async def test_a_config_that_is_nested_too_deeply_holds_no_login() -> None:
    async def answer_deeply(helper: str, key: str) -> bytes | None:
        return b"[" * 200_000

    assert await find_login(b"[" * 200_000, "ghcr.io", ask_nobody) is None
    assert await find_login(b'{"credsStore": "x"}', "ghcr.io", answer_deeply) is None


def test_a_total_is_the_registrys_until_all_layers_have_begun_and_a_layer_that_broke_off_has_not_arrived() -> None:
    layers = LayerProgress(300)
    assert layers.total == 300
    layers.update({"id": "a", "status": "Pulling fs layer", "progressDetail": {}})
    layers.update({"id": "b", "status": "Downloading", "progressDetail": {"current": 20, "total": 100}})
    layers.update({"id": "b", "status": "Retrying in 5 seconds", "progressDetail": {}})
    assert (layers.done, layers.total) == (20, 300)
    layers.update({"id": "b", "status": "Downloading", "progressDetail": {"current": 10, "total": 80}})
    assert layers.done == 30, "Docker counts what was left"
    layers.update({"id": "c", "status": "Already exists", "progressDetail": {}})
    assert layers.total is None, "how much of the 300 was there nobody tells"
    layers.update({"status": "Digest: sha256:abc"})
    assert layers.digest == "sha256:abc"


@pytest.mark.parametrize(("name", "expected"), [
    ("vllm/vllm-openai:v0.19.1", ("vllm/vllm-openai", "v0.19.1")), ("python", ("library/python", "latest")),
    ("docker.io/python:3", ("library/python", "3")), ("ghcr.io/a/b/c", ("a/b/c", "latest")),
    ("127.0.0.1:5000/lab/engine:1@sha256:abc", ("lab/engine", "sha256:abc")),
])  # fmt: skip
def test_an_image_is_asked_for_by_the_name_that_its_registry_knows(name: str, expected: tuple[str, str]) -> None:
    assert split_image_name(name) == expected


def test_registries_are_insecure_where_docker_says_so() -> None:
    config = {
        "IndexConfigs": {"docker.io": {"Secure": True}, "reg.lan:5000": {"Secure": False}},
        "InsecureRegistryCIDRs": ["127.0.0.0/8", "10.7.0.0/16", "nonsense"],
    }
    info = parse_info({"RegistryConfig": config}, "1.51")
    asked = ("localhost:5000", "127.0.0.1:5000", "reg.lan:5000", "10.7.1.2", "reg.lan", "docker.io", "10.8.1.2:5000")
    assert [info.is_insecure_registry(one) for one in asked] == [True] * 4 + [False] * 3
    assert not parse_info({}, "1.51").is_insecure_registry("ghcr.io")


@pytest.mark.parametrize(
    ("said", "kind", "message", "hint"),
    [
        ("no match for platform in manifest sha256:aa: not found", ImageNotFound, "has no image for arm64", "linux/arm64"),
        (
            "toomanyrequests: You have reached your unauthenticated pull rate limit. https://www.docker.com/increase-rate-limit",
            NodeError, "gives spark1 no more images for now", "docker login ghcr.io",
        ),
        ('Head "https://ghcr.io/v2/acme/vllm/manifests/1": denied', ImageNotFound, "refuses ghcr.io/acme/vllm:1", "--login"),
        (
            'Get "https://ghcr.io/v2/": tls: failed to verify certificate: x509: certificate signed by unknown authority',
            NodeError, "does not trust the certificate", "/etc/docker/certs.d/ghcr.io/ca.crt",
        ),
        ('Get "https://ghcr.io/v2/": http: server gave HTTP response to HTTPS client', NodeError, "without encryption", "insecure-registries"),
        (
            'Get "https://ghcr.io/v2/": net/http: request canceled while waiting for connection (Client.Timeout exceeded '
            "while awaiting headers)", NodeError, "cannot reach the registry ghcr.io", "curl",
        ),
        (
            'Get "https://ghcr.io/v2/": dial tcp: lookup ghcr.io on 127.0.0.53:53: server misbehaving', NodeError,
            "cannot reach the registry ghcr.io", "curl",
        ),
        (
            'Get "https://ghcr.io/v2/": proxyconnect tcp: dial tcp 10.0.0.1:3128: connect: connection refused', NodeError,
            "through its proxy", "Environment",
        ),
        ("filesystem layer verification failed for digest sha256:aa", NodeError, "arrived damaged", "disk and memory"),
        ("mediaType application/vnd.docker.distribution.manifest.v1+prettyjws not supported", ImageNotFound, "format", "newer image"),
        ("unexpected EOF", NodeError, "did not get ghcr.io/acme/vllm:1 whole", "repeat the command"),
        ("failed to register layer: write /x: no space left on device", DiskFull, "no space left", "docker system df"),
    ],
)  # fmt: skip
def test_what_docker_and_a_registry_say_has_a_way_out(
    said: str, kind: type[Exception], message: str, hint: str
) -> None:
    result = explain_pull_error(error_for_response("spark1", 0, said), "ghcr.io/acme/vllm:1", "spark1", "arm64")
    assert type(result) is kind
    assert message in result.message
    assert said[:40] in result.message
    assert hint in (result.hint or "")
