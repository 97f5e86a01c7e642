"""Whether the page cache was really dropped: by the kernel's own count."""

from __future__ import annotations

import pytest

from sparkctl.commands.drop_page_cache import is_drop_confirmed


@pytest.mark.parametrize(
    ("before", "after", "is_confirmed"),
    [(3, 4, True), (3, 9, True), (0, 1, True), (3, 3, False), (4, 3, False), (None, 4, None), (3, None, None)],
)
def test_a_drop_is_proved_by_a_count_that_rose(
    before: int | None, after: int | None, is_confirmed: bool | None
) -> None:
    assert is_drop_confirmed(before, after) is is_confirmed
