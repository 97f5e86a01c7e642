"""``doctor --collect`` on real nodes: real files, a real Docker, an engine with real secrets."""

from __future__ import annotations

import json
import stat
import tarfile
from pathlib import Path

from tests.lab.bed.node import LabNode
from tests.lab.support.command_outcomes import assert_ended
from tests.lab.support.sparkctl_process import Sparkctl

TOKEN, KEY, OTHER = "hf_" + "canary" * 5, "sesame-open-4711", "sesame-shut-4712"


def read_bundle(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        found = {}
        for member in archive.getmembers():
            file = archive.extractfile(member)
            assert file is not None
            found[member.name.removeprefix("sparkctl-collect/")] = file.read().decode()
    return found


def test_a_bundle_of_real_nodes_without_their_secrets(spark1: LabNode, sparkctl: Sparkctl) -> None:
    profile = sparkctl.profile(
        env={"HF_TOKEN": "${HF_TOKEN}", "PLAIN": "${MY_API_KEY}"}, args={"api-key": "${ENGINE_API_KEY}"}
    )
    environ = {"HF_TOKEN": TOKEN, "MY_API_KEY": OTHER, "ENGINE_API_KEY": KEY}
    assert_ended(sparkctl("up", profile, "--node", "spark1", "--json", env=environ), 0, "ready")
    raw = json.loads(spark1.docker("inspect", "sglang-tiny"))[0]
    assert all(secret in json.dumps(raw) for secret in (TOKEN, KEY, OTHER))  # they are there to be found

    ran = sparkctl("doctor", "--collect", "bundle.tar.gz", env=environ)
    assert ran.code == 0, ran
    file = sparkctl.home / "bundle.tar.gz"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    found = read_bundle(file)
    everything = "".join([*found, *found.values()])
    assert [secret for secret in (TOKEN, KEY, OTHER) if secret in everything] == []
    for node in ("spark1", "spark2"):
        assert "MemTotal" in found[f"{node}/proc/meminfo.txt"]
        assert found[f"{node}/commands/uname.txt"].startswith("Linux")
        assert json.loads(found[f"{node}/docker/version.json"])["ApiVersion"]
        assert json.loads(found[f"{node}/sample.json"])["memory"]["total"] > 0
        assert "nvmlInit(): error 12" in found[f"{node}/nvml.txt"]
        assert "commands/ibdev2netdev: No such file or directory" in found[f"{node}/missing.txt"]
    about = json.loads(found["spark1/docker/inspect/sglang-tiny.json"])
    assert about["Id"] == raw["Id"]
    assert not [name for name in found if name.startswith("spark2/docker/inspect")]
