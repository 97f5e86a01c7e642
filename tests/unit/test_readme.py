"""What the README says of the code is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FILE = re.compile(r"`([\w./-]+\.(?:py|sh))`")


def test_the_files_of_the_architecture_are_where_it_says() -> None:
    """A bare name is that of a file in a folder which its paragraph, or the list of folders, has named."""
    whole = (ROOT / "README.md").read_text(encoding="utf-8")
    text = whole.partition("\n## Architecture\n")[2].partition("\n## ")[0]
    named, missing = 0, []
    for paragraph in text.split("\n\n"):
        folders = {Path(one).parent for one in re.findall(r"`([\w./-]+/[\w.-]*)`", paragraph) if "/" in one}
        folders |= {Path(one) for one in re.findall(r"`([\w./-]+)/`", paragraph)}
        for name in _FILE.findall(paragraph):
            named += 1
            places = [Path(name)] if "/" in name else [folder / name for folder in folders]
            if not any((ROOT / "sparkctl" / place).is_file() for place in places):
                missing.append(name)
    assert named > 50
    assert not missing
