"""``python -m tests.tools.bench [NAME...] [--rounds N] [--json]``. Exit 1 where a goal is not met."""

from __future__ import annotations

import argparse
import importlib
import sys

from tests.tools.bench.report_table import format_json, format_report

BENCHES = (
    "help",
    "status",
    "latency",
    "throughput",
    "memory",
    "probe",
    "guard",
    "logview",
    "storm",
    "panel",
    "growth",
    "diagnose",
    "history",
    "switch",
    "sync",
    "pull",
    "sampling",
)


def main() -> int:
    """Run the named benches, all without a name, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHES)}")
    parser.add_argument("--rounds", type=int, help="rounds that count, in place of the bench's own number")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in BENCHES]:
        parser.error(f"no such bench: {', '.join(unknown)}")
    met = True
    for name in options.names or BENCHES:
        run = importlib.import_module(f"tests.tools.bench.{name}").run
        report = run() if options.rounds is None else run(options.rounds)
        met = met and all(goal.holds for goal in report.goals)
        print(format_json(report) if options.json else "\n".join((*format_report(report), "")), flush=True)
    return 0 if met else 1


sys.exit(main())
