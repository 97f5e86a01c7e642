"""What a decode step reads, by the tensors of the files on the node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.commands.start.start_measurements import measure_decode_step
from sparkctl.model.decode_step import DecodeStepSpec, RoutedExperts, TensorSizes

QWEN = TensorSizes(
    whole=16_381_470_720, parts={"embedding": 1_244_659_712, "output": 1_244_659_712, "body": 13_892_151_296}
)
DRAFT = TensorSizes(
    whole=4_033_000_000, parts={"embedding": 1_244_659_712, "output": 1_244_659_712, "body": 1_543_680_576}
)
DRAFTING = DecodeStepSpec(draft_tokens=3, draft_passes=3)


def test_an_embedding_table_of_its_own_is_not_read() -> None:
    step = measure_decode_step(DecodeStepSpec(weights=5, kv_per_token=147_456), QWEN, None)
    assert step == DecodeStepSpec(weights=16_381_470_720, unread=1_244_659_712, kv_per_token=147_456, is_measured=True)


def test_the_files_of_a_draft_model_lose_their_table_too() -> None:
    step = measure_decode_step(replace(DRAFTING, draft_weights=7), QWEN, DRAFT)
    assert step.draft_weights == 4_033_000_000 - 1_244_659_712
    unknown = measure_decode_step(replace(DRAFTING, draft_weights=7), QWEN, None)
    assert unknown.draft_weights == 7, "the profile's figure is the fallback"


def test_a_draft_head_without_an_output_layer_uses_the_models() -> None:
    """EAGLE shares embedding and output with the model; a tied draft model reads its own table."""
    eagle = TensorSizes(whole=500, parts={"body": 500})
    assert measure_decode_step(DRAFTING, QWEN, eagle).draft_weights == 500 + 1_244_659_712
    tied = TensorSizes(whole=700, parts={"body": 500, "embedding": 200}, is_tied=True)
    assert measure_decode_step(DRAFTING, QWEN, tied).draft_weights == 700


def test_a_draft_head_in_the_checkpoint_is_read_only_where_it_drafts() -> None:
    parts = {
        "body": 1000,
        "experts": 8000,
        "embedding": 300,
        "output": 300,
        "draft_body": 50,
        "draft_experts": 800,
        "draft_embedding": 300,
    }
    sizes = TensorSizes(whole=sum(parts.values()), parts=parts, expert_count=8, experts_per_token=2)
    off = measure_decode_step(DecodeStepSpec(), sizes, None)
    assert (off.unread, off.draft_weights) == (300 + 1150, None)
    assert off.experts == RoutedExperts(8000, 8, 2)
    on = measure_decode_step(DRAFTING, sizes, None)
    assert on.draft_weights == 50 + 800 // 4 + 300, "its own layer, two of its eight experts, the model's output layer"
    ngram = measure_decode_step(DecodeStepSpec(draft_tokens=3, draft_passes=0), sizes, None)
    assert ngram.draft_weights is None


def test_experts_of_the_profile_stay_where_the_config_does_not_say_how_many_a_token_uses() -> None:
    sizes = TensorSizes(whole=9000, parts={"body": 1000, "experts": 8000}, expert_count=8)
    result = DecodeStepSpec(experts=RoutedExperts(7900, 8, 2))
    assert measure_decode_step(result, sizes, None).experts == result.experts


@pytest.mark.parametrize(("float32", "weights"), [(0, 1000), (100, 1000), (1000, 500)])
def test_a_checkpoint_of_32_bits_is_loaded_in_16(float32: int, weights: int) -> None:
    sizes = TensorSizes(whole=1000, parts={"body": 1000}, float32=float32)
    assert measure_decode_step(DecodeStepSpec(), sizes, None).weights == weights
