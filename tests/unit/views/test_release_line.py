"""What became of an instance's memory, in one line."""

from __future__ import annotations

import pytest

from sparkctl.model.events import MemoryReleased
from sparkctl.model.node import NodeName
from sparkctl.model.text.units import GIB
from sparkctl.views.event_text import format_release

HELD = (
    ("process 812 (VLLM::EngineCore\x1b[2J), which outlived it", 11 * GIB),
    ("psm_1 in /dev/shm, not in use", None),
)


@pytest.mark.parametrize(
    ("freed", "missing", "holders", "before", "available", "line"),
    [
        (88, 0, (), 111, 110, "q: nothing of it is left; 110.0 GiB available, 111.0 before it was started"),
        (88, 0, (), None, 110, "q: nothing of it is left; 110.0 GiB available"),
        (
            None,
            None,
            (),
            None,
            None,
            "q: none of its processes is left; its memory could not be measured",
        ),
        (70, 18, (), 111, 92, "q: 18.0 GiB did not come back"),
        (
            *(77, 11, HELD, 111, 99),
            "q: 11.0 GiB did not come back; process 812 (VLLM::EngineCore), which outlived it: 11.0 GiB; "
            "psm_1 in /dev/shm, not in use",
        ),
    ],
    ids=["proved", "never seen before", "not measured", "missing", "held"],
)
def test_a_release_shows_its_proof_or_the_leftovers(
    freed: int | None, missing: int | None, holders: tuple[tuple[str, int | None], ...], before: int | None,
    available: int | None, line: str,
) -> None:  # fmt: skip
    freed_, missing_, before_, available_ = (
        None if one is None else one * GIB for one in (freed, missing, before, available)
    )
    event = MemoryReleased(
        ts=1.0,
        node=NodeName("spark1"),
        instance="q",
        freed=freed_,
        missing=missing_,
        holders=holders,
        before_start=before_,
        available=available_,
    )
    assert format_release(event) == line
