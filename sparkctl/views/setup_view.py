"""What `setup` changes, as unified diffs."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import unified_diff

from sparkctl.model.node import NodeName
from sparkctl.model.setup_plan import FileChange, SetupStep, SetupStepKind
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, make_row

_STEP_NAMES = {
    SetupStepKind.DOCKER_GROUP: "group docker",
    SetupStepKind.DROP_CACHES: "right to drop the page cache",
    SetupStepKind.CABLE: "cable",
    SetupStepKind.SSH: "SSH between the Sparks",
    SetupStepKind.UNDO: "undo",
}


def format_step_kind(kind: SetupStepKind) -> str:
    """Return the name of a step."""
    return _STEP_NAMES[kind]


def render_fine_part(node: NodeName, sentence: str) -> TextRow:
    """Return a line about what needs no set-up."""
    return make_row(Span(f"{node}  ", TextStyle.STRONG), Span(sanitize_line(sentence), TextStyle.LABEL))


def render_setup_step(node: NodeName, step: SetupStep) -> Iterator[TextRow]:
    """Yield a step: what it is good for, then each file as a diff."""
    yield make_row(Span(f"{node}  ", TextStyle.STRONG), Span(sanitize_line(step.summary)))
    for change in step.changes:
        for line in format_diff(change):
            style = {"+": TextStyle.GOOD, "-": TextStyle.BAD, "@": TextStyle.LABEL}.get(line[:1], TextStyle.PLAIN)
            yield make_row(Span(f"  {line}", TextStyle.LABEL if line.startswith(("+++", "---")) else style))


def format_diff(change: FileChange) -> list[str]:
    """Return the unified diff of a file; /dev/null stands for a file that is not there."""
    before, after = (text.splitlines() if text is not None else [] for text in (change.before, change.after))
    old = change.path if change.before is not None else "/dev/null"
    new = change.path if change.after is not None else "/dev/null"
    return [sanitize_line(line) for line in unified_diff(before, after, old, new, lineterm="")]
