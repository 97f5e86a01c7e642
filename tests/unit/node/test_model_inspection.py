"""The look at a model's files: the real script on directories as Hugging Face and people make them."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from sparkctl.model.memory_fit import CheckpointFiles
from sparkctl.node import build_script_command, read_node_script
from sparkctl.node.node_inspection import decode_inspection

linux = pytest.mark.skipif(sys.platform != "linux", reason="stat -c is GNU's and busybox's")


def inspect_model(place: Path, shell: str = "sh") -> CheckpointFiles:
    words = shell.split()
    if subprocess.run(["which", words[0]], capture_output=True).returncode:
        pytest.skip(f"no {words[0]} here")
    done = subprocess.run(
        [*words, *build_script_command(f"model={place}")[1:]],
        input=read_node_script("node_inspection.sh"),
        capture_output=True,
        timeout=30,
    )
    (found,) = decode_inspection(done.stdout).models
    assert found.place == str(place)
    return found


def write_model_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"num_hidden_layers": 2, "hidden_size": 8}, indent=2))
    (folder / "model-00001-of-00002.safetensors").write_bytes(b"x" * 700)
    (folder / "model-00002-of-00002.safetensors").write_bytes(b"x" * 300)
    index = {"metadata": {"total_size": 990}, "weight_map": {}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


@linux
@pytest.mark.parametrize("shell", ["sh", "bash", "busybox sh"])
def test_a_directory_tells_its_files_its_index_and_its_config(tmp_path: Path, shell: str) -> None:
    found = inspect_model(write_model_folder(tmp_path / "a 'quoted' name; $(id)"), shell)
    assert found.is_there is True
    assert sorted(found.files) == [("model-00001-of-00002.safetensors", 700), ("model-00002-of-00002.safetensors", 300)]
    assert (found.index_total, found.unfinished) == (990, 0)
    assert json.loads(found.config or "")["num_hidden_layers"] == 2
    assert found.has_tokenizer is False
    (Path(found.place) / "tokenizer.json").write_text("{}")
    assert inspect_model(Path(found.place), shell).has_tokenizer is True


def write_tensors(path: Path, *names: str) -> None:
    header = json.dumps({name: {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]} for name in names}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + b'\0"mtp": \xff')


@linux
@pytest.mark.parametrize("shell", ["sh", "bash", "busybox sh"])
@pytest.mark.parametrize(
    ("names", "indexed", "expected"),
    [
        (["model.layers.0.q", "mtp.fc.weight"], False, True),
        (["model.layers.0.q"], False, False),
        (["model.layers.0.q"], True, False),
        (["model.layers.0.q", "model.layers.61.eh_proj.weight"], True, True),
    ],
)
def test_draft_layers_are_known_by_the_names_of_tensors(
    tmp_path: Path, shell: str, names: list[str], indexed: bool, expected: bool
) -> None:
    write_tensors(tmp_path / "model.safetensors", *([] if indexed else names))
    if indexed:
        index = {"metadata": {"total_size": 5}, "weight_map": dict.fromkeys(names, "model.safetensors")}
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))
    assert inspect_model(tmp_path, shell).has_draft_layers is expected


@linux
def test_without_weights_nothing_is_said_of_draft_layers(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert inspect_model(tmp_path).has_draft_layers is None


@linux
def test_the_hubs_cache_is_read_through_its_links_and_says_what_is_unfinished(tmp_path: Path) -> None:
    cache = tmp_path / "models--org--name"
    blobs = cache / "blobs"
    blobs.mkdir(parents=True)
    (blobs / "aa").write_bytes(b"x" * 500)
    (blobs / "bb.incomplete").write_bytes(b"x")
    for commit in ("0ld", "n3w"):
        (cache / "snapshots" / commit).mkdir(parents=True)
    (cache / "snapshots" / "n3w" / "model.safetensors").symlink_to(blobs / "aa")
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("n3w")
    found = inspect_model(cache)
    assert (found.files, found.unfinished, found.is_there) == ((("model.safetensors", 500),), 1, True)
    (cache / "refs" / "main").write_text("gone")  # then the newest of them
    assert inspect_model(cache).is_there is True


@linux
def test_a_gguf_file_is_all_of_its_splits_and_a_missing_one_is_not_there(tmp_path: Path) -> None:
    for at in (1, 2):
        (tmp_path / f"m-Q4_K_M-0000{at}-of-00002.gguf").write_bytes(b"x" * 10 * at)
    found = inspect_model(tmp_path / "m-Q4_K_M-00001-of-00002.gguf")
    assert sorted(size for _, size in found.files) == [10, 20]
    lone = tmp_path / "lone.gguf"
    lone.write_bytes(b"xyz")
    assert inspect_model(lone).files == (("lone.gguf", 3),)
    assert inspect_model(tmp_path / "nowhere") == CheckpointFiles(place=str(tmp_path / "nowhere"), is_there=False)


def test_invalid_sizes_from_a_node_are_ignored() -> None:
    files = "file -5 /m/a.gguf\nfile 99999999999999999999 /m/b.gguf\nfile x y\n"
    said = f"@@ model /m\nthere dir\n{files}total 5\nunfinished ²\n@@ end\n"
    (found,) = decode_inspection(said.encode()).models
    assert (found.files, found.index_total, found.unfinished, found.config) == ((), None, 0, None)
