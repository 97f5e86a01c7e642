"""Hooks of mkdocs: what the pages link to outside of docs/ becomes a part of the site."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[3]


def on_files(files: Files, config: Any) -> Files:
    """Add the pictures and the page for contributors."""
    for path in (*sorted((ROOT / "screenshots").glob("*.png")), ROOT / "CONTRIBUTING.md"):
        files.append(File.generated(config, str(path.relative_to(ROOT)), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return a page whose links name places in the site."""
    if page.file.src_uri == "CONTRIBUTING.md":
        return re.sub(r"\]\(docs/", "](", markdown)
    return re.sub(r"\]\(\.\./(?=screenshots/|CONTRIBUTING\.md)", "](", markdown)
