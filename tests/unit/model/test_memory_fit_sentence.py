"""What a fit says in one sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.model.memory_fit import FitOutcome, MemoryFit
from sparkctl.model.node import NodeName


@pytest.mark.parametrize("answer", FitOutcome)
def test_a_start_is_refused_where_it_does_not_fit_as_it_is(answer: FitOutcome) -> None:
    fit = MemoryFit(node=NodeName("spark1"), profile="qwen36", answer=answer)
    assert fit.is_refused is (answer not in (FitOutcome.FITS, FitOutcome.AFTER_DROP_CACHES, FitOutcome.UNKNOWN))


def test_whether_a_share_fits_is_asked_of_the_share_and_not_of_the_need() -> None:
    alone = MemoryFit(node=NodeName("spark1"), profile="qwen36", answer=FitOutcome.UNKNOWN, parts=())
    assert alone.summary_sentence == "whether qwen36 fits on spark1 is not known"
    both = replace(alone, profile="minimax-m27", sparks=2)
    assert both.summary_sentence == "minimax-m27 needs 2 Sparks: whether its share fits on spark1 is not known"
