"""Whatever a source says, in whatever form: what Docker is asked for reaches no further than the import policy names.

The judge here is a second one: it looks at the request that Docker would get, and knows nothing of `recipes.policy`.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkctl import engines
from sparkctl.commands.import_profile import ImportedProfile, check_imported_profile
from sparkctl.engines.base import EngineRank
from sparkctl.errors import SparkctlError
from sparkctl.model.launch_plan import DockerRunSpec, LaunchPlan, Mount
from sparkctl.model.node import Node, NodeName
from sparkctl.profiles.importers.profile_draft import KeyOutcome
from sparkctl.profiles.importers.profile_importer import ImportOptions, import_container
from sparkctl.profiles.launch_planning import RankPlacement, build_launch_plan
from sparkctl.transport.docker.create_request import build_create_request
from tests.unit.profiles.importers.import_text import import_and_check

NODE = Node(name=NodeName("s"), host="h")
GIVEN = re.compile(
    r"HF_TOKEN|NGC_API_KEY|API_KEY|HOME|PORT|SECRET_[0-9]+|path|name"
)  # of the names that are tried here
QUIET = settings(
    max_examples=60 if settings.default.derandomize else 240, deadline=None, suppress_health_check=list(HealthCheck)
)


class AllAllowed(Mapping[str, str]):
    """An environment in which each variable is set, to what tells its name."""

    def __getitem__(self, name: str) -> str:
        return f"<canary {name}>"

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


# --- the judge ---

HOST_KEYS = {
    "Binds", "ShmSize", "IpcMode", "NetworkMode", "Ulimits", "Devices", "DeviceRequests", "NanoCpus", "CpusetCpus", "Init",
    "Memory", "MemorySwap", "OomScoreAdj", "PidsLimit", "ReadonlyRootfs", "Runtime", "ExtraHosts", "CapAdd", "CapDrop",
    "GroupAdd",
    "SecurityOpt", "LogConfig", "Tmpfs", "PortBindings",
}  # fmt: skip
TOP_KEYS = {
    "Image",
    "Cmd",
    "Env",
    "Labels",
    "HostConfig",
    "Entrypoint",
    "Hostname",
    "StopSignal",
    "User",
    "WorkingDir",
    "ExposedPorts",
}
SYSTEM = re.compile(
    r"/(etc|proc|sys|run|var/run|boot|usr|lib\w*|s?bin|root|home|home/[^/]+|var|var/lib|var/lib/docker.*|srv|opt|mnt)?"
)


def assert_harmless(written: ImportedProfile) -> None:
    """Look at what each node's container would be asked for."""
    profile = written.profile
    assert profile.env_file is None  # nothing lies beside a pasted text
    assert profile.start.guard is not None
    made = [build_launch_plan(profile, NODE, home="/home/me", operator="o", environ=AllAllowed())]
    if profile.nodes > 1:
        rank = EngineRank(0, tuple(f"10.0.0.{number}" for number in range(profile.nodes)))
        place = RankPlacement(
            rank=rank, nodes=tuple(NodeName(f"s{number}") for number in range(profile.nodes)), run="run"
        )
        made.append(build_launch_plan(profile, NODE, home="/home/me", operator="o", environ=AllAllowed(), place=place))
    for one in made:
        assert_request_harmless(one)


def assert_request_harmless(made: LaunchPlan) -> None:
    body: dict[str, Any] = build_create_request(made)
    host = body["HostConfig"]
    assert set(body) <= TOP_KEYS
    assert {
        key for key, value in host.items() if value
    } <= HOST_KEYS  # not Privileged, PidMode, UsernsMode, VolumesFrom ...
    for bind in host["Binds"]:
        assert_source_harmless(bind.split(":")[0])
    for device in host.get("Devices", []):
        path = device["PathOnHost"]
        assert path.split("/")[2] in ("infiniband", "dri", "kfd", "fuse") or path.startswith("/dev/nvidia")
        assert not {"", ".", ".."} & set(path.strip("/").split("/"))
    for request in host.get("DeviceRequests", []):
        assert request["Driver"] in ("", "nvidia") or all(
            one.startswith("nvidia.com/gpu=") for one in request["DeviceIDs"]
        )
    assert host.get("IpcMode", "host") in ("host", "private", "shareable", "none")
    assert ":" not in host.get("NetworkMode", "host")
    assert set(host.get("CapAdd", [])) <= {"IPC_LOCK", "CAP_IPC_LOCK", "SYS_NICE", "NET_RAW"}
    assert all(one.startswith("no-new-privileges") for one in host.get("SecurityOpt", []))
    assert set(host.get("GroupAdd", [])) <= {"video", "render"}
    assert host.get("Runtime", "nvidia") in ("nvidia", "runc")
    assert host.get("OomScoreAdj", 0) >= 0
    log = host.get("LogConfig", {})
    assert log.get("Type", "local") in ("json-file", "local", "journald", "none")
    assert not [key for key in log.get("Config", {}) if "address" in key or key in ("env", "labels")]
    assert not [how for how in host.get("Tmpfs", {}).values() if re.search(r"\bdev\b|shared", how)]
    taken = re.findall(r"<canary ([^>]*)>", json.dumps(body))
    assert [name for name in taken if not GIVEN.fullmatch(name)] == []


def assert_source_harmless(source: str) -> None:
    if not source.startswith("/"):
        assert re.search(r"cache|model|llm|ollama|hugging|hf", source)
        return
    assert not {".", "..", ""} & set(source.strip("/").split("/"))
    assert not SYSTEM.fullmatch(source.rstrip("/"))
    assert not re.match(r"/(etc|proc|sys|run|var/run|boot|usr|var/lib/docker)(/|$)", source)
    assert not re.search(r"/\.(ssh|aws|config|docker|kube|gnupg)(/|$)|docker\.sock|\.(py|sh|key|pem|env)$", source)
    if source.startswith("/dev/"):
        assert re.match(r"/dev/(shm/?|infiniband[\w/-]*|nvidia[\w/-]*|dri[\w/-]*)$", source)


# --- what is tried ---

PART = st.sampled_from(
    ["..", ".", "", "etc", "models", "home", "ollama", ".ssh", "me", "~", "dev", "infiniband", "sda", "var", "lib", "docker",
    "run", "llm",
     "docker.sock", ".cache", "huggingface", "proc", "self", "environ", "root", "x.py", "mnt", ".config"]
)  # fmt: skip
PATH = (
    st.lists(PART, min_size=1, max_size=5)
    .map("/".join)
    .flatmap(lambda tail: st.sampled_from([f"/{tail}", f"~/{tail}", tail, f"/{tail}/", f"//{tail}"]))
)
SOURCE = PATH | st.sampled_from(
    ["/", "~", "~/", ".", "hf-cache", "portainer_data", "~/.cache/huggingface", "$HOME", "/home/$USER", "${X}/models"]
)
MODE = st.sampled_from(["", ":ro", ":rshared", ":z,rw", ":ro,Z", ":/x"])
MOUNT = st.builds(lambda a, b, c: f"{a}:{b}{c}", SOURCE, PATH | st.just("/x"), MODE)
LONG_MOUNT = st.builds(
    lambda kind, key, source, more: f"type={kind},{key}={source},target=/x{more}", st.sampled_from(["bind", "volume", "tmpfs",
    "npipe"]),
    st.sampled_from(["src", "source", "SOURCE"]), SOURCE,
    st.sampled_from(["", ",readonly", ",bind-propagation=rshared", ",volume-opt=device=/", ",source=/etc"]),
)  # fmt: skip
DEVICE = st.builds(lambda a, b: f"{a}{b}", PATH | st.sampled_from(["/dev/infiniband", "/dev/nvidia0", "vendor.com/x=all",
"nvidia.com/gpu=all"]),
                   st.sampled_from(["", ":/dev/x", ":rwm", ":/dev/x:rwm", "/../sda", "\n/dev/sda"]))  # fmt: skip
NAMES = ["AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "API_KEY", "FOO", "HOME", "PORT", "OPENAI_API_KEY", "DATABASE_URL"]
VARIABLE = st.sampled_from(NAMES)
REFERRING = st.builds(
    lambda how, name: how.replace("N", name, 1), st.sampled_from(["$N", "${N}", "${N:-d}", "${N:?no}", "a${N}b", "$${N}",
    "${X:-${N}}", "${X:-$}{N}", "$$N",
                                                                 "${N-", "%N%", "`N`", "$(N)"]), VARIABLE,
)  # fmt: skip
SECRET = st.sampled_from(["hunter2222", "hf_" + "a1" * 12, "http://u:pw12345@h/", "Bearer " + "ab1" * 10])
ENTRY = st.one_of(
    VARIABLE,
    st.builds(lambda name, value: f"{name}={value}", VARIABLE | st.just("X"), REFERRING | SECRET | st.just("1")),
)
FLAGS: dict[str, st.SearchStrategy[str]] = {
    "volume": MOUNT, "mount": LONG_MOUNT, "device": DEVICE, "env": ENTRY, "env-file": PATH | st.sampled_from([".env",
    "/proc/self/environ"]),
    "privileged": st.sampled_from(["true", "True", "1", "t", "yes", "false"]), "pid": st.sampled_from(["host", "container:x",
    "HOST", ""]),
    "ipc": st.sampled_from(["host", "container:x", "private"]), "network": st.sampled_from(["host", "container:x",
    "ns:/proc/1", "llm", "bridge"]),
    "net": st.sampled_from(["container:x", "host"]), "userns": st.just("host"), "uts": st.just("host"),
    "cgroupns": st.just("host"),
    "cap-add": st.sampled_from(["ALL", "SYS_ADMIN", "sys_admin ", "CAP_SYS_PTRACE", "IPC_LOCK", "BPF"]),
    "security-opt": st.sampled_from(["seccomp=unconfined", "apparmor:unconfined", "label=disable", "no-new-privileges"]),
    "group-add": st.sampled_from(["docker", "0", "video", "999"]), "runtime": st.sampled_from(["nvidia", "kata", "/bin/sh"]),
    "log-driver": st.sampled_from(["syslog", "json-file", "fluentd"]), "log-opt": st.sampled_from(["syslog-address=tcp://e:1",
    "max-size=1m", "env=X"]),
    "tmpfs": st.sampled_from(["/x", "/x:dev", "/x:size=1g", "/x:rshared"]), "gpus": st.sampled_from(["all",
    "driver=cdi,device=a/b=c", '"device=0",driver=x', "9"]),
    "volumes-from": st.just("other"), "device-cgroup-rule": st.just("a *:* rwm"), "cgroup-parent": st.just("/"),
    "sysctl": st.just("kernel.x=1"),
    "oom-score-adj": st.sampled_from(["-1000", "5"]), "user": st.sampled_from(["0:docker", "root", "1000"]),
    "use-api-socket": st.just("true"),
    "ulimit": st.sampled_from(["rtprio=99", "memlock=-1", "nice=5"]), "add-host": st.just("a:1.2.3.4"),
    "label": st.just("dev.sparkctl.profile=x"),
    "restart": st.just("always"), "entrypoint": st.sampled_from(["bash", "/x"]), "publish": st.sampled_from(["80:80", "22"]),
}  # fmt: skip
FLAG = st.sampled_from(sorted(FLAGS)).flatmap(lambda name: FLAGS[name].map(lambda value: (name, value)))
SEVERAL = st.lists(FLAG, max_size=6)
COMMAND = st.sampled_from(
    ["", "vllm serve o/m --port 8000", "vllm serve /models/../x --api-key ${OPENAI_API_KEY}",
    "sglang serve --model-path o/m --x $FOO",
     "trtllm-serve o/m --tp_size 2", "bash -c 'export X=${AWS_SECRET_ACCESS_KEY}; vllm serve o/m'",
     "prog --password hunter2222 --y {env_X}",
     'prog "${DATABASE_URL:-x}" -m']
)  # fmt: skip
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 1 << 70) | st.floats() | st.text(max_size=8) | st.sampled_from(["..",
    "/:/host", "${FOO}", "host", "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.sampled_from(["name", "source",
    "path"]), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
BESIDE = st.fixed_dictionaries(
    {"engine": st.sampled_from(["container", "vllm", "trtllm"])},
    optional={
        "name": st.sampled_from(["mine", "../x"]), "nodes": st.integers(0, 9), "mounts": st.lists(MOUNT, max_size=2),
        "env": st.lists(st.tuples(VARIABLE, REFERRING), max_size=2), "env_file": PATH, "stop_grace": st.floats(0, 100),
        "container": st.fixed_dictionaries({}, optional={"network": FLAGS["network"], "gpus": FLAGS["gpus"],
        "name": st.just("other")}),
        "start": st.fixed_dictionaries({}, optional={"guard": st.sampled_from([None, [1, None, None], [None] * 3]),
        "health": st.just("/h")}),
        "placeholders": st.dictionaries(st.just("env_X"), REFERRING, max_size=1), "unsaid": st.just(["ipc"]),
        "devices": st.just(["/dev/sda"]),
        "options": st.just([["privileged", "true"]]), "model": st.just({"path": "/models/../../etc"}), "extra": st.just([["a",
        "1"]]),
    },
)  # fmt: skip
DAMAGED = st.builds(lambda whole, key, junk: {**whole, key: junk}, BESIDE, st.sampled_from(["name", "nodes", "mounts", "env",
"model", "start", "extra",
                    "container", "stop_grace", "title", "engine", "placeholders", "unsaid", "patched_flags"]), JUNK)  # fmt: skip
SAID = st.none() | (BESIDE | DAMAGED).map(json.dumps)


def build_docker_words(flags: list[tuple[str, str]], equals: bool) -> list[str]:
    return [word for name, value in flags for word in ([f"--{name}={value}"] if equals else [f"--{name}", value])]


def import_and_judge(text: str, origin: str) -> None:
    """Import a text; where it makes a profile, look at what Docker would be asked for."""
    try:
        written = import_and_check(text, origin)
        assert_harmless(written)
    except SparkctlError:
        return
    accounts = written.imported.ledger.accounts
    assert all(account.allow for account in accounts if account.fate is KeyOutcome.WITHHELD)
    fields = {(account.to, account.value) for account in accounts if account.fate is KeyOutcome.MAPPED}
    for mount in written.profile.mounts:
        assert ("mounts", mount) in fields
    for name, _ in written.profile.env:
        assert (f"env.{name}", None) in fields


@QUIET
@given(SEVERAL, COMMAND, SAID, st.booleans(), st.booleans())
def test_a_docker_line(
    flags: list[tuple[str, str]], command: str, beside: str | None, equals: bool, bare: bool
) -> None:
    words = build_docker_words(flags, equals)
    shown = " ".join(words) if bare else shlex.join(words)  # bare: a shell fills in what stands there
    head = f"# sparkctl: {beside}\n" if beside else ""
    import_and_judge(f"{head}docker run {shown} a/vllm:1 {command}\n", "pasted")


@QUIET
@given(SEVERAL, COMMAND, SAID)
def test_a_unit(flags: list[tuple[str, str]], command: str, beside: str | None) -> None:
    head = f"# sparkctl: {beside}\n" if beside else ""
    words = shlex.join(build_docker_words(flags, equals=False)).replace("\n", " ")
    import_and_judge(
        f"{head}[Service]\nEnvironment=X=1\nEnvironmentFile=/etc/x\nExecStart=/usr/bin/docker run {words} a/vllm:1 {command}\n",
        "x.service",
    )


KEYS = {
    "volume": "volumes", "device": "devices", "env": "environment", "env-file": "env_file", "network": "network_mode",
    "cap-add": "cap_add",
    "security-opt": "security_opt", "group-add": "group_add", "userns": "userns_mode", "volumes-from": "volumes_from",
    "device-cgroup-rule": "device_cgroup_rules", "cgroup-parent": "cgroup_parent", "sysctl": "sysctls",
    "oom-score-adj": "oom_score_adj",
    "publish": "ports", "add-host": "extra_hosts", "ulimit": "ulimits", "label": "labels", "use-api-socket": "use_api_socket",
}  # fmt: skip
LISTS = (
    "volumes",
    "devices",
    "environment",
    "env_file",
    "cap_add",
    "security_opt",
    "group_add",
    "ports",
    "extra_hosts",
    "tmpfs",
    "labels",
)
DETAILED = st.fixed_dictionaries({"type": st.sampled_from(["bind", "volume", "tmpfs"]),
"source": SOURCE, "target": PATH}, optional={
    "bind": st.just({"propagation": "rshared"}), "volume": st.just({"subpath": "../x"}), "read_only": JUNK})  # fmt: skip


@QUIET
@given(SEVERAL, COMMAND, SAID, st.lists(DETAILED, max_size=2), st.dictionaries(st.sampled_from([*KEYS.values(), "image",
"command", "deploy", "logging",
       "healthcheck", "gpus", "networks", "extends", "secrets", "configs", "ulimits", "entrypoint", "tmpfs", "init",
       "shm_size"]), JUNK, max_size=2),
       st.booleans())  # fmt: skip
def test_a_compose_file(
    flags: list[tuple[str, str]],
    command: str,
    beside: str | None,
    mounts: list[object],
    junk: dict[str, object],
    merged: bool,
) -> None:
    service: dict[str, Any] = {"image": "a/vllm:1", "command": command}
    for name, value in flags:
        key = KEYS.get(name, name.replace("-", "_"))
        if key in LISTS:
            service.setdefault(key, []).append(value)
        else:
            service[key] = True if value == "true" else value
    service.setdefault("volumes", []).extend(mounts)
    service |= junk
    document: dict[str, Any] = {
        "services": {"llm": service},
        "volumes": {"models": {"driver_opts": {"device": "/", "o": "bind"}}},
    }
    if beside is not None:
        document["x-sparkctl"] = beside
    text = yaml.safe_dump(document, sort_keys=False)
    if merged:  # by an anchor and a merge key
        text = yaml.safe_dump({"x-base": service}, sort_keys=False).replace("x-base:", "x-base: &base", 1)
        text += "services:\n  llm:\n    <<: *base\n    image: a/vllm:1\n"
    import_and_judge(text, "x.yaml")


@QUIET
@given(SEVERAL, COMMAND, SAID, st.lists(MOUNT, max_size=2), st.dictionaries(VARIABLE | st.just("X"),
REFERRING | SECRET, max_size=2),
       st.dictionaries(st.sampled_from(["defaults", "env", "metadata", "executor_config", "volumes", "readiness", "overrides",
       "min_nodes", "container",
       "command", "runtime", "model", "mods", "build_args", "pre_exec", "services", "include", "name"]), JUNK, max_size=2),
       st.sampled_from(["vllm", "trtllm", "sglang", "ollama", None]), st.sampled_from(["1", "2"]))  # fmt: skip
def test_a_recipe(
    flags: list[tuple[str, str]], command: str, beside: str | None, mounts: list[str], env: dict[str, str],
    junk: dict[str, object],
    runtime: str | None, version: str,
) -> None:  # fmt: skip
    executor: dict[str, Any] = {}
    for name, value in flags:
        executor.setdefault(name.replace("-", "_"), []).append(value)
    document: dict[str, Any] = {
        "recipe_version": version, "model": "o/m", "container": "a/vllm:1",
        "command": command or None, "defaults": {"port": 8000, "x": "${FOO}"},
        "env": env, "volumes": mounts, "executor_config": executor, "min_nodes": 2,
        "metadata": {} if beside is None else {"sparkctl": beside},
    }  # fmt: skip
    if runtime is not None:
        document["runtime"] = runtime
    import_and_judge(yaml.safe_dump(document | junk, sort_keys=False), "x.yaml")


@QUIET
@given(st.dictionaries(st.sampled_from(["engine", "model", "image", "env", "extra_args", "parallel", "port", "name", "volumes",
"privileged"]), JUNK, max_size=4),
       st.dictionaries(VARIABLE, REFERRING | SECRET, max_size=2))  # fmt: skip
def test_a_list_of_services(junk: dict[str, object], env: dict[str, str]) -> None:
    import_and_judge(
        yaml.safe_dump({"services": [{"engine": "vllm", "model": "o/m", "image": "a/x:1", "env": env} | junk]}),
        "x.yaml",
    )


@QUIET
@given(
    SEVERAL,
    st.lists(st.tuples(SOURCE, PATH), max_size=2),
    st.lists(DEVICE, max_size=2),
    st.sampled_from(["container:x", "host", None]),
)
def test_a_container(
    flags: list[tuple[str, str]], mounts: list[tuple[str, str]], devices: list[str], shared: str | None
) -> None:
    simple = [pair for pair in flags if pair[0] not in ("volume", "env", "env-file", "device", "entrypoint", "label")]
    run = DockerRunSpec(
        name="c", image="a/x:1", entrypoint=None, command=("prog", "${AWS_SECRET_ACCESS_KEY}"), env=(("X", "${FOO}"),
        ("DB_PASSWORD", "hunter2222")),
        mounts=tuple(Mount(source, target) for source, target in mounts),
        gpus=None, shm_size=None, ipc=shared, network=shared, ulimits=(),
        devices=tuple(devices), options=tuple(simple), labels=(),
    )  # fmt: skip
    try:
        assert_harmless(
            check_imported_profile(
                import_container(run, "spark1", ImportOptions(engines=engines.engine_names()), simple)
            )
        )
    except SparkctlError:
        return
