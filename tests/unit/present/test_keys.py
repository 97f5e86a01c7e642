"""The README's table of keys is the actions' own."""

from __future__ import annotations

from pathlib import Path

from sparkctl.present.keys import readme_table
from sparkctl.tui.screens import AVAILABLE

README = Path(__file__).parents[3] / "README.md"


def test_the_readme_has_the_keys_that_there_are() -> None:
    between = README.read_text().partition("<!-- keys -->\n")[2].partition("<!-- /keys -->")[0]
    assert between == readme_table(AVAILABLE)
