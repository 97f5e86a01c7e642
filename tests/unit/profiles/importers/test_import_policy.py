"""What an import takes unasked: only what is on the list, by whichever way it comes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparkctl import engines
from sparkctl.commands.import_profile import ImportedProfile, ImportProfile, check_imported_profile, import_from_source
from sparkctl.engines.base import EngineRank
from sparkctl.engines.memory_estimate import map_path_to_node
from sparkctl.errors import InvalidInput
from sparkctl.model.launch_plan import DockerRunSpec, GuardRule
from sparkctl.model.node import Node, NodeName
from sparkctl.model.profile import Profile
from sparkctl.profiles.docker_options import DOCKER_OPTIONS
from sparkctl.profiles.field_types import find_misleading_part
from sparkctl.profiles.importers import import_policy
from sparkctl.profiles.importers.profile_draft import KeyOutcome
from sparkctl.profiles.importers.profile_importer import ImportOptions, import_container
from sparkctl.profiles.launch_planning import build_launch_plan
from sparkctl.profiles.validation import validate_profile
from sparkctl.profiles.yaml_reader import parse_yaml
from sparkctl.views.profiles.profile_view import build_import_json, format_import_report
from tests.unit.profiles.importers.import_text import (
    get_container_argv,
    import_and_check,
    import_docker_line,
    list_keys_of,
)

BESIDE = {
    "engine": "container", "name": "vllm", "stop_grace": 30.0, "nodes": 1, "model": {}, "start": {"guard": [None, None, None]},
    "mounts": ["/:/host", "/var/run/docker.sock:/var/run/docker.sock"], "env_file": "/proc/self/environ",
    "env": [["X", "${AWS_SECRET_ACCESS_KEY}"]], "container": {"network": "container:other", "gpus": "driver=cdi,device=x"},
}  # fmt: skip


def build_source(kind: str, beside: object) -> tuple[str, str]:
    """Return a source of a kind with this beside it, and what its file is called."""
    text = beside if isinstance(beside, str) else json.dumps(beside)
    if kind == "compose":
        return f"services:\n  llm: {{image: a/x:1, command: [sleep, '1']}}\nx-sparkctl: '{text}'\n", "x.yaml"
    if kind == "docker":
        return f"# sparkctl: {text}\ndocker run --gpus all a/x:1 sleep 1\n", "x.txt"
    if kind == "systemd":
        return f"# sparkctl: {text}\n[Service]\nExecStart=/usr/bin/docker run --gpus all a/x:1 sleep 1\n", "x.service"
    return (
        f"model: o/m\ncontainer: a/x:1\nruntime: vllm\ncommand: vllm serve o/m\nmetadata:\n  sparkctl: '{text}'\n",
        "x.yaml",
    )


FORMS = ("compose", "docker", "systemd", "sparkrun")


def describe_reach(profile: Profile) -> tuple[object, ...]:
    box = profile.container
    own = tuple(mount for mount in profile.mounts if not mount.startswith("~/.cache/huggingface:"))
    return own, profile.env_file, profile.env, box.devices, box.options


@pytest.mark.parametrize("kind", FORMS)
def test_what_stands_beside_a_form_brings_nothing_in(kind: str) -> None:
    written = import_and_check(*build_source(kind, BESIDE))
    assert describe_reach(written.profile) == ((), None, (), (), ())
    assert written.profile.container.network in (None, "host")
    assert written.profile.container.gpus in (None, "all")
    withheld = list_keys_of(written, KeyOutcome.WITHHELD)
    assert any("container.network" in key for key in withheld)
    assert any("container.gpus" in key for key in withheld)
    said = {**withheld, **list_keys_of(written, KeyOutcome.UNSUPPORTED)}
    assert all(any(word in key for key in said) for word in ("mounts", "env_file", "env", "start.guard"))
    assert any("Anybody can write that" in remark.text for remark in written.imported.ledger.remarks)


@pytest.mark.parametrize("kind", FORMS)
@pytest.mark.parametrize(
    ("beside", "field", "words"),
    [
        ({"engine": "container", "mounts": ["/:/host"]}, "", ""),
        ({"engine": 5}, "", "engine must be a text"),
        ({"engine": "vllm", "stop_grace": "x"}, "stop_grace", "must be a number of seconds"),
        ({"engine": "vllm", "nodes": {"a": 1}}, "nodes", "must be 1 to 8"),
        ({"engine": "vllm", "title": ["a"]}, "title", "must be text"),
        ({"engine": "vllm", "notes": "\ud800"}, "notes", "must be text"),
        ({"engine": "vllm", "model": []}, "model", "must be a map"),
        ({"engine": "vllm", "model": {"weights": 10**400}}, "model.weights", "must be a whole number"),
        ({"engine": "vllm", "start": {"timeouts": [1, 2]}}, "start.timeouts", "a list of a number"),
        ({"engine": "vllm", "extra": [["a", "{"]]}, "extra", "names with JSON"),
        ({"engine": "vllm", "nonsense": 1}, "nonsense", "write no such field"),
        ("[1]", "", "it is not a map"),
        ("{", "", "cannot be read"),
    ],
)
def test_a_malformed_object_beside_a_form_is_told_with_its_place(
    kind: str, beside: object, field: str, words: str
) -> None:
    text, origin = build_source(kind, beside)
    written = import_and_check(text, origin)
    assert written.profile.image == "a/x:1"
    line_number = next(at for at, row in enumerate(text.splitlines(), 1) if "sparkctl" in row)
    found = {
        key: why
        for key, why in list_keys_of(written, KeyOutcome.UNSUPPORTED).items()
        if f"{origin}:{line_number}: " in str(why)
    }
    assert [key for key, why in found.items() if field in key and words in str(why)] or not words


def test_placeholders_that_hold_each_other_end() -> None:
    many = {f"p{n}": f"{{p{n + 1}}}" * 2 for n in range(60)}
    written = import_and_check(
        "model: o/m\ncontainer: a/x:1\nruntime: vllm\ncommand: vllm serve o/m --xx '{{p0}}'\nmetadata:\n"
        f"  sparkctl: '{json.dumps({'engine': 'vllm', 'placeholders': many})}'\n",
        "x.yaml",
    )
    assert dict(written.profile.args)["xx"] == "{p1}{p1}"


@pytest.mark.parametrize(
    "device",
    [
        "/dev/infiniband/../nvme0n1", "/dev/dri/../sda:/dev/x:rwm", "/dev/nvidia/../../etc/x", "/dev/infiniband/..", "/dev/./sda",
        "/dev//sda", "/dev/infiniband/.", "/dev/nvidia.*", "/dev/dri:/x:y:z", "/dev/sda", "/dev", "vendor.com/class=all",
        "nvidia.com/gds=all", "/dev/infinibandx", "/DEV/dri", "/dev/dri\n/dev/sda",
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["docker", "compose", "sparkrun"])
def test_a_device_is_on_the_list_whole_or_not_taken(kind: str, device: str) -> None:
    quoted = json.dumps(device)
    texts = {
        "docker": (f"docker run --device '{device}' a/x:1", "pasted"),
        "compose": (f"services: {{a: {{image: 'a/x:1', devices: [{quoted}]}}}}\n", "x.yaml"),
        "sparkrun": (
            f"model: o/m\ncontainer: a/x:1\nruntime: vllm\nexecutor_config: {{devices: [{quoted}]}}\n",
            "x.yaml",
        ),
    }
    assert import_and_check(*texts[kind]).profile.container.devices == ()


@pytest.mark.parametrize(
    "device",
    ["/dev/infiniband", "/dev/infiniband/uverbs0", "/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap1",
    "/dev/dri/renderD128:/dev/dri/renderD128:rw",
     "/dev/kfd", "/dev/fuse", "nvidia.com/gpu=all", "nvidia.com/gpu=GPU-1:0"],
)  # fmt: skip
def test_gpus_and_network_adapters_need_no_question(device: str) -> None:
    assert import_docker_line(f"docker run --device {device} a/x:1").container.devices == (device,)


@pytest.mark.parametrize(
    "source",
    [
        "/", "//", "/./etc/ld.so.cache", "/models/../etc", "/models/./x", "/models//x", "/etc/models", "/proc/self/cache",
        "/run/models",
        "/var/run/docker.sock", "/var/run/models", "/var/lib/docker/models", "/home/ollama", "/home/llm/", "/home", "/root",
        "~", "~/",
        "~/.ssh", "~/models/.ssh", "/home/llm/.ssh", "~/.cache", "~/.cache/pip", "~/.aws/models", "~/.config/ollama",
        "/srv/llm/start.sh",
        "/home/me/drafts", "/home/me/animation", "~/hobbys/nimbus", "portainer_data", "data", "/usr/share/models",
        "/lib/cache", "/snap/models",
        "~ollama", "/dev/shm/../sda", "/home/me/.docker/models", "/data/models/secret.env",
    ],
)  # fmt: skip
def test_a_directory_that_is_not_of_models_is_withheld(source: str) -> None:
    written = import_and_check(f"docker run -v '{source}:/x' a/x:1")
    assert written.profile.mounts == ()
    assert list_keys_of(written, KeyOutcome.WITHHELD) or list_keys_of(written, KeyOutcome.UNSUPPORTED)


@pytest.mark.parametrize(
    "source",
    [
        "~/.cache/huggingface", "~/.cache/huggingface/", "~/models", "/home/me/models", "/models", "/data/models/Qwen3-8B",
        "/mnt/nvme/LLMs",
        "/home/me/.cache/vllm", "/root/.cache/flashinfer", "/opt/hf_cache", "/srv/AIModels/x", "~/.ollama",
        "/var/lib/ollama", "hf-cache",
        "ollama_data", "vllm", "/dev/shm", "/dev/infiniband", "/tank/model-weights", "~/.cache/torch_extensions",
        "/a b/models", "~/lora",
        "/tmp/tiktoken", "~/.local/share/ollama", "/raid/hfcache",
    ],
)  # fmt: skip
def test_directories_and_volumes_of_models_and_caches_need_no_question(source: str) -> None:
    assert import_docker_line(f"docker run -v '{source}:/x:ro' a/x:1").mounts == (f"{source}:/x:ro",)


@pytest.mark.parametrize(
    "flag",
    [
        "--security-opt seccomp=unconfined", "--security-opt apparmor=unconfined", "--security-opt systempaths=unconfined",
        "--security-opt seccomp:unconfined", "--security-opt label=disable", "--security-opt no-new-privileges:false",
        "--group-add docker", "--group-add 0", "--pid container:other", "--pid host", "--ipc container:other",
        "--network container:other", "--net=container:other", "--network ns:/proc/1/ns/net", "--cap-add NET_ADMIN",
        "--cap-add SYS_PTRACE",
        "--cap-add BPF", "--cap-add MKNOD", "--cap-add 'SYS_ADMIN '", "--cap-add all", "--cap-add cap_sys_admin", "--cap-add=ALL",
        "--privileged", "--privileged=true", "--privileged=1", "--log-driver syslog", "--log-opt syslog-address=tcp://evil:514",
        "--log-opt env=HF_TOKEN", "--runtime sysbox", "--oom-score-adj -1000", "--ulimit rtprio=99", "--user 1000:docker",
        "--tmpfs /x:dev", "--tmpfs /x/../y",         "--env-file /proc/self/environ", "--env-file ~/.env",
        "--env-file ../.env", "--env-file .env", "--env-file /etc/environment",
        "--mount type=bind,src=/etc,dst=/x", "--mount type=bind,source=/,target=/x,bind-propagation=rshared",
        "--mount type=volume,source=portainer_data,target=/x", "-v /etc:/x:rshared",
    ],
)  # fmt: skip
def test_a_flag_that_is_not_known_to_be_harmless_is_withheld(flag: str) -> None:
    written = import_and_check(f"docker run {flag} a/x:1")
    bare = import_and_check("docker run a/x:1").profile
    assert (written.profile.container, *describe_reach(written.profile)) == (bare.container, *describe_reach(bare))
    (account,) = written.imported.ledger.list_keys_by_outcome(KeyOutcome.WITHHELD)
    assert import_policy.normalize_allow_name(str(account.allow)) == account.allow
    allowed = import_and_check(f"docker run {flag} a/x:1", allow={account.allow})
    assert not allowed.imported.ledger.list_keys_by_outcome(KeyOutcome.WITHHELD)
    assert (allowed.profile.container, *describe_reach(allowed.profile)) != (bare.container, *describe_reach(bare))


@pytest.mark.parametrize(
    "flag",
    [
        "--ipc host", "--network host", "--network llm-net", "--shm-size 16g", "--ulimit memlock=-1", "--ulimit stack=67108864",
        "--cap-add IPC_LOCK", "--cap-add CAP_SYS_NICE", "--tmpfs /tmp:rw,size=4g,mode=1777", "--tmpfs /run",
        "--gpus '\"device=0,1\"'",
        "--gpus '\"device=0\",capabilities=utility'", "--runtime nvidia", "--security-opt no-new-privileges", "--user 1000:1000",
        "--group-add video", "--log-driver json-file", "--log-opt max-size=50m", "--add-host host.docker.internal:host-gateway",
        "-p 8000:8000", "--init", "--read-only", "--memory 100g", "--oom-score-adj 500", "-e A=b", "-e HF_TOKEN", "-w /x",
        "--cap-drop ALL",
    ],
)  # fmt: skip
def test_what_engines_usually_ask_for_is_not_withheld(flag: str) -> None:
    assert not list_keys_of(import_and_check(f"docker run {flag} a/x:1"), KeyOutcome.WITHHELD)


# --- variables ---


@pytest.mark.parametrize("variable", ["AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY", "DATABASE_URL", "SENTRY_DSN", "GITHUB_PAT",
"KUBECONFIG",
                                      "SSH_AUTH_SOCK", "DB_PASSWORD", "COOKIE", "hf_token", "FOO"])  # fmt: skip
@pytest.mark.parametrize("flag", ["-e {}", "-e X=${}", '-e "X=a${{{}:-}}b"'])
def test_a_variable_of_the_operators_is_not_given_away(variable: str, flag: str) -> None:
    for text in (f"docker run {flag.format(variable)} a/x:1", f"docker run a/x:1 prog --x ${variable} --y 1"):
        written = import_and_check(text)
        assert variable not in written.text
        assert len(list_keys_of(written, KeyOutcome.WITHHELD)) == 1
        assert f"${{{variable}" in import_and_check(text, allow={f"env={variable}"}).text


def test_a_variable_with_a_default_leaves_the_default() -> None:
    written = import_and_check('docker run -e "X=${FOO:-one} two" a/x:1 prog --yy "${BAR:-3}" --zz ${PORT:-8000}')
    assert written.profile.env == (("X", "one two"),)
    assert written.profile.args == (("yy", "3"), ("zz", "${PORT:-8000}"))
    assert "its default is used" in str(list_keys_of(written, KeyOutcome.WITHHELD)["-e X"])


@pytest.mark.parametrize(
    "text",
    [
        "${FOO:-$${}AWS_SECRET_ACCESS_KEY}",
        "${FOO:-$}{AWS_SECRET_ACCESS_KEY}",
        "${FOO:-$}${BAR:-}{AWS_SECRET_ACCESS_KEY}",
        "${HF_HOME:-}${FOO:-$}{AWS_SECRET_ACCESS_KEY:-x}",
    ],
)
def test_a_default_cannot_make_a_variable_again(text: str) -> None:
    compose = {"services": {"a": {"image": "a/x:1", "command": ["prog", "--xx", text], "environment": {"X": text}}}}
    written = import_and_check(json.dumps(compose), "x.yaml")
    made = build_launch_plan(
        written.profile, Node(name=NodeName("s"), host="h"), home="/home/me", operator="o",
        environ={"AWS_SECRET_ACCESS_KEY": "canary"},
    )  # fmt: skip
    assert "canary" not in repr((made.env, made.command))
    assert "AWS_SECRET_ACCESS_KEY" in repr((made.env, made.command))  # as text


@pytest.mark.parametrize("variable", ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "NGC_API_KEY", "VLLM_API_KEY"])
def test_a_token_for_models_goes_in_and_is_said(variable: str) -> None:
    written = import_and_check(f"docker run -e {variable} a/x:1")
    assert written.profile.env == ((variable, f"${{{variable}}}"),)
    assert any(f"takes {variable} from your own environment" in one.text for one in written.imported.ledger.remarks)


@pytest.mark.parametrize("variable", ["PORT", "VLLM_PORT", "MODEL", "MODEL_ID", "HF_HOME", "MAX_MODEL_LEN", "NCCL_DEBUG",
"CTX", "HOME", "TP",
                                      "GPU_MEMORY_UTILIZATION", "MODEL_HANDLE", "CUDA_VISIBLE_DEVICES",
                                      "ORPHEUS_API_URL"])  # fmt: skip
def test_a_setting_needs_no_question(variable: str) -> None:
    assert import_docker_line(f"docker run -e X=${{{variable}}} a/x:1").env == (("X", f"${{{variable}}}"),)


def test_a_secret_in_the_source_asks_for_no_other_secret_of_the_operators() -> None:
    written = import_and_check("docker run -e AWS_SECRET_ACCESS_KEY=hunter2222 a/x:1 prog --db-password hunter3333")
    assert written.profile.env == ()
    assert written.profile.args == ()
    assert "hunter" not in written.text


# --- what else a start takes from the operator ---


def test_engines_whose_ranks_log_in_get_no_keys_unasked() -> None:
    found = {
        name
        for name in engines.engine_names()
        if engines.load_engine(name).list_ssh_key_mounts(EngineRank(0, ("a", "b")))
    }
    assert found == {"trtllm"}
    text = "model: o/m\ncontainer: a/x:1\nruntime: trtllm\nmin_nodes: 2\ncommand: trtllm-serve o/m --tp_size 2\n"
    written = import_and_check(text, "x.yaml")
    assert (written.profile.engine, written.profile.nodes) == ("trtllm", 1)
    assert "~/.ssh" in str(list_keys_of(written, KeyOutcome.WITHHELD)["min_nodes"])
    assert import_and_check(text, "x.yaml", allow={"ssh"}).profile.nodes == 2


def test_the_guard_stays_on() -> None:
    for guard in (None, [1 << 20, None, None], [2 << 30, None, 1.0]):
        text, origin = build_source("docker", {"engine": "container", "start": {"guard": guard}})
        assert import_and_check(text, origin).profile.start.guard == GuardRule()
        assert import_and_check(text, origin, allow={"guard"}).profile.start.guard != GuardRule()
    text, origin = build_source("docker", {"engine": "container", "floor_memory": 1 << 20})
    assert import_and_check(text, origin).profile.floor_memory is None
    assert import_and_check(text, origin, allow={"guard"}).profile.floor_memory == 1 << 20


def test_a_running_container_is_held_to_the_same() -> None:
    run = DockerRunSpec(
        name="c", image="a/x:1", entrypoint=None, command=(), env=(), mounts=(), gpus=None, shm_size=None, ipc="container:x",
        network="container:y", ulimits=(), devices=("/dev/infiniband/../sda",), options=(("privileged", "true"), ("pid",
        "host")), labels=(),
    )  # fmt: skip
    wishes = ImportOptions(engines=engines.engine_names())
    written = check_imported_profile(
        import_container(run, "spark1", wishes, [("mount", "type=bind,source=/,target=/host")])
    )
    assert describe_reach(written.profile) == ((), None, (), (), ())
    assert len(list_keys_of(written, KeyOutcome.WITHHELD)) == 6


# --- the ledger and --allow ---


def test_nothing_enters_a_profile_without_an_account() -> None:
    written = import_and_check("model: o/m\ncontainer: a/x:1\nruntime: vllm\ncommand: vllm serve o/m\n", "x.yaml")
    found = {account.to: account.key for account in written.imported.ledger.list_keys_by_outcome(KeyOutcome.MAPPED)}
    for field in ("mounts", "container.ipc", "container.network", "container.shm_size"):
        assert found[field] == f"sparkrun's own {field}"


@pytest.mark.parametrize(
    ("written", "meant"),
    [("--cap_add", "cap-add"), ("CAP-ADD", "cap-add"), ("volumes", "mount"), ("-v", "mount"), ("env_file", "env-file"),
    ("Devices", "device"),
     ("pre_exec", "hooks"), ("container.options.pid", "pid"), ("network_mode", "network"), ("all", "all")],
)  # fmt: skip
def test_a_name_may_be_spelled_as_the_source_does(written: str, meant: str) -> None:
    assert import_policy.parse_allow_names([written]) == {meant}


def test_every_flag_of_docker_has_a_name_and_a_wrong_one_is_said() -> None:
    assert all(
        import_policy.normalize_allow_name(name) == name for name in (*DOCKER_OPTIONS, *import_policy.ALLOW_NAMES)
    )
    with pytest.raises(ValueError, match="did you mean `privileged`"):
        import_policy.parse_allow_names(["privilegd"])


def test_what_is_allowed_by_one_name_is_no_more_than_that() -> None:
    text = "docker run --privileged -v /etc:/e -v /srv:/s --pid host a/x:1"
    assert import_and_check(text, allow={"mount=/etc"}).profile.mounts == ("/etc:/e",)
    assert import_and_check(text, allow={"mount=/srv:/s"}).profile.mounts == ("/srv:/s",)
    found = import_and_check(text, allow={"privileged"})
    assert (found.profile.mounts, found.profile.container.options) == ((), (("privileged", "true"),))


def test_the_report_says_how_each_is_taken_and_masks_no_reason() -> None:
    written = import_and_check("docker run -e OPENAI_API_KEY -v /etc:/e a/x:1")
    lines = format_import_report(written.imported)
    assert any(row.endswith("of your own environment would go into the container (--allow env)") for row in lines)
    assert any(
        row.endswith("/etc on the node is not a directory for models or caches (--allow mount)") for row in lines
    )
    assert [one["allow"] for one in build_import_json(written.imported, "", None, cautions=())["withheld"]] == [
        "env",
        "mount",
    ]  # type: ignore[attr-defined]


def test_of_several_under_one_name_the_report_says_how_one_alone_is_taken() -> None:
    text = "docker run -v /srv:/s -v /var/run/docker.sock:/d -v '/a b:/ab' --device /dev/sda a/x:1"
    written = import_and_check(text)
    lines = format_import_report(written.imported)
    assert [row.rpartition("(")[2] for row in lines if "withheld  " in row] == [
        "--allow mount=/srv:/s)", "--allow mount=/var/run/docker.sock:/d)", "--allow 'mount=/a b:/ab')", "--allow device)",
    ]  # fmt: skip
    withheld = build_import_json(written.imported, "", None, cautions=())["withheld"]
    for one, mount in zip(withheld, ("/srv:/s", "/var/run/docker.sock:/d", "/a b:/ab"), strict=False):  # type: ignore[call-overload]
        assert import_and_check(text, allow={one["allow"]}).profile.mounts == (mount,)


def test_an_allowed_value_that_the_source_does_not_have_is_named() -> None:
    text = "docker run -v /srv:/s --privileged a/x:1"
    notes = [one.text for one in import_and_check(text, allow={"mount=/sr", "privileged"}).imported.ledger.remarks]
    assert [one for one in notes if "--allow" in one] == [
        "--allow mount=/sr had no effect: the source has nothing of that name with exactly this value."
    ]
    notes = [one.text for one in import_and_check(text, allow={"mount=/srv", "privileged"}).imported.ledger.remarks]
    assert not [one for one in notes if "--allow" in one]


# --- files of the operator's ---


def write_source(directory: Path, name: str) -> Path:
    path = directory / "compose.yaml"
    path.write_text(f"services: {{a: {{image: 'a/x:1', env_file: {json.dumps(name)}}}}}\n")
    return path


def import_from_file(path: Path, **more: object) -> ImportedProfile:
    return import_from_source(str(path), ImportProfile(**more))  # type: ignore[arg-type]


def test_a_file_of_variables_comes_from_beside_the_source_alone(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    (repo / "sub").mkdir(parents=True)
    for file in (tmp_path / "outside.env", repo / "own.env", repo / "sub" / "x.env"):
        file.write_text("A=b\n")
    (repo / "link.env").symlink_to(tmp_path / "outside.env")
    (repo / "kernel.env").symlink_to("/proc/self/environ")
    (repo / "near.env").symlink_to("own.env")
    assert import_from_file(write_source(repo, "own.env")).profile.env_file == "own.env"
    assert import_from_file(write_source(repo, "./own.env")).profile.env_file == "./own.env"
    assert import_from_file(write_source(repo, "near.env")).profile.env_file == "near.env"
    for name in ("link.env", "kernel.env", "missing.env", "../outside.env", str(repo / "own.env"), "/proc/self/environ",
    "sub/x.env",
                 "sub/../own.env", "~/own.env", ".", "..", "sub"):  # fmt: skip
        written = import_from_file(write_source(repo, name))
        assert written.profile.env_file is None, name
        assert list_keys_of(written, KeyOutcome.WITHHELD)


def test_a_profile_that_will_lie_elsewhere_names_no_file_of_that_place(tmp_path: Path) -> None:
    (tmp_path / "own.env").write_text("A=b\n")
    path = write_source(tmp_path, "own.env")
    assert import_from_file(path, directory=tmp_path).profile.env_file == "own.env"
    assert import_from_file(path, directory=tmp_path / "library").profile.env_file is None
    assert (
        import_from_file(path, directory=tmp_path / "library", allow=frozenset({"env-file"})).profile.env_file
        == "own.env"
    )


def test_an_include_follows_no_link_out_of_its_directory(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    (tmp_path / "mine.yaml").write_text("container: a/x:1\nenv: {X: canary}\n")
    (repo / "mine.yaml").symlink_to(tmp_path / "mine.yaml")
    (repo / "top.yaml").write_text("include: mine\nmodel: o/m\nruntime: vllm\ncommand: vllm serve o/m\n")
    assert "canary" not in import_from_file(repo / "top.yaml").text


# --- every profile ---


@pytest.mark.parametrize(("path", "part"), [("/a/../b", ".."), ("/./a", "."), ("/a//b", "//"), ("//a", "//"), ("/a/", None),
("/", None),
                                            ("~/a", None), ("/a..b/.c", None), ("/a/..", "..")])  # fmt: skip
def test_a_part_that_leads_elsewhere_is_found(path: str, part: str | None) -> None:
    assert find_misleading_part(path) == part


@pytest.mark.parametrize(
    "body",
    ["mounts: ['/data/../etc:/x']", "mounts: ['/data:/x/../y']", "mounts: ['~/./a:/x']", "mounts: ['/data//a:/x']",
     "container: {devices: [/dev/infiniband/../sda]}", "container: {devices: ['/dev/dri:/dev/../x']}"],
)  # fmt: skip
def test_no_profile_has_such_a_path(body: str) -> None:
    tree = parse_yaml(f"schema: 1\nname: aa\nengine: vllm\nimage: x/y:1\n{body}\n".encode(), "aa.yaml")
    with pytest.raises(InvalidInput, match="write the real path"):
        validate_profile(tree, Path("aa.yaml"), shipped=False)


def test_a_models_path_leads_nowhere_out_of_its_mount() -> None:
    profile = import_docker_line("docker run -v ~/models:/models a/vllm:1 vllm serve /models/../../.ssh")
    made = build_launch_plan(
        profile,
        Node(name=NodeName("s"), host="h"),
        home="/home/me",
        operator="o",
        environ={},
    )
    assert map_path_to_node(profile.model.path, made) is None
    assert get_container_argv(profile)[2] == "/models/../../.ssh"


@pytest.mark.parametrize("allowed", [(), ("build",)])
def test_a_build_runs_code_and_comes_only_if_allowed(allowed: tuple[str, ...]) -> None:
    beside = {"engine": "container", "name": "x", "build": "https://example.org/x.git#main"}
    written = import_and_check(*build_source("docker", beside), allow=allowed)
    assert written.profile.build == (beside["build"] if allowed else None)


def test_a_withheld_secret_is_not_said_to_be_taken_from_the_environment() -> None:
    written = import_and_check("docker run -e AWS_SECRET=foo -e HF_TOKEN=hf_x vllm/vllm-openai:v1 --model m\n")
    assert "env.AWS_SECRET" in " ".join(list_keys_of(written, KeyOutcome.WITHHELD)).replace("-e ", "env.")
    remarks = " ".join(one.text for one in written.imported.ledger.remarks)
    assert "AWS_SECRET" not in remarks
    assert "HF_TOKEN" in remarks
