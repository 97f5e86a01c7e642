"""Check the generated tables of the documentation, or write them: ``python -m tests.tools.docs [--write]``."""

from __future__ import annotations

import argparse
import sys

from tests.tools.docs.blocks import blocks
from tests.tools.docs.pages import generated_pages, outdated_blocks, refresh


def main() -> int:
    """Run the command and return its exit code: 1 where a table is out of date and was not written."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.docs", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the tables that are out of date")
    write = parser.parse_args().write
    tables = blocks()
    for page in generated_pages():
        text = page.read_text(encoding="utf-8")
        for name in outdated_blocks(text, tables):
            print(f"{page.name}: {name} {'written' if write else 'is out of date'}")
        if write:
            page.write_text(refresh(text, tables), encoding="utf-8")
    is_current = write or not any(
        outdated_blocks(page.read_text(encoding="utf-8"), tables) for page in generated_pages()
    )
    return 0 if is_current else 1


if __name__ == "__main__":
    sys.exit(main())
