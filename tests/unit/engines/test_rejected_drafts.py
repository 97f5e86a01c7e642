"""The simulated fault: drafts are proposed, and none is ever accepted."""

from __future__ import annotations

import pytest

from sparkctl.engines.simulation.decode_model import compute_position_acceptance


@pytest.mark.parametrize("drafted", [0, 1, 3, 11])
def test_without_a_token_more_than_its_own_no_position_counts(drafted: int) -> None:
    assert compute_position_acceptance(1.0, drafted) == [0.0] * drafted


def test_positions_add_up_to_the_length() -> None:
    assert 1 + sum(compute_position_acceptance(2.4, 3)) == pytest.approx(2.4, abs=1e-6)
