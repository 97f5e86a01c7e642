"""Whether a model's files are whole, as the program on the node reads their headers."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from sparkctl.node import model_files_decoder
from sparkctl.node.model_files_decoder import WeightsCheck


def write_shard(path: Path, size: int = 4096) -> None:
    """Write a file of safetensors whose one tensor has so many bytes."""
    header = json.dumps({"t": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}, "__metadata__": {"a": "b"}})
    path.write_bytes(struct.pack("<Q", len(header)) + header.encode() + b"\0" * size)


def write_index(folder: Path, *names: str) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {f"t{n}": n for n in names}}))


def check_weights(*places: Path) -> tuple[WeightsCheck, ...]:
    argv = model_files_decoder.build_weights_check_command([str(place) for place in places])
    done = subprocess.run([sys.executable, *argv[1:]], capture_output=True, timeout=30, check=True)
    return model_files_decoder.decode_weights_check(done.stdout)


def test_complete_weights_have_no_problem(tmp_path: Path) -> None:
    for name in ("a.safetensors", "b.safetensors"):
        write_shard(tmp_path / name)
    write_index(tmp_path, "a.safetensors", "b.safetensors")
    assert check_weights(tmp_path) == (WeightsCheck(str(tmp_path), 2),)


def test_what_is_cut_off_or_missing_is_named(tmp_path: Path) -> None:
    write_shard(tmp_path / "a.safetensors")
    write_shard(tmp_path / "b.safetensors")
    with (tmp_path / "b.safetensors").open("r+b") as file:
        file.truncate(2000)
    (tmp_path / "c.safetensors").write_bytes(b"")
    (tmp_path / "d.safetensors").write_bytes(b"<!doctype html><html>not found</html>")
    write_index(tmp_path, "a.safetensors", "e.safetensors")
    (found,) = check_weights(tmp_path)
    told = "\n".join(found.faults)
    assert found.files == 4
    assert "e.safetensors is missing: model.safetensors.index.json lists it" in told
    assert "b.safetensors: it is cut off: 2000 of" in told
    assert "c.safetensors: it holds 0 bytes" in told
    assert "d.safetensors: its header is to be" in told
    assert "a.safetensors:" not in told


def test_a_place_in_the_hubs_cache_is_its_snapshot(tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (tmp_path / "refs").mkdir()
    (tmp_path / "refs" / "main").write_text("abc\n")
    write_shard(snapshot / "model.safetensors")
    (found,) = check_weights(tmp_path)
    assert (found.files, found.faults) == (1, ())


def test_gguf_begins_as_it_should_and_nothing_is_no_fault(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.gguf", tmp_path / "bad.gguf"
    good.write_bytes(b"GGUF" + b"\0" * 100)
    bad.write_bytes(b"\0" * 100)
    first, second, third = check_weights(good, bad, tmp_path / "nothing")
    assert (first.files, first.faults) == (1, ())
    assert "does not begin as a GGUF" in second.faults[0]
    assert (third.files, third.faults) == (0, ())


def test_an_answer_that_was_cut_short_is_none() -> None:
    with pytest.raises(ValueError, match="cut short"):
        model_files_decoder.decode_weights_check(b'@@ {"place": "/m", "files": 1, "faults": [], "unread": []}\n')


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may read less")
def test_what_this_user_may_not_read_is_unread_and_no_fault(tmp_path: Path) -> None:
    public, secret = tmp_path / "public", tmp_path / "secret"
    for folder in (public, secret):
        folder.mkdir()
        write_shard(folder / "model.safetensors")
        write_index(folder, "model.safetensors")
    (public / "model.safetensors").chmod(0o600)  # as `save_pretrained` leaves it
    (public / "model.safetensors.index.json").chmod(0o600)
    (public / "broken.gguf").symlink_to(tmp_path / "gone.gguf")
    secret.chmod(0o700)
    for folder in (tmp_path, *tmp_path.parents):
        if folder != Path("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o055) if str(folder).startswith("/tmp/") else None
    places = [public, secret, secret / "below"]
    argv = model_files_decoder.build_weights_check_command([str(place) for place in places])
    done = subprocess.run(
        ["python3", *argv[1:]], capture_output=True, timeout=30, check=True, user=65534, group=65534, extra_groups=[]
    )
    first, second, third = model_files_decoder.decode_weights_check(done.stdout)
    assert set(first.unread) == {"model.safetensors", "model.safetensors.index.json"}
    assert [fault.partition(":")[0] for fault in first.faults] == ["broken.gguf"], "what is really wrong stays wrong"
    assert (second.unread, second.faults) == ((".",), ())
    assert (third.unread, third.faults) == ((".",), ())
