"""The label that says what a step reads: what is planned is what is read back, and nonsense there is not known."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkctl.engines.base import DecodingSettings
from sparkctl.model.decode_step import DecodeStepSpec, RoutedExperts
from sparkctl.model.profile import ModelSpec
from sparkctl.profiles.container_labels import build_decode_step_spec, format_decode_step_label, parse_decode_step_label

sizes = st.none() | st.integers(1, 10**13)
counts = st.none() | st.integers(0, 1000)
experts = st.builds(
    lambda weights, count, per_token: RoutedExperts(weights, count, min(count, per_token)),
    st.integers(1, 10**9), st.integers(1, 512), st.integers(1, 16),
)  # fmt: skip
facts = st.builds(
    DecodeStepSpec,
    weights=sizes.map(lambda size: None if size is None else size + 10**9),
    parameters=sizes,
    active_parameters=sizes,
    experts=st.none() | experts,
    draft_weights=sizes,
    draft_passes=counts,
    draft_tokens=counts,
    kv_per_token=sizes,
    ranks=st.integers(1, 16),
)


@given(facts)
def test_an_encoded_label_decodes_to_the_same(known: DecodeStepSpec) -> None:
    text = format_decode_step_label(known)
    assert (parse_decode_step_label(text) or DecodeStepSpec()) == known


def test_the_label_is_small_and_says_only_what_is_known() -> None:
    assert format_decode_step_label(build_decode_step_spec(ModelSpec(), DecodingSettings())) is None
    made = build_decode_step_spec(
        ModelSpec(weights=27 * 10**9, parameters=27 * 10**9), DecodingSettings(draft_tokens=3, draft_passes=3)
    )
    assert (
        format_decode_step_label(made)
        == '{"weights":27000000000,"parameters":27000000000,"draft_passes":3,"draft_tokens":3}'
    )
    assert format_decode_step_label(build_decode_step_spec(ModelSpec(), DecodingSettings(ranks=2))) == '{"ranks":2}'


@pytest.mark.parametrize("text", [None, "", "[]", "7", "null", "{", "[" * 100_000, '{"weights":1,"ranks":0}'])
def test_another_label_is_not_known(text: str | None) -> None:
    assert parse_decode_step_label(text) is None


def test_each_field_that_makes_no_sense_is_not_known() -> None:
    bad = {"weights": -1, "parameters": "27B", "active_parameters": True, "draft_weights": 1.5, "draft_passes": 10**9,
           "draft_tokens": None, "kv_per_token": 1 << 60, "experts": {"count": 8}, "more": 1}  # fmt: skip
    assert parse_decode_step_label(json.dumps(bad)) == DecodeStepSpec()
    for wrong in (
        {"weights": 5, "count": 8, "per_token": 9},
        {"weights": 11, "count": 8, "per_token": 2},
        {"weights": 5, "count": 0, "per_token": 0},
        [],
    ):
        assert parse_decode_step_label(json.dumps({"weights": 10, "experts": wrong})) == DecodeStepSpec(weights=10)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["weights", "experts", "count", "per_token", "ranks", "draft_tokens", "x"]), inner, max_size=4
    ),
)  # fmt: skip


@given(json_values)
def test_no_label_is_an_error(value: object) -> None:
    found = parse_decode_step_label(json.dumps(value))
    assert found is None or found.ranks >= 1
