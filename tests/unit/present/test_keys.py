"""The README's table of keys is the actions' own."""

from __future__ import annotations

from pathlib import Path

from sparkctl.core.actions import Situation, meant_on, there_are
from sparkctl.present.keys import footer, readme_table
from sparkctl.present.spans import text
from sparkctl.tui.screens import AVAILABLE

README = Path(__file__).parents[3] / "README.md"


def test_the_readme_has_the_keys_that_there_are() -> None:
    between = README.read_text().partition("<!-- keys -->\n")[2].partition("<!-- /keys -->")[0]
    assert between == readme_table(AVAILABLE)


def test_enter_is_offered_where_it_does_something() -> None:
    actions = meant_on(there_are(Situation(screens=frozenset(("doctor",)))), "doctor")
    for now, is_offered in (
        (Situation(remedy="buy a disk"), False),
        (Situation(remedy="sparkctl drop-caches", deed=("drop-caches",)), True),
    ):
        assert ("do it" in text(footer(actions, now, 100)[0])) is is_offered
