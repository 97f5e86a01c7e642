"""What a streamed chat tells of its own drafts, and of when its tokens came."""

from __future__ import annotations

import json

import pytest

from sparkctl.commands.bench.chat_stream import ChatStreamReader, StreamedAnswer
from sparkctl.commands.bench.run_domains import list_passes

# vLLM 0.32.0 with --per-request-spec-decode-metrics summary, its last event
VLLM = {
    "choices": [],
    "usage": {"prompt_tokens": 20, "completion_tokens": 64, "total_tokens": 84},
    "metrics": {
        "speculative_decoding": {
            "mean_acceptance_length": 3.0, "draft_acceptance_rate": 0.5, "acceptance_histogram": [4, 4, 6, 4, 3],
            "num_spec_steps": 21, "num_accepted_draft_tokens": 42, "num_draft_tokens": 84, "num_spec_tokens": 4,
        }
    },
}  # fmt: skip
SGLANG = {
    "choices": [],
    "usage": {
        "completion_tokens": 64,
        "completion_tokens_details": {
            "spec_verify_ct": 20,
            "spec_num_correct_drafts": 40,
            "spec_num_proposed_drafts": 100,
        },
    },
}


def read_stream(*events: object) -> StreamedAnswer:
    """One event a second, cut in the middle of a line as a network may."""
    reader = ChatStreamReader(0.0)
    for when, event in enumerate(events, 1):
        line = f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode()
        reader.feed(line[:9], float(when))
        reader.feed(line[9:], float(when))
    assert reader.has_ended
    return reader.build_answer()


def piece(text: str, kind: str = "content") -> object:
    return {"choices": [{"index": 0, "delta": {kind: text}}]}


@pytest.mark.parametrize(
    ("last", "steps", "accepted", "proposed"), [(VLLM, 21, 42, 84), (SGLANG, 20, 40, 100)], ids=["vllm", "sglang"]
)
def test_a_request_that_tells_its_own_drafts_needs_no_counters(
    last: object, steps: int, accepted: int, proposed: int
) -> None:
    answer = read_stream(piece("a"), piece("b"), last, "[DONE]")
    assert (answer.steps, answer.accepted, answer.proposed) == (steps, accepted, proposed)
    assert (answer.tokens, answer.ttft, answer.seconds, answer.rate) == (64, 1.0, 1.0, 63.0)


@pytest.mark.parametrize("metrics", [None, {}, {"speculative_decoding": None}, {"speculative_decoding": [1]}, "none"])
def test_without_figures_of_its_own_nothing_is_made_up(metrics: object) -> None:
    last = {"choices": [], "usage": {"completion_tokens": 2}, "metrics": metrics}
    answer = read_stream(piece("a"), last, "[DONE]")
    assert (answer.steps, answer.accepted, answer.proposed, answer.tokens) == (None, None, None, 2)


def test_reasoning_is_seen_and_its_first_piece_is_the_first_token() -> None:
    answer = read_stream(piece("", "content"), piece("hm", "reasoning_content"), piece("a"), "[DONE]")
    assert answer.has_thought
    assert (answer.ttft, answer.seconds) == (2.0, 1.0)


@pytest.mark.parametrize(
    ("pieces", "has_thought"),
    [
        ([piece("Hm", "reasoning_content"), piece("Paris")], True),
        ([piece("\n"), piece("<thi"), piece("nk>Hm</think>Paris")], True),  # as a parser that appends the thoughts
        ([piece("<"), piece("b>Paris</b> <think>")], False),
        ([piece("Paris")], False),
    ],
)
def test_thoughts_are_known_also_where_they_are_in_the_text(pieces: list[object], has_thought: bool) -> None:
    assert read_stream(*pieces, "[DONE]").has_thought is has_thought


def test_only_what_can_think_and_not_think_has_two_passes() -> None:
    assert list_passes(thinks=True, thinks_anyway=False, has_parser=False) == (False, True)
    assert list_passes(thinks=False, thinks_anyway=False, has_parser=True) == (False, True)
    assert list_passes(thinks=True, thinks_anyway=True, has_parser=True) == (True,)
    assert list_passes(thinks=False, thinks_anyway=False, has_parser=False) == (None,)
