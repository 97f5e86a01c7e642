"""The list of profiles and the plan, as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.views.profiles.launch_plan_view import _NEEDLESS_ESCAPES
from sparkctl.views.profiles.profile_view import format_profile_list, summarize_reference
from sparkctl.views.text.styled_text import join_text


def test_columns_stand_below_each_other_whatever_they_hold(tmp_path: Path) -> None:
    (tmp_path / "qwen36.yaml").write_text("schema: 1\nname: qwen36\nextends: qwen36\ntitle: Mine\n")
    (tmp_path / "two words.yaml").write_text("schema: 1\nport: many\nname: x\n")
    lines = [join_text(row) for row in format_profile_list(ProfileLibrary(user=tmp_path).list_summaries(), width=None)]
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


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "qwen36-vllm",
            "23.3 tok/s for one request, 61 for 8, 2.5–3.5 per step; up to 8,192 tokens of context · al-engr.com",
        ),
        ("qwen36-ngram", "12.7 tok/s for one request, 43.1 for 8, 1.65–1.85 per step · al-engr.com"),
        (
            "qwen3-coder-next-dflash",
            "27–36 tok/s for one request, 20–35 % of drafts; ready after 9 min 30 s; first request 9.3 tok/s; "
            "up to 262,144 tokens of context · forums.developer.nvidia.com",
        ),
        ("qwen35-35b-dflash", "31–175.4 tok/s for one request, by its task · forums.developer.nvidia.com"),
    ],
)
def test_what_a_source_measured_is_summed_up_with_its_drafts_and_its_context(name: str, expected: str | None) -> None:
    profile = ProfileLibrary(user=Path("no-such-folder")).load_profile(name)
    assert summarize_reference(profile.reference) == expected
