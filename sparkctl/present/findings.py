"""A finding as text: what is, why it matters, what to do."""

from __future__ import annotations

from sparkctl.model.events import Found
from sparkctl.model.text import clean
from sparkctl.present.symbols import symbol


def finding_lines(found: Found, ascii_only: bool = False) -> list[str]:
    """Return one line, and the remedy under it where there is one."""
    lines = [f"  {symbol(found.severity, ascii_only)} {found.check:12}  {clean(found.message)}"]
    if found.remedy:
        lines.append(f"    {'':12}  try: {clean(found.remedy)}")
    return lines
