"""Compose files."""

from __future__ import annotations

import pytest
import yaml

from sparkctl.errors import InvalidInput
from sparkctl.profiles.importers.profile_draft import KeyOutcome
from tests.unit.profiles.importers.import_text import get_container_argv, import_and_check, list_keys_of

FILE = """\
services:
  llm:
    image: vllm/vllm-openai:${TAG:-v0.19.1}
    container_name: qwen
    command: >
      --model Qwen/Qwen3-8B --port 8000
      --max-model-len ${CTX:-8192} --api-key ${KEY} --chat "a $$b"
    environment:
      - HF_TOKEN
      - NCCL_DEBUG=INFO
      - NUMBER=1.10
    env_file: .env
    ports: ["8000:8000", {target: 22, published: 2222, host_ip: 127.0.0.1, protocol: tcp}]
    volumes:
      - ~/.cache/huggingface:/root/.cache/huggingface
      - {type: bind, source: /data/models, target: /models, read_only: true}
      - cache:/cache
      - ./local:/local
      - /etc/passwd:/p
    shm_size: 16g
    ipc: host
    ulimits: {memlock: -1, nofile: {soft: 1024, hard: 2048}}
    deploy:
      resources:
        reservations: {devices: [{driver: nvidia, count: all, capabilities: [gpu]}], memory: 4g}
        limits: {memory: 100g}
      replicas: 1
    healthcheck: {test: [CMD, curl, -f, "http://localhost:8000/health"], interval: 30s}
    logging: {driver: json-file, options: {max-size: 50m}}
    restart: unless-stopped
    stop_grace_period: 1m30s
    depends_on: [db]
    labels: {a: b}
    privileged: true
    extra_hosts: ["a:1.2.3.4"]
    oom_kill_disable: true
    init: true
    x-mine: 1
  db: {image: "postgres:16"}
volumes: {cache: {}, other: {driver: nfs}}
version: "3.8"
"""


def test_a_service_lands_field_by_field() -> None:
    written = import_and_check(FILE, "compose.yaml", service="llm", is_beside=lambda name: name == ".env")
    profile = written.profile
    assert (profile.name, profile.engine, profile.image) == ("llm", "vllm", "vllm/vllm-openai:v0.19.1")
    assert get_container_argv(profile) == (
        "--model", "Qwen/Qwen3-8B", "--host", "0.0.0.0", "--port", "8000", "--max-model-len", "${CTX:-8192}",
        "--chat", "a $b",
    )  # fmt: skip
    assert profile.env == (("HF_TOKEN", "${HF_TOKEN}"), ("NCCL_DEBUG", "INFO"), ("NUMBER", "1.10"))
    assert profile.env_file == ".env"
    assert profile.mounts == (
        "~/.cache/huggingface:/root/.cache/huggingface",
        "/data/models:/models:ro",
        "cache:/cache",
    )
    box = profile.container
    assert (box.name, box.gpus, box.shm_size, box.ipc) == ("qwen", None, "16g", "host")
    assert box.ulimits == (("memlock", "-1"), ("nofile", "1024:2048"))
    assert box.options == (
        ("publish", "8000:8000"), ("publish", "127.0.0.1:2222:22/tcp"), ("memory", "100g"), ("log-driver", "json-file"),
        ("log-opt", "max-size=50m"), ("add-host", "a:1.2.3.4"), ("init", "true"),
    )  # fmt: skip
    assert (profile.start.health, profile.stop_grace) == ("/health", 90.0)
    assert set(list_keys_of(written, KeyOutcome.WITHHELD)) == {
        "volumes /etc/passwd:/p",
        "privileged",
        "args.api-key KEY",
    }
    assert set(list_keys_of(written, KeyOutcome.UNSUPPORTED)) == {
        "volumes ./local:/local", "deploy.resources.reservations.memory", "deploy.replicas", "healthcheck.interval", "restart",
        "depends_on", "labels.a", "services.db", "volumes.other",
    }  # fmt: skip
    assert {key for key, _ in profile.extra} == {"oom_kill_disable", "x-mine"}


def test_several_services_want_a_choice() -> None:
    both = (
        "services:\n  llm: {image: 'vllm/vllm-openai:v1', command: --model m}\n  db: {image: 'postgres:15'}\n"
        "  talk: {image: 'lmsysorg/sglang:v1', command: python3 -m sglang.launch_server --model-path m}\n"
    )
    with pytest.raises(InvalidInput, match="3 services: llm, db, talk") as error:
        import_and_check(both, "compose.yaml")
    assert error.value.hint == "--service llm or --service talk"
    with pytest.raises(InvalidInput, match="no service llmm; did you mean `llm`"):
        import_and_check(FILE, "compose.yaml", service="llmm")


def test_the_only_engine_among_several_services_is_read() -> None:
    text = "services:\n  db: {image: 'postgres:15'}\n  llm: {image: 'a/b:1', command: vllm serve Qwen/Qwen3-8B}\n"
    written = import_and_check(text, "compose.yaml")
    assert (written.profile.name, written.profile.engine) == ("llm", "vllm")
    assert "services.db" in list_keys_of(written, KeyOutcome.UNSUPPORTED)
    script = text.replace("vllm serve Qwen/Qwen3-8B", "bash -lc 'set -e; echo up; vllm serve Qwen/Qwen3-8B'")
    assert import_and_check(script).profile.image == "a/b:1"
    neither = "services: {db: {image: 'postgres:15'}, cache: {image: 'redis:7'}}\n"
    with pytest.raises(InvalidInput, match="2 services: db, cache") as error:
        import_and_check(neither, "compose.yaml")
    assert error.value.hint == "--service db or --service cache"


def test_one_service_needs_none_and_numbers_stay_as_written() -> None:
    text = "services:\n  a:\n    image: x/y:1\n    command: [prog, --port, 22:22, --n, 010]\n    environment: {A: yes, B: 1e3}\n"
    profile = import_and_check(text, "compose.yaml").profile
    assert get_container_argv(profile) == ("prog", "--port", "22:22", "--n", "010")
    assert profile.env == (("A", "yes"), ("B", "1e3"))


def test_entry_point_and_command_are_one_launch() -> None:
    text = "services: {a: {image: 'x/y:1', entrypoint: [vllm, serve], command: m --port 9000}}\n"
    profile = import_and_check(text, "compose.yaml").profile
    assert (profile.engine, profile.container.entrypoint, profile.model.path) == ("vllm", "vllm", "m")
    assert get_container_argv(profile) == ("serve", "m", "--host", "0.0.0.0", "--port", "9000")


def test_a_service_without_an_image_is_said() -> None:
    with pytest.raises(InvalidInput, match="names no image"):
        import_and_check("services: {a: {build: .}}\n", "compose.yaml")


def test_every_key_of_the_file_is_accounted_for() -> None:
    written = import_and_check(FILE, "compose.yaml", service="llm")
    data = yaml.safe_load(FILE)
    found = {
        key.replace(" ", ".").split(".")[0] for key in (account.key for account in written.imported.ledger.accounts)
    }
    assert [key for key in (*data["services"]["llm"], *data) if key not in found] == []


def test_a_default_of_several_words_is_split_as_compose_does() -> None:
    text = """services:
  llm:
    image: vllm/vllm-openai:v0.19.1
    command: >
      --model org/m --gpu-memory-utilization ${GPU_MEM_UTIL:-0.8} ${ENGINE_ARGS:-} ${MORE:---enforce-eager --seed 1} --chat-template "${NONE:-}"
"""
    written = import_and_check(text)
    args = dict(written.profile.args)
    assert list(args) == ["gpu-memory-utilization", "enforce-eager", "seed", "chat-template"]
    assert args["gpu-memory-utilization"] == "${GPU_MEM_UTIL:-0.8}"
    assert "ENGINE_ARGS: not set in the text" in " ".join(remark.text for remark in written.imported.ledger.remarks)
    spread = import_and_check(text, defined={"ENGINE_ARGS": "--max-model-len 4096"})
    assert dict(spread.profile.args)["max-model-len"] == "4096"


def test_an_env_file_that_compose_reads_in_its_own_way_is_told() -> None:
    def read_remarks(env_file: str) -> str:
        text = f"services: {{a: {{image: 'a/b:1', env_file: {env_file}}}}}\n"
        written = import_and_check(text, "compose.yaml", is_beside=lambda name: True)
        return " ".join(one.text for one in written.imported.ledger.remarks)

    assert "takes off quotes" in read_remarks("x.env")
    assert "takes off quotes" in read_remarks("[{path: x.env}]")
    assert "quotes" not in read_remarks("[{path: x.env, format: raw}]")
