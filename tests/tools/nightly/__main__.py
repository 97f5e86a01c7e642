"""Everything that CI leaves out, one job after the other, and one table: job, result, seconds, why not.

``.ci/nightly`` (which installs what is needed) or ``python -m tests.tools.nightly [--only JOB]... [--recipes DIRECTORY]...``.
Exit 1 where a job failed; one that cannot be run here is skipped with its reason, and the benches only inform.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

from tests.tools.nightly import job_runner
from tests.tools.nightly.engines.install import cache_directory
from tests.tools.nightly.jobs import list_jobs

_KEPT = 14  # nights whose output is kept


def main() -> int:
    """Do what was asked for, print the table."""
    parser = argparse.ArgumentParser(prog=".ci/nightly", description=__doc__)
    parser.add_argument("--list", action="store_true", help="say what the jobs are, and do none")
    parser.add_argument("--only", action="append", default=[], metavar="JOB", help="this job, and others named so")
    parser.add_argument(
        "--recipes", action="append", default=[], type=Path, metavar="DIRECTORY", help="recipes to import"
    )
    parser.add_argument("--cache", type=Path, default=cache_directory(), help="where engines and logs are kept")
    options = parser.parse_args()
    cache = options.cache.absolute()
    known = list_jobs(cache, options.recipes)
    if unknown := [name for name in options.only if name not in {job.name for job in known}]:
        parser.error(f"no such job: {', '.join(unknown)} (there are {', '.join(job.name for job in known)})")
    wanted = [job for job in known if not options.only or job.name in options.only]
    if options.list:
        for job in wanted:
            print(f"{job.name:14}  {job.what}{' (informs only)' if job.informs else ''}")
        return 0
    logs = _make_output_folder(cache / "logs")
    outcomes: list[job_runner.Outcome] = []
    try:
        for job in wanted:
            print(f"{time.strftime('%H:%M:%S')}  {job.name}: {job.what}", flush=True)
            outcomes.append(job_runner.run_job(job, logs))
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        return 130
    finally:
        print("\n".join(("", *job_runner.format_table(outcomes))), flush=True)
    return job_runner.compute_exit_code(outcomes)


def _make_output_folder(logs: Path) -> Path:
    """Make a folder for this night's output; clear away the oldest."""
    here = logs / time.strftime("%Y%m%d-%H%M%S")
    here.mkdir(parents=True, exist_ok=True)
    for old in sorted(one for one in logs.iterdir() if one.is_dir())[:-_KEPT]:
        shutil.rmtree(old)
    return here


if __name__ == "__main__":
    sys.exit(main())
