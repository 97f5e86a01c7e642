"""Runs the real llama-benchy in sparkctl's place, and notes for itself what the engine counted meanwhile.

``python benchy_spy.py DIRECTORY COMMAND WORDS...``: COMMAND gets WORDS. Just before the first measured request (llama-benchy has
told the latency then, and generates nothing until that), and after the last, the engine's page of figures is read, without
sparkctl's code; both and the result go into a file of DIRECTORY. It imports nothing of the project: it runs in whatever Python is
named.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from itertools import pairwise
from pathlib import Path


def main(directory: Path, command: list[str]) -> int:
    """Run it; return its exit status."""
    options = dict(pairwise(command))
    if "--base-url" not in options:  # --version
        return subprocess.call(command)
    page = options["--base-url"].removesuffix("/v1") + "/metrics"
    left = int(options["--runs"]) * int(options["--concurrency"])
    pages: list[str] = []
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        kind = _read_kind(line)
        if kind == "latency_measured":
            pages.append(_read_page(page))
        elif kind == "request_end":
            left -= 1
            if left == 0:
                pages.append(_read_page(page))
        print(line, end="", flush=True)
    status = process.wait()
    result = Path(options["--save-result"])
    document = json.loads(result.read_text(encoding="utf-8")) if status == 0 and result.exists() else None
    seen = {"runs": int(options["--runs"]), "pages": pages, "result": document}
    (directory / f"{len(list(directory.iterdir()))}.json").write_text(json.dumps(seen), encoding="utf-8")
    return status


def _read_kind(line: str) -> str | None:
    try:
        return str(json.loads(line)["type"])
    except (ValueError, TypeError, KeyError):
        return None


def _read_page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
