"""Runs command lines in this process, as a shell would."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

from sparkctl.cli.invocation import invoke_command_line
from tests.golden.shapes import Shape, find_misfits, read_shape, shape_of

STEADY = ("node", "plan", "fit", "phase", "caches", "log", "finding", "moved", "released", "switch-plan", "switch",
          "examined", "result")  # fmt: skip
"""Kinds of events that do not depend on how fast the machine is."""


@dataclass(frozen=True, slots=True)
class CommandRun:
    """What a command line gave. ``lines`` are those of stdout, read as JSON where ``--json`` was given."""

    words: tuple[str, ...]
    exit_code: int
    stdout: str
    stderr: str
    lines: tuple[dict[str, Any], ...]

    @property
    def is_document(self) -> bool:
        """Whether stdout is one JSON document, and no events."""
        return bool(self.lines) and "event" not in self.lines[0]

    def summarize(self) -> str:
        """Return exit code, outcome and kinds of events as one line."""
        parts = [f"exit {self.exit_code}"]
        if self.lines and not self.is_document:
            kinds = {str(line["event"]) for line in self.lines}
            parts += [f"outcome {self.lines[-1]['outcome']}", " ".join(one for one in STEADY if one in kinds)]
        return ", ".join(parts)


def run_command(line: str, values: Mapping[str, object] | None = None) -> CommandRun:
    """Run a command line, words between blanks, with ``{name}`` replaced by values."""
    words = tuple(word.format(**(values or {})) for word in line.split())
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = invoke_command_line(list(words))
    text = out.getvalue()
    is_json = "--json" in words or words[-2:] == ("--format", "json")
    lines = tuple(json.loads(each) for each in text.splitlines()) if is_json else ()
    return CommandRun(words, code, text, err.getvalue(), lines)


def read_event_shapes(text: str) -> dict[str, Shape]:
    """Return the shape of each kind of event in the golden file of all events."""
    sections = (section.partition("\n") for section in text.removeprefix("== ").split("\n\n== "))
    return {kind: read_shape(shape) for kind, _, shape in sections}


def find_event_misfits(run: CommandRun, shapes: Mapping[str, Shape]) -> list[str]:
    """Return what a run's events have that the golden shape of their kind does not allow, or lacks."""
    found: list[str] = []
    for line in run.lines:
        kind = str(line["event"])
        seen = shape_of([{key: value for key, value in line.items() if key != "event"}])
        found += [f"{kind}: {misfit}" for misfit in find_misfits(seen, shapes.get(kind, {}))]
    return list(dict.fromkeys(found))
