"""The simulated fault: drafts are proposed, and none is ever accepted."""

from __future__ import annotations

import pytest

from sparkctl.engines.simulation.decode_model import DecodeModel, compute_position_acceptance
from sparkctl.engines.simulation.simulated_clock import SimClock, SimPace
from sparkctl.engines.simulation.simulated_engine import parse_launch


@pytest.mark.parametrize("drafted", [0, 1, 3, 11])
def test_without_a_token_more_than_its_own_no_position_counts(drafted: int) -> None:
    assert compute_position_acceptance(1.0, drafted) == [0.0] * drafted


def test_positions_add_up_to_the_length() -> None:
    assert 1 + sum(compute_position_acceptance(2.4, 3)) == pytest.approx(2.4, abs=1e-6)


@pytest.mark.parametrize(
    "words",
    [
        ("vllm", "serve", "Qwen/Qwen3-8B", "--speculative-config", '{"method": "mtp", "num_speculative_tokens": 2}'),
        ("python3", "-m", "sglang.launch_server", "--model-path", "Qwen/Qwen3-8B", "--speculative-algorithm", "NGRAM"),
    ],
)
def test_an_engine_with_the_fault_drafts_in_each_step_and_accepts_nothing(words: tuple[str, ...]) -> None:
    launch = parse_launch(
        f"some/{'vllm' if words[0] == 'vllm' else 'sglang'}:1", words, {"SIM_FAULT": "rejected-drafts"}, None
    )
    model = DecodeModel(launch, SimPace(SimClock()))
    before = model.update_counts()
    model.add_request(prompt=20, generated=240)
    made = model.update_counts().subtract(before)
    assert launch.draft_tokens > 0
    assert (made.steps, made.accept_length, sum(made.accepted)) == (240, 1.0, 0.0)
