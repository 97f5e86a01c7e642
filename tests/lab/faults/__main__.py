"""Every fault that was tried on purpose, one after the other on the lab, and one table: fault, verdict, seconds, what was seen.

``python -m tests.lab.faults [--list] [--only ROW]... [--markdown PAGE]``. Exit 1 where one was not survived, or the lab failed.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.lab.bed.lab import why_not
from tests.lab.faults import page
from tests.lab.faults.rows import ROWS
from tests.lab.faults.trial import Result, judge_row
from tests.tools.nightly.lab_job import on_lab


def main() -> int:
    """Play the rows that were asked for, print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.faults", description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the rows, play none")
    parser.add_argument(
        "--only", action="append", default=[], metavar="ROW", help="this row, or all of this group; repeatable"
    )
    parser.add_argument("--rounds", type=int, default=20, help="how often each race is run")
    parser.add_argument("--markdown", type=Path, metavar="PAGE", help="write what was seen into this page")
    parser.add_argument(
        "--verbose", action="store_true", help="all that a command said, where a fault was not survived"
    )
    options = parser.parse_args()
    known = {name for row in ROWS for name in (row.name, row.group)}
    if unknown := [name for name in options.only if name not in known]:
        parser.error(f"no such row: {', '.join(unknown)}")
    wanted = [row for row in ROWS if not options.only or {row.name, row.group} & set(options.only)]
    if options.list:
        print("\n".join(f"{row.name:24}  {row.fault}" for row in wanted))
        return 0
    if reason := why_not():
        print(f"SKIPPED: what was tried, {reason}")
        return 0
    results: list[Result] = []
    with on_lab() as (lab, _):
        for row in wanted:
            print(f"{time.strftime('%H:%M:%S')}  {row.name}: {row.fault}", flush=True)
            results.append(judge_row(row, lab, options.rounds))
            if options.verbose and not results[-1].is_good:
                print(results[-1].details, flush=True)
    print("\n".join(("", *page.format_table(results))), flush=True)
    if options.markdown is not None:
        before = options.markdown.read_text("utf-8") if options.markdown.exists() else ""
        options.markdown.write_text(page.format_page(ROWS, results, before), "utf-8")
    return int(any(not result.is_good for result in results))


if __name__ == "__main__":
    sys.exit(main())
