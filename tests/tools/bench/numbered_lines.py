"""A program for a container that prints many numbered lines at full speed."""

from __future__ import annotations

WIDTH = 100  # bytes of a line, its newline included: about what an engine writes
_PROGRAM = """
import sys
filler = "x" * ({width} - 10)
for first in range(1, {count} + 1, 1000):
    sys.stdout.write("".join(f"{{n:08d}} {{filler}}\\n" for n in range(first, min(first + 1000, {count} + 1))))
"""


def build_numbered_program(count: int) -> str:
    """Return the Python program that prints ``count`` lines of WIDTH bytes."""
    return _PROGRAM.format(width=WIDTH, count=count)
