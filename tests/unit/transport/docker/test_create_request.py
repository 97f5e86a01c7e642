"""What is asked of Docker for a plan: the same as `docker run` with those flags would."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.model.launch_plan import ContainerLabel, LaunchPlan, Mount, PhaseTimeouts, ReadinessRule
from sparkctl.model.node import NodeName
from sparkctl.profiles.docker_options import DOCKER_OPTIONS, DockerOptionKind
from sparkctl.transport.docker import create_request
from sparkctl.transport.docker.create_request import build_create_request

PLAN = LaunchPlan(
    node=NodeName("spark1"), instance="qwen", profile="qwen", profile_hash="abc", engine="sglang", container_name="sglang-qwen",
    image="img:1", entrypoint=None, command=("python", "-m", "x y"), env=(("A", "b=c"), ("HF_TOKEN", "$x")),
    mounts=(Mount("/home/milo/models", "/models"), Mount("cache", "/c", read_only=True)), gpus="all", shm_size="16g", ipc="host",
    network="host", ulimits=(("memlock", "-1"), ("nofile", "1024:2048")), devices=("/dev/infiniband",), options=(),
    labels=((ContainerLabel.INSTANCE, "qwen"),), port=8003, served_model=None, api_key=None, ready=ReadinessRule(line=None, health=None),
    timeouts=PhaseTimeouts(), drop_caches=True, stop_grace=30, expected_memory=None, floor_memory=None,
)  # fmt: skip


def build_host_part(plan: LaunchPlan) -> dict[str, object]:
    part = build_create_request(plan)["HostConfig"]
    assert isinstance(part, dict)
    return part


def make_plan_with_option(name: str, *values: str) -> LaunchPlan:
    return replace(PLAN, options=tuple((name, value) for value in values))


def test_a_whole_plan() -> None:
    assert build_create_request(PLAN) == {
        "Image": "img:1",
        "Cmd": ["python", "-m", "x y"],
        "Env": ["A=b=c", "HF_TOKEN=$x"],
        "Labels": {ContainerLabel.INSTANCE: "qwen"},
        "HostConfig": {
            "Binds": ["/home/milo/models:/models", "cache:/c:ro"],
            "ShmSize": 16 << 30,
            "IpcMode": "host",
            "NetworkMode": "host",
            "Ulimits": [
                {"Name": "memlock", "Soft": -1, "Hard": -1},
                {"Name": "nofile", "Soft": 1024, "Hard": 2048},
            ],
            "Devices": [
                {"PathOnHost": "/dev/infiniband", "PathInContainer": "/dev/infiniband", "CgroupPermissions": "rwm"}
            ],
            "DeviceRequests": [
                {"Driver": "", "Count": -1, "DeviceIDs": None, "Capabilities": [["gpu"]], "Options": {}}
            ],
        },
    }


def test_a_crash_keeps_its_container() -> None:
    assert not {"AutoRemove", "RestartPolicy"} & set(build_host_part(PLAN))


def test_what_a_plan_leaves_out_is_left_to_docker_and_the_image() -> None:
    bare = replace(
        PLAN, command=(), gpus=None, shm_size=None, ipc=None, network=None, ulimits=(), devices=(), mounts=(), env=()
    )
    assert build_create_request(bare) == {
        "Image": "img:1", "Cmd": None, "Env": [], "Labels": {ContainerLabel.INSTANCE: "qwen"}, "HostConfig": {"Binds": []},
    }  # fmt: skip
    assert build_create_request(replace(PLAN, entrypoint=""))["Entrypoint"] == [""]


@pytest.mark.parametrize(
    ("text", "count", "ids", "capabilities"),
    [
        ("2", 2, None, ["gpu"]),
        ("device=0", 0, ["0"], ["gpu"]),
        ('"device=0,1"', 0, ["0", "1"], ["gpu"]),
        ('all,"capabilities=utility,compute"', -1, None, ["gpu", "utility", "compute"]),
    ],
)
def test_gpus(text: str, count: int, ids: list[str] | None, capabilities: list[str]) -> None:
    requests = build_host_part(replace(PLAN, gpus=text))["DeviceRequests"]
    assert requests == [{"Driver": "", "Count": count, "DeviceIDs": ids, "Capabilities": [capabilities], "Options": {}}]


def test_a_cdi_device_is_a_request() -> None:
    part = build_host_part(replace(PLAN, gpus=None, devices=("nvidia.com/gpu=all", "/dev/a:/dev/b:r", "/dev/c:rw")))
    assert part["DeviceRequests"] == [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}]
    assert part["Devices"] == [
        {"PathOnHost": "/dev/a", "PathInContainer": "/dev/b", "CgroupPermissions": "r"},
        {"PathOnHost": "/dev/c", "PathInContainer": "/dev/c", "CgroupPermissions": "rw"},
    ]


@pytest.mark.parametrize(
    ("name", "values", "key", "expected"),
    [
        ("add-host", ["a:1.2.3.4"], "ExtraHosts", ["a:1.2.3.4"]),
        ("cap-add", ["IPC_LOCK", "SYS_NICE"], "CapAdd", ["IPC_LOCK", "SYS_NICE"]),
        ("cap-drop", ["ALL"], "CapDrop", ["ALL"]),
        ("cpus", ["1.5"], "NanoCpus", 1_500_000_000),
        ("cpuset-cpus", ["0-9"], "CpusetCpus", "0-9"),
        ("group-add", ["video"], "GroupAdd", ["video"]),
        ("init", ["true"], "Init", True),
        ("log-driver", ["local"], "LogConfig", {"Type": "local"}),
        ("log-opt", ["max-size=1m", "tag=a=b"], "LogConfig", {"Config": {"max-size": "1m", "tag": "a=b"}}),
        ("memory", ["100g"], "Memory", 100 << 30),
        ("memory-swap", ["-1"], "MemorySwap", -1),
        ("oom-score-adj", ["-500"], "OomScoreAdj", -500),
        ("pid", ["host"], "PidMode", "host"),
        ("privileged", ["true"], "Privileged", True),
        ("read-only", ["true"], "ReadonlyRootfs", True),
        ("security-opt", ["seccomp=unconfined"], "SecurityOpt", ["seccomp=unconfined"]),
        ("tmpfs", ["/a", "/b:size=1g"], "Tmpfs", {"/a": "", "/b": "size=1g"}),
    ],
)
def test_an_option_of_the_host_part(name: str, values: list[str], key: str, expected: object) -> None:
    assert build_host_part(make_plan_with_option(name, *values))[key] == expected


@pytest.mark.parametrize(("name", "key"), [("hostname", "Hostname"), ("user", "User"), ("workdir", "WorkingDir")])
def test_an_option_of_the_container_part(name: str, key: str) -> None:
    assert build_create_request(make_plan_with_option(name, "x"))[key] == "x"


def test_publish() -> None:
    body = build_create_request(
        make_plan_with_option("publish", "8000", "8001:80", "127.0.0.1:8002:80/udp", "[::1]:8003:81")
    )
    assert body["ExposedPorts"] == {"8000/tcp": {}, "80/tcp": {}, "80/udp": {}, "81/tcp": {}}
    part = body["HostConfig"]
    assert isinstance(part, dict)
    assert part["PortBindings"] == {
        "8000/tcp": [{"HostIp": "", "HostPort": ""}],
        "80/tcp": [{"HostIp": "", "HostPort": "8001"}],
        "80/udp": [{"HostIp": "127.0.0.1", "HostPort": "8002"}],
        "81/tcp": [{"HostIp": "::1", "HostPort": "8003"}],
    }


SAMPLES = {
    "cpus": "1.5",
    "pids-limit": "9",
    "memory": "1g",
    "memory-swap": "2g",
    "oom-score-adj": "1",
    "publish": "80",
    "tmpfs": "/t",
    "log-opt": "a=b",
}


@pytest.mark.parametrize(("name", "kind"), DOCKER_OPTIONS.items())
def test_every_option_that_a_profile_may_set_is_asked_for(name: str, kind: DockerOptionKind) -> None:
    value = "true" if kind is DockerOptionKind.FLAG else SAMPLES.get(name, "x")
    assert build_create_request(make_plan_with_option(name, value)) != build_create_request(PLAN)


def test_unknown_options_are_refused() -> None:
    supported = {
        *create_request._CONFIG_OPTIONS,
        *create_request._HOST_OPTIONS,
        *create_request._HOST_LIST_OPTIONS,
        *create_request._OPTION_HANDLERS,
    }
    assert supported == set(DOCKER_OPTIONS)
    with pytest.raises(ValueError, match="--rm"):
        build_create_request(make_plan_with_option("rm", "true"))
