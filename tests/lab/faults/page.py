"""The table of results: as text for a terminal, and as the page `docs/what-was-tried.md`."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

from tests.lab.faults.tested import TESTED_FAULTS
from tests.lab.faults.trial import Result, Row, Verdict

_WIDE = 76
_HEAD = """\
# What was tried

Each row is a fault that was caused on purpose, on real OpenSSH servers and real Docker Engines in the lab
(`tests/lab`: two nodes in network namespaces of one machine, a stand-in in place of the engine, no GPU), with the real
command in a process of its own.

*survived*: it said what was so, nothing was lost or doubled, and the next normal command worked. *lied*: it said, or kept
silent about, something that was not so. *lost*: a model, a line or a file was lost or doubled. *hung*: it did not end in
its time. *crashed*: a traceback, or exit 70. *not tried*: this machine, or the lab, could not do it.

    python -m tests.lab.faults                                     # all of them, as root; the table, exit 1 where one is bad
    python -m tests.lab.faults --list
    python -m tests.lab.faults --only loss-and-delay --verbose
    python -m tests.lab.faults --markdown docs/what-was-tried.md   # and this page anew

`.ci/nightly` runs all of them as its job `faults`. What this page says was seen is of the last run that wrote it.
"""
_TAIL = """
## Caused by CI's own tests

These pass whenever the tests do (`tests/run`), so no run of the table plays them again.

| fault | what is expected | test |
|---|---|---|
"""
_COLUMNS = "| fault | what is done | what is expected | what was seen | verdict |\n|---|---|---|---|---|\n"
_LINE = re.compile(r"^\| `([a-z0-9.-]+)` \| .* \| (.*) \| \**([a-z ]+)\** \|$", re.MULTILINE)
_NEVER = ("", "not run yet")


def format_table(results: Sequence[Result]) -> Iterator[str]:
    """Yield the lines of the table, and how many came out how."""
    wide = max((len(one.row.name) for one in results), default=5)
    yield f"{'fault':{wide}}  {'verdict':9}  {'seconds':>7}  seen"
    for one in results:
        first, *others = textwrap.wrap(one.seen or "-", _WIDE) or ["-"]
        yield f"{one.row.name:{wide}}  {one.verdict:9}  {one.seconds:7.0f}  {first}"
        yield from (f"{'':{wide + 22}}{other}" for other in others)
    for one in results:
        if one.verdict is Verdict.NOT_TRIED and one.is_good:
            yield f"SKIPPED: {one.row.name}, {one.seen}"
    counts = Counter(str(one.verdict) for one in results)
    yield f"{len(results)} faults: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items())


def format_page(rows: Sequence[Row], results: Sequence[Result], before: str = "") -> str:
    """Return the whole page; of rows without a result what the page ``before`` says of them is kept."""
    known = {name: (seen, verdict) for name, seen, verdict in _LINE.findall(before)}
    known |= {one.row.name: (_escape_cell(one.seen), str(one.verdict)) for one in results}
    parts = [_HEAD]
    for group in dict.fromkeys(row.group for row in rows):
        parts.append(f"\n## {group[0].upper()}{group[1:]}\n\n{_COLUMNS}")
        for row in rows:
            if row.group == group:
                seen, verdict = known.get(row.name, _NEVER)
                shown = verdict if verdict == Verdict.SURVIVED else f"**{verdict}**"
                parts.append(
                    f"| `{row.name}` | {_escape_cell(row.fault)} | {_escape_cell(row.expected)} | {seen} | {shown} |\n"
                )
    parts.append(_TAIL)
    parts += [f"| {one.fault} | {one.expected} | `{one.file}::{one.test}` |\n" for one in TESTED_FAULTS]
    return "".join(parts)


def _escape_cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()
