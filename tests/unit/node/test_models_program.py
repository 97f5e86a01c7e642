"""The program that lists the models on a node, drops their pages and removes one: on real files."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sparkctl.commands.stored_models import StoredModel, choose_model, explain_use
from sparkctl.errors import OperationRefused
from sparkctl.model.container import Container, ContainerState
from sparkctl.model.launch_plan import ContainerLabel, DockerRunSpec, Mount
from sparkctl.model.node import NodeName
from sparkctl.node.bootstrap import build_program
from sparkctl.node.models import ANSWER_MARK

LAST_USE = 1_700_000_000


def make_weights(path: Path, size: int = 2_000_000, claimed: int | None = None) -> None:
    header = json.dumps(
        {"a": {"dtype": "U8", "shape": [size], "data_offsets": [0, size if claimed is None else claimed]}}
    ).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(size))
    os.utime(path, (LAST_USE, LAST_USE - 1000))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_weights(tmp_path / "tiny" / "model.safetensors")
    (tmp_path / "tiny" / ".sparkctl-source").write_text("hf:acme/tiny@1\n")
    make_weights(tmp_path / "acme" / "cut" / "model.safetensors", claimed=9_000_000)
    make_weights(tmp_path / "begun.sparkctl-part" / "model.safetensors")
    (tmp_path / "link").symlink_to("tiny")
    (tmp_path / "text").mkdir()
    gguf = tmp_path / "gguf" / "a-00001-of-00001.gguf"
    gguf.parent.mkdir()
    gguf.write_bytes(b"GGUF" + bytes(2_000_000))
    blob = tmp_path / "hub" / "models--acme--x" / "blobs" / "1"
    make_weights(blob)
    snapshot = blob.parents[1] / "snapshots" / "c"
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").symlink_to("../../blobs/1")
    return tmp_path


def run_program(root: Path, role: str, *places: Path, **words: object) -> dict[str, Any]:
    request = {"role": role, "roots": [str(root), str(root / "hub")], "places": [str(one) for one in places], **words}
    program = build_program(
        "sparkctl-models",
        ["weights_check", "models"],
        stdin=json.dumps(request).encode() + b"\n",
        python=sys.executable,
    )
    done = subprocess.run(program.argv, input=program.stdin, capture_output=True, timeout=30, check=True)
    found: dict[str, Any] = json.loads(done.stdout.decode().removeprefix(ANSWER_MARK))
    return found


def test_each_model_is_listed_with_its_state(root: Path) -> None:
    gguf = root / "gguf" / "a-00001-of-00001.gguf"
    answer = run_program(root, "list", gguf, root / "gone")
    assert answer["entries"] == {str(gguf): str(gguf.parent), str(root / "gone"): str(root / "gone")}
    found = {one["place"].removeprefix(f"{root}/"): one for one in answer["models"]}
    assert set(found) == {"gguf", "tiny", "acme/cut", "begun.sparkctl-part", "link", "hub/models--acme--x"}
    assert found["tiny"]["faults"] == []
    assert (found["tiny"]["brought"], found["tiny"]["used"]) == (True, LAST_USE)
    assert "it is cut off" in found["acme/cut"]["faults"][0]
    assert found["begun.sparkctl-part"]["faults"][0] == "a download has not ended"
    assert found["link"]["link"] is True
    cached = found["hub/models--acme--x"]
    assert (cached["faults"], 2_000_000 < cached["size"] < 2_001_000) == ([], True)
    plain = [run_program(root, "list", root / "text", **words) for words in ({}, {"tokenizers": [str(root / "text")]})]
    faults = [one["faults"] for each in plain for one in each["models"] if one["place"] == str(root / "text")]
    assert faults == [["it has no weights"], []], "a tokenizer needs none"
    again = {one["place"]: one["used"] for one in run_program(root, "list", gguf)["models"]}
    assert again[str(root / "tiny")] == LAST_USE, "to look is no use"


def test_the_pages_of_models_are_dropped_without_a_right(root: Path) -> None:
    assert run_program(root, "drop")["files"] == 6  # the link leads to one of them again


def test_a_model_is_removed_and_nothing_else(root: Path) -> None:
    (root / "tiny.sparkctl-part").mkdir()
    assert run_program(root, "remove", place=str(root / "tiny")) == {}
    assert not (root / "tiny").exists()
    assert sorted(one.name for one in root.iterdir()) == ["acme", "begun.sparkctl-part", "gguf", "hub", "link", "text"]


@pytest.mark.parametrize(
    ("name", "why"), [("text", "not one of the models"), ("..", "not one of the models"), ("link", "a link")]
)
def test_what_is_no_model_is_not_removed(root: Path, name: str, why: str) -> None:
    assert why in run_program(root, "remove", place=str(root / name))["error"]
    assert (root / "text").is_dir()


def test_what_a_process_has_open_is_not_removed(root: Path) -> None:
    with (root / "tiny" / "model.safetensors").open("rb"):
        assert f"({os.getpid()})" in run_program(root, "remove", place=str(root / "tiny"))["error"]


def make_stored(place: str, **more: Any) -> StoredModel:
    return StoredModel(node=NodeName("spark1"), place=place, size=1, **more)


def test_a_stranger_is_removed_only_by_its_path() -> None:
    models = (make_stored("/m/ours", profiles=("a",)), make_stored("/m/theirs"), make_stored("/m/l", is_link=True))
    assert choose_model(models, "ours", "spark1").place == "/m/ours"
    assert choose_model(models, "/m/theirs/", "spark1").place == "/m/theirs"
    for name, why in (("theirs", "did not bring"), ("other", "has no model"), ("/m/l", "is a link")):
        with pytest.raises(OperationRefused, match=why):
            choose_model(models, name, "spark1")


@pytest.mark.parametrize(
    ("mount", "command", "label", "why"),
    [
        ("/m:/models", "serve /models/tiny", "", "names"),
        ("/m:/models", "serve /models/other", "", None),
        ("/m:/models", "serve", "", "sees, and may use,"),
        ("/m/tiny:/model", "serve /model", "", "has a mount of"),
        ("/m/tiny/a.gguf:/a.gguf", "serve /a.gguf", "", "has a mount of"),
        ("/data:/data", "serve tiny", "", None),
        ("/m:/m", '{"target": "/m/tiny"}', ContainerLabel.DOWNLOAD, "downloads"),
        ("/m:/m", '{"target": "/m/other"}', ContainerLabel.DOWNLOAD, None),
    ],
)
def test_a_running_container_is_proof_of_use_unless_it_names_another(
    mount: str, command: str, label: str, why: str | None
) -> None:
    source, target = mount.split(":")
    words = (command,) if label else tuple(command.split())
    container = Container(
        id="c", name="c", image="i", state=ContainerState.RUNNING, status="Up", created=0.0,
        labels=((label, "1"),) if label else (),
    )  # fmt: skip
    spec = DockerRunSpec(
        name="c", image="i", entrypoint=None, command=words, env=(), mounts=(Mount(source, target),),
        gpus=None, shm_size=None, ipc=None, network=None, ulimits=(), devices=(), options=(), labels=(),
    )  # fmt: skip
    assert explain_use("/m/tiny", container, spec) == why


def test_what_is_not_of_the_model_does_not_go_with_it(root: Path) -> None:
    place = root / "gguf"
    one, other = place / "a-00001-of-00001.gguf", place / "b.gguf"
    other.write_bytes(b"GGUF" + bytes(2_000_000))
    answer = run_program(root, "remove", one, place=str(place))
    assert "it also holds a.gguf, b.gguf" in answer["error"]
    other.rename(root / "b.gguf")
    (place / "thesis.odt").write_text("years of work")
    assert "it also holds thesis.odt" in run_program(root, "remove", one, place=str(place))["error"]
    assert (place / "thesis.odt").read_text() == "years of work"
    (place / "thesis.odt").unlink()
    (place / "mmproj-F16.gguf").write_bytes(b"GGUF")
    (place / "LICENSE").write_text("x")
    assert run_program(root, "remove", one, place=str(place)) == {}
    assert not place.exists()
