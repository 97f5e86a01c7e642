"""``doctor --collect`` on the simulated Sparks: one file, nothing secret in it, and what could not be read."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from sparkctl.commands.doctor_bundle import collect_support_bundle
from sparkctl.context import CommandContext
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.events import CommandEnded, Outcome
from sparkctl.model.node import Node, NodeName
from sparkctl.model.questions import NonInteractivePrompter
from sparkctl.simulator import SimulatedSparks
from tests.support import sim_clients
from tests.support.run_command import run_demo, run_in_process

PLANTED = [f"sesame-{number}-{'x' * 9}" for number in range(8)]
TOKEN = "hf_" + "canary" * 5


def read_bundle(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        found = {}
        for member in archive.getmembers():
            file = archive.extractfile(member)
            assert file is not None
            found[member.name.removeprefix("sparkctl-collect/")] = file.read().decode()
    return found


def test_the_command_writes_one_file_and_says_where(tmp_path: Path) -> None:
    file = tmp_path / "bundle.tar.gz"
    ran = run_demo("doctor", "--collect", str(file), scenario="two-stacks")
    assert (ran.returncode, ran.stdout) == (0, f"{file}\n")
    assert "before you post it" in ran.stderr
    found = read_bundle(file)
    assert {"README.txt", "about.json", "config.yaml"} <= found.keys()
    for node, container in (("spark1", "sglang-qwen36-ngram"), ("spark2", "vllm-qwen36-vllm")):
        assert "MemTotal" in found[f"{node}/proc/meminfo.txt"]
        assert json.loads(found[f"{node}/sample.json"])["memory"]["total"] == 127600592 * 1024
        assert json.loads(found[f"{node}/identity.json"])["product"] == "DGX Spark"
        assert json.loads(found[f"{node}/docker/inspect/{container}.json"])["Name"] == f"/{container}"
        assert "commands/dmesg: not simulated" in found[f"{node}/missing.txt"]
    again = run_demo("doctor", "--collect", str(file), scenario="two-stacks")
    assert again.returncode == 2
    assert "already exists" in again.stderr
    assert "reading" not in again.stderr, "judged before a node is asked"


def test_without_a_name_it_makes_one_up_and_json_tells_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run_in_process("demo", "doctor", "--json", "--collect")
    assert ran.returncode == 0, ran.stderr
    (made,) = tmp_path.iterdir()
    assert json.loads(ran.stdout.splitlines()[-1])["file"] == made.name


@pytest.fixture
async def planted(sparks: SimulatedSparks, tmp_path: Path) -> SimulatedSparks:
    """An engine of ours with secrets in every place that Docker shows, beside a foreign container with some more."""
    env, flag, joined, label, url, log, innocent, foreign = PLANTED
    async with sim_clients.open_ssh(sparks) as connection, sim_clients.open_docker_sdk(connection, tmp_path) as client:

        def make() -> None:
            client.containers.create(
                sim_clients.SGLANG_IMAGE, [*sim_clients.SGLANG, "--api-key", flag, f"--admin-api-key={joined}"], name="ours",
                network_mode="host", environment={"HF_TOKEN": TOKEN, "DB_PASSWORD": env, "PLAIN": innocent},
                labels={"dev.sparkctl.instance": "ours", "x.token": label, "link": f"https://me:{url}@host/"},
                log_config={"Type": "json-file", "Config": {"splunk-token": log}},
            )  # fmt: skip
            client.containers.create(
                sim_clients.SGLANG_IMAGE, sim_clients.SGLANG, name="theirs", labels={"api-key": foreign}
            )

        await sim_clients.run_in_thread(make)
    return sparks


async def test_no_secret_is_in_the_bundle_wherever_it_was(planted: SimulatedSparks, tmp_path: Path) -> None:
    node = Node(
        name=NodeName("spark1"), host="127.0.0.1", user="milo", port=planted.ports["spark1"], identity=str(planted.identity_path),
        known_hosts=str(planted.known_hosts_path),
    )  # fmt: skip
    away = Node(name=NodeName("away"), host="127.0.0.1", user="milo", port=1, known_hosts=str(planted.known_hosts_path))
    ctx = CommandContext(
        history=OperationHistory(tmp_path / "state"), operator="tester", prompter=NonInteractivePrompter()
    )
    config = f"nodes: []\n# api_key: {PLANTED[0]}\n"
    environ = {"MY_API_KEY": PLANTED[6], "HOME": "/home/milo"}  # what ${MY_API_KEY} put into PLAIN
    events = [
        event async for event in collect_support_bundle(ctx, [node, away], tmp_path / "b.tar.gz", config, environ)
    ]
    ended = events[-1]
    assert isinstance(ended, CommandEnded)
    assert (ended.outcome, ended.exit_code) == (Outcome.UNREACHABLE, 3)
    found = read_bundle(tmp_path / "b.tar.gz")
    everything = "".join([*found, *found.values()])
    assert [secret for secret in [TOKEN, *PLANTED] if secret in everything] == []
    inspected = json.loads(found["spark1/docker/inspect/ours.json"])
    assert "HF_TOKEN=••••••" in inspected["Config"]["Env"]
    assert "refuses connections" in found["away/missing.txt"]
    assert "MemTotal" in found["spark1/proc/meminfo.txt"]
