"""The pages of the documentation, and the marked blocks in them: ``<!-- generated: NAME -->`` to ``<!-- end -->``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
_BLOCK = re.compile(r"(?P<start><!-- generated: (?P<name>[a-z-]+) -->\n)(?P<table>.*?)(?P<end><!-- end -->)", re.DOTALL)


def owner_pages() -> list[Path]:
    """Return the README and the pages of ``docs/`` that an owner reads."""
    for_developers = {"architecture.md", "what-was-tried.md"}
    return [ROOT / "README.md", *(page for page in sorted(DOCS.glob("*.md")) if page.name not in for_developers)]


def generated_pages() -> list[Path]:
    """Return the pages that have generated blocks."""
    return [page for page in owner_pages() if _BLOCK.search(page.read_text(encoding="utf-8"))]


def block_names(text: str) -> list[str]:
    """Return the names of the generated blocks of a page."""
    return [match["name"] for match in _BLOCK.finditer(text)]


def outdated_blocks(text: str, tables: Mapping[str, str]) -> list[str]:
    """Return the names of a page's blocks that the code would fill otherwise. Raises KeyError for an unknown name."""
    return [match["name"] for match in _BLOCK.finditer(text) if match["table"] != tables[match["name"]]]


def refresh(text: str, tables: Mapping[str, str]) -> str:
    """Return a page with each block filled as the code has it now."""
    return _BLOCK.sub(lambda match: match["start"] + tables[match["name"]] + match["end"], text)
