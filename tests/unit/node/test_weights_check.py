"""Whether a model's files are whole, as the program on the node reads their headers."""

from __future__ import annotations

import json
import math
import os
import struct
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from sparkctl.model.decode_step import TensorSizes
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
    (found,) = check_weights(tmp_path)
    assert replace(found, tensors=None) == WeightsCheck(place=str(tmp_path), files=2)


def test_what_is_cut_off_or_missing_is_named(tmp_path: Path) -> None:
    write_shard(tmp_path / "a.safetensors")
    write_shard(tmp_path / "b.safetensors")
    with (tmp_path / "b.safetensors").open("r+b") as file:
        file.truncate(2000)
    (tmp_path / "c.safetensors").write_bytes(b"")
    (tmp_path / "d.safetensors").write_bytes(b"<!doctype html><html>not found</html>")
    write_index(tmp_path, "a.safetensors", "e.safetensors")
    (found,) = check_weights(tmp_path)
    text = "\n".join(found.faults)
    assert found.files == 4
    assert "e.safetensors is missing: model.safetensors.index.json lists it" in text
    assert "b.safetensors: it is cut off: 2000 of" in text
    assert "c.safetensors: it holds 0 bytes" in text
    assert "d.safetensors: its header is to be" in text
    assert "a.safetensors:" not in text


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
def test_what_this_user_may_not_read_is_unread_and_no_fault(public_path: Path) -> None:
    public, secret = public_path / "public", public_path / "secret"
    for folder in (public, secret):
        folder.mkdir()
        write_shard(folder / "model.safetensors")
        write_index(folder, "model.safetensors")
    (public / "model.safetensors").chmod(0o600)  # as `save_pretrained` leaves it
    (public / "model.safetensors.index.json").chmod(0o600)
    (public / "broken.gguf").symlink_to(public_path / "gone.gguf")
    secret.chmod(0o700)
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


def write_model(folder: Path, tensors: Mapping[str, tuple[str, list[int]]], config: Mapping[str, object]) -> None:
    """Write a model's header without its weights: a sparse file of the right length."""
    width, at, header = {"F32": 4, "BF16": 2, "F8_E4M3": 1, "U8": 1}, 0, {}
    for name, (dtype, shape) in tensors.items():
        size = width[dtype] * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)
    (folder / "config.json").write_text(json.dumps(config))


def read_sizes(folder: Path) -> TensorSizes:
    (found,) = check_weights(folder)
    assert found.faults == ()
    assert found.tensors is not None
    return found.tensors


def test_parts_of_a_dense_model_with_a_vision_tower(tmp_path: Path) -> None:
    """Names as in Qwen3-VL; the settings of the language model are in the inner config."""
    tensors = {
        "model.language_model.embed_tokens.weight": ("BF16", [1000, 64]),
        "model.language_model.layers.0.mlp.gate_proj.weight": ("BF16", [128, 64]),
        "model.language_model.layers.0.self_attn.q_proj.weight": ("BF16", [64, 64]),
        "model.visual.blocks.0.attn.qkv.weight": ("BF16", [96, 32]),
        "model.visual.merger.linear_fc1.weight": ("BF16", [32, 32]),
        "lm_head.weight": ("BF16", [1000, 64]),
    }
    config = {"tie_word_embeddings": False, "text_config": {"num_hidden_layers": 1}}
    write_model(tmp_path, tensors, config)
    sizes = read_sizes(tmp_path)
    assert dict(sizes.parts) == {"embedding": 128_000, "body": 24_576, "vision": 8_192, "output": 128_000}
    assert (sizes.table, sizes.output, sizes.whole, sizes.is_tied) == (128_000, 128_000, 288_768, False)


def test_a_tied_embedding_table_is_read_as_the_output_layer(tmp_path: Path) -> None:
    table, body = {"model.embed_tokens.weight": ("BF16", [1000, 64])}, {"model.layers.0.w": ("BF16", [64, 64])}
    write_model(tmp_path / "a", {**table, **body}, {"tie_word_embeddings": True})
    sizes = read_sizes(tmp_path / "a")
    assert (sizes.table, sizes.output) == (0, 128_000)
    twice = {**table, **body, "lm_head.weight": ("BF16", [1000, 64])}
    write_model(tmp_path / "b", twice, {"tie_word_embeddings": True})
    assert read_sizes(tmp_path / "b").table == 128_000, "the file holds it twice, memory holds it once"
    write_model(tmp_path / "c", twice, {})
    assert read_sizes(tmp_path / "c").table == 128_000


def test_experts_are_the_routed_ones_and_a_layer_behind_the_last_is_the_draft(tmp_path: Path) -> None:
    """Names as in DeepSeek-V3 and its like."""
    tensors: dict[str, tuple[str, list[int]]] = {
        "model.embed_tokens.weight": ("BF16", [100, 8]), "lm_head.weight": ("BF16", [100, 8]),
        "model.layers.0.mlp.shared_experts.up_proj.weight": ("F8_E4M3", [8, 8]),
        "model.layers.0.mlp.gate.weight": ("BF16", [4, 8]),
        "model.layers.1.embed_tokens.weight": ("BF16", [100, 8]), "model.layers.1.shared_head.head.weight": ("BF16", [100, 8]),
        "model.layers.1.eh_proj.weight": ("BF16", [8, 16]),
    }  # fmt: skip
    for expert in range(4):
        tensors[f"model.layers.0.mlp.experts.{expert}.up_proj.weight"] = ("F8_E4M3", [8, 16])
        tensors[f"model.layers.1.mlp.experts.{expert}.up_proj.weight"] = ("F8_E4M3", [8, 16])
    config = {"num_hidden_layers": 1, "num_experts_per_tok": 2, "n_routed_experts": 4, "quantization_config": {}}
    write_model(tmp_path, tensors, config)
    sizes = read_sizes(tmp_path)
    assert sizes.parts["experts"] == 512
    assert (sizes.expert_count, sizes.experts_per_token, sizes.is_quantized) == (4, 2, True)
    assert sizes.parts["body"] == 64 + 64
    assert {name: size for name, size in sizes.parts.items() if name.startswith("draft_")} == {
        "draft_embedding": 1600, "draft_output": 1600, "draft_body": 256, "draft_experts": 512
    }  # fmt: skip


def test_experts_in_one_tensor_are_counted_by_its_shape(tmp_path: Path) -> None:
    """Names as in gpt-oss."""
    tensors = {
        "model.layers.0.mlp.experts.gate_up_proj_blocks": ("U8", [32, 8, 4]),
        "model.layers.0.mlp.experts.gate_up_proj_bias": ("BF16", [32, 8]),
        "model.layers.0.mlp.router.weight": ("BF16", [32, 8]),
    }
    write_model(tmp_path, tensors, {"num_hidden_layers": 1, "experts_per_token": 4})
    sizes = read_sizes(tmp_path)
    assert (sizes.parts["experts"], sizes.expert_count, sizes.experts_per_token) == (1024 + 512, 32, 4)


def test_sizes_are_unknown_unless_every_file_was_read(tmp_path: Path) -> None:
    write_model(tmp_path, {"a.weight": ("BF16", [8, 8])}, {})
    assert read_sizes(tmp_path).whole == 128
    (tmp_path / "consolidated.safetensors").write_bytes((tmp_path / "model.safetensors").read_bytes())
    (tmp_path / "adapter_model.safetensors").write_bytes((tmp_path / "model.safetensors").read_bytes())
    assert read_sizes(tmp_path).whole == 128, "the same weights again, and an adapter"
    (tmp_path / "model-2.safetensors").write_bytes(b"")
    (found,) = check_weights(tmp_path)
    assert found.tensors is None


@pytest.mark.parametrize(
    "header",
    [
        {"a": {"dtype": "BF16", "data_offsets": [5]}},
        {"a": {"dtype": "BF16", "data_offsets": ["x", 4]}},
        {"a": {"dtype": "BF16", "data_offsets": [9, 2]}},
        {"a": 1},
        [],
    ],
)
def test_a_header_that_makes_no_sense_gives_no_sizes(tmp_path: Path, header: object) -> None:
    text = json.dumps(header).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"\0" * 100)
    (found,) = check_weights(tmp_path)
    assert found.tensors is None


@pytest.mark.parametrize(
    "config", ["", "[]", "{", '{"num_hidden_layers": "8", "tie_word_embeddings": 1, "text_config": 3}']
)
def test_a_config_that_makes_no_sense_is_as_good_as_none(tmp_path: Path, config: str) -> None:
    write_model(tmp_path, {"a.weight": ("BF16", [8, 8])}, {})
    (tmp_path / "config.json").write_text(config)
    sizes = read_sizes(tmp_path)
    assert (sizes.whole, sizes.is_tied, sizes.experts_per_token) == (128, None, None)


@pytest.mark.parametrize(
    "said", [None, 3, {}, {"parts": {"body": -1}, "whole": -1}, {"parts": {"body": 5}, "whole": 9, "float32": 0}]
)
def test_sizes_that_no_model_has_are_unknown(said: object) -> None:
    line = {"place": "/m", "files": 1, "faults": [], "unread": [], "tensors": said}
    (found,) = model_files_decoder.decode_weights_check(f'@@ {json.dumps(line)}\n@@ "end"\n'.encode())
    assert found.tensors is None


# --- GGUF ---

TEXT, ARRAY, UINT32, FLOAT32 = 8, 9, 4, 6
F32, F16, Q8_0, Q4_K, MXFP4 = 0, 1, 8, 12, 39


def pack_text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def pack_gguf(tensors: Mapping[str, tuple[int, list[int], int]], keys: list[bytes]) -> bytes:
    """A GGUF file, version 3: ``tensors`` have a type, their dimensions as ggml orders them, and their bytes."""
    listed, data = b"", b""
    for name, (kind, shape, size) in tensors.items():
        data += b"\0" * (-len(data) % 32)
        listed += pack_text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        listed += struct.pack("<IQ", kind, len(data))
        data += b"\1" * size
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys) + listed
    return head + b"\0" * (-len(head) % 32) + data


def make_mixture() -> bytes:
    keys = [
        pack_text("general.architecture") + struct.pack("<I", TEXT) + pack_text("qwen3moe"),
        pack_text("qwen3moe.block_count") + struct.pack("<II", UINT32, 2),
        pack_text("qwen3moe.nextn_predict_layers") + struct.pack("<II", UINT32, 1),
        pack_text("qwen3moe.expert_used_count") + struct.pack("<II", UINT32, 2),
        pack_text("qwen3moe.rope.freq_base") + struct.pack("<If", FLOAT32, 1e6),
        pack_text("tokenizer.ggml.tokens")
        + struct.pack("<IIQ", ARRAY, TEXT, 3)
        + b"".join(map(pack_text, ("a", "é", ""))),
        pack_text("tokenizer.ggml.scores") + struct.pack("<IIQ", ARRAY, FLOAT32, 3) + struct.pack("<3f", 1, 2, 3),
    ]
    return pack_gguf(
        {
            "token_embd.weight": (Q8_0, [64, 100], 6400 // 32 * 34),
            "output_norm.weight": (F32, [64], 256),
            "output.weight": (F16, [64, 100], 12800),
            "blk.0.attn_q.weight": (Q4_K, [256, 8], 8 * 144),
            "blk.0.ffn_gate_exps.weight": (MXFP4, [64, 32, 8], 8 * 2048 // 32 * 17),
            "blk.0.ffn_up_shexp.weight": (F16, [64, 32], 4096),
            "blk.1.nextn.eh_proj.weight": (F16, [128, 64], 16384),
        },
        keys,
    )


MIXTURE_PARTS = {
    "embedding": 6800, "output": 12800, "experts": 8 * 1088, "draft_body": 16384, "body": 256 + 1152 + 4096,
}  # fmt: skip


def test_parts_of_a_gguf_file(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(make_mixture())
    (tmp_path / "mmproj-F16.gguf").write_bytes(pack_gguf({"v.patch_embd.weight": (F16, [64], 128)}, []))
    (tmp_path / "another-Q8_0.gguf").write_bytes(make_mixture())
    for found in check_weights(model):
        assert not found.faults
        assert found.tensors is not None
        assert dict(found.tensors.parts) == MIXTURE_PARTS
        assert (found.tensors.expert_count, found.tensors.experts_per_token) == (8, 2)
        assert found.tensors.table == 6800, "no step reads a table that is not the output layer"
        assert (found.tensors.is_quantized, found.tensors.float32) == (True, 0)
    (several,) = check_weights(tmp_path)
    assert several.tensors is None, "which of two models it is, the directory does not tell"
    (tmp_path / "another-Q8_0.gguf").unlink()
    (alone,) = check_weights(tmp_path)
    assert alone.tensors is not None
    assert dict(alone.tensors.parts) == MIXTURE_PARTS


def test_parts_of_a_gguf_model_in_several_files_are_added_up(tmp_path: Path) -> None:
    for at in (1, 2):
        (tmp_path / f"m-0000{at}-of-00002.gguf").write_bytes(make_mixture())
    (tmp_path / "other.gguf").write_bytes(make_mixture())
    (found,) = check_weights(tmp_path / "m-00001-of-00002.gguf")
    assert found.files == 2
    assert found.tensors is not None
    assert found.tensors.whole == 2 * sum(MIXTURE_PARTS.values())


def test_a_type_of_ggml_that_is_not_known_is_measured_by_what_follows(tmp_path: Path) -> None:
    file = tmp_path / "new.gguf"
    file.write_bytes(pack_gguf({"blk.0.a.weight": (999, [64], 96), "blk.0.b.weight": (998, [64], 64)}, []))
    (found,) = check_weights(file)
    assert found.tensors is not None
    assert found.tensors.whole == 160


@pytest.mark.parametrize("cut", [20, 60, 200, 600, -1])
def test_a_gguf_file_that_was_cut_off_is_named(tmp_path: Path, cut: int) -> None:
    (tmp_path / "cut.gguf").write_bytes(make_mixture()[:cut])
    (found,) = check_weights(tmp_path / "cut.gguf")
    assert found.tensors is None
    (fault,) = found.faults
    assert "cut.gguf: it" in fault


def test_a_gguf_header_that_promises_too_much_ends_at_once(tmp_path: Path) -> None:
    for name, head in {
        "texts": struct.pack("<IQQ", 3, 0, 1) + pack_text("k") + struct.pack("<IIQ", ARRAY, TEXT, 1 << 60),
        "numbers": struct.pack("<IQQ", 3, 0, 1) + pack_text("k") + struct.pack("<IIQ", ARRAY, UINT32, 1 << 60),
        "type": struct.pack("<IQQ", 3, 0, 1) + pack_text("k") + struct.pack("<IQ", 77, 1),
        "tensors": struct.pack("<IQQ", 3, 1 << 60, 0),
        "name": struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q", 1 << 62),
        "nested": struct.pack("<IQQ", 3, 0, 1)
        + pack_text("k")
        + struct.pack("<I", ARRAY)
        + struct.pack("<IQ", ARRAY, 9) * 5000,
    }.items():
        (tmp_path / f"{name}.gguf").write_bytes(b"GGUF" + head)
        (found,) = check_weights(tmp_path / f"{name}.gguf")
        assert "its header cannot be read" in found.faults[0], name
    (tmp_path / "old.gguf").write_bytes(b"GGUF" + struct.pack("<III", 1, 5, 5))
    (old,) = check_weights(tmp_path / "old.gguf")
    assert (old.faults, old.tensors) == ((), None), "another layout is not known, and no fault"
