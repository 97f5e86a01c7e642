"""Runs what failed in a busy run once more, alone: what passes there was slow, and what fails again is broken.

usage: python -m tests.tools.failed_again CACHE LIMIT

The whole run plays hundreds of starts side by side on two cores, and now and then one of them outwaits its patience. Such a
test is told by name, and does not fail a landing. More than LIMIT failures are no accident: nothing is run again then.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:xdist")


def read_failed(cache: Path) -> list[str]:
    """Return the ids of the tests that failed in the run that kept its cache there; none where it wrote none."""
    try:
        failed = json.loads((cache / "v" / "cache" / "lastfailed").read_text())
    except FileNotFoundError:
        return []
    return sorted(name for name, was in failed.items() if was)


def main() -> int:
    cache, limit = Path(sys.argv[1]), int(sys.argv[2])
    failed = read_failed(cache)
    if not failed or len(failed) > limit:
        print(f"== {len(failed)} failed: not run again (1 to {limit} are)")
        return 1
    print(f"== once more, alone: {len(failed)} that failed")
    ended = subprocess.run([*PYTEST, "-o", f"cache_dir={cache}", *failed], check=False).returncode
    if ended == 0:
        for name in failed:
            print(f"PASSED ALONE {name} (it failed beside the others: look why when you have time)")
    return ended


if __name__ == "__main__":
    sys.exit(main())
