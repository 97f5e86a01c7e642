"""The list of profiles and the plan, as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.views.profiles.launch_plan_view import _NEEDLESS_ESCAPES
from sparkctl.views.profiles.profile_view import format_profile_list
from sparkctl.views.text.styled_text import join_text


def test_columns_stand_below_each_other_whatever_they_hold(tmp_path: Path) -> None:
    (tmp_path / "qwen36.yaml").write_text("schema: 1\nname: qwen36\nextends: qwen36\ntitle: Mine\n")
    (tmp_path / "two words.yaml").write_text("schema: 1\nport: many\nname: x\n")
    lines = [join_text(row) for row in format_profile_list(ProfileLibrary(user=tmp_path).list_summaries())]
    assert lines[0].split() == ["NAME", "ENGINE", "FROM", "TITLE"]
    broken = next(line for line in lines if "two words" in line)
    mine = next(line for line in lines if line.endswith("Mine"))
    shipped = next(line for line in lines if line.startswith("orpheus-tts"))
    assert broken.endswith("broken: sparkctl profiles check 'two words'")
    assert len(broken) <= 110
    assert len({line.index(word) for line, word in ((mine, "yours"), (broken, "yours"), (shipped, "shipped"))}) == 1
    assert mine.index("Mine") == broken.index("broken")


@pytest.mark.parametrize(
    ("pattern", "shown"),
    [
        (r"^The\ server\ is\ fired\ up\ and\ ready\ to\ roll\!", "^The server is fired up and ready to roll!"),
        (r"Application startup complete\.", r"Application startup complete\."),
        (r"\d+ done \- \[ok\]", r"\d+ done - \[ok\]"),
    ],
)
def test_a_pattern_is_shown_without_the_escapes_that_only_programs_write(pattern: str, shown: str) -> None:
    assert _NEEDLESS_ESCAPES.sub(r"\1", pattern) == shown
