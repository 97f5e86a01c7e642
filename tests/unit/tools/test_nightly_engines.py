"""The nightly job with real engines, as far as it can be told without one: its model's files, its table."""

from __future__ import annotations

import json
import struct
import zipfile
from math import prod
from pathlib import Path

from sparkctl.model.verdict import FailureCause
from tests.tools.nightly.engines import __main__ as job
from tests.tools.nightly.engines import random_model
from tests.tools.nightly.engines.install import read_requirements
from tests.tools.nightly.engines.scenes import LLAMA_BREAKS, VLLM_BREAKS, Row, format_row


def test_the_safetensors_file_is_covered_by_its_header(tmp_path: Path) -> None:
    random_model.write_directory(tmp_path)
    raw = (tmp_path / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    assert header.pop("__metadata__") == {"format": "pt"}
    assert set(header) == {one.name for one in random_model.draw_tensors()}
    end = 0
    for expected in header.values():
        begin, after = expected["data_offsets"]
        assert (begin, after - begin) == (end, 2 * prod(expected["shape"]))
        end = after
    assert 8 + length + end == len(raw)
    config = json.loads((tmp_path / "config.json").read_text())
    assert header["lm_head.weight"]["shape"] == [config["vocab_size"], config["hidden_size"]]


def test_every_byte_has_a_token_of_its_own(tmp_path: Path) -> None:
    random_model.write_directory(tmp_path)
    document = json.loads((tmp_path / "tokenizer.json").read_text())
    assert (
        len(set(random_model.list_tokens()))
        == len(random_model.list_tokens())
        == json.loads((tmp_path / "config.json").read_text())["vocab_size"]
    )
    assert {merge.replace(" ", "") for merge in document["model"]["merges"]} <= set(document["model"]["vocab"])
    assert [one["id"] for one in document["added_tokens"]] == list(
        range(len(document["model"]["vocab"]), len(random_model.list_tokens()))
    )


def test_the_gguf_file_holds_every_tensor(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    random_model.write_gguf(path)
    raw = path.read_bytes()
    assert struct.unpack("<4sIQ", raw[:16]) == (b"GGUF", 3, len(list(random_model.draw_tensors())))
    assert len(raw) % 32 == 0
    for name in ("token_embd", "blk.0.attn_q_norm", "blk.1.ffn_down", "output_norm", "output"):
        assert f"{name}.weight".encode() in raw


def test_a_wheels_needs_are_read_without_extras_and_what_is_not_used(tmp_path: Path) -> None:
    wheel = tmp_path / "x-1-py3-none-any.whl"
    lines = ["Metadata-Version: 2.1", "Name: x", "Requires-Dist: torch==2.13.0+cpu", "Requires-Dist: torchvision",
             'Requires-Dist: pytest; extra == "dev"', "Requires-Dist: numpy", "", "Requires-Dist: not this"]  # fmt: skip
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("x-1.dist-info/METADATA", "\n".join(lines))
    assert read_requirements(wheel) == ["torch==2.13.0+cpu", "numpy"]


def test_what_is_broken_has_a_cause_that_there_is() -> None:
    assert {cause for one in (*VLLM_BREAKS, *LLAMA_BREAKS) for cause in one.causes} <= {
        str(cause) for cause in FailureCause
    }


def test_a_row_that_is_wrong_says_so() -> None:
    assert format_row(Row("a start", 1.0, "ready")).startswith("ok ")
    assert format_row(Row("a start", 1.0, "nothing", "no ready line")).startswith("WRONG")
    assert "no ready line" in format_row(Row("a start", 1.0, "nothing", "no ready line"))


def test_engines_are_kept_out_of_the_repository() -> None:
    assert not job.cache_directory().is_relative_to(Path(__file__).parents[3])
