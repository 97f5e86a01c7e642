"""stdout: data, for pipes and scripts. Nothing else in the tree writes there."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable

from sparkctl.model.text import clean


def text(line: str = "") -> None:
    """Print one line of ours; text from a node must have been cleaned by whoever made the line."""
    print(line, flush=True)  # noqa: T201


def texts(lines: Iterable[str]) -> None:
    """Print lines."""
    for line in lines:
        text(line)


def remote(lines: Iterable[str]) -> None:
    """Print lines that came from a node: cleaned here, so that no control character can pass. One write for all."""
    sys.stdout.write("".join(f"{clean(line)}\n" for line in lines))
    sys.stdout.flush()


def document(value: object) -> None:
    """Print one JSON document, or one JSON line of a stream."""
    print(json.dumps(value, ensure_ascii=True, separators=(",", ":")), flush=True)  # noqa: T201


def screen(lines: Iterable[str]) -> None:
    """Repaint a terminal from the top: `status --watch`."""
    body = "\x1b[K\n".join(lines)
    sys.stdout.write(f"\x1b[H{body}\x1b[K\n\x1b[J")
    sys.stdout.flush()


def is_terminal() -> bool:
    """Tell whether somebody looks at stdout."""
    return sys.stdout.isatty()
